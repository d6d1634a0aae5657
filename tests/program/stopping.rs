//! Signals: what is not delivered at a stop is kept and sent by the next run; a pipeline file that is read again.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::rig::{Onceline, Run, Running, Stub, until};

fn pipeline(url: &str, more: &str) -> String {
    format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        [id]
        scheme = "compact"
        method = "SHA1"
        [index]
        name = "logs-%{{+yyyy.MM.dd}}"
        [output]
        type = "elasticsearch"
        hosts = ["{url}"]
        retry_wait_min = "1ms"
        retry_wait_max = "20ms"
        {more}
        "#
    )
}

const SQLITE: &str = r#"
    [[input]]
    type = "stdin"
    codec = "json"
    [id]
    scheme = "compact"
    method = "SHA1"
    [index]
    name = "logs"
    [output]
    type = "sqlite"
    path = "{dir}/out.sqlite"
"#;

fn line(n: usize) -> String {
    format!("{{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"n\":{n}}}\n")
}

fn lines(range: std::ops::Range<usize>) -> Vec<u8> {
    range.map(line).collect::<String>().into_bytes()
}

/// A standard input that stays open, fed from here until the sender is dropped.
pub fn feed() -> (Sender<Vec<u8>>, impl FnOnce(std::process::ChildStdin) + Send + 'static) {
    let (send, bytes): (Sender<Vec<u8>>, Receiver<Vec<u8>>) = channel();
    let write = move |mut pipe: std::process::ChildStdin| {
        loop {
            match bytes.recv_timeout(Duration::from_millis(20)) {
                Ok(bytes) if pipe.write_all(&bytes).is_ok() => {}
                Err(RecvTimeoutError::Timeout) if !is_closed(&pipe) => {}
                _ => return,
            }
        }
    };
    (send, write)
}

