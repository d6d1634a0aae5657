//! `codec = "syslog"`: a date without a year has that of its file, however often and whenever it is read.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use super::rig::Onceline;

fn pipeline(source: &str) -> String {
    format!(
        r#"
[[input]]
type = "file"
paths = "{{dir}}/*.log"
codec = "syslog"

[id]
scheme = "hash"
method = "SHA256"
source = "{source}"

[index]
name = "syslog-%{{+yyyy}}"

[output]
type = "sqlite"
path = "{{dir}}/out.sqlite"
"#
    )
}

/// Days from 1970 to 1 March 2024.
const WRITTEN: Duration = Duration::from_secs(19_783 * 86_400);

fn set_written(path: &std::path::Path) {
    let file = File::options().write(true).open(path).expect("a file");
    file.set_modified(SystemTime::UNIX_EPOCH + WRITTEN).expect("a time");
}

fn stored(onceline: &Onceline) -> Vec<(String, String)> {
    let rows = onceline.rows("out.sqlite").into_iter();
    rows.map(|row| (row.index, row.source["@timestamp"].as_str().expect("a time").to_string())).collect()
}

#[test]
fn the_year_is_that_of_the_file_also_when_a_letter_is_sent_again() {
    let onceline = Onceline::new(&pipeline("pid")).args(&["--once"]);
    let log = onceline.path("a.log");
    fs::write(&log, "Dec 31 23:59:59 h p[1]: old\nMar  1 10:00:00 h p[2]: new\nFeb 29 10:00:00 h p: no pid\n")
        .expect("a file");
    set_written(&log);
    let run = onceline.run(b"").settled();
    assert_eq!(run.counts(["created", "dead_lettered"]), [2, 1], "{}", run.stderr);
    let both = [("syslog-2023", "2023-12-31T23:59:59.000Z"), ("syslog-2024", "2024-03-01T10:00:00.000Z")];
    let with = |more: &[(&str, &str)]| -> Vec<(String, String)> {
        let mut all: Vec<_> =
            both.iter().chain(more).map(|(index, time)| (index.to_string(), time.to_string())).collect();
        all.sort();
        all
    };
    let sorted = || {
        let mut rows = stored(&onceline);
        rows.sort();
        rows
    };
    assert_eq!(sorted(), with(&[]));
    // nothing of the file is read for this: the letter knows when it was written
    onceline.set_pipeline(&pipeline("message"));
    let replay = onceline.call(&["dead-letters", "replay", "pipeline.toml", "--state", "state"], b"");
    assert_eq!(replay.status, Some(0), "{}", replay.stderr);
    assert_eq!(sorted(), with(&[("syslog-2024", "2024-02-29T10:00:00.000Z")]));
}

#[test]
fn what_is_piped_in_has_the_year_of_its_reading() {
    let onceline =
        Onceline::new(&pipeline("message").replace("type = \"file\"\npaths = \"{dir}/*.log\"", "type = \"stdin\""));
    let run = onceline.args(&["--now", "2026-01-02T00:00:00Z"]);
    run.run(b"Dec 31 23:59:59 h p[1]: old\nJan  1 10:00:00 h p[2]: new\n").settled();
    let mut rows = stored(&run);
    rows.sort();
    let want = [("syslog-2025", "2025-12-31T23:59:59.000Z"), ("syslog-2026", "2026-01-01T10:00:00.000Z")];
    assert_eq!(rows, want.map(|(index, time)| (index.to_string(), time.to_string())));
}
