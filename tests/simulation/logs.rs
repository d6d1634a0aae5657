//! Log files as others write, rotate, truncate, compress and delete them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use onceline::input::follow::disk::{Changed, Disk, Entry, Kind, OpenFile, Stat};
use onceline::input::identity::{Identity, Position};

use crate::scenario::{Scenario, Trouble};
use crate::world::{Clock, lock};

/// One text: what stood in a file from its making or its truncation to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text {
    /// A number of its own, unlike an inode, which may be used again.
    pub file: u64,
    pub generation: usize,
}

#[derive(Clone)]
pub struct Logs {
    state: Arc<Mutex<State>>,
    scenario: Arc<Scenario>,
    clock: Clock,
}

struct State {
    rng: Rng,
    files: BTreeMap<u64, File>,
    names: BTreeMap<PathBuf, u64>,
    next: u64,
    /// Of files that were deleted.
    free: Vec<u64>,
}

struct File {
    inode: u64,
    bytes: Vec<u8>,
    /// What is compressed in it.
    packed: Option<Vec<u8>>,
    /// Texts before it was truncated.
    past: Vec<Vec<u8>>,
    written: Changed,
    touched: Changed,
    born: Changed,
    /// Somebody has it open while this is shared.
    open: Arc<()>,
}

impl File {
    fn text(&self, generation: usize) -> &[u8] {
        match self.past.get(generation) {
            Some(past) => past,
            None => self.packed.as_ref().unwrap_or(&self.bytes),
        }
    }
}

/// An open log.
pub struct Reading {
    logs: Logs,
    file: u64,
    _open: Arc<()>,
}

pub fn path(n: usize) -> PathBuf {
    PathBuf::from(format!("/log/{n}.log"))
}

impl Logs {
    pub fn new(scenario: &Scenario, clock: Clock) -> Logs {
        let state = State {
            rng: Rng::with_seed(scenario.seed ^ 0x1065_0000),
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            next: 0,
            free: Vec::new(),
        };
        let logs = Logs { state: Arc::new(Mutex::new(state)), scenario: Arc::new(scenario.clone()), clock };
        for n in 0..scenario.files {
            logs.make(&path(n));
        }
        logs
    }

    /// The time as a disk writes it down: not finely.
    fn time(&self) -> Changed {
        let now = self.clock.now();
        (1_700_000_000 + now.as_secs() as i64, i64::from(now.subsec_millis() / 10) * 10_000_000)
    }

    /// An empty file; perhaps with the inode of one that was deleted.
    pub fn make(&self, path: &Path) -> Text {
        let time = self.time();
        let mut state = lock(&self.state);
        state.next += 1;
        let file = state.next;
        let inode = match state.free.is_empty() || state.rng.bool() {
            true => 1000 + file,
            false => state.free.remove(0),
        };
        let (bytes, past) = (Vec::new(), Vec::new());
        let made =
            File { inode, bytes, packed: None, past, written: time, touched: time, born: time, open: Arc::default() };
        state.files.insert(file, made);
        state.names.insert(path.to_path_buf(), file);
        Text { file, generation: 0 }
    }

    /// The text that a name leads to now.
    pub fn at(&self, path: &Path) -> Option<Text> {
        let state = lock(&self.state);
        let file = *state.names.get(path)?;
        Some(Text { file, generation: state.files[&file].past.len() })
    }

    pub fn len(&self, text: Text) -> u64 {
        lock(&self.state).files[&text.file].text(text.generation).len() as u64
    }

    pub fn append(&self, file: u64, bytes: &[u8]) {
        let time = self.time();
        if let Some(file) = lock(&self.state).files.get_mut(&file) {
            file.bytes.extend_from_slice(bytes);
            (file.written, file.touched) = (time, time);
        }
    }

    pub fn rename(&self, from: &Path, to: &Path) {
        let time = self.time();
        let mut state = lock(&self.state);
        let Some(file) = state.names.remove(from) else { return };
        state.names.insert(to.to_path_buf(), file);
        if let Some(file) = state.files.get_mut(&file) {
            file.touched = time;
        }
    }

