//! The event's own time: found in `@timestamp` after the filters, held against the accepted window, and written
//! as RFC 3339 where it came otherwise (the engines would read a number's seconds as milliseconds).

use crate::ack::Reason;
use crate::batch::{Batch, Death, EventMut, Fate, New};
use crate::field::FieldRef;
use crate::filter::Clock;
use crate::time::Time;

/// What to do about an event without a usable time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    DeadLetter,
    /// The time of reading: stored again on a replay, so never the default.
    Now,
}

#[derive(Clone, Debug)]
pub struct Stamp {
    pub missing: Missing,
    /// How far back an event's time may lie, in seconds; none: any distance.
    pub past_secs: Option<i64>,
    pub future_secs: Option<i64>,
}

impl Stamp {
    /// Gives each live event of the batch its time or its fate.
    pub fn apply(&self, batch: &mut Batch, clock: &Clock) {
        let (field, now) = (FieldRef::top("@timestamp"), clock.now.iso());
        for index in 0..batch.len() {
            let mut event = batch.event_mut(index);
            if event.is_live() {
                self.stamp(&mut event, &field, clock, &now);
            }
        }
    }

    fn stamp(&self, event: &mut EventMut<'_>, field: &FieldRef, clock: &Clock, now: &str) {
        let Some((time, exact)) = event.read().found_time() else {
            return self.without(event, field, clock, now);
        };
        let (age, ahead) = (clock.now.secs - time.secs, time.secs - clock.now.secs);
        if self.past_secs.is_some_and(|past| age > past || age == past && clock.now.nanos > time.nanos) {
            return event.end(dead(Reason::TooOld, format!("{} is too far back", time.iso())));
        }
        if self.future_secs.is_some_and(|future| ahead > future || ahead == future && time.nanos > clock.now.nanos) {
            return event.end(dead(Reason::TooNew, format!("{} is too far ahead", time.iso())));
        }
        if !exact {
            event.set_iso(field, time);
        }
        event.set_time(time);
    }

    fn without(&self, event: &mut EventMut<'_>, field: &FieldRef, clock: &Clock, now: &str) {
        match self.missing {
            Missing::Now => {
                event.set(field, New::Text(now));
                event.set_time(clock.now);
            }
            Missing::DeadLetter => {
                let detail = match event.get(field) {
                    None => "the event has no @timestamp".to_string(),
                    Some(view) => {
                        let mut text = Vec::new();
                        view.write_json(&mut text);
                        format!("@timestamp is not a time: {}", String::from_utf8_lossy(&text))
                    }
                };
                event.end(dead(Reason::NoTimestamp, detail));
            }
        }
    }
}

pub fn dead(reason: Reason, detail: String) -> Fate {
    Fate::Dead(Box::new(Death { reason, detail }))
}

/// Text as a time: RFC 3339, or one of the shorter forms that Logstash takes: a date alone, no seconds, an offset
/// without colon or without minutes, any year. Without offset it is UTC, so that every machine reads it the same.
pub fn from_text(text: &[u8]) -> Option<Time> {
    Time::rfc3339(text).or_else(|| {
        let unsigned = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
        let digits = unsigned.iter().take_while(|b| b.is_ascii_digit()).count();
        let date = unsigned.get(digits..digits + 6)?;
        let rest = &unsigned[digits + 6..];
        let shaped = digits >= 4 && date[0] == b'-' && date[3] == b'-' && !text.contains(&b',');
        let timed = matches!(rest, [b'T', _, _, b':', ..]) || rest.is_empty();
        let text = std::str::from_utf8(text).ok().filter(|_| shaped && timed)?;
        crate::date::iso8601::parse(text, &crate::date::zone::Zone::UTC)
    })
}

/// A number as a time, by its size: below 1e11 seconds, below 1e14 milliseconds, below 1e17 microseconds, else
/// nanoseconds. Digit by digit, so nothing is rounded; what is finer than a nanosecond is cut.
pub fn from_number(text: &str) -> Option<Time> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits: i128 = 0;
    for byte in whole.bytes().chain(decimals.bytes()) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 || digits > i128::MAX / 100 {
            return None;
        }
        digits = digits * 10 + i128::from(digit);
    }
    let exponent = exponent.checked_sub(i32::try_from(decimals.len()).ok()?)?;
    // the value in nanoseconds were it seconds, and its whole part to tell its unit
    let units = scale(digits, exponent)?;
    let shift = match units {
        n if n < 100_000_000_000 => 9,
        n if n < 100_000_000_000_000 => 6,
        n if n < 100_000_000_000_000_000 => 3,
        _ => 0,
    };
    let nanos = scale(digits, exponent.checked_add(shift)?)?;
    let nanos = if negative { -nanos } else { nanos };
    let secs = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    Some(Time::new(secs, nanos.rem_euclid(1_000_000_000) as u32))
}

/// `digits` times ten to the power of `exponent`, cut to a whole number.
fn scale(digits: i128, exponent: i32) -> Option<i128> {
    let power = |by: u32| 10i128.checked_pow(by);
    if exponent >= 0 {
        if digits == 0 { Some(0) } else { digits.checked_mul(power(exponent.unsigned_abs())?) }
    } else {
        Some(power(exponent.unsigned_abs()).map_or(0, |by| digits / by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (text, want) in [
            ("2014-09-23", Some("2014-09-23T00:00:00.000Z")),
            ("2014-09-23T12:34", Some("2014-09-23T12:34:00.000Z")),
            ("2014-09-23T12:34:56.789012345", Some("2014-09-23T12:34:56.789012345Z")),
            ("2014-09-23T12:34:56-0800", Some("2014-09-23T20:34:56.000Z")),
            ("2014-09-23T12:34:56+01", Some("2014-09-23T11:34:56.000Z")),
            ("-0044-03-15T00:00:00Z", Some("-0044-03-15T00:00:00.000Z")),
            ("2014-09-23 12:34:56", None),
            ("2014-09-23T12:34:56,789Z", None),
            ("2014-09-23T12", None),
            ("2014-09", None),
            ("2014-266", None),
            ("T12:34", None),
            (" 2014-09-23", None),
            ("", None),
        ] {
            assert_eq!(from_text(text.as_bytes()).map(|t| t.iso()).as_deref(), want, "{text}");
        }
    }

    fn check(number: &str, want: &str) {
        assert_eq!(from_number(number).map(|t| t.iso()).as_deref(), Some(want), "{number}");
    }

    #[test]
    fn numbers() {
        check("1769904000", "2026-02-01T00:00:00.000Z");
        check("1769903999999", "2026-01-31T23:59:59.999Z");
        check("1769903999999999", "2026-01-31T23:59:59.999999Z");
        check("1769903999999999999", "2026-01-31T23:59:59.999999999Z");
        check("1769903999.5", "2026-01-31T23:59:59.500Z");
        check("1769903999.123456789", "2026-01-31T23:59:59.123456789Z");
        check("1769903999123.456", "2026-01-31T23:59:59.123456Z");
        check("1.769904e9", "2026-02-01T00:00:00.000Z");
        check("0", "1970-01-01T00:00:00.000Z");
        check("0e99999", "1970-01-01T00:00:00.000Z");
        check("-1", "1969-12-31T23:59:59.000Z");
        check("-0.5", "1969-12-31T23:59:59.500Z");
        check("99999999999", "5138-11-16T09:46:39.000Z");
        check("100000000000", "1973-03-03T09:46:40.000Z");
        for bad in ["1e400", "1e99999999999", "9".repeat(60).as_str()] {
            assert_eq!(from_number(bad), None, "{bad}");
        }
    }
}
