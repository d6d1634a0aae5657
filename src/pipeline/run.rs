//! Runs a pipeline: the only code that knows threads and queues.
//!
//! ```text
//! inputs (a thread each) -> jobs -> workers -> slots, in the order read -> output (one thread)
//!                                      \_____________ ends of events _____________/
//!                                                           v
//!                                        ack (one thread): letters, counts, positions
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Context;

use super::pack::Packer;
use super::{InputKind, Pipeline};
use crate::ack::kept::{Held, Kept};
use crate::ack::positions::{Before, Save, Store};
use crate::ack::told::Told;
use crate::ack::{Acks, Desk, LetterFile, Letters, Shared, Summary, Tally};
use crate::batch::Batch;
use crate::codec::Record;
use crate::disk::Real;
use crate::input::budget::Budget;
use crate::input::identity::Position;
use crate::input::known::Known;
use crate::input::lines::Rest;
use crate::input::{Given, Intake, Job, spool, stdin};
use crate::output::{self, Form, Output, Parcel, Phase, Phases};
use crate::pool::Pool;
use crate::time::Time;

/// Parcels that may wait for the output or be in the making; their bytes have a limit of their own. Of small files each
/// has a parcel, and outputs join what is there.
const SLOTS_MAX: usize = 64;

/// How a pipeline ended.
pub struct Ending {
    pub summary: Summary,
    /// What kept it from its end.
    pub errors: Vec<anyhow::Error>,
    /// An input that has an end was not read to it.
    pub is_unread: bool,
}

/// One run of a pipeline.
pub struct Session {
    pub shared: Arc<Shared>,
    /// What cannot be read again and is not settled; what is in it after the run is for a spool.
    pub kept: Arc<Kept>,
    pub phases: Phases,
    pub feed: Feed,
    /// Where dead letters go; none: to the pipeline's file.
    pub letters: Option<Box<dyn Letters>>,
}

/// What a run reads.
pub enum Feed {
    /// The pipeline's inputs; first what earlier runs kept of standard input, and what the pipeline that this one
    /// replaces had begun to read of it.
    Inputs { rest: Rest },
    /// These blocks alone.
    Given(Vec<Given>),
}

/// Runs until every input has ended and all is settled, or until `phases` says otherwise. The caller holds the lock
/// of the state folder.
pub fn run(pipeline: &Pipeline, shared: &Arc<Shared>, phases: &Phases) -> Ending {
    let (shared, phases, feed) = (shared.clone(), phases.clone(), Feed::Inputs { rest: Rest::default() });
    run_session(pipeline, Session { shared, kept: Arc::default(), phases, feed, letters: None })
}

/// As [`run`], with what else there is to say of it. A session that replaces another goes on where that one saved
/// the positions.
pub fn run_session(pipeline: &Pipeline, session: Session) -> Ending {
    session.shared.begin();
    match begin(pipeline, &session) {
        Ok(begun) => carry_out(pipeline, begun, session),
        Err(error) => {
            if let Feed::Inputs { rest } = session.feed {
                session.kept.hold_rest(0, stdin::source(&rest), rest);
            }
            Ending { summary: Summary::default(), errors: vec![error], is_unread: pipeline.has_an_end() }
        }
    }
}

struct Begun {
    output: Box<dyn Output>,
    before: Arc<Before>,
    /// Where positions are saved, unless the output does that.
    positions: Option<Box<dyn Save>>,
    /// Letters of what may be read again.
    told: Told,
}

/// Opens the output, and finds out how far the files were read.
fn begin(pipeline: &Pipeline, session: &Session) -> anyhow::Result<Begun> {
    let mut output = pipeline.output.open(pipeline)?;
    let has_files = pipeline.inputs.iter().any(|input| matches!(input.kind, InputKind::File(_)));
    if matches!(session.feed, Feed::Given(_)) {
        // what is given has no position, and another process may hold those there are
        return Ok(Begun { output, before: Arc::default(), positions: None, told: Told::default() });
    }
    if !has_files {
        let told = told(pipeline, &[])?;
        return Ok(Begun { output, before: Arc::default(), positions: None, told });
    }
    let patterns = pipeline.patterns()?;
    let anew = pipeline.from_start.then_some(patterns.as_slice());
    let (before, store) = match output.positions(anew, &session.phases)? {
        Some(before) => (before, None),
        None => {
            let mut store = match anew {
                Some(_) => Store::empty(&pipeline.state),
                None => Store::load(&pipeline.state)?,
            };
            store.note_look(anew.into_iter().flatten().cloned());
            store.forget_gone(Time::now().secs);
            (store.before(), Some(Box::new(store) as Box<dyn Save>))
        }
    };
    let told = told(pipeline, &before.positions)?;
    session.shared.lock().1.number_above(told.number_max());
    Ok(Begun { output, before: Arc::new(before), positions: store, told })
}

