//! Saved positions: a second `--once` run reads what is new, whatever became of the files meanwhile; what is wrong
//! with the state is said; and a process that is killed at any moment writes no row twice.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::rig::chaos::{EndsWhenDropped, Lines, append, given, gzip, kill_again_and_again, read_the_rest};
use super::rig::{Onceline, Run, Stub, until};

const SQLITE: &str = "type = \"sqlite\"\npath = \"{dir}/out.sqlite\"";
const NDJSON: &str = "type = \"ndjson\"\npath = \"{dir}/out.ndjson\"";

/// Reads the files in `in/`; positions are in the database, or in the state folder.
fn reading(output: &str) -> Onceline {
    let onceline = Onceline::new(&format!(
        "[[input]]\ntype = \"file\"\npaths = [\"{{dir}}/in/*\"]\ncodec = \"json\"\n\
         [id]\nscheme = \"hash\"\nmethod = \"SHA256\"\n[index]\nname = \"lines\"\n\
         [output]\n{output}\n[tuning]\nbatch_bytes = \"4KiB\"\nworkers = 2\n"
    ));
    fs::create_dir(onceline.path("in")).expect("a folder");
    onceline.args(&["--once"])
}

fn lines(numbers: std::ops::Range<u64>) -> String {
    numbers.map(|n| format!("{{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"n\":{n}}}\n")).collect()
}

/// What was read, in the two places where positions are saved.
fn check(change: impl Fn(&Path), new: u64, duplicates: u64) {
    for output in [SQLITE, NDJSON] {
        let onceline = reading(output);
        let folder = onceline.path("in");
        append(&folder.join("a"), &lines(0..1000));
        append(&folder.join("b"), &lines(1000..1002));
        let run = onceline.run(b"").settled();
        assert_eq!(run.counts(["events_in", "created"]), [1002, 1002], "{output}");
        change(&folder);
        let run = onceline.run(b"").settled();
        // nobody is asked with ndjson: all counts as created
        let duplicates = if output == SQLITE { duplicates } else { 0 };
        assert_eq!(run.counts(["events_in", "duplicates"]), [new, duplicates], "{output} {}", run.stderr);
        let run = onceline.run(b"").settled();
        assert_eq!(run.count("events_in"), 0, "{output}: a third run {}", run.stderr);
    }
}

#[test]
fn nothing_new() {
    check(|_| {}, 0, 0);
}

#[test]
fn files_that_grow_and_new_ones() {
    check(
        |folder| {
            append(&folder.join("a"), &lines(2000..2010));
            append(&folder.join("b"), &lines(3000..3500));
            append(&folder.join("c"), &lines(4000..4001));
        },
        511,
        0,
    );
}

#[test]
fn files_renamed_compressed_and_copied_back() {
    check(
        |folder| {
            append(&folder.join("a"), &lines(2000..2010));
            fs::rename(folder.join("a"), folder.join("a.1")).expect("rename");
            append(&folder.join("a"), &lines(5000..5007));
        },
        17,
        0,
    );
    check(
        |folder| {
            append(&folder.join("a"), &lines(2000..2010));
            gzip(&folder.join("a"), &folder.join("a.gz"));
            gzip(&folder.join("b"), &folder.join("b.gz"));
            // perhaps with the inode of one of those
            append(&folder.join("a"), &lines(5000..5007));
            append(&folder.join("b"), &lines(6000..6001));
        },
        18,
        0,
    );
    check(
        |folder| {
            let text = fs::read(folder.join("a")).expect("a text");
            fs::remove_file(folder.join("a")).expect("remove");
            fs::write(folder.join("restored"), text).expect("write");
        },
        0,
        0,
    );
}

