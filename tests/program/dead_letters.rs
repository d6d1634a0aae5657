//! Dead letters that are looked at, sent again and dropped; disks that are full.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::{Value, json};

use super::json as parse;
use super::rig::{Onceline, Stub};

fn pipeline(output: &str, more: &str) -> String {
    format!(
        r#"
        [[input]]
        type = "stdin"
        codec = "json"
        {more}
        [id]
        scheme = "time-hash"
        method = "MD5"
        [index]
        name = "logs"
        [output]
        {output}
        "#
    )
}

fn engine(stub: &Stub, more: &str) -> String {
    let waits = "retry_wait_min = \"1ms\"\nretry_wait_max = \"20ms\"";
    pipeline(&format!("type = \"elasticsearch\"\nhosts = [\"{}\"]\n{waits}", stub.url), more)
}

fn event(n: usize) -> String {
    format!("{{\"@timestamp\": \"2026-03-01T10:00:00Z\", \"n\": {n}}}\n")
}

fn events(count: usize) -> Vec<u8> {
    (0..count).map(event).collect::<String>().into_bytes()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < limit, "no {what} within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// `onceline dead-letters …` on the pipeline of `onceline`.
fn letters(onceline: &Onceline, args: &[&str]) -> (Option<i32>, String, String) {
    let args = [&["dead-letters", args[0], "pipeline.toml", "--state", "state"], &args[1..]].concat();
    let run = onceline.call(&args, b"");
    (run.status, run.stdout, run.stderr)
}

fn file(onceline: &Onceline) -> Vec<Value> {
    let text = std::fs::read_to_string(onceline.path("state/dead-letters.ndjson")).unwrap_or_default();
    text.lines().map(|line| parse(line.as_bytes())).collect()
}

const ADD: &str = "[[filter]]\ntype = \"mutate\"\nadd_field = { by = \"%{n}\" }";

#[test]
fn letters_are_sent_again_when_the_mapping_is_mended() {
    let stub = Stub::new("{\"http\":200,\"items\":[201,400,201,400]}\n{\"http\":200,\"items\":[400,201]}");
    let onceline = Onceline::new(&engine(&stub, ADD));
    onceline.run(&events(4)).settled();
    let first = file(&onceline);
    assert_eq!(first.len(), 2);
    assert_eq!(first[0]["raw"], event(1).trim_end(), "the record as it was read");
    let ids: Vec<String> = first.iter().map(|letter| letter["id"].as_str().expect("an id").to_owned()).collect();

    // one fails again: it stays, and its count is raised
    let (status, said, _) = letters(&onceline, &["replay"]);
    assert_eq!(status, Some(0));
    assert!(said.contains("1 letter taken out") && said.contains("1 letter failed again"), "{said}");
    let again = file(&onceline);
    assert_eq!(again.len(), 1);
    assert_eq!((&again[0]["attempts"], &again[0]["time"]), (&json!(2), &first[0]["time"]));
    for key in ["raw", "source", "id", "index", "reason", "event"] {
        assert_eq!(again[0][key], first[0][key], "{key}");
    }
    // a replay is not a loop
    assert_eq!(stub.bulks().len(), 2);

    // through the pipeline as it is now
    onceline.set_pipeline(&engine(&stub, &ADD.replace("by", "now_by")));
    let (status, said, _) = letters(&onceline, &["replay", "--reason", "rejected"]);
    assert_eq!((status, file(&onceline).len()), (Some(0), 0), "{said}");
    let docs = stub.docs();
    assert_eq!(docs.len(), 4, "{docs:?}");
    let mended = &docs[&("logs".to_owned(), ids[0].clone())];
    assert_eq!((&mended["now_by"], mended.get("by")), (&json!("1"), None));
    // the same ids: the original lines again are duplicates
    assert_eq!(onceline.run(&events(4)).settled().counts(["created", "duplicates"]), [0, 4]);
}

#[test]
fn old_letters_are_told_of_and_dropped_by_nobody_else() {
    let stub = Stub::new("{\"http\":200,\"items\":[400,400]}");
    let onceline = Onceline::new(&engine(&stub, "[dead_letter]\nage_max = \"30d\""));
    let run = onceline.run(&events(2)).settled();
    assert!(!run.stderr.contains("older than"), "{}", run.stderr);
    let later = ["--now", "2100-01-01T00:00:00Z"];
    let onceline = onceline.args(&later);
    let run = onceline.run(b"").settled();
    assert_eq!(run.stderr.matches("2 dead letters in ").count(), 2, "at the start and at the end: {}", run.stderr);
    assert!(run.stderr.contains(" are older than 30d, the first of 2"), "{}", run.stderr);
    let (_, said, _) = letters(&onceline, &["list"]);
    assert!(!said.contains("older than"), "{said}");
    let (_, said, _) = letters(&onceline, &[&["list"][..], &later].concat());
    assert!(said.contains("2 dead letters in ") && said.contains("older than 30d"), "{said}");
    let (_, said, _) = letters(&onceline, &[&["list", "--json"][..], &later].concat());
    assert_eq!(parse(said.as_bytes())["old"], 2);
    let drop = ["drop", "--older-than", "40d", "--yes"];
    letters(&onceline, &drop);
    assert_eq!(file(&onceline).len(), 2);
    let (status, said, _) = letters(&onceline, &[&drop[..], &later].concat());
    assert!(status == Some(0) && said.contains("2 letters dropped") && file(&onceline).is_empty(), "{said}");
}

/// Where a record stands in its file is known when it is sent again, and so is an id that is made of it. Positions
/// are left alone.
#[test]
fn letters_of_files_keep_their_place() {
    for output in ["type = \"sqlite\"\npath = \"{dir}/out.sqlite\"", "type = \"ndjson\"\npath = \"{dir}/out.ndjson\""] {
        let text = pipeline(output, "add_location = true")
            .replace("type = \"stdin\"", "type = \"file\"\npaths = \"{dir}/a.json\"")
            .replace(
                "scheme = \"time-hash\"\n        method = \"MD5\"",
                "scheme = \"hash\"\n        method = \"MD5\"\n        \
                 source = [\"[@metadata][file][inode]\", \"[@metadata][file][offset]\"]",
            );
        let onceline = Onceline::new(&text).args(&["--once"]);
        std::fs::write(onceline.path("a.json"), "{\"n\":1}\n{\"n\":2}\n").expect("write");
        assert_eq!(onceline.run(b"").settled().count("dead_lettered"), 2);
        onceline.set_pipeline(&format!("{text}[time]\nmissing = \"now\"\n"));
        let (status, said, _) = letters(&onceline, &["replay"]);
        assert!(status == Some(0) && said.contains("2 created") && file(&onceline).is_empty(), "{said}");
        assert_eq!(onceline.run(b"").settled().count("events_in"), 0, "a position was lost");
        if output.contains("sqlite") {
            let rows = onceline.rows("out.sqlite");
            let path = onceline.path("a.json").display().to_string();
            assert!(rows.iter().all(|row| row.source["log"]["file"]["path"] == path), "{rows:?}");
            let again = onceline.args(&["--from-start"]);
            assert_eq!(again.run(b"").settled().counts(["created", "duplicates"]), [0, 2]);
        }
    }
}

#[test]
fn a_replay_that_is_killed_or_stopped_loses_no_letter() {
    let stub = Stub::new("{\"http\":200,\"items\":[400,400,400]}").then(429);
    let onceline = Onceline::new(&engine(&stub, ""));
    let run = onceline.call(&["run", "pipeline.toml", "--state", "state"], &events(3));
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let before = file(&onceline);
    assert_eq!(before.len(), 3);
    for signals in [&[Signal::KILL][..], &[Signal::TERM, Signal::TERM]] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_onceline"))
            .args(["dead-letters", "replay", "pipeline.toml", "--state", "state"])
            .current_dir(onceline.dir())
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("start onceline");
        for signal in signals {
            let sent = stub.bulks().len();
            until("more requests", || stub.bulks().len() > sent + 3);
            // meanwhile no other takes letters out
            let (status, _, said) = letters(&onceline, &["drop", "--yes"]);
            assert!(status == Some(1) && said.contains("another process"), "{said}");
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), *signal).expect("a signal");
        }
        assert_ne!(child.wait().expect("an end").code(), Some(0));
        assert_eq!(file(&onceline), before);
    }
    let honest = Stub::new("");
    onceline.set_pipeline(&engine(&honest, ""));
    let (status, said, _) = letters(&onceline, &["replay"]);
    assert!(status == Some(0) && said.contains("3 letters taken out"), "{said}");
    assert_eq!((honest.docs().len(), file(&onceline).len()), (3, 0));
}

