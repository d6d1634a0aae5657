//! Dead letters. Any bytes as their file: every whole line stays, a letter can be added, and what is no letter is
//! told from one. Any record as a letter: it is one line, and comes back as it was.

use std::collections::HashSet;
use std::path::Path;

use onceline::ack::letter_file::{Letters, rewrite};
use onceline::ack::stored::{Lines, Stored};
use onceline::ack::told::Told;
use onceline::ack::{Letter, LetterFile, Reason};
use onceline::disk::Real;
use onceline::json::Scanner;
use serde_json::Value;

use super::first_line;

pub fn check(bytes: &[u8]) {
    check_file(bytes);
    check_letter(bytes);
}

fn letter(detail: &str, raw: &[u8]) -> Letter {
    let reason = Reason::ALL[detail.len() % Reason::ALL.len()];
    Letter {
        raw: raw.to_vec(),
        source: "stdin".to_string(),
        offset: raw.len() as u64,
        ..Letter::new(reason, detail.to_string())
    }
}

fn check_file(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dead-letters.ndjson");
    std::fs::write(&path, bytes).expect("a file");
    let lines = read(&path);
    assert_eq!(lines.concat(), bytes, "the lines are the file");
    lines.iter().for_each(|line| check_line(line));
    Told::load(&Real, &path, &[], &HashSet::new()).expect("a file that can be read");
    assert!(rewrite(&path, &mut |line, out| out.extend_from_slice(line)).expect("a file that can be written"));
    assert_eq!(std::fs::read(&path).expect("a file"), bytes, "written anew as it was");
    LetterFile::new(path.clone(), u64::MAX).append(&[&letter("added", b"last")]).expect("a letter can be added");
    let mut after = read(&path);
    let added = after.pop().expect("the letter");
    assert_eq!(Stored::read(&added).expect("a letter").record, b"last");
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let (kept, torn) = bytes.split_at(whole);
    let mut wanted = kept.to_vec();
    if serde_json::from_slice::<Value>(torn).is_ok() {
        wanted.extend_from_slice(torn);
        wanted.push(b'\n');
    }
    assert_eq!(after.concat(), wanted, "a whole line is gone");
}

fn read(path: &Path) -> Vec<Vec<u8>> {
    Lines::open(path).expect("a file").collect::<Result<_, _>>().expect("lines")
}

/// What has the parts of a letter is one.
fn check_line(line: &[u8]) {
    let stored = Stored::read(line);
    let text: Value = match serde_json::from_slice(line) {
        Ok(text) => text,
        Err(_) => return assert!(stored.is_none(), "a letter that is no JSON"),
    };
    let has_all = text["time"].is_string()
        && text["reason"].is_string()
        && text["event"].is_string()
        && ["raw_base64", "raw"].iter().all(|key| text.get(key).is_none())
        && text["source"].get("head").is_none();
    assert!(!has_all || stored.is_some_and(|stored| text["event"].as_str().map(str::as_bytes) == Some(&stored.record)));
}

/// The first lines are its detail, its source and its index; the rest is the record.
fn check_letter(bytes: &[u8]) {
    let (detail, rest) = first_line(bytes);
    let (source, rest) = first_line(rest);
    let (index, raw) = first_line(rest);
    let [detail, source, index] = [detail, source, index].map(String::from_utf8_lossy);
    let scanned = Scanner::default().scan(raw, false, &mut Vec::new());
    let is_event = scanned.is_ok_and(|scanned| scanned.first == b'{' && !scanned.odd) && !raw.contains(&b'\n');
    let mut letter = letter(&detail, raw);
    (letter.source, letter.index) = (source.to_string(), Some(index.to_string()));
    (letter.is_cut, letter.attempts) = (raw.len() % 2 == 1, bytes.len() as u32);
    letter.head = Some(bytes[..bytes.len().min(40)].into());
    letter.inode = Some((u64::MAX, bytes.len() as u64));
    for event in [None, Some(br#"{"other": "event"}"#.to_vec()), is_event.then(|| raw.trim_ascii().to_vec())] {
        letter.event = event;
        let mut line = Vec::new();
        letter.write("2026-03-01T00:00:00.000Z", &mut line);
        assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1), "a letter is one line");
        let stored = Stored::read(&line).expect("a letter");
        let record = match &letter.event {
            Some(event) if raw.is_empty() => event,
            _ => raw,
        };
        assert_eq!(stored.record, record, "the record");
        assert_eq!((&*stored.source, stored.index.as_deref()), (&*source, Some(&*index)));
        assert_eq!((stored.offset, stored.attempts, stored.is_cut), (letter.offset, letter.attempts, letter.is_cut));
        assert_eq!((Some(stored.head), stored.inode), (letter.head.clone(), letter.inode));
    }
}
