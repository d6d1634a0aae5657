//! The counts of a run. They always add up: every event that came in has one fate or is unsettled.

use serde_json::{Map, Value, json};

/// How many events ended in which way, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub created: u64,
    pub updated: u64,
    pub deleted: u64,
    pub duplicates: u64,
    pub stale: u64,
    pub dropped: u64,
    pub retries: u64,
    pub requests: u64,
    pub bytes_out: u64,
    /// Events read; no fate.
    pub events_in: u64,
}

impl Tally {
    /// Fates in it (dead letters are counted apart).
    pub fn fates(&self) -> u64 {
        self.created + self.updated + self.deleted + self.duplicates + self.stale + self.dropped
    }

    pub fn add(&mut self, other: &Tally) {
        self.created += other.created;
        self.updated += other.updated;
        self.deleted += other.deleted;
        self.duplicates += other.duplicates;
        self.stale += other.stale;
        self.dropped += other.dropped;
        self.retries += other.retries;
        self.requests += other.requests;
        self.bytes_out += other.bytes_out;
        self.events_in += other.events_in;
    }
}

/// `1 event`, `2 events`.
pub fn counted(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

/// All counts of one pipeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub tally: Tally,
    pub dead_lettered: u64,
}

impl Summary {
    pub fn add(&mut self, tally: &Tally, letters: u64) {
        self.tally.add(tally);
        self.dead_lettered += letters;
    }

    /// Adds the counts of another pipeline.
    pub fn merge(&mut self, other: &Summary) {
        self.add(&other.tally, other.dead_lettered);
    }

    /// The counts in a line, those that are zero left out.
    pub fn words(&self, seconds: f64) -> String {
        let t = &self.tally;
        let mut line = counted(t.events_in, "event");
        let counts = [
            (t.created, "created"),
            (t.updated, "updated"),
            (t.deleted, "deleted"),
            (t.duplicates, if t.duplicates == 1 { "duplicate" } else { "duplicates" }),
            (t.stale, "stale"),
            (t.dropped, "dropped"),
            (self.dead_lettered, if self.dead_lettered == 1 { "dead letter" } else { "dead letters" }),
            (self.unsettled(), "unsettled"),
        ];
        let mut before = ": ";
        for (count, name) in counts.into_iter().filter(|(count, _)| *count > 0) {
            line.push_str(&format!("{before}{count} {name}"));
            before = ", ";
        }
        let rate = t.events_in as f64 / seconds.max(0.001);
        line.push_str(&format!("; {seconds:.2} s, {rate:.0} a second"));
        line
    }

    pub fn unsettled(&self) -> u64 {
        self.tally.events_in.saturating_sub(self.tally.fates() + self.dead_lettered)
    }

    pub fn to_json(&self, seconds: f64) -> Map<String, Value> {
        let t = &self.tally;
        let object = json!({
            "events_in": t.events_in, "created": t.created, "updated": t.updated, "deleted": t.deleted,
            "duplicates": t.duplicates, "stale": t.stale, "dropped": t.dropped,
            "dead_lettered": self.dead_lettered, "unsettled": self.unsettled(),
            "retries": t.retries, "requests": t.requests, "bytes_out": t.bytes_out,
            "seconds": (seconds * 1000.0).round() / 1000.0,
        });
        if let Value::Object(map) = object { map } else { Map::new() }
    }
}
