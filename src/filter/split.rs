//! `split`: makes an event of each part of a text, or of each element of an array.
//!
//! ```toml
//! [[filter]]
//! type = "split"
//! field = "[results]"
//! target = "[result]"        # left out: `field`
//! ```
//!
//! Each event is a copy with the part in the place of the whole; empty parts are left out. A text in which the
//! terminator does not stand passes as it is. What is neither text nor array keeps the event and tags it.

use super::{Applied, Clock, Filter};
use crate::ack::Reason;
use crate::batch::{EventMut, New, Span, Value};
use crate::config::Section;
use crate::field::FieldRef;
use crate::stamp::dead;

/// The tag of an event whose field cannot be split.
pub const FAILURE: &str = "_split_type_failure";

/// One event that makes more is set aside.
const EVENTS_MAX: usize = 50_000;
/// As is one that makes more bytes, each event with its copy of all other fields.
const BYTES_MAX: usize = 256 << 20;

#[derive(Clone, Debug)]
pub struct Config {
    pub field: FieldRef,
    pub target: Option<FieldRef>,
    pub terminator: String,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let field = t.parsed("field", FieldRef::parse).or(FieldRef::top("message"));
        let target = t.parsed("target", FieldRef::parse).optional();
        let terminator = t.text("terminator").or("\n".to_string());
        if terminator.is_empty() {
            t.fail_at("terminator", "nothing can be split at an empty text", ());
        }
        Some(Config { field, target, terminator })
    }
}

#[derive(Clone, Debug)]
pub struct Split {
    field: FieldRef,
    target: FieldRef,
    terminator: memchr::memmem::Finder<'static>,
}

/// What a value is split into.
enum Parts {
    /// It stays as it is.
    Whole,
    Of(Vec<Value>),
    Unsplittable,
}

impl Split {
    pub fn build(config: Config) -> Result<Split, String> {
        let target = config.target.unwrap_or_else(|| config.field.clone());
        let terminator = memchr::memmem::Finder::new(&config.terminator).into_owned();
        Ok(Split { field: config.field, target, terminator })
    }

    fn parts(&self, event: &mut EventMut<'_>) -> Parts {
        let Some(value) = event.peek(&self.field) else { return Parts::Unsplittable };
        if let Some(text) = event.text_span(value) {
            let parts = self.cut(event.bytes(text), text.start as usize);
            return if parts.len() == 1 { Parts::Whole } else { Parts::Of(filled(parts)) };
        }
        let Some(elements) = event.elements(value) else { return Parts::Unsplittable };
        Parts::Of(elements.into_iter().filter(|value| !event.view(*value).is_empty()).collect())
    }

    fn cut(&self, text: &[u8], start: usize) -> Vec<Span> {
        let mut parts = Vec::new();
        let mut from = 0;
        for at in self.terminator.find_iter(text) {
            parts.push(Span::new(start + from, at - from));
            from = at + self.terminator.needle().len();
        }
        parts.push(Span::new(start + from, text.len() - from));
        parts
    }

    fn multiply(&self, event: &mut EventMut<'_>, parts: &[Value]) -> Applied {
        if parts.len() > EVENTS_MAX {
            return set_aside(event, format!("split makes {} events of it, {EVENTS_MAX} are allowed", parts.len()));
        }
        if self.field == self.target {
            // the whole is not copied with each part
            event.set(&self.field, New::Null);
        }
        if parts.len() > 16 && parts.len() * event.source_bytes() > BYTES_MAX {
            return set_aside(event, format!("split makes {} events of more than {BYTES_MAX} bytes", parts.len()));
        }
        event.multiply(parts.len(), |event, number| {
            event.put_copy(&self.target, parts[number]);
        });
        Applied::Matched
    }
}

fn filled(parts: Vec<Span>) -> Vec<Value> {
    parts.into_iter().filter(|part| part.len > 0).map(Value::Text).collect()
}

fn set_aside(event: &mut EventMut<'_>, detail: String) -> Applied {
    event.end(dead(Reason::TooLarge, detail));
    Applied::Unmatched
}

impl Filter for Split {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        match self.parts(event) {
            Parts::Whole => Applied::Unmatched,
            Parts::Of(parts) if parts.is_empty() => Applied::Drop,
            Parts::Of(parts) => self.multiply(event, &parts),
            Parts::Unsplittable => {
                tracing::debug!(field = %self.field, offset = event.read().offset(), "neither text nor array");
                event.add_tag(FAILURE);
                Applied::Unmatched
            }
        }
    }
}
