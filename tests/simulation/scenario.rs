//! What a seed chooses: the pipeline, the lines and when they are written, faults and their times, and how each
//! life of the process ends.

use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;

#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub shape: Shape,
    /// The pipelines that replace each other while the process runs, by the time from which on.
    pub plans: Vec<Plan>,
    /// How long one that is replaced may deliver what was read.
    pub drain: Duration,
    /// A record is of several lines: those that begin with a blank belong to the one before.
    pub is_joined: bool,
    /// There is a standard input beside the files.
    pub has_stdin: bool,
    /// The file of dead letters takes no more; where that is little, somebody moves it away now and then.
    pub letters_bytes_max: u64,
    /// The engine takes no request that is larger.
    pub request_bytes_max: usize,
    pub request_timeout: Duration,
    pub retry_wait_max: Duration,
    pub files: usize,
    /// Of a hundred lines, before how many something is done to the files: rotated, truncated, deleted, compressed.
    pub turmoil: u32,
    /// The file system knows when a file was made.
    pub has_births: bool,
    /// How many logs may be open.
    pub open_files_max: usize,
    pub poll_interval: Duration,
    pub lines: usize,
    /// Some lines hold several events.
    pub has_parts: bool,
    /// Lines are written within this time.
    pub writing: Duration,
    pub faults: Vec<Fault>,
    /// How the lives before the last one end.
    pub ends: Vec<End>,
    /// How replays of the dead letters before the last one end, and what troubles them, from the first one on.
    pub replays: Vec<End>,
    pub replay_faults: Vec<Fault>,
    /// So much is sent before the file of letters is written anew.
    pub replay_bytes: usize,
}

/// A pipeline.
#[derive(Clone, Debug)]
pub struct Plan {
    pub from: Duration,
    /// The pipeline file.
    pub pipeline: String,
    pub batch_bytes: usize,
    pub bytes_in_flight_max: usize,
    pub slots: usize,
}

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A line: its id is made of all of it.
    Line { create: bool },
    /// The newest line of a key.
    Key,
}

#[derive(Clone, Debug)]
pub struct Fault {
    pub time: Range<Duration>,
    pub kind: Trouble,
    /// How likely it meets what it can meet.
    pub share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Of items.
    Busy,
    Fails,
    /// Of whole requests.
    AllBusy,
    AllFail,
    LostBefore,
    LostAfter,
    Cut,
    Garbled,
    Short,
    Slow,
    Down,
    /// The key is not the one that is taken.
    Key,
    /// Of one index.
    Closed(usize),
    Blocked(usize),
    Gone(usize),
    Flooded(usize),
    /// Of logs.
    OpenFails,
    /// Of the disk.
    Full,
    WriteFails,
}

const TROUBLES: &[Trouble] = &[
    Trouble::Busy,
    Trouble::Busy,
    Trouble::Fails,
    Trouble::AllBusy,
    Trouble::AllFail,
    Trouble::LostBefore,
    Trouble::LostAfter,
    Trouble::LostAfter,
    Trouble::Cut,
    Trouble::Garbled,
    Trouble::Short,
    Trouble::Slow,
    Trouble::Down,
    Trouble::Key,
    Trouble::Closed(0),
    Trouble::Blocked(1),
    Trouble::Gone(2),
    Trouble::Flooded(0),
    Trouble::OpenFails,
    Trouble::Full,
    Trouble::WriteFails,
];

impl Trouble {
    pub fn is_of_index(&self) -> bool {
        matches!(self, Trouble::Closed(_) | Trouble::Blocked(_) | Trouble::Gone(_) | Trouble::Flooded(_))
    }
}

/// How a life ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// Killed at a step; what is on the disk stays, synced or not.
    Kill { steps: u64 },
    /// The machine loses power at a step; what was not synced may be lost.
    PowerLoss { steps: u64 },
    /// Killed after a time.
    KillAfter(Duration),
    /// Told to stop after a time, and given so long to drain.
    Stop { after: Duration, drain: Duration },
}

/// The services in the lines, and so the indices.
pub const APPS: [&str; 3] = ["web", "db", "queue"];

/// More than there can be.
pub const LETTERS_BYTES_MAX: u64 = 1 << 30;

pub const LINE_BYTES_MAX: usize = 12 << 10;

