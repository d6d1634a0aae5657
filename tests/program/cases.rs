//! Cases that other tools failed on: what is hashed (03), midnight (05), mixed answers to a bulk request (01).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::rig::{Bulk, Doc, Engine, Onceline, Run, Stub, unique_prefix};
use super::{file, json};

const HASHED: &str = "cases/public/03-fingerprint-serialisation";
const MIDNIGHT: &str = "cases/public/05-midnight-and-rollover";
const BULK: &str = "cases/public/01-bulk-mixed-results";

fn hashed(id: &str) -> Onceline {
    Onceline::new(&format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [id]
        scheme = "time-hash"
        source = ["a", "b"]
        serialization = "v1"
        {id}
        [index]
        name = "hashed"
        [output]
        type = "sqlite"
        path = "{{dir}}/out.sqlite"
        "#
    ))
}

#[test]
fn different_events_have_different_ids_and_equal_ones_one() {
    let read = |name: &str| file(&format!("{HASHED}/{name}"));
    let (distinct, spellings, twins) =
        (read("distinct.ndjson"), read("same-event-three-spellings.ndjson"), read("twins.ndjson"));
    let mut ids = BTreeSet::new();
    for method in ["MD5", "SHA1", "SHA256"] {
        for key in ["", "key = \"test\""] {
            let id = format!("method = \"{method}\"\n{key}");
            let onceline = hashed(&id);
            let run = onceline.run(&distinct).settled();
            assert_eq!(run.counts(["created", "duplicates", "dead_lettered"]), [17, 0, 0], "{id}");
            ids.extend(onceline.rows("out.sqlite").into_iter().map(|row| row.id));
            let onceline = hashed(&id);
            assert_eq!(onceline.run(&spellings).settled().counts(["created", "duplicates"]), [1, 2], "{id}");
            let onceline = hashed(&id);
            assert_eq!(onceline.run(&twins).settled().counts(["created", "duplicates"]), [1, 2], "{id}");
            let onceline = hashed(&format!("{id}\nrepeats = \"keep\""));
            assert_eq!(onceline.run(&twins).settled().counts(["created", "duplicates"]), [3, 0], "{id}");
            assert_eq!(onceline.run(&twins).settled().counts(["created", "duplicates"]), [0, 3], "{id}");
            assert_eq!(onceline.rows("out.sqlite").len(), 3);
        }
    }
    assert_eq!(ids.len(), 6 * 17, "a method or a key makes no difference");
}

fn midnight(output: &str, prefix: &str, more: &str) -> Onceline {
    let pipeline = format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [time]
        past = "60d"
        future = "10m"
        [id]
        scheme = "field"
        field = "%{{key}}"
        [index]
        name = "{prefix}sales-%{{+yyyy.MM.dd}}"
        {more}
        [output]
        {output}
        "#
    );
    Onceline::new(&pipeline).args(&["--now", "2026-02-02T09:00:00Z"])
}

fn check_midnight(onceline: &Onceline, prefix: &str, docs: &dyn Fn() -> Vec<Doc>) {
    let expected = json(&file(&format!("{MIDNIGHT}/expected.json")));
    let first = onceline.run(&file(&format!("{MIDNIGHT}/day1.ndjson"))).settled();
    assert_eq!(first.counts(["created", "duplicates", "dead_lettered"]), [9, 0, 0]);
    let second = onceline.run(&file(&format!("{MIDNIGHT}/day2-replay.ndjson"))).settled();
    assert_eq!(json!(second.count("duplicates")), expected["duplicates_on_day2"]);
    assert_eq!(second.counts(["events_in", "created", "dead_lettered"]), [13, 2, 2]);
    let aside: Vec<_> = second.dead_letters.iter().map(|l| (l["event"]["key"].clone(), l["reason"].clone())).collect();
    assert_eq!(aside, [(json!("k12"), json!("too-new")), (json!("k13"), json!("too-old"))]);
    let docs = docs();
    let got: BTreeMap<&str, &str> =
        docs.iter().map(|doc| (doc.id.as_str(), doc.index.strip_prefix(prefix).expect("an index of ours"))).collect();
    assert_eq!(json!(got), expected["index_of_key"]);
    assert_eq!(json!(docs.len()), expected["documents"]);
    for doc in &docs {
        assert_eq!(doc.source["key"], json!(doc.id));
        assert_eq!(doc.version, if matches!(doc.id.as_str(), "k10" | "k11") { 1 } else { 2 }, "{doc:?}");
    }
    let time = |id: &str| docs.iter().find(|doc| doc.id == id).map(|doc| doc.source["@timestamp"].clone());
    assert_eq!(time("k8"), Some(json!("2026-01-31T23:59:59.999Z")));
    assert_eq!(time("k9"), Some(json!("2026-02-01T00:00:00.000Z")));
    assert_eq!(time("k5"), Some(json!("2026-02-01T00:30:00+05:30")));
}

