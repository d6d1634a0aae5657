//! Events that a filter makes of one event: each with its own copy of the fields, and with its place among them, so
//! that each has an id of its own whenever the record is read again.

use sha2::{Digest, Sha256};

use crate::field::FieldRef;

use super::{Batch, Event, EventMut, List, NONE, Node, Part, Span, Value};

impl EventMut<'_> {
    /// Makes another event of this one, to stand behind it and those made of it before; [`Batch::arrange`] puts it
    /// there.
    pub fn copy(&mut self) -> EventMut<'_> {
        let record = self.batch.digest_of(self.index);
        self.copy_of(record)
    }

    /// As [`EventMut::copy`], `count` times: `each` is told the copies and their numbers. This event is the first of
    /// them.
    pub fn multiply(&mut self, count: usize, mut each: impl FnMut(&mut EventMut<'_>, usize)) {
        let record = self.batch.digest_of(self.index);
        let first = self.batch.events[self.index].born;
        self.batch.events[self.index].born += 1;
        for number in 1..count {
            each(&mut self.copy_of(record), number);
        }
        let event = &mut self.batch.events[self.index];
        event.part = Some(Part { number: first, record, is_made: true });
        event.born = 0;
        self.batch.has_parts = true;
        each(self, 0);
    }

    /// Puts a value that stands elsewhere too.
    pub fn put_copy(&mut self, field: &FieldRef, value: Value) -> bool {
        let value = self.batch.copy_value(value);
        self.put(field, value)
    }

    fn copy_of(&mut self, record: Span) -> EventMut<'_> {
        let batch = &mut *self.batch;
        let Event { raw, json, fields, metadata, offset, born, time, .. } = batch.events[self.index];
        let part = Some(Part { number: born, record, is_made: true });
        let (fields, metadata) = (batch.copy_list(fields), batch.copy_list(metadata));
        batch.events[self.index].born += 1;
        batch.events.push(Event { json, fields, names: None, metadata, part, time, ..Event::new(raw, offset) });
        batch.born.push(self.index);
        batch.has_parts = true;
        EventMut { index: batch.events.len() - 1, batch }
    }
}

impl Batch {
    /// What tells the events made of this one from those of every other.
    fn digest_of(&mut self, index: usize) -> Span {
        let event = &self.events[index];
        let digest = match event.part {
            None => Sha256::digest(self.bytes(event.raw)),
            Some(part) => {
                Sha256::new().chain_update(self.bytes(part.record)).chain_update(part.number.to_be_bytes()).finalize()
            }
        };
        self.write(&digest)
    }

    fn copy_value(&mut self, value: Value) -> Value {
        match value {
            Value::Object(list) => Value::Object(self.copy_list(list)),
            Value::Array(list) => Value::Array(self.copy_list(list)),
            plain => plain,
        }
    }

    fn copy_list(&mut self, list: List) -> List {
        let mut first = List(NONE);
        let (mut at, mut last) = (list.0, NONE);
        while at != NONE {
            let node = self.nodes[at as usize];
            let value = self.copy_value(node.value());
            let new = self.nodes.len() as u32;
            self.nodes.push(Node::new(node.key(), value, NONE));
            match last {
                NONE => first = List(new),
                last => self.nodes[last as usize].next = new,
            }
            (last, at) = (new, node.next);
        }
        first
    }

    /// Puts the events that were made behind those that they were made of. Says for each event which one it was, or
    /// was made of, before; nothing if none was made.
    pub fn arrange(&mut self) -> Option<Vec<usize>> {
        if self.born.is_empty() {
            return None;
        }
        let born = std::mem::take(&mut self.born);
        let old = self.events.len() - born.len();
        let made = self.events.split_off(old);
        let mut behind: Vec<(usize, Event)> = born.into_iter().zip(made).collect();
        // in the order made, of each event
        behind.sort_by_key(|(index, _)| *index);
        let mut behind = behind.into_iter().peekable();
        let events = std::mem::take(&mut self.events);
        self.events.reserve(old + behind.len());
        let mut origins = Vec::with_capacity(old + behind.len());
        for (index, event) in events.into_iter().enumerate() {
            self.events.push(event);
            origins.push(index);
            while let Some((_, made)) = behind.next_if(|(of, _)| *of == index) {
                self.events.push(made);
                origins.push(index);
            }
        }
        Some(origins)
    }
}

#[cfg(test)]
mod tests {
    use super::super::New;
    use super::super::tests::of;
    use crate::field::FieldRef;

    #[test]
    fn copies_stand_behind_their_event_and_share_nothing() {
        let mut batch = of(r#"{"a":{"b":[1]}}"#);
        batch.push(super::Span::new(0, 3), 7);
        let at = |name: &str| FieldRef::parse(name).unwrap();
        batch.event_mut(0).set(&at("[a][c]"), New::Int(0));
        for number in 1..3 {
            let mut event = batch.event_mut(0);
            let mut copy = event.copy();
            copy.set(&at("[a][c]"), New::Int(number));
            copy.set(&at("[a][b][0]"), New::Int(-number));
        }
        batch.event_mut(1).multiply(2, |event, number| {
            event.set(&at("n"), New::Int(number as i64));
        });
        assert_eq!(batch.arrange(), Some(vec![0, 0, 0, 1, 1]));
        let show = |i: usize| {
            let mut out = Vec::new();
            batch.event(i).write_source(&mut out);
            (String::from_utf8(out).unwrap(), batch.event(i).part().map(|(number, _)| number))
        };
        let want = [
            (r#"{"a":{"b":[1],"c":0}}"#, None),
            (r#"{"a":{"b":[-1],"c":1}}"#, Some(0)),
            (r#"{"a":{"b":[-2],"c":2}}"#, Some(1)),
            (r#"{"n":0}"#, Some(0)),
            (r#"{"n":1}"#, Some(1)),
        ];
        assert_eq!((0..batch.len()).map(show).collect::<Vec<_>>(), want.map(|(text, n)| (text.to_string(), n)));
        assert_ne!(batch.event(1).part().unwrap().1, batch.event(4).part().unwrap().1);
        // a copy of a copy is another than a copy of the record
        let first = batch.event(1).part().map(|(n, record)| (n, record.to_vec()));
        let mut event = batch.event_mut(1);
        let nested = event.copy().read().part().map(|(n, record)| (n, record.to_vec()));
        assert_ne!(nested, first);
    }
}
