//! Random fortunes of log files against the plain rule: each whole line that was there when files were read is told
//! exactly once, and no line is told twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use proptest::prelude::*;

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
        1 => file.clone().prop_map(Deed::CopyTruncate),
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
}

impl Model {
    /// All files that are followed are read now.
    fn all_read(&mut self) {
        self.fresh.clear();
        self.must.extend(self.files.values().flat_map(|(lines, _)| lines.iter().cloned()));
    }

    fn rename(&mut self, rig: &mut Rig, from: &str, to: &str) {
        if let Some(lines) = self.files.remove(from) {
            fs::rename(rig.at(from), rig.at(to)).unwrap();
            self.files.insert(to.to_string(), lines);
        }
    }

    fn act(&mut self, rig: &mut Rig, deed: &Deed) {
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
            Deed::CopyTruncate(file) => {
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

fn fortunes(deeds: &[Deed], open_files_max: usize) -> Result<(), TestCaseError> {
    let mut rig = Rig::new("*.log *.log.*", |rules, limits| {
        (rules.open_files_max, limits.line_bytes_max) = (open_files_max, 1 << 20);
    });
    let mut model = Model::default();
    for deed in deeds.iter().chain([&Deed::Read]) {
        model.act(&mut rig, deed);
    }
    let mut told = BTreeSet::new();
    for (_, line) in &rig.lines {
        prop_assert!(told.insert(line.clone()), "told twice: {}", &line[..line.len().min(10)]);
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
        fortunes(&deeds, open_files_max)?;
    }
}
