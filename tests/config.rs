//! Wrong pipeline files: golden reports of the real reader, and texts made to break it. `UPDATE=1` rewrites the
//! reports.

use std::path::{Path, PathBuf};

use onceline::config::{Origin, Report};
use onceline::pipeline::read::{self, Options};
use proptest::prelude::*;

fn env(name: &str) -> Option<String> {
    match name {
        "BITS" => Some("128".to_owned()),
        "YES" => Some("true".to_owned()),
        "HUNTER" => Some("hunter2".to_owned()),
        _ => None,
    }
}

fn report(name: &str, text: &[u8], sets: &[String]) -> Report {
    let state = Some(PathBuf::from("state"));
    let options = Options { sets: sets.to_vec(), once: true, state, ..Options::default() };
    let (plan, report) = read::read(Path::new(name), text, &options, &env);
    assert_eq!(plan.is_some(), !report.has_errors(), "{}", report.render(false));
    for problem in report.problems() {
        let length = match problem.place.origin {
            Origin::File => String::from_utf8_lossy(text).len(),
            Origin::Set(number) => sets[number].len(),
        };
        assert!(problem.place.span.start <= problem.place.span.end && problem.place.span.end <= length, "{problem:?}");
    }
    let shown = [report.render(true), report.render(false)];
    let given = sets.iter().any(|set| set.contains("hunter2")) || String::from_utf8_lossy(text).contains("hunter2");
    assert!(given || !shown.concat().contains("hunter2"), "a variable's text is shown");
    report
}

/// Lines of the form `# --set KEY=VALUE` give the arguments.
fn golden(path: &Path) -> (String, String) {
    let text = std::fs::read(path).expect("a readable case");
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let lossy = String::from_utf8_lossy(&text).into_owned();
    let sets: Vec<String> = lossy.lines().filter_map(|l| l.strip_prefix("# --set ")).map(str::to_owned).collect();
    (report(&name, &text, &sets).render(false), name)
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
        report("any.toml", &text, &[]);
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
