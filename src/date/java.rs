//! Date patterns of `java.time`, as in `%{{yyyy.MM.dd}}`: written only, in UTC and English, with ISO weeks. The
//! weeks of `Y` and `w` depend on nothing but the time, unlike Java's, which follow the host's locale.

use super::fields::{day_of_year, iso_week, padded, weekday, year_of_era};
use super::joda::{DAYS, MONTHS};
use crate::time::{Civil, Time};

const LETTERS: &str = "G u y Y Q q M L w W D d F E e c a h H k K m s S A n N g V v z O X x Z p";
/// Days from the modified Julian epoch to 1970-01-01.
const MODIFIED_JULIAN: i64 = 40_587;

#[derive(Debug)]
enum Part {
    Literal(Box<str>),
    /// A letter, how often, and the width to pad to with blanks on the left.
    Letter {
        letter: char,
        count: usize,
        pad: usize,
    },
}

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern(Vec<Part>);

impl Pattern {
    pub fn compile(pattern: &str) -> Result<Pattern, String> {
        let mut parts = Vec::new();
        let mut chars = pattern.chars().enumerate().peekable();
        let (mut pad, mut optional) = (0, 0usize);
        while let Some((i, c)) = chars.next() {
            let wrong = |what: &str| format!("{what} at position {} of date pattern `{pattern}`", i + 1);
            if c.is_ascii_alphabetic() {
                let mut count = 1;
                while chars.next_if(|(_, next)| *next == c).is_some() {
                    count += 1;
                }
                if c == 'p' {
                    pad = count;
                    let letter = chars.peek().is_some_and(|(_, next)| next.is_ascii_alphabetic() && *next != 'p');
                    letter.then_some(()).ok_or_else(|| wrong("`p` pads nothing"))?;
                    continue;
                }
                let (least, most) = widths(c)
                    .ok_or_else(|| wrong(&format!("unknown letter `{c}`")) + &format!(" (allowed: {LETTERS})"))?;
                if count < least || count > most || (c == 'c' && count == 2) || (c == 'O' && !matches!(count, 1 | 4)) {
                    return Err(wrong(&format!("`{c}` cannot be repeated {count} times")));
                }
                parts.push(Part::Letter { letter: c, count, pad });
                pad = 0;
                continue;
            }
            match c {
                '\'' => {
                    let (mut text, mut closed) = (String::new(), false);
                    while let Some((_, c)) = chars.next() {
                        if c != '\'' {
                            text.push(c);
                        } else if chars.next_if(|(_, next)| *next == '\'').is_some() {
                            text.push('\'');
                        } else {
                            closed = true;
                            break;
                        }
                    }
                    closed.then_some(()).ok_or_else(|| wrong("a quote without an end"))?;
                    // Two quotes alone are one quote.
                    parts.push(Part::Literal(if text.is_empty() { "'".into() } else { text.into() }));
                }
                // What is optional when reading is always written.
                '[' => optional += 1,
                ']' => optional = optional.checked_sub(1).ok_or_else(|| wrong("`]` without `[`"))?,
                '{' | '}' | '#' => return Err(wrong(&format!("reserved character `{c}`"))),
                c => parts.push(Part::Literal(c.to_string().into())),
            }
        }
        if parts.is_empty() {
            return Err("an empty date pattern".into());
        }
        Ok(Pattern(parts))
    }

    /// Writes `time` in UTC.
    pub fn format(&self, time: Time, out: &mut Vec<u8>) {
        let civil = time.civil();
        for part in &self.0 {
            match part {
                Part::Literal(text) => out.extend_from_slice(text.as_bytes()),
                Part::Letter { letter, count, pad: 0 } => write(time, &civil, *letter, *count, out),
                Part::Letter { letter, count, pad } => {
                    let mut text = Vec::new();
                    write(time, &civil, *letter, *count, &mut text);
                    out.resize(out.len() + pad.saturating_sub(text.len()), b' ');
                    out.extend_from_slice(&text);
                }
            }
        }
    }
}

