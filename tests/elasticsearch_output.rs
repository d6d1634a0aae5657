//! The output to Elasticsearch and OpenSearch, called directly with parcels made by hand: against a scripted bulk
//! endpoint and against the real engines.

mod rig;

use std::collections::BTreeMap;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use onceline::ack::{Acks, Letter, Message, Receipt, Tally};
use onceline::output::elasticsearch::{Compression, Config, Elasticsearch, Kind, Login, Template};
use onceline::output::{Action, Item, Output, Parcel, Phase, Slots, queue};
use onceline::secret::Kept;
use rig::{Engine, Fault, Proxy, Stub};
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

/// Events as `(index, id, source)`.
type Event = (String, String, Value);

fn event(index: &str, id: &str, source: Value) -> Event {
    (index.to_string(), id.to_string(), source)
}

fn parcel(action: Action, number: u64, events: &[Event]) -> Parcel {
    let receipt = Receipt::new(0, number, None);
    receipt.open(events.len());
    let mut parcel =
        Parcel { body: Vec::new().into(), items: Vec::new(), indices: Vec::new(), source: "test".into(), receipt };
    for (n, (index, id, source)) in events.iter().enumerate() {
        let at = parcel.indices.iter().position(|name| **name == **index).unwrap_or_else(|| {
            parcel.indices.push(index.as_str().into());
            parcel.indices.len() - 1
        });
        let head_at = parcel.body.len() as u32;
        let head = json!({ (action.as_str()): {"_index": index, "_id": id} });
        parcel.body.extend_from_slice(format!("{head}\n").as_bytes());
        let source_at = parcel.body.len() as u32;
        parcel.body.extend_from_slice(format!("{source}\n").as_bytes());
        let end = parcel.body.len() as u32;
        let id_hash = id.bytes().fold(1u32, |hash, b| hash.wrapping_mul(31).wrapping_add(b.into()));
        parcel.items.push(Item { head_at, source_at, end, index: at as u32, id_hash, offset: n as u64 });
    }
    parcel
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
        let events: Vec<Event> = (0..100)
            .map(|n| {
                event(&index, &format!("{n:03}"), if n % 10 == 3 { json!({"n": "three"}) } else { json!({"n": n}) })
            })
            .collect();
        let told = run(config(&engine.url), &[events]);
        assert_eq!((told.tally.created, told.letters.len(), told.tally.retries), (90, 10, 0), "{}", engine.name);
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
fn closed_and_blocked_indices_are_held_while_others_go_on() {
    for engine in Engine::all() {
        let prefix = rig::unique_prefix();
        let name = |end: &str| format!("{prefix}-{end}");
        engine.put(&format!("/{}", name("closed")), &json!({}));
        // without a body: Elasticsearch refuses one here
        let post = |path: String| {
            let answer = engine.request("POST", &path, &Vec::new(), b"").expect("an answer");
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        };
        post(format!("/{}/_close", name("closed")));
        engine.put(&format!("/{}", name("blocked")), &json!({"settings": {"index.blocks.write": true}}));
        let mut work = Work::start(config(&engine.url));
        let round = |n: usize| -> Vec<Event> {
            ["closed", "well", "blocked"].map(|end| event(&name(end), &format!("{n}"), json!({"n": n}))).to_vec()
        };
        (0..5).for_each(|n| work.send(&round(n)));
        work.await_fates(5);
        assert_eq!((work.told.tally.created, engine.docs(&name("well")).len()), (5, 5), "{}", engine.name);
        post(format!("/{}/_open", name("closed")));
        work.await_fates(10);
        assert_eq!(engine.docs(&name("closed")).len(), 5, "{}", engine.name);
        engine.put(&format!("/{}/_settings", name("blocked")), &json!({"index.blocks.write": null}));
        let told = work.end();
        assert_eq!((told.claims, told.tally.created, told.letters.len()), (15, 15, 0), "{}", engine.name);
        assert_eq!(engine.docs(&name("blocked")).len(), 5, "{}", engine.name);
        engine.delete(&format!("/{prefix}-closed,{prefix}-blocked,{prefix}-well"));
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