/// Nobody reads the pipe any more.
fn is_closed(pipe: &std::process::ChildStdin) -> bool {
    let mut wanted = [PollFd::new(pipe, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut wanted, Some(&now)).is_ok_and(|count| count > 0)
}

fn spools(onceline: &Onceline) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(onceline.path("state/spool/pipeline")) else { return vec![] };
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// The numbers in an SQLite file, each once.
fn numbers(onceline: &Onceline) -> BTreeSet<u64> {
    let rows = onceline.rows("out.sqlite");
    let numbers: BTreeSet<u64> = rows.iter().filter_map(|row| row.source["n"].as_u64()).collect();
    assert_eq!(rows.len(), numbers.len(), "an event is there twice");
    numbers
}

fn all(count: u64) -> BTreeSet<u64> {
    (0..count).collect()
}

/// Stops a run whose engine takes nothing, and says how it ended.
fn stop(onceline: &Onceline, stub: &Stub, input: Vec<u8>, signals: &[Signal]) -> Run {
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    send.send(input).expect("a feeder");
    let before = stub.bulks().len();
    until("a request", || stub.bulks().len() > before);
    for (number, signal) in signals.iter().enumerate() {
        // the second is for a program that has seen the first
        let before = stub.bulks().len();
        until("one more request", || number == 0 || stub.bulks().len() > before + 3);
        running.signal(*signal);
    }
    let run = running.wait().adds_up();
    drop(send);
    run
}

#[test]
fn what_is_not_delivered_is_kept_and_sent_by_the_next_run() {
    let stub = Stub::new("").then(429);
    let onceline = Onceline::new(&pipeline(&stub.url, "[tuning]\ndrain_max = \"100ms\""));
    for (signal, from) in [(Signal::TERM, 0), (Signal::INT, 50)] {
        let run = stop(&onceline, &stub, lines(from..from + 50), &[signal]);
        assert_eq!(run.status, Some(1), "{}", run.stderr);
        let said = format!("{} events not settled; 50 records of standard input kept in ", from + 50);
        assert!(run.stderr.contains(&said), "{}", run.stderr);
        assert_eq!(run.stderr.contains("1 spool of earlier runs not sent to the end"), from > 0, "{}", run.stderr);
        let kept = spools(&onceline);
        assert!(kept.iter().any(|path| run.stderr.contains(&path.display().to_string())), "{}", run.stderr);
        assert_eq!(kept.len(), from / 50 + 1);
    }
    // killed while it sends what was kept: nothing is removed
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    let before = stub.bulks().len();
    until("a request", || stub.bulks().len() > before);
    running.signal(Signal::KILL);
    assert_eq!(running.wait().status, None);
    drop(send);
    assert_eq!(spools(&onceline).len(), 2);

    onceline.set_pipeline(SQLITE);
    let run = onceline.run(&lines(100..120)).settled();
    assert_eq!(run.counts(["events_in", "created"]), [120, 120]);
    assert_eq!(numbers(&onceline), all(120));
    assert!(spools(&onceline).is_empty(), "a spool that was sent is still there");
    assert_eq!(onceline.run(b"").settled().count("events_in"), 0);
}

/// A spool that cannot be written, at a stop or when the pipeline is replaced: said once, also when the output has had
/// its time to let go, and then kept, or given up at another signal.
fn check_not_kept(signal: Signal, is_given_up: bool) {
    let stub = Stub::new("").then(429);
    let onceline = Onceline::new(&pipeline(&stub.url, "[tuning]\ndrain_max = \"100ms\""));
    std::fs::create_dir_all(onceline.path("state/spool/pipeline")).expect("a folder");
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    send.send(lines(0..50)).expect("a feeder");
    until("a request", || !stub.bulks().is_empty());
    std::fs::remove_dir(onceline.path("state/spool/pipeline")).expect("the folder");
    std::fs::write(onceline.path("state/spool/pipeline"), "in the way").expect("a file");
    running.signal(signal);
    running.until_said("cannot be kept: waiting", 1);
    if signal == Signal::HUP {
        running.signal(Signal::TERM);
        running.until_said("going down", 1);
    }
    // longer than outputs have to let go
    std::thread::sleep(Duration::from_millis(1500));
    if is_given_up {
        running.signal(Signal::TERM);
    } else {
        std::fs::remove_file(onceline.path("state/spool/pipeline")).expect("the file");
    }
    let run = running.wait().adds_up();
    drop(send);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    let said = |words: &str| run.stderr.matches(words).count();
    assert_eq!((said("cannot be kept: waiting"), said("is given up: it cannot")), (1, usize::from(is_given_up)));
    assert_eq!(said("the output did not end"), 0, "{}", run.stderr);
    assert_eq!(said("50 records of standard input kept"), usize::from(!is_given_up && signal != Signal::HUP));
    if !is_given_up {
        onceline.set_pipeline(SQLITE);
        onceline.run(b"").settled();
        assert_eq!(numbers(&onceline), all(50));
    }
}

#[test]
fn a_spool_that_cannot_be_written_is_said_once() {
    for (signal, is_given_up) in
        [(Signal::TERM, false), (Signal::TERM, true), (Signal::HUP, false), (Signal::HUP, true)]
    {
        check_not_kept(signal, is_given_up);
    }
}

#[test]
fn a_second_signal_ends_at_once_and_keeps() {
    let stub = Stub::new("").then(429);
    let onceline = Onceline::new(&pipeline(&stub.url, ""));
    let started = Instant::now();
    let run = stop(&onceline, &stub, lines(0..50), &[Signal::INT, Signal::INT]);
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!((run.status, run.count("unsettled")), (Some(1), 50));
    assert_eq!(spools(&onceline).len(), 1, "{}", run.stderr);
    onceline.set_pipeline(SQLITE);
    onceline.run(b"").settled();
    assert_eq!(numbers(&onceline), all(50));
}

/// An engine that never answers at all, and a reader that waits for room.
#[test]
fn nothing_that_was_read_is_lost_with_a_silent_engine() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let tuning = "[tuning]\ndrain_max = \"300ms\"\nbatch_bytes = \"4KiB\"\nbytes_in_flight_max = \"1MiB\"";
    let onceline = Onceline::new(&pipeline(&url, tuning));
    // more than may be in flight: the rest is in the pipe and with the writer
    let input = lines(0..60_000);
    let (read, write) = std::io::pipe().expect("a pipe");
    let path = onceline.path("pipeline.toml");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_onceline"))
        .args([std::ffi::OsStr::new("run"), path.as_os_str(), "--state".as_ref(), onceline.path("state").as_os_str()])
        .stdin(read.try_clone().expect("the pipe"))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("start onceline");
    let writer = std::thread::spawn(move || (&write).write_all(&input).expect("somebody reads"));
    std::thread::sleep(Duration::from_millis(700));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).expect("a signal");
    let status = child.wait().expect("an end");
    assert_eq!(status.code(), Some(1));
    assert_eq!(spools(&onceline).len(), 1);
    // the next run goes on with the same pipe
    onceline.set_pipeline(SQLITE);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_onceline"))
        .args([std::ffi::OsStr::new("run"), path.as_os_str(), "--state".as_ref(), onceline.path("state").as_os_str()])
        .stdin(read)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("start onceline");
    writer.join().expect("the writer");
    assert_eq!(child.wait().expect("an end").code(), Some(0));
    assert!(numbers(&onceline) == all(60_000), "{} of 60000", numbers(&onceline).len());
}

