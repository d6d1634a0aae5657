//! What the real engines answer, recorded in `tests/answers` and compared at every run: the elasticsearch output is
//! written against these. `ONCELINE_RECORD=1` writes them anew.

mod rig;

use std::io::Write;
use std::path::PathBuf;

use regex::{Captures, Regex};
use rig::Engine;
use serde_json::{Value, json};

const ERRORS: &str = "filter_path=errors,items.*.status,items.*.error";

/// What to ask: `tests/answers/ask-PART.ndjson`. `{p}` stands for the run's own prefix and `«T*N»` for N times T, with
/// `#` in T as the number; `hex` instead of `document` where it is not text.
fn asked(part: &str) -> Vec<Value> {
    let path = answers(&format!("ask-{part}.ndjson"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

fn answers(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/answers").join(file)
}

fn expand(text: &str, prefix: &str) -> String {
    let repeat = Regex::new(r"«([^»]*)\*(\d+)»").expect("a pattern");
    let text = repeat.replace_all(text, |found: &Captures<'_>| {
        let count: usize = found[2].parse().expect("a number");
        (0..count).map(|n| found[1].replace('#', &n.to_string())).collect::<String>()
    });
    text.replace("{p}", prefix)
}

const MAPPING: &str = r#"{"settings":{"number_of_replicas":0},"mappings":{"properties":{"n":{"type":"long"},
"k":{"type":"keyword"},"o":{"type":"object"},"d":{"type":"date"},"b":{"type":"boolean"},"ip":{"type":"ip"},
"strict":{"type":"object","dynamic":"strict"}}}}"#;

/// Replaces what differs from run to run.
struct Mask {
    prefix: String,
    unique: Regex,
    moving: [(Regex, &'static str); 2],
}

impl Mask {
    fn new(prefix: &str) -> Mask {
        // Identifiers of indices and nodes, object addresses, and the engines' own ids.
        // An identifier may begin or end with `-`, where there is no edge of a word.
        let unique = Regex::new(r"\b{start-half}[\w-]{22}\b{end-half}|@[0-9a-f]{5,8}\b").expect("a pattern");
        // Counts of the whole cluster, and what is left of a request at the time.
        let moving = [(r"\[\d+\]/\[1000\]", "[…]/[1000]"), (r", request: \[.*", ", request: […")]
            .map(|(pattern, text)| (Regex::new(pattern).expect("a pattern"), text));
        let prefix = prefix.to_owned();
        Mask { prefix, unique, moving }
    }

    fn text(&self, text: &str) -> String {
        let text = text.replace(&self.prefix, "{p}").replace(&self.prefix.to_uppercase(), "{P}");
        // An identifier mixes letters and digits; a word of that length, `index_closed_exception`, does not.
        let mixed = |word: &str| word.bytes().any(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        let text =
            self.unique.replace_all(
                &text,
                |found: &Captures<'_>| {
                    if mixed(&found[0]) { "…".to_owned() } else { found[0].to_owned() }
                },
            );
        let mut text = text.into_owned();
        for (pattern, with) in &self.moving {
            text = pattern.replace_all(&text, *with).into_owned();
        }
        if text.len() > 600 {
            format!("{}… ({} bytes)", text.chars().take(500).collect::<String>(), text.len())
        } else {
            text
        }
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(entries) => entries.iter().map(|entry| self.value(entry)).collect(),
            Value::Object(object) => object
                .iter()
                .map(|(key, entry)| {
                    let entry = match key.as_str() {
                        "took" | "creation_date" | "index.creation_date" | "index_uuid" | "cluster_uuid" => json!("…"),
                        _ => self.value(entry),
                    };
                    (self.text(key), entry)
                })
                .collect(),
            other => other.clone(),
        }
    }
}

fn ask(engine: &Engine, mask: &Mask, probe: &Value) -> Value {
    let text = |key: &str| probe[key].as_str().unwrap_or_default();
    let request = expand(text("request"), &mask.prefix);
    let (method, path) = request.split_once(' ').expect("method and path");
    let kind = if path.contains("_bulk") { "x-ndjson" } else { "json" };
    let headers = vec![("content-type".to_owned(), format!("application/{kind}"))];
    let body = expand(text("body"), &mask.prefix);
    let answer = engine
        .request(method, path, &headers, body.as_bytes())
        .unwrap_or_else(|error| panic!("{request} of {}: {error}", engine.name));
    let body = serde_json::from_slice(&answer.body).unwrap_or_else(|_| Value::from(answer.text()));
    json!({"name": probe["name"], "status": answer.status, "answer": mask.value(&body)})
}

/// Sends one strange document with its neighbours: the three statuses, the error, and what is stored of it.
fn ask_document(engine: &Engine, mask: &Mask, n: usize, probe: &Value) -> Value {
    let source = match probe["hex"].as_str() {
        Some(text) => hex::decode(text).expect("hex"),
        None => expand(probe["document"].as_str().expect("a document"), &mask.prefix).into_bytes(),
    };
    let index = format!("{}-{n}", mask.prefix);
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    engine.request("PUT", &format!("/{index}"), &headers, MAPPING.as_bytes()).expect("an index");
    let mut body = Vec::new();
    for (id, source) in [("before", b"{\"n\":1}".as_slice()), ("x", source.as_slice()), ("after", b"{\"n\":1}")] {
        body.extend_from_slice(format!("{{\"index\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n").as_bytes());
        body.extend_from_slice(source);
        body.push(b'\n');
    }
    let answer = engine.bulk(&format!("/_bulk?{ERRORS}"), &body);
    let stored = engine.get(&format!("/{index}/_source/x"));
    let stored = if stored.status == 200 { mask.text(&stored.text()).into() } else { Value::Null };
    let dynamic = engine.get(&format!("/{index}/_mapping?filter_path=*.mappings.properties.new")).json();
    engine.delete(&format!("/{index}"));
    json!({"name": probe["name"], "status": answer.status, "answer": mask.value(&answer.json()),
        "stored": stored, "mapped": dynamic[&index]["mappings"]["properties"]["new"]})
}

/// Compares with the recorded file of this engine and version, or writes it.
fn check(engine: &Engine, part: &str, records: Vec<Value>) {
    let version = engine.get("/").json()["version"]["number"].as_str().expect("a version").to_owned();
    let file = format!("{}-{version}-{part}.json", engine.name);
    let path = answers(&file);
    if std::env::var_os("ONCELINE_RECORD").is_some() {
        let lines: Vec<String> = records.iter().map(|record| format!(" {record}")).collect();
        std::fs::write(&path, format!("[\n{}\n]\n", lines.join(",\n"))).expect("write the record");
        return;
    }
    let text =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}; ONCELINE_RECORD=1 makes it"));
    let recorded: Vec<Value> = serde_json::from_str(&text).expect("a recorded file");
    assert_eq!(recorded.len(), records.len(), "{file}: other requests than recorded");
    for (was, is) in recorded.iter().zip(&records) {
        assert_eq!(without_reasons(is), without_reasons(was), "{file}: the answer to {} changed", was["name"]);
    }
}

