//! Reads what an engine answered to `_bulk` and says what each item's answer means, by status and error type.
//!
//! The answer is scanned once, without a tree: a status an item, and for failed items the place of their error.

use std::ops::Range;

use bytes::Bytes;
use memchr::memchr2;
use serde_json::Value;

use crate::json::Scanner;
use crate::output::Action;

/// Nesting beyond this is no answer of an engine, and it bounds the recursion.
const DEPTH_MAX: usize = 64;

/// The answer to one request, an entry an item in the order sent.
#[derive(Debug)]
pub struct Answer {
    body: Bytes,
    pub statuses: Vec<u16>,
    /// Items with an error, ascending, and where in the body it stands.
    errors: Vec<(u32, Range<u32>)>,
}

impl Answer {
    /// None if this is not the whole answer to a request of `items` items.
    pub fn read(body: Bytes, items: usize) -> Option<Answer> {
        if body.len() > u32::MAX as usize {
            return None;
        }
        let mut answer = Answer { body: Bytes::new(), statuses: Vec::with_capacity(items), errors: Vec::new() };
        let mut cursor = Cursor { text: &body, at: 0 };
        let mut listed = false;
        let mut known = Known::default();
        cursor.object(|cursor, key| {
            if key != b"items" {
                return cursor.skip(0);
            }
            if std::mem::replace(&mut listed, true) {
                return None;
            }
            cursor.array(|cursor| cursor.item(&mut answer, &mut known))
        })?;
        cursor.space();
        if cursor.at != body.len() || !listed || answer.statuses.len() != items {
            return None;
        }
        answer.body = body;
        Some(answer)
    }

    /// The error of an item as answered, as JSON.
    pub fn error(&self, item: usize) -> Option<&[u8]> {
        let at = self.errors.binary_search_by_key(&(item as u32), |(n, _)| *n).ok()?;
        let range = &self.errors[at].1;
        Some(&self.body[range.start as usize..range.end as usize])
    }

    /// Type and reason of an item's error; empty where the engine gives none.
    pub fn cause(&self, item: usize) -> Cause {
        self.error(item).map(Cause::read).unwrap_or_default()
    }
}

/// What an error says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    pub kind: String,
    pub reason: String,
}

impl Cause {
    fn read(error: &[u8]) -> Cause {
        serde_json::from_slice(error).map(|error| Cause::of(&error)).unwrap_or_default()
    }

    fn of(error: &Value) -> Cause {
        let text = |key| error[key].as_str().unwrap_or_default().to_string();
        Cause { kind: text("type"), reason: text("reason") }
    }

    /// Of the answer to a whole request: `{"error": {"type": …}, "status": …}`.
    pub fn of_request(body: &[u8]) -> Cause {
        serde_json::from_slice(body).map(|body: Value| Cause::of(&body["error"])).unwrap_or_default()
    }
}

/// What the answer about one item means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Created,
    Duplicate,
    /// The engine has no room now.
    Busy,
    /// It went wrong inside the engine, or against another writer.
    Fault,
    /// Nothing can be written to the index now, whatever the event.
    Trouble,
    /// The event's own fault: the same would be answered again.
    Rejected,
}

/// `kind` is only asked for where the status leaves it open.
pub fn meaning(action: Action, status: u16, kind: impl FnOnce() -> String) -> Meaning {
    match (status, action) {
        (201, _) => Meaning::Created,
        (200..300, Action::Index) | (409, Action::Create) => Meaning::Duplicate,
        (200..300, Action::Create) => Meaning::Created,
        (409, Action::Index) => Meaning::Fault,
        _ if is_trouble(&kind()) => Meaning::Trouble,
        (429, _) => Meaning::Busy,
        (400..500, _) => Meaning::Rejected,
        _ => Meaning::Fault,
    }
}

/// Error types that speak of the index or its rights, not of the event.
fn is_trouble(kind: &str) -> bool {
    matches!(
        kind,
        "index_closed_exception"
            | "cluster_block_exception"
            | "index_create_block_exception"
            | "index_not_found_exception"
            | "unavailable_shards_exception"
            | "no_shard_available_action_exception"
            | "primary_missing_action_exception"
            | "validation_exception"
            | "security_exception"
            | "process_cluster_event_timeout_exception"
            | "master_not_discovered_exception"
            | "cluster_manager_not_discovered_exception"
    )
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

/// The last item without an error: nearly always the next one reads the same.
#[derive(Default)]
struct Known<'a> {
    text: &'a [u8],
    status: u16,
}

