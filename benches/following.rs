//! `cargo bench --bench following`: what following files costs. CPU an event of a file that grows, against `--once`
//! over the same bytes; the time from a line written to its document; the time to the first new line of a restart with
//! many known files. `-- NAME` for one of `cpu`, `sqlite`, `engine`, `restart`. `engine` needs the address of an
//! OpenSearch in ONCELINE_TEST_OPENSEARCH. ONCELINE_BENCH_PROGRAM is another build to measure.

#[path = "../tests/rig/http.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod http;

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onceline::bench::events;
use rustix::process::{Pid, Signal, kill_process};

type Failed = Box<dyn std::error::Error>;

const ROUNDS: usize = 5;
const TICKS_PER_SECOND: f64 = 100.0;

fn main() -> Result<(), Failed> {
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    if wanted("cpu") {
        cpu()?;
    }
    if wanted("sqlite") {
        latency("sqlite", None)?;
    }
    if wanted("engine")
        && let Ok(engine) = std::env::var("ONCELINE_TEST_OPENSEARCH")
    {
        latency("engine", Some(&engine))?;
    }
    if wanted("restart") {
        restart()?;
    }
    Ok(())
}

/// A folder with a pipeline file, which reads `log/*.log` in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new(input: &str, output: &str) -> Result<Place, Failed> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().display();
        let output = output.replace("{dir}", &path.to_string());
        let text = format!(
            "[[input]]\ntype = \"file\"\npaths = [\"{path}/log/*.log\"]\ncodec = \"json\"\n{input}\n\
             [time]\nmissing = \"now\"\n[id]\nscheme = \"time-hash\"\nmethod = \"MD5\"\nsource = \"message\"\n\
             [index]\nname = \"bench\"\n[output]\n{output}\n"
        );
        fs::write(folder.path().join("pipeline.toml"), text)?;
        fs::create_dir(folder.path().join("log"))?;
        Ok(Place(folder))
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn start(&self, args: &[&str]) -> Result<Child, Failed> {
        let program =
            std::env::var_os("ONCELINE_BENCH_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_onceline").into());
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).args(["run", "pipeline.toml", "--state", "state"]).args(args);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(self.path("log.txt"))?).spawn()?)
    }

    /// Whether all of a file is settled and saved.
    fn is_saved(&self, bytes: u64) -> bool {
        let text = fs::read_to_string(self.path("state/positions.json")).unwrap_or_default();
        text.contains(&format!("\"offset\":{bytes},"))
    }
}

