//! Before the first event: is the target one in which an id can live only once, and is the index template there?

use std::cell::Cell;
use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::Config;
use super::answer::Cause;
use super::client::{Exchange, Lost, refused};
use super::request::Delay;
use super::wait::{Backoff, Trouble, Waits};

/// An endpoint that fails this often, the engine being there, is done without.
const TRIES_MAX: u32 = 4;

/// An index template that is installed before the first event.
#[derive(Clone, Debug)]
pub struct Template {
    pub name: String,
    /// Which indices it is for, such as `sales-*`.
    pub index_pattern: String,
    pub shards: u32,
    pub replicas: u32,
    /// What shards can be split into later: any divisor of this that is a multiple of `shards`. The engines' own
    /// default allows doubling only; 720 has 30 divisors, so 1 splits into 2, 3, 4, 5, 6, 8, 9, 10, 12 and so on.
    pub routing_shards: u32,
    pub priority: u32,
}

impl Default for Template {
    fn default() -> Template {
        Template {
            name: String::new(),
            index_pattern: String::new(),
            shards: 1,
            replicas: 1,
            routing_shards: 720,
            priority: 200,
        }
    }
}

impl Template {
    /// Fills in what was left out: for all indices of the pipeline, named after them.
    pub fn complete(&mut self, index_pattern: &str) {
        if self.index_pattern.is_empty() {
            self.index_pattern = index_pattern.to_string();
        }
        if self.name.is_empty() {
            let name = self.index_pattern.replace('*', "");
            self.name = format!("onceline-{}", name.trim_matches(['-', '_', '.']));
        }
    }

    fn body(&self) -> Value {
        json!({
            "index_patterns": [self.index_pattern],
            "priority": self.priority,
            "template": {
                "settings": {"index": {
                    "number_of_shards": self.shards.to_string(),
                    "number_of_replicas": self.replicas.to_string(),
                    "number_of_routing_shards": self.routing_shards.to_string(),
                }},
                "mappings": {
                    "dynamic_templates": [{"strings": {
                        "match_mapping_type": "string",
                        "mapping": {"type": "keyword", "ignore_above": 1024},
                    }}],
                    "properties": {
                        // nanoseconds are kept in the source; `date` takes any year, `date_nanos` ends in 2262
                        "@timestamp": {"type": "date"},
                        "message": {"type": "text"},
                    },
                },
            },
            "_meta": {"made_by": "onceline"},
        })
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.name.is_empty() || self.index_pattern.is_empty() {
            bail!("an index template needs a name and an index pattern");
        }
        if self.shards == 0 || !self.routing_shards.is_multiple_of(self.shards) {
            bail!("routing_shards {} is not a multiple of shards {}", self.routing_shards, self.shards);
        }
        Ok(())
    }
}

/// Waits for the engine, refuses a target that defeats the ids, installs the template.
pub async fn prepare<E: Exchange>(client: &E, config: &Config, waits: &Waits) -> anyhow::Result<()> {
    let engine = Engine { client, waits, is_blind: Cell::new(false) };
    if config.strict
        && let Some(found) = find_danger(&engine, config).await
    {
        bail!(
            "{found}: the same id would live in two indices, so a repeated event would be stored twice. \
             Write to plain indices named by the event's own time, or accept duplicates with `[index] strict = false`"
        );
    }
    if let Some(template) = &config.template {
        template.check()?;
        install(&engine, template).await?;
    }
    Ok(())
}

struct Engine<'a, E> {
    client: &'a E,
    waits: &'a Waits,
    /// Something may not be looked at, which was said.
    is_blind: Cell<bool>,
}

