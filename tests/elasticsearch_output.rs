//! The output to Elasticsearch and OpenSearch, called directly with parcels made by hand: against a scripted bulk
//! endpoint and against the real engines.

mod rig;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onceline::ack::{Acks, Letter, Message, Tally};
use onceline::output::elasticsearch::{Compression, Config, Elasticsearch, Kind, Login, Template};
use onceline::output::{Action, Output, Phase, Slots, queue};
use onceline::secret::Kept;
use rig::{Engine, Event, Fault, Proxy, Stub, event, parcel};
use serde_json::{Value, json};
use tokio::sync::watch;

/// Nothing here takes longer unless it hangs.
const SECS_MAX: Duration = Duration::from_secs(60);

fn config(url: &str) -> Config {
    Config {
        hosts: vec![url.to_string()],
        retry_wait_min: Duration::from_millis(20),
        retry_wait_max: Duration::from_millis(100),
        strict: false,
        ..Config::default()
    }
}

/// An output at work on a thread of its own.
struct Work {
    slots: Option<Slots>,
    settled: Receiver<Message>,
    phase: watch::Sender<Phase>,
    thread: JoinHandle<anyhow::Result<()>>,
    action: Action,
    sent: u64,
    told: Told,
}

/// What was told of the events.
#[derive(Default)]
struct Told {
    tally: Tally,
    letters: Vec<Letter>,
    claims: u64,
}

impl Work {
    fn start(config: Config) -> Work {
        let action = config.action;
        let output = Box::new(Elasticsearch::new(config).expect("an output"));
        let (slots, parcels) = queue(16);
        let (acks, settled) = Acks::channel();
        let (phase, phases) = watch::channel(Phase::Running);
        let thread = std::thread::spawn(move || output.run(parcels, acks, phases));
        Work { slots: Some(slots), settled, phase, thread, action, sent: 0, told: Told::default() }
    }

    fn send(&mut self, events: &[Event]) {
        let slot = self.slots.as_ref().and_then(Slots::take).expect("a place");
        slot.send(parcel(self.action, self.sent, events)).expect("an output that still takes parcels");
        self.sent += 1;
    }

    /// Waits until so many events have their fate.
    fn await_fates(&mut self, count: u64) {
        let end = Instant::now() + SECS_MAX;
        while self.told.claims < count {
            let left = end.saturating_duration_since(Instant::now());
            let message =
                self.settled.recv_timeout(left).unwrap_or_else(|_| panic!("{} of {count} fates", self.told.claims));
            self.told.add(message);
        }
    }

    fn end(mut self) -> Told {
        drop(self.slots.take());
        let end = Instant::now() + SECS_MAX;
        while let Ok(message) = self.settled.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.told.add(message);
        }
        assert!(self.thread.is_finished() || Instant::now() < end, "the output hangs");
        self.thread.join().expect("no panic").expect("no error");
        self.told
    }
}

impl Told {
    fn add(&mut self, message: Message) {
        let Message::Settled(settled) = message else { panic!("{message:?}") };
        self.tally.add(&settled.tally);
        self.claims += settled.claims;
        self.letters.extend(settled.letters);
    }

    fn letters(&self) -> BTreeMap<String, u16> {
        let place = |letter: &Letter| (letter.id.clone().unwrap_or_default(), letter.status.unwrap_or(0));
        self.letters.iter().map(place).collect()
    }
}

fn run(config: Config, parcels: &[Vec<Event>]) -> Told {
    let mut work = Work::start(config);
    parcels.iter().for_each(|events| work.send(events));
    let told = work.end();
    assert_eq!(told.claims, parcels.iter().map(Vec::len).sum::<usize>() as u64, "every event has one fate");
    told
}

fn events(index: &str, range: std::ops::Range<usize>) -> Vec<Event> {
    range.map(|n| event(index, &format!("e{n}"), json!({"n": n}))).collect()
}

// --- against the scripted endpoint ---------------------------------------------------------------------------

fn case_events() -> Vec<Event> {
    let lines = include_str!("cases/01-bulk-mixed-results/input.ndjson").lines();
    let parse = |line: &str| serde_json::from_str::<Value>(line).expect("a case's line");
    let place = |source: Value| ("orders".to_string(), source["id"].as_str().unwrap_or_default().to_string(), source);
    lines.map(parse).map(place).collect()
}

