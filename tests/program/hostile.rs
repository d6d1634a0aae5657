//! Hostile events: whatever stands in them, each is one document in its own index, or a dead letter.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use onceline::batch::{Batch, Source};
use onceline::codec::Block;
use onceline::output::{Action, Form};
use onceline::pipeline::pack::Packer;
use onceline::pipeline::{Pipeline, read};
use onceline::pool::Pool;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::rig::{Engine, Onceline, Stub, unique_prefix};

/// Id and part of the index are what the event says.
fn pipeline(prefix: &str, bad_name: &str, output: &str) -> String {
    format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [time]
        missing = "now"
        [id]
        scheme = "field"
        field = "%{{id}}"
        [index]
        name = "{prefix}-%{{t}}-end"
        strict = false
        bad_name = "{bad_name}"
        [output]
        {output}
        "#
    )
}

fn values() -> Vec<String> {
    let mut values: Vec<String> = [
        "plain",
        "UPPER",
        "a\nb",
        "a\r\nb",
        "\"}}\n{\"delete\":{\"_index\":\"other\",\"_id\":\"x\"}}\n",
        "a\"b",
        "a\\b",
        "\\",
        "a\0b",
        "\u{1b}[31m",
        "../../_all",
        "..",
        ".",
        "a/b",
        "a,b",
        "*",
        "?",
        "<logs-{now/d}>",
        "%3Clogs-%7Bnow%2Fd%7D%3E",
        "%2f",
        "%00",
        "a b",
        " ",
        "#",
        "a:b",
        "remote:index",
        "-minus",
        "_all",
        "+",
        "\u{2028}",
        "\u{2029}",
        "\u{85}",
        "\u{feff}",
        "\u{202e}",
        "e\u{301}",
        "\u{1f4a9}",
        "\u{fffd}",
        "_bulk?refresh",
        ".kibana",
        "|",
        "a'; DROP TABLE x; --",
        "%{id}",
        "${HOME}",
    ]
    .map(str::to_owned)
    .to_vec();
    values.push("x".repeat(1000));
    values.push("é".repeat(250));
    values
}

fn lines() -> Vec<u8> {
    lines_of(1)
}

/// A line for each value, and some that are no text of JSON's own; every n-th value as an index too.
fn lines_of(nth: usize) -> Vec<u8> {
    let mut lines = Vec::new();
    for (n, value) in values().into_iter().enumerate() {
        lines.extend_from_slice(format!("{}\n", json!({"id": value, "t": "ids", "v": value})).as_bytes());
        if n.is_multiple_of(nth) {
            let event = json!({"id": format!("t{value}"), "t": value, (&value): 1});
            lines.extend_from_slice(format!("{event}\n").as_bytes());
        }
    }
    lines.extend_from_slice(b"{\"id\":\"\\ud800\",\"t\":\"surrogate\\udc00\",\"\\ud800\":\"\\udfff\"}\n");
    lines.extend_from_slice(b"{\"id\":\"\xff\xfe\",\"t\":\"\xc0\xaf\"}\n");
    lines
}

fn plan(bad_name: &str) -> Pipeline {
    let text = pipeline("p", bad_name, "type = \"stdout\"");
    let now = onceline::time::Time::rfc3339(b"2026-03-01T12:00:00Z");
    let options = read::Options { now, ..read::Options::default() };
    let (plan, report) = read::read(Path::new("hostile.toml"), text.as_bytes(), &options, &|_| None);
    plan.unwrap_or_else(|| panic!("{}", report.render(false))).pipeline
}

