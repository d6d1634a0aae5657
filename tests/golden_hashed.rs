//! What of an event is hashed is for ever, as ids are. The lines of `tests/golden/hashed.jsonl` were computed without
//! this program, from the definition in `docs/ids.md`. They are never edited, and nothing here can rewrite them; new
//! lines may be added for new, versioned serialisations. After them: what a serialisation must never do.

use onceline::batch::{Batch, Source, Span};
use onceline::field::FieldRef;
use onceline::id::Refused;
use onceline::id::digest::{DIGEST_BYTES_MAX, Digest, Method};
use onceline::id::serial::{Content, Digests, Scratch, Serialization};
use onceline::json::Scanner;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;

/// How many lines there are.
const LINES: usize = 176;

fn event(text: &str, offset: u64, head: &str) -> Batch {
    let source = Source { name: "".into(), head: head.as_bytes().into(), ..Source::default() };
    let mut batch = Batch::new(text.as_bytes().to_vec(), Arc::new(source));
    let mut entries = Vec::new();
    let mut scanner = Scanner::default();
    let scanned = scanner.scan(text.as_bytes(), true, &mut entries).unwrap();
    let raw = Span::new(0, text.len());
    if scanned.odd {
        let repaired = onceline::json::repair(text.as_bytes());
        let whole = batch.write(&repaired);
        entries.clear();
        scanner.scan(&repaired, true, &mut entries).unwrap();
        batch.push_json(raw, offset, whole, whole.start, &entries);
    } else {
        batch.push_json(raw, offset, raw, 0, &entries);
    }
    batch
}

fn fields(names: &[&str]) -> Option<Vec<FieldRef>> {
    Some(names.iter().map(|name| FieldRef::parse(name).unwrap()).collect())
}

fn hashed(content: &Content, batch: &Batch) -> Result<Vec<u8>, Refused> {
    let mut scratch = Scratch::default();
    content.write(&batch.event(0), &mut scratch)?;
    Ok(scratch.bytes)
}

fn check(line: &Value) {
    let names: Option<Vec<&str>> =
        line["source"].as_array().map(|names| names.iter().map(|name| name.as_str().unwrap()).collect());
    let serialization = Serialization::parse(line["serialization"].as_str().unwrap_or("v1")).unwrap();
    let keep = line["repeats"] == "keep";
    let content = Content::new(names.and_then(|names| fields(&names)), serialization, keep).unwrap();
    let offset = line["offset"].as_u64().unwrap_or_default();
    let batch = event(line["event"].as_str().unwrap(), offset, line["head"].as_str().unwrap_or_default());
    let mut out = [0; DIGEST_BYTES_MAX];
    let digest = Digest::new(Method::Md5, None).unwrap();
    let digested = content.digest(&batch.event(0), &digest, &mut Scratch::default(), &mut out);
    let bytes = match hashed(&content, &batch) {
        Ok(bytes) => bytes,
        Err(refused) => {
            assert_eq!(line["refused"], true, "{refused}: {line}");
            return assert!(digested.is_err(), "{line}");
        }
    };
    let want = match line["text"].as_str() {
        Some(text) => hex::encode(text),
        None => line["hex"].as_str().unwrap_or("refused").to_owned(),
    };
    assert_eq!(hex::encode(&bytes), want, "{} {line}", bytes.escape_ascii());
    assert_eq!(hex::encode(&out[..digested.unwrap()]), line["md5"].as_str().unwrap(), "{line}");
}

#[test]
fn golden() {
    let lines = include_str!("golden/hashed.jsonl");
    assert_eq!(lines.lines().count(), LINES, "lines are added, never taken away; count the new ones here");
    lines.lines().for_each(|line| check(&serde_json::from_str(line).unwrap()));
}

/// How many ids the lines of a case have: content and key as the case wants, merged or kept.
fn distinct(lines: &str, keep: bool, method: Method, key: Option<&[u8]>) -> usize {
    let content = Content::new(fields(&["a", "b"]), Serialization::V1, keep).unwrap();
    let digest = Digest::new(method, key).unwrap();
    let (mut ids, mut offset, mut scratch) = (HashSet::new(), 0, Scratch::default());
    for line in lines.lines() {
        let batch = event(line, offset, lines);
        let mut out = [0; DIGEST_BYTES_MAX];
        content.digest(&batch.event(0), &digest, &mut scratch, &mut out).unwrap();
        ids.insert(out);
        offset += line.len() as u64 + 1;
    }
    ids.len()
}

#[test]
fn distinct_events_have_distinct_ids() {
    let different = include_str!("cases/public/03-fingerprint-serialisation/distinct.ndjson");
    let spellings = include_str!("cases/public/03-fingerprint-serialisation/same-event-three-spellings.ndjson");
    let twins = include_str!("cases/public/03-fingerprint-serialisation/twins.ndjson");
    for method in Method::ALL {
        let keys = [None, Some(&b"key"[..])];
        for key in keys.into_iter().filter(|key| key.is_none() || Digest::new(method, *key).is_ok()) {
            assert_eq!(distinct(different, false, method, key), 17);
            assert_eq!(distinct(spellings, false, method, key), 1);
            assert_eq!((distinct(twins, false, method, key), distinct(twins, true, method, key)), (1, 3));
        }
    }
}

