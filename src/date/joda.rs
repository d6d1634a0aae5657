//! Date patterns of Joda-Time, as in `match = ["dd/MMM/yyyy:HH:mm:ss Z"]` and `%{+yyyy.MM.dd}`: compiled once,
//! read and written often. Reading allocates nothing.

use std::sync::Arc;

use super::fields::{self, Field, Fields, NANOS};
use super::locale::Locale;
use super::scan;
use super::zone::Zone;
use crate::time::{Civil, Time};

const LETTERS: &str = "G C Y y x M w D d e E a K h H k m s S z Z";
/// Digits of a year that is not followed by another number.
const YEAR_DIGITS: usize = 9;
/// Digits of a second that Joda-Time reads.
const DECIMALS: usize = 18;
/// A two-digit year lies between 80 years before the clock's year and 19 after it.
const CENTURY_BEFORE: i64 = 80;

pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Names of zones that `z` reads, each with the place whose rules it stands for.
const ZONE_NAMES: [(&str, Zone); 11] = [
    ("UTC", Zone::UTC),
    ("UT", Zone::UTC),
    ("GMT", Zone::UTC),
    ("EST", Zone::Named(chrono_tz::America::New_York)),
    ("EDT", Zone::Named(chrono_tz::America::New_York)),
    ("CST", Zone::Named(chrono_tz::America::Chicago)),
    ("CDT", Zone::Named(chrono_tz::America::Chicago)),
    ("MST", Zone::Named(chrono_tz::America::Denver)),
    ("MDT", Zone::Named(chrono_tz::America::Denver)),
    ("PST", Zone::Named(chrono_tz::America::Los_Angeles)),
    ("PDT", Zone::Named(chrono_tz::America::Los_Angeles)),
];

#[derive(Debug)]
enum Part {
    /// At least `min` digits written, at most `max` read.
    Number {
        field: Field,
        min: usize,
        max: usize,
        signed: bool,
    },
    /// A year of two digits; `lenient` also reads any other year in full.
    ShortYear {
        field: Field,
        lenient: bool,
    },
    /// A name; `dot_next` if the pattern goes on with a dot.
    Name {
        field: Field,
        short: bool,
        dot_next: bool,
    },
    Fraction {
        width: usize,
    },
    Offset {
        colon: bool,
    },
    ZoneId,
    ZoneName {
        short: bool,
    },
    /// As written, and in lower case.
    Literal {
        text: Box<str>,
        folded: Box<str>,
    },
}

/// A compiled pattern.
#[derive(Debug)]
pub struct Pattern {
    parts: Vec<Part>,
    locale: Arc<Locale>,
    has_year: bool,
}

/// What a text said.
#[derive(Default)]
struct Found {
    fields: Fields,
    /// From `Z`: goes before `zone`.
    offset: Option<Zone>,
    zone: Option<Zone>,
}

impl Pattern {
    /// Compiles a pattern; names are read in `locale` and written in English.
    pub fn compile(pattern: &str, locale: Arc<Locale>) -> Result<Pattern, String> {
        let tokens = tokens(pattern);
        if tokens.is_empty() {
            return Err("an empty date pattern".into());
        }
        let mut parts = Vec::with_capacity(tokens.len());
        for (i, token) in tokens.iter().enumerate() {
            let next = tokens.get(i + 1);
            parts.push(match token {
                Token::Text(text) => Part::Literal { text: text.as_str().into(), folded: text.to_lowercase().into() },
                Token::Letter { letter, count, position } => {
                    let number_next = next.is_some_and(Token::is_number);
                    let dot_next = matches!(next, Some(Token::Text(text)) if text.starts_with('.'));
                    part(*letter, *count, number_next, dot_next).ok_or_else(|| {
                        format!(
                            "unknown letter `{letter}` at position {position} of date pattern `{pattern}` \
                             (allowed: {LETTERS}; other text in single quotes)"
                        )
                    })?
                }
            });
        }
        let year = |token: &Token| matches!(token, Token::Letter { letter: 'y' | 'Y' | 'x', .. });
        Ok(Pattern { parts, locale, has_year: tokens.iter().any(year) })
    }

