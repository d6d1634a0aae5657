//! Following files, on real files in a folder of its own, step by step: the time is handed in, so nothing waits.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use onceline::input::Limits;
use onceline::input::follow::disk::Real;
use onceline::input::follow::machine::{Hint, Machine, Rules, Told};
use onceline::input::follow::pattern::Paths;
use onceline::input::identity::Position;
use onceline::pool::Pool;

const SECOND: Duration = Duration::from_secs(1);

struct Rig {
    top: tempfile::TempDir,
    rules: Rules,
    limits: Limits,
    machine: Machine<Real>,
    now: Duration,
    /// Each line with the name its file was known by, in the order told.
    lines: Vec<(String, String)>,
    names: BTreeMap<u64, PathBuf>,
    /// What a run would have saved, by what it was told.
    saved: BTreeMap<u64, Position>,
    kept: Vec<Position>,
    changes: u64,
    most_open: usize,
}

fn machine(rules: &Rules, limits: Limits, known: Vec<Position>) -> Machine<Real> {
    Machine::new(Real, rules.clone(), limits, &Pool::default(), known)
}

impl Rig {
    fn new(patterns: &str, change: impl FnOnce(&mut Rules, &mut Limits)) -> Rig {
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
        let mut limits = Limits { batch_bytes: 4096, line_bytes_max: 2048 };
        change(&mut rules, &mut limits);
        let machine = machine(&rules, limits, Vec::new());
        let (names, saved) = (BTreeMap::new(), BTreeMap::new());
        let (now, lines, kept) = (SECOND, Vec::new(), Vec::new());
        Rig { top, rules, limits, machine, now, lines, names, saved, kept, changes: 0, most_open: 0 }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// One step; true if there is more to do at once.
    fn step(&mut self, hints: &[Hint]) -> bool {
        let Rig { top, lines, names, saved, kept, .. } = self;
        let mut take = |told: Told<'_>| {
            match told {
                Told::Began { file, position, was } => {
                    kept.retain(|position| Some(position) != was);
                    names.insert(file, position.path.clone());
                    assert!(saved.insert(file, position.clone()).is_none(), "a number used again");
                }
                Told::Lines { file, block, head, identity, mark } => {
                    let position = saved.get_mut(&file).expect("lines of a file that began");
                    assert_eq!(block.offset, position.mark.offset, "blocks follow one another");
                    assert!(identity.head.begins(head), "the head is of the file");
                    (position.identity, position.mark) = (identity, mark);
                    let name = names[&file].strip_prefix(top.path()).unwrap().display().to_string();
                    let text = String::from_utf8(block.bytes.to_vec()).unwrap();
                    let short = |line: &str| match block.too_long {
                        Some(long) => format!("too long: {}", long.bytes),
                        None if line.len() > 100 => format!("long: {}", line.len()),
                        None => line.to_string(),
                    };
                    lines.extend(text.lines().map(|line| (name.clone(), short(line))));
                }
                Told::Moved { file, path } => {
                    names.insert(file, path.to_path_buf());
                    saved.get_mut(&file).unwrap().path = path.to_path_buf();
                }
                Told::Ended { file } => kept.extend(saved.remove(&file)),
                Told::Forgotten { position } => kept.retain(|kept| kept != position),
            }
            true
        };
        let next = self.machine.step(self.now, hints, &mut take);
        self.most_open = self.most_open.max(self.machine.open_files());
        next <= self.now
    }

    /// Reads all there is now, as after `seconds` of polling.
    fn go(&mut self, seconds: u32) {
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

    fn restart(&mut self) {
        let mut known: Vec<Position> = std::mem::take(&mut self.saved).into_values().collect();
        known.append(&mut self.kept);
        let by = |position: &Position| (position.path.clone(), position.identity.inode, position.mark.offset);
        known.sort_by_key(by);
        let mut told = self.machine.positions();
        told.sort_by_key(by);
        assert_eq!(known, told, "what was told is what it knows");
        self.kept = known.clone();
        self.machine = machine(&self.rules, self.limits, known);
    }

    /// Disks' clocks are coarse; a change is to show although no time passes here.
    fn changed(&mut self, path: &Path) {
        self.changes += 1;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + self.changes);
        let file = OpenOptions::new().append(true).open(path).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }

