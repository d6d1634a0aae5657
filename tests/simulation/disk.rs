//! The disk with the files of the process, which are lost at a power loss as far as they were not synced.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use onceline::disk;
use onceline::time::Time;

use crate::saves::STATE;
use crate::scenario::Trouble;
use crate::world::{Clock, lock};

type Inode = u64;

#[derive(Clone)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

struct State {
    rng: Rng,
    nodes: BTreeMap<Inode, Node>,
    next: Inode,
    names: BTreeMap<PathBuf, Inode>,
    /// As the names stood when their folders were synced, and what was changed since, in order.
    lasting: BTreeMap<PathBuf, Inode>,
    changed: Vec<(PathBuf, Option<Inode>)>,
    /// The last write of this life is past.
    is_dead: bool,
}

#[derive(Default)]
struct Node {
    bytes: Vec<u8>,
    /// What is sure to be there after a power loss.
    synced: Vec<u8>,
}

pub struct Open {
    disk: Disk,
    inode: Inode,
}

impl Disk {
    pub fn new(seed: u64, clock: Clock) -> Disk {
        let state = State {
            rng: Rng::with_seed(seed ^ 0xd15c_0000),
            nodes: BTreeMap::new(),
            next: 100,
            names: BTreeMap::new(),
            lasting: BTreeMap::new(),
            changed: Vec::new(),
            is_dead: false,
        };
        Disk { state: Arc::new(Mutex::new(state)), clock }
    }

    /// What would be read after a power loss now, as far as it is sure: of each file whose path begins so, that is
    /// not in the making, under its number.
    pub fn synced(&self, begin: &str) -> Vec<(u64, Vec<u8>)> {
        let state = lock(&self.state);
        let is_wanted = |path: &&PathBuf| {
            let path = path.to_string_lossy();
            path.starts_with(begin) && !path.ends_with(".new")
        };
        let files = state.lasting.iter().filter(|(path, _)| is_wanted(path));
        let files: BTreeMap<Inode, Vec<u8>> =
            files.map(|(_, inode)| (*inode, state.nodes[inode].synced.clone())).collect();
        files.into_iter().collect()
    }

    /// Somebody else moves a file that has something in it.
    pub fn move_away(&self, from: &Path, to: &Path) {
        let mut state = lock(&self.state);
        if let Some(inode) = state.names.get(from).copied()
            && !state.nodes[&inode].bytes.is_empty()
        {
            state.name(to, Some(inode));
            state.name(from, None);
            self.clock.note("moved away", inode);
        }
    }

    /// The process is gone: what it wrote stays, or with the power gone, only what was synced and some of the rest.
    pub fn recover(&self, power_lost: bool) {
        let mut state = lock(&self.state);
        let State { rng, nodes, names, lasting, changed, is_dead, .. } = &mut *state;
        *is_dead = false;
        if power_lost {
            let kept = rng.usize(..=changed.len());
            for (path, inode) in changed.drain(..).take(kept) {
                match inode {
                    Some(inode) => lasting.insert(path, inode),
                    None => lasting.remove(&path),
                };
            }
            *names = lasting.clone();
            // what stands in a folder that was lost is lost
            while let Some(lost) = names.keys().find(|path| !is_in(names, path)).cloned() {
                names.remove(&lost);
            }
            for node in nodes.values_mut().filter(|node| node.bytes != node.synced) {
                let same = node.bytes.iter().zip(&node.synced).take_while(|(a, b)| a == b).count();
                let kept = match node.bytes.len() > same {
                    true => rng.usize(same..=node.bytes.len()),
                    false => node.bytes.len(),
                };
                // a file cut short since may be found as it was before
                if same < node.synced.len() && rng.bool() {
                    node.bytes = node.synced.clone();
                } else {
                    node.bytes.truncate(kept);
                }
            }
        }
        for node in nodes.values_mut() {
            node.synced = node.bytes.clone();
        }
        *lasting = names.clone();
        changed.clear();
    }

    fn make(&self, path: &Path) -> io::Result<Inode> {
        let mut state = lock(&self.state);
        if !is_in(&state.names, path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inode = state.node();
        state.name(path, Some(inode));
        Ok(inode)
    }

    /// A step of the process on the disk: where it may end, or be told that it failed.
    fn operation(&self, what: &'static str, detail: u64, is_write: bool) -> io::Result<()> {
        self.clock.step(what, detail).map_err(|_| io::Error::other("the process is no more"))?;
        if !is_write {
            return Ok(());
        }
        if self.clock.trouble(Trouble::Full) > 0.0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let share = self.clock.trouble(Trouble::WriteFails);
        if share > 0.0 && lock(&self.state).rng.f64() < share {
            return Err(io::Error::other("a write failed"));
        }
        Ok(())
    }
}

fn is_in(names: &BTreeMap<PathBuf, Inode>, path: &Path) -> bool {
    let folder = disk::folder_of(path);
    folder == Path::new(STATE) || names.contains_key(folder)
}

impl State {
    fn node(&mut self) -> Inode {
        self.next += 1;
        self.nodes.insert(self.next, Node::default());
        self.next
    }

