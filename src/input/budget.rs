//! What bounds the bytes in flight: a reader takes what its block weighs before it hands it over, and the last
//! claim on the block gives it back.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

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

    /// Waits until `bytes` are free. A single block that is larger than the whole budget gets all of it.
    pub fn take(self: &Arc<Budget>, bytes: usize) -> Permit {
        let mut free = self.lock();
        loop {
            if let Some(permit) = self.take_of(&mut free, bytes) {
                return permit;
            }
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`Budget::take`], if it can be done without waiting.
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

impl Drop for Permit {
    fn drop(&mut self) {
        *self.budget.lock() += self.bytes;
        self.budget.freed.notify_all();
    }
}
