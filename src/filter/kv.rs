//! `kv`: reads `key=value` pairs out of a text.
//!
//! ```toml
//! [[filter]]
//! type = "kv"
//! source = "query"
//! field_split = "&?"
//! target = "[url][args]"
//! ```
//!
//! As in Logstash, the delimiters and the characters to trim stand in character classes, so `[`, `]` and `\` are
//! written `\\[`. The pairs are found by one pattern; where a delimiter is itself a pattern it is matched by
//! backtracking, and given up after a million steps.

use std::borrow::Cow;

use super::common::with_text;
use super::convert::capital;
use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, View};
use crate::config::Section;
use crate::field::FieldRef;
use crate::json;
use crate::regexp::{Regexp, Runaway};
use crate::template::Template;

/// How deep `recursive` looks.
const DEPTH_MAX: usize = 16;

#[derive(Clone, Debug)]
pub struct Config {
    pub source: FieldRef,
    pub target: Option<FieldRef>,
    pub prefix: Option<Template>,
    pub field_split: String,
    pub field_split_pattern: Option<String>,
    pub value_split: String,
    pub value_split_pattern: Option<String>,
    pub include_keys: Vec<Template>,
    pub exclude_keys: Vec<Template>,
    pub default_keys: Vec<(String, String)>,
    pub allow_duplicate_values: bool,
    pub allow_empty_values: bool,
    pub include_brackets: bool,
    pub recursive: bool,
    pub is_lenient: bool,
    pub keys: Change,
    pub values: Change,
    pub tag_on_failure: Vec<String>,
    pub tag_on_timeout: String,
}

/// What is changed about each key, or each value.
#[derive(Clone, Debug, Default)]
pub struct Change {
    pub trim: Option<Regexp>,
    pub remove: Option<Regexp>,
    pub case: Option<Case>,
}

#[derive(Clone, Copy, Debug)]
pub enum Case {
    Lower,
    Upper,
    Capital,
}

const CASES: &[(&str, Case)] = &[("lowercase", Case::Lower), ("uppercase", Case::Upper), ("capitalize", Case::Capital)];

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let pattern = |key| {
            let pattern = t.text(key).optional();
            if pattern.as_deref() == Some("") {
                t.fail_at(key, format!("`{key}` is empty"), ());
            }
            pattern
        };
        let value_split = t.text("value_split").or("=".to_string());
        if value_split.is_empty() {
            t.fail_at("value_split", "`value_split` is empty", ());
        }
        // a worker gives a pattern up by its steps, not by the clock
        let _millis = t.integer::<u32>("timeout_millis", 0..).optional();
        Some(Config {
            source: t.parsed("source", FieldRef::parse).or(FieldRef::top("message")),
            target: t.parsed("target", FieldRef::parse).optional(),
            prefix: t.parsed("prefix", Template::parse).optional(),
            field_split: t.text("field_split").or(" ".to_string()),
            field_split_pattern: pattern("field_split_pattern"),
            value_split,
            value_split_pattern: pattern("value_split_pattern"),
            include_keys: t.parsed_each("include_keys", Template::parse).or_default(),
            exclude_keys: t.parsed_each("exclude_keys", Template::parse).or_default(),
            default_keys: t.pairs("default_keys").or_default(),
            allow_duplicate_values: t.bool("allow_duplicate_values").or(true),
            allow_empty_values: t.bool("allow_empty_values").or(false),
            include_brackets: t.bool("include_brackets").or(true),
            recursive: t.bool("recursive").or(false),
            is_lenient: t.one_of("whitespace", &[("lenient", true), ("strict", false)]).or(true),
            keys: Change::read(t, ["trim_key", "remove_char_key", "transform_key"]),
            values: Change::read(t, ["trim_value", "remove_char_value", "transform_value"]),
            tag_on_failure: t.texts("tag_on_failure").or(vec!["_kv_filter_error".to_string()]),
            tag_on_timeout: t.text("tag_on_timeout").or("_kv_filter_timeout".to_string()),
        })
    }

    /// The pattern of a pair, in Ruby's spelling: the key, and the value in one of the groups behind it.
    fn pair(&self) -> String {
        let class = |characters: &str| format!("[{characters}]");
        let field_split = self.field_split_pattern.clone().unwrap_or_else(|| class(&self.field_split));
        let value_split = self.value_split_pattern.clone().unwrap_or_else(|| class(&self.value_split));
        let value_split = if self.is_lenient { format!(" *(?:{value_split}) *") } else { format!("(?:{value_split})") };
        let until = |characters: &str| format!(r"((?:\\.|[^{characters}])+)");
        let until_pattern = |pattern: &str| format!(r"((?:(?!{pattern})(?:\\.|.))+)");
        let key = if self.value_split_pattern.is_some() || self.field_split_pattern.is_some() {
            until_pattern(&format!("{value_split}|{field_split}"))
        } else {
            until(&format!("{}{}", self.value_split, self.field_split))
        };
        let quoted = |open: &str, close: &str| format!("{open}{}?{close}", until(close));
        let mut values = vec![quoted("\"", "\""), quoted("'", "'")];
        if self.include_brackets {
            values.extend([quoted(r"\(", r"\)"), quoted(r"\[", r"\]"), quoted("<", ">")]);
        }
        values.push(match &self.field_split_pattern {
            Some(pattern) => until_pattern(pattern),
            None => until(&self.field_split),
        });
        format!("{key}{value_split}(?:{})?(?:{field_split}|$)", values.join("|"))
    }
}