#[test]
fn letters_of_one_record_and_of_odd_bytes() {
    let onceline = Onceline::new(&pipeline("type = \"sqlite\"\npath = \"{dir}/out.sqlite\"", ""));
    let long = format!("{{\"x\":\"{}\"}}\n", "x".repeat(2 << 20));
    let input = [
        &b"[{\"a\":1},{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"b\":2},{\"c\":3}]\nbad \xff byte\n"[..],
        long.as_bytes(),
    ];
    let run = onceline.run(&input.concat()).settled();
    assert_eq!(run.counts(["created", "dead_lettered"]), [1, 4]);
    let (status, said, _) = letters(&onceline, &["list", "--json"]);
    assert_eq!(status, Some(0));
    let list = parse(said.as_bytes());
    assert_eq!((&list["letters"], &list["unreadable"]), (&json!(4), &json!(0)), "{list}");
    let count = |reason: &str| {
        let groups = list["groups"].as_array().expect("groups");
        groups.iter().find(|group| group["reason"] == reason).map(|group| group["count"].clone())
    };
    assert_eq!(
        [count("no-timestamp"), count("bad-json"), count("too-large")],
        [Some(json!(2)), Some(json!(1)), Some(json!(1))]
    );
    let (_, said, _) = letters(&onceline, &["list"]);
    assert!(said.contains("no-timestamp") && said.contains("4 letters in "), "{said}");
    let (_, said, _) = letters(&onceline, &["show", "--reason", "bad-json"]);
    assert_eq!(parse(said.as_bytes())["raw_base64"], "YmFkIP8gYnl0ZQ==");
    let (status, _, said) = letters(&onceline, &["show", "9"]);
    assert!(status == Some(2) && said.contains("no letter 9"), "{said}");

    onceline.set_pipeline(&pipeline("type = \"sqlite\"\npath = \"{dir}/out.sqlite\"\n[time]\nmissing = \"now\"", ""));
    let (status, said, _) = letters(&onceline, &["replay", "--now", "2026-03-02T00:00:00Z"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("3 events: 2 created, 1 duplicates") || said.contains("4 events: 2 created, 1 duplicates"),
        "{said}"
    );
    let left = file(&onceline);
    let reasons: Vec<_> = left.iter().map(|letter| letter["reason"].as_str().expect("a reason")).collect();
    assert_eq!(reasons, ["bad-json", "too-large"]);
    assert_eq!((&left[0]["attempts"], &left[0]["raw_base64"]), (&json!(1), &json!("YmFkIP8gYnl0ZQ==")));
    assert_eq!((&left[1]["attempts"], &left[1]["cut"]), (&json!(0), &json!(true)), "half a line was sent");

    let (status, _, said) = letters(&onceline, &["drop"]);
    assert!(status == Some(2) && said.contains("2 letters"), "{said}");
    letters(&onceline, &["drop", "--yes", "--before", "2020-01-01T00:00:00Z"]);
    letters(&onceline, &["drop", "--yes", "--reason", "rejected"]);
    assert_eq!(file(&onceline).len(), 2);
    letters(&onceline, &["drop", "--yes", "--reason", "bad-json"]);
    assert_eq!(file(&onceline).len(), 1);
    letters(&onceline, &["drop", "--yes", "--before", "2200-01-01T00:00:00Z"]);
    assert_eq!(file(&onceline).len(), 0);
    let (status, _, said) = letters(&onceline, &["list", "--file", "none"]);
    assert!(status == Some(2) && said.contains("no file none"), "{said}");
}

/// Lines that somebody wrote into the file, or broke, are counted apart and dropped only by name.
#[test]
fn lines_that_are_no_letters_are_dropped_only_by_name() {
    let onceline = Onceline::new(&pipeline("type = \"sqlite\"\npath = \"{dir}/out.sqlite\"", ""));
    onceline.run(b"bad\n{}\n").settled();
    let path = onceline.path("state/dead-letters.ndjson");
    let whole = std::fs::read_to_string(&path).expect("letters");
    std::fs::write(&path, format!("{{\"note\":1}}\n{whole}{{\"reason\":1}}\n")).expect("letters");
    let (_, said, _) = letters(&onceline, &["list"]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].starts_with("reason        index  letters  first ") && lines[0].ends_with("  last"), "{said}");
    assert!(
        lines[1].starts_with("bad-json      -            1  2") && lines[2].starts_with("no-timestamp  -  "),
        "{said}"
    );
    assert!(lines[3].starts_with("2 lines that cannot be read") && lines[4].starts_with("2 letters in "), "{said}");
    let list = parse(letters(&onceline, &["list", "--json"]).1.as_bytes());
    assert_eq!((&list["letters"], &list["unreadable"]), (&json!(2), &json!(2)), "{list}");
    let (status, _, said) = letters(&onceline, &["drop", "--unreadable"]);
    assert!(status == Some(2) && said.contains("2 unreadable lines of "), "{said}");
    let (_, said, _) = letters(&onceline, &["drop", "--yes"]);
    assert!(said.contains("2 letters dropped"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).expect("letters"), "{\"note\":1}\n{\"reason\":1}\n");
    std::fs::write(&path, format!("{{\"note\":1}}\n{whole}")).expect("letters");
    let (_, said, _) = letters(&onceline, &["drop", "--unreadable", "--yes"]);
    assert!(said.contains("1 unreadable line dropped"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).expect("letters"), whole);
}

