//! `explain --pretty`: an answer as text for people, with colours on a terminal.

use std::fmt::Write;

use serde_json::Value;

use super::explain::Answer;
use super::trace::{Change, Told};

/// Longer values are cut.
const VALUE_CHARS_MAX: usize = 200;

#[derive(Clone, Copy)]
enum Colour {
    Green,
    Yellow,
    Red,
    Faint,
    Bold,
}

struct Page {
    text: String,
    colour: bool,
}

pub fn write(answer: &Answer, colour: bool, out: &mut Vec<u8>) {
    let mut page = Page { text: String::new(), colour };
    page.head(answer);
    if let Ok(event) = serde_json::from_slice::<Value>(&answer.event) {
        page.fields(&event);
    }
    if let Some(metadata) = answer.metadata.as_deref().and_then(|text| serde_json::from_slice(text).ok()) {
        page.flat("[@metadata]", &metadata);
    }
    for told in answer.steps.iter().flatten() {
        page.step(told);
    }
    page.text.push('\n');
    out.extend_from_slice(page.text.as_bytes());
}

impl Page {
    fn painted(&self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Green => "32",
            Colour::Yellow => "33",
            Colour::Red => "31",
            Colour::Faint => "2",
            Colour::Bold => "1",
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn head(&mut self, answer: &Answer) {
        let colour = match answer.outcome {
            "deliver" => Colour::Green,
            "drop" => Colour::Yellow,
            _ => Colour::Red,
        };
        let mut head = self.painted(colour, answer.outcome);
        if let (Some(index), Some(action)) = (&answer.index, answer.action) {
            let id = answer.id.as_deref().map_or("made by the engine".into(), String::from_utf8_lossy);
            // writing to memory does not fail
            let _ = write!(head, "  {}  {action}  {id}", self.painted(Colour::Bold, index));
        }
        if let Some((reason, detail)) = &answer.reason {
            let _ = write!(head, "  {reason}: {}", clean(detail));
        }
        self.line(&head);
    }

    fn fields(&mut self, event: &Value) {
        match event {
            Value::Object(members) => members.iter().for_each(|(name, value)| self.flat(name, value)),
            text => self.flat("", text),
        }
    }

    /// A field, or each within it.
    fn flat(&mut self, name: &str, value: &Value) {
        match value {
            Value::Object(members) if !members.is_empty() => {
                let path = if name.starts_with('[') { name.to_string() } else { format!("[{name}]") };
                members.iter().for_each(|(member, value)| self.flat(&format!("{path}[{member}]"), value));
            }
            plain => self.line(&format!("    {:<24} {}", clean(name), shown(plain))),
        }
    }

    fn step(&mut self, told: &Told) {
        let micros = told.took.as_secs_f64() * 1e6;
        let took = self.painted(Colour::Faint, &format!("{micros:.1} µs"));
        let did = match (told.ended, told.made, told.changes.is_empty()) {
            (Some(ended), ..) => format!("  {}", self.painted(Colour::Red, ended)),
            (None, true, _) => "  made of the event above".to_string(),
            (None, false, true) => format!("  {}", self.painted(Colour::Faint, "no change")),
            (None, false, false) => String::new(),
        };
        self.line(&format!("  {}  {took}{did}", self.painted(Colour::Bold, &told.filter)));
        told.changes.iter().for_each(|change| self.change(change));
    }

    fn change(&mut self, Change { field, before, after }: &Change) {
        let (colour, sign, value) = match (before, after) {
            (None, Some(after)) => (Colour::Green, '+', shown(after)),
            (Some(before), Some(after)) => (Colour::Yellow, '~', format!("{} → {}", shown(before), shown(after))),
            (Some(before), None) => (Colour::Red, '-', shown(before)),
            (None, None) => return,
        };
        let line = format!("    {sign} {:<22} {value}", clean(field));
        self.line(&self.painted(colour, line.trim_end()));
    }
}

/// A value on one line, without what moves the cursor.
pub fn shown(value: &Value) -> String {
    let text = clean(&value.to_string());
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((at, _)) => format!("{}… ({} characters)", &text[..at], text.chars().count()),
        None => text,
    }
}

fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