fn check_case(script: &str, want: &Value) -> (Told, Stub) {
    let stub = Stub::new(script);
    let told = run(Config { action: Action::Create, ..config(&stub.url) }, &[case_events()]);
    assert_eq!(json!(stub.bulks().len()), want["bulk_requests"]);
    if want["ids_in_request"].is_array() {
        assert_eq!(json!(stub.ids()), want["ids_in_request"]);
    }
    assert_eq!(told.tally.requests, stub.bulks().len() as u64);
    (told, stub)
}

#[test]
fn case_01() {
    let want: Value = serde_json::from_str(include_str!("cases/01-bulk-mixed-results/expected.json")).expect("JSON");

    let (told, stub) =
        check_case(include_str!("cases/01-bulk-mixed-results/server-a-partial-then-lost-ack.jsonl"), &want["a"]);
    assert_eq!((told.tally.created, told.tally.duplicates, told.tally.retries), (2, 3, 4));
    assert_eq!(json!(told.letters()), want["a"]["dlq"]);
    let docs: Vec<String> = stub.docs().into_keys().map(|(_, id)| id).collect();
    assert_eq!(json!(docs), want["a"]["docs_in_index"]);

    let (told, stub) = check_case(include_str!("cases/01-bulk-mixed-results/server-b-413.jsonl"), &want["b"]);
    assert_eq!(json!(stub.ids()[1..]), want["b"]["split"]);
    assert_eq!(told.tally.created, 6);

    let (told, _) = check_case(include_str!("cases/01-bulk-mixed-results/server-c-401-then-ok.jsonl"), &want["c"]);
    assert_eq!(told.tally.created, 6);

    let (told, _) = check_case(include_str!("cases/01-bulk-mixed-results/server-d-short-answer.jsonl"), &want["d"]);
    assert_eq!((told.tally.created, told.tally.duplicates), (2, 4));

    let (told, _) = check_case(include_str!("cases/01-bulk-mixed-results/server-e-only-409.jsonl"), &want["e"]);
    assert_eq!((told.tally.duplicates, told.letters.len()), (6, 0));
}

#[test]
fn the_culprit_alone_is_a_dead_letter() {
    let check = |status: u16, reason: &str| {
        // whole, first half good, second half bad, its first good, its second bad
        let script = format!(
            "{{\"http\":{status}}}\n{{\"items\":[201,201]}}\n{{\"http\":{status}}}\n{{\"items\":[201]}}\n{{\"http\":{status}}}\n"
        );
        let stub = Stub::new(&script);
        let one_at_a_time = Config { requests_in_flight_max: 1, ..config(&stub.url) };
        let told = run(one_at_a_time, &[events("logs", 0..4)]);
        assert_eq!(
            stub.ids(),
            [vec!["e0", "e1", "e2", "e3"], vec!["e0", "e1"], vec!["e2", "e3"], vec!["e2"], vec!["e3"]]
        );
        assert_eq!((told.tally.created, told.letters()), (3, [("e3".to_string(), status)].into()));
        assert_eq!(told.letters[0].reason.as_str(), reason);
    };
    check(413, "too-large");
    check(400, "rejected");
}

#[test]
fn a_size_once_refused_is_not_sent_again() {
    let stub = Stub::new("{\"http\":413}\n");
    let mut work = Work::start(Config { requests_in_flight_max: 1, ..config(&stub.url) });
    work.send(&events("logs", 10..18));
    work.await_fates(8);
    work.send(&events("logs", 20..28));
    work.end();
    assert_eq!(stub.bulks().iter().map(|bulk| bulk.ops.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 4]);
}

#[test]
fn an_item_that_keeps_failing_alone_is_a_dead_letter() {
    let one = "{\"items\":[500]}\n".repeat(3);
    let stub = Stub::new(&format!("{{\"items\":[201,500]}}\n{one}"));
    let told = run(Config { item_retries_max: 3, ..config(&stub.url) }, &[events("logs", 0..2)]);
    assert_eq!((told.tally.created, told.letters()), (1, [("e1".to_string(), 500)].into()));
    assert_eq!((told.letters[0].attempts, told.letters[0].reason.as_str()), (4, "rejected"));
    // all of them: the engine's trouble, never theirs
    let stub = Stub::new(&"{\"items\":[500,500]}\n".repeat(8));
    let told = run(Config { item_retries_max: 3, ..config(&stub.url) }, &[events("logs", 0..2)]);
    assert_eq!((told.tally.created, told.tally.retries, stub.bulks().len()), (2, 16, 9));
}

