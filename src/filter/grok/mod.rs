//! `grok`: finds patterns in a field's text and sets a field for each group with a name. A captured text stays where
//! it is: the field is a piece of the batch, not a copy.
//!
//! Names, casts, and what becomes of a field that is there already are the Logstash plugin's. Not here: what named
//! patterns stand for ([`library`], [`standard`]) and how they are matched ([`crate::regexp`]).

pub mod library;
pub mod standard;

use std::cell::RefCell;

use super::convert::{leading_digits, place_of_text};
use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, Span, Value, View};
use crate::config::{Fault, Section};
use crate::field::FieldRef;
use crate::regexp::{Capturing, Found, Runaway, STEPS_MAX};
use library::Library;
use standard::Names;

#[derive(Debug)]
pub struct Config {
    /// Fields, each with the patterns that are tried on it in turn.
    pub matches: Vec<(FieldRef, Vec<Pattern>)>,
    /// The first pattern that fits is the last one tried.
    pub break_on_match: bool,
    pub keep_empty_captures: bool,
    pub tag_on_failure: Vec<String>,
    pub tag_on_timeout: String,
    /// How often matching may go back, for each pattern or for each text.
    pub steps: u64,
    pub steps_per_text: bool,
}

/// How patterns name what they capture.
#[derive(Clone, Debug)]
pub struct Naming {
    pub library: Library,
    pub named_captures_only: bool,
    /// The field that the others are put into.
    pub target: Option<String>,
    /// Fields that are replaced, by their names as patterns have them.
    pub overwrite: Vec<String>,
}

#[derive(Debug)]
pub struct Pattern {
    regexp: Capturing,
    captures: Vec<Capture>,
}

#[derive(Clone, Debug)]
struct Capture {
    group: usize,
    field: FieldRef,
    cast: Cast,
    overwrite: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cast {
    Text,
    Int,
    Float,
}

/// Steps that a millisecond of `timeout_millis` stands for; matching then ends alike on every machine.
const STEPS_PER_MILLI: f64 = 30_000.0;

const ECS: &[(&str, Names)] = &[("disabled", Names::Legacy), ("v1", Names::Ecs), ("v8", Names::Ecs)];

impl Config {
    pub fn new(matches: Vec<(FieldRef, Vec<Pattern>)>) -> Config {
        Config {
            matches,
            break_on_match: true,
            keep_empty_captures: false,
            tag_on_failure: vec!["_grokparsefailure".to_string()],
            tag_on_timeout: "_groktimeout".to_string(),
            steps: STEPS_MAX as u64,
            steps_per_text: false,
        }
    }

