//! Folders of `tests/golden/pipelines`: what `explain` says of the input is `out.ndjson` (`UPDATE=1` writes it anew),
//! and what `run` stores is what `explain` said.
//!
//! Comments of a pipeline file: `# args: …` are arguments of the command line; `# id: REGEX` says that ids are random
//! and what they look like.

use std::collections::BTreeMap;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use super::rig::{Onceline, Run};
use super::{folder, json, update};

struct Folder {
    name: String,
    onceline: Onceline,
    input: Vec<u8>,
    /// What random ids look like.
    random: Option<Regex>,
    is_create: bool,
}

impl Folder {
    fn open(path: &Path) -> Folder {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let pipeline = std::fs::read_to_string(path.join("pipeline.toml")).expect("a pipeline");
        let input = std::fs::read(path.join("in.log")).or_else(|_| std::fs::read(path.join("in.bin"))).expect("input");
        let said = |what: &str| pipeline.lines().find_map(|line| line.strip_prefix(what)).map(str::trim);
        let args: Vec<&str> = said("# args:").unwrap_or_default().split_whitespace().collect();
        let random = said("# id:").map(|pattern| Regex::new(&format!("^(?:{pattern})$")).expect("a pattern"));
        let is_create = pipeline.contains("action = \"create\"");
        Folder { name, onceline: Onceline::new(&pipeline).args(&args), input, random, is_create }
    }

    /// The lines of `explain`, with `ID` for ids that are random and look as they must.
    fn explained(&self) -> String {
        let lines = self.onceline.explain_text(&self.input);
        let Some(random) = &self.random else { return lines };
        let hide = |line: &str| {
            let id = json(line.as_bytes())["id"].clone();
            let Some(id) = id.as_str() else { return format!("{line}\n") };
            assert!(random.is_match(id), "{}: {id}", self.name);
            format!("{}\n", line.replace(id, "ID"))
        };
        lines.lines().map(hide).collect()
    }

    /// What is to be found after `runs` runs over events of which `explain` says `lines`.
    fn expected(&self, lines: &[Value], runs: i64) -> BTreeMap<(String, String), (i64, Value)> {
        let mut docs = BTreeMap::new();
        for line in lines.iter().filter(|line| line["outcome"] == "deliver") {
            let key = (text(&line["index"]), text(&line["id"]));
            let (version, source) = docs.entry(key).or_insert((0, Value::Null));
            if !self.is_create {
                *version += runs;
            } else if *version == 0 {
                *version = 1;
            } else {
                continue;
            }
            *source = line["event"].clone();
        }
        docs
    }

    fn stored(&self) -> BTreeMap<(String, String), (i64, Value)> {
        let rows = self.onceline.rows("out.sqlite").into_iter();
        rows.map(|row| ((row.index, row.id), (row.version, row.source))).collect()
    }

    fn check_run(&self, lines: &[Value], number: i64) {
        let run = self.onceline.run(&self.input).settled();
        let count = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).count() as u64;
        let want = self.expected(lines, number);
        let delivered = count("deliver");
        let new = if number == 1 { want.len() as u64 } else { 0 };
        let got = run.counts(["events_in", "created", "duplicates", "dropped", "dead_lettered"]);
        let all = lines.len() as u64;
        assert_eq!(got, [all, new, delivered - new, count("drop"), count("dead-letter")], "{} run {number}", self.name);
        assert_eq!(self.stored(), want, "{} run {number}", self.name);
        self.check_letters(&run, lines, number);
    }

    fn check_random_run(&self, lines: &[Value]) {
        for number in 1..=2 {
            let run = self.onceline.run(&self.input).settled();
            let delivered: Vec<_> = lines.iter().filter(|line| line["outcome"] == "deliver").collect();
            assert_eq!(run.counts(["created", "duplicates"]), [delivered.len() as u64, 0], "{}", self.name);
            let mut want: Vec<_> =
                delivered.iter().map(|line| (text(&line["index"]), line["event"].to_string())).collect();
            want = std::iter::repeat_n(want, number).flatten().collect();
            let rows = self.onceline.rows("out.sqlite");
            assert!(
                rows.iter().all(|row| self.random.as_ref().is_some_and(|r| r.is_match(&row.id)) && row.version == 1)
            );
            let mut got: Vec<_> = rows.into_iter().map(|row| (row.index, row.source.to_string())).collect();
            want.sort();
            got.sort();
            assert_eq!(got, want, "{} run {number}", self.name);
        }
    }

    /// Dead letters of run `number`: those that `explain` foretold, in its order.
    fn check_letters(&self, run: &Run, lines: &[Value], number: i64) {
        let seen = |line: &Value| (line["reason"].clone(), line["detail"].clone());
        let mut foretold: Vec<_> = lines.iter().filter(|line| line["outcome"] == "dead-letter").map(seen).collect();
        foretold = std::iter::repeat_n(foretold, number as usize).flatten().collect();
        let written: Vec<_> = run.dead_letters.iter().map(seen).collect();
        assert_eq!(written, foretold, "{}", self.name);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn check(path: &Path) -> Result<(), String> {
    let folder = Folder::open(path);
    let got = folder.explained();
    let golden = path.join("out.ndjson");
    let want = std::fs::read_to_string(&golden).unwrap_or_default();
    if update() {
        std::fs::write(&golden, &got).expect("a writable folder");
    } else if got != want {
        return Err(format!("--- {} is\n{want}--- and should not have become\n{got}", folder.name));
    }
    let lines: Vec<Value> = got.lines().map(|line| json(line.as_bytes())).collect();
    if folder.random.is_some() {
        folder.check_random_run(&lines);
    } else {
        folder.check_run(&lines, 1);
        folder.check_run(&lines, 2);
    }
    Ok(())
}

#[test]
fn explain_says_what_is_committed_and_run_stores_what_explain_says() {
    let entries = std::fs::read_dir(folder().join("golden/pipelines")).expect("the folder");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= 12, "golden pipelines are missing");
    let differing: Vec<String> = paths.iter().filter_map(|path| check(path).err()).collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
