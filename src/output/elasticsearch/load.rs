//! Parcels on their way to an engine, as long as any of their items has no fate, and what of them is still needed.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::ack::{Letter, Receipt, Tally};
use crate::batch::StoredPart;
use crate::output::{self, Item, Parcel};

/// A parcel on its way. It stays until the last of its items has its fate, and with it the receipt.
#[derive(Debug)]
pub struct Load {
    pub body: Bytes,
    pub items: Vec<Item>,
    pub indices: Vec<Arc<str>>,
    pub source: Arc<str>,
    pub receipt: Receipt,
    /// Which of the parcel's items these are; empty if they are all.
    numbers: Vec<u32>,
    open: usize,
    /// Items that are stored, or made void by one that is.
    ended: Vec<u32>,
    /// Items that are dead letters.
    dead: Vec<u32>,
    /// Something of it waits longer than a request takes.
    is_delayed: bool,
    /// What all items of the parcel are, where records hold several and that was asked.
    parts: Vec<StoredPart>,
}

/// Of a load with no more than this part of its items open the rest is given up: with order, parts of a load end one
/// after the other, and what would end soon is not worth copying.
const OPEN_PART: usize = 8;

impl Load {
    fn item(&self, number: u32) -> &Item {
        let place = match self.numbers.as_slice() {
            [] => number as usize,
            numbers => numbers.binary_search(&number).unwrap_or_else(|place| place),
        };
        &self.items[place]
    }

    /// The items that have no fate, with their numbers, in order.
    fn open(&self) -> Vec<(u32, &Item)> {
        let numbered = |place: usize| self.numbers.get(place).map_or(place as u32, |number| *number);
        let most = self.items.len().checked_sub(1).map_or(0, |last| numbered(last) as usize + 1);
        let mut is_open = vec![true; most];
        self.ended.iter().chain(&self.dead).for_each(|number| is_open[*number as usize] = false);
        let items = self.items.iter().enumerate().map(|(place, item)| (numbered(place), item));
        items.filter(|(number, _)| is_open[*number as usize]).collect()
    }

    /// Says what is stored, which must not be sent again: what came after it may be stored.
    fn note_done(&mut self) {
        if !self.receipt.has_parts() {
            return self.receipt.note_done(self.ended.iter().map(|number| self.item(*number).offset));
        }
        if self.parts.is_empty() {
            self.parts = output::parts(&self.body, &self.items).collect();
        }
        self.receipt.note_stored(self.ended.iter().filter_map(|number| self.parts.get(*number as usize).copied()));
    }

    /// Gives up what is not open any more if that is much of it: its bytes are free for others.
    fn lighten(&mut self) {
        let count = self.items.len();
        let is_worth_it = match self.is_delayed {
            true => self.open + self.open / 3 < count,
            false => self.open * OPEN_PART <= count,
        };
        if !is_worth_it {
            return;
        }
        if self.receipt.has_parts() {
            self.note_done();
        }
        let open = self.open();
        let mut body = Vec::with_capacity(open.iter().map(|(_, item)| item.size()).sum());
        let (mut items, mut numbers) = (Vec::with_capacity(open.len()), Vec::with_capacity(open.len()));
        for (number, item) in open {
            let bytes = &self.body[item.head_at as usize..item.end as usize];
            let head_at = body.len() as u32;
            let (source_at, end) = (head_at + item.source_at - item.head_at, head_at + bytes.len() as u32);
            body.extend_from_slice(bytes);
            items.push(Item { head_at, source_at, end, ..*item });
            numbers.push(number);
        }
        let mut offsets: Vec<u64> = items.iter().map(|item| item.offset).collect();
        offsets.sort_unstable();
        self.receipt.hold_only(&offsets);
        (self.body, self.items, self.numbers) = (body.into(), items, numbers);
        (self.ended, self.dead) = (Vec::new(), Vec::new());
        self.receipt.weigh(self.body.len() + self.items.len() * (size_of::<Item>() + size_of::<u32>()));
    }
}

/// All parcels on their way.
#[derive(Debug, Default)]
pub struct Loads {
    slots: Vec<Option<Load>>,
    free: Vec<u32>,
    is_ordered: bool,
}

/// One item of a load, and how it fared so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    pub load: u32,
    pub item: u32,
    /// How often it was sent.
    pub attempts: u32,
    /// How often it failed although its neighbours did not.
    pub faults: u16,
    /// Once failed where another item of the same index succeeded.
    pub suspect: bool,
}

impl Loads {
    /// With `is_ordered` the newest write must win.
    pub fn new(is_ordered: bool) -> Loads {
        Loads { is_ordered, ..Loads::default() }
    }

