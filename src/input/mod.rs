//! Inputs read bytes and hand over blocks of whole records, each with a receipt. They know nothing of what the records
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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crate::ack::kept::{Held, Keep, Kept, Spool};
use crate::ack::positions::Before;
use crate::ack::{Receipt, Shared};
use crate::batch::{Source, SourceNumber};
use crate::codec::rule::Rule;
use crate::codec::{Block, Cutting};
use crate::output::{Phase, Phases, Slot, Slots};
use crate::pool::Pool;
use crate::time::Time;
use budget::{Budget, Permit};
use file::Opening;
use identity::{FileKey, Identity, Position, Print};
use known::Known;
use lines::{Bytes, Rest};

/// How often who waits for a spool looks at it.
const SPOOL_WAIT: Duration = Duration::from_millis(20);

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

/// How much is read at a time, and where it may be cut.
#[derive(Clone, Debug)]
pub struct Limits {
    /// A block is handed over when it has this many bytes: large enough that the cost of handing it over does not
    /// show, small enough for a processor's cache.
    pub batch_bytes: usize,
    pub line_bytes_max: usize,
    /// Which lines are a record; none where each is one.
    pub rule: Option<Arc<Rule>>,
    /// Less than `batch_bytes` for a time.
    pub ramp: Ramp,
}

/// The size of a session's first blocks. They are small, each next one twice as large, so that a process which does
/// not live long settles something all the same: a block is what positions move by.
#[derive(Clone, Debug)]
pub struct Ramp(Arc<AtomicUsize>);

impl Default for Ramp {
    /// No block is smaller than it need be.
    fn default() -> Ramp {
        Ramp::from(usize::MAX)
    }
}

impl Ramp {
    pub fn from(first_bytes: usize) -> Ramp {
        Ramp(Arc::new(AtomicUsize::new(first_bytes)))
    }
}

impl Limits {
    /// How what is read is cut into records.
    pub fn cutting(&self) -> Cutting {
        Cutting { rule: self.rule.clone(), line_bytes_max: self.line_bytes_max }
    }

    /// How large the next block is.
    pub fn block_bytes(&self) -> usize {
        self.ramp.0.load(Ordering::Relaxed).min(self.batch_bytes)
    }

    /// A block was read.
    fn grow(&self) {
        let bytes = self.ramp.0.load(Ordering::Relaxed);
        if bytes < self.batch_bytes {
            self.ramp.0.store(bytes * 2, Ordering::Relaxed);
        }
    }
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
    /// The clock stands still at this time.
    pub now: Option<Time>,
}

/// One source being read: its blocks are numbered, and its position in the ledger moves with them.
pub struct Series {
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
    /// Whether to read on: nobody ended that, and somebody delivers.
    fn is_running(&self) -> bool {
        *self.phases.borrow() == Phase::Running && !self.slots.is_closed()
    }

    /// Reads a file from where it was opened to its end.
    pub fn read_file(&self, bytes: &mut Bytes<'_>, name: &str, opening: Opening) -> io::Result<()> {
        let Opening { start, position, has_moved, day } = opening;
        let Position { number: was, path, identity, mark } = position;
        let (file, partition) = {
            let ledger = &mut self.shared.lock().1;
            let number = ledger.number_file((was > 0).then_some(was), self.known.saved);
            let file = Arc::new(FileKey { path, identity, number });
            // saved whether or not something is new: it is not known by this name or number
            if has_moved || was > 0 && was != number {
                ledger.claim((file.clone(), mark));
            } else if was == 0 {
                ledger.begin_file(number);
            }
            (file, ledger.partition(start.offset))
        };
        let inode = Some((identity.device, identity.inode));
        let head = start.head.as_slice().into();
        let (day, number) = (Some(day), Some(SourceNumber::File(file.number)));
        let source = Arc::new(Source { name: name.into(), head, inode, day, number, ..Source::default() });
        let mut series = Series { partition, number: 0, input: self.input, source, file: Some(file), keep: None };
        let mut take = |block, head: &[u8]| self.submit(series.next(block, head));
        let ending = lines::read(bytes, start, self.limits.clone(), &self.pool, &|| self.is_running(), &mut take);
        self.shared.lock().1.release(partition);
        ending
    }

    /// Reads a source that cannot be read again: what is not settled at the end is kept.
    pub fn read_once(&self, bytes: &mut Bytes<'_>, name: &str, rest: Rest) -> io::Result<()> {
        let mut series = Series::once(self.input, name, &self.shared, &self.kept);
        let mut take = |block, head: &[u8]| {
            series.note_day(self.today());
            self.submit(series.next(block, head))
        };
        let (ending, rest) =
            lines::read_on(bytes, self.limits.clone(), &self.pool, &|| self.is_running(), &mut take, rest);
        let (head, day) = (rest.head().into(), Some(self.today()));
        let source = Arc::new(Source { name: name.into(), head, day, ..Source::default() });
        self.kept.hold_rest(self.input, source, rest);
        ending
    }

