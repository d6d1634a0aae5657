//! Inputs read bytes and hand over blocks of whole lines, each with a receipt. They know nothing of what the lines
//! mean; they keep the order of each source, and stop reading while too many bytes are in flight.

pub mod budget;
pub mod file;
pub mod lines;
pub mod spool;
pub mod stdin;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::ack::kept::{Held, Keep, Kept, Spool};
use crate::ack::{Receipt, Shared};
use crate::batch::Source;
use crate::codec::Block;
use crate::output::{Phase, Phases, Slot, Slots};
use crate::pool::Pool;
use budget::Budget;
use lines::{Bytes, Rest};

/// A block on its way to a worker.
pub struct Job {
    /// Which of the pipeline's inputs it came by.
    pub input: usize,
    pub block: Block,
    pub source: Arc<Source>,
    pub receipt: Receipt,
    pub slot: Slot,
}

/// A block that is not read but there: of a spool, or made of dead letters.
#[derive(Debug)]
pub struct Given {
    pub input: usize,
    pub source: Arc<Source>,
    pub block: Block,
    pub spool: Option<Arc<Spool>>,
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
    /// Keeps what cannot be read again until it is settled.
    pub kept: Arc<Kept>,
    pub phases: Phases,
}

/// One source being read: its blocks are numbered, and its position in the ledger moves with them.
struct Reading<'a> {
    intake: &'a Intake,
    partition: u32,
    number: u64,
    input: usize,
    source: Arc<Source>,
    /// The source cannot be read again.
    keep: Option<Keep>,
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

    /// Reads a source that cannot be read again: what is not settled at the end is kept.
    pub fn read_once(&self, bytes: &mut Bytes<'_>, name: &str, rest: Rest) -> io::Result<()> {
        let mut reading = self.begin(name);
        reading.keep = Some(Keep { kept: self.kept.clone(), spool: None });
        let mut take = |block, head: &[u8]| reading.hand_over(block, head);
        let (ending, rest) = lines::read_on(bytes, self.limits, &self.pool, &|| self.is_running(), &mut take, rest);
        let source = Arc::new(Source { name: name.into(), head: rest.head().into() });
        self.kept.hold_rest(self.input, source, rest);
        ending
    }

    /// Hands over blocks that are there. What is not settled at the end is kept.
    pub fn give(&self, blocks: &mut dyn Iterator<Item = anyhow::Result<Given>>) -> anyhow::Result<()> {
        let mut reading = self.begin("");
        for given in blocks {
            let Given { input, source, block, spool } = given?;
            let is_in_spool = spool.is_some();
            (reading.source, reading.input) = (source, input);
            reading.keep = Some(Keep { kept: self.kept.clone(), spool });
            let is_taken = if self.is_running() {
                let head = reading.source.head.clone();
                reading.hand_over(block, &head)
            } else {
                reading.keep_back(block);
                false
            };
            // what is in a spool stays there
            if !is_taken && is_in_spool {
                return Ok(());
            }
        }
        Ok(())
    }

    fn begin(&self, name: &str) -> Reading<'_> {
        let partition = self.shared.lock().1.partition(0);
        let source = Arc::new(Source { name: name.into(), head: Arc::default() });
        Reading { intake: self, partition, number: 0, input: self.input, source, keep: None }
    }

    /// Nobody will take a block any more.
    fn is_given_up(&self) -> bool {
        *self.phases.borrow() == Phase::Abandon || self.slots.is_closed()
    }
}

impl Reading<'_> {
    /// Hands a block over, waiting for its place. False once nobody takes blocks any more.
    fn hand_over(&mut self, block: Block, head: &[u8]) -> bool {
        if head.len() > self.source.head.len() {
            self.source = Arc::new(Source { name: self.source.name.clone(), head: head.into() });
        }
        let place = self
            .intake
            .budget
            .take_unless(block.bytes.len(), &|| self.intake.is_given_up())
            .and_then(|permit| Some((permit, self.intake.slots.take_unless(&self.intake.phases)?)));
        let Some((permit, slot)) = place else {
            self.keep_back(block);
            return false;
        };
        let covered = block.offset..block.offset + block.too_long.map_or(block.bytes.len() as u64, |line| line.covered);
        self.intake.shared.lock().1.open(self.partition, self.number, covered);
        let receipt = Receipt::keeping(self.partition, self.number, Some(permit), self.keep.clone());
        let job = Job { input: self.input, block, source: self.source.clone(), receipt, slot };
        match self.intake.jobs.send(job) {
            Ok(()) => {
                self.number += 1;
                true
            }
            Err(unsent) => {
                self.keep_back(unsent.0.block);
                false
            }
        }
    }

    /// Keeps a block that nobody took.
    fn keep_back(&mut self, block: Block) {
        let number = self.number;
        self.number += 1;
        if let Some(keep) = &self.keep {
            let mut held = Held::new(self.input, self.source.clone(), block);
            held.is_in_spool = keep.spool.is_some();
            keep.kept.hold((self.partition, number), Arc::new(held));
        }
    }
}
