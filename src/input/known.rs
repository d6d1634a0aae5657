//! Which file this is: whether a file that was found was read before, perhaps under another name, and up to where.
//!
//! 1. Device and inode are known, and head and tail are what they were: the same file, it goes on at the mark.
//! 2. Device and inode are known, but head or tail differ or it is shorter: truncated, or another file in its place.
//! 3. Head and tail are those of a known file that is no longer at its path: moved, restored or compressed; it goes
//!    on at that mark. This is asked in case 2 too, since inodes are used again.
//! 4. Else it is new.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::Path;

use super::identity::{Position, Print, Tail};

/// The positions that were saved, to be looked up.
#[derive(Debug, Default)]
pub struct Known {
    positions: Vec<Position>,
    by_inode: HashMap<(u64, u64), usize>,
    by_head: HashMap<Print, Vec<usize>>,
    head_lengths: BTreeSet<u16>,
}

/// What a file turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    New,
    /// Read before, and shorter or another since.
    Replaced,
    /// Goes on at the mark, perhaps under another path.
    Same(Position),
    /// Goes on at the mark where this other file, which is gone from its place, was left.
    Moved(Position),
}

/// A file that was found: where its inode is, how it begins, and what stands before a place in it.
pub struct Asked<'a> {
    pub device: u64,
    pub inode: u64,
    /// The first [`super::identity::HEAD`] bytes, or all there are.
    pub head: &'a [u8],
    /// The end of what stands before an offset; none if the file is shorter.
    pub tail_at: &'a mut dyn FnMut(u64) -> io::Result<Option<Tail>>,
}

impl Known {
    pub fn new(positions: Vec<Position>) -> Known {
        let mut known = Known::default();
        for (at, position) in positions.iter().enumerate() {
            let identity = &position.identity;
            known.by_inode.insert((identity.device, identity.inode), at);
            // what was not read cannot be recognized
            if position.mark.offset > 0 && identity.head.bytes > 0 {
                known.by_head.entry(identity.head).or_default().push(at);
                known.head_lengths.insert(identity.head.bytes);
            }
        }
        Known { positions, ..known }
    }

    /// All that was saved.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// Whether a known file is no longer at its path, so that another may turn out to be it.
    pub fn has_strays(&self) -> bool {
        self.positions.iter().any(|position| !position.is_at_its_path())
    }

    /// Whether a file was known by this inode and path.
    pub fn is_known(&self, device: u64, inode: u64, path: &Path) -> bool {
        self.by_inode.get(&(device, inode)).is_some_and(|at| self.positions[*at].path == path)
    }

    /// Looks a file up. `is_in_place` says whether a known file is still at its path.
    pub fn find(&self, asked: &mut Asked<'_>, is_in_place: &dyn Fn(&Position) -> bool) -> io::Result<Found> {
        let own = self.by_inode.get(&(asked.device, asked.inode)).copied();
        if let Some(position) = own.map(|at| &self.positions[at])
            && asked.is_that_of(position)?
        {
            return Ok(Found::Same(position.clone()));
        }
        let mut alike: Vec<&Position> = Vec::new();
        for length in self.head_lengths.range(..=asked.head.len() as u16) {
            let head = Print::head(&asked.head[..usize::from(*length)]);
            let same_head = self.by_head.get(&head).into_iter().flatten();
            alike.extend(same_head.filter(|at| Some(**at) != own).map(|at| &self.positions[*at]));
        }
        // of several the one that was read farthest
        alike.sort_by_key(|position| std::cmp::Reverse(position.mark.offset));
        for position in alike {
            if asked.is_that_of(position)? && !is_in_place(position) {
                return Ok(Found::Moved(position.clone()));
            }
        }
        Ok(if own.is_some() { Found::Replaced } else { Found::New })
    }
}

impl Asked<'_> {
    /// Whether head and tail are what they were.
    fn is_that_of(&mut self, position: &Position) -> io::Result<bool> {
        if !position.identity.head.begins(self.head) {
            return Ok(false);
        }
        let tail = (self.tail_at)(position.mark.offset)?;
        Ok(tail.is_some_and(|tail| tail.print() == position.mark.tail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::identity::{HEAD, Identity, Mark};

    fn position(path: &str, inode: u64, text: &str, offset: usize) -> Position {
        let identity = Identity { device: 1, inode, head: Print::head(text.as_bytes()) };
        let mark = Mark { offset: offset as u64, tail: Print::tail(&text.as_bytes()[..offset]) };
        Position { path: path.into(), identity, mark }
    }

    fn find(known: &Known, inode: u64, text: &str, gone: &[&str]) -> Found {
        let mut tail_at = |offset: u64| {
            let before = text.as_bytes().get(..offset as usize);
            Ok(before.map(|before| {
                let mut tail = Tail::default();
                tail.push(before);
                tail
            }))
        };
        let head = &text.as_bytes()[..text.len().min(HEAD)];
        let mut asked = Asked { device: 1, inode, head, tail_at: &mut tail_at };
        known.find(&mut asked, &|position| !gone.iter().any(|path| position.path.as_os_str() == *path)).unwrap()
    }

    #[test]
    fn the_rule_of_recognition() {
        let long = "a line of the same text\n".repeat(100);
        // changed behind the mark, and just before it
        let behind = format!("{}{}", &long[..1200], long[1200..].to_uppercase());
        let before = format!("{}{}", &long[..1190], long[1190..].to_uppercase());
        let a = position("/a", 1, "first\nsecond\n", 6);
        let b = position("/b", 2, &long, 1200);
        let c = position("/c", 3, &long, 2400);
        let unread = position("/d", 4, "", 0);
        let known = Known::new(vec![a.clone(), b.clone(), c.clone(), unread.clone()]);
        let none: &[&str] = &[];
        for (inode, text, gone, want) in [
            (1, "first\nsecond\n", none, Found::Same(a.clone())),
            (1, "first\nsecond\nthird\n", none, Found::Same(a.clone())),
            // cut short, changed before the mark, changed behind the mark but within the head
            (1, "first", none, Found::Replaced),
            (1, "firsT\nsecond\n", none, Found::Replaced),
            (1, "first\nsecoNd\n", none, Found::Replaced),
            (1, "", none, Found::Replaced),
            // moved, or not: the known file is still there, or has another text
            (9, "first\nsecond\nthird\n", &["/a"], Found::Moved(a.clone())),
            (9, "first\nsecond\nthird\n", none, Found::New),
            (9, "first\nsecond", &["/a"], Found::New),
            (9, "first\n", &["/a"], Found::New),
            // two are alike: the one that was read farther, unless it is in its place
            (9, &long, &["/b", "/c"], Found::Moved(c.clone())),
            (9, &long, &["/b"], Found::Moved(b.clone())),
            (9, &long[..1200], &["/b", "/c"], Found::Moved(b.clone())),
            (2, &behind, none, Found::Same(b.clone())),
            (2, &before, none, Found::Replaced),
            // an inode that is used again, by a new file and by one that moved
            (1, "new\n", &["/a"], Found::Replaced),
            (1, &long, &["/a", "/c"], Found::Moved(c.clone())),
            // nothing was read of it
            (4, "new\n", none, Found::Same(unread.clone())),
            (8, "", &["/d"], Found::New),
        ] {
            assert_eq!(find(&known, inode, text, gone), want, "inode {inode} {text:.30} {gone:?}");
        }
    }
}
