//! What a file is known by, and which places in it are known: digests of a few bytes, so that a file that was
//! truncated, replaced, moved or compressed is told apart from one that only grew.
//!
//! All offsets and prints are of the file's text: of a compressed file, the decompressed bytes.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::follow::disk::Changed;
pub use crate::batch::HEAD;

/// How many bytes before a place tell whether it is still the same place.
pub const TAIL: usize = 64;

/// A digest of the bytes at one place: how many, and the first 16 bytes of their SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Print {
    pub bytes: u16,
    pub hash: [u8; 16],
}

/// What a file is known by: the head grows up to [`HEAD`] bytes while the file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    /// When the file was made, where the file system knows: an inode used again has another.
    pub born: Option<Changed>,
    pub head: Print,
}

/// A place in a file: everything before it is settled; `tail` is the print of the (at most [`TAIL`]) bytes that end
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    pub offset: u64,
    pub tail: Print,
}

/// A file as it is called and known while it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileKey {
    pub path: PathBuf,
    pub identity: Identity,
    /// By which its position is saved.
    pub number: u64,
}

/// A saved position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// What it is saved by: an inode is used again, and a path too, but a number never. It stays with the file when
    /// that is renamed or compressed. 0: not saved yet.
    pub number: u64,
    pub path: PathBuf,
    pub identity: Identity,
    pub mark: Mark,
}

impl Print {
    /// The print of all of `bytes`, which are at most [`HEAD`].
    fn of(bytes: &[u8]) -> Print {
        let digest = Sha256::digest(bytes);
        let mut hash = [0; 16];
        hash.copy_from_slice(&digest[..16]);
        Print { bytes: bytes.len() as u16, hash }
    }

    /// The print of a file's beginning: of the first [`HEAD`] bytes, or of as many as there are.
    pub fn head(beginning: &[u8]) -> Print {
        Print::of(&beginning[..beginning.len().min(HEAD)])
    }

    /// The print of the end of what stands before a place: of the last [`TAIL`] bytes, or of as many as there are.
    pub fn tail(before: &[u8]) -> Print {
        Print::of(&before[before.len().saturating_sub(TAIL)..])
    }

    /// Whether `beginning` begins with the bytes of this head.
    pub fn begins(&self, beginning: &[u8]) -> bool {
        beginning.get(..usize::from(self.bytes)).is_some_and(|bytes| Print::of(bytes) == *self)
    }

    /// Whether `before` ends with the bytes of this tail.
    pub fn ends(&self, before: &[u8]) -> bool {
        let from = before.len().checked_sub(usize::from(self.bytes));
        from.is_some_and(|from| Print::of(&before[from..]) == *self)
    }
}

impl Mark {
    /// The beginning of any file.
    pub fn start() -> Mark {
        Mark { offset: 0, tail: Print::of(b"") }
    }
}

impl Identity {
    /// Whether device and inode are the same, and nothing says that the inode was used again.
    pub fn has_inode_of(&self, other: &Identity) -> bool {
        let made_apart = self.born.zip(other.born).is_some_and(|(one, two)| one != two);
        (self.device, self.inode) == (other.device, other.inode) && !made_apart
    }
}

impl Position {
    /// Whether it says the same of the same file, whatever it is saved by.
    pub fn is_same(&self, other: &Position) -> bool {
        (&self.path, self.identity, self.mark) == (&other.path, other.identity, other.mark)
    }
}

impl FileKey {
    /// The position of this file at `mark`.
    pub fn at(&self, mark: Mark) -> Position {
        Position { number: self.number, path: self.path.clone(), identity: self.identity, mark }
    }
}

/// The last bytes of what was read so far, for the tails of marks.
#[derive(Clone, Copy, Debug)]
pub struct Tail {
    bytes: [u8; TAIL],
    len: usize,
}

impl Default for Tail {
    fn default() -> Tail {
        Tail { bytes: [0; TAIL], len: 0 }
    }
}

impl Tail {
    pub fn push(&mut self, more: &[u8]) {
        let more = &more[more.len().saturating_sub(TAIL)..];
        let kept = self.len.min(TAIL - more.len());
        self.bytes.copy_within(self.len - kept..self.len, 0);
        self.bytes[kept..kept + more.len()].copy_from_slice(more);
        self.len = kept + more.len();
    }

    /// The last bytes, [`TAIL`] of them once there were so many.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub fn print(&self) -> Print {
        Print::of(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_head_stays_while_the_file_grows() {
        let text = vec![b'x'; 3000];
        for known in [0, 1, 500, HEAD, HEAD + 1, 2000] {
            let head = Print::head(&text[..known]);
            assert_eq!(usize::from(head.bytes), known.min(HEAD));
            assert!(head.begins(&text), "{known}");
            assert_eq!(head.begins(b"y"), known == 0, "{known}");
        }
        assert!(!Print::head(b"ab").begins(b"a"), "the file is smaller now");
    }

    #[test]
    fn a_tail_is_the_end_of_what_stands_before() {
        assert!(Print::tail(b"").ends(b"anything"));
        assert!(Print::tail(b"one\ntwo\n").ends(b"zero\none\ntwo\n"));
        assert!(!Print::tail(b"one\ntwo\n").ends(b"two\n"));
        assert_eq!(Print::tail(&[b'x'; 100]), Print::tail(&[b'x'; TAIL]));
        assert_eq!(Mark::start().tail, Print::tail(b""));
    }

    proptest! {
        #[test]
        fn a_tail_in_pieces_is_the_tail_of_the_whole(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..8)) {
            let mut tail = Tail::default();
            pieces.iter().for_each(|piece| tail.push(piece));
            prop_assert_eq!(tail.print(), Print::tail(&pieces.concat()));
        }
    }
}
