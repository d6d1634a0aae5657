//! What a filter reads of a file at the start, and again when the file has changed. A file that cannot be used then is
//! said, and what is there goes on.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

#[derive(Debug)]
pub struct Watched<T> {
    path: PathBuf,
    /// Zero: it is never looked at again.
    interval: Duration,
    held: RwLock<Arc<T>>,
    next_look: Mutex<Look>,
}

/// When the file is looked at next, and when it was changed last.
#[derive(Debug)]
struct Look {
    at: Instant,
    changed: Option<SystemTime>,
}

impl<T> Watched<T> {
    pub fn open(
        path: PathBuf,
        interval: Duration,
        read: impl FnOnce(&Path) -> Result<T, String>,
    ) -> Result<Watched<T>, String> {
        // before it is read, so that what is written meanwhile is a change
        let look = Look { at: Instant::now() + interval, changed: changed_at(&path) };
        let held = RwLock::new(Arc::new(read(&path)?));
        Ok(Watched { path, interval, held, next_look: Mutex::new(look) })
    }

    /// What the file says; `read` makes it of what it said before.
    pub fn get(&self, read: impl FnOnce(&T, &Path) -> Result<T, String>) -> Arc<T> {
        let held = || self.held.read().unwrap_or_else(PoisonError::into_inner).clone();
        if !self.interval.is_zero() && self.is_changed() {
            match read(&held(), &self.path) {
                Ok(new) => *self.held.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new),
                Err(error) => tracing::warn!(%error, "what was read of the file before goes on"),
            }
        }
        held()
    }

    /// Whether it is time to look and the file has changed. One worker looks, the others go on.
    fn is_changed(&self) -> bool {
        let Ok(mut next) = self.next_look.try_lock() else { return false };
        if Instant::now() < next.at {
            return false;
        }
        let changed = changed_at(&self.path);
        let is_changed = changed != next.changed;
        *next = Look { at: Instant::now() + self.interval, changed };
        is_changed
    }
}

fn changed_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|meta| meta.modified()).ok()
}