/// How often a letter may stand: at least, at most.
fn widths(letter: char) -> Option<(usize, usize)> {
    Some(match letter {
        'u' | 'y' | 'Y' | 'A' | 'n' | 'N' | 'g' => (1, 19),
        'G' | 'Q' | 'q' | 'M' | 'L' | 'E' | 'e' | 'c' | 'X' | 'x' | 'Z' => (1, 5),
        'z' | 'O' => (1, 4),
        'v' => (1, 1),
        'V' => (2, 2),
        'S' => (1, 9),
        'D' => (1, 3),
        'd' | 'h' | 'H' | 'k' | 'K' | 'm' | 's' | 'w' => (1, 2),
        'W' | 'F' | 'a' => (1, 1),
        _ => return None,
    })
}

fn write(time: Time, c: &Civil, letter: char, count: usize, out: &mut Vec<u8>) {
    let days = time.day();
    let number = |out: &mut Vec<u8>, value: u32| padded(out, i64::from(value), count);
    let text = |out: &mut Vec<u8>, text: &str| out.extend_from_slice(text.as_bytes());
    match letter {
        'u' => year(out, c.year, count),
        'y' => year(out, year_of_era(c.year), count),
        'Y' => year(out, iso_week(days).0, count),
        'G' => text(out, era(c.year, count)),
        'Q' | 'q' => quarter(out, (c.month - 1) / 3, count),
        'M' | 'L' if count > 2 => name(out, &MONTHS, i64::from(c.month), count),
        'M' | 'L' => number(out, c.month),
        'E' => name(out, &DAYS, weekday(days), count.max(3)),
        'e' | 'c' if count > 2 => name(out, &DAYS, weekday(days), count),
        'e' | 'c' => padded(out, weekday(days), count),
        'w' => padded(out, iso_week(days).1, count),
        'W' => padded(out, week_of_month(c.day, weekday(days)), count),
        'F' => number(out, (c.day - 1) % 7 + 1),
        'D' => padded(out, day_of_year(days), count),
        'd' => number(out, c.day),
        'g' => padded(out, days + MODIFIED_JULIAN, count),
        'a' => text(out, if c.hour < 12 { "AM" } else { "PM" }),
        'h' => number(out, (c.hour + 11) % 12 + 1),
        'H' => number(out, c.hour),
        'k' => number(out, (c.hour + 23) % 24 + 1),
        'K' => number(out, c.hour % 12),
        'm' => number(out, c.minute),
        's' => number(out, c.second),
        'S' => padded(out, i64::from(c.nanos / 10u32.pow(9 - count.min(9) as u32)), count),
        'A' => padded(out, of_day(c) * 1000 + i64::from(c.nanos / 1_000_000), count),
        'n' => number(out, c.nanos),
        'N' => padded(out, of_day(c) * 1_000_000_000 + i64::from(c.nanos), count),
        'O' => text(out, "GMT"),
        'Z' => text(out, ["+0000", "+0000", "+0000", "GMT", "Z"][count.clamp(1, 5) - 1]),
        'x' => text(out, ["+00", "+0000", "+00:00", "+0000", "+00:00"][count.clamp(1, 5) - 1]),
        // X, V, v, z: the zone is UTC, whose name and offset is Z.
        _ => text(out, "Z"),
    }
}

fn of_day(c: &Civil) -> i64 {
    i64::from(c.hour * 3600 + c.minute * 60 + c.second)
}

/// Two letters are the last two digits; from four on, a year that needs more gets a sign.
fn year(out: &mut Vec<u8>, year: i64, count: usize) {
    if count == 2 {
        return padded(out, year.abs() % 100, 2);
    }
    if count >= 4 && year >= 0 && year.checked_ilog10().is_some_and(|log| log as usize >= count) {
        out.push(b'+');
    }
    padded(out, year, count);
}

fn era(year: i64, count: usize) -> &'static str {
    match (count, year > 0) {
        (4, true) => "Anno Domini",
        (4, false) => "Before Christ",
        (5, true) => "A",
        (5, false) => "B",
        (_, true) => "AD",
        (_, false) => "BC",
    }
}

