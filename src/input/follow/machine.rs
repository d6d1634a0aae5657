//! Which files are followed, where each is read to, and what to do next: a machine without clock, thread or disk of
//! its own. It is told the time and what is said to have changed, and tells what it found.
//!
//! Every so often it looks for files by the patterns (a scan) and at the files that were busy lately (a look); a hint
//! only makes it look at once. What grew is read in turns, a block each, so that one file does not keep the others
//! waiting.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk::{Changed, Disk, Kind, OpenFile, Stat, read_some};
use super::gone::{self, Gone, Inode, Place, inode_of};
use super::packed::{Compression, Text};
use super::pattern::{Folders, Paths, leaves_out};
use crate::codec::Block;
use crate::input::Limits;
use crate::input::identity::{HEAD, Identity, Mark, Position, Print, TAIL, Tail};
use crate::input::lines::Cutter;
use crate::pool::Pool;

/// Looking for files is repeated so often even if nothing is said to have changed.
pub const SCAN_INTERVAL: Duration = Duration::from_secs(5);
/// A file that did not change for so long is looked at with each scan only.
const BUSY: Duration = Duration::from_secs(60);
/// A compressed file is read once it did not change for so long.
pub const SETTLE: Duration = Duration::from_secs(2);
/// A half line that is longer is read again only when it grew by an eighth: reading it costs time each time.
const HALF_BYTES: u64 = 64 << 10;
/// A step ends after so many turns, to hear what changed.
const TURNS_MAX: usize = 64;

/// What is followed, and how.
#[derive(Clone, Debug)]
pub struct Rules {
    pub paths: Vec<Paths>,
    /// The same, to compare whole paths with.
    pub patterns: Vec<glob::Pattern>,
    pub exclude: Vec<glob::Pattern>,
    /// Files that are there at the very first look are read from their end on.
    pub from_end: bool,
    pub poll_interval: Duration,
    pub open_files_max: usize,
    pub close_after: Duration,
    pub idle_flush: Option<Duration>,
}

/// A file that is followed; a number is never used again.
pub type FileNumber = u64;

/// What the machine has to tell.
#[derive(Debug)]
pub enum Told<'a> {
    /// A file is followed, from `position` on. `was` is the known place that it goes on from. Whatever was told of the
    /// file `after` must be settled before anything of this one is: its place stands on that.
    Began { file: FileNumber, position: &'a Position, was: Option<&'a Position>, after: Option<FileNumber> },
    /// Whole lines, and what is known of the file once they are settled. `head` is how it begins.
    Lines { file: FileNumber, block: Block, head: &'a [u8], identity: Identity, mark: Mark },
    /// It has another name.
    Moved { file: FileNumber, path: &'a Path },
    /// Nothing more comes of it, though its place stays known.
    Ended { file: FileNumber },
    /// A place is not kept any longer: of a file that ended, or a saved one.
    Forgotten { file: Option<FileNumber>, position: &'a Position },
}

/// Who is told. Says whether it goes on; after a no, nothing more is told in this step.
pub type Take<'a> = dyn FnMut(Told<'_>) -> bool + 'a;

/// Something that is said to have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hint {
    Path(PathBuf),
    /// Folders came or went, or so much happened that nobody knows what.
    Folders,
}

pub(super) struct Tracked<F> {
    pub path: PathBuf,
    pub identity: Identity,
    pub mark: Mark,
    /// When it was made.
    pub born: Option<Changed>,
    /// The file as it was when it was read to its end; as long as it is so, there is nothing to read.
    pub stat: Option<Stat>,
    /// It was looked at again after that: clocks of disks are coarse, so a change soon after may not show.
    pub sure: bool,
    /// The bytes behind the mark that are no whole line.
    pub half: u64,
    pub form: Form<F>,
    /// It was told that it began.
    pub began: bool,
    /// The file that was read in its place before; until it begins.
    pub instead: Option<FileNumber>,
    /// A name leads to it.
    pub named: bool,
    /// The scan that met it last.
    pub seen: u64,
    /// When it was last seen to have changed.
    pub active: Duration,
    pub queued: bool,
}

