//! Filters: which settings each has, and why some have no counterpart. Whether onceline has a filter is asked of
//! [`crate::filter::KINDS`].

use super::Mapping;
use super::options::Kind::{Bool, Number, Table, Text, Texts};
use super::options::Rule::{As, Elsewhere, Ignored, Same};
use super::options::Rules;
use super::probe;
use super::toml::{Block, Toml};
use super::tree::Plugin;
use crate::filter::KINDS;

/// What every filter has.
const COMMON: Rules = &[
    ("add_field", Same(Table)),
    ("remove_field", Same(Texts)),
    ("add_tag", Same(Texts)),
    ("remove_tag", Same(Texts)),
    ("tag_on_failure", Same(Texts)),
    ("ecs_compatibility", Same(Text)),
];

/// The settings of each filter, as its documentation has them; what is not named goes over as it stands.
const FILTERS: &[(&str, Rules)] = &[
    (
        "cidr",
        &[
            ("address", Same(Texts)),
            ("address_field", Same(Text)),
            ("network", Same(Texts)),
            ("network_path", Same(Text)),
            ("refresh_interval", Same(Number)),
        ],
    ),
    ("clone", &[("clones", Same(Texts))]),
    (
        "csv",
        &[
            ("columns", Same(Texts)),
            ("convert", Same(Table)),
            ("separator", Same(Text)),
            ("quote_char", Same(Text)),
            ("autodetect_column_names", Same(Bool)),
            ("autogenerate_column_names", Same(Bool)),
            ("skip_empty_columns", Same(Bool)),
            ("skip_empty_rows", Same(Bool)),
            ("skip_header", Same(Bool)),
        ],
    ),
    ("date", &[("match", Same(Texts))]),
    ("dissect", &[("mapping", Same(Table)), ("convert_datatype", Same(Table))]),
    ("drop", &[("percentage", Same(Number))]),
    (
        "fingerprint",
        &[
            ("source", Same(Texts)),
            ("key", Same(Text)),
            ("base64encode", Same(Bool)),
            ("concatenate_sources", Same(Bool)),
            ("concatenate_all_fields", Same(Bool)),
        ],
    ),
    (
        "geoip",
        &[
            ("fields", Same(Texts)),
            ("cache_size", Ignored),
            ("database", Same(Text)),
            ("default_database_type", Ignored),
        ],
    ),
    (
        "grok",
        &[
            ("match", Same(Table)),
            ("patterns_dir", Same(Texts)),
            ("pattern_definitions", Same(Table)),
            ("patterns_files_glob", Same(Text)),
            ("named_captures_only", Same(Bool)),
            ("keep_empty_captures", Same(Bool)),
            ("break_on_match", Same(Bool)),
            ("overwrite", Same(Texts)),
            ("timeout_millis", Same(Number)),
            ("timeout_scope", Same(Text)),
            ("tag_on_timeout", Same(Text)),
        ],
    ),
    ("json", &[("skip_on_invalid_json", Same(Bool))]),
    (
        "kv",
        &[
            ("include_keys", Same(Texts)),
            ("exclude_keys", Same(Texts)),
            ("default_keys", Same(Table)),
            ("allow_duplicate_values", Same(Bool)),
            ("allow_empty_values", Same(Bool)),
            ("include_brackets", Same(Bool)),
            ("recursive", Same(Bool)),
            ("timeout_millis", Same(Number)),
            ("tag_on_timeout", Same(Text)),
        ],
    ),
    (
        "mutate",
        &[
            ("coerce", Same(Table)),
            ("rename", Same(Table)),
            ("update", Same(Table)),
            ("replace", Same(Table)),
            ("convert", Same(Table)),
            ("uppercase", Same(Texts)),
            ("capitalize", Same(Texts)),
            ("lowercase", Same(Texts)),
            ("strip", Same(Texts)),
            ("split", Same(Table)),
            ("join", Same(Table)),
            ("merge", Same(Table)),
            ("copy", Same(Table)),
            ("gsub", Elsewhere),
            ("tag_on_failure", Same(Text)),
        ],
    ),
    (
        "prune",
        &[
            ("whitelist_names", Same(Texts)),
            ("blacklist_names", Same(Texts)),
            ("whitelist_values", Same(Table)),
            ("blacklist_values", Same(Table)),
            ("interpolate", Same(Bool)),
        ],
    ),
    ("syslog_pri", &[("use_labels", Same(Bool)), ("facility_labels", Same(Texts)), ("severity_labels", Same(Texts))]),
    (
        "translate",
        &[
            ("field", As("source", Text)),
            ("destination", As("target", Text)),
            ("dictionary", Same(Table)),
            ("exact", Same(Bool)),
            ("override", Same(Bool)),
            ("regex", Same(Bool)),
            ("refresh_interval", Same(Number)),
            ("refresh_behaviour", Same(Text)),
        ],
    ),
    ("truncate", &[("fields", Same(Texts)), ("length_bytes", Same(Number))]),
    ("urldecode", &[("all_fields", Same(Bool))]),
    ("useragent", &[("lru_cache_size", Ignored)]),
    ("uuid", &[("overwrite", Same(Bool))]),
];

