//! The real engines: one of each a test process, started by `engines/engine` when first asked for, or the one
//! that `ONCELINE_TEST_OPENSEARCH` or `ONCELINE_TEST_ELASTICSEARCH` names (`./test` starts both and sets them).

use std::ops::Deref;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};
use tempfile::TempDir;

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

/// An engine of a test's own, to be killed and started again: its data and its port stay. It ends with this.
pub struct OwnEngine {
    engine: Engine,
    port: String,
    folder: TempDir,
}

impl Deref for OwnEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl OwnEngine {
    pub fn start() -> OwnEngine {
        OwnEngine::of("opensearch")
    }

    pub fn of(name: &'static str) -> OwnEngine {
        let folder = tempfile::Builder::new().prefix("onceline-engine-").tempdir().expect("a temporary folder");
        let url = command(&["start", name, "--dir", &folder.path().display().to_string(), "--with", &with()]);
        let port = url.rsplit(':').next().expect("a port").to_owned();
        OwnEngine { engine: Engine { name, http: Http::new(&url), url }, port, folder }
    }

    /// Ends it at once, whatever it is at.
    pub fn kill(&self) {
        command(&["kill", &self.url]);
    }

    /// Starts it again where it was, and waits until it answers.
    pub fn start_again(&self) {
        let folder = self.folder.path().display().to_string();
        command(&["start", self.name, "--dir", &folder, "--port", &self.port, "--with", &with()]);
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        // one that was killed and not started again is not there, which is as well
        let _ = Command::new(COMMAND).args(["stop", &self.url]).status();
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

const COMMAND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/engines/engine");

/// Starts an engine that ends when this process does, and gives its URL.
fn start(name: &str) -> String {
    command(&["start", name, "--with", &with()])
}

/// The process that an engine ends with.
fn with() -> String {
    std::process::id().to_string()
}

/// What `engines/engine` prints.
fn command(args: &[&str]) -> String {
    let output = Command::new(COMMAND)
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("{COMMAND}: {error}"));
    assert!(output.status.success(), "{COMMAND} {args:?}: {}", output.status);
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}
