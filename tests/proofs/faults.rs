//! Many events into a sink that refuses, cuts and drops: none lost and none twice, by default settings.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::{Duration, Instant};

use super::of;
use super::rig::chaos::Lines;
use super::rig::{Fault, Onceline, Proxy, Stub};

const LINES: Lines = Lines { text: line, is_event: |_| true };

fn line(n: u64) -> String {
    let filling = "the same words in every line, as logs have them; ".repeat(4);
    format!("{{\"@timestamp\":\"2026-03-01T10:00:00.{:03}Z\",\"n\":{n},\"message\":\"{filling}\"}}\n", n % 1000)
}

type Rule = fn(usize) -> Fault;

fn every(count: usize, n: usize, fault: Fault) -> Fault {
    if n % count == count - 1 { fault } else { Fault::None }
}

#[test]
fn none_is_lost_and_none_is_twice() {
    let lines = of(200_000, 10_000);
    let cases: [(&str, f64, Rule); 6] = [
        ("nothing fails", 0.0, |_| Fault::None),
        ("429 for 2 % of the items", 0.02, |_| Fault::None),
        ("every 7th connection dropped after the work was done", 0.0, |n| every(7, n, Fault::CutAnswer)),
        ("every 7th connection dropped before", 0.0, |n| every(7, n, Fault::CutBefore)),
        ("every 7th answer cut in its middle", 0.0, |n| every(7, n, Fault::Truncate)),
        ("503 for every 5th request", 0.0, |n| every(5, n, Fault::Refuse(503))),
    ];
    for (what, refusals, rule) in cases {
        let stub = Stub::new("").lean().refuses(refusals, 429);
        let proxy = Proxy::new(&stub.url, rule);
        let onceline = Onceline::new(&format!(
            "[[input]]\ntype = \"file\"\npaths = \"{{dir}}/app.log\"\ncodec = \"json\"\n\
             [id]\nscheme = \"compact\"\nmethod = \"SHA256\"\n[index]\nname = \"logs-%{{+yyyy.MM.dd}}\"\n\
             [output]\ntype = \"elasticsearch\"\nhosts = [\"{}\"]\n{}",
            proxy.url,
            // the short form has few events: as many requests all the same
            of("", "bulk_items_max = 200\n"),
        ))
        .args(&["--once"])
        .deadline(Duration::from_secs(600));
        let mut log = BufWriter::new(File::create(onceline.path("app.log")).expect("a log"));
        (0..lines).for_each(|n| log.write_all(line(n).as_bytes()).expect("write"));
        log.into_inner().expect("write");
        let started = Instant::now();
        let run = onceline.run(b"").settled();
        let seconds = started.elapsed().as_secs_f64();
        assert_eq!(run.counts(["events_in", "dead_lettered"]), [lines, 0], "{what}");
        LINES.check(lines, stub.numbers(), &run.dead_letters);
        let (items, refused) = stub.items();
        let broken = proxy.faults().iter().filter(|fault| **fault != Fault::None).count();
        println!(
            "{what}: {lines} events, {} documents; {} requests, {broken} of them broken, {} events sent, {items} \
             came to the engine, {refused} refused; {seconds:.1} s",
            stub.len(),
            proxy.faults().len(),
            proxy.lines() / 2,
        );
    }
}
