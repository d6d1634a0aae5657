//! A stub of the bulk endpoint that follows a script: one line is the answer to the n-th `_bulk`. It keeps the
//! documents it acknowledges, and after the script it is an honest, empty-handed server.
//!
//! A line is a JSON object:
//! `http` the status (200); `items` for each document a status or `{status, type, reason}`; `preload` ids that were
//! there before; `body` the body as it is, for a line without items; `delay_ms`; `reply` `normal` or anything with
//! `close the socket`: the writes are applied and no answer comes.
//!
//! A [`Stub::lean`] one is for many events: it keeps no request, and of a document no more than its number.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::http::{Answer, Headers, Request, cut, header, read_request, write_answer};

pub struct Stub {
    pub url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    script: Vec<Value>,
    then: Option<u16>,
    wants_of_all: bool,
    authorization: Option<String>,
    bulks: Vec<Bulk>,
    others: Vec<(String, String)>,
    docs: BTreeMap<(String, String), Value>,
    lean: Option<Lean>,
    /// After the script: how probable it is that an item gets this status.
    refusal: Option<(f64, u16)>,
    random: fastrand::Rng,
    slow: Duration,
}

/// What is kept of many documents.
#[derive(Default)]
struct Lean {
    /// By a hash of index and id: the field `n`.
    numbers: HashMap<u64, u64>,
    hash: RandomState,
    items: u64,
    refused: u64,
}

impl Lean {
    fn key(&self, op: &Op) -> u64 {
        self.hash.hash_one((&op.index, &op.id))
    }
}

/// A bulk request as it came.
#[derive(Clone, Debug)]
pub struct Bulk {
    pub path: String,
    pub headers: Headers,
    pub ops: Vec<Op>,
    /// The bytes of the body, decompressed.
    pub body: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Op {
    /// `index`, `create`, `update` or `delete`.
    pub name: String,
    pub index: String,
    /// Empty when the server is to make one.
    pub id: String,
    /// The action's whole object.
    pub action: Value,
    pub source: Value,
}

impl Bulk {
    pub fn ids(&self) -> Vec<&str> {
        self.ops.iter().map(|op| op.id.as_str()).collect()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

impl Stub {
    /// Starts with a script of JSON lines; an empty one is an honest server at once.
    pub fn new(script: &str) -> Stub {
        let script: Vec<Value> = script
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("script line {line}: {error}")))
            .collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(Mutex::new(State { script, ..State::default() }));
        let shared = state.clone();
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || {
                    // A client may go away in the middle of anything.
                    let _ = serve(&stream, &state);
                    cut(&stream);
                });
            }
        });
        Stub { url, state }
    }

    /// After the script, each item gets this status instead of an honest one.
    pub fn then(self, status: u16) -> Stub {
        self.lock().then = Some(status);
        self
    }

    /// As [`Stub::wants`], of all requests.
    pub fn wants_of_all(self, authorization: &str) -> Stub {
        self.lock().wants_of_all = true;
        self.wants(authorization)
    }

    /// Bulk requests with another `authorization` are refused by 401, whatever the script says.
    pub fn wants(self, authorization: &str) -> Stub {
        self.wants_now(authorization);
        self
    }

    /// Keeps no request, and of a document its field `n`.
    pub fn lean(self) -> Stub {
        self.lock().lean = Some(Lean::default());
        self
    }

    /// After the script, each item gets this status by chance.
    pub fn refuses(self, probability: f64, status: u16) -> Stub {
        {
            let mut state = self.lock();
            (state.refusal, state.random) = (Some((probability, status)), fastrand::Rng::with_seed(7));
        }
        self
    }

    /// Takes so long for each bulk request.
    pub fn slow(self, time: Duration) -> Stub {
        self.lock().slow = time;
        self
    }

    /// Of a lean one: how many documents came, with those that were there, and how many of them were refused.
    pub fn items(&self) -> (u64, u64) {
        self.lock().lean.as_ref().map_or((0, 0), |lean| (lean.items, lean.refused))
    }

    /// Of a lean one: how many documents there are.
    pub fn len(&self) -> usize {
        self.lock().lean.as_ref().map_or(0, |lean| lean.numbers.len())
    }

    /// Of a lean one: the number of each document.
    pub fn numbers(&self) -> Vec<u64> {
        self.lock().lean.iter().flat_map(|lean| lean.numbers.values().copied()).collect()
    }

    /// The same from now on.
    pub fn wants_now(&self, authorization: &str) {
        self.lock().authorization = Some(authorization.to_owned());
    }

    pub fn bulks(&self) -> Vec<Bulk> {
        self.lock().bulks.clone()
    }

    /// Ids of each bulk request, in order.
    pub fn ids(&self) -> Vec<Vec<String>> {
        self.lock().bulks.iter().map(|bulk| bulk.ops.iter().map(|op| op.id.clone()).collect()).collect()
    }

    /// Method and path of all other requests.
    pub fn others(&self) -> Vec<(String, String)> {
        self.lock().others.clone()
    }

    /// What is stored: (index, id) to source; null for what was there before.
    pub fn docs(&self) -> BTreeMap<(String, String), Value> {
        self.lock().docs.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("a lock that no panic poisoned")
}