#[test]
fn a_full_file_of_letters_stops_the_intake_until_there_is_room() {
    let more = "[dead_letter]\nbytes_max = \"4096\"\n";
    let onceline = Onceline::new(&(pipeline("type = \"sqlite\"\npath = \"{dir}/out.sqlite\"", "") + more));
    let input: Vec<u8> = (0..40).flat_map(|n| format!("bad {n}\n").into_bytes()).chain(events(5)).collect();
    let running = onceline.start(&input);
    let mut taken = 0;
    // moved away, then dropped, until all have been written
    while taken < 40 {
        let path = onceline.path("state/dead-letters.ndjson");
        until("letters", || std::fs::metadata(&path).is_ok_and(|meta| meta.len() > 0));
        assert!(std::fs::metadata(&path).expect("letters").len() <= 4096);
        if taken == 0 {
            until("a full file", || file(&onceline).len() > 5);
            std::thread::sleep(Duration::from_millis(100));
            taken += file(&onceline).len();
            std::fs::rename(&path, onceline.path("moved")).expect("move");
        } else {
            let (status, said, _) = letters(&onceline, &["drop", "--yes"]);
            assert_eq!(status, Some(0));
            taken += said.split(' ').next().expect("a number").parse::<usize>().expect("a number");
        }
    }
    assert_eq!(taken, 40);
    let run = running.wait().settled();
    assert_eq!(run.counts(["created", "dead_lettered"]), [5, 40]);
    assert_eq!(run.stderr.matches("dead letters cannot be written").count(), 1, "{}", run.stderr);
}

