//! One life of the process: the pipeline's own code from reading to the fates, over the simulated disk and engine.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use onceline::ack::{self, Acks, GROUP_MAX, Letter, LetterFile, Letters, Message, Saving, Settled, Shared, Summary};
use onceline::input::budget::Budget;
use onceline::input::follow::Lanes;
use onceline::input::follow::machine::{Hint, Machine, Rules};
use onceline::input::follow::pattern::Paths;
use onceline::input::identity::Position;
use onceline::input::{Draft, Job, Limits};
use onceline::output::{self, Config, Phase, Slots};
use onceline::pipeline::Pipeline;
use onceline::pipeline::run::Worker;
use onceline::pool::Pool;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::check;
use crate::disk::Disk;
use crate::logs;
use crate::saves;
use crate::scenario::Scenario;
use crate::world::{Crashed, World, lock};

pub const LETTERS: &str = "/state/dead-letters.ndjson";

/// How a life came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Crashed,
    /// Told to stop, or done.
    Stopped,
}

/// What is asked of a life.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// When it is told to stop, and how long it may drain; else it ends when all is done.
    pub stop: Option<(Duration, Duration)>,
    pub kill_after: Option<Duration>,
    /// Reads everything again.
    pub from_start: bool,
}

struct Life<'a> {
    world: &'a World,
    pipeline: &'a Pipeline,
    order: Order,
    shared: Shared,
    budget: Arc<Budget>,
    rng: Mutex<Rng>,
    /// How often each line was handed over in this life, by its number; how many in all.
    handed: Mutex<(BTreeMap<u64, u64>, u64)>,
    phases: watch::Sender<Phase>,
    /// Found at the start.
    positions: Vec<Position>,
}

/// Runs one life to its end.
pub async fn live(world: &Arc<World>, pipeline: &Pipeline, order: Order) -> Ended {
    let scenario = &world.scenario;
    let watched = match saves::load(world, order.from_start) {
        Ok(watched) => watched,
        Err(_) if world.clock.is_over() => return Ended::Crashed,
        Err(error) => {
            world.clock.wrong(format!("saved positions cannot be read: {error:#}"));
            return Ended::Crashed;
        }
    };
    check::positions(world, &watched.store.positions(), "found at a start");
    let life = Life {
        world,
        pipeline,
        order,
        shared: Shared::default(),
        budget: Budget::new(scenario.bytes_in_flight_max),
        rng: Mutex::new(Rng::with_seed(scenario.seed ^ world.clock.now().as_nanos() as u64)),
        handed: Mutex::default(),
        phases: watch::Sender::new(Phase::Running),
        positions: watched.store.positions(),
    };
    tokio::select! {
        biased;
        () = world.clock.crashed() => Ended::Crashed,
        () = life.kill() => Ended::Crashed,
        done = life.run(Saving::new(Some(Box::new(watched)))) => if done.is_ok() { Ended::Stopped } else { Ended::Crashed },
    }
}

