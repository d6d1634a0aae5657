//! Following files, on real files in a folder of its own, step by step: the time is handed in, so nothing waits.

mod copies;
mod random;
mod rig;

use std::collections::BTreeSet;
use std::sync::Arc;

use onceline::codec::charset::Charset;
use onceline::codec::rule::{Neighbour, Rule};
use onceline::input::Limits;
use onceline::input::follow::machine::Rules;
use onceline::regexp::OfLine;
use rig::{Rig, SECOND, lines_of_bytes};

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
    check("long", all, PLAIN, &[&whole], &["long 2056", "1"]);
    let (one, two) = (format!("append a.log {long}"), format!("append a.log {long}\\n1\\n"));
    check(
        "too long, in pieces",
        all,
        PLAIN,
        &[&one, "go", &one, "go", &one, "go", "restart", &two],
        &["too long: 8208", "1"],
    );
}

/// Lines that begin with a blank go on the line before, up to 20 bytes.
fn joined() -> Rule {
    Rule {
        pattern: OfLine::parse(r"^\s").unwrap(),
        negate: false,
        what: Neighbour::Previous,
        lines_max: 500,
        bytes_max: 20,
        keeps_blank: false,
        charset: Charset::Utf8,
        flush_after: 5 * SECOND,
    }
}

const JOINED: Change = |_, limits| limits.rule = Some(Arc::new(joined()));

/// As [`JOINED`], with half lines handed over.
const JOINED_HALVES: Change = |rules, limits| {
    JOINED(rules, limits);
    rules.idle_flush = Some(2 * SECOND);
};

#[test]
fn records_of_several_lines() {
    let all = "*.log";
    check("at once", all, JOINED, &["append a.log 1\\n a\\n2\\n a\\n b\\n"], &["1+ a", "2+ a+ b"]);
    check(
        "in pieces over time",
        all,
        JOINED,
        &[
            "append a.log 1",
            "look",
            "append a.log 2\\n a",
            "look",
            "append a.log b\\n",
            "look",
            "append a.log  c\\n3\\n",
        ],
        &["12+ ab+ c", "3"],
    );
    check("CR LF", all, JOINED, &["append a.log 1\\r\\n", "look", "append a.log  a\\r\\n2\\r\\n"], &["1\r+ a", "2"]);
    check("the last, after a while", all, JOINED, &["append a.log 1\\n a\\n", "go 3"], &["1+ a"]);
    let slow = &["append a.log 1\\n", "go 4", "append a.log  a\\n", "go 4", "append a.log  b\\n", "go 4"];
    check("not while it grows", all, JOINED, slow, &["1+ a+ b"]);
    check(
        "what comes later is a record of its own",
        all,
        JOINED,
        &["append a.log 1\\n a\\n", "go", "append a.log  b\\n c\\n2\\n"],
        &["1+ a", " b+ c", "2"],
    );
    check(
        "waits over a restart",
        all,
        JOINED,
        &[
            "append a.log 1\\n2\\n a\\n",
            "look",
            "restart",
            "append a.log  b\\n",
            "look",
            "restart",
            "append a.log  c\\n",
        ],
        &["1", "2+ a+ b+ c"],
    );
    check(
        "within a line",
        all,
        JOINED,
        &["append a.log 1\\n a\\n b", "go", "append a.log c\\n2\\n"],
        &["1+ a+ bc", "2"],
    );
    check("a line that never ends", all, JOINED, &["append a.log 1\\n2\\n a\\n b", "go 40"], &["1"]);
    check(
        "after long",
        all,
        JOINED,
        &["append a.log 1\\n2\\n a\\n b", "go 70", "append a.log c\\n3\\n"],
        &["1", "2+ a", " bc", "3"],
    );
    check("unless it counts as whole", all, JOINED_HALVES, &["append a.log 1\\n2\\n b"], &["1", "2+ b"]);
    check(
        "its limit",
        all,
        JOINED,
        &["append a.log 1\\n 3456789\\n 3456789\\n 3456789\\n", "look", "restart", "append a.log  a\\n2\\n"],
        &["1+ 3456789+ 3456789+ 3456789", " a", "2"],
    );
    let long = format!("append a.log 1\\n a\\n{}\\n b\\n2\\n", "x".repeat(3000));
    check("a line that is too long is of none", all, JOINED, &[&long], &["1+ a", "too long: 3000", " b", "2"]);
    check("blank lines", all, JOINED, &["append a.log \\n\\n1\\n\\n a\\n\\n2\\n\\n"], &["1++ a", "2"]);
}

