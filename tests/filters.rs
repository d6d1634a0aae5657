//! Logstash's cases for placeholders, field references, the filters `date`, `grok` and `json`, and events as they are
//! read: each through the reader of pipeline files and a whole event. What differs on purpose is listed in
//! `docs/differences.md`, and nothing else may. Below them, the filters against tables of our own.

mod mmdb;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use onceline::batch::{Batch, Fate, Span, View};
use onceline::condition::Condition;
use onceline::config;
use onceline::field::{Escapes, FieldRef};
use onceline::filter::{self, Clock, Step};
use onceline::json::{Scanner, repair};
use onceline::stamp::{Missing, Stamp};
use onceline::template::Template;
use onceline::time::Time;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn cases(name: &str) -> Vec<Value> {
    let text = read(&format!("tests/cases/logstash/{name}.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The ids in the tables of intended differences.
fn listed() -> BTreeSet<String> {
    let text = read("docs/differences.md");
    text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).map(str::to_owned).collect()
}

/// Runs every case of a file; `run` says what is wrong, or nothing at all where the case belongs to another stage.
fn check_cases(name: &str, least: usize, run: fn(&Value) -> Option<Result<(), String>>) {
    let (listed, mut ran, mut report) = (listed(), 0, String::new());
    for case in cases(name) {
        let id = case["id"].as_str().unwrap();
        let Some(result) = run(&case) else { continue };
        ran += 1;
        match (result, listed.contains(id)) {
            (Err(wrong), false) => report += &format!("{id}: {wrong} ({})\n", case["what"]),
            (Ok(()), true) => report += &format!("{id}: listed as a difference, but none\n"),
            _ => {}
        }
    }
    assert!(report.is_empty(), "\n{report}");
    assert!(ran >= least, "only {ran} cases of {name} ran");
}

fn same(got: &Value, want: &Value) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("got {got}, want {want}")) }
}

/// A batch of one event read from JSON, as the codec does it.
fn batch_of(text: &str) -> Batch {
    let mut entries = Vec::new();
    let mut text = text.as_bytes().to_vec();
    if Scanner::default().scan(&text, true, &mut entries).unwrap().odd {
        text = repair(&text);
        entries.clear();
        Scanner::default().scan(&text, true, &mut entries).unwrap();
    }
    let whole = Span::new(0, text.len());
    let mut batch = Batch::new(text, Arc::default());
    batch.push_json(whole, 0, whole, 0, &entries);
    batch
}

fn event_of(batch: &Batch) -> Value {
    let mut out = Vec::new();
    batch.event(0).write_source(&mut out);
    serde_json::from_slice(&out).unwrap()
}

fn step(toml: &str) -> Result<Step, String> {
    let (steps, report) = config::read("t.toml", toml.as_bytes(), &[], &|_| None, |root| {
        let tables = root.tables("filter").required()?;
        tables.iter().map(filter::read).collect::<Option<Vec<Step>>>()
    });
    steps.and_then(|mut steps| steps.pop()).ok_or_else(|| report.render(false))
}

/// A filter with the options of a case.
fn step_of(kind: &str, options: &Value) -> Result<Step, String> {
    let mut table: Map<String, Value> = options.as_object().unwrap().clone();
    table.remove("plugin");
    table.insert("type".into(), kind.into());
    step(&toml::to_string(&json!({ "filter": [table] })).unwrap())
}

fn clock(case: &Value) -> Clock {
    let now = case["clock"].as_str().unwrap_or("2026-01-15T00:00:00Z");
    Clock { now: Time::rfc3339(now.as_bytes()).unwrap() }
}

/// What a case wants of an event: `@timestamp`, tags, fields, absent fields.
fn check_event(got: &Value, want: &Value, before: &Value) -> Result<(), String> {
    match want["@timestamp"].as_str() {
        Some("unchanged") => same(&got["@timestamp"], &before["@timestamp"])?,
        Some(time) => same(&got["@timestamp"], &time.into())?,
        None => {}
    }
    if want.get("tags").is_some() {
        same(&got["tags"], &want["tags"])?;
    }
    for (name, value) in want["fields"].as_object().into_iter().flatten() {
        same(&got[name], value)?;
    }
    for name in want["absent"].as_array().into_iter().flatten() {
        same(&got[name.as_str().unwrap()], &Value::Null)?;
    }
    Ok(())
}

fn sprintf(case: &Value) -> Option<Result<(), String>> {
    let (text, want) = (case["config"]["template"].as_str()?, &case["want"]);
    if case["kind"] == "field_reference" {
        let field = match case["escape_style"].as_str() {
            Some("percent") => FieldRef::parse_escaped(text, Escapes::Percent),
            Some(_) => FieldRef::parse_escaped(text, Escapes::Ampersand),
            None => FieldRef::parse(text),
        };
        let got = field.map_or(json!({"raises": true}), |f| {
            let path: Vec<&str> = f.path().iter().map(AsRef::as_ref).collect();
            json!({ "path": path })
        });
        return Some(same(&got, want));
    }
    let mut event = case["in"].as_object()?.clone();
    if event.get("@timestamp").is_some_and(|time| time == "<removed>") {
        event.remove("@timestamp");
    }
    let batch = batch_of(&Value::Object(event).to_string());
    if let Some(condition) = text.strip_prefix("if ") {
        let condition = Condition::parse(condition.split(" {").next()?).unwrap();
        return Some(same(&json!({ "condition": condition.holds(&batch.event(0)).unwrap() }), want));
    }
    let got = Template::parse(text).map_or(json!({"raises": true}), |template| {
        let mut out = Vec::new();
        template.render(&batch.event(0), &mut out);
        json!({ "text": String::from_utf8(out).unwrap() })
    });
    Some(same(&got, want))
}

fn date(case: &Value) -> Option<Result<(), String>> {
    let want = &case["want"];
    let step = match (step_of("date", &case["config"]), want["config_error"] == true) {
        (Err(_), true) => return Some(Ok(())),
        (Ok(_), true) => return Some(Err("no error in the options".into())),
        (Err(report), false) => return Some(Err(report)),
        (Ok(step), false) => step,
    };
    let mut before = case["in"].clone();
    let cancelled = before.as_object_mut()?.remove("cancelled").is_some();
    let mut text = before.to_string();
    if let Some(decimal) = before["t"]["decimal"].as_str() {
        text = format!("{{\"t\":{decimal}}}");
    }
    let mut batch = batch_of(&text);
    if cancelled {
        batch.event_mut(0).end(Fate::Dropped);
    }
    step.apply(&mut batch, &clock(case));
    let got = event_of(&batch);
    if want["raises"] == true {
        return Some(Err(format!("a tag instead: {got}")));
    }
    if want["target_unset"] == true && got.get("target").is_some() {
        return Some(Err(format!("the target is set: {got}")));
    }
    Some(check_event(&got, want, &before))
}

/// Stages that other tests ask.
const NOT_FILTERS: &[&str] = &["codec-json", "codec-json_lines", "line-tokenizer"];

fn json_case(case: &Value) -> Option<Result<(), String>> {
    let plugin = case["config"]["plugin"].as_str()?;
    if NOT_FILTERS.contains(&plugin) {
        return None;
    }
    let mut before = case["in"].clone();
    let tag = before.as_object_mut()?.remove("add_tag");
    let mut batch = batch_of(&before.to_string());
    match plugin {
        "filter-json" => match step_of("json", &case["config"]) {
            Err(report) => return Some(Err(report)),
            Ok(step) => drop(step.apply(&mut batch, &clock(case))),
        },
        "event" => {
            if let Some(tag) = tag {
                batch.event_mut(0).add_tag(tag.as_str()?);
            }
            let stamp = Stamp { missing: Missing::DeadLetter, past_secs: None, future_secs: None };
            if case["want"].get("@timestamp").is_some() {
                stamp.apply(&mut batch, &clock(case));
            }
        }
        other => return Some(Err(format!("an unknown plugin {other}"))),
    }
    if let Fate::Dead(death) = batch.event(0).fate() {
        return Some(Err(format!("a dead letter: {}", death.detail)));
    }
    Some(check_event(&event_of(&batch), &case["want"], &before))
}

