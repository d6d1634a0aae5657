//! Records of several lines by the built program: in pieces, over stops and restarts, in the spool, as dead letters.

use std::fs::{self, OpenOptions};
use std::io::Write;

use rustix::process::Signal;
use serde_json::Value;

use super::json;
use super::rig::{Onceline, until};
use super::stopping::feed;

/// `input` and what flushes a record; events get their time from here.
fn pipeline(input: &str, flush: &str) -> String {
    format!(
        r#"
        [[input]]
        {input}
        codec = {{ type = "multiline", pattern = '^\s', what = "previous", auto_flush_interval = "{flush}" }}
        [time]
        missing = "now"
        [id]
        scheme = "hash"
        method = "SHA256"
        [index]
        name = "logs"
        [output]
        type = "sqlite"
        path = "{{dir}}/out.sqlite"
        "#
    )
}

const STDIN: &str = "type = \"stdin\"";
const FILE: &str = "type = \"file\"\npaths = \"{dir}/a.log\"\npoll_interval = \"20ms\"\nadd_location = true";

/// The messages, with `+` for a line feed.
fn messages(onceline: &Onceline) -> Vec<String> {
    let rows = onceline.rows("out.sqlite").into_iter();
    let mut messages: Vec<String> =
        rows.map(|row| row.source["message"].as_str().unwrap_or_default().replace('\n', "+")).collect();
    messages.sort();
    messages
}

#[track_caller]
fn stored(onceline: &Onceline, want: &[&str]) {
    until(&format!("{want:?}"), || messages(onceline) == want);
}

fn append(onceline: &Onceline, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(onceline.path("a.log")).expect("a file");
    file.write_all(text.as_bytes()).expect("room");
}

#[test]
fn standard_input_in_pieces() {
    let onceline = Onceline::new(&pipeline(STDIN, "200ms"));
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    for text in ["1\n a", "\n2\n", " b\n"] {
        send.send(text.into()).expect("a feeder");
    }
    // the last one is whole though the input stays open
    stored(&onceline, &["1+ a", "2+ b"]);
    send.send(" c\n3\n d".into()).expect("a feeder");
    stored(&onceline, &[" c", "1+ a", "2+ b"]);
    drop(send);
    assert_eq!(running.wait().settled().counts(["events_in", "created"]), [4, 4]);
    assert_eq!(messages(&onceline), [" c", "1+ a", "2+ b", "3+ d"]);
}

#[test]
fn a_stop_within_a_record_keeps_it() {
    let onceline = Onceline::new(&pipeline(STDIN, "1h"));
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    send.send("1\n2\n a\n\n b".into()).expect("a feeder");
    stored(&onceline, &["1"]);
    running.signal(Signal::TERM);
    // whoever writes is told by the end of the pipe
    let run = running.wait().adds_up();
    drop(send);
    assert!(run.stderr.contains("1 record of standard input kept in"), "{}", run.stderr);
    assert_eq!(onceline.run(b"3\n").settled().count("events_in"), 2);
    assert_eq!(messages(&onceline), ["1", "2+ a+ b", "3"]);
}

#[test]
fn a_pipeline_file_that_is_read_again_goes_on_with_the_record() {
    let text = pipeline(STDIN, "1h");
    let onceline = Onceline::new(&text);
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    send.send("1\n2\n a\n".into()).expect("a feeder");
    stored(&onceline, &["1"]);
    onceline.set_pipeline(&text.replace("[time]", "[[filter]]\ntype = \"mutate\"\nadd_tag = \"second\"\n[time]"));
    running.signal(Signal::HUP);
    send.send(" b\n".into()).expect("a feeder");
    send.send("3\n".into()).expect("a feeder");
    stored(&onceline, &["1", "2+ a+ b"]);
    drop(send);
    assert_eq!(running.wait().settled().count("events_in"), 3);
    assert_eq!(messages(&onceline), ["1", "2+ a+ b", "3"]);
}

#[test]
fn followed_over_stops() {
    let onceline = Onceline::new(&pipeline(FILE, "1h"));
    append(&onceline, "0\n1\n a\n");
    for (number, signal) in [(2, Signal::TERM), (3, Signal::KILL), (4, Signal::TERM)] {
        let running = onceline.start(b"");
        let want: Vec<String> =
            (0..number - 1).map(|n| if n == 0 { "0".to_string() } else { format!("{n}+ a+ b") }).collect();
        stored(&onceline, &want.iter().map(String::as_str).collect::<Vec<&str>>());
        running.signal(signal);
        running.wait();
        append(&onceline, &format!(" b\n{number}\n a\n"));
    }
    onceline.set_pipeline(&pipeline(FILE, "200ms"));
    let running = onceline.start(b"");
    stored(&onceline, &["0", "1+ a+ b", "2+ a+ b", "3+ a+ b", "4+ a"]);
    running.signal(Signal::TERM);
    running.wait().settled();
    let offsets: Vec<Value> =
        onceline.rows("out.sqlite").iter().map(|row| row.source["log"]["offset"].clone()).collect();
    let mut offsets: Vec<u64> = offsets.iter().filter_map(Value::as_u64).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, [0, 2, 10, 18, 26], "where the first line begins");
}