fn quarter(out: &mut Vec<u8>, index: u32, count: usize) {
    match count {
        3 => out.extend_from_slice(&[b'Q', b'1' + index as u8]),
        4 => {
            out.extend_from_slice(["1st", "2nd", "3rd", "4th"][index.min(3) as usize].as_bytes());
            out.extend_from_slice(b" quarter");
        }
        5 => padded(out, i64::from(index) + 1, 1),
        _ => padded(out, i64::from(index) + 1, count),
    }
}

/// Three letters of a name, all (4) or the first (5).
fn name(out: &mut Vec<u8>, names: &[&str], value: i64, count: usize) {
    let name = usize::try_from(value - 1).ok().and_then(|at| names.get(at)).copied().unwrap_or("");
    let len = match count {
        3 => 3,
        5 => 1,
        _ => name.len(),
    };
    out.extend_from_slice(&name.as_bytes()[..len.min(name.len())]);
}

/// Week 1 is the first with four days of the month.
fn week_of_month(day: u32, weekday: i64) -> i64 {
    let start = (i64::from(day) - weekday).rem_euclid(7);
    let offset = if start + 1 > 4 { 7 - start } else { -start };
    (7 + offset + i64::from(day) - 1) / 7
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pattern: &str, at: &str, want: &str) {
        let mut out = Vec::new();
        let time = super::super::iso8601::parse(at, &super::super::zone::Zone::UTC).unwrap();
        Pattern::compile(pattern).unwrap().format(time, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), want, "{pattern}");
    }

    #[test]
    fn writes() {
        let at = "2024-06-15T00:05:00.123456789Z";
        check("yyyy.MM.dd", at, "2024.06.15");
        check("YYYY-'W'ww", "2015-10-01T00:00:00Z", "2015-W40");
        check("YYYY-'W'ww", "2023-01-01T12:00:00Z", "2022-W52");
        check("YYYY-DDD", "2015-10-01T00:00:00Z", "2015-274");
        check("VV z zzzz XXX xxx Z ZZZZ ZZZZZ O", at, "Z Z Z Z +00:00 +0000 GMT Z GMT");
        check("W w F g A N n", at, "2 24 1 60476 300123 300123456789 123456789");
        check("SSS SSSSSSSSS a h K k ppH", at, "123 123456789 AM 12 0 24  0");
        check("EEE EEEE EEEEE MMM MMMM MMMMM Q QQQ QQQQ", at, "Sat Saturday S Jun June J 2 Q2 2nd quarter");
        check("u uu uuuuu y G GGGG [yyyy] ''", "-0044-03-15T00:00:00Z", "-44 44 -00044 45 BC Before Christ 0045 '");
    }

    #[test]
    fn refuses() {
        let check = |pattern, want: &str| {
            let error = Pattern::compile(pattern).unwrap_err();
            assert!(error.starts_with(want), "{error}");
        };
        check("yyyy b", "unknown letter `b` at position 6 of date pattern `yyyy b` (allowed: G u");
        check("ddd", "`d` cannot be repeated 3 times at position 1");
        check("yyyy'", "a quote without an end at position 5");
        check("a}", "reserved character `}` at position 2");
        check("", "an empty date pattern");
        check("p", "`p` pads nothing at position 1");
        check("y]", "`]` without `[` at position 2");
    }

    proptest! {
        #[test]
        fn never_panics(pattern in "\\PC{0,12}|[GuyYQqMLwWDdFEecahHkKmsSAnNgVvzOXxZp'\\[\\]. é-]{1,12}", secs in -9_000_000_000_000_000i64..9_000_000_000_000_000) {
            if let Ok(compiled) = Pattern::compile(&pattern) {
                let mut out = Vec::new();
                compiled.format(Time::new(secs, 1), &mut out);
                prop_assert!(String::from_utf8(out).is_ok());
            }
        }
    }
}