fn dissect(case: &Value) -> Option<Result<(), String>> {
    let want = &case["want"];
    let step = match (step_of("dissect", &case["config"]), want["config_error"] == true) {
        (Ok(_), true) => return Some(Err("no error".to_string())),
        (Err(_), true) => return Some(Ok(())),
        (step, false) => step,
    };
    let mut batch = batch_of(&case["in"].to_string());
    match step {
        Err(report) => return Some(Err(report)),
        Ok(step) => drop(step.apply(&mut batch, &clock(case))),
    }
    Some(check_event(&event_of(&batch), want, &case["in"]))
}

#[test]
fn logstash_dissect_cases() {
    check_cases("dissect", 30, dissect);
}

fn grok(case: &Value) -> Option<Result<(), String>> {
    let mut options = case["config"].clone();
    for (name, option) in options.as_object_mut()? {
        // what Logstash wants a hash for may be written as names and values in turn
        let pairs = option.as_array().filter(|_| ["match", "add_field"].contains(&name.as_str()));
        if let Some(pairs) = pairs {
            let pairs = pairs.chunks(2).map(|pair| (pair[0].as_str().unwrap().to_string(), pair[1].clone()));
            *option = Value::Object(pairs.collect());
        }
    }
    let step = match (step_of("grok", &options), case["want"]["config_error"] == true) {
        (Err(_), true) => return Some(Ok(())),
        (Ok(_), true) => return Some(Err("no error in the options".into())),
        (Err(report), false) => return Some(Err(report)),
        (Ok(step), false) => step,
    };
    let mut batch = batch_of(&case["in"].to_string());
    step.apply(&mut batch, &clock(case));
    let mut got = event_of(&batch);
    let mut metadata = Vec::new();
    View::Object(batch.event(0).metadata()).write_json(&mut metadata);
    got["@metadata"] = serde_json::from_slice(&metadata).unwrap();
    Some(check_event(&got, &case["want"], &case["in"]))
}

#[test]
fn logstash_sprintf_cases() {
    check_cases("sprintf", 42, sprintf);
}

#[test]
fn logstash_date_cases() {
    check_cases("date", 91, date);
}

#[test]
fn logstash_json_cases() {
    check_cases("json", 20, json_case);
}

#[test]
fn logstash_grok_cases() {
    check_cases("grok", 53, grok);
}

/// The conditions among the cases of whole configurations: accepted or refused.
fn conf_condition(case: &Value) -> Option<Result<(), String>> {
    let text = case["in"].as_str()?.strip_prefix("filter { if ")?.strip_suffix(" { x1 {} } }")?;
    if text.contains(['{', '}']) {
        return None;
    }
    let got = Condition::parse_logstash(text).map_or("reject", |_| "ok");
    Some(same(&got.into(), &case["want"]["parse"]))
}

#[test]
fn logstash_conditions() {
    check_cases("conf_syntax", 18, conf_condition);
}

/// One filter on one event; `want` is the event afterwards, or `dropped`.
fn check(toml: &str, event: &str, want: &str) {
    let mut batch = batch_of(event);
    step(&format!("[[filter]]\n{toml}")).unwrap_or_else(|e| panic!("{e}")).apply(&mut batch, &clock(&Value::Null));
    let mut out = Vec::new();
    batch.event(0).write_source(&mut out);
    let got = if matches!(batch.event(0).fate(), Fate::Dropped) { b"dropped".to_vec() } else { out };
    assert_eq!(String::from_utf8(got).unwrap(), want, "{toml} on {event}");
}

