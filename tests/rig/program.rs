//! The built program, run with a pipeline in a folder of its own: its state stays between runs of one `Onceline`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::{Doc, until};

pub struct Onceline {
    dir: TempDir,
    command: String,
    args: Vec<String>,
    envs: Vec<(String, String)>,
    deadline: Duration,
}

/// What a run left.
#[derive(Debug)]
pub struct Run {
    /// The exit status; none when a signal ended it.
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// What `--summary` wrote; null when nothing.
    pub summary: Value,
    /// All lines of the default dead letters, of earlier runs too.
    pub dead_letters: Vec<Value>,
}

/// A run under way.
pub struct Running<'a> {
    onceline: &'a Onceline,
    child: Child,
    stdin: JoinHandle<()>,
    stdout: Reading,
    stderr: Reading,
    started: Instant,
}

impl Onceline {
    /// `{dir}` in the pipeline stands for the folder of this run.
    pub fn new(pipeline: &str) -> Onceline {
        let dir = tempfile::Builder::new().prefix("onceline-test-").tempdir().expect("a temporary folder");
        let onceline =
            Onceline { dir, command: "run".to_owned(), args: vec![], envs: vec![], deadline: Duration::from_secs(120) };
        onceline.set_pipeline(pipeline);
        onceline
    }

    pub fn set_pipeline(&self, pipeline: &str) {
        let text = pipeline.replace("{dir}", &self.dir.path().display().to_string());
        std::fs::write(self.path("pipeline.toml"), text).expect("write the pipeline");
    }

    /// Another command than `run`.
    pub fn command(mut self, command: &str) -> Onceline {
        self.command = command.to_owned();
        self
    }

    pub fn args(mut self, args: &[&str]) -> Onceline {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    pub fn env(mut self, key: &str, value: &str) -> Onceline {
        self.envs.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Without the arguments that it was given.
    pub fn no_args(mut self) -> Onceline {
        self.args.clear();
        self
    }

    /// How long a run may take before it is killed and the test fails.
    pub fn deadline(mut self, deadline: Duration) -> Onceline {
        self.deadline = deadline;
        self
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs to the end with these bytes as standard input.
    pub fn run(&self, stdin: &[u8]) -> Run {
        self.start(stdin).wait()
    }

    pub fn start(&self, stdin: &[u8]) -> Running<'_> {
        let bytes = stdin.to_vec();
        // A program that ends early leaves a broken pipe; the test sees that in its status.
        self.start_fed(move |mut pipe| drop(pipe.write_all(&bytes)))
    }

    /// Starts with a standard input that stays open after these bytes, until the program ends.
    pub fn start_open(&self, stdin: &[u8]) -> Running<'_> {
        let bytes = stdin.to_vec();
        self.start_fed(move |mut pipe| {
            // A program that is killed leaves a broken pipe.
            let _ = pipe.write_all(&bytes);
            // An end of the reading side is an error to be told, whatever is asked for.
            let mut wanted = [PollFd::new(&pipe, PollFlags::empty())];
            let _ = poll(&mut wanted, None);
        })
    }

    /// Starts with a standard input that `feed` writes.
    pub fn start_fed(&self, feed: impl FnOnce(ChildStdin) + Send + 'static) -> Running<'_> {
        self.spawn(self.usual(&self.command), feed)
    }

    /// `onceline explain` with the pipeline and the arguments of this one: the lines.
    pub fn explain(&self, stdin: &[u8]) -> Vec<Value> {
        let lines = self.explain_text(stdin);
        lines.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
    }

    pub fn explain_text(&self, stdin: &[u8]) -> String {
        let bytes = stdin.to_vec();
        let run = self.spawn(self.usual("explain"), move |mut pipe| drop(pipe.write_all(&bytes))).wait();
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        run.stdout
    }

    /// The program with these arguments alone, in this folder.
    pub fn call(&self, args: &[&str], stdin: &[u8]) -> Run {
        let mut command = self.program();
        command.args(args);
        let bytes = stdin.to_vec();
        self.spawn(command, move |mut pipe| drop(pipe.write_all(&bytes))).wait()
    }

    /// What a command prints while another process works in this folder.
    pub fn says(&self, args: &[&str]) -> String {
        let output = self.program().args(args).output().expect("start onceline");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// All rows of an SQLite file in this folder, ordered by table and id.
    pub fn rows(&self, file: &str) -> Vec<Doc> {
        let path = self.path(file);
        if !path.try_exists().unwrap() {
            return Vec::new();
        }
        let connection = Connection::open(path).expect("a database");
        let mut tables = connection.prepare(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB '_onceline*' ORDER BY name",
        );
        let tables = tables.as_mut().expect("tables").query_map([], |row| row.get(0)).expect("tables");
        let mut docs = Vec::new();
        for table in tables.map(|name| name.expect("a name")).collect::<Vec<String>>() {
            let text = format!("SELECT _id, _version, _source FROM \"{table}\" ORDER BY _id");
            let mut rows = connection.prepare(&text).expect("the columns that were promised");
            let rows = rows.query_map([], |row| {
                let source: String = row.get(2)?;
                let source = serde_json::from_str(&source).expect("a source that is JSON");
                Ok(Doc { index: table.clone(), id: row.get(0)?, version: row.get(1)?, source })
            });
            docs.extend(rows.expect("rows").map(|row| row.expect("a row")));
        }
        docs
    }

    fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceline"));
        command.current_dir(self.dir.path()).envs(self.envs.iter().map(|(key, value)| (key, value)));
        command
    }

    fn usual(&self, name: &str) -> Command {
        let mut command = self.program();
        command.arg(name).arg(self.path("pipeline.toml")).arg("--state").arg(self.path("state"));
        if name == "run" {
            command.arg("--summary").arg(self.path("summary.json"));
            // A run that is killed must not show the summary of the one before.
            let _ = std::fs::remove_file(self.path("summary.json"));
        }
        command.args(&self.args);
        command
    }

    fn spawn(&self, mut command: Command, feed: impl FnOnce(ChildStdin) + Send + 'static) -> Running<'_> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start onceline");
        let pipe = child.stdin.take().expect("a pipe to standard input");
        Running {
            onceline: self,
            stdin: std::thread::spawn(move || feed(pipe)),
            stdout: Reading::new(child.stdout.take().expect("a pipe")),
            stderr: Reading::new(child.stderr.take().expect("a pipe")),
            child,
            started: Instant::now(),
        }
    }
}

impl Running<'_> {
    /// What the list of processes shows of it.
    pub fn command_line(&self) -> String {
        let path = format!("/proc/{}/cmdline", self.child.id());
        String::from_utf8_lossy(&std::fs::read(path).expect("a process that runs")).replace('\0', " ")
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("look at onceline").is_some()
    }

    /// Waits until it has said this on standard error, so often.
    pub fn until_said(&self, what: &str, times: usize) {
        while self.stderr.so_far().matches(what).count() < times {
            let said = || self.stderr.so_far();
            assert!(self.started.elapsed() < self.onceline.deadline, "{what} is not said {times} times: {}", said());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// One that can be caught is sent once it is: a process that has just begun ends by it as any other does.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        let status = format!("/proc/{}/status", self.id());
        until("a program that hears signals, or has ended", || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
            let caught = u64::from_str_radix(field("SigCgt:"), 16).unwrap_or_default();
            signal == Signal::KILL || caught & 1 << (signal.as_raw() - 1) != 0 || field("State:").starts_with('Z')
        });
        kill_process(pid, signal).expect("send a signal");
    }

    /// Waits for the end; past the deadline it kills the program and panics with what it had said.
    pub fn wait(mut self) -> Run {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait for onceline") {
                break Some(status);
            }
            if self.started.elapsed() > self.onceline.deadline {
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        if status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        self.stdin.join().expect("write standard input");
        let (stdout, stderr) = (self.stdout.all(), self.stderr.all());
        let Some(status) = status else {
            panic!("onceline did not end in {:?}\nstdout:\n{stdout}\nstderr:\n{stderr}", self.onceline.deadline);
        };
        self.onceline.result(status, stdout, stderr)
    }
}

impl Onceline {
    fn result(&self, status: ExitStatus, stdout: String, stderr: String) -> Run {
        let read = |name: &str| std::fs::read_to_string(self.path(name)).unwrap_or_default();
        let summary = serde_json::from_str(&read("summary.json")).unwrap_or(Value::Null);
        let letters = read("state/dead-letters.ndjson");
        // A process that is killed may leave a part of a line behind; the next run cuts it off.
        let whole = letters.rfind('\n').map_or(0, |at| at + 1);
        assert!(status.code().is_none() || whole == letters.len(), "a torn dead letter: {}", &letters[whole..]);
        let dead_letters = letters[..whole]
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("dead letter {line}: {error}")))
            .collect();
        Run { status: status.code(), stdout, stderr, summary, dead_letters }
    }
}

