//! `mutate`: changes fields. Its operations run in Logstash's order, whatever the order in the file: coerce, rename,
//! update, replace, convert, gsub, uppercase, capitalize, lowercase, strip, split, join, merge, copy. One that
//! fails ends the filter for that event, with a tag; what was done before it stays.

use std::borrow::Cow;

use super::common::with_text;
use super::convert::{self, Failed, Form, Kind, capital, convert, ruby_number};
use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, EventRef, New, Seq, View};
use crate::config::{Item, Section};
use crate::field::FieldRef;
use crate::json;
use crate::regexp::Regexp;
use crate::template::{FieldName, Template};

#[derive(Clone, Debug)]
pub struct Config {
    pub coerce: Vec<(FieldRef, Template)>,
    pub rename: Vec<(FieldName, FieldName)>,
    pub update: Vec<(FieldRef, Template)>,
    pub replace: Vec<(FieldRef, Template)>,
    pub convert: Vec<(FieldRef, Kind)>,
    pub gsub: Vec<Gsub>,
    pub uppercase: Vec<FieldRef>,
    pub capitalize: Vec<FieldRef>,
    pub lowercase: Vec<FieldRef>,
    pub strip: Vec<FieldRef>,
    pub split: Vec<(FieldRef, String)>,
    pub join: Vec<(FieldRef, String)>,
    /// Into the first, from each of the second.
    pub merge: Vec<(FieldRef, Vec<FieldRef>)>,
    /// From the first to the second.
    pub copy: Vec<(FieldRef, FieldRef)>,
    pub tag_on_failure: String,
}

/// Replaces what `needle` finds.
#[derive(Clone, Debug)]
pub struct Gsub {
    pub field: FieldRef,
    pub needle: Needle,
    pub replacement: Template,
}

#[derive(Clone, Debug)]
pub enum Needle {
    Fixed(Regexp),
    /// A pattern that is made for each event.
    PerEvent(Template),
}

impl Needle {
    pub fn parse(text: &str) -> Result<Needle, String> {
        if text.contains("%{") {
            let template = Template::parse(text)?;
            if !template.is_constant() {
                return Ok(Needle::PerEvent(template));
            }
        }
        Regexp::parse(text).map(Needle::Fixed)
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            coerce: Vec::new(),
            rename: Vec::new(),
            update: Vec::new(),
            replace: Vec::new(),
            convert: Vec::new(),
            gsub: Vec::new(),
            uppercase: Vec::new(),
            capitalize: Vec::new(),
            lowercase: Vec::new(),
            strip: Vec::new(),
            split: Vec::new(),
            join: Vec::new(),
            merge: Vec::new(),
            copy: Vec::new(),
            tag_on_failure: "_mutate_error".to_string(),
        }
    }
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let templates = |key| table(t, key, |item| item.parsed(Template::parse));
        let fields = |key| t.parsed_each(key, FieldRef::parse).or_default();
        let texts = |key| table(t, key, |item| item.text());
        let renames = t.entries("rename").or_default();
        let rename =
            renames.iter().filter_map(|e| e.parsed_key(FieldName::parse).zip(e.value.parsed(FieldName::parse)));
        Some(Config {
            coerce: templates("coerce"),
            rename: rename.collect(),
            update: templates("update"),
            replace: templates("replace"),
            convert: table(t, "convert", |item| item.one_of(convert::KINDS)),
            gsub: gsubs(t),
            uppercase: fields("uppercase"),
            capitalize: fields("capitalize"),
            lowercase: fields("lowercase"),
            strip: fields("strip"),
            split: texts("split"),
            join: texts("join"),
            merge: table(t, "merge", |item| item.parsed_each(FieldRef::parse)),
            copy: table(t, "copy", |item| item.parsed(FieldRef::parse)),
            tag_on_failure: t.text("tag_on_failure").or(Config::default().tag_on_failure),
        })
    }
}