    /// Takes a parcel in; its items as units, in order.
    pub fn add(&mut self, parcel: Parcel) -> Vec<Unit> {
        let count = parcel.items.len();
        let load = Load {
            body: Bytes::from_owner(parcel.body),
            items: parcel.items,
            indices: parcel.indices,
            source: parcel.source,
            receipt: parcel.receipt,
            numbers: Vec::new(),
            open: count,
            ended: Vec::new(),
            dead: Vec::new(),
            is_delayed: false,
            parts: Vec::new(),
        };
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.slots.push(None);
                self.slots.len() as u32 - 1
            }
        };
        let unit = |item| Unit { load: number, item, attempts: 0, faults: 0, suspect: false };
        if count == 0 {
            self.free.push(number);
        } else {
            self.slots[number as usize] = Some(load);
        }
        (0..count as u32).map(unit).collect()
    }

    #[expect(clippy::expect_used, reason = "a unit without its load would be lost: better to stop than to go on")]
    pub fn load(&self, unit: &Unit) -> &Load {
        self.slots[unit.load as usize].as_ref().expect("a unit's load is kept until the unit has its fate")
    }

    pub fn item(&self, unit: &Unit) -> &Item {
        self.load(unit).item(unit.item)
    }

    pub fn index(&self, unit: &Unit) -> &Arc<str> {
        let load = self.load(unit);
        &load.indices[load.item(unit.item).index as usize]
    }

    pub fn size(&self, units: &[Unit]) -> usize {
        units.iter().map(|unit| self.item(unit).size()).sum()
    }

    pub fn head(&self, unit: &Unit) -> &[u8] {
        let (load, item) = (self.load(unit), self.item(unit));
        &load.body[item.head_at as usize..item.source_at as usize]
    }

    /// A part of a load's body.
    pub fn slice(&self, load: u32, range: Range<usize>) -> Bytes {
        self.slots[load as usize].as_ref().map(|load| load.body.slice(range)).unwrap_or_default()
    }

    /// Some items of a load have their fate: its receipt, to settle them with.
    pub fn close(&mut self, ended: &Ended) -> Option<Receipt> {
        let load = ended.load;
        let slot = self.slots.get_mut(load as usize)?;
        let open = slot.as_mut()?;
        open.open = open.open.saturating_sub(ended.tally.fates() as usize + ended.letters.len());
        open.ended.extend_from_slice(&ended.items);
        open.dead.extend_from_slice(&ended.dead);
        if open.open > 0 {
            return Some(open.receipt.clone());
        }
        // its batch may have letters that cannot be written, and then it is kept
        if self.is_ordered {
            open.note_done();
        }
        self.free.push(load);
        slot.take().map(|load| load.receipt)
    }

    /// Something was settled of a load: what of it is not needed any more is given up.
    pub fn lighten(&mut self, load: u32) {
        self.slots.get_mut(load as usize).into_iter().flatten().for_each(Load::lighten);
    }

    /// These wait longer than a request takes, and must not keep from others what they do not need.
    pub fn delay(&mut self, units: &[Unit]) {
        for units in units.chunk_by(|a, b| a.load == b.load) {
            if let Some(load) = self.slots.get_mut(units[0].load as usize).and_then(Option::as_mut) {
                load.is_delayed = true;
                load.lighten();
            }
        }
    }

    /// What is left is left: of each batch, which of its records or their events must not be sent again, since what
    /// came after them may be stored.
    pub fn note_done(&mut self) {
        self.slots.iter_mut().flatten().for_each(Load::note_done);
    }

    /// Bytes in flight that these are of.
    pub fn bytes(&self) -> usize {
        self.slots.iter().flatten().map(|load| load.receipt.bytes()).sum()
    }

    /// A receipt of something that is still open.
    pub fn any_receipt(&self) -> Option<&Receipt> {
        self.slots.iter().flatten().map(|load| &load.receipt).next()
    }
}

/// Items of one load that have their fate.
#[derive(Debug, Default)]
pub struct Ended {
    pub load: u32,
    pub tally: Tally,
    pub letters: Vec<Letter>,
    /// Which; without those that are letters.
    pub items: Vec<u32>,
    /// Which are letters.
    pub dead: Vec<u32>,
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::output::Action;

    /// A parcel of items `(index, id)`.
    pub fn parcel(action: Action, items: &[(&str, String)]) -> Parcel {
        let mut parcel = Parcel {
            body: Vec::new().into(),
            items: Vec::new(),
            indices: Vec::new(),
            source: "test".into(),
            receipt: Receipt::new(0, 0, None),
        };
        for (n, (index, id)) in items.iter().enumerate() {
            let at = parcel.indices.iter().position(|name| &**name == *index).unwrap_or_else(|| {
                parcel.indices.push((*index).into());
                parcel.indices.len() - 1
            });
            let head_at = parcel.body.len() as u32;
            let name = action.as_str();
            parcel.body.extend(format!("{{\"{name}\":{{\"_index\":\"{index}\",\"_id\":\"{id}\"}}}}\n").bytes());
            let source_at = parcel.body.len() as u32;
            parcel.body.extend(format!("{{\"n\":{n}}}\n").bytes());
            let end = parcel.body.len() as u32;
            let id_hash = id.bytes().fold(1, |hash: u32, b| hash.wrapping_mul(31).wrapping_add(b.into()));
            parcel.items.push(Item {
                head_at,
                source_at,
                end,
                index: at as u32,
                id_hash,
                is_part: false,
                offset: n as u64,
            });
        }
        parcel
    }

    #[test]
    fn a_load_stays_until_its_last_item_has_its_fate() {
        let parcel_of = |ids: &[&str]| {
            let items: Vec<_> = ids.iter().map(|id| ("a", id.to_string())).collect();
            parcel(Action::Index, &items)
        };
        let mut loads = Loads::default();
        let both = parcel_of(&["1", "2"]);
        let receipt = both.receipt.clone();
        loads.add(both);
        let tally = Tally { created: 1, ..Tally::default() };
        let one = Ended { load: 0, tally, ..Ended::default() };
        assert!(loads.close(&one).is_some() && loads.any_receipt().is_some());
        assert_eq!(loads.close(&one).map(|r| r.number()), Some(receipt.number()));
        assert!(loads.any_receipt().is_none() && loads.close(&one).is_none());
        assert!(loads.add(parcel_of(&[])).is_empty());
        assert_eq!(loads.add(parcel_of(&["3"]))[0].load, 0);
    }
}
