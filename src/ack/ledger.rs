//! Which batches of a partition are settled, and so how far its position may move: over settled ground only.

use std::collections::BTreeMap;
use std::ops::Range;

/// The bytes of a source that a batch covers.
pub type Span = Range<u64>;

#[derive(Debug, Default)]
pub struct Ledger {
    partitions: Vec<Partition>,
}

#[derive(Debug, Default)]
struct Partition {
    /// Everything before this is settled.
    position: u64,
    /// Batches not settled, or settled above an open one: number to covered bytes and whether settled.
    batches: BTreeMap<u64, (Span, bool)>,
}

impl Ledger {
    /// A new partition, read from `position` on.
    pub fn partition(&mut self, position: u64) -> u32 {
        self.partitions.push(Partition { position, batches: BTreeMap::new() });
        self.partitions.len() as u32 - 1
    }

    /// A batch was read. Batches of a partition are opened in the order of their numbers.
    pub fn open(&mut self, partition: u32, number: u64, span: Span) {
        if let Some(partition) = self.partitions.get_mut(partition as usize) {
            partition.batches.insert(number, (span, false));
        }
    }

    /// All events of a batch have their fate.
    pub fn settle(&mut self, partition: u32, number: u64) {
        let Some(partition) = self.partitions.get_mut(partition as usize) else { return };
        if let Some(batch) = partition.batches.get_mut(&number) {
            batch.1 = true;
        }
        while let Some(first) = partition.batches.first_entry()
            && first.get().1
        {
            partition.position = first.remove().0.end;
        }
    }

    /// The place before which all is settled.
    pub fn position(&self, partition: u32) -> Option<u64> {
        self.partitions.get(partition as usize).map(|p| p.position)
    }

    /// Bytes of all partitions before which all is settled.
    pub fn settled_bytes(&self) -> u64 {
        self.partitions.iter().map(|p| p.position).sum()
    }

    /// Batches with something open.
    pub fn open_batches(&self) -> usize {
        self.partitions.iter().flat_map(|p| p.batches.values()).filter(|b| !b.1).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the naive rule: the position is the end of the longest settled run of batches from the first.
        #[test]
        fn position_is_the_end_of_the_settled_run(
            order in Just((0..20u64).collect::<Vec<_>>()).prop_shuffle(),
            settled in 0..20usize,
        ) {
            let mut ledger = Ledger::default();
            let part = ledger.partition(100);
            for n in 0..20 {
                ledger.open(part, n, 100 + n * 10..110 + n * 10);
            }
            for n in &order[..settled] {
                ledger.settle(part, *n);
            }
            let run = (0..20).take_while(|n| order[..settled].contains(n)).count() as u64;
            prop_assert_eq!(ledger.position(part), Some(100 + run * 10));
            prop_assert_eq!(ledger.open_batches(), 20 - settled);
        }
    }
}
