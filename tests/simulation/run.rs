//! One seed from its beginning to its end: lives that end as the scenario says, a last one that comes to its end, and
//! then everything is read again.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onceline::batch::Batch;
use onceline::codec::charset::Charset;
use onceline::codec::json::{Json, OnError};
use onceline::codec::rule::{Neighbour, Rule};
use onceline::codec::{Codec, Record};
use onceline::pipeline::Pipeline;
use onceline::pipeline::read::{Options, read};
use onceline::regexp::OfLine;
use onceline::time::Time;

use crate::check;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::life::{Ended, LETTERS, Order, live, replay};
use crate::logs::Logs;
use crate::pipe::{PIPE, Pipe};
use crate::saves;
use crate::scenario::{End, LETTERS_BYTES_MAX, Scenario, Shape};
use crate::world::{Clock, World, lock};
use crate::writer;

pub struct Outcome {
    pub wrong: Vec<String>,
    pub last: Vec<String>,
    pub digest: u64,
    pub counts: Counts,
    scenario: Scenario,
}

/// What all runs did.
#[derive(Clone, Default)]
pub struct Counts {
    pub lines: u64,
    pub stdin_lines: u64,
    /// Lines destroyed, or read by a process that was killed, before they had their fate.
    pub lost: u64,
    pub documents: u64,
    pub requests: u64,
    pub crashes: u64,
    pub stops: u64,
    /// Pipelines that replaced another.
    pub reloads: u64,
    /// Records in spools.
    pub kept: u64,
    pub replays: u64,
    /// Letters whose events are documents since.
    pub sent_again: u64,
    /// Lines of other indices written while one took nothing.
    pub unhindered: u64,
    pub hours: f64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.lines += other.lines;
        self.stdin_lines += other.stdin_lines;
        self.lost += other.lost;
        self.documents += other.documents;
        self.requests += other.requests;
        self.crashes += other.crashes;
        self.stops += other.stops;
        self.reloads += other.reloads;
        self.kept += other.kept;
        self.replays += other.replays;
        self.sent_again += other.sent_again;
        self.unhindered += other.unhindered;
        self.hours += other.hours;
    }

    pub fn words(&self) -> String {
        let Counts { lines, stdin_lines, lost, documents, requests, crashes, stops, .. } = self;
        let Counts { reloads, kept, replays, sent_again, unhindered, hours, .. } = self;
        format!(
            "{lines} lines, {stdin_lines} of them on standard input, {lost} destroyed, {documents} documents, \
             {requests} requests, {crashes} crashes, {stops} stops, {kept} records in spools, {reloads} reloads, \
             {sent_again} dead letters delivered by {replays} replays, \
             {unhindered} lines not hindered by another index in trouble, {hours:.1} simulated hours"
        )
    }
}

impl Outcome {
    pub fn words(&self, seed: u64) -> String {
        format!(
            "seed {seed} failed:\n  {}\nthe last steps:\n  {}\n{:#?}\n\
             again: ONCELINE_SEED={seed} cargo test --test simulation every_line -- --nocapture",
            self.wrong.join("\n  "),
            self.last.join("\n  "),
            self.scenario
        )
    }
}