/// Packs the lines, and looks whether the body is exactly their events: two lines each, and nothing else in them.
fn assert_body(pipeline: &Pipeline, lines: &[u8]) {
    let block = Block { bytes: lines.to_vec().into(), offset: 0, too_long: None, mark: None, records: None };
    let (mut records, mut batch) = (Vec::new(), Batch::default());
    pipeline.transform(0, block, Arc::new(Source::default()), &mut records, &mut batch);
    let packed = Packer::new(pipeline, Form::Bulk(Action::Index), Pool::default()).pack(&batch);
    assert_eq!(packed.items.len() + packed.letters.len() + packed.dropped as usize, batch.len());
    let body: Vec<&[u8]> = packed.body.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(body.len(), packed.items.len() * 2, "{}", String::from_utf8_lossy(&packed.body));
    let whole: BTreeMap<u64, Value> = lines
        .split(|byte| *byte == b'\n')
        .scan(0, |at, line| {
            let from = *at;
            *at += line.len() as u64 + 1;
            Some((from, serde_json::from_slice(line).unwrap_or(Value::Null)))
        })
        .collect();
    for (item, pair) in packed.items.iter().zip(body.chunks(2)) {
        let (action, source): (Value, Value) =
            (serde_json::from_slice(pair[0]).expect("JSON"), serde_json::from_slice(pair[1]).expect("JSON"));
        let inner = action["index"].as_object().expect("an action");
        assert_eq!((action.as_object().map(|o| o.len()), inner.len()), (Some(1), 2), "{action}");
        let (index, id) = (inner["_index"].as_str().expect("an index"), inner["_id"].as_str().expect("an id"));
        assert!(index.starts_with("p-") && index.ends_with("-end") && index.len() <= 255, "{index}");
        assert!(!index.contains(['\\', '/', '*', '?', '"', '<', '>', '|', ' ', ',', '#', ':', '\n', '\0']), "{index}");
        let event = &whole[&item.offset];
        // where serde reads the line too, it says the same
        if !event.is_null() {
            assert_eq!(&id, &event["id"].as_str().expect("an id"));
            let mut event = event.clone();
            event["@timestamp"] = source["@timestamp"].clone();
            assert_eq!(source, event);
        }
    }
}

#[test]
fn a_body_is_its_events_and_nothing_else() {
    for bad_name in ["dead-letter", "repair"] {
        assert_body(&plan(bad_name), &lines());
    }
}

proptest! {
    #[test]
    fn any_body_is_its_events_and_nothing_else(
        events in prop::collection::vec((".{1,40}", "\\PC{0,8}|.{0,8}|[a-z]{1,5}", ".{0,10}", any::<i64>()), 1..8),
    ) {
        let mut lines = Vec::new();
        for (id, t, key, number) in events {
            let key = if matches!(key.as_str(), "id" | "t" | "@timestamp" | "tags") { "k".to_owned() } else { key };
            let event = json!({"id": id, "t": t, (&key): {(&t): [id, number]}});
            writeln!(lines, "{event}").expect("write");
        }
        for bad_name in ["dead-letter", "repair"] {
            assert_body(&plan(bad_name), &lines);
        }
    }
}

fn output(url: &str) -> String {
    format!("type = \"elasticsearch\"\nhosts = [\"{url}/base/..;x/\"]")
}

#[test]
fn no_value_reaches_a_url() {
    let stub = Stub::new("");
    let run = Onceline::new(&pipeline("h", "repair", &output(&stub.url))).run(&lines()).adds_up();
    assert!(run.count("created") > 40, "{}", run.stderr);
    let bulks = stub.bulks();
    let path = bulks[0].path.clone();
    assert!(path.starts_with("/base/..;x/_bulk?timeout=30000ms&filter_path=errors,items.*.status"), "{path}");
    assert!(bulks.iter().all(|bulk| bulk.path == path));
    assert!(stub.docs().keys().all(|(index, _)| index.starts_with("h-") && index.ends_with("-end")));
}

#[test]
fn on_real_engines_each_hostile_event_is_one_document_or_a_letter() {
    for engine in Engine::all() {
        let prefix = unique_prefix();
        let output = format!("type = \"elasticsearch\"\nhosts = [\"{}\"]", engine.url);
        let onceline = Onceline::new(&pipeline(&prefix, "repair", &output));
        // an index takes an engine long
        let lines = lines_of(5);
        let run = onceline.run(&lines).settled();
        let docs = engine.docs(&format!("{prefix}*"));
        assert_eq!(run.count("events_in") as usize, lines.split(|byte| *byte == b'\n').count() - 1);
        assert_eq!(docs.len() as u64, run.count("created"), "{}: {}", engine.name, run.summary);
        for doc in &docs {
            assert!(doc.index.starts_with(&format!("{prefix}-")) && doc.index.ends_with("-end"), "{}", doc.index);
            if doc.index == format!("{prefix}-ids-end") {
                assert_eq!(doc.source["v"], doc.id.as_str());
            }
        }
        // ids have all values, but for those that no id may be: too long
        let ids = docs.iter().filter(|doc| doc.index == format!("{prefix}-ids-end")).count();
        assert_eq!(ids, values().iter().filter(|value| value.len() <= 512).count(), "{}", engine.name);
        for letter in &run.dead_letters {
            let reason = letter["reason"].as_str().unwrap_or_default();
            assert!(matches!(reason, "bad-index-name" | "id-too-long" | "rejected"), "{letter}");
        }
        let again = onceline.run(&lines).adds_up();
        assert_eq!(again.count("created"), 0, "{}", engine.name);
        assert_eq!(again.count("duplicates"), run.count("created"), "{}", engine.name);
    }
}

