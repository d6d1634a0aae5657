//! Inputs read bytes and hand over blocks of whole lines, each with a receipt. They know nothing of what the lines
//! mean; they keep the order of each source, and stop reading while too many bytes are in flight.

pub mod budget;
pub mod file;
pub mod follow;
pub mod identity;
pub mod known;
pub mod lines;
pub mod location;
pub mod packed;
pub mod ratio;
pub mod spool;
pub mod stdin;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use crate::ack::kept::{Held, Keep, Kept, Spool};
use crate::ack::positions::Before;
use crate::ack::{Claim, Receipt, Shared};
use crate::batch::Source;
use crate::codec::Block;
use crate::output::{Phase, Phases, Slot, Slots};
use crate::pool::Pool;
use budget::{Budget, Permit};
use file::Opening;
use identity::{FileKey, Identity, Position, Print};
use known::Known;
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
    /// What was saved before this run, and its positions to be looked up.
    pub before: Arc<Before>,
    pub known: Arc<Known>,
}

/// One source being read: its blocks are numbered, and its position in the ledger moves with them.
struct Reading<'a> {
    intake: &'a Intake,
    partition: u32,
    number: u64,
    input: usize,
    source: Arc<Source>,
    /// Who claims the positions; none for a source that has none.
    file: Option<Arc<FileKey>>,
    /// The source cannot be read again.
    keep: Option<Keep>,
}

impl Intake {
    fn is_running(&self) -> bool {
        *self.phases.borrow() == Phase::Running
    }

    /// Reads a file from where it was opened to its end.
    pub fn read_file(&self, bytes: &mut Bytes<'_>, name: &str, opening: Opening) -> io::Result<()> {
        let Opening { start, position, has_moved } = opening;
        let Position { number: was, path, identity, mark } = position;
        let (file, partition) = {
            let ledger = &mut self.shared.lock().1;
            let number = ledger.number_file((was > 0).then_some(was), self.known.saved);
            let file = Arc::new(FileKey { path, identity, number });
            // saved whether or not something is new: it is not known by this name or number
            if has_moved || was > 0 && was != number {
                ledger.claim((file.clone(), mark));
            }
            (file, ledger.partition(start.offset))
        };
        let inode = Some((identity.device, identity.inode));
        let head = start.head.as_slice().into();
        let source = Arc::new(Source { name: name.into(), head, inode, again: None });
        let mut reading = Reading { file: Some(file), ..self.begin(partition, source) };
        let mut take = |block, head: &[u8]| reading.hand_over(block, head);
        let ending = lines::read(bytes, start, self.limits, &self.pool, &|| self.is_running(), &mut take);
        self.shared.lock().1.release(partition);
        ending
    }

    /// Reads a source that cannot be read again: what is not settled at the end is kept.
    pub fn read_once(&self, bytes: &mut Bytes<'_>, name: &str, rest: Rest) -> io::Result<()> {
        let source = Arc::new(Source { name: name.into(), ..Source::default() });
        let mut reading = self.begin(self.shared.lock().1.partition(0), source);
        reading.keep = Some(Keep { kept: self.kept.clone(), spool: None });
        let mut take = |block, head: &[u8]| reading.hand_over(block, head);
        let (ending, rest) = lines::read_on(bytes, self.limits, &self.pool, &|| self.is_running(), &mut take, rest);
        let source = Arc::new(Source { name: name.into(), head: rest.head().into(), ..Source::default() });
        self.kept.hold_rest(self.input, source, rest);
        ending
    }

