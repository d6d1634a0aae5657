//! One value of a file, read as whatever is wanted of it. A value that will not do is noted as an error and gives
//! `None`.

use std::ops::{Bound, Range, RangeBounds};
use std::path::PathBuf;
use std::time::Duration;

use super::report::Help;
use super::section::Section;
use super::tree::{Kind, Node, Origin, Place, Text};
use super::units;
use super::{File, Secret};

const DURATION: &str = "a duration in a string";

/// The longest text from the file that a message repeats; the line is shown anyway.
const REPEATED_MAX: usize = 40;

#[derive(Clone)]
pub struct Item<'a> {
    file: &'a File,
    node: &'a Node,
    /// The key, as messages name the value.
    name: String,
    label: String,
    path: String,
}

/// An entry of a table whose keys are the user's own.
#[derive(Clone)]
pub struct Keyed<'a> {
    pub key: &'a str,
    pub value: Item<'a>,
    place: Place,
}

/// What a parser of a text found wrong, and in which bytes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub message: String,
    pub at: Option<Range<usize>>,
    pub help: Help,
}

impl Fault {
    pub fn new(message: impl Into<String>) -> Fault {
        Fault { message: message.into(), at: None, help: Help::default() }
    }

    pub fn at(self, at: Range<usize>) -> Fault {
        Fault { at: Some(at), ..self }
    }

    pub fn help(self, help: impl Into<Help>) -> Fault {
        Fault { help: help.into(), ..self }
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Fault {
        Fault::new(message)
    }
}

impl From<&str> for Fault {
    fn from(message: &str) -> Fault {
        Fault::new(message)
    }
}

impl<'a> Item<'a> {
    pub(super) fn new(file: &'a File, node: &'a Node, name: String, label: String, path: String) -> Item<'a> {
        Item { file, node, name, label, path }
    }

    fn child(&self, node: &'a Node, name: String) -> Item<'a> {
        let path = format!("{}.{name}", self.path);
        Item { node, name, path, file: self.file, label: self.label.clone() }
    }

    pub fn place(&self) -> Place {
        self.node.place.clone()
    }

    /// Notes an error at this value. Gives `None`, so that it can end a function.
    pub fn fail<T>(&self, message: impl Into<String>, help: impl Into<Help>) -> Option<T> {
        self.fail_place(&self.node.place, message, help)
    }

    fn fail_place<T>(&self, place: &Place, message: impl Into<String>, help: impl Into<Help>) -> Option<T> {
        let message = match self.label.as_str() {
            "" => message.into(),
            label => format!("{label}: {}", message.into()),
        };
        self.file.fail(place, message, help);
        None
    }

    fn wrong_type<T>(&self, wanted: &str) -> Option<T> {
        let name = &self.name;
        match &self.node.kind {
            Kind::Bad => None,
            Kind::Text(text) if text.variable => {
                let help = match text.whole || wanted.contains("string") {
                    true => Help::default(),
                    false => "only a `${…}` alone in its string can stand for a number or a boolean".into(),
                };
                self.fail(format!("`{name}` wants {wanted}, which its variable does not give"), help)
            }
            kind => self.fail(format!("`{name}` wants {wanted}, found {}", kind.describe()), self.quotes(wanted)),
        }
    }

    /// The commonest slip is a pair of quotes too many or too few.
    fn quotes(&self, wanted: &str) -> Help {
        let written = self.file.written(&self.node.place);
        match &self.node.kind {
            Kind::Text(text) if wanted == "true or false" && text.text.parse::<bool>().is_ok() => {
                "write it without quotes".into()
            }
            Kind::Text(text) if wanted.ends_with(" number") || wanted == "an integer" => {
                if text.text.parse::<f64>().is_ok() { "write it without quotes".into() } else { ().into() }
            }
            Kind::Integer(_) if wanted == DURATION => format!("write its unit: \"{written}s\"").into(),
            Kind::Integer(_) | Kind::Float(_) | Kind::Bool(_) | Kind::Datetime(_) if wanted.contains("string") => {
                format!("put it in quotes: \"{written}\"").into()
            }
            Kind::Table(_) if wanted == "a string" => "a key that holds a dot needs quotes: \"a.b\" = …".into(),
            _ => ().into(),
        }
    }

    fn as_text(&self) -> Option<&'a Text> {
        match &self.node.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text of a lone `${…}`, which may stand for a number or a boolean.
    fn variable(&self) -> Option<&'a str> {
        self.as_text().filter(|text| text.whole).map(|text| text.text.trim())
    }

