//! Positions between two saves, in `positions.recent` of the state folder: a kill finds them there, though a power
//! failure may not.
//!
//! A line for each time that positions moved, appended without waiting for the disk, which is cheap. The first says by
//! a digest which `positions.json` they follow, and each begins with a digest of its rest:
//!
//! ```text
//! 9f86d081884c7d659a2feaa0c55ad015 {"version":1,"after":"60303ae22b998861bce3b28f33eec1be"}
//! 3fdba35f04dc8c462986c992bcf87554 {"version":1,"files":[…]}
//! ```
//!
//! What follows another file, and what stands behind a line that is not whole, is passed over: that is read again, and
//! is not lost.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::positions::{Saved, VERSION, parse, text};
use crate::disk::{Disk, File};

/// The file while positions are noted.
pub struct Recent<D: Disk> {
    /// The digest of what is saved; none before the first save, and after an error until the next.
    after: Option<String>,
    file: Option<D::File>,
}

impl<D: Disk> Default for Recent<D> {
    fn default() -> Self {
        Recent { after: None, file: None }
    }
}

impl<D: Disk> fmt::Debug for Recent<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recent").field("after", &self.after).finish_non_exhaustive()
    }
}

pub fn path(state: &Path) -> PathBuf {
    state.join("positions.recent")
}

impl<D: Disk> Recent<D> {
    /// What was noted is saved: begins anew.
    pub fn begin(&mut self, disk: &D, state: &Path, saved: &str) {
        (self.after, self.file) = (Some(digest(saved.as_bytes())), None);
        // a file that stays follows another, and counts for nothing
        let _ = disk.remove(&path(state));
    }

    /// Appends a line. On any error nothing more is noted until all is saved.
    pub fn note(&mut self, disk: &D, state: &Path, moved: &[Saved], looked: &BTreeSet<String>) {
        if let Some(after) = self.after.take()
            && self.append(disk, state, &after, &text(looked, &mut moved.iter())).is_ok()
        {
            self.after = Some(after);
        }
    }

    fn append(&mut self, disk: &D, state: &Path, after: &str, moved: &str) -> io::Result<()> {
        let mut lines = String::new();
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                lines = line(&format!("{{\"version\":{VERSION},\"after\":\"{after}\"}}"));
                self.file.insert(disk.create(&path(state))?)
            }
        };
        lines += &line(&moved.replace('\n', ""));
        file.write_all(lines.as_bytes())
    }
}

/// What was noted after `saved` was saved: positions in order, and patterns by which files were looked for.
pub fn read(recent: &[u8], saved: &[u8]) -> (Vec<Saved>, BTreeSet<String>) {
    let mut lines = recent.split_inclusive(|byte| *byte == b'\n').map_while(whole);
    let begins = lines.next().and_then(|first| serde_json::from_slice::<Value>(first).ok());
    if begins.is_none_or(|first| first["version"] != VERSION || first["after"] != digest(saved)) {
        return Default::default();
    }
    let (mut positions, mut looked) = (Vec::new(), BTreeSet::new());
    for (moved, looked_for) in lines.map_while(|line| parse(line).ok()) {
        positions.extend(moved);
        looked.extend(looked_for);
    }
    (positions, looked)
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes)[..16])
}

fn line(text: &str) -> String {
    format!("{} {text}\n", digest(text.as_bytes()))
}