/// A tiny disk on which `output` writes; false where none can be made.
fn tiny_disk(folder: &Path) -> bool {
    std::fs::create_dir_all(folder).expect("a folder");
    let mount =
        std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=128k", "none"]).arg(folder).status();
    mount.is_ok_and(|status| status.success())
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// A full disk stops the run; room lets it go on; nothing is lost or twice.
fn check_full_disk(output: &str, more: &str, said: &str) {
    // nothing fits from the beginning, or something does
    [128 << 10, 96 << 10].into_iter().for_each(|ballast| check_full_disk_with(ballast, output, more, said));
}

fn check_full_disk_with(ballast: usize, output: &str, more: &str, said: &str) {
    let onceline = Onceline::new(&(pipeline(output, "") + more));
    let disk = onceline.path("disk");
    if !rustix::process::geteuid().is_root() || !tiny_disk(&disk) {
        eprintln!("not shown: only root can mount a disk");
        return;
    }
    let _unmount = Unmount(&disk);
    std::fs::write(disk.join("ballast"), vec![0; ballast]).expect("write");
    let input: Vec<u8> =
        if more.is_empty() { events(1000) } else { b"no json at all, and so a dead letter\n".repeat(400) };
    let running = onceline.start(&input);
    std::thread::sleep(Duration::from_millis(1500));
    let grow = std::process::Command::new("mount").args(["-o", "remount,size=16m"]).arg(&disk).status();
    assert!(grow.is_ok_and(|status| status.success()));
    let run = running.wait().settled();
    assert_eq!(run.stderr.matches(said).count(), 1, "{}", run.stderr);
    let count = if more.is_empty() { run.count("created") } else { run.count("dead_lettered") };
    assert_eq!(count, input.split(|byte| *byte == b'\n').count() as u64 - 1);
    if let Ok(text) = std::fs::read_to_string(disk.join("out.ndjson")) {
        assert_eq!(text.lines().count(), 2000);
        assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "half a line");
    }
    if let Ok(text) = std::fs::read_to_string(disk.join("dead.ndjson")) {
        assert_eq!(text.lines().count(), 400);
        assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "half a line");
    }
    if disk.join("out.sqlite").try_exists().expect("a look") {
        assert_eq!(onceline.rows("disk/out.sqlite").len(), 1000);
    }
}

