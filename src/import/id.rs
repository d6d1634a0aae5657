//! `document_id` as `[id]`: what it is made of is followed back through the filters, to the time and a fingerprint.

use super::Mapping;
use super::effects::{Writes, meet, path};
use super::filters::exists;
use super::flow::Step;
use super::options::ours;
use super::outputs::Chosen;
use super::probe;
use super::ruby::{self, Digest, Part, Statement, canonical};
use super::toml::{Block, Toml};
use super::tree::{Node, Plugin, each_condition, each_plugin};

/// A filter that makes a field of which ids may be made.
struct Producer<'a> {
    field: Vec<String>,
    parts: Vec<Part>,
    plugin: &'a Plugin,
    /// It does nothing else.
    is_sole: bool,
}

/// An id that more fields lead to is left as it is.
const USED_MAX: usize = 20;

const REPLAY: &str = "a replay stores the events again";

impl<'a> Mapping<'a> {
    /// The `[id]` section; says too which filters it makes needless. The second is false where ids do not follow
    /// from the events.
    pub fn id(&mut self, filters: &'a [Node], chosen: &Chosen<'a>) -> (Block, bool) {
        let place = chosen.plugin.map(|plugin| plugin.place_of("document_id")).unwrap_or_default();
        let Some(document_id) = &chosen.document_id else {
            if let Some(plugin) = chosen.plugin.filter(|_| chosen.is_engine) {
                self.note(
                    plugin.place,
                    &plugin.name,
                    &format!("without `document_id` the engine makes the ids: {REPLAY}"),
                );
            }
            return (automatic("the engine makes the ids: a replay stores the events again"), false);
        };
        let producers = producers(filters, self.options.is_ecs());
        let mut used = Vec::new();
        let parts = expanded(document_id, &producers, &mut used, 0);
        let said = format!("{}: `document_id`", place.line(self.sources));
        let (block, is_found_again) = match &parts[..] {
            [Part::HexSeconds, Part::Digest(digest)] if fits(digest) && !digest.is_base64 => {
                self.made("time-hash", digest, filters, &used)
            }
            [Part::Digest(digest)] if digest.method == "UUID" => {
                self.note(place, "`document_id`", &format!("a random id: {REPLAY}"));
                (Block::new("[id]").text("scheme", "uuid").raw("version", 4), false)
            }
            // what the sources were is known to the filter alone then
            [Part::Digest(digest)] if fits(digest) && !self.is_joined(digest, filters, &used) => {
                self.made("hash", digest, filters, &used)
            }
            _ => match self.field(document_id, &producers, &used, place) {
                Some(block) => return (block.comment(said), true),
                None => return (automatic(&format!("{said} cannot be written here")), false),
            },
        };
        self.replace(filters, chosen, &used, &parts);
        let block = block.comment(said);
        match probe::problems(&format!("{}\n[index]\nname = \"stub\"\nstrict = {is_found_again}\n", block.render())) {
            found if found.is_empty() => (block, is_found_again),
            found => {
                let why = found.other.join("; ");
                self.lost(place, "`document_id`", &why);
                (automatic(&format!("`document_id` has no counterpart: {why}")), false)
            }
        }
    }

