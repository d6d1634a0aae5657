//! Which files are followed, where each is read to, and what to do next: a machine without clock, thread or disk of
//! its own. It is told the time and what is said to have changed, and tells what it found.
//!
//! Every so often it looks for files by the patterns (a scan) and at the files that were busy lately (a look); a hint
//! only makes it look at once. What grew is read in turns, a block each, so that one file does not keep the others
//! waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use super::adopt::Copy;
use super::disk::{Disk, Inode, Kind, OpenFile, Stat, is_circle};
use super::originals::{Originals, Start};
use super::pattern::{Other, Paths, leaves_out};
use super::turn::hand_over_begun;
use crate::codec::Block;
use crate::input::Limits;
use crate::input::identity::{Identity, Mark, Position, Tail};
use crate::input::known::{Known, Place};
use crate::input::lines::Cutter;
use crate::input::packed::Text;
use crate::pool::Pool;

/// Looking for files is repeated so often even if nothing is said to have changed.
pub const SCAN_INTERVAL: Duration = Duration::from_secs(5);
/// A file that did not change for so long is looked at with each scan only.
const BUSY: Duration = Duration::from_secs(60);
/// A compressed file is read once it did not change for so long.
pub const SETTLE: Duration = Duration::from_secs(2);
/// A half line that is longer is read again only when it grew by an eighth: reading it costs time each time.
const HALF_BYTES: u64 = 64 << 10;
/// What says that this process, or the machine, can open no more files.
const EXHAUSTED: [i32; 2] = [Errno::MFILE.raw_os_error(), Errno::NFILE.raw_os_error()];
/// A step ends after so many turns, to hear what changed.
const TURNS_MAX: usize = 64;