#[test]
fn whatever_is_lost_or_refused_is_sent_again() {
    let lines = [
        "{\"http\":429}",
        "{\"http\":503}",
        "{\"http\":502,\"body\":\"<html>\"}",
        "{\"http\":500}",
        "{\"http\":302}",
        "{\"http\":404}",
        "{\"http\":405}",
        "{\"http\":200,\"body\":\"\"}",
        "{\"http\":200,\"body\":\"{\\\"items\\\":[\"}",
        "{\"items\":[201],\"reply\":\"close the socket\"}",
    ];
    let stub = Stub::new(&lines.join("\n"));
    let told = run(config(&stub.url), &[events("logs", 0..2)]);
    assert_eq!((told.tally.created, told.tally.duplicates), (1, 1));
    assert_eq!(stub.bulks().len(), lines.len() + 1);
}

#[test]
fn a_slow_answer_is_given_up() {
    let stub = Stub::new("{\"delay_ms\":3000}\n");
    let told =
        run(Config { request_timeout: Duration::from_millis(300), ..config(&stub.url) }, &[events("logs", 0..1)]);
    assert_eq!((told.tally.duplicates, told.tally.requests), (1, 2));
}

#[test]
fn events_of_an_index_in_trouble_are_held_in_order() {
    let trouble = json!({"status": 503, "type": "unavailable_shards_exception"});
    let script =
        [json!({"items": [trouble, 201, trouble]}), json!({"items": [trouble, trouble]}), json!({"items": [201, 201]})];
    let stub = Stub::new(&script.map(|line| line.to_string()).join("\n"));
    let slow = Config {
        retry_wait_min: Duration::from_millis(1000),
        retry_wait_max: Duration::from_millis(1000),
        ..config(&stub.url)
    };
    let mut work = Work::start(slow);
    work.send(&[event("a", "1", json!({})), event("b", "2", json!({})), event("a", "3", json!({}))]);
    let told = {
        work.await_fates(1);
        work.end()
    };
    assert_eq!(stub.ids(), [vec!["1", "2", "3"], vec!["1", "3"], vec!["1", "3"]]);
    assert_eq!(told.tally.created, 3);
}

#[test]
fn with_order_the_newest_write_stays() {
    let busy = 429;
    let stub = Stub::new(&json!({"items": [busy, busy, 200, 201]}).to_string());
    let ordered = Config { ordered: true, requests_in_flight_max: 1, ..config(&stub.url) };
    let of = |id: &str, n: u64| event("a", id, json!({"n": n}));
    let mut work = Work::start(ordered);
    work.send(&[of("x", 1), of("y", 1), of("x", 2), of("z", 1)]);
    work.send(&[of("y", 2)]);
    let told = work.end();
    assert_eq!(told.tally.stale, 1);
    let docs: Vec<Value> = stub.docs().into_values().collect();
    assert_eq!(docs, [json!({"n": 2}), json!({"n": 2}), json!({"n": 1})]);
    assert_eq!(stub.ids()[1..], [vec!["y"], vec!["y"]], "the later y waits for the earlier one");
}

#[test]
fn requests_say_what_they_must_and_no_more() {
    let stub = Stub::new("{\"http\":401}\n");
    let folder = tempfile::tempdir().expect("a folder");
    let key = folder.path().join("key");
    std::fs::write(&key, "id:old\n").expect("a file");
    let secret = Config {
        hosts: vec![stub.url.replace("http://", "http://user:first@")],
        login: Some(Login { kind: Kind::ApiKey, kept: Kept::File(key.clone()) }),
        compression: Compression::Gzip,
        ..config("")
    };
    assert!(!format!("{secret:?}").contains("first"));
    let plain = Config { login: None, ..secret.clone() };
    let mut work = Work::start(secret);
    std::fs::write(&key, "id:key\n").expect("a file");
    work.send(&events("logs", 0..3));
    assert_eq!(work.end().tally.created, 3);
    assert_eq!(run(plain, &[events("logs", 3..4)]).tally.created, 1);
    let bulks = stub.bulks();
    let auth: Vec<_> = bulks.iter().map(|bulk| bulk.header("authorization")).collect();
    assert_eq!(auth, [Some("ApiKey aWQ6b2xk"), Some("ApiKey aWQ6a2V5"), Some("Basic dXNlcjpmaXJzdA==")]);
    assert_eq!(bulks[0].header("content-encoding"), Some("gzip"));
    assert_eq!(bulks[0].header("content-type"), Some("application/x-ndjson"));
}