    /// Reads `text` whole. A text without a zone is in `zone`; one without a year is in the year of `now`, or in
    /// the last or next one if December is read in January or the other way round.
    pub fn parse(&self, text: &str, zone: &Zone, now: Time) -> Option<Time> {
        let mut found = self.scan(text, now)?;
        let stated = found.offset.or(found.zone);
        if !self.has_year {
            let year = guess_year(&found.fields, stated, zone, now)?;
            found.fields.put(Field::Year, year);
        }
        stated.unwrap_or(*zone).resolve(found.fields.local()?)
    }

    fn scan(&self, text: &str, now: Time) -> Option<Found> {
        let bytes = text.as_bytes();
        let mut found = Found::default();
        let mut at = 0;
        for part in &self.parts {
            at = match part {
                Part::Number { field, max, signed, .. } => {
                    let (value, end) = scan::number(bytes, at, *max, *signed)?;
                    found.fields.put(*field, value);
                    end
                }
                Part::ShortYear { field, lenient } => {
                    let (value, end) = short_year(bytes, at, *lenient, now)?;
                    found.fields.put(*field, value);
                    end
                }
                Part::Name { field, dot_next, .. } => {
                    let (value, end) = self.locale.find(*field, text, at, *dot_next)?;
                    found.fields.put(*field, value);
                    end
                }
                Part::Fraction { width } => {
                    let (value, end) = scan::decimals(bytes, at, (*width).min(DECIMALS))?;
                    found.fields.put(Field::Fraction, value);
                    end
                }
                Part::Offset { .. } => {
                    let (millis, end) = scan::offset(bytes, at)?;
                    found.offset = Some(Zone::Fixed(millis));
                    end
                }
                Part::ZoneId => {
                    let (zone, end) = Zone::find(text, at)?;
                    found.zone = Some(zone);
                    end
                }
                Part::ZoneName { .. } => {
                    let (name, zone) = ZONE_NAMES.iter().find(|(name, _)| bytes[at..].starts_with(name.as_bytes()))?;
                    found.zone = Some(*zone);
                    at + name.len()
                }
                Part::Literal { text: literal, folded } => match bytes[at..].starts_with(literal.as_bytes()) {
                    true => at + literal.len(),
                    false => scan::folded(text, at, folded)?,
                },
            };
        }
        (at == bytes.len()).then_some(found)
    }

    /// Writes `time` in UTC, with English names and no finer than milliseconds.
    pub fn format(&self, time: Time, out: &mut Vec<u8>) {
        let (civil, days) = (time.civil(), time.day());
        let value = |field| value(&civil, days, field);
        for part in &self.parts {
            match part {
                Part::Number { field, min, .. } => fields::padded(out, value(*field), *min),
                Part::ShortYear { field, .. } => fields::padded(out, value(*field).abs() % 100, 2),
                Part::Name { field, short, .. } => {
                    out.extend_from_slice(name(*field, value(*field), *short).as_bytes());
                }
                Part::Fraction { width } => {
                    let millis = time.nanos / 1_000_000;
                    for digit in 0..*width {
                        let scale = [100, 10, 1].get(digit);
                        out.push(b'0' + scale.map_or(0, |scale| millis / scale % 10) as u8);
                    }
                }
                Part::Offset { colon } => out.extend_from_slice(if *colon { b"+00:00" } else { b"+0000" }),
                Part::ZoneId | Part::ZoneName { short: true } => out.extend_from_slice(b"UTC"),
                Part::ZoneName { short: false } => out.extend_from_slice(b"Coordinated Universal Time"),
                Part::Literal { text, .. } => out.extend_from_slice(text.as_bytes()),
            }
        }
    }
}

enum Token {
    Text(String),
    /// A run of one letter, and where it begins, counted from 1.
    Letter {
        letter: char,
        count: usize,
        position: usize,
    },
}

impl Token {
    fn is_number(&self) -> bool {
        match self {
            Token::Letter { letter: 'M', count, .. } => *count <= 2,
            Token::Letter { letter, .. } => "CxyYdhHmsSeDwkK".contains(*letter),
            Token::Text(_) => false,
        }
    }
}

