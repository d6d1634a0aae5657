//! Values as they are read, wherever they stand: in JSON text or in the batch's nodes.

use std::borrow::Cow;

use super::{Batch, List, NONE, Value, array_index, write_line};
use crate::json;

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

    /// Of a list the first element, of anything else itself.
    pub fn or_first(self) -> Option<View<'a>> {
        match self {
            View::Array(items) => items.entries().next().map(|(_, first)| first),
            one => Some(one),
        }
    }

    /// Whether there is nothing in it: null, or a text, array or object without content.
    pub fn is_empty(&self) -> bool {
        match self {
            View::Null => true,
            View::Text(text) => text.is_empty(),
            View::Array(seq) | View::Object(seq) => seq.is_empty(),
            View::Bool(_) | View::Number(_) => false,
        }
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

    /// Writes the value as JSON with each of its texts as `edit` writes it; keys stay. `edit` says whether it changed
    /// the text, and the answer is whether one was. What containers inside of lists hold is left alone unless `deep`.
    pub fn write_edited(&self, deep: bool, out: &mut Vec<u8>, edit: &dyn Fn(&str, &mut Vec<u8>) -> bool) -> bool {
        let (seq, brackets) = match self {
            View::Text(text) => return edit(text, out),
            View::Array(items) => (items, (b'[', b']')),
            View::Object(members) => (members, (b'{', b'}')),
            other => {
                other.write_json(out);
                return false;
            }
        };
        let is_list = matches!(self, View::Array(_));
        let mut is_changed = false;
        out.push(brackets.0);
        for (at, (key, value)) in seq.entries().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            if !is_list {
                json::write_string(key.as_bytes(), out);
                out.push(b':');
            }
            match value {
                View::Array(_) | View::Object(_) if is_list && !deep => value.write_json(out),
                value => is_changed |= value.write_edited(deep, out, edit),
            }
        }
        out.push(brackets.1);
        is_changed
    }

    pub(super) fn member(&self, name: &str) -> Option<View<'a>> {
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
                batch.find(*list, name.as_bytes()).map(|n| batch.view(batch.nodes[n as usize].value()))
            }
            View::Array(Seq::Nodes { batch, list }) => {
                batch.nth(*list, name).map(|n| batch.view(batch.nodes[n as usize].value()))
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
                Some((String::from_utf8_lossy(batch.bytes(node.name)), batch.view(node.value())))
            }
        }
    }
}
