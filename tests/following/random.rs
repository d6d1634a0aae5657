//! Random fortunes of log files against the plain rule: each whole line that was there when files were read is told
//! exactly once, and no line is told twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;

use onceline::codec::rule::{Neighbour, Rule};
use onceline::regexp::OfLine;
use proptest::prelude::*;

use super::joined;
use super::rig::Rig;

#[derive(Clone, Debug)]
enum Deed {
    /// Lines of a file, of so many bytes each, perhaps after a common first line; the last one perhaps half.
    Append {
        file: u8,
        lines: u8,
        bytes: u16,
        half: bool,
    },
    /// `x.log` to `x.log.1`, what was there to `x.log.2`, and so on.
    Rotate(u8),
    /// To a name that no pattern leads to.
    MoveAway(u8),
    CopyTruncate(u8),
    /// Some of a copy within the pattern, of what was read of a KiB at least; that copy is finished by `CopyTruncate`.
    CopySome(u8, u16),
    Delete(u8),
    /// The rotated file, if there is one.
    Compress(u8, bool),
    Restart,
    Read,
    /// Only one step.
    Step,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let file = 0..3u8;
    let deed = prop_oneof![
        6 => (file.clone(), 1..4u8, prop_oneof![Just(20u16), Just(300), Just(1500)], prop::bool::weighted(0.2))
            .prop_map(|(file, lines, bytes, half)| Deed::Append { file, lines, bytes, half }),
        2 => file.clone().prop_map(Deed::Rotate),
        1 => file.clone().prop_map(Deed::MoveAway),
        2 => file.clone().prop_map(Deed::CopyTruncate),
        2 => (file.clone(), prop_oneof![Just(0u16), 1024..4000u16]).prop_map(|(file, bytes)| Deed::CopySome(file, bytes)),
        1 => file.clone().prop_map(Deed::Delete),
        2 => (file, any::<bool>()).prop_map(|(file, zstd)| Deed::Compress(file, zstd)),
        2 => Just(Deed::Restart),
        4 => Just(Deed::Read),
        1 => Just(Deed::Step),
    ];
    prop::collection::vec(deed, 1..40)
}

/// What there is, and what must have been told.
#[derive(Default)]
struct Model {
    written: u64,
    /// The whole lines of each name, and the half one behind them.
    files: BTreeMap<String, (Vec<String>, String)>,
    must: BTreeSet<String>,
    /// Files that began anew since the last reading: if they get a name then that no pattern leads to, nothing shows
    /// that they are followed.
    fresh: BTreeSet<String>,
    moved: u32,
    /// How many bytes of whole lines were there when files were read.
    read: BTreeMap<String, usize>,
    /// Copies that are being made, and how often files were read meanwhile: one that rests for a minute is whole.
    copies: BTreeMap<String, (String, u32)>,
}

impl Model {
    /// All files that are followed are read now.
    fn all_read(&mut self) {
        self.fresh.clear();
        let bytes = |lines: &[String]| lines.iter().map(|line| line.len() + 1).sum();
        self.read = self.files.iter().map(|(name, (lines, _))| (name.clone(), bytes(lines))).collect();
        self.copies.values_mut().for_each(|(_, rested)| *rested += 1);
        self.must.extend(self.files.values().flat_map(|(lines, _)| lines.iter().cloned()));
    }

    fn rename(&mut self, rig: &mut Rig, from: &str, to: &str) {
        if let Some(lines) = self.files.remove(from) {
            fs::rename(rig.at(from), rig.at(to)).unwrap();
            self.files.insert(to.to_string(), lines);
        }
    }

    /// Begins a copy, or goes on with it, up to so many bytes.
    fn copy_some(&mut self, rig: &mut Rig, name: &str, bytes: usize) {
        let copy = format!("{name}.copy{}", self.moved);
        if !self.copies.contains_key(name) {
            if self.read.get(name).is_none_or(|read| *read < 1024) || !self.files.contains_key(name) {
                return;
            }
            self.moved += 1;
            rig.append(&copy, b"");
            self.copies.insert(name.to_string(), (copy, 0));
        }
        if let Some((copy, rested)) = self.copies.get_mut(name) {
            rig.act(&format!("part {name} {copy} {bytes}"));
            *rested = 0;
        }
    }

    /// A copy is given up before something else becomes of the file.
    fn give_up_copies(&mut self, rig: &Rig, deed: &Deed) {
        let name = match deed {
            Deed::Rotate(file) | Deed::MoveAway(file) | Deed::Delete(file) => Some(format!("{file}.log")),
            _ => None,
        };
        let over = self.copies.iter().filter(|(of, (_, rested))| name.as_ref() == Some(*of) || *rested > 3);
        for of in over.map(|(of, _)| of.clone()).collect::<Vec<_>>() {
            if let Some((copy, _)) = self.copies.remove(&of) {
                fs::remove_file(rig.at(&copy)).unwrap();
            }
        }
        if let Some(name) = name {
            self.read.remove(&name);
        }
    }

