//! The real engines through the program: what is found after a repeat, a lost answer, a kill.

use std::collections::BTreeSet;
use std::io::Write;

use rustix::process::Signal;
use serde_json::json;

use super::rig::{Doc, Engine, Fault, Onceline, Proxy, Run, Running, Stub, unique_prefix, until};

/// `count` events of two days, each a line; `{prefix}` and the day name the index.
fn events(count: usize) -> Vec<u8> {
    let event = |n: usize| {
        let day = 1 + n % 2;
        format!("{{\"@timestamp\":\"2026-03-0{day}T10:00:00Z\",\"n\":{n},\"message\":\"event {n}\"}}\n")
    };
    (0..count).map(event).collect::<String>().into_bytes()
}

fn pipeline(url: &str, prefix: &str, action: &str) -> String {
    format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [id]
        scheme = "compact"
        method = "SHA1"
        [index]
        name = "{prefix}-%{{+yyyy.MM.dd}}"
        [output]
        type = "elasticsearch"
        hosts = ["{url}"]
        action = "{action}"
        retry_wait_min = "20ms"
        retry_wait_max = "200ms"
        bulk_items_max = 100
        [tuning]
        batch_bytes = "8KiB"
        "#
    )
}

fn documents(engine: &Engine, prefix: &str) -> Vec<Doc> {
    engine.docs(&format!("{prefix}-*"))
}

/// Exactly the events, each once and in its index.
fn assert_all(docs: &[Doc], count: usize, prefix: &str) {
    let numbers: BTreeSet<_> = docs.iter().map(|doc| doc.source["n"].as_u64()).collect();
    assert_eq!((docs.len(), numbers.len()), (count, count), "{prefix}");
    for doc in docs {
        let day = doc.source["@timestamp"].as_str().expect("a time")[..10].replace('-', ".");
        assert_eq!(doc.index, format!("{prefix}-{day}"));
    }
}

#[test]
fn run_twice_leaves_the_same_documents() {
    for engine in Engine::all() {
        for (action, version) in [("index", 2), ("create", 1)] {
            let prefix = unique_prefix();
            let onceline = Onceline::new(&pipeline(&engine.url, &prefix, action));
            let input = events(500);
            let explained = onceline.explain(&input);
            assert_eq!(onceline.run(&input).settled().counts(["created", "duplicates"]), [500, 0], "{}", engine.name);
            let first = documents(engine, &prefix);
            assert_all(&first, 500, &prefix);
            assert!(first.iter().all(|doc| doc.version == 1));
            assert_eq!(onceline.run(&input).settled().counts(["created", "duplicates"]), [0, 500], "{}", engine.name);
            let second = documents(engine, &prefix);
            assert!(second.iter().all(|doc| doc.version == version), "{} {action}", engine.name);
            let place = |doc: &Doc| (json!(doc.index), json!(doc.id), doc.source.clone());
            let mut foretold: Vec<_> =
                explained.iter().map(|l| (l["index"].clone(), l["id"].clone(), l["event"].clone())).collect();
            foretold.sort_by_key(|(index, id, _)| (index.to_string(), id.to_string()));
            assert_eq!(first.iter().map(place).collect::<Vec<_>>(), foretold, "{} {action}", engine.name);
            assert_eq!(second.iter().map(place).collect::<Vec<_>>(), foretold, "{} {action}", engine.name);
        }
    }
}

#[test]
fn a_lost_answer_leaves_no_duplicates() {
    let faults = [Fault::CutDelivered, Fault::CutAnswer, Fault::CutBefore, Fault::Truncate, Fault::Garble, Fault::None];
    for engine in Engine::all() {
        for action in ["index", "create"] {
            let (prefix, proxy) = (unique_prefix(), Proxy::new(&engine.url, move |n| faults[n % faults.len()]));
            let run = Onceline::new(&pipeline(&proxy.url, &prefix, action)).run(&events(1000)).settled();
            assert_eq!(run.counts(["events_in", "dead_lettered"]), [1000, 0], "{} {action}", engine.name);
            assert_all(&documents(engine, &prefix), 1000, &prefix);
            let seen = proxy.faults();
            assert!(faults.iter().all(|fault| seen.contains(fault)), "not enough requests: {seen:?}");
            assert!(run.count("retries") > 0);
        }
    }
}

