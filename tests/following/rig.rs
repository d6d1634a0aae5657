//! Files in a folder of its own, followed step by step.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use onceline::ack::Shared;
use onceline::input::follow::Lanes;
use onceline::input::follow::disk::Real;
use onceline::input::follow::machine::{Hint, Machine, Rules, Told};
use onceline::input::follow::pattern::Paths;
use onceline::input::identity::Position;
use onceline::input::{Limits, Ramp};
use onceline::pool::Pool;

pub const SECOND: Duration = Duration::from_secs(1);

/// What makes of what is told a place in the ledger, where everything is settled at once.
pub struct Ledger {
    lanes: Lanes,
    shared: Shared,
    saved: BTreeMap<u64, Position>,
}

impl Ledger {
    fn new(known: &[Position]) -> Ledger {
        let saved = known.iter().map(|known| (known.number, known.clone())).collect();
        Ledger { lanes: Lanes::new(known, 0), shared: Shared::default(), saved }
    }

    /// Says that it goes on.
    fn hear(&mut self, told: Told<'_>) -> bool {
        let Ledger { lanes, shared, saved } = self;
        let goes_on = lanes.hear(told, shared, &mut |draft| {
            let ledger = &mut shared.lock().1;
            ledger.open(draft.partition, draft.number, draft.block.offset..draft.block.offset);
            ledger.settle(draft.partition, draft.number, draft.file.zip(draft.block.mark));
            true
        });
        assert!(goes_on);
        let moves = shared.lock().1.take_moved();
        moves.forgotten.iter().for_each(|number| drop(saved.remove(number)));
        saved.extend(moves.positions.into_iter().map(|position| (position.number, position)));
        true
    }

    pub fn partitions(&self) -> usize {
        self.shared.lock().1.partitions()
    }

    pub fn files(&self) -> usize {
        self.lanes.files()
    }

    pub fn saved(&self) -> usize {
        self.saved.len()
    }
}

pub struct Rig {
    pub top: tempfile::TempDir,
    pub rules: Rules,
    pub limits: Limits,
    pub machine: Machine<Real>,
    pub now: Duration,
    /// Each line with the name its file was known by, in the order told.
    pub lines: Vec<(String, String)>,
    pub names: BTreeMap<u64, PathBuf>,
    /// What a run would have saved, by what it was told.
    pub saved: BTreeMap<u64, Position>,
    pub kept: Vec<Position>,
    pub lanes: Ledger,
    pub changes: u64,
    pub most_open: usize,
}

fn machine(rules: &Rules, limits: Limits, known: Vec<Position>) -> Machine<Real> {
    Machine::new(Real, rules.clone(), limits, &Pool::default(), known)
}