#[test]
fn half_a_line_is_kept_too() {
    let onceline = Onceline::new(SQLITE);
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    send.send([lines(0..1), line(1).trim_end().as_bytes().to_vec()].concat()).expect("a feeder");
    until("a row", || numbers(&onceline).len() == 1);
    running.signal(Signal::TERM);
    let run = running.wait().adds_up();
    drop(send);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("1 record of standard input kept in "), "{}", run.stderr);
    assert_eq!(onceline.run(&lines(2..3)).settled().count("created"), 2);
    assert_eq!(numbers(&onceline), all(3));
}

#[test]
fn an_output_that_dies_of_an_error_keeps_what_was_read() {
    let closed = SQLITE.replace("type = \"sqlite\"", "type = \"stdout\"").replace("path = \"{dir}/out.sqlite\"", "");
    let onceline = Onceline::new(&closed);
    let (read, mut write) = std::io::pipe().expect("a pipe");
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_onceline"))
        .args(["run", "pipeline.toml", "--state", "state"])
        .current_dir(onceline.dir())
        .stdin(read.try_clone().expect("the pipe"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("start onceline");
    drop(child.stdout.take());
    write.write_all(&lines(0..30)).expect("somebody reads");
    drop(write);
    assert_eq!(child.wait().expect("an end").code(), Some(1));
    assert_eq!(spools(&onceline).len(), 1);
    onceline.set_pipeline(SQLITE);
    onceline.run(b"").settled();
    assert_eq!(numbers(&onceline), all(30));
}

/// What is written into a file that somebody removed is nowhere, whatever SQLite says.
#[test]
fn a_database_that_is_removed_ends_the_run() {
    let onceline = Onceline::new(SQLITE);
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    send.send(lines(0..1)).expect("a feeder");
    until("a row", || numbers(&onceline).len() == 1);
    for name in ["out.sqlite", "out.sqlite-wal", "out.sqlite-shm"] {
        std::fs::remove_file(onceline.path(name)).expect("remove");
    }
    send.send(lines(1..2)).expect("a feeder");
    let run = running.wait().adds_up();
    drop(send);
    assert_eq!(run.counts(["events_in", "created", "unsettled"]), [2, 1, 1], "{}", run.stderr);
    assert!(run.stderr.contains("out.sqlite was removed or replaced while it was in use"), "{}", run.stderr);
    assert!(run.stderr.contains("1 record of standard input kept in "), "{}", run.stderr);
    onceline.run(&lines(2..3)).settled();
    assert_eq!(numbers(&onceline), (1..3).collect());
}

#[test]
fn a_state_folder_that_is_removed_is_held_anew() {
    let onceline = Onceline::new(SQLITE);
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    send.send(lines(0..1)).expect("a feeder");
    until("a row", || numbers(&onceline).len() == 1);
    std::fs::remove_dir_all(onceline.path("state")).expect("remove");
    running.until_said("the lock was removed, and is made anew", 1);
    let second = onceline.call(&["run", "pipeline.toml", "--state", "state"], b"");
    assert_eq!(second.status, Some(1));
    assert!(second.stderr.contains("in use by another onceline"), "{}", second.stderr);
    // somebody else took it
    std::fs::remove_dir_all(onceline.path("state")).expect("remove");
    let folder = onceline.path("state");
    let _held = onceline::ack::lock::Lock::state(&folder).expect("it is free");
    let run = running.wait().adds_up();
    drop(send);
    assert_eq!(run.status, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("its lock was removed while it ran"), "{}", run.stderr);
}

/// What has an end and was not read to it is not done.
#[test]
fn a_stop_before_the_end_of_a_file_is_told_by_the_status() {
    let onceline = Onceline::new(SQLITE);
    let file = onceline.path("in.log");
    std::fs::write(&file, lines(0..200_000)).expect("write");
    let mut child = Command::new(env!("CARGO_BIN_EXE_onceline"))
        .args(["run", "pipeline.toml", "--state", "state"])
        .current_dir(onceline.dir())
        .stdin(std::fs::File::open(&file).expect("the file"))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("start onceline");
    until("a row", || onceline.path("out.sqlite").is_file() && !numbers(&onceline).is_empty());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).expect("a signal");
    assert_eq!(child.wait().expect("an end").code(), Some(1));
    assert!(numbers(&onceline).len() < 200_000, "it was not stopped in the middle");
}

#[test]
fn letters_and_ids_by_place_stay_as_they_were_read() {
    let by_place = |url: &str, more: &str| {
        pipeline(url, more).replace("method = \"SHA1\"", "method = \"SHA1\"\nrepeats = \"keep\"")
    };
    let input = [line(1).into_bytes(), b"no json\n".to_vec(), line(1).into_bytes()].concat();
    let honest = Stub::new("");
    let plain = Onceline::new(&by_place(&honest.url, ""));
    plain.run(&input).settled();

    let busy = Stub::new("").then(429);
    let onceline = Onceline::new(&by_place(&busy.url, "[tuning]\ndrain_max = \"0s\""));
    let run = stop(&onceline, &busy, input, &[Signal::TERM]);
    assert_eq!(run.counts(["events_in", "dead_lettered", "unsettled"]), [3, 1, 2]);
    assert!(run.stderr.contains("2 records of standard input kept"), "{}", run.stderr);
    let later = Stub::new("");
    onceline.set_pipeline(&by_place(&later.url, ""));
    let run = onceline.run(b"").settled();
    assert_eq!(run.counts(["events_in", "created"]), [2, 2]);
    assert_eq!(run.dead_letters.len(), 1, "a second letter for the same record");
    assert_eq!(later.docs(), honest.docs());
}

/// Nobody reads what the program writes, and so its output never lets go.
#[test]
fn an_output_that_is_stuck_is_left() {
    for signals in [2, 1] {
        let stuck = SQLITE.replace("type = \"sqlite\"", "type = \"stdout\"").replace("path = \"{dir}/out.sqlite\"", "");
        let onceline = Onceline::new(&(stuck + "[tuning]\nbatch_bytes = \"4KiB\"\ndrain_max = \"2s\""));
        let (read, mut write) = std::io::pipe().expect("a pipe");
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_onceline"))
            .args(["run", "pipeline.toml", "--state", "state"])
            .current_dir(onceline.dir())
            .stdin(read.try_clone().expect("the pipe"))
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("start onceline");
        // more than the pipe of the output holds
        write.write_all(&lines(0..3000)).expect("somebody reads");
        drop(write);
        std::thread::sleep(Duration::from_millis(1500));
        for _ in 0..signals {
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).expect("a signal");
            std::thread::sleep(Duration::from_millis(50));
        }
        let limit = Instant::now() + Duration::from_secs(30);
        let status = loop {
            if let Some(status) = child.try_wait().expect("wait") {
                break status;
            }
            assert!(Instant::now() < limit, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(status.code(), Some(1));
        // what was written counts
        let mut written = String::new();
        std::io::Read::read_to_string(&mut child.stdout.take().expect("a pipe"), &mut written).expect("text");
        // the next run has what was kept, and goes on with the same pipe
        onceline.set_pipeline(SQLITE);
        let next = std::process::Command::new(env!("CARGO_BIN_EXE_onceline"))
            .args(["run", "pipeline.toml", "--state", "state"])
            .current_dir(onceline.dir())
            .stdin(read)
            .status();
        assert_eq!(next.expect("start onceline").code(), Some(0));
        let written = written.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut got: BTreeSet<u64> = written.filter_map(|event| event["n"].as_u64()).collect();
        got.extend(numbers(&onceline));
        assert!(got == all(3000), "{} of 3000", got.len());
    }
}

#[test]
fn what_was_kept_is_not_forgotten() {
    let onceline = Onceline::new(&SQLITE.replace("\"stdin\"", "\"file\"\npaths = \"{dir}/none*\"")).args(&["--once"]);
    std::fs::create_dir_all(onceline.path("state/spool/pipeline")).expect("a folder");
    std::fs::write(onceline.path("state/spool/pipeline/1.spool"), "").expect("write");
    let run = onceline.run(b"");
    assert_eq!(run.status, Some(1));
    assert!(run.stderr.contains("still in "), "{}", run.stderr);
}

#[test]
fn a_spool_that_is_damaged_is_told() {
    let onceline = Onceline::new(SQLITE);
    std::fs::create_dir_all(onceline.path("state/spool/pipeline")).expect("a folder");
    std::fs::write(onceline.path("state/spool/pipeline/1.spool"), "{\"onceline_spool\":1,\"blocks\":1}\n")
        .expect("write");
    let run = onceline.run(&lines(0..1));
    assert_eq!(run.status, Some(1));
    assert!(run.stderr.contains("1.spool cannot be read: move it away"), "{}", run.stderr);
    assert_eq!(spools(&onceline).len(), 1);
}

#[test]
fn a_good_pipeline_file_replaces_the_running_one_without_loss() {
    let stub = Stub::new("");
    let onceline = Onceline::new(&pipeline(&stub.url, ""));
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    let half = line(10);
    let (begin, rest) = half.split_at(12);
    send.send([lines(0..10), begin.as_bytes().to_vec()].concat()).expect("a feeder");
    until("ten documents", || stub.docs().len() == 10);
    let second = Stub::new("");
    onceline.set_pipeline(&pipeline(&second.url, "[[filter]]\ntype = \"mutate\"\nadd_field = { by = \"second\" }"));
    running.signal(Signal::HUP);
    until("the second engine to be asked", || !second.others().is_empty());
    send.send([rest.as_bytes().to_vec(), lines(11..20)].concat()).expect("a feeder");
    drop(send);
    let run = running.wait().settled();
    assert_eq!(run.counts(["events_in", "created"]), [20, 20], "{}", run.stderr);
    let docs = second.docs();
    assert_eq!((stub.docs().len(), docs.len()), (10, 10));
    assert!(docs.values().all(|doc| doc["by"] == "second"), "{docs:?}");
    assert!(docs.values().any(|doc| doc["n"] == 10), "the line that was begun is broken");
}

/// What the old engine does not take goes to the new one.
#[test]
fn what_cannot_be_drained_goes_to_the_next_pipeline() {
    let busy = Stub::new("").then(429);
    let onceline = Onceline::new(&pipeline(&busy.url, "[tuning]\ndrain_max = \"200ms\""));
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    send.send(lines(0..10)).expect("a feeder");
    until("a request", || !busy.bulks().is_empty());
    let second = Stub::new("");
    onceline.set_pipeline(&pipeline(&second.url, ""));
    running.signal(Signal::HUP);
    until("ten documents", || second.docs().len() == 10);
    send.send(lines(10..20)).expect("a feeder");
    drop(send);
    let run = running.wait().settled();
    assert_eq!(run.counts(["events_in", "created"]), [20, 20], "{}", run.stderr);
    assert!(spools(&onceline).is_empty());
}

/// Changes that are refused: said, and the old pipeline goes on.
fn check_refused(changed: &str, said: &str, args: &[&str]) {
    let stub = Stub::new("");
    let onceline = Onceline::new(&pipeline(&stub.url, "")).args(args);
    let (send, write) = feed();
    let running = onceline.start_fed(write);
    send.send(lines(0..1)).expect("a feeder");
    until("a document", || stub.docs().len() == 1);
    let old = std::fs::read_to_string(onceline.path("pipeline.toml")).expect("the pipeline");
    onceline.set_pipeline(&changed.replace("{url}", &stub.url));
    running.signal(Signal::HUP);
    running.until_said(if args.is_empty() { "go on as they were" } else { "replaces what runs" }, 1);
    onceline.set_pipeline(&old);
    send.send(lines(1..5)).expect("a feeder");
    until("all documents", || stub.docs().len() == 5);
    drop(send);
    let run = running.wait().settled();
    assert_eq!(run.count("created"), 5);
    assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    assert_eq!(run.stderr.contains("go on as they were"), args.is_empty(), "{}", run.stderr);
    if args.is_empty() {
        assert!(stub.bulks().iter().flat_map(|bulk| &bulk.ops).all(|op| op.index == "logs-2026.03.01"));
    }
}

/// Starts with a pipeline file that is a pipe, so that reading it takes as long as the test wants.
fn start_reading<'a>(onceline: &'a Onceline, stdin: &[u8]) -> Running<'a> {
    std::fs::remove_file(onceline.path("pipeline.toml")).expect("the pipeline file");
    let made = Command::new("mkfifo").arg(onceline.path("pipeline.toml")).status().expect("mkfifo");
    assert!(made.success());
    onceline.start(stdin)
}