#[test]
fn a_batch_is_hashed_as_its_events_are() {
    let mut batch = Batch::default();
    for number in 0..21 {
        let value =
            ["null", "\"\"", "7", "[1]"].get(number % 9).map_or(format!("\"text {number}\""), |v| v.to_string());
        let record = format!("{{\"a\":{value},\"b\":\"{}\"}}", "b".repeat(number * 13));
        let raw = batch.write(record.as_bytes());
        let mut entries = Vec::new();
        Scanner::default().scan(record.as_bytes(), true, &mut entries).unwrap();
        batch.push_json(raw, number as u64, raw, raw.start, &entries);
    }
    let sources = [None, fields(&["a"]), fields(&["b"]), fields(&["b", "a"])];
    for (source, keep, method) in sources
        .into_iter()
        .flat_map(|s| [(s.clone(), false, Method::Md5), (s.clone(), true, Method::Md5), (s, false, Method::Sha1)])
    {
        let (content, digest) =
            (Content::new(source, Serialization::V1, keep).unwrap(), Digest::new(method, Some(b"key")).unwrap());
        let (mut scratch, mut digests) = (Scratch::default(), Digests::default());
        content.digest_batch(&batch, &digest, &mut scratch, &mut digests);
        for index in 0..batch.len() {
            let mut out = [0; DIGEST_BYTES_MAX];
            let want = content.digest(&batch.event(index), &digest, &mut scratch, &mut out);
            assert_eq!(digests.get(index).map_err(Refused::clone), want.map(|len| &out[..len]), "{index}");
        }
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[a-c|\\[\\]{}\u{0}é\"\\\\ntz0-9-]{0,4}", ".{0,3}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..1000).prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((text.clone(), inner), 0..4)
                .prop_map(|members| { Value::Object(members.into_iter().collect()) }),
        ]
    })
}

/// Writes a value with its keys in another order, other white space, escapes where none are needed, and other
/// spellings of its numbers, all chosen by `seed`.
fn respell(value: &Value, seed: &mut u64, out: &mut String) {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let turn = (*seed >> 33) as usize;
    out.push_str([" ", "", "\t", "\r\n"][turn % 4]);
    match value {
        Value::String(text) => respell_text(text, turn, out),
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                respell(item, seed, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            let shift = turn % members.len().max(1);
            members.rotate_left(shift);
            out.push('{');
            for (at, (key, member)) in members.into_iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                respell_text(key, turn, out);
                out.push(':');
                respell(member, seed, out);
            }
            out.push('}');
        }
        Value::Number(number) if number.is_i64() => {
            out.push_str(&number.to_string());
            out.push_str(["", ".0", "e0", ".00E+00"][turn % 4]);
        }
        other => out.push_str(&other.to_string()),
    }
    out.push_str(["", " "][turn % 2]);
}

fn respell_text(text: &str, turn: usize, out: &mut String) {
    out.push('"');
    for (at, c) in text.encode_utf16().enumerate() {
        let plain = char::from_u32(u32::from(c)).filter(|c| *c >= ' ' && !matches!(c, '"' | '\\'));
        match plain {
            Some(plain) if !(at + turn).is_multiple_of(3) => out.push(plain),
            _ => out.push_str(&format!("\\u{c:04x}")),
        }
    }
    out.push('"');
}

fn event_of(a: &Value, b: &Value) -> Value {
    serde_json::json!({"other": 1, "a": a, "b": b, "@timestamp": "2026-03-01T10:00:00Z"})
}

proptest! {
    #[test]
    fn spelling_does_not_matter(a in json_value(), b in json_value(), mut seed: u64) {
        let value = event_of(&a, &b);
        let mut other = String::new();
        respell(&value, &mut seed, &mut other);
        let content = Content::new(fields(&["a", "b", "@timestamp"]), Serialization::V1, false).unwrap();
        let (one, two) = (event(&value.to_string(), 0, ""), event(&other, 0, ""));
        prop_assert_eq!(hashed(&content, &one).unwrap(), hashed(&content, &two).unwrap(), "{} {}", value, other);
    }

    #[test]
    fn different_events_never_share(a in json_value(), b in json_value(), c in json_value(), d in json_value()) {
        let content = Content::new(fields(&["a", "b", "@timestamp"]), Serialization::V1, false).unwrap();
        let (one, two) = (event_of(&a, &b), event_of(&c, &d));
        let bytes = |value: &Value| hashed(&content, &event(&value.to_string(), 0, "")).unwrap();
        // integers and floats of one value are one number
        let same = numbers_as_floats(&one) == numbers_as_floats(&two);
        prop_assert_eq!(bytes(&one) == bytes(&two), same, "{} {}", one, two);
    }

    #[test]
    fn different_fields_never_share(
        a in json_value(),
        b in json_value(),
        one in proptest::collection::vec(prop_oneof!["[ab@]{1,2}", r"\[a\](\[[abc01]\]){0,2}"], 2..4),
        two in proptest::collection::vec(prop_oneof!["[ab@]{1,2}", r"\[a\](\[[abc01]\]){0,2}"], 2..4),
    ) {
        let batch = event(&event_of(&a, &b).to_string(), 0, "");
        let bytes = |names: &[String]| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let fields = fields(&names).unwrap();
            let paths: Vec<String> = fields.iter().map(FieldRef::canonical).collect();
            (paths, hashed(&Content::new(Some(fields), Serialization::V1, false).unwrap(), &batch))
        };
        let ((one_paths, one), (two_paths, two)) = (bytes(&one), bytes(&two));
        if let (Ok(one), Ok(two)) = (one, two) {
            prop_assert_eq!(one == two, one_paths == two_paths);
        }
    }
}

fn numbers_as_floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Null, |f| Value::from(if f == 0.0 { 0.0 } else { f })),
        Value::Array(items) => items.iter().map(numbers_as_floats).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(key, member)| (key.clone(), numbers_as_floats(member))).collect())
        }
        other => other.clone(),
    }
}
