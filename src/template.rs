//! Texts with placeholders: `%{field}`, `%{[a][b]}`, `%{+yyyy.MM.dd}` (Joda), `%{{yyyy-MM-dd}}` (Java) and
//! `%{+%s}` (epoch seconds). Dates are those of the event's `@timestamp` in UTC.
//!
//! Two ways to render. As Logstash does: a field that is missing or null stays as the placeholder was written, and
//! a date of an event without time is empty. Strictly, for ids and index names: either is refused. A value is
//! inserted once; placeholders inside it are not looked at.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::sync::Arc;

use crate::batch::{EventRef, Seq, View};
use crate::date::locale::Locale;
use crate::date::{java, joda};
use crate::field::FieldRef;
use crate::json;

#[derive(Clone, Debug)]
pub struct Template {
    text: Box<str>,
    parts: Box<[Part]>,
}

#[derive(Clone, Debug)]
enum Part {
    Text(Box<str>),
    Field(FieldRef),
    /// `%{{TIME_NOW}}`.
    Now,
    Epoch,
    Joda(Box<str>, Arc<joda::Pattern>),
    Java(Box<str>, Arc<java::Pattern>),
}

/// The placeholder that an event has no text for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved(pub String);

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no text", self.0)
    }
}

/// A date pattern as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatePart<'a> {
    /// `%{+%s}`.
    Epoch,
    Joda(&'a str),
    Java(&'a str),
}

/// A span of time, the finest first. What is rendered by a unit coarser than a day is constant within a day, so it
/// can be kept by day whatever its weeks begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Finer than a second.
    Fraction,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Template {
    pub fn parse(text: &str) -> Result<Template, String> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(open) = rest.find("%{") {
            let Some(close) = rest[open..].find('}').map(|at| open + at) else { break };
            plain.push_str(&rest[..open]);
            let (part, end) = placeholder(&rest[open + 2..close], &rest[close..])?;
            rest = &rest[close + end..];
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain).into()));
            }
            parts.push(part);
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        Ok(Template { text: text.into(), parts: parts.into() })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it has no placeholder.
    pub fn is_constant(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Text(_)))
    }

    /// The text of a template without placeholders.
    pub fn constant(&self) -> Option<&str> {
        self.is_constant().then_some(&self.text)
    }

    /// The fields it inserts.
    pub fn fields(&self) -> impl Iterator<Item = &FieldRef> {
        self.parts.iter().filter_map(|part| if let Part::Field(field) = part { Some(field) } else { None })
    }

    /// As [`Template::parse`], of what an event's document is found by.
    pub fn parse_stable(text: &str) -> Result<Template, String> {
        let template = Template::parse(text)?;
        match template.shows_now() {
            true => Err("`%{{TIME_NOW}}` is another at each reading: no id and no index name may hold it".to_string()),
            false => Ok(template),
        }
    }

    /// Whether it shows the time of reading (`%{{TIME_NOW}}`), which no id and no index name may depend on.
    pub fn shows_now(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Now))
    }

    /// The date patterns in it.
    pub fn date_parts(&self) -> impl Iterator<Item = DatePart<'_>> {
        self.parts.iter().filter_map(|part| match part {
            Part::Epoch => Some(DatePart::Epoch),
            Part::Joda(pattern, _) => Some(DatePart::Joda(pattern)),
            Part::Java(pattern, _) => Some(DatePart::Java(pattern)),
            Part::Text(_) | Part::Field(_) | Part::Now => None,
        })
    }

    /// The finest unit of time that its date patterns show.
    pub fn unit(&self) -> Option<Unit> {
        self.date_parts().filter_map(|part| part.unit()).min()
    }

    /// Renders as Logstash does: what the event has no text for stays as it was written.
    pub fn render(&self, event: &EventRef<'_>, out: &mut Vec<u8>) {
        for part in &self.parts {
            if !part.write(event, out)
                && let Part::Field(field) = part
            {
                out.extend_from_slice(b"%{");
                out.extend_from_slice(field.as_str().as_bytes());
                out.push(b'}');
            }
        }
    }

    /// Renders, or refuses if a placeholder has no text: a field missing, null or empty, an event without time. The
    /// time of reading is refused as well.
    pub fn render_strict(&self, event: &EventRef<'_>, out: &mut Vec<u8>) -> Result<(), Unresolved> {
        for part in &self.parts {
            let from = out.len();
            if matches!(part, Part::Now) || !part.write(event, out) || out.len() == from {
                return Err(Unresolved(part.to_string()));
            }
        }
        Ok(())
    }
}

