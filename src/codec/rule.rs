//! Which lines make a record together: the rule of the codec `multiline`, for who cuts blocks and who decodes them.
//!
//! A line that does not belong to its neighbour is where a record begins, or ends, whatever stands before it; so the
//! last such edge in what was read is found from the end, and few lines are looked at twice. Only limits depend on
//! the lines before: they are counted from an edge on. A record is the same however it was read, from any edge on.

use std::ops::Range;
use std::time::Duration;

use super::charset::Charset;
use super::{Record, line_of};
use crate::batch::Span;
use crate::config::units::{bytes_text, duration_words};
use crate::regexp::OfLine;

/// To which of its neighbours a line belongs if the pattern says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    Previous,
    Next,
}

#[derive(Debug)]
pub struct Rule {
    pub pattern: OfLine,
    /// Lines that do not match belong to their neighbour.
    pub negate: bool,
    pub what: Neighbour,
    pub lines_max: u64,
    /// Of the lines without their ends.
    pub bytes_max: u64,
    /// A line with nothing in it is a line like any other; otherwise it is passed over.
    pub keeps_blank: bool,
    pub charset: Charset,
    /// A record is whole when nothing came for so long.
    pub flush_after: Duration,
}

/// What there is of a record that more lines may come to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open {
    lines: u64,
    bytes: u64,
    /// Bytes of lines that are passed over.
    blank: u64,
}

/// A record's limits, once it went beyond them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beyond {
    pub lines: bool,
    pub bytes: bool,
}

/// What a record is, told by its bytes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    pub lines: u64,
    pub beyond: Beyond,
    /// It is its lines with a line feed between them.
    pub as_it_stands: bool,
}

/// Whether a record ends before a line, and after it.
struct Edges {
    before: bool,
    after: bool,
}

/// Where a source ends within a line its writer is at it, or buffers: that is waited for so many times as long.
const PATIENCE: u32 = 12;

impl Rule {
    /// How long it has to be quiet for the record at the end to be whole.
    pub fn wait(&self, within_line: bool) -> Duration {
        if within_line { self.flush_after.saturating_mul(PATIENCE) } else { self.flush_after }
    }

    /// What bounds a record, in words.
    pub fn words(&self) -> String {
        let (lines, bytes) = (self.lines_max, bytes_text(self.bytes_max));
        let wait = duration_words(self.flush_after);
        format!(" with records up to {lines} lines and {bytes}, the last one whole after {wait} without a line")
    }

    /// The records of a block, which begins where a record does.
    pub fn records<'a>(&'a self, bytes: &'a [u8], line_bytes_max: usize) -> Records<'a> {
        let lines = Lines { bytes, at: 0 };
        Records { rule: self, lines, line_bytes_max, open: Open::default(), begun: None }
    }

    /// Up to where the records in a buffer are whole that begins where a record does: 0 if only one is begun. Of the
    /// whole lines those before `new` are known to be of the record that is `open`, which goes on behind the edge.
    pub fn edge(&self, buffer: &[u8], new: Range<usize>, line_bytes_max: usize, open: &mut Open) -> usize {
        let alone = self.last_alone(buffer, new.clone(), line_bytes_max);
        if alone.is_some() {
            *open = Open::default();
        }
        let from = alone.unwrap_or(new.start);
        let mut edge = alone.unwrap_or(0);
        for line in (Lines { bytes: &buffer[from..new.end], at: 0 }) {
            let text = &buffer[from + line.start..from + line.end];
            let edges = self.step(open, text, line_bytes_max, || true);
            if edges.after {
                edge = from + line.next;
            } else if edges.before {
                edge = from + line.from;
            }
        }
        edge
    }

    /// The edge by the last of these lines that does not belong to its neighbour.
    fn last_alone(&self, buffer: &[u8], lines: Range<usize>, line_bytes_max: usize) -> Option<usize> {
        let mut end = lines.end;
        while end > lines.start {
            let rest = &buffer[lines.start..end - 1];
            let from = memchr::memrchr(b'\n', rest).map_or(lines.start, |at| lines.start + at + 1);
            let line = &buffer[line_of(buffer, from, end - 1)];
            if line.len() > line_bytes_max {
                return Some(end);
            }
            if !self.is_passed_over(line) && !self.belongs(line) {
                return Some(if self.what == Neighbour::Previous { from } else { end });
            }
            end = from;
        }
        None
    }