impl Rig {
    pub fn new(patterns: &str, change: impl FnOnce(&mut Rules, &mut Limits)) -> Rig {
        let top = tempfile::tempdir().unwrap();
        let full = |pattern: &str| format!("{}/{pattern}", top.path().display());
        let patterns: Vec<String> = patterns.split(' ').map(full).collect();
        let mut rules = Rules {
            paths: patterns.iter().map(|p| Paths::parse(p).unwrap()).collect(),
            patterns: patterns.iter().map(|p| glob::Pattern::new(p).unwrap()).collect(),
            exclude: Vec::new(),
            from_end: false,
            poll_interval: SECOND,
            open_files_max: 512,
            close_after: 300 * SECOND,
            idle_flush: None,
        };
        let mut limits = Limits { batch_bytes: 4096, line_bytes_max: 2048, rule: None, ramp: Ramp::from(64) };
        change(&mut rules, &mut limits);
        let machine = machine(&rules, limits.clone(), Vec::new());
        let (names, saved) = (BTreeMap::new(), BTreeMap::new());
        let (now, lines, kept) = (SECOND, Vec::new(), Vec::new());
        let lanes = Ledger::new(&[]);
        Rig { top, rules, limits, machine, now, lines, names, saved, kept, lanes, changes: 0, most_open: 0 }
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// Whether a place in the file of that name was saved, other than its beginning.
    pub fn knows_something_of(&self, name: &str) -> bool {
        let (inode, text) = (self.inode(name), fs::read(self.at(name)).unwrap_or_default());
        let heads = self.kept.iter().map(|saved| saved.identity).filter(|known| Some(known.inode) == inode);
        heads.map(|known| known.head).any(|head| head.bytes > 0 && head.begins(&text))
    }

    fn inode(&self, name: &str) -> Option<u64> {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(self.at(name)).ok().map(|meta| meta.ino())
    }

    /// One step; true if there is more to do at once.
    pub fn step(&mut self, hints: &[Hint]) -> bool {
        let Rig { top, lines, names, saved, kept, lanes, limits, .. } = self;
        let mut take = |told: Told<'_>| {
            match &told {
                Told::Began { file, position, was, after } => {
                    assert!(after.is_none_or(|after| after < *file), "what is not known yet");
                    kept.retain(|position| was.is_none_or(|was| *position != was.position));
                    names.insert(*file, position.path.clone());
                    assert!(saved.insert(*file, (*position).clone()).is_none(), "a number used again");
                }
                Told::Lines { file, block, head, identity, mark, .. } => {
                    let position = saved.get_mut(file).expect("lines of a file that began");
                    assert_eq!(block.offset, position.mark.offset, "blocks follow one another");
                    assert!(identity.head.begins(head), "the head is of the file");
                    (position.identity, position.mark) = (**identity, **mark);
                    let name = names[file].strip_prefix(top.path()).unwrap().display().to_string();
                    let text = String::from_utf8(block.bytes.to_vec()).unwrap();
                    let short = |line: &str| match block.too_long {
                        Some(long) => format!("too long: {}", long.bytes),
                        None if line.len() > 100 => {
                            format!("{}long {}", &line[..line.find(':').map_or(0, |at| at + 1)], line.len())
                        }
                        None => line.to_string(),
                    };
                    if limits.rule.is_none() || block.too_long.is_some() {
                        lines.extend(text.lines().map(|line| (name.clone(), short(line))));
                        return lanes.hear(told);
                    }
                    let mut records = Vec::new();
                    limits.cutting().cut(block, &mut records);
                    let texts =
                        records.iter().map(|record| &text[record.span.start as usize..][..record.span.len as usize]);
                    let joined = |text: &str| text.split('\n').map(short).collect::<Vec<_>>().join("+");
                    lines.extend(texts.map(|text| (name.clone(), joined(text))));
                }
                Told::Moved { file, path } => {
                    names.insert(*file, path.to_path_buf());
                    saved.get_mut(file).unwrap().path = path.to_path_buf();
                }
                Told::Ended { file } => kept.extend(saved.remove(file)),
                Told::Forgotten { place } => kept.retain(|kept| *kept != place.position),
                Told::Looked { .. } => {}
            }
            lanes.hear(told)
        };
        let next = self.machine.step(self.now, hints, &mut take);
        self.most_open = self.most_open.max(self.machine.open_files());
        next <= self.now
    }

