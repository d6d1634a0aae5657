//! What becomes of an event: its fate is counted, letters are written, positions follow.
//!
//! Each batch has a [`Receipt`]; whoever brings an event to its end says so with [`Acks::settle`]. A batch is
//! settled when nothing of it is open; dropping a receipt says "not done", never "done".

pub mod kept;
mod ledger;
mod letter;
pub mod letter_file;
pub mod lock;
pub mod positions;
pub mod recent;
mod saving;
pub mod stored;
mod summary;
pub mod told;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use crate::batch::StoredPart;
use crate::input::budget::{BATCH_BYTES, Permit};
use crate::input::identity::{FileKey, Mark};
use crate::output::{Phase, Phases};
use kept::{Held, Keep};
use positions::Save;
use saving::SAVE_WAIT;

pub use ledger::{Claim, Ledger, Moves, Span as Reach};
pub use letter::{Letter, Line, Reason};
pub use letter_file::{LetterFile, Letters};
pub use saving::Saving;
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
    /// The file that it is of, where that has a position, and what this is once the batch and all before it are settled.
    file: Option<Arc<FileKey>>,
    mark: Option<Mark>,
    /// The records, or those of them that may still be needed, until the last claim is gone.
    held: Mutex<Option<Arc<Held>>>,
    /// Who keeps the records until the batch is settled, where its source cannot be read again.
    keep: Option<Keep>,
    /// What bounds the bytes in flight: for what the batch weighs, given back when the last claim on it is gone.
    permit: Option<Permit>,
}

impl Receipt {
    /// A receipt with one claim open, the worker's own.
    pub fn new(partition: u32, number: u64, permit: Option<Permit>) -> Receipt {
        Receipt::tied(partition, number, permit, None, None, None)
    }

    /// As [`Receipt::new`], for a batch of a file whose position is saved, or of a source that cannot be read again
    /// if there is somebody to keep its records.
    pub fn tied(
        partition: u32,
        number: u64,
        permit: Option<Permit>,
        file: Option<Arc<FileKey>>,
        mark: Option<Mark>,
        keep: Option<Keep>,
    ) -> Receipt {
        let (open, held) = (AtomicI64::new(1), Mutex::default());
        Receipt(Arc::new(Ticket { partition, number, open, file, mark, held, keep, permit }))
    }

    /// Holds the batch's records until the last claim on it is gone, or, if its source cannot be read again, until
    /// it is settled.
    pub fn hold(&self, mut held: Held) {
        held.is_in_spool = self.0.keep.as_ref().is_some_and(|keep| keep.spool.is_some());
        let held = Arc::new(held);
        if let Some(keep) = &self.0.keep {
            keep.kept.hold(self.place(), held.clone());
        }
        *self.held() = Some(held);
    }

    /// Of the batch's events only those of the records that begin at these offsets, sorted, have no fate: the other
    /// records are held no longer than until their letters are on the disk.
    pub fn hold_only(&self, offsets: &[u64]) {
        let mut held = self.held();
        let Some(less) = held.as_ref().and_then(|held| held.only(offsets, self.0.keep.is_some())) else { return };
        let less = Arc::new(less);
        if let Some(keep) = &self.0.keep {
            keep.kept.exchange(self.place(), less.clone());
        }
        *held = Some(less);
    }

    /// The records that begin at these offsets have their fate although their batch has not: they are not kept.
    pub fn note_done(&self, offsets: impl Iterator<Item = u64>) {
        if self.0.keep.is_some()
            && let Some(held) = &*self.held()
        {
            held.note_done(offsets);
        }
    }

    /// Records of the batch hold several events, so that one event does not speak for its record.
    pub fn has_parts(&self) -> bool {
        self.0.keep.is_some() && self.held().as_ref().is_some_and(|held| held.has_parts)
    }

    /// The same of these events, where records hold several: they are not sent again with their record.
    pub fn note_stored(&self, parts: impl Iterator<Item = StoredPart>) {
        if let Some(held) = &*self.held() {
            held.note_stored(parts);
        }
    }

