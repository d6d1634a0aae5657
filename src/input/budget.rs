//! What bounds the bytes in flight: the memory of what was read and is not settled, with what was made of it. A reader
//! takes what its block is going to weigh before it hands it over; the batch's permit is corrected when it is packed,
//! and whenever a part of it is not needed any more; the last claim on the batch gives it back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often who waits looks whether it is given up.
const WATCH: Duration = Duration::from_millis(100);

/// What a batch weighs without a byte in it.
pub const BATCH_BYTES: usize = 1 << 10;

/// What a block of so many bytes is taken to weigh until it is packed: itself, and a body as large.
pub fn weight(block_bytes: usize) -> usize {
    BATCH_BYTES + 2 * block_bytes
}

#[derive(Debug)]
pub struct Budget {
    /// Below zero where batches became heavier than they were taken for.
    free: Mutex<isize>,
    freed: Condvar,
    bytes_max: usize,
}

/// Bytes taken from a budget until dropped.
#[derive(Debug)]
pub struct Permit {
    budget: Arc<Budget>,
    /// Changed under the budget's lock.
    bytes: AtomicUsize,
}

impl Budget {
    pub fn new(bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget { free: Mutex::new(bytes_max as isize), freed: Condvar::new(), bytes_max })
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

    fn take_of(self: &Arc<Budget>, free: &mut isize, bytes: usize) -> Option<Permit> {
        let bytes = bytes.min(self.bytes_max);
        if *free < bytes as isize {
            return None;
        }
        *free -= bytes as isize;
        Some(Permit { budget: self.clone(), bytes: bytes.into() })
    }

    fn lock(&self) -> MutexGuard<'_, isize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// It is for so many bytes now. Never waits: more than there are is not given to others until it is back.
    pub fn set(&self, bytes: usize) {
        let mut free = self.budget.lock();
        let was = self.bytes.swap(bytes, Ordering::Relaxed);
        *free += was as isize - bytes as isize;
        if bytes < was {
            self.budget.freed.notify_all();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_is_what_nobody_has() {
        let budget = Budget::new(100);
        let first = budget.try_take(60).unwrap();
        assert!(budget.try_take(50).is_none());
        first.set(40);
        let second = budget.try_take(50).unwrap();
        // heavier than it was taken for
        second.set(90);
        assert!(budget.try_take(0).is_none());
        drop(first);
        assert!(budget.try_take(11).is_none());
        assert_eq!(budget.try_take(10).unwrap().bytes(), 10);
        drop(second);
        // more than there is: all
        assert_eq!(budget.try_take(1000).unwrap().bytes(), 100);
        assert_eq!(*budget.lock(), 100);
    }

    #[test]
    fn who_waits_goes_on_when_there_is_room_or_it_is_given_up() {
        let budget = Budget::new(10);
        let all = budget.try_take(10).unwrap();
        assert!(budget.take_unless(1, &|| true).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.take_unless(4, &|| false).unwrap().bytes());
            all.set(6);
            assert_eq!(waiting.join().unwrap(), 4);
        });
    }
}
