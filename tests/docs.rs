//! The documentation against the code: pipelines that are shown can be read, every key and every reason is
//! described, and links lead somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use onceline::ack::Reason;
use onceline::config::Report;
use onceline::pipeline::check;
use onceline::pipeline::read::{self, Options, Plan};

type Names = BTreeSet<String>;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a folder that end so, sorted.
fn files(folder: &str, end: &str) -> Vec<PathBuf> {
    let pattern = top().join(folder).join("**").join(format!("*{end}"));
    let mut files: Vec<PathBuf> = glob::glob(&pattern.to_string_lossy()).unwrap().map(Result::unwrap).collect();
    files.sort();
    assert!(!files.is_empty(), "no {end} in {folder}");
    files
}

/// Every page that users read.
fn pages() -> Vec<PathBuf> {
    let mut pages = files("docs", ".md");
    pages.extend(["README.md", "CHANGELOG.md", "engines/README.md"].map(|page| top().join(page)));
    pages
}

fn shown(path: &Path) -> String {
    path.strip_prefix(top()).unwrap_or(path).display().to_string()
}

fn read(name: &str, pipeline: &str) -> (Option<Plan>, Report) {
    let options = Options { once: true, ..Options::default() };
    // variables have their defaults, and those without one a text
    let env = |name: &str| pipeline.contains(&format!("${{{name}}}")).then(|| "test".to_string());
    read::read(Path::new(name), pipeline.as_bytes(), &options, &env)
}

/// A block of code: where it stands, what is written behind its fence, and its text.
struct Block {
    place: String,
    kind: String,
    text: String,
}

