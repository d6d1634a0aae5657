//! The rule of recognition: whether a file that was found is one whose place is known.
//!
//! A known place fits a file if the file still begins with the same bytes (the head), and the bytes before the place
//! are still the same (the tail). Which known places are tried for a file is told in `docs/following.md`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::time::Duration;

use super::disk::{Changed, OpenFile, Stat, read_some};
use super::machine::FileNumber;
use crate::input::identity::{HEAD, Position, Print};

/// Device and inode.
pub type Inode = (u64, u64);

pub fn inode_of(stat: &Stat) -> Inode {
    (stat.device, stat.inode)
}

/// Whether files were made at different times.
pub fn is_other(one: Option<Changed>, two: Option<Changed>) -> bool {
    one.zip(two).is_some_and(|(one, two)| one != two)
}

/// Whether `position` is a place in this file, by head and tail.
pub fn fits(file: &impl OpenFile, position: &Position) -> io::Result<bool> {
    let (head, mark) = (position.identity.head, position.mark);
    let Some(from) = mark.offset.checked_sub(u64::from(mark.tail.bytes)) else { return Ok(false) };
    Ok(head.begins(&read_some(file, 0, usize::from(head.bytes))?)
        && mark.tail.ends(&read_some(file, from, usize::from(mark.tail.bytes))?))
}

/// Known places whose files are no longer where they were: saved ones not met yet, and those of files that went.
#[derive(Debug, Default)]
pub struct Gone {
    places: BTreeMap<u64, Place>,
    by_inode: HashMap<Inode, BTreeSet<u64>>,
    by_head: HashMap<Print, BTreeSet<u64>>,
    /// How many heads there are of each length.
    lengths: BTreeMap<u16, usize>,
    next: u64,
}

#[derive(Clone, Debug)]
pub struct Place {
    pub position: Position,
    /// When the file was made, as far as that is known.
    pub born: Option<Changed>,
    /// The number by which it was followed; none of a saved place.
    pub file: Option<FileNumber>,
    pub since: Duration,
}

/// So long a place is known whose file is nowhere.
const KEPT: Duration = Duration::from_secs(30 * 86_400);
/// So many places are known of files that are nowhere.
const KEPT_MAX: usize = 20_000;

impl Gone {
    pub fn insert(&mut self, place: Place) {
        let number = self.next;
        self.next += 1;
        let identity = place.position.identity;
        self.by_inode.entry((identity.device, identity.inode)).or_default().insert(number);
        self.by_head.entry(identity.head).or_default().insert(number);
        *self.lengths.entry(identity.head.bytes).or_default() += 1;
        self.places.insert(number, place);
    }

    pub fn remove(&mut self, number: u64) -> Option<Place> {
        let place = self.places.remove(&number)?;
        let identity = place.position.identity;
        let inode = (identity.device, identity.inode);
        if let Some(numbers) = self.by_inode.get_mut(&inode) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_inode.remove(&inode);
            }
        }
        if let Some(numbers) = self.by_head.get_mut(&identity.head) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_head.remove(&identity.head);
            }
        }
        if let Some(count) = self.lengths.get_mut(&identity.head.bytes) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&identity.head.bytes);
            }
        }
        Some(place)
    }

    /// Places of files that had this inode, unless it is known that it was used again.
    pub fn of_inode(&self, stat: &Stat) -> Vec<u64> {
        let numbers = self.by_inode.get(&inode_of(stat)).into_iter().flatten().copied();
        let again = |number: &u64| self.places.get(number).is_some_and(|place| is_other(place.born, stat.born));
        numbers.filter(|number| !again(number)).collect()
    }

    /// Places of files that began as `beginning` does.
    pub fn of_head(&self, beginning: &[u8]) -> Vec<u64> {
        let lengths = self.lengths.keys().map(|bytes| usize::from(*bytes));
        let heads = lengths.filter(|bytes| (1..=beginning.len()).contains(bytes));
        let numbers = heads.filter_map(|bytes| self.by_head.get(&Print::head(&beginning[..bytes])));
        numbers.flatten().copied().collect()
    }

    pub fn get(&self, number: u64) -> Option<&Position> {
        self.places.get(&number).map(|place| &place.position)
    }

    /// Gives up what is known for too long, or too much of it.
    pub fn forget(&mut self, now: Duration) -> Vec<Place> {
        let over = self.places.len().saturating_sub(KEPT_MAX);
        let old = self.places.iter().enumerate();
        let old = old.filter(|(at, (_, place))| *at < over || now.saturating_sub(place.since) > KEPT);
        let old: Vec<u64> = old.map(|(_, (number, _))| *number).collect();
        old.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    pub fn positions(&self) -> impl Iterator<Item = &Position> {
        self.places.values().map(|place| &place.position)
    }
}

/// Whether a file that is not compressed and has another inode may be the one that `known` is of, if it fits: many
/// files share a first line, so a short head proves it only for a file system that came back under another number.
pub fn may_have_moved(known: &Position, path: &std::path::Path, stat: &Stat) -> bool {
    usize::from(known.identity.head.bytes) == HEAD || known.path == path && known.identity.inode == stat.inode
}

/// Whether compressed text may be that of `known`, if it fits: its whole head, or all there was of it, is there.
pub fn may_be_packed(known: &Position) -> bool {
    let head = usize::from(known.identity.head.bytes);
    head == HEAD || head > 0 && known.mark.offset <= head as u64
}