    /// What is in `from`, compressed in a new file.
    pub fn pack(&self, from: &Path, to: &Path) -> Option<Text> {
        let text = self.at(from)?;
        let bytes = lock(&self.state).files[&text.file].bytes.clone();
        let copy = self.make(to);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let packed = encoder.write_all(&bytes).and_then(|()| encoder.finish()).unwrap_or_default();
        self.append(copy.file, &packed);
        if let Some(file) = lock(&self.state).files.get_mut(&copy.file) {
            file.packed = Some(bytes);
        }
        Some(copy)
    }

    /// More of a copy, up to `end` at most.
    pub fn copy_on(&self, from: Text, to: Text, end: u64) {
        let (done, end) = (self.len(to) as usize, end as usize);
        let more = lock(&self.state).files[&from.file].text(from.generation)[done..end].to_vec();
        self.append(to.file, &more);
    }

    pub fn truncate(&self, path: &Path) {
        let time = self.time();
        let mut state = lock(&self.state);
        let Some(file) = state.names.get(path).copied() else { return };
        if let Some(file) = state.files.get_mut(&file) {
            let past = std::mem::take(&mut file.bytes);
            file.past.push(past);
            (file.written, file.touched) = (time, time);
        }
    }

    pub fn delete(&self, path: &Path) {
        let mut state = lock(&self.state);
        let Some(file) = state.names.remove(path) else { return };
        let gone = &state.files[&file];
        // an inode is not used again while its file is open
        if Arc::strong_count(&gone.open) == 1 {
            let inode = gone.inode;
            state.free.push(inode);
        }
    }

    /// The texts that a position may be of: those of its inode in which head and tail stand where they should, the
    /// newest first.
    pub fn texts_of(&self, position: &Position) -> Vec<Text> {
        let state = lock(&self.state);
        let mut texts = Vec::new();
        // one that lost its inode is known by its head alone
        let Identity { device, inode, .. } = position.identity;
        for (number, file) in state.files.iter().filter(|(_, file)| device == 0 || file.inode == inode) {
            for generation in 0..=file.past.len() {
                let text = file.text(generation);
                let before = text.get(..position.mark.offset as usize);
                if before.is_some_and(|before| position.mark.tail.ends(before)) && position.identity.head.begins(text) {
                    texts.push(Text { file: *number, generation });
                }
            }
        }
        texts.reverse();
        texts
    }

    /// The texts that can be read, with the inodes of their files.
    pub fn all(&self) -> Vec<(Text, u64)> {
        let state = lock(&self.state);
        let text =
            |file: &u64| (Text { file: *file, generation: state.files[file].past.len() }, state.files[file].inode);
        state.names.values().map(text).collect()
    }

    fn stat_of(&self, file: u64) -> Stat {
        let state = lock(&self.state);
        let file = &state.files[&file];
        Stat {
            kind: Kind::File,
            device: 7,
            inode: file.inode,
            bytes: file.bytes.len() as u64,
            written: file.written,
            touched: file.touched,
            born: self.scenario.has_births.then_some(file.born),
        }
    }
}

impl Disk for Logs {
    type File = Reading;

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let state = lock(&self.state);
        let inside = state.names.iter().filter(|(path, _)| path.parent() == Some(folder));
        let entry = |(path, file): (&PathBuf, &u64)| {
            let name: OsString = path.file_name().unwrap_or_default().into();
            Entry { name, inode: state.files[file].inode, kind: Kind::File }
        };
        Ok(inside.map(entry).collect())
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let file = lock(&self.state).names.get(path).copied();
        file.map(|file| self.stat_of(file)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open(&self, path: &Path) -> io::Result<Reading> {
        self.clock.step("open log", 0).map_err(|_| io::Error::other("the process is no more"))?;
        let share = self.clock.trouble(Trouble::OpenFails);
        let mut state = lock(&self.state);
        if share > 0.0 && state.rng.f64() < share {
            return Err(io::Error::other("too many open files"));
        }
        let file = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        let open = state.files[&file].open.clone();
        Ok(Reading { logs: self.clone(), file, _open: open })
    }
}

impl OpenFile for Reading {
    fn stat(&self) -> io::Result<Stat> {
        Ok(self.logs.stat_of(self.file))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut state = lock(&self.logs.state);
        let State { rng, files, .. } = &mut *state;
        let bytes = files[&self.file].bytes.get(offset as usize..).unwrap_or_default();
        let mut count = bytes.len().min(into.len());
        // a disk may give less than there is
        if count > 1 && rng.u8(..16) == 0 {
            count = rng.usize(1..count);
        }
        into[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }
}
