//! Ids are for ever. The lines of `tests/golden/ids.jsonl` were computed without this program, from the definitions
//! in `docs/ids.md`. They are never edited, and nothing here can rewrite them: a line that fails means that a user's
//! next run would store everything once more. New lines may be added for new, versioned schemes.

use onceline::id::Scheme;
use onceline::id::compact::Compact;
use onceline::id::digest::{DIGEST_BYTES_MAX, Digest, Method};
use onceline::id::encode::Encoding;
use onceline::id::hash::Hash;
use onceline::id::time_hash::TimeHash;
use onceline::id::uuid::Uuid;
use onceline::id::{TimeUnit, definition};
use onceline::time::Time;
use serde_json::Value;

/// How many golden ids there are.
const LINES: usize = 300;

fn scheme_of(line: &Value) -> Box<dyn Scheme> {
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    let method = Method::parse(text("method")).unwrap();
    match text("scheme") {
        "hash" => Box::new(Hash { method, encoding: Encoding::parse(text("encoding")).unwrap() }),
        "time-hash" => Box::new(TimeHash { method: Some(method) }),
        "compact" => {
            let bits = line["digest_bits"].as_u64().unwrap() as u32;
            Box::new(Compact::new(method, TimeUnit::parse(text("unit")).unwrap(), bits).unwrap())
        }
        other => panic!("no scheme {other}"),
    }
}

fn check(line: &Value) {
    let scheme = scheme_of(line);
    let digest = Digest::new(scheme.method().unwrap(), line["key"].as_str().map(str::as_bytes)).unwrap();
    let time = line["time"].as_str().map_or(Time::EPOCH, |text| Time::rfc3339(text.as_bytes()).unwrap());
    let mut bytes = [0; DIGEST_BYTES_MAX];
    let len = digest.digest(line["text"].as_str().unwrap().as_bytes(), &mut bytes);
    let mut id = Vec::new();
    scheme.write(time, &bytes[..len], &mut id).unwrap();
    assert_eq!(String::from_utf8(id).unwrap(), line["id"].as_str().unwrap(), "{line}");
    assert_eq!(scheme.chars(), line["id"].as_str().unwrap().len(), "{line}");
}

#[test]
fn golden() {
    let lines = include_str!("golden/ids.jsonl");
    assert_eq!(lines.lines().count(), LINES, "lines are added, never taken away; count the new ones here");
    lines.lines().for_each(|line| check(&serde_json::from_str(line).unwrap()));
}

fn check_definition(scheme: &dyn Scheme, key: Option<&str>, keep_repeats: bool, want: &str) {
    assert_eq!(definition(scheme, "v1", key.map(str::as_bytes), keep_repeats), want);
}

#[test]
fn definitions() {
    let compact = |method, unit, bits| Compact::new(method, unit, bits).unwrap();
    let by_millis = compact(Method::Sha256, TimeUnit::Millis, 96);
    let by_seconds = compact(Method::Md5, TimeUnit::Seconds, 128);
    let time_hash = TimeHash { method: Some(Method::Md5) };
    let hash = Hash { method: Method::Sha1, encoding: Encoding::Base64 };
    let test = Some("test");
    let check = check_definition;
    check(&by_millis, test, false, "time (ms) + SHA256/96, base64url, 24 characters, v1, key 600d31c3");
    check(&by_seconds, None, true, "time (s) + MD5/128, base64url, 27 characters, v1, no key, repeats kept apart");
    check(&time_hash, test, false, "time (s) + MD5, hex, 40 characters, v1, key 600d31c3");
    check(&TimeHash { method: None }, None, false, "time (s) + UUID version 4, hex, 44 characters");
    check(&hash, None, false, "SHA1, base64, 28 characters, v1, no key");
    check(&Uuid::V7, None, false, "UUID version 7, hex, 36 characters");
}
