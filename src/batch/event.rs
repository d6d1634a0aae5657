//! One event of a batch, to read and to change.

use std::collections::HashMap;

use super::{
    Batch, Event, Fate, HEAD, Key, List, NONE, Node, Parent, Seq, Source, Span, Value, View, array_index, write_line,
};
use crate::field::FieldRef;
use crate::json;
use crate::time::Time;

/// Up to so many members are looked for one by one. A line may have a hundred thousand: those are found by hash.
const FEW: usize = 32;

/// The members of a list by their keys, and the last one.
struct Known {
    places: HashMap<Box<[u8]>, u32>,
    last: Option<u32>,
}

impl Known {
    /// None where only a few are to be set.
    fn of(batch: &Batch, parent: Parent, count: usize) -> Option<Known> {
        let list = || batch.chain(batch.head(parent));
        let place = |at: u32| (batch.bytes(batch.nodes[at as usize].name).into(), at);
        (count > FEW).then(|| Known { places: list().map(place).collect(), last: list().last() })
    }
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

/// One event, to read.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    pub(super) batch: &'a Batch,
    pub(super) index: usize,
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
    pub fn part(&self) -> Option<(u32, &'a [u8])> {
        self.event().part.map(|part| (part.number, self.batch.bytes(part.record)))
    }

    /// Whether a filter made it of another event.
    pub fn is_made(&self) -> bool {
        self.event().part.is_some_and(|part| part.is_made)
    }

    /// Whether filters made it, or others of it.
    pub fn has_family(&self) -> bool {
        self.event().born > 0 || self.is_made()
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
        self.found_time().map(|(time, _)| time)
    }

    /// The time that stands in `@timestamp`, and whether as RFC 3339: all that every engine reads the same way.
    pub fn found_time(&self) -> Option<(Time, bool)> {
        if let Some(time) = self.event().time {
            return Some((time, true));
        }
        let text = |text: &[u8]| {
            let exact = Time::rfc3339(text);
            exact.or_else(|| crate::stamp::from_text(text)).map(|time| (time, exact.is_some()))
        };
        let node = self.batch.seek_in(Parent::Fields(self.index), b"@timestamp").ok()?;
        match self.batch.nodes[node as usize].value() {
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
        if let Some(part) = event.part {
            out.extend_from_slice(&part.number.to_be_bytes());
            if part.is_made {
                out.extend_from_slice(self.batch.bytes(part.record));
            }
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
    pub(super) batch: &'a mut Batch,
    pub(super) index: usize,
}

impl EventMut<'_> {
    pub fn read(&self) -> EventRef<'_> {
        EventRef { batch: self.batch, index: self.index }
    }

    pub fn get(&self, field: &FieldRef) -> Option<View<'_>> {
        self.read().get(field)
    }

