//! `translate`: looks a field up in a dictionary.
//!
//! ```toml
//! [[filter]]
//! type = "translate"
//! source = "status"
//! target = "status_text"
//! dictionary = { 200 = "OK", 404 = "not found" }
//! fallback = "unknown"
//! ```
//!
//! The dictionary may be a file (`.json`, `.csv`, `.yml`), which is read again when it changes. A file that cannot be
//! read then is said, and the dictionary that is there goes on.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::common::with_text;
use super::convert::text_of;
use super::watched::Watched;
use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, View};
use crate::config::Section;
use crate::csv::Csv;
use crate::field::FieldRef;
use crate::json;
use crate::regexp::Regexp;
use crate::template::Template;

pub struct Config {
    pub source: FieldRef,
    pub target: FieldRef,
    /// Source and target are one field.
    pub in_place: bool,
    /// Also where the target is there already.
    pub replaces: bool,
    pub dictionary: Vec<(String, Vec<u8>)>,
    pub file: Option<DictionaryFile>,
    pub lookup: Lookup,
    pub fallback: Option<Template>,
    /// A list: its elements are looked up, or the source of each object in it.
    pub iterate_on: Option<List>,
}

#[derive(Clone, Debug)]
pub enum List {
    Values,
    Members(FieldRef),
}

#[derive(Clone, Debug)]
pub struct DictionaryFile {
    path: PathBuf,
    refresh_interval: Duration,
    /// What is in the file is added to what was; else it takes its place.
    merges: bool,
}

/// How a text is found in the dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It is a key.
    Exact,
    /// A key is a pattern that fits it.
    Pattern,
    /// Every key within it is replaced.
    Within,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let ecs = t.one_of("ecs_compatibility", &[("disabled", false), ("v1", true), ("v8", true)]).or(false);
        let source = t.parsed("source", FieldRef::parse).required();
        let target = t.parsed("target", FieldRef::parse).optional();
        let overrides = t.bool("override").optional();
        let dictionary = t.entries("dictionary").or_default();
        let pairs = dictionary.iter().filter_map(|e| {
            let key = e.parsed_key(|key| Ok::<_, String>(key.to_string()));
            key.zip(e.value.json().map(|value| value.to_string().into_bytes()))
        });
        let dictionary: Vec<(String, Vec<u8>)> = pairs.collect();
        let path = t.path("dictionary_path").optional();
        let refresh_interval = t.integer::<i64>("refresh_interval", ..).or(300);
        let merges = t.one_of("refresh_behaviour", &[("merge", true), ("replace", false)]).or(true);
        if path.is_some() && !dictionary.is_empty() {
            t.fail_at("dictionary_path", "a dictionary in the pipeline file and one in a file of its own", ());
        }
        let lookup = match (t.bool("exact").or(true), t.bool("regex").or(false)) {
            (true, false) => Lookup::Exact,
            (true, true) => Lookup::Pattern,
            (false, _) => Lookup::Within,
        };
        let fallback = t.parsed("fallback", Template::parse).optional();
        let iterate_on = t.parsed("iterate_on", FieldRef::parse).optional();
        let source = source?;
        let iterate_on = iterate_on
            .map(|list| if list.canonical() == source.canonical() { List::Values } else { List::Members(list) });
        let target = target.unwrap_or_else(|| if ecs { source.clone() } else { FieldRef::top("translation") });
        let in_place = source.canonical() == target.canonical();
        if in_place && overrides == Some(false) {
            t.fail_at("override", "what is translated in its place is always replaced", ());
        }
        Some(Config {
            replaces: overrides.unwrap_or(in_place),
            source,
            target,
            dictionary,
            file: path.map(|path| DictionaryFile {
                path,
                // zero or less: it is read once
                refresh_interval: Duration::from_secs(refresh_interval.try_into().unwrap_or_default()),
                merges,
            }),
            lookup,
            fallback,
            iterate_on,
            in_place,
        })
    }
}

/// A dictionary, ready to be asked.
#[derive(Debug, Default)]
struct Dictionary {
    pairs: Vec<(String, Vec<u8>)>,
    by_key: HashMap<String, usize>,
    /// One a key, for [`Lookup::Pattern`].
    patterns: Vec<Regexp>,
    /// Any key, for [`Lookup::Within`].
    any: Option<regex::Regex>,
}

