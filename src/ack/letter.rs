//! Dead letters: what could not be delivered, each with its reason, a JSON line each.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::batch::SourceNumber;
use crate::json;

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
    /// The record as it was read; empty where it is not known.
    pub raw: Vec<u8>,
    /// The record is only the beginning of a line that was too long.
    pub is_cut: bool,
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
    /// Which of the pipeline's inputs it came by.
    pub input: usize,
    /// The first bytes of the source, where ids are made of them.
    pub head: Option<Arc<[u8]>>,
    /// Device and inode of the file, where events tell them.
    pub inode: Option<(u64, u64)>,
    /// The day on which the source was written, since 1970, where times depend on it.
    pub day: Option<i64>,
    /// Which block it was of those that were sent again; not written.
    pub again: Option<usize>,
    /// It is of one of several events of its record; not written.
    pub is_part: bool,
    /// What it is known by when its line is read again.
    pub line: Option<Line>,
}

/// What tells the line of a letter, or the event of a line that holds several, from every other that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub number: SourceNumber,
    /// A digest of where it stands and of its bytes.
    pub print: Print,
}

/// The first 16 bytes of a SHA-256.
pub type Print = [u8; 16];

impl Letter {
    /// A letter of which nothing else is known, nor where it comes from.
    pub fn new(reason: Reason, detail: String) -> Letter {
        Letter {
            reason,
            detail,
            event: None,
            raw: Vec::new(),
            is_cut: false,
            id: None,
            index: None,
            action: None,
            status: None,
            error: None,
            attempts: 0,
            source: String::new(),
            offset: 0,
            input: 0,
            head: None,
            inode: None,
            day: None,
            again: None,
            is_part: false,
            line: None,
        }
    }

    /// Writes the line that it is in the file.
    pub fn write(&self, time: &str, out: &mut Vec<u8>) {
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
        self.write_place(out);
        self.write_raw(out);
        out.extend_from_slice(b"}\n");
    }

    fn write_place(&self, out: &mut Vec<u8>) {
        text("name", &self.source, out);
        out.extend_from_slice(format!("\"offset\":{}", self.offset).as_bytes());
        if self.input > 0 {
            out.extend_from_slice(format!(",\"input\":{}", self.input).as_bytes());
        }
        if let Some(head) = &self.head {
            out.extend_from_slice(b",\"head\":");
            json::write_string(BASE64.encode(head).as_bytes(), out);
        }
        if let Some((device, inode)) = self.inode {
            out.extend_from_slice(format!(",\"device\":{device},\"inode\":{inode}").as_bytes());
        }
        if let Some(day) = self.day {
            out.extend_from_slice(format!(",\"day\":{day}").as_bytes());
        }
        if let Some(Line { number, print }) = self.line {
            let (name, number) = number.named();
            out.extend_from_slice(format!(",\"{name}\":{number},\"print\":\"{}\"", hex::encode(print)).as_bytes());
        }
        out.push(b'}');
    }

    /// The record, unless it is what stands as the event.
    fn write_raw(&self, out: &mut Vec<u8>) {
        match (std::str::from_utf8(&self.raw), &self.event) {
            (Err(_), _) => {
                out.extend_from_slice(b",\"raw_base64\":");
                json::write_string(BASE64.encode(&self.raw).as_bytes(), out);
            }
            (Ok(raw), Some(event)) if !raw.is_empty() && raw.as_bytes() != event => {
                out.extend_from_slice(b",\"raw\":");
                json::write_string(raw.as_bytes(), out);
            }
            _ => {}
        }
        if self.is_cut {
            out.extend_from_slice(b",\"cut\":true");
        }
    }
}

fn text(name: &str, value: &str, out: &mut Vec<u8>) {
    json::write_string(name.as_bytes(), out);
    out.push(b':');
    json::write_string(value.as_bytes(), out);
    out.push(b',');
}

fn optional(name: &str, value: Option<&str>, out: &mut Vec<u8>) {
    match value {
        Some(value) => text(name, value, out),
        None => out.extend_from_slice(format!("\"{name}\":null,").as_bytes()),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn sample() -> Letter {
        Letter {
            raw: b"caf\xe9\n".to_vec(),
            index: Some("logs".to_string()),
            action: Some("index"),
            status: Some(400),
            error: Some(br#"{"type":"x"}"#.to_vec()),
            attempts: 2,
            source: "stdin".to_string(),
            offset: 7,
            ..Letter::new(Reason::BadJson, "a \"quoted\" detail".to_string())
        }
    }

    #[test]
    fn all_reasons_are_listed() {
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(place, reason as usize);
        }
        assert_eq!(Reason::ALL.last(), Some(&Reason::Rejected), "the last of the enum");
    }

    #[test]
    fn a_letter_is_one_json_line() {
        let mut letter = sample();
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
        let got = parse(&letter);
        assert_eq!((&got["event"]["a"], &got["raw"]), (&1.into(), &"not json".into()));
        letter.raw = br#"{"a":1}"#.to_vec();
        assert!(parse(&letter).get("raw").is_none(), "the event is the record");
        (letter.input, letter.head, letter.is_cut) = (2, Some(b"head".as_slice().into()), true);
        let got = parse(&letter);
        assert_eq!(got["source"], serde_json::json!({"name": "stdin", "offset": 7, "input": 2, "head": "aGVhZA=="}));
        assert_eq!(got["cut"], true);
        (letter.input, letter.head) = (0, None);
        letter.line = Some(Line { number: SourceNumber::File(3), print: [0xab; 16] });
        let (source, print) = (parse(&letter)["source"].clone(), "ab".repeat(16));
        assert_eq!(source, serde_json::json!({"name": "stdin", "offset": 7, "file": 3, "print": print}));
    }
}
