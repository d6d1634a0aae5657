//! Logstash's JSON and line codecs by `tests/cases/logstash/json.jsonl`, and its multiline codec by `multiline.jsonl`,
//! through our codecs. What differs on purpose is listed in `docs/differences.md`, and nothing else may.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use onceline::batch::{Batch, Fate};
use onceline::codec::json::{Json, OnError};
use onceline::codec::plain::Plain;
use onceline::codec::{Block, Codec, Cutting};
use onceline::input::identity::Tail;
use onceline::input::lines::{self, Bytes, Cutter};
use onceline::pipeline::Pipeline;
use onceline::pipeline::read::{self, Options};
use onceline::pool::Pool;
use serde_json::{Map, Value, json};

fn read(path: &str) -> String {
    std::fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The cases of a kind that are in the table of intended differences.
fn listed(kind: &str) -> BTreeSet<String> {
    let text = read("docs/differences.md");
    let id = |line: &str| line.strip_prefix("| ")?.split(' ').next().map(str::to_owned);
    text.lines().filter_map(id).filter(|id| id.starts_with(kind)).collect()
}

/// The stored events of a text, as JSON.
fn decode(codec: &dyn Codec, text: &str) -> Vec<String> {
    let block = Block { bytes: text.as_bytes().to_vec().into(), offset: 0, too_long: None, mark: None, records: None };
    decode_block(codec, block)
}

fn decode_block(codec: &dyn Codec, block: Block) -> Vec<String> {
    let mut records = Vec::new();
    Cutting { rule: codec.rule().cloned(), line_bytes_max: 1 << 20 }.cut(&block, &mut records);
    let mut batch = Batch::new(block.bytes, Arc::default());
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
    let listed = listed("json-");
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

/// A pipeline with the codec of a case.
fn multiline(config: &Value) -> Pipeline {
    let mut codec: Map<String, Value> = config.as_object().unwrap().clone();
    codec.insert("type".into(), "multiline".into());
    if let Some(seconds) = codec.remove("auto_flush_interval") {
        // a tenth, so as not to wait long
        codec.insert("auto_flush_interval".into(), format!("{}ms", seconds.as_u64().unwrap() * 100).into());
    }
    let file = json!({
        "input": [{"type": "stdin", "codec": codec}], "id": {"scheme": "hash", "method": "MD5"},
        "index": {"name": "x"}, "output": {"type": "stdout"}
    });
    let (plan, report) =
        read::read(Path::new("t.toml"), toml::to_string(&file).unwrap().as_bytes(), &Options::default(), &|_| None);
    plan.unwrap_or_else(|| panic!("{}", report.render(false))).pipeline
}

/// The lines of a chunk: in Logstash those at its end that are blank are none.
fn lines_of(chunk: &Value) -> Vec<Vec<u8>> {
    let bytes = match chunk.as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => hex::decode(chunk["hex"].as_str().unwrap()).unwrap(),
    };
    let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    lines.truncate(lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1));
    lines
}

/// What comes of the chunks of a case, as the case has it: events, and after which chunk.
fn joined(case: &Value, chunks: &[Vec<Vec<u8>>]) -> Value {
    let mut config = case["config"].clone();
    if chunks.iter().flatten().any(Vec::is_empty) {
        config["blank_lines"] = "keep".into();
    }
    let pipeline = multiline(&config);
    let (codec, limits) = (&*pipeline.inputs[0].codec, pipeline.limits(0));
    let mut cutter = Cutter::new(limits, &Pool::default(), 0, Tail::default());
    let mut events = Vec::new();
    let mut emit = |cutter: &mut Cutter, end| {
        let before = events.len();
        std::iter::from_fn(|| cutter.cut(end)).for_each(|block| events.extend(parsed(&decode_block(codec, block))));
        events.len() - before
    };
    let mut after_each = Vec::new();
    for chunk in chunks {
        for line in chunk {
            cutter.buffer.extend_from_slice(line);
            cutter.buffer.push(b'\n');
        }
        after_each.push(emit(&mut cutter, false));
    }
    let at_flush = emit(&mut cutter, true);
    json!({ "events": events, "emitted_after_each_chunk": after_each, "emitted_at_flush": at_flush })
}

/// The messages that come of lines after which the input stays open and is quiet, if they are taken, and how many
/// lines are then left.
fn flushed(pipeline: &Pipeline, chunks: &[Vec<Vec<u8>>], is_taken: bool) -> (Vec<Value>, usize) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    for line in chunks.iter().flatten() {
        writer.write_all(&[line, &b"\n"[..]].concat()).unwrap();
    }
    let mut messages = Vec::new();
    let mut take = |block: Block, _: &[u8]| {
        let events = parsed(&decode_block(&*pipeline.inputs[0].codec, block));
        messages.extend(events.iter().filter(|_| is_taken).map(|event| event["message"].clone()));
        false
    };
    let mut bytes = Bytes::Descriptor(reader.as_fd());
    let (limits, rest) = (pipeline.limits(0), lines::Rest::default());
    let (ending, rest) = lines::read_on(&mut bytes, limits, &Pool::default(), &|| true, &mut take, rest);
    ending.unwrap();
    (messages, rest.into_block().map_or(0, |block| block.bytes.iter().filter(|byte| **byte == b'\n').count()))
}

/// Whether ours is as wanted, of a case of the multiline codec.
fn joins(case: &Value) -> bool {
    let chunks: Vec<Vec<Vec<u8>>> = case["in"].as_array().unwrap().iter().map(lines_of).collect();
    let want = &case["want"];
    if want.get("events").is_some() {
        let got = joined(case, &chunks);
        let same = want.as_object().unwrap().iter().all(|(key, value)| got[key] == *value);
        if !same {
            eprintln!("{}: {got} instead of {want}", case["id"]);
        }
        return same;
    }
    let pipeline = multiline(&case["config"]);
    if case["config"].get("auto_flush_interval").is_none() {
        // a record that is open is handed over in any case: here it stays for ever
        return pipeline.inputs[0].codec.rule().is_none();
    }
    let is_taken = want.get("buffered_lines").is_none();
    let (messages, left) = flushed(&pipeline, &chunks, is_taken);
    Value::from(messages) == want["messages"] && (is_taken || want["buffered_lines"] == left)
}

#[test]
fn every_case_of_multiline_holds_or_is_listed() {
    let (listed, mut ran) = (listed("multiline-"), 0);
    for line in read("tests/cases/logstash/multiline.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = case["id"].as_str().unwrap();
        assert_eq!(joins(&case), !listed.contains(id), "{id}: {}", case["what"]);
        ran += 1;
    }
    assert!(ran >= 17, "only {ran} cases ran");
}
