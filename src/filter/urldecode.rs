//! `urldecode`: decodes the `%41` of a field, in lists and objects too.
//!
//! ```toml
//! [[filter]]
//! type = "urldecode"
//! field = "request"
//! ```
//!
//! A `+` stays. What is no text of the character set afterwards has replacement characters in it.

use encoding_rs::Encoding;

use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New};
use crate::config::Section;
use crate::field::FieldRef;
use crate::json;

#[derive(Clone, Debug)]
pub struct Config {
    pub field: FieldRef,
    pub all_fields: bool,
    pub charset: &'static Encoding,
    pub tag_on_failure: Vec<String>,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let charset =
            |label: &str| Encoding::for_label(label.as_bytes()).ok_or_else(|| format!("`{label}` is no character set"));
        Some(Config {
            field: t.parsed("field", FieldRef::parse).or(FieldRef::top("message")),
            all_fields: t.bool("all_fields").or(false),
            charset: t.parsed("charset", charset).or(encoding_rs::UTF_8),
            tag_on_failure: t.texts("tag_on_failure").or(vec!["_urldecodefailure".to_string()]),
        })
    }
}

#[derive(Clone, Debug)]
pub struct Urldecode {
    config: Config,
}

impl Urldecode {
    pub fn build(config: Config) -> Result<Urldecode, String> {
        Ok(Urldecode { config })
    }

    fn decode(&self, event: &mut EventMut<'_>, field: &FieldRef) {
        let Some(view) = event.get(field) else { return };
        let mut out = Vec::new();
        let is_changed = view.write_edited(true, &mut out, &|text, out| {
            let bytes = unescape(text.as_bytes());
            let (decoded, _) = self.config.charset.decode_without_bom_handling(&bytes);
            json::write_string(decoded.as_bytes(), out);
            *decoded != *text
        });
        if is_changed && !event.set(field, New::Json(&out)) {
            self.config.tag_on_failure.iter().for_each(|tag| event.add_tag(tag));
        }
    }
}

/// Each `%` with two hex digits behind it as the byte that they say.
fn unescape(text: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        let digit = |ahead: usize| text.get(at + ahead).and_then(|b| (*b as char).to_digit(16));
        match (text[at], digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, _, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

impl Filter for Urldecode {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        if self.config.all_fields {
            let names = event.read().fields().entries().map(|(name, _)| FieldRef::top(&name));
            let fields: Vec<FieldRef> = names.collect();
            fields.iter().for_each(|field| self.decode(event, field));
        } else {
            self.decode(event, &self.config.field);
        }
        Applied::Matched
    }
}
