//! Much is read in little memory: a log that grows and is rotated, filters, dead letters and an engine that is slow,
//! under a limit that kills. Where no control group can be made the peak is looked at alone.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::of;
use super::rig::{Engine, Onceline, Stub, unique_prefix};

const MB: u64 = 1_000_000;

/// How much memory a run may have, with the defaults.
const MEMORY: u64 = 200 * MB;

fn line(n: u64) -> String {
    if n % 1000 == 7 {
        return format!("no event {n}\n");
    }
    let level = if n % 10 == 3 { "debug" } else { "info" };
    let filling = "the same words in every line, as logs have them; ".repeat((n % 7) as usize);
    format!(
        "{{\"when\":\"2026-03-01 10:{:02}:{:02},{:03}\",\"n\":{n},\"level\":\"{level}\",\"service\":\"orders\",\
         \"host\":\"orders-{}\",\"message\":\"{filling}\"}}\n",
        n / 60_000 % 60,
        n / 1000 % 60,
        n % 1000,
        n % 16,
    )
}

fn is_stored(n: u64) -> bool {
    n % 1000 != 7 && n % 10 != 3
}

fn pipeline(index: &str, output: &str) -> String {
    format!(
        r#"
[[input]]
type = "file"
paths = "{{dir}}/log/app.log*"
codec = "json"

[[filter]]
type = "drop"
when = '[level] == "debug"'

[[filter]]
type = "date"
match = ["when", "yyyy-MM-dd HH:mm:ss,SSS"]
timezone = "UTC"

[[filter]]
type = "mutate"
uppercase = ["level"]
rename = {{ host = "[host][name]" }}
add_field = {{ seen = "%{{service}} at %{{[host][name]}}" }}

[id]
scheme = "compact"
method = "SHA256"

[index]
name = "{index}"

[output]
{output}
"#
    )
}

/// A control group with so much memory: what needs more is killed.
struct Cage(Option<PathBuf>);

impl Cage {
    fn new(bytes: u64) -> Cage {
        let top = Path::new("/sys/fs/cgroup");
        let version = [("", "memory.max"), ("memory", "memory.limit_in_bytes")];
        let made = version.iter().find_map(|(controller, limit)| {
            let path = top.join(controller).join(unique_prefix());
            fs::create_dir(&path).ok()?;
            let limited = File::options().write(true).open(path.join(limit));
            match limited.and_then(|mut file| file.write_all(bytes.to_string().as_bytes())) {
                Ok(()) => Some(path),
                Err(_) => fs::remove_dir(&path).map_or(None, |()| None),
            }
        });
        Cage(made)
    }

    fn hold(&self, process: u32) {
        if let Some(path) = &self.0 {
            fs::write(path.join("cgroup.procs"), process.to_string()).expect("a group that takes a process");
        }
    }

    fn words(&self) -> &'static str {
        if self.0.is_some() { "enforced by a control group" } else { "looked at, no control group could be made" }
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        // the process has ended; if not, the group goes with the machine
        let _ = self.0.as_ref().map(fs::remove_dir);
    }
}

/// The most memory that a process has had so far, in bytes; none if it is gone.
fn peak(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// A log of about so many bytes, the second half of which is written while it is read.
struct Log<'a> {
    onceline: &'a Onceline,
    bytes: u64,
    lines: Cell<u64>,
    written: Cell<u64>,
}

impl Log<'_> {
    /// Writes up to a part of it, and renames it.
    fn write(&self, up_to: u64, name: &str) {
        let path = self.onceline.path("log/app.log");
        let mut file = BufWriter::new(File::options().create(true).append(true).open(&path).expect("a log"));
        while self.written.get() < up_to {
            let text = line(self.lines.get());
            file.write_all(text.as_bytes()).expect("write");
            self.lines.set(self.lines.get() + 1);
            self.written.set(self.written.get() + text.len() as u64);
        }
        drop(file);
        fs::rename(&path, self.onceline.path(&format!("log/{name}"))).expect("rename");
    }
}