#[test]
fn files_cut_short_or_replaced() {
    // shorter than the position, then as long, then longer
    for count in [1, 1000, 1500] {
        check(|folder| fs::write(folder.join("a"), lines(10_000..10_000 + count)).expect("write"), count, 0);
    }
    // as copytruncate does it: the copy goes on where the file was left
    check(
        |folder| {
            append(&folder.join("a"), &lines(2000..2010));
            fs::copy(folder.join("a"), folder.join("a.1")).expect("copy");
            fs::write(folder.join("a"), lines(5000..5003)).expect("write");
        },
        13,
        0,
    );
    // a copy beside a file that is still there was read with it
    check(|folder| fs::copy(folder.join("a"), folder.join("a.copy")).map(drop).expect("copy"), 0, 0);
    check(|folder| fs::copy(folder.join("a"), folder.join("_copy")).map(drop).expect("copy"), 0, 0);
}

/// An inode has another text now, which was read, before the text that it had comes back compressed.
#[test]
fn an_inode_that_is_used_again_costs_no_position() {
    for output in [SQLITE, NDJSON] {
        let onceline = reading(output);
        let (a, aside) = (onceline.path("in/a"), onceline.path("aside"));
        append(&a, &lines(0..1000));
        append(&onceline.path("in/b"), &lines(1000..1002));
        assert_eq!(onceline.run(b"").settled().count("events_in"), 1002);
        for (name, before, after) in [("a", 2000, 2500), ("b", 3000, 3001)] {
            let path = onceline.path("in").join(name);
            fs::copy(&path, &aside).expect("copy");
            // as it is when its inode goes to a new file, though here for certain
            fs::write(&path, lines(before..after)).expect("write");
            assert_eq!(onceline.run(b"").settled().count("events_in"), after - before);
            gzip(&aside, &onceline.path("in").join(format!("{name}.gz")));
            let run = onceline.run(b"").settled();
            assert_eq!(run.count("events_in"), 0, "{output} {name} {}", run.stderr);
        }
        let run = onceline.run(b"").settled();
        assert_eq!(run.count("events_in"), 0, "{output} {}", run.stderr);
    }
}

/// Of an unfinished last line each run makes an event, and the position stays before it.
#[test]
fn a_half_line_is_read_again_whole() {
    let onceline = reading(SQLITE);
    let path = onceline.path("in/a");
    let text = "{\"@timestamp\":\"2026-03-01T10:00:00Z\"";
    append(&path, &(lines(0..3) + text + ",\"n\":7}"));
    assert_eq!(onceline.run(b"").settled().counts(["created", "duplicates"]), [4, 0]);
    assert_eq!(onceline.run(b"").settled().counts(["created", "duplicates"]), [0, 1]);
    // the line gets its end: the same event
    append(&path, "\n");
    assert_eq!(onceline.run(b"").settled().counts(["created", "duplicates"]), [0, 1]);
    assert_eq!(onceline.run(b"").settled().count("events_in"), 0);
    // a line that is half an object is a dead letter, and the whole line is an event
    append(&path, text);
    assert_eq!(onceline.run(b"").settled().counts(["events_in", "dead_lettered"]), [1, 1]);
    append(&path, ",\"n\":8}\n");
    assert_eq!(onceline.run(b"").settled().counts(["events_in", "created"]), [1, 1]);
    assert_eq!(onceline.run(b"").settled().count("events_in"), 0);
}

#[test]
fn lines_that_become_no_document_move_positions_too() {
    for output in [SQLITE, NDJSON] {
        let onceline = reading(output);
        append(&onceline.path("in/a"), &"no json\n".repeat(3000));
        assert_eq!(onceline.run(b"").settled().counts(["events_in", "dead_lettered"]), [3000, 3000]);
        let run = onceline.run(b"").settled();
        assert_eq!((run.count("events_in"), run.dead_letters.len()), (0, 3000));
    }
}

#[test]
fn from_start_reads_all_and_saves_again() {
    for output in [SQLITE, NDJSON] {
        let mut onceline = reading(output);
        append(&onceline.path("in/a"), &lines(0..100));
        assert_eq!(onceline.run(b"").settled().count("events_in"), 100);
        onceline = onceline.args(&["--from-start"]);
        assert_eq!(onceline.run(b"").settled().count("events_in"), 100);
        let show = positions(&onceline, "show", &["--json"]);
        assert_eq!(super::json(show.stdout.as_bytes())["files"][0]["percent"], 100, "{show:?}");
    }
}

