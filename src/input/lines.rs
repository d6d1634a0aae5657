//! Reads a source to its end in blocks of whole records: carries on what was begun, a line or a record of several,
//! and passes over the rest of a line that is too long in bounded memory.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::Limits;
use super::identity::{Mark, Tail};
use crate::batch::HEAD;
use crate::codec::rule::Open;
use crate::codec::{Block, Cutting, TooLong};
use crate::pool::{Buffer, Pool};

/// How long whole lines wait for more before they are handed over in a block that is not full.
const LINGER: Duration = Duration::from_millis(20);
/// How often a source that is quiet is asked whether the program goes down.
const WATCH: Duration = Duration::from_millis(200);
/// How long the rest of a line that was begun is waited for at a stop.
const REST_WAIT: Duration = Duration::from_secs(1);

/// What is read: something that can be waited for, or a stream (a decompressor over a file).
pub enum Bytes<'a> {
    Descriptor(BorrowedFd<'a>),
    Stream(Box<dyn Read + 'a>),
}

enum Filled {
    Some,
    /// Nothing more for now.
    Quiet,
    End,
}

/// Where reading begins: after `offset` bytes, which begin with `head` and end with `tail`.
#[derive(Clone, Debug, Default)]
pub struct Start {
    pub offset: u64,
    /// The first bytes of the source, those after `offset` too as far as they are known.
    pub head: Vec<u8>,
    pub tail: Tail,
}

/// Who takes the blocks: told the first bytes of the source too, as far as they are known. Says whether it goes on.
pub type Take<'a> = dyn FnMut(Block, &[u8]) -> bool + 'a;

/// What was read of a source and not handed over: the beginning of a record, as a rule. Reading goes on with it.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    /// How its records are told.
    pub cutting: Cutting,
    bytes: Vec<u8>,
    /// Where the bytes begin in the source.
    offset: u64,
    head: Vec<u8>,
    skipped: Option<Skipped>,
}

impl Rest {
    /// Nothing was read that is not handed over.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How much of the source it is.
    pub fn covered(&self) -> u64 {
        self.bytes.len() as u64 + self.skipped.map_or(0, |skipped| skipped.bytes)
    }

    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// As the last block of its source; none if there is nothing.
    pub fn into_block(self) -> Option<Block> {
        let too_long = self.skipped.map(|skipped| {
            let bytes = self.bytes.len() as u64 + skipped.bytes;
            TooLong { bytes: bytes - u64::from(skipped.ends_with_cr), covered: bytes }
        });
        let is_empty = self.bytes.is_empty();
        let block = Block { bytes: self.bytes.into(), offset: self.offset, too_long, mark: None, records: None };
        (!is_empty).then_some(block)
    }
}

/// Reads `bytes`, which stand at `start`, to the end, or until `running` says no or nobody takes blocks any more.
pub fn read(
    bytes: &mut Bytes<'_>,
    start: Start,
    limits: Limits,
    pool: &Pool,
    running: &dyn Fn() -> bool,
    take: &mut Take<'_>,
) -> io::Result<()> {
    State::new(start, limits, pool, take).read(bytes, running)
}

/// As [`read`], for a source that cannot be read again: begins with what an earlier reading left, and at a stop
/// hands over every whole record, waits a moment for the end of a line that was begun, and gives back what is left.
pub fn read_on(
    bytes: &mut Bytes<'_>,
    limits: Limits,
    pool: &Pool,
    running: &dyn Fn() -> bool,
    take: &mut Take<'_>,
    rest: Rest,
) -> (io::Result<()>, Rest) {
    let mut state = State::new(Start::default(), limits, pool, take);
    state.go_on(rest);
    let mut ending = state.read(bytes, running);
    if ending.is_ok() && !running() {
        ending = state.end_line(bytes);
    }
    let rest = state.into_rest();
    (ending, rest)
}

#[derive(Clone, Copy, Debug, Default)]
struct Skipped {
    bytes: u64,
    ends_with_cr: bool,
}

/// A line that is longer than allowed by more than this is too long whatever it begins and ends with: a byte order
/// mark and a CR are no part of the record.
const MARGIN: usize = 4;