    /// Reads all there is now, as after `seconds` of polling.
    pub fn go(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.now += SECOND;
            for steps in 0.. {
                assert!(steps < 10_000, "it comes to no end");
                if !self.step(&[]) {
                    break;
                }
            }
        }
    }

    pub fn restart(&mut self) {
        let mut known: Vec<Position> = std::mem::take(&mut self.saved).into_values().collect();
        known.append(&mut self.kept);
        let by = |position: &Position| (position.path.clone(), position.identity.inode, position.mark.offset);
        known.sort_by_key(by);
        let mut told = self.machine.positions();
        told.sort_by_key(by);
        assert_eq!(known, told, "what was told is what it knows");
        // the next run knows what is saved
        let saved: Vec<Position> = std::mem::take(&mut self.lanes.saved).into_values().collect();
        for position in known.iter().filter(|known| known.mark.offset > 0) {
            assert!(saved.iter().any(|saved| saved.is_same(position)), "not saved: {position:?} in {saved:?}");
        }
        let known = saved;
        self.lanes = Ledger::new(&known);
        self.kept = known.clone();
        self.machine = machine(&self.rules, self.limits.clone(), known);
    }

    /// Disks' clocks are coarse; a change is to show although no time passes here.
    pub fn changed(&mut self, path: &Path) {
        self.changes += 1;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + self.changes);
        let file = OpenOptions::new().append(true).open(path).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }

    pub fn append(&mut self, name: &str, text: &[u8]) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        file.write_all(text).unwrap();
        self.changed(&path);
    }

    pub fn compress(&mut self, name: &str, zstd: bool, keep: bool) {
        let text = fs::read(self.at(name)).unwrap();
        let (end, packed) = if zstd {
            ("zst", zstd::encode_all(&text[..], 3).unwrap())
        } else {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&text).unwrap();
            ("gz", encoder.finish().unwrap())
        };
        self.append(&format!("{name}.{end}"), &packed);
        if !keep {
            fs::remove_file(self.at(name)).unwrap();
        }
    }

    /// Does what a line says: `append NAME TEXT`, `move NAME NAME`, `go`, and so on.
    pub fn act(&mut self, line: &str) {
        let mut words = line.splitn(3, ' ');
        let (verb, one, two) =
            (words.next().unwrap(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let text = two.replace("\\n", "\n").replace("\\r", "\r").replace("\\0", "\0");
        match verb {
            "append" => self.append(one, text.as_bytes()),
            "fill" => self.append(one, &lines_of_bytes(two.parse().unwrap())),
            "write" => {
                fs::write(self.at(one), &text).unwrap();
                self.changed(&self.at(one));
            }
            "hole" => {
                let file = OpenOptions::new().write(true).open(self.at(one)).unwrap();
                file.write_all_at(b"after\n", two.parse().unwrap()).unwrap();
                self.changed(&self.at(one));
            }
            "truncate" => {
                File::options().write(true).open(self.at(one)).unwrap().set_len(two.parse().unwrap_or(0)).unwrap();
                self.changed(&self.at(one));
            }
            "folder" => fs::create_dir_all(self.at(one)).unwrap(),
            "move" => fs::rename(self.at(one), self.at(two)).unwrap(),
            // more of a copy: up to so many bytes, or all there is
            "part" => {
                let (to, bytes) = two.split_once(' ').unwrap_or((two, ""));
                let (text, done) = (fs::read(self.at(one)).unwrap(), fs::read(self.at(to)).map_or(0, |it| it.len()));
                let end = bytes.parse().map_or(text.len(), |bytes: usize| bytes.min(text.len()));
                self.append(to, &text[done..end.max(done)]);
            }
            "copy" => drop(fs::copy(self.at(one), self.at(two)).unwrap()),
            "delete" => fs::remove_file(self.at(one)).unwrap(),
            "link" => fs::hard_link(self.at(one), self.at(two)).unwrap(),
            "symlink" => std::os::unix::fs::symlink(one, self.at(two)).unwrap(),
            "gzip" => self.compress(one, false, two == "keep"),
            "zstd" => self.compress(one, true, two == "keep"),
            "restart" => self.restart(),
            "go" => self.go(one.parse().unwrap_or(12)),
            "look" => self.go(1),
            // a second later something is said to have changed
            "see" => {
                self.now += SECOND;
                let path = self.at(one);
                while self.step(&[Hint::Path(path.clone())]) {}
            }
            "hint" => {
                let path = self.at(one);
                while self.step(&[Hint::Path(path.clone())]) {}
            }
            _ => panic!("{line}"),
        }
    }
}

/// About so many bytes of lines that differ, the first of them a KiB long.
pub fn lines_of_bytes(bytes: usize) -> Vec<u8> {
    let mut text = format!("{:01100}\n", 0);
    for number in 1.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&format!("line {number} of many\n"));
    }
    text.into_bytes()
}