    pub fn text(&self) -> Option<String> {
        self.text_or("a string")
    }

    fn text_or(&self, wanted: &str) -> Option<String> {
        match &self.node.kind {
            Kind::Text(text) => Some(text.text.clone()),
            // Who types `--set index.name=2024` means the text.
            Kind::Integer(_) | Kind::Float(_) | Kind::Bool(_) | Kind::Datetime(_)
                if self.node.place.origin != Origin::File =>
            {
                Some(self.file.written(&self.node.place).to_owned())
            }
            _ => self.wrong_type(wanted),
        }
    }

    /// A string, integer, float or boolean as the text that it is written as.
    pub fn scalar_text(&self) -> Option<String> {
        match &self.node.kind {
            Kind::Integer(number) => Some(number.to_string()),
            Kind::Float(number) => Some(number.to_string()),
            Kind::Bool(value) => Some(value.to_string()),
            _ => self.text_or("a string, a number or a boolean"),
        }
    }

    pub fn texts(&self) -> Option<Vec<String>> {
        self.each("a string or an array of strings", |item| item.text())
    }

    /// The single value, or each of an array. All are read even when one is wrong.
    fn each<T>(&self, wanted: &str, mut read: impl FnMut(&Item<'a>) -> Option<T>) -> Option<Vec<T>> {
        match &self.node.kind {
            Kind::Array(nodes) => {
                let read: Vec<Option<T>> = nodes.iter().map(|node| read(&Item { node, ..self.clone() })).collect();
                read.into_iter().collect()
            }
            Kind::Table(_) => self.wrong_type(wanted),
            _ => read(self).map(|value| vec![value]),
        }
    }

    pub fn is_text(&self) -> bool {
        matches!(self.node.kind, Kind::Text(_))
    }

    pub fn items(&self) -> Option<Vec<Item<'a>>> {
        match &self.node.kind {
            Kind::Array(nodes) => Some(nodes.iter().map(|node| Item { node, ..self.clone() }).collect()),
            _ => self.wrong_type("an array"),
        }
    }

