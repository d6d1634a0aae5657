//! One session of a life: a pipeline that runs until it is stopped or replaced. The pipeline's own code from reading
//! to the fates, with what the real one does on threads done here by tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use onceline::ack::kept::Kept;
use onceline::ack::{Acks, GROUP_MAX, Letter, Letters, Message, Saving, Settled, Shared, Summary};
use onceline::input::Job;
use onceline::input::budget::Budget;
use onceline::input::identity::Position;
use onceline::output::{self, Config, Phase};
use onceline::pipeline::Pipeline;
use onceline::pipeline::run::{Feed, Worker};
use onceline::pool::Pool;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::check;
use crate::logs::Text;
use crate::pipe::PIPE;
use crate::scenario::{Plan, Shape};
use crate::world::{Crashed, World, lock};
use crate::writer::Line;

pub struct Session<'a> {
    pub world: &'a World,
    pub plan: &'a Plan,
    pub pipeline: &'a Pipeline,
    pub shared: Arc<Shared>,
    pub kept: Arc<Kept>,
    pub budget: Arc<Budget>,
    pub phases: watch::Sender<Phase>,
    /// Found at the start.
    pub positions: Vec<Position>,
    pub rng: Mutex<Rng>,
    /// How often each line was handed over, by its number; how many in all.
    pub handed: Mutex<(BTreeMap<u64, u64>, u64)>,
    /// The same by their places, with the texts of which enough was read to know copies of them, since when.
    pub places: Mutex<Places>,
    /// Events that came in before it.
    pub before: u64,
}

/// What was read of files.
#[derive(Default)]
pub struct Places {
    /// Events, by the places of their lines and by their numbers.
    pub read: BTreeSet<(Text, u64, u64)>,
    pub known: BTreeMap<Text, Duration>,
}

impl<'a> Session<'a> {
    pub fn new(
        world: &'a World,
        plan: &'a Plan,
        pipeline: &'a Pipeline,
        shared: Arc<Shared>,
        kept: Arc<Kept>,
        phases: watch::Sender<Phase>,
        positions: Vec<Position>,
    ) -> Session<'a> {
        let budget = Budget::new(plan.bytes_in_flight_max);
        let rng = Mutex::new(Rng::with_seed(world.scenario.seed ^ world.clock.now().as_nanos() as u64));
        let before = shared.lock().0.tally.events_in;
        let (handed, places) = Default::default();
        Session { world, plan, pipeline, shared, kept, budget, phases, positions, rng, handed, places, before }
    }

    /// Until reading has ended and all that was read is settled or given up.
    pub async fn run(&self, feed: Feed, saving: Saving, letters: Box<dyn Letters>) -> Result<(), Crashed> {
        let Config::Elasticsearch(config) = &self.pipeline.output else {
            self.world.clock.wrong("the pipeline has another output".to_string());
            return Ok(());
        };
        let mut config = (**config).clone();
        config.complete(self.pipeline);
        let (acks, messages) = Acks::channel();
        let (slots, parcels) = output::queue(self.plan.slots);
        let (jobs, taken) = mpsc::channel(2);
        let taken = tokio::sync::Mutex::new(taken);
        let link = self.world.engine.link();
        let (acks_1, acks_2, acks_3) = (acks.clone(), acks.clone(), acks.clone());
        let (read, .., told, delivered) = tokio::join!(
            self.take_in(feed, slots, jobs),
            self.work(&taken, acks_1),
            self.work(&taken, acks_2),
            self.work(&taken, acks_3),
            self.tell(messages, saving, letters),
            config.deliver(link, parcels, acks, self.phases.subscribe()),
        );
        read?;
        told?;
        if let Err(error) = delivered {
            self.world.clock.wrong(format!("the output ended: {error:#}"));
        }
        check::end_of_session(self.world, &self.outcome());
        Ok(())
    }

    fn outcome(&self) -> check::Outcome {
        let (handed, count) = lock(&self.handed).clone();
        let (summary, open) = self.counts();
        let is_abandoned = self.is_given_up();
        check::Outcome { handed, count: self.before + count, summary, open, is_abandoned }
    }

    pub fn counts(&self) -> (Summary, usize) {
        let counts = self.shared.lock();
        (counts.0, counts.1.open_batches())
    }

    pub fn is_running(&self) -> bool {
        *self.phases.borrow() == Phase::Running
    }

    fn is_given_up(&self) -> bool {
        *self.phases.borrow() == Phase::Abandon
    }

    /// All of the files was read, where an older line that is the last one read would be the document.
    pub fn has_read_all(&self) -> bool {
        let (lines, places) = (lock(&self.world.lines), lock(&self.places));
        let is_read = |line: &Line| line.text == PIPE || places.read.contains(&(line.text, line.start, line.n));
        self.world.scenario.shape != Shape::Key || lines.all.iter().all(is_read)
    }

    pub async fn pause(&self, ms_max: u64) {
        let ms = lock(&self.rng).u64(..=ms_max);
        sleep(Duration::from_millis(ms)).await;
    }

    pub async fn stopping(&self) {
        let mut phases = self.phases.subscribe();
        // the sender lives in self
        let _ = phases.wait_for(|phase| *phase != Phase::Running).await;
    }

    /// Waits until `get` gives something; none if it was given up.
    pub async fn wait_for<T>(&self, get: impl Fn() -> Option<T>) -> Option<T> {
        let mut wait = 1;
        loop {
            if let Some(got) = get() {
                return Some(got);
            }
            self.pause(wait).await;
            if self.is_given_up() {
                return None;
            }
            wait = (wait * 2).min(2_000);
        }
    }

    /// One worker.
    async fn work(&self, jobs: &tokio::sync::Mutex<mpsc::Receiver<Job>>, acks: Acks) {
        let mut worker = Worker::new(self.pipeline, output::Form::Bulk(self.pipeline.output.action()), Pool::default());
        loop {
            let job = jobs.lock().await.recv().await;
            let Some(job) = job else { return };
            self.pause(5).await;
            worker.work(job, &acks);
        }
    }

    /// What is settled: letters, then counts and positions.
    async fn tell(
        &self,
        messages: Receiver<Message>,
        mut saving: Saving,
        mut letters: Box<dyn Letters>,
    ) -> Result<(), Crashed> {
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
                    let group: Vec<Settled> = group.filter_map(settled).collect();
                    saving.note_files(&group, &self.shared);
                    self.group(group, &mut *letters).await?;
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
                let _ = saving.save_or_note(&self.shared);
                self.world.clock.step("saved", 0)?;
            }
        }
    }

    /// Tried until it is done or given up.
    async fn last_save(&self, mut saving: Saving) -> Result<(), Crashed> {
        while saving.due(&self.shared).is_some() && saving.save(&self.shared).is_err() {
            self.world.clock.step("positions wait", 0)?;
            if self.is_given_up() {
                break;
            }
            self.pause(500).await;
        }
        Ok(())
    }

    async fn group(&self, group: Vec<Settled>, letters: &mut dyn Letters) -> Result<(), Crashed> {
        let all: Vec<&Letter> = group.iter().flat_map(|end| &end.letters).collect();
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            let Err(short) = letters.append(rest) else { break };
            rest = &rest[short.taken..];
            self.world.clock.step("letters wait", 0)?;
            if self.is_given_up() {
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