fn tokens(pattern: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = pattern.chars().enumerate().peekable();
    while let Some((i, c)) = chars.next_if(|(_, c)| c.is_ascii_alphabetic()).or_else(|| chars.peek().copied()) {
        if c.is_ascii_alphabetic() {
            let mut count = 1;
            while chars.next_if(|(_, next)| *next == c).is_some() {
                count += 1;
            }
            tokens.push(Token::Letter { letter: c, count, position: i + 1 });
            continue;
        }
        let (mut text, mut quoted) = (String::new(), false);
        while let Some((_, c)) = chars.next_if(|(_, c)| quoted || !c.is_ascii_alphabetic()) {
            if c != '\'' {
                text.push(c);
            } else if chars.next_if(|(_, next)| *next == '\'').is_some() {
                text.push('\'');
            } else {
                quoted = !quoted;
            }
        }
        tokens.push(Token::Text(text));
    }
    tokens
}

fn part(letter: char, count: usize, number_next: bool, dot_next: bool) -> Option<Part> {
    use Field::*;
    let number = |field, max: usize| Part::Number { field, min: count, max: max.max(count), signed: false };
    let year = |field| match count {
        2 => Part::ShortYear { field: if field == YearOfEra { Year } else { field }, lenient: !number_next },
        _ => Part::Number {
            field,
            min: count,
            max: if number_next { count } else { YEAR_DIGITS.max(count) },
            signed: field != YearOfEra,
        },
    };
    let named = |field, short| Part::Name { field, short, dot_next };
    Some(match letter {
        'G' => named(Era, true),
        'C' => Part::Number { field: Century, min: count, max: count, signed: true },
        'Y' => year(YearOfEra),
        'y' => year(Year),
        'x' => year(Weekyear),
        'M' if count >= 3 => named(Month, count == 3),
        'M' => number(Month, 2),
        'w' => number(Week, 2),
        'D' => number(DayOfYear, 3),
        'd' => number(DayOfMonth, 2),
        'e' => number(DayOfWeek, 1),
        'E' => named(DayOfWeek, count < 4),
        'a' => named(Halfday, true),
        'K' => number(HalfdayHour, 2),
        'h' => number(HalfdayClockHour, 2),
        'H' => number(Hour, 2),
        'k' => number(ClockHour, 2),
        'm' => number(Minute, 2),
        's' => number(Second, 2),
        'S' => Part::Fraction { width: count },
        'z' => Part::ZoneName { short: count < 4 },
        'Z' if count >= 3 => Part::ZoneId,
        'Z' => Part::Offset { colon: count == 2 },
        _ => return None,
    })
}

/// Two digits are a year near the clock's; more or fewer, or a sign, are the year itself if `lenient`.
fn short_year(text: &[u8], at: usize, lenient: bool, now: Time) -> Option<(i64, usize)> {
    let two = (scan::number(text, at, 2, false)).filter(|(_, end)| *end == at + 2);
    if lenient && (two.is_none() || scan::digit(text, at + 2).is_some()) {
        return scan::number(text, at, 10, true);
    }
    let (of_century, end) = two?;
    let first = now.civil().year - CENTURY_BEFORE;
    Some((first + (of_century - first).rem_euclid(100), end))
}

/// The year of a text that names none. Logstash's rule on the month: December read in January is the last
/// year, January read in December the next. A weekday must not shift the date before its year is known.
fn guess_year(fields: &Fields, stated: Option<Zone>, zone: &Zone, now: Time) -> Option<i64> {
    let now = now.civil();
    if stated.is_none() && matches!(fields.get(Field::Month), Some(2..=11)) {
        return Some(now.year);
    }
    let mut first = fields.clone();
    first.put(Field::Year, now.year);
    if first.get(Field::DayOfMonth).or(first.get(Field::DayOfYear)).is_some() {
        first.remove(Field::DayOfWeek);
    }
    let mut local = first.local()?;
    if let Some(stated) = stated {
        // The month counts as the configured zone shows it.
        local = zone.local(stated.resolve_lenient(local)?)?;
    }
    let (year, month) = local.year_month();
    let wanted = match (month, now.month) {
        (12, 1) => now.year - 1,
        (1, 12) => now.year + 1,
        _ => now.year,
    };
    Some(now.year + wanted - year)
}

