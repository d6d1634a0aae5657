//! Which batches of a partition are settled, and so how far its position may move: over settled ground only.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::input::identity::{FileKey, Mark, Position};

/// The bytes of a source that a batch covers.
pub type Span = Range<u64>;

/// The place that a file may be read on from once a batch and all before it are settled.
pub type Claim = (Arc<FileKey>, Mark);

#[derive(Debug, Default)]
pub struct Ledger {
    /// Those that are read, or have something open. A number is never used again.
    partitions: BTreeMap<u32, Partition>,
    next: u32,
    /// Settled bytes of partitions that are gone.
    gone_bytes: u64,
    /// The highest number of a file.
    numbers: u64,
    /// Numbers of earlier runs that a file of this run goes on with.
    taken: HashSet<u64>,
    /// Claims of the batches that are settled with all before them and were not taken since: the last of each file,
    /// by its number.
    claims: BTreeMap<u64, Claim>,
    /// Files that began at their beginning and have no saved position, by their numbers, and how much of their heads was
    /// noted.
    begun: BTreeMap<u64, u16>,
    /// What is to be saved beside them.
    noted: Moves,
}

/// What is to be saved, all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Positions that moved.
    pub positions: Vec<Position>,
    /// Numbers of positions that are kept no longer.
    pub forgotten: Vec<u64>,
    /// Patterns by which files were looked for; a file that they lead to later is new.
    pub looked: Vec<String>,
}

impl Moves {
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty() && self.forgotten.is_empty() && self.looked.is_empty()
    }
}

#[derive(Debug)]
struct Partition {
    /// How many files are read that have their place in it: one that was copied, truncated or compressed shares it
    /// with what came of it.
    users: u32,
    /// The number of the next batch, and how many were opened: one that has a number may be on its way.
    next: u64,
    opened: u64,
    /// Everything before this is settled.
    offset: u64,
    /// Batches not settled, or settled above an open one.
    batches: BTreeMap<u64, Batch>,
    /// The batch up to which the position was given out before it was settled, by [`Ledger::take_moved_with`].
    given: Option<u64>,
}

#[derive(Debug)]
struct Batch {
    span: Span,
    settled: bool,
    claim: Option<Claim>,
}

impl Ledger {
    /// A new partition, read from `offset` on.
    pub fn partition(&mut self, offset: u64) -> u32 {
        let number = self.next;
        self.next += 1;
        let partition = Partition { users: 1, next: 0, opened: 0, offset, batches: BTreeMap::new(), given: None };
        self.partitions.insert(number, partition);
        number
    }

    /// One more file has its place in a partition; false if that is gone, since all of it is settled.
    pub fn share(&mut self, partition: u32) -> bool {
        let found = self.partitions.get_mut(&partition);
        found.map(|part| part.users += 1).is_some()
    }

    /// A file ended. A partition that nobody reads is gone once all of it is settled.
    pub fn release(&mut self, partition: u32) {
        if let Some(part) = self.partitions.get_mut(&partition) {
            part.users = part.users.saturating_sub(1);
            self.drop_if_done(partition);
        }
    }

