//! Locks: one process at a time works on a state folder, and on the positions of a pipeline in a database.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::disk::{Disk, Real, folder_of, no_wait, private_file, private_folder, regular, resolved};

/// A file locked by this process, until dropped or until the process ends in whatever way.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    what: String,
    way_on: &'static str,
}

/// Another process holds it.
#[derive(Debug)]
pub struct Held {
    what: String,
    way_on: &'static str,
    /// Which one, as it wrote down itself.
    pub process: Option<u32>,
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let process = self.process.map_or_else(String::new, |process| format!(", process {process}"));
        let Held { what, way_on, .. } = self;
        write!(f, "{what} in use by another onceline{process}; {way_on}")
    }
}

impl std::error::Error for Held {}

impl Lock {
    /// Takes a state folder, made if absent and then open to its owner only. Fails with [`Held`] if it is taken.
    pub fn state(state: &Path) -> anyhow::Result<Lock> {
        make_folder(state)?;
        if std::fs::metadata(state).is_ok_and(|meta| meta.mode() & 0o002 != 0) {
            let path = state.display();
            tracing::warn!(%path, "everybody may write to the state folder, and so have lines passed over or sent: chmod o-w");
        }
        let what = format!("the state folder {} is", state.display());
        Lock::take(&state.join("lock"), what, "`--state` names another folder")
    }

    /// Takes the positions of a pipeline in a database, whatever the state folder is: beside the database, since the
    /// locks on the file itself are SQLite's.
    pub fn positions(database: &Path, pipeline: &str) -> anyhow::Result<Lock> {
        if let Some(folder) = database.parent() {
            private_folder(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let what = format!("the positions of `{pipeline}` in {} are", database.display());
        Lock::take(
            &Lock::beside(database, pipeline),
            what,
            "give this pipeline another `name`, or the output another path",
        )
    }

    fn beside(database: &Path, pipeline: &str) -> PathBuf {
        let mut name = resolved(database).into_os_string();
        name.push(format!("-{pipeline}.lock"));
        PathBuf::from(name)
    }

    /// Takes it anew if somebody removed its file, by which others would find it. True if that was so; fails with
    /// [`Held`] if another process has it meanwhile.
    pub fn hold(&mut self) -> anyhow::Result<bool> {
        if Real.is_at(&self.file, &self.path)? {
            return Ok(false);
        }
        private_folder(folder_of(&self.path))?;
        *self = Lock::take(&self.path, self.what.clone(), self.way_on)?;
        Ok(true)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn take(path: &Path, what: String, way_on: &'static str) -> anyhow::Result<Lock> {
        let failed = || format!("cannot lock {}", path.display());
        let opened = private_file(no_wait().read(true).write(true), path).and_then(regular);
        let mut file = opened.with_context(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // who holds it is good to know, but it is held all the same
                let _ = (&file).take(20).read_to_string(&mut text);
                anyhow::bail!(Held { what, way_on, process: text.trim().parse().ok() });
            }
            Err(error) => return Err(std::io::Error::from(error)).with_context(failed),
        }
        // only for the message above: a disk that is full is no reason not to start
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Lock { file, path: path.to_path_buf(), what, way_on })
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
        let held = Lock::state(&state).unwrap();
        assert_eq!(std::fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
        assert_eq!(std::fs::metadata(state.join("lock")).unwrap().mode() & 0o777, 0o600);
        let error = Lock::state(&state).unwrap_err();
        assert_eq!(error.downcast_ref::<Held>().unwrap().process, Some(std::process::id()));
        assert!(error.to_string().contains("in use by another onceline"), "{error}");
        drop(held);
        let mut held = Lock::state(&state).unwrap();
        assert!(!held.hold().unwrap());
        std::fs::remove_dir_all(&state).unwrap();
        assert!(held.hold().unwrap(), "it was taken anew");
        Lock::state(&state).unwrap_err();
        std::fs::remove_dir_all(&state).unwrap();
        let other = Lock::state(&state).unwrap();
        assert!(held.hold().unwrap_err().is::<Held>());
        drop(other);
        let database = dir.path().join("c/out.sqlite");
        let held = [Lock::positions(&database, "a").unwrap(), Lock::positions(&database, "b").unwrap()];
        let error = Lock::positions(&database, "a").unwrap_err().to_string();
        assert!(error.contains("the positions of `a` in") && error.contains("in use by another onceline"), "{error}");
        drop(held);
        // the same database by other names, before and after it is there
        let folder = dir.path().join("d");
        std::os::unix::fs::symlink(dir.path().join("c"), &folder).unwrap();
        let held = Lock::positions(&folder.join("out.sqlite"), "a").unwrap();
        Lock::positions(&database, "a").unwrap_err();
        drop(held);
        std::fs::write(&database, "").unwrap();
        let link = dir.path().join("link.sqlite");
        std::os::unix::fs::symlink(&database, &link).unwrap();
        let held = Lock::positions(&link, "a").unwrap();
        Lock::positions(&database, "a").unwrap_err();
        drop(held);
        // a link that was there first has the same lock before and after the database is made
        std::fs::remove_file(&database).unwrap();
        let _held = Lock::positions(&link, "a").unwrap();
        Lock::positions(&database, "a").unwrap_err();
        std::fs::write(&database, "").unwrap();
        Lock::positions(&link, "a").unwrap_err();
    }
}
