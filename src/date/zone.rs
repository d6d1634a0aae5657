//! A time zone: a fixed offset or one of the tz database, and the way between local time and [`Time`].

use chrono::{DateTime, NaiveDateTime, Offset, TimeZone};
use chrono_tz::Tz;

use super::fields::{Local, NANOS};
use super::scan;
use crate::time::{Time, civil_from_days, days_from_civil, is_leap};

/// The tz database as compiled in ends its rules in this year; later years borrow those of an earlier one.
const LAST_RULED: i64 = 2098;
/// The year before which only the first rule counts.
const FIRST_RULED: i64 = 1;
/// Names that have always meant one offset, whatever place the tz database now links them to.
const FIXED_NAMES: [(&str, i32); 3] = [("EST", -5), ("MST", -7), ("HST", -10)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// Milliseconds east of UTC.
    Fixed(i32),
    Named(Tz),
}

impl Zone {
    pub const UTC: Zone = Zone::Fixed(0);

    /// As [`Zone::lookup`]; an error names the nearest zone.
    pub fn parse(id: &str) -> Result<Zone, String> {
        Zone::lookup(id).ok_or_else(|| match nearest(id) {
            Some(name) => format!("unknown time zone `{id}`, did you mean `{name}`"),
            None => {
                format!("unknown time zone `{id}`: give a tz database name (`Europe/Paris`) or an offset (`+02:00`)")
            }
        })
    }

    /// The zone of an id: a tz database name in its own spelling, `UTC`, `Z`, `+02:00`, `+0200`, `+02`, each
    /// offset also after `UTC` or `GMT`. Cheap enough for an id taken from every event.
    pub fn lookup(id: &str) -> Option<Zone> {
        if matches!(id, "UTC" | "UT" | "GMT" | "Z") {
            return Some(Zone::UTC);
        }
        Zone::named(id).or_else(|| {
            let signed = ["UTC", "GMT", "UT"].iter().find_map(|name| id.strip_prefix(name)).unwrap_or(id);
            let (millis, end) = scan::signed_offset(signed.as_bytes(), 0)?;
            (end == signed.len()).then_some(Zone::Fixed(millis))
        })
    }

    fn named(name: &str) -> Option<Zone> {
        if let Some((_, hours)) = FIXED_NAMES.iter().find(|(fixed, _)| *fixed == name) {
            return Some(Zone::Fixed(hours * 3_600_000));
        }
        name.parse::<Tz>().ok().map(Zone::Named)
    }

    /// The longest tz database name that `text` has at `at`, and where it ends.
    pub fn find(text: &str, at: usize) -> Option<(Zone, usize)> {
        let rest = text.get(at..)?;
        let part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'-' | b'+');
        let longest = rest.bytes().take(40).take_while(part).count();
        (1..=longest).rev().find_map(|len| {
            let zone = match &rest[..len] {
                "UTC" => Zone::UTC,
                name => Zone::named(name)?,
            };
            Some((zone, at + len))
        })
    }

    /// The time at which clocks in this zone show `local`: none if they skip it, the earlier one if twice.
    pub fn resolve(&self, local: Local) -> Option<Time> {
        let millis = match self {
            Zone::Fixed(millis) => i64::from(*millis),
            Zone::Named(tz) => {
                let found = tz.offset_from_local_datetime(&naive(seconds(local))?).earliest()?;
                i64::from(found.fix().local_minus_utc()) * 1000
            }
        };
        Some(shifted(local, millis))
    }

    /// As [`Zone::resolve`]; a skipped time is taken with the offset before the gap.
    pub fn resolve_lenient(&self, local: Local) -> Option<Time> {
        self.resolve(local).or_else(|| {
            let before = Local { days: local.days - 1, nanos: local.nanos };
            let day = self.resolve(before)?;
            Some(Time::new(day.secs + 86_400, day.nanos))
        })
    }

    /// What clocks in this zone show at `time`.
    pub fn local(&self, time: Time) -> Option<Local> {
        let millis = match self {
            Zone::Fixed(millis) => i64::from(*millis),
            Zone::Named(tz) => {
                i64::from(tz.offset_from_utc_datetime(&naive(time.secs)?).fix().local_minus_utc()) * 1000
            }
        };
        let utc = Local { days: time.day(), nanos: time.secs.rem_euclid(86_400) * NANOS + i64::from(time.nanos) };
        let shown = shifted(utc, -millis);
        Some(Local { days: shown.day(), nanos: shown.secs.rem_euclid(86_400) * NANOS + i64::from(shown.nanos) })
    }
}

fn seconds(local: Local) -> i64 {
    local.days * 86_400 + local.nanos / NANOS
}

/// The moment whose rules hold at `secs`: itself, or the same day of a year with the same calendar.
fn naive(secs: i64) -> Option<NaiveDateTime> {
    let days = secs.div_euclid(86_400);
    let (year, _, _) = civil_from_days(days);
    let shift = match year {
        FIRST_RULED..=LAST_RULED => 0,
        ..FIRST_RULED => days_from_civil(FIRST_RULED, 1, 1) - days,
        _ => {
            let new_year = |year| days_from_civil(year, 1, 1);
            let alike = |y: &i64| is_leap(*y) == is_leap(year) && (new_year(*y) - new_year(year)) % 7 == 0;
            new_year((LAST_RULED - 27..=LAST_RULED).find(alike)?) - new_year(year)
        }
    };
    Some(DateTime::from_timestamp(secs + shift * 86_400, 0)?.naive_utc())
}