/// The placeholder with `inner` between `%{` and the first `}`; `after` begins with that bracket. Also gives how
/// much of `after` belongs to it.
fn placeholder(inner: &str, after: &str) -> Result<(Part, usize), String> {
    // Logstash compares only as far as the placeholder goes, so an empty one is epoch seconds too
    if "+%s".starts_with(inner) {
        return Ok((Part::Epoch, 1));
    }
    if let Some(pattern) = inner.strip_prefix('{') {
        if after.len() == 1 {
            return Err(format!("`%{{{inner}}}`: a second closing bracket is missing"));
        }
        if after.starts_with("}}") {
            if pattern == "TIME_NOW" {
                return Ok((Part::Now, 2));
            }
            let compiled = java::Pattern::compile(pattern).map_err(|e| format!("`%{{{{{pattern}}}}}`: {e}"))?;
            return Ok((Part::Java(pattern.into(), Arc::new(compiled)), 2));
        }
    }
    if let Some(pattern) = inner.strip_prefix('+') {
        let compiled =
            joda::Pattern::compile(pattern, Locale::english()).map_err(|e| format!("`%{{+{pattern}}}`: {e}"))?;
        return Ok((Part::Joda(pattern.into(), Arc::new(compiled)), 1));
    }
    Ok((Part::Field(FieldRef::parse(inner)?), 1))
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Text(text) => f.write_str(text),
            Part::Field(field) => write!(f, "%{{{field}}}"),
            Part::Now => f.write_str("%{{TIME_NOW}}"),
            Part::Epoch => f.write_str("%{+%s}"),
            Part::Joda(pattern, _) => write!(f, "%{{+{pattern}}}"),
            Part::Java(pattern, _) => write!(f, "%{{{{{pattern}}}}}"),
        }
    }
}

impl Part {
    /// Writes the part's text; false if the event has none.
    fn write(&self, event: &EventRef<'_>, out: &mut Vec<u8>) -> bool {
        match self {
            Part::Text(text) => {
                out.extend_from_slice(text.as_bytes());
                return true;
            }
            Part::Field(field) => {
                if field.is_timestamp()
                    && let Some(time) = event.time()
                {
                    time.write_iso(out);
                    return true;
                }
                return match event.get(field) {
                    None | Some(View::Null) => false,
                    Some(view) => {
                        write_text(&view, out);
                        true
                    }
                };
            }
            Part::Now => {
                event.now().write_iso(out);
                return true;
            }
            Part::Epoch | Part::Joda(..) | Part::Java(..) => {}
        }
        let Some(time) = event.time() else { return false };
        match self {
            Part::Joda(_, pattern) => pattern.format(time, out),
            Part::Java(_, pattern) => pattern.format(time, out),
            // writing to memory does not fail
            _ => drop(write!(out, "{}", time.secs)),
        }
        true
    }
}

impl DatePart<'_> {
    /// The letters that stand for something, each once, in order.
    pub fn letters(&self) -> Vec<char> {
        let pattern = match self {
            DatePart::Epoch => return vec!['s'],
            DatePart::Joda(pattern) | DatePart::Java(pattern) => pattern,
        };
        let (mut letters, mut quoted) = (Vec::new(), false);
        for c in pattern.chars() {
            quoted ^= c == '\'';
            if !quoted && c.is_ascii_alphabetic() && !letters.contains(&c) {
                letters.push(c);
            }
        }
        letters
    }

    /// The finest unit of time it shows; none for a pattern of eras and zones only.
    pub fn unit(&self) -> Option<Unit> {
        let java = matches!(self, DatePart::Java(_));
        self.letters()
            .into_iter()
            .filter_map(|letter| {
                Some(match letter {
                    'S' | 'n' | 'N' | 'A' => Unit::Fraction,
                    's' => Unit::Second,
                    'm' => Unit::Minute,
                    'h' | 'H' | 'k' | 'K' | 'a' | 'B' => Unit::Hour,
                    'd' | 'D' | 'e' | 'E' | 'c' | 'F' | 'g' => Unit::Day,
                    'w' | 'W' => Unit::Week,
                    'M' | 'L' | 'q' | 'Q' => Unit::Month,
                    'x' if java => return None,
                    'y' | 'Y' | 'u' | 'x' | 'C' => Unit::Year,
                    _ => return None,
                })
            })
            .min()
    }
}

