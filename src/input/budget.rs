//! What bounds the bytes in flight: a reader takes what its block weighs before it hands it over, and the last
//! claim on the block gives it back.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often who waits looks whether it is given up.
const WATCH: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Budget {
    free: Mutex<usize>,
    freed: Condvar,
    bytes_max: usize,
}

/// Bytes taken from a budget until dropped.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub fn new(bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget { free: Mutex::new(bytes_max), freed: Condvar::new(), bytes_max })
    }

    /// Waits until `bytes` are free; none if it is given up before. A single block that is larger than the whole
    /// budget gets all of it.
    pub fn take_unless(self: &Arc<Budget>, bytes: usize, is_given_up: &dyn Fn() -> bool) -> Option<Permit> {
        let mut free = self.lock();
        loop {
            if let Some(permit) = self.take_of(&mut free, bytes) {
                return Some(permit);
            }
            if is_given_up() {
                return None;
            }
            free = self.freed.wait_timeout(free, WATCH).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// As [`Budget::take_unless`], if it can be done without waiting.
    pub fn try_take(self: &Arc<Budget>, bytes: usize) -> Option<Permit> {
        self.take_of(&mut self.lock(), bytes)
    }

    fn take_of(self: &Arc<Budget>, free: &mut usize, bytes: usize) -> Option<Permit> {
        let bytes = bytes.min(self.bytes_max);
        *free = free.checked_sub(bytes)?;
        Some(Permit { budget: self.clone(), bytes })
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.budget.lock() += self.bytes;
        self.budget.freed.notify_all();
    }
}