    fn append(&mut self, name: &str, text: &[u8]) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        file.write_all(text).unwrap();
        self.changed(&path);
    }

    fn compress(&mut self, name: &str, zstd: bool, keep: bool) {
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
    fn act(&mut self, line: &str) {
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
            "copy" => drop(fs::copy(self.at(one), self.at(two)).unwrap()),
            "delete" => fs::remove_file(self.at(one)).unwrap(),
            "link" => fs::hard_link(self.at(one), self.at(two)).unwrap(),
            "symlink" => std::os::unix::fs::symlink(one, self.at(two)).unwrap(),
            "gzip" => self.compress(one, false, two == "keep"),
            "zstd" => self.compress(one, true, two == "keep"),
            "restart" => self.restart(),
            "go" => self.go(one.parse().unwrap_or(12)),
            "look" => self.go(1),
            "hint" => {
                let path = self.at(one);
                while self.step(&[Hint::Path(path.clone())]) {}
            }
            _ => panic!("{line}"),
        }
    }
}

/// About so many bytes of lines that differ, the first of them a KiB long.
fn lines_of_bytes(bytes: usize) -> Vec<u8> {
    let mut text = format!("{:01100}\n", 0);
    for number in 1.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&format!("line {number} of many\n"));
    }
    text.into_bytes()
}

type Change = fn(&mut Rules, &mut Limits);

const PLAIN: Change = |_, _| {};

/// Does what `script` says, and compares the lines told: each as `name@line`, or alone where it does not matter.
#[track_caller]
fn check(what: &str, patterns: &str, change: Change, script: &[&str], want: &[&str]) {
    let mut rig = Rig::new(patterns, change);
    script.iter().for_each(|line| rig.act(line));
    rig.go(12);
    let got: Vec<String> =
        rig.lines
            .iter()
            .enumerate()
            .map(|(at, (name, line))| {
                if want.get(at).is_some_and(|want| want.contains('@')) {
                    format!("{name}@{line}")
                } else {
                    line.clone()
                }
            })
            .collect();
    let same = got.iter().zip(want).take_while(|(got, want)| got == want).count();
    let shown = |all: &[String]| all[same..].iter().take(5).cloned().collect::<Vec<_>>();
    let want: Vec<String> = want.iter().map(|line| line.to_string()).collect();
    assert_eq!(shown(&got), shown(&want), "{what}: after {same} lines that are right");
}

#[test]
fn growing() {
    let all = "*.log";
    check("a file there at the start", all, PLAIN, &["append a.log 1\\n2\\n"], &["a.log@1", "a.log@2"]);
    check("one that grows", all, PLAIN, &["append a.log 1\\n", "go", "append a.log 2\\n"], &["1", "2"]);
    check("one that comes later", all, PLAIN, &["go", "append a.log 1\\n"], &["1"]);
    check("a folder that comes later", "*/x/*.log", PLAIN, &["go", "folder f/x", "append f/x/a.log 1\\n"], &["1"]);
    check("any depth", "**/*.log", PLAIN, &["append a.log 1\\n", "go", "append f/g/b.log 2\\n"], &["1", "f/g/b.log@2"]);
    check("empty at first", all, PLAIN, &["append a.log ", "go", "append a.log 1\\n"], &["1"]);
    check(
        "left out",
        "*",
        |rules, _| rules.exclude = vec![glob::Pattern::new("*.gz").unwrap()],
        &["append a.gz 1\\n", "append b.log 2\\n"],
        &["b.log@2"],
    );
    check(
        "read from the end on",
        all,
        |rules, _| rules.from_end = true,
        &["append a.log old\\nhalf", "go", "append a.log  line\\n", "append b.log new\\n"],
        &["a.log@half line", "b.log@new"],
    );
    check(
        "a saved place is before read_from",
        all,
        |rules, _| rules.from_end = true,
        &["append a.log old\\n", "go", "restart", "append a.log new\\n", "append b.log other\\n"],
        &["a.log@new"],
    );
    check("CR LF in two reads", all, PLAIN, &["append a.log 1\\r", "go", "append a.log \\n2\\r\\n"], &["1", "2"]);
    check(
        "a hint is heard at once",
        all,
        |rules, _| rules.poll_interval = 1_000_000 * SECOND,
        &["append a.log 1\\n", "look", "append a.log 2\\n", "hint a.log"],
        &["1", "2"],
    );
}

