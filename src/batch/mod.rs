//! What flows: a batch of events over shared bytes. Text is a [`Span`] into the bytes as they were read and, behind
//! them, what codecs and filters wrote; so an event costs no allocation of its own. The two stand in buffers of their
//! own: what was read is kept until it is settled, what was written is used again for the next batch.
//!
//! An event is its record's raw bytes, a list of top-level fields, and a list under `[@metadata]`. A JSON value is
//! kept as text until somebody writes inside it. Knows no stage: codecs fill a batch, filters change its events,
//! the id, the index and the output read them.

mod born;
mod event;
mod nodes;
mod view;

use std::sync::Arc;

use crate::json;
use crate::pool::Buffer;
use crate::time::Time;

pub use event::{EventMut, EventRef, New};
use nodes::{Key, Names, Node, Parent, array_index};
pub use view::{Entries, Seq, View};

const NONE: u32 = u32::MAX;

/// A piece of the batch's bytes: of those that were read, or, behind their end, of those that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    pub start: u32,
    pub len: u32,
}

impl Span {
    pub fn new(start: usize, len: usize) -> Span {
        Span { start: start as u32, len: len as u32 }
    }
}

/// A value as it is held.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// UTF-8, not escaped.
    Text(Span),
    /// One valid JSON value as text.
    Json(Span),
    /// Members as nodes: the first one.
    Object(List),
    Array(List),
}

/// The first node of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List(u32);

/// Where a batch's bytes come from, for dead letters and for ids that count repeats.
#[derive(Clone, Debug)]
pub struct Source {
    /// `stdin`, or the path of a file.
    pub name: Arc<str>,
    /// The first bytes of the source, [`HEAD`] of them once it has so many.
    pub head: Arc<[u8]>,
    /// Device and inode of a file.
    pub inode: Option<(u64, u64)>,
    /// The day on which it was written last, or read where nobody knows that, since 1970: of dates without a year.
    pub day: Option<i64>,
    /// Which block it is of those that are sent again; none where it was read.
    pub again: Option<usize>,
    /// Which events of records that hold several were stored when their block was kept.
    pub stored: Arc<[StoredPart]>,
    /// What it is when it is read again; none of what is read once.
    pub number: Option<SourceNumber>,
}

/// By what a source is known that may be read again, in this run or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceNumber {
    /// The number by which the file's position is saved.
    File(u64),
    /// The number that is the spool's name.
    Spool(u64),
}

impl SourceNumber {
    /// What it is called in a letter, and its number.
    pub fn named(&self) -> (&'static str, u64) {
        match self {
            SourceNumber::File(number) => ("file", *number),
            SourceNumber::Spool(number) => ("spool", *number),
        }
    }
}

impl Default for Source {
    fn default() -> Source {
        let (name, head, stored) = ("".into(), Arc::default(), Arc::default());
        Source { name, head, inode: None, day: None, again: None, stored, number: None }
    }
}

/// One event of a record, where the record begins, and which of its events it is among those that can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredPart {
    pub offset: u64,
    pub place: u32,
    /// A digest of what tells its document.
    pub print: u64,
}

/// What a batch needed beyond this is not kept for the next: few need it.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// How much of a source's beginning identifies it.
pub const HEAD: usize = 1024;

/// How an event ends before the output sees it.
#[derive(Clone, Debug, Default)]
pub enum Fate {
    #[default]
    Live,
    Dropped,
    Dead(Box<Death>),
}

#[derive(Clone, Debug)]
pub struct Death {
    pub reason: crate::ack::Reason,
    pub detail: String,
}

/// What an event is of a record that holds several, or of an event that a filter made several of: without the
/// digest, each would have to be hashed with the whole record.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub number: u32,
    /// The SHA-256 of the record, or of the part that it was made of.
    pub record: Span,
    /// A filter made it.
    pub is_made: bool,
}

#[derive(Debug)]
struct Event {
    raw: Span,
    /// The whole event as JSON text, as long as nobody changed it.
    json: Option<Span>,
    fields: List,
    /// What is known of the fields, as long as they were only added one by one.
    names: Option<Names>,
    metadata: List,
    offset: u64,
    /// Which part of its record, where a record holds several events.
    part: Option<Part>,
    /// How many events were made of it.
    born: u32,
    time: Option<Time>,
    fate: Fate,
}