    fn act(&mut self, rig: &mut Rig, deed: &Deed) {
        self.give_up_copies(rig, deed);
        let name = |file: &u8| format!("{file}.log");
        match deed {
            Deed::Append { file, lines, bytes, half } => {
                if !self.files.contains_key(&name(file)) {
                    self.fresh.insert(name(file));
                }
                let (whole, open) = self.files.entry(name(file)).or_default();
                let mut text = String::new();
                for line in 0..*lines {
                    self.written += 1;
                    let number = self.written;
                    text.push_str(&format!("{number}:{}", "x".repeat(usize::from(*bytes))));
                    let is_half = *half && line + 1 == *lines;
                    open.push_str(&text[text.rfind('\n').map_or(0, |at| at + 1)..]);
                    if !is_half {
                        text.push('\n');
                        whole.push(std::mem::take(open));
                    }
                }
                rig.append(&name(file), text.as_bytes());
            }
            Deed::Rotate(file) => {
                let name = name(file);
                for (from, to) in [(".1", ".2"), ("", ".1")] {
                    // what is to go there goes away
                    if self.files.contains_key(&format!("{name}{from}"))
                        && self.files.remove(&format!("{name}{to}")).is_some()
                    {
                        fs::remove_file(rig.at(&format!("{name}{to}"))).unwrap();
                    }
                    self.rename(rig, &format!("{name}{from}"), &format!("{name}{to}"));
                }
            }
            Deed::MoveAway(file) => {
                self.moved += 1;
                let to = format!("moved.{}", self.moved);
                self.rename(rig, &name(file), &to);
                if self.fresh.remove(&name(file)) {
                    self.files.remove(&to);
                }
            }
            Deed::CopySome(file, bytes) => self.copy_some(rig, &name(file), usize::from(*bytes)),
            Deed::CopyTruncate(file) if self.copies.contains_key(&name(file)) => {
                self.copy_some(rig, &name(file), usize::MAX);
                rig.act(&format!("truncate {}", name(file)));
                self.read.remove(&name(file));
                let copied = self.files.remove(&name(file)).zip(self.copies.remove(&name(file)));
                if let Some((lines, (copy, _))) = copied {
                    self.files.insert(copy, lines);
                    self.files.entry(name(file)).or_default();
                    self.fresh.insert(name(file));
                }
            }
            Deed::CopyTruncate(file) => {
                self.read.remove(&name(file));
                if let Some((lines, half)) = self.files.get_mut(&name(file)) {
                    self.fresh.insert(name(file));
                    lines.clear();
                    half.clear();
                    self.moved += 1;
                    fs::copy(rig.at(&name(file)), rig.at(&format!("moved.{}", self.moved))).unwrap();
                    rig.act(&format!("truncate {}", name(file)));
                }
            }
            Deed::Delete(file) => {
                if self.files.remove(&name(file)).is_some() {
                    fs::remove_file(rig.at(&name(file))).unwrap();
                }
            }
            Deed::Compress(file, zstd) => {
                let name = format!("{}.1", name(file));
                let end = if *zstd { "zst" } else { "gz" };
                let packed = format!("{name}.{end}");
                if let Some((mut lines, half)) = self.files.remove(&name) {
                    if self.files.remove(&packed).is_some() {
                        fs::remove_file(rig.at(&packed)).unwrap();
                    }
                    rig.compress(&name, *zstd, false);
                    // a compressed file grows no more: its last line is whole
                    lines.extend(Some(half).filter(|half| !half.is_empty()));
                    self.files.insert(packed, (lines, String::new()));
                }
            }
            Deed::Restart => {
                rig.restart();
                // of what was not read at all nothing is known, so under another name nobody finds it
                self.files.retain(|name, _| !name.starts_with("moved.") || rig.knows_something_of(name));
                self.fresh.extend(self.files.keys().filter(|name| !rig.knows_something_of(name)).cloned());
            }
            Deed::Read => {
                rig.go(12);
                self.all_read();
            }
            Deed::Step => drop(rig.step(&[])),
        }
    }
}

fn fortunes(deeds: &[Deed], open_files_max: usize, rule: Option<Arc<Rule>>) -> Result<(), TestCaseError> {
    let mut rig = Rig::new("*.log *.log.*", |rules, limits| {
        (rules.open_files_max, limits.line_bytes_max, limits.rule) = (open_files_max, 1 << 20, rule);
    });
    let mut model = Model::default();
    for deed in deeds.iter().chain([&Deed::Read]) {
        model.act(&mut rig, deed);
    }
    let mut told = BTreeSet::new();
    for line in rig.lines.iter().flat_map(|(_, record)| record.split('+')) {
        prop_assert!(told.insert(line.to_string()), "told twice: {}", &line[..line.len().min(10)]);
    }
    for line in &model.must {
        let line = if line.len() > 100 {
            format!("{}:long {}", line.split(':').next().unwrap(), line.len())
        } else {
            line.clone()
        };
        prop_assert!(told.contains(&line), "not told: {line}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("PROPTEST_CASES").map_or(300, |cases| cases.parse().unwrap()), ..ProptestConfig::default() })]
    #[test]
    fn each_line_is_told_once(deeds in deeds(), open_files_max in prop_oneof![Just(1usize), Just(2), Just(512)]) {
        fortunes(&deeds, open_files_max, None)?;
    }

    /// As lines of records: those with an odd number go on the line before. A record waits for the end of a line that
    /// was begun, so there is none.
    #[test]
    fn each_line_of_a_record_is_told_once(
        mut deeds in deeds(),
        open_files_max in prop_oneof![Just(1usize), Just(2), Just(512)],
        next in any::<bool>(),
    ) {
        for deed in &mut deeds {
            match deed {
                Deed::Append { half, .. } => *half = false,
                // a file is opened once more to hand its record over: with few open ones another one is closed for
                // that, and of one that is deleted by then a copy under way is not known to be one
                Deed::CopySome(..) if open_files_max < 512 => *deed = Deed::Read,
                _ => {}
            }
        }
        let what = if next { Neighbour::Next } else { Neighbour::Previous };
        let rule = Rule { bytes_max: 4000, pattern: OfLine::parse(r"^\d*[13579]:").unwrap(), what, ..joined() };
        fortunes(&deeds, open_files_max, Some(Arc::new(rule)))?;
    }
}
