//! Filters change events, one at a time, in the order of the pipeline file.

pub mod fingerprint;

use crate::batch::EventMut;
use crate::time::Time;

/// The present, wherever it matters; fixed by `--now`.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub now: Time,
}

/// What a filter did with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It did its work: `add_field`, `add_tag`, `remove_field` and `remove_tag` follow.
    Matched,
    Unmatched,
    Drop,
}

/// One filter. Called by the workers for every live event that meets its `when`, in the order read; it keeps no
/// state between events and cannot fail: what goes wrong becomes a tag on the event.
pub trait Filter: Send + Sync {
    fn apply(&self, event: &mut EventMut<'_>, clock: &Clock) -> Applied;
}

pub struct Step;
impl Step {
    pub fn apply(&self, _: &mut crate::batch::Batch, _: &Clock) {}
    pub fn describe(&self) -> String {
        String::new()
    }
}
pub fn read(t: &crate::config::Section<'_>) -> Option<Step> {
    t.skip_rest();
    None
}