#[test]
fn a_catastrophic_pattern_costs_one_event_a_tag() {
    let onceline = Onceline::new(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [[filter]]
        type = "mutate"
        gsub = ["m", '^(?:(a|aa)(?=a|b))+\1c', "x"]
        [[filter]]
        type = "mutate"
        when = '[n] =~ /^(?:(a|aa)(?=a|b))+\1c/'
        replace = { n = "matched" }
        [[filter]]
        type = "mutate"
        gsub = ["k", "%{p}", "x"]
        [id]
        scheme = "hash"
        method = "SHA1"
        [index]
        name = "i"
        [output]
        type = "sqlite"
        path = "{dir}/out.sqlite"
        [time]
        missing = "now"
        "#,
    );
    let slow = format!("{}b", "a".repeat(200));
    let own = "(?=[[:alpha:]]{99}{99})".repeat(40);
    let events = [
        json!({"e": 0, "m": slow}),
        json!({"e": 1, "m": "aaac"}),
        json!({"e": 2, "n": slow}),
        json!({"e": 3, "n": "aaac"}),
        json!({"e": 4, "k": "text", "p": own}),
        json!({"e": 5, "k": "text", "p": "{".repeat(900_000)}),
        json!({"e": 6, "k": "text", "p": "e"}),
    ];
    let input: String = events.iter().map(|event| format!("{event}\n")).collect();
    onceline.run(input.as_bytes()).settled();
    let rows: BTreeMap<u64, Value> = onceline
        .rows("out.sqlite")
        .into_iter()
        .map(|row| (row.source["e"].as_u64().unwrap_or(99), row.source))
        .collect();
    let tags = |e: u64| rows[&e]["tags"].clone();
    assert_eq!((tags(0), &rows[&0]["m"]), (json!(["_mutate_error"]), &json!(slow)));
    assert_eq!(tags(1), Value::Null);
    assert_eq!((tags(2), &rows[&2]["n"]), (json!(["_conditionfailure"]), &json!(slow)));
    assert_eq!(tags(3), Value::Null);
    assert_eq!((tags(4), tags(5)), (json!(["_mutate_error"]), json!(["_mutate_error"])));
    assert_eq!((tags(6), &rows[&6]["k"]), (Value::Null, &json!("txxt")));
}

#[test]
fn a_bomb_is_left_and_other_files_are_read() {
    let onceline = Onceline::new(
        r#"
        [[input]]
        type = "file"
        paths = ["{dir}/logs/*"]
        [id]
        scheme = "hash"
        method = "SHA1"
        [index]
        name = "i"
        [output]
        type = "sqlite"
        path = "{dir}/out.sqlite"
        [time]
        missing = "now"
        "#,
    )
    .args(&["--once"]);
    std::fs::create_dir(onceline.path("logs")).expect("a folder");
    let mut bomb =
        zstd::Encoder::new(std::fs::File::create(onceline.path("logs/a.zst")).expect("a file"), 1).expect("zstd");
    bomb.write_all(b"first\n").expect("write");
    let zeros = vec![0; 1 << 20];
    for _ in 0..100 {
        bomb.write_all(&zeros).expect("write");
    }
    bomb.finish().expect("the end");
    std::fs::write(onceline.path("logs/b"), "second\n").expect("write");
    let run = onceline.run(b"").adds_up();
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("decompress it by hand if it is a log"), "{}", run.stderr);
    assert_eq!(run.counts(["created", "dead_lettered"]), [2, 0], "{}", run.stderr);
}