    /// The day on which what is read now counts as written, if nothing says when it was.
    fn today(&self) -> i64 {
        self.now.unwrap_or_else(Time::now).day()
    }

    /// Hands over blocks that are there. What is not settled at the end is kept.
    pub fn give(&self, blocks: &mut dyn Iterator<Item = anyhow::Result<Given>>) -> anyhow::Result<()> {
        let mut series = Series::once(self.input, "", &self.shared, &self.kept);
        for given in blocks {
            let given = given?;
            let is_in_spool = given.spool.is_some();
            let draft = series.given(given, &self.kept);
            let is_taken = match self.is_running() {
                true => self.submit(draft),
                false => {
                    draft.keep_back(self.limits.cutting());
                    false
                }
            };
            // what is in a spool stays there
            if !is_taken && is_in_spool {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Waits until what came after a spool may be sent. False if the program goes down before.
    pub fn is_past(&self, spool: &Spool, ordered: bool) -> bool {
        while !spool.lets_pass(ordered) {
            if !self.is_running() {
                return false;
            }
            std::thread::sleep(SPOOL_WAIT);
        }
        true
    }

    /// Hands a block over, waiting for its place. False once nobody takes blocks any more: then it is kept, if it
    /// cannot be read again.
    fn submit(&self, draft: Draft) -> bool {
        let permit = self.budget.take_unless(draft.weight(), &|| self.is_given_up());
        let permitted = permit.and_then(|permit| Some((permit, self.slots.take_unless(&self.phases)?)));
        let Some((permit, slot)) = permitted else {
            draft.keep_back(self.limits.cutting());
            return false;
        };
        match self.jobs.send(draft.job(permit, slot, &self.shared)) {
            Ok(()) => true,
            Err(unsent) => {
                let Job { input, source, block, receipt, .. } = unsent.0;
                let mut held = Held::new(input, source, block);
                held.cutting = self.limits.cutting();
                receipt.hold(held);
                false
            }
        }
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
    /// How many of the bytes in flight it takes until it is packed.
    pub fn weight(&self) -> usize {
        budget::weight(self.block.bytes.capacity())
    }

    /// The block as a job, which the ledger knows from now on.
    pub fn job(self, permit: Permit, slot: Slot, shared: &Shared) -> Job {
        let Draft { partition, number, block, input, source, file, keep } = self;
        let covered = block.offset..block.offset + block.too_long.map_or(block.bytes.len() as u64, |line| line.covered);
        shared.lock().1.open(partition, number, covered);
        let receipt = Receipt::tied(partition, number, Some(permit), file, block.mark, keep);
        Job { input, block, source, receipt, slot }
    }

    /// Nobody took it: what cannot be read again is kept.
    pub fn keep_back(self, cutting: Cutting) {
        if let Some(keep) = self.keep {
            let mut held = Held::new(self.input, self.source, self.block);
            (held.is_in_spool, held.cutting) = (keep.spool.is_some(), cutting);
            keep.kept.hold((self.partition, self.number), Arc::new(held));
        }
    }
}

impl Series {
    /// Of a source that cannot be read again: who keeps what is not settled.
    pub fn once(input: usize, name: &str, shared: &Shared, kept: &Arc<Kept>) -> Series {
        let source = Arc::new(Source { name: name.into(), ..Source::default() });
        let keep = Some(Keep { kept: kept.clone(), spool: None });
        Series { partition: shared.lock().1.partition(0), number: 0, input, source, file: None, keep }
    }

    /// The next block, with the first bytes of the source as far as they are known.
    pub fn next(&mut self, block: Block, head: &[u8]) -> Draft {
        self.note_head(head);
        self.draft(block)
    }

    /// The next block, with what it comes with.
    pub fn given(&mut self, given: Given, kept: &Arc<Kept>) -> Draft {
        let Given { input, source, block, spool } = given;
        (self.source, self.input) = (source, input);
        self.keep = Some(Keep { kept: kept.clone(), spool });
        self.draft(block)
    }

    fn draft(&mut self, block: Block) -> Draft {
        let (partition, number, input) = (self.partition, self.number, self.input);
        self.number += 1;
        let (source, file, keep) = (self.source.clone(), self.file.clone(), self.keep.clone());
        Draft { partition, number, block, input, source, file, keep }
    }

    /// The day on which it was written, of a source that goes on for more than one.
    pub fn note_day(&mut self, day: i64) {
        if self.source.day != Some(day) {
            self.source = Arc::new(Source { day: Some(day), ..(*self.source).clone() });
        }
    }

    fn note_head(&mut self, head: &[u8]) {
        if head.len() > self.source.head.len() {
            self.source = Arc::new(Source { head: head.into(), ..(*self.source).clone() });
        }
        if let Some(file) = &mut self.file
            && head.len() > usize::from(file.identity.head.bytes)
        {
            let identity = Identity { head: Print::head(head), ..file.identity };
            *file = Arc::new(FileKey { path: file.path.clone(), identity, number: file.number });
        }
    }
}
