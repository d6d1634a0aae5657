//! The rule of recognition: which file this is. Whether a file that was found was read before, perhaps by another name
//! or compressed since, and up to where. Reading with `--once` and following ask the same; `docs/following.md` has the
//! rule as a table.
//!
//! A known place fits a file if that still begins with the same bytes (the head), and the bytes before the place are
//! still the same (the tail). Which known places are tried is decided by [`Seen::row`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::time::Duration;

use super::follow::disk::{OpenFile, Stat, read_some};
use super::identity::{HEAD, Identity, Position, Print, TAIL};
use super::packed::Text;

/// A file that was found.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub path: &'a Path,
    pub stat: &'a Stat,
    /// The first [`HEAD`] bytes of the text, or all there are.
    pub beginning: &'a [u8],
    pub is_packed: bool,
}

/// Why a known place may be one of a file; the better reason first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Row {
    /// Device and inode, and the time when it was made, are those.
    Same,
    /// It was moved from another file system, restored, or its file system was mounted again.
    Moved,
    /// It was compressed.
    Packed,
}

impl Seen<'_> {
    /// What this file is if the place fits.
    pub fn row(&self, known: &Position) -> Option<Row> {
        let Position { path, identity, mark, .. } = known;
        let head = usize::from(identity.head.bytes);
        // many files share a first line, so a short head proves little
        let is_long = head == HEAD;
        match () {
            // of what was not read at all nothing is known
            () if head == 0 => None,
            () if self.identity().has_inode_of(identity) => Some(Row::Same),
            // nor is there anything to skip of what has only a number
            () if mark.offset == 0 => None,
            // all there was of it
            () if self.is_packed => (is_long || mark.offset <= head as u64).then_some(Row::Packed),
            () => {
                let is_remounted = path == self.path && identity.inode == self.stat.inode;
                let is_remounted = is_remounted && identity.device != self.stat.device;
                (is_long || is_remounted).then_some(Row::Moved)
            }
        }
    }

    pub fn identity(&self) -> Identity {
        let Stat { device, inode, born, .. } = *self.stat;
        Identity { device, inode, born, head: Print::head(self.beginning) }
    }
}

/// Known places of files: saved ones, and those of files that went.
#[derive(Debug, Default)]
pub struct Known {
    places: BTreeMap<u64, Place>,
    /// By the inode's number, on any device.
    by_inode: HashMap<u64, BTreeSet<u64>>,
    by_head: HashMap<Print, BTreeSet<u64>>,
    /// How many heads there are of each length.
    lengths: BTreeMap<u16, usize>,
    next: u64,
    /// The highest number that was saved.
    pub saved: u64,
}

#[derive(Clone, Debug)]
pub struct Place {
    pub position: Position,
    /// The number by which it was followed; none of a saved place.
    pub file: Option<u64>,
    pub since: Duration,
}

/// So long a place is known whose file is nowhere.
const KEPT: Duration = Duration::from_secs(30 * 86_400);
/// So many places are known of files that are nowhere.
const KEPT_MAX: usize = 20_000;

impl Known {
    /// Saved places, by the order of their numbers.
    pub fn new(mut positions: Vec<Position>) -> Known {
        positions.sort_by_key(|position| position.number);
        let saved = positions.last().map_or(0, |position| position.number);
        let mut known = Known { saved, ..Known::default() };
        positions.into_iter().for_each(|position| known.insert(Place { position, file: None, since: Duration::ZERO }));
        known
    }

    pub fn insert(&mut self, place: Place) {
        let number = self.next;
        self.next += 1;
        let identity = place.position.identity;
        self.by_inode.entry(identity.inode).or_default().insert(number);
        self.by_head.entry(identity.head).or_default().insert(number);
        *self.lengths.entry(identity.head.bytes).or_default() += 1;
        self.places.insert(number, place);
    }