#[test]
fn half_lines() {
    let all = "*.log";
    check("waits", all, PLAIN, &["append a.log 1\\n2", "go", "append a.log 3\\n"], &["1", "23"]);
    check(
        "waits over a restart",
        all,
        PLAIN,
        &["append a.log 1\\n2", "go", "restart", "append a.log 3\\n"],
        &["1", "23"],
    );
    check("never ends", all, PLAIN, &["append a.log 1\\n2", "go"], &["1"]);
    let flush: Change = |rules, _| rules.idle_flush = Some(3 * SECOND);
    check("handed over", all, flush, &["append a.log 1\\n2", "go"], &["1", "2"]);
    check(
        "then its rest is a line",
        all,
        flush,
        &["append a.log 2", "go", "append a.log 3\\n", "restart"],
        &["2", "3"],
    );
    check(
        "not while it grows",
        all,
        flush,
        &["append a.log 1", "look", "look", "append a.log 2", "look", "look", "append a.log 3\\n"],
        &["123"],
    );
    check(
        "truncated within it",
        all,
        PLAIN,
        &["append a.log 1\\nabc", "go", "truncate a.log 2", "go", "append a.log xyz\\n"],
        &["1", "xyz"],
    );
    let long: String = "x".repeat(2052);
    let whole = format!("append a.log {long}yyyy\\n1\\n");
    check("long", all, PLAIN, &[&whole], &["long: 2056", "1"]);
    let (one, two) = (format!("append a.log {long}"), format!("append a.log {long}\\n1\\n"));
    check(
        "too long, in pieces",
        all,
        PLAIN,
        &[&one, "go", &one, "go", &one, "go", "restart", &two],
        &["too long: 8208", "1"],
    );
}

