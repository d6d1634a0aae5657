//! Filters change events, one at a time, in the order of the pipeline file. A [`Step`] is a filter with its `when`
//! and with the options that all filters have.

pub mod cidr;
pub mod clone;
pub mod common;
mod convert;
pub mod csv;
pub mod date;
pub mod dissect;
pub mod drop;
pub mod fingerprint;
pub mod geoip;
pub mod grok;
pub mod json;
pub mod kv;
pub mod mutate;
pub mod prune;
pub mod split;
pub mod syslog_pri;
pub mod translate;
pub mod truncate;
pub mod urldecode;
pub mod useragent;
pub mod uuid;
mod watched;

use crate::batch::{Batch, EventMut, EventRef, Fate};
use crate::condition::{Condition, Fault};
use crate::config::{Help, Section};
use crate::field::FieldRef;
use crate::time::Time;
use common::Common;

/// The tag of an event that a `when` has no answer for; the filter is passed over.
pub const CONDITION_FAILURE: &str = "_conditionfailure";

/// The present, wherever it matters; fixed by `--now`.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub now: Time,
}

/// What a filter did with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It did its work: `add_field`, `add_tag`, `remove_field` and `remove_tag` follow, as they do for each event
    /// that it made.
    Matched,
    Unmatched,
    Drop,
}

/// One filter. Called by the workers for every live event that meets its `when`, in the order read; it keeps no
/// state between events and cannot fail: what goes wrong becomes a tag on the event.
pub trait Filter: Send + Sync {
    fn apply(&self, event: &mut EventMut<'_>, clock: &Clock) -> Applied;

    /// The field that it fills at random, so that no id can be made of it and found again.
    fn random(&self) -> Option<&FieldRef> {
        None
    }
}

type Read = fn(&Section<'_>) -> Option<Box<dyn Filter>>;

/// Every filter there is, by its name in pipeline files.
pub const KINDS: &[(&str, Read)] = &[
    ("cidr", |t| boxed(t, "network_path", cidr::Config::read(t).map(cidr::Cidr::build))),
    ("clone", |t| boxed(t, "clones", clone::Config::read(t).map(clone::Clone::build))),
    ("csv", |t| boxed(t, "separator", csv::Config::read(t).map(csv::Csv::build))),
    ("date", |t| boxed(t, "match", date::Config::read(t).map(date::Date::build))),
    ("dissect", |t| boxed(t, "mapping", dissect::Config::read(t).map(dissect::Dissect::build))),
    ("drop", |t| boxed(t, "percentage", drop::Config::read(t).map(drop::Drop::build))),
    ("fingerprint", |t| boxed(t, "type", Some(fingerprint::build(fingerprint::Config::read(t))))),
    ("geoip", |t| boxed(t, "database", geoip::Config::read(t).map(geoip::Geoip::build))),
    ("grok", |t| boxed(t, "match", grok::Config::read(t).map(grok::Grok::build))),
    ("json", |t| boxed(t, "source", json::Config::read(t).map(json::Json::build))),
    ("kv", |t| boxed(t, "field_split", kv::Config::read(t).map(kv::Kv::build))),
    ("mutate", |t| boxed(t, "type", mutate::Config::read(t).map(mutate::Mutate::build))),
    ("prune", |t| boxed(t, "type", prune::Config::read(t).map(prune::Prune::build))),
    ("split", |t| boxed(t, "field", split::Config::read(t).map(split::Split::build))),
    ("syslog_pri", |t| boxed(t, "type", syslog_pri::Config::read(t).map(syslog_pri::SyslogPri::build))),
    ("translate", |t| boxed(t, "dictionary_path", translate::Config::read(t).map(translate::Translate::build))),
    ("truncate", |t| boxed(t, "type", truncate::Config::read(t).map(truncate::Truncate::build))),
    ("urldecode", |t| boxed(t, "field", urldecode::Config::read(t).map(urldecode::Urldecode::build))),
    ("useragent", |t| boxed(t, "regexes", useragent::Config::read(t).map(useragent::Useragent::build))),
    ("uuid", |t| boxed(t, "target", uuid::Config::read(t).map(uuid::Uuid::build))),
];

/// What cannot be built is shown at `key`.
fn boxed<F: Filter + 'static>(t: &Section<'_>, key: &str, built: Option<Result<F, String>>) -> Option<Box<dyn Filter>> {
    match built? {
        Ok(filter) => Some(Box::new(filter)),
        Err(message) => {
            t.fail_quoting(key, message, Help::default());
            None
        }
    }
}

/// A filter in its place in a pipeline.
pub struct Step {
    /// How errors and `check` call it: its number and type.
    pub label: String,
    pub when: Option<Condition>,
    pub filter: Box<dyn Filter>,
    pub common: Common,
}

/// Reads one `[[filter]]`.
pub fn read(t: &Section<'_>) -> Option<Step> {
    let kind = t.one_of("type", KINDS).required();
    let when = t.parsed("when", Condition::parse).optional();
    let common = Common::read(t);
    let Some(kind) = kind else {
        t.skip_rest();
        return None;
    };
    Some(Step { label: t.label().to_string(), when, filter: kind(t)?, common })
}

impl Step {
    /// Changes each live event of the batch that meets the condition. What is made of an event stands behind it
    /// afterwards: then says for each event which one it was before.
    pub fn apply(&self, batch: &mut Batch, clock: &Clock) -> Option<Vec<usize>> {
        batch.set_now(clock.now);
        for index in 0..batch.len() {
            let mut event = batch.event_mut(index);
            if !event.is_live() {
                continue;
            }
            match self.meets(&event.read()) {
                Ok(true) => self.change(&mut event, clock),
                Ok(false) => {}
                Err(fault) => {
                    tracing::debug!(%fault, offset = event.read().offset(), "a condition has no answer");
                    event.add_tag(CONDITION_FAILURE);
                }
            }
        }
        batch.arrange()
    }

    fn meets(&self, event: &EventRef<'_>) -> Result<bool, Fault> {
        self.when.as_ref().map_or(Ok(true), |when| when.holds(event))
    }

    fn change(&self, event: &mut EventMut<'_>, clock: &Clock) {
        let before = event.batch_len();
        let applied = self.filter.apply(event, clock);
        for made in before..event.batch_len() {
            self.common.apply(&mut event.other(made));
        }
        match applied {
            Applied::Matched => self.common.apply(event),
            Applied::Unmatched => {}
            Applied::Drop => event.end(Fate::Dropped),
        }
    }
}
