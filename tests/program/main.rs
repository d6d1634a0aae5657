//! The built program from outside: pipeline file and bytes in; documents, dead letters, counts and exit status out.

mod cases;
mod command_line;
mod dead_letters;
mod dirty_bytes;
mod engines;
mod explaining;
mod failing_engine;
mod following;
mod hostile;
mod multiline;
mod pipelines;
mod positions;
mod read_again;
#[path = "../rig/mod.rs"]
mod rig;
mod rights;
mod secrets;
mod stopping;
mod syslog;
mod testing;
mod tls;

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A file under `tests/`.
fn file(path: &str) -> Vec<u8> {
    let path = folder().join(path);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("JSON")
}

/// Whether committed files are to be written anew.
fn update() -> bool {
    std::env::var_os("UPDATE").is_some()
}
