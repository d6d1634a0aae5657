//! The program is killed at random moments while it follows one log that grows and is rotated; the engine is killed
//! too, behind a network that cuts, delays, repeats and garbles. Every line is one document or one dead letter.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::rig::chaos::{EndsWhenDropped, Lines, append, gzip, kill_again_and_again, read_the_rest};
use super::rig::{Engine, Fault, Onceline, OwnEngine, Proxy, unique_prefix, until};
use super::{of, seed};

fn pipeline(index: &str, output: &str) -> String {
    format!(
        "[[input]]\ntype = \"file\"\npaths = \"{{dir}}/in/app.log*\"\ncodec = \"json\"\n\
         [id]\nscheme = \"compact\"\nmethod = \"SHA256\"\n[index]\nname = \"{index}\"\n[output]\n{output}\n"
    )
}

/// A line of a log: an event, or none, or one that does not fit the engine's mapping.
fn line(n: u64) -> String {
    let time = format!("2026-03-01T10:{:02}:{:02}.000Z", n / 60 % 60, n % 60);
    let filling = ".".repeat((n % 300) as usize);
    match n {
        _ if n % 13 == 5 => format!("no event {n} {filling}\n"),
        _ if n % 101 == 50 => {
            format!("{{\"@timestamp\":\"{time}\",\"n\":\"no number {n}\",\"message\":\"{filling}\"}}\n")
        }
        _ => format!("{{\"@timestamp\":\"{time}\",\"n\":{n},\"message\":\"{filling}\"}}\n"),
    }
}

fn plain_line(n: u64) -> String {
    line(n).replace("\"no number ", "").replace(&format!("{n}\","), &format!("{n},"))
}

const TYPED: Lines = Lines { text: line, is_event: |n| n % 13 != 5 && n % 101 != 50 };
const UNTYPED: Lines = Lines { text: plain_line, is_event: |n| n % 13 != 5 };

/// One log, written and rotated.
struct Log<'a> {
    onceline: &'a Onceline,
    lines: Lines,
    random: fastrand::Rng,
    ends: &'a AtomicBool,
    rotated: Rotated,
    old: std::collections::VecDeque<PathBuf>,
}

#[derive(Clone, Copy, Default)]
struct Rotated {
    lines: u64,
    renamed: u64,
    compressed: u64,
    truncated: u64,
}

impl Log<'_> {
    fn grow(mut self) -> Rotated {
        let path = self.onceline.path("in/app.log");
        while !self.ends.load(Relaxed) {
            let from = self.rotated.lines;
            self.rotated.lines += self.random.u64(1..80);
            let text: String = (from..self.rotated.lines).map(self.lines.text).collect();
            // as writers do: a line may come in pieces
            let (one, two) = text.split_at(self.random.usize(..text.len()));
            append(&path, one);
            std::thread::sleep(Duration::from_millis(self.random.u64(0..40)));
            append(&path, two);
            match self.random.u8(..) {
                0..4 => self.rename(),
                4..7 => self.compress(),
                7..9 => self.truncate(),
                _ => {}
            }
        }
        self.rotated
    }

    fn next(&mut self) -> PathBuf {
        let path = self.onceline.path(&format!("in/app.log.{}", self.rotated.renamed + self.rotated.truncated));
        self.old.push_back(path.clone());
        path
    }

    fn rename(&mut self) {
        let next = self.next();
        fs::rename(self.onceline.path("in/app.log"), next).expect("rename");
        self.rotated.renamed += 1;
    }

    fn compress(&mut self) {
        if let Some(path) = self.old.pop_front() {
            gzip(&path, &self.onceline.path(&format!("in/{}.gz", path.file_name().unwrap().display())));
            self.rotated.compressed += 1;
        }
    }

    /// As copytruncate does it. What was not read would be gone with the file: this waits until all is settled. A copy
    /// of less than a KiB would be another file.
    fn truncate(&mut self) {
        let (path, started) = (self.onceline.path("in/app.log"), Instant::now());
        if fs::metadata(&path).map_or(0, |meta| meta.len()) < 1024 {
            return;
        }
        while !is_settled(self.onceline, &path) {
            if self.ends.load(Relaxed) || started.elapsed() > Duration::from_secs(10) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let next = self.next();
        fs::copy(&path, next).expect("copy");
        fs::File::options().write(true).open(&path).and_then(|file| file.set_len(0)).expect("truncate");
        self.rotated.truncated += 1;
    }
}