/// A field of a date and time, whose day is the `days`th since 1970.
fn value(c: &Civil, days: i64, field: Field) -> i64 {
    let hour = i64::from(c.hour);
    let clock = |hour: i64, most: i64| if hour == 0 { most } else { hour };
    match field {
        Field::Era => i64::from(c.year > 0),
        Field::Century => fields::year_of_era(c.year) / 100,
        Field::Year => c.year,
        Field::YearOfEra => fields::year_of_era(c.year),
        Field::Weekyear => fields::iso_week(days).0,
        Field::Month => i64::from(c.month),
        Field::Week => fields::iso_week(days).1,
        Field::DayOfYear => fields::day_of_year(days),
        Field::DayOfMonth => i64::from(c.day),
        Field::DayOfWeek => fields::weekday(days),
        Field::Halfday => hour / 12,
        Field::Hour => hour,
        Field::ClockHour => clock(hour, 24),
        Field::HalfdayHour => hour % 12,
        Field::HalfdayClockHour => clock(hour % 12, 12),
        Field::Minute => i64::from(c.minute),
        Field::Second => i64::from(c.second),
        Field::Fraction => i64::from(c.nanos) % NANOS,
    }
}

fn name(field: Field, value: i64, short: bool) -> &'static str {
    let list: &[&'static str] = match field {
        Field::Month => &MONTHS,
        Field::DayOfWeek => &DAYS,
        Field::Halfday => &["AM", "PM"],
        _ => &["BC", "AD"],
    };
    let first = i64::from(matches!(field, Field::Month | Field::DayOfWeek));
    let text = usize::try_from(value - first).ok().and_then(|at| list.get(at)).copied().unwrap_or("");
    if short && text.len() > 3 { &text[..3] } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: &str = "2024-06-15T00:00:00Z";

    fn time(text: &str) -> Time {
        Time::rfc3339(text.as_bytes()).unwrap()
    }

    fn check_in(locale: &str, zone: &str, now: &str, pattern: &str, text: &str, want: Option<&str>) {
        let compiled = Pattern::compile(pattern, Locale::parse(locale).unwrap()).unwrap();
        let got = compiled.parse(text, &Zone::parse(zone).unwrap(), time(now)).map(|time| time.iso());
        assert_eq!(got.as_deref(), want, "{pattern} {text}");
    }

    fn check(pattern: &str, text: &str, want: &str) {
        check_in("en", "UTC", NOW, pattern, text, (!want.is_empty()).then_some(want));
    }

    #[test]
    fn reads() {
        check("dd/MMM/yyyy:HH:mm:ss Z", "25/Mar/2013:20:33:56 +0200", "2013-03-25T18:33:56.000Z");
        check("dd/MMM/yyyy:HH:mm:ss Z", "5/march/2013:2:3:6 z", "2013-03-05T02:03:06.000Z");
        check("yyyyMMddHHmmssSSS", "20130325203356789", "2013-03-25T20:33:56.789Z");
        check("yyyy-MM-dd HH:mm:ss.SSSSSS", "2024-07-01 00:00:00.123456", "2024-07-01T00:00:00.123456Z");
        check("yyyy-MM-dd HH:mm:ss.SSS", "2024-07-01 00:00:00.1", "2024-07-01T00:00:00.100Z");
        check("yyyy-MM-dd HH:mm:ss.SSS", "2024-07-01 00:00:00.1234", "");
        check("yyyy-MM-dd", "12024-07-01", "+12024-07-01T00:00:00.000Z");
        check("yyyy-MM-dd", "-0044-03-15", "-0044-03-15T00:00:00.000Z");
        check("yyyy-DDD", "2024-060", "2024-02-29T00:00:00.000Z");
        check("yyyy-DDD", "2023-366", "");
        check("xxxx-'W'ww-e", "2020-W53-5", "2021-01-01T00:00:00.000Z");
        check("yyyy-MM-dd K:mm a", "2024-02-29 0:05 pm", "2024-02-29T12:05:00.000Z");
        check("yyyy-MM-dd hh:mm a", "2024-02-29 12:05 PM", "2024-02-29T12:05:00.000Z");
        check("yyyy-MM-dd hh:mm a", "2024-02-29 13:05 PM", "");
        check("yyyy-MM-dd kk:mm", "2024-02-29 24:05", "2024-02-29T00:05:00.000Z");
        check("yyyy-MM-dd HH:mm", "2024-02-29 24:05", "");
        check("YYYY-MM-dd G", "0045-03-15 BC", "-0044-03-15T00:00:00.000Z");
        check("YYYY-MM-dd G", "2024-03-15 AD", "2024-03-15T00:00:00.000Z");
        check("YYYY", "-5", "");
        check("yy-MM-dd", "43-01-02", "2043-01-02T00:00:00.000Z");
        check("yy-MM-dd", "44-01-02", "1944-01-02T00:00:00.000Z");
        check("yy-MM-dd", "1944-01-02", "1944-01-02T00:00:00.000Z");
        check("yy-MM-dd", "5-01-02", "0005-01-02T00:00:00.000Z");
        check("yyMMdd", "240102", "2024-01-02T00:00:00.000Z");
        check("yyMMdd", "5", "");
        check("CC", "20", "2024-01-01T00:00:00.000Z");
        check("CCyy", "2075", "1975-01-01T00:00:00.000Z");
        check("EEE yyyy-MM-dd", "Sun 2024-06-02", "2024-06-02T00:00:00.000Z");
        check("EEE yyyy-MM-dd", "Mon 2024-06-02", "2024-05-27T00:00:00.000Z");
        check("yyyy-MM-dd ZZZ", "2024-07-01 Europe/Paris", "2024-06-30T22:00:00.000Z");
        check("yyyy-MM-dd z", "2024-07-01 EST", "2024-07-01T04:00:00.000Z");
        check("yyyy-MM-dd z", "2024-07-01 CEST", "");
        check("yyyy-MM-dd'T'HH 'o''clock'", "2024-07-01t10 O'CLOCK", "2024-07-01T10:00:00.000Z");
        check("'à' yyyy", "À 2024", "2024-01-01T00:00:00.000Z");
    }

    #[test]
    fn years_not_written() {
        let check = |zone, now, pattern, text, want: Option<&str>| check_in("en", zone, now, pattern, text, want);
        let syslog = "MMM dd HH:mm:ss";
        check("UTC", "2014-01-01T00:30:50Z", syslog, "Dec 31 23:59:00", Some("2013-12-31T23:59:00.000Z"));
        check("UTC", "2013-12-31T23:59:50Z", syslog, "Jan 01 00:00:10", Some("2014-01-01T00:00:10.000Z"));
        check("UTC", "2014-01-15T00:00:00Z", syslog, "Nov 30 10:00:00", Some("2014-11-30T10:00:00.000Z"));
        check("UTC", "2023-03-01T00:00:00Z", syslog, "Feb 29 10:00:00", None);
        check("UTC", "2024-03-01T00:00:00Z", syslog, "Feb 29 10:00:00", Some("2024-02-29T10:00:00.000Z"));
        check("CET", "2016-03-29T23:59:50Z", syslog, "Mar 27 02:00:01", None);
        let named = "EEE MMM dd HH:mm";
        check("UTC", "2014-01-15T00:00:00Z", named, "Tue Dec 31 20:38", Some("2013-12-31T20:38:00.000Z"));
        let zoned = "MMM dd HH:mm Z";
        check("UTC", "2014-01-01T08:00:00Z", zoned, "Dec 31 23:30 -0800", Some("2014-01-01T07:30:00.000Z"));
        check("UTC", "2013-12-31T16:00:00Z", zoned, "Jan 1 00:30 +0900", Some("2013-12-31T15:30:00.000Z"));
        check("UTC", "2014-06-01T00:00:00Z", "HH:mm", "01:30", Some("2014-01-01T01:30:00.000Z"));
        check("UTC", "2014-06-01T00:00:00Z", "MMM dd HH:mm z", "Jul 1 00:30 EDT", Some("2014-07-01T04:30:00.000Z"));
    }

    #[test]
    fn reads_other_languages() {
        let check = |locale, pattern, text, want: Option<&str>| check_in(locale, "UTC", NOW, pattern, text, want);
        check("fr", "dd MMMM yyyy", "25 mars 2013", Some("2013-03-25T00:00:00.000Z"));
        check("fr", "dd MMM yyyy", "25 févr. 2013", Some("2013-02-25T00:00:00.000Z"));
        check("de-DE", "dd.MMM.yyyy", "25.Dez.2013", Some("2013-12-25T00:00:00.000Z"));
        check("de-DE", "dd.MMM.yyyy", "25.Dez..2013", Some("2013-12-25T00:00:00.000Z"));
        check("de", "EEEE, dd. MMMM yyyy", "Montag, 25. März 2013", Some("2013-03-25T00:00:00.000Z"));
        check("es", "dd MMM yyyy hh:mm a", "25 dic 2013 03:00 p. m.", Some("2013-12-25T15:00:00.000Z"));
        check("zh", "yyyy年MMMdd日", "2013年12月25日", Some("2013-12-25T00:00:00.000Z"));
        check("fr", "dd MMMM yyyy", "25 March 2013", None);
    }

    #[test]
    fn writes() {
        let check = |pattern, at: &str, want: &str| {
            let mut out = Vec::new();
            Pattern::compile(pattern, Locale::english()).unwrap().format(time(at), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{pattern}");
        };
        let at = "2024-06-15T00:00:00.123456789Z";
        check(
            "G C CC CCC xx yyy Y YY z zzzz Z ZZ ZZZ e E a k K h D DDD w ww S SSSSS",
            at,
            "AD 20 20 020 24 2024 2024 24 UTC Coordinated Universal Time +0000 +00:00 UTC 6 Sat AM 24 0 12 167 167 24 24 1 12300",
        );
        check("%ss", "2015-10-01T00:00:07Z", "%07");
        check("EEEE MMMM MMM", at, "Saturday June Jun");
        check("xxxx.ww", "2024-12-30T12:00:00Z", "2025.01");
    }

    #[test]
    fn refuses() {
        let error = Pattern::compile("yyyy-MM-dd b", Locale::english()).unwrap_err();
        assert!(
            error.starts_with("unknown letter `b` at position 12 of date pattern `yyyy-MM-dd b` (allowed: G C"),
            "{error}"
        );
        assert!(Pattern::compile("", Locale::english()).is_err());
        assert!(Pattern::compile("é yyyy q", Locale::english()).unwrap_err().contains("position 8"));
    }

    proptest! {
        #[test]
        fn never_panics(pattern in "[GCxyYMdahHkKmsSeEDwzZ'. :/é-]{1,12}", text in "\\PC{0,24}", now in -99_999_999_999i64..99_999_999_999) {
            let english = Pattern::compile(&pattern, Locale::english());
            let now = Time::new(now, 0);
            if let Ok(compiled) = english {
                compiled.parse(&text, &Zone::Named(chrono_tz::Europe::Paris), now);
                let mut out = Vec::new();
                compiled.format(now, &mut out);
                let own = String::from_utf8(out).unwrap();
                compiled.parse(&own, &Zone::UTC, now);
            }
        }

        #[test]
        fn reads_what_it_writes(millis in -62_135_596_800_000i64..253_402_300_799_999, which in 0usize..8) {
            let pattern = [
                "dd/MMM/yyyy:HH:mm:ss.SSS Z",
                "yyyy-MM-dd HH:mm:ss.SSS",
                "yyyyMMddHHmmssSSS",
                "EEEE, d MMMM yyyy h:m:s.SSS a ZZ",
                "YYYY.DDD kk:mm:ss,SSS ZZZ",
                "xxxx-'W'ww-e HH:mm:ss.SSS",
                "EEE MMM dd HH:mm:ss.SSS yyyy",
                "yyyy-MM-dd'T'KK:mm:ss.SSSa z",
            ][which];
            let compiled = Pattern::compile(pattern, Locale::english()).unwrap();
            let time = Time::from_millis(millis);
            let mut out = Vec::new();
            compiled.format(time, &mut out);
            let text = String::from_utf8(out).unwrap();
            prop_assert_eq!(compiled.parse(&text, &Zone::UTC, Time::EPOCH), Some(time), "{}", text);
        }
    }
}
