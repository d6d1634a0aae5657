//! `truncate`: shortens texts to a number of bytes, never within a character.
//!
//! ```toml
//! [[filter]]
//! type = "truncate"
//! fields = ["message"]       # left out: all
//! length_bytes = 32000
//! ```

use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New};
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
        // of an object at any depth, of a list its own texts alone
        let is_changed = view.write_edited(false, &mut out, &|text, out| {
            let short = &text[..text.floor_char_boundary(self.config.length_bytes)];
            json::write_string(short.as_bytes(), out);
            short.len() < text.len()
        });
        is_changed && event.set(field, New::Json(&out))
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