impl Dictionary {
    /// Of several values of a key the last.
    fn new(pairs: impl IntoIterator<Item = (String, Vec<u8>)>, lookup: Lookup) -> Result<Dictionary, String> {
        let mut dictionary = Dictionary::default();
        for (key, value) in pairs {
            match dictionary.by_key.get(&key) {
                Some(at) => dictionary.pairs[*at].1 = value,
                None => {
                    dictionary.by_key.insert(key.clone(), dictionary.pairs.len());
                    dictionary.pairs.push((key, value));
                }
            }
        }
        let keys = dictionary.pairs.iter().map(|(key, _)| key.as_str());
        match lookup {
            Lookup::Exact => {}
            Lookup::Pattern => {
                let pattern =
                    |key: &str| Regexp::parse(key).map_err(|why| format!("the key `{key}` is no pattern: {why}"));
                dictionary.patterns = keys.map(pattern).collect::<Result<_, _>>()?;
            }
            Lookup::Within if dictionary.pairs.is_empty() => {}
            Lookup::Within => {
                let any = keys.map(regex::escape).collect::<Vec<_>>().join("|");
                dictionary.any = Some(regex::Regex::new(&any).map_err(|_| "the dictionary is too big".to_string())?);
            }
        }
        Ok(dictionary)
    }

    /// What the text means, as JSON.
    fn find(&self, text: &str, lookup: Lookup) -> Option<Cow<'_, [u8]>> {
        let value = |at: usize| Cow::Borrowed(self.pairs[at].1.as_slice());
        match lookup {
            Lookup::Exact => self.by_key.get(text).map(|at| value(*at)),
            Lookup::Pattern => self.patterns.iter().position(|p| p.is_match(text).unwrap_or(false)).map(value),
            Lookup::Within => {
                let replaced = self.any.as_ref()?.replace_all(text, |found: &regex::Captures<'_>| {
                    let held = self.by_key.get(&found[0]).map(|at| View::of_json(&self.pairs[*at].1));
                    held.map(|view| text_of(&view).into_owned()).unwrap_or_default()
                });
                (replaced != text).then(|| {
                    let mut out = Vec::new();
                    json::write_string(replaced.as_bytes(), &mut out);
                    Cow::Owned(out)
                })
            }
        }
    }
}

/// What of a value is looked up: of a list the first element.
fn key_of(view: &View<'_>) -> String {
    match view {
        View::Array(items) => items.entries().next().map_or(String::new(), |(_, first)| text_of(&first).into_owned()),
        other => text_of(other).into_owned(),
    }
}

/// The pairs of a dictionary file, by the end of its name.
fn read(path: &Path) -> Result<Vec<(String, Vec<u8>)>, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read the dictionary {shown}: {error}"))?;
    let text = text.trim_start_matches('\u{feff}');
    match path.extension().and_then(|end| end.to_str()) {
        Some("json") => of_json(text),
        Some("csv") => of_csv(text),
        Some("yml" | "yaml") => of_yaml(text),
        _ => Err("its name ends neither in .json nor in .csv, .yml or .yaml".to_string()),
    }
    .map_err(|why| format!("the dictionary {shown} cannot be used: {why}"))
}

fn of_json(text: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
    let object: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    Ok(object.into_iter().map(|(key, value)| (key, value.to_string().into_bytes())).collect())
}

fn of_csv(text: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
    let (csv, mut pairs) = (Csv::new(",", "\"")?, Vec::new());
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let fields = csv.fields(line).map_err(|why| format!("line {}: {}", number + 1, why.0))?;
        let field = |at: usize| fields.get(at).cloned().flatten();
        let value = field(1).map_or(serde_json::Value::Null, serde_json::Value::String);
        pairs.push((field(0).unwrap_or_default(), value.to_string().into_bytes()));
    }
    Ok(pairs)
}

fn of_yaml(text: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
    let documents = yaml_rust2::YamlLoader::load_from_str(text).map_err(|error| error.to_string())?;
    let Some(document) = documents.into_iter().next() else { return Ok(Vec::new()) };
    let pairs = document.into_hash().ok_or("it is no mapping")?;
    let pair = |(key, value)| Some((yaml_key(&key)?, yaml_value(&value).to_string().into_bytes()));
    pairs.into_iter().map(pair).collect::<Option<_>>().ok_or_else(|| "a key is no text".to_string())
}

fn yaml_key(key: &yaml_rust2::Yaml) -> Option<String> {
    match yaml_value(key) {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) | serde_json::Value::Null => None,
        other => Some(other.to_string()),
    }
}

fn yaml_value(value: &yaml_rust2::Yaml) -> serde_json::Value {
    use yaml_rust2::Yaml;
    match value {
        Yaml::String(text) => text.clone().into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Real(_) => value.as_f64().into(),
        Yaml::Boolean(is) => (*is).into(),
        Yaml::Array(items) => items.iter().map(yaml_value).collect(),
        Yaml::Hash(pairs) => {
            let pairs = pairs.iter().filter_map(|(key, value)| Some((yaml_key(key)?, yaml_value(value))));
            serde_json::Value::Object(pairs.collect())
        }
        Yaml::Alias(_) | Yaml::Null | Yaml::BadValue => serde_json::Value::Null,
    }
}

