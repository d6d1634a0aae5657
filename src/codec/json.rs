//! `codec = "json"`: every line is one JSON object, or an array of objects, which are an event each.
//!
//! ```toml
//! [[input]]
//! type = "stdin"
//! codec = { type = "json", on_error = "tag" }
//! ```
//!
//! A blank line is dropped. Text that is not one JSON object is a dead letter `bad-json`, or with
//! `on_error = "tag"` an event with the text in `message` and the tag `_jsonparsefailure`. NUL bytes before the
//! value (a hole that a truncated log left) are passed over.

use std::cell::RefCell;

use sha2::{Digest, Sha256};

use super::{Codec, Record};
use crate::ack::Reason;
use crate::batch::{Batch, Fate, New, Part, Span};
use crate::field::FieldRef;
use crate::json::{self, Bad, Entry, Scanner};
use crate::stamp::dead;

/// An array of more is set aside: what small events weigh, each with its id and its place, is many times their text.
const ARRAY_EVENTS_MAX: usize = 50_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    DeadLetter,
    Tag,
}

pub struct Json {
    on_error: OnError,
    fields_max: usize,
    message: FieldRef,
}

#[derive(Default)]
struct Scratch {
    scanner: Scanner,
    entries: Vec<Entry>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Json {
    pub fn new(on_error: OnError, fields_max: usize) -> Json {
        Json { on_error, fields_max, message: FieldRef::top("message") }
    }

    fn record(&self, batch: &mut Batch, record: &Record, utf8: bool, scratch: &mut Scratch) {
        let bytes = batch.bytes(record.span);
        let hole = bytes.iter().take_while(|b| **b == 0).count();
        let text = &bytes[hole..];
        if text.iter().all(|b| matches!(b, b' ' | b'\t' | b'\r')) {
            return batch.push(record.span, record.offset).end(Fate::Dropped);
        }
        scratch.entries.clear();
        let scanned = match scratch.scanner.scan(text, utf8, &mut scratch.entries) {
            Ok(scanned) => scanned,
            Err(bad) => return self.bad(batch, record, bad),
        };
        let base = record.span.start + hole as u32;
        let whole = Span::new(base as usize + scanned.start, scanned.end - scanned.start);
        match (scanned.first, scanned.odd) {
            (b'{', _) if scratch.scanner.fields() > self.fields_max => self.too_many(batch, record),
            (b'{', false) => batch.push_json(record.span, record.offset, whole, base, &scratch.entries),
            (b'{', true) => {
                let repaired = json::repair(batch.bytes(whole));
                self.push_object(batch, record, &repaired, scratch);
            }
            (b'[', odd) => {
                let text = batch.bytes(whole);
                let array = if odd { json::repair(text) } else { text.to_vec() };
                self.array(batch, record, &array, scratch);
            }
            _ => self.bad(batch, record, Bad { at: 0, what: "an object is wanted" }),
        }
    }

    fn array(&self, batch: &mut Batch, record: &Record, array: &[u8], scratch: &mut Scratch) {
        if json::members(array).any(|(_, element)| element.first() != Some(&b'{')) {
            return self.bad(batch, record, Bad { at: 0, what: "an array of objects is wanted" });
        }
        if json::members(array).nth(ARRAY_EVENTS_MAX).is_some() {
            let detail = format!("an array of more than {ARRAY_EVENTS_MAX} events");
            return batch.push(record.span, record.offset).end(dead(Reason::TooLarge, detail));
        }
        if json::members(array).next().is_none() {
            return batch.push(record.span, record.offset).end(Fate::Dropped);
        }
        let digest = batch.write(&Sha256::digest(batch.bytes(record.span)));
        for (number, (_, element)) in json::members(array).enumerate() {
            self.push_object(batch, record, element, scratch);
            batch.set_last_part(Part { number: number as u32, record: digest, is_made: false });
        }
    }

    /// Pushes an object that does not stand in the batch as it is to be stored.
    fn push_object(&self, batch: &mut Batch, record: &Record, object: &[u8], scratch: &mut Scratch) {
        scratch.entries.clear();
        if scratch.scanner.scan(object, true, &mut scratch.entries).is_err() {
            return;
        }
        if scratch.scanner.fields() > self.fields_max {
            return self.too_many(batch, record);
        }
        let whole = batch.write(object);
        batch.push_escaped_json(record.span, record.offset, whole, whole.start, &scratch.entries);
    }

    fn too_many(&self, batch: &mut Batch, record: &Record) {
        let detail = format!("more than {} fields", self.fields_max);
        batch.push(record.span, record.offset).end(dead(Reason::TooLarge, detail));
    }

    fn bad(&self, batch: &mut Batch, record: &Record, bad: Bad) {
        match self.on_error {
            OnError::DeadLetter => {
                let is = if bad.what == json::TOO_DEEP { "" } else { "not one JSON object: " };
                let detail = format!("{is}{} at byte {}", bad.what, bad.at);
                batch.push(record.span, record.offset).end(dead(Reason::BadJson, detail));
            }
            OnError::Tag => {
                let text = String::from_utf8_lossy(batch.bytes(record.span)).into_owned();
                let mut event = batch.push(record.span, record.offset);
                event.set(&self.message, New::Text(&text));
                event.add_tag("_jsonparsefailure");
            }
        }
    }
}

impl Codec for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn decode(&self, batch: &mut Batch, records: &[Record]) {
        let utf8 = batch.is_utf8();
        SCRATCH.with_borrow_mut(|scratch| {
            for record in records {
                self.record(batch, record, utf8, scratch);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::cut_lines;
    use std::sync::Arc;

    fn decode(bytes: &[u8], on_error: OnError) -> Vec<String> {
        decode_up_to(bytes, on_error, json::FIELDS_MAX)
    }

    fn decode_up_to(bytes: &[u8], on_error: OnError, fields_max: usize) -> Vec<String> {
        let mut records = Vec::new();
        cut_lines(bytes, 0, &mut records);
        let mut batch = Batch::new(bytes.to_vec(), Arc::default());
        Json::new(on_error, fields_max).decode(&mut batch, &records);
        let show = |i: usize| match batch.event(i).fate() {
            Fate::Dropped => "dropped".to_string(),
            Fate::Dead(death) => death.reason.to_string(),
            Fate::Live => {
                let mut out = Vec::new();
                batch.event(i).write_source(&mut out);
                String::from_utf8(out).unwrap()
            }
        };
        (0..batch.len()).map(show).collect()
    }

    #[test]
    fn one_fate_a_line() {
        let bytes = b"{\"a\":1}\n\n \t\n\0\0{\"b\": 2 }\n{\"c\":1,\"c\":2}\nx\n{\"d\":\"\xff\"}\n[{\"e\":1},{\"f\":2}]\n[1]\n[]\n7\n{\"g\":\"\0\"}\n{\"h\":3}";
        let want = [
            "{\"a\":1}",
            "dropped",
            "dropped",
            "{\"b\": 2 }",
            "{\"c\":2}",
            "bad-json",
            "{\"d\":\"\u{fffd}\"}",
            "{\"e\":1}",
            "{\"f\":2}",
            "bad-json",
            "dropped",
            "bad-json",
            "bad-json",
            "{\"h\":3}",
        ];
        assert_eq!(decode(bytes, OnError::DeadLetter), want);
        let wide = b"{\"a\":1,\"b\":{\"c\":2}}\n{\"a\":[{\"b\":1},{\"c\":{\"d\":1}}]}\n[{\"a\":1,\"b\":2,\"c\":3},{\"a\":1,\"b\":2,\"c\":3,\"d\":4}]\n{\"e\":{\"e\":{\"e\":{\"\\u0065\":1}}}}";
        let want = ["{\"a\":1,\"b\":{\"c\":2}}", "too-large", "{\"a\":1,\"b\":2,\"c\":3}", "too-large", "too-large"];
        assert_eq!(decode_up_to(wide, OnError::Tag, 3), want);
        assert_eq!(decode(b"x\"y", OnError::Tag), [r#"{"message":"x\"y","tags":["_jsonparsefailure"]}"#]);
    }
}
