//! `date`: reads a field as a time, by the first format that fits, and sets `@timestamp` or another field to it.
//! A field that is missing or null is passed over; one that fits no format gets a tag, never the present time.

use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, EventRef, View};
use crate::config::Section;
use crate::date::locale::Locale;
use crate::date::zone::Zone;
use crate::date::{Matcher, Source};
use crate::field::FieldRef;
use crate::template::Template;
use crate::time::Time;

#[derive(Clone, Debug)]
pub struct Config {
    /// The field, then its formats in the order tried.
    pub formats: Vec<String>,
    pub target: FieldRef,
    /// Where a text without zone is from; placeholders are filled in for each event.
    pub timezone: Template,
    /// Whose names of months and days are read.
    pub locale: String,
    pub tag_on_failure: Vec<String>,
}

impl Config {
    pub fn new(formats: Vec<String>) -> Result<Config, String> {
        Ok(Config {
            formats,
            target: FieldRef::top("@timestamp"),
            timezone: Template::parse("UTC")?,
            locale: "en".to_string(),
            tag_on_failure: vec!["_dateparsefailure".to_string()],
        })
    }

    pub fn read(t: &Section<'_>) -> Option<Config> {
        let formats = t.texts("match").required();
        let mut config = Config::new(formats.unwrap_or_default()).ok()?;
        config.target = t.parsed("target", FieldRef::parse).or(config.target);
        config.timezone = t.parsed("timezone", timezone).or(config.timezone);
        config.locale = t.parsed("locale", locale).or(config.locale);
        config.tag_on_failure = t.texts("tag_on_failure").or(config.tag_on_failure);
        (!config.formats.is_empty()).then_some(config)
    }
}

fn timezone(text: &str) -> Result<Template, String> {
    let template = Template::parse(text)?;
    if let Some(id) = template.constant() {
        Zone::parse(id)?;
    }
    Ok(template)
}

fn locale(tag: &str) -> Result<String, String> {
    Locale::parse(tag).map(|_| tag.to_string())
}

pub struct Date {
    field: FieldRef,
    matchers: Vec<Matcher>,
    target: FieldRef,
    timezone: Timezone,
    tag_on_failure: Vec<String>,
}

enum Timezone {
    Fixed(Zone),
    PerEvent(Template),
}

impl Date {
    pub fn build(config: Config) -> Result<Date, String> {
        let [field, formats @ ..] = &config.formats[..] else { return Err("`match` names no field".to_string()) };
        if formats.is_empty() {
            return Err("`match` wants a field and at least one format".to_string());
        }
        let locale = Locale::parse(&config.locale)?;
        let matchers = formats.iter().map(|format| Matcher::compile(format, &locale)).collect::<Result<_, _>>()?;
        let timezone = match config.timezone.constant() {
            Some(id) => Timezone::Fixed(Zone::parse(id)?),
            None => Timezone::PerEvent(config.timezone),
        };
        let field = FieldRef::parse(field)?;
        Ok(Date { field, matchers, target: config.target, timezone, tag_on_failure: config.tag_on_failure })
    }

    fn parse(&self, event: &EventRef<'_>, view: &View<'_>, now: Time) -> Option<Time> {
        let source = match view {
            View::Text(text) => Source::Text(text),
            View::Number(text) => Source::Number(text),
            _ => return None,
        };
        // asked for only by a format that needs it, once
        let mut zone = None;
        self.matchers.iter().find_map(|matcher| {
            if !matcher.needs_zone() {
                return matcher.parse(source, &Zone::UTC, now);
            }
            let zone = zone.get_or_insert_with(|| self.zone(event));
            matcher.parse(source, zone.as_ref()?, now)
        })
    }

    fn zone(&self, event: &EventRef<'_>) -> Option<Zone> {
        match &self.timezone {
            Timezone::Fixed(zone) => Some(*zone),
            Timezone::PerEvent(template) => {
                let mut id = Vec::new();
                template.render(event, &mut id);
                Zone::lookup(std::str::from_utf8(&id).ok()?)
            }
        }
    }
}

impl Filter for Date {
    fn apply(&self, event: &mut EventMut<'_>, clock: &Clock) -> Applied {
        let read = event.read();
        let time = match read.get(&self.field) {
            None | Some(View::Null) => return Applied::Unmatched,
            Some(view) => self.parse(&read, &view, clock.now),
        };
        let Some(time) = time else {
            self.tag_on_failure.iter().for_each(|tag| event.add_tag(tag));
            return Applied::Unmatched;
        };
        if !event.set_iso(&self.target, time) {
            self.tag_on_failure.iter().for_each(|tag| event.add_tag(tag));
            return Applied::Unmatched;
        }
        Applied::Matched
    }
}