    pub fn remove(&mut self, number: u64) -> Option<Place> {
        let place = self.places.remove(&number)?;
        let identity = place.position.identity;
        if let Some(numbers) = self.by_inode.get_mut(&identity.inode) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_inode.remove(&identity.inode);
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

    pub fn get(&self, number: u64) -> Option<&Position> {
        self.places.get(&number).map(|place| &place.position)
    }

    pub fn positions(&self) -> impl Iterator<Item = &Position> {
        self.places.values().map(|place| &place.position)
    }

    /// Whether a file had this inode.
    pub fn has_inode(&self, device: u64, inode: u64) -> bool {
        let mut numbers = self.by_inode.get(&inode).into_iter().flatten();
        numbers.any(|number| self.get(*number).is_some_and(|position| position.identity.device == device))
    }

    /// Places that are of this file if they fit, with their numbers: of the same inode the newest first, then those
    /// that were read farthest.
    pub fn candidates(&self, seen: &Seen<'_>) -> Vec<(u64, Row)> {
        let of_inode = self.by_inode.get(&seen.stat.inode).into_iter().flatten();
        // a short head says something of compressed text only; to try each length takes time
        let shortest = if seen.is_packed { 1 } else { HEAD };
        let lengths = self.lengths.keys().map(|bytes| usize::from(*bytes));
        let heads = lengths.filter(|bytes| (shortest..=seen.beginning.len()).contains(bytes));
        let of_head = heads.filter_map(|bytes| self.by_head.get(&Print::head(&seen.beginning[..bytes]))).flatten();
        let numbers: BTreeSet<u64> = of_inode.chain(of_head).copied().collect();
        let row = |number: u64| self.get(number).and_then(|position| seen.row(position)).map(|row| (number, row));
        let mut candidates: Vec<(u64, Row)> = numbers.into_iter().rev().filter_map(row).collect();
        let offset = |number: u64| self.get(number).map(|position| position.mark.offset);
        candidates.sort_by_key(|(number, row)| (*row, (*row != Row::Same).then(|| std::cmp::Reverse(offset(*number)))));
        candidates
    }

    /// The place of a file that is not compressed.
    pub fn find(&self, file: &impl OpenFile, seen: &Seen<'_>) -> io::Result<Option<(u64, Row)>> {
        for (number, row) in self.candidates(seen) {
            if let Some(position) = self.get(number)
                && fits(file, position)?
            {
                return Ok(Some((number, row)));
            }
        }
        Ok(None)
    }

    /// Gives up what is known for too long, or too much of it.
    pub fn forget(&mut self, now: Duration) -> Vec<Place> {
        let over = self.places.len().saturating_sub(KEPT_MAX);
        let old = self.places.iter().enumerate();
        let old = old.filter(|(at, (_, place))| *at < over || now.saturating_sub(place.since) > KEPT);
        let old: Vec<u64> = old.map(|(_, (number, _))| *number).collect();
        old.into_iter().filter_map(|number| self.remove(number)).collect()
    }
}

/// Whether `position` is a place in this file, by head and tail.
pub fn fits(file: &impl OpenFile, position: &Position) -> io::Result<bool> {
    let (head, mark) = (position.identity.head, position.mark);
    let Some(from) = mark.offset.checked_sub(u64::from(mark.tail.bytes)) else { return Ok(false) };
    Ok(head.begins(&read_some(file, 0, usize::from(head.bytes))?)
        && mark.tail.ends(&read_some(file, from, usize::from(mark.tail.bytes))?))
}

/// Says that a file goes on from no place of those that had its inode.
pub fn tell_replaced(path: &Path) {
    tracing::info!(path = %path.display(), "the file was truncated or replaced: reading it from its beginning");
}

/// A text at a place, and the known one that is, with what the caller said of it.
pub type Placed<T> = (Text, Option<(Position, T)>);

/// Of places in a compressed text, which may be none of it, the last that fits; and the text there. None if the text
/// cannot be opened `again`.
pub fn find_packed<T>(
    mut text: Text,
    mut known: Vec<(Position, T)>,
    again: impl FnOnce() -> io::Result<Option<Text>>,
) -> io::Result<Option<Placed<T>>> {
    // a digest for each length, not for each place
    let mut heads: HashMap<u16, Print> = HashMap::new();
    known.retain(|(position, _)| {
        let head = position.identity.head;
        let beginning = text.beginning.get(..usize::from(head.bytes));
        beginning.is_some_and(|beginning| *heads.entry(head.bytes).or_insert_with(|| Print::head(beginning)) == head)
    });
    known.sort_by_key(|(position, _)| position.mark.offset);
    let places: Vec<&Position> = known.iter().map(|(position, _)| position).collect();
    let found = text.fitting(&places);
    let found = found.and_then(|place| known.into_iter().nth(place));
    let offset = found.as_ref().map_or(0, |(position, _)| position.mark.offset);
    if text.offset != offset {
        let Some(anew) = again()? else { return Ok(None) };
        text = anew;
        text.skip_to(offset)?;
    }
    Ok(Some((text, found)))
}

/// How a file stands to a known one that it begins like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// It is another.
    Other,
    /// All of it stands in the original too, which is there: a copy, such as copytruncate makes, that is whole or still
    /// grows. As far as this it was read there.
    Within(u64),
    /// A copy of all that was read of the original; what stands behind is nowhere else.
    Beyond(u64),
    /// It is shorter than what was read of the original, which is not what it was: nothing is there to compare with.
    Unknown,
}