/// Why a filter has no counterpart, where there is more to say than that.
const REASONS: &[(&str, &str)] = &[
    ("aggregate", "what becomes of an event follows from that event alone, not from those before it"),
    ("dns", "an answer from the network would make a replay another event"),
    ("elapsed", "what becomes of an event follows from that event alone, not from those before it"),
    ("elasticsearch", "what a query finds today would make a replay another event"),
    ("http", "an answer from the network would make a replay another event"),
    ("jdbc_static", "there are no look-ups in a database"),
    ("jdbc_streaming", "there are no look-ups in a database"),
    ("memcached", "an answer from the network would make a replay another event"),
    ("metrics", "it makes events of its own; onceline counts with `run --summary`"),
    ("multiline", "lines are put together by a codec, not by a filter"),
    ("ruby", "there is no Ruby here; say the same with other filters"),
    ("sleep", "nothing waits here; back-pressure is kept by `[tuning] bytes_in_flight_max`"),
    ("throttle", "what becomes of an event follows from that event alone, not from those before it"),
];

/// What Logstash brings along: the filter, the option that names another, and why there is no filter without.
const BROUGHT: &[(&str, &str, &str)] = &[
    ("geoip", "database", "Logstash brings a database along, onceline none: say the file of one as `database`"),
    ("useragent", "regexes", "Logstash brings patterns along, onceline none: say a file of them as `regexes`"),
];

/// Whether onceline has the filter.
pub fn exists(name: &str) -> bool {
    KINDS.iter().any(|(kind, _)| *kind == name)
}

/// Why a filter that does not exist has no counterpart.
pub fn reason(name: &str) -> String {
    let known = REASONS.iter().find(|(kind, _)| *kind == name);
    known.map_or_else(|| format!("onceline has no filter `{name}`"), |(_, why)| why.to_string())
}

