//! What flows: a batch of events over one shared buffer. Text is a [`Span`] into that buffer, which holds the
//! bytes as they were read and, behind them, what filters wrote; so an event costs no allocation of its own.
//!
//! An event is its record's raw bytes, a list of top-level fields, and a list under `[@metadata]`. A JSON value is
//! kept as text until somebody writes inside it. Knows no stage: codecs fill a batch, filters change its events,
//! the id, the index and the output read them.

use std::borrow::Cow;
use std::sync::Arc;

use crate::field::FieldRef;
use crate::json;
use crate::pool::Buffer;
use crate::time::Time;

const NONE: u32 = u32::MAX;

/// A piece of the batch's buffer.
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

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Span,
    value: Value,
    next: u32,
}

/// A value as it is read.
#[derive(Clone, Debug)]
pub enum View<'a> {
    Null,
    Bool(bool),
    /// A JSON number as it was written.
    Number(&'a str),
    Text(Cow<'a, str>),
    Array(Seq<'a>),
    Object(Seq<'a>),
}

/// A value as it is written.
#[derive(Clone, Copy, Debug)]
pub enum New<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'a str),
    /// One valid JSON value.
    Json(&'a [u8]),
}

/// Where a batch's bytes come from, for dead letters and for ids that count repeats.
#[derive(Debug)]
pub struct Source {
    /// `stdin`, or the path of a file.
    pub name: Arc<str>,
    /// The first bytes of the source, [`HEAD`] of them once it has so many.
    pub head: Arc<[u8]>,
}

impl Default for Source {
    fn default() -> Source {
        Source { name: "".into(), head: Arc::default() }
    }
}

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

#[derive(Debug)]
struct Event {
    raw: Span,
    /// The whole event as JSON text, as long as nobody changed it.
    json: Option<Span>,
    fields: List,
    metadata: List,
    offset: u64,
    /// Which part of its record, where a record holds several events.
    place: Option<u32>,
    time: Option<Time>,
    fate: Fate,
}

#[derive(Debug, Default)]
pub struct Batch {
    bytes: Buffer,
    events: Vec<Event>,
    nodes: Vec<Node>,
    source: Arc<Source>,
    scratch: Vec<(Span, Span)>,
    /// The present time of the filters that run.
    now: Time,
    /// What filters write into before it becomes a value; kept so that it need not be made for each event.
    draft: Vec<u8>,
}

impl Batch {
    /// A batch over what was read from `source`. The buffer should have some room for what filters write.
    pub fn new(bytes: impl Into<Buffer>, source: Arc<Source>) -> Batch {
        Batch { bytes: bytes.into(), source, ..Batch::default() }
    }

    /// Begins anew over other bytes, in the memory that is there.
    pub fn refill(&mut self, bytes: Buffer, source: Arc<Source>) {
        (self.bytes, self.source) = (bytes, source);
        self.events.clear();
        self.nodes.clear();
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
        &self.bytes[span.start as usize..span.start as usize + span.len as usize]
    }

    /// Whether all that was read is UTF-8.
    pub fn is_utf8(&self) -> bool {
        std::str::from_utf8(&self.bytes).is_ok()
    }

    /// Bytes held, as a measure of memory.
    pub fn weight(&self) -> usize {
        self.bytes.len() + self.nodes.len() * size_of::<Node>()
    }

    pub fn event(&self, index: usize) -> EventRef<'_> {
        EventRef { batch: self, index }
    }

    pub fn event_mut(&mut self, index: usize) -> EventMut<'_> {
        EventMut { batch: self, index }
    }

    /// Appends bytes to the buffer.
    pub fn write(&mut self, text: &[u8]) -> Span {
        let span = Span::new(self.bytes.len(), text.len());
        self.bytes.extend_from_slice(text);
        span
    }

    /// Adds an event without fields, made of the record `raw` that begins at `offset` of its source.
    pub fn push(&mut self, raw: Span, offset: u64) -> EventMut<'_> {
        let (fields, metadata) = (List(NONE), List(NONE));
        self.events.push(Event {
            raw,
            json: None,
            fields,
            metadata,
            offset,
            place: None,
            time: None,
            fate: Fate::Live,
        });
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
            let next = if i + 1 < entries.len() { first + i as u32 + 1 } else { NONE };
            self.nodes.push(Node { key, value, next });
        }
        let fields = List(if entries.is_empty() { NONE } else { first });
        let (none, json) = (List(NONE), Some(whole));
        self.events.push(Event {
            raw,
            json,
            fields,
            metadata: none,
            offset,
            place: None,
            time: None,
            fate: Fate::Live,
        });
        if metadata {
            self.lift_metadata(self.events.len() - 1);
        }
    }

    /// The event pushed last is part number `place` of its record.
    pub fn set_last_place(&mut self, place: u32) {
        if let Some(event) = self.events.last_mut() {
            event.place = Some(place);
        }
    }

    /// `@metadata` inside a record travels with the event and is not stored.
    fn lift_metadata(&mut self, index: usize) {
        let Some(node) = self.find(self.events[index].fields, b"@metadata") else { return };
        let value = self.nodes[node as usize].value;
        self.unlink(Parent::Fields(index), node);
        self.events[index].json = None;
        if let Some((List(head), true)) = self.expand(value) {
            self.events[index].metadata = List(head);
        }
    }

    fn find(&self, list: List, key: &[u8]) -> Option<u32> {
        let mut at = list.0;
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key.len as usize == key.len() && self.bytes(node.key) == key {
                return Some(at);
            }
            at = node.next;
        }
        None
    }

    fn nth(&self, list: List, index: &str) -> Option<u32> {
        let wanted = array_index(index, || self.chain(list).count())?;
        self.chain(list).nth(wanted)
    }

    fn chain(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(list.0).filter(|n| *n != NONE), |n| {
            Some(self.nodes[*n as usize].next).filter(|n| *n != NONE)
        })
    }

    fn head(&self, parent: Parent) -> List {
        match parent {
            Parent::Fields(event) => self.events[event].fields,
            Parent::Metadata(event) => self.events[event].metadata,
            Parent::Node(node) => match self.nodes[node as usize].value {
                Value::Object(list) | Value::Array(list) => list,
                _ => List(NONE),
            },
        }
    }

    fn set_head(&mut self, parent: Parent, head: List) {
        match parent {
            Parent::Fields(event) => self.events[event].fields = head,
            Parent::Metadata(event) => self.events[event].metadata = head,
            Parent::Node(node) => match &mut self.nodes[node as usize].value {
                Value::Object(list) | Value::Array(list) => *list = head,
                _ => {}
            },
        }
    }

    fn append(&mut self, parent: Parent, key: Span, value: Value) -> u32 {
        let new = self.nodes.len() as u32;
        let last = self.chain(self.head(parent)).last();
        self.nodes.push(Node { key, value, next: NONE });
        match last {
            Some(last) => self.nodes[last as usize].next = new,
            None => self.set_head(parent, List(new)),
        }
        new
    }

    fn unlink(&mut self, parent: Parent, node: u32) {
        let next = self.nodes[node as usize].next;
        let head = self.head(parent);
        if head.0 == node {
            return self.set_head(parent, List(next));
        }
        let before = self.chain(head).find(|n| self.nodes[*n as usize].next == node);
        if let Some(before) = before {
            self.nodes[before as usize].next = next;
        }
    }

    /// A container's members as nodes, and whether it is an object; none if the value is no container.
    fn expand(&mut self, value: Value) -> Option<(List, bool)> {
        let span = match value {
            Value::Object(list) => return Some((list, true)),
            Value::Array(list) => return Some((list, false)),
            Value::Text(_) => return None,
            Value::Json(span) => span,
        };
        let mut found = std::mem::take(&mut self.scratch);
        found.clear();
        let text = self.bytes(span);
        let keyed = match text.first() {
            Some(b'{') => true,
            Some(b'[') => false,
            _ => return None,
        };
        let place = |part: &[u8]| {
            // both lie in one allocation, so the distance is the place
            Span { start: span.start + (part.as_ptr().addr() - text.as_ptr().addr()) as u32, len: part.len() as u32 }
        };
        found.extend(
            json::members(text)
                .map(|(key, value)| (if key.is_empty() { Span::default() } else { place(key) }, place(value))),
        );
        let first = self.nodes.len() as u32;
        for (i, (key, value)) in found.iter().enumerate() {
            let next = if i + 1 < found.len() { first + i as u32 + 1 } else { NONE };
            self.nodes.push(Node { key: *key, value: Value::Json(*value), next });
        }
        let list = List(if found.is_empty() { NONE } else { first });
        self.scratch = found;
        self.unescape_keys(list);
        Some((list, keyed))
    }

    fn unescape_keys(&mut self, list: List) {
        let mut at = list.0;
        while at != NONE {
            let Node { key, next, .. } = self.nodes[at as usize];
            if self.bytes(key).contains(&b'\\') {
                let plain = json::unescape(self.bytes(key)).into_owned();
                self.nodes[at as usize].key = self.write(plain.as_bytes());
            }
            at = next;
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
                    json::write_string(self.bytes(node.key), out);
                    out.push(b':');
                    self.write_value(node.value, out);
                }
                out.push(b'}');
            }
            Value::Array(list) => {
                out.push(b'[');
                for (i, at) in self.chain(list).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    self.write_value(self.nodes[at as usize].value, out);
                }
                out.push(b']');
            }
        }
    }
}