    /// Hands over blocks that are there. What is not settled at the end is kept.
    pub fn give(&self, blocks: &mut dyn Iterator<Item = anyhow::Result<Given>>) -> anyhow::Result<()> {
        let mut reading = self.begin(self.shared.lock().1.partition(0), Arc::default());
        for given in blocks {
            let Given { input, source, block, spool } = given?;
            let is_in_spool = spool.is_some();
            (reading.source, reading.input) = (source, input);
            reading.keep = Some(Keep { kept: self.kept.clone(), spool });
            let is_taken = if self.is_running() {
                let head = reading.source.head.clone();
                reading.hand_over(block, &head)
            } else {
                reading.keep_back((reading.partition, reading.number), block);
                reading.number += 1;
                false
            };
            // what is in a spool stays there
            if !is_taken && is_in_spool {
                return Ok(());
            }
        }
        Ok(())
    }

    fn begin(&self, partition: u32, source: Arc<Source>) -> Reading<'_> {
        Reading { intake: self, partition, number: 0, input: self.input, source, file: None, keep: None }
    }

    /// Hands a block over, waiting for its place. Gives it back once nobody takes blocks any more.
    fn submit(&self, draft: Draft) -> Option<Block> {
        let permit = self.budget.take_unless(draft.block.bytes.len(), &|| self.is_given_up());
        let permitted = permit.and_then(|permit| Some((permit, self.slots.take_unless(&self.phases)?)));
        let Some((permit, slot)) = permitted else { return Some(draft.block) };
        let job = draft.job(permit, slot, &self.shared);
        self.jobs.send(job).err().map(|unsent| unsent.0.block)
    }

    /// Nobody will take a block any more.
    fn is_given_up(&self) -> bool {
        *self.phases.borrow() == Phase::Abandon || self.slots.is_closed()
    }
}

/// A block with its place in its partition: what is submitted.
pub struct Draft {
    pub partition: u32,
    pub number: u64,
    pub block: Block,
    pub input: usize,
    pub source: Arc<Source>,
    /// Who claims the position; none for a source that has none.
    pub file: Option<Arc<FileKey>>,
    /// Where what cannot be read again is kept.
    pub keep: Option<Keep>,
}

impl Draft {
    /// The block as a job, which the ledger knows from now on.
    pub fn job(self, permit: Permit, slot: Slot, shared: &Shared) -> Job {
        let Draft { partition, number, block, input, source, file, keep } = self;
        let covered = block.offset..block.offset + block.too_long.map_or(block.bytes.len() as u64, |line| line.covered);
        shared.lock().1.open(partition, number, covered);
        let claim: Option<Claim> = file.zip(block.mark);
        let receipt = Receipt::tied(partition, number, Some(permit), claim, keep);
        Job { input, block, source, receipt, slot }
    }
}

impl Reading<'_> {
    /// Hands a block over, waiting for its place. False once nobody takes blocks any more.
    fn hand_over(&mut self, block: Block, head: &[u8]) -> bool {
        self.note_head(head);
        let place = (self.partition, self.number);
        self.number += 1;
        let (partition, number) = place;
        let (source, file, keep) = (self.source.clone(), self.file.clone(), self.keep.clone());
        match self.intake.submit(Draft { partition, number, block, input: self.input, source, file, keep }) {
            None => true,
            Some(block) => {
                self.keep_back(place, block);
                false
            }
        }
    }

    /// Keeps a block that nobody took.
    fn keep_back(&self, place: (u32, u64), block: Block) {
        if let Some(keep) = &self.keep {
            let mut held = Held::new(self.input, self.source.clone(), block);
            held.is_in_spool = keep.spool.is_some();
            keep.kept.hold(place, Arc::new(held));
        }
    }

    fn note_head(&mut self, head: &[u8]) {
        if head.len() > self.source.head.len() {
            let Source { name, inode, again, .. } = &*self.source;
            let (name, head, inode, again) = (name.clone(), head.into(), *inode, *again);
            self.source = Arc::new(Source { name, head, inode, again });
        }
        if let Some(file) = &mut self.file
            && head.len() > usize::from(file.identity.head.bytes)
        {
            let identity = Identity { head: Print::head(head), ..file.identity };
            *file = Arc::new(FileKey { path: file.path.clone(), identity, number: file.number });
        }
    }
}
