//! The JSON scanner against serde_json: it takes the same texts, finds the same members, and what it repairs is
//! what was meant.

use onceline::json::{self, Scanner};
use serde_json::Value;

use super::codecs::is_tolerated;

pub fn check(bytes: &[u8]) {
    let (mut scanner, mut entries) = (Scanner::default(), Vec::new());
    let utf8 = std::str::from_utf8(bytes).is_ok();
    let scanned = scanner.scan(bytes, false, &mut entries);
    let oracle = serde_json::from_str::<Value>(&String::from_utf8_lossy(bytes));
    let scanned = match (scanned, &oracle) {
        (Ok(scanned), Ok(_)) => scanned,
        (Ok(scanned), Err(error)) => {
            assert!(is_tolerated(error), "taken, although {error}");
            scanned
        }
        (Err(bad), _) => {
            assert!(bad.at <= bytes.len() && !bad.what.is_empty());
            return assert!(oracle.is_err() || bad.what == json::TOO_DEEP, "refused: {bad:?}");
        }
    };
    let whole = &bytes[scanned.start..scanned.end];
    assert!(scanned.odd || utf8, "bytes that are no text are not odd");
    let again = json::repair(whole);
    assert_eq!(json::repair(&again), again, "what is repaired is well");
    assert!(scanner.scan(&again, false, &mut Vec::new()).is_ok());
    let Ok(wanted) = oracle else { return };
    assert_eq!(serde_json::from_slice::<Value>(&again).expect("JSON"), wanted);
    check_members(whole, &wanted, scanned.odd);
    if let Value::Object(members) = &wanted {
        assert!(scanned.odd || members.len() == entries.len(), "a key is there twice, and nothing is odd");
        for entry in &entries {
            let key = json::unescape(piece(bytes, entry.key));
            assert!(members.contains_key(&*key), "{key}");
            if !scanned.odd {
                let value: Value = serde_json::from_slice(piece(bytes, entry.value)).expect("a value");
                assert_eq!(members.get(&*key), Some(&value));
            }
        }
    }
}

fn piece(text: &[u8], (start, len): (u32, u32)) -> &[u8] {
    &text[start as usize..(start + len) as usize]
}

fn check_members(whole: &[u8], wanted: &Value, odd: bool) {
    let found: Vec<(&[u8], &[u8])> = json::members(whole).collect();
    match wanted {
        Value::Array(items) => assert_eq!(found.len(), items.len()),
        Value::Object(members) if !odd => assert_eq!(found.len(), members.len()),
        Value::Object(members) => assert!(found.len() >= members.len()),
        Value::String(text) => {
            assert_eq!(json::unescape(&whole[1..whole.len() - 1]), *text);
            let mut out = Vec::new();
            json::write_string(text.as_bytes(), &mut out);
            assert_eq!(serde_json::from_slice::<Value>(&out).expect("a string"), *wanted);
        }
        _ => assert!(found.is_empty()),
    }
}
