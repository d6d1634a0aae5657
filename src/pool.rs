//! Buffers used again: a fresh one costs a page fault for every 4 KiB written to it, which is more than what is
//! done with the bytes.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// How much is kept for the next who needs a buffer.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// A smaller buffer costs little to make, and a large one with little in it would be memory that nobody uses.
const POOLED_BYTES_MIN: usize = 128 << 10;

#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer that goes back to its pool.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Option<Pool>,
}

impl Pool {
    /// An empty buffer with room for so many bytes, and not for many more.
    pub fn take(&self, bytes: usize) -> Buffer {
        if bytes < POOLED_BYTES_MIN {
            return Vec::with_capacity(bytes).into();
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = kept.iter().rposition(|kept| (bytes..=bytes + bytes / 4).contains(&kept.capacity()));
        let kept = fits.map(|place| kept.swap_remove(place));
        Buffer { bytes: kept.unwrap_or_else(|| Vec::with_capacity(bytes)), pool: Some(self.clone()) }
    }
}

impl From<Vec<u8>> for Buffer {
    /// A buffer of no pool.
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer { bytes, pool: None }
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(pool) = &self.pool else { return };
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut kept = pool.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(bytes);
        // of what is wanted now there is more need than of what was wanted long ago
        while kept.iter().map(Vec::capacity).sum::<usize>() > KEPT_BYTES_MAX {
            kept.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty() {
        const SIZE: usize = POOLED_BYTES_MIN;
        let pool = Pool::default();
        let mut first = pool.take(SIZE);
        first.extend_from_slice(&[1; SIZE]);
        let place = first.as_ptr();
        drop(first);
        // neither one that is too small nor one that is far too large
        for (other, is_it) in [(2 * SIZE, false), (SIZE / 2, false), (SIZE, true)] {
            let again = pool.take(other);
            assert!(again.is_empty() && again.capacity() >= other);
            assert_eq!(again.as_ptr() == place, is_it, "{other}");
        }
        drop(Buffer::from(vec![1]));
    }

    #[test]
    fn no_more_are_kept_than_are_of_use() {
        let pool = Pool::default();
        let check = |size: usize, want: usize| {
            drop((0..200).map(|_| pool.take(size)).collect::<Vec<Buffer>>());
            assert_eq!(pool.0.lock().unwrap().iter().filter(|kept| kept.capacity() == size).count(), want, "{size}");
        };
        check(POOLED_BYTES_MIN - 1, 0);
        check(POOLED_BYTES_MIN, KEPT_BYTES_MAX / POOLED_BYTES_MIN);
        check(1 << 20, KEPT_BYTES_MAX >> 20);
        check(KEPT_BYTES_MAX + 1, 0);
    }
}