/// The letters of what may be read again: behind these positions, or of spools.
fn told(pipeline: &Pipeline, positions: &[Position]) -> anyhow::Result<Told> {
    // a folder that cannot be looked into is told of when they are sent
    let spools = spool::files(&Real, &pipeline.spool).unwrap_or_default();
    let spools = spools.iter().filter_map(|path| spool::number(path)).collect();
    let failed = || format!("cannot read the dead letters in {}", pipeline.letters.display());
    Told::load(&Real, &pipeline.letters, positions, &spools).with_context(failed)
}

fn carry_out(pipeline: &Pipeline, begun: Begun, session: Session) -> Ending {
    let Begun { output, before, positions, told } = begun;
    let known = Arc::new(Known::new(before.positions.clone()));
    let Session { shared, kept, phases, feed, letters } = session;
    let (shared, phases) = (&shared, &phases);
    let form = output.form();
    let file = || LetterFile::new(pipeline.letters.clone(), pipeline.letters_bytes_max).after(told);
    let letters = letters.unwrap_or_else(|| Box::new(file()));
    let desk = Desk { letters, positions, shared, phases };
    let (acks, messages) = Acks::channel();
    let (slots, parcels) = output::queue(SLOTS_MAX);
    let (jobs, taken) = sync_channel::<Job>(pipeline.tuning.workers);
    let taken = Mutex::new(taken);
    let (pool, bodies) = (Pool::default(), Pool::default());
    let budget = Budget::new(pipeline.tuning.bytes_in_flight_max);
    let errors = Mutex::new(Vec::new());
    let is_unread = AtomicBool::new(false);
    let fail = |error: anyhow::Error| errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    thread::scope(|scope| {
        let fail = &fail;
        scope.spawn(move || desk.run(&messages).unwrap_or_else(fail));
        let output_acks = acks.clone();
        scope.spawn(move || output.run(parcels, output_acks, phases.clone()).unwrap_or_else(fail));
        for _ in 0..pipeline.tuning.workers {
            let (taken, acks) = (&taken, acks.clone());
            let worker = Worker::new(pipeline, form, bodies.clone());
            scope.spawn(move || work(worker, taken, &acks));
        }
        drop(acks);
        let intake = |input: usize| Intake {
            input,
            limits: pipeline.limits(input),
            pool: pool.clone(),
            jobs: jobs.clone(),
            slots: slots.clone(),
            budget: budget.clone(),
            shared: shared.clone(),
            kept: kept.clone(),
            phases: phases.clone(),
            before: before.clone(),
            known: known.clone(),
            now: pipeline.now,
        };
        match feed {
            Feed::Inputs { mut rest } => {
                check_spools(pipeline).unwrap_or_else(fail);
                for input in 0..pipeline.inputs.len() {
                    let is_stdin = matches!(pipeline.inputs[input].kind, InputKind::Stdin);
                    let rest = if is_stdin { std::mem::take(&mut rest) } else { Rest::default() };
                    let (intake, is_unread) = (intake(input), &is_unread);
                    scope.spawn(move || {
                        take_in(pipeline, &intake, rest).unwrap_or_else(fail);
                        let is_stopped = *intake.phases.borrow() != Phase::Running;
                        is_unread.fetch_or(is_stopped && pipeline.inputs[input].is_left_unread(), Ordering::Relaxed);
                    });
                }
            }
            Feed::Given(blocks) => {
                let intake = intake(0);
                scope.spawn(move || intake.give(&mut blocks.into_iter().map(Ok)).unwrap_or_else(fail));
            }
        }
        drop((jobs, slots));
    });
    let summary = shared.lock().0;
    let errors = errors.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ending { summary, errors, is_unread: is_unread.into_inner() }
}

