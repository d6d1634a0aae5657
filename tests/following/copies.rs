//! Copies of what was read, such as copytruncate makes: seen whole, while they grow, and while they are still empty.

use super::rig::{Rig, SECOND};
use super::{Change, PLAIN, check, many};

/// `a` is filled and read; then comes what the script says. Told are the lines of `a`, each once, and `more`.
#[track_caller]
fn check_copy(what: &str, change: Change, script: &[&str], more: &[&str]) {
    let want = many(5000, more);
    let want: Vec<&str> = want.iter().map(String::as_str).collect();
    let script: Vec<&str> = ["fill a 5000", "go"].into_iter().chain(script.iter().copied()).collect();
    check(what, "*", change, &script, &want);
}

#[test]
fn whole_when_they_are_seen() {
    check_copy("the original goes on", PLAIN, &["copy a b", "go", "truncate a", "append a 1\\n"], &["a@1"]);
    check_copy(
        "what a truncation destroyed is read from the copy",
        PLAIN,
        &["append a 1\\n", "copy a b", "truncate a", "append a 2\\n"],
        &["a@2", "b@1"],
    );
    check_copy("nothing is truncated", PLAIN, &["copy a b", "go 100", "append a 1\\n", "go"], &["a@1"]);
    check_copy(
        "copied again and again",
        PLAIN,
        &["copy a b", "go 100", "append a 1\\n", "go", "delete b", "go", "copy a b", "go 100", "copy b c", "go 100"],
        &["a@1"],
    );
    check_copy(
        "the copy goes on by itself",
        PLAIN,
        &["copy a b", "go", "append b 1\\n", "go", "append a 2\\n"],
        &["b@1", "a@2"],
    );
    check_copy(
        "more in it than was read",
        PLAIN,
        &["append a 1\\n", "copy a b", "go", "append a 2\\n", "part a b", "go", "truncate a"],
        &["a@1", "a@2"],
    );
    check_copy(
        "then compressed",
        PLAIN,
        &["copy a b", "truncate a", "see b", "gzip b", "go", "append a 1\\n"],
        &["a@1"],
    );
}

#[test]
fn empty_when_they_are_seen() {
    check_copy(
        "seen empty",
        PLAIN,
        &["append b ", "see b", "part a b", "truncate a", "append a 1\\n", "go", "append b 2\\n"],
        &["a@1", "b@2"],
    );
    check_copy(
        "seen empty for long",
        |rules, _| rules.close_after = 5 * SECOND,
        &["append b ", "go 400", "part a b", "go 100", "truncate a", "append a 1\\n"],
        &["a@1"],
    );
    check_copy(
        "seen empty, and renamed since",
        PLAIN,
        &[
            "append b.tmp ",
            "see b",
            "part a b.tmp 3000",
            "move b.tmp b",
            "see b",
            "part a b",
            "truncate a",
            "append a 1\\n",
        ],
        &["a@1"],
    );
    check_copy(
        "what a truncation destroyed is read from the copy",
        PLAIN,
        &["append b ", "see b", "append a 1\\n", "part a b", "truncate a", "append a 2\\n"],
        &["a@2", "b@1"],
    );
    check_copy(
        "what is compressed is seen empty",
        PLAIN,
        &["append b.gz ", "see b.gz", "gzip a keep", "move a.gz b.gz", "go", "truncate a", "append a 1\\n"],
        &["a@1"],
    );
    check_copy(
        "in the place of a file that was read",
        PLAIN,
        &[
            "append b 1\\n",
            "go",
            "truncate b",
            "see b",
            "part a b 2000",
            "see b",
            "part a b",
            "truncate a",
            "append a 2\\n",
        ],
        &["b@1", "a@2"],
    );
}

