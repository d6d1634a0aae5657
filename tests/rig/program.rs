//! The built program, run with a pipeline in a folder of its own: its state stays between runs of one `Onceline`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

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
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
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
        // A run that is killed must not show the summary of the one before.
        let _ = std::fs::remove_file(self.path("summary.json"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_onceline"));
        command.arg(&self.command).arg(self.path("pipeline.toml")).current_dir(self.dir.path());
        if self.command == "run" {
            command.arg("--state").arg(self.path("state")).arg("--summary").arg(self.path("summary.json"));
        }
        command.args(&self.args).envs(self.envs.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start onceline");
        let mut pipe = child.stdin.take().expect("a pipe to standard input");
        let bytes = stdin.to_vec();
        Running {
            onceline: self,
            // A program that ends early leaves a broken pipe; the test sees that in its status.
            stdin: std::thread::spawn(move || drop(pipe.write_all(&bytes))),
            stdout: read_all(child.stdout.take()),
            stderr: read_all(child.stderr.take()),
            child,
            started: Instant::now(),
        }
    }
}

impl Running<'_> {
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
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
        let (stdout, stderr) = (self.stdout.join().expect("read"), self.stderr.join().expect("read"));
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
        let dead_letters = read("state/dead-letters.ndjson")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("dead letter {line}: {error}")))
            .collect();
        Run { status: status.code(), stdout, stderr, summary, dead_letters }
    }
}

impl Run {
    /// A number of the summary.
    pub fn count(&self, key: &str) -> u64 {
        self.summary[key].as_u64().unwrap_or_else(|| panic!("no {key} in the summary: {self:#?}"))
    }
}

fn read_all(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).expect("read a pipe");
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