/// What a line says, if all of it is there.
fn whole(line: &[u8]) -> Option<&[u8]> {
    let (hash, rest) = line.strip_suffix(b"\n")?.split_at_checked(33)?;
    let hash = hash.strip_suffix(b" ")?;
    (digest(rest).as_bytes() == hash).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::Moves;
    use crate::ack::positions::{Save, Store, forget_all};
    use crate::input::identity::{Identity, Mark, Position, Print};
    use proptest::prelude::*;

    fn position(inode: u64, offset: usize) -> Position {
        let text = vec![b'x'; offset];
        let identity = Identity { device: 1, inode, born: None, head: Print::head(&text) };
        let mark = Mark { offset: offset as u64, tail: Print::tail(&text) };
        Position { number: inode, path: format!("/{inode}\n").into(), identity, mark }
    }

    fn moves<const N: usize>(positions: [Position; N]) -> Moves {
        Moves { positions: positions.into(), ..Moves::default() }
    }

    fn offsets(state: &Path) -> Vec<u64> {
        Store::load(state).unwrap().positions().iter().map(|position| position.mark.offset).collect()
    }

    /// Saved at 5 and 7; noted at 8, and 9 and a new file.
    fn noted(state: &Path) -> Store {
        let mut store = Store::empty(state);
        store.note(moves([position(1, 4)]));
        assert!(!path(state).try_exists().unwrap(), "there is nothing that it could follow");
        store.save(moves([position(1, 5), position(2, 7)])).unwrap();
        store.note(moves([position(1, 8)]));
        store.note(moves([position(1, 9), position(3, 1)]));
        store
    }

    #[test]
    fn a_kill_leaves_what_was_noted() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = noted(dir.path());
        assert_eq!(offsets(dir.path()), [9, 7, 1]);
        store.save(moves([position(2, 8)])).unwrap();
        assert_eq!(offsets(dir.path()), [9, 8, 1]);
        assert!(!path(dir.path()).try_exists().unwrap(), "all is saved");
        store.note(moves([position(1, 2)]));
        assert_eq!(offsets(dir.path()), [2, 8, 1]);
    }

    #[test]
    fn what_is_torn_or_of_another_file_counts_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = noted(dir.path());
        let good = std::fs::read(path(dir.path())).unwrap();
        let ends: Vec<usize> = (0..good.len()).filter(|at| good[*at] == b'\n').map(|at| at + 1).collect();
        assert_eq!(ends.len(), 3);
        for len in 0..good.len() {
            std::fs::write(path(dir.path()), &good[..len]).unwrap();
            let want: &[u64] = if len < ends[1] { &[5, 7] } else { &[8, 7] };
            assert_eq!(offsets(dir.path()), want, "{len} bytes");
        }
        // a page that never came to the disk
        for (hole, want) in [(ends[0] - 2, [5, 7].as_slice()), (ends[1] - 2, &[5, 7]), (ends[2] - 2, &[8, 7])] {
            let mut bytes = good.clone();
            bytes[hole] = 0;
            std::fs::write(path(dir.path()), bytes).unwrap();
            assert_eq!(offsets(dir.path()), want, "{hole}");
        }
        std::fs::write(path(dir.path()), &good).unwrap();
        assert_eq!(offsets(dir.path()), [9, 7, 1]);
        drop(store);
        Store::empty(dir.path()).save(moves([position(1, 3)])).unwrap();
        std::fs::write(path(dir.path()), &good).unwrap();
        assert_eq!(offsets(dir.path()), [3], "it follows another");
        forget_all(dir.path(), []).unwrap();
        assert!(!path(dir.path()).try_exists().unwrap());
    }

    #[test]
    fn a_disk_that_takes_no_note_is_asked_again_after_the_next_save() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::empty(dir.path());
        store.save(moves([position(1, 5)])).unwrap();
        std::fs::create_dir(path(dir.path())).unwrap();
        store.note(moves([position(1, 6)]));
        std::fs::remove_dir(path(dir.path())).unwrap();
        store.note(moves([position(1, 7)]));
        assert_eq!(offsets(dir.path()), [5], "a note between is missing");
        store.save(Moves::default()).unwrap();
        assert_eq!(offsets(dir.path()), [7]);
        store.note(moves([position(1, 8)]));
        assert_eq!(offsets(dir.path()), [8]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes: Vec<u8>, saved: Vec<u8>) {
            let _ = read(&bytes, &saved);
        }
    }
}