impl Scenario {
    pub fn new(seed: u64) -> Scenario {
        let mut rng = Rng::with_seed(seed ^ 0x5ce7_a110);
        let rng = &mut rng;
        let shape = match rng.u8(..5) {
            0 | 1 => Shape::Line { create: false },
            2 => Shape::Line { create: true },
            _ => Shape::Key,
        };
        let writing = Duration::from_millis(rng.u64(1_000..200_000));
        let retry_wait_max = Duration::from_millis(rng.u64(2_000..20_000));
        let request_timeout = Duration::from_millis(rng.u64(500..8_000));
        let count = if rng.u8(..8) == 0 { 0 } else { rng.usize(1..9) };
        let ends = if rng.u8(..6) == 0 { 0 } else { rng.usize(1..8) };
        let reloads = if rng.u8(..3) == 0 { rng.usize(1..5) } else { 0 };
        let mut times: Vec<Duration> = (0..reloads).map(|_| writing.mul_f64(rng.f64() * 1.2)).collect();
        times.push(Duration::ZERO);
        times.sort();
        let fixed = fixed(rng, shape);
        let load = (rng.u8(..3) == 0).then(|| load(rng, shape, writing));
        let scenario = Scenario {
            seed,
            shape,
            plans: times.into_iter().map(|from| plan(rng, from, &fixed, request_timeout, retry_wait_max)).collect(),
            drain: drain(rng),
            // chosen apart, so that a seed is otherwise what it was
            is_joined: Rng::with_seed(seed ^ 0x10e5).u8(..4) == 0,
            has_stdin: rng.bool(),
            letters_bytes_max: if rng.u8(..4) == 0 { 1 << rng.u32(12..16) } else { LETTERS_BYTES_MAX },
            request_bytes_max: 1 << rng.usize(13..16),
            request_timeout,
            retry_wait_max,
            files: rng.usize(1..4),
            turmoil: if shape == Shape::Key || rng.u8(..3) == 0 { 0 } else { rng.u32(1..20) },
            has_births: rng.bool(),
            open_files_max: rng.usize(1..5),
            poll_interval: Duration::from_secs(rng.u64(1..6)),
            lines: if rng.u8(..8) == 0 { 256 } else { 1 << rng.usize(3..8) },
            has_parts: Rng::with_seed(seed ^ 0x0a7e_0000).u8(..3) == 0,
            writing,
            faults: (0..count).map(|_| fault(rng, writing)).chain(load).collect(),
            ends: (0..ends).map(|_| end(rng, writing)).collect(),
            replays: (0..rng.usize(..4)).map(|_| end(rng, Duration::from_secs(20))).collect(),
            replay_faults: (0..rng.usize(..3)).map(|_| fault(rng, Duration::from_secs(20))).collect(),
            replay_bytes: 1 << rng.usize(8..16),
        };
        match rng.u8(..12) {
            0 => scenario.with_one_index_in_trouble(rng),
            1 | 2 if shape == Shape::Key => scenario.with_spools_cut_off(rng),
            _ => scenario,
        }
    }

    /// Nothing else is wrong: what is of other indices must go on.
    fn with_one_index_in_trouble(self, rng: &mut Rng) -> Scenario {
        let kinds = [Trouble::Closed(0), Trouble::Blocked(1), Trouble::Gone(2), Trouble::Flooded(0)];
        let time = Duration::ZERO..self.writing + Duration::from_secs(100);
        let fault = Fault { time, kind: kinds[rng.usize(..kinds.len())], share: 1.0 };
        let plans = self.plans.into_iter().map(|plan| Plan { bytes_in_flight_max: 64 << 20, ..plan });
        Scenario { faults: vec![fault], ends: Vec::new(), plans: plans.take(1).collect(), ..self }
    }

    /// What a stop left in a spool is sent again by lives that are cut off: part of it can be stored, and what came
    /// after it too.
    fn with_spools_cut_off(self, rng: &mut Rng) -> Scenario {
        let kinds = [Trouble::Closed(0), Trouble::Blocked(1), Trouble::Gone(2)];
        let time = Duration::ZERO..self.writing.mul_f64(0.5 + rng.f64());
        let fault = Fault { time, kind: kinds[rng.usize(..kinds.len())], share: 1.0 };
        let life = |rng: &mut Rng| self.writing.mul_f64(0.05 + rng.f64() * 0.2);
        let mut ends = Vec::new();
        for _ in 0..rng.usize(1..4) {
            let drain = Duration::from_millis(rng.u64(..500));
            ends.extend([End::Stop { after: life(rng), drain }, End::KillAfter(life(rng))]);
        }
        Scenario { faults: vec![fault], ends, has_stdin: true, files: 1, lines: self.lines.max(64), ..self }
    }

    /// The plan that is to run from now on.
    pub fn newest_plan(&self, now: Duration) -> usize {
        self.plans.iter().rposition(|plan| plan.from <= now).unwrap_or(0)
    }

    /// When the last fault and the last line are past.
    pub fn calm(&self) -> Duration {
        let last = self.faults.iter().map(|fault| fault.time.end).max().unwrap_or_default();
        last.max(self.writing)
    }