#[test]
fn killed_and_repeated_leaves_the_same_documents() {
    for engine in Engine::all() {
        let (prefix, input) = (unique_prefix(), events(4000));
        let proxy = Proxy::new(&engine.url, |_| Fault::None);
        let onceline = Onceline::new(&pipeline(&proxy.url, &prefix, "index"));
        // the second half never comes
        let running = onceline.start_open(&input[..input.len() / 2]);
        until("some requests", || proxy.faults().len() >= 6);
        running.signal(Signal::KILL);
        assert_eq!(running.wait().status, None);
        let before = documents(engine, &prefix).len();
        assert!(before > 0 && before < 4000, "killed with {before} documents");
        let run = onceline.run(&input).settled();
        assert_eq!(run.count("events_in"), 4000);
        assert_all(&documents(engine, &prefix), 4000, &prefix);
    }
}

#[test]
fn events_that_do_not_fit_the_mapping_are_dead_letters() {
    for engine in Engine::all() {
        let prefix = unique_prefix();
        for day in ["2026.03.01", "2026.03.02"] {
            let mapping = json!({"mappings": {"properties": {"n": {"type": "long"}}}});
            assert_eq!(engine.put(&format!("/{prefix}-{day}"), &mapping).status, 200);
        }
        let mut input = Vec::new();
        for n in 0..300 {
            let value = if n % 10 == 9 { format!("\"no number {n}\"") } else { n.to_string() };
            writeln!(input, "{{\"@timestamp\":\"2026-03-0{}T10:00:00Z\",\"n\":{value}}}", 1 + n % 2).expect("write");
        }
        let onceline = Onceline::new(&pipeline(&engine.url, &prefix, "index"));
        let run = onceline.run(&input).settled();
        assert_eq!(run.counts(["created", "dead_lettered"]), [270, 30], "{}", engine.name);
        assert_all(&documents(engine, &prefix), 270, &prefix);
        for letter in &run.dead_letters {
            assert_eq!((&letter["reason"], &letter["status"]), (&json!("rejected"), &json!(400)));
            assert!(letter["event"]["n"].as_str().is_some_and(|n| n.starts_with("no number")), "{letter}");
            assert!(
                letter["error"]["type"].as_str().is_some_and(|kind| kind.ends_with("parsing_exception")),
                "{letter}"
            );
            assert!(letter["id"].is_string() && letter["index"].is_string() && letter["action"] == "index");
        }
    }
}

/// Feeds events until the program no longer reads.
fn endless(onceline: &Onceline) -> Running<'_> {
    onceline.start_fed(|mut pipe| {
        let block = events(1000);
        while pipe.write_all(&block).is_ok() {}
    })
}

#[test]
fn a_signal_ends_with_the_truth() {
    for signal in [Signal::TERM, Signal::INT] {
        let stub = Stub::new("");
        let onceline = Onceline::new(&pipeline(&stub.url, "orders", "index"));
        let running = endless(&onceline);
        until("some requests", || stub.bulks().len() >= 3);
        running.signal(signal);
        // what was read is delivered, and nothing more is read: whether something waits in the pipe is chance
        let run: Run = running.wait().adds_up();
        assert_eq!((run.status == Some(1), run.count("unsettled")), (run.stderr.contains("not read is left"), 0));
        let sent: usize = stub.bulks().iter().map(|bulk| bulk.ops.len()).sum();
        assert_eq!(run.count("events_in"), sent as u64);
        assert_eq!(run.count("created"), stub.docs().len() as u64);
        assert!(run.count("duplicates") + run.count("created") == sent as u64);
    }
}

#[test]
fn a_second_signal_says_what_is_not_settled() {
    let stub = Stub::new("").then(429);
    let onceline = Onceline::new(&pipeline(&stub.url, "orders", "index"));
    let running = onceline.start(&events(50));
    until("a request", || !stub.bulks().is_empty());
    running.signal(Signal::TERM);
    until("more requests", || stub.bulks().len() >= 3);
    running.signal(Signal::TERM);
    let run = running.wait().adds_up();
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert_eq!(run.counts(["events_in", "created", "unsettled"]), [50, 0, 50]);
    assert!(run.stderr.contains("50 events not settled"), "{}", run.stderr);
}
