//! The pieces that every date text is read from: numbers, decimals and offsets. Positions are byte offsets.

/// A run of at most `max` digits, with a sign before it if `signed`: the value and where it ends.
pub fn number(text: &[u8], at: usize, max: usize, signed: bool) -> Option<(i64, usize)> {
    let sign = match text.get(at) {
        Some(b'-') if signed && max > 1 => Some(-1),
        Some(b'+') if signed && max > 1 => Some(1),
        _ => None,
    };
    let start = at + usize::from(sign.is_some());
    let (mut value, mut end) = (0i64, start);
    while end - start < max
        && let Some(digit) = digit(text, end)
    {
        // Ten digits at the most are worth reading: the value must fit 32 bits.
        value = value.saturating_mul(10).saturating_add(i64::from(digit));
        end += 1;
    }
    let value = value * sign.unwrap_or(1);
    (end > start && i32::try_from(value).is_ok()).then_some((value, end))
}

/// At most `max` decimals: billionths (what lies beyond them is cut) and where they end.
pub fn decimals(text: &[u8], at: usize, max: usize) -> Option<(i64, usize)> {
    let (mut value, mut scale, mut end) = (0i64, 100_000_000i64, at);
    while end - at < max
        && let Some(digit) = digit(text, end)
    {
        value += i64::from(digit) * scale;
        scale /= 10;
        end += 1;
    }
    (end > at).then_some((value, end))
}

/// `Z`, `+02`, `+0200`, `+02:00`, each also with seconds and thousandths: milliseconds east of UTC and the end.
pub fn offset(text: &[u8], at: usize) -> Option<(i32, usize)> {
    if matches!(text.get(at), Some(b'Z' | b'z')) {
        return Some((0, at + 1));
    }
    signed_offset(text, at)
}

/// As [`offset`], without `Z`.
pub fn signed_offset(text: &[u8], at: usize) -> Option<(i32, usize)> {
    let sign = match text.get(at)? {
        b'-' => -1,
        b'+' => 1,
        _ => return None,
    };
    let mut at = at + 1;
    let mut millis = two(text, at, 23)? * 3_600_000;
    at += 2;
    let colon = text.get(at) == Some(&b':');
    for unit in [60_000, 1_000] {
        let start = at + usize::from(colon);
        let more = if colon { text.get(at) == Some(&b':') } else { digit(text, at).is_some() };
        if !more {
            return Some((sign * millis, at));
        }
        millis += two(text, start, 59)? * unit;
        at = start + 2;
    }
    let start = at + usize::from(colon);
    let more = if colon { matches!(text.get(at), Some(b'.' | b',')) } else { digit(text, at).is_some() };
    if !more {
        return Some((sign * millis, at));
    }
    let (nanos, end) = decimals(text, start, 3)?;
    Some((sign * (millis + (nanos / 1_000_000) as i32), end))
}

fn two(text: &[u8], at: usize, max: i32) -> Option<i32> {
    let value = i32::from(digit(text, at)?) * 10 + i32::from(digit(text, at + 1)?);
    (value <= max).then_some(value)
}

pub fn digit(text: &[u8], at: usize) -> Option<u8> {
    text.get(at).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10)
}

/// Where `want` (already in lower case) ends if `text` has it at `at`, in any case.
pub fn folded(text: &str, at: usize, want: &str) -> Option<usize> {
    let have = text.as_bytes().get(at..)?;
    let mut same = 0;
    for (a, b) in have.iter().zip(want.as_bytes()) {
        if !a.is_ascii() || !b.is_ascii() {
            return folded_wide(text, at, want);
        }
        if a.to_ascii_lowercase() != *b {
            return None;
        }
        same += 1;
    }
    (same == want.len()).then_some(at + same)
}

fn folded_wide(text: &str, at: usize, want: &str) -> Option<usize> {
    let mut wanted = want.chars();
    let mut rest = text.get(at..)?.char_indices();
    while !wanted.as_str().is_empty() {
        let c = match rest.next()?.1 {
            // Newer runtimes write these before `PM` and inside `p. m.`.
            '\u{a0}' | '\u{202f}' => ' ',
            c => c,
        };
        for lower in c.to_lowercase() {
            if wanted.next() != Some(lower) {
                return None;
            }
        }
    }
    Some(text.len() - rest.as_str().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let check = |text: &str, max, signed, want| assert_eq!(number(text.as_bytes(), 0, max, signed), want, "{text}");
        check("12", 2, false, Some((12, 2)));
        check("123", 2, false, Some((12, 2)));
        check("1:", 2, false, Some((1, 1)));
        check("-0044", 4, true, Some((-44, 5)));
        check("-44", 4, false, None);
        check("-", 4, true, None);
        check("", 4, true, None);
        check("2147483647", 12, false, Some((2_147_483_647, 10)));
        check("2147483648", 12, false, None);
        check("99999999999999999999999", 30, false, None);
    }

    #[test]
    fn offsets() {
        let check = |text: &str, want| assert_eq!(offset(text.as_bytes(), 0), want, "{text}");
        check("Z", Some((0, 1)));
        check("+02", Some((7_200_000, 3)));
        check("-0530", Some((-19_800_000, 5)));
        check("+05:30", Some((19_800_000, 6)));
        check("+05:30:15", Some((19_815_000, 9)));
        check("+05:30:15.5", Some((19_815_500, 11)));
        check("+053015500", Some((19_815_500, 10)));
        check("+0", None);
        check("+02:", None);
        check("+02:3", None);
        check("+023", None);
        check("+24", None);
        check("+02:60", None);
        check("+02 ", Some((7_200_000, 3)));
        check("", None);
    }

    #[test]
    fn letters_of_any_case() {
        let check = |text, want, end| assert_eq!(folded(text, 0, want), end, "{text}");
        check("JANVIER", "janvier", Some(7));
        check("Février", "février", Some(8));
        check("FÉVRIER 2", "février", Some(8));
        check("fe", "février", None);
        check("févr", "février", None);
        check("Декабря", "декабря", Some(14));
        check("p.\u{a0}m", "p. m", Some(5));
        check("é", "e", None);
        check("", "", Some(0));
    }
}