/// Whether a file is a copy of a known one: as much as was read there is not read again.
pub fn likeness(file: &impl OpenFile, original: &impl OpenFile, known: &Position) -> io::Result<Likeness> {
    let (head, read) = (known.identity.head, known.mark.offset);
    // many files share a first line, so a short head proves little
    if usize::from(head.bytes) < HEAD || !head.begins(&read_some(file, 0, HEAD)?) {
        return Ok(Likeness::Other);
    }
    let bytes = file.stat()?.bytes;
    let from = bytes.saturating_sub(TAIL as u64);
    let end = read_some(file, from, (bytes - from) as usize)?;
    let is_within = read_some(original, from, end.len())? == end;
    // asked after it was read: what was compared with was of it
    let is_there = fits(original, known)?;
    Ok(match () {
        () if is_there && is_within && bytes >= read => Likeness::Within(read),
        // a half line of a copy has its beginning in what was read
        () if is_there && is_within => Likeness::Within(last_line_end(file, bytes, u64::MAX)?),
        // who truncates an original has the copy whole by then, though it was not when its size was asked
        () if fits(file, known)? => Likeness::Beyond(read),
        () if is_there || bytes >= read => Likeness::Other,
        () => Likeness::Unknown,
    })
}

/// Where the last whole line ends, looked for as far back as a line may be long.
pub fn last_line_end(file: &impl OpenFile, bytes: u64, line_bytes_max: u64) -> io::Result<u64> {
    let mut end = bytes;
    while end > 0 && bytes - end < line_bytes_max {
        let from = end.saturating_sub(64 << 10);
        let some = read_some(file, from, (end - from) as usize)?;
        if let Some(at) = memchr::memrchr(b'\n', &some) {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(if end == 0 { 0 } else { bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::follow::disk::Kind;
    use crate::input::identity::Mark;

    fn position(number: u64, path: &str, (device, inode): (u64, u64), text: &str, offset: usize) -> Position {
        let identity = Identity { device, inode, born: Some((number as i64, 0)), head: Print::head(text.as_bytes()) };
        let mark = Mark { offset: offset as u64, tail: Print::tail(&text.as_bytes()[..offset]) };
        Position { number, path: path.into(), identity, mark }
    }

    fn unborn(position: Position) -> Position {
        Position { identity: Identity { born: None, ..position.identity }, ..position }
    }

    /// A file in memory.
    struct Bytes<'a>(&'a str);

    impl OpenFile for Bytes<'static> {
        fn stat(&self) -> io::Result<Stat> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
            let bytes = self.0.as_bytes().get(offset as usize..).unwrap_or_default();
            let count = bytes.len().min(into.len());
            into[..count].copy_from_slice(&bytes[..count]);
            Ok(count)
        }
    }

    #[test]
    fn the_rule_of_recognition() {
        let long: &'static str = Box::leak("a line of the same text\n".repeat(100).into_boxed_str());
        // changed behind the mark, and just before it
        let behind: &'static str = Box::leak(format!("{}{}", &long[..1200], long[1200..].to_uppercase()).into());
        let before: &'static str = Box::leak(format!("{}{}", &long[..1190], long[1190..].to_uppercase()).into());
        let others: &'static str = Box::leak("another line, the same each time\n".repeat(100).into_boxed_str());
        let known = Known::new(vec![
            position(1, "/a", (1, 1), "first\nsecond\n", 6),
            position(2, "/b", (1, 2), long, 1200),
            position(3, "/c", (1, 3), long, 2400),
            position(4, "/d", (1, 4), "", 0),
            // the inode of the first, used again
            position(5, "/e", (1, 1), long, 1300),
            // nobody knows when these were made
            unborn(position(6, "/f", (1, 6), "first\n", 6)),
            unborn(position(7, "/f", (1, 6), "first\nsecond\n", 13)),
            // nothing of them is settled
            position(8, "/g", (1, 8), others, 0),
            position(9, "/h", (1, 9), "nothing\n", 0),
        ]);
        let none: Option<i64> = None;
        for (path, inode, born, text, want) in [
            ("/a", (1, 1), Some(1), "first\nsecond\n", Some((1, Row::Same))),
            ("/x", (1, 1), Some(1), "first\nsecond\nthird\n", Some((1, Row::Same))),
            ("/a", (1, 1), none, "first\nsecond\n", Some((1, Row::Same))),
            // the newest of two that had it
            ("/f", (1, 6), Some(1), "first\nsecond\n", Some((7, Row::Same))),
            ("/f", (1, 6), Some(1), "first\nseconD\n", Some((6, Row::Same))),
            // cut short, changed before the mark, changed behind the mark but within the head
            ("/a", (1, 1), Some(1), "first", None),
            ("/a", (1, 1), Some(1), "firsT\nsecond\n", None),
            ("/a", (1, 1), Some(1), "", None),
            // another file with its inode, the same text
            ("/a", (1, 1), Some(7), "first\nsecond\n", None),
            ("/b", (1, 2), Some(7), &long[..1200], Some((2, Row::Moved))),
            // short ones are known by their inode, or on a file system that has another number now
            ("/a", (1, 9), none, "first\nsecond\n", None),
            ("/a", (2, 1), none, "first\nsecond\n", Some((1, Row::Moved))),
            ("/x", (2, 1), none, "first\nsecond\n", None),
            // long ones wherever they are: the one that was read farthest
            ("/x", (1, 9), none, long, Some((3, Row::Moved))),
            ("/x", (1, 9), none, &long[..1400], Some((5, Row::Moved))),
            ("/x", (1, 2), Some(2), long, Some((2, Row::Same))),
            ("/b", (1, 2), none, behind, Some((2, Row::Same))),
            ("/b", (1, 2), none, before, None),
            // nothing was read of it
            ("/d", (1, 4), none, "new\n", None),
            // nothing of it is settled: only its inode tells it
            ("/x", (1, 8), none, others, Some((8, Row::Same))),
            ("/g", (1, 12), none, others, None),
            ("/g", (2, 8), none, others, None),
            ("/h", (1, 9), none, "nothing\nmore\n", Some((9, Row::Same))),
            ("/h", (1, 9), none, "another\n", None),
        ] {
            let (device, inode) = inode;
            let zero = (0, 0);
            let born = born.map(|secs| (secs, 0));
            let stat =
                Stat { kind: Kind::File, device, inode, bytes: text.len() as u64, written: zero, touched: zero, born };
            let beginning = &text.as_bytes()[..text.len().min(HEAD)];
            let seen = Seen { path: Path::new(path), stat: &stat, beginning, is_packed: false };
            let found = known.find(&Bytes(text), &seen).unwrap();
            let found = found.map(|(number, row)| (known.get(number).unwrap().number, row));
            assert_eq!(found, want, "{path} inode {inode} {born:?} {text:.30}");
        }
    }

    #[test]
    fn a_compressed_file_has_the_whole_head_or_all_that_was_read() {
        let long = "a line of the same text\n".repeat(100);
        let stat =
            Stat { kind: Kind::File, device: 1, inode: 9, bytes: 1, written: (0, 0), touched: (0, 0), born: None };
        let mut cut = position(1, "/a", (1, 1), &long, 24);
        cut.identity.head = Print::head(&long.as_bytes()[..24]);
        let mut read_on = position(2, "/a", (1, 1), &long, 48);
        read_on.identity.head = cut.identity.head;
        for (known, want) in
            [(&cut, Some(Row::Packed)), (&read_on, None), (&position(3, "/b", (1, 2), &long, 2400), Some(Row::Packed))]
        {
            let seen =
                Seen { path: Path::new("/a.gz"), stat: &stat, beginning: &long.as_bytes()[..HEAD], is_packed: true };
            assert_eq!(seen.row(known), want);
        }
    }
}