impl Event {
    /// An event without fields.
    fn new(raw: Span, offset: u64) -> Event {
        let (fields, metadata) = (List(NONE), List(NONE));
        let names = Some(Names { bits: 0, last: NONE });
        Event { raw, json: None, fields, names, metadata, offset, part: None, born: 0, time: None, fate: Fate::Live }
    }
}

#[derive(Debug, Default)]
pub struct Batch {
    /// As they were read.
    bytes: Buffer,
    /// What was written since, behind them.
    written: Vec<u8>,
    events: Vec<Event>,
    nodes: Vec<Node>,
    source: Arc<Source>,
    scratch: Vec<(Span, Span)>,
    /// Where a name stands that was written, by its [`sort`](crate::field::sort).
    keys: Vec<Key>,
    /// The present time of the filters that run.
    now: Time,
    /// What filters write into before it becomes a value; kept so that it need not be made for each event.
    draft: Vec<u8>,
    /// A record holds several events.
    has_parts: bool,
    /// The events that filters made and that do not stand in their places yet: behind which event each belongs.
    born: Vec<usize>,
}

impl Batch {
    /// A batch over what was read from `source`.
    pub fn new(bytes: impl Into<Buffer>, source: Arc<Source>) -> Batch {
        Batch { bytes: bytes.into(), source, ..Batch::default() }
    }

    /// Begins anew over other bytes, in the memory that is there.
    pub fn refill(&mut self, bytes: Buffer, source: Arc<Source>) {
        (self.bytes, self.source) = (bytes, source);
        self.written.clear();
        self.events.clear();
        self.born.clear();
        self.nodes.clear();
        self.keys.clear();
        self.has_parts = false;
    }

    /// Gives up the events, and gives back the bytes as they came.
    pub fn take_bytes(&mut self) -> Buffer {
        let bytes = std::mem::take(&mut self.bytes);
        self.refill(Buffer::default(), Arc::default());
        shrink(&mut self.written);
        shrink(&mut self.events);
        shrink(&mut self.nodes);
        bytes
    }

    /// Whether a record holds several events.
    pub fn has_parts(&self) -> bool {
        self.has_parts
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Tells the filters' present time.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    pub fn bytes(&self, span: Span) -> &[u8] {
        let (start, len) = (span.start as usize, span.len as usize);
        match start.checked_sub(self.bytes.len()) {
            None => &self.bytes[start..start + len],
            Some(at) => &self.written[at..at + len],
        }
    }

    /// Whether all that was read is UTF-8.
    pub fn is_utf8(&self) -> bool {
        std::str::from_utf8(&self.bytes).is_ok()
    }

