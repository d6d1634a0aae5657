//! The times of CEF: milliseconds since 1970, or `Mar 12 2026 10:00:00.123 CET`, of which year, decimals and zone may
//! be missing.

use std::sync::Arc;

use crate::date::joda::Pattern;
use crate::date::locale::Locale;
use crate::date::zone::Zone;
use crate::date::{Source, epoch};
use crate::time::{Time, civil_from_days, days_from_civil};

const SECONDS_A_DAY: i64 = 86_400;
/// So much may a time without a year be ahead of the day on which its source was written: zones, and clocks that differ.
const DAYS_AHEAD: i64 = 2;
/// 29 February comes once in so many years.
const YEARS_BACK: i64 = 8;

pub struct Times {
    zone: Zone,
    with_year: Vec<Pattern>,
    without_year: Vec<Pattern>,
}

impl Times {
    pub fn new(zone: Zone, locale: &Arc<Locale>) -> Result<Times, String> {
        let patterns = |date: &str| -> Result<Vec<Pattern>, String> {
            let ends =
                ["", ".SSSSSSSSS"].into_iter().flat_map(|decimals| ["", " z"].map(|zone| format!("{decimals}{zone}")));
            ends.map(|end| Pattern::compile(&format!("{date} HH:mm:ss{end}"), locale.clone())).collect()
        };
        Ok(Times { zone, with_year: patterns("MMM dd yyyy")?, without_year: patterns("MMM dd")? })
    }

    /// Reads a time; `device` is the zone that the device says it is in, `day` that on which the source was written.
    pub fn read(&self, text: &str, device: Option<&str>, day: Option<i64>) -> Option<Time> {
        let text = text.trim();
        if text.starts_with(|c: char| ('1'..='9').contains(&c)) && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        {
            return epoch::unix_ms(Source::Number(text));
        }
        let device = match device {
            Some(zone) => Zone::lookup(zone.trim())?,
            None => self.zone,
        };
        // a zone in the text stands last
        let (text, zone) = match text.rsplit_once(' ').and_then(|(text, zone)| Some((text, Zone::lookup(zone)?))) {
            Some((before, zone)) if before.contains(':') => (before, zone),
            _ => (text, device),
        };
        let exact = self.with_year.iter().find_map(|pattern| pattern.parse(text, &zone, Time::EPOCH));
        exact.or_else(|| self.until(text, &zone, day?))
    }

    /// The latest year in which a time does not lie after `day`, within what clocks and zones may differ.
    fn until(&self, text: &str, zone: &Zone, day: i64) -> Option<Time> {
        let latest = day + DAYS_AHEAD;
        let (year, ..) = civil_from_days(latest);
        let read = |year: i64| {
            // far from both ends of the year none but this one is meant
            let now = Time::new(days_from_civil(year, 7, 1) * SECONDS_A_DAY, 0);
            let time = self.without_year.iter().find_map(|pattern| pattern.parse(text, zone, now))?;
            (time.secs.div_euclid(SECONDS_A_DAY) <= latest).then_some(time)
        };
        (year - YEARS_BACK..=year).rev().find_map(read)
    }
}
