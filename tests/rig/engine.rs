//! The real engines: one of each a test process, started by `engines/engine` when first asked for, or the one
//! that `ONCELINE_TEST_OPENSEARCH` or `ONCELINE_TEST_ELASTICSEARCH` names (`./test` starts both and sets them).

use std::ops::Deref;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::Http;

pub struct Engine {
    pub name: &'static str,
    pub url: String,
    http: Http,
}

/// A stored document, ordered by index and id.
#[derive(Clone, Debug, PartialEq)]
pub struct Doc {
    pub index: String,
    pub id: String,
    pub version: i64,
    pub source: Value,
}

/// `engine.get(…)`, `put`, `post`, `delete`, `bulk`: the client's.
impl Deref for Engine {
    type Target = Http;

    fn deref(&self) -> &Http {
        &self.http
    }
}

impl Engine {
    pub fn opensearch() -> &'static Engine {
        static ENGINE: LazyLock<Engine> = LazyLock::new(|| Engine::find("opensearch", "ONCELINE_TEST_OPENSEARCH"));
        &ENGINE
    }

    pub fn elasticsearch() -> &'static Engine {
        static ENGINE: LazyLock<Engine> =
            LazyLock::new(|| Engine::find("elasticsearch", "ONCELINE_TEST_ELASTICSEARCH"));
        &ENGINE
    }

    /// Both, for a test that says the same of each.
    pub fn all() -> [&'static Engine; 2] {
        [Engine::opensearch(), Engine::elasticsearch()]
    }

    fn find(name: &'static str, variable: &str) -> Engine {
        let url = std::env::var(variable).unwrap_or_else(|_| start(name));
        Engine { name, http: Http::new(&url), url }
    }

    /// All documents of an index or pattern, after a refresh; none when there is no such index.
    pub fn docs(&self, index: &str) -> Vec<Doc> {
        // Without a body: Elasticsearch refuses one here.
        self.get(&format!("/{index}/_refresh?ignore_unavailable=true"));
        let path = format!("/{index}/_search?scroll=1m&version=true&size=1000&ignore_unavailable=true");
        let mut page = self.post(&path, &json!({"sort": ["_doc"]})).json();
        let mut docs = Vec::new();
        loop {
            let hits = page["hits"]["hits"].as_array().unwrap_or_else(|| panic!("no hits from {}: {page}", self.name));
            if hits.is_empty() {
                break;
            }
            docs.extend(hits.iter().map(doc));
            page = self.post("/_search/scroll", &json!({"scroll": "1m", "scroll_id": page["_scroll_id"]})).json();
        }
        docs.sort_by(|a, b| (&a.index, &a.id).cmp(&(&b.index, &b.id)));
        docs
    }
}

fn doc(hit: &Value) -> Doc {
    let text = |key: &str| hit[key].as_str().expect("text in a hit").to_owned();
    let version = hit["_version"].as_i64().expect("a version in a hit");
    Doc { index: text("_index"), id: text("_id"), version, source: hit["_source"].clone() }
}

/// Starts an engine that ends when this process does, and gives its URL.
fn start(name: &str) -> String {
    let command = concat!(env!("CARGO_MANIFEST_DIR"), "/engines/engine");
    let output = Command::new(command)
        .args(["start", name, "--with", &std::process::id().to_string()])
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("{command}: {error}"));
    assert!(output.status.success(), "{command} start {name}: {}", output.status);
    String::from_utf8(output.stdout).expect("a URL").trim().to_owned()
}