pub(super) enum Form<F> {
    Plain(Option<Open<F>>),
    /// Compressed, and not read before it stopped changing: it was so since then.
    Settling(Stat, Duration),
    /// Compressed, being read.
    Packed(Box<(Text, Cutter)>, Stat),
    /// Compressed, read to its end.
    Unpacked,
}

pub(super) struct Open<F> {
    pub file: F,
    /// How it begins: [`HEAD`] bytes, or as many as stand before the mark.
    pub head: Vec<u8>,
    /// What stands before the mark.
    pub tail: Tail,
}

/// What a file was found to be.
struct Found {
    /// Where it goes on, and how it begins as far as that.
    mark: Mark,
    head: Vec<u8>,
    was: Option<Position>,
    after: Option<FileNumber>,
}

pub struct Machine<D: Disk> {
    pub(super) disk: D,
    pub(super) rules: Rules,
    pub(super) limits: Limits,
    pub(super) pool: Pool,
    pub(super) files: BTreeMap<FileNumber, Tracked<D::File>>,
    pub(super) by_inode: HashMap<Inode, FileNumber>,
    by_path: HashMap<PathBuf, FileNumber>,
    pub(super) gone: Gone,
    pub(super) ready: VecDeque<FileNumber>,
    pub(super) opened: usize,
    pub(super) now: Duration,
    next: FileNumber,
    scans: u64,
    scanned: Option<Duration>,
    looked: Duration,
    /// Names are said to have changed: a scan is due.
    pub(super) stale: bool,
    /// Paths that could not be read, said once.
    troubled: HashSet<PathBuf>,
    folders: Vec<PathBuf>,
}

impl<D: Disk> Machine<D> {
    /// A machine that goes on from the `known` places.
    pub fn new(disk: D, rules: Rules, limits: Limits, pool: &Pool, known: Vec<Position>) -> Machine<D> {
        let mut gone = Gone::default();
        for position in known {
            gone.insert(Place { position, born: None, file: None, since: Duration::ZERO });
        }
        Machine {
            disk,
            rules,
            limits,
            pool: pool.clone(),
            files: BTreeMap::new(),
            by_inode: HashMap::new(),
            by_path: HashMap::new(),
            gone,
            ready: VecDeque::new(),
            opened: 0,
            now: Duration::ZERO,
            next: 0,
            scans: 0,
            scanned: None,
            looked: Duration::ZERO,
            stale: true,
            troubled: HashSet::new(),
            folders: Vec::new(),
        }
    }

    /// The folders that the patterns lead through.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// How many files are open.
    pub fn open_files(&self) -> usize {
        self.opened
    }

    /// All that is known, as far as lines were handed over.
    pub fn positions(&self) -> Vec<Position> {
        let followed = self.files.values().filter(|file| file.began).map(Tracked::position);
        followed.chain(self.gone.positions().cloned()).collect()
    }

    /// Does what is due at `now`, a time on any clock that does not go back. Says when to be called again unless
    /// something changes before.
    pub fn step(&mut self, now: Duration, hints: &[Hint], take: &mut Take<'_>) -> Duration {
        self.now = self.now.max(now);
        for hint in hints {
            self.hear(hint);
        }
        let scan = self.scan_due() <= self.now;
        if scan && !self.scan(take) {
            return self.now;
        }
        if self.looked + self.rules.poll_interval <= self.now || self.looked == Duration::ZERO {
            self.look_at_busy_ones(take);
        }
        for _ in 0..TURNS_MAX {
            let Some(number) = self.ready.pop_front() else { break };
            if let Some(file) = self.files.get_mut(&number) {
                file.queued = false;
            }
            if !self.turn(number, take) {
                return self.now;
            }
        }
        if !self.ready.is_empty() {
            return self.now;
        }
        self.scan_due().min(self.looked + self.rules.poll_interval)
    }