    /// Adds a line to what is open. `belongs` says whether it does to its neighbour.
    fn step(&self, open: &mut Open, line: &[u8], line_bytes_max: usize, belongs: impl FnOnce() -> bool) -> Edges {
        if line.len() > line_bytes_max {
            // it is a record of its own, and no event
            *open = Open::default();
            return Edges { before: true, after: true };
        }
        if self.is_passed_over(line) {
            // with its end, CR LF at most
            open.blank += 2;
            let ends = open.lines == 0 || open.blank >= self.bytes_max;
            if ends {
                *open = Open::default();
            }
            return Edges { before: ends, after: ends };
        }
        let (mut before, mut after) = (false, false);
        if self.what == Neighbour::Previous {
            before = open.lines > 0 && (open.beyond(self) != Beyond::default() || !belongs());
            if before {
                *open = Open::default();
            }
            open.add(line);
        } else {
            open.add(line);
            after = open.beyond(self) != Beyond::default() || !belongs();
            if after {
                *open = Open::default();
            }
        }
        Edges { before, after }
    }

    fn is_passed_over(&self, line: &[u8]) -> bool {
        line.is_empty() && !self.keeps_blank
    }

    /// Whether a line belongs to its neighbour. A pattern that is given up does not match.
    fn belongs(&self, line: &[u8]) -> bool {
        self.pattern.is_match(&self.charset.text(line)).unwrap_or(false) != self.negate
    }

    /// The lines of a record that are kept, without their ends.
    fn kept<'a>(&self, record: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let ends = memchr::memchr_iter(b'\n', record).chain([record.len()]);
        let mut from = 0;
        let lines = ends.map(move |end| {
            // the record's own ends are cut off already
            let mut line = &record[from..end];
            if end < record.len() {
                line = line.strip_suffix(b"\r").unwrap_or(line);
            }
            if from > 0 {
                line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
            }
            from = end + 1;
            line
        });
        lines.filter(|line| !self.is_passed_over(line))
    }

    /// What a record is.
    pub fn measure(&self, record: &[u8]) -> Measure {
        let mut open = Open::default();
        self.kept(record).for_each(|line| open.add(line));
        let as_it_stands = open.bytes + open.lines == record.len() as u64 + 1;
        Measure { lines: open.lines, beyond: open.beyond(self), as_it_stands }
    }

    /// Writes a record's lines with a line feed between them.
    pub fn join(&self, record: &[u8], out: &mut Vec<u8>) {
        for (number, line) in self.kept(record).enumerate() {
            if number > 0 {
                out.push(b'\n');
            }
            out.extend_from_slice(line);
        }
    }
}

impl Open {
    fn add(&mut self, line: &[u8]) {
        self.lines += 1;
        self.bytes += line.len() as u64;
    }

    fn beyond(&self, rule: &Rule) -> Beyond {
        Beyond { lines: self.lines > rule.lines_max, bytes: self.bytes >= rule.bytes_max }
    }
}

/// A line, or the lines of a record: where it begins, what it is without its ends, and where the next one begins.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    from: usize,
    start: usize,
    end: usize,
    next: usize,
}

impl Line {
    /// Where the next one begins.
    pub fn next(&self) -> usize {
        self.next
    }

    /// As a record, of a block that stands at `offset`.
    pub fn record(&self, offset: u64) -> Record {
        Record { span: Span::new(self.start, self.end - self.start), offset: offset + self.from as u64 }
    }
}

struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let from = self.at;
        let rest = self.bytes.get(from..).filter(|rest| !rest.is_empty())?;
        let found = memchr::memchr(b'\n', rest);
        let end = found.map_or(self.bytes.len(), |at| from + at);
        self.at = end + usize::from(found.is_some());
        let Range { start, end } = line_of(self.bytes, from, end);
        Some(Line { from, start, end, next: self.at })
    }
}

/// The records of a block, in order.
pub struct Records<'a> {
    rule: &'a Rule,
    lines: Lines<'a>,
    line_bytes_max: usize,
    open: Open,
    /// The record that was begun by a line behind the last one, and whether it is whole.
    begun: Option<(Line, bool)>,
}