    pub fn entries(&self) -> Option<Vec<Keyed<'a>>> {
        match &self.node.kind {
            Kind::Table(table) => {
                let keyed = table.entries.iter().map(|entry| Keyed {
                    key: &entry.key,
                    value: self.child(&entry.value, entry.key.clone()),
                    place: entry.place.clone(),
                });
                Some(keyed.collect())
            }
            _ => self.wrong_type("a table"),
        }
    }

    pub fn pairs(&self) -> Option<Vec<(String, String)>> {
        let read: Vec<_> =
            self.entries()?.iter().map(|e| e.value.text().map(|text| (e.key.to_owned(), text))).collect();
        read.into_iter().collect()
    }

    pub fn path(&self) -> Option<PathBuf> {
        match self.text_or("a path in a string")? {
            text if text.is_empty() => self.fail(format!("`{}` is empty", self.name), "wanted: a path"),
            text if text.contains('\0') => self.fail(format!("`{}` holds a NUL", self.name), "wanted: a path"),
            text => Some(PathBuf::from(text)),
        }
    }

    /// No message shows what is written here.
    pub fn hide(&self) {
        self.file.hide(&self.node.place);
    }

    pub fn secret(&self) -> Option<Secret> {
        let lone_variable = self.as_text().is_some_and(|text| text.whole);
        let has_default = self.file.written(&self.node.place).contains(':');
        if !lone_variable || has_default {
            self.hide();
            // by then they may have seen it; this is for the next time
            if self.node.place.origin != Origin::File && !matches!(self.node.kind, Kind::Bad) {
                let message = format!("`{}` on the command line is seen by all who list processes", self.name);
                return self.fail(message, "put it in the environment, and write --set KEY='${VARIABLE}'");
            }
        }
        match &self.node.kind {
            Kind::Text(_) | Kind::Table(_) | Kind::Array(_) | Kind::Bad => self.text().map(Secret::new),
            // Not `text`: its message would repeat what was written.
            _ if self.node.place.origin == Origin::File => self.fail(format!("`{}` wants a string", self.name), ()),
            _ => self.text().map(Secret::new),
        }
    }

    pub fn bool(&self) -> Option<bool> {
        match &self.node.kind {
            Kind::Bool(value) => Some(*value),
            _ => match self.variable().and_then(|text| text.parse().ok()) {
                Some(value) => Some(value),
                None => self.wrong_type("true or false"),
            },
        }
    }

    pub fn integer<T: TryFrom<i64>>(&self, range: impl RangeBounds<i64>) -> Option<T> {
        let number = match &self.node.kind {
            Kind::Integer(number) => *number,
            _ => match self.variable().and_then(|text| text.parse().ok()) {
                Some(number) => number,
                None => return self.wrong_type("an integer"),
            },
        };
        self.in_range(number, &range, |number| number.to_string())?;
        T::try_from(number).ok().or_else(|| self.out_of_range(&range, &|number: &i64| number.to_string()))
    }

    pub fn float(&self, range: impl RangeBounds<f64>) -> Option<f64> {
        let number = match &self.node.kind {
            Kind::Float(number) => *number,
            Kind::Integer(number) => *number as f64,
            _ => match self.variable().and_then(|text| text.parse().ok()) {
                Some(number) => number,
                None => return self.wrong_type("a number"),
            },
        };
        self.in_range(number, &range, |number| number.to_string())
    }

    pub fn duration(&self, range: impl RangeBounds<Duration>) -> Option<Duration> {
        let text = self.text_or(DURATION)?;
        let Some(duration) = units::duration(&text) else {
            let help = Help::allowed(["a whole number and one of ms, s, m, h, d, w, as in \"90s\""]);
            return self.fail(format!("`{}` is not a duration", self.name), help);
        };
        self.in_range(duration, &range, |duration| units::duration_text(*duration))
    }

    pub fn bytes(&self, range: impl RangeBounds<u64>) -> Option<u64> {
        let read = match &self.node.kind {
            Kind::Integer(number) => u64::try_from(*number).ok(),
            _ => units::bytes(&self.text_or("a size in a string, or an integer of bytes")?),
        };
        let Some(bytes) = read else {
            let units = "a whole number and one of B, kB, MB, GB, KiB, MiB, GiB, as in \"1MiB\"";
            return self.fail(format!("`{}` is not a size", self.name), Help::allowed([units]));
        };
        self.in_range(bytes, &range, |bytes| units::bytes_text(*bytes))
    }

    fn in_range<T: PartialOrd>(&self, value: T, range: &impl RangeBounds<T>, show: impl Fn(&T) -> String) -> Option<T> {
        if range.contains(&value) { Some(value) } else { self.out_of_range(range, &show) }
    }

    fn out_of_range<T, V>(&self, range: &impl RangeBounds<V>, show: &dyn Fn(&V) -> String) -> Option<T> {
        let allowed = match (range.start_bound(), range.end_bound()) {
            (Bound::Unbounded, Bound::Unbounded) => Help::default(),
            (Bound::Unbounded, Bound::Included(end)) => Help::allowed([format!("up to {}", show(end))]),
            (Bound::Unbounded, Bound::Excluded(end)) => Help::allowed([format!("below {}", show(end))]),
            (start, end) => {
                let start = match start {
                    Bound::Included(start) => show(start),
                    Bound::Excluded(start) => format!("more than {}", show(start)),
                    Bound::Unbounded => String::new(),
                };
                Help::allowed([match end {
                    Bound::Included(end) => format!("{start} to {}", show(end)),
                    Bound::Excluded(end) => format!("{start} to below {}", show(end)),
                    Bound::Unbounded => format!("{start} or more"),
                }])
            }
        };
        self.fail(format!("`{}` is out of range", self.name), allowed)
    }

    pub fn one_of<T: Clone>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(value.clone());
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        if self.has_variable() {
            let message = format!("`{}`: its variable gives none of the allowed", self.name);
            return self.fail(message, Help::allowed(names));
        }
        let repeated = if text.chars().count() <= REPEATED_MAX { format!(" \"{text}\"") } else { String::new() };
        self.fail(format!("`{}`: unknown value{repeated}", self.name), Help::names(&text, &names))
    }

    fn has_variable(&self) -> bool {
        self.as_text().is_some_and(|text| text.variable)
    }

    pub fn parsed<T, E: Into<Fault>>(&self, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        let text = self.text()?;
        let fault: Fault = match parse(&text) {
            Ok(value) => return Some(value),
            Err(fault) => fault.into(),
        };
        if self.has_variable() {
            // The parser's words may quote the text, and that is not to be shown.
            return self.fail(format!("`{}`: what its variable gives cannot be used", self.name), ());
        }
        let place = fault.at.and_then(|at| self.within(&text, at)).unwrap_or_else(|| self.place());
        self.fail_place(&place, format!("`{}`: {}", self.name, fault.message), fault.help)
    }

    pub fn parsed_each<T, E: Into<Fault>>(&self, mut parse: impl FnMut(&str) -> Result<T, E>) -> Option<Vec<T>> {
        self.each("a string or an array of strings", |item| item.parsed(&mut parse))
    }

    /// Where bytes of the value are in the file, if it is written there without escapes.
    fn within(&self, text: &str, at: Range<usize>) -> Option<Place> {
        let written = self.file.written(&self.node.place);
        let start = written.find(text)?;
        let quotes = written.len() - text.len();
        text.get(at.clone())?;
        let base = self.node.place.span.start + start;
        let span = base + at.start..base + at.end;
        (start * 2 == quotes).then_some(Place { span, ..self.place() })
    }

    pub fn table(&self) -> Option<Section<'a>> {
        match &self.node.kind {
            Kind::Table(_) => {
                Some(Section::of(self.file, self.node, self.label.clone(), self.path.clone(), self.place()))
            }
            _ => self.wrong_type("a table"),
        }
    }

    pub fn tables(&self) -> Option<Vec<Section<'a>>> {
        let nodes = match &self.node.kind {
            Kind::Array(nodes) => nodes,
            Kind::Table(_) => {
                let help = format!("write `[[{}]]`", self.path);
                return self.fail(format!("`{}` wants an array of tables, found one table", self.name), help);
            }
            _ => return self.wrong_type("an array of tables"),
        };
        let sections = nodes.iter().enumerate().map(|(i, node)| match &node.kind {
            Kind::Table(_) => {
                let label = self.label_of(node, &format!("{} {}", self.name, i + 1));
                Some(Section::of(self.file, node, label, String::new(), node.place.clone()))
            }
            _ => Item { node, ..self.clone() }.wrong_type("tables"),
        });
        sections.collect::<Vec<_>>().into_iter().collect()
    }

    pub fn component(&self) -> Option<Section<'a>> {
        match &self.node.kind {
            Kind::Table(_) | Kind::Text(_) => {
                let label = self.label_of(self.node, &self.name);
                Some(Section::of(self.file, self.node, label, String::new(), self.place()))
            }
            _ => self.wrong_type("a string, or a table with a `type`"),
        }
    }

    /// `filter 2 (date)`; the type only where it is plain text in the file.
    fn label_of(&self, node: &Node, name: &str) -> String {
        let kind = match &node.kind {
            Kind::Table(table) => table.get("type").map(|entry| &entry.value.kind),
            kind => Some(kind),
        };
        let kind = match kind {
            Some(Kind::Text(text)) if !text.variable && text.text.chars().count() <= REPEATED_MAX => {
                format!(" ({})", text.text)
            }
            _ => String::new(),
        };
        let within = if self.label.is_empty() { String::new() } else { format!("{}, ", self.label) };
        format!("{within}{name}{kind}")
    }

    /// The value as JSON, whatever it is: for settings that are passed on.
    pub fn json(&self) -> Option<serde_json::Value> {
        use serde_json::Value;
        Some(match &self.node.kind {
            Kind::Text(text) => Value::String(text.text.clone()),
            Kind::Integer(number) => Value::from(*number),
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Datetime(text) => Value::String(text.clone()),
            Kind::Float(number) => match serde_json::Number::from_f64(*number) {
                Some(number) => Value::Number(number),
                None => return self.fail(format!("`{}`: JSON has no {number}", self.name), ()),
            },
            Kind::Array(nodes) => {
                let values: Vec<_> = nodes.iter().map(|node| Item { node, ..self.clone() }.json()).collect();
                Value::Array(values.into_iter().collect::<Option<_>>()?)
            }
            Kind::Table(table) => {
                let child = |key: &str, node| self.child(node, key.to_owned()).json();
                let values: Vec<_> =
                    table.entries.iter().map(|e| child(&e.key, &e.value).map(|v| (e.key.clone(), v))).collect();
                Value::Object(values.into_iter().collect::<Option<_>>()?)
            }
            Kind::Bad => return None,
        })
    }
}

impl Keyed<'_> {
    /// Notes an error at the key.
    pub fn fail_key<T>(&self, message: impl Into<String>, help: impl Into<Help>) -> Option<T> {
        self.value.fail_place(&self.place, message, help)
    }

    /// The key in a form of its own, as [`Item::parsed`] reads a value.
    pub fn parsed_key<T, E: Into<Fault>>(&self, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        match parse(self.key) {
            Ok(value) => Some(value),
            Err(fault) => {
                let fault: Fault = fault.into();
                self.fail_key(format!("`{}`: {}", self.key, fault.message), fault.help)
            }
        }
    }
}