    /// How many bytes were read.
    pub fn read_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn event(&self, index: usize) -> EventRef<'_> {
        EventRef { batch: self, index }
    }

    pub fn event_mut(&mut self, index: usize) -> EventMut<'_> {
        EventMut { batch: self, index }
    }

    /// Writes bytes behind those that there are.
    pub fn write(&mut self, text: &[u8]) -> Span {
        let span = Span::new(self.bytes.len() + self.written.len(), text.len());
        self.written.extend_from_slice(text);
        span
    }

    /// Adds an event without fields, made of the record `raw` that begins at `offset` of its source.
    pub fn push(&mut self, raw: Span, offset: u64) -> EventMut<'_> {
        self.events.push(Event::new(raw, offset));
        EventMut { index: self.events.len() - 1, batch: self }
    }

    /// Adds an event whose fields are the members of a clean JSON object; `base` is where the scanned text begins.
    pub fn push_json(&mut self, raw: Span, offset: u64, whole: Span, base: u32, entries: &[json::Entry]) {
        let first = self.nodes.len() as u32;
        let mut metadata = false;
        for (i, entry) in entries.iter().enumerate() {
            let key = Span { start: base + entry.key.0, len: entry.key.1 };
            let value = Value::Json(Span { start: base + entry.value.0, len: entry.value.1 });
            metadata |= entry.key.1 == 9 && self.bytes(key) == b"@metadata";
            let key = Key { name: key, is_quoted: true };
            let next = if i + 1 < entries.len() { first + i as u32 + 1 } else { NONE };
            self.nodes.push(Node::new(key, value, next));
        }
        let fields = List(if entries.is_empty() { NONE } else { first });
        self.events.push(Event { json: Some(whole), fields, names: None, ..Event::new(raw, offset) });
        if metadata {
            self.lift_metadata(self.events.len() - 1);
        }
    }

    /// As [`Batch::push_json`], for an object with escapes in its keys.
    pub fn push_escaped_json(&mut self, raw: Span, offset: u64, whole: Span, base: u32, entries: &[json::Entry]) {
        self.push_json(raw, offset, whole, base, entries);
        if let Some(event) = self.events.last() {
            self.unescape_keys(event.fields);
        }
    }

    /// The event pushed last is one of several of its record.
    pub fn set_last_part(&mut self, part: Part) {
        if let Some(event) = self.events.last_mut() {
            event.part = Some(part);
            self.has_parts = true;
        }
    }

    /// `@metadata` inside a record travels with the event and is not stored.
    fn lift_metadata(&mut self, index: usize) {
        let Some(node) = self.find(self.events[index].fields, b"@metadata") else { return };
        let value = self.nodes[node as usize].value();
        self.unlink(Parent::Fields(index), node);
        self.events[index].json = None;
        if let Some((List(head), true)) = self.expand(value) {
            self.events[index].metadata = List(head);
        }
    }

    fn view(&self, value: Value) -> View<'_> {
        match value {
            Value::Text(span) => View::Text(String::from_utf8_lossy(self.bytes(span))),
            Value::Json(span) => View::of_json(self.bytes(span)),
            Value::Object(list) => View::Object(Seq::Nodes { batch: self, list }),
            Value::Array(list) => View::Array(Seq::Nodes { batch: self, list }),
        }
    }

    fn write_value(&self, value: Value, out: &mut Vec<u8>) {
        match value {
            Value::Text(span) => json::write_string(self.bytes(span), out),
            Value::Json(span) => write_line(self.bytes(span), out),
            Value::Object(list) => {
                out.push(b'{');
                for (i, at) in self.chain(list).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    let node = self.nodes[at as usize];
                    self.write_key(node.key(), out);
                    self.write_value(node.value(), out);
                }
                out.push(b'}');
            }
            Value::Array(list) => {
                out.push(b'[');
                for (i, at) in self.chain(list).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    self.write_value(self.nodes[at as usize].value(), out);
                }
                out.push(b']');
            }
        }
    }
}

/// Gives back what is rarely needed of an empty list.
fn shrink<T>(list: &mut Vec<T>) {
    list.shrink_to(KEPT_BYTES_MAX / size_of::<T>());
}

