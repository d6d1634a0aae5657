//! Lists of a batch: the members of objects and the elements of arrays, as nodes in a chain, and their names.

use super::{Batch, List, NONE, Span, Value};
use crate::field::sort;
use crate::json;

/// A key, a value and the next node, put in pieces as they are read: a key or value that was written otherwise than it
/// is read again is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) name: Span,
    /// Of a list the first node, as the start.
    place: Span,
    pub(super) next: u32,
    kind: Kind,
    is_quoted: bool,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Json,
    Object,
    Array,
}

impl Node {
    pub(super) fn new(key: Key, value: Value, next: u32) -> Node {
        let mut node = Node { name: key.name, place: key.name, next, kind: Kind::Text, is_quoted: key.is_quoted };
        node.set_value(value);
        node
    }

    pub(super) fn key(&self) -> Key {
        Key { name: self.name, is_quoted: self.is_quoted }
    }

    pub(super) fn set_key(&mut self, key: Key) {
        (self.name, self.is_quoted) = (key.name, key.is_quoted);
    }

    pub(super) fn value(&self) -> Value {
        match self.kind {
            Kind::Text => Value::Text(self.place),
            Kind::Json => Value::Json(self.place),
            Kind::Object => Value::Object(List(self.place.start)),
            Kind::Array => Value::Array(List(self.place.start)),
        }
    }

    pub(super) fn set_value(&mut self, value: Value) {
        let of = |list: List| Span { start: list.0, len: 0 };
        (self.kind, self.place) = match value {
            Value::Text(span) => (Kind::Text, span),
            Value::Json(span) => (Kind::Json, span),
            Value::Object(list) => (Kind::Object, of(list)),
            Value::Array(list) => (Kind::Array, of(list)),
        };
    }
}

/// The name of a member; empty in arrays.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key {
    pub(super) name: Span,
    /// It stands between quotes, with nothing in it that a JSON string would escape.
    pub(super) is_quoted: bool,
}

/// A bit for each name in a list, and where the list ends: nearly always enough to know that a name is not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) bits: u64,
    pub(super) last: u32,
}

/// The bit of names of one [`sort`].
fn bit(sorted: u8) -> u64 {
    1 << (sorted % 64)
}

#[derive(Clone, Copy)]
pub(super) enum Parent {
    Fields(usize),
    Metadata(usize),
    Node(u32),
}

impl Batch {
    /// Writes the name of a field, if it does not stand there already.
    pub(super) fn write_name(&mut self, name: &[u8]) -> Key {
        self.write_sorted_name(name, sort(name))
    }

    #[inline(always)]
    fn write_sorted_name(&mut self, name: &[u8], sorted: u8) -> Key {
        if let Some(known) = self.keys.get(usize::from(sorted))
            && known.name.len as usize == name.len()
            && self.bytes(known.name) == name
        {
            return *known;
        }
        self.write_new_name(name, sorted)
    }

    fn write_new_name(&mut self, name: &[u8], sorted: u8) -> Key {
        let is_quoted = json::is_plain(name);
        let (before, behind): (&[u8], &[u8]) = if is_quoted { (b"\"", b"\":") } else { (b"", b"") };
        self.write(before);
        let name = self.write(name);
        self.write(behind);
        let key = Key { name, is_quoted };
        self.keys.resize(256, Key::default());
        self.keys[usize::from(sorted)] = key;
        key
    }

    pub(super) fn find(&self, list: List, key: &[u8]) -> Option<u32> {
        self.seek(list, key).ok()
    }

    pub(super) fn nth(&self, list: List, index: &str) -> Option<u32> {
        let wanted = array_index(index, || self.chain(list).count())?;
        self.chain(list).nth(wanted)
    }

