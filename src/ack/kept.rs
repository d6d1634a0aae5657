//! The records of batches that are not settled: for dead letters, which tell the record as it was read, and for a
//! stop, which must not lose what cannot be read again.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use super::{Letter, Line, letter::Print};
use crate::batch::{Source, SourceNumber, StoredPart};
use crate::codec::{Block, Cutting, Record};
use crate::disk::Disk;
use crate::input::lines::Rest;
use crate::input::spool::{self, Written};

/// A larger record of several events is not kept with each of their letters: they would be as large as its square.
const PARTED_BYTES_MAX: usize = 16 << 10;

/// The records of one batch. The bytes are moved here once events are made of them, not copied.
#[derive(Debug)]
pub struct Held {
    pub input: usize,
    pub source: Arc<Source>,
    pub block: Block,
    /// How its records are told.
    pub cutting: Cutting,
    /// A record holds several events, so that one letter does not speak for the record.
    pub has_parts: bool,
    /// Ids are made of the source's first bytes.
    pub wants_head: bool,
    /// Events tell where they come from.
    pub wants_inode: bool,
    /// Times are read by the day on which the source was written.
    pub wants_day: bool,
    /// It is in the spool of an earlier stop already.
    pub is_in_spool: bool,
    /// Where numbers of sources are given out: elsewhere they are of others.
    pub numbers_of: Print,
    /// Where the records stand that are left of the block, and where they begin in the source; none if all are left.
    left: Option<Vec<(u64, Range<usize>)>>,
    /// What is known of the fates of records.
    known: Mutex<Known>,
}

/// Where records begin.
#[derive(Clone, Debug, Default)]
struct Known {
    /// They have their fate, whatever becomes of the batch.
    done: HashSet<u64>,
    /// A letter of theirs is told of.
    told: HashSet<u64>,
    /// Of records that hold several events, those that are stored although the record is open.
    stored: Vec<StoredPart>,
}

impl Held {
    pub fn new(input: usize, source: Arc<Source>, block: Block) -> Held {
        let (has_parts, wants_head, wants_inode, wants_day, is_in_spool) = (false, false, false, false, false);
        let (left, known) = (None, Mutex::default());
        let (cutting, numbers_of) = Default::default();
        Held {
            input,
            source,
            block,
            cutting,
            has_parts,
            wants_head,
            wants_inode,
            wants_day,
            is_in_spool,
            numbers_of,
            left,
            known,
        }
    }