/// JSON text on one line: a line break between its parts becomes a blank (inside strings there is none).
fn write_line(text: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(text);
    if memchr::memchr2(b'\n', b'\r', text).is_some() {
        out[from..].iter_mut().filter(|b| matches!(b, b'\n' | b'\r')).for_each(|b| *b = b' ');
    }
}

/// The place that `[0]` or `[-1]` means in an array.
fn array_index(text: &str, len: impl FnOnce() -> usize) -> Option<usize> {
    let index: i64 = text.parse().ok()?;
    if index >= 0 { usize::try_from(index).ok() } else { len().checked_sub(index.unsigned_abs() as usize) }
}

#[derive(Clone, Copy)]
enum Parent {
    Fields(usize),
    Metadata(usize),
    Node(u32),
}

impl<'a> View<'a> {
    /// The view of one valid JSON value.
    pub fn of_json(text: &'a [u8]) -> View<'a> {
        match text.first() {
            Some(b'"') => View::Text(json::unescape(&text[1..text.len() - 1])),
            Some(b'{') => View::Object(Seq::Json(text)),
            Some(b'[') => View::Array(Seq::Json(text)),
            Some(b't') => View::Bool(true),
            Some(b'f') => View::Bool(false),
            Some(b'-' | b'0'..=b'9') => View::Number(std::str::from_utf8(text).unwrap_or("0")),
            _ => View::Null,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        if let View::Text(text) = self { Some(text) } else { None }
    }

    /// Writes the value as JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            View::Null => out.extend_from_slice(b"null"),
            View::Bool(true) => out.extend_from_slice(b"true"),
            View::Bool(false) => out.extend_from_slice(b"false"),
            View::Number(text) => out.extend_from_slice(text.as_bytes()),
            View::Text(text) => json::write_string(text.as_bytes(), out),
            View::Array(Seq::Json(text)) | View::Object(Seq::Json(text)) => write_line(text, out),
            View::Array(Seq::Nodes { batch, list }) => batch.write_value(Value::Array(*list), out),
            View::Object(Seq::Nodes { batch, list }) => batch.write_value(Value::Object(*list), out),
        }
    }