/// Whether all of a file is settled, as `onceline positions show` says.
fn is_settled(onceline: &Onceline, path: &std::path::Path) -> bool {
    let said = onceline.says(&["positions", "show", "--json", "pipeline.toml", "--state", "state"]);
    let shown: Value = serde_json::from_str(&said).unwrap_or_default();
    let size = fs::metadata(path).map_or(0, |meta| meta.len());
    let mut files = shown["files"].as_array().into_iter().flatten();
    files.any(|file| file["path"] == json!(path) && file["is_there"] == true && file["offset"] == size)
}

/// What happened to a program.
struct Story {
    rotated: Rotated,
    kills: u64,
    letters: Vec<Value>,
}

/// Kills it so often, and longer while there is `more`; then lets it come to its end.
fn torment(
    onceline: &Onceline,
    lines: Lines,
    random: &mut fastrand::Rng,
    kills: u64,
    more: impl Fn() -> bool,
    stored: impl Fn() -> u64,
) -> Story {
    fs::create_dir(onceline.path("in")).expect("a folder");
    let ends = AtomicBool::new(false);
    let (kills, rotated) = std::thread::scope(|scope| {
        let stop = EndsWhenDropped(&ends);
        let (random_of_log, ends) = (random.fork(), &ends);
        let log =
            Log { onceline, lines, random: random_of_log, ends, rotated: Rotated::default(), old: Default::default() };
        let log = scope.spawn(|| log.grow());
        let (kills, _) =
            kill_again_and_again(onceline, random, 20_000..2_500_000, |_, killed| killed < kills || more());
        drop(stop);
        (kills, log.join().expect("the log's writer"))
    });
    let running = onceline.start(b"");
    let wanted = (0..rotated.lines).filter(|n| (lines.is_event)(*n)).count() as u64;
    until("the last documents", || {
        std::thread::sleep(Duration::from_millis(300));
        stored() >= wanted
    });
    running.signal(Signal::TERM);
    running.wait().settled();
    read_the_rest(onceline);
    let letters = onceline.call(&["positions", "show", "pipeline.toml", "--state", "state"], b"").dead_letters;
    Story { rotated, kills, letters }
}

impl Story {
    fn tell(&self, what: &str, lines: Lines, events: Vec<u64>) {
        let Rotated { lines: count, renamed, compressed, truncated } = self.rotated;
        let (events, again) = lines.check(count, events, &self.letters);
        let letters = count - events;
        println!(
            "{what}: {} kills; the log was renamed {renamed} times, compressed {compressed}, copied and truncated \
             {truncated}; {count} lines: {events} documents, {letters} dead letters ({again} written again)",
            self.kills
        );
    }
}

/// A bad network, the same for the same seed.
fn fault(seed: u64, n: usize) -> Fault {
    let mut random = fastrand::Rng::with_seed(seed ^ n as u64);
    match random.u8(..100) {
        0..4 => Fault::CutBefore,
        4..8 => Fault::CutDelivered,
        8..12 => Fault::CutAnswer,
        12..16 => Fault::Delay(Duration::from_millis(random.u64(1..1500))),
        16..20 => Fault::Repeat,
        20..23 => Fault::Truncate,
        23..26 => Fault::Garble,
        _ => Fault::None,
    }
}