fn take_in(pipeline: &Pipeline, intake: &Intake, rest: Rest) -> anyhow::Result<()> {
    match &pipeline.inputs[intake.input].kind {
        InputKind::Stdin => match give_spools(pipeline, intake) {
            Ok(true) => stdin::run(intake, rest),
            ending => {
                intake.kept.hold_rest(intake.input, stdin::source(&rest), rest);
                ending.map(drop)
            }
        },
        InputKind::File(config) => config.run(intake),
    }
}

/// What was kept of standard input must not be forgotten because the pipeline reads something else now.
fn check_spools(pipeline: &Pipeline) -> anyhow::Result<()> {
    if pipeline.reads_stdin() || spool::files(&Real, &pipeline.spool)?.is_empty() {
        return Ok(());
    }
    let folder = pipeline.spool.display();
    tracing::error!(%folder, "an earlier run kept records of standard input, which this pipeline does not read");
    anyhow::bail!("what an earlier run kept of standard input is still in {folder}: this pipeline does not read that")
}

/// What earlier runs kept of standard input goes before it. False if that is not to be read.
fn give_spools(pipeline: &Pipeline, intake: &Intake) -> anyhow::Result<bool> {
    for path in spool::files(&Real, &pipeline.spool)? {
        tracing::info!(path = %path.display(), "what an earlier run kept is sent first");
        let mut reader = spool::Reader::open(Real, &path, intake.input)?;
        intake.give(&mut reader)?;
        if !intake.is_past(&reader.spool(), pipeline.ordered) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn work(mut worker: Worker<'_>, jobs: &Mutex<Receiver<Job>>, acks: &Acks) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        worker.work(job, acks);
    }
}

/// Takes blocks as they come, whatever source they are of.
pub struct Worker<'a> {
    pipeline: &'a Pipeline,
    packer: Packer<'a>,
    records: Vec<Record>,
    batch: Batch,
    numbers_of: [u8; 16],
}

impl<'a> Worker<'a> {
    /// `bodies` is where the bodies of parcels come from.
    pub fn new(pipeline: &'a Pipeline, form: Form, bodies: Pool) -> Worker<'a> {
        let (packer, numbers_of) = (Packer::new(pipeline, form, bodies), pipeline.numbers_of());
        Worker { pipeline, packer, records: Vec::new(), batch: Batch::default(), numbers_of }
    }

    /// From a block to a parcel in its slot; what ends here is told to `acks`.
    pub fn work(&mut self, job: Job, acks: &Acks) {
        let Job { input, block, source, receipt, slot } = job;
        let (pipeline, batch, as_read) = (self.pipeline, &mut self.batch, block.place());
        pipeline.transform(input, block, source.clone(), &mut self.records, batch);
        let mut packed = self.packer.pack(batch);
        receipt.open(batch.len());
        let (events_in, dropped, duplicates) = (batch.len() as u64, packed.dropped, packed.leave_out(&source.stored));
        let tally = Tally { events_in, dropped, duplicates, ..Tally::default() };
        let name = source.name.clone();
        let mut held = Held::new(input, source, as_read);
        (held.has_parts, held.wants_head) = (batch.has_parts(), pipeline.by_place);
        (held.cutting, held.numbers_of) = (pipeline.inputs[input].cutting(), self.numbers_of);
        held.wants_inode = pipeline.inputs[input].location.is_wanted();
        held.wants_day = pipeline.inputs[input].codec.reads_day();
        held.block.bytes = batch.take_bytes();
        receipt.hold(held);
        let (body, items, indices) = (packed.body, packed.items, packed.indices);
        let parcel = Parcel { body, items, indices, source: name, receipt };
        parcel.receipt.weigh(parcel.bytes_held());
        acks.finish(&parcel.receipt, tally, packed.letters);
        if !parcel.items.is_empty() {
            // if the output is gone the parcel is dropped, and stays unsettled
            let _ = slot.send(parcel);
        }
    }
}
