//! What writes the lines, and what must become of each.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::disk::Inode;
use crate::scenario::{APPS, LINE_BYTES_MAX, Scenario, Shape};
use crate::world::{World, lock};

/// What kind of a line it is, and so what must become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A document.
    Good,
    /// Dropped by a filter.
    Debug,
    BadJson,
    NoTime,
    BadName,
    TooLong,
    /// The engine takes no request with it, however small.
    TooLarge,
    /// The engine rejects the item.
    Mapping,
    /// The engine rejects every request with it.
    Poison,
}

impl Kind {
    /// The reason of its dead letter.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Kind::Good | Kind::Debug => None,
            Kind::BadJson => Some("bad-json"),
            Kind::NoTime => Some("no-timestamp"),
            Kind::BadName => Some("bad-index-name"),
            Kind::TooLong | Kind::TooLarge => Some("too-large"),
            Kind::Mapping | Kind::Poison => Some("rejected"),
        }
    }
}

/// A complete line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its own number, in its text: equal lines share it.
    pub n: u64,
    pub kind: Kind,
    pub inode: Inode,
    pub start: u64,
    pub end: u64,
    pub app: usize,
    pub key: u64,
    pub written: Duration,
}

/// All complete lines written so far, in order of their files.
#[derive(Default)]
pub struct Lines {
    pub all: Vec<Line>,
    pub by_inode: std::collections::BTreeMap<Inode, Vec<usize>>,
}

impl Lines {
    fn push(&mut self, line: Line) {
        self.by_inode.entry(line.inode).or_default().push(self.all.len());
        self.all.push(line);
    }

    /// The lines of a file, in order.
    pub fn of(&self, inode: Inode) -> impl Iterator<Item = &Line> {
        self.by_inode.get(&inode).into_iter().flatten().map(|at| &self.all[*at])
    }
}

/// Writes all lines of a scenario, in pieces of any size.
pub async fn write(world: Arc<World>) {
    let scenario = &world.scenario;
    let mut rng = Rng::with_seed(scenario.seed ^ 0x3713_3333);
    let mut times: Vec<Duration> = (0..scenario.lines).map(|_| scenario.writing.mul_f64(rng.f64())).collect();
    times.sort();
    let mut texts: Vec<(u64, Kind, usize, u64, String)> = Vec::new();
    for (n, time) in times.into_iter().enumerate() {
        let now = world.clock.now();
        if time > now && rng.u8(..4) > 0 {
            tokio::time::sleep(time - now).await;
        }
        let file = rng.usize(..scenario.files);
        let (n, kind, app, key, text) = match rng.u8(..20) {
            // the same line again, in any file
            0 if !texts.is_empty() && scenario.shape != Shape::Key => texts[rng.usize(..texts.len())].clone(),
            _ => {
                let new = line(&mut rng, scenario, n as u64, file);
                if new.1 == Kind::Good {
                    texts.push(new.clone());
                }
                new
            }
        };
        let inode = world.disk.log_inode(file);
        let start = world.disk.log_len(inode);
        let end = start + text.len() as u64;
        // a line may be written in two goes, read in between
        if rng.u8(..6) == 0 {
            let cut = rng.usize(..text.len());
            world.disk.append_log(inode, &text.as_bytes()[..cut]);
            tokio::time::sleep(Duration::from_millis(rng.u64(..3_000))).await;
            world.disk.append_log(inode, &text.as_bytes()[cut..]);
        } else {
            world.disk.append_log(inode, text.as_bytes());
        }
        let written = world.clock.now();
        lock(&world.lines).push(Line { n, kind, inode, start, end, app, key, written });
        world.clock.note("line written", n);
    }
    // half a line that never ends
    if rng.bool() {
        world.disk.append_log(world.disk.log_inode(0), b"{\"n\":999999999,\"half");
    }
}

fn line(rng: &mut Rng, scenario: &Scenario, n: u64, file: usize) -> (u64, Kind, usize, u64, String) {
    let kind = match rng.u8(..64) {
        0..=2 => Kind::BadJson,
        3..=4 => Kind::NoTime,
        5 => Kind::BadName,
        6 => Kind::TooLong,
        7 => Kind::TooLarge,
        8..=10 => Kind::Mapping,
        11 => Kind::Poison,
        12..=15 => Kind::Debug,
        _ => Kind::Good,
    };
    let key = rng.u64(..6);
    // a key belongs to one file and one index: only so do its lines have an order
    let app = if scenario.shape == Shape::Key { key as usize % APPS.len() } else { rng.usize(..APPS.len()) };
    let key = file as u64 * 100 + key;
    let pad = match kind {
        Kind::TooLong => LINE_BYTES_MAX + rng.usize(..3_000),
        Kind::TooLarge => scenario.request_bytes_max.min(LINE_BYTES_MAX - 400),
        _ => 1 << rng.usize(..10),
    };
    let pad: String = (0..pad).map(|_| rng.lowercase()).collect();
    let time = if kind == Kind::NoTime { "" } else { "\"ts\":\"2026-03-01T10:00:00.123Z\"," };
    let name = if kind == Kind::BadName { "A B" } else { APPS[app] };
    let level = if kind == Kind::Debug { "debug" } else { "info" };
    let mark = match kind {
        Kind::Mapping => ",\"mark\":\"mapping\"",
        Kind::Poison => ",\"mark\":\"poison\"",
        Kind::TooLarge => ",\"mark\":\"large\"",
        _ => "",
    };
    let end = if kind == Kind::BadJson { "" } else { "}" };
    let feed = if rng.u8(..10) == 0 { "\r\n" } else { "\n" };
    let text = format!(
        "{{\"n\":{n},{time}\"app\":\"{name}\",\"k\":\"{key}\",\"level\":\"{level}\"{mark},\"pad\":\"{pad}\"{end}{feed}"
    );
    (n, kind, app, key, text)
}
