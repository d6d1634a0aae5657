//! Files that are followed and that others may be copies of: those that are known by a whole head.

use std::collections::BTreeSet;
use std::io;

use super::disk::{Disk, OpenFile, read_some};
use super::machine::{FileNumber, Form, Machine, Tracked};
use crate::input::identity::{HEAD, Print};
use crate::input::known::{self, Likeness};

/// How a file begins: enough to find those that it may be a copy of before it has a whole head.
pub type Start = [u8; 32];

/// So many files are compared with one that is too short to have a digest.
const COMPARED_MAX: usize = 16;

/// By their first bytes, and then by their heads.
#[derive(Debug, Default)]
pub struct Originals(BTreeSet<(Start, [u8; 16], FileNumber)>);

/// How a file stands to those that are followed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Likely {
    /// It is a copy as far as this, of that file.
    pub copied: Option<(u64, FileNumber)>,
    /// Nothing is in it that is not in a file that is there.
    pub is_within: bool,
    /// All is in it that was read of that file.
    pub is_whole: bool,
    /// There is more in it, which is still to be read there.
    pub is_ahead: bool,
    /// It may be a copy, but what it may be one of cannot be compared with it now.
    pub is_unknown: bool,
}

impl Originals {
    /// Takes a file up, with its whole head.
    pub fn insert(&mut self, head: &[u8], file: FileNumber) -> Start {
        let start = start(head);
        self.0.insert((start, Print::head(head).hash, file));
        start
    }

    pub fn remove(&mut self, start: Start, head: Print, file: FileNumber) {
        self.0.remove(&(start, head.hash, file));
    }

    /// Those with this head.
    fn alike(&self, head: &[u8]) -> impl Iterator<Item = FileNumber> {
        let (start, hash) = (start(head), Print::head(head).hash);
        self.0.range((start, hash, 0)..=(start, hash, FileNumber::MAX)).map(|(.., file)| *file)
    }

    /// Those that may begin with these few bytes.
    fn beginning(&self, few: &[u8]) -> impl Iterator<Item = FileNumber> {
        let few = &few[..few.len().min(size_of::<Start>())];
        let from = self.0.range((start(few), [0; 16], 0)..);
        from.take_while(move |(start, ..)| start.starts_with(few)).map(|(.., file)| *file)
    }
}

fn start(bytes: &[u8]) -> Start {
    let mut start = Start::default();
    let bytes = &bytes[..bytes.len().min(start.len())];
    start[..bytes.len()].copy_from_slice(bytes);
    start
}

impl<D: Disk> Machine<D> {
    /// How a file that is not followed yet stands to those that are.
    pub(super) fn likely(&self, file: &D::File, beginning: &[u8]) -> io::Result<Likely> {
        let mut likely = Likely::default();
        if beginning.len() < HEAD {
            let mut alike = self.originals.beginning(beginning).take(COMPARED_MAX);
            likely.is_within = alike.any(|number| self.begins(number, beginning));
            return Ok(likely);
        }
        let bytes = file.stat()?.bytes;
        for number in self.originals.alike(beginning) {
            let Some(tracked) = self.files.get(&number).filter(|tracked| tracked.began) else { continue };
            let likeness = self.original(tracked, |original| known::likeness(file, original, &tracked.position()));
            let read = tracked.mark.offset;
            let offset = match likeness {
                Some(Likeness::Within(offset)) => {
                    likely.is_within = true;
                    likely.is_whole |= bytes >= read;
                    likely.is_ahead |= bytes > read && tracked.queued;
                    Some(offset)
                }
                Some(Likeness::Beyond(offset)) => Some(offset),
                Some(Likeness::Other) => None,
                Some(Likeness::Unknown) | None => {
                    likely.is_unknown = true;
                    None
                }
            };
            likely.copied = likely.copied.max(offset.map(|offset| (offset, number)));
        }
        Ok(likely)
    }

    /// Whether a file that is followed begins so.
    fn begins(&self, number: FileNumber, beginning: &[u8]) -> bool {
        let Some(tracked) = self.files.get(&number) else { return false };
        match &tracked.form {
            Form::Plain(Some(open)) => open.head.starts_with(beginning),
            _ => self.original(tracked, |file| read_some(file, 0, beginning.len())).is_some_and(|it| it == beginning),
        }
    }

    /// What can be said of a file that is followed; none if it cannot be looked at now.
    fn original<T>(&self, tracked: &Tracked<D::File>, ask: impl FnOnce(&D::File) -> io::Result<T>) -> Option<T> {
        match &tracked.form {
            Form::Plain(Some(open)) => ask(&open.file).ok(),
            Form::Plain(None) => {
                let file = self.disk.open(&tracked.path).ok()?;
                (file.stat().ok()?.inode() == tracked.inode()).then(|| ask(&file).ok())?
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn originals_are_found_by_as_much_as_there_is() {
        let text = |first: &str| [first.as_bytes(), &[b'x'; HEAD]].concat();
        let mut originals = Originals::default();
        let (one, two) = (text("one\n"), text("one\ntwo\n"));
        let start = originals.insert(&one, 1);
        originals.insert(&two, 2);
        originals.insert(&two, 3);
        let beginning = |originals: &Originals, few: &[u8]| originals.beginning(few).collect::<Vec<_>>();
        assert_eq!(beginning(&originals, b"o"), [2, 3, 1]);
        assert_eq!(beginning(&originals, b"one\nt"), [2, 3]);
        assert_eq!(beginning(&originals, &two[..500]), [2, 3]);
        assert!(beginning(&originals, b"p").is_empty());
        assert_eq!(originals.alike(&two).collect::<Vec<_>>(), [2, 3]);
        originals.remove(start, Print::head(&one), 1);
        assert_eq!(beginning(&originals, b"one"), [2, 3]);
        assert_eq!(originals.alike(&one).count(), 0);
    }
}