/// The last record of a file may go on: it is delivered, and read again by the next run.
#[test]
fn read_to_the_end() {
    let onceline = Onceline::new(&pipeline(FILE, "1h")).args(&["--once"]);
    for (text, counts, want) in [
        ("1\n2\n a\n", [2, 2, 0], &["1", "2+ a"][..]),
        ("", [1, 0, 1], &["1", "2+ a"]),
        (" b\n3\n", [2, 2, 0], &["1", "2+ a", "2+ a+ b", "3"]),
        ("4", [2, 1, 1], &["1", "2+ a", "2+ a+ b", "3", "4"]),
    ] {
        append(&onceline, text);
        assert_eq!(onceline.run(b"").settled().counts(["events_in", "created", "duplicates"]), counts, "{text}");
        assert_eq!(messages(&onceline), want);
    }
}

/// Ids of the raw bytes are those of the text, however its lines ended.
#[test]
fn line_ends_make_no_other_event() {
    let onceline = Onceline::new(&pipeline(STDIN, "1h")).args(&["--now", "2026-03-01T10:00:00Z"]);
    let explained = |text: &str| onceline.explain_text(text.as_bytes());
    assert_eq!(explained("1\r\n a\r\n\r\n b\r\n2\r\n"), explained("1\n a\n b\n2\n"));
}

#[test]
fn dead_letters_hold_the_record() {
    let text = pipeline(STDIN, "1h");
    let onceline = Onceline::new(&text.replace("[time]\n        missing = \"now\"", ""));
    let input = "\u{feff}1\r\n a\r\n\r\n b\r\n2\n";
    assert_eq!(onceline.run(input.as_bytes()).settled().count("dead_lettered"), 2);
    let letters = fs::read(onceline.path("state/dead-letters.ndjson")).expect("letters");
    let raw: Vec<Value> = letters.split_inclusive(|b| *b == b'\n').map(|line| json(line)["raw"].clone()).collect();
    assert_eq!(raw, ["1\n a\n b", "2"]);
    onceline.set_pipeline(&text);
    let explained = onceline.explain(input.as_bytes());
    let run = onceline.call(&["dead-letters", "replay", "pipeline.toml", "--state", "state"], b"");
    assert!(run.status == Some(0) && run.stdout.contains("2 created"), "{}{}", run.stdout, run.stderr);
    assert_eq!(messages(&onceline), ["1+ a+ b", "2"]);
    let ids: Vec<Value> = explained.iter().map(|answer| answer["id"].clone()).collect();
    let rows = onceline.rows("out.sqlite");
    assert!(rows.iter().all(|row| ids.contains(&row.id.clone().into())), "{ids:?} {rows:?}");
}

/// A record of several lines that a codec for lines gets is JSON like any other: an event stays one line.
#[test]
fn letters_of_records_sent_to_another_codec() {
    let text = pipeline(STDIN, "1h");
    let onceline = Onceline::new(&text.replace("[time]\n        missing = \"now\"", ""));
    assert_eq!(onceline.run(b"{\n \"n\": [1,\n 2],\r\n \"o\": {\n }}\n").settled().count("dead_lettered"), 1);
    let output = "type = \"ndjson\"\n        path = \"{dir}/out.ndjson\"";
    let codec = text.lines().find(|line| line.contains("codec =")).expect("a codec");
    let sqlite = "type = \"sqlite\"\n        path = \"{dir}/out.sqlite\"";
    onceline.set_pipeline(&text.replace(codec, "codec = \"json\"").replace(sqlite, output));
    let run = onceline.call(&["dead-letters", "replay", "pipeline.toml", "--state", "state"], b"");
    assert_eq!(run.status, Some(0), "{}{}", run.stdout, run.stderr);
    let out = fs::read_to_string(onceline.path("out.ndjson")).expect("an output");
    let lines: Vec<Value> = out.lines().map(|line| json(line.as_bytes())).collect();
    assert_eq!((lines.len(), &lines[1]["n"], &lines[1]["o"]), (2, &json(b"[1,2]"), &json(b"{}")), "{out}");
}

#[test]
fn explained_step_by_step() {
    let filter = "[[filter]]\ntype = \"mutate\"\nadd_field = { a = \"b\" }\n[time]";
    let onceline = Onceline::new(&pipeline(STDIN, "1h").replace("[time]", filter)).args(&["--steps"]);
    let explained = onceline.explain(b"1\n a\n2\n b\n\n c");
    let messages: Vec<&Value> = explained.iter().map(|answer| &answer["event"]["message"]).collect();
    assert_eq!(messages, ["1\n a", "2\n b\n c"]);
    assert!(explained.iter().all(|answer| answer["steps"].as_array().is_some_and(|steps| steps.len() == 1)));
}