/// A run that is told to stop saves how far it came.
#[test]
fn stopped_in_the_middle() {
    for output in [SQLITE, NDJSON] {
        let onceline = reading(output);
        append(&onceline.path("in/a"), &lines(0..60_000));
        let out = onceline.path(if output == SQLITE { "out.sqlite-wal" } else { "out.ndjson" });
        let running = onceline.start(b"");
        let started = Instant::now();
        while fs::metadata(&out).map_or(0, |meta| meta.len()) == 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "nothing is written");
            std::thread::sleep(Duration::from_millis(1));
        }
        running.signal(Signal::TERM);
        let run = running.wait().adds_up();
        assert_eq!((run.status, run.count("unsettled")), (Some(1), 0), "{}", run.stderr);
        assert!(run.stderr.contains("input that was not read is left"), "{}", run.stderr);
        let before = run.count("events_in");
        assert!(before < 60_000, "it was not stopped in the middle");
        let run = onceline.run(b"").settled();
        assert_eq!(run.counts(["events_in", "duplicates"]), [60_000 - before, 0], "{output}");
    }
}

fn positions(onceline: &Onceline, command: &str, args: &[&str]) -> Run {
    let all = [&["positions", command, "pipeline.toml", "--state", "state"], args].concat();
    onceline.call(&all, b"")
}

#[test]
fn positions_are_shown_and_forgotten() {
    for output in [SQLITE, NDJSON] {
        let onceline = reading(output);
        assert_eq!(positions(&onceline, "show", &["--json"]).stdout, "{\"files\":[]}\n");
        assert_eq!(positions(&onceline, "reset", &["--yes"]).status, Some(0), "nothing to forget");
        append(&onceline.path("in/a"), &lines(0..100));
        append(&onceline.path("in/b"), &lines(100..200));
        onceline.run(b"").settled();
        append(&onceline.path("in/b"), &lines(200..300));
        fs::remove_file(onceline.path("in/a")).expect("remove");
        append(&onceline.path("in/c.gz"), "");

        let size = lines(100..200).len();
        let run = positions(&onceline, "show", &["--json"]);
        let shown = super::json(run.stdout.as_bytes());
        let [a, b] = shown["files"].as_array().expect("files").as_slice() else { panic!("{shown}") };
        assert_eq!(b["path"], json!(onceline.path("in/b")));
        let numbers = |file: &Value| ["offset", "size", "percent"].map(|key| file[key].as_u64());
        assert_eq!(numbers(b), [Some(size as u64), Some(2 * size as u64), Some(50)]);
        assert_eq!((&a["is_there"], &a["size"], &b["is_there"]), (&json!(false), &Value::Null, &json!(true)));
        let run = positions(&onceline, "show", &[]);
        assert!(run.stdout.contains("in/b\n") && run.stdout.contains("in/a (gone"), "{}", run.stdout);

        let run = positions(&onceline, "reset", &[]);
        assert!(run.status == Some(2) && run.stderr.contains("--yes"), "{run:?}");
        let run = positions(&onceline, "reset", &["--yes", "in/none"]);
        assert!(run.status == Some(1) && run.stderr.contains("no position is saved of"), "{run:?}");
        assert_eq!(positions(&onceline, "reset", &["--yes", "in/b"]).status, Some(0));
        assert_eq!(super::json(positions(&onceline, "show", &["--json"]).stdout.as_bytes())["files"], json!([a]));
        assert_eq!(onceline.run(b"").settled().count("events_in"), 200);
        assert_eq!(positions(&onceline, "reset", &["--yes"]).status, Some(0));
        assert_eq!(onceline.run(b"").settled().count("events_in"), 200);
    }
}

