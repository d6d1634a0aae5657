//! What a date text says, field by field, and how fields become a local time.
//!
//! Fields are put in any order and applied from the largest to the smallest, twice: the first round finds the
//! smallest instant each field allows, the second settles fields that depend on one another. That is how
//! Joda-Time resolves them, so `EEE` moves the date to that weekday of its week, and a lone `HH` means 1970.

use crate::time::{civil_from_days, days_from_civil, days_in_month, is_leap};

pub const NANOS: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * NANOS;
const MINUTE: i64 = 60 * NANOS;
/// The largest year either way, as in Joda-Time.
const YEAR_MAX: i64 = 292_000_000;

/// A field of a date, in the order in which fields are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// 0 is BC, 1 is AD.
    Era,
    Century,
    Year,
    YearOfEra,
    Weekyear,
    Month,
    Week,
    DayOfYear,
    DayOfMonth,
    /// Monday is 1.
    DayOfWeek,
    /// 0 is AM, 1 is PM.
    Halfday,
    /// 0 to 23.
    Hour,
    /// 1 to 24.
    ClockHour,
    /// 0 to 11.
    HalfdayHour,
    /// 1 to 12.
    HalfdayClockHour,
    Minute,
    Second,
    /// Nanoseconds of the second.
    Fraction,
}

const ALL: [Field; 18] = {
    use Field::*;
    [
        Era,
        Century,
        Year,
        YearOfEra,
        Weekyear,
        Month,
        Week,
        DayOfYear,
        DayOfMonth,
        DayOfWeek,
        Halfday,
        Hour,
        ClockHour,
        HalfdayHour,
        HalfdayClockHour,
        Minute,
        Second,
        Fraction,
    ]
};

const fn bit(field: Field) -> u32 {
    1 << field as u32
}

/// Fields whose order of application cannot matter: a plain date and time.
const PLAIN: u32 = bit(Field::Year)
    | bit(Field::Month)
    | bit(Field::DayOfMonth)
    | bit(Field::Hour)
    | bit(Field::Minute)
    | bit(Field::Second)
    | bit(Field::Fraction);

/// The fields found in one text. A field put twice keeps the later value.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    seen: u32,
    values: [i64; ALL.len()],
}

impl Fields {
    pub fn put(&mut self, field: Field, value: i64) {
        self.seen |= bit(field);
        self.values[field as usize] = value;
    }

    pub fn get(&self, field: Field) -> Option<i64> {
        (self.seen & bit(field) != 0).then(|| self.values[field as usize])
    }

    pub fn remove(&mut self, field: Field) {
        self.seen &= !bit(field);
    }

    /// The local time these fields name, if it exists on the calendar.
    pub fn local(&self) -> Option<Local> {
        if self.seen & !PLAIN == 0 {
            return self.plain();
        }
        if self.seen & !(PLAIN | bit(Field::DayOfWeek)) == 0 {
            // A weekday that is the date's own changes nothing.
            let at = self.plain()?;
            if self.get(Field::DayOfWeek) == Some(weekday(at.days)) {
                return Some(at);
            }
        }
        let last = ALL.iter().rev().find(|f| self.seen & bit(**f) != 0);
        let mut at = Local { days: 0, nanos: 0 };
        for round in 0..2 {
            for field in ALL {
                let Some(value) = self.get(field) else { continue };
                at.set(field, value)?;
                if round == 0 || Some(&field) == last {
                    at.floor(field);
                }
            }
        }
        Some(at)
    }

    /// The common case without rounds.
    fn plain(&self) -> Option<Local> {
        let or = |field, default| self.get(field).unwrap_or(default);
        let (year, month, day) = (or(Field::Year, 1970), or(Field::Month, 1), or(Field::DayOfMonth, 1));
        if year.abs() > YEAR_MAX || !(1..=12).contains(&month) {
            return None;
        }
        if day < 1 || day > i64::from(days_in_month(year, month as u32)) {
            return None;
        }
        let mut at = Local { days: days_from_civil(year, month as u32, day as u32), nanos: 0 };
        for field in [Field::Hour, Field::Minute, Field::Second, Field::Fraction] {
            if let Some(value) = self.get(field) {
                at.set(field, value)?;
            }
        }
        Some(at)
    }
}

