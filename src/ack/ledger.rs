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
    partitions: Vec<Partition>,
    /// Partitions whose position moved since it was last taken to be saved.
    moved: BTreeSet<u32>,
    /// How many files were numbered.
    files: u64,
    /// Of each device and inode, the number of the last file whose position was taken.
    newest: HashMap<(u64, u64), u64>,
    /// Positions of files that were found elsewhere, before they are read.
    noted: Vec<Position>,
}

#[derive(Debug, Default)]
struct Partition {
    /// Everything before this is settled.
    offset: u64,
    /// Claims of the batches that are settled with all before them and were not taken since: the last of each file
    /// (one that was copied, truncated or compressed shares its partition with what came of it).
    claims: Vec<Claim>,
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
        self.partitions.push(Partition { offset, ..Partition::default() });
        self.partitions.len() as u32 - 1
    }

    /// A new partition of a file that goes on at a saved position, under another name or inode than it was saved
    /// with: to be saved again, whether or not there is something new in it.
    pub fn partition_moved(&mut self, claim: Claim) -> u32 {
        let partition = self.partition(claim.1.offset);
        self.moved.insert(partition);
        if let Some(last) = self.partitions.last_mut() {
            last.claims.push(claim);
        }
        partition
    }

    /// The number of a file that begins.
    pub fn number_file(&mut self) -> u64 {
        self.files += 1;
        self.files
    }

    /// A file was found elsewhere: its position is saved under its new name with the next that is saved, before
    /// another file that has its old inode takes its place.
    pub fn note(&mut self, position: Position) {
        self.noted.push(position);
    }

    /// A batch was read. Batches of a partition are opened in the order of their numbers.
    pub fn open(&mut self, partition: u32, number: u64, span: Span) {
        if let Some(partition) = self.partitions.get_mut(partition as usize) {
            partition.batches.insert(number, Batch { span, settled: false, claim: None });
        }
    }

    /// All events of a batch have their fate.
    pub fn settle(&mut self, partition: u32, number: u64, claim: Option<Claim>) {
        let Some(part) = self.partitions.get_mut(partition as usize) else { return };
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
                part.claims.retain(|(file, _)| file.number != claim.0.number);
                part.claims.push(claim);
                self.moved.insert(partition);
            }
        }
    }

    /// The place before which all is settled.
    pub fn offset(&self, partition: u32) -> Option<u64> {
        self.partitions.get(partition as usize).map(|part| part.offset)
    }

    pub fn has_moved(&self) -> bool {
        !self.moved.is_empty() || !self.noted.is_empty()
    }

    /// The positions that moved since this was last asked.
    pub fn take_moved(&mut self) -> Vec<Position> {
        let moved = std::mem::take(&mut self.moved);
        self.positions(moved, None)
    }

    /// Positions of these partitions, and of a claim. Of a file that lost its inode to another, as when it was
    /// truncated, none are given any more once the other has one: it would stand for the other's.
    fn positions(&mut self, moved: BTreeSet<u32>, next: Option<Claim>) -> Vec<Position> {
        let mut claims: Vec<Claim> = Vec::new();
        for partition in moved {
            claims.append(&mut self.partitions[partition as usize].claims);
        }
        claims.extend(next);
        claims.sort_by_key(|(file, _)| file.number);
        let mut positions = std::mem::take(&mut self.noted);
        let mut taken = HashSet::new();
        for (file, mark) in claims.iter().rev() {
            let inode = (file.identity.device, file.identity.inode);
            let newest = self.newest.entry(inode).or_default();
            if *newest <= file.number && taken.insert(inode) {
                *newest = file.number;
                positions.push(file.at(*mark));
            }
        }
        positions
    }

    /// The same, as it will be once batch `number` is settled too. The caller makes it so, or saves nothing.
    pub fn take_moved_with(&mut self, partition: u32, number: u64, claim: Option<&Claim>) -> Vec<Position> {
        let moved = std::mem::take(&mut self.moved);
        let mut next = None;
        if let (Some(claim), Some(part)) = (claim, self.partitions.get_mut(partition as usize))
            && part.batches.first_key_value().is_some_and(|(first, _)| *first == number)
        {
            part.given = Some(number);
            next = Some(claim.clone());
        }
        self.positions(moved, next)
    }

    /// Bytes of all partitions before which all is settled.
    pub fn settled_bytes(&self) -> u64 {
        self.partitions.iter().map(|part| part.offset).sum()
    }

    /// Batches with something open.
    pub fn open_batches(&self) -> usize {
        self.partitions.iter().flat_map(|part| part.batches.values()).filter(|batch| !batch.settled).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::identity::{Identity, Print};
    use proptest::prelude::*;

    fn file(inode: u64) -> Arc<FileKey> {
        let identity = Identity { device: 1, inode, head: Print::head(b"") };
        Arc::new(FileKey { path: format!("/{inode}").into(), identity, number: inode })
    }

    fn mark(offset: u64) -> Mark {
        Mark { offset, tail: Print::tail(&offset.to_be_bytes()) }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Settle(usize, u64),
        Save,
        /// Save as it will be once this batch is settled, then settle it.
        SaveWith(usize, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let all: Vec<(usize, u64)> = (0..3).flat_map(|file| (0..8).map(move |number| (file, number))).collect();
        let order = (Just(all).prop_shuffle(), prop::collection::vec(0..4u8, 24), 0..25usize);
        order.prop_map(|(order, kinds, count)| {
            let steps = order.into_iter().zip(kinds).take(count);
            let step = |((file, number), kind)| match kind {
                0 => vec![Step::SaveWith(file, number)],
                1 => vec![Step::Settle(file, number), Step::Save],
                _ => vec![Step::Settle(file, number)],
            };
            steps.flat_map(step).chain([Step::Save]).collect()
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
                        (settled, Vec::new())
                    }
                    Step::Save => (settled, ledger.take_moved()),
                    Step::SaveWith(at, n) => {
                        let taken = ledger.take_moved_with(parts[at], n, claim(at, n).as_ref());
                        ledger.settle(parts[at], n, claim(at, n));
                        settled[at][n as usize] = true;
                        // as if only the batches of the run up to this one were settled
                        (settled, taken)
                    }
                };
                for position in taken {
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
    fn a_file_under_another_name_is_saved_though_nothing_is_new() {
        let mut ledger = Ledger::default();
        ledger.partition_moved((file(7), mark(300)));
        assert_eq!(ledger.settled_bytes(), 300);
        ledger.note(file(8).at(mark(200)));
        assert_eq!(ledger.take_moved(), [file(8).at(mark(200)), file(7).at(mark(300))]);
        assert_eq!(ledger.take_moved(), []);
    }

    /// Files of one inode, numbered in the order in which they had it.
    fn text(inode: u64, number: u64) -> Arc<FileKey> {
        let FileKey { path, identity, .. } = (*file(inode)).clone();
        Arc::new(FileKey { path, identity, number })
    }

    #[test]
    fn what_a_file_was_before_it_was_truncated_no_longer_stands_for_it() {
        let mut ledger = Ledger::default();
        let (before, after) = (ledger.partition(0), ledger.partition(0));
        (0..3).for_each(|n| ledger.open(before, n, n * 10..n * 10 + 10));
        ledger.open(after, 0, 0..5);
        ledger.settle(before, 0, Some((text(7, 1), mark(10))));
        assert_eq!(ledger.take_moved(), [text(7, 1).at(mark(10))], "as long as the new text has no place");
        ledger.settle(before, 1, Some((text(7, 1), mark(20))));
        ledger.settle(after, 0, Some((text(7, 2), mark(5))));
        assert_eq!(ledger.take_moved(), [text(7, 2).at(mark(5))]);
        ledger.settle(before, 2, Some((text(7, 1), mark(30))));
        assert_eq!(ledger.take_moved(), []);
    }

    #[test]
    fn a_copy_has_its_place_when_all_before_it_is_settled() {
        let mut ledger = Ledger::default();
        let lane = ledger.partition(0);
        ledger.open(lane, 0, 0..10);
        ledger.open(lane, 1, 10..10);
        ledger.settle(lane, 1, Some((text(8, 2), mark(10))));
        ledger.open(lane, 2, 0..5);
        ledger.settle(lane, 2, Some((text(7, 3), mark(5))));
        assert_eq!(ledger.take_moved(), []);
        ledger.settle(lane, 0, Some((text(7, 1), mark(10))));
        assert_eq!(ledger.take_moved(), [text(7, 3).at(mark(5)), text(8, 2).at(mark(10))]);
    }
}