/// Cuts what is read into blocks of whole records. What is read is appended to `buffer`; after each reading the
/// cutter is asked for blocks until it has none.
#[derive(Debug)]
pub struct Cutter {
    pub buffer: Buffer,
    limits: Limits,
    pool: Pool,
    /// Where the buffer begins in the source.
    offset: u64,
    /// Bytes of the buffer that were looked at.
    searched: usize,
    /// Bytes of the buffer that are whole lines of the record that is open.
    whole: usize,
    /// What a rule has to know of that record.
    open: Open,
    /// What was passed over of a line that is too long; what is kept of it stands at the buffer's beginning.
    skipped: Option<Skipped>,
    /// The end of the last block, and of what was passed over behind it.
    tail: Tail,
}

impl Cutter {
    /// A cutter of what stands in a source at `offset` and behind; before it stands `tail`.
    pub fn new(limits: Limits, pool: &Pool, offset: u64, tail: Tail) -> Cutter {
        let (buffer, pool) = (pool.take(limits.block_bytes()), pool.clone());
        Cutter { buffer, limits, pool, offset, searched: 0, whole: 0, open: Open::default(), skipped: None, tail }
    }

    /// What stands before the place where the last block ends; not within a line that is too long.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Goes on with what was cut off and left.
    fn go_on(&mut self, rest: Rest) {
        self.buffer.extend_from_slice(&rest.bytes);
        (self.offset, self.skipped) = (rest.offset, rest.skipped);
        let kept = self.kept_bytes();
        if let Some(skipped) = &mut self.skipped {
            // another limit than before: what is kept is as long as it is now, the line as long as it was
            skipped.bytes = (skipped.bytes + rest.bytes.len() as u64).saturating_sub(kept as u64);
            self.buffer.resize(kept, b' ');
        }
    }

    /// The place where the last block ends.
    pub fn mark(&self) -> Mark {
        Mark { offset: self.offset, tail: self.tail.print() }
    }

    /// Up to where the source was read.
    pub fn end(&self) -> u64 {
        self.offset + self.buffer.len() as u64 + self.skipped.map_or(0, |skipped| skipped.bytes)
    }

    /// The next whole records in the buffer, at the end of the source what was begun too. A line that is too long
    /// comes alone.
    pub fn cut(&mut self, end: bool) -> Option<Block> {
        if self.skipped.is_some() {
            return self.end_long_line(end);
        }
        let edge = self.edge();
        if end && !self.buffer.is_empty() {
            self.open = Open::default();
            return Some(self.block(self.buffer.len(), None, edge));
        }
        if edge > 0 {
            return Some(self.block(edge, None, edge));
        }
        if self.buffer.len() - self.whole > self.kept_bytes() {
            if self.whole > 0 {
                // no record goes on behind such a line
                self.open = Open::default();
                return Some(self.block(self.whole, None, self.whole));
            }
            self.skipped = Some(Skipped::default());
            self.searched = 0;
            self.tail.push(&self.buffer[..self.kept_bytes()]);
            self.skip_from(self.kept_bytes());
        }
        None
    }

    /// Where the last whole record in the buffer ends.
    fn edge(&mut self) -> usize {
        let known = self.whole;
        if let Some(at) = memchr::memrchr(b'\n', &self.buffer[self.searched..]) {
            self.whole = self.searched + at + 1;
        }
        self.searched = self.buffer.len();
        match &self.limits.rule {
            None => self.whole,
            Some(rule) => rule.edge(&self.buffer, known..self.whole, self.limits.line_bytes_max, &mut self.open),
        }
    }

    /// The whole lines of the record that is open, as if it were whole; to be asked for once no record is.
    pub fn cut_open(&mut self) -> Option<Block> {
        if self.whole == 0 {
            return None;
        }
        self.open = Open::default();
        Some(self.block(self.whole, None, 0))
    }

    /// The whole lines of the record that is open.
    pub fn open_lines(&self) -> &[u8] {
        &self.buffer[..self.whole]
    }

    /// Whether a line was begun.
    pub fn is_within_line(&self) -> bool {
        self.skipped.is_some() || self.buffer.len() > self.whole
    }

    /// How much is kept of a line that is too long.
    fn kept_bytes(&self) -> usize {
        self.limits.line_bytes_max + MARGIN
    }

