//! What becomes of an event: its fate is counted, letters are written, positions follow.

use std::fmt;

/// Why an event is a dead letter. The names are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    NoTimestamp,
    TooOld,
    TooNew,
    TimeOutOfRange,
    BadJson,
    IdMissing,
    IdTooLong,
    BadIndexName,
    TooLarge,
    Rejected,
}

impl Reason {
    pub fn as_str(&self) -> &'static str {
        match self {
            Reason::NoTimestamp => "no-timestamp",
            Reason::TooOld => "too-old",
            Reason::TooNew => "too-new",
            Reason::TimeOutOfRange => "time-out-of-range",
            Reason::BadJson => "bad-json",
            Reason::IdMissing => "id-missing",
            Reason::IdTooLong => "id-too-long",
            Reason::BadIndexName => "bad-index-name",
            Reason::TooLarge => "too-large",
            Reason::Rejected => "rejected",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