/// The blocks of a page, or of a module's documentation.
fn blocks(path: &Path) -> Vec<Block> {
    let text = text(path);
    let is_rust = path.extension().is_some_and(|end| end == "rs");
    let doc = |line: &str| line.trim_start().strip_prefix("//!").map(|l| l.strip_prefix(' ').unwrap_or(l).to_string());
    let lines = text.lines().map(|line| if is_rust { doc(line) } else { Some(line.to_string()) });
    let (mut blocks, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
    for (number, line) in lines.enumerate() {
        let Some(line) = line else { continue };
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(kind), None) => {
                let place = format!("{}:{}", shown(path), number + 1);
                open = Some(Block { place, kind: kind.to_string(), text: String::new() });
            }
            (None, Some(mut block)) => {
                block.text.push_str(&line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block without an end", path.display());
    blocks
}

/// The block with what it lacks of a pipeline.
fn completed(block: &str) -> String {
    let has = |header: &str| block.lines().any(|line| line.starts_with(header));
    let mut out = block.to_string();
    for (header, section) in [
        ("[[input]]", "[[input]]\ntype = \"stdin\"\n"),
        ("[id]", "[id]\nscheme = \"hash\"\nmethod = \"SHA256\"\n"),
        ("[index]", "[index]\nname = \"stub\"\n"),
        ("[output", "[output]\ntype = \"stdout\"\n"),
    ] {
        if !has(header) {
            out.push_str(section);
        }
    }
    out
}

#[test]
fn pipelines_that_are_shown_can_be_read() {
    let mut count = 0;
    for path in pages().into_iter().chain(files("src", ".rs")) {
        for block in blocks(&path) {
            let is_wrong = match block.kind.as_str() {
                "toml" => false,
                "toml wrong" => true,
                _ => continue,
            };
            count += 1;
            let (plan, report) = read(&block.place, &completed(&block.text));
            let said = report.render(false);
            assert_eq!(plan.is_none(), is_wrong, "{}\n{said}", block.place);
            assert_eq!(report.is_empty(), !is_wrong, "{}\n{said}", block.place);
        }
    }
    assert!(count > 20, "only {count} blocks found");
}

#[test]
fn every_example_is_a_good_pipeline_that_says_what_it_shows() {
    for path in files("pipelines", ".toml") {
        let pipeline = text(&path);
        let (plan, report) = read(&shown(&path), &pipeline);
        let plan = plan.unwrap_or_else(|| panic!("{}", report.render(false)));
        assert!(report.is_empty(), "{}", report.render(false));
        assert!(check::describe(&path, &plan).contains(": good\n"), "{}", path.display());
        assert!(pipeline.starts_with("# "), "{} begins with no comment", path.display());
        let name = shown(&path);
        assert!(pipeline.contains(&name), "{name} does not say how it is run");
    }
}

/// What is allowed where `pipeline` has something that is not, by what is wrong with it.
fn allowed(pipeline: &str, wrong: &str) -> Names {
    let (_, report) = read("probe", pipeline);
    let found = report.problems().iter().find(|problem| problem.message.contains(wrong));
    let found = found.unwrap_or_else(|| panic!("nothing says `{wrong}`:\n{pipeline}\n{}", report.render(false)));
    found.help.allowed.iter().cloned().collect()
}

/// The keys of a section written as `header` and `body`.
fn keys(header: &str, body: &str) -> Names {
    let pipeline = format!("{header}\n{body}\nnot_a_key = 1\n");
    allowed(&completed(&pipeline), "unknown key `not_a_key`")
}

/// The names that `key` can take in a section.
fn kinds(header: &str, key: &str) -> Names {
    allowed(&completed(&format!("{header}\n{key} = \"not-a-kind\"\n")), "not-a-kind")
}

/// What a kind needs before its other keys are looked at.
fn required(kind: &str) -> &'static str {
    match kind {
        "sqlite" => "path = \"a.sqlite\"",
        "hash" | "time-hash" | "compact" => "method = \"SHA256\"",
        "field" => "field = \"%{a}\"",
        "file" => "paths = \"a\"",
        "cidr" => "address = \"a\"\nnetwork = \"::/0\"",
        "date" => "match = [\"a\", \"ISO8601\"]",
        "grok" => "match = { a = 'b' }",
        "json" => "source = \"a\"",
        "geoip" => "source = \"a\"\ndatabase = \"a\"",
        "useragent" => "source = \"a\"\nregexes = \"a\"",
        "multiline" => "pattern = \"a\"\nwhat = \"next\"",
        _ => "",
    }
}

/// Every section of a pipeline file but filters, with its keys, as the reader knows them.
fn known() -> BTreeMap<&'static str, Names> {
    let mut known: BTreeMap<&str, Names> = BTreeMap::new();
    for (name, header, key) in [("[[input]]", "[[input]]", "type"), ("[output]", "[output]", "type")] {
        for kind in kinds(header, key) {
            let body = format!("{key} = \"{kind}\"\n{}", required(&kind));
            known.entry(name).or_default().extend(keys(header, &body));
        }
    }
    for kind in kinds("[id]", "scheme") {
        // ids that cannot be found again are for indices that are not strict
        let pipeline = format!(
            "[index]\nname = \"a\"\nstrict = false\n[id]\nscheme = \"{kind}\"\n{}\nnot_a_key = 1\n",
            required(&kind)
        );
        known.entry("[id]").or_default().extend(allowed(&completed(&pipeline), "unknown key `not_a_key`"));
    }
    for kind in kinds("[[input]]\ntype = \"stdin\"\n[input.codec]", "type") {
        let header = "[[input]]\ntype = \"stdin\"\n[input.codec]";
        known.entry("codec").or_default().extend(keys(header, &format!("type = \"{kind}\"\n{}", required(&kind))));
    }
    let engine = "[output]\ntype = \"elasticsearch\"\n";
    known.insert("[index]", keys("[index]", "name = \"a\""));
    known.insert("[output.tls]", keys(&format!("{engine}[output.tls]"), ""));
    known.insert("[output.template]", keys(&format!("{engine}[output.template]"), ""));
    known.insert("[[test]]", keys("[[test]]", "input = \"a\""));
    for section in ["[time]", "[dead_letter]", "[state]", "[tuning]"] {
        known.insert(section, keys(section, ""));
    }
    known
}

/// The names in backticks at the head of each row of a page's tables, by the first name in the heading above.
fn described(page: &Path) -> BTreeMap<String, Names> {
    let mut described: BTreeMap<String, Names> = BTreeMap::new();
    let mut heading = String::new();
    for line in text(page).lines() {
        if line.starts_with('#') {
            heading = in_backticks(line).into_iter().next().unwrap_or_default();
        } else if let Some(row) = line.strip_prefix("| `") {
            let (cell, _) = row.split_once(" | ").unwrap_or((row, ""));
            described.entry(heading.clone()).or_default().extend(in_backticks(&format!("`{cell}")));
        }
    }
    described
}

fn in_backticks(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

#[test]
fn every_key_of_a_pipeline_file_is_described_and_no_other() {
    let described = described(&top().join("docs/pipeline-file.md"));
    let known = known();
    for (section, keys) in &known {
        let (none, page) = (Names::new(), "docs/pipeline-file.md");
        assert_eq!(described.get(*section).unwrap_or(&none), keys, "left: {page}, right: the reader, of {section}");
    }
    for section in allowed("not_a_key = 1\n", "unknown key `not_a_key`") {
        let (table, tables) = (format!("[{section}]"), format!("[[{section}]]"));
        let is_there = known.contains_key(table.as_str()) || known.contains_key(tables.as_str());
        assert!(is_there || section == "filter", "the section {section} is not tested here");
    }
}

#[test]
fn every_filter_and_its_options_are_described() {
    let page = text(&top().join("docs/filters.md"));
    let list = described(&top().join("docs/pipeline-file.md"));
    let kinds = kinds("[[filter]]", "type");
    assert_eq!(list.get("[[filter]]"), Some(&kinds), "left: docs/pipeline-file.md, right: the reader");
    for kind in kinds {
        let part = page.split("\n## ").find(|part| part.starts_with(&format!("`{kind}`")));
        let part = part.unwrap_or_else(|| panic!("docs/filters.md has no part on {kind}"));
        let common = page.split("\n## ").find(|part| part.starts_with("Options that every filter has")).unwrap();
        let named: Names = in_backticks(part).into_iter().chain(in_backticks(common)).collect();
        for key in keys("[[filter]]", &format!("type = \"{kind}\"\n{}", required(&kind))) {
            assert!(key == "type" || named.contains(&key), "docs/filters.md does not name `{key}` of {kind}");
        }
    }
}

#[test]
fn every_flag_is_described() {
    let page = text(&top().join("docs/commands.md"));
    for command in [
        "run",
        "check",
        "explain",
        "positions show",
        "positions reset",
        "dead-letters list",
        "dead-letters show",
        "dead-letters replay",
        "dead-letters drop",
        "bench ids",
        "bench pipeline",
    ] {
        let args = command.split(' ').chain(["--help"]);
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_onceline")).args(args).output().unwrap();
        let help = String::from_utf8(out.stdout).unwrap();
        let flags = help.lines().filter(|line| line.starts_with("  ")).flat_map(str::split_whitespace);
        let flags: Names = flags.filter(|word| word.starts_with("--")).map(str::to_string).collect();
        assert!(flags.contains("--help"), "{help}");
        for flag in flags {
            let flag = flag.trim_end_matches(['.', ',', ';']);
            assert!(flag == "--help" || page.contains(flag), "docs/commands.md does not name {flag} of {command}");
        }
    }
}

#[test]
fn every_reason_is_described() {
    let described = described(&top().join("docs/dead-letters.md"));
    let rows: Names = described.into_values().flatten().collect();
    for reason in Reason::ALL {
        assert!(rows.contains(reason.as_str()), "docs/dead-letters.md does not tell of {reason}");
    }
}

#[test]
fn links_lead_somewhere() {
    for page in pages() {
        let mut in_block = false;
        for (number, line) in text(&page).lines().enumerate() {
            in_block ^= line.starts_with("```");
            for link in line.split("](").skip(1).filter(|_| !in_block) {
                let link = link.split(')').next().unwrap_or_default();
                if link.contains("://") {
                    continue;
                }
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
                let place = format!("{}:{}", shown(&page), number + 1);
                assert!(target.try_exists().unwrap(), "{place}: there is no {link}");
                assert!(anchor.is_empty() || anchors(&target).contains(anchor), "{place}: no heading for {link}");
            }
        }
    }
}

/// What the headings of a page are linked by.
fn anchors(page: &Path) -> Names {
    let text = text(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
    };
    headings.map(anchor).collect()
}

/// Every fault in docs/faults.md is shown by tests, which are there.
#[test]
fn every_fault_names_a_test() {
    let page = text(&top().join("docs/faults.md"));
    let mut faults = 0;
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 7, "{row}");
        if cells[0] == "fault" {
            continue;
        }
        let tests = in_backticks(cells[2]);
        assert!(!tests.is_empty(), "{} is shown by nothing", cells[0]);
        for test in tests {
            let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{test} names no test"));
            let path = ["tests", "src"].map(|folder| top().join(folder).join(file));
            let path = path.iter().find(|path| path.is_file()).unwrap_or_else(|| panic!("there is no {file}"));
            assert!(text(path).contains(&format!("fn {name}(")), "{test} is no test");
        }
        faults += 1;
    }
    assert!(faults > 30, "{faults} faults");
}

