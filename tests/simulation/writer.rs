//! What writes the lines, and what must become of each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use crate::check;
use crate::logs::{self, Text};
use crate::pipe::PIPE;
use crate::scenario::{APPS, LINE_BYTES_MAX, Scenario, Shape};
use crate::world::{World, lock};

/// A copy that is shorter is like no file.
const HEAD: u64 = onceline::batch::HEAD as u64;

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

/// Each line has so many numbers for its events.
const NUMBERS: u64 = 8;

/// A line to be written, with its end.
#[derive(Clone)]
struct Draft {
    events: Vec<Event>,
    text: String,
}

#[derive(Clone)]
struct Event {
    n: u64,
    kind: Kind,
    app: usize,
    key: u64,
}

/// An event of a complete line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its own number, in its text: equal lines share it.
    pub n: u64,
    pub kind: Kind,
    pub text: Text,
    pub start: u64,
    pub end: u64,
    pub app: usize,
    pub key: u64,
    pub written: Duration,
}

/// The events of all complete lines written so far, in order of their files.
#[derive(Default)]
pub struct Lines {
    pub all: Vec<Line>,
    by_text: BTreeMap<Text, Vec<usize>>,
    /// Lines, by their numbers, that were destroyed before they had their fate: perhaps nobody could read them.
    pub lost: BTreeSet<u64>,
    /// Copies of logs that were truncated then, by their texts.
    pub copies: BTreeMap<Text, Copied>,
    /// Compressed texts.
    pub packed: BTreeSet<Text>,
    /// No more are written.
    pub is_over: bool,
}

/// How a log was copied.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    pub of: Text,
    /// When it had its first bytes.
    pub began: Duration,
    /// When it grew last, and to how much; none once it is whole.
    grew: Option<(Duration, u64)>,
    /// Nothing in it is read again that was read of the original.
    is_promised: bool,
}

impl Copied {
    /// Whether nothing in it may be read again now that was read of the original: one that stays too short to be
    /// known is.
    pub fn is_promised(&self, now: Duration) -> bool {
        let quiet_max = |bytes| Duration::from_secs(if bytes < HEAD { 2 } else { 8 });
        self.is_promised && self.grew.is_none_or(|(grew, bytes)| now - grew < quiet_max(bytes))
    }
}

impl Lines {
    fn push(&mut self, line: Line) {
        self.by_text.entry(line.text).or_default().push(self.all.len());
        self.all.push(line);
    }

    /// The lines of a text, in order.
    pub fn of(&self, text: Text) -> impl Iterator<Item = &Line> {
        self.by_text.get(&text).into_iter().flatten().map(|at| &self.all[*at])
    }

    /// These places of a text have been copied: the same lines once more.
    fn copied(&mut self, from: Text, to: Text, places: Range<u64>) {
        let lines = self.of(from).filter(|line| places.start < line.end && line.end <= places.end);
        let lines: Vec<Line> = lines.cloned().collect();
        lines.into_iter().for_each(|line| self.push(Line { text: to, ..line }));
    }

    /// A text is no more: what stands nowhere else and has no fate may be lost.
    fn destroyed(&mut self, text: Text, world: &World) {
        self.may_be_lost(self.of(text).cloned().collect(), world);
    }

    /// A process was killed that had read this of standard input.
    pub fn killed(&mut self, places: Range<u64>, world: &World) {
        let lines = self.of(PIPE).filter(|line| line.start < places.end && places.start < line.end);
        self.may_be_lost(lines.cloned().collect(), world);
    }

    fn may_be_lost(&mut self, lines: Vec<Line>, world: &World) {
        let readable: BTreeSet<Text> = world.logs.all().into_iter().map(|(text, _)| text).collect();
        let letters = check::letters(world);
        let is_readable = |line: &Line| match line.text == PIPE {
            true => line.start >= world.pipe.read(),
            false => readable.contains(&line.text),
        };
        for line in lines {
            let has_fate = world.engine.is_stored(line.n) || letters.contains_key(&line.n);
            let is_elsewhere = self.all.iter().any(|other| other.n == line.n && is_readable(other));
            if !has_fate && !is_elsewhere {
                self.lost.insert(line.n);
            }
        }
    }
}