/// The wording of an answer depends on the order of hash maps and the like; status and type are what counts.
fn without_reasons(value: &Value) -> Value {
    match value {
        Value::Array(entries) => entries.iter().map(without_reasons).collect(),
        Value::Object(object) => object
            .iter()
            .filter(|(key, _)| *key != "reason")
            .map(|(key, entry)| (key.clone(), without_reasons(entry)))
            .collect(),
        other => other.clone(),
    }
}

fn check_probes(part: &str) {
    let probes = asked(part);
    for engine in Engine::all() {
        let mask = Mask::new(&rig::unique_prefix());
        check(engine, part, probes.iter().map(|probe| ask(engine, &mask, probe)).collect());
    }
}

/// Bulk answers to items and whole requests.
#[test]
fn answers_to_requests() {
    check_probes("requests");
}

/// The index's trouble: its events are to be held.
#[test]
fn answers_of_an_index_in_trouble() {
    check_probes("troubles");
}

/// Targets that defeat deduplication, and the requests that tell.
#[test]
fn answers_about_targets() {
    check_probes("targets");
}

/// One strange document between two plain ones, in an index of its own.
#[test]
fn answers_to_documents() {
    let probes = asked("documents");
    for engine in Engine::all() {
        let mask = Mask::new(&rig::unique_prefix());
        let ask = |(n, probe)| ask_document(engine, &mask, n, probe);
        check(engine, "documents", probes.iter().enumerate().map(ask).collect());
    }
}

/// Facts about a whole body: too long, compressed, of another type.
#[test]
fn answers_to_bodies() {
    let line = b"{\"delete\":{\"_index\":\"none\",\"_id\":\"1\"}}\n";
    for engine in Engine::all() {
        let send = |headers: &[(&str, &str)], body: &[u8]| {
            let headers = headers.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
            let answer = engine.request("POST", "/_bulk", &headers, body).expect("an answer");
            answer.status
        };
        let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        zipped.write_all(line).expect("write to memory");
        let zipped = zipped.finish().expect("write to memory");
        let ndjson = ("content-type", "application/x-ndjson");
        let too_long = vec![b' '; 101 << 20];
        assert_eq!(send(&[ndjson], &too_long), 413);
        assert_eq!(send(&[ndjson, ("content-encoding", "gzip")], &zipped), 200);
        assert_eq!(send(&[ndjson], &zipped), 400);
        assert_eq!(send(&[("content-type", "application/json")], line), 200);
        assert_eq!(send(&[("content-type", "text/plain")], line), 406);
        assert_eq!(send(&[], line), 406);
        let compatible = "application/vnd.elasticsearch+x-ndjson;compatible-with=7";
        let expected = if engine.name == "opensearch" { 406 } else { 200 };
        assert_eq!(send(&[("content-type", compatible)], line), expected);
    }
}