#[test]
fn parcels_are_joined_and_cut() {
    let stub = Stub::new("{\"delay_ms\":500}\n");
    let one = Config { requests_in_flight_max: 1, bulk_items_max: 5, ..config(&stub.url) };
    let mut work = Work::start(one);
    for n in 0..5 {
        work.send(&events("logs", n * 2..n * 2 + 2));
    }
    work.send(&events("logs", 10..22));
    let told = work.end();
    assert_eq!(told.tally.created, 22);
    assert!(stub.bulks().iter().all(|bulk| bulk.ops.len() <= 5));
    let ids: Vec<String> = stub.ids().concat();
    assert_eq!(ids, (0..22).map(|n| format!("e{n}")).collect::<Vec<_>>());
    assert!(stub.bulks().len() < 9, "small parcels are joined: {:?}", stub.ids());
}

#[test]
fn an_engine_that_is_down_at_start_is_waited_for() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let mut work = Work::start(config(&format!("http://{free}")));
    work.send(&events("logs", 0..2));
    assert!(work.settled.recv_timeout(Duration::from_millis(300)).is_err(), "nothing has its fate");
    // what cannot be delivered is left when the time is over
    work.phase.send(Phase::Abandon).expect("a listener");
    let told = work.end();
    assert_eq!(told.claims, 0);
    assert!(told.tally.requests > 0);
}

#[test]
fn a_check_that_is_not_there_hinders_nothing() {
    let stub = Stub::new("");
    let strict = Config { strict: true, index_pattern: "logs".to_string(), ..config(&stub.url) };
    assert_eq!(run(strict, &[events("logs", 0..2)]).tally.created, 2);
    assert!(stub.others().iter().any(|(_, path)| path.starts_with("/_alias/logs")));
}

// --- against the real engines --------------------------------------------------------------------------------

#[test]
fn create_and_index_on_real_engines() {
    for engine in Engine::all() {
        let prefix = rig::unique_prefix();
        let (made, written) = (format!("{prefix}-create"), format!("{prefix}-index"));
        let create = || run(Config { action: Action::Create, ..config(&engine.url) }, &[events(&made, 0..50)]);
        let index = || run(config(&engine.url), &[events(&written, 0..50)]);
        assert_eq!((create().tally.created, create().tally.duplicates), (50, 50), "{}", engine.name);
        assert_eq!((index().tally.created, index().tally.duplicates), (50, 50), "{}", engine.name);
        let versions = |index: &str| engine.docs(index).iter().map(|doc| doc.version).collect::<Vec<_>>();
        assert_eq!((versions(&made), versions(&written)), (vec![1; 50], vec![2; 50]), "{}", engine.name);
        engine.delete(&format!("/{made},{written}"));
    }
}

#[test]
fn a_mapping_conflict_is_that_events_own() {
    for engine in Engine::all() {
        let index = rig::unique_prefix();
        engine.put(&format!("/{index}"), &json!({"mappings": {"properties": {"n": {"type": "long"}}}}));
        let source = |n: usize| if n % 100 == 3 { json!({"n": "three"}) } else { json!({"n": n}) };
        let events: Vec<Event> = (0..1000).map(|n| event(&index, &format!("{n:03}"), source(n))).collect();
        let told = run(config(&engine.url), &[events]);
        assert_eq!((told.tally.created, told.letters.len(), told.tally.retries), (990, 10, 0), "{}", engine.name);
        let error: Value = serde_json::from_slice(told.letters[0].error.as_deref().expect("an answer")).expect("JSON");
        assert!(error["caused_by"]["type"].is_string(), "{error}");
        // one id too long makes the whole request fail
        let long = "x".repeat(513);
        let told = run(
            config(&engine.url),
            &[vec![event(&index, "a", json!({})), event(&index, &long, json!({})), event(&index, "c", json!({}))]],
        );
        assert_eq!((told.tally.created, told.letters()), (2, [(long, 400)].into()), "{}", engine.name);
        engine.delete(&format!("/{index}"));
    }
}