    /// How long it may take from then on until all is done.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(120) + self.retry_wait_max * 20 + self.request_timeout * 20
    }

    /// When the last trouble of replays is past, from the first one on.
    pub fn replay_calm(&self) -> Duration {
        self.replay_faults.iter().map(|fault| fault.time.end).max().unwrap_or_default()
    }
}

fn fault(rng: &mut Rng, writing: Duration) -> Fault {
    let from = writing.mul_f64(rng.f64());
    // most are short, some take an hour
    let lasts = if rng.u8(..20) == 0 { rng.u64(600..3600) * 1000 } else { 1 << rng.u64(6..17) };
    let kind = TROUBLES[rng.usize(..TROUBLES.len())];
    let share = if rng.u8(..3) == 0 { 1.0 } else { rng.f64() };
    // an endless stream of these is told apart from a dead engine by nobody
    let share = if matches!(kind, Trouble::Fails) { share * 0.3 } else { share };
    Fault { time: from..from + Duration::from_millis(lasts), kind, share }
}

/// An engine that cannot do what comes, most of the time: much is on its way at a stop. Where the newest line of a
/// key must win, what is stored meanwhile matters.
fn load(rng: &mut Rng, shape: Shape, writing: Duration) -> Fault {
    let of_order = [Trouble::Closed(0), Trouble::Blocked(1), Trouble::Gone(2), Trouble::Slow];
    let of_all = [Trouble::Busy, Trouble::AllBusy, Trouble::Slow, Trouble::Down, Trouble::Closed(0), Trouble::Gone(2)];
    let kinds = if shape == Shape::Key { &of_order[..] } else { &of_all };
    let share = 0.5 + rng.f64() * 0.5;
    Fault { time: Duration::ZERO..writing.mul_f64(rng.f64() * 3.0), kind: kinds[rng.usize(..kinds.len())], share }
}

fn end(rng: &mut Rng, writing: Duration) -> End {
    let bits = rng.u32(3..12);
    let steps = 1 + rng.u64(..1 << bits);
    match rng.u8(..10) {
        0..=2 => End::Kill { steps },
        3..=5 => End::PowerLoss { steps },
        6 => End::KillAfter(writing.mul_f64(rng.f64())),
        _ => End::Stop { after: writing.mul_f64(rng.f64() * 0.4), drain: drain(rng) },
    }
}

/// Often too short for what is on its way.
fn drain(rng: &mut Rng) -> Duration {
    let bits = rng.u32(0..16);
    Duration::from_millis(rng.u64(..1 << bits))
}

/// What a running pipeline may not be replaced in: the id and the index; and the action.
fn fixed(rng: &mut Rng, shape: Shape) -> (&'static str, &'static str) {
    match shape {
        Shape::Line { create } => {
            let ids = ["scheme = 'compact'\nmethod = 'SHA256'", "scheme = 'time-hash'\nmethod = 'MD5'\nkey = 'test'"];
            (ids[rng.usize(..2)], if create { "create" } else { "index" })
        }
        Shape::Key => ("scheme = 'hash'\nmethod = 'SHA1'\nsource = ['k']", "index"),
    }
}

fn plan(rng: &mut Rng, from: Duration, fixed: &(&str, &str), timeout: Duration, wait_max: Duration) -> Plan {
    let (id, action) = fixed;
    let (bytes, items, requests) = (1 << rng.u32(9..18), 1 << rng.u32(0..10), rng.u32(1..5));
    let (timeout, wait_max) = (timeout.as_millis(), wait_max.as_millis());
    let pipeline = format!(
        "[[input]]\ntype = 'stdin'\ncodec = 'json'\nline_bytes_max = {LINE_BYTES_MAX}\n\
         [[filter]]\ntype = 'split'\nwhen = '[mark] == \"several\"'\nfield = 'n'\n\
         [[filter]]\ntype = 'date'\nmatch = ['ts', 'ISO8601']\n\
         [[filter]]\ntype = 'drop'\nwhen = '[level] == \"debug\"'\n\
         [id]\n{id}\n[index]\nname = 'logs-%{{app}}'\n\
         [output]\ntype = 'elasticsearch'\naction = '{action}'\nbulk_bytes_max = {bytes}\nbulk_items_max = {items}\n\
         requests_in_flight_max = {requests}\nrequest_timeout = '{timeout}ms'\nretry_wait_min = '100ms'\n\
         retry_wait_max = '{wait_max}ms'\n"
    );
    let bytes_in_flight_max = if rng.u8(..3) == 0 { 4 << 10 } else { 64 << 20 };
    Plan { from, pipeline, batch_bytes: 1 << rng.usize(8..14), bytes_in_flight_max, slots: rng.usize(1..9) }
}
