//! Month, weekday, half-day and era names for reading dates in other languages.
//!
//! Names are facts of Unicode CLDR and of older Java runtimes together (`names.tsv`: language, months, short
//! months, weekdays from Monday, short weekdays, AM and PM, eras; `;` between values, `|` between spellings), so
//! both generations of a log's writer are understood. Regions of a language share one list. Writing always uses
//! English: an index name must not depend on where it is made.

use std::sync::{Arc, LazyLock};

use super::fields::Field;
use super::scan;

const TABLE: &str = include_str!("names.tsv");

static ENGLISH: LazyLock<Arc<Locale>> = LazyLock::new(|| {
    let mut english = Locale::default();
    for line in TABLE.lines().filter(|line| line.starts_with("en\t")) {
        english = Locale::read(line, false);
    }
    Arc::new(english)
});

/// One spelling, in lower case and without a final dot.
#[derive(Debug)]
struct Name {
    text: Box<str>,
    value: i64,
    /// A short form may carry a dot.
    dotted: bool,
}

/// The names of one language, the longest spelling first.
#[derive(Debug, Default)]
pub struct Locale {
    months: Vec<Name>,
    days: Vec<Name>,
    halves: Vec<Name>,
    eras: Vec<Name>,
}

impl Locale {
    pub fn english() -> Arc<Locale> {
        ENGLISH.clone()
    }

    /// The locale of a language tag: `fr`, `de-DE`, `pt_BR`.
    pub fn parse(tag: &str) -> Result<Arc<Locale>, String> {
        let mut subtags = tag.split(['-', '_']);
        let language = subtags.next().unwrap_or("").to_lowercase();
        let listed = match language.as_str() {
            "en" if subtags.all(|region| region.eq_ignore_ascii_case("us")) => return Ok(Locale::english()),
            "no" => "nb",
            "iw" => "he",
            "in" => "id",
            other => other,
        };
        match TABLE.lines().find(|line| line.split('\t').next() == Some(listed)) {
            Some(line) => Ok(Arc::new(Locale::read(line, true))),
            None => Err(format!("unknown locale `{tag}` (known: {})", Locale::known().join(", "))),
        }
    }