#[test]
fn indices_that_take_nothing_are_held_while_others_go_on() {
    for engine in Engine::all() {
        let prefix = rig::unique_prefix();
        let ends = ["closed", "blocked", "flooded", "deleted", "well"];
        let name = |end: &str| format!("{prefix}-{end}");
        let count = |end: &str| engine.docs(&name(end)).len();
        // without a body: Elasticsearch refuses one here
        let post = |path: String| {
            let answer = engine.request("POST", &path, &Vec::new(), b"").expect("an answer");
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        };
        let block = |end: &str, block: &str, value: Value| {
            assert_eq!(engine.put(&format!("/{}/_settings", name(end)), &json!({ block: value })).status, 200);
        };
        let may_be_made = |pattern: Value| {
            let settings = json!({"transient": {"action.auto_create_index": pattern}});
            assert_eq!(engine.put("/_cluster/settings", &settings).status, 200);
        };
        let mut work = Work::start(config(&engine.url));
        let round = |n: usize| ends.map(|end| event(&name(end), &format!("{n}"), json!({"n": n}))).to_vec();
        (0..3).for_each(|n| work.send(&round(n)));
        work.await_fates(15);
        // in the midst of it
        post(format!("/{}/_close", name("closed")));
        block("blocked", "index.blocks.write", json!(true));
        block("flooded", "index.blocks.read_only_allow_delete", json!(true));
        may_be_made(json!(format!("-{prefix}-deleted,+*")));
        engine.delete(&format!("/{}", name("deleted")));
        (3..8).for_each(|n| work.send(&round(n)));
        work.await_fates(20);
        assert_eq!((work.told.tally.created, count("well")), (20, 8), "{}", engine.name);
        // one after the other takes events again
        post(format!("/{}/_open", name("closed")));
        work.await_fates(25);
        assert_eq!(count("closed"), 8, "{}", engine.name);
        block("blocked", "index.blocks.write", Value::Null);
        work.await_fates(30);
        assert_eq!(count("blocked"), 8, "{}", engine.name);
        block("flooded", "index.blocks.read_only_allow_delete", Value::Null);
        work.await_fates(35);
        assert_eq!(count("flooded"), 8, "{}", engine.name);
        may_be_made(Value::Null);
        let told = work.end();
        assert_eq!((told.claims, told.tally.created, told.letters.len()), (40, 40, 0), "{}", engine.name);
        // what was in it when it was deleted is gone, what came later is not
        assert_eq!(count("deleted"), 5, "{}", engine.name);
        engine.delete(&format!("/{}", ends.map(name).join(",")));
    }
}

/// How many requests that write to an index an engine is at.
fn at_work(engine: &Engine, index: &str) -> usize {
    let path = "/_tasks?detailed=true&actions=indices:data/write/bulk&filter_path=nodes.*.tasks.*.description";
    engine.get(path).text().matches(index).count()
}

#[test]
fn a_slow_engine_is_not_given_the_same_again_while_it_is_at_it() {
    for (engine, ordered) in Engine::all().into_iter().zip([false, true]) {
        let index = rig::unique_prefix();
        let impatient = Config {
            action: Action::Create,
            request_timeout: Duration::from_millis(100),
            requests_in_flight_max: 1,
            ordered,
            ..config(&engine.url)
        };
        let mut work = Work::start(impatient);
        work.send(&events(&index, 0..8000));
        let mut most = 0;
        while work.told.claims < 8000 {
            most = most.max(at_work(engine, &index));
            if let Ok(message) = work.settled.recv_timeout(Duration::from_millis(5)) {
                work.told.add(message);
            }
        }
        let told = work.end();
        assert!(told.tally.requests > 1, "{} was in time", engine.name);
        // one that is read there for long is not listed yet, which matters only where the newest must win
        let most_allowed = if ordered { 1 } else { 2 };
        assert!(most <= most_allowed, "{most} requests at work in {} at once", engine.name);
        assert_eq!((told.tally.created + told.tally.duplicates, engine.docs(&index).len()), (8000, 8000));
        engine.delete(&format!("/{index}"));
    }
}