    /// What is needed of it when the records that begin at these offsets are all that is open; `keeps` those too
    /// whose letters are told of and may not be on the disk. None if nothing can be left out.
    pub(super) fn only(&self, open: &[u64], keeps: bool) -> Option<Held> {
        if self.block.too_long.is_some() || self.block.records.is_some() {
            return None;
        }
        let known = self.known().clone();
        let is_done = |offset: &u64| !self.has_parts && known.done.contains(offset);
        let mut wanted = open.to_vec();
        wanted.extend(known.told.iter().filter(|offset| keeps && !is_done(offset)));
        wanted.sort_unstable();
        wanted.dedup();
        let (mut bytes, mut left) = (Vec::new(), Vec::new());
        for offset in wanted {
            let record = &self.block.bytes[self.place_of(offset)?];
            left.push((offset, bytes.len()..bytes.len() + record.len()));
            bytes.extend_from_slice(record);
        }
        bytes.shrink_to_fit();
        let block = Block { bytes: bytes.into(), ..self.block.place() };
        let (source, cutting) = (self.source.clone(), self.cutting.clone());
        let (left, known) = (Some(left), Mutex::new(known));
        Some(Held { source, block, cutting, left, known, ..*self })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it takes of memory.
    pub fn bytes_held(&self) -> usize {
        let left = self.left.as_ref().map_or(0, |left| left.capacity() * size_of::<(u64, Range<usize>)>());
        self.block.bytes.capacity() + left
    }

    pub(super) fn complete(&self, letter: &mut Letter) {
        letter.input = self.input;
        letter.head = self.wants_head.then(|| self.source.head.clone());
        letter.inode = self.source.inode.filter(|_| self.wants_inode);
        letter.day = self.source.day.filter(|_| self.wants_day);
        letter.again = self.source.again;
        letter.line = self.source.number.map(|number| Line { number, print: self.print(number, letter) });
        if letter.raw.is_empty()
            && let Some(record) = self.record_at(letter.offset).map(|record| self.bytes(record))
        {
            // with each of the events that were made of it
            if !self.has_parts || record.len() <= PARTED_BYTES_MAX {
                letter.raw = record.to_vec();
            }
        }
    }

    /// Of where the record stands, and of its bytes; of one of several events of it the event's own.
    fn print(&self, number: SourceNumber, letter: &Letter) -> Print {
        let bytes = match letter.is_part {
            true => letter.event.as_deref(),
            false if letter.raw.is_empty() => self.record_at(letter.offset).map(|record| self.bytes(record)),
            false => Some(&letter.raw[..]),
        };
        let ((name, number), mut hash) = (number.named(), Sha256::new());
        hash.update(self.numbers_of);
        hash.update(name);
        [number, letter.offset].into_iter().for_each(|number| hash.update(number.to_be_bytes()));
        hash.update(bytes.unwrap_or_default());
        let mut print = Print::default();
        print.copy_from_slice(&hash.finalize()[..16]);
        print
    }

    fn record_at(&self, offset: u64) -> Option<Record> {
        match &self.block.records {
            Some(records) => records.iter().find(|record| record.offset == offset).copied(),
            None => {
                let place = self.place_of(offset)?;
                let mut record = self.cutting.first(&self.block.bytes[place.clone()], offset)?;
                record.span.start += place.start as u32;
                Some(record)
            }
        }
    }

    /// Where the record stands that begins at this place of the source, with the end of its last line.
    fn place_of(&self, offset: u64) -> Option<Range<usize>> {
        if let Some(left) = &self.left {
            let place = left.binary_search_by_key(&offset, |(begins, _)| *begins).ok()?;
            return Some(left[place].1.clone());
        }
        let from = usize::try_from(offset.checked_sub(self.block.offset)?).ok()?;
        let length = self.cutting.first_bytes(self.block.bytes.get(from..)?)?;
        Some(from..from + length)
    }

    fn bytes(&self, record: Record) -> &[u8] {
        let start = record.span.start as usize;
        self.block.bytes.get(start..start + record.span.len as usize).unwrap_or_default()
    }

    /// These records have their fate, whatever becomes of the batch.
    pub(super) fn note_done(&self, offsets: impl Iterator<Item = u64>) {
        // an event does not speak for a record that holds several
        if !self.has_parts {
            self.known().done.extend(offsets);
        }
    }

    /// Letters of these records are told of.
    pub(super) fn note_told(&self, offsets: impl Iterator<Item = u64>) {
        self.known().told.extend(offsets);
    }

    /// These events of records that are kept are stored.
    pub fn note_stored(&self, parts: impl Iterator<Item = StoredPart>) {
        self.known().stored.extend(parts);
    }

    /// Events of the records that begin in a piece of the source, that are stored although their records are kept.
    pub fn stored(&self, piece: Range<u64>) -> Vec<StoredPart> {
        let known = self.known();
        known.stored.iter().filter(|part| piece.contains(&part.offset)).copied().collect()
    }

    /// The pieces of the source that are not settled: where each begins, and its whole records.
    pub fn open(&self) -> Vec<(u64, &[u8])> {
        let known = self.known();
        if known.done.is_empty() && self.left.is_none() {
            return vec![(self.block.offset, self.block.bytes.as_slice())];
        }
        if self.block.too_long.is_some() {
            return Vec::new();
        }
        let mut pieces: Vec<(u64, Range<usize>)> = Vec::new();
        for (offset, place) in self.places() {
            if known.done.contains(&offset) {
                continue;
            }
            match pieces.last_mut() {
                // one piece of the source, not only of what is left of it
                Some((begin, last)) if last.end == place.start && *begin + last.len() as u64 == offset => {
                    last.end = place.end;
                }
                _ => pieces.push((offset, place)),
            }
        }
        pieces.into_iter().map(|(offset, range)| (offset, &self.block.bytes[range])).collect()
    }

    /// All records that there are: where each begins in the source, and where it stands, with what is between it and
    /// the next one.
    fn places(&self) -> Vec<(u64, Range<usize>)> {
        if let Some(left) = &self.left {
            return left.clone();
        }
        let mut records = Vec::new();
        self.cutting.cut(&self.block, &mut records);
        let begins = records.iter().map(|record| (record.offset - self.block.offset) as usize);
        let ends = begins.clone().skip(1).chain([self.block.bytes.len()]);
        records.iter().map(|record| record.offset).zip(begins.zip(ends).map(|(begin, end)| begin..end)).collect()
    }

    /// How many records there are in a piece of it.
    pub fn count(&self, piece: &[u8]) -> u64 {
        if self.block.too_long.is_some() { 1 } else { self.cutting.count(piece) }
    }
}

type Remove = Box<dyn Fn(&Path) -> io::Result<()> + Send + Sync>;

/// A spool of an earlier stop that is being sent: removed when nothing of it is open.
pub struct Spool {
    path: PathBuf,
    /// Blocks that are not settled, and its end until that was read.
    open: AtomicU64,
    is_gone: AtomicBool,
    remove: Remove,
}

impl Spool {
    pub fn new<D: Disk>(disk: D, path: &Path, open: u64) -> Spool {
        let remove = Box::new(move |path: &Path| spool::remove(&disk, path));
        Spool { path: path.to_path_buf(), open: open.into(), is_gone: AtomicBool::new(false), remove }
    }

