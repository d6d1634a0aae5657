//! An engine that fails while the program runs: what is stored in the end, and what the log says of it.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::json;

use super::rig::{Engine, Onceline, OwnEngine, Run, Stub, unique_prefix};

const AWAY: &str = "the engine cannot be written to";
const AGAIN: &str = "the engine takes events again";

fn pipeline(url: &str, name: &str, output: &str, tuning: &str) -> String {
    format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [id]
        scheme = "compact"
        method = "SHA1"
        [index]
        name = "{name}"
        [output]
        type = "elasticsearch"
        hosts = ["{url}"]
        {output}
        [tuning]
        {tuning}
        "#
    )
}

const SMALL_BATCHES: &str = "batch_bytes = \"16KiB\"";

const SHORT_WAITS: &str = "retry_wait_min = \"20ms\"\nretry_wait_max = \"500ms\"\nbulk_items_max = 200";

fn line(n: usize) -> String {
    format!("{{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"n\":{n},\"app\":\"{}\"}}\n", ["a", "b"][n % 2])
}

fn lines(count: usize) -> Vec<u8> {
    (0..count).map(line).collect::<String>().into_bytes()
}

/// Waits for what must come, and fails when it does not.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn count(engine: &Engine, index: &str) -> u64 {
    engine.get(&format!("/{index}/_refresh"));
    engine.get(&format!("/{index}/_count")).json()["count"].as_u64().unwrap_or(0)
}

/// Each of these stands in one line of the log, in this order, and nothing else does but what every run says.
fn assert_said(run: &Run, parts: &[&str]) {
    let said: Vec<&str> = run
        .stderr
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("ERROR") || parts.iter().any(|part| line.contains(part)))
        .collect();
    assert_eq!(said.len(), parts.len(), "{}", run.stderr);
    for (line, part) in said.iter().zip(parts) {
        assert!(line.contains(part), "not {part}: {}", run.stderr);
    }
}

#[test]
fn killed_in_mid_bulk_and_started_again() {
    let engine = OwnEngine::start();
    let onceline = Onceline::new(&pipeline(&engine.url, "logs", SHORT_WAITS, SMALL_BATCHES));
    // as fast as it is taken, until the engine was away and is back
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (told, sent) = std::sync::mpsc::channel();
    let running = onceline.start_fed(move |mut pipe| {
        let mut n = 0;
        while stopped.try_recv().is_err() {
            let block: String = (n..n + 200).map(line).collect();
            pipe.write_all(block.as_bytes()).expect("a program that reads");
            n += 200;
        }
        told.send(n as u64).expect("somebody who waits");
    });
    until("some documents", || count(&engine, "logs") > 1000);
    engine.kill();
    engine.start_again();
    let before = count(&engine, "logs");
    until("more documents", || count(&engine, "logs") > before + 1000);
    stop.send(()).expect("a feeder");
    let run = running.wait().settled();
    let sent = sent.recv().expect("a number");
    assert_eq!((run.count("events_in"), count(&engine, "logs")), (sent, sent));
    assert_said(&run, &[AWAY, AGAIN]);

    // down at the start: said once, and on it goes by itself
    engine.kill();
    let running = onceline.start(&lines(1000));
    std::thread::sleep(Duration::from_secs(2));
    engine.start_again();
    let run = running.wait().settled();
    assert_eq!(run.counts(["events_in", "dead_lettered"]), [1000, 0]);
    assert_eq!(count(&engine, "logs"), sent.max(1000));
    assert_said(&run, &[AWAY, AGAIN]);
}

/// An index that is closed, beside one that is not.
struct Closed<'a> {
    engine: &'a Engine,
    prefix: String,
}

impl Closed<'_> {
    fn new(engine: &Engine) -> Closed<'_> {
        let closed = Closed { engine, prefix: unique_prefix() };
        engine.put(&format!("/{}", closed.a()), &json!({}));
        closed.post("_close");
        closed
    }

    fn a(&self) -> String {
        format!("{}-a", self.prefix)
    }

    fn post(&self, what: &str) {
        let path = format!("/{}/{what}", self.a());
        let answer = self.engine.request("POST", &path, &Vec::new(), b"").expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }

    /// How many are stored in the closed index, once it is open, and in the other.
    fn counts(&self) -> (u64, u64) {
        (count(self.engine, &self.a()), self.others())
    }

    fn others(&self) -> u64 {
        count(self.engine, &format!("{}-b", self.prefix))
    }

    fn onceline(&self, tuning: &str) -> Onceline {
        Onceline::new(&pipeline(&self.engine.url, &format!("{}-%{{app}}", self.prefix), SHORT_WAITS, tuning))
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.engine.delete(&format!("/{0}-a,{0}-b", self.prefix));
    }
}

const HELD: &str = "the index takes no events";
const TAKEN: &str = "the index takes events again";