    /// Adds what the records say to letters of the batch that are told of, and are not on the disk yet.
    fn complete(&self, letters: &mut [Letter]) {
        if letters.is_empty() {
            return;
        }
        if let Some(held) = &*self.held() {
            letters.iter_mut().for_each(|letter| held.complete(letter));
            if self.0.keep.is_some() {
                held.note_told(letters.iter().map(|letter| letter.offset));
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Arc<Held>>> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self) -> kept::Place {
        (self.0.partition, self.0.number)
    }

    /// All events of the batch have their fate.
    fn settled(&self) {
        if let Some(keep) = &self.0.keep {
            keep.settled(self.place());
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

    /// The batch weighs so much now, besides its records.
    pub fn weigh(&self, bytes: usize) {
        if let Some(permit) = &self.0.permit {
            let records = self.held().as_ref().map_or(0, |held| held.bytes_held());
            permit.set(BATCH_BYTES + records + bytes);
        }
    }

    /// How many of the bytes in flight the batch counts for.
    pub fn bytes(&self) -> usize {
        self.0.permit.as_ref().map_or(0, Permit::bytes)
    }

    pub fn claim(&self) -> Option<Claim> {
        self.0.file.clone().zip(self.0.mark)
    }

    /// Whether `claims` are all that is open.
    fn is_open_by(&self, claims: u64) -> bool {
        self.0.open.load(Ordering::Acquire) == claims as i64
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

/// What the one thread hears that counts, writes letters and moves positions.
#[derive(Debug)]
pub enum Message {
    Settled(Settled),
    Flush(Flush),
}

/// A question of an output that saves positions with its rows: once all that was said before is done, and the
/// letters in it are on the disk, which positions moved, and would with these batches.
#[derive(Debug)]
pub struct Flush {
    /// Batches that the output settles next, and how many of their events.
    next: Vec<(Receipt, u64)>,
    answer: mpsc::SyncSender<Moves>,
}

/// The way back from workers and outputs.
#[derive(Clone, Debug)]
pub struct Acks(mpsc::Sender<Message>);

impl Acks {
    pub fn channel() -> (Acks, mpsc::Receiver<Message>) {
        let (send, receive) = mpsc::channel();
        (Acks(send), receive)
    }

    /// Tells the ends of events: as many claims are closed as `tally` has fates and `letters` letters.
    pub fn settle(&self, receipt: &Receipt, tally: Tally, letters: Vec<Letter>) {
        self.tell(receipt, tally, letters, 0);
    }

    /// As [`Acks::settle`], and gives up the worker's own claim.
    pub fn finish(&self, receipt: &Receipt, tally: Tally, letters: Vec<Letter>) {
        self.tell(receipt, tally, letters, 1);
    }

    fn tell(&self, receipt: &Receipt, tally: Tally, mut letters: Vec<Letter>, more: u64) {
        let claims = tally.fates() + letters.len() as u64 + more;
        // at once: nobody has to hold a record for a letter that is told of
        receipt.complete(&mut letters);
        self.send(Message::Settled(Settled { receipt: receipt.clone(), tally, letters, claims }));
    }

    /// Waits until all that was told before is done, letters on the disk included. The answer is what to save:
    /// what moved since the last answer, with the batches of `next` taken as settled by as many events as it says,
    /// which the caller brings about in the same transaction. None if nobody answers any more.
    pub fn flush(&self, next: Vec<(Receipt, u64)>) -> Option<Moves> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.send(Message::Flush(Flush { next, answer }));
        answered.recv().ok()
    }

    fn send(&self, message: Message) {
        // the counting thread ends only when every sender is gone, so there is somebody to hear
        let _ = self.0.send(message);
    }
}

/// How long to wait before letters that could not be written are tried again.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// Where letters and positions go.
pub struct Desk<'a> {
    pub letters: Box<dyn Letters>,
    /// None where the output saves positions itself.
    pub positions: Option<Box<dyn Save>>,
    pub shared: &'a Arc<Shared>,
    pub phases: &'a Phases,
}

impl Desk<'_> {
    /// Takes what is settled until every [`Acks`] is gone: letters first, to the disk, then counts and positions.
    pub fn run(mut self, messages: &mpsc::Receiver<Message>) -> anyhow::Result<()> {
        let mut saving = Saving::new(self.positions.take());
        loop {
            let due = saving.due(self.shared);
            // what is to be saved beside positions comes without a message
            match messages.recv_timeout(due.unwrap_or(SAVE_WAIT)) {
                Ok(first) => {
                    let more = messages.try_iter().take(GROUP_MAX - 1);
                    self.take([first].into_iter().chain(more), &mut saving);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return saving.finish(&self),
            }
            if saving.due(self.shared) == Some(Duration::ZERO) {
                // said once, and tried again when it is due again
                let _ = saving.save_or_note(self.shared);
            }
        }
    }

    fn take(&mut self, messages: impl Iterator<Item = Message>, saving: &mut Saving) {
        let mut group = Vec::new();
        for message in messages {
            match message {
                Message::Settled(settled) => group.push(settled),
                Message::Flush(flush) => {
                    self.settle(std::mem::take(&mut group), saving);
                    self.answer(&flush);
                }
            }
        }
        self.settle(group, saving);
    }

    fn settle(&mut self, group: Vec<Settled>, saving: &mut Saving) {
        saving.note_files(&group, self.shared);
        match wait_for_letters(&group, &mut *self.letters, self.phases) {
            true => self.shared.count(&group),
            false => self.shared.count_unsettled(&group),
        }
    }

    fn answer(&self, flush: &Flush) {
        let next = flush.next.iter().filter(|(receipt, claims)| receipt.is_open_by(*claims));
        let next = next.map(|(receipt, _)| ((receipt.partition(), receipt.number()), receipt.claim()));
        let moved = self.shared.lock().1.take_moved_with(&next.collect());
        // who asked and left needs no answer
        let _ = flush.answer.send(moved);
    }
}

/// How many ends of events are told together, at most.
pub const GROUP_MAX: usize = 256;

/// Writes the letters of a group, waiting while the disk does not take them. False if it was given up.
fn wait_for_letters(group: &[Settled], letters: &mut dyn Letters, phases: &Phases) -> bool {
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
pub struct Shared {
    counts: Mutex<(Summary, Ledger)>,
    /// Why positions could not be saved the last time.
    unsaved: Mutex<Option<String>>,
    /// Another pipeline goes on from the positions that are saved at the end.
    is_awaited: AtomicBool,
}

impl Shared {
    /// Counts a group whose letters are on the disk, and moves positions.
    pub fn count(&self, group: &[Settled]) {
        let mut summary = self.lock();
        for end in group {
            summary.0.add(&end.tally, end.letters.len() as u64);
            end.receipt.note_done(end.letters.iter().map(|letter| letter.offset));
            if end.receipt.close(end.claims) {
                let claim = end.receipt.claim();
                summary.1.settle(end.receipt.partition(), end.receipt.number(), claim);
                end.receipt.settled();
            }
        }
    }

    /// Nothing of this group counts as done, but it came in.
    pub fn count_unsettled(&self, group: &[Settled]) {
        let mut summary = self.lock();
        group.iter().for_each(|end| summary.0.tally.events_in += end.tally.events_in);
    }

    /// A session begins: what was not settled comes again, in partitions of its own.
    pub fn begin(&self) {
        self.lock().1 = Ledger::default();
    }

    /// The next session reads again what this one has not settled.
    pub fn forget_unsettled(&self) {
        let counts = &mut self.lock().0;
        counts.tally.events_in -= counts.unsettled();
    }

    pub fn lock(&self) -> MutexGuard<'_, (Summary, Ledger)> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why positions could not be saved the last time; none if they could.
    pub fn unsaved(&self) -> Option<String> {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_unsaved(&self, why: Option<&anyhow::Error>) {
        *self.unsaved.lock().unwrap_or_else(PoisonError::into_inner) = why.map(|why| format!("{why:#}"));
    }

    /// Says whether another pipeline waits to go on from here.
    pub fn set_awaited(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
    }

    fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::identity::{Identity, Position, Print};
    use std::path::Path;

    /// A disk that takes nothing until it was asked a few times.
    struct Disk {
        fails: u32,
        kept: Vec<Position>,
        saved: Arc<Mutex<Vec<Position>>>,
    }

    impl Save for Disk {
        fn save(&mut self, moves: Moves) -> anyhow::Result<()> {
            self.kept.extend(moves.positions);
            if let Some(left) = self.fails.checked_sub(1) {
                self.fails = left;
                anyhow::bail!("no space left");
            }
            *self.saved.lock().unwrap() = self.kept.clone();
            Ok(())
        }

        fn note(&mut self, moves: Moves) {
            self.kept.extend(moves.positions);
        }
    }

    struct Office {
        shared: Arc<Shared>,
        phase: tokio::sync::watch::Sender<Phase>,
        phases: Phases,
        saved: Arc<Mutex<Vec<Position>>>,
    }

    impl Office {
        fn new() -> Office {
            let (phase, phases) = tokio::sync::watch::channel(Phase::Running);
            Office { shared: Arc::default(), phase, phases, saved: Arc::default() }
        }

        fn desk(&self, letters: &Path, fails: u32) -> Desk<'_> {
            let disk = Disk { fails, kept: Vec::new(), saved: self.saved.clone() };
            let letters = Box::new(LetterFile::new(letters.to_path_buf(), 1 << 20));
            Desk { letters, positions: Some(Box::new(disk)), shared: &self.shared, phases: &self.phases }
        }

        fn receipt(&self, partition: u32, number: u64) -> Receipt {
            let mark = Mark { offset: number * 10 + 10, tail: Print::tail(b"") };
            let identity = Identity { device: 1, inode: u64::from(partition), born: None, head: Print::head(b"") };
            let file = Arc::new(FileKey { path: "/a".into(), identity, number: u64::from(partition) + 1 });
            self.shared.lock().1.open(partition, number, number * 10..number * 10 + 10);
            Receipt::tied(partition, number, None, Some(file), Some(mark), None)
        }

        fn offsets(&self) -> Vec<u64> {
            self.saved.lock().unwrap().iter().map(|position| position.mark.offset).collect()
        }
    }

    fn tally(created: u64) -> Tally {
        Tally { created, ..Tally::default() }
    }

    fn letter() -> Letter {
        Letter::new(Reason::Rejected, String::new())
    }

    #[test]
    fn a_disk_that_takes_nothing_for_a_time_loses_no_position() {
        let office = Office::new();
        let part = office.shared.lock().1.partition(0);
        let (acks, messages) = Acks::channel();
        let receipts = [office.receipt(part, 0), office.receipt(part, 1)];
        std::thread::scope(|scope| {
            let desk = office.desk(Path::new("/none"), 2);
            let running = scope.spawn(move || desk.run(&messages));
            for receipt in &receipts {
                acks.finish(receipt, tally(0), Vec::new());
            }
            drop(acks);
            running.join().unwrap().unwrap();
        });
        assert_eq!(office.offsets().last(), Some(&20));
    }

    #[test]
    fn a_disk_that_takes_nothing_to_the_end_is_an_error() {
        let office = Office::new();
        let part = office.shared.lock().1.partition(0);
        let (acks, messages) = Acks::channel();
        let receipt = office.receipt(part, 0);
        office.phase.send_replace(Phase::Abandon);
        acks.finish(&receipt, tally(0), Vec::new());
        drop(acks);
        let error = office.desk(Path::new("/none"), 9).run(&messages).unwrap_err();
        assert!(format!("{error:#}").contains("positions are not saved"), "{error:#}");
        assert_eq!(office.offsets(), [0; 0]);
    }

    #[test]
    fn a_flush_answers_what_is_settled_with_the_next_batch() {
        let office = Office::new();
        let part = office.shared.lock().1.partition(0);
        let other = office.shared.lock().1.partition(0);
        let (acks, messages) = Acks::channel();
        let desk = Desk { positions: None, ..office.desk(Path::new("/none"), 0) };
        let offsets = |moves: Option<Moves>| -> Vec<(u64, u64)> {
            moves.unwrap().positions.iter().map(|position| (position.identity.inode, position.mark.offset)).collect()
        };
        std::thread::scope(|scope| {
            scope.spawn(move || desk.run(&messages));
            let batches: Vec<Receipt> = (0..7).map(|number| office.receipt(part, number)).collect();
            let (lone, more) = (office.receipt(other, 0), office.receipt(other, 1));
            let work = |receipt: &Receipt, events| {
                receipt.open(events);
                acks.finish(receipt, tally(0), Vec::new());
            };
            // the worker has not given up its own claim on the first
            batches[0].open(2);
            assert_eq!(offsets(acks.flush(vec![(batches[0].clone(), 2)])), []);
            acks.finish(&batches[0], tally(0), Vec::new());
            assert_eq!(offsets(acks.flush(vec![(batches[0].clone(), 2)])), [(0, 10)]);
            acks.settle(&batches[0], tally(2), Vec::new());
            // said already; one of the second is open still; another file has nothing to deliver
            work(&batches[1], 2);
            work(&lone, 0);
            assert_eq!(offsets(acks.flush(vec![(batches[1].clone(), 1)])), [(1, 10)]);
            // above an open one
            work(&batches[2], 1);
            assert_eq!(offsets(acks.flush(vec![(batches[2].clone(), 1)])), []);
            acks.settle(&batches[2], tally(1), Vec::new());
            assert_eq!(offsets(acks.flush(Vec::new())), []);
            acks.settle(&batches[1], tally(2), Vec::new());
            assert_eq!(offsets(acks.flush(Vec::new())), [(0, 30)]);
            work(&batches[3], 0);
            assert_eq!(offsets(acks.flush(Vec::new())), [(0, 40)]);
            // several of one file and one of another
            (4..7).for_each(|n| work(&batches[n], 1));
            work(&more, 1);
            let next = vec![(batches[4].clone(), 1), (batches[6].clone(), 1), (more.clone(), 1)];
            assert_eq!(offsets(acks.flush(next)), [(0, 50), (1, 20)]);
            [&batches[4], &batches[6], &more]
                .into_iter()
                .for_each(|receipt| acks.settle(receipt, tally(1), Vec::new()));
            assert_eq!(offsets(acks.flush(vec![(batches[5].clone(), 1)])), [(0, 70)]);
            acks.settle(&batches[5], tally(1), Vec::new());
            drop(acks);
        });
        assert_eq!(office.shared.lock().1.open_batches(), 0);
    }

    #[test]
    fn no_position_passes_letters_that_are_not_on_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), b"").unwrap();
        // what is below a file cannot be written
        for (path, works) in [("dead.ndjson", true), ("file/dead.ndjson", false)] {
            let path = dir.path().join(path);
            let office = Office::new();
            office.phase.send_replace(Phase::Abandon);
            let part = office.shared.lock().1.partition(0);
            let (acks, messages) = Acks::channel();
            let desk = Desk { positions: None, ..office.desk(&path, 0) };
            std::thread::scope(|scope| {
                scope.spawn(move || desk.run(&messages));
                let receipts = [office.receipt(part, 0), office.receipt(part, 1)];
                receipts[0].open(1);
                acks.finish(&receipts[0], tally(0), vec![letter()]);
                let moved = acks.flush(Vec::new()).unwrap().positions;
                assert_eq!(moved.len(), usize::from(works));
                assert_eq!(path.try_exists().unwrap_or(false), works);
                // nor with a batch behind it
                receipts[1].open(1);
                acks.finish(&receipts[1], tally(0), Vec::new());
                assert_eq!(acks.flush(vec![(receipts[1].clone(), 1)]).unwrap().positions.len(), usize::from(works));
                drop(acks);
            });
        }
    }
}