/// A date and a time of day without a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// Days since 1970-01-01.
    pub days: i64,
    /// Nanoseconds of the day.
    pub nanos: i64,
}

impl Local {
    pub fn year_month(&self) -> (i64, u32) {
        let (year, month, _) = civil_from_days(self.days);
        (year, month)
    }

    fn set(&mut self, field: Field, value: i64) -> Option<()> {
        use Field::*;
        match field {
            Era | Century | Year | YearOfEra => self.set_year(field, value)?,
            Weekyear => self.set_weekyear(value)?,
            Month => {
                let (year, _, day) = civil_from_days(self.days);
                let month = within(value, 1, 12)? as u32;
                self.days = days_from_civil(year, month, day.min(days_in_month(year, month)));
            }
            Week => {
                let (year, week) = iso_week(self.days);
                self.days += 7 * (within(value, 1, weeks_in(year))? - week);
            }
            DayOfYear => {
                let (year, _) = self.year_month();
                self.days = days_from_civil(year, 1, 1) + within(value, 1, 365 + i64::from(is_leap(year)))? - 1;
            }
            DayOfMonth => {
                let (year, month) = self.year_month();
                let day = within(value, 1, i64::from(days_in_month(year, month)))?;
                self.days = days_from_civil(year, month, day as u32);
            }
            DayOfWeek => self.days += within(value, 1, 7)? - weekday(self.days),
            Halfday => self.replace(within(value, 0, 1)?, 12 * HOUR, 24 * HOUR),
            Hour => self.replace(within(value, 0, 23)?, HOUR, 24 * HOUR),
            ClockHour => self.replace(within(value, 1, 24)? % 24, HOUR, 24 * HOUR),
            HalfdayHour => self.replace(within(value, 0, 11)?, HOUR, 12 * HOUR),
            HalfdayClockHour => self.replace(within(value, 1, 12)? % 12, HOUR, 12 * HOUR),
            Minute => self.replace(within(value, 0, 59)?, MINUTE, HOUR),
            Second => self.replace(within(value, 0, 59)?, NANOS, MINUTE),
            Fraction => self.replace(within(value, 0, NANOS - 1)?, 1, NANOS),
        }
        Some(())
    }

    /// Replaces the count of `unit` within `range` and keeps what is smaller and larger.
    fn replace(&mut self, count: i64, unit: i64, range: i64) {
        self.nanos = self.nanos / range * range + count * unit + self.nanos % unit;
    }

    fn set_year(&mut self, field: Field, value: i64) -> Option<()> {
        let (now, month, day) = civil_from_days(self.days);
        let year = match field {
            Field::Era => match (within(value, 0, 1)?, now > 0) {
                (0, true) | (1, false) => -now,
                _ => now,
            },
            Field::Century => {
                let of_era = within(value, 0, YEAR_MAX / 100)? * 100 + year_of_era(now) % 100;
                signed_year(of_era.max(1), now)
            }
            Field::YearOfEra => signed_year(within(value, 1, YEAR_MAX)?, now),
            _ => within(value, -YEAR_MAX, YEAR_MAX)?,
        };
        self.days = days_from_civil(year, month, day.min(days_in_month(year, month)));
        Some(())
    }

    fn set_weekyear(&mut self, value: i64) -> Option<()> {
        let year = within(value, -YEAR_MAX, YEAR_MAX)?;
        let (_, week) = iso_week(self.days);
        self.days = week_one(year) + 7 * (week.min(weeks_in(year)) - 1) + weekday(self.days) - 1;
        Some(())
    }

