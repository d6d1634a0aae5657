//! A point in time: seconds since 1970 and nanoseconds, read from RFC 3339 and written as ISO 8601 in UTC.
//!
//! This is the hot path's own arithmetic (proleptic Gregorian, no zone, no leap second), because every event
//! passes it at least once. Patterns, zones and locales live in [`crate::date`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY: i64 = 86_400;

/// Seconds since 1970-01-01T00:00:00Z (negative before) and the nanoseconds that follow them, always forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    pub secs: i64,
    pub nanos: u32,
}

/// A date and a time of day in UTC. Years before 1 are astronomical: year 0 is 1 BC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
    pub nanos: u32,
}

/// Days since 1970-01-01 of a date that exists; the usual era arithmetic on 400-year cycles.
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let shifted = i64::from(if month > 2 { month - 3 } else { month + 9 });
    let day_of_year = (153 * shifted + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days_from_civil`]: year, month, day.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted + 2) / 5 + 1) as u32;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

pub fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Time {
    pub const EPOCH: Time = Time { secs: 0, nanos: 0 };

    pub fn new(secs: i64, nanos: u32) -> Time {
        debug_assert!(nanos < 1_000_000_000);
        Time { secs, nanos }
    }

    pub fn now() -> Time {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Time::new(since.as_secs() as i64, since.subsec_nanos()),
            Err(_) => Time::EPOCH,
        }
    }

    /// So long before this.
    pub fn ago(&self, age: Duration) -> Time {
        let secs = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        Time::new(self.secs.saturating_sub(secs), self.nanos)
    }

    /// Days since 1970-01-01 in UTC: what an index by day depends on.
    pub fn day(&self) -> i64 {
        self.secs.div_euclid(DAY)
    }

    /// Whole milliseconds since 1970, rounded down.
    pub fn millis(&self) -> i64 {
        self.secs.saturating_mul(1000).saturating_add(i64::from(self.nanos / 1_000_000))
    }

    pub fn from_millis(millis: i64) -> Time {
        Time::new(millis.div_euclid(1000), millis.rem_euclid(1000) as u32 * 1_000_000)
    }

    pub fn civil(&self) -> Civil {
        let (year, month, day) = civil_from_days(self.day());
        let of_day = self.secs.rem_euclid(DAY) as u32;
        Civil {
            year,
            month,
            day,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
            nanos: self.nanos,
        }
    }

    /// The time of a date and time of day in UTC, if such a date exists.
    pub fn from_civil(c: &Civil) -> Option<Time> {
        let dated = (1..=12).contains(&c.month) && c.day >= 1 && c.day <= days_in_month(c.year, c.month);
        if !dated || c.hour > 23 || c.minute > 59 || c.second > 59 || c.nanos >= 1_000_000_000 {
            return None;
        }
        let of_day = i64::from(c.hour * 3600 + c.minute * 60 + c.second);
        Some(Time::new(days_from_civil(c.year, c.month, c.day) * DAY + of_day, c.nanos))
    }

    /// Reads RFC 3339 (`2026-03-01T10:00:00.123+02:00`): date, `T` or `t`, time with seconds, any number of
    /// decimals (those beyond nine are cut), `Z`, `z` or an offset with a colon. Nothing before or after.
    pub fn rfc3339(text: &[u8]) -> Option<Time> {
        let (begin, _) = text.split_first_chunk::<19>()?;
        let [y, yy, c, cc, b'-', m, mm, b'-', d, dd, b'T' | b't', h, hh, b':', n, nn, b':', s, ss] = begin else {
            return None;
        };
        let (year, month, day) = (two(y, yy)? * 100 + two(c, cc)?, two(m, mm)?, two(d, dd)?);
        let (hour, minute, second) = (two(h, hh)?, two(n, nn)?, two(s, ss)?);
        let (nanos, at) = fraction(text, 19)?;
        let civil = Civil { year: i64::from(year), month, day, hour, minute, second, nanos };
        let utc = Time::from_civil(&civil)?;
        Some(Time::new(utc.secs - offset(&text[at..])?, nanos))
    }

    /// ISO 8601 in UTC with 3, 6 or 9 decimals, the fewest that hold the value.
    pub fn write_iso(&self, out: &mut Vec<u8>) {
        let c = self.civil();
        let year = match c.year {
            0..=9999 => c.year as u32,
            _ => {
                out.push(if c.year < 0 { b'-' } else { b'+' });
                digits(out, c.year.unsigned_abs() / 10_000, 0);
                (c.year.unsigned_abs() % 10_000) as u32
            }
        };
        let mut text = *b"0000-00-00T00:00:00.";
        let pairs = [year / 100, year % 100, c.month, c.day, c.hour, c.minute, c.second];
        for (at, value) in [0, 2, 5, 8, 11, 14, 17].into_iter().zip(pairs) {
            text[at..at + 2].copy_from_slice(&PAIRS[value as usize % PAIRS.len()]);
        }
        out.extend_from_slice(&text);
        match c.nanos {
            0 => out.extend_from_slice(b"000"),
            n if n % 1_000_000 == 0 => digits(out, u64::from(n / 1_000_000), 3),
            n if n % 1_000 == 0 => digits(out, u64::from(n / 1_000), 6),
            n => digits(out, u64::from(n), 9),
        }
        out.push(b'Z');
    }

    pub fn iso(&self) -> String {
        let mut out = Vec::with_capacity(24);
        self.write_iso(&mut out);
        out.iter().map(|b| char::from(*b)).collect()
    }
}

/// The numbers below a hundred, of two digits each.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut n = 0;
    while n < 100 {
        pairs[n] = [b'0' + n as u8 / 10, b'0' + n as u8 % 10];
        n += 1;
    }
    pairs
};

/// Decimal digits of `value`, padded with zeros to `width`.
pub fn digits(out: &mut Vec<u8>, value: u64, width: usize) {
    let mut text = [0u8; 20];
    let mut at = text.len();
    let mut rest = value;
    while rest > 0 || text.len() - at < width {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&text[at..]);
}

fn two(tens: &u8, ones: &u8) -> Option<u32> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens < 10 && ones < 10).then(|| u32::from(tens) * 10 + u32::from(ones))
}

/// The decimals that may follow at `at`: nanoseconds and where they end.
fn fraction(text: &[u8], at: usize) -> Option<(u32, usize)> {
    if text.get(at) != Some(&b'.') {
        return Some((0, at));
    }
    let (mut nanos, mut scale, mut end) = (0u32, 100_000_000u32, at + 1);
    while let Some(digit) = text.get(end).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
        nanos += u32::from(digit) * scale;
        scale /= 10;
        end += 1;
    }
    (end > at + 1).then_some((nanos, end))
}

/// The offset that ends the text, in seconds east of UTC.
fn offset(text: &[u8]) -> Option<i64> {
    match text {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h, hh, b':', m, mm] => {
            let (hours, minutes) = (two(h, hh)?, two(m, mm)?);
            let secs = i64::from(hours * 3600 + minutes * 60);
            (hours < 24 && minutes < 60).then_some(if *sign == b'-' { -secs } else { secs })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: Option<&str>) {
        assert_eq!(Time::rfc3339(text.as_bytes()).map(|t| t.iso()).as_deref(), want, "{text}");
    }

    #[test]
    fn rfc3339() {
        check("2026-03-01T10:00:00Z", Some("2026-03-01T10:00:00.000Z"));
        check("2026-03-01t10:00:00.12z", Some("2026-03-01T10:00:00.120Z"));
        check("2026-02-01T01:30:00.000+02:00", Some("2026-01-31T23:30:00.000Z"));
        check("2026-01-31T20:30:00-05:00", Some("2026-02-01T01:30:00.000Z"));
        check("2026-01-31T23:59:59.999999999Z", Some("2026-01-31T23:59:59.999999999Z"));
        check("2026-01-31T23:59:59.1234567891Z", Some("2026-01-31T23:59:59.123456789Z"));
        check("1969-12-31T23:59:59.5Z", Some("1969-12-31T23:59:59.500Z"));
        check("2024-02-29T00:00:00Z", Some("2024-02-29T00:00:00.000Z"));
        for bad in [
            "2023-02-29T00:00:00Z",
            "2026-03-01 10:00:00Z",
            "2026-03-01T10:00:00",
            "2026-03-01T10:00:00.Z",
            "2026-03-01T24:00:00Z",
            "2026-03-01T10:00:60Z",
            "2026-03-01T10:00:00+2:00",
            "2026-03-01T10:00:00+24:00",
            "2026-03-01T10:00:00Z ",
            "",
            "2026-03-01T10:00:0é",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn days_there_and_back() {
        for days in (-1_000_000..4_000_000).step_by(37) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
            assert!(day <= days_in_month(year, month));
        }
    }
}
