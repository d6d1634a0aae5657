//! Files followed by the built program: written, rotated, truncated and compressed while it runs and while it does not.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

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
    let run = running.wait().settled();
    assert!(!run.stderr.contains("not read"), "what is followed is read at the next start: {}", run.stderr);
    run
}

const NDJSON: &str = "type = \"ndjson\"\npath = \"{dir}/out.ndjson\"";
const SQLITE: &str = "type = \"sqlite\"\npath = \"{dir}/out.sqlite\"";

/// Reads from the end.
fn pipeline(output: &str) -> String {
    PIPELINE.replace("POLL", "20ms\"\nread_from = \"end").replace(SQLITE, output)
}

fn from_end(output: &str) -> Onceline {
    let onceline = Onceline::new(&pipeline(output));
    fs::create_dir(onceline.path("log")).unwrap();
    onceline
}

/// The lines that came out, in the order of their text.
fn told(onceline: &Onceline) -> Vec<String> {
    let text = fs::read_to_string(onceline.path("out.ndjson")).unwrap_or_default();
    let whole = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let told = whole.filter_map(|line| line["message"].as_str().map(str::to_string));
    let mut told: Vec<String> = told.chain(messages(onceline).into_iter().map(|(message, _)| message)).collect();
    told.sort();
    told
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a look was saved.
fn has_looked(onceline: &Onceline) -> bool {
    let database =
        rusqlite::Connection::open_with_flags(onceline.path("out.sqlite"), rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY);
    let count = |text| database.as_ref().ok().and_then(|it| it.query_row(text, [], |row| row.get::<_, i64>(0)).ok());
    count("SELECT count(*) FROM _onceline_looked").is_some_and(|count| count > 0)
        || fs::read_to_string(onceline.path("state/positions.json")).is_ok_and(|text| text.contains("/log/"))
}

/// Runs until these lines are there.
#[track_caller]
fn run<'a>(want: &[&str], onceline: &'a Onceline) -> super::rig::Running<'a> {
    let running = onceline.start(b"");
    let started = Instant::now();
    while told(onceline) != want {
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", told(onceline));
        std::thread::sleep(Duration::from_millis(10));
    }
    running
}

/// The first look of the first run alone begins at the end, though it finds nothing, and though the run is killed.
#[test]
fn read_from_the_end_holds_for_the_first_look() {
    for output in [SQLITE, NDJSON] {
        let onceline = from_end(output);
        // nothing is there
        let running = onceline.start(b"");
        wait_until("the look is not saved", || has_looked(&onceline));
        running.signal(Signal::KILL);
        running.wait();
        append(&onceline, "a.log", "1\n");
        stop(run(&["1"], &onceline));
        append(&onceline, "new/b.log", "2\n");
        stop(run(&["1", "2"], &onceline));
        // another pattern has its own first look; it passes over what is there, and only that
        let paths = "paths = [\"{dir}/log/**/*.log\", \"{dir}/log/*.txt\"]";
        onceline.set_pipeline(&pipeline(output).replace("paths = \"{dir}/log/**/*.log\"", paths));
        append(&onceline, "a.txt", "passed over\n");
        append(&onceline, "c.log", "3\n");
        let running = run(&["1", "2", "3"], &onceline);
        append(&onceline, "a.txt", "4\n");
        append(&onceline, "b.txt", "5\n");
        wait_until("what came later", || told(&onceline) == ["1", "2", "3", "4", "5"]);
        stop(running);
        // whoever asks for the beginning gets it
        let reset = onceline.call(&["positions", "reset", "pipeline.toml", "--state", "state", "--yes"], b"");
        assert_eq!(reset.status, Some(0), "{reset:?}");
        let _ = fs::remove_file(onceline.path("out.ndjson"));
        append(&onceline, "new/b.log", "6\n");
        let all = ["1", "2", "3", "4", "5", "6", "passed over"];
        assert_eq!(stop(run(&all, &onceline)).count("events_in"), 7, "{output}");
        // at the first look too
        for name in ["out.sqlite", "out.ndjson", "state/positions.json"] {
            let _ = fs::remove_file(onceline.path(name));
        }
        stop(run(&all, &onceline.args(&["--from-start"])));
    }
}

/// What was there at the first look is not read, compressed or not.
#[test]
fn what_is_there_at_the_first_look_is_not_read() {
    let onceline = from_end(SQLITE);
    append(&onceline, "a.log", "old\n");
    let running = onceline.start(b"");
    wait_until("the look is not saved", || has_looked(&onceline));
    append(&onceline, "a.log", "new\n");
    stored(&onceline, &["new"]);
    running.signal(Signal::KILL);
    running.wait();
    append(&onceline, "a.log", "newer\n");
    let running = onceline.start(b"");
    stored(&onceline, &["new", "newer"]);
    stop(running);
}

