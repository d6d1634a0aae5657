//! Wrong pipeline files: golden reports of the real reader, and texts made to break it. `UPDATE=1` rewrites the
//! reports.

#[path = "properties/pipeline_file.rs"]
mod pipeline_file;

use std::path::Path;

use pipeline_file::{report, sets};
use proptest::prelude::*;

fn golden(path: &Path) -> (String, String) {
    let text = std::fs::read(path).expect("a readable case");
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    (report(&name, &text, &sets(&text)).render(false), name)
}

#[test]
fn reports_are_as_committed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).expect("the folder").map(|e| e.expect("an entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    assert!(!paths.is_empty());
    let mut differing = Vec::new();
    for path in paths {
        let (got, name) = golden(&path);
        assert!(!got.contains("hunter2"), "{name} shows a secret");
        let beside = path.with_extension("err");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&beside, &got).expect("a writable folder");
        } else if std::fs::read_to_string(&beside).unwrap_or_default() != got {
            differing.push(format!("--- {name}\n{got}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

const VALID: &str = include_str!("config/valid.toml");

#[test]
fn a_valid_file_cut_anywhere_is_reported_not_fatal() {
    for at in (0..=VALID.len()).filter(|at| VALID.is_char_boundary(*at)) {
        report("cut.toml", &VALID.as_bytes()[..at], &[]);
        report("cut.toml", &VALID.as_bytes()[at..], &[]);
    }
}

/// Bits and pieces of TOML, which reach further into the parser than random text does.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just("[[input]]".to_owned()),
        Just("[id]".to_owned()),
        Just("[id.a]".to_owned()),
        Just("\n".to_owned()),
        Just("=".to_owned()),
        Just(".".to_owned()),
        Just("\"".to_owned()),
        Just("'''".to_owned()),
        Just("\"\"\"".to_owned()),
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just(",".to_owned()),
        Just("${".to_owned()),
        Just("${HUNTER}".to_owned()),
        Just("#".to_owned()),
        Just("\r".to_owned()),
        Just("\\u".to_owned()),
        Just("key = ".to_owned()),
        Just("type = \"file\"".to_owned()),
        Just("input".to_owned()),
        Just("id".to_owned()),
        Just("1e400".to_owned()),
        Just("-0x".to_owned()),
        "\\PC{0,4}",
        "[a-z]{1,3}",
    ];
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_text_is_reported_not_fatal(text in prop_oneof![pieces(), any::<String>()], set in prop_oneof![pieces(), any::<String>()]) {
        report("any.toml", text.as_bytes(), std::slice::from_ref(&set));
        report("any.toml", VALID.as_bytes(), &[set, text]);
    }

    #[test]
    fn any_bytes_are_reported_not_fatal(text in prop::collection::vec(any::<u8>(), 0..200)) {
        pipeline_file::check(&text);
    }

    #[test]
    fn a_valid_file_changed_anywhere_is_reported_not_fatal(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..20, pieces()), 1..4),
    ) {
        let mut text = VALID.to_owned();
        for (at, length, piece) in changes {
            let at = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.ceil_char_boundary((at + length).min(text.len()));
            text.replace_range(at..end, &piece);
        }
        report("changed.toml", text.as_bytes(), &[]);
    }
}
