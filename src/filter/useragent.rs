//! `useragent`: name and version of a browser, its system and its device, by the patterns of a file.
//!
//! ```text
//! [[filter]]
//! type    = "useragent"
//! source  = "agent"
//! target  = "ua"
//! regexes = "/usr/share/uap-core/regexes.yaml"
//! ```
//!
//! The file has the form of uap-core's `regexes.yaml`, which Logstash brings along in one version. It is none of this
//! program's: which patterns there are decides what events become, so the pipeline file names them. They are read at
//! the start. An agent that was seen lately is not looked for again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use yaml_rust2::{Yaml, YamlLoader};

use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, View};
use crate::config::Section;
use crate::field::FieldRef;
use crate::regexp::{First, Groups, Regexp};

/// A longer text is not remembered.
const KEY_BYTES_MAX: usize = 1024;
/// Workers that ask at the same time seldom wait for each other.
const SHARDS: usize = 16;
/// What has no name.
const OTHER: &str = "Other";

/// What is known of an agent, in the order in which it is set.
const PIECES: [Piece; 13] = [
    ("name", "[name]"),
    ("device", "[device][name]"),
    ("major", "[@metadata][filter][user_agent][version][major]"),
    ("minor", "[@metadata][filter][user_agent][version][minor]"),
    ("patch", "[@metadata][filter][user_agent][version][patch]"),
    ("version", "[version]"),
    ("os_major", "[@metadata][filter][user_agent][os][version][major]"),
    ("os_minor", "[@metadata][filter][user_agent][os][version][minor]"),
    ("os_patch", "[@metadata][filter][user_agent][os][version][patch]"),
    ("os_version", "[os][version]"),
    ("os_name", "[os][name]"),
    ("os", ""),
    ("os_full", "[os][full]"),
];

/// Its name, and where it goes in the Elastic Common Schema: nowhere if that is empty.
type Piece = (&'static str, &'static str);

#[derive(Clone, Debug)]
pub struct Config {
    pub source: FieldRef,
    pub target: Option<FieldRef>,
    pub prefix: String,
    pub regexes: PathBuf,
    pub ecs: bool,
    /// How many agents are remembered.
    pub lru_cache_size: usize,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let ecs = t.one_of("ecs_compatibility", &[("disabled", false), ("v1", true), ("v8", true)]).or(false);
        let source = t.parsed("source", FieldRef::parse).required();
        let target = t.parsed("target", FieldRef::parse).optional();
        let prefix = t.text("prefix").or_default();
        if ecs && !prefix.is_empty() {
            t.warn_at("prefix", "with `ecs_compatibility` nothing stands before the names of the fields", ());
        }
        let regexes = t.path("regexes").required();
        let lru_cache_size = t.integer("lru_cache_size", 0..=1_000_000).or(10_000);
        Some(Config { source: source?, target, prefix, regexes: regexes?, ecs, lru_cache_size })
    }

    /// Where each piece goes.
    fn fields(&self) -> Result<Vec<Option<FieldRef>>, String> {
        let target = match &self.target {
            Some(target) => target.canonical(),
            None if self.ecs => "[user_agent]".to_string(),
            None => String::new(),
        };
        let field = |(name, schema): Piece| match (self.ecs, schema) {
            (true, "") => Ok(None),
            (true, schema) if schema.starts_with("[@metadata]") => FieldRef::parse(schema).map(Some),
            (true, schema) => FieldRef::parse(&format!("{target}{schema}")).map(Some),
            (false, _) => FieldRef::parse(&format!("{target}[{}{name}]", self.prefix)).map(Some),
        };
        PIECES.into_iter().map(field).collect()
    }
}

/// What stands for a part of the name: a text in which `$1` is a group.
type Replacement = Option<Box<str>>;

/// The patterns of one kind, and what becomes of their groups.
#[derive(Debug)]
struct Parsers {
    patterns: First,
    /// Of each, what the family is and the parts of its version.
    replacements: Vec<[Replacement; 5]>,
}

