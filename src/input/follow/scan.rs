//! Looking for files by the patterns: those that are new, and those that have another name or none.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, Inode, Kind, Stat};
use super::machine::{FileNumber, Machine, Take, Told};
use super::pattern::{Folders, leads_to, leaves_out};
use crate::input::identity::Position;
use crate::input::known;

impl<D: Disk> Machine<D> {
    /// Looks for files by the patterns.
    pub(super) fn scan(&mut self, take: &mut Take<'_>) -> bool {
        let first = self.scanned.is_none();
        (self.scanned, self.stale) = (Some(self.now), false);
        self.scans += 1;
        let mut folders = Folders::default();
        let found = self.find(&mut folders);
        let mut new = Vec::new();
        for (inode, (path, stat)) in found {
            match self.by_inode.get(&inode).copied() {
                Some(number) if self.is_used_again(number, &stat) => {
                    if !self.lose(number, take) {
                        return false;
                    }
                    new.push((path, stat));
                }
                Some(number) => {
                    if !self.meet(number, path, take) {
                        return false;
                    }
                    self.note(number, &stat);
                }
                None => new.push((path, stat)),
            }
        }
        if !self.look_for_missing(&mut folders, take) {
            return false;
        }
        for (folder, error) in std::mem::take(&mut folders.failed) {
            self.trouble(&folder, &error);
        }
        let scans = self.scans;
        self.circles.retain(|_, seen| *seen == scans);
        self.folders = std::mem::take(&mut folders.passed).into_iter().collect();
        if !self.meet_new(new, first, take) || first && !self.look_for_renamed(&mut folders, take) {
            return false;
        }
        if first && !take(Told::Looked { patterns: &self.rules.patterns }) {
            return false;
        }
        let forgotten = self.gone.forget(self.now);
        forgotten.iter().all(|place| take(Told::Forgotten { place }))
    }

    /// Whether another file has the inode now.
    fn is_used_again(&self, number: FileNumber, stat: &Stat) -> bool {
        let made = self.files.get(&number).and_then(|file| file.identity.born);
        made.zip(stat.born).is_some_and(|(was, is)| was != is)
    }

    /// Begins to follow files that were not.
    fn meet_new(&mut self, new: Vec<(PathBuf, Stat)>, first: bool, take: &mut Take<'_>) -> bool {
        // those that are where they were first, so that nobody else is taken for them
        let (mut known, mut other): (Vec<_>, Vec<_>) =
            new.into_iter().partition(|(_, stat)| self.gone.has_inode(stat.device, stat.inode));
        for new in [&mut known, &mut other] {
            new.sort_by(|a, b| a.0.cmp(&b.0));
            for (path, stat) in std::mem::take(new) {
                let from_end = first && self.rules.from_end && !self.was_looked_for(&path);
                if !self.adopt(path, &stat, from_end, None, take) {
                    return false;
                }
            }
        }
        true
    }

    /// Whether an earlier run looked for files by a pattern that leads to this path.
    fn was_looked_for(&self, path: &Path) -> bool {
        leads_to(&self.looked_before, path)
    }

