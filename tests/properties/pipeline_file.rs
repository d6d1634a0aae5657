//! Pipeline files: whatever the text is, there is a plan or there are errors, each at a place. A plan can be
//! described, and takes any event.

use std::path::{Path, PathBuf};

use onceline::config::{Origin, Report};
use onceline::output::Form;
use onceline::pipeline::Pipeline;
use onceline::pipeline::check::describe;
use onceline::pipeline::pack::Packer;
use onceline::pipeline::read::{self, Options};
use onceline::pool::Pool;
use onceline::time::Time;

const LINES: &str = concat!(
    r#"{"@timestamp":"2026-03-01T10:00:00.123+02:00","a":"x","b":{"c":[1,-2.50,null]},"message":"m 1","tags":["t"]}"#,
    "\n\n",
    r#"{"a":{"b":"y"},"timestamp":"01/Mar/2026:10:00:00 +0000","message":{"a":[]},"c":"%{a}","tags":7,"n":1e400}"#,
    "\nplain text, \u{e9}\r\n[{\"a\":1},{\"a\":\"\\ud800\"}]\n",
);

pub fn check(bytes: &[u8]) {
    report("any.toml", bytes, &sets(bytes));
}

/// The `--set` arguments that a file names for its own reading, by lines of the form `# --set KEY=VALUE`.
pub fn sets(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().filter_map(|line| line.strip_prefix("# --set ")).map(str::to_owned).collect()
}

fn env(name: &str) -> Option<String> {
    match name {
        "BITS" => Some("128".to_owned()),
        "YES" => Some("true".to_owned()),
        "HUNTER" => Some("hunter2".to_owned()),
        _ => None,
    }
}

pub fn report(name: &str, text: &[u8], sets: &[String]) -> Report {
    let (state, now) = (Some(PathBuf::from("state")), Some(Time::new(1_772_000_000, 0)));
    let options = Options { sets: sets.to_vec(), once: true, state, now, ..Options::default() };
    let (plan, report) = read::read(Path::new(name), text, &options, &env);
    assert_eq!(plan.is_some(), !report.has_errors(), "{}", report.render(false));
    let lossy = String::from_utf8_lossy(text);
    for problem in report.problems() {
        let source = match problem.place.origin {
            Origin::File => &*lossy,
            Origin::Set(number) => &sets[number],
        };
        assert!(source.get(problem.place.span.clone()).is_some() && !problem.message.is_empty(), "{problem:?}");
    }
    let shown = [report.render(true), report.render(false)];
    let given = sets.iter().any(|set| set.contains("hunter2")) || lossy.contains("hunter2");
    assert!(given || !shown.concat().contains("hunter2"), "a variable's text is shown");
    if let Some(plan) = plan {
        // what a variable says of a path or an index is told, what is secret is not: `tests/program/secrets.rs`
        describe(Path::new(name), &plan);
        take(&plan.pipeline);
    }
    report
}

/// Lines on their way to the output.
fn take(pipeline: &Pipeline) {
    let (mut records, mut batch) = (Vec::new(), onceline::batch::Batch::default());
    for input in 0..pipeline.inputs.len() {
        let bytes = LINES.as_bytes().to_vec().into();
        let block = onceline::codec::Block { bytes, offset: 0, too_long: None, mark: None, records: None };
        pipeline.transform(input, block, Default::default(), &mut records, &mut batch);
        assert!(batch.len() >= LINES.lines().count());
        let mut packer = Packer::new(pipeline, Form::Rows, Pool::default());
        packer.begin(&batch);
        for index in 0..batch.len() {
            let mut out = Vec::new();
            batch.event(index).write_source(&mut out);
            assert!(!out.contains(&b'\n'), "an event of two lines");
            if let Ok(address) = packer.address(&batch.event(index)) {
                let name = packer.index_name(address);
                assert!(!name.is_empty() && !name.contains(['/', '"', '\n', ' ']), "an index {name:?}");
            }
        }
    }
}
