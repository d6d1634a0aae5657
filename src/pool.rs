//! Buffers used again: a fresh one costs a page fault for every 4 KiB written to it, which is more than what is
//! done with the bytes.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// How many buffers are kept for the next who needs one.
const KEPT_MAX: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer that goes back to its pool.
#[derive(Debug, Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    pool: Option<Pool>,
}

impl Pool {
    /// An empty buffer.
    pub fn take(&self) -> Buffer {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Buffer { bytes: kept.unwrap_or_default(), pool: Some(self.clone()) }
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
        if kept.len() < KEPT_MAX {
            kept.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty() {
        let pool = Pool::default();
        let mut first = pool.take();
        first.extend_from_slice(&[1; 1000]);
        let place = first.as_ptr();
        drop(first);
        let again = pool.take();
        assert!(again.is_empty() && again.capacity() >= 1000);
        assert_eq!(again.as_ptr(), place);
        drop(Buffer::from(vec![1]));
        assert!(pool.take().capacity() == 0);
    }
}