impl Change {
    fn read(t: &Section<'_>, [trim, remove, case]: [&'static str; 3]) -> Change {
        let class = |pattern: fn(&str) -> String| move |text: &str| Regexp::parse(&pattern(text));
        Change {
            trim: t.parsed(trim, class(|text| format!(r"^[{text}]+|[{text}]+$"))).optional(),
            remove: t.parsed(remove, class(|text| format!("[{text}]"))).optional(),
            case: t.one_of(case, CASES).optional(),
        }
    }

    fn apply<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, Runaway> {
        let mut text = Cow::Borrowed(text);
        for pattern in [&self.trim, &self.remove].into_iter().flatten() {
            let mut out = Vec::new();
            if pattern.replace_all(&text, "", &mut out)? {
                text = Cow::Owned(String::from_utf8_lossy(&out).into_owned());
            }
        }
        Ok(match self.case {
            None => text,
            Some(Case::Lower) => text.to_lowercase().into(),
            Some(Case::Upper) => text.to_uppercase().into(),
            Some(Case::Capital) => capital(&text).into(),
        })
    }
}

#[derive(Clone, Debug)]
pub struct Kv {
    config: Config,
    pair: Regexp,
    value_split: Regexp,
}

/// The pairs of a text, in the order in which their keys were found.
type Pairs = Vec<(String, Found)>;

/// The values of a key.
#[derive(Clone, Debug)]
enum Found {
    Text(String),
    Pairs(Pairs),
    Several(Vec<Found>),
}

impl Found {
    fn holds(&self, text: &str) -> bool {
        match self {
            // as in Logstash, where a part of the text counts
            Found::Text(held) => held.contains(text),
            Found::Pairs(pairs) => pairs.iter().any(|(key, _)| key == text),
            Found::Several(all) => all.iter().any(|found| matches!(found, Found::Text(held) if held == text)),
        }
    }

    fn add(&mut self, next: Found) {
        match self {
            Found::Several(all) => all.push(next),
            one => {
                let first = std::mem::replace(one, Found::Several(Vec::new()));
                *one = Found::Several(vec![first, next]);
            }
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Found::Text(text) => json::write_string(text.as_bytes(), out),
            Found::Pairs(pairs) => write_pairs(pairs, out),
            Found::Several(all) => {
                out.push(b'[');
                for (at, found) in all.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    found.write(out);
                }
                out.push(b']');
            }
        }
    }
}

fn write_pairs(pairs: &Pairs, out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (key, found)) in pairs.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        json::write_string(key.as_bytes(), out);
        out.push(b':');
        found.write(out);
    }
    out.push(b'}');
}

/// The keys of an event that are wanted, and what stands before each.
struct Wanted {
    include: Vec<String>,
    exclude: Vec<String>,
    prefix: String,
}

impl Kv {
    pub fn build(config: Config) -> Result<Kv, String> {
        let pair = Regexp::parse(&config.pair())?;
        let split = config.value_split_pattern.clone().unwrap_or_else(|| format!("[{}]", config.value_split));
        Ok(Kv { pair, value_split: Regexp::parse(&split)?, config })
    }

    fn wanted(&self, event: &mut EventMut<'_>) -> Wanted {
        let mut texts = |templates: &[Template]| -> Vec<String> {
            templates.iter().map(|template| with_text(event, template, |_, text| text.to_string())).collect()
        };
        let (include, exclude) = (texts(&self.config.include_keys), texts(&self.config.exclude_keys));
        let prefix = self.config.prefix.iter().flat_map(|prefix| texts(std::slice::from_ref(prefix))).collect();
        Wanted { include, exclude, prefix }
    }

