//! Lines that are read again, since no position passes what is held: each has one letter, and two lines have two.

use std::fs;
use std::io::Write;

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use super::rig::{Onceline, Run, Running, Stub, until};

fn good(n: usize) -> String {
    format!("{{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"n\":{n}}}\n")
}

fn pipeline(input: &str, output: &str) -> String {
    format!(
        r#"
        [[input]]
        {input}
        codec = "json"
        [id]
        scheme = "compact"
        method = "SHA1"
        [index]
        name = "logs"
        [output]
        {output}
        [tuning]
        drain_max = "50ms"
        "#
    )
}

const FILE: &str = "type = \"file\"\npaths = \"{dir}/*.log\"\npoll_interval = \"20ms\"";

/// Puts off every event for ever, after what the script says.
fn holding(script: &str) -> Stub {
    Stub::new(script).then(429)
}

fn engine(stub: &Stub) -> String {
    let waits = "retry_wait_min = \"1ms\"\nretry_wait_max = \"20ms\"";
    format!("type = \"elasticsearch\"\nhosts = [\"{}\"]\n{waits}", stub.url)
}

fn following(stub: &Stub) -> Onceline {
    Onceline::new(&pipeline(FILE, &engine(stub)))
}

fn bad(from: usize, count: usize) -> String {
    (from..from + count).map(|n| format!("no json {n}\n")).collect()
}

fn append(onceline: &Onceline, name: &str, text: &str) {
    let mut options = fs::OpenOptions::new();
    options.create(true).append(true).open(onceline.path(name)).unwrap().write_all(text.as_bytes()).unwrap();
}

/// The records of the letters, in the order of their file.
fn letters(onceline: &Onceline) -> Vec<String> {
    let text = fs::read_to_string(onceline.path("state/dead-letters.ndjson")).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let letter = whole.map(|line| serde_json::from_str::<Value>(line).expect("a letter"));
    letter.map(|letter| letter["event"].as_str().map_or_else(|| letter["event"].to_string(), str::to_string)).collect()
}

/// Ends what cannot be delivered: it counts as unsettled, and the dead letters as they did.
#[track_caller]
fn stopped(running: Running<'_>, dead: u64) -> Run {
    running.signal(Signal::TERM);
    let run = running.wait().adds_up();
    assert_eq!((run.status, run.count("dead_lettered")), (Some(1), dead), "{}", run.stderr);
    run
}

/// Waits until this event is sent, and so all before it was read and refused, since there were `before` requests.
#[track_caller]
fn sent(stub: &Stub, before: usize, n: usize) {
    until("request with the last line", || {
        let bulks = stub.bulks();
        bulks[before..].iter().any(|bulk| bulk.ops.iter().any(|op| op.source["n"] == n))
    });
}

/// Reads all up to the event `n`, and is stopped.
#[track_caller]
fn read_and_stopped(onceline: &Onceline, stub: &Stub, n: usize, dead: u64) {
    let before = stub.bulks().len();
    let running = onceline.start(b"");
    sent(stub, before, n);
    stopped(running, dead);
}