/// How often each kind of fault was met, in words.
fn met(faults: &[Fault]) -> String {
    let count = |is: fn(&Fault) -> bool| faults.iter().filter(|fault| is(fault)).count();
    let before = count(|fault| matches!(fault, Fault::CutBefore));
    let after = count(|fault| matches!(fault, Fault::CutDelivered | Fault::CutAnswer));
    let half = count(|fault| matches!(fault, Fault::Truncate));
    let delays = count(|fault| matches!(fault, Fault::Delay(_)));
    let repeats = count(|fault| matches!(fault, Fault::Repeat));
    let garbled = count(|fault| matches!(fault, Fault::Garble));
    format!(
        "{} requests: {before} cut before they arrived, {after} after, {half} answers cut in half, {delays} late, \
         {garbled} garbled, {repeats} requests repeated on their way",
        faults.len()
    )
}

fn an_engine(name: &'static str, kills: u64, restarts: u64) {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let own = OwnEngine::of(name);
    let engine: &Engine = &own;
    let index = unique_prefix();
    let mapping = json!({"mappings": {"properties": {"n": {"type": "long"}}}});
    assert_eq!(engine.put(&format!("/{index}"), &mapping).status, 200);
    let proxy = Proxy::new(&engine.url, move |n| fault(seed, n));
    let output = format!(
        "type = \"elasticsearch\"\nhosts = [\"{}\"]\naction = \"create\"\nretry_wait_max = \"1s\"\nrequest_timeout = \"5s\"",
        proxy.url
    );
    let onceline = Onceline::new(&pipeline(&index, &output)).deadline(Duration::from_secs(600));
    let restarted = AtomicU64::new(0);
    let story = std::thread::scope(|scope| {
        let mut fork = random.fork();
        let (own, restarted) = (&own, &restarted);
        scope.spawn(move || {
            for _ in 0..restarts {
                std::thread::sleep(Duration::from_millis(fork.u64(2_000..of(9_000, 3_000))));
                own.kill();
                std::thread::sleep(Duration::from_millis(fork.u64(0..1_500)));
                own.start_again();
                restarted.fetch_add(1, Relaxed);
            }
        });
        let stored = || {
            engine.get(&format!("/{index}/_refresh"));
            engine.get(&format!("/{index}/_count")).json()["count"].as_u64().unwrap_or(0)
        };
        torment(&onceline, TYPED, &mut random, kills, || restarted.load(Relaxed) < restarts, stored)
    });
    let docs = engine.docs(&index);
    let rewritten = docs.iter().filter(|doc| doc.version != 1).count();
    assert_eq!(rewritten, 0, "`create` never writes a second time");
    let events: Vec<u64> = docs.iter().map(|doc| doc.source["n"].as_u64().expect("a number")).collect();
    story.tell(name, TYPED, events);
    let (sent, lines) = (proxy.lines() / 2, story.rotated.lines);
    let ratio = sent as f64 / (0..lines).filter(|n| n % 13 != 5).count() as f64;
    println!("  {restarts} times the engine was killed and started again; {}", met(&proxy.faults()));
    println!("  {sent} events sent, {ratio:.2} for each that was there; seed {seed}");
}

#[test]
fn every_line_is_one_document_in_opensearch() {
    an_engine("opensearch", of(60, 8), of(6, 1));
}

#[test]
fn every_line_is_one_row_in_sqlite() {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let output = "type = \"sqlite\"\npath = \"{dir}/out.sqlite\"";
    let onceline = Onceline::new(&pipeline("lines", output)).deadline(Duration::from_secs(600));
    let stored = || {
        let database = rusqlite::Connection::open(onceline.path("out.sqlite")).expect("a database");
        database.query_row("SELECT count(*) FROM lines", [], |row| row.get::<_, i64>(0)).unwrap_or(0) as u64
    };
    let story = torment(&onceline, UNTYPED, &mut random, of(60, 6), || false, stored);
    let rows = onceline.rows("out.sqlite");
    let again = rows.iter().filter(|row| row.version != 1).count();
    story.tell("sqlite", UNTYPED, rows.iter().map(|row| row.source["n"].as_u64().expect("a number")).collect());
    assert_eq!(again, 0, "rows written a second time");
    println!("  no row was written a second time; seed {seed}");
}

#[test]
fn every_line_is_one_document_in_elasticsearch() {
    // the short form is that of OpenSearch
    if of(true, false) {
        an_engine("elasticsearch", 50, 3);
    }
}
