//! Dates as people write them: patterns, zones and locales. Not the hot path's own timestamps, which are
//! [`crate::time`], and not the filter, which knows events.

pub mod epoch;
mod fields;
pub mod iso8601;
pub mod java;
pub mod joda;
pub mod locale;
mod scan;
pub mod zone;

use std::sync::Arc;

use crate::time::Time;
pub use fields::Local;
use joda::Pattern;
use locale::Locale;
use zone::Zone;

/// What a date is read from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    Text(&'a str),
    /// A JSON number as written.
    Number(&'a str),
}

/// One entry of a list of formats: a keyword or a pattern.
#[derive(Debug)]
pub enum Matcher {
    Iso8601,
    Unix,
    UnixMs,
    Tai64n,
    Pattern(Pattern),
}

impl Matcher {
    /// Compiles `ISO8601`, `UNIX`, `UNIX_MS`, `TAI64N` or a pattern.
    pub fn compile(format: &str, locale: &Arc<Locale>) -> Result<Matcher, String> {
        Ok(match format {
            "ISO8601" => Matcher::Iso8601,
            "UNIX" => Matcher::Unix,
            "UNIX_MS" => Matcher::UnixMs,
            "TAI64N" => Matcher::Tai64n,
            pattern => Matcher::Pattern(Pattern::compile(pattern, locale.clone())?),
        })
    }

    /// Reads the whole of `source`, in `zone` if it names none; `now` gives the year if it names none.
    pub fn parse(&self, source: Source<'_>, zone: &Zone, now: Time) -> Option<Time> {
        match (self, source) {
            (Matcher::Unix, source) => epoch::unix(source),
            (Matcher::UnixMs, source) => epoch::unix_ms(source),
            (Matcher::Iso8601, Source::Text(text)) => iso8601::parse(text, zone),
            (Matcher::Tai64n, Source::Text(text)) => epoch::tai64n(text),
            (Matcher::Pattern(pattern), Source::Text(text)) => pattern.parse(text, zone, now),
            (Matcher::Iso8601 | Matcher::Tai64n | Matcher::Pattern(_), Source::Number(_)) => None,
        }
    }

    /// Whether the result depends on the zone, so that a zone taken from the event must be known.
    pub fn needs_zone(&self) -> bool {
        matches!(self, Matcher::Iso8601 | Matcher::Pattern(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,30}", near in "[-+@0-9TtZzWw:., eE]{0,30}") {
            let zone = Zone::Named(chrono_tz::America::New_York);
            for format in ["ISO8601", "UNIX", "UNIX_MS", "TAI64N"] {
                let matcher = Matcher::compile(format, &Locale::english()).unwrap();
                for text in [&text, &near] {
                    matcher.parse(Source::Text(text), &zone, Time::EPOCH);
                    matcher.parse(Source::Number(text), &zone, Time::EPOCH);
                }
            }
        }

        #[test]
        fn iso_reads_what_time_writes(secs in -62_135_596_800i64..253_402_300_799, nanos in 0u32..1_000_000_000) {
            let time = Time::new(secs, nanos);
            prop_assert_eq!(iso8601::parse(&time.iso(), &Zone::UTC), Some(time));
            let unix = format!("{}.{:09}", secs.max(0), nanos);
            prop_assert_eq!(epoch::unix(Source::Number(&unix)), Some(Time::new(secs.max(0), nanos)).filter(|t| t.secs < 100_000_000_000));
        }
    }
}