    /// A scan takes time with the number of files, and must not take all of it when names change all the time.
    fn scan_due(&self) -> Duration {
        let Some(scanned) = self.scanned else { return Duration::ZERO };
        let pause = Duration::from_millis(20) + Duration::from_micros(50) * self.files.len() as u32;
        scanned + if self.stale { pause.min(SCAN_INTERVAL) } else { SCAN_INTERVAL }
    }

    fn hear(&mut self, hint: &Hint) {
        let Hint::Path(path) = hint else {
            self.stale = true;
            return;
        };
        if let Some(number) = self.by_path.get(path).copied() {
            self.look(number);
        } else if self.is_wanted(path) {
            self.stale = true;
        }
    }

    /// Whether a pattern leads to this path.
    pub(super) fn is_wanted(&self, path: &Path) -> bool {
        self.rules.patterns.iter().any(|p| p.matches_path(path)) && !leaves_out(&self.rules.exclude, path)
    }

    pub(super) fn queue(&mut self, number: FileNumber) {
        if let Some(file) = self.files.get_mut(&number)
            && !std::mem::replace(&mut file.queued, true)
        {
            self.ready.push_back(number);
        }
    }

    /// Looks whether there is something to do about a file.
    fn look(&mut self, number: FileNumber) {
        let Some(file) = self.files.get(&number) else { return };
        let named = self.disk.stat(&file.path).ok().filter(|stat| inode_of(stat) == file.inode());
        if named.is_none() && file.named {
            // somebody else has its name now, or nobody; the scan finds out, and looks again
            self.stale = true;
            return;
        }
        let stat = match &file.form {
            Form::Plain(Some(open)) => open.file.stat().ok(),
            _ => named,
        };
        if let Some(stat) = stat {
            self.note(number, &stat);
        }
    }

    /// Queues a file if it is not as it was when it was read to its end.
    fn note(&mut self, number: FileNumber, stat: &Stat) {
        let (now, rules) = (self.now, &self.rules);
        let Some(file) = self.files.get_mut(&number) else { return };
        let changed = file.stat.as_ref().is_none_or(|was| was.changed(stat));
        let due = match &mut file.form {
            Form::Plain(_) if changed => {
                let bytes = stat.bytes.saturating_sub(file.mark.offset);
                let waits = file.half > HALF_BYTES && (file.half..file.half + file.half / 8).contains(&bytes);
                let due = !waits || now >= file.active + rules.poll_interval;
                if due {
                    file.active = now;
                }
                due
            }
            Form::Plain(_) => {
                !file.sure || file.half > 0 && rules.idle_flush.is_some_and(|wait| now >= file.active + wait)
            }
            Form::Settling(was, since) => {
                if was.changed(stat) {
                    (*was, *since) = (*stat, now);
                }
                now >= *since + SETTLE
            }
            Form::Packed(..) => true,
            Form::Unpacked if changed => {
                file.form = Form::Settling(*stat, now);
                file.active = now;
                false
            }
            Form::Unpacked => false,
        };
        if due {
            self.queue(number);
        }
    }

    /// Looks at all files that may have changed, and closes those that did not for long.
    fn look_at_busy_ones(&mut self, take: &mut Take<'_>) {
        self.looked = self.now;
        let (now, rules) = (self.now, &self.rules);
        let idle = |file: &Tracked<D::File>| now >= file.active + rules.close_after;
        let close = self.files.iter().filter(|(_, file)| file.is_open() && !file.queued && idle(file));
        let close: Vec<FileNumber> = close.map(|(number, _)| *number).collect();
        for number in close {
            self.close(number, take);
        }
        let busy = |file: &Tracked<D::File>| {
            file.is_open() || !file.sure || now < file.active + BUSY || matches!(file.form, Form::Settling(..))
        };
        let busy: Vec<FileNumber> =
            self.files.iter().filter(|(_, file)| busy(file)).map(|(number, _)| *number).collect();
        for number in busy {
            self.look(number);
        }
    }