fn table<T>(t: &Section<'_>, key: &'static str, value: impl Fn(&Item<'_>) -> Option<T>) -> Vec<(FieldRef, T)> {
    let entries = t.entries(key).or_default();
    entries.iter().filter_map(|e| e.parsed_key(FieldRef::parse).zip(value(&e.value))).collect()
}

fn gsubs(t: &Section<'_>) -> Vec<Gsub> {
    let items = t.items("gsub").or_default();
    if !items.len().is_multiple_of(3) {
        t.fail_at("gsub", "`gsub` wants three texts for each change", "wanted: field, pattern, replacement, …");
        return Vec::new();
    }
    let read = |of: &[Item<'_>]| {
        let field = of[0].parsed(FieldRef::parse);
        let needle = of[1].parsed(Needle::parse);
        let replacement = of[2].parsed(Template::parse);
        Some(Gsub { field: field?, needle: needle?, replacement: replacement? })
    };
    items.chunks_exact(3).filter_map(read).collect()
}

#[derive(Clone, Debug)]
pub struct Mutate {
    config: Config,
}

impl Mutate {
    pub fn build(config: Config) -> Result<Mutate, String> {
        Ok(Mutate { config })
    }

    fn run(&self, event: &mut EventMut<'_>) -> Result<(), Failed> {
        let c = &self.config;
        for (field, value) in &c.coerce {
            if matches!(event.get(field), Some(View::Null)) {
                put_text(event, field, value)?;
            }
        }
        c.rename.iter().try_for_each(|(from, to)| rename(event, from, to))?;
        for (field, value) in &c.update {
            if event.get(field).is_some() {
                put_text(event, field, value)?;
            }
        }
        c.replace.iter().try_for_each(|(field, value)| put_text(event, field, value))?;
        for (field, kind) in &c.convert {
            edit(event, field, |view, out| convert(*kind, view, out))?;
        }
        c.gsub.iter().try_for_each(|gsub| substitute(event, gsub))?;
        each_text(event, &c.uppercase, |text, out| extend(out, text.chars().flat_map(char::to_uppercase)))?;
        each_text(event, &c.capitalize, |text, out| out.extend_from_slice(capital(text).as_bytes()))?;
        each_text(event, &c.lowercase, |text, out| out.extend_from_slice(text.to_lowercase().as_bytes()))?;
        c.strip.iter().try_for_each(|field| strip(event, field))?;
        c.split.iter().try_for_each(|(field, separator)| split(event, field, separator))?;
        c.join.iter().try_for_each(|(field, separator)| join(event, field, separator))?;
        for (into, from) in &c.merge {
            from.iter().try_for_each(|from| merge(event, into, from))?;
        }
        c.copy.iter().try_for_each(|(from, to)| copy(event, from, to))
    }
}

impl Filter for Mutate {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        match self.run(event) {
            Ok(()) => Applied::Matched,
            Err(Failed(reason)) => {
                tracing::debug!(reason, offset = event.read().offset(), "mutate failed");
                event.add_tag(&self.config.tag_on_failure);
                Applied::Unmatched
            }
        }
    }
}

fn extend(out: &mut Vec<u8>, chars: impl Iterator<Item = char>) {
    chars.for_each(|c| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()));
}

fn set(event: &mut EventMut<'_>, field: &FieldRef, value: New<'_>) -> Result<(), Failed> {
    if event.set(field, value) { Ok(()) } else { Err(Failed(format!("{field} cannot be set"))) }
}

fn put_text(event: &mut EventMut<'_>, field: &FieldRef, value: &Template) -> Result<(), Failed> {
    with_text(event, value, |event, text| set(event, field, New::Text(text)))
}

fn rename(event: &mut EventMut<'_>, from: &FieldName, to: &FieldName) -> Result<(), Failed> {
    let name =
        |name: Option<Cow<'_, FieldRef>>| name.map(Cow::into_owned).ok_or_else(|| Failed("no field name".into()));
    let (fixed_from, fixed_to);
    let (from, to) = match (from, to) {
        (FieldName::Fixed(from), FieldName::Fixed(to)) => (from, to),
        _ => {
            fixed_from = name(from.of(&event.read()))?;
            fixed_to = name(to.of(&event.read()))?;
            (&fixed_from, &fixed_to)
        }
    };
    let Some(value) = event.take(from) else { return Ok(()) };
    if event.put(to, value) {
        return Ok(());
    }
    // Logstash loses the value here
    event.put(from, value);
    Err(Failed(format!("{to} cannot be set")))
}

