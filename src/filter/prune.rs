//! `prune`: removes fields by their names or by what they hold.
//!
//! ```toml
//! [[filter]]
//! type = "prune"
//! whitelist_names = ["^@timestamp$", "^message$", "^user_"]
//! blacklist_values = { user_agent = "bot" }
//! ```
//!
//! Patterns stand for a part of the name; only top-level fields are looked at. Without a list of its own, fields
//! whose names hold a placeholder that nothing filled (`%{…}`) are removed.

use std::borrow::Cow;

use super::common::with_text;
use super::convert::text_of;
use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, View};
use crate::config::{Item, Section};
use crate::field::FieldRef;
use crate::regexp::Regexp;
use crate::template::Template;

#[derive(Clone, Debug)]
pub struct Config {
    pub whitelist_names: Vec<Pattern>,
    pub blacklist_names: Vec<Pattern>,
    pub whitelist_values: Vec<(Name, Pattern)>,
    pub blacklist_values: Vec<(Name, Pattern)>,
}

/// The name of a field whose value is looked at.
#[derive(Clone, Debug)]
pub enum Name {
    Fixed(FieldRef),
    /// Made for each event, with `interpolate`.
    PerEvent(Template),
}

impl Name {
    fn parse(text: &str, interpolate: bool) -> Result<Name, String> {
        match interpolate {
            true => Template::parse(text).map(Name::PerEvent),
            false => Ok(Name::Fixed(FieldRef::top(text))),
        }
    }

    fn of(&self, event: &mut EventMut<'_>) -> FieldRef {
        match self {
            Name::Fixed(field) => field.clone(),
            Name::PerEvent(template) => with_text(event, template, |_, text| FieldRef::top(text)),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Pattern {
    Fixed(Regexp),
    /// Made for each event, with `interpolate`.
    PerEvent(Template),
}

impl Pattern {
    fn parse(text: &str, interpolate: bool) -> Result<Pattern, String> {
        if interpolate {
            let template = Template::parse(text)?;
            if !template.is_constant() {
                return Ok(Pattern::PerEvent(template));
            }
        }
        Regexp::parse(text).map(Pattern::Fixed)
    }

    /// The pattern as it is for this event; none if what is made is no pattern.
    fn of(&self, event: &mut EventMut<'_>) -> Option<Cow<'_, Regexp>> {
        match self {
            Pattern::Fixed(regexp) => Some(Cow::Borrowed(regexp)),
            Pattern::PerEvent(template) => {
                with_text(event, template, |_, text| Regexp::parse(text).ok()).map(Cow::Owned)
            }
        }
    }
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let interpolate = t.bool("interpolate").or(false);
        let names = |key| t.parsed_each(key, |text| Pattern::parse(text, interpolate));
        let values = |key| {
            let entries = t.entries(key).or_default();
            let value = |item: &Item<'_>| item.parsed(|text| Pattern::parse(text, interpolate));
            entries
                .iter()
                .filter_map(|e| e.parsed_key(|text| Name::parse(text, interpolate)).zip(value(&e.value)))
                .collect()
        };
        let unfilled = Regexp::parse(r"%\{[^}]+\}").map(Pattern::Fixed);
        Some(Config {
            whitelist_names: names("whitelist_names").or_default(),
            blacklist_names: names("blacklist_names").or(unfilled.into_iter().collect()),
            whitelist_values: values("whitelist_values"),
            blacklist_values: values("blacklist_values"),
        })
    }
}

#[derive(Clone, Debug)]
pub struct Prune {
    config: Config,
}

impl Prune {
    pub fn build(config: Config) -> Result<Prune, String> {
        Ok(Prune { config })
    }
}

type MadePattern<'a> = Cow<'a, Regexp>;
type MadeValue<'a> = (FieldRef, MadePattern<'a>);

/// The patterns of names as they are for this event; none if there is nothing to look for.
fn names_of<'a>(event: &mut EventMut<'_>, patterns: &'a [Pattern]) -> Option<Vec<MadePattern<'a>>> {
    (!patterns.is_empty()).then(|| patterns.iter().filter_map(|pattern| pattern.of(event)).collect())
}

fn values_of<'a>(event: &mut EventMut<'_>, values: &'a [(Name, Pattern)]) -> Vec<MadeValue<'a>> {
    values.iter().filter_map(|(name, pattern)| Some((name.of(event), pattern.of(event)?))).collect()
}

/// Fields whose names no pattern fits (`is_wanted`), or one does.
fn remove_names(event: &mut EventMut<'_>, patterns: Option<&[MadePattern<'_>]>, is_wanted: bool) {
    let Some(patterns) = patterns else { return };
    let is_hit = |name: &str| patterns.iter().any(|pattern| pattern.is_match(name).unwrap_or(false));
    let names = event.read().fields().entries().map(|(name, _)| name.into_owned());
    let removed: Vec<String> = names.filter(|name| is_hit(name) != is_wanted).collect();
    for name in removed {
        event.remove(&FieldRef::top(&name));
    }
}

/// Fields, and elements of lists, that the pattern does not fit (`is_wanted`), or does.
fn remove_values(event: &mut EventMut<'_>, values: &[MadeValue<'_>], is_wanted: bool) {
    for (field, pattern) in values {
        let goes = |view: &View<'_>| pattern.is_match(&text_of(view)).unwrap_or(false) != is_wanted;
        let rest = match event.get(field) {
            None | Some(View::Null) => continue,
            Some(View::Array(items)) => {
                let stay: Vec<View<'_>> = items.entries().map(|(_, item)| item).filter(|item| !goes(item)).collect();
                if stay.len() == items.entries().count() {
                    continue;
                }
                list_of(&stay)
            }
            Some(view) if goes(&view) => None,
            Some(_) => continue,
        };
        match rest {
            Some(list) => event.set(field, New::Json(&list)),
            None => event.remove(field),
        };
    }
}

/// None for an empty list.
fn list_of(items: &[View<'_>]) -> Option<Vec<u8>> {
    let mut out = vec![b'['];
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        item.write_json(&mut out);
    }
    out.push(b']');
    (!items.is_empty()).then_some(out)
}

impl Filter for Prune {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let Config { whitelist_names, blacklist_names, whitelist_values, blacklist_values } = &self.config;
        // a name or pattern may read what another removes, so all are made first
        let names = [names_of(event, whitelist_names), names_of(event, blacklist_names)];
        let values = [values_of(event, whitelist_values), values_of(event, blacklist_values)];
        for (names, is_wanted) in names.iter().zip([true, false]) {
            remove_names(event, names.as_deref(), is_wanted);
        }
        for (values, is_wanted) in values.iter().zip([true, false]) {
            remove_values(event, values, is_wanted);
        }
        Applied::Matched
    }
}