    fn name(&mut self, path: &Path, inode: Option<Inode>) {
        match inode {
            Some(inode) => self.names.insert(path.to_path_buf(), inode),
            None => self.names.remove(path),
        };
        self.changed.push((path.to_path_buf(), inode));
    }
}

impl disk::Disk for Disk {
    type File = Open;

    fn now(&self) -> Time {
        self.clock.time()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.operation("read", 0, false)?;
        let state = lock(&self.state);
        let inode = state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.nodes[inode].bytes.clone())
    }

    fn open(&self, path: &Path) -> io::Result<Open> {
        self.operation("open", 0, false)?;
        let inode = *lock(&self.state).names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Open { disk: self.clone(), inode })
    }

    fn append(&self, path: &Path) -> io::Result<Open> {
        self.operation("open", 0, true)?;
        let known = lock(&self.state).names.get(path).copied();
        let inode = known.map_or_else(|| self.make(path), Ok)?;
        Ok(Open { disk: self.clone(), inode })
    }

    fn create(&self, path: &Path) -> io::Result<Open> {
        if lock(&self.state).names.contains_key(path) {
            self.remove(path)?;
        }
        self.operation("create", 0, true)?;
        Ok(Open { disk: self.clone(), inode: self.make(path)? })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operation("rename", 0, true)?;
        let mut state = lock(&self.state);
        let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.name(to, Some(inode));
        state.name(from, None);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.operation("remove", 0, false)?;
        let mut state = lock(&self.state);
        if !state.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.name(path, None);
        Ok(())
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        self.operation("list", 0, false)?;
        let state = lock(&self.state);
        match folder == Path::new(STATE) || state.names.contains_key(folder) {
            true => Ok(state.names.keys().filter(|path| path.parent() == Some(folder)).cloned().collect()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn make_folder(&self, path: &Path, _mode: u32) -> io::Result<()> {
        if path == Path::new(STATE) {
            return Ok(());
        }
        let above = disk::folder_of(path);
        if !lock(&self.state).names.contains_key(path) {
            self.make_folder(above, disk::PRIVATE)?;
            self.operation("make folder", 0, true)?;
            let mut state = lock(&self.state);
            let inode = state.node();
            state.name(path, Some(inode));
        }
        self.sync_folder(above)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.operation("sync folder", 0, true)?;
        let mut state = lock(&self.state);
        let State { changed, lasting, .. } = &mut *state;
        for (name, inode) in changed.extract_if(.., |(name, _)| name.parent() == Some(path)) {
            match inode {
                Some(inode) => lasting.insert(name, inode),
                None => lasting.remove(&name),
            };
        }
        Ok(())
    }

    fn is_at(&self, file: &Open, path: &Path) -> io::Result<bool> {
        self.operation("look", 0, false)?;
        Ok(lock(&self.state).names.get(path) == Some(&file.inode))
    }
}

impl disk::File for Open {
    fn bytes(&self) -> io::Result<u64> {
        self.disk.operation("size", 0, false)?;
        Ok(lock(&self.disk.state).nodes[&self.inode].bytes.len() as u64)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let done = self.disk.operation("write", bytes.len() as u64, true);
        let mut state = lock(&self.disk.state);
        let is_last = done.is_err() && self.disk.clock.is_over();
        if is_last && std::mem::replace(&mut state.is_dead, true) {
            return done;
        }
        // one that fails, or is the last of its life, may have written some
        let some = if done.is_ok() { bytes.len() } else { state.rng.usize(..=bytes.len()) };
        if let Some(node) = state.nodes.get_mut(&self.inode) {
            node.bytes.extend_from_slice(&bytes[..some]);
        }
        done
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.operation("sync", self.inode, true)?;
        if let Some(node) = lock(&self.disk.state).nodes.get_mut(&self.inode) {
            node.synced = node.bytes.clone();
        }
        Ok(())
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        // cutting short takes no room
        self.disk.operation("cut", bytes, false)?;
        if let Some(node) = lock(&self.disk.state).nodes.get_mut(&self.inode) {
            node.bytes.truncate(bytes as usize);
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.operation("read", 0, false)?;
        let state = lock(&self.disk.state);
        let bytes = state.nodes[&self.inode].bytes.get(offset as usize..).unwrap_or_default();
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    /// Nobody else runs between two waits.
    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn unlock(&self) -> io::Result<()> {
        Ok(())
    }

    fn allow_as(&self, _other: &Open) -> io::Result<()> {
        Ok(())
    }
}