fn serve(mut stream: &TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    while let Some(request) = read_request(&mut reader)? {
        let is_bulk = request.path.split('?').next().is_some_and(|path| path.ends_with("/_bulk"));
        let reply = if is_bulk { bulk(&request, state)? } else { Some(other(&request, state)) };
        let Some(reply) = reply else { return Ok(()) };
        if request.method == "HEAD" {
            write_answer(&mut stream, &Answer { body: vec![], ..reply }, request.keep)?;
        } else {
            write_answer(&mut stream, &reply, request.keep)?;
        }
        if !request.keep {
            return Ok(());
        }
    }
    Ok(())
}

fn answer(status: u16, body: &Value) -> Answer {
    let headers = vec![
        ("content-type".to_owned(), "application/json".to_owned()),
        ("x-elastic-product".to_owned(), "Elasticsearch".to_owned()),
    ];
    Answer { status, headers, body: body.to_string().into_bytes() }
}

/// Everything but `_bulk`: a server of version 8 that has no index, alias, data stream or template.
fn other(request: &Request, state: &Mutex<State>) -> Answer {
    lock(state).others.push((request.method.clone(), request.path.clone()));
    if lock(state).wants_of_all && is_refused(request, &lock(state)) {
        return whole(401, &Value::Null);
    }
    let path = request.path.split('?').next().unwrap_or_default();
    match (request.method.as_str(), path) {
        ("GET" | "HEAD", "/") => answer(
            200,
            &json!({"name": "stub", "cluster_name": "stub", "version": {"number": "8.17.0", "build_flavor": "default",
                "minimum_wire_compatibility_version": "7.17.0"}, "tagline": "You Know, for Search"}),
        ),
        ("POST", path) if path.starts_with("/_index_template/_simulate_index/") => answer(200, &json!({})),
        ("GET", path) if path.starts_with("/_resolve/index/") => {
            answer(200, &json!({"indices": [], "aliases": [], "data_streams": []}))
        }
        ("GET", "/_index_template") => answer(200, &json!({"index_templates": []})),
        ("GET", "/_template") => answer(200, &json!({})),
        ("PUT" | "POST", _) => answer(200, &json!({"acknowledged": true})),
        _ => {
            let reason = format!("nothing at {path}");
            let cause = json!({"type": "resource_not_found_exception", "reason": reason});
            answer(
                404,
                &json!({"error": {"root_cause": [cause], "type": cause["type"], "reason": reason}, "status": 404}),
            )
        }
    }
}

fn is_refused(request: &Request, state: &State) -> bool {
    let given = header(&request.headers, "authorization");
    state.authorization.as_deref().is_some_and(|wanted| given != Some(wanted))
}

