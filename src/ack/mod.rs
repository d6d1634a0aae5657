//! What becomes of an event: its fate is counted, letters are written, positions follow.
//!
//! Each batch has a [`Receipt`]; whoever brings an event to its end says so with [`Acks::settle`]. A batch is
//! settled when nothing of it is open; dropping a receipt says "not done", never "done".

pub mod kept;
mod ledger;
mod letter;
pub mod letter_file;
pub mod stored;
mod summary;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use crate::input::budget::Permit;
use crate::output::{Phase, Phases};

use kept::{Held, Keep};

pub use ledger::{Ledger, Span as Reach};
pub use letter::{Letter, Reason};
pub use letter_file::{LetterFile, Letters};
pub use summary::{Summary, Tally, counted};

/// The claim of one batch on a place in its source.
#[derive(Clone, Debug)]
pub struct Receipt(Arc<Ticket>);

#[derive(Debug)]
struct Ticket {
    partition: u32,
    /// The batch's number within its partition, from 0.
    number: u64,
    open: AtomicI64,
    /// The records, until the last claim is gone.
    held: OnceLock<Arc<Held>>,
    /// Who keeps the records until the batch is settled, where its source cannot be read again.
    keep: Option<Keep>,
    /// Given back when the last claim on the batch is gone: what bounds the bytes in flight.
    _permit: Option<Permit>,
}

impl Receipt {
    /// A receipt with one claim open, the worker's own.
    pub fn new(partition: u32, number: u64, permit: Option<Permit>) -> Receipt {
        Receipt::keeping(partition, number, permit, None)
    }

    /// As [`Receipt::new`], of a source that cannot be read again if there is somebody to keep its records.
    pub fn keeping(partition: u32, number: u64, permit: Option<Permit>, keep: Option<Keep>) -> Receipt {
        let (open, held) = (AtomicI64::new(1), OnceLock::new());
        Receipt(Arc::new(Ticket { partition, number, open, held, keep, _permit: permit }))
    }

    /// Holds the batch's records until the last claim on it is gone, or, if its source cannot be read again, until
    /// it is settled.
    pub fn hold(&self, mut held: Held) {
        held.is_in_spool = self.0.keep.as_ref().is_some_and(|keep| keep.spool.is_some());
        let held = Arc::new(held);
        if let Some(keep) = &self.0.keep {
            keep.kept.hold((self.0.partition, self.0.number), held.clone());
        }
        // a batch is packed once
        let _ = self.0.held.set(held);
    }

    /// Adds what the record says to a letter of the batch.
    fn complete(&self, letter: &mut Letter) {
        if let Some(held) = self.0.held.get() {
            held.complete(letter);
        }
    }

    /// All events of the batch have their fate.
    fn settled(&self) {
        if let Some(keep) = &self.0.keep {
            keep.settled((self.0.partition, self.0.number));
        }
    }

    /// Opens `events` more claims.
    pub fn open(&self, events: usize) {
        self.0.open.fetch_add(events as i64, Ordering::Relaxed);
    }

    pub fn partition(&self) -> u32 {
        self.0.partition
    }

    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Closes `claims`; true when none is left.
    fn close(&self, claims: u64) -> bool {
        let before = self.0.open.fetch_sub(claims as i64, Ordering::AcqRel);
        debug_assert!(before >= claims as i64, "more claims closed than were open");
        before == claims as i64
    }
}

/// Ends of events of one batch.
#[derive(Debug)]
pub struct Settled {
    pub receipt: Receipt,
    /// Fates that only count. Letters are counted by their number.
    pub tally: Tally,
    pub letters: Vec<Letter>,
    /// How many claims of the receipt this closes.
    pub claims: u64,
}

/// The way back: from workers and outputs to the one thread that counts, writes letters and moves positions.
#[derive(Clone, Debug)]
pub struct Acks(mpsc::Sender<Settled>);

impl Acks {
    pub fn channel() -> (Acks, mpsc::Receiver<Settled>) {
        let (send, receive) = mpsc::channel();
        (Acks(send), receive)
    }

    /// Tells the ends of events: as many claims are closed as `tally` has fates and `letters` letters.
    pub fn settle(&self, receipt: &Receipt, tally: Tally, letters: Vec<Letter>) {
        let claims = tally.fates() + letters.len() as u64;
        self.send(Settled { receipt: receipt.clone(), tally, letters, claims });
    }

    /// As [`Acks::settle`], and gives up the worker's own claim.
    pub fn finish(&self, receipt: &Receipt, tally: Tally, letters: Vec<Letter>) {
        let claims = tally.fates() + letters.len() as u64 + 1;
        self.send(Settled { receipt: receipt.clone(), tally, letters, claims });
    }

    fn send(&self, settled: Settled) {
        // the counting thread ends only when every sender is gone, so there is somebody to hear
        let _ = self.0.send(settled);
    }
}

/// How long to wait before letters that could not be written are tried again.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// Takes what is settled until every [`Acks`] is gone: letters first, to the disk, then counts and positions.
pub fn run(settled: &mpsc::Receiver<Settled>, letters: &mut dyn Letters, shared: &Shared, phases: &Phases) {
    while let Ok(first) = settled.recv() {
        let mut group = vec![first];
        group.extend(settled.try_iter().take(255));
        for end in &mut group {
            end.letters.iter_mut().for_each(|letter| end.receipt.complete(letter));
        }
        if !write_letters(&group, letters, phases) {
            // nothing of it may be counted as done, but it came in
            let mut summary = shared.lock();
            group.iter().for_each(|end| summary.0.tally.events_in += end.tally.events_in);
            continue;
        }
        let mut summary = shared.lock();
        for end in &group {
            summary.0.add(&end.tally, end.letters.len() as u64);
            if let Some(held) = end.receipt.0.held.get() {
                held.note_letters(&end.letters);
            }
            if end.receipt.close(end.claims) {
                summary.1.settle(end.receipt.partition(), end.receipt.number());
                end.receipt.settled();
            }
        }
    }
}

/// Writes the letters of a group, waiting while the disk does not take them. False if it was given up.
fn write_letters(group: &[Settled], letters: &mut dyn Letters, phases: &Phases) -> bool {
    let all: Vec<&Letter> = group.iter().flat_map(|end| &end.letters).collect();
    let mut rest = all.as_slice();
    let mut troubled = false;
    while !rest.is_empty() {
        let Err(short) = letters.append(rest) else { break };
        rest = &rest[short.taken..];
        if !std::mem::replace(&mut troubled, true) {
            let (path, error) = (letters.name(), short.why);
            tracing::error!(%path, %error, "dead letters cannot be written: nothing more is taken in until they can");
        }
        if *phases.borrow() == Phase::Abandon {
            return false;
        }
        std::thread::sleep(RETRY_WAIT);
    }
    if troubled {
        tracing::warn!(path = %letters.name(), "dead letters are written again");
    }
    true
}

/// Counts and positions, read by the progress bar and at the end.
#[derive(Debug, Default)]
pub struct Shared(std::sync::Mutex<(Summary, Ledger)>);

impl Shared {
    pub fn lock(&self) -> std::sync::MutexGuard<'_, (Summary, Ledger)> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
