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
    /// A size with its unit.
    Bytes,
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
        Kind::Bytes => bytes(from).map(Toml::Text),
        Kind::Duration => duration(from).map(Toml::Text),
        Kind::Table => {
            let pairs = from.pairs().ok_or("a hash is wanted")?;
            let entry = |(key, value): &(String, Value)| {
                let value = match value {
                    Value::List(_) => self::value(Kind::Texts, value)?,
                    other => text(other)?,
                };
                // variables are not looked for in keys
                Ok((key.clone(), value))
            };
            Ok(Toml::Table(pairs.iter().map(entry).collect::<Result<_, String>>()?))
        }
        Kind::Any => any(from),
    }
}

/// A number that is written as it would be printed.
fn is_number(text: &str) -> bool {
    let whole = text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
    whole || text.parse::<f64>().is_ok_and(|number| number.is_finite() && format!("{number:?}") == text)
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
            let entry =
                |(key, value): &(Value, Value)| Ok((key.scalar().ok_or("a text is wanted as a key")?, any(value)?));
            Toml::Table(entries.iter().map(entry).collect::<Result<_, String>>()?)
        }
        Value::Plugin(_) => return Err("a plugin stands here".to_string()),
    })
}

/// `10MiB`, `100 kib`: the unit in any case.
fn bytes(from: &Value) -> Result<String, String> {
    let text = from.scalar().ok_or("a size is wanted")?;
    if text.starts_with("${") {
        return ours(&text);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let units = ["B", "kB", "MB", "GB", "KiB", "MiB", "GiB"];
    let unit = text[digits..].trim();
    let unit = units.iter().find(|known| known.eq_ignore_ascii_case(unit)).copied().unwrap_or(unit);
    let size = format!("{}{unit}", &text[..digits]);
    crate::config::bytes(&size).map(|_| size).ok_or_else(|| "it is no size".to_string())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::tree::Number;
    use serde_json::Value as Json;

    fn given(json: &Json) -> Value {
        match json {
            Json::String(text) => Value::Text(text.clone()),
            Json::Number(number) => Value::Number(Number::Integer(number.to_string())),
            Json::Array(list) => Value::List(list.iter().map(given).collect()),
            other => panic!("{other}"),
        }
    }

    /// The values of settings by their kind, among Logstash's cases.
    #[test]
    fn logstash_conf_syntax_types() {
        let mut count = 0;
        for line in include_str!("../../tests/cases/logstash/conf_syntax.jsonl").lines() {
            let case: Json = serde_json::from_str(line).unwrap();
            let (kind, is_list) = match case["config"]["type"].as_str() {
                Some("boolean") => (Kind::Bool, false),
                Some("number") => (Kind::Number, false),
                Some("string") => (Kind::Text, false),
                Some("array" | "list") => (Kind::Texts, false),
                Some("hash") => (Kind::Table, false),
                Some("bytes") => (Kind::Bytes, false),
                Some("uri list") => (Kind::Texts, true),
                _ => continue,
            };
            count += 1;
            let from = match &case["in"] {
                Json::String(text) if is_list => {
                    Value::List(text.split_whitespace().map(|url| Value::Text(url.to_string())).collect())
                }
                other => given(other),
            };
            let got = value(kind, &from).ok().map(|got| {
                let mut block = crate::import::toml::Block::new("[t]");
                block.add("v", got);
                let table: ::toml::Table = ::toml::from_str(&block.render()).unwrap();
                match (kind, serde_json::to_value(&table["t"]["v"]).unwrap()) {
                    (Kind::Bytes, size) => crate::config::bytes(size.as_str().unwrap()).unwrap().into(),
                    (_, other) => other,
                }
            });
            let want = case["want"].get("value").cloned();
            assert_eq!(got, want, "{line}");
        }
        assert!(count >= 10, "only {count}");
    }

    #[test]
    fn lengths_of_time() {
        for (text, want) in
            [("1", Some("1s")), ("0.25", Some("250ms")), ("2 min", Some("2m")), ("1 hour", Some("1h")), ("x", None)]
        {
            assert_eq!(duration(&Value::Text(text.to_string())).ok().as_deref(), want, "{text}");
        }
    }
}
