//! Times as counts: `UNIX` seconds, `UNIX_MS` milliseconds and `TAI64N` labels, read digit by digit, never as a
//! float.

use super::Source;
use crate::time::Time;

/// Seconds from here on are taken for milliseconds by mistake, so that `UNIX` before `UNIX_MS` tells them apart.
const SECONDS_END: u64 = 100_000_000_000;
/// TAI is ahead of UTC by this much at 1970; leap seconds since are left in, as everybody does with these labels.
const TAI_AHEAD: i64 = 10;

/// Seconds since 1970: text (decimals allowed, what follows the third is ignored unless a digit) or a number.
pub fn unix(source: Source<'_>) -> Option<Time> {
    let nanos = match source {
        Source::Number(text) => scaled(text, 9)?,
        Source::Text(text) => {
            let end = seconds_end(text)?;
            scaled(&text[..end], 9)?
        }
    };
    let time = from_nanos(nanos)?;
    (time.secs.unsigned_abs() < SECONDS_END).then_some(time)
}

/// Milliseconds since 1970: whole ones in text, any number.
pub fn unix_ms(source: Source<'_>) -> Option<Time> {
    let nanos = match source {
        Source::Number(text) => scaled(text, 6)?,
        Source::Text(text) => {
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            let whole = digits.bytes().all(|b| b.is_ascii_digit());
            whole.then(|| scaled(text, 6))??
        }
    };
    from_nanos(nanos)
}

/// An external TAI64N label, `@` before it or not: 16 hex digits of seconds from 2^62, 8 of nanoseconds.
pub fn tai64n(text: &str) -> Option<Time> {
    let label = text.strip_prefix('@').unwrap_or(text);
    let hex = |part: Option<&str>| {
        let part = part.filter(|part| part.bytes().all(|b| b.is_ascii_hexdigit()))?;
        i64::from_str_radix(part, 16).ok()
    };
    let (secs, nanos) = (hex(label.get(..16))?, hex(label.get(16..24))?);
    from_nanos(i128::from(secs - (1 << 62) - TAI_AHEAD) * 1_000_000_000 + i128::from(nanos))
}

/// Where the seconds in `text` end: everything, or past the decimals if there are three or more.
fn seconds_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let run = |from: usize| bytes.iter().skip(from).take_while(|b| b.is_ascii_digit()).count();
    let start = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let point = start + run(start);
    if point == start || point == bytes.len() {
        return (point > start).then_some(point);
    }
    let decimals = run(point + 1);
    let end = point + 1 + decimals;
    (bytes[point] == b'.' && decimals > 0 && (decimals >= 3 || end == bytes.len())).then_some(end)
}

/// The decimal number `text` times ten to the power of `shift`, cut towards zero.
fn scaled(text: &str, shift: i64) -> Option<i128> {
    let bytes = text.as_bytes();
    let negative = bytes.first() == Some(&b'-');
    let mut at = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let (mut value, mut power, mut digits, mut point) = (0i128, shift, 0, false);
    while let Some(b) = bytes.get(at) {
        match b {
            b'0'..=b'9' => {
                digits += 1;
                // 36 digits fit; the rest only move the point.
                if value < 10i128.pow(35) {
                    value = value * 10 + i128::from(b - b'0');
                    power -= i64::from(point);
                } else {
                    power += i64::from(!point);
                }
            }
            b'.' if !point => point = true,
            b'e' | b'E' if digits > 0 => {
                power = power.saturating_add(text[at + 1..].parse::<i64>().ok()?);
                at = bytes.len();
                continue;
            }
            _ => return None,
        }
        at += 1;
    }
    if digits == 0 {
        return None;
    }
    let factor = |power: i64| 10i128.checked_pow(u32::try_from(power).ok()?);
    let value = match power {
        _ if value == 0 => 0,
        0.. => value.checked_mul(factor(power)?)?,
        _ => factor(power.checked_neg()?).map_or(0, |by| value / by),
    };
    Some(if negative { -value } else { value })
}

