//! What each filter did to an event, for `explain --steps`: the fields before and after, compared.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::batch::{Batch, EventRef, Fate, View};
use crate::filter::{Clock, Step};

/// What a filter did to an event.
#[derive(Clone, Debug)]
pub struct Told {
    /// Its number and type.
    pub filter: String,
    /// For all events of the record.
    pub took: Duration,
    pub changes: Vec<Change>,
    /// It ended the event: `drop` or `dead-letter`.
    pub ended: Option<&'static str>,
    /// It made the event out of another.
    pub made: bool,
}

/// A field, as it was and as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub field: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

impl Told {
    pub fn write(&self, out: &mut Vec<u8>) {
        let (mut set, mut removed) = (Map::new(), Vec::new());
        for change in &self.changes {
            match &change.after {
                Some(after) => drop(set.insert(change.field.clone(), after.clone())),
                None => removed.push(change.field.clone()),
            }
        }
        let micros = (self.took.as_secs_f64() * 1e7).round() / 10.0;
        let mut told = json!({ "filter": self.filter, "micros": micros, "set": set, "removed": removed });
        if let Some(ended) = self.ended {
            told["ended"] = ended.into();
        }
        if self.made {
            told["made"] = true.into();
        }
        out.extend_from_slice(told.to_string().as_bytes());
    }
}

/// One event on its way.
#[derive(Clone, Debug)]
pub struct Trace {
    now: Value,
    steps: Vec<Told>,
}

impl Trace {
    /// Runs the filters over a batch, and tells for each of its events in the end what they did.
    pub fn of(steps: &[Step], batch: &mut Batch, clock: &Clock) -> Vec<Vec<Told>> {
        let start = |index| Trace { now: fields(&batch.event(index)), steps: Vec::new() };
        let mut traces: Vec<Trace> = (0..batch.len()).map(start).collect();
        for step in steps {
            let was_live: Vec<bool> = (0..batch.len()).map(|index| is_live(&batch.event(index))).collect();
            let started = Instant::now();
            let origins = step.apply(batch, clock);
            let took = started.elapsed();
            let origins = origins.unwrap_or_else(|| (0..batch.len()).collect());
            traces = (0..batch.len())
                .map(|index| {
                    let origin = origins[index];
                    let mut trace = traces[origin].clone();
                    let made = index > 0 && origins[index - 1] == origin;
                    if was_live[origin] {
                        trace.note(&step.label, took, made, &batch.event(index));
                    }
                    trace
                })
                .collect();
        }
        traces.into_iter().map(|trace| trace.steps).collect()
    }

    fn note(&mut self, filter: &str, took: Duration, made: bool, event: &EventRef<'_>) {
        let after = fields(event);
        let mut changes = Vec::new();
        compare(String::new(), Some(&self.now), Some(&after), &mut changes);
        let ended = match event.fate() {
            Fate::Live => None,
            Fate::Dropped => Some("drop"),
            Fate::Dead(_) => Some("dead-letter"),
        };
        self.now = after;
        self.steps.push(Told { filter: filter.to_string(), took, changes, ended, made });
    }
}

fn is_live(event: &EventRef<'_>) -> bool {
    matches!(event.fate(), Fate::Live)
}

/// All fields of an event, those that are not stored too.
fn fields(event: &EventRef<'_>) -> Value {
    let mut text = Vec::new();
    View::Object(event.fields()).write_json(&mut text);
    let mut fields: Value = serde_json::from_slice(&text).unwrap_or_default();
    if !event.metadata().is_empty() {
        text.clear();
        View::Object(event.metadata()).write_json(&mut text);
        fields["@metadata"] = serde_json::from_slice(&text).unwrap_or_default();
    }
    fields
}

/// What differs, down to what is no object.
fn compare(path: String, before: Option<&Value>, after: Option<&Value>, changes: &mut Vec<Change>) {
    if before == after {
        return;
    }
    let objects = (before.is_none_or(Value::is_object), after.is_none_or(Value::is_object));
    let members = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
    let (old, new) = (members(before), members(after));
    if objects != (true, true) || old.is_empty() && new.is_empty() {
        return changes.push(Change { field: path, before: before.cloned(), after: after.cloned() });
    }
    let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
    for name in names {
        compare(format!("{path}[{name}]"), old.get(name), new.get(name), changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences() {
        let before = json!({"a": 1, "b": {"c": [1], "d": {}}, "e": "x"});
        let after = json!({"a": "1", "b": {"c": [1], "f": {"g": null}}, "h": []});
        let mut changes = Vec::new();
        compare(String::new(), Some(&before), Some(&after), &mut changes);
        let mut got: Vec<_> = changes.iter().map(|c| (c.field.as_str(), c.before.clone(), c.after.clone())).collect();
        got.sort_by_key(|(field, ..)| field.to_string());
        let want = [
            ("[a]", Some(json!(1)), Some(json!("1"))),
            ("[b][d]", Some(json!({})), None),
            ("[b][f][g]", None, Some(json!(null))),
            ("[e]", Some(json!("x")), None),
            ("[h]", None, Some(json!([]))),
        ];
        assert_eq!(got, want);
    }
}
