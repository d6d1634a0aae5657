//! When positions are saved and noted, and that letters are not written before their files are known by number.

use std::time::Duration;

use tokio::time::Instant;

use super::positions::Save;
use super::{Desk, RETRY_WAIT, Settled, Shared};
use crate::output::Phase;

/// How often positions are saved at most: the disk is waited for, and wears.
pub(super) const SAVE_WAIT: Duration = Duration::from_secs(1);

/// How often they are noted at most.
const NOTE_WAIT: Duration = Duration::from_millis(10);

/// How long saving is tried again at the end, when the disk takes nothing.
const LAST_SAVE_WAIT: Duration = Duration::from_secs(5);

/// When positions are saved and noted, and how the last try went.
pub struct Saving {
    store: Option<Box<dyn Save>>,
    saved: Option<Instant>,
    noted: Option<Instant>,
    /// There is something noted that is not saved.
    is_behind: bool,
    troubled: bool,
}

impl Saving {
    pub fn new(store: Option<Box<dyn Save>>) -> Saving {
        Saving { store, saved: None, noted: None, is_behind: false, troubled: false }
    }

    /// How long until something is to be saved or noted; none if there is nothing.
    pub fn due(&self, shared: &Shared) -> Option<Duration> {
        self.store.as_ref()?;
        let save = left(self.saved, SAVE_WAIT);
        if shared.lock().1.has_moved() && !self.troubled {
            return Some(save.min(left(self.noted, NOTE_WAIT)));
        }
        (self.troubled || self.is_behind || shared.lock().1.has_moved()).then_some(save)
    }

    /// What is due: to save if it can be, to note what moved if it is too early for that.
    pub fn save_or_note(&mut self, shared: &Shared) -> anyhow::Result<()> {
        if left(self.saved, SAVE_WAIT).is_zero() {
            return self.save(shared);
        }
        if let Some(store) = &mut self.store {
            store.note(shared.lock().1.take_moved());
            (self.noted, self.is_behind) = (Some(Instant::now()), true);
        }
        Ok(())
    }

    /// Sees to it that files are known by their numbers before letters of them are written: read again, a line that has
    /// its letter gets no second one. Where that cannot be saved it gets one.
    pub fn note_files(&mut self, group: &[Settled], shared: &Shared) {
        let files = group.iter().filter(|end| !end.letters.is_empty()).filter_map(|end| end.receipt.0.file.as_deref());
        let is_new = files.fold(false, |is_new, file| shared.lock().1.note_file(file) | is_new);
        if is_new && self.store.is_some() {
            // said once, and tried again when it is due again
            let _ = self.save_or_note(shared);
        }
    }

    pub fn save(&mut self, shared: &Shared) -> anyhow::Result<()> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let moved = shared.lock().1.take_moved();
        let saved = store.save(moved);
        self.saved = Some(Instant::now());
        self.is_behind = saved.is_err();
        shared.set_unsaved(saved.as_ref().err());
        match &saved {
            Ok(()) if std::mem::take(&mut self.troubled) => tracing::warn!("positions are saved again"),
            Err(error) if !std::mem::replace(&mut self.troubled, true) => {
                tracing::error!(error = format!("{error:#}"), "positions cannot be saved; trying again");
            }
            _ => {}
        }
        saved
    }

    /// The last save, tried for a time; where a pipeline that was read again goes on from it, until it is done.
    pub(super) fn finish(mut self, desk: &Desk<'_>) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut is_said = false;
        while self.due(desk.shared).is_some() {
            let Err(error) = self.save(desk.shared) else { return Ok(()) };
            if desk.shared.is_awaited() {
                if !std::mem::replace(&mut is_said, true) {
                    tracing::error!("the pipeline that was read again begins when positions are saved");
                }
            } else if started.elapsed() >= LAST_SAVE_WAIT || *desk.phases.borrow() == Phase::Abandon {
                return Err(error.context("positions are not saved: the next run reads some of it again"));
            }
            std::thread::sleep(RETRY_WAIT);
        }
        Ok(())
    }
}

/// What is left of a wait that began then.
fn left(last: Option<Instant>, wait: Duration) -> Duration {
    last.map_or(Duration::ZERO, |last| wait.saturating_sub(last.elapsed()))
}