/// A value as a placeholder shows it: text as it is, lists joined by commas, objects as JSON.
pub fn write_text(view: &View<'_>, out: &mut Vec<u8>) {
    match view {
        View::Null => {}
        View::Bool(is) => out.extend_from_slice(if *is { b"true" } else { b"false" }),
        View::Number(text) => number_text(text, out),
        View::Text(text) => out.extend_from_slice(text.as_bytes()),
        View::Array(list) => {
            for (i, (_, element)) in list.entries().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_text(&element, out);
            }
        }
        View::Object(members) => write_object(members, out),
    }
}

fn write_object(members: &Seq<'_>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (i, (key, value)) in members.entries().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        json::write_string(key.as_bytes(), out);
        out.push(b':');
        write_compact(&value, out);
    }
    out.push(b'}');
}

/// JSON without the blanks it may have come with.
fn write_compact(view: &View<'_>, out: &mut Vec<u8>) {
    match view {
        View::Object(members) => write_object(members, out),
        View::Array(list) => {
            out.push(b'[');
            for (i, (_, element)) in list.entries().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_compact(&element, out);
            }
            out.push(b']');
        }
        View::Number(text) => number_text(text, out),
        View::Null | View::Bool(_) | View::Text(_) => view.write_json(out),
    }
}

/// A JSON number as Java prints it: whole numbers as written, others as the nearest double with at least one
/// decimal, with an exponent below 1e-3 and from 1e7 on.
pub fn number_text(text: &str, out: &mut Vec<u8>) {
    match text.parse::<f64>() {
        Ok(number) if text.contains(['.', 'e', 'E']) => java_double(number, out),
        _ => out.extend_from_slice(text.as_bytes()),
    }
}

fn java_double(number: f64, out: &mut Vec<u8>) {
    if number.is_infinite() {
        return out.extend_from_slice(if number > 0.0 { b"Infinity" } else { b"-Infinity" });
    }
    let from = out.len();
    let size = number.abs();
    if number == 0.0 || (1e-3..1e7).contains(&size) {
        // writing to memory does not fail
        return drop(write!(out, "{number:?}"));
    }
    drop(write!(out, "{number:E}"));
    let mark = out[from..].iter().position(|b| *b == b'E').map_or(out.len(), |at| from + at);
    if !out[from..mark].contains(&b'.') {
        out.splice(mark..mark, *b".0");
    }
}

/// The name of a field, which may hold placeholders of its own.
#[derive(Clone, Debug)]
pub enum FieldName {
    Fixed(FieldRef),
    PerEvent(Template),
}

impl FieldName {
    pub fn parse(text: &str) -> Result<FieldName, String> {
        let template = Template::parse(text)?;
        if template.is_constant() {
            FieldRef::parse(text).map(FieldName::Fixed)
        } else {
            Ok(FieldName::PerEvent(template))
        }
    }

