//! Which index an event goes to: strictly by the event itself, never by when it arrived.
//!
//! ```toml
//! [index]
//! name = "apache-%{+yyyy.MM.dd}"
//! strict = true
//! bad_name = "dead-letter"   # or "repair"
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use crate::ack::Reason;
use crate::batch::{Batch, EventRef, Source, Span};
use crate::template::{DatePart, Template, Unit};
use crate::time::Time;

/// What to do with a name that no engine would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadName {
    DeadLetter,
    /// Upper case becomes lower case, what is not allowed becomes `-`, and the name is cut to 255 bytes.
    Repair,
}

pub struct Route {
    template: Template,
    /// What stands between the placeholders, as [`repaired`] leaves it.
    fixed: Vec<String>,
    bad_name: BadName,
    /// The name depends on the time alone, and changes with this unit.
    by_time: Option<Unit>,
}

/// The names a worker has met in the parcel it packs.
#[derive(Default)]
pub struct Names {
    indices: Vec<Arc<str>>,
    places: HashMap<Arc<str>, u32>,
    /// The time's unit that was met last, and the index of that.
    last: Option<(i64, u32)>,
    text: Vec<u8>,
}

impl Names {
    pub fn get(&self, place: u32) -> &Arc<str> {
        &self.indices[place as usize]
    }

    /// Ends a parcel: its indices.
    pub fn take(&mut self) -> Vec<Arc<str>> {
        self.places.clear();
        self.last = None;
        std::mem::take(&mut self.indices)
    }

    fn place(&mut self, name: &str) -> u32 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let name: Arc<str> = name.into();
        let place = self.indices.len() as u32;
        self.indices.push(name.clone());
        self.places.insert(name, place);
        place
    }
}

impl Route {
    pub fn new(template: Template, bad_name: BadName) -> Route {
        let by_time = if template.fields().next().is_none() { template.unit().or(Some(Unit::Year)) } else { None };
        let fixed = pattern(&template).split('*').map(plain).collect();
        Route { template, fixed, bad_name, by_time }
    }

    /// The index of an event of this moment; none where it depends on more than the time.
    pub fn sample(&self, now: Time) -> Option<String> {
        self.by_time?;
        let mut batch = Batch::new(Vec::new(), Arc::new(Source::default()));
        batch.push(Span::new(0, 0), 0).set_time(now);
        let mut names = Names::default();
        let place = self.find(&batch.event(0), now, &mut names).ok()?;
        Some(names.get(place).to_string())
    }

    /// The event's index, as a place in `names`.
    pub fn find(&self, event: &EventRef<'_>, time: Time, names: &mut Names) -> Result<u32, (Reason, String)> {
        let bucket = self.by_time.map(|unit| bucket(unit, time));
        if let (Some(bucket), Some((last, place))) = (bucket, names.last)
            && bucket == last
        {
            return Ok(place);
        }
        let mut text = std::mem::take(&mut names.text);
        text.clear();
        let place = match self.template.render_strict(event, &mut text) {
            Ok(()) => self.named(&text, names),
            Err(unresolved) => Err((Reason::BadIndexName, format!("no index: {unresolved}"))),
        };
        names.text = text;
        if let (Some(bucket), Ok(place)) = (bucket, &place) {
            names.last = Some((bucket, *place));
        }
        place
    }

    fn named(&self, name: &[u8], names: &mut Names) -> Result<u32, (Reason, String)> {
        let name = String::from_utf8_lossy(name);
        match (legal(&name).and_then(|()| self.visible(&name)), self.bad_name) {
            (Ok(()), _) => Ok(names.place(&name)),
            (Err(why), BadName::DeadLetter) => Err((Reason::BadIndexName, format!("`{name}` {why}"))),
            (Err(why), BadName::Repair) => match self.repaired(&name) {
                Some(name) => Ok(names.place(&name)),
                None => Err((Reason::BadIndexName, format!("`{name}` {why}"))),
            },
        }
    }