#[test]
fn rotation() {
    let all = "*.log";
    check(
        "renamed, with late lines",
        all,
        PLAIN,
        &["append a.log 1\\n", "go", "move a.log a.1", "append a.log 3\\n", "append a.1 2\\n", "go", "append a.1 4\\n"],
        &["a.log@1", "a.1@2", "a.log@3", "a.1@4"],
    );
    check(
        "renamed while stopped",
        all,
        PLAIN,
        &["append a.log 1\\n", "go", "append a.log 2\\n", "move a.log a.1", "append a.log 3\\n", "restart"],
        &["1", "a.log@3", "a.1@2"],
    );
    check(
        "a cascade within the pattern",
        "*",
        PLAIN,
        &["append a 1\\n", "go", "move a b", "append a 2\\n", "go", "move b c", "move a b", "append a 3\\n"],
        &["a@1", "a@2", "a@3"],
    );
    check(
        "renamed within the pattern, then more",
        all,
        PLAIN,
        &["append a.log 1\\n2\\n", "go", "move a.log b.log", "append b.log 3\\n"],
        &["a.log@1", "a.log@2", "b.log@3"],
    );
    check(
        "copied and truncated",
        all,
        PLAIN,
        &["append a.log 1\\n2\\n", "go", "copy a.log a.1", "truncate a.log", "append a.log 3\\n"],
        &["1", "2", "3"],
    );
    check(
        "refilled beyond the place",
        all,
        PLAIN,
        &["append a.log 1\\n", "go", "write a.log 2\\n3\\n4\\n"],
        &["1", "2", "3", "4"],
    );
    check("truncated to the same size", all, PLAIN, &["append a.log 1\\n", "go", "write a.log 2\\n"], &["1", "2"]);
    check(
        "the same size, while stopped",
        all,
        PLAIN,
        &["append a.log 1\\n", "go", "write a.log 2\\n", "restart"],
        &["1", "2"],
    );
    check(
        "a half line before a truncation is no line",
        all,
        PLAIN,
        &["append a.log abc", "go", "write a.log xyz\\n"],
        &["xyz"],
    );
    check(
        "copied within the pattern",
        "*",
        PLAIN,
        &["fill a 5000", "go", "copy a b", "go", "truncate a", "append a 1\\n"],
        &many(5000, &["1"]).iter().map(String::as_str).collect::<Vec<_>>(),
    );
    check(
        "what a truncation destroyed is read from the copy",
        "*",
        PLAIN,
        &["fill a 5000", "go", "append a 1\\n", "copy a b", "truncate a", "append a 2\\n"],
        &many(5000, &["a@2", "b@1"]).iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

/// The lines that `fill` writes, and more.
fn many(bytes: usize, more: &[&str]) -> Vec<String> {
    let text = String::from_utf8(lines_of_bytes(bytes)).unwrap();
    let first = std::iter::once("long: 1100".to_string());
    first.chain(text.lines().skip(1).map(str::to_string)).chain(more.iter().map(|line| line.to_string())).collect()
}

#[test]
fn deletion() {
    let all = "*.log";
    check(
        "read to its end while open",
        all,
        PLAIN,
        &["append a.log 1\\n", "go", "append a.log 2\\n", "delete a.log"],
        &["1", "2"],
    );
    check("created again", all, PLAIN, &["append a.log 1\\n", "go", "delete a.log", "append a.log 2\\n"], &["1", "2"]);
    check(
        "created again while stopped",
        all,
        PLAIN,
        &["append a.log 1\\n", "go", "delete a.log", "append a.log 2\\n3\\n", "restart"],
        &["1", "2", "3"],
    );
    let closed: Change = |rules, _| rules.close_after = SECOND;
    check(
        "created again when closed",
        all,
        closed,
        &["append a.log 1\\n", "go", "delete a.log", "append a.log 2\\n3\\n"],
        &["1", "2", "3"],
    );
    check(
        "created again with the same first line",
        all,
        PLAIN,
        &["append a.log head\\n1\\n", "go", "delete a.log", "append a.log head\\n2\\n"],
        &["head", "1", "head", "2"],
    );
    check("closed, then more", all, closed, &["append a.log 1\\n", "go", "append a.log 2\\n"], &["1", "2"]);
}

#[test]
fn compression() {
    let all = "*";
    for verb in ["gzip", "zstd"] {
        let pack = format!("{verb} a.1");
        check("after it was read", all, PLAIN, &["append a 1\\n2\\n", "go", "move a a.1", "go", &pack], &["1", "2"]);
        check(
            "what was not read is",
            all,
            PLAIN,
            &["append a 1\\n", "go 1", "restart", "append a 2\\n", "move a a.1", &pack],
            &["1", "2"],
        );
        check("while stopped", all, PLAIN, &["append a 1\\n", "go", "move a a.1", &pack, "restart", "go"], &["1"]);
        check("never seen before", all, PLAIN, &["append a.1 1\\n2", &pack], &["1", "2"]);
        check("then a restart", all, PLAIN, &["append a.1 1\\n", &pack, "go", "restart", "go", "restart"], &["1"]);
        check("the plain one stays", all, PLAIN, &["append a.1 1\\n", "go", &format!("{pack} keep")], &["1"]);
        check(
            "from outside",
            "a a.1.*",
            PLAIN,
            &["append a 1\\n2\\n", "go", "move a a.1", "go", &pack, "append a 3\\n"],
            &["1", "2", "3"],
        );
        check(
            "large",
            all,
            PLAIN,
            &["fill a.1 50000", "go", &pack],
            &many(50000, &[]).iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }
    check("grows for a while", all, PLAIN, &["append a 1\\n", "append b 2\\n", "gzip a keep", "go 1"], &["1", "2"]);
}

#[test]
fn links_and_likeness() {
    let all = "*.log";
    check(
        "two names",
        all,
        PLAIN,
        &["append a.log 1\\n", "link a.log b.log", "go", "append b.log 2\\n"],
        &["a.log@1", "a.log@2"],
    );
    check(
        "a link that comes later",
        all,
        PLAIN,
        &["append b.log 1\\n", "go", "link b.log a.log", "append a.log 2\\n"],
        &["b.log@1", "b.log@2"],
    );
    check(
        "a symbolic link",
        all,
        PLAIN,
        &["append a.txt 1\\n", "symlink a.txt a.log", "go", "append a.txt 2\\n"],
        &["a.log@1", "a.log@2"],
    );
    check("a link and its file", all, PLAIN, &["append b.log 1\\n", "symlink b.log a.log"], &["a.log@1"]);
    check(
        "a link that leads elsewhere later",
        all,
        PLAIN,
        &["append x 1\\n", "append y 2\\n", "symlink x a.log", "go", "delete a.log", "symlink y a.log"],
        &["1", "2"],
    );
    check(
        "the same first line",
        all,
        PLAIN,
        &["append a.log head\\n1\\n", "append b.log head\\n2\\n"],
        &["head", "1", "head", "2"],
    );
    check("the same short text", all, PLAIN, &["append a.log 1\\n", "append b.log 1\\n", "go", "restart"], &["1", "1"]);
    check(
        "a hole",
        all,
        PLAIN,
        &["append a.log 1\\n", "go", "truncate a.log", "hole a.log 9"],
        &["1", "\0\0\0\0\0\0\0\0\0after"],
    );
}

#[test]
fn many_files_with_few_open() {
    let mut rig = Rig::new("*.log", |rules, _| rules.open_files_max = 10);
    for round in 0..3 {
        for file in 0..100 {
            rig.append(&format!("{file}.log"), format!("{round}\n").as_bytes());
        }
        rig.go(if round == 1 { 1 } else { 12 });
        if round == 1 {
            rig.restart();
        }
    }
    assert_eq!(rig.lines.len(), 300);
    assert_eq!(rig.lines.iter().collect::<BTreeSet<_>>().len(), 300);
    assert_eq!(rig.most_open, 10);
}