impl Life<'_> {
    async fn kill(&self) {
        match self.order.kill_after {
            Some(after) => sleep(after).await,
            None => std::future::pending().await,
        }
        self.world.clock.crash();
    }

    async fn run(&self, saving: Saving) -> Result<(), Crashed> {
        let Config::Elasticsearch(config) = &self.pipeline.output else {
            self.world.clock.wrong("the pipeline has another output".to_string());
            return Ok(());
        };
        let mut config = (**config).clone();
        config.complete(self.pipeline);
        let (acks, messages) = Acks::channel();
        let (slots, parcels) = output::queue(self.world.scenario.slots);
        let (jobs, taken) = mpsc::channel(2);
        let taken = tokio::sync::Mutex::new(taken);
        let link = self.world.engine.link();
        let (acks_1, acks_2, acks_3) = (acks.clone(), acks.clone(), acks.clone());
        let (read, .., told, delivered, ()) = tokio::join!(
            self.read(slots, jobs),
            self.work(&taken, acks_1),
            self.work(&taken, acks_2),
            self.work(&taken, acks_3),
            self.tell(messages, saving),
            config.deliver(link, parcels, acks, self.phases.subscribe()),
            self.watch(),
        );
        read?;
        told?;
        if let Err(error) = delivered {
            self.world.clock.wrong(format!("the output ended: {error:#}"));
        }
        check::end_of_life(self.world, &self.outcome());
        Ok(())
    }

    fn outcome(&self) -> check::Outcome {
        let (handed, count) = lock(&self.handed).clone();
        let (summary, open) = self.counts();
        let is_abandoned = *self.phases.borrow() == Phase::Abandon;
        check::Outcome { handed, count, summary, open, is_abandoned }
    }

    fn counts(&self) -> (Summary, usize) {
        let counts = self.shared.lock();
        (counts.0, counts.1.open_batches())
    }

    /// Ends the life when its time has come, or when all is done; says so if that takes too long.
    async fn watch(&self) {
        let (world, scenario) = (self.world, &self.world.scenario);
        if let Some((after, drain)) = self.order.stop {
            sleep(after).await;
            world.clock.note("told to stop", 0);
            self.phases.send_replace(Phase::Draining);
            sleep(drain).await;
            self.phases.send_replace(Phase::Abandon);
            return;
        }
        let now = world.clock.now();
        let calm = scenario.calm().max(now) - now;
        sleep(calm).await;
        let done = async {
            // the second time after all files were looked at once more
            for again in [Duration::ZERO, Duration::from_secs(20)] {
                sleep(again).await;
                while !self.is_done() {
                    sleep(Duration::from_secs(1)).await;
                }
            }
        };
        if timeout(scenario.patience(), done).await.is_err() {
            let (summary, open) = self.counts();
            let words = summary.words(1.0);
            world.clock.wrong(format!("it does not come to its end: {open} batches open, {words}"));
            self.phases.send_replace(Phase::Abandon);
            return;
        }
        self.phases.send_replace(Phase::Draining);
    }

    fn is_done(&self) -> bool {
        let (summary, open) = self.counts();
        summary.unsettled() == 0 && open == 0 && check::is_done(self.world)
    }

    async fn pause(&self, ms_max: u64) {
        let ms = lock(&self.rng).u64(..=ms_max);
        sleep(Duration::from_millis(ms)).await;
    }

    /// The input: files that are followed.
    async fn read(&self, slots: Slots, jobs: mpsc::Sender<Job>) -> Result<(), Crashed> {
        let world = self.world;
        let limits =
            Limits { batch_bytes: world.scenario.batch_bytes, line_bytes_max: self.pipeline.limits(0).line_bytes_max };
        let (pool, known) = (Pool::default(), self.positions.clone());
        let mut machine = Machine::new(world.logs.clone(), rules(&world.scenario), limits, &pool, known);
        let mut lanes = Lanes::new(&self.positions, 0);
        while *self.phases.borrow() == Phase::Running {
            world.clock.step("look", 0)?;
            let mut drafts = Vec::new();
            let next = machine.step(world.clock.now(), &self.hints(), &mut |told| {
                if world.clock.is_traced() {
                    let told = format!("{told:?}");
                    eprintln!("           {}", &told[..told.len().min(600)]);
                }
                lanes.hear(told, &self.shared, &mut |draft| {
                    drafts.push(draft);
                    true
                })
            });
            for draft in drafts {
                self.submit(draft, &slots, &jobs).await?;
            }
            let wait = next.saturating_sub(world.clock.now());
            tokio::select! {
                biased;
                () = self.stopping() => {}
                () = sleep(wait) => {}
                // something is said to have changed
                () = self.pause(20_000) => {}
            }
        }
        Ok(())
    }

    async fn stopping(&self) {
        let mut phases = self.phases.subscribe();
        // the sender lives in self
        let _ = phases.wait_for(|phase| *phase != Phase::Running).await;
    }

    fn hints(&self) -> Vec<Hint> {
        let mut rng = lock(&self.rng);
        match rng.u8(..3) {
            0 => Vec::new(),
            1 => vec![Hint::Folders],
            _ => vec![Hint::Path(logs::path(rng.usize(..self.world.scenario.files)))],
        }
    }

    /// Waits until `get` gives something; none if it was given up.
    async fn wait_for<T>(&self, get: impl Fn() -> Option<T>) -> Option<T> {
        let mut wait = 1;
        loop {
            if let Some(got) = get() {
                return Some(got);
            }
            self.pause(wait).await;
            if *self.phases.borrow() == Phase::Abandon {
                return None;
            }
            wait = (wait * 2).min(2_000);
        }
    }

    async fn submit(&self, draft: Draft, slots: &Slots, jobs: &mpsc::Sender<Job>) -> Result<(), Crashed> {
        let bytes = draft.block.bytes.len();
        let Some(permit) = self.wait_for(|| self.budget.try_take(bytes)).await else { return Ok(()) };
        let Some(slot) = self.wait_for(|| slots.try_take()).await else { return Ok(()) };
        self.world.clock.step("hand over", bytes as u64)?;
        self.note_handed(&draft);
        let _ = jobs.send(draft.job(permit, slot, &self.shared)).await;
        Ok(())
    }

    fn note_handed(&self, draft: &Draft) {
        let Some((file, mark)) = draft.file.as_ref().zip(draft.block.mark) else { return };
        let position = file.at(mark);
        let lines = lock(&self.world.lines);
        let mut handed = lock(&self.handed);
        let Some(text) = self.world.logs.texts_of(&position).into_iter().next() else {
            let place = format!("{} of {:?}", mark.offset, position.path);
            return self.world.clock.wrong(format!("what was read up to {place} stands in no text"));
        };
        let covered = draft.block.offset..mark.offset;
        for line in lines.of(text).filter(|line| covered.contains(&line.start)) {
            *handed.0.entry(line.n).or_default() += 1;
            handed.1 += 1;
        }
    }

    /// One worker.
    async fn work(&self, jobs: &tokio::sync::Mutex<mpsc::Receiver<Job>>, acks: Acks) {
        let mut worker = Worker::new(self.pipeline, output::Form::Bulk(self.pipeline.output.action()));
        loop {
            let job = jobs.lock().await.recv().await;
            let Some(job) = job else { return };
            self.pause(5).await;
            worker.work(job, &acks);
        }
    }

    /// What is settled: letters, then counts and positions.
    async fn tell(&self, messages: Receiver<Message>, mut saving: Saving) -> Result<(), Crashed> {
        let world = self.world;
        let bytes_max = world.scenario.letters_bytes_max;
        let mut letters = LetterFile::new_on(world.disk.clone(), LETTERS.into(), bytes_max);
        let mut quiet = 1;
        loop {
            let is_over = match messages.try_recv() {
                Ok(first) => {
                    let count = lock(&self.rng).usize(..GROUP_MAX);
                    let group = [first].into_iter().chain(messages.try_iter().take(count));
                    let settled = |message| match message {
                        Message::Settled(settled) => Some(settled),
                        // asked by outputs that save positions themselves
                        Message::Flush(_) => None,
                    };
                    self.group(group.filter_map(settled).collect(), &mut letters).await?;
                    quiet = 1;
                    false
                }
                Err(TryRecvError::Empty) => {
                    self.pause(quiet).await;
                    quiet = (quiet * 2).min(1_500);
                    false
                }
                Err(TryRecvError::Disconnected) => true,
            };
            if is_over {
                return self.last_save(saving).await;
            }
            if saving.due(&self.shared) == Some(Duration::ZERO) {
                let _ = saving.save(&self.shared);
                world.clock.step("saved", 0)?;
            }
        }
    }

    /// Tried until it is done or given up.
    async fn last_save(&self, mut saving: Saving) -> Result<(), Crashed> {
        while saving.due(&self.shared).is_some() && saving.save(&self.shared).is_err() {
            self.world.clock.step("positions wait", 0)?;
            if *self.phases.borrow() == Phase::Abandon {
                break;
            }
            self.pause(500).await;
        }
        Ok(())
    }

    async fn group(&self, mut group: Vec<Settled>, letters: &mut LetterFile<Disk>) -> Result<(), Crashed> {
        ack::complete(&mut group);
        let all: Vec<&Letter> = group.iter().flat_map(|end| &end.letters).collect();
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let Err(short) = letters.append(rest) else { break };
            rest = &rest[short.taken..];
            self.world.clock.step("letters wait", 0)?;
            if *self.phases.borrow() == Phase::Abandon {
                self.shared.count_unsettled(&group);
                return Ok(());
            }
            self.pause(500).await;
        }
        self.shared.count(&group);
        self.world.clock.step("counted", group.len() as u64)?;
        check::counts(self.world, &self.counts().0);
        Ok(())
    }
}

fn rules(scenario: &Scenario) -> Rules {
    let pattern = "/log/*";
    Rules {
        paths: Paths::parse(pattern).into_iter().collect(),
        patterns: glob::Pattern::new(pattern).into_iter().collect(),
        exclude: Vec::new(),
        from_end: false,
        poll_interval: scenario.poll_interval,
        open_files_max: scenario.open_files_max,
        close_after: Duration::from_secs(30),
        idle_flush: None,
    }
}