impl<E: Exchange> Engine<'_, E> {
    /// The answer, whatever its status. Waits while nobody is there; an endpoint that fails though the engine is
    /// there is given up. An engine that has no state yet (503 by type) is not there.
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Option<(u16, Bytes)> {
        let (mut backoff, mut failures) = (Backoff::default(), 0);
        let mut trouble = Trouble::default();
        loop {
            let body = body.map(|body| ("application/json", Bytes::from(body.to_string())));
            let start = Instant::now();
            let delay = match self.client.call(method.clone(), path, body).await {
                // what it would say to those that it knows is not known yet
                Ok((401, _)) => Delay::Refused(refused(self.client).await),
                Ok((status, text)) if status == 429 || status >= 500 => {
                    let cause = Cause::of_request(&text);
                    failures += u32::from(!is_starting(&cause.kind));
                    Delay::Away(format!("it answered {status} {}", cause.kind))
                }
                Ok(answer) => {
                    trouble.ends(Instant::now());
                    return Some(answer);
                }
                Err(Lost { why, connected }) => {
                    failures += u32::from(connected);
                    Delay::Away(why)
                }
            };
            if failures >= TRIES_MAX
                && let Delay::Away(why) = &delay
            {
                tracing::warn!(path, error = %why, "the engine does not answer this, so it is done without");
                return None;
            }
            let wait = backoff.next(self.waits);
            trouble.begins(&delay, backoff.tries, start.elapsed(), Instant::now());
            tokio::time::sleep(if failures > 0 { wait.min(Duration::from_secs(1)) } else { wait }).await;
        }
    }

    /// The answer of a GET as JSON, if it is a good one; none where the endpoint or the thing is not there.
    async fn get(&self, path: &str) -> Option<Value> {
        let (status, text) = self.ask(Method::GET, path, None).await?;
        if status == 403 && !self.is_blind.replace(true) {
            tracing::warn!(
                path,
                status,
                "not allowed to look at the target, so it is not checked whether it rolls over"
            );
        }
        if !(200..300).contains(&status) { None } else { serde_json::from_slice(&text).ok() }
    }
}

/// Error types of an engine that is starting up.
fn is_starting(kind: &str) -> bool {
    matches!(
        kind,
        "cluster_block_exception" | "master_not_discovered_exception" | "cluster_manager_not_discovered_exception"
    )
}

/// What in the target can put one id into two indices, in words.
async fn find_danger(engine: &Engine<'_, impl Exchange>, config: &Config) -> Option<String> {
    let target = Target { pattern: &config.index_pattern, sample: config.index_sample.as_deref() };
    let path = escape(target.pattern);
    if let Some(aliases) = engine.get(&format!("_alias/{path}")).await
        && let Some(found) = write_alias(&aliases, &target)
    {
        return Some(found);
    }
    if let Some(streams) = engine.get(&format!("_data_stream/{path}")).await
        && let Some(found) = data_stream(&streams, &target)
    {
        return Some(found);
    }
    let settings = format!("{path}/_settings?flat_settings=true&expand_wildcards=all&ignore_unavailable=true");
    let indices = members(engine.get(&settings).await.as_ref()).into_iter();
    for (index, settings) in indices.filter(|(index, _)| target.meets(index)) {
        if let Some(found) = rollover(engine, &settings["settings"]).await {
            return Some(format!("the index {index} has {found}"));
        }
    }
    template_danger(engine, &target).await
}

/// Names that events can go to.
struct Target<'a> {
    pattern: &'a str,
    sample: Option<&'a str>,
}

impl Target<'_> {
    /// Whether events can go to something of this name: it must fit the pattern and, where only the time differs,
    /// look like the sample, digit for digit.
    fn meets(&self, name: &str) -> bool {
        let is_like = |sample: &str| {
            sample.len() == name.len()
                && sample.bytes().zip(name.bytes()).all(|(a, b)| a == b || a.is_ascii_digit() && b.is_ascii_digit())
        };
        fits(self.pattern, name) && self.sample.is_none_or(is_like)
    }

    /// A name to try a template's patterns with.
    fn name(&self) -> String {
        self.sample.map_or_else(|| self.pattern.replace('*', "0"), str::to_string)
    }
}

/// Whether a name fits a pattern, of which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

fn members(value: Option<&Value>) -> Vec<(String, Value)> {
    let object = value.and_then(Value::as_object).cloned().unwrap_or_default();
    object.into_iter().collect()
}

/// `{"sales-000002": {"aliases": {"sales": {"is_write_index": true}}}}`
fn write_alias(aliases: &Value, target: &Target<'_>) -> Option<String> {
    let mut seen: Vec<&str> = Vec::new();
    let mut several = None;
    for (index, entry) in aliases.as_object()? {
        for (alias, options) in entry["aliases"].as_object().into_iter().flatten() {
            if !target.meets(alias) {
                continue;
            }
            if options["is_write_index"] == true {
                return Some(format!("{alias} is an alias whose write index is {index}, as rollover makes them"));
            }
            if seen.contains(&alias.as_str()) {
                several = Some(format!("{alias} is an alias of several indices, none of which takes its writes"));
            }
            seen.push(alias);
        }
    }
    several
}

fn data_stream(streams: &Value, target: &Target<'_>) -> Option<String> {
    let names = streams["data_streams"].as_array()?.iter().filter_map(|stream| stream["name"].as_str());
    let name = names.into_iter().find(|name| target.meets(name))?;
    Some(format!("{name} is a data stream, which rolls over"))
}

