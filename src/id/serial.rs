//! What is hashed: the bytes of an event that its digest is made of. `docs/ids.md` defines every byte, because what
//! is stored under an id must be found again by next year's version.
//!
//! Without `source`, the record as it was read. With one text field, exactly its bytes. With several fields, or a
//! value that is no text, by `serialization`: `v1`, which no two different lists of values share, or Logstash's text.

use super::Refused;
use super::digest::{DIGEST_BYTES_MAX, Digest};
use super::lanes::LANES;
use super::logstash::Generation;
use super::number;
use super::sorted::Sort;
use crate::batch::{Batch, EventRef, Fate, View};
use crate::field::FieldRef;
use crate::time::Time;
use std::borrow::Cow;

/// Opens everything that is not the plain bytes of a text: it stands nowhere in UTF-8.
const MARK: u8 = 0xff;
const V1: u8 = 1;
const KEEP: u8 = b'k';
const PART: u8 = b'p';
const APART: u8 = b'a';

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serialization {
    V1,
    Logstash(Generation),
}

impl Serialization {
    pub const NAMES: [&str; 3] = ["v1", "logstash-3.5", "logstash-3.4"];

    pub fn parse(name: &str) -> Option<Serialization> {
        match name {
            "v1" => Some(Serialization::V1),
            "logstash-3.5" => Some(Serialization::Logstash(Generation::V35)),
            "logstash-3.4" => Some(Serialization::Logstash(Generation::V34)),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Serialization::V1 => "v1",
            Serialization::Logstash(Generation::V35) => "logstash-3.5",
            Serialization::Logstash(Generation::V34) => "logstash-3.4",
        }
    }
}

/// Buffers a worker keeps from event to event.
#[derive(Default)]
pub struct Scratch {
    pub bytes: Vec<u8>,
    pub sort: Sort,
}

/// The digests of a batch's events, by their place in the batch.
#[derive(Default)]
pub struct Digests {
    bytes: Vec<u8>,
    digest_bytes: usize,
    /// In order.
    refused: Vec<(usize, Refused)>,
}

impl Digests {
    fn reset(&mut self, events: usize, digest_bytes: usize) {
        self.refused.clear();
        self.digest_bytes = digest_bytes;
        self.bytes.clear();
        self.bytes.resize(events * digest_bytes, 0);
    }

    /// The digest of a live event.
    pub fn get(&self, index: usize) -> Result<&[u8], &Refused> {
        match self.refused.binary_search_by_key(&index, |(index, _)| *index) {
            Ok(at) => Err(&self.refused[at].1),
            Err(_) => Ok(&self.bytes[index * self.digest_bytes..(index + 1) * self.digest_bytes]),
        }
    }
}

/// Texts that wait to be hashed together, each with its event's place.
#[derive(Default)]
struct Group<'a> {
    texts: Vec<(usize, Text<'a>)>,
    /// Those that do not stand in the batch.
    own: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Text<'a> {
    Batch(&'a [u8]),
    /// From where to where in `own`.
    Own(usize, usize),
}

impl<'a> Group<'a> {
    fn own(&mut self, text: &[u8]) -> Text<'a> {
        let start = self.own.len();
        self.own.extend_from_slice(text);
        Text::Own(start, self.own.len())
    }

    /// Hashes what waits and empties the group.
    fn digest(&mut self, digest: &Digest, out: &mut Digests) {
        let mut texts: [&[u8]; LANES] = [&[]; LANES];
        for (place, (_, text)) in texts.iter_mut().zip(&self.texts) {
            *place = match *text {
                Text::Batch(text) => text,
                Text::Own(start, end) => &self.own[start..end],
            };
        }
        digest.digest_group(&texts[..self.texts.len().min(LANES)], |at, digest| {
            let start = self.texts[at].0 * out.digest_bytes;
            out.bytes[start..start + digest.len()].copy_from_slice(digest);
        });
        self.texts.clear();
        self.own.clear();
    }
}

/// What of an event is hashed.
pub struct Content {
    source: Source,
    serialization: Serialization,
    /// `repeats = "keep"`: the place in the source is hashed too.
    keep: bool,
}

enum Source {
    /// The record as it was read.
    Raw,
    One(FieldRef),
    /// In the order in which they are written.
    Several(Vec<FieldRef>),
}

impl Content {
    /// `source` as configured; none: the event's raw bytes.
    pub fn new(source: Option<Vec<FieldRef>>, serialization: Serialization, keep: bool) -> Result<Content, String> {
        let source = match source {
            None => Source::Raw,
            Some(mut fields) => match (fields.pop(), fields.len()) {
                (None, _) => return Err("source names no field".to_owned()),
                (Some(only), 0) => Source::One(only),
                (Some(last), _) => {
                    fields.push(last);
                    if serialization != Serialization::V1 {
                        fields.sort_by(|a, b| a.as_str().cmp(b.as_str()));
                    }
                    Source::Several(fields)
                }
            },
        };
        Ok(Content { source, serialization, keep })
    }