/// What was read of a record that is open does not go with its file.
#[test]
fn records_of_files_that_go() {
    let all = "*";
    check(
        "truncated",
        all,
        JOINED,
        &["append a.log 1\\n2\\n a\\n", "look", "truncate a.log", "append a.log 3\\n", "look"],
        &["1", "2+ a", "3"],
    );
    check(
        "copied and truncated",
        all,
        JOINED,
        &[
            "fill a.log 1120",
            "append a.log 2\\n a\\n",
            "look",
            "copy a.log b",
            "look",
            "truncate a.log",
            "append a.log 3\\n",
            "go 4",
        ],
        &["a.log@long 1100", "a.log@line 1 of many", "a.log@line 2 of many", "a.log@2+ a", "a.log@3"],
    );
    check(
        "deleted",
        all,
        JOINED,
        &["append a.log 1\\n2\\n a\\n b", "look", "delete a.log", "look", "append a.log 3\\n4\\n", "go 320"],
        &["1", "3", "4", "2+ a"],
    );
    check(
        "renamed",
        all,
        JOINED,
        &["append a.log 1\\n2\\n a\\n", "look", "move a.log b", "append a.log 3\\n", "look", "append b  b\\n"],
        &["1", "3", "2+ a+ b"],
    );
    check("compressed", all, JOINED, &["append a.log 1\\n2\\n a\\n", "look", "gzip a.log"], &["1", "2+ a"]);
    check("compressed from the beginning", all, JOINED, &["append b 1\\n2\\n a\\n", "zstd b"], &["1", "2+ a"]);
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
}

/// Two years of rotation: what is known is of the last month.
#[test]
fn rotation_for_long_keeps_little() {
    let mut rig = Rig::new("*.log *.gz", PLAIN);
    let day = 86_400 * SECOND;
    for round in 0..1460 {
        rig.append("a.log", format!("line {round}\n").as_bytes());
        rig.now += day / 2;
        rig.go(1);
        rig.act("move a.log a.1");
        if round % 3 == 0 {
            rig.compress("a.1", false, false);
            rig.go(4);
            rig.act("delete a.1.gz");
        } else {
            rig.act("delete a.1");
        }
        assert!(rig.lanes.partitions() < 5, "{} partitions in round {round}", rig.lanes.partitions());
    }
    assert_eq!(rig.lines.len(), 1460);
    // of a file that was compressed while it was open two places are known
    let kept = 2 * 30 + 2 * 30 / 3 + 5;
    let (files, positions) = (rig.lanes.files(), rig.lanes.saved());
    assert!(files < kept && positions < kept, "{files} files and {positions} positions are kept");
}

