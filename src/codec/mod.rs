//! Codecs make events of records. A record is a line without its end, or several lines of which a rule says that they
//! belong together; cutting the block into records is done here, once for all codecs.

pub mod cef;
pub mod charset;
pub mod csv;
pub mod json;
pub mod logfmt;
pub mod multiline;
pub mod plain;
pub mod rule;
pub mod syslog;

use std::ops::Range;
use std::sync::Arc;

use crate::ack::Reason;
use crate::batch::{Batch, Span};
use crate::input::identity::Mark;
use crate::pool::Buffer;
use crate::stamp::dead;
use rule::Rule;

/// One record: where it stands in the batch, and where it begins in its source.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub span: Span,
    pub offset: u64,
}

/// Makes events of records, in order. Called by the workers; keeps nothing between batches; cannot fail: a record
/// that is no event becomes an event that is dead or dropped.
pub trait Codec: Send + Sync {
    fn decode(&self, batch: &mut Batch, records: &[Record]);

    fn name(&self) -> &'static str;

    /// Whether times depend on the day on which the source was written.
    fn reads_day(&self) -> bool {
        false
    }

    /// Which lines are a record; none where each is one.
    fn rule(&self) -> Option<&Arc<Rule>> {
        None
    }
}

/// What a reader hands over: whole records, the last line perhaps without its end.
#[derive(Debug)]
pub struct Block {
    pub bytes: Buffer,
    /// Where the block begins in its source.
    pub offset: u64,
    /// The block is the beginning of one line that is longer than allowed.
    pub too_long: Option<TooLong>,
    /// The end of the last whole line in it, or where the last record is surely whole; none if there is none.
    pub mark: Option<Mark>,
    /// Where the records stand and where they came from, if they are not those of one piece of the source.
    pub records: Option<Vec<Record>>,
}

/// How long a line is that is too long.
#[derive(Clone, Copy, Debug)]
pub struct TooLong {
    /// Without its end.
    pub bytes: u64,
    /// With its end: how far the source was read.
    pub covered: u64,
}

impl Block {
    /// The same place, without the bytes.
    pub fn place(&self) -> Block {
        let Block { offset, too_long, mark, .. } = *self;
        Block { bytes: Buffer::default(), offset, too_long, mark, records: self.records.clone() }
    }
}

/// How what is read is cut into records: into lines, or by a rule that puts lines together.
#[derive(Clone, Debug, Default)]
pub struct Cutting {
    pub rule: Option<Arc<Rule>>,
    pub line_bytes_max: usize,
}

impl Cutting {
    /// The records of a block.
    pub fn cut(&self, block: &Block, records: &mut Vec<Record>) {
        match (&block.records, &self.rule) {
            (Some(known), _) => records.extend_from_slice(known),
            (None, Some(rule)) if block.too_long.is_none() => {
                let found = rule.records(&block.bytes, self.line_bytes_max);
                records.extend(found.map(|record| record.record(block.offset)));
            }
            _ => cut_lines(&block.bytes, block.offset, records),
        }
    }

    /// The first record of `bytes`, which begin with one and stand at `offset`.
    pub fn first(&self, bytes: &[u8], offset: u64) -> Option<Record> {
        match &self.rule {
            Some(rule) => rule.records(bytes, self.line_bytes_max).next().map(|first| first.record(offset)),
            None if bytes.is_empty() => None,
            None => Some(record(bytes, 0, memchr::memchr(b'\n', bytes).unwrap_or(bytes.len()), offset)),
        }
    }

    /// How many bytes the first record of `bytes` has, with the end of its last line; none if there is none.
    pub fn first_bytes(&self, bytes: &[u8]) -> Option<usize> {
        match &self.rule {
            Some(rule) => rule.records(bytes, self.line_bytes_max).next().map(|first| first.next()),
            None if bytes.is_empty() => None,
            None => Some(memchr::memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1)),
        }
    }

    /// How many records there are in `bytes`.
    pub fn count(&self, bytes: &[u8]) -> u64 {
        match &self.rule {
            Some(rule) => rule.records(bytes, self.line_bytes_max).count() as u64,
            None => {
                memchr::memchr_iter(b'\n', bytes).count() as u64 + u64::from(bytes.last().is_some_and(|b| *b != b'\n'))
            }
        }
    }
}

/// Cuts whole lines out of `bytes`, which begin at `offset` of their source. A line ends with LF or CR LF; neither
/// is part of the record, nor is a byte order mark at its beginning.
pub fn cut_lines(bytes: &[u8], offset: u64, records: &mut Vec<Record>) {
    let mut from = 0;
    for end in memchr::memchr_iter(b'\n', bytes) {
        records.push(record(bytes, from, end, offset));
        from = end + 1;
    }
    if from < bytes.len() {
        records.push(record(bytes, from, bytes.len(), offset));
    }
}

fn record(bytes: &[u8], from: usize, end: usize, offset: u64) -> Record {
    let line = line_of(bytes, from, end);
    Record { span: Span::new(line.start, line.len()), offset: offset + from as u64 }
}

/// What there is of a line without CR and byte order mark.
fn line_of(bytes: &[u8], from: usize, end: usize) -> Range<usize> {
    let mut line = from..end;
    if let [.., b'\r'] = bytes[line.clone()] {
        line.end -= 1;
    }
    if let [0xef, 0xbb, 0xbf, ..] = bytes[line.clone()] {
        line.start += 3;
    }
    line
}

/// Whether a record is a line that is longer than allowed. One of several lines has none that is.
pub fn is_too_long(record: &[u8], line_bytes_max: usize) -> bool {
    record.len() > line_bytes_max && memchr::memchr(b'\n', &record[..=line_bytes_max]).is_none()
}

/// The event of a record that is longer than allowed: set aside with as much of it as is allowed.
pub fn push_too_long(batch: &mut Batch, record: Record, length: u64, line_bytes_max: usize) {
    let kept = Span::new(record.span.start as usize, line_bytes_max.min(record.span.len as usize));
    let detail = format!("a line of {length} bytes is longer than line_bytes_max ({line_bytes_max})");
    batch.push(kept, record.offset).end(dead(Reason::TooLarge, detail));
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// What the codec makes of lines: events as they would be stored, or `dropped`.
    pub fn decoded(codec: &dyn Codec, bytes: &[u8], source: crate::batch::Source) -> Vec<String> {
        let mut records = Vec::new();
        cut_lines(bytes, 0, &mut records);
        let mut batch = Batch::new(bytes.to_vec(), source.into());
        codec.decode(&mut batch, &records);
        let show = |i: usize| {
            let mut out = Vec::new();
            batch.event(i).write_source(&mut out);
            let is_dropped = matches!(batch.event(i).fate(), crate::batch::Fate::Dropped);
            if is_dropped { "dropped".to_string() } else { String::from_utf8(out).unwrap() }
        };
        (0..batch.len()).map(show).collect()
    }

    #[test]
    fn lines() {
        let bytes = b"\xef\xbb\xbfa\r\n\nb\rc\n\r\nlast";
        let mut records = Vec::new();
        cut_lines(bytes, 100, &mut records);
        let got: Vec<_> = records
            .iter()
            .map(|r| (&bytes[r.span.start as usize..(r.span.start + r.span.len) as usize], r.offset))
            .collect();
        let want: [(&[u8], u64); 5] = [(b"a", 100), (b"", 106), (b"b\rc", 107), (b"", 111), (b"last", 113)];
        assert_eq!(got, want);
    }
}