#[test]
fn kv() {
    let check_kv = |options: &str, text: &str, want: &str| {
        let event = json!({ "m": text }).to_string();
        let want = if want.is_empty() { event.clone() } else { format!("{},{want}}}", &event[..event.len() - 1]) };
        check(&format!("type = 'kv'\nsource = 'm'\n{options}"), &event, &want);
    };
    check_kv(
        "",
        "a=1 b = 2  c=\"x y\" d='q' e=[1 2] f=(g) h=<i> j= k",
        r#""a":"1","b":"2","c":"x y","d":"q","e":"1 2","f":"g","h":"i","j":"k""#,
    );
    check_kv("", "no pair", "");
    check_kv("", "a=1 a=2 a=1", r#""a":["1","2","1"]"#);
    check_kv("allow_duplicate_values = false", "a=1 a=2 a=1", r#""a":["1","2"]"#);
    check_kv("whitespace = 'strict'\nallow_empty_values = true", "a= b=1", r#""a":"","b":"1""#);
    check_kv(
        "field_split = '&?'\ntarget = '[url][args]'",
        "?pin=12~0&d=1&oq=b c",
        r#""url":{"args":{"pin":"12~0","d":"1","oq":"b c"}}"#,
    );
    check_kv("field_split_pattern = ':+'", "k1=v1:k2=v2::k3=v3", r#""k1":"v1","k2":"v2","k3":"v3""#);
    check_kv("value_split = ':'\nprefix = 'p_'", "a:1 b:2", r#""p_a":"1","p_b":"2""#);
    check_kv("value_split_pattern = '=>'", "a=>1 b=>2", r#""a":"1","b":"2""#);
    check_kv(
        "include_keys = ['a', 'c']\nexclude_keys = ['c']\ndefault_keys = { z = 'last', a = 'x' }",
        "a=1 b=2 c=3",
        r#""z":"last","a":"1""#,
    );
    check_kv(
        "trim_value = '<>,'\ntrim_key = '_'\ntransform_key = 'uppercase'\ntransform_value = 'capitalize'\ninclude_brackets = false",
        "_a_=<hello>, b=wORLD,",
        r#""A":"Hello","B":"World""#,
    );
    check_kv("remove_char_value = 'l'\nremove_char_key = '-'", "a-b=hello", r#""ab":"heo""#);
    check_kv("recursive = true", "a=\"b=1 c=2\" d=3", r#""a":{"b":"1","c":"2"},"d":"3""#);
    check_kv(r"field_split = ' '", r"a=b\ c d=\[e", r#""a":"b\\ c","d":"\\[e""#);
    check_kv("", "[x][y]=1 [z=2", r#""x":{"y":"1"},"[z":"2""#);
}

#[test]
fn smaller_filters() {
    let deep = format!("{}{}", "[".repeat(101), "]".repeat(101));
    for (toml, event, want) in [
        (
            "type = 'syslog_pri'",
            r#"{"syslog_pri":"174"}"#,
            r#"{"syslog_pri":"174","syslog_severity_code":6,"syslog_facility_code":21,"syslog_facility":"local5","syslog_severity":"informational"}"#,
        ),
        ("type = 'syslog_pri'\nuse_labels = false", "{}", r#"{"syslog_severity_code":5,"syslog_facility_code":1}"#),
        (
            "type = 'syslog_pri'",
            r#"{"syslog_pri":[192]}"#,
            r#"{"syslog_pri":[192],"syslog_severity_code":0,"syslog_facility_code":24,"tags":["_syslogpriparsefailure"]}"#,
        ),
        (
            "type = 'syslog_pri'",
            r#"{"syslog_pri":"x"}"#,
            r#"{"syslog_pri":"x","syslog_severity_code":0,"syslog_facility_code":0,"syslog_facility":"kernel","syslog_severity":"emergency"}"#,
        ),
        (
            "type = 'syslog_pri'\necs_compatibility = 'v8'\nseverity_labels = ['a','b','c','d']",
            r#"{"log":{"syslog":{"priority":13}}}"#,
            r#"{"log":{"syslog":{"priority":13,"severity":{"code":5},"facility":{"code":1,"name":"user-level"}}}}"#,
        ),
        ("type = 'uuid'\ntarget = 'a'", r#"{"a":"x"}"#, r#"{"a":"x"}"#),
        (
            "type = 'truncate'\nlength_bytes = 3\nadd_tag = 't'",
            r#"{"a":"aéé","b":["abcd",1234,{"x":"abcd"}],"c":{"d":"abcd"},"@timestamp":"2026-01-01T00:00:00Z"}"#,
            r#"{"a":"aé","b":["abc",1234,{"x":"abcd"}],"c":{"d":"abc"},"@timestamp":"2026-01-01T00:00:00Z","tags":["t"]}"#,
        ),
        (
            "type = 'truncate'\nlength_bytes = 3\nfields = ['a', '[c][d]', 'z']\nadd_tag = 't'",
            r#"{"a":"abc","b":"abcd","c":{"d":7}}"#,
            r#"{"a":"abc","b":"abcd","c":{"d":7}}"#,
        ),
        ("type = 'urldecode'", r#"{"message":"a%20b%C3%a9+%2","c":"%41"}"#, r#"{"message":"a bé+%2","c":"%41"}"#),
        (
            "type = 'urldecode'\nall_fields = true\ncharset = 'ISO-8859-1'",
            r#"{"m":["%E9",{"k%41":"%41"}],"n":1}"#,
            r#"{"m":["é",{"k%41":"A"}],"n":1}"#,
        ),
        ("type = 'urldecode'\nfield = 'x'\nadd_tag = 't'", "{}", r#"{"tags":["t"]}"#),
        ("type = 'prune'", r#"{"a":1,"%{b}":2}"#, r#"{"a":1}"#),
        ("type = 'prune'\nwhitelist_names = ['^a$', 'b']", r#"{"a":1,"ab":2,"ac":3,"%{b}":4}"#, r#"{"a":1,"ab":2}"#),
        ("type = 'prune'\nblacklist_names = ['^a']", r#"{"a":1,"ab":2,"c":3}"#, r#"{"c":3}"#),
        (
            "type = 'prune'\nwhitelist_values = { a = '^x', b = '5', c = 'z' }",
            r#"{"a":["xa","y"],"b":50,"c":["q"],"d":1}"#,
            r#"{"a":["xa"],"b":50,"d":1}"#,
        ),
        (
            "type = 'prune'\nblacklist_values = { a = '^x', b = '5' }",
            r#"{"a":["xa","y"],"b":50,"d":1}"#,
            r#"{"a":["y"],"d":1}"#,
        ),
        (
            "type = 'prune'\ninterpolate = true\nblacklist_names = ['^%{n}_']\nblacklist_values = { '%{k}' = '%{v}' }",
            r#"{"n":"a","a_b":1,"k":"c","v":"x","c":"axb"}"#,
            r#"{"n":"a","k":"c","v":"x"}"#,
        ),
        ("type = 'prune'\nwhitelist_values = { '%{a}_b' = '^x' }", r#"{"a":"c","c_b":"y"}"#, r#"{"a":"c","c_b":"y"}"#),
        (
            "type = 'prune'\ninterpolate = true\nblacklist_values = { a = '^x$', b = '%{a} y' }",
            r#"{"a":"x","b":"x y"}"#,
            "{}",
        ),
        (
            "type = 'prune'\ninterpolate = true\nwhitelist_names = ['^b$']\nblacklist_values = { b = '%{a} y' }",
            r#"{"a":"x","b":"x y"}"#,
            "{}",
        ),
        ("type = 'json'\nsource = 'a'\nskip_on_invalid_json = true", r#"{"a":"x y"}"#, r#"{"a":"x y"}"#),
        (
            "type = 'json'\nsource = 'a'\nskip_on_invalid_json = true",
            r#"{"a":"[1]"}"#,
            r#"{"a":"[1]","tags":["_jsonparsefailure"]}"#,
        ),
        (
            "type = 'json'\nsource = 'a'\nskip_on_invalid_json = true",
            &format!("{{\"a\":\"{deep}\"}}"),
            &format!("{{\"a\":\"{deep}\",\"tags\":[\"_jsonparsefailure\"]}}"),
        ),
    ] {
        check(toml, event, want);
    }
    let mut batch = batch_of(r#"{"a":"x"}"#);
    step("[[filter]]\ntype = 'uuid'\ntarget = 'a'\noverwrite = true").unwrap().apply(&mut batch, &clock(&Value::Null));
    let made = event_of(&batch)["a"].as_str().unwrap().to_string();
    assert_eq!((made.len(), made.as_bytes()[14]), (36, b'4'), "{made}");
}

#[test]
fn csv() {
    for (options, text, want) in [
        ("", "a,,\"\"", r#""column1":"a","column2":null,"column3":"""#),
        ("columns = ['x', '[y][z]']\ntarget = 't'", "1,2,3", r#""t":{"x":"1","y":{"z":"2"},"column3":"3"}"#),
        ("columns = ['x']\nautogenerate_column_names = false", "1,2", r#""x":"1""#),
        ("skip_empty_columns = true", ",1,\"\"", r#""column2":"1""#),
        ("separator = ';'\nquote_char = \"'\"", "'a;b';c", r#""column1":"a;b","column2":"c""#),
        (
            "columns = ['a', 'b', 'c', 'd', 'e']\nconvert = { a = 'integer', b = 'float', c = 'boolean', d = 'integer', e = 'date_time' }",
            "007,1.50,TRUE,x,2026-01-02T03:04:05Z",
            r#""a":7,"b":1.5,"c":true,"d":"x","e":"2026-01-02T03:04:05.000Z""#,
        ),
        (
            "columns = ['a', 'b', 'c', 'd', 'e', 'f']\nconvert = { a = 'integer', b = 'integer', c = 'integer', d = 'integer', e = 'integer', f = 'integer' }",
            "017,0x1F,1_000,0b11,1__0,-0x10",
            r#""a":17,"b":31,"c":1000,"d":3,"e":"1__0","f":-16"#,
        ),
        (
            "columns = ['a', 'b', 'c', 'd']\nconvert = { a = 'float', b = 'float', c = 'float', d = 'float' }",
            "0x1F,1_000.5,5.,1e3",
            r#""a":31.0,"b":1000.5,"c":"5.","d":1000.0"#,
        ),
        (
            "columns = ['a', 'b', 'c', 'd']\nconvert = { a = 'date_time', b = 'date', c = 'date', d = 'date_time' }",
            "2001-02-03 04:05:06,Jun 1 2017,\"Thu, Jun 1 2017\",Jun 1 04:05:06 2017",
            r#""a":"2001-02-03T04:05:06.000Z","b":"2017-06-01T00:00:00.000Z","c":"2017-06-01T00:00:00.000Z","d":"2017-06-01T04:05:06.000Z""#,
        ),
        ("", "a\"b", r#""tags":["_csvparsefailure"]"#),
        ("", "", r#""tags":["_csvparsefailure"]"#),
        ("skip_empty_rows = true", "", r#""tags":["_csvskippedemptyfield"]"#),
        ("columns = ['a']\nskip_header = true", "b", r#""a":"b""#),
        ("columns = ['a', 'b']\nskip_header = true", "a,b", "dropped"),
    ] {
        let event = json!({ "m": text }).to_string();
        let all = format!("{},{want}}}", &event[..event.len() - 1]);
        check(&format!("type = 'csv'\nsource = 'm'\n{options}"), &event, if want == "dropped" { want } else { &all });
    }
    check("type = 'csv'\nsource = 'z'\nadd_tag = 't'", "{}", "{}");
}

#[test]
fn translate() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("dictionary_path = '{}'\nsource = 's'", path.display())
    };
    let inline = "dictionary = { 200 = 'OK', a = [1], '^x' = 'ex' }\nsource = 's'";
    for (options, event, want) in [
        (inline, r#"{"s":200}"#, r#"{"s":200,"translation":"OK"}"#),
        (inline, r#"{"s":["a","b"]}"#, r#"{"s":["a","b"],"translation":[1]}"#),
        (inline, r#"{"s":"xy"}"#, r#"{"s":"xy"}"#),
        (inline, r#"{"z":1}"#, r#"{"z":1}"#),
        (&format!("{inline}\nregex = true\ntarget = 't'"), r#"{"s":"xy"}"#, r#"{"s":"xy","t":"ex"}"#),
        (&format!("{inline}\nexact = false"), r#"{"s":"is 200"}"#, r#"{"s":"is 200","translation":"is OK"}"#),
        (&format!("{inline}\nfallback = 'no %{{s}}'"), r#"{"s":"q"}"#, r#"{"s":"q","translation":"no q"}"#),
        (&format!("{inline}\ntarget = 't'"), r#"{"s":200,"t":1}"#, r#"{"s":200,"t":1}"#),
        (&format!("{inline}\ntarget = 't'\noverride = true"), r#"{"s":200,"t":1}"#, r#"{"s":200,"t":"OK"}"#),
        (&format!("{inline}\necs_compatibility = 'v8'\nadd_tag = 'x'"), r#"{"s":"q"}"#, r#"{"s":"q","tags":["x"]}"#),
        (&format!("{inline}\ntarget = '[s]'"), r#"{"s":"200"}"#, r#"{"s":"OK"}"#),
        (&format!("{inline}\niterate_on = 's'"), r#"{"s":["200",7]}"#, r#"{"s":["200",7],"translation":["OK",null]}"#),
        (
            &format!("{inline}\niterate_on = 'l'\ntarget = 't'\nfallback = '-'"),
            r#"{"l":[{"s":"200"},{"q":1},{"s":"z"}]}"#,
            r#"{"l":[{"s":"200","t":"OK"},{"q":1},{"s":"z","t":"-"}]}"#,
        ),
        (&file("d.json", r#"{"k":{"deep":1}}"#), r#"{"s":"k"}"#, r#"{"s":"k","translation":{"deep":1}}"#),
        (&file("d.csv", "k,v\n\"a,b\",\n"), r#"{"s":"a,b"}"#, r#"{"s":"a,b","translation":null}"#),
        (&file("d.yml", "k: [1, two]\n200: OK\n"), r#"{"s":200}"#, r#"{"s":200,"translation":"OK"}"#),
        (&file("e.yaml", "k: [1, two, 2.5]\n"), r#"{"s":"k"}"#, r#"{"s":"k","translation":[1,"two",2.5]}"#),
    ] {
        check(&format!("type = 'translate'\n{options}"), event, want);
    }
    for (options, said) in [
        (file("d.txt", ""), "ends neither in"),
        (file("bad.json", "[1]"), "cannot be used"),
        (file("bad.csv", "a\"b"), "line 1: a quote within a field"),
        (file("bad.yml", "a: [1"), "cannot be used"),
        ("source = 's'\ndictionary_path = '/no/such.json'".to_string(), "cannot read the dictionary"),
        ("source = 's'\nregex = true\ndictionary = { '(' = 1 }".to_string(), "is no pattern"),
    ] {
        let Err(report) = step(&format!("[[filter]]\ntype = 'translate'\n{options}")) else { panic!("{options}") };
        assert!(report.contains(said), "{options}: {report}");
    }
}

/// A dictionary that changes is read again; one that breaks is kept as it was.
#[test]
fn translate_reads_a_file_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d.json");
    let write = |text: &str, age: u64| {
        std::fs::write(&path, text).unwrap();
        let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000 + age);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
    };
    write(r#"{"a":1,"b":1}"#, 0);
    let toml = "[[filter]]\ntype = 'translate'\nsource = 's'\nrefresh_interval = 1\nrefresh_behaviour = 'replace'\n";
    let step = step(&format!("{toml}dictionary_path = '{}'", path.display())).unwrap();
    let ask = |key: &str| {
        let mut batch = batch_of(&json!({ "s": key }).to_string());
        step.apply(&mut batch, &clock(&Value::Null));
        event_of(&batch)["translation"].clone()
    };
    assert_eq!(ask("a"), 1);
    let until = |key: &str, want: Value| {
        let started = std::time::Instant::now();
        while ask(key) != want {
            assert!(started.elapsed().as_secs() < 60, "{key} is not {want}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    write(r#"{"a":2}"#, 10);
    until("a", json!(2));
    assert_eq!(ask("b"), Value::Null);
    write("{", 20);
    write(r#"{"a":3}"#, 30);
    until("a", json!(3));
}

#[test]
fn cidr() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("address = '%{{ip}}'\nnetwork_path = '{}'", path.display())
    };
    let private = "network = ['10.0.0.0/8,172.16.0.0/12', ' 192.168.0.0/16', 'fe80::/64']";
    let of_ip = format!("address = '%{{ip}}'\n{private}");
    let of_field = format!("address_field = '[host][ip]'\n{private}");
    let told = "address = ['%{ip}', '%{other}']\nnetwork = ['%{nets}', '203.0.113.9']";
    let listed = file("lines", "# inside\r\n10.0.0.0/8\r\n\n 192.168.1.0/255.255.255.0\n");
    let commas = format!("{}\nseparator = ','", file("commas", "10.0.0.0/8,192.168.1.0/24"));
    for (options, event, is_within) in [
        (&*of_ip, r#"{"ip":"192.168.0.30"}"#, true),
        (&of_ip, r#"{"ip":"172.31.255.255"}"#, true),
        (&of_ip, r#"{"ip":"172.32.0.0"}"#, false),
        (&of_ip, r#"{"ip":"8.8.8.8"}"#, false),
        (&of_ip, r#"{"ip":"10.1.0.0/16"}"#, true),
        (&of_ip, r#"{"ip":"10.0.0.0/7"}"#, false),
        (&of_ip, r#"{"ip":"::ffff:10.0.0.1"}"#, true),
        (&of_ip, r#"{"ip":"fe80:0:0:0:0:0:0:1"}"#, true),
        (&of_ip, r#"{"ip":"FE80::1%eth0"}"#, true),
        (&of_ip, r#"{"ip":"fd82::1"}"#, false),
        (&of_ip, r#"{"ip":["10.0.0.1","10.0.0.2"]}"#, false),
        (&of_ip, r#"{"ip":"x"}"#, false),
        (&of_ip, r#"{}"#, false),
        (&of_field, r#"{"host":{"ip":["no","192.168.0.1"]}}"#, true),
        (&of_field, r#"{"host":{"ip":"10.9.8.7"}}"#, true),
        (&of_field, r#"{"host":{"ip":377}}"#, false),
        (&of_field, r#"{"host":{"ip":{"a":"10.0.0.1"}}}"#, false),
        (told, r#"{"ip":"10.1.1.1","nets":["192.0.2.0/24","10.0.0.0/8"]}"#, true),
        (told, r#"{"ip":"x","other":"203.0.113.9"}"#, true),
        (told, r#"{"ip":"10.1.1.1","nets":"what"}"#, false),
        (
            "address_field = 'ip'\nnetwork = '%{nets}'",
            r#"{"ip":["1.1.1.1","::ffff:10.1.1.1"],"nets":"10.0.0.0/8"}"#,
            true,
        ),
        (&listed, r#"{"ip":"192.168.1.1"}"#, true),
        (&listed, r#"{"ip":"192.168.2.1"}"#, false),
        (&commas, r#"{"ip":"192.168.1.25"}"#, true),
    ] {
        let event: Value = serde_json::from_str(event).unwrap();
        let mut want = event.clone();
        if is_within {
            want["tags"] = json!(["in"]);
        }
        check(&format!("type = 'cidr'\nadd_tag = 'in'\n{options}"), &event.to_string(), &want.to_string());
    }
    for (options, said) in [
        ("address = 'a'", "nothing to look in"),
        ("network = '10.0.0.0/8'", "nothing to look for"),
        ("address = 'a'\naddress_field = 'a'\nnetwork = '::/0'", "both `address` and `address_field`"),
        ("address = 'a'\nnetwork_path = 'a'\nnetwork = '::/0'", "both `network` and `network_path`"),
        ("address = 'a'\nnetwork = ['::/0', '10.0.0.0/8, 10.0.0.0/33']", "`10.0.0.0/33` is no network"),
        ("address = 'a'\nnetwork_path = '/no/such'", "cannot read the networks"),
        (&file("bad", "10.0.0.0/8\nten"), "`ten` is no network"),
        (&file("empty", "\n"), "there is no network in it"),
        (&format!("{}\nseparator = ''", file("fine", "::/0")), "`separator` is empty"),
    ] {
        let Err(report) = step(&format!("[[filter]]\ntype = 'cidr'\n{options}")) else { panic!("{options}") };
        assert!(report.contains(said), "{options}: {report}");
    }
}

/// Patterns in the form of uap-core's, made up here.
const REGEXES: &str = r#"
user_agent_parsers:
  - regex: '(HeadlessX|NoFamily)?/never'
  - regex: '(Foxy)/(\d+)\.(\d+)(?:\.(\d+)|)'
  - regex: 'bot (\w+)(?: v(\d+)|)'
    family_replacement: 'Bot $1'
    v2_replacement: 9
  - regex: '(?<!not )(Ringed)(?=/)'
  - regex: '(Opus) (\d)\.(\d)\.(\d)\.(\d)'
os_parsers:
  - regex: 'Panes NT 6\.0'
    os_replacement: 'Panes'
    os_v1_replacement: 'Vista'
    os_v2_replacement: 'SP1'
  - regex: '(Tux|CPU OS) (\d+)[_.](\d+)(?:[_.](\d+)|)'
    os_replacement: '$1'
device_parsers:
  - regex: 'model ([a-z]+)-(\d+)'
    regex_flag: 'i'
    device_replacement: 'Acme $2 $1 $3'
  - regex: '(iSlab)'
"#;

#[test]
fn useragent() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        format!("regexes = '{}'\nsource = 'a'", path.display())
    };
    let plain = file("regexes.yaml", REGEXES);
    let check_agent = |options: &str, agent: &str, want: &str| {
        let event = json!({ "a": agent }).to_string();
        let want = format!("{},{want}}}", &event[..event.len() - 1]);
        check(&format!("type = 'useragent'\n{plain}\n{options}"), &event, &want);
    };
    let other = r#""os_name":"Other","os":"Other","os_full":"Other""#;
    for (agent, want) in [
        (
            "Foxy/45.0 (Tux 5.15.2) MODEL Ab-7",
            r#""name":"Foxy","device":"Acme 7 Ab","major":"45","minor":"0","version":"45.0","os_major":"5","os_minor":"15","os_patch":"2","os_version":"5.15.2","os_name":"Tux","os":"Tux","os_full":"Tux 5.15.2""#,
        ),
        (
            "Foxy/1.2.3.44 (Panes NT 6.0)",
            r#""name":"Foxy","device":"Other","major":"1","minor":"2","patch":"3","version":"1.2.3.44","os_major":"Vista","os_minor":"SP1","os_version":"Vista SP1","os_name":"Panes","os":"Panes","os_full":"Panes Vista SP1""#,
        ),
        ("nothing", &format!(r#""name":"Other","device":"Other",{other}"#)),
        (
            "bot Ann v3",
            &format!(r#""name":"Bot Ann","device":"Other","major":"3","minor":"9","version":"3.9",{other}"#),
        ),
        ("bot Ann", &format!(r#""name":"Bot Ann","device":"Other","minor":"9",{other}"#)),
        (
            "/never iSlab Foxy/2.1",
            &format!(r#""name":"Foxy","device":"iSlab","major":"2","minor":"1","version":"2.1",{other}"#),
        ),
        ("not Ringed/", &format!(r#""name":"Other","device":"Other",{other}"#)),
        ("a Ringed/", &format!(r#""name":"Ringed","device":"Other",{other}"#)),
        (
            "Opus 1.2.3.4",
            &format!(
                r#""name":"Opus","device":"Other","major":"1","minor":"2","patch":"3","version":"1.2.3.4",{other}"#
            ),
        ),
    ] {
        check_agent("", agent, want);
        check_agent("lru_cache_size = 0", agent, want);
    }
    let foxy = "Foxy/45.0 (Tux 5.15)";
    check_agent(
        "target = 'u'\nprefix = 'p_'",
        foxy,
        r#""u":{"p_name":"Foxy","p_device":"Other","p_major":"45","p_minor":"0","p_version":"45.0","p_os_major":"5","p_os_minor":"15","p_os_version":"5.15","p_os_name":"Tux","p_os":"Tux","p_os_full":"Tux 5.15"}"#,
    );
    let of_schema = r#"{"name":"Foxy","device":{"name":"Other"},"version":"45.0","os":{"version":"5.15","name":"Tux","full":"Tux 5.15"}}"#;
    check_agent("ecs_compatibility = 'v8'", foxy, &format!(r#""user_agent":{of_schema}"#));
    let parts = "add_field = { m = '%{[@metadata][filter][user_agent][os][version][minor]}' }";
    let want = format!(r#""x":{{"y":{of_schema}}},"m":"15""#);
    check_agent(&format!("ecs_compatibility = 'v1'\ntarget = '[x][y]'\n{parts}"), foxy, &want);
    let in_place = format!("type = 'useragent'\n{plain}\ntarget = 'a'\necs_compatibility = 'v8'");
    check(&in_place, &json!({ "a": [foxy, "x"] }).to_string(), &format!(r#"{{"a":{of_schema}}}"#));
    for event in [r#"{"a":""}"#, r#"{"a":null}"#, r#"{"a":7}"#, r#"{"a":[]}"#, r#"{"a":[7]}"#, r#"{"b":1}"#] {
        check(&format!("type = 'useragent'\n{plain}\nadd_tag = 't'"), event, event);
    }
    let rest = "os_parsers: []\ndevice_parsers: []\n";
    for (options, said) in [
        ("source = 'a'".to_string(), "missing key `regexes`"),
        ("source = 'a'\nregexes = '/no/such.yaml'".to_string(), "cannot read the patterns /no/such.yaml"),
        (file("torn.yaml", "user_agent_parsers: ["), "torn.yaml cannot be used: "),
        (file("empty.yaml", ""), "it has no list `user_agent_parsers`"),
        (file("part.yaml", "user_agent_parsers: []"), "it has no list `os_parsers`"),
        (
            file("none.yaml", &format!("user_agent_parsers: [{{a: b}}]\n{rest}")),
            "`user_agent_parsers`, entry 1: it has no",
        ),
        (
            file("bad.yaml", &format!("user_agent_parsers: [{{regex: a}}, {{regex: '('}}]\n{rest}")),
            "`user_agent_parsers`, entry 2: `(`: ",
        ),
        (
            file("flag.yaml", &format!("user_agent_parsers: [{{regex: a, regex_flag: x}}]\n{rest}")),
            "`regex_flag` is `x`",
        ),
        (format!("{plain}\nprefix = 'a['"), "field reference"),
    ] {
        let Err(report) = step(&format!("[[filter]]\ntype = 'useragent'\n{options}")) else { panic!("{options}") };
        assert!(report.contains(said), "{options}: {report}");
    }
}

#[test]
fn geoip() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        format!("type = 'geoip'\nsource = 'a'\ndatabase = '{}'", path.display())
    };
    let country = json!({ "iso_code": "GB", "names": { "de": "Großbritannien", "en": "United Kingdom" } });
    let continent = json!({ "code": "EU", "names": { "en": "Europe" } });
    let london = json!({
        "city": { "names": { "en": "London", "ja": "ロンドン" } },
        "continent": continent, "country": country,
        "location": { "accuracy_radius": 10, "latitude": 51.5142, "longitude": -0.0931, "metro_code": 807, "time_zone": "Europe/London" },
        "postal": { "code": "EC1" },
        "subdivisions": [{ "iso_code": "GB", "names": { "en": "Great" } }, { "iso_code": "ENG", "names": { "en": "England" } }],
    });
    let networks = [
        ("81.2.69.0/24", london),
        ("2001:db8::/32", json!({ "location": { "latitude": 0.0, "longitude": 1.5 } })),
        ("192.0.2.0/24", json!({ "country": country })),
    ];
    let city = file("city.mmdb", &mmdb::database("Made-City", &networks));
    let place = r#""timezone":"Europe/London","location":{"lat":51.5142,"lon":-0.0931}"#;
    let of_london = format!(
        r#"{{"city_name":"London","country_name":"United Kingdom","continent_code":"EU","country_code2":"GB","country_code3":"GB","ip":"81.2.69.160","postal_code":"EC1","dma_code":807,"region_name":"England","region_code":"ENG",{place},"latitude":51.5142,"longitude":-0.0931}}"#
    );
    let tagged =
        |event: &str| format!(r#"{},"geoip":{{}},"tags":["_geoip_lookup_failure"]}}"#, &event[..event.len() - 1]);
    for event in [r#"{"a":"81.2.69.160"}"#, r#"{"a":["::ffff:81.2.69.160","no"]}"#] {
        let want = format!(r#"{},"geoip":{of_london},"m":"GB"}}"#, &event[..event.len() - 1]);
        check(&format!("{city}\nadd_field = {{ m = '%{{[geoip][country_code2]}}' }}"), event, &want);
    }
    check(
        &city,
        r#"{"a":"2001:DB8::1","geoip":{"x":1}}"#,
        r#"{"a":"2001:DB8::1","geoip":{"x":1,"ip":"2001:db8:0:0:0:0:0:1","location":{"lat":0.0,"lon":1.5},"latitude":0.0,"longitude":1.5}}"#,
    );
    // not there, private, known without a place, no address; a name is not resolved
    for address in ["8.8.8.8", "10.0.0.1", "192.0.2.1", "::1", "fd00::1", "81.2.69", " 81.2.69.160", "localhost"] {
        let event = format!(r#"{{"a":"{address}"}}"#);
        check(&city, &event, &tagged(&event));
    }
    for event in [r#"{"a":""}"#, r#"{"a":" "}"#, r#"{"a":null}"#, r#"{"a":7}"#, r#"{"a":[]}"#, r#"{"b":1}"#] {
        let want = format!(r#"{},"tags":["x","y"]}}"#, &event[..event.len() - 1]);
        check(&format!("{city}\ntag_on_failure = ['x', 'y']\nadd_tag = 'no'"), event, &want);
    }
    let some = "fields = ['CITY_NAME', 'region_iso_code', 'network', 'autonomous_system_number']\ntarget = '[s][g]'";
    let want =
        r#"{"a":"81.2.69.1","s":{"g":{"city_name":"London","region_iso_code":"GB-ENG","network":"81.2.69.0/24"}}}"#;
    check(&format!("{city}\n{some}"), r#"{"a":"81.2.69.1"}"#, want);
    let of_schema = city.replace("'a'", "'[client][ip]'") + "\necs_compatibility = 'v8'";
    let want = format!(
        r#"{{"client":{{"ip":"81.2.69.160","geo":{{"city_name":"London","country_name":"United Kingdom","continent_code":"EU","country_iso_code":"GB","postal_code":"EC1","region_name":"England","region_iso_code":"GB-ENG",{place}}},"mmdb":{{"dma_code":807}}}}}}"#
    );
    check(&of_schema, r#"{"client":{"ip":"81.2.69.160"}}"#, &want);

    let record = json!({ "continent": continent, "country": country });
    let countries = file("country.mmdb", &mmdb::database("GeoLite2-Country", &[("81.2.0.0/16", record)]));
    let want = r#"{"a":"81.2.3.4","geoip":{"country_name":"United Kingdom","continent_name":"Europe","country_code2":"GB","ip":"81.2.3.4"}}"#;
    check(&countries, r#"{"a":"81.2.3.4"}"#, want);
    let record = json!({ "autonomous_system_number": 20712, "autonomous_system_organization": "A & A" });
    let asn = file("asn.mmdb", &mmdb::database("GeoLite2-ASN", &[("81.2.0.0/16", record)]));
    let want = r#"{"a":"81.2.3.4","geoip":{"asn":20712,"as_org":"A & A","ip":"81.2.3.4"}}"#;
    check(&asn, r#"{"a":"81.2.3.4"}"#, want);
    let want = r#"{"a":"81.2.3.4","g":{"as":{"number":20712,"organization":{"name":"A & A"}},"ip":"81.2.3.4"}}"#;
    check(&format!("{asn}\ntarget = 'g'\necs_compatibility = 'v1'"), r#"{"a":"81.2.3.4"}"#, want);
    let record = json!({ "traits": { "is_anonymous": true, "autonomous_system_number": 7 } });
    let anonymous = file("anonymous.mmdb", &mmdb::database("GeoIP2-Anonymous-IP", &[("81.2.0.0/16", record)]));
    let want = r#"{"a":"81.2.3.4","geoip":{"asn":7,"tor_exit_node":false,"anonymous":true}}"#;
    let fields = "fields = ['anonymous', 'tor_exit_node', 'autonomous_system_number']";
    check(&format!("{anonymous}\n{fields}"), r#"{"a":"81.2.3.4"}"#, want);

    for (options, said) in [
        ("type = 'geoip'\nsource = 'a'".to_string(), "missing key `database`"),
        ("type = 'geoip'\nsource = 'a'\ndatabase = '/no/such'".to_string(), "cannot read the database /no/such"),
        (file("torn", b"text"), "torn is no database: "),
        (file("other", &mmdb::database("Made-Up", &[])), "other is a database of the kind `Made-Up`"),
        (format!("{city}\nfields = ['city']"), "`city` is none of autonomous_system_number, "),
        (format!("{city}\necs_compatibility = 'v8'"), "wants a `target`"),
    ] {
        let Err(report) = step(&format!("[[filter]]\n{options}")) else { panic!("{options}") };
        assert!(report.contains(said), "{options}: {report}");
    }
}

/// A database whose bytes are wrong anywhere is refused at the start or tags events; nothing panics.
#[test]
fn geoip_of_a_torn_database() {
    let record = json!({ "location": { "latitude": 1.5, "longitude": 2.5 }, "city": { "names": { "en": "A" } } });
    let whole = mmdb::database("City", &[("81.2.69.0/24", record)]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("city.mmdb");
    let toml = format!("[[filter]]\ntype = 'geoip'\nsource = 'a'\ndatabase = '{}'", path.display());
    for at in (0..whole.len()).step_by(3) {
        for changed in [0xff, whole[at] ^ 0x20] {
            let mut bytes = whole.clone();
            bytes[at] = changed;
            std::fs::write(&path, &bytes).unwrap();
            let Ok(step) = step(&toml) else { continue };
            let mut batch = batch_of(r#"{"a":"81.2.69.1"}"#);
            step.apply(&mut batch, &clock(&Value::Null));
            assert!(event_of(&batch).is_object());
        }
    }
}

#[test]
fn conditions_and_common_options() {
    let add = "type = 'mutate'\nadd_tag = 't'\n";
    check(&format!("{add}when = '[a] == 1'"), r#"{"a":1}"#, r#"{"a":1,"tags":["t"]}"#);
    check(&format!("{add}when = '[a] == 1'"), r#"{ "a" : 2}"#, r#"{ "a" : 2}"#);
    check(&format!("{add}when = '[a] > 1'"), r#"{"b":2}"#, r#"{"b":2,"tags":["_conditionfailure"]}"#);
    check("type = 'drop'\nwhen = '\"x\" in [tags]'", r#"{"tags":["x"]}"#, "dropped");
    check("type = 'drop'\npercentage = 0\nremove_field = 'a'", r#"{"a":1,"b":2}"#, r#"{"b":2}"#);
    check("type = 'drop'\npercentage = 100", "{}", "dropped");
    check(
        "type = 'mutate'\nadd_field = { 'n_%{a}' = ['%{a}!', 'y'], '[x][y]' = 'z' }\nremove_field = ['a']",
        r#"{"a":"q"}"#,
        r#"{"n_q":["q!","y"],"x":{"y":"z"}}"#,
    );
}

#[test]
fn mutate_operations() {
    for (options, event, want) in [
        ("coerce = { a = 'd-%{b}', b = 'no', c = 'no' }", r#"{"a":null,"b":"x"}"#, r#"{"a":"d-x","b":"x"}"#),
        ("rename = { a = '[n][a]', gone = 'x' }", r#"{"a":{"k":1},"b":2}"#, r#"{"b":2,"n":{"a":{"k":1}}}"#),
        ("rename = { '%{k}' = 'to_%{k}' }", r#"{"k":"a","a":1}"#, r#"{"k":"a","to_a":1}"#),
        ("rename = { a = '[b][c]' }", r#"{"a":1,"b":"t"}"#, r#"{"b":"t","a":1,"tags":["_mutate_error"]}"#),
        ("rename = { a = '[a][b]' }", r#"{"a":1}"#, r#"{"a":{"b":1}}"#),
        ("update = { a = '%{b}', c = 'no' }", r#"{"a":1,"b":2}"#, r#"{"a":"2","b":2}"#),
        ("replace = { a = 'x', c = 'y' }", r#"{"a":1}"#, r#"{"a":"x","c":"y"}"#),
        (
            "convert = { a = 'integer', b = 'float', c = 'boolean' }",
            r#"{"a":"1","b":2,"c":"no"}"#,
            r#"{"a":1,"b":2.0,"c":false}"#,
        ),
        ("convert = { a = 'integer' }", r#"{"a":["1",null,2,"7.5"],"b":{}}"#, r#"{"a":[1,null,2,7],"b":{}}"#),
        (
            "convert = { a = 'string', o = 'integer' }",
            r#"{"a":[1.5,true],"o":{"k":"1"}}"#,
            r#"{"a":["1.5","true"],"o":{"k":"1"}}"#,
        ),
        ("convert = { a = 'float' }\nadd_tag = 'ok'", r#"{"a":"abc"}"#, r#"{"a":"abc","tags":["_mutate_error"]}"#),
        ("convert = { a = 'float' }\ntag_on_failure = 'bad'", r#"{"a":"abc"}"#, r#"{"a":"abc","tags":["bad"]}"#),
        (
            "gsub = ['a', '/', '_', 'b', '[\\?#-]', '.']",
            r#"{"a":"x/y","b":["a?","? #",1]}"#,
            r#"{"a":"x_y","b":["a.",". .",1]}"#,
        ),
        ("gsub = ['a', '(?<y>\\d+)', '<\\k<y>%{b}>']", r#"{"a":"x12","b":"!"}"#, r#"{"a":"x<12!>","b":"!"}"#),
        ("gsub = ['a', '%{b}', '-']", r#"{"a":"x.y","b":"\\."}"#, r#"{"a":"x-y","b":"\\."}"#),
        ("gsub = ['a', '%{b}', '-']", r#"{"a":"x","b":"("}"#, r#"{"a":"x","b":"(","tags":["_mutate_error"]}"#),
        ("gsub = ['a', 'z', '-']", r#"{ "a" : "x" }"#, r#"{ "a" : "x" }"#),
        (
            "uppercase = ['a', 'b']\nlowercase = 'c'",
            r#"{"a":"straße","b":["x",1],"c":"É"}"#,
            r#"{"a":"STRASSE","b":["X",1],"c":"é"}"#,
        ),
        ("capitalize = ['a']", r#"{"a":"hELLO wORLD"}"#, r#"{"a":"Hello world"}"#),
        ("strip = ['a', 'b', 'n']", "{\"a\":\" x\\t\\n\",\"b\":[\" y \"],\"n\":1}", r#"{"a":"x","b":["y"],"n":1}"#),
        ("strip = ['b']", r#"{"b":[" y ",1]}"#, r#"{"b":[" y ",1],"tags":["_mutate_error"]}"#),
        (
            "split = { a = ',', b = ' ', c = '', d = ',' }",
            r#"{"a":"x,,y,,","b":" p  q ","c":"é1","d":""}"#,
            r#"{"a":["x","","y"],"b":["p","q"],"c":["é","1"],"d":[]}"#,
        ),
        (
            "join = { a = '-', b = '-' }",
            r#"{"a":["x",1,null,[2.50,true],{"k":1}],"b":"y"}"#,
            r#"{"a":"x-1--2.5-true-{\"k\":1}","b":"y"}"#,
        ),
        ("merge = { a = 'b' }", r#"{"a":"x","b":["y",1]}"#, r#"{"a":["x","y",1],"b":["y",1]}"#),
        ("merge = { a = ['b', 'c'] }", r#"{"b":"y","c":"z"}"#, r#"{"b":"y","c":"z","a":["y","z"]}"#),
        (
            "merge = { a = 'b' }",
            r#"{"a":{"k":1,"l":2},"b":{"l":3,"m":4}}"#,
            r#"{"a":{"k":1,"l":3,"m":4},"b":{"l":3,"m":4}}"#,
        ),
        ("merge = { a = 'b', c = 'd' }", r#"{"a":{"k":1},"b":[1]}"#, r#"{"a":{"k":1},"b":[1]}"#),
        (
            "copy = { a = '[b][c]', gone = 'x', z = 'y' }",
            r#"{"a":{"k":[1]},"z":null}"#,
            r#"{"a":{"k":[1]},"z":null,"b":{"c":{"k":[1]}}}"#,
        ),
        ("copy = { a = 'b' }\nrename = { x = 'a' }\nlowercase = ['a']", r#"{"x":"Q"}"#, r#"{"a":"q","b":"q"}"#),
    ] {
        check(&format!("type = 'mutate'\n{options}"), event, want);
    }
}

#[test]
fn json_filter() {
    let message = |text: &str| json!({ "message": text, "a": 0 }).to_string();
    let options = "type = 'json'\nsource = 'message'\nremove_field = 'message'\n";
    check(options, &message(r#" {"a":1,"b":{"c":[1.10]}} "#), r#"{"a":1,"b":{"c":[1.10]}}"#);
    check(options, &message(r#"{"b":1,"b":2,"@metadata":{"m":1},"@timestamp":null}"#), r#"{"a":0,"b":2}"#);
    check(&format!("{options}target = '[x][y]'"), &message("5"), r#"{"a":0,"x":{"y":5}}"#);
    for bad in ["", "5", "[1]", r#"{"b":1} trailing"#, "{'b':1}"] {
        let want = json!({ "a": 0, "message": bad, "tags": ["_jsonparsefailure"] });
        let mut batch = batch_of(&message(bad));
        step(&format!("[[filter]]\n{options}")).unwrap().apply(&mut batch, &clock(&Value::Null));
        assert_eq!(event_of(&batch), want);
    }
    let number = r#"{"message":5}"#;
    check(options, number, r#"{"message":5,"tags":["_jsonparsefailure"]}"#);
    let time = r#"{"a":0,"@timestamp":"2026-01-01T00:00:00Z"}"#;
    check(options, &message(r#"{"@timestamp":"2026-01-01T00:00:00Z"}"#), time);
    let aside = r#"{"a":0,"_@timestamp":"x","tags":["_timestampparsefailure"]}"#;
    check(options, &message(r#"{"@timestamp":"x"}"#), aside);
}

#[test]
fn grok_beyond_the_cases() {
    let message = |text: &str| json!({ "m": text }).to_string();
    for (options, event, want) in [
        ("match = { m = '%{INT:a} %{INT:b:int} %{NUMBER:c:float}' }", "007 008 1e", r#""a":"007","b":8,"c":1.0"#),
        ("match = { m = '%{DATA:a:int} %{DATA:b:float} %{DATA:c:int}$' }", "  -1_0x .5e1 ", r#""a":0,"b":0.0,"c":-10"#),
        // a text that is cast is never empty
        ("match = { m = 'a%{DATA:x:int}b' }", "ab", r#""x":0"#),
        ("match = { m = 'a%{INT:x:int}|b%{INT:x:int}' }", "b5", r#""x":5"#),
        ("match = { m = '(?<x>.)(?<y>.)(?<x>.)' }", "abc", r#""x":["a","c"],"y":"b""#),
        ("match = { m = '(?<w:x:int>.)' }\ntarget = ' t '", "5", r#""t":{"x":5}"#),
        ("match = { m = '%{WORD:[a][b]}' }\ntarget = '[t][u]'", "w", r#""t":{"u":{"a":{"b":"w"}}}"#),
        ("match = { m = '%{WORD:a.b} %{WORD:c-d} %{WORD:e_f}' }", "x y z", r#""a.b":"x","c-d":"y","e_f":"z""#),
        ("match = { m = '%{NOPE=x+\\d}%{NOPE:y}' }", "x1xx2", r#""y":"xx2""#),
        ("pattern_definitions = { ID = '\\d+' }\nmatch = { m = '#%{ID:id:int}' }", "#12", r#""id":12"#),
        ("match = { m = '%{NUMBER:n}' }\nnamed_captures_only = false", "1.5", r#""n":"1.5","BASE10NUM":"1.5""#),
        ("match = { m = '(?<m>.)' }\noverwrite = 'm'", "xy", ""),
        // the pattern tried last decides, as in Logstash
        (
            "match = { m = ['%{INT:i}', 'z%{WORD:w}'] }\nbreak_on_match = false",
            "5",
            r#""i":"5","tags":["_grokparsefailure"]"#,
        ),
        ("match = { m = ['%{INT:i}', '%{WORD:w}'] }\nbreak_on_match = false", "5", r#""i":"5","w":"5""#),
        ("match = { m = 'x' }\ntag_on_failure = []", "5", ""),
        ("match = { m = '(?=((a|aa)(?=a|b))+c)' }", &"a".repeat(60), r#""tags":["_groktimeout"]"#),
        (
            "match = { m = '(?=((a|aa)(?=a|b))+c)' }\ntimeout_millis = 1\ntimeout_scope = 'event'\ntag_on_timeout = 'slow'",
            &"a".repeat(60),
            r#""tags":["slow"]"#,
        ),
    ] {
        let first =
            if options.contains("overwrite") { r#""m":"x""#.to_string() } else { format!("\"m\":{}", json!(event)) };
        let more = if want.is_empty() { "" } else { "," };
        check(&format!("type = 'grok'\n{options}"), &message(event), &format!("{{{first}{more}{want}}}"));
    }
    let word = "type = 'grok'\nmatch = { a = '^%{DATA:x}$' }";
    for (event, want) in [
        (r#"{"a":1.50}"#, r#"{"a":1.50,"x":"1.5"}"#),
        (r#"{"a":true}"#, r#"{"a":true,"x":"true"}"#),
        (r#"{"a":"q\"é\n"}"#, r#"{"a":"q\"é\n","x":"q\"é"}"#),
        (r#"{"a":["b",1,null],"x":null}"#, r#"{"a":["b",1,null],"x":["b","1"]}"#),
        (r#"{"a":[]}"#, r#"{"a":[],"tags":["_grokparsefailure"]}"#),
        (r#"{"a":"b","x":[1]}"#, r#"{"a":"b","x":[1,"b"]}"#),
        (r#"{"a":"b","x":{"k":1}}"#, r#"{"a":"b","x":{"k":1}}"#),
        (r#"{"a":"","x":1}"#, r#"{"a":"","x":1}"#),
    ] {
        check(word, event, want);
    }
    let way = "type = 'grok'\nmatch = { a = '%{WORD:[a][b]}' }";
    check(way, r#"{"a":"t"}"#, r#"{"a":"t","tags":["_grokparsefailure"]}"#);
    let time = "type = 'grok'\nmatch = { a = '%{YEAR:@timestamp}' }";
    check(time, r#"{"a":"2026","@timestamp":"2025"}"#, r#"{"a":"2026","@timestamp":"2025"}"#);
}

#[test]
fn date_filter_beyond_the_cases() {
    let options = "type = 'date'\nmatch = ['t', 'yyyy', 'UNIX']\n";
    check(
        &format!("{options}add_tag = 'ok'"),
        r#"{"t":"2024"}"#,
        r#"{"t":"2024","@timestamp":"2024-01-01T00:00:00.000Z","tags":["ok"]}"#,
    );
    check(
        &format!("{options}timezone = '%{{z}}'"),
        r#"{"t":1,"z":"Mars"}"#,
        r#"{"t":1,"z":"Mars","@timestamp":"1970-01-01T00:00:01.000Z"}"#,
    );
    check(
        &format!("{options}timezone = '%{{z}}'"),
        r#"{"t":"2024"}"#,
        r#"{"t":"2024","@timestamp":"1970-01-01T00:33:44.000Z"}"#,
    );
    check(&format!("{options}target = '[t][x]'"), r#"{"t":"2024"}"#, r#"{"t":"2024","tags":["_dateparsefailure"]}"#);
    check(&format!("{options}tag_on_failure = []"), r#"{"t":"x"}"#, r#"{"t":"x"}"#);
}

#[test]
fn wrong_options_are_pointed_at() {
    for (toml, want) in [
        ("type = 'mutat'", "2:8: filter 1 (mutat): `type`: unknown value \"mutat\""),
        ("type = 'drop'\nwhen = '[a] = 1'", "3:13: filter 1 (drop): `when`: `==` compares"),
        ("type = 'drop'\npercentage = 101", "3:14: filter 1 (drop): `percentage` is out of range"),
        ("type = 'drop'\npercent = 1", "3:1: filter 1 (drop): unknown key `percent`"),
        ("type = 'json'", "1:1: filter 1 (json): missing key `source`"),
        ("type = 'date'\nmatch = ['t', 'b']", "3:9: filter 1 (date): unknown letter `b`"),
        ("type = 'date'\nmatch = ['t']", "3:9: filter 1 (date): `match` wants a field and at least one format"),
        ("type = 'mutate'\ngsub = ['a', '(', '']", "3:14: filter 1 (mutate): `gsub`: "),
        ("type = 'mutate'\ngsub = ['a', 'b']", "3:8: filter 1 (mutate): `gsub` wants three texts"),
        ("type = 'mutate'\nconvert = { a = 'int' }", "3:17: filter 1 (mutate): `a`: unknown value \"int\""),
        ("type = 'grok'\nmatch = { m = 'a %{NUMBR:n}' }", "3:18: filter 1 (grok): `m`: no pattern is named `NUMBR`"),
        ("type = 'grok'\nmatch = { m = ['x', '%{WORD:[a}'] }", "3:21: filter 1 (grok): `m`: "),
        ("type = 'grok'\nmatch = { m = '(' }", "3:15: filter 1 (grok): `m`: "),
        ("type = 'grok'\nmatch = {}", "3:9: filter 1 (grok): `match` names no field"),
        (
            "type = 'grok'\npattern_definitions = { A = '%{B}', B = '%{A}' }\nmatch = { m = '%{A}' }",
            "4:16: filter 1 (grok): `m`: pattern `A` holds itself, by way of `A`, `B`",
        ),
        (
            "type = 'grok'\nmatch = { m = 'x' }\npatterns_dir = '/nowhere/at/all'",
            "4:16: filter 1 (grok): `patterns_dir`",
        ),
        ("type = 'mutate'\nadd_field = { 'a[' = 'x' }", "3:15: filter 1 (mutate): `a[`: "),
    ] {
        let report = step(&format!("[[filter]]\n{toml}\n")).err().unwrap_or_else(|| panic!("{toml}"));
        assert!(report.starts_with(&format!("t.toml:{want}")), "{toml}\n{report}");
    }
}

proptest! {
    /// Whatever the operations and the event: no panic, and one JSON object on one line.
    #[test]
    fn any_event_stays_an_event(
        options in proptest::collection::vec(proptest::sample::select(OPTIONS), 1..6),
        a in VALUE, b in VALUE, tags in VALUE,
    ) {
        let mut batch = batch_of(&format!("{{\"a\":{a},\"b\":{{\"c\":{b}}},\"tags\":{tags}}}"));
        for option in options {
            let step = step(&format!("[[filter]]\n{option}")).unwrap();
            step.apply(&mut batch, &clock(&Value::Null));
        }
        let mut out = Vec::new();
        batch.event(0).write_source(&mut out);
        prop_assert!(!out.contains(&b'\n'));
        prop_assert!(serde_json::from_slice::<Map<String, Value>>(&out).is_ok());
    }
}

const VALUE: &str =
    r#"(null|true|1|-2\.50|"x y"|"2024-01-01"|"\{\\"a\\":\[1\]\}"|\[1,"q",null\]|\{"a":1,"c":\["z"\]\}|\[\])"#;

const OPTIONS: &[&str] = &[
    "type='mutate'\nrename = { a = '[b][c]' }",
    "type='mutate'\nrename = { '[b][c]' = '[a][x]' }",
    "type='mutate'\nrename = { '[b]' = '[b][c][d]' }",
    "type='mutate'\ncopy = { b = '[a][0]', a = '[b][c]' }",
    "type='mutate'\nmerge = { a = ['[b][c]', 'tags'], '[b][c]' = 'b' }",
    "type='mutate'\nconvert = { a = 'integer', '[b][c]' = 'string' }",
    "type='mutate'\nsplit = { a = ' ' }\njoin = { '[b][c]' = '%{a}' }",
    "type='mutate'\ngsub = ['a', '%{[b][c]}', '\\0\"', '[b][c]', '(?=.)', '\"\\\\']",
    "type='mutate'\nuppercase = ['a']\ncapitalize = ['[b][c]']\nstrip = ['a', '[b][c]']",
    "type='mutate'\nreplace = { '[a][-1]' = '%{b}' }\nupdate = { '[b][c]' = '%{a}\"' }\ncoerce = { a = '%{tags}' }",
    "type='mutate'\nadd_field = { '%{a}' = 'x', '[b][c]' = 'y', 'a' = '%{b}' }\nadd_tag = ['%{a}', 't']\nremove_tag = ['q']",
    "type='mutate'\nremove_field = ['[a][0]', '[b][a]', '[tags][-1]']",
    "type='mutate'\nwhen = '[a] > 1 or [b][c] in [a]'\nadd_tag = 'w'",
    "type='date'\nmatch = ['a', 'ISO8601', 'yyyy']\ntarget = '[b][c]'",
    "type='date'\nmatch = ['[b][c]', 'UNIX', 'ISO8601']",
    "type='json'\nsource = 'a'",
    "type='json'\nsource = '[b][c]'\ntarget = '[a][x]'",
    "type='drop'\npercentage = 50",
];
