//! The simulated engine: keeps documents by index and id, and answers as its faults of the moment have it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use onceline::output::elasticsearch::{Exchange, Lost};
use reqwest::Method;
use serde_json::Value;

use crate::scenario::{APPS, Scenario, Shape, Trouble};
use crate::world::{Clock, lock};

/// How often an item fails by itself, at most: less often than the pipeline tries.
const FAILS_MAX: u32 = 3;

#[derive(Clone)]
pub struct Engine {
    state: Arc<Mutex<State>>,
    scenario: Arc<Scenario>,
    clock: Clock,
}

struct State {
    rng: Rng,
    docs: BTreeMap<(String, String), Doc>,
    /// When each line was stored first, by its number.
    stored: BTreeMap<u64, Duration>,
    fails: BTreeMap<u64, u32>,
    /// How often a line of this life was answered for with success.
    told: BTreeMap<u64, u64>,
    /// Names of the requests that it is at, whether or not somebody waits for them.
    at_work: Vec<String>,
    life: u64,
    /// The mapping takes what it did not take.
    is_mended: bool,
    requests: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doc {
    pub n: u64,
    pub version: u64,
}

/// One life's way to the engine.
pub struct Link {
    engine: Engine,
    life: u64,
    key: Mutex<Duration>,
}

struct Sent {
    id: String,
    index: String,
    n: u64,
    mark: String,
}

impl Engine {
    pub fn new(scenario: &Scenario, clock: Clock) -> Engine {
        let state = State {
            rng: Rng::with_seed(scenario.seed ^ 0xe461_4e00),
            docs: BTreeMap::new(),
            stored: BTreeMap::new(),
            fails: BTreeMap::new(),
            told: BTreeMap::new(),
            at_work: Vec::new(),
            life: 0,
            is_mended: false,
            requests: 0,
        };
        Engine { state: Arc::new(Mutex::new(state)), scenario: Arc::new(scenario.clone()), clock }
    }

    /// A connection of a new life.
    pub fn link(&self) -> Link {
        let mut state = lock(&self.state);
        state.life += 1;
        state.told.clear();
        let life = state.life;
        drop(state);
        Link { engine: self.clone(), life, key: Mutex::new(self.key(true)) }
    }

    pub fn docs(&self) -> BTreeMap<(String, String), Doc> {
        lock(&self.state).docs.clone()
    }

    pub fn stored(&self) -> BTreeMap<u64, Duration> {
        lock(&self.state).stored.clone()
    }

    pub fn is_stored(&self, n: u64) -> bool {
        lock(&self.state).stored.contains_key(&n)
    }

    pub fn told(&self) -> BTreeMap<u64, u64> {
        lock(&self.state).told.clone()
    }

    pub fn mend(&self) {
        lock(&self.state).is_mended = true;
    }

    pub fn is_mended(&self) -> bool {
        lock(&self.state).is_mended
    }

    pub fn requests(&self) -> u64 {
        lock(&self.state).requests
    }

    fn random<T>(&self, of: impl FnOnce(&mut Rng) -> T) -> T {
        of(&mut lock(&self.state).rng)
    }

    /// Whether a fault meets what happens now.
    fn meets(&self, kind: Trouble) -> bool {
        let share = self.clock.trouble(kind);
        share > 0.0 && self.random(|rng| rng.f64() < share)
    }

    fn is_now(&self, kind: Trouble) -> bool {
        self.clock.trouble(kind) > 0.0
    }

    /// The key that is taken now; a new one with each fault of this kind, known to the other side when it is past.
    fn key(&self, known: bool) -> Duration {
        let now = self.clock.now();
        let faults = self.clock.faults(Trouble::Key).into_iter();
        let at = |fault: Range<Duration>| if known { fault.end } else { fault.start };
        faults.map(at).filter(|at| *at <= now).max().unwrap_or_default()
    }

    /// What the engine does with a request that reached it.
    fn answer(&self, path: &str, body: &Bytes) -> (u16, Vec<u8>) {
        if path.starts_with("_tasks") && !self.meets(Trouble::AllFail) {
            return (200, self.tasks().into_bytes());
        }
        if !path.starts_with("_bulk") {
            return match self.meets(Trouble::AllFail) {
                true => refusal(503, "cluster_block_exception"),
                false => (404, b"{}".to_vec()),
            };
        }
        if self.meets(Trouble::AllBusy) {
            return refusal(429, "circuit_breaking_exception");
        }
        if self.meets(Trouble::AllFail) {
            return refusal(503, "");
        }
        let Some(items) = read(body) else {
            self.clock.wrong(format!("a request is no bulk: {:?}", String::from_utf8_lossy(body)));
            return refusal(400, "illegal_argument_exception");
        };
        if body.len() > self.scenario.request_bytes_max || items.iter().any(|item| item.mark == "large") {
            return refusal(413, "");
        }
        if items.iter().any(|item| item.mark == "poison") {
            return refusal(400, "parse_exception");
        }
        let mut text = String::from("{\"took\":1,\"errors\":true,\"items\":[");
        for (n, item) in items.iter().enumerate() {
            let (status, kind) = self.item(item);
            let comma = if n > 0 { "," } else { "" };
            let _ = match kind {
                "" => write!(text, "{comma}{{\"index\":{{\"status\":{status}}}}}"),
                _ => write!(
                    text,
                    "{comma}{{\"index\":{{\"status\":{status},\"error\":{{\"type\":\"{kind}\",\"reason\":\"it is so\"}}}}}}"
                ),
            };
        }
        text.push_str("]}");
        (200, text.into_bytes())
    }