/// What is found of a kind: its family, and up to four parts of a version.
type Found = [Replacement; 5];

impl Parsers {
    /// `keys`: what the replacements are called in the file.
    fn read(document: &Yaml, list: &str, keys: [&str; 5]) -> Result<Parsers, String> {
        let entries = document[list].as_vec().ok_or_else(|| format!("it has no list `{list}`"))?;
        let (mut patterns, mut replacements) = (Vec::new(), Vec::new());
        for (number, entry) in entries.iter().enumerate() {
            let place = |why: String| format!("`{list}`, entry {}: {why}", number + 1);
            let regex = entry["regex"].as_str().ok_or_else(|| place("it has no `regex`".to_string()))?;
            let regex = match entry["regex_flag"].as_str() {
                None => regex.to_string(),
                Some("i") => format!("(?i){regex}"),
                Some(flag) => return Err(place(format!("`regex_flag` is `{flag}`, which is not known"))),
            };
            patterns.push(Regexp::parse(&regex).map_err(|why| place(format!("`{regex}`: {why}")))?);
            replacements.push(keys.map(|key| scalar(&entry[key])));
        }
        Ok(Parsers { patterns: First::new(patterns)?, replacements })
    }

    fn find(&self, text: &str) -> Option<Found> {
        self.patterns.find(text, |at, groups| {
            let part = |number: usize| -> Replacement {
                match &self.replacements[at][number] {
                    Some(replacement) => Some(expanded(replacement, text, groups).into()),
                    None => group(text, groups, number + 1).map(Box::from),
                }
            };
            let family = part(0)?;
            let version = |number: usize| part(number).filter(|part| !part.is_empty());
            Some([Some(family), version(1), version(2), version(3), version(4)])
        })
    }
}

/// A text, or a number that stands for one.
fn scalar(value: &Yaml) -> Replacement {
    match value {
        Yaml::String(text) | Yaml::Real(text) => Some(text.as_str().into()),
        Yaml::Integer(number) => Some(number.to_string().into()),
        _ => None,
    }
}

fn group<'a>(text: &'a str, groups: &Groups, number: usize) -> Option<&'a str> {
    groups.get(number).copied().flatten().map(|(start, end)| &text[start..end])
}

/// The replacement with the groups in the places of `$1` to `$9`.
fn expanded(replacement: &str, text: &str, groups: &Groups) -> String {
    let mut pieces = replacement.split('$');
    let mut out = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        match piece.chars().next().and_then(|c| c.to_digit(10)) {
            Some(number) => {
                out.push_str(group(text, groups, number as usize).unwrap_or_default());
                out.push_str(&piece[1..]);
            }
            None => {
                out.push('$');
                out.push_str(piece);
            }
        }
    }
    out.trim().to_string()
}

/// The patterns of a file.
#[derive(Debug)]
struct Regexes {
    agents: Parsers,
    systems: Parsers,
    devices: Parsers,
}

/// What becomes of a text, by the piece.
type Agent = [Replacement; PIECES.len()];

