//! How a plugin's settings become keys of ours: a table of rules for each plugin, and the values by their kind.

use super::Mapping;
use super::toml::{Block, Toml, variables};
use super::tree::{Plugin, Setting, Value};

/// What kind of value a key of ours wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Texts,
    Bool,
    Number,
    /// Texts, or lists of them, by names of the user's own.
    Table,
    /// Seconds, or a length of time in words.
    Duration,
    /// As it stands.
    Any,
}

/// What becomes of a setting.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    Same(Kind),
    As(&'static str, Kind),
    /// It changes nothing that is delivered.
    Ignored,
    /// Nothing to say if it is one of these, else it has no counterpart, for the reason given.
    Unless(&'static [&'static str], &'static str),
    Note(&'static str),
    Lost(&'static str),
    /// It is looked at elsewhere.
    Elsewhere,
}

pub type Rules = &'static [(&'static str, Rule)];

/// What every plugin has.
pub const EVERYWHERE: Rules =
    &[("id", Rule::Elsewhere), ("enable_metric", Rule::Ignored), ("periodic_flush", Rule::Ignored)];

impl Mapping<'_> {
    /// Writes the settings of a plugin into `block` by the first rule that knows them.
    pub fn settings(&mut self, plugin: &Plugin, rules: &[Rules], block: &mut Block) {
        for setting in &plugin.settings {
            let rules = rules.iter().chain([&EVERYWHERE]).flat_map(|rules| rules.iter());
            let rule = rules.copied().find(|(name, _)| *name == setting.name).map(|(_, rule)| rule);
            match rule {
                Some(Rule::Same(kind)) => self.setting(setting, &setting.name, kind, block),
                Some(Rule::As(key, kind)) => self.setting(setting, key, kind, block),
                Some(Rule::Ignored | Rule::Elsewhere) => {}
                Some(Rule::Unless(allowed, _))
                    if setting.value.scalar().is_some_and(|text| allowed.contains(&text.as_str())) => {}
                Some(Rule::Note(why)) => self.note_in(setting, why, block),
                Some(Rule::Lost(why) | Rule::Unless(_, why)) => self.lost_in(setting, why, block),
                None => self.setting(setting, &setting.name, Kind::Any, block),
            }
        }
    }

    /// Writes one setting under `key`.
    pub fn setting(&mut self, setting: &Setting, key: &str, kind: Kind, block: &mut Block) {
        match value(kind, &setting.value) {
            Ok(value) => block.add(key, value),
            Err(why) => self.lost_in(setting, &why, block),
        }
    }

    /// Says at its place in the block that a setting has no counterpart.
    pub fn lost_in(&mut self, setting: &Setting, why: &str, block: &mut Block) {
        block.remark(format!("`{}` has no counterpart: {why}", setting.name));
        self.lost(setting.place, &format!("`{}`", setting.name), why);
    }

    pub fn note_in(&mut self, setting: &Setting, why: &str, block: &mut Block) {
        block.remark(format!("`{}`: {why}", setting.name));
        self.note(setting.place, &format!("`{}`", setting.name), why);
    }
}

/// A value of ours, or why there is none.
pub fn value(kind: Kind, from: &Value) -> Result<Toml, String> {
    match kind {
        Kind::Text => text(from),
        Kind::Texts => match from {
            Value::List(list) => Ok(Toml::List(list.iter().map(text).collect::<Result<_, _>>()?)),
            other => Ok(Toml::List(vec![text(other)?])),
        },
        Kind::Bool => match from.scalar().as_deref() {
            Some(raw @ ("true" | "false")) => Ok(Toml::Raw(raw.to_string())),
            Some(other) if other.starts_with("${") => text(from),
            _ => Err("true or false is wanted".to_string()),
        },
        Kind::Number => match (from, from.scalar()) {
            (Value::Number(number), _) => Ok(Toml::Raw(number.to_string())),
            (_, Some(raw)) if is_number(&raw) => Ok(Toml::Raw(raw)),
            (_, Some(raw)) if raw.starts_with("${") => text(from),
            _ => Err("a number is wanted".to_string()),
        },
        Kind::Duration => duration(from).map(Toml::Text),
        Kind::Table => {
            let pairs = from.pairs().ok_or("a hash is wanted")?;
            let entry = |(key, value): &(String, Value)| {
                let value = match value {
                    Value::List(_) => self::value(Kind::Texts, value)?,
                    other => text(other)?,
                };
                Ok((ours(key)?, value))
            };
            Ok(Toml::Table(pairs.iter().map(entry).collect::<Result<_, String>>()?))
        }
        Kind::Any => any(from),
    }
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') && digits.matches('.').count() <= 1;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    is_plain && !whole.is_empty() && !fraction.is_empty() && (whole == "0" || !whole.starts_with('0'))
}

/// A text with its variables as we write them.
pub fn ours(text: &str) -> Result<String, String> {
    variables(text).ok_or_else(|| "its variable cannot be written here".to_string())
}

fn text(from: &Value) -> Result<Toml, String> {
    let text = from.scalar().ok_or("a text is wanted")?;
    ours(&text).map(Toml::Text)
}

fn any(from: &Value) -> Result<Toml, String> {
    Ok(match from {
        Value::Text(word) if word == "true" || word == "false" => Toml::Raw(word.clone()),
        Value::Text(_) => text(from)?,
        Value::Number(number) => Toml::Raw(number.to_string()),
        Value::List(list) => Toml::List(list.iter().map(any).collect::<Result<_, _>>()?),
        Value::Hash(entries) => {
            let entry = |(key, value): &(Value, Value)| {
                Ok((ours(&key.scalar().ok_or("a text is wanted as a key")?)?, any(value)?))
            };
            Toml::Table(entries.iter().map(entry).collect::<Result<_, String>>()?)
        }
        Value::Plugin(_) => return Err("a plugin stands here".to_string()),
    })
}

/// `1`, `0.5`, `"90 seconds"`.
fn duration(from: &Value) -> Result<String, String> {
    let text = from.scalar().ok_or("a length of time is wanted")?;
    if text.starts_with("${") {
        return ours(&text);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| "it is no length of time".to_string())?;
    let factor = match text[digits..].trim() {
        "" | "s" | "sec" | "second" | "seconds" => 1000.0,
        "ms" | "msec" | "msecs" => 1.0,
        "us" | "usec" | "usecs" => 0.001,
        "m" | "min" | "minute" | "minutes" => 60_000.0,
        "h" | "hour" | "hours" => 3_600_000.0,
        "d" | "day" | "days" => 86_400_000.0,
        "w" | "week" | "weeks" => 604_800_000.0,
        _ => return Err("it is no length of time".to_string()),
    };
    let millis = (number * factor).ceil() as u64;
    Ok(crate::config::duration_text(std::time::Duration::from_millis(millis)))
}