#[test]
fn a_shard_that_is_away_keeps_no_other_index_waiting() {
    for engine in Engine::all() {
        let prefix = rig::unique_prefix();
        let (away, well) = (format!("{prefix}-away"), format!("{prefix}-well"));
        let nowhere = json!({"settings": {"number_of_replicas": 0, "index.routing.allocation.require.box": "none"}});
        engine.put(&format!("/{away}?wait_for_active_shards=0"), &nowhere);
        // an engine waits a minute for a shard if it is not told otherwise, which would be too late
        let mut work = Work::start(Config { request_timeout: Duration::from_secs(2), ..config(&engine.url) });
        let both = |n: usize| [event(&away, &format!("{n}"), json!({})), event(&well, &format!("{n}"), json!({}))];
        work.send(&(0..10).flat_map(both).collect::<Vec<_>>());
        work.await_fates(10);
        assert_eq!((work.told.tally.created, engine.docs(&well).len()), (10, 10), "{}", engine.name);
        engine.put(&format!("/{away}/_settings"), &json!({"index.routing.allocation.require.box": null}));
        assert_eq!(work.end().tally.created, 20, "{}", engine.name);
        engine.delete(&format!("/{away},{well}"));
    }
}

#[test]
fn a_dead_host_is_passed_over_and_tried_again() {
    let engine = Engine::opensearch();
    let index = rig::unique_prefix();
    let is_dead = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let dead = is_dead.clone();
    let dying = Proxy::new(&engine.url, move |_| if dead.load(Relaxed) { Fault::CutBefore } else { Fault::None });
    let well = Proxy::new(&engine.url, |_| Fault::None);
    let hosts = vec![dying.url.clone(), well.url.clone()];
    let mut work = Work::start(Config { hosts, requests_in_flight_max: 1, ..config("") });
    let mut sent = 0;
    let mut send = |work: &mut Work| {
        work.send(&events(&index, sent..sent + 10));
        sent += 10;
        work.await_fates(sent as u64);
    };
    (0..10).for_each(|_| send(&mut work));
    assert_eq!((dying.faults().len(), well.faults().len()), (5, 5), "they take turns");
    is_dead.store(true, Relaxed);
    (0..20).for_each(|_| send(&mut work));
    assert_eq!((dying.faults().len(), well.faults().len()), (6, 25), "the dead one is tried once");
    is_dead.store(false, Relaxed);
    let started = Instant::now();
    while dying.faults().len() == 6 {
        assert!(started.elapsed() < SECS_MAX, "it is never tried again");
        send(&mut work);
        std::thread::sleep(Duration::from_millis(100));
    }
    (0..10).for_each(|_| send(&mut work));
    assert!(dying.faults().len() >= 11, "they take turns again");
    let told = work.end();
    assert_eq!((told.tally.created, told.tally.duplicates), (sent as u64, 0));
    assert_eq!(engine.docs(&index).len(), sent);
    engine.delete(&format!("/{index}"));
}

/// The answer to one request comes as the answer to another, with as many items.
#[test]
fn an_answer_to_another_request_settles_nothing() {
    for engine in Engine::all() {
        let index = rig::unique_prefix();
        // every third answer is the one before it again, and its request never arrives
        let proxy = Proxy::new(&engine.url, |n| if n % 3 == 2 { Fault::Stale } else { Fault::None });
        let mut work = Work::start(Config { requests_in_flight_max: 1, ..config(&proxy.url) });
        for n in 0..30 {
            work.send(&events(&index, n * 10..n * 10 + 10));
            work.await_fates(n as u64 * 10 + 10);
        }
        let told = work.end();
        assert_eq!((told.tally.created, told.tally.duplicates), (300, 0), "{}", engine.name);
        assert_eq!(engine.docs(&index).len(), 300, "{}", engine.name);
        assert!(proxy.faults().contains(&Fault::Stale));
        engine.delete(&format!("/{index}"));
    }
}

#[test]
fn lost_answers_make_no_second_document() {
    for engine in Engine::all() {
        let index = rig::unique_prefix();
        let faults = [Fault::CutAnswer, Fault::CutDelivered, Fault::CutBefore, Fault::Garble, Fault::Truncate];
        let proxy = Proxy::new(&engine.url, move |n| if n % 2 == 0 { faults[n / 2 % 5] } else { Fault::None });
        let parcels: Vec<Vec<Event>> = (0..20).map(|n| events(&index, n * 50..n * 50 + 50)).collect();
        let told = run(config(&proxy.url), &parcels);
        assert_eq!(told.tally.created + told.tally.duplicates, 1000, "{}", engine.name);
        assert_eq!(engine.docs(&index).len(), 1000, "{}", engine.name);
        engine.delete(&format!("/{index}"));
    }
}