    /// Forgets what stands at `from` and behind.
    fn skip_from(&mut self, from: usize) {
        if let (Some(skipped), [.., last]) = (&mut self.skipped, &self.buffer[from..]) {
            skipped.bytes += (self.buffer.len() - from) as u64;
            skipped.ends_with_cr = *last == b'\r';
            self.tail.push(&self.buffer[from..]);
        }
        self.buffer.truncate(from);
    }

    /// The line that is too long, once its end was found.
    fn end_long_line(&mut self, end: bool) -> Option<Block> {
        let kept = self.kept_bytes();
        let found = memchr::memchr(b'\n', &self.buffer[kept..]);
        if found.is_none() && !end {
            self.skip_from(kept);
            return None;
        }
        let rest = self.buffer.split_off(kept);
        let (line_end, consumed) = found.map_or((rest.len(), rest.len()), |at| (at, at + 1));
        let skipped = self.skipped.take().unwrap_or_default();
        let ends_with_cr = rest[..line_end].last().map_or(skipped.ends_with_cr, |last| *last == b'\r');
        let line = kept as u64 + skipped.bytes + line_end as u64;
        let covered = line + (consumed - line_end) as u64;
        self.tail.push(&rest[..consumed]);
        let mut block = self.block(kept, Some(TooLong { bytes: line - u64::from(ends_with_cr), covered }), 0);
        self.offset += covered - kept as u64;
        block.mark = found.is_some().then(|| self.mark());
        self.buffer.extend_from_slice(&rest[consumed..]);
        Some(block)
    }

    /// What stands before `cut`. It can be gone on from `marked`, which is not within a record; 0 for nowhere.
    fn block(&mut self, cut: usize, too_long: Option<TooLong>, marked: usize) -> Block {
        self.limits.grow();
        let bytes = self.take(cut);
        let mut mark = None;
        if too_long.is_none() {
            self.tail.push(&bytes[..marked]);
            mark = (marked > 0).then(|| Mark { offset: self.offset + marked as u64, tail: self.tail.print() });
            self.tail.push(&bytes[marked..]);
        }
        let block = Block { bytes, offset: self.offset, too_long, mark, records: None };
        self.offset += cut as u64;
        (self.searched, self.whole) = (self.searched.saturating_sub(cut), self.whole.saturating_sub(cut));
        block
    }

    /// The first `cut` bytes of the buffer, in no much larger one: it is held until they are settled.
    fn take(&mut self, cut: usize) -> Buffer {
        if cut <= self.buffer.capacity() / 2 {
            let mut bytes = self.pool.take(cut);
            bytes.extend_from_slice(&self.buffer[..cut]);
            self.buffer.drain(..cut);
            return bytes;
        }
        let mut next = self.pool.take(self.limits.block_bytes().max(self.buffer.len() - cut));
        next.extend_from_slice(&self.buffer[cut..]);
        self.buffer.truncate(cut);
        std::mem::replace(&mut self.buffer, next)
    }
}

struct State<'a, 'b> {
    cutter: Cutter,
    take: &'a mut Take<'b>,
    head: Vec<u8>,
}

impl<'a, 'b> State<'a, 'b> {
    fn new(start: Start, limits: Limits, pool: &Pool, take: &'a mut Take<'b>) -> State<'a, 'b> {
        let Start { offset, head, tail } = start;
        State { cutter: Cutter::new(limits, pool, offset, tail), take, head }
    }

    fn go_on(&mut self, mut rest: Rest) {
        self.head = std::mem::take(&mut rest.head);
        self.cutter.go_on(rest);
    }

    /// What is not handed over.
    fn into_rest(mut self) -> Rest {
        let Cutter { buffer, offset, skipped, limits, .. } = &mut self.cutter;
        let (bytes, cutting) = (std::mem::take(&mut **buffer), limits.cutting());
        Rest { cutting, bytes, offset: *offset, head: self.head, skipped: *skipped }
    }