    pub(super) fn chain(&self, list: List) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(list.0).filter(|n| *n != NONE), |n| {
            Some(self.nodes[*n as usize].next).filter(|n| *n != NONE)
        })
    }

    pub(super) fn head(&self, parent: Parent) -> List {
        match parent {
            Parent::Fields(event) => self.events[event].fields,
            Parent::Metadata(event) => self.events[event].metadata,
            Parent::Node(node) => match self.nodes[node as usize].value() {
                Value::Object(list) | Value::Array(list) => list,
                _ => List(NONE),
            },
        }
    }

    pub(super) fn set_head(&mut self, parent: Parent, head: List) {
        match parent {
            Parent::Fields(event) => (self.events[event].fields, self.events[event].names) = (head, None),
            Parent::Metadata(event) => self.events[event].metadata = head,
            Parent::Node(node) => {
                let node = &mut self.nodes[node as usize];
                match node.value() {
                    Value::Object(_) => node.set_value(Value::Object(head)),
                    Value::Array(_) => node.set_value(Value::Array(head)),
                    _ => {}
                }
            }
        }
    }

    pub(super) fn append(&mut self, parent: Parent, key: Key, value: Value) -> u32 {
        let last = self.chain(self.head(parent)).last();
        self.append_after(last, parent, key, value)
    }

    /// The node of that key, or the last one.
    pub(super) fn seek(&self, list: List, key: &[u8]) -> Result<u32, Option<u32>> {
        let (mut at, mut last) = (list.0, None);
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.name.len as usize == key.len() && self.bytes(node.name) == key {
                return Ok(at);
            }
            last = Some(at);
            at = node.next;
        }
        Err(last)
    }

    /// As [`Batch::seek`], among what a container holds.
    pub(super) fn seek_in(&self, parent: Parent, key: &[u8]) -> Result<u32, Option<u32>> {
        match parent {
            Parent::Fields(event) => match self.events[event].names {
                Some(Names { bits, last }) if bits & bit(sort(key)) == 0 => Err((last != NONE).then_some(last)),
                _ => self.seek(self.head(parent), key),
            },
            _ => self.seek(self.head(parent), key),
        }
    }

    pub(super) fn append_after(&mut self, last: Option<u32>, parent: Parent, key: Key, value: Value) -> u32 {
        let new = self.nodes.len() as u32;
        self.nodes.push(Node::new(key, value, NONE));
        let names = match parent {
            Parent::Fields(event) => self.events[event].names,
            _ => None,
        };
        match last {
            Some(last) => self.nodes[last as usize].next = new,
            None => self.set_head(parent, List(new)),
        }
        if let (Parent::Fields(event), Some(Names { bits, .. })) = (parent, names) {
            let bits = bits | bit(sort(self.bytes(key.name)));
            self.events[event].names = Some(Names { bits, last: new });
        }
        new
    }

    /// Adds a field to an event if it is sure that it has none of that name: what nearly all are, and short for that.
    #[inline(always)]
    pub(super) fn append_new(&mut self, event: usize, (name, sorted): (&str, u8), value: Value) -> bool {
        let Some(Names { bits, last }) = self.events[event].names else { return false };
        if bits & bit(sorted) != 0 {
            return false;
        }
        let key = self.write_sorted_name(name.as_bytes(), sorted);
        let new = self.nodes.len() as u32;
        self.nodes.push(Node::new(key, value, NONE));
        match self.nodes.get_mut(last as usize) {
            Some(last) => last.next = new,
            None => self.events[event].fields = List(new),
        }
        self.events[event].names = Some(Names { bits: bits | bit(sorted), last: new });
        true
    }

    pub(super) fn append_named(&mut self, last: Option<u32>, parent: Parent, name: &str, value: Value) {
        let key = self.write_name(name.as_bytes());
        self.append_after(last, parent, key, value);
    }

    pub(super) fn unlink(&mut self, parent: Parent, node: u32) {
        if let Parent::Fields(event) = parent {
            self.events[event].names = None;
        }
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
    pub(super) fn expand(&mut self, value: Value) -> Option<(List, bool)> {
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
            let key = Key { name: *key, is_quoted: keyed };
            self.nodes.push(Node::new(key, Value::Json(*value), next));
        }
        let list = List(if found.is_empty() { NONE } else { first });
        self.scratch = found;
        self.unescape_keys(list);
        Some((list, keyed))
    }

    /// The key that the text between two quotes is.
    pub(super) fn plain_key(&mut self, key: Span) -> Key {
        if !self.bytes(key).contains(&b'\\') {
            return Key { name: key, is_quoted: true };
        }
        let plain = json::unescape(self.bytes(key)).into_owned();
        Key { name: self.write(plain.as_bytes()), is_quoted: false }
    }

    pub(super) fn unescape_keys(&mut self, list: List) {
        let mut at = list.0;
        while at != NONE {
            let node = self.nodes[at as usize];
            if node.is_quoted {
                let key = self.plain_key(node.name);
                self.nodes[at as usize].set_key(key);
            }
            at = node.next;
        }
    }

    /// Writes `"name":`, which nearly always stands there so.
    pub(super) fn write_key(&self, key: Key, out: &mut Vec<u8>) {
        if key.is_quoted {
            let around = self.bytes(Span { start: key.name.start - 1, len: key.name.len + 3 });
            if around.ends_with(b":") {
                return out.extend_from_slice(around);
            }
        }
        json::write_string(self.bytes(key.name), out);
        out.push(b':');
    }
}

/// The place that `[0]` or `[-1]` means in an array.
pub(super) fn array_index(text: &str, len: impl FnOnce() -> usize) -> Option<usize> {
    let index: i64 = text.parse().ok()?;
    if index >= 0 { usize::try_from(index).ok() } else { len().checked_sub(index.unsigned_abs() as usize) }
}