/// The lines that `fill` writes, and more.
fn many(bytes: usize, more: &[&str]) -> Vec<String> {
    let text = String::from_utf8(lines_of_bytes(bytes)).unwrap();
    let first = std::iter::once("long 1100".to_string());
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
    check(
        "created again while the old one is open, for less than a scan",
        all,
        PLAIN,
        &["append a.log 1\\n", "go", "delete a.log", "go 1", "append a.log 2\\n", "go 2", "delete a.log"],
        &["1", "2"],
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

/// The cases of `tests/cases/logstash/file_input.jsonl` that can be played, with what we say to them.
#[test]
fn cases_of_logstash() {
    let end: Change = |rules, _| rules.from_end = true;
    let closing: Change = |rules, _| (rules.open_files_max, rules.close_after) = (1, SECOND);
    let fill = many(5000, &["3"]);
    let fill: Vec<&str> = fill.iter().map(String::as_str).collect();
    type Played<'a> = (&'a str, &'a str, Change, &'a [&'a str], &'a [&'a str]);
    let played: &[Played<'_>] = &[
        (
            "file-001",
            "*A.log",
            PLAIN,
            &[
                "append 1A.log L1\\n",
                "go",
                "append 1A.log L2",
                "go",
                "append p \\nL3\\n",
                "move 1A.log 1.log.1",
                "move p 1A.log",
            ],
            &["L1", "", "L3"],
        ),
        (
            "file-002",
            "*B.log",
            PLAIN,
            &[
                "append 1B.log L1\\n",
                "go",
                "move 1B.log 2B.log",
                "append 1B.log L2\\n",
                "go",
                "move 2B.log 3B.log",
                "move 1B.log 2B.log",
                "append 1B.log L3\\n",
            ],
            &["1B.log@L1", "1B.log@L2", "1B.log@L3"],
        ),
        (
            "file-006",
            "*F.log",
            PLAIN,
            &["append 1F.log L1\\nL2\\n", "go", "copy 1F.log 1F.log.1", "truncate 1F.log", "append 1F.log L3\\n"],
            &["L1", "L2", "L3"],
        ),
        (
            "file-008",
            "app*",
            PLAIN,
            &["fill app.log 5000", "go", "copy app.log app.log.1", "truncate app.log", "append app.log 3\\n"],
            &fill,
        ),
        ("file-009", "*", PLAIN, &["append a 1\\n", "go", "write a 2\\n3\\n"], &["1", "2", "3"]),
        ("file-011", "*", PLAIN, &["append a abc", "go", "truncate a", "append a xyz\\n"], &["xyz"]),
        (
            "file-012",
            "*H.log",
            PLAIN,
            &["append 1H.log L1\\nL2\\n", "go", "move 1H.log 2H.log", "append 2H.log L3\\n"],
            &["1H.log@L1", "1H.log@L2", "2H.log@L3"],
        ),
        ("file-018", "*", end, &["append a old\\n", "go", "append a new\\n"], &["new"]),
        (
            "file-020",
            "*",
            end,
            &["append a 1\\n", "go", "append a 2\\n", "go", "restart", "append a 3\\n"],
            &["2", "3"],
        ),
        ("file-021", "*", end, &["go", "append a 1\\n"], &["1"]),
        ("file-025", "*", PLAIN, &["append log 1\\n", "move log log\u{a0}log", "go", "restart", "go"], &["1"]),
        (
            "file-029",
            "*",
            end,
            &["append a 1\\n", "go", "append a 2\\n", "go", "move a b", "restart", "append b 3\\n"],
            &["2", "3"],
        ),
        ("file-030", "*", PLAIN, &["append a 1\\n", "go", "write a 2\\n3\\n", "restart"], &["1", "2", "3"]),
        ("file-037", "*", PLAIN, &["append a 1\\n", "go", "restart"], &["1"]),
        ("file-043", "*", PLAIN, &["append a 1\\n2", "go", "restart", "append a \\n3\\n"], &["1", "2", "3"]),
        ("file-048", "*", PLAIN, &["append a 1\\n2\\n"], &["1", "2"]),
        (
            "file-054",
            "*",
            |rules, _| rules.exclude = vec![glob::Pattern::new("*.gz").unwrap()],
            &["append a.gz 1\\n", "append b.log 2\\n"],
            &["b.log@2"],
        ),
        ("file-056", "*", closing, &["append P 1\\n2\\n", "append Q 3\\n4\\n"], &["1", "2", "3", "4"]),
    ];
    for (id, patterns, change, script, want) in played {
        check(id, patterns, *change, script, want);
    }
}

#[test]
fn damaged_archives() {
    let mut rig = Rig::new("*", |_, _| {});
    rig.append("whole", &lines_of_bytes(50_000));
    rig.compress("whole", false, false);
    let packed = std::fs::read(rig.at("whole.gz")).unwrap();
    std::fs::remove_file(rig.at("whole.gz")).unwrap();
    rig.append("cut.gz", &packed[..packed.len() / 2]);
    rig.go(12);
    let told = rig.lines.len();
    assert!(told > 100 && told < 2779, "{told}");
    // told once, though it is looked at again
    rig.restart();
    rig.go(12);
    assert_eq!(rig.lines.len(), told);
    // and its rest when that comes
    rig.append("cut.gz", &packed[packed.len() / 2..]);
    rig.go(12);
    assert_eq!(rig.lines.len(), many(50_000, &[]).len());
}