    pub fn read(t: &Section<'_>) -> Option<Config> {
        let naming = naming(t);
        let entries = t.entries("match").required();
        let mut config = Config::new(Vec::new());
        config.break_on_match = t.bool("break_on_match").or(true);
        config.keep_empty_captures = t.bool("keep_empty_captures").or(false);
        config.tag_on_failure = t.texts("tag_on_failure").or(config.tag_on_failure);
        config.tag_on_timeout = t.text("tag_on_timeout").or(config.tag_on_timeout);
        let timeout_millis = t.float("timeout_millis", 0.0..).or(0.0);
        if timeout_millis > 0.0 {
            config.steps = config.steps.min((timeout_millis * STEPS_PER_MILLI) as u64);
        }
        config.steps_per_text = t.one_of("timeout_scope", &[("pattern", false), ("event", true)]).or(false);
        let (naming, mut matches) = (naming?, Vec::new());
        for entry in entries? {
            let field = entry.parsed_key(FieldRef::parse);
            let patterns = entry.value.parsed_each(|text| Pattern::parse(text, &naming));
            matches.push(field.zip(patterns));
        }
        config.matches = matches.into_iter().collect::<Option<_>>()?;
        Some(config)
    }
}

fn naming(t: &Section<'_>) -> Option<Naming> {
    let names = t.one_of("ecs_compatibility", ECS).or(Names::Legacy);
    let glob = t.text("patterns_files_glob").or("*".to_string());
    let files = t.parsed_each("patterns_dir", |path| Library::of_path(path.as_ref(), &glob)).or_default();
    let definitions = t.pairs("pattern_definitions").or_default();
    let named_captures_only = t.bool("named_captures_only").or(true);
    let target = t.parsed("target", target).optional();
    let overwrite = t.texts("overwrite").or_default();
    let mut library = Library::standard(names);
    files.into_iter().for_each(|file| library.add(file));
    definitions.iter().for_each(|(name, pattern)| library.define(name, pattern.trim_end_matches('\n')));
    Some(Naming { library, named_captures_only, target, overwrite })
}

/// In brackets, as the fields below it are written.
fn target(text: &str) -> Result<String, String> {
    let text = text.trim();
    let whole = if text.contains('[') { text.to_string() } else { format!("[{text}]") };
    FieldRef::parse(&whole).map(|_| whole)
}

impl Pattern {
    pub fn parse(text: &str, naming: &Naming) -> Result<Pattern, Fault> {
        // Ruby's multi-line mode, where the dot is any character, is always on
        let expanded = naming.library.expand(text, naming.named_captures_only)?;
        let regexp = Capturing::parse(&format!("(?m){expanded}"))?;
        let captures = captures(regexp.names(), naming)?;
        Ok(Pattern { regexp, captures })
    }
}

/// What is set after a match, in Logstash's order: name after name as they first appear, each with all its groups.
fn captures(names: &[String], naming: &Naming) -> Result<Vec<Capture>, Fault> {
    let mut captures = Vec::with_capacity(names.len());
    for (first, name) in names.iter().enumerate() {
        if names[..first].contains(name) {
            continue;
        }
        let mut parts = name.split(':');
        let pattern = parts.next().unwrap_or_default();
        let written = parts.next().unwrap_or(pattern);
        let cast = match parts.next() {
            Some("int") => Cast::Int,
            Some("float") => Cast::Float,
            _ => Cast::Text,
        };
        let whole = naming.target.as_ref().map_or(written.to_string(), |target| format!("{target}[{written}]"));
        let field = FieldRef::parse(&whole)?;
        let overwrite = naming.overwrite.iter().any(|field| field == written);
        for group in (first..names.len()).filter(|group| names[*group] == *name) {
            captures.push(Capture { group, field: field.clone(), cast, overwrite });
        }
    }
    Ok(captures)
}

#[derive(Debug)]
pub struct Grok {
    config: Config,
}

thread_local! {
    /// The memory of matching, of each worker.
    static FOUND: RefCell<Found> = RefCell::default();
}

impl Grok {
    pub fn build(config: Config) -> Result<Grok, String> {
        if config.matches.is_empty() {
            return Err("`match` names no field".to_string());
        }
        Ok(Grok { config })
    }

    fn run(&self, event: &mut EventMut<'_>, found: &mut Found) -> Result<bool, Runaway> {
        let mut matched = false;
        for (field, patterns) in &self.config.matches {
            let mut fits = false;
            match source(event, field) {
                Source::One(text) => fits = self.try_patterns(event, patterns, text, found)?,
                Source::Each(texts) => {
                    for text in texts {
                        fits |= self.try_patterns(event, patterns, text, found)?;
                    }
                }
            }
            matched |= fits;
            if fits && self.config.break_on_match {
                break;
            }
        }
        Ok(matched)
    }

    /// Whether the pattern tried last fits.
    fn try_patterns(
        &self,
        event: &mut EventMut<'_>,
        patterns: &[Pattern],
        text: Span,
        found: &mut Found,
    ) -> Result<bool, Runaway> {
        let (mut fits, mut steps) = (false, self.config.steps);
        for pattern in patterns {
            if !self.config.steps_per_text {
                steps = self.config.steps;
            }
            // what stands in a batch as text was checked to be UTF-8 by whoever put it there
            let read = std::str::from_utf8(event.bytes(text)).unwrap_or_default();
            fits = pattern.regexp.find(read, found, &mut steps)?;
            if fits {
                // what cannot be set is a failure, as in Logstash
                if !pattern.captures.iter().all(|capture| self.store(event, capture, text, found)) {
                    return Ok(false);
                }
                if self.config.break_on_match {
                    break;
                }
            }
        }
        Ok(fits)
    }