/// Answers the next bulk request by the script; none: the connection ends without an answer.
fn bulk(request: &Request, state: &Mutex<State>) -> io::Result<Option<Answer>> {
    let body = decompress(request)?;
    let index = request.path.trim_start_matches('/').split('/').next().filter(|&part| !part.starts_with("_bulk"));
    let is_lean = lock(state).lean.is_some();
    let ops = parse(&body, index.unwrap_or_default(), is_lean);
    let mut state = lock(state);
    let line = state.script.get(state.bulks.len()).cloned();
    let Some(ops) = ops else {
        return Ok(Some(answer(400, &failure("illegal_argument_exception", "malformed bulk body", 400))));
    };
    if !is_lean {
        state.bulks.push(Bulk { path: request.path.clone(), headers: request.headers.clone(), ops: ops.clone(), body });
    }
    if is_refused(request, &state) {
        return Ok(Some(whole(401, &Value::Null)));
    }
    let line = line.unwrap_or_else(|| json!({"then": true}));
    for id in line["preload"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        // The script does not say where: in the index that the request has for this id.
        if let Some(op) = ops.iter().find(|op| op.id == id) {
            state.docs.insert((op.index.clone(), op.id.clone()), Value::Null);
        }
    }
    let status = line["http"].as_u64().map_or(200, |status| u16::try_from(status).unwrap_or(500));
    let reply = if line["items"].is_array() || line["then"] == true || line.get("http").is_none() {
        Some(answer(status, &filter(&state.items(&ops, &line), &request.path)))
    } else {
        Some(whole(status, &line["body"]))
    };
    let delay = state.slow + Duration::from_millis(line["delay_ms"].as_u64().unwrap_or(0));
    drop(state);
    std::thread::sleep(delay);
    let lost = line["reply"].as_str().is_some_and(|reply| reply.contains("close the socket"));
    Ok(reply.filter(|_| !lost))
}

impl State {
    /// The answer's body; what it says was written is written.
    fn items(&mut self, ops: &[Op], line: &Value) -> Value {
        let scripted = line["items"].as_array();
        let count = scripted.map_or(ops.len(), |items| items.len().min(ops.len()));
        let mut items = Vec::with_capacity(count);
        let mut errors = false;
        for (n, op) in ops.iter().take(count).enumerate() {
            let entry = scripted.map_or(Value::Null, |items| items[n].clone());
            let status = entry.as_u64().or(entry["status"].as_u64()).unwrap_or_else(|| self.honest(op).into());
            if let Some(lean) = &mut self.lean {
                lean.items += 1;
                lean.refused += u64::from(status >= 300 && status != 409);
            }
            let mut item = Map::new();
            item.insert("_index".into(), op.index.clone().into());
            item.insert("_id".into(), op.id.clone().into());
            item.insert("status".into(), status.into());
            if status < 300 {
                item.insert("result".into(), if status == 201 { "created" } else { "updated" }.into());
                self.apply(op);
            } else {
                errors = true;
                let (kind, reason) = usual_error(status);
                let kind = entry["type"].as_str().unwrap_or(kind);
                let reason = entry["reason"].as_str().unwrap_or(reason);
                item.insert("error".into(), json!({"type": kind, "reason": reason}));
            }
            items.push(json!({ (op.name.as_str()): item }));
        }
        json!({"took": 1, "errors": errors, "items": items})
    }

    fn honest(&mut self, op: &Op) -> u16 {
        if let Some((probability, status)) = self.refusal
            && self.random.f64() < probability
        {
            return status;
        }
        let there = match &self.lean {
            Some(lean) => lean.numbers.contains_key(&lean.key(op)),
            None => self.docs.contains_key(&(op.index.clone(), op.id.clone())),
        };
        self.then.unwrap_or(match (op.name.as_str(), there) {
            ("create", true) => 409,
            ("delete", false) => 404,
            (_, true) => 200,
            (_, false) => 201,
        })
    }

    fn apply(&mut self, op: &Op) {
        if let Some(lean) = &mut self.lean {
            let key = lean.key(op);
            lean.numbers.insert(key, op.source.as_u64().unwrap_or(u64::MAX));
            return;
        }
        let key = (op.index.clone(), op.id.clone());
        if op.name == "delete" {
            self.docs.remove(&key);
        } else {
            self.docs.insert(key, op.source.clone());
        }
    }
}