#[test]
fn positions_that_cannot_be_used_stop_a_run() {
    let onceline = reading(NDJSON);
    append(&onceline.path("in/a"), &lines(0..100));
    onceline.run(b"").settled();
    let path = onceline.path("state/positions.json");
    let good = fs::read_to_string(&path).expect("positions");
    for wrong in ["", "{", &good[..good.len() - 9], &good.replace("\"version\":2", "\"version\":3")] {
        fs::write(&path, wrong).expect("write");
        for run in
            [onceline.run(b""), positions(&onceline, "show", &[]), positions(&onceline, "reset", &["--yes", "in/a"])]
        {
            assert_eq!(run.status, Some(1), "{wrong} {}", run.stderr);
            for said in ["state/positions.json", "onceline positions reset"] {
                assert!(run.stderr.contains(said), "{wrong} {}", run.stderr);
            }
        }
        assert_eq!(fs::read_to_string(&path).expect("positions"), wrong, "what cannot be used is kept");
    }
    assert_eq!(positions(&onceline, "reset", &["--yes"]).status, Some(0));
    assert_eq!(onceline.run(b"").settled().count("events_in"), 100);
    let mode = |name: &str| fs::metadata(onceline.path(name)).expect("state").permissions().mode() & 0o777;
    assert_eq!(["state", "state/positions.json", "state/lock"].map(mode), [0o700, 0o600, 0o600]);

    let onceline = reading(SQLITE);
    append(&onceline.path("in/a"), &lines(0..100));
    onceline.run(b"").settled();
    let connection = rusqlite::Connection::open(onceline.path("out.sqlite")).expect("a database");
    for (wrong, table) in [
        ("UPDATE _onceline_positions SET version = 9", "_onceline_positions"),
        ("DROP TABLE _onceline_positions", "_onceline_positions"),
        ("DROP TABLE _onceline_looked", "_onceline_looked"),
    ] {
        connection.execute(wrong, []).expect(wrong);
        for _ in 0..2 {
            let run = onceline.run(b"");
            let is_said = [table, "onceline positions reset"].iter().all(|said| run.stderr.contains(said));
            assert!(run.status == Some(1) && is_said, "{wrong}: {run:?}");
        }
        assert_eq!(positions(&onceline, "reset", &["--yes"]).status, Some(0));
        assert_eq!(onceline.run(b"").settled().count("duplicates"), 100);
    }
}

/// A folder in the draft's place stands for a disk that takes nothing: it delivers all, and says once what it cannot.
#[test]
fn positions_that_cannot_be_saved() {
    let onceline = reading(NDJSON);
    append(&onceline.path("in/a"), &lines(0..1000));
    let blocked = onceline.path("state/positions.json.new");
    fs::create_dir_all(&blocked).expect("a folder");
    let run = onceline.run(b"").adds_up();
    assert_eq!((run.status, run.count("created")), (Some(1), 1000), "{}", run.stderr);
    assert_eq!(run.stderr.matches("positions cannot be saved").count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("positions are not saved: the next run reads some of it again"), "{}", run.stderr);
    fs::remove_dir(&blocked).expect("remove");
    assert_eq!(onceline.run(b"").settled().count("events_in"), 1000);
    assert_eq!(onceline.run(b"").settled().count("events_in"), 0);
}