    /// What it is at, as `_tasks` shows it.
    fn tasks(&self) -> String {
        let state = lock(&self.state);
        let tasks = state.at_work.iter().enumerate();
        let tasks: serde_json::Map<String, Value> =
            tasks.map(|(n, name)| (format!("a:{n}"), serde_json::json!({"headers": {"X-Opaque-Id": name}}))).collect();
        serde_json::json!({"nodes": {"a": {"tasks": tasks}}}).to_string()
    }

    fn item(&self, item: &Sent) -> (u16, &'static str) {
        let app = APPS.iter().position(|app| item.index == format!("logs-{app}"));
        let Some(app) = app else {
            self.clock.wrong(format!("an event went to the index {}", item.index));
            return (400, "invalid_index_name_exception");
        };
        if self.is_now(Trouble::Closed(app)) {
            return (400, "index_closed_exception");
        }
        if self.is_now(Trouble::Blocked(app)) {
            return (403, "cluster_block_exception");
        }
        if self.is_now(Trouble::Gone(app)) {
            return (404, "index_not_found_exception");
        }
        if self.is_now(Trouble::Flooded(app)) {
            return (429, "cluster_block_exception");
        }
        if self.meets(Trouble::Busy) {
            return (429, "es_rejected_execution_exception");
        }
        if self.meets(Trouble::Fails) {
            let mut state = lock(&self.state);
            let fails = state.fails.entry(item.n).or_default();
            *fails += 1;
            if *fails <= FAILS_MAX {
                let kinds = [(500, "illegal_state_exception"), (503, "unavailable_shards_exception"), (503, "")];
                return kinds[state.rng.usize(..kinds.len())];
            }
        }
        if item.mark == "mapping" && !lock(&self.state).is_mended {
            return (400, "mapper_parsing_exception");
        }
        self.store(item)
    }

    fn store(&self, item: &Sent) -> (u16, &'static str) {
        let now = self.clock.now();
        let mut state = lock(&self.state);
        state.stored.entry(item.n).or_insert(now);
        let key = (item.index.clone(), item.id.clone());
        let Some(doc) = state.docs.get_mut(&key) else {
            state.docs.insert(key, Doc { n: item.n, version: 1 });
            return (201, "");
        };
        if self.scenario.shape == (Shape::Line { create: true }) {
            return (409, "version_conflict_engine_exception");
        }
        *doc = Doc { n: item.n, version: doc.version + 1 };
        (200, "")
    }

    /// What becomes of an answer on its way.
    fn on_its_way(&self, mut text: Vec<u8>) -> Result<Vec<u8>, Lost> {
        let lost = |why: &str| Err(Lost { why: why.to_string(), connected: true });
        if self.meets(Trouble::LostAfter) {
            return lost("connection reset");
        }
        if self.meets(Trouble::Cut) {
            let at = self.random(|rng| rng.usize(..text.len()));
            text.truncate(at);
        } else if self.meets(Trouble::Garbled) {
            match self.random(|rng| rng.u8(..4)) {
                0 => text = b"<html><body>Bad Gateway</body></html>".to_vec(),
                1 => text.insert(0, b'x'),
                2 => text.push(b'}'),
                _ => text.iter_mut().filter(|byte| **byte == b'[').for_each(|byte| *byte = b'{'),
            }
        } else if self.meets(Trouble::Short)
            && let Some(at) = text.windows(10).rposition(|part| part == b"},{\"index\"")
        {
            text.truncate(at + 1);
            text.extend_from_slice(b"]}");
        }
        Ok(text)
    }