impl<'a> Cursor<'a> {
    fn space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.space();
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// The inside of a string, escapes as they are: the keys looked for have none.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.eat(b'"')?;
        let start = self.at;
        loop {
            self.at += memchr2(b'"', b'\\', self.text.get(self.at..)?)?;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Some(&self.text[start..self.at - 1]);
            }
            self.at += 2;
        }
    }

    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.eat(b'{')?;
        if self.eat(b'}').is_some() {
            return Some(());
        }
        loop {
            let key = self.string()?;
            self.eat(b':')?;
            member(self, key)?;
            if self.eat(b',').is_none() {
                return self.eat(b'}');
            }
        }
    }

    fn array(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.eat(b'[')?;
        if self.eat(b']').is_some() {
            return Some(());
        }
        loop {
            element(self)?;
            if self.eat(b',').is_none() {
                return self.eat(b']');
            }
        }
    }

    fn skip(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.object(|cursor, _| cursor.skip(depth + 1)),
            b'[' => self.array(|cursor| cursor.skip(depth + 1)),
            _ => {
                let rest = &self.text[self.at..];
                let len = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b)).count();
                self.at += len;
                (len > 0).then_some(())
            }
        }
    }

    /// `{"index":{"status":201}}`
    fn item(&mut self, answer: &mut Answer, known: &mut Known<'a>) -> Option<()> {
        self.space();
        let start = self.at;
        if !known.text.is_empty() && self.text[start..].starts_with(known.text) {
            self.at += known.text.len();
            answer.statuses.push(known.status);
            return Some(());
        }
        let (mut status, errors) = (None, answer.errors.len());
        self.object(|cursor, action| {
            if !matches!(action, b"index" | b"create") {
                // the answer to something else
                return None;
            }
            cursor.object(|cursor, key| match key {
                // one answer an item
                b"status" if status.is_some() => None,
                b"status" => {
                    status = Some(cursor.number()?);
                    Some(())
                }
                b"error" => {
                    cursor.space();
                    let start = cursor.at as u32;
                    cursor.skip(0)?;
                    // it goes into a dead letter: what is skipped elsewhere need only look like JSON
                    Scanner::default().scan(&cursor.text[start as usize..cursor.at], false, &mut Vec::new()).ok()?;
                    answer.errors.push((answer.statuses.len() as u32, start..cursor.at as u32));
                    Some(())
                }
                _ => cursor.skip(0),
            })
        })?;
        let status = status?;
        answer.statuses.push(status);
        if answer.errors.len() == errors {
            *known = Known { text: &self.text[start..self.at], status };
        }
        Some(())
    }

    fn number(&mut self) -> Option<u16> {
        self.space();
        let digits = self.text[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let number = std::str::from_utf8(&self.text[self.at..self.at + digits]).ok()?.parse().ok()?;
        self.at += digits;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(body: &str, want: &[(u16, &str)]) {
        let got = Answer::read(Bytes::from(body.to_string()), want.len()).expect(body);
        let got: Vec<_> = (0..want.len()).map(|n| (got.statuses[n], got.cause(n).kind)).collect();
        let want: Vec<_> = want.iter().map(|(status, kind)| (*status, kind.to_string())).collect();
        assert_eq!(got, want, "{body}");
    }

    const MIXED: &str = r#"{"took":3,"errors":true,"items":[{"index":{"_index":"a","_id":"\"","status":201,"_shards":{"total":1}}},
        {"create":{"error":{"type":"version_conflict_engine_exception","reason":"[x]: \"y\" }"},"status":409}}, {"index":{"status":400,"error":"text"}}]}"#;

    #[test]
    fn answers_are_read() {
        check(
            r#"{"errors":false,"items":[{"index":{"status":201}},{"index":{"status":200}}]}"#,
            &[(201, ""), (200, "")],
        );
        check(r#"{"items":[]}"#, &[]);
        check(MIXED, &[(201, ""), (409, "version_conflict_engine_exception"), (400, "")]);
        let answer = Answer::read(Bytes::from_static(MIXED.as_bytes()), 3).unwrap();
        assert_eq!(answer.error(2), Some(&b"\"text\""[..]));
        let refusal = r#"{"error":{"root_cause":[],"type":"security_exception","reason":null},"status":403}"#;
        assert_eq!(Cause::of_request(refusal.as_bytes()).kind, "security_exception");
    }

    #[test]
    fn what_is_not_a_whole_answer_is_none() {
        let one = r#"{"items":[{"index":{"status":201}}]}"#;
        for len in 0..one.len() {
            assert!(Answer::read(Bytes::copy_from_slice(&one.as_bytes()[..len]), 1).is_none(), "{}", &one[..len]);
        }
        let bodies = [
            "<html>",
            "{}",
            "[]",
            r#"{"errors":false}"#,
            r#"{"items":[{"index":{}}]}"#,
            r#"{"items":[{"index":{"status":"201"}}]}"#,
            r#"{"items":[{"index":{"status":999999}}]}"#,
            r#"{"items":[{"index":{"status":201}}]} x"#,
            r#"{"items":[{"index":{"status":201}}],"items":[]}"#,
            r#"{"items":[{"index":{"status":201},"create":{"status":201}}]}"#,
            "{\"items\":[{\"index\":{\"error\":\"two\nlines\",\"status\":400}}]}",
            r#"{"items":[{"index":{"error":none,"status":400}}]}"#,
        ];
        for body in bodies {
            assert!(Answer::read(Bytes::from(body), 1).is_none(), "{body}");
        }
        assert!(Answer::read(Bytes::from(one), 2).is_none());
        assert!(Answer::read(Bytes::from("[".repeat(100_000)), 1).is_none());
        assert!(Answer::read(Bytes::from(format!("{{\"x\":{}", "[".repeat(100_000))), 1).is_none());
    }

    #[test]
    fn status_and_type_decide() {
        use Action::{Create, Index};
        use Meaning::*;
        let cases = [
            (Index, 201, "", Created),
            (Index, 200, "", Duplicate),
            (Create, 201, "", Created),
            (Create, 409, "version_conflict_engine_exception", Duplicate),
            (Index, 409, "version_conflict_engine_exception", Fault),
            (Index, 429, "es_rejected_execution_exception", Busy),
            (Index, 429, "circuit_breaking_exception", Busy),
            (Index, 429, "", Busy),
            (Index, 429, "cluster_block_exception", Trouble),
            (Index, 403, "cluster_block_exception", Trouble),
            (Index, 400, "index_closed_exception", Trouble),
            (Index, 404, "index_not_found_exception", Trouble),
            (Index, 503, "unavailable_shards_exception", Trouble),
            (Index, 400, "validation_exception", Trouble),
            (Index, 403, "security_exception", Trouble),
            (Index, 503, "process_cluster_event_timeout_exception", Trouble),
            (Index, 503, "", Fault),
            (Index, 500, "illegal_state_exception", Fault),
            (Index, 400, "mapper_parsing_exception", Rejected),
            (Index, 400, "document_parsing_exception", Rejected),
            (Index, 400, "strict_dynamic_mapping_exception", Rejected),
            (Index, 400, "illegal_argument_exception", Rejected),
            (Index, 400, "invalid_index_name_exception", Rejected),
            (Index, 404, "", Rejected),
            (Index, 403, "", Rejected),
        ];
        for (action, status, kind, want) in cases {
            assert_eq!(meaning(action, status, || kind.to_string()), want, "{action:?} {status} {kind}");
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(body in r#"[{}\[\]",:a-z0-9\\ ]{0,200}"#, items in 0usize..3) {
            let _ = Answer::read(Bytes::from(body), items);
        }

        #[test]
        fn cut_or_changed_answers_never_panic(cut in 0usize..MIXED.len(), at in 0usize..MIXED.len(), byte: u8) {
            let mut body = MIXED.as_bytes()[..cut].to_vec();
            if let Some(b) = body.get_mut(at) {
                *b = byte;
            }
            if let Some(answer) = Answer::read(Bytes::from(body), 3) {
                (0..3).for_each(|n| drop(answer.cause(n)));
            }
        }
    }
}