#[test]
fn midnight_into_sqlite() {
    let onceline = midnight("type = \"sqlite\"\npath = \"{dir}/out.sqlite\"", "", "");
    check_midnight(&onceline, "", &|| onceline.rows("out.sqlite"));
}

fn engine_output(url: &str) -> String {
    format!("type = \"elasticsearch\"\nhosts = [\"{url}\"]\nretry_wait_min = \"20ms\"\nretry_wait_max = \"100ms\"")
}

#[test]
fn midnight_into_the_engines() {
    for engine in Engine::all() {
        let prefix = unique_prefix();
        let onceline = midnight(&engine_output(&engine.url), &prefix, "");
        check_midnight(&onceline, &prefix, &|| engine.docs(&format!("{prefix}*")));
    }
}

/// A pipeline to one fixed name.
fn to_target(url: &str, name: &str, strict: bool) -> Onceline {
    let pipeline = format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [id]
        scheme = "field"
        field = "%{{key}}"
        [index]
        name = "{name}"
        strict = {strict}
        [output]
        {}
        action = "create"
        "#,
        engine_output(url)
    );
    Onceline::new(&pipeline).args(&["--now", "2026-02-02T09:00:00Z"])
}

fn check_refused(engine: &Engine, name: &str) {
    let day = file(&format!("{MIDNIGHT}/day1.ndjson"));
    let run = to_target(&engine.url, name, true).run(&day);
    assert_eq!(run.status, Some(1), "{} took {name}: {}", engine.name, run.stderr);
    assert!(run.stderr.contains(name) && run.stderr.contains("strict = false"), "{}", run.stderr);
    let docs = engine.docs(name);
    assert!(docs.is_empty(), "{} {name} {docs:?}", engine.name);
    let run = to_target(&engine.url, name, false).run(&day).settled();
    assert_eq!(run.count("created"), 9, "{} {name}", engine.name);
}

#[test]
fn a_target_that_rolls_over_is_refused() {
    for engine in Engine::all() {
        let prefix = unique_prefix();
        let alias = format!("{prefix}sales");
        for number in 1..=2 {
            let aliases = json!({"aliases": {&alias: {"is_write_index": number == 2}}});
            assert_eq!(engine.put(&format!("/{alias}-00000{number}"), &aliases).status, 200);
        }
        check_refused(engine, &alias);
    }
    let (engine, stream) = (Engine::opensearch(), unique_prefix());
    let template = json!({"index_patterns": [format!("{stream}*")], "data_stream": {}, "priority": 500});
    assert_eq!(engine.put(&format!("/_index_template/{stream}"), &template).status, 200);
    check_refused(engine, &stream);
    engine.delete(&format!("/_data_stream/{stream}"));
    engine.delete(&format!("/_index_template/{stream}"));
}

fn bulk(stub: &Stub) -> Onceline {
    Onceline::new(&format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [id]
        scheme = "field"
        field = "%{{id}}"
        [index]
        name = "orders"
        [output]
        {}
        action = "create"
        "#,
        engine_output(&stub.url)
    ))
}

fn bulk_case(server: &str) -> (Stub, Run) {
    let stub = Stub::new(&String::from_utf8(file(&format!("{BULK}/{server}"))).expect("text"));
    let run = bulk(&stub).run(&file(&format!("{BULK}/input.ndjson")));
    assert!(
        stub.bulks().iter().flat_map(|bulk| bulk.ops.clone()).all(|op| op.name == "create" && op.index == "orders")
    );
    (stub, run.settled())
}

fn stored(stub: &Stub) -> Vec<String> {
    stub.docs().into_keys().map(|(_, id)| id).collect()
}

fn expected(part: &str) -> Value {
    json(&file(&format!("{BULK}/expected.json")))[part].clone()
}

const ALL: [&str; 6] = ["e1", "e2", "e3", "e4", "e5", "e6"];