/// What an engine says with this status, where the script does not.
fn usual_error(status: u64) -> (&'static str, &'static str) {
    match status {
        400 => ("mapper_parsing_exception", "failed to parse"),
        404 => ("index_not_found_exception", "no such index"),
        409 => ("version_conflict_engine_exception", "version conflict, document already exists (current version [1])"),
        429 => ("es_rejected_execution_exception", "rejected execution of primary operation"),
        503 => ("unavailable_shards_exception", "primary shard is not active"),
        _ => ("exception", "something failed"),
    }
}

fn failure(kind: &str, reason: &str, status: u16) -> Value {
    let cause = json!({"type": kind, "reason": reason});
    json!({"error": {"root_cause": [cause], "type": kind, "reason": reason}, "status": status})
}

/// An answer for the whole request: the script's text, or what an engine says.
fn whole(status: u16, body: &Value) -> Answer {
    match (body.as_str(), status) {
        (Some(text), _) => Answer { body: text.as_bytes().to_vec(), ..answer(status, &Value::Null) },
        // Refused by its length before it is read: no body.
        (None, 413) => Answer { body: vec![], ..answer(status, &Value::Null) },
        (None, 401) => answer(status, &failure("security_exception", "missing authentication credentials", 401)),
        (None, 403) => answer(status, &failure("security_exception", "action is unauthorized", 403)),
        (None, _) => answer(status, &failure("exception", "something failed", status)),
    }
}

fn decompress(request: &Request) -> io::Result<Vec<u8>> {
    if header(&request.headers, "content-encoding") != Some("gzip") {
        return Ok(request.body.clone());
    }
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(request.body.as_slice()).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Action and source lines, or in place of a source its number; none when they are not.
fn parse(body: &[u8], default_index: &str, is_lean: bool) -> Option<Vec<Op>> {
    let mut lines = body.strip_suffix(b"\n")?.split(|&byte| byte == b'\n');
    let mut ops = Vec::new();
    while let Some(line) = lines.next() {
        let Value::Object(object) = serde_json::from_slice(line).ok()? else {
            return None;
        };
        let (name, action) = object.into_iter().next()?;
        let source = match name.as_str() {
            "delete" => Value::Null,
            "index" | "create" | "update" if is_lean => number(lines.next()?).into(),
            "index" | "create" | "update" => serde_json::from_slice(lines.next()?).ok()?,
            _ => return None,
        };
        let index = action["_index"].as_str().unwrap_or(default_index).to_owned();
        let id = action["_id"].as_str().unwrap_or_default().to_owned();
        ops.push(Op { name, index, id, action, source });
    }
    Some(ops)
}

/// The field `n` of a source that is written without blanks.
fn number(source: &[u8]) -> Option<u64> {
    let at = memchr::memmem::find(source, b"\"n\":")? + 4;
    let digits = source[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&source[at..at + digits]).ok()?.parse().ok()
}

/// Applies `filter_path` of the query: keys and `*`, comma-separated; what it leaves empty is left out.
fn filter(body: &Value, path: &str) -> Value {
    let query = path.split_once('?').map_or("", |(_, query)| query);
    let Some(list) = query.split('&').find_map(|pair| pair.strip_prefix("filter_path=")) else {
        return body.clone();
    };
    let list = list.replace("%2C", ",").replace("%2A", "*");
    let paths: Vec<Vec<&str>> = list.split(',').map(|path| path.split('.').collect()).collect();
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    kept(body, &paths).unwrap_or_else(|| json!({}))
}

fn kept(value: &Value, paths: &[&[&str]]) -> Option<Value> {
    if paths.iter().any(|path| path.is_empty()) {
        return Some(value.clone());
    }
    match value {
        // Arrays do not count as a step of the path.
        Value::Array(entries) => {
            let entries: Vec<Value> = entries.iter().filter_map(|entry| kept(entry, paths)).collect();
            (!entries.is_empty()).then_some(Value::Array(entries))
        }
        Value::Object(object) => {
            let mut left = Map::new();
            for (key, entry) in object {
                let below: Vec<&[&str]> =
                    paths.iter().filter(|path| path[0] == "*" || path[0] == key).map(|path| &path[1..]).collect();
                if let Some(entry) = (!below.is_empty()).then(|| kept(entry, &below)).flatten() {
                    left.insert(key.clone(), entry);
                }
            }
            (!left.is_empty()).then_some(Value::Object(left))
        }
        _ => None,
    }
}