    /// The first instant of the field's present value.
    fn floor(&mut self, field: Field) {
        use Field::*;
        let (year, month, _) = civil_from_days(self.days);
        match field {
            Era => self.days = days_from_civil(if year > 0 { 1 } else { year }, 1, 1),
            Century => {
                let first = year_of_era(year) / 100 * 100;
                self.days = days_from_civil(signed_year(first.max(1), year), 1, 1);
            }
            Year | YearOfEra => self.days = days_from_civil(year, 1, 1),
            Weekyear => self.days = week_one(iso_week(self.days).0),
            Month => self.days = days_from_civil(year, month, 1),
            Week => self.days -= weekday(self.days) - 1,
            DayOfYear | DayOfMonth | DayOfWeek => {}
            Halfday => self.nanos -= self.nanos % (12 * HOUR),
            Hour | ClockHour | HalfdayHour | HalfdayClockHour => self.nanos -= self.nanos % HOUR,
            Minute => self.nanos -= self.nanos % MINUTE,
            Second => self.nanos -= self.nanos % NANOS,
            Fraction => {}
        }
        if field <= DayOfWeek {
            self.nanos = 0;
        }
    }
}

fn within(value: i64, min: i64, max: i64) -> Option<i64> {
    (min..=max).contains(&value).then_some(value)
}

/// 1 for AD 1 and for 1 BC, which is the year 0.
pub fn year_of_era(year: i64) -> i64 {
    if year > 0 { year } else { 1 - year }
}

/// The year of `of_era` in the era that `now` lies in.
fn signed_year(of_era: i64, now: i64) -> i64 {
    if now > 0 { of_era } else { 1 - of_era }
}

/// 1 is Monday.
pub fn weekday(days: i64) -> i64 {
    (days + 3).rem_euclid(7) + 1
}

/// The Monday that begins week 1 of an ISO year: the week with 4 January.
fn week_one(year: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    fourth - (weekday(fourth) - 1)
}

fn weeks_in(year: i64) -> i64 {
    (week_one(year + 1) - week_one(year)) / 7
}

/// The ISO year and week of a day.
pub fn iso_week(days: i64) -> (i64, i64) {
    // The Thursday decides in which year a week lies.
    let (year, _, _) = civil_from_days(days - weekday(days) + 4);
    (year, (days - week_one(year)) / 7 + 1)
}

pub fn day_of_year(days: i64) -> i64 {
    let (year, _, _) = civil_from_days(days);
    days - days_from_civil(year, 1, 1) + 1
}

/// Decimal digits with sign, padded with zeros to `width` digits, however wide.
pub fn padded(out: &mut Vec<u8>, value: i64, width: usize) {
    if value < 0 {
        out.push(b'-');
    }
    let mut text = [0u8; 20];
    let mut at = text.len();
    let mut rest = value.unsigned_abs();
    while rest > 0 || at == text.len() {
        at -= 1;
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    for _ in text.len() - at..width {
        out.push(b'0');
    }
    out.extend_from_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weeks() {
        let check = |y, m, d, want| assert_eq!(iso_week(days_from_civil(y, m, d)), want, "{y}-{m}-{d}");
        check(2024, 12, 30, (2025, 1));
        check(2023, 1, 1, (2022, 52));
        check(2020, 12, 31, (2020, 53));
        check(2015, 10, 1, (2015, 40));
        assert_eq!(weeks_in(2020), 53);
        assert_eq!(weekday(0), 4);
    }

    #[test]
    fn padding_of_any_width() {
        let mut out = Vec::new();
        padded(&mut out, -44, 4);
        padded(&mut out, 0, 30);
        assert_eq!(out, format!("-0044{}", "0".repeat(30)).into_bytes());
    }

    #[test]
    fn plain_and_rounds_agree() {
        for year in [-44, 0, 1, 1900, 1970, 2023, 2024] {
            for (month, day) in [(1, 1), (2, 28), (2, 29), (2, 30), (12, 31), (4, 31), (13, 1), (0, 1)] {
                let mut fields = Fields::default();
                fields.put(Field::Year, year);
                fields.put(Field::Month, month);
                fields.put(Field::DayOfMonth, day);
                fields.put(Field::Hour, 23);
                let plain = fields.local();
                fields.put(Field::ClockHour, 23);
                assert_eq!(fields.local(), plain, "{year}-{month}-{day}");
            }
        }
    }
}