    fn member(&self, name: &str) -> Option<View<'a>> {
        match self {
            View::Object(Seq::Json(text)) => json::members(text)
                .find(
                    |(key, _)| {
                        if key.contains(&b'\\') { json::unescape(key) == name } else { *key == name.as_bytes() }
                    },
                )
                .map(|(_, value)| View::of_json(value)),
            View::Array(Seq::Json(text)) => {
                let wanted = array_index(name, || json::members(text).count())?;
                json::members(text).nth(wanted).map(|(_, value)| View::of_json(value))
            }
            View::Object(Seq::Nodes { batch, list }) => {
                batch.find(*list, name.as_bytes()).map(|n| batch.view(batch.nodes[n as usize].value))
            }
            View::Array(Seq::Nodes { batch, list }) => {
                batch.nth(*list, name).map(|n| batch.view(batch.nodes[n as usize].value))
            }
            _ => None,
        }
    }
}

/// The members of a container.
#[derive(Clone, Copy, Debug)]
pub enum Seq<'a> {
    Json(&'a [u8]),
    Nodes { batch: &'a Batch, list: List },
}

impl<'a> Seq<'a> {
    /// Keys (empty in arrays) and values, in order.
    pub fn entries(&self) -> Entries<'a> {
        match self {
            Seq::Json(text) => Entries::Json(json::members(text)),
            Seq::Nodes { batch, list } => Entries::Nodes { batch, at: list.0 },
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries().next().is_none()
    }
}

pub enum Entries<'a> {
    Json(json::Members<'a>),
    Nodes { batch: &'a Batch, at: u32 },
}

impl<'a> Iterator for Entries<'a> {
    type Item = (Cow<'a, str>, View<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Entries::Json(members) => members.next().map(|(k, v)| (json::unescape(k), View::of_json(v))),
            Entries::Nodes { batch, at } => {
                if *at == NONE {
                    return None;
                }
                let node = batch.nodes[*at as usize];
                *at = node.next;
                Some((String::from_utf8_lossy(batch.bytes(node.key)), batch.view(node.value)))
            }
        }
    }
}

/// One event, to read.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    batch: &'a Batch,
    index: usize,
}