    /// Sets a field to what its group holds; false if it cannot be reached.
    fn store(&self, event: &mut EventMut<'_>, capture: &Capture, text: Span, found: &Found) -> bool {
        let span = found
            .group(capture.group)
            .map(|range| Span { start: text.start + range.start as u32, len: range.len() as u32 });
        let empty = span.is_none_or(|span| span.len == 0 && capture.cast == Cast::Text);
        if empty && !self.config.keep_empty_captures {
            return true;
        }
        let value = value(event, capture.cast, span);
        if capture.overwrite {
            return event.put(&capture.field, value);
        }
        if event.put_absent(&capture.field, value) {
            return true;
        }
        match event.get(&capture.field) {
            None | Some(View::Null) => return false,
            // a time is no text, so nothing is added to it
            Some(View::Text(_)) if capture.field.is_timestamp() => {}
            Some(View::Text(_) | View::Array(_)) => append(event, &capture.field, value),
            Some(_) => {}
        }
        true
    }
}

/// Texts of an event that patterns are tried on.
enum Source {
    One(Span),
    Each(Vec<Span>),
}

fn source(event: &mut EventMut<'_>, field: &FieldRef) -> Source {
    let Some(value) = event.peek(field) else { return Source::One(Span::default()) };
    match event.elements(value) {
        Some(elements) => Source::Each(elements.into_iter().map(|element| place_of_text(event, element)).collect()),
        None => Source::One(place_of_text(event, value)),
    }
}

/// What a captured text becomes.
fn value(event: &mut EventMut<'_>, cast: Cast, span: Option<Span>) -> Value {
    let Some(span) = span else { return Value::Json(event.write(b"null")) };
    let text = std::str::from_utf8(event.bytes(span)).unwrap_or_default();
    let json = match cast {
        Cast::Text => return Value::Text(span),
        Cast::Int if is_plain_int(text) => return Value::Json(span),
        Cast::Int => leading_digits(text.trim_start_matches(|c: char| c.is_ascii_whitespace())),
        Cast::Float => format!("{:?}", leading_float(text)),
    };
    Value::Json(event.write(json.as_bytes()))
}

/// An integer that reads the same in JSON.
fn is_plain_int(text: &str) -> bool {
    let digits = text.as_bytes();
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) && (digits[0] != b'0' || digits.len() == 1)
}

/// Ruby's `to_f`: the number a text begins with, or 0.
fn leading_float(text: &str) -> f64 {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let (mut number, mut rest) = (String::new(), text);
    if let Some(sign) = text.chars().next().filter(|c| matches!(c, '+' | '-')) {
        number.push(sign);
        rest = &text[1..];
    }
    number.push('0');
    rest = digits(rest, &mut number);
    if let Some(decimals) = rest.strip_prefix('.').filter(|r| r.starts_with(|c: char| c.is_ascii_digit())) {
        number.push('.');
        rest = digits(decimals, &mut number);
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let sign = if exponent.starts_with('-') { "-" } else { "" };
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if exponent.starts_with(|c: char| c.is_ascii_digit()) {
            number.push('e');
            number.push_str(sign);
            digits(exponent, &mut number);
        }
    }
    let value: f64 = number.parse().unwrap_or_default();
    if value.is_finite() { value } else { f64::MAX.copysign(value) }
}

/// Moves digits over; a single `_` between two is passed over.
fn digits<'a>(text: &'a str, number: &mut String) -> &'a str {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            digit @ b'0'..=b'9' => number.push(char::from(digit)),
            b'_' if at > 0 && bytes[at - 1] != b'_' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) => {}
            _ => break,
        }
        at += 1;
    }
    &text[at..]
}

/// What is there and the new value as one list.
fn append(event: &mut EventMut<'_>, field: &FieldRef, value: Value) {
    let mut list = event.take_draft();
    list.push(b'[');
    match event.get(field) {
        Some(View::Array(elements)) => {
            for (_, element) in elements.entries() {
                element.write_json(&mut list);
                list.push(b',');
            }
        }
        Some(other) => {
            other.write_json(&mut list);
            list.push(b',');
        }
        None => {}
    }
    event.view(value).write_json(&mut list);
    list.push(b']');
    event.set(field, New::Json(&list));
    event.keep_draft(list);
}

impl Filter for Grok {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        match FOUND.with_borrow_mut(|found| self.run(event, found)) {
            Ok(true) => Applied::Matched,
            Ok(false) => {
                self.config.tag_on_failure.iter().for_each(|tag| event.add_tag(tag));
                Applied::Unmatched
            }
            Err(runaway) => {
                tracing::debug!(%runaway, offset = event.read().offset(), "grok");
                event.add_tag(&self.config.tag_on_timeout);
                Applied::Unmatched
            }
        }
    }
}
