//! Dates: any pattern and any text are read or refused, and what a full pattern writes it reads again. The first
//! line is the text, the second a locale and a zone, the rest the pattern.

use onceline::date::locale::Locale;
use onceline::date::zone::Zone;
use onceline::date::{Matcher, Source, iso8601, java, joda};
use onceline::time::Time;

use super::first_line;

pub fn check(bytes: &[u8]) {
    let (text, rest) = first_line(bytes);
    let (place, pattern) = first_line(rest);
    let [text, place, pattern] = [text, place, pattern].map(String::from_utf8_lossy);
    let (locale, zone) = place.split_once(' ').unwrap_or((&place, ""));
    let locale = Locale::parse(locale).unwrap_or_else(|_| Locale::english());
    let zone = Zone::lookup(zone).unwrap_or(Zone::UTC);
    let now = Time::new(1_772_000_000, 0);
    let some = time_of(text.as_bytes());
    let mut times = vec![some, now];
    for format in ["ISO8601", "UNIX", "UNIX_MS", "TAI64N", &pattern] {
        let Ok(matcher) = Matcher::compile(format, &locale) else { continue };
        times.extend(matcher.parse(Source::Text(&text), &zone, now));
        if serde_json::from_str::<serde_json::Number>(&text).is_ok() {
            times.extend(matcher.parse(Source::Number(&text), &zone, now));
        }
    }
    let decimals = text.bytes().filter(u8::is_ascii_digit).count().saturating_sub("yyyyMMddHHmmssZZzz".len());
    if let Some(time) = Time::rfc3339(text.as_bytes()).filter(|_| decimals < 6) {
        assert_eq!(iso8601::parse(&text, &zone), Some(time), "RFC 3339, read as ISO 8601");
    }
    let (joda, java) = (joda::Pattern::compile(&pattern, locale), java::Pattern::compile(&pattern));
    for time in times {
        let mut out = Vec::new();
        joda.iter().for_each(|pattern| pattern.format(time, &mut out));
        java.iter().for_each(|pattern| pattern.format(time, &mut out));
        assert!(std::str::from_utf8(&out).is_ok());
        check_zone(&zone, time);
        check_full(time, text.as_bytes(), now);
    }
}

/// A time that follows from any bytes, within the years of four digits.
fn time_of(bytes: &[u8]) -> Time {
    let mix = |n: u64, byte: &u8| (n ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let n = bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    Time::new((n >> 20) as i64 % 300_000_000_000 - 50_000_000_000, (n % 1_000_000_000) as u32)
}

/// What clocks show leads back to a time at which they show it.
fn check_zone(zone: &Zone, time: Time) {
    let Some(local) = zone.local(time) else { return };
    let back = zone.resolve(local).expect("what clocks show is a time");
    assert_eq!(zone.local(back), Some(local), "{zone:?} at {}", time.iso());
}

/// Patterns that say everything, made of pieces that `choice` chooses.
fn check_full(time: Time, choice: &[u8], now: Time) {
    if !(1..=9999).contains(&time.civil().year) {
        return;
    }
    let iso = time.iso();
    assert_eq!(Time::rfc3339(iso.as_bytes()), Some(time));
    assert_eq!(iso8601::parse(&iso, &Zone::UTC), Some(time));
    let mut written = Vec::new();
    let pattern = java::Pattern::compile("uuuu-MM-dd'T'HH:mm:ss.SSSSSSSSSX").expect("a pattern of Java's");
    pattern.format(time, &mut written);
    assert_eq!(iso8601::parse(&String::from_utf8_lossy(&written), &Zone::UTC), Some(time), "as Java writes it");
    let mut choice = choice.iter().copied().chain(std::iter::repeat(0)).map(usize::from);
    let mut pick = |from: &[&'static str]| from[choice.next().unwrap_or(0) % from.len()];
    let mut parts = [
        pick(&["yyyy", "YYYY G", "yyyy"]),
        pick(&["MM-dd", "MMM dd", "dd/MMMM", "DDD", "EEE MM.dd", "d M", "MMM.d", "EEEE, d MMM"]),
        pick(&["HH:mm", "h:mm a", "kk:mm", "K'h'mm a"]),
        pick(&["ss.SSS", "s,SSS", "SSS ss"]),
        pick(&["Z", "ZZ", "'UTC'", "z", "ZZZ"]),
    ];
    let turn = pick(&["", "1", "2", "3", "4"]).len();
    parts.rotate_left(turn);
    let pattern = parts.join(pick(&[" ", " 'T'", "/", " ' at ' ", "_", "''"]));
    let joda = joda::Pattern::compile(&pattern, Locale::english()).expect("a full pattern");
    let mut written = Vec::new();
    joda.format(time, &mut written);
    let written = String::from_utf8(written).expect("text");
    let want = Time::from_millis(time.millis());
    assert_eq!(joda.parse(&written, &Zone::UTC, now), Some(want), "{pattern}: {written}");
}
