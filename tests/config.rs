//! The reader of pipeline files against a small pipeline of its own: golden reports, and texts made to break it.
//! `UPDATE=1` rewrites the reports.

use std::path::Path;
use std::time::Duration;

use onceline::config::{self, Fault, Help, Origin, Report, Section};
use proptest::prelude::*;

/// A component of each shape. What it reads is of no use; that it reads all is the point.
fn read(root: &Section<'_>) -> Option<()> {
    let inputs = each(root.tables("input").required(), input);
    let filters = each(root.tables("filter").optional(), filter);
    let id = id(&root.table_or_empty("id"), root);
    let time = root.table_or_empty("time");
    time.one_of("missing", &[("dead-letter", 0), ("now", 1)]).or(0);
    time.duration("future", Duration::from_secs(1)..=Duration::from_secs(86_400 * 365)).optional();
    let output = output(&root.table("output").required()?);
    inputs.and(filters)?;
    id.and(output)
}

fn each(tables: Option<Vec<Section<'_>>>, read: impl Fn(&Section<'_>) -> Option<()>) -> Option<()> {
    let read_whole = |table: Section<'_>| {
        let read = read(&table);
        table.finish();
        read
    };
    tables.unwrap_or_default().into_iter().map(read_whole).collect::<Vec<_>>().into_iter().collect()
}

fn input(t: &Section<'_>) -> Option<()> {
    let kind = t.one_of("type", &[("stdin", 0), ("file", 1)]).required();
    match kind {
        Some(0) => {}
        Some(_) => drop(t.texts("paths").required()),
        None => t.skip_rest(),
    }
    t.bytes("line_bytes_max", 16..=1 << 30).or(1 << 20);
    let codec = t.component("codec").optional();
    codec.iter().for_each(codec_options);
    kind.map(drop)
}

fn codec_options(t: &Section<'_>) {
    match t.one_of("type", &[("plain", 0), ("json", 1)]).required() {
        Some(0) => drop(t.text("charset").optional()),
        Some(_) => drop(t.one_of("on_error", &[("dead-letter", ()), ("tag", ())]).optional()),
        None => t.skip_rest(),
    }
}

fn filter(t: &Section<'_>) -> Option<()> {
    t.parsed("when", condition).optional();
    t.pairs("add_field").optional();
    t.parsed_each("remove_field", field).optional();
    match t.one_of("type", &[("date", 0), ("mutate", 1)]).required() {
        Some(0) => {
            t.texts("match").required();
            t.text("target").optional();
        }
        Some(_) => {
            for entry in t.entries("rename").or_default() {
                entry.parsed_key(field);
                entry.value.parsed(field);
            }
        }
        None => t.skip_rest(),
    }
    Some(())
}

fn id(t: &Section<'_>, root: &Section<'_>) -> Option<()> {
    let scheme = t.one_of("scheme", &[("auto", 0), ("uuid", 1), ("hash", 2), ("time-hash", 3)]).required();
    t.texts("source").optional();
    t.secret("key").optional();
    t.integer("digest_bits", 64..=512).or(96_u16);
    let index = root.table_or_empty("index");
    index.text("name").required();
    if scheme == Some(0) && index.bool("strict").or(true) {
        let help = Help::allowed(["uuid", "hash", "time-hash"]).note("or set `strict = false` in `[index]`");
        t.fail_at("scheme", "ids of the engine's own cannot deduplicate", help);
    }
    index.bool("strict").optional();
    Some(())
}

fn output(t: &Section<'_>) -> Option<()> {
    let kind = t.one_of("type", &[("sqlite", 0), ("elasticsearch", 1)]).required();
    match kind {
        Some(0) => t.path("path").required().map(drop),
        Some(_) => {
            t.integer("in_flight", 1..).or(4_u64);
            t.float("jitter", 0.0..=1.0).or(0.5);
            t.texts("hosts").required();
            t.item("template").optional().and_then(|item| item.json());
            let tls = t.table("tls").optional();
            tls.and_then(|tls| tls.path("ca").required()).map(drop)
        }
        None => {
            t.skip_rest();
            None
        }
    }
}

fn field(text: &str) -> Result<String, String> {
    if text.contains('[') == text.contains(']') {
        Ok(text.to_owned())
    } else {
        Err("a bracket without its pair".to_owned())
    }
}

fn condition(text: &str) -> Result<(), Fault> {
    match text.find("=>") {
        Some(at) => Err(Fault::new("no such operator").at(at..at + 2).help(Help::allowed(["==", "!=", ">="]))),
        None => Ok(()),
    }
}

fn env(name: &str) -> Option<String> {
    match name {
        "BITS" => Some("128".to_owned()),
        "YES" => Some("true".to_owned()),
        "HUNTER" => Some("hunter2".to_owned()),
        _ => None,
    }
}

fn report(name: &str, text: &[u8], sets: &[String]) -> Report {
    let (read, report) = config::read(name, text, sets, &env, read);
    assert_eq!(read.is_some(), !report.has_errors());
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