#[test]
fn made_slowly() {
    // too short to have a head, in the middle of a line, at its end, and just before the end of all
    for part in [1, 40, 500, 1023, 1024, 1101, 3000, 4999] {
        for pause in [1, 30] {
            let script = format!("append b |see b|part a b {part}|go {}|part a b", if part < 1024 { 1 } else { pause });
            let script: Vec<&str> = script.split('|').collect();
            let what = format!("{part} bytes first, {pause} seconds long");
            let then = |more: &[&'static str]| [&script[..], more].concat();
            check_copy(&what, PLAIN, &then(&["truncate a", "append a 1\\n"]), &["a@1"]);
            check_copy(&what, PLAIN, &then(&["go 70", "truncate a", "append a 1\\n"]), &["a@1"]);
            check_copy(&what, PLAIN, &then(&["go 70", "append a 1\\n", "go", "append b 2\\n"]), &["a@1", "b@2"]);
            // the original is closed meanwhile
            let closing: Change = |rules, _| rules.open_files_max = 1;
            check_copy(&what, closing, &then(&["truncate a", "append a 1\\n"]), &["a@1"]);
        }
    }
    check_copy(
        "the original grows on",
        PLAIN,
        &[
            "append b ",
            "see b",
            "append a 1\\n",
            "part a b 2000",
            "see b",
            "append a 2\\n",
            "part a b",
            "see b",
            "append a 3\\n",
            "part a b",
            "truncate a",
            "append a 4\\n",
        ],
        &["a@1", "a@2", "a@4", "b@3"],
    );
    check_copy(
        "what comes between the copy's end and the truncation is read",
        PLAIN,
        &["append b ", "see b", "part a b", "see b", "append a 1\\n", "see a", "truncate a", "append a 2\\n"],
        &["a@1", "a@2"],
    );
    check_copy(
        "given up",
        PLAIN,
        &["part a b 3000", "go", "append a 1\\n", "go", "truncate a", "append a 2\\n", "go"],
        &["a@1", "a@2"],
    );
    check_copy(
        "over a restart",
        PLAIN,
        &[
            "append b ",
            "see b",
            "restart",
            "see b",
            "part a b 3000",
            "see b",
            "restart",
            "see b",
            "part a b",
            "truncate a",
        ],
        &[],
    );
    check_copy(
        "whole only after a restart",
        PLAIN,
        &["part a b 3000", "see b", "part a b", "truncate a", "restart"],
        &[],
    );
    check_copy(
        "begun anew",
        PLAIN,
        &[
            "part a b 3000",
            "see b",
            "truncate b",
            "see b",
            "part a b 2000",
            "see b",
            "part a b",
            "truncate a",
            "append a 1\\n",
        ],
        &["a@1"],
    );
}

/// What only begins like a file that was read is another, and is read.
#[test]
fn no_copies() {
    let first = format!("{:01100}", 0);
    for pause in ["see b", "go 30"] {
        check_copy(
            "the same first KiB",
            PLAIN,
            &[&format!("append b {first}\\n"), pause, "append b other\\n"],
            &["b@long 1100", "b@other"],
        );
        check_copy(
            "the same first KiB of one that was empty",
            PLAIN,
            &["append b ", pause, &format!("append b {first}\\n"), "see b", "append b other\\n"],
            &["b@long 1100", "b@other"],
        );
        check_copy(
            "the original is rewritten, and beside it is a new file",
            PLAIN,
            &["truncate a", "append a 1\\n", pause, &format!("append b {first}\\n2\\n")],
            &["a@1", "b@long 1100", "b@2"],
        );
    }
    check(
        "the same first line",
        "*",
        PLAIN,
        &["append a head\\n", "fill a 5000", "go", "append b head\\n", "go 4", "append b 1\\n"],
        &[&["head"][..], &many(5000, &[]).iter().map(String::as_str).collect::<Vec<_>>(), &["b@head", "b@1"]].concat(),
    );
}

/// Nothing waits that cannot be a copy, and what may be one waits as long as that may be so.
#[test]
fn ordinary_files_are_read_at_once() {
    let mut rig = Rig::new("*", |rules, _| rules.poll_interval = 1_000_000 * SECOND);
    let read = |rig: &mut Rig, script: &[&str], want: &[&str]| {
        let before = rig.lines.len();
        script.iter().for_each(|line| rig.act(line));
        let told: Vec<&str> = rig.lines[before..].iter().map(|(_, line)| line.as_str()).collect();
        assert_eq!(told, want, "{script:?}");
    };
    let first = format!("{:01100}", 0);
    rig.act("append a head\\n");
    rig.act("fill a 5000");
    rig.go(12);
    // by a hint, without any time
    read(&mut rig, &["append b ", "see b"], &[]);
    read(&mut rig, &["append b 1\\n", "hint b"], &["1"]);
    // as soon as it differs
    read(&mut rig, &["append c ", "see c"], &[]);
    read(&mut rig, &["append c head\\n", "hint c"], &[]);
    read(&mut rig, &["append c 1\\n", "hint c"], &["head", "1"]);
    read(&mut rig, &["append d ", "see d"], &[]);
    let same = format!("append d head\\n{first}\\n");
    read(&mut rig, &[&same, "hint d"], &[]);
    read(&mut rig, &["append d 1\\n", "hint d"], &["head", "long 1100", "1"]);
    // or does not grow, so that it is no copy of that
    let mut rig = Rig::new("*", PLAIN);
    rig.act("append a head\\n");
    rig.act("fill a 5000");
    rig.go(12);
    read(&mut rig, &["append b head\\n", "see b"], &[]);
    read(&mut rig, &["see b", "see b", "see b"], &["head"]);
}

/// Two files in which the same is written are two: one that was found later is read from there on.
#[test]
fn twins() {
    let mut rig = Rig::new("*", PLAIN);
    rig.act("fill a 5000");
    rig.go(12);
    rig.act("copy a b");
    for second in 0..100 {
        rig.append("a", format!("{second}\n").as_bytes());
        rig.append("b", format!("{second}\n").as_bytes());
        rig.go(1);
    }
    let of =
        |name: &str| rig.lines.iter().filter(|(of, _)| of == name).map(|(_, line)| line.clone()).collect::<Vec<_>>();
    assert_eq!(of("a").len(), many(5000, &[]).len() + 100);
    let of_b = of("b");
    let first: usize = of_b.first().map_or(0, |line| line.parse().unwrap());
    assert!((55..65).contains(&first), "{of_b:?}");
    assert_eq!(of_b, (first..100).map(|second| second.to_string()).collect::<Vec<_>>());
}

/// What is met first after a restart is not taken for what is where it was.
#[test]
fn copies_after_a_restart() {
    let fill = |more: &[&str]| many(5000, more);
    let want = fill(&["b@1"]);
    let want: Vec<&str> = want.iter().map(String::as_str).collect();
    check(
        "a copy that is met before the original",
        "*",
        PLAIN,
        &["fill b 5000", "go", "copy b a", "restart", "append b 1\\n"],
        &want,
    );
    let want = fill(&["a.1@1", "a@2"]);
    let want: Vec<&str> = want.iter().map(String::as_str).collect();
    check(
        "compressed, with the inode used again, and a restart in between",
        "*",
        PLAIN,
        &[
            "fill a 5000",
            "go",
            "append a 1\\n",
            "move a a.1",
            "append a 2\\n",
            "go",
            "gzip a.1",
            "restart",
            "go",
            "restart",
        ],
        &want,
    );
    let end: Change = |rules, _| rules.from_end = true;
    check(
        "a compressed file at the first look",
        "*",
        end,
        &["append a 1\\n", "gzip a", "go", "append b 2\\n"],
        &["b@2"],
    );
}