/// A rollover policy in flat settings, with or without the `index.` in front.
async fn rollover(engine: &Engine<'_, impl Exchange>, settings: &Value) -> Option<String> {
    let text = |key: &str| {
        let value = settings.get(format!("index.{key}")).or_else(|| settings.get(key));
        value.and_then(Value::as_str).filter(|text| !text.is_empty())
    };
    if let (Some(policy), Some(alias)) = (text("lifecycle.name"), text("lifecycle.rollover_alias")) {
        let known = engine.get(&format!("_ilm/policy/{}", escape(policy))).await;
        let has_rollover = known.is_none_or(|known| holds_key(&known[policy]["policy"]["phases"], "rollover"));
        if has_rollover {
            return Some(format!("the lifecycle policy {policy} that rolls the alias {alias} over"));
        }
    }
    for family in ["plugins", "opendistro"] {
        let prefix = format!("{family}.index_state_management");
        if let Some(alias) = text(&format!("{prefix}.rollover_alias")) {
            return Some(format!("the setting index.{prefix}.rollover_alias = {alias}"));
        }
        if let Some(policy) = text(&format!("{prefix}.policy_id"))
            && let Some(known) = engine.get(&format!("_plugins/_ism/policies/{}", escape(policy))).await
            && holds_key(&known["policy"]["states"], "rollover")
        {
            return Some(format!("the state management policy {policy} that rolls over"));
        }
    }
    None
}

fn holds_key(value: &Value, wanted: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| key == wanted || holds_key(value, wanted)),
        Value::Array(list) => list.iter().any(|value| holds_key(value, wanted)),
        _ => false,
    }
}

/// Templates that would make a new index of the target something that rolls over.
async fn template_danger(engine: &Engine<'_, impl Exchange>, target: &Target<'_>) -> Option<String> {
    let name = target.name();
    let list = engine.get("_index_template").await;
    let composable = list.as_ref().and_then(|list| strongest(&list["index_templates"], &name));
    if let Some((template, body)) = composable {
        if body.get("data_stream").is_some_and(Value::is_object) {
            return Some(format!("the index template {template} makes {name} a data stream, which rolls over"));
        }
        let mut settings = Map::new();
        for component in body["composed_of"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if let Some(known) = engine.get(&format!("_component_template/{}", escape(component))).await {
                let known = &known["component_templates"][0]["component_template"]["template"]["settings"];
                flatten("", known, &mut settings);
            }
        }
        flatten("", &body["template"]["settings"], &mut settings);
        let found = rollover(engine, &Value::Object(settings)).await?;
        return Some(format!("the index template {template} has {found}"));
    }
    for (template, body) in members(engine.get("_template").await.as_ref()) {
        if !matches_any(&body["index_patterns"], &name) {
            continue;
        }
        let mut settings = Map::new();
        flatten("", &body["settings"], &mut settings);
        if let Some(found) = rollover(engine, &Value::Object(settings)).await {
            return Some(format!("the index template {template} has {found}"));
        }
    }
    ism_template(engine, &name).await
}

/// A state management policy that takes new indices by their name (OpenSearch).
async fn ism_template(engine: &Engine<'_, impl Exchange>, name: &str) -> Option<String> {
    let list = engine.get("_plugins/_ism/policies").await?;
    let policies = list["policies"].as_array()?.iter().map(|entry| &entry["policy"]);
    let takes = |policy: &&Value| {
        let templates = policy["ism_template"].as_array().into_iter().flatten();
        templates.into_iter().any(|template| matches_any(&template["index_patterns"], name))
    };
    let policy = policies.filter(takes).find(|policy| holds_key(&policy["states"], "rollover"))?;
    Some(format!("the state management policy {} takes {name} and rolls over", policy["policy_id"]))
}

fn matches_any(patterns: &Value, name: &str) -> bool {
    let patterns = patterns.as_array().into_iter().flatten().filter_map(Value::as_str);
    patterns.into_iter().any(|pattern| fits(pattern, name))
}

/// The composable template that wins for this name.
fn strongest<'a>(list: &'a Value, name: &str) -> Option<(&'a str, &'a Value)> {
    let entries =
        list.as_array()?.iter().map(|entry| (entry["name"].as_str().unwrap_or_default(), &entry["index_template"]));
    entries
        .filter(|(_, body)| matches_any(&body["index_patterns"], name))
        .max_by_key(|(_, body)| body["priority"].as_u64().unwrap_or(0))
}

/// Settings come nested, flat or both.
fn flatten(prefix: &str, value: &Value, out: &mut Map<String, Value>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&name, value, out);
            }
        }
        Value::Null => {}
        other => {
            out.insert(prefix.to_string(), other.clone());
        }
    }
}

