//! Runs a pipeline: the only code that knows threads and queues.
//!
//! ```text
//! inputs (a thread each) -> jobs -> workers -> slots, in the order read -> output (one thread)
//!                                      \_____________ ends of events _____________/
//!                                                           v
//!                                        ack (one thread): letters, counts, positions
//! ```

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::pack::Packer;
use super::{InputKind, Pipeline};
use crate::ack::positions::{Save, Store};
use crate::ack::{Acks, Desk, LetterFile, Shared, Summary, Tally};
use crate::batch::Batch;
use crate::codec::Record;
use crate::disk;
use crate::input::budget::Budget;
use crate::input::known::Known;
use crate::input::{Intake, Job, stdin};
use crate::output::{self, Form, Output, Parcel, Phases};
use crate::pool::{Buffer, Pool};
use crate::time::Time;

/// Parcels that may wait for the output or be in the making.
const SLOTS_MAX: usize = 8;

/// How a pipeline ended.
pub struct Ending {
    pub summary: Summary,
    /// What kept it from its end.
    pub errors: Vec<anyhow::Error>,
}

/// Runs until every input has ended and all is settled, or until `phases` says otherwise. The caller holds the lock
/// of the state folder.
pub fn run(pipeline: &Pipeline, shared: &Arc<Shared>, phases: &Phases) -> Ending {
    match begin(pipeline, shared) {
        Ok((output, known, positions)) => {
            let letters = LetterFile::new(disk::Real, pipeline.letters.clone());
            let desk = Desk { letters, positions, shared, phases };
            carry_out(pipeline, output, Arc::new(known), desk)
        }
        Err(error) => Ending { summary: Summary::default(), errors: vec![error] },
    }
}

type Begun = (Box<dyn Output>, Known, Option<Box<dyn Save>>);

/// Opens the output, and finds out how far the files were read.
fn begin(pipeline: &Pipeline, shared: &Shared) -> anyhow::Result<Begun> {
    let mut output = pipeline.output.open(pipeline)?;
    let from_start = pipeline.from_start;
    let (known, store) = match output.positions(from_start)? {
        Some(positions) => (Known::new(positions), None),
        None => {
            let mut store = if from_start { Store::empty(&pipeline.state) } else { Store::load(&pipeline.state)? };
            store.forget_gone(Time::now().secs);
            (Known::new(store.positions()), Some(Box::new(store) as Box<dyn Save>))
        }
    };
    for input in &pipeline.inputs {
        if let InputKind::File(config) = &input.kind {
            config.note_moved(&known, shared)?;
        }
    }
    Ok((output, known, store))
}

fn carry_out(pipeline: &Pipeline, output: Box<dyn Output>, known: Arc<Known>, desk: Desk<'_>) -> Ending {
    let form = output.form();
    let (shared, phases) = (desk.shared, desk.phases);
    let (acks, messages) = Acks::channel();
    let (slots, parcels) = output::queue(SLOTS_MAX);
    let (jobs, taken) = sync_channel::<Job>(pipeline.tuning.workers);
    let taken = Mutex::new(taken);
    let pool = Pool::default();
    let budget = Budget::new(pipeline.tuning.bytes_in_flight_max);
    let errors = Mutex::new(Vec::new());
    let fail = |error: anyhow::Error| errors.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    thread::scope(|scope| {
        let failed = &fail;
        scope.spawn(move || desk.run(&messages).unwrap_or_else(failed));
        let output_acks = acks.clone();
        scope.spawn(|| output.run(parcels, output_acks, phases.clone()).unwrap_or_else(&fail));
        for _ in 0..pipeline.tuning.workers {
            let (taken, acks) = (&taken, acks.clone());
            scope.spawn(move || work(pipeline, form, taken, &acks));
        }
        drop(acks);
        for input in 0..pipeline.inputs.len() {
            let (jobs, slots, budget, pool) = (jobs.clone(), slots.clone(), budget.clone(), pool.clone());
            let (shared, phases, known) = (shared.clone(), phases.clone(), known.clone());
            let limits = pipeline.limits(input);
            let intake = Intake { input, limits, pool, jobs, slots, budget, shared, phases, known };
            scope.spawn(move || take_in(pipeline, &intake).unwrap_or_else(failed));
        }
        drop((jobs, slots));
    });
    let summary = shared.lock().0;
    Ending { summary, errors: errors.into_inner().unwrap_or_else(PoisonError::into_inner) }
}

fn take_in(pipeline: &Pipeline, intake: &Intake) -> anyhow::Result<()> {
    match &pipeline.inputs[intake.input].kind {
        InputKind::Stdin => stdin::run(intake),
        InputKind::File(config) => config.run(intake),
    }
}

fn work(pipeline: &Pipeline, form: Form, jobs: &Mutex<Receiver<Job>>, acks: &Acks) {
    let mut worker = Worker::new(pipeline, form);
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
}

impl<'a> Worker<'a> {
    pub fn new(pipeline: &'a Pipeline, form: Form) -> Worker<'a> {
        Worker { pipeline, packer: Packer::new(pipeline, form), records: Vec::new(), batch: Batch::default() }
    }

    /// From a block to a parcel in its slot; what ends here is told to `acks`.
    pub fn work(&mut self, job: Job, acks: &Acks) {
        let Job { input, block, source, receipt, slot } = job;
        let name = source.name.clone();
        let batch = &mut self.batch;
        self.pipeline.transform(input, block, source, &mut self.records, batch);
        let packed = self.packer.pack(batch);
        receipt.open(batch.len());
        let tally = Tally { events_in: batch.len() as u64, dropped: packed.dropped, ..Tally::default() };
        batch.refill(Buffer::default(), Arc::default());
        acks.finish(&receipt, tally, packed.letters);
        if !packed.items.is_empty() {
            let (body, items, indices) = (packed.body, packed.items, packed.indices);
            // if the output is gone the parcel is dropped, and stays unsettled
            let _ = slot.send(Parcel { body, items, indices, source: name, receipt });
        }
    }
}
