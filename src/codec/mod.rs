//! Codecs make events of records. A record is a line without its end; cutting the block into records is done here,
//! once for all codecs that read lines.

pub mod csv;
pub mod json;
pub mod logfmt;
pub mod plain;
pub mod syslog;

use crate::ack::Reason;
use crate::batch::{Batch, Span};
use crate::input::identity::Mark;
use crate::pool::Buffer;
use crate::stamp::dead;

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
}

/// What a reader hands over: whole lines, the last one perhaps without its end.
#[derive(Debug)]
pub struct Block {
    pub bytes: Buffer,
    /// Where the block begins in its source.
    pub offset: u64,
    /// The block is the beginning of one line that is longer than allowed.
    pub too_long: Option<TooLong>,
    /// The end of the last whole line in it; none if there is none.
    pub mark: Option<Mark>,
    /// Where the records stand and where they came from, if they are not the lines of one piece of the source.
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

    /// Its records.
    pub fn cut(&self, records: &mut Vec<Record>) {
        match &self.records {
            Some(known) => records.extend_from_slice(known),
            None => cut_lines(&self.bytes, self.offset, records),
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
    let mut line = &bytes[from..end];
    let mut start = from;
    if let [rest @ .., b'\r'] = line {
        line = rest;
    }
    if let [0xef, 0xbb, 0xbf, rest @ ..] = line {
        line = rest;
        start += 3;
    }
    Record { span: Span::new(start, line.len()), offset: offset + from as u64 }
}

/// The event of a record that is longer than allowed: set aside with as much of it as is allowed.
pub fn push_too_long(batch: &mut Batch, record: Record, length: u64, line_bytes_max: usize) {
    let kept = Span::new(record.span.start as usize, line_bytes_max.min(record.span.len as usize));
    let detail = format!("a line of {length} bytes is longer than line_bytes_max ({line_bytes_max})");
    batch.push(kept, record.offset).end(dead(Reason::TooLarge, detail));
}

#[cfg(test)]
mod tests {
    use super::*;

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