pub struct Translate {
    config: Config,
    dictionary: Held,
}

/// Where the dictionary is from.
enum Held {
    Inline(Arc<Dictionary>),
    File(Watched<Dictionary>),
}

impl Translate {
    pub fn build(mut config: Config) -> Result<Translate, String> {
        let inline = std::mem::take(&mut config.dictionary);
        let dictionary = match &config.file {
            None => Held::Inline(Arc::new(Dictionary::new(inline, config.lookup)?)),
            Some(file) => {
                let first = |path: &Path| Dictionary::new(read(path)?, config.lookup);
                Held::File(Watched::open(file.path.clone(), file.refresh_interval, first)?)
            }
        };
        Ok(Translate { config, dictionary })
    }

    fn dictionary(&self) -> Arc<Dictionary> {
        let file = match &self.dictionary {
            Held::Inline(dictionary) => return dictionary.clone(),
            Held::File(file) => file,
        };
        let merges = self.config.file.as_ref().is_some_and(|file| file.merges);
        file.get(|held, path| {
            let old = if merges { held.pairs.clone() } else { Vec::new() };
            Dictionary::new(old.into_iter().chain(read(path)?), self.config.lookup)
        })
    }

    /// The text's translation, or the fallback.
    fn translated(&self, event: &mut EventMut<'_>, dictionary: &Dictionary, text: &str) -> Option<Vec<u8>> {
        if let Some(found) = dictionary.find(text, self.config.lookup) {
            return Some(found.into_owned());
        }
        let fallback = self.config.fallback.as_ref()?;
        let mut out = Vec::new();
        with_text(event, fallback, |_, text| json::write_string(text.as_bytes(), &mut out));
        Some(out)
    }

    fn translate_one(&self, event: &mut EventMut<'_>, dictionary: &Dictionary) -> bool {
        let Some(text) = event.get(&self.config.source).map(|view| key_of(&view)) else { return false };
        let translated = self.translated(event, dictionary, &text);
        translated.is_some_and(|value| event.set(&self.config.target, New::Json(&value)))
    }

    /// Each element of a list, to a list of what they mean.
    fn translate_values(&self, event: &mut EventMut<'_>, dictionary: &Dictionary) -> bool {
        let texts: Vec<String> = match event.get(&self.config.source) {
            Some(View::Array(items)) => items.entries().map(|(_, item)| text_of(&item).into_owned()).collect(),
            Some(one) => vec![text_of(&one).into_owned()],
            None => return false,
        };
        let (mut list, mut any) = (vec![b'['], false);
        for (at, text) in texts.iter().enumerate() {
            if at > 0 {
                list.push(b',');
            }
            let translated = self.translated(event, dictionary, text);
            any |= translated.is_some();
            list.extend_from_slice(translated.as_deref().unwrap_or(b"null"));
        }
        list.push(b']');
        event.set(&self.config.target, New::Json(&list)) && any
    }

    /// A field of each object in a list, to another field of that object.
    fn translate_members(&self, event: &mut EventMut<'_>, dictionary: &Dictionary, list: &FieldRef) -> bool {
        let count = match event.get(list) {
            Some(View::Array(items)) => items.entries().count(),
            _ => 0,
        };
        let mut any = false;
        for at in 0..count {
            let inner = |field: &FieldRef| FieldRef::parse(&format!("{}[{at}]{}", list.canonical(), field.canonical()));
            let (Ok(source), Ok(target)) = (inner(&self.config.source), inner(&self.config.target)) else { continue };
            let Some(text) = event.get(&source).map(|view| key_of(&view)) else { continue };
            if let Some(value) = self.translated(event, dictionary, &text) {
                any |= event.set(&target, New::Json(&value));
            }
        }
        any
    }
}

impl Filter for Translate {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let Config { source, target, replaces, .. } = &self.config;
        let is_done = match &self.config.iterate_on {
            Some(List::Members(list)) => self.translate_members(event, &self.dictionary(), list),
            _ if event.get(source).is_none() || !replaces && event.get(target).is_some() => return Applied::Unmatched,
            Some(List::Values) => self.translate_values(event, &self.dictionary()),
            None => self.translate_one(event, &self.dictionary()),
        };
        if is_done || self.config.in_place { Applied::Matched } else { Applied::Unmatched }
    }
}