impl Regexes {
    fn read(path: &Path) -> Result<Regexes, String> {
        let shown = path.display();
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("cannot read the patterns {shown}: {error}"))?;
        Regexes::parse(&text).map_err(|why| format!("the patterns {shown} cannot be used: {why}"))
    }

    fn parse(text: &str) -> Result<Regexes, String> {
        let documents = YamlLoader::load_from_str(text).map_err(|error| error.to_string())?;
        let document = documents.first().unwrap_or(&Yaml::BadValue);
        let none = "";
        Ok(Regexes {
            agents: Parsers::read(
                document,
                "user_agent_parsers",
                ["family_replacement", "v1_replacement", "v2_replacement", "v3_replacement", none],
            )?,
            systems: Parsers::read(
                document,
                "os_parsers",
                ["os_replacement", "os_v1_replacement", "os_v2_replacement", "os_v3_replacement", "os_v4_replacement"],
            )?,
            devices: Parsers::read(document, "device_parsers", ["device_replacement", none, none, none, none])?,
        })
    }

    fn look(&self, text: &str) -> Agent {
        let other = || [Some(Box::from(OTHER)), None, None, None, None];
        let [name, major, minor, patch, build] = self.agents.find(text).unwrap_or_else(other);
        let [system, of_system @ ..] = self.systems.find(text).unwrap_or_else(other);
        let [device, ..] = self.devices.find(text).unwrap_or_else(other);
        let version = version(text, [major.as_deref(), minor.as_deref(), patch.as_deref(), build.as_deref()]);
        let system_version = system_version(&of_system);
        let full = system.as_deref().map(|name| match &system_version {
            Some(version) => format!("{name} {version}").into(),
            None => Box::from(name),
        });
        let [system_major, system_minor, system_patch, _] = of_system;
        [
            name,
            device,
            major,
            minor,
            patch,
            version.map(Into::into),
            system_major,
            system_minor,
            system_patch,
            system_version.map(Into::into),
            system.clone(),
            system,
            full,
        ]
    }
}

/// The parts that are there, up to the first that is not, with `between` between the first two and dots behind.
fn joined(parts: &[Option<&str>], between: char) -> Option<String> {
    let mut parts = parts.iter().map_while(|part| *part);
    let mut out = parts.next()?.to_string();
    for (number, part) in parts.enumerate() {
        out.push(if number == 0 { between } else { '.' });
        out.push_str(part);
    }
    Some(out)
}

/// A version of three parts gets the number that stands behind it in the text.
fn version(text: &str, parts: [Option<&str>; 4]) -> Option<String> {
    let mut version = joined(&parts, '.')?;
    let is_of_three = parts[2].is_some() && parts[1].is_some() && parts[3].is_none();
    if is_of_three
        && let Some(at) = text.find(&version)
        && let Some((next, _)) = text[at + version.len()..].strip_prefix('.').and_then(|rest| rest.split_once(' '))
        && next.bytes().all(|byte| byte.is_ascii_digit())
        && (next == "0" || !next.is_empty() && !next.starts_with('0'))
    {
        version.push('.');
        version.push_str(next);
    }
    Some(version)
}

/// `10.15.7`, but `Vista SP1`: behind what is no number stands a blank.
fn system_version(parts: &[Replacement; 4]) -> Option<String> {
    let major = parts[0].as_deref()?;
    let is_number = major.bytes().all(|byte| byte.is_ascii_digit()) && (major == "0" || !major.starts_with('0'));
    joined(&parts.each_ref().map(Option::as_deref), if is_number { '.' } else { ' ' })
}

/// The agents seen lately. When there are half as many new ones as may be kept, those before them are forgotten that
/// were not asked for since.
#[derive(Debug, Default)]
struct Seen {
    new: HashMap<Box<str>, Arc<Agent>>,
    old: HashMap<Box<str>, Arc<Agent>>,
}

impl Seen {
    fn get(&mut self, text: &str, agents_max: usize) -> Option<Arc<Agent>> {
        if let Some(agent) = self.new.get(text) {
            return Some(agent.clone());
        }
        let (text, agent) = self.old.remove_entry(text)?;
        self.put(text, agent.clone(), agents_max);
        Some(agent)
    }

    fn put(&mut self, text: Box<str>, agent: Arc<Agent>, agents_max: usize) {
        if self.new.len() >= agents_max.div_ceil(2) {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(text, agent);
    }
}

#[derive(Debug)]
pub struct Useragent {
    config: Config,
    fields: Vec<Option<FieldRef>>,
    regexes: Regexes,
    seen: [Mutex<Seen>; SHARDS],
    hasher: RandomState,
}

impl Useragent {
    pub fn build(config: Config) -> Result<Useragent, String> {
        let (fields, regexes) = (config.fields()?, Regexes::read(&config.regexes)?);
        Ok(Useragent { fields, regexes, seen: Default::default(), hasher: RandomState::new(), config })
    }