/// Puts the template, unless one of that name is somebody else's.
async fn install(engine: &Engine<'_, impl Exchange>, template: &Template) -> anyhow::Result<()> {
    let name = &template.name;
    let path = format!("_index_template/{}", escape(name));
    let wanted = template.body();
    if let Some(found) = engine.get(&path).await
        && let Some(found) = found["index_templates"][0].get("index_template")
    {
        if is_equal(found, &wanted) {
            return Ok(());
        }
        if found["_meta"]["made_by"] != "onceline" {
            bail!(
                "an index template {name} is there and was not made by onceline, so it is left as it is: \
                 give `[output.template] name` another name, or set `install = false`"
            );
        }
    }
    match engine.ask(Method::PUT, &path, Some(&wanted)).await {
        Some((200..300, _)) => {
            tracing::info!(template = %name, pattern = %template.index_pattern, "index template installed");
            Ok(())
        }
        Some((status, text)) => {
            let cause = Cause::of_request(&text);
            bail!("the engine does not take the index template {name}: {status} {} {}", cause.kind, cause.reason)
        }
        None => bail!("the engine does not take the index template {name}"),
    }
}

/// Whether what is stored says the same; an engine may add empty parts.
fn is_equal(found: &Value, wanted: &Value) -> bool {
    let part = |value: &Value, key: &str| {
        let mut flat = Map::new();
        flatten("", &value[key], &mut flat);
        flat
    };
    found["priority"].as_u64() == wanted["priority"].as_u64()
        && found["index_patterns"] == wanted["index_patterns"]
        && part(&found["template"], "settings") == part(&wanted["template"], "settings")
        && part(&found["template"], "mappings") == part(&wanted["template"], "mappings")
        && found["composed_of"].as_array().is_none_or(Vec::is_empty)
        && found.get("data_stream").is_none()
}