    /// Looks for files by the patterns.
    fn scan(&mut self, take: &mut Take<'_>) -> bool {
        let first = self.scanned.is_none();
        (self.scanned, self.stale) = (Some(self.now), false);
        self.scans += 1;
        let mut folders = Folders::default();
        let found = self.find(&mut folders);
        let mut new = Vec::new();
        for (inode, (path, stat)) in found {
            match self.by_inode.get(&inode).copied() {
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
        self.folders = std::mem::take(&mut folders.passed).into_iter().collect();
        new.sort_by(|a, b| a.0.cmp(&b.0));
        for (path, stat) in new {
            if !self.adopt(path, &stat, first, None, take) {
                return false;
            }
        }
        if first && !self.look_for_renamed(&mut folders, take) {
            return false;
        }
        let forgotten = self.gone.forget(self.now);
        forgotten.iter().all(|place| take(Told::Forgotten { file: place.file, position: &place.position }))
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
            if leaves_out(&self.rules.exclude, &path) {
                continue;
            }
            match self.disk.stat(&path) {
                Ok(stat) if stat.kind == Kind::File => {
                    let inode = inode_of(&stat);
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
                let same = file.born.is_some() && stat.born == file.born;
                inode_of(stat) == file.inode() && (file.is_open() || same || self.is_proved(path, &file.position()))
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
            let is_it = inode_of(&stat) == (known.identity.device, known.identity.inode)
                && !self.by_inode.contains_key(&inode_of(&stat))
                && self.is_proved(path, &known);
            if is_it && !self.adopt(path.clone(), &stat, false, None, take) {
                return false;
            }
        }
        true
    }

    /// Whether the bytes at a path show that it is a known file; its inode alone proves nothing, since it may have
    /// been used again.
    fn is_proved(&self, path: &Path, known: &Position) -> bool {
        known.identity.head.bytes > 0
            && self.disk.open(path).is_ok_and(|file| gone::fits(&file, known).unwrap_or(false))
    }

    /// A file that cannot be read any more: what is known of it is kept for the one that may turn out to be it.
    pub(super) fn lose(&mut self, number: FileNumber, take: &mut Take<'_>) -> bool {
        let Some(file) = self.files.remove(&number) else { return true };
        self.opened -= usize::from(file.is_open());
        if self.by_inode.get(&file.inode()) == Some(&number) {
            self.by_inode.remove(&file.inode());
        }
        if self.by_path.get(&file.path) == Some(&number) {
            self.by_path.remove(&file.path);
        }
        if !file.began {
            return true;
        }
        if file.half > 0 && file.stat.is_some() {
            let path = file.path.display();
            tracing::warn!(%path, bytes = file.half, "a file ended in a half line, which is left out");
        }
        self.gone.insert(Place { position: file.position(), born: file.born, file: Some(number), since: self.now });
        take(Told::Ended { file: number })
    }

    /// Begins to follow a file that was not, or that was another (`instead`) until now.
    pub(super) fn adopt(
        &mut self,
        path: PathBuf,
        stat: &Stat,
        first: bool,
        instead: Option<FileNumber>,
        take: &mut Take<'_>,
    ) -> bool {
        let found = self.disk.open(&path).and_then(|file| {
            // between looking and opening the name may have gone to another file
            if inode_of(&file.stat()?) != inode_of(stat) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let is_packed = Compression::of(&read_some(&file, 0, 4)?).is_some();
            if is_packed { Ok(None) } else { self.recognise(&file, &path, stat, first).map(Some) }
        });
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.stale |= error.kind() == io::ErrorKind::NotFound;
                self.trouble(&path, &error);
                return true;
            }
        };
        self.troubled.remove(&path);
        let Some(Found { mark, head, was, after }) = found else {
            let number = self.track(path, stat, &[], Mark::start(), Form::Settling(*stat, self.now));
            if let Some(file) = self.files.get_mut(&number) {
                file.instead = instead;
            }
            return true;
        };
        let number = self.track(path, stat, &head, mark, Form::Plain(None));
        // what was read to its end before needs no second look
        if was.is_some() && mark.offset == stat.bytes {
            if let Some(file) = self.files.get_mut(&number) {
                (file.stat, file.sure) = (Some(*stat), true);
            }
        } else {
            self.queue(number);
        }
        self.begin(number, was.as_ref(), after.or(instead), take)
    }

    /// A file more.
    pub(super) fn track(
        &mut self,
        path: PathBuf,
        stat: &Stat,
        head: &[u8],
        mark: Mark,
        form: Form<D::File>,
    ) -> FileNumber {
        let identity = Identity { device: stat.device, inode: stat.inode, head: Print::head(head) };
        let born = stat.born;
        let number = self.next;
        self.next += 1;
        let tracked = Tracked {
            path: path.clone(),
            identity,
            mark,
            born,
            stat: None,
            sure: false,
            half: 0,
            form,
            began: false,
            instead: None,
            named: true,
            seen: self.scans,
            active: self.now,
            queued: false,
        };
        self.by_inode.insert(tracked.inode(), number);
        self.by_path.insert(path, number);
        self.files.insert(number, tracked);
        number
    }

    /// Tells that a file began.
    pub(super) fn begin(
        &mut self,
        number: FileNumber,
        was: Option<&Position>,
        after: Option<FileNumber>,
        take: &mut Take<'_>,
    ) -> bool {
        let Some(file) = self.files.get_mut(&number) else { return true };
        file.began = true;
        let after = after.or(file.instead.take());
        take(Told::Began { file: number, position: &file.position(), was, after })
    }

    /// From where on a file is to be read that is not compressed, and as which known one: the rule of recognition.
    fn recognise(&mut self, file: &D::File, path: &Path, stat: &Stat, first: bool) -> io::Result<Found> {
        let beginning = read_some(file, 0, HEAD)?;
        let by_head = self.gone.of_head(&beginning);
        let moved = |number: &u64| self.gone.get(*number).is_some_and(|known| gone::may_have_moved(known, path, stat));
        let moved: Vec<u64> = by_head.into_iter().filter(moved).collect();
        for candidates in [self.gone.of_inode(stat), moved] {
            let mut best: Option<(u64, u64)> = None;
            for number in candidates {
                let Some(known) = self.gone.get(number) else { continue };
                if best.is_none_or(|(_, offset)| known.mark.offset > offset) && gone::fits(file, known)? {
                    best = Some((number, known.mark.offset));
                }
            }
            if let Some(known) = best.and_then(|(number, _)| self.gone.remove(number)) {
                let Place { position, file: after, .. } = known;
                let head = beginning[..usize::from(position.identity.head.bytes).min(beginning.len())].to_vec();
                return Ok(Found { mark: position.mark, head, was: Some(position), after });
            }
        }
        let (offset, after) = match self.copied(file, &beginning, stat) {
            Some((offset, original)) => (offset, Some(original)),
            None if first && self.rules.from_end => {
                (last_line_end(file, stat.bytes, self.limits.line_bytes_max as u64)?, None)
            }
            None => (0, None),
        };
        let before = read_some(file, offset.saturating_sub(TAIL as u64), offset.min(TAIL as u64) as usize)?;
        let head = beginning[..usize::try_from(offset).unwrap_or(HEAD).min(beginning.len())].to_vec();
        Ok(Found { mark: Mark { offset, tail: Print::tail(&before) }, head, was: None, after })
    }

    /// How far a file is a copy of one that is followed, such as the copy of copytruncate: as much as was read
    /// there is not read again.
    fn copied(&self, file: &D::File, beginning: &[u8], stat: &Stat) -> Option<(u64, FileNumber)> {
        if beginning.len() < HEAD {
            return None;
        }
        let head = Print::head(beginning);
        let originals = self.files.iter().filter(|(_, known)| known.began && known.identity.head == head);
        let mut copied = None;
        for (number, known) in originals {
            let offset = known.mark.offset.min(stat.bytes);
            let from = offset.saturating_sub(TAIL as u64);
            let same = |original: &D::File| {
                let of = |file: &D::File| read_some(file, from, (offset - from) as usize).ok();
                original.stat().is_ok_and(|stat| inode_of(&stat) == known.inode()) && of(original) == of(file)
            };
            let is_copy = match &known.form {
                Form::Plain(Some(open)) => same(&open.file),
                Form::Plain(None) => self.disk.open(&known.path).is_ok_and(|original| same(&original)),
                _ => false,
            };
            if is_copy {
                copied = copied.max(Some((offset, *number)));
            }
        }
        copied
    }

    /// Closes a file; one without a name is lost with that.
    pub(super) fn close(&mut self, number: FileNumber, take: &mut Take<'_>) -> bool {
        let Some(file) = self.files.get_mut(&number) else { return true };
        if !file.named {
            return self.lose(number, take);
        }
        if let Form::Plain(open @ Some(_)) = &mut file.form {
            *open = None;
            self.opened -= 1;
        }
        true
    }

    /// Makes room for one more open file: the one closed is of those with nothing to read the one quiet for longest.
    /// False if there is none that may be closed.
    pub(super) fn make_room(&mut self, take: &mut Take<'_>) -> bool {
        while self.opened >= self.rules.open_files_max {
            let plain = self.files.iter().filter(|(_, file)| matches!(file.form, Form::Plain(Some(_))));
            // what has no name cannot be opened again
            let closable = plain.filter(|(_, file)| !file.queued || file.named);
            let oldest = closable.min_by_key(|(_, file)| (file.queued, !file.named, file.active));
            let Some(number) = oldest.map(|(number, _)| *number) else { return false };
            if !self.close(number, take) {
                return false;
            }
        }
        true
    }

    /// Says that a path cannot be read, once.
    pub(super) fn trouble(&mut self, path: &Path, error: &io::Error) {
        if error.kind() != io::ErrorKind::NotFound && self.troubled.insert(path.to_path_buf()) {
            tracing::error!(path = %path.display(), %error, "cannot be read; it is tried again");
        }
    }
}

impl<F> Tracked<F> {
    pub fn inode(&self) -> Inode {
        (self.identity.device, self.identity.inode)
    }

