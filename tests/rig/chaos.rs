//! What kills the program at random moments, and the logs that are written and rotated meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::Onceline;

/// A number that the environment gives.
pub fn given(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Starts the program again and again, and kills it after a random time out of `wait_us`; `between` two runs is done
/// what it says, and true goes on. Gives how many runs were killed, and how many there were: one may have come to its
/// end before.
pub fn kill_again_and_again(
    onceline: &Onceline,
    random: &mut fastrand::Rng,
    wait_us: Range<u64>,
    mut between: impl FnMut(&mut fastrand::Rng, u64) -> bool,
) -> (u64, u64) {
    let (mut killed, mut runs) = (0, 0);
    while between(random, killed) {
        let running = onceline.start(b"");
        std::thread::sleep(Duration::from_micros(random.u64(wait_us.clone())));
        running.signal(Signal::KILL);
        let run = running.wait();
        runs += 1;
        killed += u64::from(run.status.is_none());
        assert!(run.status.is_none_or(|status| status == 0), "{}", run.stderr);
    }
    (killed, runs)
}

/// Reads what is left with `--once`: a run finds nothing at last. What was found again under another name may cost
/// one run more, and a file that each run reads again would never end. Gives how many runs there were.
pub fn read_the_rest(onceline: &Onceline) -> u64 {
    for runs in 1..=6 {
        let args = ["run", "--once", "pipeline.toml", "--state", "state", "--summary", "summary.json"];
        let run = onceline.call(&args, b"").settled();
        if run.count("events_in") == 0 {
            return runs;
        }
    }
    panic!("each run reads events again");
}

/// Tells another thread to end, when it ends in a panic too.
pub struct EndsWhenDropped<'a>(pub &'a AtomicBool);

impl Drop for EndsWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("open");
    file.write_all(text.as_bytes()).expect("append");
}

pub fn gzip(from: &Path, to: &Path) {
    let mut gzip = flate2::write::GzEncoder::new(fs::File::create(to).expect("a file"), flate2::Compression::fast());
    gzip.write_all(&fs::read(from).expect("a text")).and_then(|()| gzip.try_finish()).expect("compress");
    fs::remove_file(from).expect("remove");
}

/// Numbered lines, and what is to become of them.
#[derive(Clone, Copy)]
pub struct Lines {
    pub text: fn(u64) -> String,
    /// Whether it is to be a document; else a dead letter.
    pub is_event: fn(u64) -> bool,
}

impl Lines {
    /// Every event is there once, by its number; every other line is a dead letter at least once. Gives how many
    /// events there are, and how many letters were written more than once.
    pub fn check(&self, lines: u64, mut events: Vec<u64>, letters: &[Value]) -> (u64, u64) {
        events.sort_unstable();
        let want: Vec<u64> = (0..lines).filter(|n| (self.is_event)(*n)).collect();
        if events != want {
            let mut times = BTreeMap::<u64, u64>::new();
            events.iter().for_each(|n| *times.entry(*n).or_default() += 1);
            let missing: Vec<_> = want.iter().filter(|n| !times.contains_key(n)).take(20).collect();
            let is_wanted = |n: u64, count: u64| n < lines && (self.is_event)(n) && count == 1;
            let extra: Vec<_> =
                times.iter().filter(|(n, count)| !is_wanted(**n, **count)).map(|(n, _)| n).take(20).collect();
            panic!("{} documents of {} events; missing: {missing:?}, not wanted: {extra:?}", events.len(), want.len());
        }
        let said: BTreeSet<String> = letters.iter().map(|letter| letter["event"].to_string()).collect();
        let event = |n| {
            let text = (self.text)(n);
            let text = text.trim_end_matches('\n');
            serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)).to_string()
        };
        let want: BTreeSet<String> = (0..lines).filter(|n| !(self.is_event)(*n)).map(event).collect();
        let missing: Vec<_> = want.difference(&said).take(20).collect();
        let extra: Vec<_> = said.difference(&want).take(20).collect();
        assert!(missing.is_empty() && extra.is_empty(), "letters missing: {missing:?}, not wanted: {extra:?}");
        (events.len() as u64, (letters.len() - said.len()) as u64)
    }
}