/// A file that may not grow any more is waited for as a full disk is.
#[test]
fn a_limit_on_the_size_of_files_is_a_full_disk() {
    for (output, said) in [
        ("type = \"ndjson\"\npath = \"{dir}/out.ndjson\"", "there is no room"),
        ("type = \"sqlite\"\npath = \"{dir}/out.sqlite\"", "the database takes no rows"),
    ] {
        let onceline = Onceline::new(&pipeline(output, ""));
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let running = onceline.start_fed(move |mut pipe| {
            let _ = pipe.write_all(&events(1));
            let _ = wait.recv();
            let _ = pipe.write_all(&events(3000));
        });
        let is_there = |name: &str| std::fs::metadata(onceline.path(name)).is_ok_and(|meta| meta.len() > 0);
        until("a first row", || is_there("out.ndjson") || is_there("out.sqlite-wal"));
        let process = Pid::from_raw(running.id().try_into().expect("a number"));
        let limit = |bytes| {
            let limit = Rlimit { current: bytes, maximum: None };
            prlimit(process, Resource::Fsize, limit).expect("a limit");
        };
        limit(Some(64 << 10));
        go.send(()).expect("a feeder");
        running.until_said(said, 1);
        limit(None);
        assert_eq!(running.wait().settled().count("events_in"), 3001, "{output}");
    }
}

#[test]
fn a_full_disk_under_ndjson() {
    check_full_disk("type = \"ndjson\"\npath = \"{dir}/disk/out.ndjson\"", "", "there is no room");
}

#[test]
fn a_full_disk_under_sqlite() {
    check_full_disk("type = \"sqlite\"\npath = \"{dir}/disk/out.sqlite\"", "", "the database takes no rows");
}

#[test]
fn a_full_disk_under_dead_letters() {
    let letters = "[dead_letter]\npath = \"{dir}/disk/dead.ndjson\"\n";
    check_full_disk("type = \"stdout\"", letters, "dead letters cannot be written");
}