#[test]
fn refused_lines_behind_a_held_one_have_one_letter() {
    let stub = holding("");
    let onceline = following(&stub);
    // one file is held at its first line, the other behind lines that are settled
    append(&onceline, "a.log", &format!("{}{}{}", good(1), bad(0, 100), good(2)));
    append(&onceline, "b.log", &bad(1000, 3));
    let count = || count_of(&onceline);
    let running = onceline.start(b"");
    sent(&stub, 0, 2);
    until("letters", || count() == 103);
    append(&onceline, "b.log", &format!("{}{}{}", good(8), bad(2000, 3), good(9)));
    sent(&stub, 0, 9);
    until("letters of both", || count() == 106);
    stopped(running, 106);
    let all = letters(&onceline);
    for _ in 0..3 {
        read_and_stopped(&onceline, &stub, 2, 103);
        assert_eq!(letters(&onceline), all);
    }
    // read again by SIGHUP, and grown meanwhile
    let before = stub.bulks().len();
    let running = onceline.start(b"");
    sent(&stub, before, 2);
    for (times, n) in [(1, 3), (2, 4)] {
        append(&onceline, "a.log", &format!("{}{}", bad(5000 + n, 1), good(n)));
        running.signal(Signal::HUP);
        running.until_said("read again, replaces what runs", times);
        sent(&stub, stub.bulks().len(), n);
        assert_eq!(count(), 106 + times);
    }
    // killed
    running.signal(Signal::KILL);
    running.wait();
    read_and_stopped(&onceline, &stub, 4, 105);
    assert_eq!(count(), 108);

    // who drops a letter before its line is settled gets it again
    let dropped = onceline.call(&["dead-letters", "drop", "pipeline.toml", "--state", "state", "--yes"], b"");
    assert_eq!((dropped.status, count()), (Some(0), 0), "{}", dropped.stderr);
    read_and_stopped(&onceline, &stub, 4, 105);
    assert_eq!(count(), 105);

    let honest = Stub::new("");
    onceline.set_pipeline(&pipeline(FILE, &engine(&honest)));
    let run = onceline.args(&["--once"]);
    assert_eq!(run.run(b"").settled().counts(["created", "dead_lettered"]), [6, 105]);
    assert_eq!((count_of(&run), honest.docs().len()), (105, 6));
    assert_eq!(run.run(b"").settled().count("events_in"), 0);
}

fn count_of(onceline: &Onceline) -> usize {
    letters(onceline).len()
}

/// Killed at once after its letters are written: a file that was not known before has its number by then.
#[test]
fn a_kill_right_after_the_letters_makes_no_second_ones() {
    let stub = holding("");
    let onceline = following(&stub);
    append(&onceline, "a.log", &format!("{}{}", good(1), bad(0, 10)));
    for _ in 0..3 {
        let before = stub.bulks().len();
        let running = onceline.start(b"");
        until("letters", || count_of(&onceline) >= 10);
        sent(&stub, before, 1);
        running.signal(Signal::KILL);
        running.wait();
        assert_eq!(count_of(&onceline), 10);
    }
}

/// A file that is truncated, or another of its inode, that begins with the same line: it has a letter of its own.
#[test]
fn the_same_line_of_another_file_has_its_own_letter() {
    let stub = holding("");
    let onceline = following(&stub);
    let banner = "a banner that is no JSON\n";
    let rewrite = |text: &str| fs::write(onceline.path("a.log"), text).expect("write");
    append(&onceline, "a.log", &format!("{banner}{}", good(1)));
    let running = onceline.start(b"");
    sent(&stub, 0, 1);
    until("the first letter", || count_of(&onceline) == 1);
    // truncated while it is followed
    rewrite(&format!("{banner}{}", good(2)));
    sent(&stub, 0, 2);
    until("the second letter", || count_of(&onceline) == 2);
    stopped(running, 2);
    // and while it is not
    rewrite(&format!("{banner}{}", good(3)));
    read_and_stopped(&onceline, &stub, 3, 1);
    assert_eq!(count_of(&onceline), 3);
    // renamed, with a new one in its place
    fs::rename(onceline.path("a.log"), onceline.path("a.1.log")).unwrap();
    append(&onceline, "a.log", &format!("{banner}{}", good(4)));
    let before = stub.bulks().len();
    let running = onceline.start(b"");
    sent(&stub, before, 3);
    sent(&stub, before, 4);
    until("the fourth letter", || count_of(&onceline) == 4);
    stopped(running, 2);
    let files: std::collections::BTreeSet<u64> = fs::read_to_string(onceline.path("state/dead-letters.ndjson"))
        .unwrap()
        .lines()
        .map(|line| super::json(line.as_bytes())["source"]["file"].as_u64().expect("a number"))
        .collect();
    assert_eq!(files.len(), 4);

    // nobody knows any more which file had which number: all are read again, under numbers that no letter has
    let reset = onceline.call(&["positions", "reset", "pipeline.toml", "--state", "state", "--yes"], b"");
    assert_eq!(reset.status, Some(0), "{}", reset.stderr);
    let before = stub.bulks().len();
    let running = onceline.start(b"");
    sent(&stub, before, 3);
    sent(&stub, before, 4);
    until("letters again", || count_of(&onceline) == 6);
    stopped(running, 2);
}