    pub fn is_open(&self) -> bool {
        matches!(self.form, Form::Plain(Some(_)) | Form::Packed(..))
    }

    pub fn position(&self) -> Position {
        Position { path: self.path.clone(), identity: self.identity, mark: self.mark }
    }
}

impl Stat {
    /// Whether the bytes may be others than those that were there at `self`.
    pub fn changed(&self, now: &Stat) -> bool {
        (self.bytes, self.written, self.touched, self.born) != (now.bytes, now.written, now.touched, now.born)
    }
}

fn files_by_inode(disk: &impl Disk, folders: &mut Folders, folder: &Path) -> HashMap<u64, PathBuf> {
    let entries = folders.list(disk, folder).iter().filter(|entry| entry.kind == Kind::File);
    entries.map(|entry| (entry.inode, folder.join(&entry.name))).collect()
}

/// Where the last whole line ends, looked for as far back as a line may be long.
fn last_line_end(file: &impl OpenFile, bytes: u64, line_bytes_max: u64) -> io::Result<u64> {
    let mut end = bytes;
    while end > 0 && bytes - end < line_bytes_max {
        let from = end.saturating_sub(64 << 10);
        let some = read_some(file, from, (end - from) as usize)?;
        if let Some(at) = memchr::memrchr(b'\n', &some) {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(if end == 0 { 0 } else { bytes })
}
