//! Logstash's date cases, as far as they need no whole event: formats, zones, locales, clocks, and date
//! placeholders of templates. What differs on purpose is listed in `docs/differences.md`, and nothing else may.

use std::collections::BTreeSet;
use std::path::Path;

use onceline::date::locale::Locale;
use onceline::date::zone::Zone;
use onceline::date::{Matcher, Source, java, joda};
use onceline::time::Time;
use serde_json::Value;

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

fn cases(name: &str) -> Vec<Value> {
    let text = read(&format!("tests/cases/logstash/{name}.jsonl"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The ids of one area in the table of intended differences.
fn listed(area: &str) -> BTreeSet<String> {
    read("docs/differences.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .filter(|id| id.starts_with(area))
        .map(str::to_owned)
        .collect()
}

/// Runs every case; `run` gives what happened, what should, or nothing where a whole event is needed.
fn check(area: &str, least: usize, run: fn(&Value) -> Option<(String, String)>) {
    let (mut differs, mut ran, mut report) = (BTreeSet::new(), 0, String::new());
    let listed = listed(&format!("{area}-"));
    for case in cases(area) {
        let id = case["id"].as_str().unwrap();
        let Some((got, want)) = run(&case) else { continue };
        ran += 1;
        if got != want {
            differs.insert(id.to_owned());
            if !listed.contains(id) {
                report += &format!("{id}: got {got}, want {want} ({})\n", case["what"]);
            }
        }
    }
    for id in listed.difference(&differs) {
        report += &format!("{id}: listed as a difference, but none\n");
    }
    assert!(report.is_empty(), "\n{report}");
    assert!(ran >= least, "only {ran} cases of {area} ran");
}

fn date(case: &Value) -> Option<(String, String)> {
    let config = &case["config"];
    let (input, want) = (&case["in"], &case["want"]);
    let whole = config.get("target").is_some() || config.get("add_tag").is_some() || input.get("cancelled").is_some();
    if whole || input["t"].is_null() || input["t"].is_array() {
        return None;
    }
    let want = match want["@timestamp"].as_str() {
        _ if want["config_error"] == true => "config error".into(),
        _ if want["raises"] == true => "raises".into(),
        Some("unchanged") => "failure".into(),
        time => time?.to_owned(),
    };
    let id = match config["timezone"].as_str() {
        Some("%{mytz}") => input["mytz"].as_str()?,
        Some(id) => id,
        None => case["host_timezone"].as_str().unwrap_or("UTC"),
    };
    let locale = Locale::parse(config["locale"].as_str().unwrap_or("en"));
    let formats = config["match"].as_array()?.iter().skip(1).map(|format| format.as_str().unwrap());
    let matchers: Result<Vec<Matcher>, String> =
        locale.and_then(|locale| formats.map(|format| Matcher::compile(format, &locale)).collect());
    let (Ok(zone), Ok(matchers)) = (Zone::parse(id), matchers) else {
        return Some(("config error".into(), want));
    };
    let number = input["t"].to_string();
    let source = match &input["t"] {
        Value::String(text) => Some(Source::Text(text)),
        Value::Number(_) => Some(Source::Number(&number)),
        Value::Object(decimal) => Some(Source::Number(decimal["decimal"].as_str()?)),
        _ => None,
    };
    let now = case["clock"].as_str().unwrap_or("2026-01-15T00:00:00Z");
    let now = Time::rfc3339(now.as_bytes())?;
    let time = source.and_then(|source| matchers.iter().find_map(|matcher| matcher.parse(source, &zone, now)));
    Some((time.map_or("failure".into(), |time| time.iso()), want))
}

fn sprintf(case: &Value) -> Option<(String, String)> {
    let template = case["config"]["template"].as_str()?;
    let dated = (template.contains("%{+") || template.contains("%{{")) && !template.contains("%{+%s}");
    let want = match &case["want"] {
        want if want["raises"] == true => "raises",
        want => want["text"].as_str()?,
    };
    let at = case["in"]["@timestamp"].as_str().filter(|_| dated)?;
    let time = onceline::date::iso8601::parse(at, &Zone::UTC)?;
    let mut out = Vec::new();
    let mut rest = template;
    while let Some((before, placeholder)) = rest.split_once("%{") {
        out.extend_from_slice(before.as_bytes());
        let close = if placeholder.starts_with('{') { "}}" } else { "}" };
        let (inner, after) = placeholder.split_once(close)?;
        let wrong = if let Some(pattern) = inner.strip_prefix('+') {
            joda::Pattern::compile(pattern, Locale::english()).map(|pattern| pattern.format(time, &mut out)).err()
        } else if let Some(pattern) = inner.strip_prefix('{') {
            java::Pattern::compile(pattern).map(|pattern| pattern.format(time, &mut out)).err()
        } else {
            out.extend_from_slice(case["in"][inner].as_str()?.as_bytes());
            None
        };
        if wrong.is_some() {
            return Some(("raises".into(), want.into()));
        }
        rest = after;
    }
    out.extend_from_slice(rest.as_bytes());
    Some((String::from_utf8(out).unwrap(), want.into()))
}

#[test]
fn logstash_date_cases() {
    check("date", 80, date);
}

#[test]
fn logstash_date_placeholders() {
    check("sprintf", 17, sprintf);
}