/// JSON text on one line: a line break between its parts becomes a blank (inside strings there is none).
fn write_line(text: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(text);
    if memchr::memchr2(b'\n', b'\r', text).is_some() {
        out[from..].iter_mut().filter(|b| matches!(b, b'\n' | b'\r')).for_each(|b| *b = b' ');
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::field::FieldRef;

    /// A batch of the one event that the JSON text is.
    pub fn of(text: &str) -> Batch {
        let mut batch = Batch::new(text.as_bytes().to_vec(), Arc::default());
        let mut entries = Vec::new();
        json::Scanner::default().scan(text.as_bytes(), true, &mut entries).unwrap();
        let whole = Span::new(0, text.len());
        batch.push_json(whole, 0, whole, 0, &entries);
        batch
    }

    fn source(batch: &Batch) -> String {
        let mut out = Vec::new();
        batch.event(0).write_source(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn at(reference: &str) -> FieldRef {
        FieldRef::parse(reference).unwrap()
    }

    fn text_at(batch: &Batch, reference: &str) -> Option<String> {
        batch.event(0).get(&at(reference)).map(|view| {
            let mut out = Vec::new();
            view.write_json(&mut out);
            String::from_utf8(out).unwrap()
        })
    }

    #[test]
    fn untouched_is_forwarded_as_it_came() {
        let text = r#"{ "a" : 1.10, "b":{"c":[1, 2]} }"#;
        let batch = of(text);
        assert_eq!(source(&batch), text);
        assert_eq!(text_at(&batch, "[b][c][1]").as_deref(), Some("2"));
        assert_eq!(text_at(&batch, "[b][c][-1]").as_deref(), Some("2"));
        assert_eq!(text_at(&batch, "[b][c][2]"), None);
        assert_eq!(text_at(&batch, "[a][x]"), None);
    }

    #[test]
    fn absorbed_members_are_found_few_or_many() {
        let absorbed = |text: &str| {
            let mut batch = of(r#"{"k1":0,"z":1}"#);
            let mut entries = Vec::new();
            json::Scanner::default().scan(text.as_bytes(), true, &mut entries).unwrap();
            batch.event_mut(0).absorb(text.as_bytes(), &entries);
            source(&batch)
        };
        assert_eq!(absorbed(r#"{"a\"b":1,"k1":2,"@metadata":{"x":1}}"#), r#"{"k1":2,"z":1,"a\"b":1}"#);
        let many: Vec<String> = (2..200).map(|n| format!("\"k{n}\":{n}")).collect();
        let many = many.join(",");
        assert_eq!(absorbed(&format!("{{{many},\"k1\":2}}")), format!("{{\"k1\":2,\"z\":1,{many}}}"));
    }

    #[test]
    fn set_take_and_put() {
        let mut batch = of(r#"{"a":1,"b":{"c":[1, {"\u0064":2}],"e":"x"},"f":"t"}"#);
        let mut event = batch.event_mut(0);
        assert!(event.set(&at("[b][c][1][d]"), New::Text("in\"side")));
        assert!(event.set(&at("[new][deep]"), New::Int(-3)));
        assert!(event.set(&at("[b][c][2]"), New::Float(2.0)));
        assert!(!event.set(&at("[b][c][9]"), New::Null));
        assert!(!event.set(&at("[f][x]"), New::Null));
        let moved = event.take(&at("[b][e]")).unwrap();
        assert!(event.put(&at("g"), moved));
        assert!(event.remove(&at("a")));
        assert!(!event.remove(&at("a")));
        let want = r#"{"b":{"c":[1,{"d":"in\"side"},2.0]},"f":"t","new":{"deep":-3},"g":"x"}"#;
        assert_eq!(source(&batch), want);
    }

    proptest::proptest! {
        /// Names are told apart also where [`sort`] does not, and after one was removed.
        #[test]
        fn fields_are_those_that_were_set_last(steps in proptest::collection::vec((0u8..4, "[a-c]{1,3}", 0i64..9), 0..60)) {
            let mut batch = Batch::new(b"x".to_vec(), Arc::default());
            batch.push(Span::new(0, 1), 0);
            let mut model: Vec<(String, i64)> = Vec::new();
            for (step, name, value) in steps {
                let (mut event, field) = (batch.event_mut(0), FieldRef::top(&name));
                if step == 0 {
                    event.remove(&field);
                    model.retain(|(other, _)| *other != name);
                    continue;
                }
                event.set(&field, New::Int(value));
                match model.iter_mut().find(|(other, _)| *other == name) {
                    Some(known) => known.1 = value,
                    None => model.push((name, value)),
                }
            }
            let members: Vec<String> = model.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
            proptest::prop_assert_eq!(source(&batch), format!("{{{}}}", members.join(",")));
        }
    }

    #[test]
    fn metadata_is_never_stored() {
        let mut batch = of(r#"{"@metadata":{"x":"y"},"a":1}"#);
        assert_eq!(text_at(&batch, "[@metadata][x]").as_deref(), Some("\"y\""));
        assert_eq!(source(&batch), r#"{"a":1}"#);
        assert!(batch.event_mut(0).set(&at("[@metadata][z][w]"), New::Bool(true)));
        assert_eq!(text_at(&batch, "[@metadata][z][w]").as_deref(), Some("true"));
        assert_eq!(source(&batch), r#"{"a":1}"#);
    }

    #[test]
    fn tags_are_a_set_in_order() {
        let mut batch = of(r#"{"tags":"foo"}"#);
        for tag in ["bar", "foo", "bar", "b\"z"] {
            batch.event_mut(0).add_tag(tag);
        }
        assert_eq!(source(&batch), r#"{"tags":["foo","bar","b\"z"]}"#);
        assert!(batch.event_mut(0).remove_tag("foo"));
        assert!(!batch.event_mut(0).remove_tag("foo"));
        assert_eq!(source(&batch), r#"{"tags":["bar","b\"z"]}"#);
        let mut batch = of(r#"{"tags":{"k":"v"}}"#);
        batch.event_mut(0).add_tag("t");
        assert_eq!(source(&batch), r#"{"tags":["_tagsparsefailure","t"],"_tags":[{"k":"v"}]}"#);
    }

    #[test]
    fn line_breaks_between_parts_become_blanks() {
        let batch = of("{\"a\":\r\n1}");
        assert_eq!(source(&batch), "{\"a\":  1}");
    }
}