    fn drop_if_done(&mut self, partition: u32) {
        if let Some(part) = self.partitions.get(&partition)
            && part.users == 0
            && part.opened == part.next
            && part.batches.is_empty()
        {
            self.gone_bytes += part.offset;
            self.partitions.remove(&partition);
        }
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// The number of the next batch of a partition.
    pub fn number_batch(&mut self, partition: u32) -> u64 {
        let Some(part) = self.partitions.get_mut(&partition) else { return 0 };
        part.next += 1;
        part.next - 1
    }

    /// The number of a file that begins, above those that were `saved`; with the position that it goes on from, the
    /// number of that, unless another file goes on from there too.
    pub fn number_file(&mut self, was: Option<u64>, saved: u64) -> u64 {
        if let Some(was) = was
            && self.taken.insert(was)
        {
            return was;
        }
        self.numbers = self.numbers.max(saved) + 1;
        self.numbers
    }

    /// Files have numbers above this.
    pub fn number_above(&mut self, number: u64) {
        self.numbers = self.numbers.max(number);
    }

    /// A file that nothing is known of is read from its beginning. Nothing is saved of it until something is settled, or
    /// [`Ledger::note_file`].
    pub fn begin_file(&mut self, number: u64) {
        self.begun.insert(number, 0);
    }

    /// A letter of this file is to be written: that it has this number is saved although nothing of it is settled.
    /// Whether there is anything new to save.
    pub fn note_file(&mut self, file: &FileKey) -> bool {
        let Some(noted) = self.begun.get_mut(&file.number) else { return false };
        let is_new = file.identity.head.bytes > *noted;
        if is_new {
            *noted = file.identity.head.bytes;
            self.noted.positions.retain(|position| position.number != file.number);
            self.noted.positions.push(file.at(Mark::start()));
        }
        is_new
    }

    /// A file goes on at a place that is to be saved, whether or not there is something new in it.
    pub fn claim(&mut self, claim: Claim) {
        move_to(&mut self.claims, &mut self.begun, claim);
    }

    /// Files were looked for by these patterns, and those that were found begin at these places: both are saved, or
    /// neither is.
    pub fn note_look(&mut self, patterns: impl IntoIterator<Item = String>, found: Vec<Position>) {
        self.noted.looked.extend(patterns);
        self.noted.positions.extend(found);
    }

    /// The position of a file is kept no longer.
    pub fn forget(&mut self, file: u64) {
        self.claims.remove(&file);
        self.begun.remove(&file);
        self.noted.positions.retain(|position| position.number != file);
        self.noted.forgotten.push(file);
    }

    /// A batch was read. Batches of a partition are opened in the order of their numbers.
    pub fn open(&mut self, partition: u32, number: u64, span: Span) {
        if let Some(part) = self.partitions.get_mut(&partition) {
            part.next = part.next.max(number + 1);
            part.opened += 1;
            part.batches.insert(number, Batch { span, settled: false, claim: None });
        }
    }

    /// All events of a batch have their fate.
    pub fn settle(&mut self, partition: u32, number: u64, claim: Option<Claim>) {
        let Some(part) = self.partitions.get_mut(&partition) else { return };
        if let Some(batch) = part.batches.get_mut(&number) {
            batch.settled = true;
            batch.claim = claim;
        }
        while let Some(first) = part.batches.first_entry()
            && first.get().settled
        {
            let (number, batch) = first.remove_entry();
            part.offset = batch.span.end;
            if let Some(claim) = batch.claim
                && part.given.is_none_or(|given| given < number)
            {
                move_to(&mut self.claims, &mut self.begun, claim);
            }
        }
        self.drop_if_done(partition);
    }

    /// The place before which all is settled.
    pub fn offset(&self, partition: u32) -> Option<u64> {
        self.partitions.get(&partition).map(|part| part.offset)
    }

    pub fn has_moved(&self) -> bool {
        !self.claims.is_empty() || !self.noted.is_empty()
    }

    /// What is to be saved since this was last asked: one position of each file.
    pub fn take_moved(&mut self) -> Moves {
        let mut moves = std::mem::take(&mut self.noted);
        let claims = std::mem::take(&mut self.claims);
        moves.positions.retain(|position| !claims.contains_key(&position.number));
        moves.positions.extend(claims.values().map(|(file, mark)| file.at(*mark)));
        moves
    }

    /// The same, as it will be once these batches (partition and number) are settled too. The caller makes it so, or
    /// saves nothing.
    pub fn take_moved_with(&mut self, next: &HashMap<(u32, u64), Option<Claim>>) -> Moves {
        let partitions: BTreeSet<u32> = next.keys().map(|(partition, _)| *partition).collect();
        for number in partitions {
            let Some(part) = self.partitions.get_mut(&number) else { continue };
            for (batch, at) in &part.batches {
                let claim = match next.get(&(number, *batch)) {
                    Some(claim) => claim,
                    // above one that was open until now
                    None if at.settled => &at.claim,
                    None => break,
                };
                part.given = Some(*batch);
                if let Some(claim) = claim {
                    move_to(&mut self.claims, &mut self.begun, claim.clone());
                }
            }
        }
        self.take_moved()
    }

    /// Bytes of all partitions before which all is settled.
    pub fn settled_bytes(&self) -> u64 {
        self.gone_bytes + self.partitions.values().map(|part| part.offset).sum::<u64>()
    }

    /// Batches with something open.
    pub fn open_batches(&self) -> usize {
        self.partitions.values().flat_map(|part| part.batches.values()).filter(|batch| !batch.settled).count()
    }
}

/// All of a file before this place is settled.
fn move_to(claims: &mut BTreeMap<u64, Claim>, begun: &mut BTreeMap<u64, u16>, claim: Claim) {
    // nothing is: what was noted of the file says more, since more of its head may have been read by then
    if claim.1.offset == 0 && begun.contains_key(&claim.0.number) {
        return;
    }
    begun.remove(&claim.0.number);
    claims.insert(claim.0.number, claim);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::identity::{Identity, Print};
    use proptest::prelude::*;

    fn file(inode: u64) -> Arc<FileKey> {
        let identity = Identity { device: 1, inode, born: None, head: Print::head(b"") };
        Arc::new(FileKey { path: format!("/{inode}").into(), identity, number: inode + 1 })
    }

    fn mark(offset: u64) -> Mark {
        Mark { offset, tail: Print::tail(&offset.to_be_bytes()) }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Settle(usize, u64),
        Save,
        /// Save as it will be once these batches are settled, then settle them.
        SaveWith(Vec<(usize, u64)>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let all: Vec<(usize, u64)> = (0..3).flat_map(|file| (0..8).map(move |number| (file, number))).collect();
        let order = (Just(all).prop_shuffle(), prop::collection::vec(0..4u8, 24), 0..25usize);
        order.prop_map(|(order, kinds, count)| {
            let mut steps = Vec::new();
            for ((file, number), kind) in order.into_iter().zip(kinds).take(count) {
                match (kind, steps.last_mut()) {
                    (3, Some(Step::SaveWith(batches))) => batches.push((file, number)),
                    (0, _) => steps.push(Step::SaveWith(vec![(file, number)])),
                    (1, _) => steps.extend([Step::Settle(file, number), Step::Save]),
                    _ => steps.push(Step::Settle(file, number)),
                }
            }
            steps.push(Step::Save);
            steps
        })
    }

    proptest! {
        /// Against the naive rule: a saved position is the claim of a batch before which none is open, and after
        /// the last save it is the farthest such claim.
        #[test]
        fn saved_positions_are_the_ends_of_the_settled_runs(steps in steps(), silent in 0..8u64) {
            let mut ledger = Ledger::default();
            let files: Vec<Arc<FileKey>> = (0..3).map(file).collect();
            let parts: Vec<u32> = files.iter().map(|_| ledger.partition(100)).collect();
            // a batch that ends in a half line has no claim
            let claim = |at: usize, n: u64| (n != silent).then(|| (files[at].clone(), mark(110 + n * 10)));
            for part in &parts {
                (0..8).for_each(|n| ledger.open(*part, n, 100 + n * 10..110 + n * 10));
            }
            let mut settled = [[false; 8]; 3];
            let mut saved: [u64; 3] = [0; 3];
            let run = |settled: &[bool; 8]| settled.iter().take_while(|s| **s).count() as u64;
            for step in steps {
                let (now, taken) = match step {
                    Step::Settle(at, n) => {
                        ledger.settle(parts[at], n, claim(at, n));
                        settled[at][n as usize] = true;
                        (settled, Moves::default())
                    }
                    Step::Save => (settled, ledger.take_moved()),
                    Step::SaveWith(batches) => {
                        let next = batches.iter().map(|(at, n)| ((parts[*at], *n), claim(*at, *n))).collect();
                        let taken = ledger.take_moved_with(&next);
                        for (at, n) in batches {
                            ledger.settle(parts[at], n, claim(at, n));
                            settled[at][n as usize] = true;
                        }
                        (settled, taken)
                    }
                };
                for position in taken.positions {
                    let at = position.identity.inode as usize;
                    let covered = (position.mark.offset - 100) / 10;
                    prop_assert_eq!(position.mark, mark(position.mark.offset));
                    prop_assert!(covered <= run(&now[at]), "{covered} batches saved of {:?}", now[at]);
                    prop_assert!(position.mark.offset >= saved[at], "a position went back");
                    saved[at] = position.mark.offset;
                }
            }
            for at in 0..3 {
                let run = run(&settled[at]);
                prop_assert_eq!(ledger.offset(parts[at]), Some(100 + run * 10));
                let last = (0..run).rev().find(|n| *n != silent).map_or(0, |n| 110 + n * 10);
                prop_assert_eq!(saved[at], last);
            }
            prop_assert!(!ledger.has_moved());
            prop_assert_eq!(ledger.open_batches(), settled.iter().flatten().filter(|s| !**s).count());
        }
    }

    #[test]
    fn what_is_saved_is_taken_once() {
        let mut ledger = Ledger::default();
        assert!(!ledger.has_moved());
        ledger.claim((file(7), mark(300)));
        ledger.note_look(["/*".to_string()], vec![file(8).at(mark(200))]);
        ledger.claim((file(9), mark(1)));
        ledger.forget(10);
        assert!(ledger.has_moved());
        let positions = vec![file(8).at(mark(200)), file(7).at(mark(300))];
        assert_eq!(ledger.take_moved(), Moves { positions, forgotten: vec![10], looked: vec!["/*".to_string()] });
        assert_eq!(ledger.take_moved(), Moves::default());
    }

    #[test]
    fn a_copy_has_its_place_when_all_before_it_is_settled() {
        let mut ledger = Ledger::default();
        let lane = ledger.partition(0);
        ledger.open(lane, 0, 0..10);
        ledger.open(lane, 1, 10..10);
        ledger.settle(lane, 1, Some((file(8), mark(10))));
        ledger.open(lane, 2, 0..5);
        ledger.settle(lane, 2, Some((file(9), mark(5))));
        assert_eq!(ledger.take_moved().positions, []);
        ledger.settle(lane, 0, Some((file(7), mark(10))));
        let all = [file(7).at(mark(10)), file(8).at(mark(10)), file(9).at(mark(5))];
        assert_eq!(ledger.take_moved().positions, all);
    }

    #[test]
    fn a_file_of_which_nothing_is_settled_is_known_by_its_number() {
        let mut ledger = Ledger::default();
        ledger.number_above(4);
        let number = ledger.number_file(None, 2);
        assert_eq!(number, 5, "a letter has the fourth");
        let lane = ledger.partition(0);
        let with_head = |bytes: &[u8]| {
            let identity = Identity { device: 1, inode: 1, born: None, head: Print::head(bytes) };
            FileKey { path: "/a".into(), identity, number }
        };
        let (one, two) = (with_head(b"one\n"), with_head(b"one\ntwo\n"));
        assert!(!ledger.note_file(&one), "it may have a position");
        ledger.begin_file(number);
        assert!(ledger.note_file(&with_head(b"on")) && ledger.note_file(&one) && !ledger.note_file(&one));
        assert_eq!(ledger.take_moved().positions, [one.at(Mark::start())]);
        // where nothing is settled yet, as of a file that is only given another name, stays what was noted
        ledger.open(lane, 0, 0..0);
        ledger.settle(lane, 0, Some((Arc::new(with_head(b"")), Mark::start())));
        assert!(!ledger.note_file(&one) && !ledger.has_moved());
        assert!(ledger.note_file(&two), "more is known of it");
        ledger.open(lane, 1, 0..4);
        ledger.settle(lane, 1, Some((Arc::new(two.clone()), mark(4))));
        assert!(!ledger.note_file(&with_head(b"one\ntwo\nthree\n")), "never back");
        assert_eq!(ledger.take_moved().positions, [two.at(mark(4))]);
        ledger.begin_file(number);
        assert!(ledger.note_file(&two));
        ledger.forget(number);
        assert_eq!(ledger.take_moved(), Moves { forgotten: vec![number], ..Moves::default() });
    }

    #[test]
    fn a_number_of_an_earlier_run_is_taken_by_one_file() {
        let mut ledger = Ledger::default();
        let numbers = [None, Some(5), Some(5), None, Some(3)].map(|was| ledger.number_file(was, 7));
        assert_eq!(numbers, [8, 5, 9, 10, 3]);
    }

    #[test]
    fn partitions_of_files_that_ended_are_gone_when_they_are_settled() {
        let mut ledger = Ledger::default();
        for round in 0..1000 {
            let part = ledger.partition(0);
            let number = ledger.number_batch(part);
            ledger.open(part, number, 0..10);
            if round % 2 == 0 {
                ledger.settle(part, number, None);
                ledger.release(part);
            } else {
                // another file has its place behind it
                assert!(ledger.share(part));
                ledger.release(part);
                ledger.release(part);
                assert_eq!((ledger.partitions(), ledger.offset(part)), (1, Some(0)));
                ledger.settle(part, number, None);
            }
            assert_eq!((ledger.partitions(), ledger.settled_bytes()), (0, (round + 1) * 10));
            assert!(!ledger.share(part));
        }
    }
}
