//! What becomes of an event: its fate is counted, letters are written, positions follow.
//!
//! Each batch has a [`Receipt`]; whoever brings an event to its end says so with [`Acks::settle`]. A batch is
//! settled when nothing of it is open; dropping a receipt says "not done", never "done".

mod ledger;
mod letter;
mod summary;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::disk::Disk;
use crate::input::budget::Permit;
use crate::output::{Phase, Phases};
use crate::time::Time;

pub use ledger::{Ledger, Span as Reach};
pub use letter::{Letter, LetterFile, Reason};
pub use summary::{Summary, Tally, counted};

/// The claim of one batch on a place in its source.
#[derive(Clone, Debug)]
pub struct Receipt(Arc<Ticket>);

#[derive(Debug)]
struct Ticket {
    partition: u32,
    /// The batch's number within its partition, from 0.
    number: u64,
    open: AtomicI64,
    /// Given back when the last claim on the batch is gone: what bounds the bytes in flight.
    _permit: Option<Permit>,
}

impl Receipt {
    /// A receipt with one claim open, the worker's own.
    pub fn new(partition: u32, number: u64, permit: Option<Permit>) -> Receipt {
        Receipt(Arc::new(Ticket { partition, number, open: AtomicI64::new(1), _permit: permit }))
    }

    /// Opens `events` more claims.
    pub fn open(&self, events: usize) {
        self.0.open.fetch_add(events as i64, Ordering::Relaxed);
    }

    pub fn partition(&self) -> u32 {
        self.0.partition
    }

    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Closes `claims`; true when none is left.
    fn close(&self, claims: u64) -> bool {
        let before = self.0.open.fetch_sub(claims as i64, Ordering::AcqRel);
        debug_assert!(before >= claims as i64, "more claims closed than were open");
        before == claims as i64
    }
}

/// Ends of events of one batch.
#[derive(Debug)]
pub struct Settled {
    pub receipt: Receipt,
    /// Fates that only count. Letters are counted by their number.
    pub tally: Tally,
    pub letters: Vec<Letter>,
    /// How many claims of the receipt this closes.
    pub claims: u64,
}

/// The way back: from workers and outputs to the one thread that counts, writes letters and moves positions.
#[derive(Clone, Debug)]
pub struct Acks(mpsc::Sender<Settled>);

impl Acks {
    pub fn channel() -> (Acks, mpsc::Receiver<Settled>) {
        let (send, receive) = mpsc::channel();
        (Acks(send), receive)
    }

    /// Tells the ends of events: as many claims are closed as `tally` has fates and `letters` letters.
    pub fn settle(&self, receipt: &Receipt, tally: Tally, letters: Vec<Letter>) {
        let claims = tally.fates() + letters.len() as u64;
        self.send(Settled { receipt: receipt.clone(), tally, letters, claims });
    }

    /// As [`Acks::settle`], and gives up the worker's own claim.
    pub fn finish(&self, receipt: &Receipt, tally: Tally, letters: Vec<Letter>) {
        let claims = tally.fates() + letters.len() as u64 + 1;
        self.send(Settled { receipt: receipt.clone(), tally, letters, claims });
    }

    fn send(&self, settled: Settled) {
        // the counting thread ends only when every sender is gone, so there is somebody to hear
        let _ = self.0.send(settled);
    }
}

/// How long to wait before letters that could not be written are tried again.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// Takes what is settled until every [`Acks`] is gone: letters first, to the disk, then counts and positions.
pub fn run<D: Disk>(settled: &mpsc::Receiver<Settled>, letters: &mut LetterFile<D>, shared: &Shared, phases: &Phases) {
    while let Ok(first) = settled.recv() {
        let mut group = vec![first];
        group.extend(settled.try_iter().take(GROUP_MAX - 1));
        match wait_for_letters(&group, letters, phases) {
            true => shared.count(&group),
            false => shared.count_unsettled(&group),
        }
    }
}

/// How many ends of events are told together, at most.
pub const GROUP_MAX: usize = 256;

/// Writes the letters of a group; until that is done nothing of it may count.
pub fn write_letters<D: Disk>(group: &[Settled], letters: &mut LetterFile<D>, now: Time) -> std::io::Result<()> {
    let written: Vec<&Letter> = group.iter().flat_map(|end| &end.letters).collect();
    if written.is_empty() { Ok(()) } else { letters.append(&written, now) }
}

/// Writes the letters of a group, waiting while the disk does not take them. False if it was given up.
fn wait_for_letters<D: Disk>(group: &[Settled], letters: &mut LetterFile<D>, phases: &Phases) -> bool {
    let mut troubled = false;
    while let Err(error) = write_letters(group, letters, Time::now()) {
        if !std::mem::replace(&mut troubled, true) {
            tracing::error!(path = %letters.path().display(), %error, "dead letters cannot be written; waiting");
        }
        if *phases.borrow() == Phase::Abandon {
            return false;
        }
        std::thread::sleep(RETRY_WAIT);
    }
    if troubled {
        tracing::info!(path = %letters.path().display(), "dead letters are written again");
    }
    true
}

/// Counts and positions, read by the progress bar and at the end.
#[derive(Debug, Default)]
pub struct Shared(std::sync::Mutex<(Summary, Ledger)>);

impl Shared {
    /// Counts a group whose letters are on the disk, and moves positions.
    pub fn count(&self, group: &[Settled]) {
        let mut summary = self.lock();
        for end in group {
            summary.0.add(&end.tally, end.letters.len() as u64);
            if end.receipt.close(end.claims) {
                summary.1.settle(end.receipt.partition(), end.receipt.number());
            }
        }
    }

    /// Nothing of this group counts as done, but it came in.
    pub fn count_unsettled(&self, group: &[Settled]) {
        let mut summary = self.lock();
        group.iter().for_each(|end| summary.0.tally.events_in += end.tally.events_in);
    }

    pub fn lock(&self) -> std::sync::MutexGuard<'_, (Summary, Ledger)> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