    /// Notes what a life was told: what succeeded must never be sent again by it.
    fn tell(&self, life: u64, body: &Bytes, text: &[u8]) {
        let mut state = lock(&self.state);
        let Ok(Value::Object(answer)) = serde_json::from_slice(text) else { return };
        let (Some(statuses), Some(items)) = (answer.get("items").and_then(Value::as_array), read(body)) else { return };
        if life != state.life || statuses.len() != items.len() {
            return;
        }
        for (item, status) in items.iter().zip(statuses) {
            if matches!(status["index"]["status"].as_u64(), Some(200 | 201 | 409)) {
                *state.told.entry(item.n).or_default() += 1;
            }
        }
    }
}

impl Link {
    async fn exchange(&self, name: &str, path: String, body: Bytes) -> Result<(u16, Bytes), Lost> {
        let engine = &self.engine;
        let lost = |why: &str, connected| Err(Lost { why: why.to_string(), connected });
        let timeout = engine.scenario.request_timeout;
        let slow = engine.meets(Trouble::Slow);
        // on its way, at work, and back; some are at work when who sent them has long given up, and sent others
        let (there, work, back) = engine.random(|rng| match slow {
            true if rng.u8(..4) == 0 => (rng.u64(..90), timeout.mul_f64(rng.f64() * 8.0), Duration::ZERO),
            true => (rng.u64(..90), timeout.mul_f64(rng.f64() * 1.5), timeout.mul_f64(rng.f64() * 1.5)),
            false => (rng.u64(..15), Duration::from_millis(rng.u64(..15)), Duration::from_millis(rng.u64(..30))),
        });
        tokio::time::sleep(Duration::from_millis(there)).await;
        if engine.is_now(Trouble::Down) {
            return lost("connection refused", false);
        }
        if engine.meets(Trouble::LostBefore) {
            return lost("connection reset", true);
        }
        if *lock(&self.key) < engine.key(false) {
            let (status, body) = refusal(401, "security_exception");
            return Ok((status, body.into()));
        }
        let answer = match name {
            "" => Some(engine.answer(&path, &body)),
            name => self.at_work(name, work, &path, &body).await,
        };
        let Some((status, text)) = answer else { return lost("connection reset", true) };
        engine.clock.note("answered", u64::from(status));
        tokio::time::sleep(back).await;
        Ok((status, engine.on_its_way(text)?.into()))
    }

    /// The engine at a request, which it lists meanwhile. None if it went down before it was done.
    async fn at_work(&self, name: &str, work: Duration, path: &str, body: &Bytes) -> Option<(u16, Vec<u8>)> {
        let engine = &self.engine;
        lock(&engine.state).at_work.push(name.to_string());
        let start = engine.clock.now();
        tokio::time::sleep(work).await;
        let now = engine.clock.now();
        let was_down = engine.clock.faults(Trouble::Down).iter().any(|down| down.start <= now && start < down.end);
        let answer = (!was_down).then(|| engine.answer(path, body));
        lock(&engine.state).at_work.retain(|other| other != name);
        answer
    }
}

impl Exchange for Link {
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(u16, Bytes), Lost> {
        self.call_named("", method, path, body).await
    }

    async fn call_named(
        &self,
        name: &str,
        _method: Method,
        path: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(u16, Bytes), Lost> {
        let body = body.map(|(_, body)| body).unwrap_or_default();
        let sent = body.clone();
        let lost = |why: &str| Lost { why: why.to_string(), connected: true };
        let clock = &self.engine.clock;
        lock(&self.engine.state).requests += 1;
        clock.step("request", body.len() as u64).map_err(|_| lost("the process is no more"))?;
        let link = Link { engine: self.engine.clone(), life: self.life, key: Mutex::new(*lock(&self.key)) };
        let (path, name) = (path.to_string(), name.to_string());
        let timeout = self.engine.scenario.request_timeout;
        // goes on in the engine, whatever becomes of who asked
        let task = tokio::spawn(async move { link.exchange(&name, path, body).await });
        let answer =
            tokio::time::timeout(timeout, async { task.await.unwrap_or_else(|_| Err(lost("it broke"))) }).await;
        clock.step("answer", 0).map_err(|_| lost("the process is no more"))?;
        if let Ok(Ok((200, text))) = &answer {
            self.engine.tell(self.life, &sent, text);
        }
        answer.unwrap_or_else(|_| Err(lost("no answer in time")))
    }

    async fn renew(&self) -> anyhow::Result<()> {
        let mut key = lock(&self.key);
        *key = (*key).max(self.engine.key(true));
        Ok(())
    }
}

fn refusal(status: u16, kind: &str) -> (u16, Vec<u8>) {
    let body = match kind {
        "" => "<html>no</html>".to_string(),
        _ => format!("{{\"error\":{{\"type\":\"{kind}\",\"reason\":\"it is so\"}},\"status\":{status}}}"),
    };
    (status, body.into_bytes())
}

fn read(body: &[u8]) -> Option<Vec<Sent>> {
    let mut lines = body.strip_suffix(b"\n")?.split(|byte| *byte == b'\n');
    let mut items = Vec::new();
    while let Some(head) = lines.next() {
        let head: Value = serde_json::from_slice(head).ok()?;
        let source: Value = serde_json::from_slice(lines.next()?).ok()?;
        let head = head.get("index").or_else(|| head.get("create"))?;
        let item = Sent {
            id: head["_id"].as_str()?.to_string(),
            index: head["_index"].as_str()?.to_string(),
            n: source["n"].as_u64()?,
            mark: source["mark"].as_str().unwrap_or_default().to_string(),
        };
        items.push(item);
    }
    Some(items)
}