/// A name or pattern as a part of a path.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let check = |pattern: &str, name: &str, want: bool| assert_eq!(fits(pattern, name), want, "{pattern} {name}");
        check("sales", "sales", true);
        check("sales", "sales-1", false);
        check("sales-*", "sales-1", true);
        check("sales-*", "sales-", true);
        check("sales-*", "sale", false);
        check("*-x-*", "a-x-b", true);
        check("a*b*c", "abc", true);
        check("a*b*c", "acb", false);
        check("a*a", "a", false);
        check("*", "", true);
    }

    #[test]
    fn only_what_events_can_go_to_is_dangerous() {
        let check = |pattern: &str, sample: Option<&str>, name: &str, want: bool| {
            assert_eq!(Target { pattern, sample }.meets(name), want, "{pattern} {sample:?} {name}");
        };
        check("sales-*", Some("sales-2026.02.02"), "sales-ds", false);
        check("sales-*", Some("sales-2026.02.02"), "sales-2025.12.31", true);
        check("sales-*", Some("sales-2026.02.02"), "sales", false);
        check("sales-*", None, "sales-ds", true);
        check("sales", Some("sales"), "sales", true);
    }

    #[test]
    fn found_in_answers() {
        let target = Target { pattern: "sales", sample: None };
        let aliases = json!({"sales-000002": {"aliases": {"sales": {"is_write_index": true}}}});
        assert!(write_alias(&aliases, &target).is_some_and(|found| found.contains("sales-000002")));
        let several = json!({"sales-1": {"aliases": {"sales": {}}}, "sales-2": {"aliases": {"sales": {}}}});
        assert!(write_alias(&several, &target).is_some_and(|found| found.contains("several")));
        let plain = json!({"sales-1": {"aliases": {"sales": {}, "old": {"is_write_index": true}}}});
        assert_eq!(write_alias(&plain, &target), None);
        assert!(data_stream(&json!({"data_streams": [{"name": "sales"}]}), &target).is_some());
        assert_eq!(data_stream(&json!({"error": "no handler"}), &target), None);
        let list = json!([
            {"name": "weak", "index_template": {"index_patterns": ["s*"], "data_stream": {}}},
            {"name": "strong", "index_template": {"index_patterns": ["x", "sales*"], "priority": 3}},
            {"name": "other", "index_template": {"index_patterns": ["t*"], "priority": 9}},
        ]);
        assert_eq!(strongest(&list, "sales-1").map(|(name, _)| name), Some("strong"));
        let mut flat = Map::new();
        flatten("", &json!({"index": {"lifecycle": {"name": "p"}}, "index.x.y": "1", "n": null}), &mut flat);
        assert_eq!(Value::Object(flat), json!({"index.lifecycle.name": "p", "index.x.y": "1"}));
        assert!(holds_key(&json!({"hot": {"actions": {"rollover": {}}}}), "rollover"));
    }

    /// A server that answers these paths and 404 to all others.
    fn serve(answers: Vec<(&'static str, Value)>) -> String {
        use std::io::{BufRead, BufReader, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let lines: Vec<String> =
                    BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let path = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
                let path = path.split('?').next().unwrap_or_default();
                let found = answers.iter().find(|(known, _)| *known == path);
                let (status, body) = found.map_or((404, "{}".to_string()), |(_, body)| (200, body.to_string()));
                let head =
                    format!("HTTP/1.1 {status} -\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
                let _ = stream.write_all((head + &body).as_bytes());
            }
        });
        url
    }

    /// What is found in a target `sales-*`, of which `sales-2026.02.02` is one.
    fn danger(answers: Vec<(&'static str, Value)>) -> Option<String> {
        let config = Config {
            hosts: vec![serve(answers)],
            index_pattern: "sales-*".to_string(),
            index_sample: Some("sales-2026.02.02".to_string()),
            ..Config::default()
        };
        let output = super::super::Elasticsearch::new(config).unwrap();
        let waits = Waits { min: Duration::from_millis(1), max: Duration::from_millis(1) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found = runtime.block_on(prepare(&output.client, &output.config, &waits));
        found.err().map(|error| format!("{error:#}"))
    }

    #[test]
    fn rollover_policies_are_found_wherever_they_are_set() {
        let check = |answers: Vec<(&'static str, Value)>, want: Option<&str>| {
            let got = danger(answers);
            match (&got, want) {
                (None, None) => {}
                (Some(got), Some(want)) if got.contains(want) => {}
                _ => panic!("{got:?}, not {want:?}"),
            }
        };
        let ilm = json!({"index.lifecycle.name": "logs", "index.lifecycle.rollover_alias": "sales"});
        let of_index = |settings: &Value| ("/sales-*/_settings", json!({"sales-2026.01.31": {"settings": settings}}));
        let policy = |actions: Value| {
            ("/_ilm/policy/logs", json!({"logs": {"policy": {"phases": {"hot": {"actions": actions}}}}}))
        };
        check(vec![of_index(&ilm)], Some("the index sales-2026.01.31 has the lifecycle policy logs"));
        check(vec![of_index(&ilm), policy(json!({"rollover": {"max_age": "1d"}}))], Some("rolls the alias sales over"));
        check(vec![of_index(&ilm), policy(json!({"delete": {}}))], None);
        let ism = json!({"index.plugins.index_state_management.rollover_alias": "sales"});
        check(vec![of_index(&ism)], Some("index.plugins.index_state_management.rollover_alias = sales"));
        let nested = json!({"index": {"lifecycle": {"name": "logs", "rollover_alias": "sales"}}});
        let template = |body: Value| json!({"index_templates": [{"name": "t", "index_template": body}]});
        let direct = json!({"index_patterns": ["sales-*"], "template": {"settings": nested}});
        check(vec![("/_index_template", template(direct))], Some("the index template t has the lifecycle policy"));
        let composed = json!({"index_patterns": ["sales-*"], "composed_of": ["c"]});
        let component =
            json!({"component_templates": [{"name": "c", "component_template": {"template": {"settings": nested}}}]});
        check(
            vec![("/_index_template", template(composed)), ("/_component_template/c", component)],
            Some("index template t"),
        );
        let other = json!({"index_patterns": ["orders-*"], "data_stream": {}});
        check(vec![("/_index_template", template(other))], None);
        let legacy = json!({"old": {"index_patterns": ["sales-*"], "settings": {"index.lifecycle.name": "p", "index.lifecycle.rollover_alias": "a"}}});
        check(vec![("/_template", legacy)], Some("the index template old"));
        let takes = json!({"policies": [{"policy": {"policy_id": "roll", "states": [{"actions": [{"rollover": {}}]}],
            "ism_template": [{"index_patterns": ["sales*"], "priority": 1}]}}]});
        check(vec![("/_plugins/_ism/policies", takes)], Some("\"roll\" takes sales-2026.02.02 and rolls over"));
        check(vec![], None);
    }

    #[test]
    fn templates_that_cannot_be_are_refused() {
        let good = Template { name: "t".to_string(), index_pattern: "t-*".to_string(), ..Template::default() };
        assert!(good.check().is_ok());
        assert!(Template { shards: 7, ..good.clone() }.check().is_err());
        assert!(Template { name: String::new(), ..good.clone() }.check().is_err());
        assert!(is_equal(&good.body(), &good.body()));
        assert!(!is_equal(&Template { shards: 2, ..good.clone() }.body(), &good.body()));
    }
}
