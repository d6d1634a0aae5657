//! The fingerprint filter against what Logstash does, line by line of `tests/cases/logstash/fingerprint.jsonl`.

use onceline::batch::Batch;
use onceline::config;
use onceline::field::FieldRef;
use onceline::filter::fingerprint::{self, Fingerprint};
use onceline::filter::{Applied, Clock, Filter};
use onceline::json::Scanner;
use onceline::time::Time;
use serde_json::Value;

/// Options of every filter, which are not this one's to read.
const COMMON: [&str; 2] = ["add_field", "add_tag"];

/// The options as a pipeline file's. JSON's texts, numbers, booleans and arrays are TOML's too.
fn build(case: &Value) -> Result<Fingerprint, String> {
    let mut text = String::new();
    for (name, value) in case["config"].as_object().unwrap() {
        if !COMMON.contains(&name.as_str()) {
            text.push_str(&format!("{name} = {value}\n"));
        }
    }
    if case["plugin_versions"] == "3.2.2-3.4.4" {
        text.push_str("serialization = \"logstash-3.4\"\n");
    }
    let (config, report) =
        config::read("case", text.as_bytes(), &[], &|_| None, |t| Some(fingerprint::Config::read(t)));
    fingerprint::build(config.ok_or_else(|| report.render(false))?)
}

fn event(text: &str) -> Batch {
    let mut batch = Batch::default();
    let whole = batch.write(text.as_bytes());
    let mut entries = Vec::new();
    Scanner::default().scan(text.as_bytes(), true, &mut entries).unwrap();
    batch.push_json(whole, 0, whole, 0, &entries);
    batch
}

fn field(batch: &Batch, reference: &str) -> Option<Value> {
    let view = batch.event(0).get(&FieldRef::parse(reference).unwrap())?;
    let mut text = Vec::new();
    view.write_json(&mut text);
    Some(serde_json::from_slice(&text).unwrap())
}

fn check(case: &Value) {
    let want = &case["want"];
    let built = build(case);
    if want["config_error"] == true {
        return assert!(built.is_err(), "{case}");
    }
    let mut batch = event(&case["in"].to_string());
    let clock = Clock { now: Time::EPOCH };
    let applied = built.unwrap_or_else(|error| panic!("{error}: {case}")).apply(&mut batch.event_mut(0), &clock);
    // the options of every filter follow whenever this one matched
    assert_eq!(applied, Applied::Matched, "{case}");
    let (plain, fields) = (&want["fingerprint"], want["fields"].as_object());
    let of_filter = |name: &String| name != "tags" && case["config"]["add_field"].get(name).is_none();
    let wanted = fields.into_iter().flatten().filter(|(name, _)| of_filter(name));
    for (name, value) in wanted.chain((!plain.is_null()).then_some((&"fingerprint".to_owned(), plain))) {
        assert_eq!(field(&batch, name).as_ref(), Some(value), "{case}");
    }
    for name in want["absent"].as_array().into_iter().flatten() {
        assert_eq!(field(&batch, name.as_str().unwrap()), None, "{case}");
    }
}

#[test]
fn as_logstash() {
    let lines = include_str!("cases/logstash/fingerprint.jsonl");
    lines.lines().for_each(|line| check(&serde_json::from_str(line).unwrap()));
    assert_eq!(lines.lines().count(), 74);
}