    /// Indices of the engine itself begin with a dot: no event chooses one.
    fn visible(&self, name: &str) -> Result<(), String> {
        if name.starts_with('.') && !self.fixed[0].starts_with('.') {
            return Err("begins with `.`, which [index] name does not".to_string());
        }
        Ok(())
    }

    /// A legal name that the pipeline file allows: the text between its placeholders is still there.
    fn repaired(&self, name: &str) -> Option<String> {
        let name = repaired(name, self.fixed[0].starts_with('.'))?;
        let [first, inner @ .., last] = self.fixed.as_slice() else { return Some(name) };
        let mut rest = name.strip_prefix(first.as_str())?;
        for text in inner {
            rest = &rest[rest.find(text.as_str())? + text.len()..];
        }
        rest.ends_with(last.as_str()).then_some(name)
    }
}

/// The names that a template makes, with `*` for every placeholder.
pub fn pattern(template: &Template) -> String {
    let (mut out, mut rest) = (String::new(), template.as_str());
    while let Some(at) = rest.find("%{") {
        let java = rest[at..].starts_with("%{{");
        let (end, width) = if java { (rest[at..].find("}}"), 2) } else { (rest[at..].find('}'), 1) };
        let Some(end) = end else { break };
        out.push_str(&rest[..at]);
        if !out.ends_with('*') {
            out.push('*');
        }
        rest = &rest[at + end + width..];
    }
    out.push_str(rest);
    out
}

/// Names that show a wrong year for some days, or a week under the wrong one.
pub fn week_traps(template: &Template) -> Vec<String> {
    let mut out = Vec::new();
    for part in template.date_parts() {
        let letters = part.letters();
        let has = |letter: char| letters.contains(&letter);
        let (week_year, week) = match part {
            DatePart::Epoch => continue,
            // in Joda's patterns `Y` is the year of the era, and `x` that of the week
            DatePart::Joda(_) => (has('x'), has('w')),
            DatePart::Java(_) => (has('Y'), has('w')),
        };
        let calendar_year = has('y') || has('u') || matches!(part, DatePart::Joda(_)) && has('Y');
        let letter = if matches!(part, DatePart::Joda(_)) { "xxxx" } else { "YYYY" };
        if week_year && !week {
            out.push(format!(
                "`{letter}` is the year that the week belongs to: some days about New Year go under the wrong year; \
                 write `yyyy`"
            ));
        }
        if week && calendar_year && !week_year {
            out.push(format!(
                "the week `ww` stands beside the calendar year: some days about New Year go under a week of the wrong \
                 year; write `{letter}` with `ww`"
            ));
        }
        if has('D') && (has('M') || has('d')) {
            out.push("`D` is the day of the year; the day of the month is `d`".to_string());
        }
        if let DatePart::Joda(_) = part
            && has('Y')
            && !week
        {
            out.push(
                "`YYYY` means the calendar year here (Joda), but the year of the week in `%{{…}}` (Java): `yyyy` is \
                 the same in both"
                    .to_string(),
            );
        }
    }
    out
}

/// A number that changes whenever the name may change. Units longer than a day change with a day.
fn bucket(unit: Unit, time: Time) -> i64 {
    match unit {
        Unit::Fraction => time.secs.wrapping_mul(1_000_000_000).wrapping_add(i64::from(time.nanos)),
        Unit::Second => time.secs,
        Unit::Minute => time.secs.div_euclid(60),
        Unit::Hour => time.secs.div_euclid(3600),
        Unit::Day | Unit::Week | Unit::Month | Unit::Year => time.day(),
    }
}

const FORBIDDEN: &[char] = &['\\', '/', '*', '?', '"', '<', '>', '|', ' ', ',', '#', ':'];
const NAME_BYTES_MAX: usize = 255;