    /// The digests of a whole batch's live events, several at once where the method gains by it.
    pub fn digest_batch(&self, batch: &Batch, digest: &Digest, scratch: &mut Scratch, out: &mut Digests) {
        out.reset(batch.len(), digest.method().bytes());
        let mut group = Group::default();
        for index in 0..batch.len() {
            let event = batch.event(index);
            if !matches!(event.fate(), Fate::Live) {
                continue;
            }
            let text = match self.in_place(&event) {
                Some(text) => Text::Batch(text),
                None => match self.write(&event, scratch) {
                    Ok(()) => group.own(&scratch.bytes),
                    Err(refused) => {
                        out.refused.push((index, refused));
                        continue;
                    }
                },
            };
            group.texts.push((index, text));
            if group.texts.len() >= digest.group() {
                group.digest(digest, out);
            }
        }
        group.digest(digest, out);
    }

    /// What is hashed, if it stands in the batch as it is.
    fn in_place<'a>(&self, event: &EventRef<'a>) -> Option<&'a [u8]> {
        let text = match &self.source {
            _ if self.keep => None,
            Source::Raw if event.part().is_some() => None,
            Source::Raw => Some(event.raw()),
            Source::One(field) if !field.is_timestamp() => match event.get(field) {
                Some(View::Text(Cow::Borrowed(text))) => Some(text.as_bytes()),
                _ => None,
            },
            _ => None,
        };
        text.filter(|text| !text.is_empty())
    }

    /// The digest of an event. Text in one field is hashed where it stands.
    pub fn digest(
        &self,
        event: &EventRef<'_>,
        digest: &Digest,
        scratch: &mut Scratch,
        out: &mut [u8; DIGEST_BYTES_MAX],
    ) -> Result<usize, Refused> {
        if let Some(text) = self.in_place(event) {
            return Ok(digest.digest(text, out));
        }
        self.write(event, scratch)?;
        Ok(digest.digest(&scratch.bytes, out))
    }

    /// Writes the bytes that are hashed to `scratch.bytes`.
    pub fn write(&self, event: &EventRef<'_>, scratch: &mut Scratch) -> Result<(), Refused> {
        let Scratch { bytes, sort } = scratch;
        bytes.clear();
        let full = match &self.source {
            Source::Raw => {
                match event.part() {
                    None => bytes.extend_from_slice(event.raw()),
                    Some((number, record)) => part(number, record, bytes),
                }
                !event.raw().is_empty()
            }
            Source::One(field) => self.one(event, field, sort, bytes),
            Source::Several(fields) => self.several(event, fields, sort, bytes),
        };
        if !full {
            return Err(Refused::IdMissing { fields: self.fields() });
        }
        if self.keep {
            keep(event, bytes);
        }
        Ok(())
    }

    /// The digest of an event that a filter made, where without its place it would be that of another.
    pub fn digest_apart(
        &self,
        event: &EventRef<'_>,
        digest: &Digest,
        scratch: &mut Scratch,
        out: &mut [u8; DIGEST_BYTES_MAX],
    ) -> Result<usize, Refused> {
        self.write(event, scratch)?;
        apart(event, &mut scratch.bytes);
        Ok(digest.digest(&scratch.bytes, out))
    }

    /// One field; says whether there was anything to hash.
    fn one(&self, event: &EventRef<'_>, field: &FieldRef, sort: &mut Sort, out: &mut Vec<u8>) -> bool {
        match (self.serialization, event.get(field)) {
            (_, None | Some(View::Null)) => false,
            (_, Some(View::Text(text))) if time_of(event, field).is_none() => {
                out.extend_from_slice(text.as_bytes());
                !text.is_empty()
            }
            (Serialization::V1, Some(value)) => {
                v1_open(out);
                v1_field(event, field, sort, out);
                !value.is_empty()
            }
            (Serialization::Logstash(generation), Some(value)) => {
                logstash_value(event, field, Some(&value), generation, sort, out);
                !value.is_empty() && !out.is_empty()
            }
        }
    }

    /// Several fields; says whether at least one of them has a value that is not empty.
    fn several(&self, event: &EventRef<'_>, fields: &[FieldRef], sort: &mut Sort, out: &mut Vec<u8>) -> bool {
        match self.serialization {
            Serialization::V1 => v1(event, fields, sort, out),
            Serialization::Logstash(generation) => logstash(event, fields, generation, sort, out),
        }
        fields.iter().any(|field| event.get(field).is_some_and(|value| !value.is_empty()))
    }

    fn fields(&self) -> String {
        match &self.source {
            Source::Raw => "the record".to_owned(),
            Source::One(field) => field.as_str().to_owned(),
            Source::Several(fields) => {
                let names: Vec<&str> = fields.iter().map(FieldRef::as_str).collect();
                format!("each of {}", names.join(", "))
            }
        }
    }
}

/// The event's time, if that is what `field` is.
fn time_of(event: &EventRef<'_>, field: &FieldRef) -> Option<Time> {
    if field.is_timestamp() { event.time() } else { None }
}

