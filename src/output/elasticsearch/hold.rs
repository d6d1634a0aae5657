//! Events of an index that takes none at present: kept in order, asked about with one small request at a time,
//! and sent when it takes events again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::answer::Cause;
use super::load::{Loads, Unit};
use super::wait::{Backoff, News, Waits};

/// As much as is sent to find out whether an index takes events again.
const PROBE_ITEMS_MAX: usize = 100;
const PROBE_BYTES_MAX: usize = 256 << 10;

#[derive(Debug)]
struct Hold {
    units: VecDeque<Unit>,
    backoff: Backoff,
    probe_at: Instant,
    is_probing: bool,
    probe_items_max: usize,
    cause: Cause,
}

/// All indices in trouble.
#[derive(Debug)]
pub struct Holds {
    holds: BTreeMap<Arc<str>, Hold>,
    /// Of these, and of those whose trouble was said not long ago.
    news: BTreeMap<Arc<str>, News>,
    waits: Waits,
}

impl Holds {
    pub fn new(waits: Waits) -> Holds {
        Holds { holds: BTreeMap::new(), news: BTreeMap::new(), waits }
    }

    pub fn is_empty(&self) -> bool {
        self.holds.is_empty()
    }

    /// The indices that are held for, in words.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.holds.keys().map(|name| &**name).collect();
        names.join(", ")
    }

    /// Events that the index refused, in order; they were before all that is held. Said once.
    pub fn refused(&mut self, index: &Arc<str>, cause: &Cause, units: Vec<Unit>, now: Instant) {
        let waits = self.waits;
        let hold = self.holds.entry(index.clone()).or_insert_with(|| {
            let mut backoff = Backoff::default();
            let probe_at = now + backoff.next(&waits);
            let (units, cause) = (VecDeque::new(), cause.clone());
            Hold { units, backoff, probe_at, is_probing: false, probe_items_max: PROBE_ITEMS_MAX, cause }
        });
        units.into_iter().rev().for_each(|unit| hold.units.push_front(unit));
        self.say(index, now);
    }

    fn say(&mut self, index: &str, now: Instant) {
        let Some((name, hold)) = self.holds.get_key_value(index) else { return };
        if !self.news.contains_key(index) {
            self.news.retain(|index, news| self.holds.contains_key(index) || news.is_quiet(now));
        }
        if self.news.entry(name.clone()).or_default().begins(now) {
            let Cause { kind, reason } = &hold.cause;
            tracing::warn!(%index, error = %kind, %reason, "the index takes no events: they are kept, other indices go on");
        }
    }

    /// Takes out of `units` those of indices in trouble.
    pub fn divert(&mut self, loads: &mut Loads, units: &mut Vec<Unit>) {
        if self.holds.is_empty() {
            return;
        }
        let mut held = Vec::new();
        units.retain(|unit| match self.holds.get_mut(loads.index(unit)) {
            Some(hold) => {
                hold.units.push_back(*unit);
                held.push(*unit);
                false
            }
            None => true,
        });
        loads.delay(&held);
    }

    /// When the next index is to be asked about.
    pub fn next_at(&self) -> Option<Instant> {
        self.holds.values().filter(|hold| !hold.is_probing).map(|hold| hold.probe_at).min()
    }

    /// The first events of an index whose time has come.
    pub fn probe(&mut self, loads: &Loads, now: Instant) -> Option<(Arc<str>, Vec<Unit>)> {
        let (index, hold) = self.holds.iter_mut().find(|(_, hold)| !hold.is_probing && hold.probe_at <= now)?;
        hold.is_probing = true;
        let mut bytes = 0;
        let fits = hold.units.iter().take(hold.probe_items_max).take_while(|unit| {
            bytes += loads.item(unit).size();
            bytes <= PROBE_BYTES_MAX
        });
        let count = fits.count().max(1).min(hold.units.len());
        Some((index.clone(), hold.units.drain(..count).collect()))
    }

    /// The events asked with did not pass as they were; they were before all that is held.
    pub fn back(&mut self, index: &str, units: Vec<Unit>, now: Instant) {
        if let Some(hold) = self.holds.get_mut(index) {
            units.into_iter().rev().for_each(|unit| hold.units.push_front(unit));
            hold.is_probing = false;
            hold.probe_at = now + hold.backoff.next(&self.waits);
        }
        self.say(index, now);
    }

    /// The engine does not take so many at once: the next time with half as many, at once.
    pub fn halve(&mut self, index: &str, units: Vec<Unit>, now: Instant) {
        let half = (units.len() / 2).max(1);
        self.back(index, units, now);
        if let Some(hold) = self.holds.get_mut(index) {
            hold.probe_items_max = half;
            hold.probe_at = now;
        }
    }

    /// The events asked with have all ended otherwise, without one success: on with the next, or it is over.
    pub fn unsure(&mut self, index: &str, now: Instant) {
        if self.holds.get(index).is_some_and(|hold| hold.units.is_empty()) {
            self.release(index, now);
        } else {
            self.back(index, Vec::new(), now);
        }
    }

    /// The index takes events again: all that is held, in order. Said once.
    pub fn release(&mut self, index: &str, now: Instant) -> Vec<Unit> {
        let Some(hold) = self.holds.remove(index) else { return Vec::new() };
        if let Some(lasted) = self.news.get_mut(index).and_then(|news| news.ends(now)) {
            let (seconds, events) = (lasted.as_secs(), hold.units.len());
            tracing::warn!(%index, seconds, events, "the index takes events again");
        }
        hold.units.into()
    }
}