/// `stored` says how many documents there are.
fn soak(what: &str, index: &str, output: &str, bytes: u64, stored: impl Fn(&Onceline) -> u64) -> (Onceline, u64) {
    let onceline = Onceline::new(&pipeline(index, output)).deadline(Duration::from_secs(1800));
    fs::create_dir(onceline.path("log")).expect("a folder");
    let log = Log { onceline: &onceline, bytes, lines: Cell::new(0), written: Cell::new(0) };
    log.write(log.bytes / 2, "app.log.1");
    let cage = Cage::new(MEMORY);
    let started = Instant::now();
    let mut running = onceline.start(b"");
    cage.hold(running.id());
    (3..=8).for_each(|eighth| log.write(log.bytes * eighth / 8, &format!("app.log.{eighth}")));
    let lines = log.lines.get();
    let want = (0..lines).filter(|n| is_stored(*n)).count() as u64;
    let mut most = 0;
    while stored(&onceline) < want {
        assert!(!running.is_over(), "it was killed with {most} bytes, or ended: {:?}", {
            let run = running.wait();
            (run.status, run.stderr)
        });
        assert!(started.elapsed() < Duration::from_secs(1500), "it comes to no end");
        most = most.max(peak(running.id()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(200));
    }
    most = most.max(peak(running.id()).unwrap_or(0));
    running.signal(Signal::TERM);
    let run = running.wait().settled();
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(run.count("created"), want, "{}", run.summary);
    assert_eq!(run.counts(["events_in", "duplicates"]), [lines, 0], "{}", run.summary);
    assert_eq!(run.count("dead_lettered"), (0..lines).filter(|n| n % 1000 == 7).count() as u64, "{}", run.summary);
    println!(
        "{what}: {} MB, {lines} lines: {want} documents, {} dropped, {} dead letters; {:.0} MB of memory at most, \
         {} MB allowed ({}); {seconds:.0} s",
        log.written.get() / MB,
        run.count("dropped"),
        run.count("dead_lettered"),
        most as f64 / MB as f64,
        MEMORY / MB,
        cage.words(),
    );
    // what a group allows is without the pages that are the program's file
    assert!(cage.0.is_some() || most <= MEMORY, "{most} bytes of memory");
    (onceline, want)
}

fn check(mut numbers: Vec<u64>, want: u64) {
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len() as u64, want);
    assert!(numbers.iter().all(|n| is_stored(*n)));
}

fn query(onceline: &Onceline, text: &str) -> u64 {
    let database = rusqlite::Connection::open(onceline.path("out.sqlite")).expect("a database");
    database.query_row(text, [], |row| row.get::<_, i64>(0)).unwrap_or(0) as u64
}

#[test]
fn sqlite() {
    let output = "type = \"sqlite\"\npath = \"{dir}/out.sqlite\"";
    let stored = |onceline: &Onceline| query(onceline, "SELECT count(*) FROM lines");
    let (onceline, want) = soak("sqlite", "lines", output, of(1000 * MB, 20 * MB), stored);
    assert_eq!(query(&onceline, "SELECT count(DISTINCT _source ->> 'n') FROM lines"), want);
    assert_eq!(query(&onceline, "SELECT max(_version) FROM lines"), 1);
}

fn elasticsearch(url: &str) -> String {
    format!("type = \"elasticsearch\"\nhosts = [\"{url}\"]\naction = \"create\"")
}

#[test]
fn a_slow_engine() {
    let stub = Stub::new("").lean().slow(Duration::from_millis(200));
    let bytes = of(1000 * MB, 60 * MB);
    let (_, want) =
        soak("an engine that takes 200 ms", "lines", &elasticsearch(&stub.url), bytes, |_| stub.len() as u64);
    check(stub.numbers(), want);
}

#[test]
fn opensearch() {
    let (engine, index) = (Engine::opensearch(), unique_prefix());
    let stored = |_: &Onceline| {
        engine.get(&format!("/{index}/_refresh"));
        engine.get(&format!("/{index}/_count")).json()["count"].as_u64().unwrap_or(0)
    };
    let (_, want) = soak("opensearch", &index, &elasticsearch(&engine.url), of(200 * MB, 5 * MB), stored);
    check(engine.docs(&index).iter().map(|doc| doc.source["n"].as_u64().expect("a number")).collect(), want);
    engine.delete(&format!("/{index}"));
}
