//! `onceline test`, and the pipelines that are shown: what `explain` says of their samples is committed beside these
//! (`UPDATE=1` writes it anew), and the tests that stand in them hold.

use std::fs;
use std::path::PathBuf;

use super::rig::Onceline;
use super::{folder, update};

const PIPELINE: &str = r#"
[[input]]
type = "stdin"
codec = "json"

[id]
scheme = "hash"
method = "SHA256"

[index]
name = "lines"

[output]
type = "stdout"
"#;

fn check(tests: &str, beside: Option<&str>, status: i32, stdout: &str, stderr: &str) {
    let onceline = Onceline::new(&format!("{PIPELINE}{tests}"));
    if let Some(text) = beside {
        fs::write(onceline.path("pipeline.test.toml"), text).expect("a file");
    }
    for files in [&["pipeline.toml"][..], &["pipeline.test.toml", "pipeline.toml"]] {
        let run = onceline.call(&[&["test"], files].concat(), b"");
        assert_eq!((run.status, run.stdout.as_str()), (Some(status), stdout), "{tests}\n{}", run.stderr);
        assert!(run.stderr.contains(stderr), "{}", run.stderr);
    }
}

#[test]
fn differences_are_shown_and_the_status_tells() {
    let good = "[[test]]\nname = 'an event'\ninput = '{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"n\":1}'\nfields = { n = 1 }\n";
    let wrong = good.replace("n = 1 }", "n = 2 }").replace("an event", "another");
    check(good, None, 0, "pipeline.toml\n  good   an event\n1 test, 0 wrong\n", "");
    let both = "pipeline.toml\n  good   an event\n  WRONG  another\n           [n] is 1, not 2\n2 tests, 1 wrong\n";
    check(&format!("{good}{wrong}"), None, 1, both, "");
    check(good, Some(&wrong), 1, both, "");
    check("", Some(good), 0, "pipeline.toml\n  good   an event\n1 test, 0 wrong\n", "");
}

#[test]
fn what_is_no_test_is_told() {
    check("", None, 2, "pipeline.toml\n  no [[test]]\n0 tests, 0 wrong\n", "");
    let unknown = "[[test]]\ninput = ''\nfeilds = {}\n";
    check(unknown, None, 2, "", "did you mean `fields`?");
    check("", Some(unknown), 2, "", "pipeline.test.toml:3:1: test 1: unknown key `feilds`");
    check("[[test]]\ninput = ''\ndead_letter = 'no'\n", None, 2, "", "no-timestamp");
    check("[[test]]\nname = 'no input'\n", None, 2, "", "`input`");
}

/// The pipelines that are shown, with what is beside them.
fn shown() -> Vec<(String, PathBuf)> {
    let top = folder().join("../pipelines");
    let samples = fs::read_dir(top.join("samples")).expect("samples").map(|entry| entry.expect("an entry").path());
    let mut shown: Vec<_> = samples
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .map(|path| (path.file_stem().expect("a name").to_string_lossy().into_owned(), path))
        .collect();
    shown.sort();
    assert!(shown.len() >= 10, "samples are missing");
    shown
}

#[test]
fn samples_become_what_is_committed() {
    let mut differing = Vec::new();
    for (name, sample) in shown() {
        let pipeline = fs::read_to_string(folder().join(format!("../pipelines/{name}.toml"))).expect("a pipeline");
        let onceline = Onceline::new(&pipeline).args(&["--now", "2026-03-12T12:00:00Z"]);
        let got = onceline.explain_text(&fs::read(&sample).expect("a sample"));
        let golden = sample.with_extension("ndjson");
        let want = fs::read_to_string(&golden).unwrap_or_default();
        if update() {
            fs::write(&golden, &got).expect("a writable folder");
        } else if got != want {
            differing.push(format!("--- {name} is\n{want}--- and should not have become\n{got}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}

#[test]
fn tests_of_the_pipelines_that_are_shown_hold() {
    let path = |name: &str| folder().join(format!("../pipelines/{name}.toml")).to_string_lossy().into_owned();
    let with_tests = |name: &String| fs::read_to_string(path(name)).is_ok_and(|text| text.contains("\n[[test]]\n"));
    let paths: Vec<String> =
        shown().into_iter().map(|(name, _)| name).filter(with_tests).map(|name| path(&name)).collect();
    assert!(paths.len() >= 2, "{paths:?}");
    let args: Vec<&str> = std::iter::once("test").chain(paths.iter().map(String::as_str)).collect();
    let run = Onceline::new(PIPELINE).call(&args, b"");
    assert_eq!(run.status, Some(0), "{}{}", run.stdout, run.stderr);
}