/// What replaces a pipeline begins where the positions of that were saved, so nothing is replaced before they are.
#[test]
fn a_pipeline_is_not_replaced_before_positions_are_saved() {
    let stub = Stub::new("").wants("ApiKey x");
    let output =
        format!("type = \"elasticsearch\"\nhosts = [\"{}\"]\napi_key = \"x\"\nretry_wait_max = \"20ms\"", stub.url);
    let onceline = reading(&output).no_args().deadline(Duration::from_secs(300));
    let blocked = onceline.path("state/positions.json.new");
    let old = fs::read_to_string(onceline.path("pipeline.toml")).expect("a pipeline");
    let new = format!("{old}[[filter]]\ntype = \"mutate\"\nadd_field = {{ by = \"new\" }}\n");
    let documents = |count| until("documents", || stub.docs().len() == count);
    let running = onceline.start(b"");

    // it is known that they cannot be saved: the old one goes on
    fs::create_dir_all(&blocked).expect("a folder");
    append(&onceline.path("in/a"), &lines(0..10));
    running.until_said("positions cannot be saved; trying again", 1);
    onceline.set_pipeline(&new);
    running.signal(Signal::HUP);
    running.until_said("the pipelines go on as they were", 1);
    running.until_said("positions cannot be saved, and a new pipeline would begin where they were last: ", 1);
    append(&onceline.path("in/a"), &lines(10..20));
    documents(20);
    fs::remove_dir(&blocked).expect("remove");
    running.until_said("positions are saved again", 1);

    // it shows only when the old one has ended: the new one waits for longer than a stop would
    let replace = |n: u64, times| {
        let offset = format!("\"offset\":{},", fs::metadata(onceline.path("in/a")).expect("a log").len());
        until("positions", || {
            fs::read_to_string(onceline.path("state/positions.json")).is_ok_and(|text| text.contains(&offset))
        });
        stub.wants_now("ApiKey y");
        append(&onceline.path("in/a"), &lines(n..n + 10));
        let before = stub.bulks().len();
        until("refusals", || stub.bulks().len() > before + 3);
        fs::create_dir(&blocked).expect("a folder");
        running.signal(Signal::HUP);
        running.until_said("read again, replaces what runs", times);
        stub.wants_now("ApiKey x");
        running.until_said("the pipeline that was read again begins when positions are saved", times);
    };
    replace(20, 1);
    std::thread::sleep(Duration::from_secs(6));
    append(&onceline.path("in/a"), &lines(30..40));
    fs::remove_dir(&blocked).expect("remove");
    documents(40);
    assert_eq!(stub.docs().values().filter(|doc| doc["by"] == "new").count(), 10);

    // a stop does not wait
    replace(40, 2);
    running.signal(Signal::TERM);
    let run = running.wait().adds_up();
    assert_eq!((run.status, run.counts(["events_in", "created"])), (Some(1), [50, 50]), "{}", run.stderr);
    assert!(run.stderr.contains("positions are not saved: the next run reads some of it again"), "{}", run.stderr);
    fs::remove_dir(&blocked).expect("remove");
    assert_eq!(onceline.args(&["--once"]).run(b"").settled().count("created"), 0);
}

#[test]
fn one_process_on_a_state_folder() {
    let onceline = Onceline::new(
        "[[input]]\ntype = \"stdin\"\n[id]\nscheme = \"hash\"\nmethod = \"SHA256\"\n[time]\nmissing = \"now\"\n\
         [index]\nname = \"lines\"\n[output]\ntype = \"stdout\"\n",
    );
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let running = onceline.start_fed(move |mut pipe| {
        pipe.write_all(b"a line\n").expect("write");
        let _ = wait.recv();
    });
    let started = Instant::now();
    while fs::read_to_string(onceline.path("state/lock")).unwrap_or_default().trim().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "no lock");
        std::thread::sleep(Duration::from_millis(5));
    }
    let held = fs::read_to_string(onceline.path("state/lock")).expect("a lock");
    let run = onceline.call(&["run", "pipeline.toml", "--state", "state"], b"another\n");
    assert!(run.status == Some(1) && run.stdout.is_empty(), "{run:?}");
    let said = format!("in use by another onceline, process {}", held.trim());
    assert!(run.stderr.contains(&said), "{}", run.stderr);
    let run = positions(&onceline, "reset", &["--yes"]);
    assert!(run.status == Some(1) && run.stderr.contains("in use by another onceline"), "{run:?}");
    assert_eq!(positions(&onceline, "show", &[]).status, Some(0));
    drop(release);
    running.wait().settled();
    assert_eq!(onceline.run(b"a line\n").settled().count("events_in"), 1, "standard input has no position");
}

/// Whatever the state folder is: the positions are in the database.
#[test]
fn one_process_on_the_positions_in_a_database() {
    let onceline = reading(SQLITE).no_args();
    append(&onceline.path("in/a"), &lines(0..10));
    let running = onceline.start_open(b"");
    until("rows", || {
        onceline.path("out.sqlite").try_exists().unwrap_or(false) && onceline.rows("out.sqlite").len() == 10
    });
    let run = onceline.call(&["run", "pipeline.toml", "--once", "--state", "other"], b"");
    let said = format!("in use by another onceline, process {}", running.id());
    assert!(run.status == Some(1) && run.stderr.contains(&said), "{run:?}");
    let run = onceline.call(&["positions", "reset", "pipeline.toml", "--yes", "--state", "other"], b"");
    assert!(run.status == Some(1) && run.stderr.contains("in use by another onceline"), "{run:?}");
    assert_eq!(onceline.call(&["positions", "show", "pipeline.toml", "--state", "other"], b"").status, Some(0));
    running.signal(Signal::TERM);
    running.wait().settled();
    let run = onceline.call(&["run", "pipeline.toml", "--once", "--state", "other"], b"");
    assert_eq!(run.status, Some(0), "{run:?}");
    assert_eq!(onceline.rows("out.sqlite").len(), 10);
}

