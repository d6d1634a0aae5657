//! Files followed by the built program: written, rotated, truncated and compressed while it runs and while it does not.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::rig::{Onceline, Run};

const PIPELINE: &str = r#"
[[input]]
type = "file"
paths = "{dir}/log/**/*.log"
poll_interval = "POLL"
add_location = true

[time]
missing = "now"

[id]
scheme = "hash"
method = "SHA256"

[index]
name = "logs"

[output]
type = "sqlite"
path = "{dir}/out.sqlite"
"#;

fn follow(poll: &str) -> Onceline {
    let onceline = Onceline::new(&PIPELINE.replace("POLL", poll));
    fs::create_dir(onceline.path("log")).unwrap();
    onceline
}

fn append(onceline: &Onceline, name: &str, text: &str) {
    let path = onceline.path("log").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// Each document's message, with how often it was written.
fn messages(onceline: &Onceline) -> Vec<(String, i64)> {
    let rows = onceline.rows("out.sqlite").into_iter();
    let mut messages: Vec<(String, i64)> =
        rows.map(|row| (row.source["message"].as_str().unwrap_or_default().to_string(), row.version)).collect();
    messages.sort();
    messages
}

/// Waits until these messages are there, each written once.
#[track_caller]
fn stored(onceline: &Onceline, want: &[&str]) {
    let want: Vec<(String, i64)> = want.iter().map(|message| (message.to_string(), 1)).collect();
    let started = Instant::now();
    while messages(onceline) != want {
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", messages(onceline));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn stop(running: super::rig::Running<'_>) -> Run {
    running.signal(Signal::TERM);
    running.wait().settled()
}

#[test]
fn lines_are_stored_as_they_are_written() {
    // only what the system tells is heard
    let onceline = follow("1h");
    append(&onceline, "a.log", "1\n");
    let running = onceline.start(b"");
    stored(&onceline, &["1"]);
    append(&onceline, "a.log", "2\nha");
    stored(&onceline, &["1", "2"]);
    append(&onceline, "a.log", "lf\n");
    stored(&onceline, &["1", "2", "half"]);
    fs::rename(onceline.path("log/a.log"), onceline.path("log/a.1")).unwrap();
    append(&onceline, "a.log", "3\n");
    append(&onceline, "a.1", "late\n");
    append(&onceline, "new/folder/b.log", "4\n");
    stored(&onceline, &["1", "2", "3", "4", "half", "late"]);
    assert_eq!(stop(running).count("events_in"), 6);

    append(&onceline, "a.1", "5\n");
    append(&onceline, "a.log", "6\n");
    fs::write(onceline.path("log/new/folder/b.log"), "7\n").unwrap();
    let running = onceline.start(b"");
    stored(&onceline, &["1", "2", "3", "4", "5", "6", "7", "half", "late"]);
    assert_eq!(stop(running).count("events_in"), 3);
    // and nothing is left to be read
    let running = onceline.start(b"");
    append(&onceline, "a.log", "8\n");
    stored(&onceline, &["1", "2", "3", "4", "5", "6", "7", "8", "half", "late"]);
    assert_eq!(stop(running).count("events_in"), 1);
}

/// The files are read on where the old pipeline left them, with `--from-start` too.
#[test]
fn a_pipeline_file_that_is_read_again_reads_nothing_twice() {
    for args in [&[][..], &["--from-start"]] {
        let onceline = follow("20ms").args(args);
        append(&onceline, "a.log", "1\n");
        append(&onceline, "b.log", "2\nha");
        let running = onceline.start(b"");
        stored(&onceline, &["1", "2"]);
        let filter = "[[filter]]\ntype = \"mutate\"\nadd_field = { by = \"second\" }\n[time]";
        onceline.set_pipeline(&PIPELINE.replace("POLL", "20ms").replace("[time]", filter));
        running.signal(Signal::HUP);
        let mut want = vec!["1".to_string(), "2".to_string()];
        let started = Instant::now();
        while onceline.rows("out.sqlite").iter().all(|row| row.source["by"] != "second") {
            assert!(started.elapsed() < Duration::from_secs(60), "the second pipeline never comes");
            want.push(format!("x{:04}", want.len()));
            append(&onceline, "a.log", &format!("{}\n", want[want.len() - 1]));
            stored(&onceline, &want.iter().map(String::as_str).collect::<Vec<&str>>());
        }
        append(&onceline, "b.log", "lf\n");
        want.insert(2, "half".to_string());
        stored(&onceline, &want.iter().map(String::as_str).collect::<Vec<&str>>());
        assert_eq!(stop(running).count("events_in"), want.len() as u64);
    }
}

#[test]
fn polling_alone_is_enough() {
    let onceline = follow("20ms");
    // of changes behind a link nobody tells
    fs::write(onceline.path("elsewhere"), "1\n").unwrap();
    std::os::unix::fs::symlink("../elsewhere", onceline.path("log/a.log")).unwrap();
    let running = onceline.start(b"");
    stored(&onceline, &["1"]);
    append(&onceline, "../elsewhere", "2\n");
    stored(&onceline, &["1", "2"]);
    let row = onceline.rows("out.sqlite").into_iter().find(|row| row.source["message"] == "2").unwrap();
    assert_eq!(row.source["log"]["offset"], 2);
    assert!(row.source["log"]["file"]["path"].as_str().unwrap().ends_with("/log/a.log"));
    stop(running);
}