impl Mapping<'_> {
    /// A filter as a table of ours, or why there is none.
    pub fn filter(&mut self, plugin: &Plugin) -> Result<Block, String> {
        let name = plugin.name.as_str();
        if !exists(name) {
            return Err(reason(name));
        }
        let remarks = self.remarks.len();
        if let Some((_, _, why)) =
            BROUGHT.iter().find(|(kind, option, _)| *kind == name && plugin.get(option).is_none())
        {
            return Err(why.to_string());
        }
        let mut block = Block::new("[[filter]]").text("type", name);
        let rules = FILTERS.iter().find(|(kind, _)| *kind == name).map_or(&[][..], |(_, rules)| *rules);
        self.settings(plugin, &[rules, COMMON, TEXTS], &mut block);
        match name {
            "mutate" => gsub(plugin, &mut block),
            "date" => self.zone(plugin, &mut block),
            "fingerprint" => self.serialization(plugin, &mut block),
            _ => {}
        }
        if self.options.ecs_compatibility().is_some() && !block.has("ecs_compatibility") {
            block
                .add("ecs_compatibility", Toml::Text(self.options.ecs_compatibility().unwrap_or_default().to_string()));
        }
        self.accepted(plugin, &mut block).inspect_err(|_| self.remarks.truncate(remarks))?;
        Ok(block)
    }

    /// Takes away what the reader of pipeline files does not know; anything else that it refuses ends the filter.
    pub fn accepted(&mut self, plugin: &Plugin, block: &mut Block) -> Result<(), String> {
        loop {
            let found = probe::problems(&block.render());
            if found.is_empty() {
                return Ok(());
            }
            let mut taken = false;
            for key in &found.unknown_keys {
                if !block.remove(key) {
                    continue;
                }
                taken = true;
                if key == "ecs_compatibility" {
                    continue;
                }
                match plugin.settings.iter().find(|setting| setting.name == *key) {
                    Some(setting) => {
                        self.lost_in(setting, &format!("`{}` has no such option here", plugin.name), block)
                    }
                    None => block.remark(format!("`{key}` is not known here")),
                }
            }
            if !taken {
                let mut words = found.other;
                words.extend(found.unknown_keys.iter().map(|key| format!("`{key}` is not known here")));
                words.dedup();
                return Err(words.join("; "));
            }
        }
    }

    /// Without a zone Logstash takes the host's.
    fn zone(&mut self, plugin: &Plugin, block: &mut Block) {
        let formats = plugin.texts("match");
        let has_zone = |format: &String| match format.as_str() {
            // such a text nearly always has one
            "ISO8601" | "UNIX" | "UNIX_MS" | "TAI64N" => true,
            pattern => pattern.split('\'').step_by(2).any(|part| part.contains(['Z', 'z'])),
        };
        if plugin.get("timezone").is_some() || formats.iter().skip(1).all(has_zone) {
            return;
        }
        let why = "a time without a zone is read as UTC; Logstash reads it in the zone of its host, so say \
                   `timezone` if that is another";
        block.remark(why);
        self.note(plugin.place, "date", why);
    }

    /// Says how several fields are hashed, where that matters.
    fn serialization(&mut self, plugin: &Plugin, block: &mut Block) {
        if plugin.flag("concatenate_sources") || plugin.flag("concatenate_all_fields") {
            block.add("serialization", Toml::Text(self.options.serialization().to_string()));
        }
    }

    /// What is written above a table that comes from a plugin: its comments and where it was.
    pub fn heading(&self, plugin: &Plugin) -> Vec<String> {
        let written = plugin.comments.iter().chain(&plugin.inner_comments);
        let mut comments: Vec<String> = written.map(|text| text.trim().to_string()).collect();
        let id = plugin.text("id").map(|id| format!(" ({id})")).unwrap_or_default();
        comments.push(format!("{}{id}", plugin.place.line(self.sources)));
        comments
    }

    /// A plugin kept as a comment with the reason.
    pub fn kept(&mut self, plugin: &Plugin, why: &str) -> Block {
        self.lost(plugin.place, &plugin.name, why);
        self.kept_quietly(plugin, &format!("has no counterpart: {why}"))
    }

    pub fn kept_quietly(&self, plugin: &Plugin, why: &str) -> Block {
        let mut block = Block::default();
        block.comments.extend(plugin.comments.iter().map(|text| text.trim().to_string()));
        block.comments.push(format!("{}: {} {why}", plugin.place.line(self.sources), plugin.name));
        block.comments.extend(self.written(plugin));
        block
    }

    /// The text of a plugin as it was written, indented.
    fn written(&self, plugin: &Plugin) -> Vec<String> {
        let text = self.sources.get(plugin.place.file).map_or("", |source| source.text.as_str());
        let from = text[..plugin.place.at].rfind('\n').map_or(0, |at| at + 1);
        let blank = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
        let indent = blank(&text[from..]);
        let lines = text[plugin.place.at..plugin.end].lines();
        lines.map(|line| format!("  {}", &line[blank(line).min(indent)..])).collect()
    }
}

/// Options that are plain texts in every filter that has them.
const TEXTS: Rules = &[
    ("source", Same(Text)),
    ("target", Same(Text)),
    ("field", Same(Text)),
    ("destination", Same(Text)),
    ("terminator", Same(Text)),
    ("prefix", Same(Text)),
    ("separator", Same(Text)),
    ("charset", Same(Text)),
    ("timezone", Same(Text)),
    ("locale", Same(Text)),
    ("method", Same(Text)),
    ("field_split", Same(Text)),
    ("value_split", Same(Text)),
    ("field_split_pattern", Same(Text)),
    ("value_split_pattern", Same(Text)),
    ("trim_key", Same(Text)),
    ("trim_value", Same(Text)),
    ("remove_char_key", Same(Text)),
    ("remove_char_value", Same(Text)),
    ("transform_key", Same(Text)),
    ("transform_value", Same(Text)),
    ("whitespace", Same(Text)),
    ("fallback", Same(Text)),
    ("iterate_on", Same(Text)),
    ("dictionary_path", Same(Text)),
    ("regexes", Same(Text)),
    ("syslog_pri_field_name", Same(Text)),
];

/// Field, pattern and replacement in threes, a row each.
fn gsub(plugin: &Plugin, block: &mut Block) {
    let Some(value) = plugin.get("gsub") else { return };
    if let Ok(Toml::List(items)) = super::options::value(Texts, value) {
        block.add("gsub", Toml::Rows(3, items));
    }
}
