//! `onceline import logstash`: a Logstash configuration as a pipeline file.
//!
//! - `tree`, `parse`, `expression`: the language, whole, as a tree with places
//! - `options`: rules by which settings become keys; `inputs`, `filters`, `outputs`: the tables of them
//! - `flow`: `if` as `when`; `when`: conditions written; `effects`: what filters may change
//! - `id`: fingerprint and time prefix as `[id]`; `ruby`: the little of Ruby that is understood
//! - `probe`: asks the reader of pipeline files, so that what is written is what onceline takes
//! - `toml`: writes it as a person would
//!
//! What has no counterpart stays as a comment at its place, and is a [`Remark`]. To add an input or a codec, add a
//! row to the tables of `inputs`; a filter is mapped as soon as [`crate::filter::KINDS`] has it.

mod effects;
pub mod expression;
mod filters;
mod flow;
mod id;
mod inputs;
mod options;
mod outputs;
mod parse;
mod probe;
mod ruby;
mod toml;
pub mod tree;
mod when;

use std::collections::{HashMap, HashSet};

use effects::{Writes, path};
use flow::Step;
pub use tree::{Config, Place, Source, Wrong};
use tree::{Plugin, each_condition, each_plugin};

use toml::{Block, Toml};

/// What is said on the command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// `config.support_escapes`.
    pub escapes: bool,
    /// Major and minor version of the Logstash whose defaults are meant.
    pub version: Option<(u32, u32)>,
    /// Which output is kept, from 1.
    pub output: Option<usize>,
}

impl Options {
    /// The default of every plugin; none where that is onceline's.
    fn ecs_compatibility(&self) -> Option<&'static str> {
        self.version.filter(|version| version.0 >= 8).map(|_| "v8")
    }

    fn is_ecs(&self) -> bool {
        self.ecs_compatibility().is_some()
    }

    fn is_new_hashing(&self) -> bool {
        self.version.is_some_and(|version| version >= (9, 4))
    }

    /// How the fingerprint filter joins several fields.
    fn serialization(&self) -> &'static str {
        if self.is_new_hashing() { "logstash-3.5" } else { "logstash-3.4" }
    }

    fn hashing(&self) -> &'static str {
        if self.is_new_hashing() { "9.4 and later" } else { "7.10 to 9.3 (--logstash 9.4 for later ones)" }
    }
}

/// Something to be said of the import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    pub place: Place,
    /// The plugin or setting.
    pub what: String,
    pub text: String,
    /// It has no counterpart.
    pub is_lost: bool,
}

impl Remark {
    pub fn render(&self, sources: &[Source]) -> String {
        let kind = if self.is_lost { "no counterpart" } else { "note" };
        format!("{}: {}: {kind}: {}", self.place.full(sources), self.what, self.text)
    }
}

#[derive(Clone, Debug)]
pub struct Import {
    pub toml: String,
    /// In the order of their places.
    pub remarks: Vec<Remark>,
}

impl Import {
    pub fn lost(&self) -> usize {
        self.remarks.iter().filter(|remark| remark.is_lost).count()
    }
}

/// Reads files as Logstash does: each for itself, their sections one after another.
pub fn parse(sources: &[Source], escapes: bool) -> Result<Config, Wrong> {
    let mut config = Config::default();
    for (number, source) in sources.iter().enumerate() {
        parse::file(number, &source.text, escapes, &mut config)?;
    }
    Ok(config)
}

/// Makes a pipeline file of a Logstash configuration.
pub fn logstash(sources: &[Source], options: &Options) -> Result<Import, Wrong> {
    let config = parse(sources, options.escapes)?;
    let found = outputs::found(&config.outputs);
    if let Some(number) = options.output.filter(|number| *number > found.len() || *number == 0) {
        let message = format!("there is no output {number}: the source has {}", found.len());
        return Err(Wrong { place: Place::default(), message });
    }
    Ok(Mapping::new(sources, options, &config).import(&config, &found))
}

/// An import under way.
struct Mapping<'a> {
    sources: &'a [Source],
    options: &'a Options,
    remarks: Vec<Remark>,
    /// What stands in place of some filters.
    instead: HashMap<Place, Vec<Step>>,
    /// How many times the answer of an `if` was noted.
    notes: usize,
    /// `path`, which the file input of Logstash sets, is read.
    mentions_path: bool,
    mentions_file_path: bool,
    mentions_bad_json: bool,
    /// Names below `@metadata` that the configuration has.
    metadata: HashSet<String>,
}

