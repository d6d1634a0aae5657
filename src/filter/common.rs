//! What every filter does to an event after its own work has succeeded, in Logstash's order: `add_field`,
//! `remove_field`, `add_tag`, `remove_tag`. Names and values may hold placeholders.

use crate::batch::{EventMut, EventRef, New, View};
use crate::config::{Keyed, Section};
use crate::field::FieldRef;
use crate::json;
use crate::template::{FieldName, Template};

/// The tag of an event that `add_field` could not reach into.
pub const ADD_FIELD_FAILURE: &str = "_addfieldfailure";

#[derive(Clone, Debug, Default)]
pub struct Common {
    pub add_field: Vec<(FieldName, Template)>,
    pub remove_field: Vec<FieldName>,
    pub add_tag: Vec<Template>,
    pub remove_tag: Vec<Template>,
}

impl Common {
    pub fn read(t: &Section<'_>) -> Common {
        let add_field = t.entries("add_field").or_default();
        let remove_field = t.parsed_each("remove_field", FieldName::parse).or_default();
        let add_tag = t.parsed_each("add_tag", Template::parse).or_default();
        let remove_tag = t.parsed_each("remove_tag", Template::parse).or_default();
        let add_field = add_field.iter().flat_map(added).collect();
        Common { add_field, remove_field, add_tag, remove_tag }
    }

    pub fn apply(&self, event: &mut EventMut<'_>) {
        for (name, value) in &self.add_field {
            if !add(event, name, value) {
                tracing::debug!(field = ?name, offset = event.read().offset(), "add_field cannot reach its field");
                event.add_tag(ADD_FIELD_FAILURE);
            }
        }
        for name in &self.remove_field {
            if let Some(field) = name.of(&event.read()) {
                event.remove(&field);
            }
        }
        for tag in &self.add_tag {
            with_text(event, tag, |event, tag| event.add_tag(tag));
        }
        for tag in &self.remove_tag {
            with_text(event, tag, |event, tag| event.remove_tag(tag));
        }
    }
}

/// One value, or several that are added one after another.
fn added(entry: &Keyed<'_>) -> Vec<(FieldName, Template)> {
    let name = entry.parsed_key(FieldName::parse);
    let values = entry.value.parsed_each(Template::parse);
    name.zip(values).map(|(name, values)| values.into_iter().map(|v| (name.clone(), v)).collect()).unwrap_or_default()
}

/// Calls `then` with the text that the event makes of `template`.
pub fn with_text<T>(
    event: &mut EventMut<'_>,
    template: &Template,
    then: impl FnOnce(&mut EventMut<'_>, &str) -> T,
) -> T {
    if let Some(text) = template.constant() {
        return then(event, text);
    }
    let mut draft = event.take_draft();
    template.render(&event.read(), &mut draft);
    let result = then(event, &String::from_utf8_lossy(&draft));
    event.keep_draft(draft);
    result
}

/// A field that is there already becomes a list, and the value its last element.
fn add(event: &mut EventMut<'_>, name: &FieldName, value: &Template) -> bool {
    let Some(field) = name.of(&event.read()) else { return false };
    let mut list = Vec::new();
    with_text(event, value, |event, text| {
        if !list_so_far(&event.read(), &field, &mut list) {
            return event.set(&field, New::Text(text));
        }
        json::write_string(text.as_bytes(), &mut list);
        list.push(b']');
        event.set(&field, New::Json(&list))
    })
}

/// Writes what the field holds as the beginning of a list; false if it is not there.
fn list_so_far(event: &EventRef<'_>, field: &FieldRef, list: &mut Vec<u8>) -> bool {
    let Some(held) = event.get(field) else { return false };
    list.push(b'[');
    match held {
        View::Null => {}
        View::Array(elements) => {
            for (_, element) in elements.entries() {
                element.write_json(list);
                list.push(b',');
            }
        }
        other => {
            other.write_json(list);
            list.push(b',');
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::of;

    #[test]
    fn in_logstash_order() {
        let name = |text| FieldName::parse(text).unwrap();
        let text = |text| Template::parse(text).unwrap();
        let common = Common {
            add_field: vec![
                (name("new"), text("%{a}-%{no}")),
                (name("f_%{a}"), text("v")),
                (name("a"), text("2")),
                (name("a"), text("%{new}")),
                (name("[z]"), text("null before")),
                (name("[b][c]"), text("into text")),
                (name("%{odd}"), text("")),
            ],
            remove_field: vec![name("f_x"), name("gone"), name("%{odd}"), name("[@metadata]")],
            add_tag: vec![text("t-%{new}"), text("old")],
            remove_tag: vec![text("old"), text("none")],
        };
        let mut batch = of(r#"{"a":"x","b":"t","z":null,"odd":"[","tags":"old","@metadata":{"m":1}}"#);
        common.apply(&mut batch.event_mut(0));
        let mut out = Vec::new();
        batch.event(0).write_source(&mut out);
        let want = concat!(
            r#"{"a":["x","2","x-%{no}"],"b":"t","z":["null before"],"odd":"[","#,
            r#""tags":["_addfieldfailure","t-x-%{no}"],"new":"x-%{no}"}"#
        );
        assert_eq!(String::from_utf8(out).unwrap(), want);
        assert!(batch.event(0).metadata().is_empty());
    }
}