#[test]
fn a_file_is_read_by_one_input() {
    let second = "[[input]]\ntype = \"file\"\npaths = [\"{dir}/log/b*\"]\n[time]";
    let onceline = Onceline::new(&PIPELINE.replace("POLL", "20ms").replace("[time]", second));
    fs::create_dir(onceline.path("log")).unwrap();
    append(&onceline, "b.txt", "1\n");
    let check = |args: &[&str]| onceline.call(args, b"");
    assert_eq!(check(&["check", "pipeline.toml"]).status, Some(0));
    let running = onceline.start(b"");
    stored(&onceline, &["1"]);
    // one that both lead to comes while it runs: the first reads it
    append(&onceline, "b.log", "2\n");
    append(&onceline, "b.txt", "3\n");
    stored(&onceline, &["1", "2", "3"]);
    append(&onceline, "b.log", "4\n");
    stored(&onceline, &["1", "2", "3", "4"]);
    let run = stop(running);
    assert_eq!(run.stderr.matches("two inputs lead to a file").count(), 1, "{}", run.stderr);
    // then it is refused, by any name
    fs::hard_link(onceline.path("log/b.log"), onceline.path("log/bb")).unwrap();
    for args in [&["check", "pipeline.toml"][..], &["run", "pipeline.toml"], &["run", "--once", "pipeline.toml"]] {
        let run = check(args);
        assert!(run.status == Some(2) && run.stderr.contains("inputs 0 and 1 both read"), "{run:?}");
    }
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

/// More files than the process may open, and by far fewer left than it keeps open: the output has what it needs, and
/// the log does not name each file.
#[test]
fn more_files_than_can_be_opened() {
    let onceline = follow("20ms");
    let running = onceline.start(b"");
    append(&onceline, "first.log", "first\n");
    stored(&onceline, &["first"]);
    let process = Pid::from_raw(running.id().try_into().expect("a number"));
    let open = fs::read_dir(format!("/proc/{}/fd", running.id())).expect("descriptors").count() as u64;
    let limit = Rlimit { current: Some(open + 12), maximum: Some(open + 12) };
    prlimit(process, Resource::Nofile, limit).expect("a limit");
    let mut want = vec!["first".to_string()];
    for round in 0..3 {
        for file in 0..200 {
            let message = format!("{file} of round {round}");
            append(&onceline, &format!("{}/{file}.log", file % 20), &format!("{message}\n"));
            want.push(message);
        }
        want.sort();
        stored(&onceline, &want.iter().map(String::as_str).collect::<Vec<_>>());
    }
    running.signal(Signal::TERM);
    let run = running.wait().settled();
    assert!(run.stderr.contains("no more files can be opened"), "{}", run.stderr);
    assert!(run.stderr.lines().count() < 15, "{}", run.stderr);
}

/// Why lines are read that an operator thinks were read: once for each time.
#[test]
fn a_file_that_is_none_of_those_known_is_told_of() {
    let onceline = follow("20ms").args(&["-v"]);
    let replaced = |run: &Run| run.stderr.matches("the file was truncated or replaced").count();
    append(&onceline, "a.log", "one\ntwo\n");
    let running = onceline.start(b"");
    stored(&onceline, &["one", "two"]);
    assert_eq!(replaced(&stop(running)), 0);
    // while it runs, and while it does not
    let running = onceline.start(b"");
    fs::write(onceline.path("log/a.log"), "three\n").unwrap();
    stored(&onceline, &["one", "three", "two"]);
    let run = stop(running);
    assert_eq!(replaced(&run), 1, "{}", run.stderr);
    fs::write(onceline.path("log/a.log"), "four\n").unwrap();
    let running = onceline.start(b"");
    stored(&onceline, &["four", "one", "three", "two"]);
    let run = stop(running);
    assert_eq!(replaced(&run), 1, "{}", run.stderr);
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

/// A circle is passed over and said once while it lasts, whether it is looked for as a file or as a folder.
#[test]
fn links_in_circles_are_said_once_while_they_last() {
    let patterns = "paths = [\"{dir}/log/**/*.log\", \"{dir}/log/*/*.log\"]";
    let text = PIPELINE.replace("POLL", "20ms").replace("paths = \"{dir}/log/**/*.log\"", patterns);
    let onceline = Onceline::new(&text);
    fs::create_dir(onceline.path("log")).unwrap();
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, onceline.path("log").join(name)).unwrap();
    let (there, back) = (("b.log", "a.log"), ("a.log", "b.log"));
    for (to, name) in [there, back, ("itself", "itself"), ("..", "up")] {
        link(to, name);
    }
    append(&onceline, "1.log", "1\n");
    let said = "leads in a circle of links";
    let running = onceline.start(b"");
    running.until_said(said, 3);
    // each new file is found by another look
    stored(&onceline, &["1"]);
    append(&onceline, "2.log", "2\n");
    stored(&onceline, &["1", "2"]);
    for name in ["a.log", "b.log"] {
        fs::remove_file(onceline.path("log").join(name)).unwrap();
    }
    append(&onceline, "3.log", "3\n");
    stored(&onceline, &["1", "2", "3"]);
    link(there.0, there.1);
    link(back.0, back.1);
    running.until_said(said, 5);
    append(&onceline, "4.log", "4\n");
    stored(&onceline, &["1", "2", "3", "4"]);
    let run = stop(running);
    assert_eq!(run.stderr.matches(said).count(), 5, "{}", run.stderr);
    assert!(!run.stderr.contains("ERROR"), "{}", run.stderr);
}