impl<'a> Mapping<'a> {
    fn new(sources: &'a [Source], options: &'a Options, config: &Config) -> Mapping<'a> {
        let mut mapping = Mapping {
            sources,
            options,
            remarks: Vec::new(),
            instead: HashMap::new(),
            notes: 0,
            mentions_path: false,
            mentions_file_path: false,
            mentions_bad_json: false,
            metadata: HashSet::new(),
        };
        each_plugin(&config.inputs, &mut |plugin| plugin.each_text(&mut |text| mapping.mention_metadata(text)));
        for nodes in [&config.filters, &config.outputs] {
            each_plugin(nodes, &mut |plugin| plugin.each_text(&mut |text| mapping.mention(text)));
            each_condition(nodes, &mut |condition| {
                condition.expr.operands(&mut |asked| match asked {
                    expression::Asked::Field(field) => mapping.mention(field),
                    expression::Asked::Tag(tag) => mapping.mention(tag),
                });
            });
        }
        mapping
    }

    fn mention(&mut self, text: &str) {
        let is_path = |text: &str| path(text)[..] == ["path"];
        self.mentions_path |= is_path(text) || text.contains("%{path}") || text.contains("%{[path]}");
        self.mentions_file_path |= text.contains("[log][file][path]") || text.contains("[log][offset]");
        self.mentions_bad_json |= text.contains("_jsonparsefailure");
        self.mention_metadata(text);
    }

    fn mention_metadata(&mut self, text: &str) {
        let below = text.split("@metadata").skip(1).filter_map(|rest| rest.trim_start_matches(']').strip_prefix('['));
        self.metadata.extend(below.filter_map(|rest| rest.split(']').next()).map(str::to_string));
    }

    /// A field below `@metadata` for what is made here, which the configuration does not have.
    fn own_field(&self, name: &str) -> String {
        let mut name = name.to_string();
        while self.metadata.contains(&name) {
            name.push('_');
        }
        format!("[@metadata][{name}]")
    }

    /// Notes that something has no counterpart.
    fn lost(&mut self, place: Place, what: &str, text: &str) {
        self.remark(place, what, text, true);
    }

    /// Notes something that is worth knowing.
    fn note(&mut self, place: Place, what: &str, text: &str) {
        self.remark(place, what, text, false);
    }

    fn remark(&mut self, place: Place, what: &str, text: &str, is_lost: bool) {
        let remark = Remark { place, what: what.to_string(), text: text.to_string(), is_lost };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    fn import(mut self, config: &'a Config, found: &'a [outputs::Found<'a>]) -> Import {
        let mut chosen = self.outputs(found);
        let (id, is_found_again) = self.id(&config.filters, &chosen);
        let (mut blocks, mut steps) = self.inputs(&config.inputs);
        let time = self.time(config);
        steps.extend(self.steps(&config.filters));
        steps.append(&mut chosen.steps);
        self.host(config);
        self.version(config);
        blocks.extend(steps.into_iter().map(Step::finished));
        blocks.extend(time);
        blocks.push(id);
        blocks.push(self.index(&chosen, is_found_again));
        blocks.push(chosen.block);
        blocks.append(&mut chosen.others);
        if !config.comments.is_empty() {
            let comments = config.comments.iter().map(|text| text.trim().to_string()).collect();
            blocks.push(Block { comments, ..Block::default() });
        }
        self.remarks.sort_by_key(|remark| (remark.place, !remark.is_lost));
        let names: Vec<&str> = self.sources.iter().map(|source| source.name.as_str()).collect();
        let head = format!("# Made of {} by `onceline import logstash`.\n", names.join(", "));
        let tables: Vec<String> = blocks.iter().map(Block::render).collect();
        Import { toml: format!("{head}\n{}", tables.join("\n")), remarks: self.remarks }
    }

    /// `[time]`, where nothing gives events a time: Logstash takes that of reading.
    fn time(&mut self, config: &Config) -> Option<Block> {
        let mut has_time = false;
        each_plugin(&config.inputs, &mut |plugin| {
            let codec = match plugin.get("codec") {
                Some(tree::Value::Plugin(codec)) => codec.name.clone(),
                Some(other) => other.scalar().unwrap_or_default(),
                None => String::new(),
            };
            has_time |= codec.starts_with("json");
        });
        each_plugin(&config.filters, &mut |plugin| {
            let is_grok = plugin.name == "grok";
            let is_there = filters::exists(&plugin.name);
            has_time |= is_there && !is_grok && Writes::of(plugin, self.options.is_ecs()).field("@timestamp");
        });
        if has_time {
            return None;
        }
        let why = "nothing gives these events a time, so they get that of reading, as in Logstash: a replay gives them another";
        self.note(Place::default(), "@timestamp", why);
        Some(Block::new("[time]").comment(why).text("missing", "now"))
    }

    fn index(&mut self, chosen: &outputs::Chosen<'_>, is_found_again: bool) -> Block {
        let place = chosen.plugin.map(|plugin| plugin.place_of("index")).unwrap_or_default();
        let mut block = Block::new("[index]");
        let strict = is_found_again && !chosen.is_stream;
        let with = |name: &str| {
            let block = Block::new("[index]").text("name", name);
            probe::problems(&block.render()).other
        };
        let name = options::ours(&chosen.index).unwrap_or_default();
        match with(&name) {
            found if found.is_empty() => block.add("name", Toml::Text(name)),
            found => {
                let why = found.join("; ");
                self.lost(place, "`index`", &why);
                block.comments.push(format!("`{}` has no counterpart: {why}", chosen.index.escape_debug()));
                let lower = lower(&name);
                let name = if with(&lower).is_empty() { lower } else { "logstash".to_string() };
                block.add("name", Toml::Text(name));
            }
        }
        if !strict {
            block.add("strict", Toml::Raw("false".to_string()));
        }
        block
    }

    /// Says whose defaults are taken, where they were others before Logstash 8.
    fn version(&mut self, config: &Config) {
        let mut is_asked = false;
        let with_names = ["grok", "useragent", "geoip", "fingerprint", "csv", "cef", "syslog_pri"];
        each_plugin(&config.filters, &mut |plugin| {
            is_asked |= with_names.contains(&plugin.name.as_str()) && plugin.get("ecs_compatibility").is_none();
        });
        each_plugin(&config.outputs, &mut |plugin| {
            is_asked |= outputs::is_engine(plugin) && plugin.get("index").is_none();
        });
        if is_asked && self.options.version.is_none() {
            let why = "none is named, so defaults are those before Logstash 8 (other names of fields, another index): \
                       `--logstash 8.15` and the like takes newer ones";
            self.note(Place::default(), "--logstash", why);
        }
    }

    /// Says once that events have no `host` and the like, where that is read and nothing sets it.
    fn host(&mut self, config: &Config) {
        for (field, spelling) in [("host", "%{host}"), ("@version", "%{@version}")] {
            let mut sets = false;
            let mut read = None;
            each_plugin(&config.filters, &mut |plugin| {
                sets |= filters::exists(&plugin.name) && Writes::of(plugin, self.options.is_ecs()).field(field);
            });
            for nodes in [&config.filters, &config.outputs] {
                each_plugin(nodes, &mut |plugin: &Plugin| {
                    plugin.each_text(&mut |text| {
                        if text.contains(spelling) || text == format!("[{field}]") || text == field {
                            read.get_or_insert(plugin.place);
                        }
                    });
                });
                each_condition(nodes, &mut |condition| {
                    condition.expr.operands(&mut |asked| {
                        if let expression::Asked::Field(asked) = asked
                            && path(asked).first().is_some_and(|top| top == field)
                        {
                            read.get_or_insert(condition.place);
                        }
                    });
                });
            }
            if let Some(place) = read.filter(|_| !sets) {
                self.note(place, &format!("`{field}`"), "Logstash gives it to every event, onceline does not");
            }
        }
    }
}

/// An index name with its fixed parts in lower case, and what no engine takes made `-`.
fn lower(name: &str) -> String {
    let (mut out, mut rest) = (String::new(), name);
    let plain = |text: &str| -> String {
        text.to_lowercase().chars().map(|c| if c.is_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect()
    };
    while let Some(at) = rest.find("%{") {
        let end = rest[at..].find('}').map_or(rest.len(), |end| at + end + 1);
        out += &plain(&rest[..at]);
        out += &rest[at..end];
        rest = &rest[end..];
    }
    out += &plain(rest);
    out.trim_start_matches(['_', '-', '+']).to_string()
}
