//! `STATE/lock`: one process at a time works on a state folder.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::disk::private_folder;

/// A state folder held by this process, until dropped or until the process ends in whatever way.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

/// The folder is held by another process.
#[derive(Debug)]
pub struct Held {
    pub state: PathBuf,
    /// Which one, as it wrote down itself.
    pub process: Option<u32>,
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let process = self.process.map_or_else(String::new, |process| format!(", process {process}"));
        let state = self.state.display();
        write!(f, "the state folder {state} is in use by another onceline{process}; `--state` names another folder")
    }
}

impl std::error::Error for Held {}

impl StateLock {
    /// Takes the folder, made if absent and then open to its owner only. Fails with [`Held`] if it is taken.
    pub fn take(state: &Path) -> anyhow::Result<StateLock> {
        make_folder(state)?;
        if std::fs::metadata(state).is_ok_and(|meta| meta.mode() & 0o002 != 0) {
            let path = state.display();
            tracing::warn!(%path, "everybody may write to the state folder, and so have lines passed over or sent: chmod o-w");
        }
        let path = state.join("lock");
        let failed = || format!("cannot lock {}", path.display());
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .with_context(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // who holds it is good to know, but it is held all the same
                let _ = (&file).take(20).read_to_string(&mut text);
                anyhow::bail!(Held { state: state.to_path_buf(), process: text.trim().parse().ok() });
            }
            Err(error) => return Err(std::io::Error::from(error)).with_context(failed),
        }
        // only for the message above: a disk that is full is no reason not to start
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(StateLock { _file: file })
    }
}

/// Makes a state folder, open to its owner only.
pub fn make_folder(state: &Path) -> anyhow::Result<()> {
    private_folder(state)
        .with_context(|| format!("cannot make the state folder {}; `--state` names another", state.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_held_once() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        let held = StateLock::take(&state).unwrap();
        assert_eq!(std::fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
        assert_eq!(std::fs::metadata(state.join("lock")).unwrap().mode() & 0o777, 0o600);
        let error = StateLock::take(&state).unwrap_err();
        assert_eq!(error.downcast_ref::<Held>().unwrap().process, Some(std::process::id()));
        assert!(error.to_string().contains("in use by another onceline"), "{error}");
        drop(held);
        StateLock::take(&state).unwrap();
    }
}