/// Whether the engines take the name, and if not why.
pub fn legal(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("is empty".to_string());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("is longer than {NAME_BYTES_MAX} bytes"));
    }
    if name.starts_with(['_', '-', '+']) {
        return Err("begins with `_`, `-` or `+`".to_string());
    }
    if name == "." || name == ".." {
        return Err("is a folder's name".to_string());
    }
    match name.chars().find(|c| forbidden(*c) || c.is_uppercase()) {
        Some(c) if c.is_uppercase() => Err(format!("holds the upper-case letter `{c}`")),
        Some(c) => Err(format!("holds {c:?}, which no index name may")),
        None => Ok(()),
    }
}

fn forbidden(c: char) -> bool {
    FORBIDDEN.contains(&c) || c.is_control()
}

/// In lower case, with `-` for what is forbidden.
fn plain(text: &str) -> String {
    text.to_lowercase().chars().map(|c| if forbidden(c) { '-' } else { c }).collect()
}

fn repaired(name: &str, may_be_hidden: bool) -> Option<String> {
    let mut out = plain(name);
    let legal_start = out.trim_start_matches(|c| matches!(c, '_' | '-' | '+') || c == '.' && !may_be_hidden).len();
    out.drain(..out.len() - legal_start);
    let mut end = out.len().min(NAME_BYTES_MAX);
    while !out.is_char_boundary(end) {
        end -= 1;
    }
    out.truncate(end);
    legal(&out).is_ok().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "logs-2026.03.01", "a_b", ".hidden", "größe"] {
            assert_eq!(legal(good), Ok(()), "{good}");
        }
        let long = "x".repeat(256);
        for (bad, repair) in [
            ("", None),
            ("Logs", Some("logs")),
            ("a b", Some("a-b")),
            ("a/b,c", Some("a-b-c")),
            ("_a", Some("a")),
            ("-+_", None),
            ("..", None),
            ("a\n", Some("a-")),
            ("a:b", Some("a-b")),
            (&long, Some(&long[1..])),
        ] {
            assert!(legal(bad).is_err(), "{bad}");
            assert_eq!(repaired(bad, true).as_deref(), repair, "{bad}");
        }
    }

    /// The index of an event whose field `t` is `value`.
    fn route(name: &str, value: &str, bad_name: BadName) -> Option<String> {
        let mut batch = Batch::new(Vec::new(), Arc::new(Source::default()));
        let mut event = batch.push(Span::new(0, 0), 0);
        event.set(&crate::field::FieldRef::top("t"), crate::batch::New::Text(value));
        event.set_time(Time::EPOCH);
        let route = Route::new(Template::parse(name).unwrap(), bad_name);
        let mut names = Names::default();
        let place = route.find(&batch.event(0), Time::EPOCH, &mut names).ok()?;
        Some(names.get(place).to_string())
    }

    #[test]
    fn no_event_chooses_an_index_that_the_name_does_not_allow() {
        let long = "x".repeat(300);
        for (name, value, strict, repair) in [
            ("%{t}", "a", Some("a"), Some("a")),
            ("%{t}", ".kibana", None, Some("kibana")),
            ("%{t}", "..", None, None),
            (".%{t}", "mine", Some(".mine"), Some(".mine")),
            ("%{t}-logs", "_", None, None),
            ("%{t}-logs", "", None, None),
            ("%{t}-logs", "../A", None, Some("a-logs")),
            ("app-%{t}-%{+yyyy}", "../A,b", None, Some("app-..-a-b-1970")),
            ("app-%{t}-%{+yyyy}", &long, None, None),
            ("App-%{t}", "x", None, Some("app-x")),
            ("app-%{t}", &long, None, Some(&format!("app-{}", &long[..251]))),
            ("app-%{t}", "<x-{now/d}>", None, Some("app--x-{now-d}-")),
        ] {
            assert_eq!(route(name, value, BadName::DeadLetter).as_deref(), strict, "{name} {value}");
            assert_eq!(route(name, value, BadName::Repair).as_deref(), repair, "{name} {value}");
        }
    }
}