    fn agent(&self, text: &str) -> Arc<Agent> {
        let agents_max = self.config.lru_cache_size.div_ceil(SHARDS);
        if agents_max == 0 || text.len() > KEY_BYTES_MAX {
            return Arc::new(self.regexes.look(text));
        }
        let shard = self.hasher.hash_one(text) as usize % SHARDS;
        let seen = || self.seen[shard].lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen().get(text, agents_max);
        known.unwrap_or_else(|| {
            let agent = Arc::new(self.regexes.look(text));
            seen().put(text.into(), agent.clone(), agents_max);
            agent
        })
    }
}

impl Filter for Useragent {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let agent = match event.get(&self.config.source).and_then(View::or_first) {
            Some(View::Text(text)) if !text.is_empty() => self.agent(&text),
            _ => return Applied::Unmatched,
        };
        if self.config.target.as_ref().is_some_and(|target| target.canonical() == self.config.source.canonical()) {
            event.remove(&self.config.source);
        }
        for (field, value) in self.fields.iter().zip(agent.iter()) {
            if let (Some(field), Some(value)) = (field, value) {
                event.set(field, New::Text(value));
            }
        }
        Applied::Matched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, parts, want) in [
            ("", [None, Some("1"), None, None], None),
            ("", [Some("1"), None, Some("2"), None], Some("1")),
            ("A/1.2.3.44 B", [Some("1"), Some("2"), Some("3"), None], Some("1.2.3.44")),
            ("A/1.2.3.44", [Some("1"), Some("2"), Some("3"), None], Some("1.2.3")),
            ("A/1.2.3.044 B", [Some("1"), Some("2"), Some("3"), None], Some("1.2.3")),
            ("A/1.2.3.x B", [Some("1"), Some("2"), Some("3"), None], Some("1.2.3")),
            ("A/1.2.3. B", [Some("1"), Some("2"), Some("3"), None], Some("1.2.3")),
            ("A/1.2.3.44 B", [Some("1"), Some("2"), None, None], Some("1.2")),
            ("A/1.2.3.44 B", [Some("1"), Some("2"), Some("3"), Some("5")], Some("1.2.3.5")),
        ] {
            assert_eq!(version(text, parts).as_deref(), want, "{text} {parts:?}");
        }
        for (parts, want) in [
            ([None, Some("1"), None, None], None),
            ([Some("10"), Some("15"), Some("7"), None], Some("10.15.7")),
            ([Some("Vista"), Some("SP1"), Some("7"), None], Some("Vista SP1.7")),
            ([Some("XP"), None, Some("7"), None], Some("XP")),
        ] {
            assert_eq!(system_version(&parts.map(|part| part.map(Box::from))).as_deref(), want, "{parts:?}");
        }
    }

    #[test]
    fn what_was_seen_lately_stays() {
        let (mut seen, agent) = (Seen::default(), Arc::new(Agent::default()));
        for number in 0..100 {
            seen.put(number.to_string().into(), agent.clone(), 4);
            assert!(number == 0 || seen.get("0", 4).is_some(), "{number}");
            assert!(seen.new.len() + seen.old.len() <= 4);
        }
        assert!(seen.get("50", 4).is_none());
    }

    #[test]
    fn replacements() {
        let text = "ab cd";
        let groups = vec![Some((0, 5)), Some((0, 2)), None, Some((3, 5))];
        for (replacement, want) in [("x", "x"), ("$1 $2", "ab"), ("$3-$1$9", "cd-ab"), ("$", "$"), ("$x $$1", "$x $ab")]
        {
            assert_eq!(expanded(replacement, text, &groups), want, "{replacement}");
        }
    }
}
