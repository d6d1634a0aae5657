//! Dead letters as they stand in their file: read one by one, and written back.

use std::fs::File as RealFile;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::batch::SourceNumber;
use crate::disk::{Disk, File, Real, Stream, no_wait, private_file, regular};
use crate::json;
use crate::time::Time;

/// What is needed of a letter to count it, to choose it and to send it again.
#[derive(Debug)]
pub struct Stored {
    pub time: String,
    pub reason: String,
    pub index: Option<String>,
    pub attempts: u32,
    pub source: String,
    pub offset: u64,
    pub input: usize,
    pub head: Arc<[u8]>,
    pub inode: Option<(u64, u64)>,
    pub day: Option<i64>,
    pub number: Option<SourceNumber>,
    /// The record as it was read, or the event where that is not kept.
    pub record: Vec<u8>,
    /// The record is only the beginning of its line.
    pub is_cut: bool,
}

impl Stored {
    /// None if the line is no letter.
    pub fn read(line: &[u8]) -> Option<Stored> {
        let letter: Value = serde_json::from_slice(line).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_string);
        let source = &letter["source"];
        Some(Stored {
            time: text(&letter["time"])?,
            reason: text(&letter["reason"])?,
            index: text(&letter["index"]),
            attempts: letter["attempts"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            source: text(&source["name"]).unwrap_or_default(),
            offset: source["offset"].as_u64().unwrap_or(0),
            input: source["input"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0),
            head: BASE64.decode(source["head"].as_str().unwrap_or_default()).ok()?.into(),
            inode: source["device"].as_u64().zip(source["inode"].as_u64()),
            day: source["day"].as_i64(),
            number: match (source["file"].as_u64(), source["spool"].as_u64()) {
                (Some(number), _) => Some(SourceNumber::File(number)),
                (None, number) => number.map(SourceNumber::Spool),
            },
            record: record(line, &letter)?,
            is_cut: letter["cut"] == true,
        })
    }
}

fn record(line: &[u8], letter: &Value) -> Option<Vec<u8>> {
    if let Some(text) = letter["raw_base64"].as_str() {
        return BASE64.decode(text).ok();
    }
    if let Some(text) = letter["raw"].as_str().or(letter["event"].as_str()) {
        return Some(text.as_bytes().to_vec());
    }
    // as it is written: ids may be made of these bytes
    let (_, event) = json::members(line).find(|(key, _)| *key == b"event")?;
    (event.first() == Some(&b'{')).then(|| event.to_vec())
}

/// The lines of a file of letters, as it was when it was opened.
pub struct Lines<D: Disk = Real> {
    file: io::Take<BufReader<Stream<D::File>>>,
}

impl Lines {
    pub fn open(path: &Path) -> io::Result<Lines> {
        Lines::open_on(&Real, path)
    }
}

impl<D: Disk> Lines<D> {
    pub fn open_on(disk: &D, path: &Path) -> io::Result<Lines<D>> {
        let file = disk.open(path)?;
        // nothing half of a letter that is being written
        file.lock()?;
        let bytes = file.bytes()?;
        file.unlock()?;
        Ok(Lines { file: io::Read::take(BufReader::new(Stream::new(file)), bytes) })
    }

    /// Makes last what was read.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.get_mut().get_mut().file.sync()
    }
}

impl<D: Disk> Iterator for Lines<D> {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        match self.file.read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => Some(Ok(line)),
            Err(error) => Some(Err(error)),
        }
    }
}

/// How many letters of a file are older than allowed, and the time of the oldest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Old {
    pub count: u64,
    pub first: String,
}

/// The letters that were written before a time; none if there is none, or no file.
pub fn old(path: &Path, before: Time) -> io::Result<Option<Old>> {
    let lines = match Lines::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        lines => lines?,
    };
    let mut old: Option<Old> = None;
    for line in lines {
        let Some(time) = time(&line?).filter(|time| Time::rfc3339(time.as_bytes()).is_some_and(|t| t < before)) else {
            continue;
        };
        match &mut old {
            Some(old) => {
                old.count += 1;
                old.first = time.min(std::mem::take(&mut old.first));
            }
            None => old = Some(Old { count: 1, first: time }),
        }
    }
    Ok(old)
}

/// When a letter was written: as a rule what its line begins with.
fn time(line: &[u8]) -> Option<String> {
    let begin = line.strip_prefix(b"{\"time\":\"").and_then(|rest| rest.split(|byte| *byte == b'"').next());
    match begin.and_then(|time| std::str::from_utf8(time).ok()) {
        Some(time) => Some(time.to_string()),
        None => Stored::read(line).map(|letter| letter.time),
    }
}

/// Held by who takes letters out of a file, so that two do not send the same ones.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "the lock is the file's, for as long as it is open")] RealFile);

impl Claim {
    /// None if another process has it.
    pub fn take(path: &Path) -> io::Result<Option<Claim>> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let file = regular(private_file(no_wait().read(true).write(true), &PathBuf::from(name))?)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Claim(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::Line;
    use crate::ack::letter::tests::sample;

    #[test]
    fn the_record_comes_back_as_it_was_read() {
        for (event, raw) in [
            (None, b"no \"json\"".as_slice()),
            (None, b"caf\xe9"),
            (Some(b"{\"a\": 1.0}".as_slice()), b"{\"a\": 1.0}"),
            (Some(b"{\"a\":1}"), b"{\"a\": 1.0}"),
            (Some(b"{\"a\":1}"), b"\xff"),
        ] {
            let mut letter = sample();
            (letter.event, letter.raw) = (event.map(<[u8]>::to_vec), raw.to_vec());
            (letter.input, letter.head, letter.inode) = (1, Some(b"head".as_slice().into()), Some((3, 5)));
            letter.day = Some(-1);
            letter.line = Some(Line { number: SourceNumber::Spool(5), print: [0xab; 16] });
            let mut line = Vec::new();
            letter.write("2026-01-01T00:00:00.000Z", &mut line);
            let got = Stored::read(&line).unwrap();
            assert_eq!(got.record, raw);
            assert_eq!((got.input, &*got.head, got.offset, got.attempts), (1, b"head".as_slice(), 7, 2));
            assert_eq!((got.inode, got.day), (Some((3, 5)), Some(-1)));
            assert_eq!(got.number, Some(SourceNumber::Spool(5)));
        }
        assert!(Stored::read(b"{\"half\":").is_none() && Stored::read(b"{}").is_none());
    }

    #[test]
    fn the_old_ones_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dead.ndjson");
        let before = Time::rfc3339(b"2026-03-01T00:00:00Z").unwrap();
        assert_eq!(old(&path, before).unwrap(), None);
        let mut text = Vec::new();
        for day in ["2026-02-27", "2026-02-26", "2026-03-01", "2027-01-01"] {
            sample().write(&format!("{day}T00:00:00.000Z"), &mut text);
        }
        std::fs::write(&path, text).unwrap();
        let first = "2026-02-26T00:00:00.000Z".to_string();
        assert_eq!(old(&path, before).unwrap(), Some(Old { count: 2, first }));
        // by hand, in another order
        std::fs::write(&path, "no letter\n{\"reason\":\"rejected\",\"event\":{},\"time\":\"2020-01-01T00:00:00Z\"}\n")
            .unwrap();
        assert_eq!(old(&path, before).unwrap().unwrap().count, 1);
    }

    #[test]
    fn one_has_the_claim() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dead.ndjson");
        let first = Claim::take(&path).unwrap();
        assert!(first.is_some() && Claim::take(&path).unwrap().is_none());
        drop(first);
        assert!(Claim::take(&path).unwrap().is_some());
    }
}
