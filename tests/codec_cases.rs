//! Logstash's JSON and line codecs by `tests/cases/logstash/json.jsonl`, through our codecs. What differs on purpose
//! is listed in `docs/differences.md`, and nothing else may.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceline::batch::{Batch, Fate};
use onceline::codec::json::{Json, OnError};
use onceline::codec::plain::Plain;
use onceline::codec::{Codec, cut_lines};
use serde_json::Value;

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn listed() -> BTreeSet<String> {
    let text = read("docs/differences.md");
    text.lines()
        .filter_map(|line| line.strip_prefix("| json-")?.split(' ').next().map(|n| format!("json-{n}")))
        .collect()
}

/// The stored events of a text, as JSON.
fn decode(codec: &dyn Codec, text: &str) -> Vec<String> {
    let mut records = Vec::new();
    cut_lines(text.as_bytes(), 0, &mut records);
    let mut batch = Batch::new(text.as_bytes().to_vec(), Arc::default());
    codec.decode(&mut batch, &records);
    let live = (0..batch.len()).map(|n| batch.event(n)).filter(|event| matches!(event.fate(), Fate::Live));
    live.map(|event| {
        let mut out = Vec::new();
        event.write_source(&mut out);
        String::from_utf8(out).unwrap()
    })
    .collect()
}

fn parsed(texts: &[String]) -> Vec<Value> {
    texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

/// Whether ours is as wanted.
fn holds(case: &Value) -> Option<bool> {
    let chunks = case["in"].as_array()?;
    let text: String = chunks.iter().filter_map(Value::as_str).filter(|chunk| *chunk != "<flush>").collect();
    let want = &case["want"];
    if case["config"]["plugin"] == "line-tokenizer" {
        let plain = Plain::build(None).unwrap();
        let got: Vec<Value> = parsed(&decode(&plain, &text)).iter().map(|event| event["message"].clone()).collect();
        let tokens = want["tokens_per_chunk"].as_array();
        let tokens =
            tokens.map(|chunks| chunks.iter().filter_map(Value::as_array).flatten().cloned().collect::<Vec<_>>());
        return Some(tokens.as_ref() == Some(&got));
    }
    let texts = decode(&Json::new(OnError::Tag, onceline::json::FIELDS_MAX), &text);
    Some(match (&want["events"], &want["json_out"]) {
        (Value::Array(events), _) => *events == parsed(&texts),
        (Value::Number(count), _) => count.as_u64() == Some(texts.len() as u64),
        (_, Value::String(out)) => texts == [out.as_str()],
        // it wants an error
        _ => false,
    })
}

#[test]
fn every_case_holds_or_is_listed() {
    let listed = listed();
    let mut ran = 0;
    for line in read("tests/cases/logstash/json.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let plugin = case["config"]["plugin"].as_str().unwrap_or_default();
        if !plugin.starts_with("codec-") && plugin != "line-tokenizer" {
            continue;
        }
        let id = case["id"].as_str().unwrap();
        assert_eq!(holds(&case), Some(!listed.contains(id)), "{id}: {}", case["what"]);
        ran += 1;
    }
    assert!(ran >= 30, "only {ran} cases ran");
}