/// One log, and those it was rotated to.
struct Log {
    number: usize,
    path: PathBuf,
    rotated: Vec<PathBuf>,
    /// Who rotated it by renaming still writes some to this.
    late: Option<u64>,
    turns: u32,
}

/// Writes all lines of a scenario, in pieces of any size.
pub async fn write(world: Arc<World>) {
    let scenario = &world.scenario;
    let mut rng = Rng::with_seed(scenario.seed ^ 0x3713_3333);
    let mut times: Vec<Duration> = (0..scenario.lines).map(|_| scenario.writing.mul_f64(rng.f64())).collect();
    times.sort();
    let log = |n| Log { number: n, path: logs::path(n), rotated: Vec::new(), late: None, turns: 0 };
    let mut all: Vec<Log> = (0..scenario.files).map(log).collect();
    let mut drafts: Vec<Draft> = Vec::new();
    for (n, time) in times.into_iter().enumerate() {
        let now = world.clock.now();
        if time > now && rng.u8(..4) > 0 {
            tokio::time::sleep(time - now).await;
        }
        // one more is standard input
        let file = rng.usize(..scenario.files + usize::from(scenario.has_stdin));
        if let Some(log) = all.get_mut(file)
            && rng.u32(..100) < scenario.turmoil
        {
            log.turn(&world, &mut rng).await;
        }
        let line = match rng.u8(..20) {
            // the same line again, in any file
            0 if !drafts.is_empty()
                && scenario.shape != Shape::Key
                && !(scenario.is_joined && file == scenario.files) =>
            {
                drafts[rng.usize(..drafts.len())].clone()
            }
            _ => line(&mut rng, scenario, n as u64, file).joined(scenario, file),
        };
        if line.events.iter().all(|event| event.kind == Kind::Good) {
            drafts.push(line.clone());
        }
        let text = all.get_mut(file).map_or(Some(PIPE), |log| log.text(&world, &mut rng));
        if let Some(text) = text {
            put(&world, &mut rng, text, line).await;
        }
    }
    // half a line that never ends
    if rng.bool()
        && let Some(text) = world.logs.at(&logs::path(0))
    {
        world.logs.append(text.file, b"{\"n\":999999999,\"half");
    }
    world.pipe.close();
    lock(&world.lines).is_over = true;
}

/// Writes a line.
async fn put(world: &World, rng: &mut Rng, text: Text, line: Draft) {
    let bytes = line.text;
    let start = if text == PIPE { world.pipe.len() } else { world.logs.len(text) };
    let end = start + bytes.len() as u64;
    let append = |bytes: &[u8]| match text == PIPE {
        true => world.pipe.write(bytes),
        false => world.logs.append(text.file, bytes),
    };
    // a line may be written in two goes, read in between
    if rng.u8(..6) == 0 {
        let cut = rng.usize(..bytes.len());
        append(&bytes.as_bytes()[..cut]);
        tokio::time::sleep(Duration::from_millis(rng.u64(..3_000))).await;
        append(&bytes.as_bytes()[cut..]);
    } else {
        append(bytes.as_bytes());
    }
    let written = world.clock.now();
    for Event { n, kind, app, key } in line.events {
        lock(&world.lines).push(Line { n, kind, text, start, end, app, key, written });
        world.clock.note("line written", n);
    }
}

impl Log {
    /// What the next line is written to.
    fn text(&mut self, world: &World, rng: &mut Rng) -> Option<Text> {
        let current = world.logs.at(&self.path)?;
        let late = self.late.filter(|_| rng.bool()).map(|file| Text { file, generation: 0 });
        if late.is_none() && rng.u8(..3) == 0 {
            self.late = None;
        }
        Some(late.unwrap_or(current))
    }