fn from_nanos(nanos: i128) -> Option<Time> {
    let secs = i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?;
    // The years that a date has names for.
    let known = secs.unsigned_abs() < 9_000_000_000_000_000;
    known.then(|| Time::new(secs, nanos.rem_euclid(1_000_000_000) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(read: fn(Source<'_>) -> Option<Time>, source: Source<'_>, want: Option<&str>) {
        assert_eq!(read(source).map(|time| time.iso()).as_deref(), want, "{source:?}");
    }

    #[test]
    fn seconds() {
        let text = |text, want| check(unix, Source::Text(text), want);
        text("1478207457", Some("2016-11-03T21:10:57.000Z"));
        text("1478207457.4", Some("2016-11-03T21:10:57.400Z"));
        text("1478207457.456789", Some("2016-11-03T21:10:57.456789Z"));
        text("1478207457.4567891234", Some("2016-11-03T21:10:57.456789123Z"));
        text("1478207457.123abc", Some("2016-11-03T21:10:57.123Z"));
        text("1478207457.12a", None);
        text("-0.5", Some("1969-12-31T23:59:59.500Z"));
        text("-1.5", Some("1969-12-31T23:59:58.500Z"));
        text("2147483648", Some("2038-01-19T03:14:08.000Z"));
        text("1478207457456", None);
        text("-2208988800", Some("1900-01-01T00:00:00.000Z"));
        for bad in ["", "-", ".", ".5", "1.", "1e9", " 1", "1 ", "0x10", "12a", "1.é", "٣", "99999999999999999999999"]
        {
            text(bad, None);
        }
        let number = |text, want| check(unix, Source::Number(text), want);
        number("1478207457.456", Some("2016-11-03T21:10:57.456Z"));
        number("1350414944.123456", Some("2012-10-16T19:15:44.123456Z"));
        number("1.478207457E9", Some("2016-11-03T21:10:57.000Z"));
        number("14782074574560e-4", Some("2016-11-03T21:10:57.456Z"));
        number("0.1e-400", Some("1970-01-01T00:00:00.000Z"));
        number("1e400", None);
        number("-9223372036854775807.5", None);
        number("1e99999999999999999999", None);
        number("0e400", Some("1970-01-01T00:00:00.000Z"));
        number("1e-9223372036854775808", Some("1970-01-01T00:00:00.000Z"));
    }

    #[test]
    fn milliseconds() {
        let text = |text, want| check(unix_ms, Source::Text(text), want);
        text("1000000000123", Some("2001-09-09T01:46:40.123Z"));
        text("-1", Some("1969-12-31T23:59:59.999Z"));
        text("4102444800000", Some("2100-01-01T00:00:00.000Z"));
        for bad in ["", "+", "1.5", "1e3", "x", "1é", "99999999999999999999999999999999999999999999999999"] {
            text(bad, None);
        }
        check(unix_ms, Source::Number("1000000000123.9"), Some("2001-09-09T01:46:40.123900Z"));
    }

    #[test]
    fn labels() {
        let check = |text, want| assert_eq!(tai64n(text).map(|time| time.iso()).as_deref(), want, "{text}");
        check("@4000000050d506482dbdf024", Some("2012-12-22T01:00:46.767422500Z"));
        check("4000000050d506482dbdf024", Some("2012-12-22T01:00:46.767422500Z"));
        check("@400000000000000a00000000", Some("1970-01-01T00:00:00.000Z"));
        check("@3fffffffffffffff00000000", Some("1969-12-31T23:59:49.000Z"));
        for bad in
            ["", "@", "@4000", "@4000000050d506482dbdf02", "@4000000050d50648+dbdf024", "@400000005é506482dbdf0240"]
        {
            check(bad, None);
        }
        check("@ffffffffffffffffffffffff", None);
        check("@000000000000000000000000", None);
    }
}