impl Run {
    /// Panics unless all ended well and the counts add up, which is all that every run must show.
    pub fn settled(self) -> Run {
        assert_eq!(self.status, Some(0), "{}", self.stderr);
        self.adds_up()
    }

    /// The promise of the summary.
    pub fn adds_up(self) -> Run {
        let fates = ["created", "updated", "deleted", "duplicates", "stale", "dropped", "dead_lettered", "unsettled"];
        let sum: u64 = fates.iter().map(|key| self.count(key)).sum();
        assert_eq!(self.count("events_in"), sum, "{}", self.summary);
        if self.status == Some(0) {
            assert_eq!(self.count("unsettled"), 0, "{}", self.summary);
        }
        self
    }

    /// Several numbers of the summary.
    pub fn counts<const N: usize>(&self, keys: [&str; N]) -> [u64; N] {
        keys.map(|key| self.count(key))
    }

    /// A number of the summary.
    pub fn count(&self, key: &str) -> u64 {
        self.summary[key].as_u64().unwrap_or_else(|| panic!("no {key} in the summary: {self:#?}"))
    }
}

/// A pipe that is read to its end by a thread.
struct Reading {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Reading {
    fn new(mut pipe: impl Read + Send + 'static) -> Reading {
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        let shared = bytes.clone();
        let thread = std::thread::spawn(move || {
            let mut chunk = [0; 8192];
            loop {
                match pipe.read(&mut chunk).expect("read a pipe") {
                    0 => return,
                    read => shared.lock().expect("no panic").extend_from_slice(&chunk[..read]),
                }
            }
        });
        Reading { bytes, thread }
    }

    fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no panic")).into_owned()
    }

    fn all(self) -> String {
        self.thread.join().expect("read");
        String::from_utf8_lossy(&self.bytes.lock().expect("no panic")).into_owned()
    }
}
