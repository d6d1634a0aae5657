//! Where a secret is kept: in the pipeline file or a variable, in a file, or in what a command prints.
//!
//! ```toml
//! [output]
//! type             = "elasticsearch"
//! user             = "app"
//! password_command = ["pass", "show", "logs"]   # or password_file = "/run/secrets/logs", or password = "${PASSWORD}"
//! ```

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::config::{Secret, Section};

/// How long a command may take.
const COMMAND_SECS_MAX: u64 = 30;
/// A secret is no longer than this.
const SECRET_BYTES_MAX: usize = 64 << 10;
/// So much is shown of what a command says beside the secret.
const SAID_BYTES_MAX: usize = 2 << 10;
/// How long the output of a command is waited for that has ended: what it started may still hold the pipe.
const LINGER: Duration = Duration::from_millis(500);
/// How often a command is looked at.
const WATCH: Duration = Duration::from_millis(5);

/// Keys of a secret: itself, its file, its command.
pub type Keys = [&'static str; 3];

/// A secret, or how to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    Given(Secret),
    File(PathBuf),
    Command(Command),
}

/// A program and its arguments, run without a shell. The arguments are not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Command {
    program: String,
    args: Vec<String>,
    time_max: Duration,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Command").field(&self.program).finish()
    }
}

impl Kept {
    /// The first that is given; more than one are an error.
    pub fn read(t: &Section<'_>, keys: Keys) -> Option<Kept> {
        let [key, file, command] = keys;
        let given = t.secret(key).optional().map(Kept::Given);
        let kept_file = t.path(file).optional().map(Kept::File);
        let kept_command = command_of(t, command).map(Kept::Command);
        let mut there = keys.into_iter().filter(|key| t.has(key));
        if let (Some(first), Some(second)) = (there.next(), there.next()) {
            t.fail_at(second, format!("`{second}` and `{first}` cannot both be given"), ());
        }
        given.or(kept_file).or(kept_command)
    }

    /// The secret as it is now. Takes as long as its command does.
    pub fn get(&self) -> anyhow::Result<Secret> {
        let (text, from) = match self {
            Kept::Given(secret) => return Ok(secret.clone()),
            Kept::File(path) => (read_file(path)?, path.display().to_string()),
            Kept::Command(command) => (command.run()?, format!("what {} printed", command.program)),
        };
        // no error may quote it
        let text = String::from_utf8(text).ok().with_context(|| format!("a secret that is not UTF-8 in {from}"))?;
        let text = text.trim_end_matches(['\r', '\n']);
        ensure!(!text.is_empty(), "there is no secret in {from}");
        Ok(Secret::new(text))
    }

    /// How it is come by, after "with a password".
    pub fn words(&self) -> &'static str {
        match self {
            Kept::Given(_) => "",
            Kept::File(_) => " from a file",
            Kept::Command(_) => " from a command",
        }
    }
}

/// A secret that is needed to read the rest of the pipeline file: given, or in a file. No command is run for it,
/// since reading a pipeline file must do nothing.
pub fn read_now(t: &Section<'_>, key: &'static str, file: &'static str) -> Option<Secret> {
    let given = t.secret(key).optional();
    let path = t.path(file).optional();
    if t.has(key) && t.has(file) {
        t.fail_at(file, format!("`{file}` and `{key}` cannot both be given"), ());
    }
    let Some(path) = path else { return given };
    match Kept::File(path).get() {
        Ok(secret) => Some(secret),
        Err(error) => {
            t.fail_quoting(file, format!("`{file}`: {error:#}"), ());
            None
        }
    }
}

fn command_of(t: &Section<'_>, key: &'static str) -> Option<Command> {
    let item = t.item(key).optional()?;
    let mut words = item.texts()?.into_iter();
    match words.next() {
        Some(program) if !program.trim().is_empty() => {
            Some(Command { program, args: words.collect(), time_max: Duration::from_secs(COMMAND_SECS_MAX) })
        }
        _ => item.fail(
            format!("`{key}` names no program"),
            "wanted: a program and its arguments, [\"pass\", \"show\", \"logs\"]",
        ),
    }
}

fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let failed = || format!("cannot read {}", path.display());
    let mut text = Vec::new();
    let file = std::fs::File::open(path).with_context(failed)?;
    file.take(SECRET_BYTES_MAX as u64 + 1).read_to_end(&mut text).with_context(failed)?;
    ensure!(text.len() <= SECRET_BYTES_MAX, "{} is too long for a secret", path.display());
    Ok(text)
}