    /// `[id]` of a digest, with or without the time before it.
    fn made(&mut self, scheme: &str, digest: &Digest, filters: &'a [Node], used: &[&Producer<'a>]) -> (Block, bool) {
        let mut block = Block::new("[id]").text("scheme", scheme).text("method", digest.method.as_str());
        if digest.method == "UUID" {
            self.note(self.place_of_digest(used), "fingerprint", &format!("a random id: {REPLAY}"));
            return (block, false);
        }
        if let Some(key) = digest.key.as_ref().filter(|_| !digest.method.starts_with("MURMUR3")) {
            block.add("key", Toml::Text(ours(key).unwrap_or_else(|_| "${FINGERPRINT_KEY}".to_string())));
        }
        let place = self.place_of_digest(used);
        let mut sources = digest.sources.clone();
        if !digest.is_concatenated && sources.len() > 1 {
            let why = "Logstash hashes the last of several sources that is there, here it is always the last one";
            self.note(place, "fingerprint", why);
            block.remark(why);
            sources.drain(..sources.len() - 1);
        }
        let kept = self.own_field("id_source");
        if self.is_joined(digest, filters, used) {
            sources.sort();
            let joined: String = sources.iter().map(|source| format!("|{source}|%{{{source}}}")).collect();
            self.keep_source(of_digest(used), "replace", (&kept, &format!("{joined}|")));
            let why = "the sources are joined before filters change them, as Logstash does it where all of them are texts \
                       or whole numbers: the ids of other events are not those that are stored";
            self.lost(place, "fingerprint", why);
            block.remark(why);
            sources = vec![kept];
        } else {
            if self.is_changed(&sources, filters, used) {
                self.keep_source(of_digest(used), "copy", (&sources[0], &kept));
                sources = vec![kept];
            }
            if digest.is_concatenated {
                block.remark(format!("as Logstash {} hashes several fields", self.options.hashing()));
            }
            block.add("serialization", Toml::Text(self.options.serialization().to_string()));
        }
        if digest.is_base64 {
            block.add("encoding", Toml::Text("base64".to_string()));
        }
        let sources = sources.iter().filter_map(|source| ours(source).ok()).map(Toml::Text).collect();
        block.add("source", Toml::List(sources));
        (block, true)
    }

    /// Whether filters behind the fingerprint may change what it was made of.
    fn is_changed(&self, sources: &[String], filters: &'a [Node], used: &[&Producer<'a>]) -> bool {
        let later = of_digest(used).map_or_else(Vec::new, |producer| self.later(filters, producer.plugin));
        sources.iter().any(|source| later.iter().any(|writes| writes.field(source)))
    }

    /// Whether Logstash hashes sources with their names that `[id]` cannot hash so: a single one, or as they were.
    fn is_joined(&self, digest: &Digest, filters: &'a [Node], used: &[&Producer<'a>]) -> bool {
        digest.is_concatenated && (digest.sources.len() == 1 || self.is_changed(&digest.sources, filters, used))
    }

    fn place_of_digest(&self, used: &[&Producer<'a>]) -> super::tree::Place {
        used.last().map(|producer| producer.plugin.place).unwrap_or_default()
    }

    /// What the filters after one may change.
    fn later(&self, filters: &'a [Node], plugin: &Plugin) -> Vec<Writes> {
        let mut writes = Vec::new();
        each_plugin(filters, &mut |other| {
            if other.place > plugin.place && exists(&other.name) {
                writes.push(Writes::of(other, self.options.is_ecs()));
            }
        });
        writes
    }

    /// Keeps what is hashed as it was where the fingerprint was made: filters after it change it.
    fn keep_source(&mut self, producer: Option<&Producer<'a>>, operation: &str, (key, value): (&str, &str)) {
        let Some(producer) = producer else { return };
        let mut block = Block::new("[[filter]]");
        block.comments = self.heading(producer.plugin);
        block.comments.push("what [id] hashes is kept as it is here: filters below change it".to_string());
        block.add("type", Toml::Text("mutate".to_string()));
        let value = ours(value).unwrap_or_default();
        block.add(operation, Toml::Table(vec![(key.to_string(), Toml::Text(value))]));
        self.instead.entry(producer.plugin.place).or_default().push(Step::new(block, Writes::default()));
    }

    /// Takes away the filters that `[id]` stands for, unless somebody else reads what they make.
    fn replace(&mut self, filters: &'a [Node], chosen: &Chosen<'a>, used: &[&Producer<'a>], parts: &[Part]) {
        self.says_when(filters, used);
        let is_time = parts.first() == Some(&Part::HexSeconds);
        let what = if is_time { "the time and the fingerprint are" } else { "the fingerprint is" };
        for producer in used {
            let is_metadata = producer.field.first().is_some_and(|top| top == "@metadata");
            let is_read = self.is_read(filters, chosen, producer, used);
            let steps = self.instead.entry(producer.plugin.place).or_default();
            let is_kept = !is_metadata || is_read || !producer.is_sole;
            if is_kept {
                let before = std::mem::take(steps);
                self.instead.remove(&producer.plugin.place);
                let own = self.step_of(producer.plugin);
                self.instead.insert(producer.plugin.place, [before, own].concat());
            } else if steps.is_empty() {
                let mut block = Block { comments: self.heading(producer.plugin), ..Block::default() };
                let line = block.comments.pop().unwrap_or_default();
                block.comments.push(format!("{line}: {}: {what} in [id]", producer.plugin.name));
                self.instead.insert(producer.plugin.place, vec![Step::new(block, Writes::default())]);
            }
        }
    }

    /// Whether what a filter makes is read by anybody but the id and the filters that make it.
    fn is_read(&self, filters: &[Node], chosen: &Chosen<'_>, producer: &Producer<'_>, used: &[&Producer<'a>]) -> bool {
        let Some(name) = producer.field.last() else { return false };
        let is_it = |text: &str| text.contains("@metadata") && text.contains(name.as_str());
        let mut is_read = is_it(&chosen.index);
        each_plugin(filters, &mut |plugin| {
            if !used.iter().any(|used| used.plugin.place == plugin.place) {
                plugin.each_text(&mut |text| is_read |= is_it(text));
            }
        });
        each_condition(filters, &mut |condition| {
            condition.expr.operands(&mut |asked| {
                if let super::expression::Asked::Field(field) = asked {
                    is_read |= meet(&path(field), &producer.field);
                }
            });
        });
        is_read
    }

    /// In Logstash a prefix that is made before `date` is the time of reading.
    fn says_when(&mut self, filters: &'a [Node], used: &[&Producer<'a>]) {
        let made = used.iter().find(|producer| producer.parts.contains(&Part::HexSeconds));
        let Some(made) = made else { return };
        let mut is_before = false;
        each_plugin(filters, &mut |plugin| {
            let target = plugin.text("target").unwrap_or("@timestamp".to_string());
            is_before |= plugin.name == "date" && target == "@timestamp" && plugin.place > made.plugin.place;
        });
        if is_before {
            let why = "the time is taken before `date` sets it: in Logstash the id begins with the time of reading, here \
                       with the event's";
            self.note(made.plugin.place, &made.plugin.name, why);
        }
    }

    /// The id as a template, with the filters kept that make its fields.
    fn field(
        &mut self,
        document_id: &str,
        producers: &[Producer<'a>],
        used: &[&Producer<'a>],
        place: super::tree::Place,
    ) -> Option<Block> {
        let mut parts = split(document_id);
        let needs_ruby = |part: &Part| {
            let Part::Field(field) = part else { return None };
            let producer = producers.iter().find(|producer| producer.field == path(field))?;
            (producer.plugin.name == "ruby" && ruby::template(&producer.parts).is_none()).then_some(producer)
        };
        for part in &mut parts {
            let Some(producer) = needs_ruby(part) else { continue };
            if producer.parts == [Part::HexSeconds] {
                *part = Part::Seconds;
                let why = "the time in hex can be written in front of a digest only (`time-hash`), so it is decimal here, \
                           and the ids are not those that are stored";
                self.lost(place, "`document_id`", why);
            }
        }
        let text = ours(&ruby::template(&parts)?).ok()?;
        for producer in used.iter().filter(|producer| producer.plugin.name == "fingerprint") {
            if producer.plugin.text("method").as_deref() == Some("UUID") {
                self.note(producer.plugin.place, "fingerprint", &format!("a random id: {REPLAY}"));
            }
        }
        let block = Block::new("[id]").text("scheme", "field").text("field", text);
        match probe::problems(&block.render()) {
            found if found.is_empty() => Some(block),
            found => {
                self.lost(place, "`document_id`", &found.other.join("; "));
                None
            }
        }
    }
}

/// Who makes the digest that ids are made of.
fn of_digest<'p, 'a>(used: &[&'p Producer<'a>]) -> Option<&'p Producer<'a>> {
    used.iter().copied().find(|producer| producer.parts.iter().any(|part| matches!(part, Part::Digest(_))))
}

fn automatic(why: &str) -> Block {
    Block::new("[id]").comment(why).text("scheme", "auto")
}

/// `[id]` can make the digest.
fn fits(digest: &Digest) -> bool {
    let methods = ["MD5", "SHA1", "SHA256", "SHA384", "SHA512", "MURMUR3_128", "UUID"];
    methods.contains(&digest.method.as_str()) && !digest.is_of_all && !digest.sources.is_empty()
}

fn producers(filters: &[Node], is_ecs: bool) -> Vec<Producer<'_>> {
    let mut out = Vec::new();
    each_plugin(filters, &mut |plugin| {
        let is_within = |names: &[&str]| {
            let quiet = ["id", "enable_metric", "ecs_compatibility"];
            plugin.settings.iter().all(|s| names.contains(&s.name.as_str()) || quiet.contains(&s.name.as_str()))
        };
        let made: Vec<(String, Vec<Part>, bool)> = match plugin.name.as_str() {
            "fingerprint" => {
                let target = if is_ecs { "[event][hash]" } else { "fingerprint" };
                let own = [
                    "source",
                    "target",
                    "method",
                    "key",
                    "base64encode",
                    "concatenate_sources",
                    "concatenate_all_fields",
                ];
                let target = plugin.text("target").unwrap_or(target.to_string());
                vec![(target, vec![Part::Digest(fingerprint(plugin))], is_within(&own))]
            }
            "ruby" => {
                let statements = plugin.text("code").and_then(|code| ruby::statements(&code)).unwrap_or_default();
                let is_sole = statements.len() == 1 && is_within(&["code"]);
                let sets = statements.into_iter().filter_map(|statement| match statement {
                    Statement::Set(field, parts) => Some((field, parts, is_sole)),
                    Statement::SetSeconds(field) => Some((field, vec![Part::Seconds], is_sole)),
                    _ => None,
                });
                sets.collect()
            }
            "mutate" => {
                let set = ["add_field", "replace", "update"];
                let pairs: Vec<_> = set.iter().flat_map(|name| plugin.pairs(name)).collect();
                let is_sole = pairs.len() == 1 && is_within(&set);
                let texts = pairs.into_iter().filter_map(|(field, value)| Some((field, value.scalar()?)));
                texts.map(|(field, text)| (field, split(&text), is_sole)).collect()
            }
            _ => Vec::new(),
        };
        let producer = |(field, parts, is_sole): (String, Vec<Part>, bool)| Producer {
            field: path(&field),
            parts,
            plugin,
            is_sole,
        };
        out.extend(made.into_iter().map(producer));
    });
    out
}

fn fingerprint(plugin: &Plugin) -> Digest {
    let sources = match plugin.texts("source") {
        sources if sources.is_empty() => vec!["message".to_string()],
        sources => sources,
    };
    Digest {
        method: plugin.text("method").unwrap_or("SHA1".to_string()),
        key: plugin.text("key"),
        sources,
        is_concatenated: plugin.flag("concatenate_sources"),
        is_of_all: plugin.flag("concatenate_all_fields"),
        is_base64: plugin.flag("base64encode"),
    }
}

/// A template as its parts.
fn split(template: &str) -> Vec<Part> {
    let (mut out, mut rest) = (Vec::new(), template);
    while let Some(at) = rest.find("%{") {
        let Some(end) = rest[at..].find('}') else { break };
        if at > 0 {
            out.push(Part::Text(rest[..at].to_string()));
        }
        let inner = &rest[at + 2..at + end];
        out.push(match inner {
            "+%s" => Part::Seconds,
            _ if inner.starts_with(['+', '{']) => {
                let end = if inner.starts_with('{') { end + 2 } else { end + 1 };
                Part::Placeholder(rest[at..(at + end).min(rest.len())].to_string())
            }
            _ => Part::Field(canonical(inner)),
        });
        let used = if inner.starts_with('{') { end + 2 } else { end + 1 };
        rest = &rest[(at + used).min(rest.len())..];
    }
    if !rest.is_empty() {
        out.push(Part::Text(rest.to_string()));
    }
    out
}

/// A template with its fields followed back to what they are made of, where only one filter makes them.
fn expanded<'p, 'a>(
    template: &str,
    producers: &'p [Producer<'a>],
    used: &mut Vec<&'p Producer<'a>>,
    depth: usize,
) -> Vec<Part> {
    split(template).into_iter().flat_map(|part| followed(part, producers, used, depth)).collect()
}

fn followed<'p, 'a>(
    part: Part,
    producers: &'p [Producer<'a>],
    used: &mut Vec<&'p Producer<'a>>,
    depth: usize,
) -> Vec<Part> {
    let Part::Field(field) = &part else { return vec![part] };
    let mut made = producers.iter().filter(|producer| producer.field == path(field));
    match (made.next(), made.next()) {
        (Some(producer), None) if depth < 8 && used.len() < USED_MAX => {
            used.push(producer);
            let parts = producer.parts.clone();
            parts.into_iter().flat_map(|part| followed(part, producers, used, depth + 1)).collect()
        }
        _ => vec![part],
    }
}