/// Each event of a record has its own letter, equal ones too.
#[test]
fn events_of_one_record_are_told_apart() {
    let stub = holding("");
    let onceline = following(&stub);
    let record = "[{\"n\":7},{\"n\":7},{\"n\":8},{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"n\":1}]\n";
    append(&onceline, "a.log", record);
    for _ in 0..3 {
        read_and_stopped(&onceline, &stub, 1, 3);
        assert_eq!(count_of(&onceline), 3);
    }
    // replayed, each fails again and stays the one
    let pipeline_of = |stub: &Stub| pipeline(FILE, &engine(stub));
    let honest = Stub::new("");
    onceline.set_pipeline(&pipeline_of(&honest));
    let replay = onceline.call(&["dead-letters", "replay", "pipeline.toml", "--state", "state"], b"");
    let after = count_of(&onceline);
    onceline.set_pipeline(&pipeline_of(&stub));
    read_and_stopped(&onceline, &stub, 1, 3);
    assert_eq!(count_of(&onceline), 3, "{after} after the replay: {}", replay.stderr);
}

/// The last line without its end is read again by each run.
#[test]
fn a_half_line_has_one_letter_until_its_end_comes() {
    let onceline = Onceline::new(&pipeline(FILE, "type = \"sqlite\"\npath = \"{dir}/out.sqlite\"")).args(&["--once"]);
    append(&onceline, "a.log", "no json");
    for _ in 0..3 {
        assert_eq!(onceline.run(b"").settled().count("dead_lettered"), 1);
        assert_eq!(letters(&onceline), ["no json"]);
    }
    append(&onceline, "a.log", " at all\n");
    assert_eq!(onceline.run(b"").settled().count("dead_lettered"), 1);
    assert_eq!(letters(&onceline), ["no json", "no json at all"]);
}

/// A spool is sent again whole as long as something in it is open.
#[test]
fn what_a_spool_holds_has_one_letter() {
    let stub = holding("");
    let stdin = |stub: &Stub| pipeline("type = \"stdin\"", &engine(stub));
    let onceline = Onceline::new(&stdin(&stub));
    let running = onceline.start_open(format!("{}{}", good(1), good(2)).as_bytes());
    sent(&stub, 0, 2);
    stopped(running, 0);
    for _ in 0..3 {
        let stub = holding("{\"http\":200,\"items\":[400,429]}");
        onceline.set_pipeline(&stdin(&stub));
        let running = onceline.start_open(b"");
        until("the other alone", || stub.bulks().len() > 1);
        stopped(running, 1);
        assert_eq!(count_of(&onceline), 1);
    }
    onceline.set_pipeline(&stdin(&Stub::new("{\"http\":200,\"items\":[400,201]}")));
    assert_eq!(onceline.run(b"").settled().counts(["created", "dead_lettered"]), [1, 1]);
    assert_eq!(count_of(&onceline), 1);
}

/// Positions that are saved with the rows cannot pass what the database does not take.
#[test]
fn a_database_that_takes_nothing() {
    let onceline = Onceline::new(&pipeline(FILE, "type = \"sqlite\"\npath = \"{dir}/out.sqlite\""));
    append(&onceline, "a.log", &format!("{}{}", bad(0, 1), good(1)));
    let running = onceline.start(b"");
    until("row", || !onceline.rows("out.sqlite").is_empty());
    running.signal(Signal::TERM);
    running.wait().settled();
    append(&onceline, "a.log", &format!("{}{}", good(2), bad(1, 10)));
    let connection = Connection::open(onceline.path("out.sqlite")).expect("a database");
    connection.execute_batch("BEGIN IMMEDIATE").expect("a lock");
    for _ in 0..3 {
        let running = onceline.start(b"");
        until("letters", || count_of(&onceline) >= 11);
        running.until_said("the database takes no rows", 1);
        stopped(running, 10);
        assert_eq!(count_of(&onceline), 11);
    }
    connection.execute_batch("COMMIT").expect("no lock");
    let run = onceline.args(&["--once"]).run(b"").settled();
    assert_eq!(run.counts(["created", "dead_lettered"]), [1, 10]);
    assert_eq!(run.dead_letters.len(), 11);
}