    /// A block is, or the end was read.
    pub fn settled(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1
            && let Err(error) = self.remove_now()
        {
            let path = self.path.display();
            tracing::error!(%path, %error, "a spool that was sent cannot be removed: it will be sent again");
        }
    }

    fn remove_now(&self) -> io::Result<()> {
        (self.remove)(&self.path).inspect(|()| self.is_gone.store(true, Ordering::Release))
    }

    /// Whether what came after it may be sent. Where the newest must win that has to wait until all of it is settled: it
    /// is sent again whole, and must not put an older version over a newer one.
    pub fn lets_pass(&self, ordered: bool) -> bool {
        !ordered || self.is_gone()
    }

    /// All of it is settled and it is removed, which is tried again if it could not be.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire) || self.open.load(Ordering::Acquire) == 0 && self.remove_now().is_ok()
    }
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("path", &self.path).field("open", &self.open).finish_non_exhaustive()
    }
}

/// Who keeps a batch until it is settled, and the spool it came from.
#[derive(Clone, Debug)]
pub struct Keep {
    pub kept: Arc<Kept>,
    pub spool: Option<Arc<Spool>>,
}

impl Keep {
    pub(super) fn settled(&self, place: Place) {
        self.kept.lock().blocks.remove(&place);
        if let Some(spool) = &self.spool {
            spool.settled();
        }
    }
}

/// Partition, and number in it.
pub type Place = (u32, u64);

/// What was read of sources that cannot be read again, and is not settled.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Store>);

#[derive(Debug, Default)]
struct Store {
    blocks: BTreeMap<Place, Arc<Held>>,
    /// What a reader had begun, with its input and source.
    rests: Vec<(usize, Arc<Source>, Rest)>,
    /// What became of it at the stop.
    written: Option<Written>,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a batch, or a block that nobody took.
    pub fn hold(&self, place: Place, held: Arc<Held>) {
        self.lock().blocks.insert(place, held);
    }

    /// Keeps this of a batch instead, unless it is not kept any more.
    pub fn exchange(&self, place: Place, held: Arc<Held>) {
        if let Some(kept) = self.lock().blocks.get_mut(&place) {
            *kept = held;
        }
    }