#[test]
fn signals_are_heard_before_the_pipeline_file_is_read() {
    for (signal, args, status) in [(Signal::TERM, &[][..], 0), (Signal::INT, &["--once"], 1)] {
        let onceline = Onceline::new(SQLITE).args(args);
        let running = start_reading(&onceline, b"");
        running.signal(signal);
        let run = running.wait();
        assert_eq!(run.status, Some(status), "{}", run.stderr);
        assert!(run.stderr.contains("stopped by a signal before it began"), "{}", run.stderr);
    }
    let stub = Stub::new("");
    let onceline = Onceline::new(SQLITE);
    let running = start_reading(&onceline, &lines(0..3));
    running.signal(Signal::HUP);
    onceline.set_pipeline(&pipeline(&stub.url, ""));
    // it may wait for the pipe to be written once more, and nobody waits for it
    let run = running.wait().settled();
    assert_eq!(run.count("created"), 3, "{}", run.stderr);
}

#[test]
fn a_bad_pipeline_file_is_refused() {
    let with = |from: &str, to: &str| pipeline("{url}", "").replace(from, to);
    check_refused(&with("scheme =", "shceme ="), "missing key `scheme`", &[]);
    check_refused(&with("SHA1", "MD5"), "another [id] is refused", &[]);
    check_refused(&with("method = \"SHA1\"", "method = \"SHA1\"\nsource = [\"n\"]"), "another [id] is refused", &[]);
    check_refused(&with("logs-", "other-"), "another [index] name is refused", &[]);
    check_refused(&with("type = \"stdin\"", "type = \"file\"\npaths = \"x\""), "", &[]);
    check_refused(&with("logs-", "other-"), "replaces what runs", &["--allow-new-ids"]);
}