impl Command {
    /// What it prints on standard output.
    fn run(&self) -> anyhow::Result<Vec<u8>> {
        let name = &self.program;
        let mut command = std::process::Command::new(name);
        command.args(&self.args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // a group of its own, so that it can be ended with all that it started
        let mut child = command.process_group(0).spawn().with_context(|| format!("cannot run {name}"))?;
        let (secret, said) =
            (Heard::of(child.stdout.take(), SECRET_BYTES_MAX + 1), Heard::of(child.stderr.take(), SAID_BYTES_MAX));
        let status = wait(&mut child, self.time_max);
        let (secret, said) = (secret.take(), said.take());
        let said = without(&String::from_utf8_lossy(&said), &secret);
        let also = if said.is_empty() { String::new() } else { format!(", and said: {said}") };
        match status.with_context(|| format!("cannot wait for {name}"))? {
            None => bail!("{name} did not end in {} s{also}", self.time_max.as_secs()),
            Some(status) if !status.success() => bail!("{name} failed with {status}{also}"),
            Some(_) => {}
        }
        ensure!(secret.len() <= SECRET_BYTES_MAX, "{name} printed more than a secret");
        if !said.is_empty() {
            tracing::warn!(command = %name, stderr = said, "the command of a secret has something to say");
        }
        Ok(secret)
    }
}

/// None if it did not end in time: then it was killed.
fn wait(child: &mut Child, time_max: Duration) -> io::Result<Option<std::process::ExitStatus>> {
    let until = Instant::now() + time_max;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            // an error only says that it has just ended
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(WATCH);
    }
}

/// What a command says, on one line; a secret that it repeats is not shown.
fn without(said: &str, secret: &[u8]) -> String {
    let secret = String::from_utf8_lossy(secret);
    let mut said = said.to_string();
    for line in secret.lines().map(str::trim).filter(|line| !line.is_empty()) {
        said = said.replace(line, "***");
    }
    said.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What comes out of a pipe, up to a bound; the rest is read and forgotten, so that nobody waits.
struct Heard(Arc<Pipe>);

#[derive(Default)]
struct Pipe {
    bytes: Mutex<Vec<u8>>,
    has_ended: Mutex<bool>,
    end: Condvar,
}

impl Heard {
    fn of(pipe: Option<impl Read + Send + 'static>, bytes_max: usize) -> Heard {
        let heard = Arc::new(Pipe::default());
        let shared = heard.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            let mut pipe = pipe;
            while let Some(Ok(read @ 1..)) = pipe.as_mut().map(|pipe| pipe.read(&mut piece)) {
                let mut bytes = shared.bytes.lock().unwrap_or_else(PoisonError::into_inner);
                let room = bytes_max.saturating_sub(bytes.len());
                bytes.extend_from_slice(&piece[..read.min(room)]);
            }
            *shared.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
            shared.end.notify_all();
        });
        Heard(heard)
    }

    fn take(&self) -> Vec<u8> {
        let has_ended = self.0.has_ended.lock().unwrap_or_else(PoisonError::into_inner);
        // in vain or not: what was heard counts
        drop(self.0.end.wait_timeout_while(has_ended, LINGER, |has_ended| !*has_ended));
        self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Kept {
        let args = vec!["-c".to_string(), script.to_string()];
        Kept::Command(Command { program: "sh".to_string(), args, time_max: Duration::from_millis(300) })
    }

    fn get(kept: &Kept) -> Result<String, String> {
        kept.get().map(|secret| secret.reveal().to_string()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_a_command_prints_is_the_secret_and_nothing_else_shows_it() {
        let check = |script: &str, want: Result<&str, &str>| match (get(&sh(script)), want) {
            (Ok(got), Ok(want)) => assert_eq!(got, want, "{script}"),
            (Err(got), Err(want)) => {
                assert!(got.contains(want) && !got.contains("s3cret"), "{script}: {got}");
            }
            (got, _) => panic!("{script}: {got:?}"),
        };
        check("printf 's3cret\\n'", Ok("s3cret"));
        check("printf 's3cret'; echo locked >&2", Ok("s3cret"));
        check("cat; printf 'no input'", Ok("no input"));
        check(
            "echo s3cret; echo is s3cret wrong >&2; exit 3",
            Err("failed with exit status: 3, and said: is *** wrong"),
        );
        check("true", Err("there is no secret"));
        check("printf '\\377'", Err("not UTF-8"));
        check("echo late >&2; sleep 60", Err("did not end in 0 s, and said: late"));
        check("head -c 100000 /dev/zero", Err("more than a secret"));
        check("head -c 1000000 /dev/zero >&2; echo s3cret", Ok("s3cret"));
        let none = Command { program: "/nowhere/pass".to_string(), args: vec!["s3cret".to_string()], time_max: LINGER };
        assert!(!format!("{none:?}").contains("s3cret"));
        let error = get(&Kept::Command(none)).unwrap_err();
        assert!(error.contains("cannot run /nowhere/pass") && !error.contains("s3cret"), "{error}");
    }

    #[test]
    fn what_a_command_leaves_behind_is_not_waited_for() {
        let start = Instant::now();
        assert_eq!(get(&sh("sleep 20 & echo s3cret")), Ok("s3cret".to_string()));
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_file_is_read_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let kept = Kept::File(path.clone());
        assert!(get(&kept).unwrap_err().contains("cannot read"));
        for (text, want) in [("first\n", "first"), ("second\r\n", "second"), (" a b ", " a b ")] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(get(&kept).unwrap(), want);
        }
        std::fs::write(&path, "\n").unwrap();
        assert!(get(&kept).unwrap_err().contains("there is no secret"));
        std::fs::write(&path, "x".repeat(SECRET_BYTES_MAX + 1)).unwrap();
        assert!(get(&kept).unwrap_err().contains("too long"));
    }
}