    /// The files that the patterns lead to, each by one of its names: the one it had, or the first.
    fn find(&mut self, folders: &mut Folders) -> BTreeMap<Inode, (PathBuf, Stat)> {
        let mut paths = Vec::new();
        for pattern in &self.rules.paths {
            folders.find(&self.disk, pattern, &mut paths);
        }
        paths.sort();
        paths.dedup();
        let mut found: BTreeMap<Inode, (PathBuf, Stat)> = BTreeMap::new();
        for path in paths {
            if leaves_out(&self.rules.exclude, &path) || self.is_left(&path) {
                continue;
            }
            match self.disk.stat(&path) {
                Ok(stat) if stat.kind == Kind::File => {
                    let inode = stat.inode();
                    let had = self.by_inode.get(&inode).and_then(|number| self.files.get(number));
                    if !found.contains_key(&inode) || had.is_some_and(|file| file.path == path) {
                        found.insert(inode, (path, stat));
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.trouble(&path, &error),
            }
        }
        found
    }

    /// Whether another input reads this path. At the start that is refused; it came later.
    fn is_left(&mut self, path: &Path) -> bool {
        let Some(other) = self.others.iter().find(|other| other.reads(path)) else { return false };
        if self.left.insert(path.to_path_buf()) {
            let why = "two inputs lead to a file: the first reads it, and the next start is refused";
            tracing::error!(path = %path.display(), first = other.input, "{why}");
        }
        true
    }

    /// A file is still there, perhaps by another name.
    fn meet(&mut self, number: FileNumber, path: PathBuf, take: &mut Take<'_>) -> bool {
        let Some(file) = self.files.get_mut(&number) else { return true };
        (file.seen, file.named) = (self.scans, true);
        if file.path == path {
            // another file may have had the name meanwhile
            if self.by_path.get(&path) != Some(&number) {
                self.by_path.insert(path, number);
            }
            return true;
        }
        let was = std::mem::replace(&mut file.path, path.clone());
        if self.by_path.get(&was) == Some(&number) {
            self.by_path.remove(&was);
        }
        self.by_path.insert(path.clone(), number);
        !self.files.get(&number).is_some_and(|file| file.began) || take(Told::Moved { file: number, path: &path })
    }

    /// Files that no pattern leads to any more: renamed within their folder, or gone.
    fn look_for_missing(&mut self, folders: &mut Folders, take: &mut Take<'_>) -> bool {
        let missing = self.files.iter().filter(|(_, file)| file.seen != self.scans).map(|(number, _)| *number);
        let missing: Vec<FileNumber> = missing.collect();
        let mut names: HashMap<PathBuf, HashMap<u64, PathBuf>> = HashMap::new();
        for number in missing {
            let Some(file) = self.files.get(&number) else { continue };
            let folder = file.path.parent().unwrap_or(Path::new("")).to_path_buf();
            let inodes = names.entry(folder).or_insert_with_key(|folder| files_by_inode(&self.disk, folders, folder));
            let there = inodes.get(&file.identity.inode);
            let there = there.and_then(|path| self.disk.stat(path).ok().map(|stat| (path.clone(), stat)));
            let is_it = |path: &Path, stat: &Stat| {
                let same = stat.born.is_some() && stat.born == file.identity.born;
                stat.inode() == file.inode() && (file.is_open() || same || self.is_proved(path, &file.position()))
            };
            match there.filter(|(path, stat)| is_it(path, stat)) {
                Some((path, stat)) => {
                    if !self.meet(number, path, take) {
                        return false;
                    }
                    self.note(number, &stat);
                }
                None if file.is_open() => {
                    if let Some(file) = self.files.get_mut(&number) {
                        file.named = false;
                    }
                    self.look(number);
                }
                None => {
                    if !self.lose(number, take) {
                        return false;
                    }
                }
            }
        }
        true
    }

    /// Files of saved places that got a name meanwhile that no pattern leads to: what is unread of them is read.
    fn look_for_renamed(&mut self, folders: &mut Folders, take: &mut Take<'_>) -> bool {
        let mut names: HashMap<PathBuf, HashMap<u64, PathBuf>> = HashMap::new();
        for known in self.gone.positions().cloned().collect::<Vec<_>>() {
            let folder = known.path.parent().unwrap_or(Path::new("")).to_path_buf();
            let inodes = names.entry(folder).or_insert_with_key(|folder| files_by_inode(&self.disk, folders, folder));
            let Some(path) = inodes.get(&known.identity.inode) else { continue };
            let Ok(stat) = self.disk.stat(path) else { continue };
            // of those that had the inode one is it
            let is_it = stat.inode() == (known.identity.device, known.identity.inode)
                && !self.by_inode.contains_key(&stat.inode())
                && self.is_proved(path, &known);
            if is_it && !self.adopt(path.clone(), &stat, false, None, take) {
                return false;
            }
        }
        true
    }

    /// Whether the bytes at a path show that it is a known file; its inode alone proves nothing, since it may have
    /// been used again.
    fn is_proved(&self, path: &Path, position: &Position) -> bool {
        position.identity.head.bytes > 0
            && self.disk.open(path).is_ok_and(|file| known::fits(&file, position).unwrap_or(false))
    }
}

fn files_by_inode(disk: &impl Disk, folders: &mut Folders, folder: &Path) -> HashMap<u64, PathBuf> {
    let entries = folders.list(disk, folder).iter().filter(|entry| entry.kind == Kind::File);
    entries.map(|entry| (entry.inode, folder.join(&entry.name))).collect()
}