impl<'a> EventRef<'a> {
    fn event(&self) -> &'a Event {
        &self.batch.events[self.index]
    }

    /// The event's place in its batch.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The record as it was read, without line end and byte order mark.
    pub fn raw(&self) -> &'a [u8] {
        self.batch.bytes(self.event().raw)
    }

    /// Which part of its record the event is, where a record holds several.
    pub fn place(&self) -> Option<u32> {
        self.event().place
    }

    /// Where the record begins in its source, in bytes.
    pub fn offset(&self) -> u64 {
        self.event().offset
    }

    pub fn fate(&self) -> &'a Fate {
        &self.event().fate
    }

    pub fn source(&self) -> &'a Source {
        &self.batch.source
    }

    /// The filters' present time.
    pub fn now(&self) -> Time {
        self.batch.now
    }

    pub fn fields(&self) -> Seq<'a> {
        Seq::Nodes { batch: self.batch, list: self.event().fields }
    }

    pub fn metadata(&self) -> Seq<'a> {
        Seq::Nodes { batch: self.batch, list: self.event().metadata }
    }

    pub fn get(&self, field: &FieldRef) -> Option<View<'a>> {
        let root = if field.is_metadata() { self.metadata() } else { self.fields() };
        field.path().iter().try_fold(View::Object(root), |view, name| view.member(name))
    }

    /// The event's time as it stands in `@timestamp`: a number, or text that [`crate::stamp::from_text`] reads.
    pub fn time(&self) -> Option<Time> {
        self.event().time.or_else(|| self.found_time().map(|(time, _)| time))
    }

    /// The time that stands in `@timestamp`, and whether as RFC 3339: all that every engine reads the same way.
    pub fn found_time(&self) -> Option<(Time, bool)> {
        let text = |text: &[u8]| {
            let exact = Time::rfc3339(text);
            exact.or_else(|| crate::stamp::from_text(text)).map(|time| (time, exact.is_some()))
        };
        let node = self.batch.find(self.event().fields, b"@timestamp")?;
        match self.batch.nodes[node as usize].value {
            Value::Text(span) => text(self.batch.bytes(span)),
            Value::Json(span) => match self.batch.bytes(span) {
                [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => text(inner),
                quoted @ [b'"', ..] => text(View::of_json(quoted).as_text()?.as_bytes()),
                number => Some((crate::stamp::from_number(std::str::from_utf8(number).ok()?)?, false)),
            },
            _ => None,
        }
    }

    /// What tells this event's place in its source from every other: a digest of the source's beginning (up to
    /// the end of this record, [`HEAD`] bytes at most, so that it stays the same while a file grows) and the offset.
    pub fn position(&self, out: &mut Vec<u8>) {
        use sha2::Digest;
        let event = self.event();
        let end = event.offset.saturating_add(u64::from(event.raw.len));
        let head = &self.batch.source.head;
        let known = usize::try_from(end).unwrap_or(HEAD).min(HEAD).min(head.len());
        out.extend_from_slice(&sha2::Sha256::digest(&head[..known])[..16]);
        out.extend_from_slice(&event.offset.to_be_bytes());
        if let Some(place) = event.place {
            out.extend_from_slice(&place.to_be_bytes());
        }
    }

    /// Writes what is stored, as JSON on one line.
    pub fn write_source(&self, out: &mut Vec<u8>) {
        match self.event().json {
            Some(span) => write_line(self.batch.bytes(span), out),
            None => self.batch.write_value(Value::Object(self.event().fields), out),
        }
    }
}

/// One event, to change.
#[derive(Debug)]
pub struct EventMut<'a> {
    batch: &'a mut Batch,
    index: usize,
}