/// Writes the field anew: `change` is called with its value, or with each element of a list, and says what it wrote.
fn edit(
    event: &mut EventMut<'_>,
    field: &FieldRef,
    mut change: impl FnMut(&View<'_>, &mut Vec<u8>) -> Result<Form, Failed>,
) -> Result<(), Failed> {
    let mut draft = event.take_draft();
    let form = match event.get(field) {
        None | Some(View::Null | View::Object(_)) => Ok(Form::Same),
        Some(View::Array(list)) => edit_list(&list, &mut draft, change),
        Some(view) => change(&view, &mut draft),
    };
    let done = match form {
        Ok(Form::Same) => Ok(()),
        Ok(Form::Text) => set(event, field, New::Text(&String::from_utf8_lossy(&draft))),
        Ok(Form::Json) => set(event, field, New::Json(&draft)),
        Err(failed) => Err(failed),
    };
    event.keep_draft(draft);
    done
}

fn edit_list(
    list: &Seq<'_>,
    out: &mut Vec<u8>,
    mut change: impl FnMut(&View<'_>, &mut Vec<u8>) -> Result<Form, Failed>,
) -> Result<Form, Failed> {
    let (mut changed, mut text) = (false, Vec::new());
    out.push(b'[');
    for (i, (_, element)) in list.entries().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        text.clear();
        match change(&element, &mut text)? {
            Form::Same => {
                element.write_json(out);
                continue;
            }
            Form::Text => json::write_string(&text, out),
            Form::Json => out.extend_from_slice(&text),
        }
        changed = true;
    }
    out.push(b']');
    Ok(if changed { Form::Json } else { Form::Same })
}

/// Changes text, and text in lists; anything else stays.
fn each_text(event: &mut EventMut<'_>, fields: &[FieldRef], change: impl Fn(&str, &mut Vec<u8>)) -> Result<(), Failed> {
    fields.iter().try_for_each(|field| {
        edit(event, field, |view, out| {
            let View::Text(text) = view else { return Ok(Form::Same) };
            change(text, out);
            Ok(if out == text.as_bytes() { Form::Same } else { Form::Text })
        })
    })
}

fn strip(event: &mut EventMut<'_>, field: &FieldRef) -> Result<(), Failed> {
    let in_list = matches!(event.get(field), Some(View::Array(_)));
    edit(event, field, |view, out| match view {
        View::Text(text) => {
            out.extend_from_slice(convert::strip(text).as_bytes());
            Ok(if out.len() == text.len() { Form::Same } else { Form::Text })
        }
        _ if in_list => Err(Failed(format!("{field} holds more than text, which cannot be stripped"))),
        _ => Ok(Form::Same),
    })
}

fn substitute(event: &mut EventMut<'_>, gsub: &Gsub) -> Result<(), Failed> {
    if !matches!(event.get(&gsub.field), Some(View::Text(_) | View::Array(_))) {
        return Ok(());
    }
    let made;
    let needle = match &gsub.needle {
        Needle::Fixed(regexp) => regexp,
        Needle::PerEvent(template) => {
            made = Regexp::parse_of_event(&filled(template, &event.read())).map_err(Failed)?;
            &made
        }
    };
    let replacement = filled(&gsub.replacement, &event.read());
    edit(event, &gsub.field, |view, out| {
        let View::Text(text) = view else { return Ok(Form::Same) };
        match needle.replace_all(text, &replacement, out) {
            Ok(found) => Ok(if found { Form::Text } else { Form::Same }),
            Err(runaway) => Err(Failed(runaway.to_string())),
        }
    })
}

fn filled<'t>(template: &'t Template, event: &EventRef<'_>) -> Cow<'t, str> {
    if let Some(text) = template.constant() {
        return Cow::Borrowed(text);
    }
    let mut text = Vec::new();
    template.render(event, &mut text);
    Cow::Owned(String::from_utf8_lossy(&text).into_owned())
}

/// As Ruby splits: a lone blank means any white space, and empty parts at the end fall away.
fn split(event: &mut EventMut<'_>, field: &FieldRef, separator: &str) -> Result<(), Failed> {
    let mut list = event.take_draft();
    let split = match event.get(field) {
        Some(View::Text(text)) => {
            let parts: Vec<&str> = match separator {
                " " => text.split(|c: char| matches!(c, '\0' | '\t'..='\r' | ' ')).filter(|p| !p.is_empty()).collect(),
                "" => text.split("").filter(|p| !p.is_empty()).collect(),
                separator => text.split(separator).collect(),
            };
            let len = parts.iter().rposition(|part| !part.is_empty()).map_or(0, |at| at + 1);
            write_list(parts[..len].iter(), &mut list, |part, out| json::write_string(part.as_bytes(), out));
            true
        }
        _ => false,
    };
    let done = if split { set(event, field, New::Json(&list)) } else { Ok(()) };
    event.keep_draft(list);
    done
}

fn write_list<T>(elements: impl Iterator<Item = T>, out: &mut Vec<u8>, write: impl Fn(T, &mut Vec<u8>)) {
    out.push(b'[');
    for (i, element) in elements.enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write(element, out);
    }
    out.push(b']');
}