/// CPU seconds of a process that ended, and is not waited for yet.
fn cpu_of(child: &mut Child) -> Result<f64, Failed> {
    loop {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id()))?;
        let words: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        if words.first() == Some(&"Z") {
            let ticks: f64 = words[11].parse::<f64>()? + words[12].parse::<f64>()?;
            child.wait()?;
            return Ok(ticks / TICKS_PER_SECOND);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn stop(child: &Child) -> Result<(), Failed> {
    let pid = Pid::from_raw(i32::try_from(child.id())?).ok_or("no process")?;
    Ok(kill_process(pid, Signal::TERM)?)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) -> Result<(), Failed> {
    let started = Instant::now();
    while !is_so() {
        if started.elapsed() > Duration::from_secs(300) {
            return Err(format!("{what} does not come").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds of CPU an event, `--once` and following the same lines as they are written at some rate; by turns.
fn cpu() -> Result<(), Failed> {
    println!("CPU an event, lines of 300 bytes, median of {ROUNDS}");
    for (count, rate) in [(1_000_000, 100_000), (100_000, 10_000)] {
        let mut lines = Vec::new();
        events::write(count, 7, &mut lines)?;
        let (mut once, mut followed) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let place = Place::new("", "type = \"stdout\"")?;
            fs::write(place.path("log/a.log"), &lines)?;
            once.push(cpu_of(&mut place.start(&["--once"])?)? * 1e9 / count as f64);

            let place = Place::new("", "type = \"stdout\"")?;
            let mut child = place.start(&[])?;
            let mut file = File::create(place.path("log/a.log"))?;
            let (began, step) = (Instant::now(), lines.len() * 5 * rate / count as usize / 1000);
            for (number, piece) in lines.chunks(step).enumerate() {
                file.write_all(piece)?;
                let due = Duration::from_millis(5) * number as u32;
                std::thread::sleep(due.saturating_sub(began.elapsed()));
            }
            wait_until("the end", || place.is_saved(lines.len() as u64))?;
            stop(&child)?;
            followed.push(cpu_of(&mut child)? * 1e9 / count as f64);
        }
        let ratio = median(once.iter().zip(&followed).map(|(once, followed)| followed / once).collect());
        let (once, followed) = (median(once), median(followed));
        println!("  {rate:>7} lines/s: {once:.0} ns once, {followed:.0} ns followed, {ratio:.2} times");
    }
    Ok(())
}

const LATENCY_LINES: usize = 10_000;

/// From a line written to its document, at 1,000 lines a second.
fn latency(name: &str, engine: Option<&str>) -> Result<(), Failed> {
    let relay = engine.map(Relay::start).transpose()?;
    let output = match &relay {
        Some(relay) => format!("type = \"elasticsearch\"\nhosts = [\"{}\"]", relay.url),
        None => "type = \"sqlite\"\npath = \"{dir}/out.sqlite\"".to_string(),
    };
    let place = Place::new("", &output)?;
    File::create(place.path("log/a.log"))?;
    let mut child = place.start(&[])?;
    let written = write_steadily(&place.path("log/a.log"))?;
    let seen = match &relay {
        Some(relay) => relay.seen.clone(),
        None => watch_rows(&place.path("out.sqlite")),
    };
    let written = written.join().map_err(|_| "the writer failed")??;
    wait_until("the last line", || seen.lock().is_ok_and(|seen| seen.len() >= LATENCY_LINES))?;
    stop(&child)?;
    child.wait()?;
    let seen = seen.lock().map_err(|_| "the watcher failed")?;
    // the first second is that of the start
    let waits = |at: fn(&Seen) -> Instant| {
        let mut waits: Vec<f64> = seen
            .iter()
            .zip(&written)
            .skip(1000)
            .map(|(seen, written)| (at(seen) - *written).as_secs_f64() * 1e3)
            .collect();
        waits.sort_by(f64::total_cmp);
        (waits[waits.len() / 2], waits[waits.len() * 99 / 100])
    };
    if relay.is_some() {
        let (median, most) = waits(|seen| seen.asked);
        println!("{name}: to the engine: median {median:.1} ms, 99th percentile {most:.1} ms");
    }
    let (median, most) = waits(|seen| seen.done);
    println!("{name}: written to there: median {median:.1} ms, 99th percentile {most:.1} ms");
    Ok(())
}

/// When a document was on its way to where it is, and when it was there.
#[derive(Clone, Copy)]
struct Seen {
    asked: Instant,
    done: Instant,
}

type AllSeen = Arc<Mutex<Vec<Seen>>>;

fn write_steadily(path: &Path) -> Result<std::thread::JoinHandle<std::io::Result<Vec<Instant>>>, Failed> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    Ok(std::thread::spawn(move || {
        // the program has begun
        std::thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        let mut written = Vec::new();
        for number in 0..LATENCY_LINES {
            std::thread::sleep((Duration::from_millis(1) * number as u32).saturating_sub(began.elapsed()));
            let line = format!("{{\"message\":\"line {number:<230}\"}}\n");
            written.push(Instant::now());
            file.write_all(line.as_bytes())?;
        }
        Ok(written)
    }))
}

/// Looks again and again how many rows there are.
fn watch_rows(path: &Path) -> AllSeen {
    let (seen, path) = (AllSeen::default(), path.to_path_buf());
    let all = seen.clone();
    std::thread::spawn(move || {
        let mut database = None;
        loop {
            std::thread::sleep(Duration::from_micros(500));
            if database.is_none() {
                let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
                database = rusqlite::Connection::open_with_flags(&path, flags).ok();
            }
            let Some(open) = &database else { continue };
            // positions say how many lines are in, without counting rows
            let text = "SELECT max(\"offset\") FROM _onceline_positions";
            let Ok(Some(offset)) = open.query_row(text, [], |row| row.get::<_, Option<i64>>(0)) else { continue };
            let now = Instant::now();
            let Ok(mut seen) = seen.lock() else { return };
            let lines = offset as usize / format!("{{\"message\":\"line {:<230}\"}}\n", 0).len();
            while seen.len() < lines {
                seen.push(Seen { asked: now, done: now });
            }
            if seen.len() >= LATENCY_LINES {
                return;
            }
        }
    });
    all
}

/// Hands requests on to an engine, and notes when each bulk request came and was answered.
struct Relay {
    url: String,
    seen: AllSeen,
}

impl Relay {
    fn start(engine: &str) -> Result<Relay, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let relay = Relay { url: format!("http://{}", listener.local_addr()?), seen: AllSeen::default() };
        let (seen, engine) = (relay.seen.clone(), http::Http::new(engine));
        let engine = Arc::new(engine);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, engine) = (seen.clone(), engine.clone());
                std::thread::spawn(move || Relay::serve(stream, &engine, &seen));
            }
        });
        Ok(relay)
    }

    /// Until the connection ends.
    fn serve(stream: TcpStream, engine: &http::Http, seen: &AllSeen) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(request) = http::read_request(&mut reader)? {
            let asked = Instant::now();
            let headers =
                request.headers.iter().filter(|(key, _)| key.starts_with("content-t") || key == "content-encoding");
            let headers = headers.cloned().collect();
            let answer = engine.request(&request.method, &request.path, &headers, &request.body)?;
            let done = Instant::now();
            if request.path.contains("_bulk") {
                let body = decompressed(&request.body);
                let items = memchr::memchr_iter(b'\n', &body).count() / 2;
                if let Ok(mut seen) = seen.lock() {
                    seen.extend(std::iter::repeat_n(Seen { asked, done }, items));
                }
            }
            http::write_answer(&mut &stream, &answer, true)?;
        }
        Ok(())
    }
}