#[test]
fn a_host_of_several_dies_and_comes_back() {
    let dying = OwnEngine::start();
    for engine in Engine::all() {
        let index = unique_prefix();
        let hosts = format!("{}\", \"{}", dying.url, engine.url);
        let onceline = Onceline::new(&pipeline(&hosts, &index, SHORT_WAITS, SMALL_BATCHES));
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let (told, sent) = std::sync::mpsc::channel();
        let running = onceline.start_fed(move |mut pipe| {
            let mut n = 0;
            while stopped.try_recv().is_err() {
                pipe.write_all(line(n).as_bytes()).expect("a program that reads");
                n += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            told.send(n).expect("somebody who waits");
        });
        until("documents in both", || count(&dying, &index) > 3 && count(engine, &index) > 3);
        dying.kill();
        running.until_said("a host fails", 1);
        let before = count(engine, &index);
        until("documents in the other one", || count(engine, &index) > before + 3);
        dying.start_again();
        running.until_said("a host that failed answers again", 1);
        stop.send(()).expect("a feeder");
        let run = running.wait().settled();
        assert_said(&run, &["a host fails", "a host that failed answers again"]);
        // they are no cluster: what the one stored without answering is in both
        let docs = [dying.docs(&index), engine.docs(&index)].concat();
        let stored: BTreeSet<u64> = docs.iter().filter_map(|doc| doc.source["n"].as_u64()).collect();
        assert_eq!(stored, (0..sent.recv().expect("a number") as u64).collect(), "{}", engine.name);
        engine.delete(&format!("/{index}"));
    }
}

/// What a field of a line of the log says.
fn field(line: &str, name: &str) -> u64 {
    let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {line}"))
}

#[test]
fn what_is_held_fills_the_bytes_in_flight_and_it_is_said() {
    for engine in Engine::all() {
        let closed = Closed::new(engine);
        let onceline = closed.onceline(&format!("{SMALL_BATCHES}\nbytes_in_flight_max = \"1MiB\""));
        let running = onceline.start(&lines(40_000));
        // the other index goes on as long as there is room
        let mut last = (0, Instant::now());
        until("a standstill", || {
            let now = closed.others();
            if now != last.0 {
                last = (now, Instant::now());
            }
            now > 0 && last.1.elapsed() > Duration::from_secs(3)
        });
        assert!(last.0 > 2500 && last.0 < 19_000, "{} events got through", last.0);
        closed.post("_open");
        let run = running.wait().settled();
        assert_eq!(run.counts(["events_in", "created"]), [40_000, 40_000], "{}", engine.name);
        assert_eq!(closed.counts(), (20_000, 20_000), "{}", engine.name);
        let full = "are together more than bytes_in_flight_max: nothing more is read";
        assert_said(&run, &[HELD, full, TAKEN, "reading goes on"]);
        let line = run.stderr.lines().find(|line| line.contains(full)).expect("a line");
        let [held, batch, max] =
            ["held_bytes", "next_batch_bytes", "bytes_in_flight_max"].map(|name| field(line, name));
        assert!(held > 0 && batch > 0 && max == 1 << 20 && held + batch > max, "{line}");
        assert!(run.stderr.contains(&format!("indices={}", closed.a())), "{}", run.stderr);
    }
}

/// The batches that they came in would fill it many times over.
#[test]
fn what_is_held_takes_no_more_room_than_it_needs() {
    let text = |n: usize| line(if n.is_multiple_of(100) { n } else { n * 2 + 1 });
    let all: String = (0..40_000).map(text).collect();
    for engine in Engine::all() {
        let closed = Closed::new(engine);
        let onceline = closed.onceline("batch_bytes = \"128KiB\"\nbytes_in_flight_max = \"1MiB\"");
        let running = onceline.start(all.as_bytes());
        until("all others", || closed.others() == 39_600);
        closed.post("_open");
        let run = running.wait().settled();
        assert_eq!(run.counts(["events_in", "created"]), [40_000, 40_000], "{}", engine.name);
        assert_eq!(closed.counts(), (400, 39_600), "{}", engine.name);
        assert_said(&run, &[HELD, TAKEN]);
    }
}

/// Whether the target rolls over is asked before the first event, also if nobody is let in at first.
#[test]
fn credentials_are_wrong_at_the_start() {
    let stub = Stub::new("").wants_of_all("ApiKey right-key");
    let output = format!("{SHORT_WAITS}\napi_key_file = \"{{dir}}/key\"");
    let onceline = Onceline::new(&pipeline(&stub.url, "logs", &output, SMALL_BATCHES));
    std::fs::write(onceline.path("key"), "wrong-key\n").expect("write the key");
    let running = onceline.start(&lines(100));
    running.until_said("the engine refuses us", 1);
    assert!(stub.bulks().is_empty());
    std::fs::write(onceline.path("key"), "right-key\n").expect("write the key");
    let run = running.wait().settled();
    assert_eq!(run.count("created"), 100);
    assert!(!run.stderr.contains("not checked whether it rolls over"), "{}", run.stderr);
}

#[test]
fn credentials_are_revoked_and_renewed() {
    let stub = Stub::new("").wants("ApiKey old-key");
    let output = format!("{SHORT_WAITS}\napi_key_file = \"{{dir}}/key\"");
    let onceline = Onceline::new(&pipeline(&stub.url, "logs", &output, SMALL_BATCHES));
    std::fs::write(onceline.path("key"), "old-key\n").expect("write the key");
    let (more, wanted) = std::sync::mpsc::channel::<()>();
    let running = onceline.start_fed(move |mut pipe| {
        let all = lines(2000);
        let (first, second) = all.split_at(lines(1000).len());
        pipe.write_all(first).expect("a program that reads");
        wanted.recv().expect("more to be wanted");
        pipe.write_all(second).expect("a program that reads");
    });
    until("the first half", || stub.docs().len() == 1000);
    stub.wants_now("ApiKey new-key");
    let before = stub.bulks().len();
    more.send(()).expect("a feeder");
    until("refusals", || stub.bulks().len() > before + 10);
    assert_eq!(stub.docs().len(), 1000);
    std::fs::write(onceline.path("key"), "new-key\n").expect("write the key");
    let run = running.wait().settled();
    assert_eq!(run.count("events_in"), run.count("created"));
    assert_said(&run, &["the engine refuses us", AGAIN]);
    assert!(!run.stderr.contains("ApiKey") && !run.stderr.contains("-key"), "{}", run.stderr);
}
