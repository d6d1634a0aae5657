//! Dead letters: what could not be delivered, each with its reason, a JSON line each.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, File, Real};
use crate::json;
use crate::time::Time;

/// Why an event is a dead letter. The names are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    NoTimestamp,
    TooOld,
    TooNew,
    TimeOutOfRange,
    BadJson,
    IdMissing,
    IdTooLong,
    BadIndexName,
    TooLarge,
    Rejected,
}

impl Reason {
    pub const ALL: [Reason; 10] = [
        Reason::NoTimestamp,
        Reason::TooOld,
        Reason::TooNew,
        Reason::TimeOutOfRange,
        Reason::BadJson,
        Reason::IdMissing,
        Reason::IdTooLong,
        Reason::BadIndexName,
        Reason::TooLarge,
        Reason::Rejected,
    ];

    pub fn as_str(&self) -> &'static str {
        match self {
            Reason::NoTimestamp => "no-timestamp",
            Reason::TooOld => "too-old",
            Reason::TooNew => "too-new",
            Reason::TimeOutOfRange => "time-out-of-range",
            Reason::BadJson => "bad-json",
            Reason::IdMissing => "id-missing",
            Reason::IdTooLong => "id-too-long",
            Reason::BadIndexName => "bad-index-name",
            Reason::TooLarge => "too-large",
            Reason::Rejected => "rejected",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One event that has no other place to go.
#[derive(Clone, Debug)]
pub struct Letter {
    pub reason: Reason,
    pub detail: String,
    /// The event as it would have been stored, as JSON; none if there is no event (the record was no JSON).
    pub event: Option<Vec<u8>>,
    /// The record, where there is no event.
    pub raw: Vec<u8>,
    pub id: Option<String>,
    pub index: Option<String>,
    pub action: Option<&'static str>,
    pub status: Option<u16>,
    /// The engine's answer about this item, as JSON.
    pub error: Option<Vec<u8>>,
    pub attempts: u32,
    /// What the source is called, and where in it the record begins.
    pub source: String,
    pub offset: u64,
}

impl Letter {
    fn write(&self, time: &str, out: &mut Vec<u8>) {
        let text = |name: &str, value: &str, out: &mut Vec<u8>| {
            json::write_string(name.as_bytes(), out);
            out.push(b':');
            json::write_string(value.as_bytes(), out);
            out.push(b',');
        };
        let optional = |name: &str, value: Option<&str>, out: &mut Vec<u8>| match value {
            Some(value) => text(name, value, out),
            None => out.extend_from_slice(format!("\"{name}\":null,").as_bytes()),
        };
        out.push(b'{');
        text("time", time, out);
        text("reason", self.reason.as_str(), out);
        text("detail", &self.detail, out);
        out.extend_from_slice(b"\"event\":");
        match (&self.event, std::str::from_utf8(&self.raw)) {
            (Some(event), _) => out.extend_from_slice(event),
            (None, Ok(raw)) => json::write_string(raw.as_bytes(), out),
            (None, Err(_)) => out.extend_from_slice(b"null"),
        }
        out.push(b',');
        optional("id", self.id.as_deref(), out);
        optional("index", self.index.as_deref(), out);
        optional("action", self.action, out);
        match self.status {
            Some(status) => out.extend_from_slice(format!("\"status\":{status},").as_bytes()),
            None => out.extend_from_slice(b"\"status\":null,"),
        }
        out.extend_from_slice(b"\"error\":");
        out.extend_from_slice(self.error.as_deref().unwrap_or(b"null"));
        out.extend_from_slice(format!(",\"attempts\":{},\"source\":{{", self.attempts).as_bytes());
        text("name", &self.source, out);
        out.extend_from_slice(format!("\"offset\":{}}}", self.offset).as_bytes());
        if std::str::from_utf8(&self.raw).is_err() {
            use base64::Engine;
            let raw = base64::engine::general_purpose::STANDARD.encode(&self.raw);
            out.extend_from_slice(b",\"raw_base64\":");
            json::write_string(raw.as_bytes(), out);
        }
        out.extend_from_slice(b"}\n");
    }
}

/// The file of dead letters: made at the first letter, readable by its owner only, and on the disk before the
/// events in it count as settled.
#[derive(Debug)]
pub struct LetterFile<D: Disk = Real> {
    disk: D,
    path: PathBuf,
    file: Option<D::File>,
}

impl<D: Disk> LetterFile<D> {
    pub fn new(disk: D, path: PathBuf) -> LetterFile<D> {
        LetterFile { disk, path, file: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn append(&mut self, letters: &[&Letter], now: Time) -> std::io::Result<()> {
        let time = now.iso();
        let mut out = Vec::new();
        for letter in letters {
            letter.write(&time, &mut out);
        }
        if self.file.is_none() {
            self.file = Some(self.open()?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let whole = file.bytes()?;
        let written = file.write_all(&out).and_then(|()| file.sync());
        if written.is_err() {
            // no half line may stay before what is written later
            let _ = file.set_len(whole);
        }
        written
    }

    fn open(&self) -> std::io::Result<D::File> {
        let mut file = self.disk.append(&self.path)?;
        mend(&mut file)?;
        if let Some(folder) = self.path.parent() {
            // a new file is there after a power loss only if its name is
            self.disk.sync_folder(folder)?;
        }
        Ok(file)
    }
}

/// Takes half a letter away from the end, which a crash has left there: it was never counted, so its event is read
/// again. A whole one that only wants its line feed (edited by hand) gets it.
fn mend(file: &mut impl File) -> std::io::Result<()> {
    let bytes = file.bytes()?;
    let mut looked = TAIL_BYTES;
    loop {
        let tail = file.tail(looked)?;
        let end = memchr::memrchr(b'\n', &tail).map(|at| at + 1);
        if end.is_none() && (tail.len() as u64) < bytes {
            looked = looked.saturating_mul(8);
            continue;
        }
        let rest = &tail[end.unwrap_or(0)..];
        return match serde_json::from_slice::<serde_json::Value>(rest) {
            _ if rest.is_empty() => Ok(()),
            Ok(_) => file.write_all(b"\n"),
            Err(_) => file.set_len(bytes - rest.len() as u64),
        };
    }
}

/// As much as is looked at first to find the end of the last whole letter.
const TAIL_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_letter_is_taken_away_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letters");
        let long = format!("{{\"a\":\"{}", "b".repeat(TAIL_BYTES as usize * 9));
        let check = |before: &str, want: &str| {
            std::fs::write(&path, before).unwrap();
            let mut file = LetterFile::new(Real, path.clone());
            let letter = Letter { detail: "later".to_string(), ..letter() };
            file.append(&[&letter], Time::EPOCH).unwrap();
            let got = std::fs::read_to_string(&path).unwrap();
            let rest = got.strip_prefix(want).unwrap_or_else(|| panic!("{}", &got[..got.len().min(200)]));
            assert!(rest.contains("later") && rest.lines().count() == 1, "{rest}");
        };
        check("", "");
        check("{\"a\":1}\n", "{\"a\":1}\n");
        check("{\"a\":1}\n{\"a\":", "{\"a\":1}\n");
        check("{\"a\":1}\n{\"a\":2}", "{\"a\":1}\n{\"a\":2}\n");
        check("{\"a\":", "");
        check(&long, "");
        check(&format!("{{}}\n{long}"), "{}\n");
    }

    #[test]
    fn all_reasons_are_listed() {
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(place, reason as usize);
        }
        assert_eq!(Reason::ALL.last(), Some(&Reason::Rejected), "the last of the enum");
    }

    fn letter() -> Letter {
        Letter {
            reason: Reason::BadJson,
            detail: "a \"quoted\" detail".to_string(),
            event: None,
            raw: b"caf\xe9\n".to_vec(),
            id: None,
            index: Some("logs".to_string()),
            action: Some("index"),
            status: Some(400),
            error: Some(br#"{"type":"x"}"#.to_vec()),
            attempts: 2,
            source: "stdin".to_string(),
            offset: 7,
        }
    }

    #[test]
    fn a_letter_is_one_json_line() {
        let mut letter = letter();
        let parse = |letter: &Letter| {
            let mut out = Vec::new();
            letter.write("2026-01-01T00:00:00.000Z", &mut out);
            assert_eq!(out.iter().filter(|b| **b == b'\n').count(), 1);
            serde_json::from_slice::<serde_json::Value>(&out).unwrap()
        };
        let got = parse(&letter);
        assert_eq!(got["raw_base64"], "Y2Fm6Qo=");
        assert_eq!(got["event"], serde_json::Value::Null);
        assert_eq!(got["source"]["offset"], 7);
        letter.raw = b"not json".to_vec();
        let got = parse(&letter);
        assert_eq!(got["event"], "not json");
        assert!(got.get("raw_base64").is_none());
        letter.event = Some(br#"{"a":1}"#.to_vec());
        assert_eq!(parse(&letter)["event"]["a"], 1);
    }
}