    /// The field that the event makes of it; none if that is no field reference.
    pub fn of(&self, event: &EventRef<'_>) -> Option<Cow<'_, FieldRef>> {
        match self {
            FieldName::Fixed(field) => Some(Cow::Borrowed(field)),
            FieldName::PerEvent(template) => {
                let mut text = Vec::new();
                template.render(event, &mut text);
                FieldRef::parse(&String::from_utf8_lossy(&text)).ok().map(Cow::Owned)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::tests::of;
    use proptest::prelude::*;

    const EVENT: &str = r#"{"@timestamp":"2026-02-03T04:05:06.5+01:00","t":"x","e":"","z":null,"b":false,"i":-7,
        "l":[1, null, "a", [2.50, true], {"k" : 1e2}],"o":{ "k" : [ 1 , {"\u0061": 2.0}], "s":"q\"\u00e9" },
        "none":[],"[odd]":1}"#;

    fn check(template: &str, want: &str, strict: Result<(), &str>) {
        let batch = of(EVENT);
        let template = Template::parse(template).unwrap();
        let (mut out, mut again) = (Vec::new(), Vec::new());
        template.render(&batch.event(0), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), want);
        let refused = template.render_strict(&batch.event(0), &mut again).map_err(|e| e.0);
        assert_eq!(refused, strict.map_err(str::to_string), "{want}");
        if strict.is_ok() {
            assert_eq!(String::from_utf8(again).unwrap(), want);
        }
    }

    #[test]
    fn rendering() {
        check("plain", "plain", Ok(()));
        check("", "", Ok(()));
        check("%{t}", "x", Ok(()));
        check("a-%{[t]}-%{b}%{i}", "a-x-false-7", Ok(()));
        check("%{l}", r#"1,,a,2.5,true,{"k":100.0}"#, Ok(()));
        check("%{o}", r#"{"k":[1,{"a":2.0}],"s":"q\"é"}"#, Ok(()));
        check("%{[o][k][0]}", "1", Ok(()));
        check("<%{none}>", "<>", Err("%{none}"));
        check("<%{e}>", "<>", Err("%{e}"));
        check("<%{z}>", "<%{z}>", Err("%{z}"));
        check("<%{[no][such]}>", "<%{[no][such]}>", Err("%{[no][such]}"));
        check("%{@timestamp}", "2026-02-03T03:05:06.500Z", Ok(()));
        check("%{+%s} %{+yyyy.MM.dd} %{{uuuu-MM-dd'T'HH}}", "1770087906 2026.02.03 2026-02-03T03", Ok(()));
        check("%{{TIME_NOW}}", "1970-01-01T00:00:00.000Z", Err("%{{TIME_NOW}}"));
        check("100%{", "100%{", Ok(()));
        check("%{t", "%{t", Ok(()));
        check("%{{x} y", "%{{x} y", Err("%{{x}"));
    }

    #[test]
    fn refusals() {
        for bad in ["%{+b}", "%{a[}", "%{{yyyy}", "%{[a}", "%{{'}}"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers() {
        for (text, want) in [
            ("10000000.0", "1.0E7"),
            ("9999999.5", "9999999.5"),
            ("0.0001", "1.0E-4"),
            ("0.001", "0.001"),
            ("1.25e-7", "1.25E-7"),
            ("-1e21", "-1.0E21"),
            ("1E2", "100.0"),
            ("-0.0", "-0.0"),
            ("1.10", "1.1"),
            ("12345678901234567890", "12345678901234567890"),
            ("1e999", "Infinity"),
        ] {
            let mut out = Vec::new();
            number_text(text, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }

    #[test]
    fn what_it_depends_on() {
        let template = Template::parse("a-%{x}-%{+yyyy.MM.dd}-%{{'H'ww}}").unwrap();
        assert_eq!(template.fields().map(FieldRef::as_str).collect::<Vec<_>>(), ["x"]);
        assert!(!template.shows_now() && Template::parse("%{{TIME_NOW}}").unwrap().shows_now());
        let parts: Vec<_> = template.date_parts().collect();
        assert_eq!(parts, [DatePart::Joda("yyyy.MM.dd"), DatePart::Java("'H'ww")]);
        assert_eq!(parts[0].letters(), ['y', 'M', 'd']);
        assert_eq!(parts[1].unit(), Some(Unit::Week));
        assert_eq!(template.unit(), Some(Unit::Day));
        assert!(!template.is_constant());
        assert_eq!(Template::parse("x").unwrap().constant(), Some("x"));
        for (text, want) in [
            ("%{+%s}", Some(Unit::Second)),
            ("%{+yyyy.MM.dd.HH}", Some(Unit::Hour)),
            ("%{+xxxx.ww}", Some(Unit::Week)),
            ("%{+yyyy}", Some(Unit::Year)),
            ("%{{yyyy-QQ}}", Some(Unit::Month)),
            ("%{+SSS}", Some(Unit::Fraction)),
            ("%{+ZZ}", None),
            ("%{x}", None),
        ] {
            assert_eq!(Template::parse(text).unwrap().unit(), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_never_panics(text in r"(%\{|%\{\+|%\{\{|\}|\}\}|\[|\]|[a-zA-Z%+' é.]){0,12}") {
            if let Ok(template) = Template::parse(&text) {
                let batch = of(EVENT);
                let mut out = Vec::new();
                template.render(&batch.event(0), &mut out);
                let _ = template.render_strict(&batch.event(0), &mut out);
            }
        }
    }
}