impl Iterator for Records<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let mut record = match self.begun.take() {
            Some((line, true)) => return Some(line),
            Some((line, false)) => Some(line),
            None => None,
        };
        let Records { rule, lines, line_bytes_max, open, begun } = self;
        let bytes = lines.bytes;
        for line in lines.by_ref() {
            let text = &bytes[line.start..line.end];
            let edges = rule.step(open, text, *line_bytes_max, || rule.belongs(text));
            let line = Some(line).filter(|_| !rule.is_passed_over(text));
            if edges.before && record.is_some() {
                *begun = line.map(|line| (line, edges.after));
                return record;
            }
            record = match (record, line) {
                (Some(record), Some(line)) => Some(Line { end: line.end, next: line.next, ..record }),
                (record, line) => record.or(line),
            };
            if edges.after && record.is_some() {
                return record;
            }
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pattern: &str, what: Neighbour) -> Rule {
        let pattern = OfLine::parse(pattern).unwrap();
        let (charset, flush_after) = Default::default();
        Rule { pattern, negate: false, what, lines_max: 4, bytes_max: 30, keeps_blank: false, charset, flush_after }
    }

    /// `want`: the records, and up to where they are whole if more may come.
    fn check(rule: &Rule, text: &str, want: &[&str], edge: usize) {
        let records: Vec<&str> = rule.records(text.as_bytes(), 20).map(|line| &text[line.start..line.end]).collect();
        assert_eq!(records, want, "{text:?}");
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        assert_eq!(rule.edge(text.as_bytes(), 0..whole, 20, &mut Open::default()), edge, "{text:?}");
    }

    #[test]
    fn records_and_edges() {
        let previous = rule(r"^\s", Neighbour::Previous);
        check(&previous, "", &[], 0);
        check(&previous, "a", &["a"], 0);
        check(&previous, "a\n b\n", &["a\n b"], 0);
        check(&previous, "a\n b\nc\n d", &["a\n b", "c\n d"], 5);
        check(&previous, " a\n b\nc", &[" a\n b", "c"], 0);
        check(&previous, "\n\na\n\n b\n\nc\n", &["a\n\n b", "c"], 9);
        check(&previous, "\n\n", &[], 2);
        check(&previous, "\u{feff}a\r\n b\r\nc\n", &["a\r\n b", "c"], 10);
        // five lines are beyond four
        check(&previous, "1\n 2\n 3\n 4\n 5\n 6\n", &["1\n 2\n 3\n 4\n 5", " 6"], 14);
        check(&previous, "1\n 2\n 3\n 4\n 5\n", &["1\n 2\n 3\n 4\n 5"], 0);
        let wide = " 23456789012345";
        check(&previous, &format!("{wide}\n{wide}\n 3\n"), &[&format!("{wide}\n{wide}"), " 3"], 32);
        let long = "x".repeat(21);
        check(&previous, &format!("a\n{long}\n b\n"), &["a", &long, " b"], 24);
        let blank = "\n".repeat(15);
        check(&previous, &format!("a\n{blank} b\n"), &["a", " b"], 17);
        let next = rule(r"\\$", Neighbour::Next);
        check(&next, "a\\\nb\nc\\\n", &["a\\\nb", "c\\"], 5);
        check(&next, "a\\\n\nb\n\nc\n", &["a\\\n\nb", "c"], 9);
        check(&next, "1\\\n2\\\n3\\\n4\\\n5\\\n6\\\n", &["1\\\n2\\\n3\\\n4\\\n5\\", "6\\"], 15);
        let keeping = Rule { keeps_blank: true, ..rule(r"^\s", Neighbour::Previous) };
        check(&keeping, "a\n\n b\n", &["a", "\n b"], 2);
    }

    #[test]
    fn lines_of_a_record() {
        let rule = rule(r"^\s", Neighbour::Previous);
        for (record, want) in [
            ("a", None),
            ("a\n b", None),
            ("a\r\n b\r", Some("a\n b\r")),
            ("a\n\n b", Some("a\n b")),
            ("a\n\u{feff} b", Some("a\n b")),
        ] {
            let mut out = Vec::new();
            rule.join(record.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want.unwrap_or(record));
            assert_eq!(rule.measure(record.as_bytes()).as_it_stands, want.is_none(), "{record:?}");
        }
        for (record, lines, beyond) in [
            ("a\n\n b", 2, Beyond::default()),
            ("1\n2\n3\n4\n5", 5, Beyond { lines: true, bytes: false }),
            ("123456789012345678901234567890", 1, Beyond { lines: false, bytes: true }),
        ] {
            let got = rule.measure(record.as_bytes());
            assert_eq!((got.lines, got.beyond), (lines, beyond), "{record:?}");
        }
    }
}