impl EventMut<'_> {
    pub fn read(&self) -> EventRef<'_> {
        EventRef { batch: self.batch, index: self.index }
    }

    pub fn get(&self, field: &FieldRef) -> Option<View<'_>> {
        self.read().get(field)
    }

    /// Ends the event: nothing more happens to it but what `fate` says.
    pub fn end(&mut self, fate: Fate) {
        self.batch.events[self.index].fate = fate;
    }

    pub fn is_live(&self) -> bool {
        matches!(self.batch.events[self.index].fate, Fate::Live)
    }

    /// Writes a field, making the objects on its way. False if something on the way is neither object nor array,
    /// or an array has no such place; then nothing is changed.
    pub fn set(&mut self, field: &FieldRef, new: New<'_>) -> bool {
        let value = match new {
            New::Text(text) => Value::Text(self.batch.write(text.as_bytes())),
            New::Json(text) => Value::Json(self.batch.write(text)),
            New::Null => Value::Json(self.batch.write(b"null")),
            New::Bool(is) => Value::Json(self.batch.write(if is { b"true" } else { b"false" })),
            New::Int(number) => Value::Json(self.batch.write(number.to_string().as_bytes())),
            New::Float(number) => Value::Json(self.batch.write(float_text(number).as_bytes())),
        };
        self.put(field, value)
    }

    /// Sets a field to text that stands in the batch already.
    pub fn set_span(&mut self, field: &FieldRef, text: Span) -> bool {
        self.put(field, Value::Text(text))
    }

    /// Puts a value that [`EventMut::take`] gave, or a new one.
    pub fn put(&mut self, field: &FieldRef, value: Value) -> bool {
        let Some((last, way)) = field.path().split_last() else { return false };
        let Some(parent) = self.walk(field.is_metadata(), way, true) else { return false };
        if !field.is_metadata() {
            self.touch(field);
        }
        let list = self.batch.head(parent);
        if self.is_array(parent) {
            let len = self.batch.chain(list).count();
            return match array_index(last, || len) {
                Some(at) if at < len => {
                    let node = self.batch.chain(list).nth(at);
                    if let Some(node) = node {
                        self.batch.nodes[node as usize].value = value;
                    }
                    true
                }
                Some(at) if at == len => {
                    self.batch.append(parent, Span::default(), value);
                    true
                }
                _ => false,
            };
        }
        match self.batch.find(list, last.as_bytes()) {
            Some(node) => self.batch.nodes[node as usize].value = value,
            None => {
                let key = self.batch.write(last.as_bytes());
                self.batch.append(parent, key, value);
            }
        }
        true
    }

    /// Removes a field and gives its value, to be put elsewhere in the same event.
    pub fn take(&mut self, field: &FieldRef) -> Option<Value> {
        let (last, way) = field.path().split_last()?;
        self.get(field)?;
        let parent = self.walk(field.is_metadata(), way, false)?;
        let list = self.batch.head(parent);
        let node =
            if self.is_array(parent) { self.batch.nth(list, last)? } else { self.batch.find(list, last.as_bytes())? };
        if !field.is_metadata() {
            self.touch(field);
        }
        let value = self.batch.nodes[node as usize].value;
        self.batch.unlink(parent, node);
        Some(value)
    }

    pub fn remove(&mut self, field: &FieldRef) -> bool {
        if field.is_metadata() && field.path().is_empty() {
            self.batch.events[self.index].metadata = List(NONE);
            return true;
        }
        self.take(field).is_some()
    }

    /// Adds to `tags`, once: a single text becomes a list first. What can be no tags is moved to `_tags`.
    pub fn add_tag(&mut self, tag: &str) {
        let tags = FieldRef::top("tags");
        let mut list = vec![b'['];
        match self.get(&tags) {
            Some(View::Array(seq)) if seq.entries().all(|(_, value)| value.as_text().is_some()) => {
                for (_, value) in seq.entries() {
                    if value.as_text() == Some(tag) {
                        return;
                    }
                    value.write_json(&mut list);
                    list.push(b',');
                }
            }
            Some(View::Text(text)) if text == tag => return,
            Some(text @ View::Text(_)) => {
                text.write_json(&mut list);
                list.push(b',');
            }
            Some(View::Null) | None => {}
            Some(_) => {
                self.set_tags_aside(&tags);
                list.extend_from_slice(br#""_tagsparsefailure","#);
            }
        }
        json::write_string(tag.as_bytes(), &mut list);
        list.push(b']');
        self.set(&tags, New::Json(&list));
    }

    fn set_tags_aside(&mut self, tags: &FieldRef) {
        let mut list = vec![b'['];
        if let Some(odd) = self.get(tags) {
            odd.write_json(&mut list);
        }
        list.push(b']');
        self.set(&FieldRef::top("_tags"), New::Json(&list));
    }

    /// Takes from `tags`; true if it was there.
    pub fn remove_tag(&mut self, tag: &str) -> bool {
        let tags = FieldRef::top("tags");
        let mut list = vec![b'['];
        let mut found = false;
        match self.get(&tags) {
            Some(View::Array(seq)) => {
                for (_, value) in seq.entries() {
                    if value.as_text() == Some(tag) {
                        found = true;
                        continue;
                    }
                    if list.len() > 1 {
                        list.push(b',');
                    }
                    value.write_json(&mut list);
                }
            }
            Some(View::Text(text)) => found = text == tag,
            _ => {}
        }
        list.push(b']');
        found && self.set(&tags, New::Json(&list))
    }

    /// An empty buffer to write into, to be given back by [`EventMut::keep_draft`].
    pub fn take_draft(&mut self) -> Vec<u8> {
        let mut draft = std::mem::take(&mut self.batch.draft);
        draft.clear();
        draft
    }

    pub fn keep_draft(&mut self, draft: Vec<u8>) {
        self.batch.draft = draft;
    }

    /// Sets a top-level field for each member of the clean JSON object `whole`, whose members `entries` tells. What
    /// is in its `@metadata` goes there.
    pub fn absorb(&mut self, whole: &[u8], entries: &[json::Entry]) {
        let base = self.batch.write(whole).start;
        let place = |(at, len): (u32, u32)| Span { start: base + at, len };
        self.batch.events[self.index].json = None;
        self.batch.events[self.index].time = None;
        for entry in entries {
            let (key, value) = (place(entry.key), Value::Json(place(entry.value)));
            if self.batch.bytes(key) == b"@metadata" {
                self.absorb_metadata(value);
            } else {
                self.put_member(Parent::Fields(self.index), key, value);
            }
        }
    }

    fn absorb_metadata(&mut self, value: Value) {
        let Some((list, true)) = self.batch.expand(value) else { return };
        let members: Vec<Node> = self.batch.chain(list).map(|n| self.batch.nodes[n as usize]).collect();
        for member in members {
            self.put_member(Parent::Metadata(self.index), member.key, member.value);
        }
    }

    fn put_member(&mut self, parent: Parent, key: Span, value: Value) {
        match self.batch.find(self.batch.head(parent), self.batch.bytes(key)) {
            Some(node) => self.batch.nodes[node as usize].value = value,
            None => drop(self.batch.append(parent, key, value)),
        }
    }

    /// Fixes the event's time, once `@timestamp` is known to say the same.
    pub fn set_time(&mut self, time: Time) {
        self.batch.events[self.index].time = Some(time);
    }

    fn touch(&mut self, field: &FieldRef) {
        let event = &mut self.batch.events[self.index];
        event.json = None;
        if field.path().first().is_some_and(|name| name.as_ref() == "@timestamp") {
            event.time = None;
        }
    }

    fn is_array(&self, parent: Parent) -> bool {
        matches!(parent, Parent::Node(node) if matches!(self.batch.nodes[node as usize].value, Value::Array(_)))
    }

    /// The container that the names in `way` lead to, made where it is missing if `make`.
    fn walk(&mut self, metadata: bool, way: &[Box<str>], make: bool) -> Option<Parent> {
        let mut parent = if metadata { Parent::Metadata(self.index) } else { Parent::Fields(self.index) };
        for name in way {
            let list = self.batch.head(parent);
            let found = if self.is_array(parent) {
                Some(self.batch.nth(list, name)?)
            } else {
                self.batch.find(list, name.as_bytes())
            };
            let node = match found {
                Some(node) => node,
                None if make => {
                    let key = self.batch.write(name.as_bytes());
                    self.batch.append(parent, key, Value::Object(List(NONE)))
                }
                None => return None,
            };
            let (list, keyed) = self.batch.expand(self.batch.nodes[node as usize].value)?;
            self.batch.nodes[node as usize].value = if keyed { Value::Object(list) } else { Value::Array(list) };
            parent = Parent::Node(node);
        }
        Some(parent)
    }
}

/// A float as JSON: always with a decimal point or an exponent; what JSON cannot say is null.
fn float_text(number: f64) -> String {
    if number.is_finite() { format!("{number:?}") } else { "null".to_string() }
}

#[cfg(test)]
pub mod tests {
    use super::*;

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
