//! The `ISO8601` matcher: calendar, week and ordinal dates down to a lone year, times down to a lone hour with a
//! decimal fraction of their last part, an offset, or none for the given zone. With a blank instead of `T`, only
//! the whole form with one to three decimals is read.

use super::fields::{Field, Fields, NANOS};
use super::scan;
use super::zone::Zone;
use crate::time::Time;

/// Decimals that are read; a tenth is an error, as for Joda-Time.
const DECIMALS: usize = 9;

pub fn parse(text: &str, zone: &Zone) -> Option<Time> {
    let bytes = text.as_bytes();
    let mut fields = Fields::default();
    let offset = match extended(bytes, &mut fields) {
        Some(offset) => offset,
        None => {
            fields = Fields::default();
            blank(bytes, &mut fields)?
        }
    };
    offset.unwrap_or(*zone).resolve(fields.local()?)
}

/// Reads the form with `T`: the offset found, if any.
fn extended(text: &[u8], fields: &mut Fields) -> Option<Option<Zone>> {
    let mark = |at: usize| matches!(text.get(at), Some(b'T' | b't'));
    let at = if mark(0) {
        time(text, 1, fields)?
    } else {
        let at = date(text, fields)?;
        if at == text.len() {
            return Some(None);
        }
        mark(at).then_some(())?;
        time(text, at + 1, fields).unwrap_or(at + 1)
    };
    zone_at_end(text, at)
}

/// Nothing, or an offset and then nothing.
fn zone_at_end(text: &[u8], at: usize) -> Option<Option<Zone>> {
    if at == text.len() {
        return Some(None);
    }
    let (millis, end) = scan::offset(text, at)?;
    (end == text.len()).then_some(Some(Zone::Fixed(millis)))
}

fn date(text: &[u8], fields: &mut Fields) -> Option<usize> {
    let (year, at) = scan::number(text, 0, 9, true)?;
    let part = |at: usize, width: usize| match text.get(at) {
        Some(b'-') => scan::number(text, at + 1, width, false),
        _ => None,
    };
    if text.get(at) == Some(&b'-') && matches!(text.get(at + 1), Some(b'W' | b'w')) {
        let (week, mut end) = scan::number(text, at + 2, 2, false)?;
        fields.put(Field::Weekyear, year);
        fields.put(Field::Week, week);
        if let Some((day, after)) = part(end, 1) {
            fields.put(Field::DayOfWeek, day);
            end = after;
        }
        return Some(end);
    }
    fields.put(Field::Year, year);
    let Some((month, mut end)) = part(at, 2) else { return Some(at) };
    if scan::digit(text, end).is_some() {
        let (day, end) = part(at, 3)?;
        fields.put(Field::DayOfYear, day);
        return Some(end);
    }
    fields.put(Field::Month, month);
    if let Some((day, after)) = part(end, 2) {
        fields.put(Field::DayOfMonth, day);
        end = after;
    }
    Some(end)
}

fn time(text: &[u8], at: usize, fields: &mut Fields) -> Option<usize> {
    let part = |at: usize, mark: &[u8]| text.get(at).is_some_and(|b| mark.contains(b)).then_some(at + 1);
    let decimals = |at: usize| scan::decimals(text, part(at, b".,")?, DECIMALS);
    let (hour, at) = scan::number(text, at, 2, false)?;
    fields.put(Field::Hour, hour);
    let Some((minute, at)) = part(at, b":").and_then(|at| scan::number(text, at, 2, false)) else {
        let Some((part, end)) = decimals(at) else { return Some(at) };
        fields.put(Field::Minute, part * 60 / NANOS);
        below_minute(part * 60 % NANOS, fields);
        return Some(end);
    };
    fields.put(Field::Minute, minute);
    let Some((second, at)) = part(at, b":").and_then(|at| scan::number(text, at, 2, false)) else {
        let Some((part, end)) = decimals(at) else { return Some(at) };
        below_minute(part, fields);
        return Some(end);
    };
    fields.put(Field::Second, second);
    let Some((part, end)) = decimals(at) else { return Some(at) };
    fields.put(Field::Fraction, part);
    Some(end)
}

/// Billionths of a minute.
fn below_minute(part: i64, fields: &mut Fields) {
    fields.put(Field::Second, part * 60 / NANOS);
    fields.put(Field::Fraction, part * 60 % NANOS);
}

/// `yyyy-MM-dd HH:mm:ss.SSS` or with a comma, an offset or none.
fn blank(text: &[u8], fields: &mut Fields) -> Option<Option<Zone>> {
    let mut at = 0;
    for (field, width, marks) in [
        (Field::Year, 9, &b"-"[..]),
        (Field::Month, 2, b"-"),
        (Field::DayOfMonth, 2, b" "),
        (Field::Hour, 2, b":"),
        (Field::Minute, 2, b":"),
        (Field::Second, 2, b".,"),
    ] {
        let (value, end) = scan::number(text, at, width, field == Field::Year)?;
        text.get(end).filter(|b| marks.contains(b))?;
        fields.put(field, value);
        at = end + 1;
    }
    let (part, at) = scan::decimals(text, at, 3)?;
    fields.put(Field::Fraction, part);
    zone_at_end(text, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: Option<&str>) {
        assert_eq!(parse(text, &Zone::UTC).map(|time| time.iso()).as_deref(), want, "{text}");
    }

    #[test]
    fn forms() {
        check("2024-02-29T12:34:56.123456789Z", Some("2024-02-29T12:34:56.123456789Z"));
        check("2024-02-29t12:34:56z", Some("2024-02-29T12:34:56.000Z"));
        check("2024-02-29T12:34:56,5+02", Some("2024-02-29T10:34:56.500Z"));
        check("2024-02-29T12:34:56.1234567891Z", None);
        check("2024-02-29T12.5", Some("2024-02-29T12:30:00.000Z"));
        check("2024-02-29T12.0001", Some("2024-02-29T12:00:00.360Z"));
        check("2024-02-29T12:30.25Z", Some("2024-02-29T12:30:15.000Z"));
        check("2024-2-9T1:2:3Z", Some("2024-02-09T01:02:03.000Z"));
        check("2024-02-29T", Some("2024-02-29T00:00:00.000Z"));
        check("2024T+02:00", Some("2023-12-31T22:00:00.000Z"));
        check("2024-060", Some("2024-02-29T00:00:00.000Z"));
        check("2023-366", None);
        check("2020-W53-5", Some("2021-01-01T00:00:00.000Z"));
        check("2020-w53", Some("2020-12-28T00:00:00.000Z"));
        check("2021-W53", None);
        check("T12:34:56Z", Some("1970-01-01T12:34:56.000Z"));
        check("-0044-03-15T00:00:00Z", Some("-0044-03-15T00:00:00.000Z"));
        check("2001-11-06 20:45:45,12-0830", Some("2001-11-07T05:15:45.120Z"));
        for bad in ["", "T", "2024-", "2024-02-", "2024-0600", "2024-13", "2024-02-30", "20240229T120000Z"] {
            check(bad, None);
        }
        for bad in
            ["2024-02-29T12:34:", "2024-02-29 12:34:56", "2024-02-29 12:34:56.1234", "2024-02-29Z", "2024-W", "é"]
        {
            check(bad, None);
        }
        check("2024-02-29T12:34:56.", None);
    }
}