    fn read(&mut self, bytes: &mut Bytes<'_>, running: &dyn Fn() -> bool) -> io::Result<()> {
        let rule = self.cutter.limits.rule.clone();
        let mut changed = Instant::now();
        while running() {
            let pending = self.has_lines();
            let block_bytes = self.cutter.limits.block_bytes();
            let filled = bytes.fill(&mut self.cutter.buffer, block_bytes, pending);
            self.note_head();
            if filled.is_err() {
                // whole lines before a break, such as the end of a gzip cut short, are as good as any
                self.hand_over(false);
                self.hand_over_open();
            }
            let filled = filled?;
            let done = matches!(filled, Filled::End);
            let full = self.cutter.buffer.len() >= block_bytes;
            let ripe = done || full || matches!(filled, Filled::Quiet);
            if ripe && !self.hand_over(done) || done {
                return Ok(());
            }
            let Some(rule) = &rule else { continue };
            if !matches!(filled, Filled::Quiet) {
                changed = Instant::now();
            } else if changed.elapsed() >= rule.wait(self.cutter.is_within_line()) && !self.hand_over_open() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands over the whole records, with the line that was begun if its end comes. Reads no byte behind that.
    fn end_line(&mut self, bytes: &mut Bytes<'_>) -> io::Result<()> {
        let mut end = false;
        if let Bytes::Descriptor(descriptor) = bytes {
            let limit = Instant::now() + REST_WAIT;
            let buffer = &mut self.cutter.buffer;
            let mut begun = buffer.len() - memchr::memrchr(b'\n', buffer).map_or(0, |at| at + 1);
            while begun > 0 && begun <= self.cutter.limits.line_bytes_max && Instant::now() < limit {
                let mut byte = [0];
                if !ready(descriptor.as_fd(), LINGER)? {
                    continue;
                }
                match rustix::io::read(*descriptor, &mut byte) {
                    Ok(0) => {
                        end = true;
                        break;
                    }
                    Ok(_) => {
                        buffer.push(byte[0]);
                        begun = if byte[0] == b'\n' { 0 } else { begun + 1 };
                    }
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.note_head();
        self.hand_over(end);
        Ok(())
    }

    /// Whether there are whole lines that were not looked at.
    fn has_lines(&self) -> bool {
        self.cutter.buffer.get(self.cutter.searched..).is_some_and(|new| memchr::memchr(b'\n', new).is_some())
    }

    /// Keeps the first bytes of the source, in however many blocks they are handed over.
    fn note_head(&mut self) {
        let cutter = &self.cutter;
        let Some(from) = (self.head.len() as u64).checked_sub(cutter.offset) else { return };
        if self.head.len() < HEAD && cutter.skipped.is_none() {
            let more = cutter.buffer.get(from as usize..).unwrap_or_default();
            self.head.extend_from_slice(&more[..more.len().min(HEAD - self.head.len())]);
        }
    }

    /// Hands over the whole records in the buffer, at the end of the source all there is.
    fn hand_over(&mut self, end: bool) -> bool {
        while let Some(block) = self.cutter.cut(end) {
            if !(self.take)(block, &self.head) {
                return false;
            }
        }
        true
    }

    /// Hands over the record that is open, of which nothing more is waited for.
    fn hand_over_open(&mut self) -> bool {
        self.cutter.cut_open().is_none_or(|block| (self.take)(block, &self.head))
    }
}

impl Bytes<'_> {
    /// Appends what there is, up to `block_bytes` in all or some more of a line that is longer. With `pending`
    /// lines it waits for more only a moment.
    fn fill(&mut self, buffer: &mut Vec<u8>, block_bytes: usize, pending: bool) -> io::Result<Filled> {
        let room = if buffer.len() < block_bytes { block_bytes - buffer.len() } else { block_bytes };
        buffer.reserve(room);
        match self {
            Bytes::Stream(stream) => {
                let read = stream.by_ref().take(room as u64).read_to_end(buffer)?;
                Ok(if read < room { Filled::End } else { Filled::Some })
            }
            Bytes::Descriptor(descriptor) => {
                if !ready(descriptor.as_fd(), if pending { LINGER } else { WATCH })? {
                    return Ok(Filled::Quiet);
                }
                match rustix::io::read(descriptor, rustix::buffer::spare_capacity(buffer)) {
                    Ok(0) => Ok(Filled::End),
                    Ok(_) => Ok(Filled::Some),
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Filled::Some),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }
}

/// Whether there is something to read (or the end) within `wait`.
fn ready(descriptor: BorrowedFd<'_>, wait: Duration) -> io::Result<bool> {
    let mut wanted = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
    match rustix::event::poll(&mut wanted, Some(&wait)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Ramp;
    use crate::input::identity::Print;

    /// Gives `text`, then an error.
    struct Breaks<'a>(&'a [u8]);

    impl Read for Breaks<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.0.read(into)? {
                0 => Err(io::Error::other("cut short")),
                read => Ok(read),
            }
        }
    }

    const BATCH_BYTES: usize = 4096;

    fn limits() -> Limits {
        Limits { batch_bytes: BATCH_BYTES, line_bytes_max: 1024, rule: None, ramp: Ramp::from(512) }
    }

    #[test]
    fn whole_lines_before_a_break_are_handed_over() {
        for (text, want) in [("a\nb\nc", "a\nb\n"), ("a", ""), ("", "")] {
            let mut got = Vec::new();
            let mut take = |block: Block, _: &[u8]| {
                got.extend_from_slice(&block.bytes);
                true
            };
            let mut bytes = Bytes::Stream(Box::new(Breaks(text.as_bytes())));
            let pool = Pool::default();
            assert!(read(&mut bytes, Start::default(), limits(), &pool, &|| true, &mut take).is_err());
            assert_eq!(String::from_utf8(got).unwrap(), want);
        }
    }

    /// The marks of a text that is read from `from` on, with the heads that were known then.
    fn marks(text: &[u8], from: usize) -> Vec<(Option<Mark>, Vec<u8>)> {
        let mut got = Vec::new();
        let mut take = |block: Block, head: &[u8]| {
            got.push((block.mark, head.to_vec()));
            true
        };
        let mut tail = Tail::default();
        tail.push(&text[..from]);
        let start = Start { offset: from as u64, head: text[..from.min(HEAD)].to_vec(), tail };
        let mut bytes = Bytes::Stream(Box::new(&text[from..]));
        read(&mut bytes, start, limits(), &Pool::default(), &|| true, &mut take).unwrap();
        got
    }

    #[test]
    fn first_blocks_are_small_and_grow() {
        let text = b"eight b\n".repeat(4096);
        let mut blocks = Vec::new();
        let mut take = |block: Block, _: &[u8]| {
            blocks.push(block.bytes.len());
            true
        };
        let (limits, pool) = (limits(), Pool::default());
        let read = |bytes: &[u8], take: &mut Take<'_>| {
            let mut bytes = Bytes::Stream(Box::new(bytes));
            read(&mut bytes, Start::default(), limits.clone(), &pool, &|| true, take).unwrap();
        };
        read(&text[..16 << 10], &mut take);
        // of one source or of several
        read(&text[..8 << 10], &mut take);
        assert_eq!(blocks, [512, 1024, 2048, 4096, 4096, 4096, 512, 4096, 4096]);
    }

    #[test]
    fn marks_are_the_ends_of_whole_lines() {
        let long = |end: &str| format!("first\n{}{end}", "x".repeat(3 * BATCH_BYTES));
        let lines: String = (0..2000).map(|n| format!("line {n}\n")).collect();
        for (text, from, end) in [
            ("a\nb\n", 0, Some(4)),
            ("a\nb\nhalf", 0, Some(4)),
            ("a\nb\nhalf", 4, None),
            ("a\nb\n", 4, None),
            ("half", 0, None),
            (&lines, 0, Some(lines.len())),
            (&lines, 7, Some(lines.len())),
            (&long("\n"), 0, Some(long("\n").len())),
            (&long("\r\nand"), 0, Some(long("\r\n").len())),
            (&long(""), 0, Some(6)),
            (&long(""), 6, None),
        ] {
            let got = marks(text.as_bytes(), from);
            let ends: Vec<Mark> = got.iter().filter_map(|(mark, _)| *mark).collect();
            assert_eq!(ends.last().map(|mark| mark.offset as usize), end, "{text:.20}");
            assert!(ends.is_sorted_by_key(|mark| mark.offset));
            for mark in ends {
                let before = &text.as_bytes()[..mark.offset as usize];
                assert_eq!(mark.tail, Print::tail(before), "{text:.20} {}", mark.offset);
                assert!(before.ends_with(b"\n"));
            }
            if let Some((_, head)) = got.last() {
                assert_eq!(head.len(), text.len().min(HEAD), "{text:.20}");
            }
        }
    }
}
