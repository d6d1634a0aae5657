//! Inputs read bytes and hand over blocks of whole lines, each with a receipt. They know nothing of what the lines
//! mean; they keep the order of each source, and stop reading while too many bytes are in flight.

pub mod budget;
pub mod file;
pub mod follow;
pub mod identity;
pub mod known;
pub mod lines;
pub mod location;
pub mod stdin;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::ack::{Claim, Receipt, Shared};
use crate::batch::Source;
use crate::codec::Block;
use crate::output::{Phase, Phases, Slot, Slots};
use crate::pool::Pool;
use budget::{Budget, Permit};
use identity::{FileKey, Identity, Mark, Print};
use known::Known;
use lines::{Bytes, Start};

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
    /// Positions that were saved before this run.
    pub known: Arc<Known>,
}

/// One source being read: its blocks are numbered, and its position in the ledger moves with them.
struct Reading<'a> {
    intake: &'a Intake,
    partition: u32,
    number: u64,
    source: Arc<Source>,
    /// Who claims the positions; none for a source that has none.
    file: Option<Arc<FileKey>>,
}

impl Intake {
    fn is_running(&self) -> bool {
        *self.phases.borrow() == Phase::Running
    }

    /// Reads a source without positions to its end.
    pub fn read(&self, bytes: &mut Bytes<'_>, name: &str) -> io::Result<()> {
        let partition = self.shared.lock().1.partition(0);
        self.read_from(bytes, Start::default(), name, partition, None)
    }

    /// Reads a file from `start` to its end. It `has_moved` if the position there was saved under another name.
    pub fn read_file(
        &self,
        bytes: &mut Bytes<'_>,
        start: Start,
        name: &str,
        file: FileKey,
        has_moved: bool,
    ) -> io::Result<()> {
        let file = Arc::new(file);
        let partition = if has_moved {
            let mark = Mark { offset: start.offset, tail: start.tail.print() };
            self.shared.lock().1.partition_moved((file.clone(), mark))
        } else {
            self.shared.lock().1.partition(start.offset)
        };
        self.read_from(bytes, start, name, partition, Some(file))
    }

    fn read_from(
        &self,
        bytes: &mut Bytes<'_>,
        start: Start,
        name: &str,
        partition: u32,
        file: Option<Arc<FileKey>>,
    ) -> io::Result<()> {
        let inode = file.as_ref().map(|file| (file.identity.device, file.identity.inode));
        let source = Arc::new(Source { name: name.into(), head: start.head.as_slice().into(), inode });
        let mut reading = Reading { intake: self, partition, number: 0, source, file };
        let mut take = |block, head: &[u8]| reading.hand_over(block, head);
        lines::read(bytes, start, self.limits, &self.pool, &|| self.is_running(), &mut take)
    }

    /// Hands a block over, waiting for its place. False once nobody takes blocks any more.
    fn submit(&self, draft: Draft) -> bool {
        let permit = self.budget.take(draft.block.bytes.len());
        let Some(slot) = self.slots.take() else { return false };
        self.jobs.send(draft.job(self.input, permit, slot, &self.shared)).is_ok()
    }
}

/// A block with its place in its partition: what is submitted.
pub struct Draft {
    pub partition: u32,
    pub number: u64,
    pub block: Block,
    pub source: Arc<Source>,
    /// Who claims the position; none for a source that has none.
    pub file: Option<Arc<FileKey>>,
}

impl Draft {
    /// The block as a job, which the ledger knows from now on.
    pub fn job(self, input: usize, permit: Permit, slot: Slot, shared: &Shared) -> Job {
        let Draft { partition, number, block, source, file } = self;
        let covered = block.offset..block.offset + block.too_long.map_or(block.bytes.len() as u64, |line| line.covered);
        shared.lock().1.open(partition, number, covered);
        let claim: Option<Claim> = file.zip(block.mark);
        let receipt = Receipt::with_claim(partition, number, Some(permit), claim);
        Job { input, block, source, receipt, slot }
    }
}

impl Reading<'_> {
    /// Hands a block over, waiting for its place. False once nobody takes blocks any more.
    fn hand_over(&mut self, block: Block, head: &[u8]) -> bool {
        self.note_head(head);
        let number = self.number;
        self.number += 1;
        let (partition, source, file) = (self.partition, self.source.clone(), self.file.clone());
        self.intake.submit(Draft { partition, number, block, source, file })
    }

    fn note_head(&mut self, head: &[u8]) {
        if head.len() > self.source.head.len() {
            let Source { name, inode, .. } = &*self.source;
            self.source = Arc::new(Source { name: name.clone(), head: head.into(), inode: *inode });
        }
        if let Some(file) = &mut self.file
            && head.len() > usize::from(file.identity.head.bytes)
        {
            let identity = Identity { head: Print::head(head), ..file.identity };
            *file = Arc::new(FileKey { path: file.path.clone(), identity, number: file.number });
        }
    }
}