#[test]
fn two_pipelines_do_not_share_positions() {
    let onceline = reading(NDJSON);
    fs::copy(onceline.path("pipeline.toml"), onceline.path("other.toml")).expect("copy");
    let run = onceline.call(&["run", "--once", "pipeline.toml", "other.toml", "--state", "s"], b"");
    assert!(run.status == Some(2) && run.stderr.contains("save positions in"), "{run:?}");
}

/// Of an event with its line feed: a divisor of a page, so that no reader sees a part of a line.
const LINE_BYTES: usize = 128;

/// One of `n` lines of equal length; every seventh is no event.
fn padded(n: u64) -> String {
    let text = if is_event(n) {
        format!("{{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"n\":{n}}}")
    } else {
        format!("no event {n} ")
    };
    format!("{text:<width$}\n", width = LINE_BYTES - 1)
}

fn is_event(n: u64) -> bool {
    n % 7 != 3
}

const LINES: Lines = Lines { text: padded, is_event };

/// Files that grow, are rotated and compressed while the program is killed again and again.
struct Chaos {
    seed: u64,
    killed: u64,
    runs: u64,
    lines: u64,
}

impl Chaos {
    /// Kills `kills` runs, or as many as the environment says, each within `wait_ms_max`; then lets one come to its
    /// end.
    fn run(onceline: &Onceline, kills: u64, wait_ms_max: u64) -> Chaos {
        let kills = given("ONCELINE_TEST_KILLS").unwrap_or(kills);
        let seed = given("ONCELINE_TEST_SEED").unwrap_or_else(|| fastrand::u64(..));
        eprintln!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let folder = onceline.path("in");
        let (written, ends) = (AtomicU64::new(0), AtomicBool::new(false));
        // a line must not be written to a file that is just compressed
        let rotating = Mutex::new(());
        let (killed, mut runs) = std::thread::scope(|scope| {
            // A panic in here ends the other thread too: the scope waits for it.
            let _ends = EndsWhenDropped(&ends);
            let fork = random.fork();
            scope.spawn(|| grow(&folder, fork, &rotating, &written, &ends));
            kill_again_and_again(onceline, &mut random, 2_000..wait_ms_max * 1000, |random, killed| {
                let _guard = rotating.lock().expect("no panic");
                rotate(&folder, random);
                killed < kills
            })
        });
        runs += read_the_rest(onceline) - 1;
        Chaos { seed, killed, runs, lines: written.into_inner() }
    }

    /// Every event is there once, every other line is a dead letter at least once.
    fn check(&self, onceline: &Onceline, events: Vec<u64>, what: &str) {
        let Chaos { seed, killed, runs, lines } = self;
        let letters = onceline.run(b"").dead_letters;
        let (events, twice) = LINES.check(*lines, events, &letters);
        let letters = lines - events;
        eprintln!(
            "killed {killed} of {runs} runs over {lines} lines: {events} events, {what}; {letters} dead letters, \
             {twice} of them twice; seed {seed}"
        );
    }
}

fn grow(folder: &Path, mut random: fastrand::Rng, rotating: &Mutex<()>, written: &AtomicU64, ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        let path = folder.join(format!("{}.log", random.u8(0..6)));
        let from = written.load(Ordering::Relaxed);
        let count = random.u64(1..120);
        let text: String = (from..from + count).map(padded).collect();
        let guard = rotating.lock().expect("no panic");
        append(&path, &text);
        drop(guard);
        written.store(from + count, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(random.u64(0..4)));
    }
}

