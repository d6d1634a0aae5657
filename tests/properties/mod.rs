//! What must hold of each parser, whatever it is given. Called with arbitrary bytes by the fuzz targets of `fuzz/`,
//! and with what these have kept by `tests/corpus.rs`. What does not hold panics.

pub mod bulk_answers;
pub mod codecs;
pub mod conditions;
pub mod date_patterns;
pub mod dead_letters;
pub mod json_text;
pub mod pipeline_file;
pub mod positions;
pub mod regexps;
pub mod spool;
pub mod templates;

use std::sync::Arc;

use onceline::batch::{Batch, Span, View};
use onceline::codec::json::{Json, OnError};
use onceline::codec::{Codec, Record};
use onceline::json;
use serde_json::{Map, Value};

pub type Property = fn(&[u8]);

/// Every property, by the name of its target.
pub const ALL: [(&str, Property); 11] = [
    ("bulk_answers", bulk_answers::check),
    ("codecs", codecs::check),
    ("conditions", conditions::check),
    ("date_patterns", date_patterns::check),
    ("dead_letters", dead_letters::check),
    ("json_text", json_text::check),
    ("pipeline_file", pipeline_file::check),
    ("positions", positions::check),
    ("regexps", regexps::check),
    ("spool", spool::check),
    ("templates", templates::check),
];

/// The first line without its end, and what follows.
pub fn first_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[]),
    }
}

/// The numbers of a line.
pub fn numbers(line: &[u8]) -> impl Iterator<Item = u64> + '_ {
    line.split(|byte| !byte.is_ascii_digit()).filter_map(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
}

/// A batch whose first event is a line read as JSON; what is none is its `message`.
pub fn event(line: &[u8]) -> Batch {
    let mut batch = Batch::new(line.to_vec(), Arc::default());
    Json::new(OnError::Tag, json::FIELDS_MAX)
        .decode(&mut batch, &[Record { span: Span::new(0, line.len()), offset: 0 }]);
    batch
}

/// A view as the tree that it stands for. None for a number that no tree holds.
pub fn tree(view: &View<'_>) -> Option<Value> {
    Some(match view {
        View::Null => Value::Null,
        View::Bool(is) => Value::Bool(*is),
        View::Number(text) => serde_json::from_str(text).ok()?,
        View::Text(text) => Value::String(text.to_string()),
        View::Array(list) => Value::Array(list.entries().map(|(_, item)| tree(&item)).collect::<Option<_>>()?),
        View::Object(list) => {
            let members = list.entries().map(|(key, value)| Some((key.into_owned(), tree(&value)?)));
            Value::Object(members.collect::<Option<Map<_, _>>>()?)
        }
    })
}
