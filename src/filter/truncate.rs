//! `truncate`: shortens texts to a number of bytes, never within a character.
//!
//! ```toml
//! [[filter]]
//! type = "truncate"
//! fields = ["message"]       # left out: all
//! length_bytes = 32000
//! ```

use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, View};
use crate::config::Section;
use crate::field::FieldRef;
use crate::json;

#[derive(Clone, Debug)]
pub struct Config {
    pub fields: Option<Vec<FieldRef>>,
    pub length_bytes: usize,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let fields = t.parsed_each("fields", FieldRef::parse).optional();
        let length_bytes = t.integer("length_bytes", 0..=1 << 30).required();
        Some(Config { fields, length_bytes: length_bytes? })
    }
}

#[derive(Clone, Debug)]
pub struct Truncate {
    config: Config,
}

impl Truncate {
    pub fn build(config: Config) -> Result<Truncate, String> {
        Ok(Truncate { config })
    }

    /// Shortens one field; says whether it was too long.
    fn shorten(&self, event: &mut EventMut<'_>, field: &FieldRef) -> bool {
        let Some(view) = event.get(field) else { return false };
        let mut out = Vec::new();
        let is_changed = write_short(&view, self.config.length_bytes, &mut out);
        is_changed && event.set(field, New::Json(&out))
    }
}

/// Writes a value with its texts shortened: those of an object at any depth, those of a list alone. Says whether one
/// was.
fn write_short(view: &View<'_>, bytes_max: usize, out: &mut Vec<u8>) -> bool {
    match view {
        View::Text(text) => {
            let short = &text[..text.floor_char_boundary(bytes_max)];
            json::write_string(short.as_bytes(), out);
            short.len() < text.len()
        }
        View::Array(items) => {
            let mut is_changed = false;
            out.push(b'[');
            for (at, (_, item)) in items.entries().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                match item {
                    View::Text(_) => is_changed |= write_short(&item, bytes_max, out),
                    other => other.write_json(out),
                }
            }
            out.push(b']');
            is_changed
        }
        View::Object(members) => {
            let mut is_changed = false;
            out.push(b'{');
            for (at, (key, value)) in members.entries().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                json::write_string(key.as_bytes(), out);
                out.push(b':');
                is_changed |= write_short(&value, bytes_max, out);
            }
            out.push(b'}');
            is_changed
        }
        other => {
            other.write_json(out);
            false
        }
    }
}

impl Filter for Truncate {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let all: Vec<FieldRef>;
        let fields = match &self.config.fields {
            Some(fields) => fields,
            None => {
                let names = event.read().fields().entries().map(|(name, _)| FieldRef::top(&name));
                // a time is no text
                all = names.filter(|field| !field.is_timestamp()).collect();
                &all
            }
        };
        let mut applied = Applied::Unmatched;
        for field in fields {
            if self.shorten(event, field) {
                applied = Applied::Matched;
            }
        }
        applied
    }
}