    /// Something that becomes of logs.
    async fn turn(&mut self, world: &World, rng: &mut Rng) {
        let logs = &world.logs;
        let Some(text) = logs.at(&self.path) else { return };
        self.turns += 1;
        let rotated = self.path.with_extension(format!("log.{}", self.turns));
        // of a record that is half written when its file goes there is half a document: only lines are whole or none
        let what = rng.u8(..10) % if world.scenario.is_joined { 4 } else { 10 };
        world.clock.note("turn", u64::from(what));
        match what {
            0..=3 => {
                // only a file that was never truncated is written to after it was renamed
                self.late = (text.generation == 0 && rng.bool()).then_some(text.file);
                logs.rename(&self.path, &rotated);
                self.rotated.push(rotated);
                logs.make(&self.path);
            }
            4..=5 => {
                self.copy(world, rng, text, &rotated).await;
                self.rotated.push(rotated);
                logs.truncate(&self.path);
                lock(&world.lines).destroyed(text, world);
            }
            6 => {
                logs.truncate(&self.path);
                lock(&world.lines).destroyed(text, world);
            }
            7 => {
                self.late = None;
                logs.delete(&self.path);
                logs.make(&self.path);
                lock(&world.lines).destroyed(text, world);
            }
            8 if !self.rotated.is_empty() => {
                self.late = None;
                let oldest = self.rotated.remove(0);
                let packed = PathBuf::from(format!("{}.gz", oldest.display()));
                let old = logs.at(&oldest);
                if let (Some(copy), Some(old)) = (logs.pack(&oldest, &packed), old) {
                    let lines = &mut *lock(&world.lines);
                    lines.copied(old, copy, 0..logs.len(old));
                    lines.packed.insert(copy);
                }
                logs.delete(&oldest);
            }
            _ if !self.rotated.is_empty() => {
                self.late = None;
                let oldest = self.rotated.remove(0);
                let old = logs.at(&oldest);
                logs.delete(&oldest);
                if let Some(old) = old {
                    lock(&world.lines).destroyed(old, world);
                }
            }
            _ => {}
        }
    }
}

impl Log {
    /// As copytruncate does it: first there is an empty file, then some of the copy, and all of it; the log grows on
    /// meanwhile, and perhaps before it is truncated.
    async fn copy(&self, world: &World, rng: &mut Rng, from: Text, to: &Path) {
        let logs = &world.logs;
        let to = logs.make(to);
        let is_slow = rng.u8(..12) == 0;
        let mut pauses = if rng.u8(..3) == 0 { 0 } else { rng.u64(1..4) };
        while pauses > 0 {
            let pause_max = match logs.len(to) {
                _ if is_slow => 90_000,
                1..HEAD => 2_000,
                _ => 8_000,
            };
            tokio::time::sleep(Duration::from_millis(rng.u64(..pause_max))).await;
            if rng.u8(..4) == 0 {
                self.grow(world, rng, from, pauses).await;
            }
            let (done, len) = (logs.len(to), logs.len(from));
            let end = if rng.u8(..4) == 0 { done.max(len.min(rng.u64(..1_200))) } else { rng.u64(done..=len) };
            self.copy_on(world, from, to, end);
            pauses -= 1;
        }
        self.copy_on(world, from, to, logs.len(from));
        let is_late = rng.u8(..6) == 0;
        if let Some(copied) = lock(&world.lines).copies.get_mut(&to) {
            (copied.grew, copied.is_promised) = (None, copied.is_promised && !is_late);
        }
        if is_late {
            tokio::time::sleep(Duration::from_millis(rng.u64(..100))).await;
            self.grow(world, rng, from, 9).await;
        }
    }

    fn copy_on(&self, world: &World, from: Text, to: Text, end: u64) {
        let done = world.logs.len(to);
        if done == end {
            return;
        }
        world.logs.copy_on(from, to, end);
        world.clock.note("copied", end);
        let mut lines = lock(&world.lines);
        lines.copied(from, to, done..end);
        let now = world.clock.now();
        let new = Copied { of: from, began: now, grew: None, is_promised: true };
        let copy = lines.copies.entry(to).or_insert(new);
        (copy.is_promised, copy.grew) = (copy.is_promised(now), Some((now, end)));
    }