#[test]
fn bulk_a_partial_then_lost_answer() {
    let (stub, run) = bulk_case("server-a-partial-then-lost-ack.jsonl");
    let expected = expected("a");
    assert_eq!(json!(stub.ids()), expected["ids_in_request"]);
    assert_eq!(json!(stored(&stub)), expected["docs_in_index"]);
    let counts = ["events_in", "created", "duplicates", "dead_lettered", "requests"];
    assert_eq!(run.counts(counts), [6, 2, 3, 1, 3]);
    assert!(run.count("retries") >= 2, "{}", run.summary);
    let [letter] = run.dead_letters.as_slice() else { panic!("{:?}", run.dead_letters) };
    assert_eq!(json!({ (letter["id"].as_str().unwrap_or_default()): letter["status"] }), expected["dlq"]);
    for (key, value) in [
        ("reason", json!("rejected")),
        ("index", json!("orders")),
        ("action", json!("create")),
        ("attempts", json!(1)),
        ("source", json!({"name": "stdin", "offset": 258})),
    ] {
        assert_eq!(letter[key], value, "{key}");
    }
    assert_eq!(letter["event"]["n"], "four");
    assert_eq!(letter["error"]["type"], "mapper_parsing_exception");
}

#[test]
fn bulk_b_too_large() {
    let (stub, run) = bulk_case("server-b-413.jsonl");
    let ids = json!(stub.ids());
    assert_eq!((&ids[0], &ids[1], &ids[2]), (&json!(ALL), &expected("b")["split"][0], &expected("b")["split"][1]));
    assert_eq!(stub.bulks().len(), 3);
    assert_eq!(run.counts(["created", "dead_lettered", "requests"]), [6, 0, 3]);
    assert_eq!(stored(&stub), ALL);
}

#[test]
fn bulk_b_too_large_alone() {
    let stub = Stub::new("{\"http\":413}\n".repeat(20).as_str());
    let run = bulk(&stub).run(&file(&format!("{BULK}/input.ndjson"))).settled();
    assert_eq!(run.counts(["created", "dead_lettered"]), [0, 6]);
    assert!(run.dead_letters.iter().all(|letter| letter["reason"] == "too-large" && letter["status"] == 413));
}

#[test]
fn bulk_c_unauthorised_waits_loudly() {
    let (stub, run) = bulk_case("server-c-401-then-ok.jsonl");
    assert_eq!(json!(stub.ids()), json!([ALL, ALL, ALL]));
    assert_eq!(run.counts(["created", "dead_lettered", "requests"]), [6, 0, 3]);
    let said = run.stderr.lines().filter(|line| line.contains("401") || line.contains("403")).count();
    assert!(said >= 1, "nothing is said: {}", run.stderr);
}

#[test]
fn bulk_c_credentials_are_read_again() {
    let stub = Stub::new("").wants("Basic bWU6bmV3");
    let pipeline = format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [id]
        scheme = "field"
        field = "%{{id}}"
        [index]
        name = "orders"
        strict = false
        [output]
        {}
        user = "me"
        password_file = "{{dir}}/password"
        "#,
        engine_output(&stub.url)
    );
    let onceline = Onceline::new(&pipeline);
    std::fs::write(onceline.path("password"), "old\n").expect("write the password");
    let running = onceline.start(&file(&format!("{BULK}/input.ndjson")));
    while stub.bulks().is_empty() {
        std::thread::yield_now();
    }
    std::fs::write(onceline.path("password"), "new\n").expect("write the password");
    let run = running.wait().settled();
    assert_eq!(run.counts(["created", "dead_lettered"]), [6, 0]);
    let given = |bulk: &Bulk| bulk.header("authorization").map(str::to_owned);
    let (first, last) = (stub.bulks().first().and_then(given), stub.bulks().last().and_then(given));
    assert_eq!((first.as_deref(), last.as_deref()), (Some("Basic bWU6b2xk"), Some("Basic bWU6bmV3")));
    assert!(!format!("{}{}", run.stdout, run.stderr).contains("bWU6"), "{}", run.stderr);
}

#[test]
fn bulk_d_short_answer() {
    let (stub, run) = bulk_case("server-d-short-answer.jsonl");
    assert_eq!(json!(stub.ids()), expected("d")["ids_in_request"]);
    assert_eq!(run.counts(["events_in", "dead_lettered", "requests"]), [6, 0, 2]);
    assert_eq!(run.count("created") + run.count("duplicates"), 6);
    assert_eq!(stored(&stub), ALL);
}

#[test]
fn bulk_e_only_duplicates() {
    let (stub, run) = bulk_case("server-e-only-409.jsonl");
    assert_eq!(stub.bulks().len(), 1);
    assert_eq!(run.counts(["created", "duplicates", "dead_lettered", "retries"]), [0, 6, 0, 0]);
}