/// What is followed, and how.
#[derive(Clone, Debug)]
pub struct Rules {
    pub paths: Vec<Paths>,
    /// The same, to compare whole paths with.
    pub patterns: Vec<glob::Pattern>,
    pub exclude: Vec<glob::Pattern>,
    /// Files that are there at the first look by a pattern are read from their end on.
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
    Began { file: FileNumber, position: &'a Position, was: Option<&'a Place>, after: Option<FileNumber> },
    /// Files were looked for the first time, by these patterns.
    Looked { patterns: &'a [glob::Pattern] },
    /// Whole records, and what is known of the file once they are settled. `head` is how it begins, `day` when it was
    /// written.
    Lines { file: FileNumber, block: Block, head: &'a [u8], day: i64, identity: &'a Identity, mark: &'a Mark },
    /// It has another name.
    Moved { file: FileNumber, path: &'a Path },
    /// Nothing more comes of it, though its place stays known.
    Ended { file: FileNumber },
    /// A place is not kept any longer: of a file that ended, or a saved one.
    Forgotten { place: &'a Place },
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
    /// The file as it was when it was read to its end; as long as it is so, there is nothing to read.
    pub stat: Option<Stat>,
    /// It was looked at again after that: clocks of disks are coarse, so a change soon after may not show.
    pub sure: bool,
    /// The bytes behind the mark that are no whole record.
    pub half: u64,
    /// Whole lines of those, of a record that is open; gone from the file, it is as it was read.
    pub begun: Option<Begun>,
    pub form: Form<F>,
    /// It was there at the first look by a pattern, so that nothing of it is new.
    pub from_end: bool,
    /// It was told that it began. One that is not compressed is unsure before, and its mark is where it would go on.
    pub began: bool,
    /// The file that was read in its place before; until it begins.
    pub instead: Option<FileNumber>,
    /// It seems to be a copy; until it begins.
    pub copy: Option<Copy>,
    /// Its first bytes, once it is one of the originals.
    pub start: Option<Start>,
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

/// The lines of a record that is open, as they stand behind the mark.
pub(super) struct Begun {
    pub lines: Vec<u8>,
    /// No line was begun behind them.
    pub is_all: bool,
    /// How the file begins, as [`Open`] has it.
    pub head: Vec<u8>,
    /// What stands before the mark.
    pub tail: Tail,
    /// When it was written.
    pub day: i64,
}

pub struct Machine<D: Disk> {
    pub(super) disk: D,
    pub(super) rules: Rules,
    pub(super) limits: Limits,
    pub(super) pool: Pool,
    pub(super) files: BTreeMap<FileNumber, Tracked<D::File>>,
    pub(super) by_inode: HashMap<Inode, FileNumber>,
    pub(super) by_path: HashMap<PathBuf, FileNumber>,
    /// Places whose files are no longer where they were: saved ones not met yet, and those of files that went.
    pub(super) gone: Known,
    /// Patterns by which files were looked for in earlier runs.
    pub(super) looked_before: Vec<glob::Pattern>,
    /// Inputs whose files are theirs.
    pub(super) others: Vec<Other>,
    /// Paths that are left to them, said once.
    pub(super) left: HashSet<PathBuf>,
    pub(super) ready: VecDeque<FileNumber>,
    /// Files that are open.
    pub(super) open: BTreeSet<FileNumber>,
    pub(super) now: Duration,
    pub(super) next: FileNumber,
    pub(super) scans: u64,
    pub(super) scanned: Option<Duration>,
    looked: Duration,
    /// Names are said to have changed: a scan is due.
    pub(super) stale: bool,
    /// Paths that could not be read, said once.
    pub(super) troubled: HashSet<PathBuf>,
    /// Paths that lead in a circle, with the scan that found them so last; said once while it lasts.
    pub(super) circles: HashMap<PathBuf, u64>,
    pub(super) folders: Vec<PathBuf>,
    /// Files that others may be copies of.
    pub(super) originals: Originals,
}

impl<D: Disk> Machine<D> {
    /// A machine that goes on from the `known` places.
    pub fn new(disk: D, rules: Rules, limits: Limits, pool: &Pool, known: Vec<Position>) -> Machine<D> {
        Machine {
            disk,
            rules,
            limits,
            pool: pool.clone(),
            files: BTreeMap::new(),
            by_inode: HashMap::new(),
            by_path: HashMap::new(),
            gone: Known::new(known),
            looked_before: Vec::new(),
            others: Vec::new(),
            left: HashSet::new(),
            ready: VecDeque::new(),
            open: BTreeSet::new(),
            now: Duration::ZERO,
            next: 0,
            scans: 0,
            scanned: None,
            looked: Duration::ZERO,
            stale: true,
            troubled: HashSet::new(),
            circles: HashMap::new(),
            folders: Vec::new(),
            originals: Originals::default(),
        }
    }

    /// Patterns by which files were looked for in earlier runs: what they lead to now and is not known came later.
    pub fn looked_before(mut self, patterns: Vec<glob::Pattern>) -> Machine<D> {
        self.looked_before = patterns;
        self
    }

    /// Other inputs that read what they lead to, though this one's patterns lead there too.
    pub fn left_to(mut self, others: Vec<Other>) -> Machine<D> {
        self.others = others;
        self
    }

    /// The folders that the patterns lead through.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// How many files are open.
    pub fn open_files(&self) -> usize {
        self.open.len()
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
    pub(super) fn look(&mut self, number: FileNumber) {
        let Some(file) = self.files.get(&number) else { return };
        let found = self.disk.stat(&file.path).ok();
        let named = found.filter(|stat| stat.inode() == file.inode());
        if named.is_none() && file.named {
            // somebody else has its name now, or nobody; the scan finds out, and looks again
            self.stale = true;
            return;
        }
        // it lost its name, and another file has it now that nobody met
        let is_new = found.is_some_and(|stat| stat.kind == Kind::File) && self.by_path.get(&file.path) == Some(&number);
        if !file.named && is_new && self.is_wanted(&file.path) {
            self.stale = true;
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
    pub(super) fn note(&mut self, number: FileNumber, stat: &Stat) {
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
                let wait = file.flush_after(rules, &self.limits);
                !file.sure || wait.is_some_and(|wait| now >= file.active + wait)
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
        let open = self.open.iter().filter_map(|number| Some((number, self.files.get(number)?)));
        let close = open.filter(|(_, file)| !file.queued && idle(file));
        let close: Vec<FileNumber> = close.map(|(number, _)| *number).collect();
        for number in close {
            self.close(number, take);
        }
        if self.open.len() > self.rules.open_files_max {
            self.make_room(take);
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

    /// A file that cannot be read any more: what is known of it is kept for the one that may turn out to be it.
    pub(super) fn lose(&mut self, number: FileNumber, take: &mut Take<'_>) -> bool {
        let Some(mut file) = self.files.remove(&number) else { return true };
        self.open.remove(&number);
        if let Some(start) = file.start {
            self.originals.remove(start, file.identity.head, number);
        }
        if self.by_inode.get(&file.inode()) == Some(&number) {
            self.by_inode.remove(&file.inode());
        }
        if self.by_path.get(&file.path) == Some(&number) {
            self.by_path.remove(&file.path);
        }
        if !file.began {
            return true;
        }
        // what was read of a record is all there is of it
        if let Some(begun) = file.begun.take()
            && !hand_over_begun(number, &mut file, begun, take)
        {
            return false;
        }
        if file.half > 0 && file.stat.is_some() {
            let path = file.path.display();
            tracing::warn!(%path, bytes = file.half, "a file ended in a half line, which is left out");
        }
        self.gone.insert(Place { position: file.position(), file: Some(number), since: self.now });
        take(Told::Ended { file: number })
    }

    /// Closes a file; one without a name is lost with that.
    pub(super) fn close(&mut self, number: FileNumber, take: &mut Take<'_>) -> bool {
        let Some(file) = self.files.get_mut(&number) else { return true };
        if !file.named {
            return self.lose(number, take);
        }
        if let Form::Plain(open @ Some(_)) = &mut file.form {
            *open = None;
            self.open.remove(&number);
        }
        true
    }

    /// Makes room for one more open file: the one closed is of those with nothing to read the one quiet for longest.
    /// False if there is none that may be closed.
    pub(super) fn make_room(&mut self, take: &mut Take<'_>) -> bool {
        while self.open.len() >= self.rules.open_files_max {
            let open = self.open.iter().filter_map(|number| Some((number, self.files.get(number)?)));
            let plain = open.filter(|(_, file)| matches!(file.form, Form::Plain(_)));
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

    /// No more files can be opened, by anybody: the output needs some too.
    fn keep_fewer_open(&mut self) {
        let fewer = (self.open.len() / 2).max(1);
        if fewer < self.rules.open_files_max {
            self.rules.open_files_max = fewer;
            tracing::warn!(open_files_max = fewer, "no more files can be opened: fewer are kept open from now on");
        }
        self.stale = true;
    }

    /// Says that a path cannot be read, once.
    pub(super) fn trouble(&mut self, path: &Path, error: &io::Error) {
        if error.raw_os_error().is_some_and(|code| EXHAUSTED.contains(&code)) {
            return self.keep_fewer_open();
        }
        if is_circle(error) {
            if self.circles.insert(path.to_path_buf(), self.scans).is_none() {
                tracing::warn!(path = %path.display(), "leads in a circle of links; it is passed over");
            }
            return;
        }
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

    /// After how long some of what stands behind the mark is whole although nothing says so.
    pub fn flush_after(&self, rules: &Rules, limits: &Limits) -> Option<Duration> {
        let within_line = self.begun.as_ref().is_none_or(|begun| !begun.is_all);
        let waits = Waits::new(within_line, rules.idle_flush, limits);
        let record = waits.record.filter(|_| self.begun.is_some());
        let soonest = waits.all.into_iter().chain(record).min();
        soonest.filter(|_| self.half > 0)
    }

    pub fn position(&self) -> Position {
        Position { number: 0, path: self.path.clone(), identity: self.identity, mark: self.mark }
    }
}

/// How long a file has to be quiet for what stands at its end to be whole: the lines of a record that is open, and all
/// of it.
pub(super) struct Waits {
    pub record: Option<Duration>,
    pub all: Option<Duration>,
}

impl Waits {
    pub fn new(within_line: bool, idle_flush: Option<Duration>, limits: &Limits) -> Waits {
        let rule = limits.rule.as_ref();
        let line = idle_flush.map(|wait| wait.max(rule.map_or(Duration::ZERO, |rule| rule.flush_after)));
        Waits { record: rule.map(|rule| rule.wait(within_line)), all: line.filter(|_| within_line) }
    }
}