    fn parse(&self, text: &str, wanted: &Wanted, depth: usize, pairs: &mut Pairs) -> Result<(), Runaway> {
        if !self.value_split.is_match(text)? {
            return Ok(());
        }
        let mut from = 0;
        while let Some(groups) = self.pair.groups_from(text, from)? {
            let Some((start, end)) = groups.first().copied().flatten() else { break };
            let group = |at: usize| groups.get(at).copied().flatten().map(|(start, end)| &text[start..end]);
            let value = (2..groups.len()).find_map(group).unwrap_or_default();
            self.found(group(1).unwrap_or_default(), value, wanted, depth, pairs)?;
            from = if end > start { end } else { end + text[end..].chars().next().map_or(1, char::len_utf8) };
            if from > text.len() {
                break;
            }
        }
        Ok(())
    }

    fn found(&self, key: &str, value: &str, wanted: &Wanted, depth: usize, pairs: &mut Pairs) -> Result<(), Runaway> {
        if value.is_empty() && !self.config.allow_empty_values {
            return Ok(());
        }
        let key = self.config.keys.apply(key)?;
        let is = |keys: &[String]| keys.iter().any(|wanted| *wanted == key);
        if !wanted.include.is_empty() && !is(&wanted.include) || is(&wanted.exclude) {
            return Ok(());
        }
        let key = format!("{}{key}", wanted.prefix);
        let value = self.config.values.apply(value)?;
        let held = pairs.iter_mut().find(|(held, _)| *held == key).map(|(_, found)| found);
        if !self.config.allow_duplicate_values && held.as_ref().is_some_and(|found| found.holds(&value)) {
            return Ok(());
        }
        let mut inner = Pairs::new();
        if self.config.recursive && depth < DEPTH_MAX {
            self.parse(&value, wanted, depth + 1, &mut inner)?;
        }
        let found = if inner.is_empty() { Found::Text(value.into_owned()) } else { Found::Pairs(inner) };
        match held {
            Some(held) => held.add(found),
            None => pairs.push((key, found)),
        }
        Ok(())
    }

    /// The pairs of the source; none if it holds neither text nor a list of texts.
    fn read(&self, event: &mut EventMut<'_>) -> Result<Pairs, Runaway> {
        let texts: Vec<String> = match event.get(&self.config.source) {
            Some(View::Text(text)) => vec![text.into_owned()],
            Some(View::Array(items)) => {
                items.entries().filter_map(|(_, item)| item.as_text().map(str::to_string)).collect()
            }
            _ => Vec::new(),
        };
        let (wanted, mut pairs) = (self.wanted(event), Pairs::new());
        for text in &texts {
            self.parse(text, &wanted, 0, &mut pairs)?;
        }
        let missing: Vec<&(String, String)> =
            self.config.default_keys.iter().filter(|(key, _)| !pairs.iter().any(|(held, _)| held == key)).collect();
        let defaults = missing.into_iter().map(|(key, value)| (key.clone(), Found::Text(value.clone())));
        Ok(defaults.chain(pairs).collect())
    }

    /// Sets the fields; false if one of them cannot be set.
    fn store(&self, event: &mut EventMut<'_>, pairs: &Pairs) -> bool {
        let mut draft = event.take_draft();
        let mut all = true;
        if let Some(target) = &self.config.target {
            write_pairs(pairs, &mut draft);
            all = event.set(target, New::Json(&draft));
        } else {
            for (key, found) in pairs {
                draft.clear();
                found.write(&mut draft);
                // what is no reference to a field is a name
                let field = FieldRef::parse(key).unwrap_or_else(|_| FieldRef::top(key));
                all &= event.set(&field, New::Json(&draft));
            }
        }
        event.keep_draft(draft);
        all
    }
}

impl Filter for Kv {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        match self.read(event) {
            Ok(pairs) if pairs.is_empty() => Applied::Unmatched,
            Ok(pairs) if self.store(event, &pairs) => Applied::Matched,
            Ok(_) => {
                self.config.tag_on_failure.iter().for_each(|tag| event.add_tag(tag));
                Applied::Unmatched
            }
            Err(why) => {
                tracing::debug!(%why, offset = event.read().offset(), "kv failed");
                event.add_tag(&self.config.tag_on_timeout);
                Applied::Unmatched
            }
        }
    }
}