/// Each case of this kind has its line in the page, and no other has one.
fn cases_are_told(cases: &str, kind: &str, page: &str) {
    let cases = text(&top().join("tests/cases/logstash").join(cases));
    let id = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].as_str().unwrap().to_string();
    let cases: Names = cases.lines().map(id).collect();
    let page = text(&top().join(page));
    let rows = page.lines().filter_map(|line| line.strip_prefix(&format!("| {kind}-"))?.split(' ').next());
    assert_eq!(rows.map(|number| format!("{kind}-{number}")).collect::<Names>(), cases);
}

#[test]
fn cases_that_are_no_inputs_are_told() {
    cases_are_told("file_input.jsonl", "file", "docs/following.md");
    cases_are_told("es_output.jsonl", "es", "docs/delivery.md");
}

/// A blank line ends a table: rows behind it are text.
#[test]
fn tables_are_whole() {
    let pages = ["README.md", "CHANGELOG.md", "engines/README.md", "fuzz/README.md", "tests/simulation/README.md"];
    for path in files("docs", ".md").into_iter().chain(pages.map(|page| top().join(page))) {
        let text = text(&path);
        let lines: Vec<&str> = text.lines().collect();
        for (at, pair) in lines.windows(2).enumerate() {
            let is_first_row = pair[1].starts_with('|') && !pair[0].starts_with('|');
            let has_head = lines.get(at + 2).is_some_and(|line| line.starts_with("| ---") || line.starts_with("|---"));
            assert!(!is_first_row || has_head, "{}:{}: a row without its table", path.display(), at + 2);
        }
    }
}