/// The time `millis` before the one `local` would be in UTC.
fn shifted(local: Local, millis: i64) -> Time {
    let nanos = local.nanos % NANOS - millis.rem_euclid(1000) * 1_000_000;
    let secs = seconds(local) - millis.div_euclid(1000) + nanos.div_euclid(NANOS);
    Time::new(secs, nanos.rem_euclid(NANOS) as u32)
}

/// The tz database name most like `id`, if any is alike.
fn nearest(id: &str) -> Option<&'static str> {
    let wanted = id.to_lowercase();
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let likeness = |name: &str| {
        let name = name.to_lowercase();
        strsim::jaro_winkler(&name, &wanted).max(strsim::jaro_winkler(&last(&name), &wanted))
    };
    let best = chrono_tz::TZ_VARIANTS
        .iter()
        .map(|tz| (likeness(tz.name()), tz.name()))
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.len().cmp(&a.1.len())))?;
    (best.0 > 0.85).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(zone: &str, day: (i64, u32, u32), hour: i64, minute: i64) -> Option<String> {
        let local = Local { days: days_from_civil(day.0, day.1, day.2), nanos: (hour * 60 + minute) * 60 * NANOS };
        Zone::parse(zone).unwrap().resolve(local).map(|time| time.iso())
    }

    fn check(zone: &str, day: (i64, u32, u32), hour: i64, want: Option<&str>) {
        assert_eq!(at(zone, day, hour, 30).as_deref(), want, "{zone} {day:?} {hour}:30");
    }

    #[test]
    fn local_times() {
        check("UTC", (2024, 2, 29), 0, Some("2024-02-29T00:30:00.000Z"));
        check("+02:00", (2015, 7, 1), 0, Some("2015-06-30T22:30:00.000Z"));
        check("-0330", (2015, 7, 1), 0, Some("2015-07-01T04:00:00.000Z"));
        check("UTC+05", (2015, 7, 1), 0, Some("2015-06-30T19:30:00.000Z"));
        check("CET", (2016, 3, 27), 2, None);
        check("CET", (2016, 3, 27), 3, Some("2016-03-27T01:30:00.000Z"));
        check("Europe/Paris", (2024, 10, 27), 2, Some("2024-10-27T00:30:00.000Z"));
        check("America/New_York", (2024, 11, 3), 1, Some("2024-11-03T05:30:00.000Z"));
        check("America/Caracas", (2007, 12, 9), 1, Some("2007-12-09T05:30:00.000Z"));
        check("EST", (2024, 7, 1), 0, Some("2024-07-01T05:30:00.000Z"));
        check("EST", (1903, 6, 1), 0, Some("1903-06-01T05:30:00.000Z"));
        check("MST", (2024, 7, 1), 0, Some("2024-07-01T07:30:00.000Z"));
        check("HST", (2024, 7, 1), 0, Some("2024-07-01T10:30:00.000Z"));
        check("EST5EDT", (2024, 7, 1), 0, Some("2024-07-01T04:30:00.000Z"));
        check("MET", (2024, 7, 1), 0, Some("2024-06-30T22:30:00.000Z"));
        check("Etc/GMT+5", (2024, 7, 1), 0, Some("2024-07-01T05:30:00.000Z"));
        check("Europe/Paris", (2100, 10, 1), 0, Some("2100-09-30T22:30:00.000Z"));
        check("Europe/Paris", (250_000, 7, 1), 0, Some("+250000-06-30T22:30:00.000Z"));
    }

    #[test]
    fn there_and_back() {
        for id in ["UTC", "+05:30", "America/St_Johns", "Pacific/Apia", "+00:00:00.5"] {
            let zone = Zone::parse(id).unwrap();
            for secs in (-3_000_000_000..3_000_000_000).step_by(77_777_777) {
                let time = Time::new(secs, 123_456_789);
                let local = zone.local(time).unwrap();
                assert_eq!(zone.resolve_lenient(local), Some(time), "{id} {secs}");
            }
        }
    }

    #[test]
    fn unknown_zones_name_the_nearest() {
        let check = |id, want| assert_eq!(Zone::parse(id).unwrap_err(), want);
        check("europe/paris", "unknown time zone `europe/paris`, did you mean `Europe/Paris`");
        check("Europe/Pariss", "unknown time zone `Europe/Pariss`, did you mean `Europe/Paris`");
        check("New York", "unknown time zone `New York`, did you mean `America/New_York`");
        assert!(Zone::parse("Mars/Olympus").is_err());
        for bad in ["", "EDT", "+2", "+25:00", "+02:00x", "utc", "%{tz}"] {
            assert!(Zone::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_inside_text() {
        let check = |text, want: Option<usize>| assert_eq!(Zone::find(text, 0).map(|found| found.1), want, "{text}");
        check("Europe/Paris", Some(12));
        check("Europe/Paris]", Some(12));
        check("UTC ", Some(3));
        check("America/Argentina/Buenos_Aires", Some(30));
        check("Europe", None);
        check("é", None);
    }
}