    /// One more line, with a number that no other has.
    async fn grow(&self, world: &World, rng: &mut Rng, text: Text, count: u64) {
        let n = 1_000_000 * (1 + self.number as u64) + u64::from(self.turns) * 10 + count;
        let line = line(rng, &world.scenario, n, self.number);
        put(world, rng, text, line).await;
    }
}

/// A line: an event, or where the scenario has them several.
fn line(rng: &mut Rng, scenario: &Scenario, n: u64, file: usize) -> Draft {
    let feed = if rng.u8(..10) == 0 { "\r\n" } else { "\n" };
    let count = if scenario.has_parts && rng.u8(..6) == 0 { rng.u64(2..6) } else { 1 };
    let first = n * NUMBERS;
    if count == 1 {
        let event = event(rng, scenario, first, file);
        let text = object(rng, scenario, &event, &event.n.to_string());
        return Draft { events: vec![event], text: text + feed };
    }
    let mut events: Vec<Event> = (first..first + count).map(|n| part(rng, scenario, n, file)).collect();
    // two events that a filter makes of one have ids of their own, although they have one key
    if scenario.shape == Shape::Key || rng.bool() {
        let objects: Vec<String> =
            events.iter().map(|event| object(rng, scenario, event, &event.n.to_string())).collect();
        return Draft { events, text: format!("[{}]{feed}", objects.join(",")) };
    }
    let mut whole = events[0].clone();
    if matches!(whole.kind, Kind::Mapping | Kind::Poison) {
        whole.kind = Kind::Good;
    }
    events.iter_mut().for_each(|event| *event = Event { n: event.n, ..whole.clone() });
    let numbers: Vec<String> = events.iter().map(|event| event.n.to_string()).collect();
    let text = object(rng, scenario, &whole, &format!("[{}]", numbers.join(",")));
    Draft { events, text: text + feed }
}

impl Draft {
    /// In two lines, where records are of several: but none that is too long, which is of no record, and not in
    /// standard input, since who reads half of that knows lines.
    fn joined(self, scenario: &Scenario, file: usize) -> Draft {
        let is_long = self.events.iter().any(|event| event.kind == Kind::TooLong);
        match scenario.is_joined && !is_long && file < scenario.files {
            true => Draft { text: self.text.replacen("\"app\"", "\n \"app\"", 1), ..self },
            false => self,
        }
    }
}

/// An event of several of a line.
fn part(rng: &mut Rng, scenario: &Scenario, n: u64, file: usize) -> Event {
    let event = event(rng, scenario, n, file);
    match event.kind {
        Kind::BadJson | Kind::TooLong | Kind::TooLarge => Event { kind: Kind::Good, ..event },
        _ => event,
    }
}

fn event(rng: &mut Rng, scenario: &Scenario, n: u64, file: usize) -> Event {
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
    Event { n, kind, app, key: file as u64 * 100 + key }
}

fn object(rng: &mut Rng, scenario: &Scenario, event: &Event, n: &str) -> String {
    let Event { kind, app, key, .. } = event;
    let pad = match kind {
        Kind::TooLong => LINE_BYTES_MAX + rng.usize(..3_000),
        Kind::TooLarge => scenario.request_bytes_max.min(LINE_BYTES_MAX - 400),
        _ => 1 << rng.usize(..10),
    };
    let pad: String = (0..pad).map(|_| rng.lowercase()).collect();
    let time = if *kind == Kind::NoTime { "" } else { "\"ts\":\"2026-03-01T10:00:00.123Z\"," };
    let name = if *kind == Kind::BadName { "A B" } else { APPS[*app] };
    let level = if *kind == Kind::Debug { "debug" } else { "info" };
    let mark = match kind {
        Kind::Mapping => ",\"mark\":\"mapping\"",
        Kind::Poison => ",\"mark\":\"poison\"",
        Kind::TooLarge => ",\"mark\":\"large\"",
        _ if n.starts_with('[') => ",\"mark\":\"several\"",
        _ => "",
    };
    let end = if *kind == Kind::BadJson { "" } else { "}" };
    format!("{{\"n\":{n},{time}\"app\":\"{name}\",\"k\":\"{key}\",\"level\":\"{level}\"{mark},\"pad\":\"{pad}\"{end}")
}
