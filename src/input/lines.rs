//! Reads a source to its end in blocks of whole lines: carries the unfinished line on, and passes over the rest of
//! a line that is too long in bounded memory.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::Limits;
use crate::batch::HEAD;
use crate::codec::{Block, TooLong};
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

/// Who takes the blocks: told the first bytes of the source too, as far as they are known. Says whether it goes on.
pub type Take<'a> = dyn FnMut(Block, &[u8]) -> bool + 'a;

/// What was read of a source and not handed over: the beginning of a line, as a rule. Reading goes on with it.
#[derive(Clone, Debug, Default)]
pub struct Rest {
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
        let block = Block { bytes: self.bytes.into(), offset: self.offset, too_long, records: None };
        (!is_empty).then_some(block)
    }
}

/// Reads `bytes` to the end, or until `running` says no or nobody takes blocks any more.
pub fn read(
    bytes: &mut Bytes<'_>,
    limits: Limits,
    pool: &Pool,
    running: &dyn Fn() -> bool,
    take: &mut Take<'_>,
) -> io::Result<()> {
    let mut state = State::new(limits, pool, take);
    state.read(bytes, running)
}

/// As [`read`], for a source that cannot be read again: begins with what an earlier reading left, and at a stop
/// hands over every whole line, waits a moment for the end of one that was begun, and gives back what is left.
pub fn read_on(
    bytes: &mut Bytes<'_>,
    limits: Limits,
    pool: &Pool,
    running: &dyn Fn() -> bool,
    take: &mut Take<'_>,
    rest: Rest,
) -> (io::Result<()>, Rest) {
    let mut state = State::new(limits, pool, take);
    state.go_on(rest);
    let mut ending = state.read(bytes, running);
    if ending.is_ok() && !running() {
        ending = state.end_line(bytes);
    }
    let rest = Rest {
        bytes: std::mem::take(&mut *state.buffer),
        offset: state.offset,
        head: state.head,
        skipped: state.skipped,
    };
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

struct State<'a, 'b> {
    limits: Limits,
    take: &'a mut Take<'b>,
    pool: &'a Pool,
    buffer: Buffer,
    /// Where the buffer begins in the source.
    offset: u64,
    head: Vec<u8>,
    /// Bytes of the buffer known to hold no line feed.
    searched: usize,
    /// What was passed over of a line that is too long; what is kept of it stands at the buffer's beginning.
    skipped: Option<Skipped>,
}

impl<'a, 'b> State<'a, 'b> {
    fn new(limits: Limits, pool: &'a Pool, take: &'a mut Take<'b>) -> State<'a, 'b> {
        let mut buffer = pool.take();
        buffer.reserve(limits.batch_bytes);
        State { limits, take, pool, buffer, offset: 0, head: Vec::new(), searched: 0, skipped: None }
    }

    fn go_on(&mut self, rest: Rest) {
        self.buffer.extend_from_slice(&rest.bytes);
        (self.offset, self.head, self.skipped) = (rest.offset, rest.head, rest.skipped);
        let kept = self.kept_bytes();
        if let Some(skipped) = &mut self.skipped {
            // another limit than before: what is kept is as long as it is now, the line as long as it was
            skipped.bytes = (skipped.bytes + rest.bytes.len() as u64).saturating_sub(kept as u64);
            self.buffer.resize(kept, b' ');
        }
    }

    fn read(&mut self, bytes: &mut Bytes<'_>, running: &dyn Fn() -> bool) -> io::Result<()> {
        while running() {
            let pending = self.has_lines();
            let filled = bytes.fill(&mut self.buffer, self.limits.batch_bytes, pending);
            self.note_head();
            if filled.is_err() {
                // whole lines before a break, such as the end of a gzip cut short, are as good as any
                self.hand_over_lines(false);
            }
            let filled = filled?;
            let done = matches!(filled, Filled::End);
            let full = self.buffer.len() >= self.limits.batch_bytes;
            let ripe = done || full || matches!(filled, Filled::Quiet);
            if ripe && !self.hand_over_lines(done) || done {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Hands over the whole lines, with the one that was begun if its end comes. Reads no byte behind that.
    fn end_line(&mut self, bytes: &mut Bytes<'_>) -> io::Result<()> {
        let mut end = false;
        if let Bytes::Descriptor(descriptor) = bytes {
            let limit = Instant::now() + REST_WAIT;
            while !self.buffer.is_empty()
                && self.buffer.last() != Some(&b'\n')
                && self.buffer.len() <= self.limits.line_bytes_max
                && Instant::now() < limit
            {
                let mut byte = [0];
                if !ready(descriptor.as_fd(), LINGER)? {
                    continue;
                }
                match rustix::io::read(*descriptor, &mut byte) {
                    Ok(0) => {
                        end = true;
                        break;
                    }
                    Ok(_) => self.buffer.push(byte[0]),
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.note_head();
        self.hand_over_lines(end);
        Ok(())
    }

    fn has_lines(&self) -> bool {
        memchr::memchr(b'\n', &self.buffer).is_some()
    }

    /// Keeps the first bytes of the source, in however many blocks they are handed over.
    fn note_head(&mut self) {
        let Some(from) = (self.head.len() as u64).checked_sub(self.offset) else { return };
        if self.head.len() < HEAD && self.skipped.is_none() {
            let more = self.buffer.get(from as usize..).unwrap_or_default();
            self.head.extend_from_slice(&more[..more.len().min(HEAD - self.head.len())]);
        }
    }

    /// Hands over the whole lines in the buffer, at the end of the source the last one too.
    fn hand_over_lines(&mut self, end: bool) -> bool {
        if self.skipped.is_some() && !self.end_long_line(end) {
            return true;
        }
        let cut = if end {
            self.buffer.len()
        } else {
            memchr::memrchr(b'\n', &self.buffer[self.searched..]).map_or(0, |at| self.searched + at + 1)
        };
        if cut > 0 {
            return self.hand_over(cut, None);
        }
        self.searched = self.buffer.len();
        if self.buffer.len() > self.kept_bytes() {
            self.skipped = Some(Skipped::default());
            self.skip_from(self.kept_bytes());
        }
        true
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
        }
        self.buffer.truncate(from);
    }

    /// Looks for the end of a line that is too long; true once it was found and the line handed over.
    fn end_long_line(&mut self, end: bool) -> bool {
        let kept = self.kept_bytes();
        let found = memchr::memchr(b'\n', &self.buffer[kept..]);
        if found.is_none() && !end {
            self.skip_from(kept);
            return false;
        }
        let rest = self.buffer.split_off(kept);
        let (line_end, consumed) = found.map_or((rest.len(), rest.len()), |at| (at, at + 1));
        let skipped = self.skipped.take().unwrap_or_default();
        let ends_with_cr = rest[..line_end].last().map_or(skipped.ends_with_cr, |last| *last == b'\r');
        let line = kept as u64 + skipped.bytes + line_end as u64;
        let covered = line + (consumed - line_end) as u64;
        self.hand_over(kept, Some(TooLong { bytes: line - u64::from(ends_with_cr), covered }));
        self.offset += covered - kept as u64;
        self.buffer.extend_from_slice(&rest[consumed..]);
        self.searched = 0;
        true
    }

    fn hand_over(&mut self, cut: usize, too_long: Option<TooLong>) -> bool {
        let mut next = self.pool.take();
        next.reserve(self.limits.batch_bytes.max(self.buffer.len() - cut));
        next.extend_from_slice(&self.buffer[cut..]);
        self.buffer.truncate(cut);
        let bytes = std::mem::replace(&mut self.buffer, next);
        let block = Block { bytes, offset: self.offset, too_long, records: None };
        self.offset += cut as u64;
        self.searched = 0;
        (self.take)(block, &self.head)
    }
}

impl Bytes<'_> {
    /// Appends what there is, up to `batch_bytes` in all or some more of a line that is longer. With `pending`
    /// lines it waits for more only a moment.
    fn fill(&mut self, buffer: &mut Vec<u8>, batch_bytes: usize, pending: bool) -> io::Result<Filled> {
        if buffer.len() >= batch_bytes {
            buffer.reserve(batch_bytes);
        }
        let room = buffer.capacity() - buffer.len();
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

    #[test]
    fn whole_lines_before_a_break_are_handed_over() {
        let limits = Limits { batch_bytes: 4096, line_bytes_max: 1024 };
        for (text, want) in [("a\nb\nc", "a\nb\n"), ("a", ""), ("", "")] {
            let mut got = Vec::new();
            let mut take = |block: Block, _: &[u8]| {
                got.extend_from_slice(&block.bytes);
                true
            };
            let mut bytes = Bytes::Stream(Box::new(Breaks(text.as_bytes())));
            assert!(read(&mut bytes, limits, &Pool::default(), &|| true, &mut take).is_err());
            assert_eq!(String::from_utf8(got).unwrap(), want);
        }
    }
}
