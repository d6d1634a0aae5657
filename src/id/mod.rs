//! Document ids: what the bytes of an event become.
//!
//! ```text
//! event --serial--> bytes --digest--> digest --scheme--> id
//! ```
//!
//! [`serial`] says which bytes of an event are hashed, [`digest`] hashes them, a [`Scheme`] makes the id of the
//! digest and the event's time. Ids are for ever: what a scheme writes never changes, see `tests/golden/ids.jsonl`.
//! Not here: routing to an index, and ids that only the engine knows.

pub mod choice;
pub mod compact;
pub mod digest;
pub mod encode;
pub mod hash;
pub mod lanes;
pub mod logstash;
pub mod murmur;
pub mod number;
pub mod odds;
pub mod serial;
pub mod sorted;
pub mod time_hash;
pub mod uuid;

use crate::ack::Reason;
use crate::batch::{Batch, EventRef};
use crate::time::Time;
pub use choice::{Choice, Ids};
use digest::{DIGEST_BYTES_MAX, Digest, Method};
use serial::Content;
pub use serial::{Digests, Scratch};
use std::fmt;

/// The last second that four bytes hold: 2106-02-07T06:28:15Z.
pub const SECONDS_MAX: i64 = u32::MAX as i64;

/// Why an event gets no id. It goes to the dead letters with [`Refused::reason`], and `Display` tells more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The time does not fit the scheme; `last` is the first instant too late.
    TimeOutOfRange { time: Time, last: &'static str },
    /// Nothing to hash: the source fields are missing, null or empty.
    IdMissing { fields: String },
}

impl Refused {
    pub fn reason(&self) -> Reason {
        match self {
            Refused::TimeOutOfRange { .. } => Reason::TimeOutOfRange,
            Refused::IdMissing { .. } => Reason::IdMissing,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::TimeOutOfRange { time, last } => {
                write!(f, "the time {} is not within 1970-01-01T00:00:00Z to {last}", time.iso())
            }
            Refused::IdMissing { fields } => write!(f, "nothing to hash: {fields} is missing, null or empty"),
        }
    }
}

/// The time unit in front of a digest: within one, digests must differ for ids to differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Millis,
}

impl TimeUnit {
    pub const NAMES: [&str; 2] = ["ms", "s"];

    pub fn parse(name: &str) -> Option<TimeUnit> {
        match name {
            "ms" => Some(TimeUnit::Millis),
            "s" => Some(TimeUnit::Seconds),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            TimeUnit::Millis => "ms",
            TimeUnit::Seconds => "s",
        }
    }

    pub fn seconds(self) -> f64 {
        match self {
            TimeUnit::Millis => 0.001,
            TimeUnit::Seconds => 1.0,
        }
    }
}

/// How an id is made of a time and a digest. Built once, called once an event by any worker.
pub trait Scheme: Send + Sync {
    /// Appends the id. `digest` is as long as the method's digests are, and empty where [`Scheme::method`] is none.
    /// When it refuses, nothing has been written.
    fn write(&self, time: Time, digest: &[u8], out: &mut Vec<u8>) -> Result<(), Refused>;

    /// The method whose digest is wanted; none for random ids.
    fn method(&self) -> Option<Method>;

    /// The unit of the time within the id, if a time is in it.
    fn time_unit(&self) -> Option<TimeUnit>;

    /// The bits of the digest that are in the id.
    fn digest_bits(&self) -> u32;

    /// The length of every id, in characters.
    fn chars(&self) -> usize;

    /// What ids are made of and how they are written: the start of the [`definition`].
    fn made_of(&self) -> String;
}

/// The definition of an id in one line, the same wherever the same events get the same ids, except for the
/// fields hashed: `time (ms) + SHA256/96, base64url, 24 characters, v1, key 5f2c91aa`.
pub fn definition(scheme: &dyn Scheme, serialization: &str, key: Option<&[u8]>, keep_repeats: bool) -> String {
    let mut line = format!("{}, {} characters", scheme.made_of(), scheme.chars());
    if scheme.method().is_some() {
        let key = key.map_or_else(|| "no key".to_owned(), |key| format!("key {}", digest::key_check(key)));
        line.push_str(&format!(", {serialization}, {key}"));
        if keep_repeats {
            line.push_str(", repeats kept apart");
        }
    }
    line
}

/// All that makes the ids of a pipeline, for the schemes that need nothing but the event and its time. Shared by all
/// workers.
pub struct Recipe {
    pub scheme: Box<dyn Scheme>,
    /// What is hashed and how; none for random ids.
    pub hashed: Option<(Content, Digest)>,
}

impl Recipe {
    /// Appends the id of an event that stands at `time`. When it refuses, nothing has been written.
    pub fn write(
        &self,
        event: &EventRef<'_>,
        time: Time,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let mut digest = [0; DIGEST_BYTES_MAX];
        let len = match &self.hashed {
            Some((content, method)) => content.digest(event, method, scratch, &mut digest)?,
            None => 0,
        };
        self.scheme.write(time, &digest[..len], out)
    }

    /// Appends the id of an event that a filter made, with its place among the events of its record in it.
    pub fn write_apart(
        &self,
        event: &EventRef<'_>,
        time: Time,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let Some((content, method)) = &self.hashed else { return self.scheme.write(time, &[], out) };
        let mut digest = [0; DIGEST_BYTES_MAX];
        let len = content.digest_apart(event, method, scratch, &mut digest)?;
        self.scheme.write(time, &digest[..len], out)
    }

    /// The digests of all live events of a batch at once, for [`Recipe::write_digested`]: with MD5 this takes less
    /// than half the time of one after the other.
    pub fn digest_batch(&self, batch: &Batch, scratch: &mut Scratch, out: &mut Digests) {
        if let Some((content, digest)) = &self.hashed {
            content.digest_batch(batch, digest, scratch, out);
        }
    }

    /// Appends the id of the event at `index`, as [`Recipe::write`] does, its digest being known.
    pub fn write_digested(
        &self,
        index: usize,
        time: Time,
        digests: &Digests,
        out: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        let digest = match &self.hashed {
            Some(_) => digests.get(index).map_err(Refused::clone)?,
            None => &[],
        };
        self.scheme.write(time, digest, out)
    }
}