/// What a strict start says; none if it starts.
fn refusal(engine: &Engine, pattern: &str, sample: Option<&str>) -> Option<String> {
    let strict = Config {
        strict: true,
        index_pattern: pattern.to_string(),
        index_sample: sample.map(str::to_string),
        ..config(&engine.url)
    };
    let (slots, parcels) = queue(1);
    drop(slots);
    let (acks, _settled) = Acks::channel();
    let (_phase, phases) = watch::channel(Phase::Running);
    let output = Box::new(Elasticsearch::new(strict).expect("an output"));
    output.run(parcels, acks, phases).err().map(|error| format!("{error:#}"))
}

#[test]
fn targets_that_roll_over_are_refused() {
    let check = |engine: &Engine, pattern: &str, sample: Option<&str>, want: Option<&str>| {
        let got = refusal(engine, pattern, sample);
        match (&got, want) {
            (None, None) => {}
            (Some(got), Some(want)) if got.contains(want) && got.contains("strict = false") => {}
            _ => panic!("{} {pattern}: {got:?}, not {want:?}", engine.name),
        }
    };
    for engine in Engine::all() {
        let p = rig::unique_prefix();
        engine.put(&format!("/{p}-000001"), &json!({"aliases": {format!("{p}-sales"): {"is_write_index": false}}}));
        engine.put(&format!("/{p}-000002"), &json!({"aliases": {format!("{p}-sales"): {"is_write_index": true}}}));
        check(engine, &format!("{p}-sales"), None, Some(&format!("write index is {p}-000002")));
        check(engine, &format!("{p}-plain"), None, None);
        check(engine, &format!("{p}-*"), Some(&format!("{p}-2026.02.02")), None);
        if engine.name == "opensearch" {
            let stream = json!({"index_patterns": [format!("{p}-ds*")], "priority": 500, "data_stream": {}});
            engine.put(&format!("/_index_template/{p}"), &stream);
            check(engine, &format!("{p}-ds"), None, Some("makes"));
            engine.put(&format!("/_data_stream/{p}-ds"), &json!({}));
            check(engine, &format!("{p}-ds"), None, Some("is a data stream"));
            check(engine, &format!("{p}-*"), Some(&format!("{p}-2026.02.02")), None);
            engine.delete(&format!("/_data_stream/{p}-ds"));
            engine.delete(&format!("/_index_template/{p}"));
        }
        engine.delete(&format!("/{p}-000001,{p}-000002"));
    }
}

#[test]
fn a_template_is_installed_and_never_taken_from_others() {
    for engine in Engine::all() {
        let p = rig::unique_prefix();
        let with = |shards| Config {
            template: Some(Template {
                name: p.clone(),
                index_pattern: format!("{p}-*"),
                shards,
                replicas: 0,
                ..Template::default()
            }),
            ..config(&engine.url)
        };
        let index = format!("{p}-a");
        let source = json!({"@timestamp": "2026-02-02T00:00:00.123456789Z", "message": "hello there", "host": "web"});
        assert_eq!(run(with(1), &[vec![event(&index, "1", source)]]).tally.created, 1, "{}", engine.name);
        let state = engine.get(&format!("/_cluster/state/metadata/{index}")).json();
        assert_eq!(state["metadata"]["indices"][&index]["routing_num_shards"], 720, "{}", engine.name);
        let mapping = engine.get(&format!("/{index}/_mapping")).json();
        let kinds = &mapping[&index]["mappings"]["properties"];
        assert_eq!((&kinds["host"]["type"], &kinds["message"]["type"]), (&json!("keyword"), &json!("text")));
        // the same again, and a changed one of our own
        run(with(1), &[]);
        run(with(2), &[]);
        let ours = engine.get(&format!("/_index_template/{p}")).json();
        assert_eq!(
            ours["index_templates"][0]["index_template"]["template"]["settings"]["index"]["number_of_shards"],
            "2"
        );
        engine.put(&format!("/_index_template/{p}"), &json!({"index_patterns": [format!("{p}-*")], "priority": 200}));
        let (_slots, parcels) = queue(1);
        let (acks, _settled) = Acks::channel();
        let (_phase, phases) = watch::channel(Phase::Running);
        let error = Box::new(Elasticsearch::new(with(1)).expect("an output")).run(parcels, acks, phases);
        assert!(format!("{:#}", error.expect_err("a refusal")).contains("not made by onceline"), "{}", engine.name);
        engine.delete(&format!("/_index_template/{p}"));
        engine.delete(&format!("/{index}"));
    }
}