fn decompressed(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    match std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(body), &mut text) {
        Ok(_) => text,
        Err(_) => body.to_vec(),
    }
}

/// From the start of the program with 10,000 known files to the first line that is new.
fn restart() -> Result<(), Failed> {
    let place = Place::new("", "type = \"ndjson\"\npath = \"{dir}/out.ndjson\"")?;
    for number in 0..10_000 {
        fs::write(place.path(&format!("log/{number}.log")), format!("{{\"message\":\"{number:<400}\"}}\n").repeat(4))?;
    }
    place.start(&["--once"])?.wait()?;
    let bytes = || fs::metadata(place.path("out.ndjson")).map_or(0, |meta| meta.len());
    let mut waits = Vec::new();
    let mut cpu = Vec::new();
    for round in 0..ROUNDS {
        // one in the middle of them
        let mut file = OpenOptions::new().append(true).open(place.path("log/5000.log"))?;
        writeln!(file, "{{\"message\":\"new {round}\"}}")?;
        let (before, began) = (bytes(), Instant::now());
        let mut child = place.start(&[])?;
        wait_until("the new line", || bytes() > before)?;
        waits.push(began.elapsed().as_secs_f64() * 1e3);
        stop(&child)?;
        cpu.push(cpu_of(&mut child)? * 1e3);
    }
    let (wait, cpu) = (median(waits), median(cpu));
    println!("restart with 10,000 known files: {wait:.0} ms to the first new line, {cpu:.0} ms of CPU");
    Ok(())
}
