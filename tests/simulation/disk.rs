//! The disk with the files of the process, which are lost at a power loss as far as they were not synced.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use fastrand::Rng;
use onceline::disk;

use crate::scenario::{Fault, Trouble};
use crate::world::{Clock, lock};

type Inode = u64;

#[derive(Clone)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

struct State {
    rng: Rng,
    faults: Vec<Fault>,
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
    pub fn new(seed: u64, faults: Vec<Fault>, clock: Clock) -> Disk {
        let state = State {
            rng: Rng::with_seed(seed ^ 0xd15c_0000),
            faults,
            nodes: BTreeMap::new(),
            next: 100,
            names: BTreeMap::new(),
            lasting: BTreeMap::new(),
            changed: Vec::new(),
            is_dead: false,
        };
        Disk { state: Arc::new(Mutex::new(state)), clock }
    }

    /// What would be read of a file after a power loss now, if it is sure.
    pub fn synced(&self, path: &Path) -> Vec<u8> {
        let state = lock(&self.state);
        state.lasting.get(path).and_then(|inode| state.nodes.get(inode)).map(|n| n.synced.clone()).unwrap_or_default()
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

    /// A step of the process on the disk: where it may end, or be told that it failed.
    fn operation(&self, what: &'static str, detail: u64, is_write: bool) -> io::Result<()> {
        self.clock.step(what, detail).map_err(|_| io::Error::other("the process is no more"))?;
        if !is_write {
            return Ok(());
        }
        let now = self.clock.now();
        let mut state = lock(&self.state);
        let State { rng, faults, .. } = &mut *state;
        for fault in faults.iter().filter(|fault| fault.time.contains(&now)) {
            match fault.kind {
                Trouble::Full => return Err(io::ErrorKind::StorageFull.into()),
                Trouble::WriteFails if rng.f64() < fault.share => return Err(io::Error::other("a write failed")),
                _ => {}
            }
        }
        Ok(())
    }
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

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.operation("read", 0, false)?;
        let state = lock(&self.state);
        let inode = state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.nodes[inode].bytes.clone())
    }

    fn append(&self, path: &Path) -> io::Result<Open> {
        self.operation("open", 0, true)?;
        let mut state = lock(&self.state);
        let inode = match state.names.get(path) {
            Some(inode) => *inode,
            None => {
                let inode = state.node();
                state.name(path, Some(inode));
                inode
            }
        };
        Ok(Open { disk: self.clone(), inode })
    }

    fn create(&self, path: &Path) -> io::Result<Open> {
        let open = self.append(path)?;
        if let Some(node) = lock(&self.state).nodes.get_mut(&open.inode) {
            node.bytes.clear();
        }
        Ok(open)
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

    fn make_folder(&self, _path: &Path) -> anyhow::Result<()> {
        Ok(())
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

    fn tail(&mut self, count: u64) -> io::Result<Vec<u8>> {
        self.disk.operation("read", 0, false)?;
        let state = lock(&self.disk.state);
        let bytes = &state.nodes[&self.inode].bytes;
        Ok(bytes[bytes.len() - bytes.len().min(count as usize)..].to_vec())
    }
}