pub fn run(seed: u64) -> Outcome {
    fastrand::seed(seed);
    let scenario = Scenario::new(seed);
    let pipelines: Vec<Pipeline> =
        scenario.plans.iter().map(|plan| pipeline(&plan.pipeline, scenario.is_joined)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime of one thread");
    runtime.block_on(async {
        let clock = Clock::start();
        clock.plan_faults(&scenario.faults, Duration::ZERO);
        let world = Arc::new(World {
            disk: Disk::new(seed, clock.clone()),
            logs: Logs::new(&scenario, clock.clone()),
            pipe: Pipe::default(),
            engine: Engine::new(&scenario, clock.clone()),
            lines: Default::default(),
            letters: Default::default(),
            counts: Default::default(),
            is_replaying: Default::default(),
            clock,
            scenario,
        });
        through(&world, &pipelines).await;
        let mut counts = lock(&world.counts).clone();
        let lines = lock(&world.lines);
        (counts.lines, counts.lost) = (lines.all.len() as u64, lines.lost.len() as u64);
        counts.stdin_lines = lines.of(PIPE).count() as u64;
        drop(lines);
        counts.documents = world.engine.docs().len() as u64;
        counts.requests = world.engine.requests();
        counts.hours = world.clock.now().as_secs_f64() / 3600.0;
        let (wrong, last, digest) = world.clock.story();
        Outcome { wrong, last, digest, counts, scenario: world.scenario.clone() }
    })
}

async fn through(world: &Arc<World>, pipelines: &[Pipeline]) {
    tokio::spawn(writer::write(world.clone()));
    tokio::spawn(make_room(world.clone()));
    let mut crashes = Vec::new();
    let mut ends = world.scenario.ends.clone();
    ends.reverse();
    loop {
        let end = ends.pop();
        let (order, steps) = ordered(end);
        world.clock.begin(steps);
        let ended = live(world, pipelines, order.clone()).await;
        recover(world, end, ended);
        crashes.push(world.clock.now());
        if world.clock.is_wrong() {
            return;
        }
        if end.is_none() || ended == Ended::Stopped && order.stop.is_none() {
            break;
        }
    }
    if let Ok(watched) = saves::load(world, false) {
        check::places_at_the_end(world, &watched.store.positions());
    }
    check::fates(world);
    check::one_letter_each(world);
    let unhindered = check::others_went_on(world, &crashes);
    lock(&world.counts).unhindered = unhindered;
    // an older version that is sent again is the newest then
    if world.scenario.shape != Shape::Key && !world.clock.is_wrong() {
        world.is_replaying.store(true, Ordering::Relaxed);
        send_letters_again(world, pipelines).await;
        world.is_replaying.store(false, Ordering::Relaxed);
    }
    let before = world.engine.docs();
    world.clock.begin(None);
    live(world, pipelines, Order { from_start: true, ..Order::default() }).await;
    check::replay(world, &before);
}

/// What is asked of a life that ends so, and its last step.
fn ordered(end: Option<End>) -> (Order, Option<u64>) {
    match end {
        Some(End::Kill { steps } | End::PowerLoss { steps }) => (Order::default(), Some(steps)),
        Some(End::KillAfter(after)) => (Order { kill_after: Some(after), ..Order::default() }, None),
        Some(End::Stop { after, drain }) => (Order { stop: Some((after, drain)), ..Order::default() }, None),
        None => (Order::default(), None),
    }
}

fn recover(world: &World, end: Option<End>, ended: Ended) {
    match ended {
        Ended::Crashed => lock(&world.counts).crashes += 1,
        Ended::Stopped => lock(&world.counts).stops += 1,
    }
    world.disk.recover(matches!(end, Some(End::PowerLoss { .. })) && ended == Ended::Crashed);
}

/// The mapping is mended, and the letters are sent again, until a replay comes to its end.
async fn send_letters_again(world: &Arc<World>, pipelines: &[Pipeline]) {
    world.engine.mend();
    world.clock.plan_faults(&world.scenario.replay_faults, world.clock.now());
    let until = world.clock.now() + world.scenario.replay_calm();
    for end in world.scenario.replays.iter().copied().map(Some) {
        let (order, steps) = ordered(end);
        world.clock.begin(steps);
        let ended = replay(world, pipelines, order).await;
        recover(world, end, ended);
        check::letters_have_fates(world);
        if world.clock.is_wrong() {
            return;
        }
    }
    world.clock.begin(None);
    tokio::time::sleep(until.saturating_sub(world.clock.now())).await;
    let before = check::letters(world);
    replay(world, pipelines, Order::default()).await;
    check::sent_again(world, &before);
    check::fates(world);
}

/// Somebody who moves the file of dead letters away, where it must not grow.
async fn make_room(world: Arc<World>) {
    for count in (0u64..).take_while(|_| world.scenario.letters_bytes_max < LETTERS_BYTES_MAX) {
        tokio::time::sleep(Duration::from_secs(7)).await;
        // who sends letters again must find them
        if world.is_replaying.load(Ordering::Relaxed) {
            continue;
        }
        world.disk.move_away(Path::new(LETTERS), Path::new(&format!("{LETTERS}.{count}")));
    }
}

fn pipeline(text: &str, is_joined: bool) -> Pipeline {
    let options =
        Options { now: Some(Time::new(1_772_366_400, 0)), state: Some("/state".into()), ..Options::default() };
    let (plan, report) = read(Path::new("simulation.toml"), text.as_bytes(), &options, &|_| None);
    let mut pipeline = plan.unwrap_or_else(|| panic!("{}\n{}", text, report.render(false))).pipeline;
    if is_joined {
        pipeline.inputs[0].codec = Box::new(Joined::new());
    }
    pipeline
}

/// JSON in several lines: those that begin with a blank belong to the one before.
struct Joined {
    json: Json,
    rule: Arc<Rule>,
}

impl Joined {
    fn new() -> Joined {
        let pattern = OfLine::parse("^ ").expect("a pattern");
        let (negate, what, keeps_blank) = (false, Neighbour::Previous, false);
        let (lines_max, bytes_max, charset) = (100, 1 << 20, Charset::Utf8);
        let flush_after = Duration::from_secs(5);
        let rule = Rule { pattern, negate, what, lines_max, bytes_max, keeps_blank, charset, flush_after };
        Joined { json: Json::new(OnError::DeadLetter, onceline::json::FIELDS_MAX), rule: Arc::new(rule) }
    }
}

impl Codec for Joined {
    fn decode(&self, batch: &mut Batch, records: &[Record]) {
        self.json.decode(batch, records);
    }

    fn name(&self) -> &'static str {
        "joined"
    }

    fn rule(&self) -> Option<&Arc<Rule>> {
        Some(&self.rule)
    }
}