    fn known() -> Vec<&'static str> {
        TABLE.lines().filter_map(|line| line.split('\t').next()).collect()
    }

    /// Reads a line of the table. American English abbreviates without dots, and a strict pattern stays strict.
    fn read(line: &str, dotted: bool) -> Locale {
        let columns: Vec<&str> = line.split('\t').collect();
        let column = |at: usize| columns.get(at).copied().unwrap_or("");
        let mut locale = Locale::default();
        let names = |list: &mut Vec<Name>, at: usize, first: i64, dotted: bool| {
            for (value, spellings) in (first..).zip(column(at).split(';')) {
                for text in spellings.split('|').filter(|text| !text.is_empty()) {
                    // `a.m` has lost its last dot, too.
                    list.push(Name { text: text.into(), value, dotted: dotted || text.contains('.') });
                }
            }
        };
        names(&mut locale.months, 1, 1, false);
        names(&mut locale.months, 2, 1, dotted);
        names(&mut locale.days, 3, 1, false);
        names(&mut locale.days, 4, 1, dotted);
        names(&mut locale.halves, 5, 0, dotted);
        names(&mut locale.eras, 6, 0, dotted);
        if column(0) == "en" {
            for (value, text) in [(0, "bce"), (1, "ce")] {
                locale.eras.push(Name { text: text.into(), value, dotted: false });
            }
        }
        for names in [&mut locale.months, &mut locale.days, &mut locale.halves, &mut locale.eras] {
            names.sort_by_key(|name| std::cmp::Reverse(name.text.len()));
        }
        locale
    }

    /// The name of `field` that `text` has at `at`, short or long, in any case: its value and where it ends.
    /// A final dot belongs to an abbreviation, unless the pattern wants a dot next and there is only one.
    pub fn find(&self, field: Field, text: &str, at: usize, dot_next: bool) -> Option<(i64, usize)> {
        let names = match field {
            Field::Month => &self.months,
            Field::DayOfWeek => &self.days,
            Field::Halfday => &self.halves,
            _ => &self.eras,
        };
        let first = text.as_bytes().get(at)?.to_ascii_lowercase();
        let near = names.iter().filter(|name| !first.is_ascii() || name.text.as_bytes().first() == Some(&first));
        let (name, end) = near.filter_map(|name| Some((name, scan::folded(text, at, &name.text)?))).next()?;
        let dot = |at: usize| text.as_bytes().get(at) == Some(&b'.');
        let taken = name.dotted && dot(end) && (!dot_next || dot(end + 1));
        Some((name.value, end + usize::from(taken)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tag: &str, field: Field, text: &str, want: Option<(i64, usize)>) {
        let locale = Locale::parse(tag).unwrap();
        assert_eq!(locale.find(field, text, 0, false), want, "{tag} {text}");
    }

    #[test]
    fn names_in_many_languages() {
        check("en", Field::Month, "Sep", Some((9, 3)));
        check("en", Field::Month, "september", Some((9, 9)));
        check("en-GB", Field::Month, "Sept 4", Some((9, 4)));
        check("en", Field::Month, "Jan.", Some((1, 3)));
        check("en-US", Field::Month, "Jan.", Some((1, 3)));
        check("en-CA", Field::Month, "Jan.", Some((1, 4)));
        check("ja", Field::Month, "12 ", Some((12, 2)));
        check("en", Field::DayOfWeek, "SUNDAY", Some((7, 6)));
        check("en", Field::Halfday, "pm", Some((1, 2)));
        check("en", Field::Era, "BC", Some((0, 2)));
        check("fr", Field::Month, "févr.", Some((2, 6)));
        check("fr-CA", Field::Month, "FÉVRIER", Some((2, 8)));
        check("fr", Field::Month, "July", None);
        check("fr", Field::DayOfWeek, "mardi", Some((2, 5)));
        check("de-DE", Field::Month, "Dez.", Some((12, 4)));
        check("de", Field::Month, "Dez", Some((12, 3)));
        check("de", Field::Month, "März", Some((3, 5)));
        check("de-AT", Field::Month, "Jänner", Some((1, 7)));
        check("pt_BR", Field::Month, "março", Some((3, 6)));
        check("ru", Field::Month, "декабря", Some((12, 14)));
        check("ru", Field::Month, "Декабрь", Some((12, 14)));
        check("no", Field::Month, "desember", Some((12, 8)));
        check("zh-CN", Field::Month, "十二月", Some((12, 9)));
        check("zh", Field::Month, "12月", Some((12, 5)));
        check("ja", Field::DayOfWeek, "日曜日", Some((7, 9)));
        check("tr", Field::Month, "Şubat", Some((2, 6)));
        check("en", Field::Month, "Smarch", None);
        check("en", Field::Month, "", None);
    }

    #[test]
    fn a_dot_that_the_pattern_wants_is_left() {
        let german = Locale::parse("de").unwrap();
        assert_eq!(german.find(Field::Month, "Dez.2013", 0, true), Some((12, 3)));
        assert_eq!(german.find(Field::Month, "Dez..2013", 0, true), Some((12, 4)));
        assert_eq!(german.find(Field::Month, "Dez. 2013", 0, false), Some((12, 4)));
    }

    #[test]
    fn every_language_is_whole() {
        for tag in Locale::known() {
            let locale = Locale::parse(tag).unwrap();
            let has = |names: &[Name], values: std::ops::RangeInclusive<i64>| {
                values.into_iter().all(|v| names.iter().any(|n| n.value == v))
            };
            assert!(has(&locale.months, 1..=12), "{tag} months");
            assert!(has(&locale.days, 1..=7), "{tag} days");
            assert!(has(&locale.halves, 0..=1), "{tag} halves");
            assert!(has(&locale.eras, 0..=1), "{tag} eras");
            for names in [&locale.months, &locale.days, &locale.halves, &locale.eras] {
                for name in names {
                    assert_eq!(name.text.to_lowercase(), *name.text, "{tag}");
                }
            }
        }
    }

    #[test]
    fn unknown_locales_say_what_is_known() {
        let error = Locale::parse("tlh").unwrap_err();
        assert!(error.starts_with("unknown locale `tlh` (known: bg, ca, cs, da, de"), "{error}");
        assert!(Locale::parse("").is_err());
    }
}