/// Perhaps renames a file, or compresses one that was renamed.
fn rotate(folder: &Path, random: &mut fastrand::Rng) {
    let name = folder.join(format!("{}.log", random.u8(0..6)));
    match random.u8(0..6) {
        0 | 1 if name.try_exists().expect("a folder") => {
            fs::rename(&name, folder.join(format!("{}.old", random.u32(..)))).expect("rename");
        }
        2 => {
            let all = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
            if let Some(path) = all.filter(|path| path.extension().is_some_and(|end| end == "old")).min() {
                gzip(&path, &path.with_extension("gz"));
            }
        }
        _ => {}
    }
}

/// A pipe in the place of a file would be waited for, or swallow what is written.
#[test]
fn no_pipe_or_folder_stands_for_a_file_of_the_state() {
    for name in ["lock", "positions.json", "positions.recent", "letters.ndjson", "spool/pipeline/1.spool"] {
        for make in ["mkfifo", "mkdir"] {
            let onceline = Onceline::new(&format!(
                "[[input]]\ntype = \"stdin\"\n[[input]]\ntype = \"file\"\npaths = [\"{{dir}}/in/*\"]\n\
                 [id]\nscheme = \"hash\"\nmethod = \"SHA256\"\n[index]\nname = \"lines\"\n[output]\n{NDJSON}\n\
                 [dead_letter]\npath = \"{{dir}}/state/letters.ndjson\"\n"
            ));
            let onceline = onceline.args(&["--once"]);
            fs::create_dir_all(onceline.path("state/spool/pipeline")).expect("a folder");
            let path = onceline.path(&format!("state/{name}"));
            assert!(std::process::Command::new(make).arg(&path).status().expect("a command").success());
            let run = onceline.run(b"no JSON\n");
            // what is noted between two saves may be absent, and is written anew
            let is_needed = name != "positions.recent";
            assert_eq!(run.status == Some(0), !is_needed, "{make} {name}: {}", run.stderr);
            assert!(!is_needed || run.stderr.contains(name), "{make} {name}: {}", run.stderr);
        }
    }
}

/// SQLite would wait for a device to take rows, and says little of a pipe or a folder.
#[test]
fn no_pipe_device_or_folder_stands_for_a_database() {
    for make in ["mkfifo", "mkdir", "ln -s /dev/null"] {
        let onceline = reading(SQLITE);
        append(&onceline.path("in/a"), &lines(0..1));
        let mut words = make.split(' ');
        let mut command = std::process::Command::new(words.next().expect("a command"));
        assert!(command.args(words).arg(onceline.path("out.sqlite")).status().expect("a command").success());
        let run = onceline.run(b"");
        let is_said = run.stderr.contains("out.sqlite: it is no regular file");
        assert!(run.status == Some(1) && is_said, "{make}: {}", run.stderr);
    }
}

/// Rows commit with positions: none is missing, and none is written a second time.
#[test]
fn killed_at_random_moments_no_row_is_written_twice() {
    let onceline = reading(SQLITE);
    let chaos = Chaos::run(&onceline, 30, 90);
    let rows = onceline.rows("out.sqlite");
    let wrong: Vec<_> = rows.iter().filter(|row| row.version != 1).collect();
    assert!(wrong.is_empty(), "seed {}: written twice: {wrong:?}", chaos.seed);
    chaos.check(&onceline, rows.iter().filter_map(|row| row.source["n"].as_u64()).collect(), "no row written twice");
}

/// Positions in the state folder are a little old: none is missing, and what is sent again is found.
#[test]
fn killed_at_random_moments_nothing_is_missing_in_an_engine() {
    let stub = Stub::new("");
    let onceline = reading(&format!("type = \"elasticsearch\"\nhosts = [\"{}\"]\naction = \"create\"", stub.url));
    let chaos = Chaos::run(&onceline, 12, 300);
    let sent: usize = stub.ids().iter().map(Vec::len).sum();
    let events = stub.docs().values().map(|source| source["n"].as_u64().expect("a number")).collect();
    chaos.check(&onceline, events, &format!("{sent} sent"));
}
