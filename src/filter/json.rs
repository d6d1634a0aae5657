//! `json`: reads a field's text as JSON, into `target` or into the event itself. A text that is not one JSON value
//! leaves the event as it is, with a tag. An `@timestamp` in it that is no time is moved to `_@timestamp`; it never
//! becomes the present time.

use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, View};
use crate::config::Section;
use crate::field::FieldRef;
use crate::json::{FIELDS_MAX, Scanner, TOO_DEEP, repair};

#[derive(Clone, Debug)]
pub struct Config {
    pub source: FieldRef,
    /// Where the value goes; none: an object's members become the event's own.
    pub target: Option<FieldRef>,
    pub tag_on_failure: Vec<String>,
    /// What is not JSON is no failure: nothing is logged, and no tag is added.
    pub skip_on_invalid_json: bool,
}

impl Config {
    pub fn new(source: FieldRef) -> Config {
        let tag_on_failure = vec!["_jsonparsefailure".to_string()];
        Config { source, target: None, tag_on_failure, skip_on_invalid_json: false }
    }

    pub fn read(t: &Section<'_>) -> Option<Config> {
        let source = t.parsed("source", FieldRef::parse).required();
        let target = t.parsed("target", FieldRef::parse).optional();
        let tags = t.texts("tag_on_failure").optional();
        let quiet = t.bool("skip_on_invalid_json").or(false);
        let config = Config::new(source?);
        let tag_on_failure = tags.unwrap_or(config.tag_on_failure);
        Some(Config { target, tag_on_failure, skip_on_invalid_json: quiet, ..config })
    }
}

#[derive(Clone, Debug)]
pub struct Json {
    config: Config,
}

impl Json {
    pub fn build(config: Config) -> Result<Json, String> {
        Ok(Json { config })
    }

    /// Writes `text` where it belongs.
    fn store(&self, event: &mut EventMut<'_>, text: &[u8]) -> Found {
        let (mut scanner, mut entries) = (Scanner::default(), Vec::new());
        let scanned = match scanner.scan(text, true, &mut entries) {
            Ok(scanned) => scanned,
            Err(bad) if bad.what == TOO_DEEP => return Found::Misfit,
            Err(_) => return Found::NoJson,
        };
        if scanner.fields() > FIELDS_MAX {
            return Found::Misfit;
        }
        let repaired;
        let mut text = text;
        let (mut start, mut end) = (scanned.start, scanned.end);
        if scanned.odd {
            repaired = repair(text);
            text = &repaired;
            entries.clear();
            let Ok(scanned) = scanner.scan(text, true, &mut entries) else { return Found::NoJson };
            (start, end) = (scanned.start, scanned.end);
        }
        if let Some(target) = &self.config.target {
            let is_set = event.set(target, New::Json(&text[start..end]));
            return if is_set { Found::Stored } else { Found::Misfit };
        }
        if scanned.first != b'{' {
            return Found::Misfit;
        }
        let cut = |(at, len): (u32, u32)| &text[at as usize..(at + len) as usize];
        let mut timed = false;
        entries.retain(|entry| {
            let is_time = cut(entry.key) == b"@timestamp";
            let null = is_time && cut(entry.value) == b"null";
            timed |= is_time && !null;
            !null
        });
        event.absorb(text, &entries);
        if timed && event.read().time().is_none() {
            set_aside(event);
        }
        Found::Stored
    }
}

/// What a text was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Stored,
    NoJson,
    /// JSON that does not belong where it is to go, or is beyond what is allowed.
    Misfit,
}

/// Moves an `@timestamp` that is no time out of the way.
fn set_aside(event: &mut EventMut<'_>) {
    if let Some(value) = event.take(&FieldRef::top("@timestamp")) {
        event.put(&FieldRef::top("_@timestamp"), value);
    }
    event.add_tag("_timestampparsefailure");
}

impl Filter for Json {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let mut draft = event.take_draft();
        let is_text = match event.get(&self.config.source) {
            None | Some(View::Null | View::Bool(false)) => {
                event.keep_draft(draft);
                return Applied::Unmatched;
            }
            Some(View::Text(text)) => {
                draft.extend_from_slice(text.as_bytes());
                true
            }
            Some(_) => false,
        };
        let found = if is_text { self.store(event, &draft) } else { Found::NoJson };
        event.keep_draft(draft);
        match found {
            Found::Stored => return Applied::Matched,
            Found::NoJson if self.config.skip_on_invalid_json => return Applied::Unmatched,
            _ => {}
        }
        tracing::debug!(field = %self.config.source, offset = event.read().offset(), "not a JSON value that fits");
        self.config.tag_on_failure.iter().for_each(|tag| event.add_tag(tag));
        Applied::Unmatched
    }
}
