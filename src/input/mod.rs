//! Inputs read bytes and hand over blocks of whole lines, each with a receipt. They know nothing of what the lines
//! mean; they keep the order of each source, and stop reading while too many bytes are in flight.

pub mod budget;
pub mod file;
pub mod identity;
pub mod lines;
pub mod stdin;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::ack::{Receipt, Shared};
use crate::batch::Source;
use crate::codec::Block;
use crate::output::{Phase, Phases, Slot, Slots};
use crate::pool::Pool;
use budget::Budget;
use lines::Bytes;

/// A block on its way to a worker.
pub struct Job {
    /// Which of the pipeline's inputs it came by.
    pub input: usize,
    pub block: Block,
    pub source: Arc<Source>,
    pub receipt: Receipt,
    pub slot: Slot,
}

/// How much is read at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A block is handed over when it has this many bytes: large enough that the cost of handing it over does not
    /// show, small enough for a processor's cache.
    pub batch_bytes: usize,
    pub line_bytes_max: usize,
}

/// Where inputs hand their blocks over.
#[derive(Clone)]
pub struct Intake {
    pub input: usize,
    pub limits: Limits,
    pub pool: Pool,
    pub jobs: SyncSender<Job>,
    pub slots: Slots,
    pub budget: Arc<Budget>,
    pub shared: Arc<Shared>,
    pub phases: Phases,
}

/// One source being read: its blocks are numbered, and its position in the ledger moves with them.
struct Reading<'a> {
    intake: &'a Intake,
    partition: u32,
    number: u64,
    source: Arc<Source>,
}

impl Intake {
    fn is_running(&self) -> bool {
        *self.phases.borrow() == Phase::Running
    }

    /// Reads one source to its end.
    pub fn read(&self, bytes: &mut Bytes<'_>, name: &str) -> io::Result<()> {
        let mut reading = self.begin(name);
        let mut take = |block, head: &[u8]| reading.hand_over(block, head);
        lines::read(bytes, self.limits, &self.pool, &|| self.is_running(), &mut take)
    }

    fn begin(&self, name: &str) -> Reading<'_> {
        let partition = self.shared.lock().1.partition(0);
        let source = Arc::new(Source { name: name.into(), head: Arc::default() });
        Reading { intake: self, partition, number: 0, source }
    }
}

impl Reading<'_> {
    /// Hands a block over, waiting for its place. False once nobody takes blocks any more.
    fn hand_over(&mut self, block: Block, head: &[u8]) -> bool {
        if head.len() > self.source.head.len() {
            self.source = Arc::new(Source { name: self.source.name.clone(), head: head.into() });
        }
        let permit = self.intake.budget.take(block.bytes.len());
        let Some(slot) = self.intake.slots.take() else { return false };
        let covered = block.offset..block.offset + block.too_long.map_or(block.bytes.len() as u64, |line| line.covered);
        self.intake.shared.lock().1.open(self.partition, self.number, covered);
        let receipt = Receipt::new(self.partition, self.number, Some(permit));
        self.number += 1;
        let job = Job { input: self.intake.input, block, source: self.source.clone(), receipt, slot };
        self.intake.jobs.send(job).is_ok()
    }
}
