//! A log that is written fast and rotated often, a program that is killed, connections that are dropped after the
//! engine has done the work: none lost, no document too many, and little sent twice, by default settings.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::rig::chaos::{Lines, kill_again_and_again};
use super::rig::{Fault, Onceline, Proxy, Stub, until};
use super::{of, seed};

const LINES: Lines = Lines { text: line, is_event: |_| true };

fn line(n: u64) -> String {
    let (second, milli) = (n / 1000 % 60, n % 1000);
    format!(
        "{{\"@timestamp\":\"2026-03-01T10:00:{second:02}.{milli:03}Z\",\"level\":\"INFO\",\"service\":\"orders\",\
         \"message\":\"request completed in {} ms\",\"n\":{n}}}\n",
        n % 977
    )
}

/// Writes `lines` lines at `rate` a second, renaming the log `rotations` times.
fn write(onceline: &Onceline, lines: u64, rate: u64, rotations: u64) {
    let path = onceline.path("log/app.log");
    let open = || fs::File::options().create(true).append(true).open(&path).expect("a log");
    let (mut file, mut written, mut rotated) = (open(), 0, 0);
    let started = Instant::now();
    while written < lines {
        let due = (started.elapsed().as_micros() as u64 * rate / 1_000_000).min(lines);
        let text: String = (written..due).map(line).collect();
        file.write_all(text.as_bytes()).expect("write");
        written = due;
        if written * (rotations + 1) / lines > rotated && rotated < rotations {
            rotated += 1;
            fs::rename(&path, onceline.path(&format!("log/app.log.{rotated}"))).expect("rename");
            file = open();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(rotated, rotations);
}

/// Gives how many events were sent for each that there was.
fn rotated(what: &str, refusals: f64) -> f64 {
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let (lines, rate, rotations, kills) = of((200_000, 8_000, 18, 30), (16_000, 8_000, 2, 2));
    let stub = Stub::new("").lean().refuses(refusals, 429);
    let proxy = Proxy::new(&stub.url, |n| if n % 13 == 12 { Fault::CutAnswer } else { Fault::None });
    let onceline = Onceline::new(&format!(
        "[[input]]\ntype = \"file\"\npaths = \"{{dir}}/log/app.log*\"\ncodec = \"json\"\n\
         [id]\nscheme = \"compact\"\nmethod = \"SHA256\"\n[index]\nname = \"logs-%{{+yyyy.MM.dd}}\"\n\
         [output]\ntype = \"elasticsearch\"\nhosts = [\"{}\"]\n",
        proxy.url
    ))
    .deadline(Duration::from_secs(600));
    fs::create_dir(onceline.path("log")).expect("a folder");
    let over = AtomicBool::new(false);
    let killed = std::thread::scope(|scope| {
        scope.spawn(|| {
            write(&onceline, lines, rate, rotations);
            over.store(true, Relaxed);
        });
        // all within the time of writing
        let apart = lines * 1_000_000 / rate / (kills + 1);
        let wait = apart / 2..apart * 3 / 2;
        kill_again_and_again(&onceline, &mut random, wait, |_, killed| killed < kills).0
    });
    let running = onceline.start(b"");
    until("the last documents", || stub.len() as u64 >= lines);
    running.signal(Signal::TERM);
    let run = running.wait().settled();
    let (sent, refused) = stub.items();
    LINES.check(lines, stub.numbers(), &run.dead_letters);
    let ratio = sent as f64 / lines as f64;
    let faults = proxy.faults();
    let dropped = faults.iter().filter(|fault| **fault == Fault::CutAnswer).count();
    println!(
        "{what}: {lines} lines at {rate} a second, {rotations} rotations, {killed} kills, {} requests, {dropped} \
         connections dropped after the work was done, {refused} items refused: {} documents, {sent} events sent, \
         {ratio:.3} for each line; seed {seed}",
        faults.len(),
        stub.len()
    );
    ratio
}

#[test]
fn a_rotated_log_and_dropped_connections() {
    let ratio = rotated("connections dropped", 0.0);
    assert!(ratio <= of(1.15, 3.0), "{ratio:.3} sent");
}

#[test]
fn a_rotated_log_and_refused_items() {
    let ratio = rotated("and items refused", 0.01);
    assert!(ratio <= of(1.15, 3.0), "{ratio:.3} sent");
}