    /// The value as it is read.
    pub fn view(&self, value: Value) -> View<'_> {
        self.batch.view(value)
    }

    /// How many bytes are stored of it.
    pub fn source_bytes(&mut self) -> usize {
        let mut draft = self.take_draft();
        self.read().write_source(&mut draft);
        let bytes = draft.len();
        self.keep_draft(draft);
        bytes
    }

    /// How many events its batch has, with those made in it.
    pub fn batch_len(&self) -> usize {
        self.batch.len()
    }

    /// Another event of its batch.
    pub fn other(&mut self, index: usize) -> EventMut<'_> {
        EventMut { batch: self.batch, index }
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

    /// Sets a field to a time as text.
    pub fn set_iso(&mut self, field: &FieldRef, time: Time) -> bool {
        let mut draft = self.take_draft();
        time.write_iso(&mut draft);
        let text = Value::Text(self.batch.write(&draft));
        self.keep_draft(draft);
        let is_set = self.put(field, text);
        if is_set && field.is_timestamp() {
            self.set_time(time);
        }
        is_set
    }

    /// Sets a field to text that stands in the batch already.
    pub fn set_span(&mut self, field: &FieldRef, text: Span) -> bool {
        self.put(field, Value::Text(text))
    }

    /// Puts a value that [`EventMut::take`] gave, or a new one.
    pub fn put(&mut self, field: &FieldRef, value: Value) -> bool {
        if let Some(name) = field.top_name()
            && self.batch.append_new(self.index, name, value)
        {
            self.touch(field);
            return true;
        }
        let Some((last, way)) = field.path().split_last() else { return false };
        let parent = match self.top(field.is_metadata()) {
            top if way.is_empty() => top,
            top => match self.walk(top, way, true) {
                Some(parent) => parent,
                None => return false,
            },
        };
        if !field.is_metadata() {
            self.touch(field);
        }
        if self.is_array(parent) {
            let list = self.batch.head(parent);
            let len = self.batch.chain(list).count();
            return match array_index(last, || len) {
                Some(at) if at < len => {
                    let node = self.batch.chain(list).nth(at);
                    if let Some(node) = node {
                        self.batch.nodes[node as usize].set_value(value);
                    }
                    true
                }
                Some(at) if at == len => {
                    self.batch.append(parent, Key::default(), value);
                    true
                }
                _ => false,
            };
        }
        match self.batch.seek_in(parent, last.as_bytes()) {
            Ok(node) => self.batch.nodes[node as usize].set_value(value),
            Err(end) => self.batch.append_named(end, parent, last, value),
        }
        true
    }

    /// Puts a value where there is none yet, or null. False if there is one.
    pub fn put_absent(&mut self, field: &FieldRef, value: Value) -> bool {
        let Some((name, sorted)) = field.top_name() else {
            return matches!(self.get(field), None | Some(View::Null)) && self.put(field, value);
        };
        if self.batch.append_new(self.index, (name, sorted), value) {
            self.touch(field);
            return true;
        }
        let parent = Parent::Fields(self.index);
        match self.batch.seek_in(parent, name.as_bytes()) {
            Ok(node) if !matches!(self.batch.view(self.batch.nodes[node as usize].value()), View::Null) => {
                return false;
            }
            Ok(node) => self.batch.nodes[node as usize].set_value(value),
            Err(end) => self.batch.append_named(end, parent, name, value),
        }
        self.touch(field);
        true
    }

    /// The value of a field, to be put elsewhere in the same event or in one that is made of it.
    pub fn peek(&mut self, field: &FieldRef) -> Option<Value> {
        let (last, way) = field.path().split_last()?;
        if !way.is_empty() {
            self.get(field)?;
        }
        let parent = self.walk(self.top(field.is_metadata()), way, false)?;
        let list = self.batch.head(parent);
        let node =
            if self.is_array(parent) { self.batch.nth(list, last)? } else { self.batch.find(list, last.as_bytes())? };
        Some(self.batch.nodes[node as usize].value())
    }

    /// The elements of an array, to be put elsewhere, each once; none if the value is no array.
    pub fn elements(&mut self, value: Value) -> Option<Vec<Value>> {
        let (list, false) = self.batch.expand(value)? else { return None };
        Some(self.batch.chain(list).map(|node| self.batch.nodes[node as usize].value()).collect())
    }

    /// Where the text of a value stands, without escapes; none if it is no text.
    pub fn text_span(&mut self, value: Value) -> Option<Span> {
        match value {
            Value::Text(span) => Some(span),
            Value::Json(span) => match self.batch.bytes(span) {
                [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => {
                    Some(Span { start: span.start + 1, len: span.len - 2 })
                }
                quoted @ [b'"', ..] => {
                    let text = View::of_json(quoted).as_text()?.to_owned();
                    Some(self.batch.write(text.as_bytes()))
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Writes text that fields can be set to.
    pub fn write(&mut self, text: &[u8]) -> Span {
        self.batch.write(text)
    }

    /// Bytes of the batch.
    pub fn bytes(&self, span: Span) -> &[u8] {
        self.batch.bytes(span)
    }

    /// Removes a field and gives its value, to be put elsewhere in the same event.
    pub fn take(&mut self, field: &FieldRef) -> Option<Value> {
        let (last, way) = field.path().split_last()?;
        self.get(field)?;
        let parent = self.walk(self.top(field.is_metadata()), way, false)?;
        let list = self.batch.head(parent);
        let node =
            if self.is_array(parent) { self.batch.nth(list, last)? } else { self.batch.find(list, last.as_bytes())? };
        if !field.is_metadata() {
            self.touch(field);
        }
        let value = self.batch.nodes[node as usize].value();
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
        let parent = Parent::Fields(self.index);
        let mut known = Known::of(self.batch, parent, entries.len());
        for entry in entries {
            let (key, value) = (self.batch.plain_key(place(entry.key)), Value::Json(place(entry.value)));
            if self.batch.bytes(key.name) == b"@metadata" {
                self.absorb_metadata(value);
            } else {
                self.put_member(parent, key, value, known.as_mut());
            }
        }
    }

    fn absorb_metadata(&mut self, value: Value) {
        let Some((list, true)) = self.batch.expand(value) else { return };
        let members: Vec<Node> = self.batch.chain(list).map(|n| self.batch.nodes[n as usize]).collect();
        let parent = Parent::Metadata(self.index);
        let mut known = Known::of(self.batch, parent, members.len());
        for member in members {
            self.put_member(parent, member.key(), member.value(), known.as_mut());
        }
    }

    fn put_member(&mut self, parent: Parent, key: Key, value: Value, known: Option<&mut Known>) {
        let batch = &mut *self.batch;
        let Some(known) = known else {
            match batch.seek_in(parent, batch.bytes(key.name)) {
                Ok(node) => batch.nodes[node as usize].set_value(value),
                Err(end) => drop(batch.append_after(end, parent, key, value)),
            }
            return;
        };
        if let Some(node) = known.places.get(batch.bytes(key.name)) {
            batch.nodes[*node as usize].set_value(value);
            return;
        }
        let new = batch.append_after(known.last, parent, key, value);
        known.last = Some(new);
        known.places.insert(batch.bytes(key.name).into(), new);
    }

    /// Fixes the event's time, once `@timestamp` is known to say the same, as RFC 3339.
    pub fn set_time(&mut self, time: Time) {
        self.batch.events[self.index].time = Some(time);
    }

    fn touch(&mut self, field: &FieldRef) {
        let event = &mut self.batch.events[self.index];
        event.json = None;
        let is_within = || field.path().first().is_some_and(|name| name.as_ref() == "@timestamp");
        if field.is_timestamp() || field.top_name().is_none() && is_within() {
            event.time = None;
        }
    }

    fn is_array(&self, parent: Parent) -> bool {
        matches!(parent, Parent::Node(node) if matches!(self.batch.nodes[node as usize].value(), Value::Array(_)))
    }

    fn top(&self, metadata: bool) -> Parent {
        if metadata { Parent::Metadata(self.index) } else { Parent::Fields(self.index) }
    }

    /// The container that the names in `way` lead to, made where it is missing if `make`.
    fn walk(&mut self, top: Parent, way: &[Box<str>], make: bool) -> Option<Parent> {
        let mut parent = top;
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
                    let key = self.batch.write_name(name.as_bytes());
                    self.batch.append(parent, key, Value::Object(List(NONE)))
                }
                None => return None,
            };
            let (list, keyed) = self.batch.expand(self.batch.nodes[node as usize].value())?;
            self.batch.nodes[node as usize].set_value(if keyed { Value::Object(list) } else { Value::Array(list) });
            parent = Parent::Node(node);
        }
        Some(parent)
    }
}

/// A float as JSON: always with a decimal point or an exponent; what JSON cannot say is null.
fn float_text(number: f64) -> String {
    if number.is_finite() { format!("{number:?}") } else { "null".to_string() }
}