fn join(event: &mut EventMut<'_>, field: &FieldRef, separator: &str) -> Result<(), Failed> {
    let mut text = event.take_draft();
    let joined = match event.get(field) {
        Some(View::Array(list)) => {
            join_list(&list, separator, &mut text);
            true
        }
        _ => false,
    };
    let done = if joined { set(event, field, New::Text(&String::from_utf8_lossy(&text))) } else { Ok(()) };
    event.keep_draft(text);
    done
}

fn join_list(list: &Seq<'_>, separator: &str, out: &mut Vec<u8>) {
    for (i, (_, element)) in list.entries().enumerate() {
        if i > 0 {
            out.extend_from_slice(separator.as_bytes());
        }
        match &element {
            View::Null => {}
            View::Array(inner) => join_list(inner, separator, out),
            View::Text(text) => out.extend_from_slice(text.as_bytes()),
            View::Number(text) => ruby_number(text, out),
            View::Bool(_) | View::Object(_) => element.write_json(out),
        }
    }
}

/// Two objects become one, the added members going before; anything else a list of both. An object and something
/// else are left as they are, and nothing is made of two missing fields.
fn merge(event: &mut EventMut<'_>, into: &FieldRef, from: &FieldRef) -> Result<(), Failed> {
    let mut merged = event.take_draft();
    let (held, added) = (event.get(into), event.get(from));
    let is_object = |view: &Option<View<'_>>| matches!(view, Some(View::Object(_)));
    let write = match (&held, &added) {
        (None | Some(View::Null), None | Some(View::Null)) => false,
        (Some(View::Object(held)), Some(View::Object(added))) => {
            merge_objects(held, added, &mut merged);
            true
        }
        _ if is_object(&held) || is_object(&added) => false,
        _ => {
            merged.push(b'[');
            write_elements(held.as_ref(), &mut merged);
            write_elements(added.as_ref(), &mut merged);
            merged.push(b']');
            true
        }
    };
    let done = if write { set(event, into, New::Json(&merged)) } else { Ok(()) };
    event.keep_draft(merged);
    done
}

/// The elements of a list, or a lone value, after those written already.
fn write_elements(view: Option<&View<'_>>, out: &mut Vec<u8>) {
    let mut element = |view: &View<'_>| {
        if out.len() > 1 {
            out.push(b',');
        }
        view.write_json(out);
    };
    match view {
        None | Some(View::Null) => {}
        Some(View::Array(list)) => list.entries().for_each(|(_, view)| element(&view)),
        Some(view) => element(view),
    }
}

fn merge_objects(held: &Seq<'_>, added: &Seq<'_>, out: &mut Vec<u8>) {
    let find = |members: &Seq<'_>, name: &str| members.entries().any(|(key, _)| key == name);
    let mut members = held.entries().map(|(key, value)| {
        let newer = added.entries().find(|(other, _)| *other == key).map(|(_, value)| value);
        (key, newer.unwrap_or(value))
    });
    let mut all: Vec<_> = members.by_ref().collect();
    all.extend(added.entries().filter(|(key, _)| !find(held, key)));
    write_list(all.iter(), out, |(key, value), out| {
        json::write_string(key.as_bytes(), out);
        out.push(b':');
        value.write_json(out);
    });
    // written as a list, with the brackets of an object
    if let [first, .., last] = &mut out[..] {
        (*first, *last) = (b'{', b'}');
    }
}

fn copy(event: &mut EventMut<'_>, from: &FieldRef, to: &FieldRef) -> Result<(), Failed> {
    let mut value = event.take_draft();
    let found = match event.get(from) {
        None | Some(View::Null) => false,
        Some(view) => {
            view.write_json(&mut value);
            true
        }
    };
    let done = if found { set(event, to, New::Json(&value)) } else { Ok(()) };
    event.keep_draft(value);
    done
}