    pub fn hold_rest(&self, input: usize, source: Arc<Source>, rest: Rest) {
        if !rest.is_empty() {
            self.lock().rests.push((input, source, rest));
        }
    }

    /// What a reader had begun, to go on with.
    pub fn take_rest(&self) -> Option<Rest> {
        self.lock().rests.pop().map(|(_, _, rest)| rest)
    }

    /// What is not settled.
    pub fn blocks(&self) -> Vec<Arc<Held>> {
        self.lock().blocks.values().cloned().collect()
    }

    /// Writes everything that is not settled to a file in `folder`, once, and forgets it. What is sent from the
    /// spool of an earlier stop stays there. None if there is nothing.
    pub fn write(&self, disk: &impl Disk, folder: &Path) -> io::Result<Option<Written>> {
        let mut store = self.lock();
        if store.written.is_some() {
            return Ok(store.written.clone());
        }
        let rests = store.rests.iter().filter_map(|(input, source, rest)| {
            let mut held = Held::new(*input, source.clone(), rest.clone().into_block()?);
            held.cutting = rest.cutting.clone();
            Some(Arc::new(held))
        });
        let held: Vec<Arc<Held>> =
            store.blocks.values().filter(|held| !held.is_in_spool).cloned().chain(rests).collect();
        store.written = spool::write(disk, folder, &held)?;
        store.blocks.clear();
        store.rests.clear();
        Ok(store.written.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::charset::Charset;
    use crate::codec::rule::{Neighbour, Rule};
    use crate::regexp::OfLine;

    fn rule() -> Arc<Rule> {
        Arc::new(Rule {
            pattern: OfLine::parse(r"^\s").unwrap(),
            negate: false,
            what: Neighbour::Previous,
            lines_max: 500,
            bytes_max: 500,
            keeps_blank: false,
            charset: Charset::Utf8,
            flush_after: std::time::Duration::from_secs(5),
        })
    }

    /// `done`: where in `text`, which stands at 100, records begin that have their fate. `want`: what is left.
    fn check(text: &str, rule: Option<Arc<Rule>>, done: &[u64], want: &[(u64, &str, u64)]) {
        let block =
            Block { bytes: text.as_bytes().to_vec().into(), offset: 100, too_long: None, mark: None, records: None };
        let mut held = Held::new(0, Arc::default(), block);
        held.cutting = Cutting { rule, line_bytes_max: 1000 };
        held.note_done(done.iter().copied());
        let open = held.open();
        let got: Vec<(u64, &str, u64)> = open
            .iter()
            .map(|(offset, piece)| (*offset, std::str::from_utf8(piece).unwrap(), held.count(piece)))
            .collect();
        assert_eq!(got, want, "{text:?} without {done:?}");
    }

    #[test]
    fn what_is_left_is_whole_records() {
        let text = "a\n b\n\nc\nd\n e";
        check(text, None, &[], &[(100, text, 6)]);
        check(text, None, &[102, 106], &[(100, "a\n", 1), (105, "\n", 1), (108, "d\n e", 2)]);
        check(text, Some(rule()), &[], &[(100, text, 3)]);
        check(text, Some(rule()), &[106], &[(100, "a\n b\n\n", 1), (108, "d\n e", 1)]);
        check(text, Some(rule()), &[100, 108], &[(106, "c\n", 1)]);
        check(text, Some(rule()), &[100, 106, 108], &[]);
    }

    #[test]
    fn a_letter_has_its_whole_record() {
        let text = "a\n b\nc\n d\n e\n";
        for (rule, offset, want) in [(None, 105, "c"), (Some(rule()), 105, "c\n d\n e"), (Some(rule()), 100, "a\n b")] {
            let bytes = text.as_bytes().to_vec().into();
            let block = Block { bytes, offset: 100, too_long: None, mark: None, records: None };
            let mut held = Held::new(0, Arc::default(), block);
            held.cutting = Cutting { rule, line_bytes_max: 1000 };
            let record = held.record_at(offset).map(|record| held.bytes(record).to_vec());
            assert_eq!(record.as_deref(), Some(want.as_bytes()));
        }
    }
}
