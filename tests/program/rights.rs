//! What the program makes is its owner's only, whatever the umask says; what is there keeps its rights.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const EVENTS: &[u8] = b"{\"@timestamp\":\"2026-01-01T00:00:00Z\",\"a\":1}\nnot json\n";

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode() & 0o777
}

/// Everything below a folder, but for the pipeline and the log.
fn assert_private(folder: &Path, made: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if matches!(name.as_str(), "pipeline.toml" | "log") {
            continue;
        }
        assert_eq!(mode(&path), if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        if path.is_dir() {
            assert_private(&path, made);
        }
        made.push(name);
    }
}

fn start(dir: &TempDir, umask: &str, output: &str) -> Child {
    let pipeline = format!(
        "[[input]]\ntype = 'stdin'\ncodec = 'json'\n[[input]]\ntype = 'file'\npaths = 'log'\ncodec = 'json'\n\
         [id]\nscheme = 'hash'\nmethod = 'SHA1'\n[index]\nname = 'rights'\n[dead_letter]\npath = 'deep/er/dead.ndjson'\n\
         [tuning]\ndrain_max = '1ms'\n[output]\n{output}\n"
    );
    std::fs::write(dir.path().join("pipeline.toml"), pipeline).expect("write");
    std::fs::write(dir.path().join("log"), EVENTS).expect("write");
    let script = "umask \"$1\"; exec \"$0\" run pipeline.toml --state state";
    let mut child = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_onceline"), umask])
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start");
    use std::io::Write;
    child.stdin.as_mut().expect("a pipe").write_all(EVENTS).expect("write");
    child
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn stop(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a signal");
    child.wait().expect("an end");
}

#[test]
fn all_that_is_made_is_private() {
    for umask in ["000", "777"] {
        for (output, files) in [
            ("type = 'sqlite'\npath = 'data/base/out.sqlite'", &["out.sqlite", "out.sqlite-wal", "out.sqlite-shm"][..]),
            ("type = 'ndjson'\npath = 'data/base/out.ndjson'", &["out.ndjson", "positions.json"]),
            ("type = 'elasticsearch'\nhosts = 'http://127.0.0.1:1'\nretry_wait_max = '1s'", &[]),
        ] {
            check_private(umask, output, files);
        }
    }
}

fn check_private(umask: &str, output: &str, files: &[&str]) {
    let dir = tempfile::tempdir().expect("a folder");
    let child = start(&dir, umask, output);
    let is_there = |name: &str| dir.path().join(name).try_exists().unwrap_or(false);
    until("files", || {
        files.iter().all(|name| is_there(&format!("data/base/{name}")) || is_there(&format!("state/{name}")))
    });
    until("dead letters", || is_there("deep/er/dead.ndjson"));
    let mut made = Vec::new();
    // what another umask takes is given back a moment later
    if umask == "000" {
        assert_private(dir.path(), &mut made);
    }
    stop(child);
    assert_private(dir.path(), &mut made);
    // SQLite takes the files beside it away
    for name in files.iter().filter(|name| umask == "000" || !name.contains("sqlite-")) {
        assert!(made.iter().any(|there| there == name), "{name}: {made:?}");
    }
    if files.is_empty() {
        assert!(made.iter().any(|name| name.ends_with(".spool")), "{made:?}");
    }
}

/// Also where a link says that the file is to be elsewhere.
#[test]
fn what_a_link_leads_to_is_private() {
    for (output, file) in
        [("type = 'sqlite'\npath = 'out'", "out.sqlite"), ("type = 'ndjson'\npath = 'out'", "out.ndjson")]
    {
        let dir = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(file, dir.path().join("out")).expect("a link");
        let child = start(&dir, "777", output);
        let made = dir.path().join(file);
        until("rows", || std::fs::metadata(&made).is_ok_and(|meta| meta.len() > 0));
        stop(child);
        assert_eq!(mode(&made), 0o600, "{file}");
    }
}

#[test]
fn what_is_there_keeps_its_rights() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name);
    let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("chmod");
    for folder in ["data", "deep", "deep/er"] {
        std::fs::create_dir(path(folder)).expect("a folder");
        set(&path(folder), 0o755);
    }
    for file in ["data/out.sqlite", "deep/er/dead.ndjson"] {
        std::fs::write(path(file), "").expect("a file");
        set(&path(file), 0o640);
    }
    let child = start(&dir, "000", "type = 'sqlite'\npath = 'data/out.sqlite'");
    until("rows", || path("data/out.sqlite-wal").try_exists().unwrap_or(false));
    until("dead letters", || std::fs::metadata(path("deep/er/dead.ndjson")).is_ok_and(|meta| meta.len() > 0));
    assert_eq!(mode(&path("data/out.sqlite-wal")), 0o640);
    stop(child);
    let drop = ["dead-letters", "drop", "pipeline.toml", "--yes", "--state", "state"];
    let done = Command::new(env!("CARGO_BIN_EXE_onceline")).args(drop).current_dir(dir.path()).output().expect("run");
    assert!(done.status.success(), "{done:?}");
    for (name, want) in
        [("data", 0o755), ("deep/er", 0o755), ("data/out.sqlite", 0o640), ("deep/er/dead.ndjson", 0o640)]
    {
        assert_eq!(mode(&path(name)), want, "{name}");
    }
}