/// Puts the place in the source behind the content: `0xFF k`, the content's length, the content, the place.
fn keep(event: &EventRef<'_>, bytes: &mut Vec<u8>) {
    wrap(KEEP, bytes);
    event.position(bytes);
}

/// Puts the place among the events of its record behind the content: `0xFF a`, the content's length, the content,
/// and what [`part`] writes.
fn apart(event: &EventRef<'_>, bytes: &mut Vec<u8>) {
    wrap(APART, bytes);
    if let Some((number, record)) = event.part() {
        part(number, record, bytes);
    }
}

/// Puts the mark, the kind and the content's length before the content.
fn wrap(kind: u8, bytes: &mut Vec<u8>) {
    let content = bytes.len();
    bytes.extend_from_slice(&[MARK, kind]);
    length(content, bytes);
    let front = bytes.len() - content;
    bytes.rotate_right(front);
}

/// Several fields by `v1`: the mark, and then each field with its path and its value, in the order given.
pub fn v1(event: &EventRef<'_>, fields: &[FieldRef], sort: &mut Sort, out: &mut Vec<u8>) {
    v1_open(out);
    for field in fields {
        v1_field(event, field, sort, out);
    }
}

fn v1_open(out: &mut Vec<u8>) {
    out.extend_from_slice(&[MARK, V1]);
}

fn v1_field(event: &EventRef<'_>, field: &FieldRef, sort: &mut Sort, out: &mut Vec<u8>) {
    v1_path(field, out);
    match (time_of(event, field), event.get(field)) {
        (_, None) => out.push(b'-'),
        (None, Some(value)) => v1_value(&value, sort, out),
        (Some(time), _) => {
            out.push(b'T');
            out.extend_from_slice(&time.secs.to_be_bytes());
            out.extend_from_slice(&time.nanos.to_be_bytes());
        }
    }
}

/// The path in its one spelling, every name in brackets: its length and its bytes.
fn v1_path(field: &FieldRef, out: &mut Vec<u8>) {
    let (opening, names) = (if field.is_metadata() { "[@metadata]" } else { "" }, field.path());
    length(opening.len() + names.iter().map(|name| name.len() + 2).sum::<usize>(), out);
    out.extend_from_slice(opening.as_bytes());
    for name in names {
        out.push(b'[');
        out.extend_from_slice(name.as_bytes());
        out.push(b']');
    }
}

fn v1_value(value: &View<'_>, sort: &mut Sort, out: &mut Vec<u8>) {
    match value {
        View::Null => out.push(b'z'),
        View::Bool(true) => out.push(b't'),
        View::Bool(false) => out.push(b'f'),
        View::Number(text) => number::exact(text, out),
        View::Text(text) => {
            out.push(b's');
            v1_text(text, out);
        }
        View::Array(items) => {
            out.push(b'[');
            length(items.entries().count(), out);
            items.entries().for_each(|(_, item)| v1_value(&item, sort, out));
        }
        View::Object(members) => {
            out.push(b'{');
            length(members.entries().count(), out);
            sort.write(members, v1_member, out);
        }
    }
}

fn v1_member(key: &str, value: &View<'_>, sort: &mut Sort, out: &mut Vec<u8>) {
    v1_text(key, out);
    v1_value(value, sort, out);
}

fn v1_text(text: &str, out: &mut Vec<u8>) {
    length(text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// One of several events of a record: `0xFF p`, the SHA-256 of the record, which part of it (four bytes).
fn part(number: u32, record: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[MARK, PART]);
    out.extend_from_slice(record);
    out.extend_from_slice(&number.to_be_bytes());
}

/// Seven bits a byte, the lowest first; all but the last have the highest bit set (LEB128).
fn length(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Several fields as Logstash joins them: `|name|value` each, in the order given, and a pipe.
pub fn logstash(event: &EventRef<'_>, fields: &[FieldRef], generation: Generation, sort: &mut Sort, out: &mut Vec<u8>) {
    for field in fields {
        out.push(b'|');
        out.extend_from_slice(field.as_str().as_bytes());
        out.push(b'|');
        let value = event.get(field);
        logstash_value(event, field, value.as_ref(), generation, sort, out);
    }
    out.push(b'|');
}

/// One value as Logstash's text. Its events have an `@version` of 1, which ours lack.
pub fn logstash_value(
    event: &EventRef<'_>,
    field: &FieldRef,
    value: Option<&View<'_>>,
    generation: Generation,
    sort: &mut Sort,
    out: &mut Vec<u8>,
) {
    match (time_of(event, field), value) {
        (Some(time), _) => time.write_iso(out),
        (None, Some(value)) => generation.write(value, sort, out),
        (None, None) if is_version(field) => out.push(b'1'),
        (None, None) => {}
    }
}

/// Whether this is the field that every event of Logstash has and ours do not.
pub fn is_version(field: &FieldRef) -> bool {
    !field.is_metadata() && matches!(field.path(), [name] if name.as_ref() == "@version")
}
