//! `csv`: reads a text as a line of CSV.
//!
//! ```toml
//! [[filter]]
//! type = "csv"
//! columns = ["time", "user", "bytes"]
//! convert = { bytes = "integer" }
//! ```
//!
//! With `autodetect_column_names` the names are those of the file's own first line, so that every reading finds the
//! same ones; that line becomes no event.

use chrono::{NaiveDate, NaiveDateTime};

use super::{Applied, Clock, Filter, convert};
use crate::batch::{EventMut, New, View};
use crate::config::Section;
use crate::csv::Csv as Lines;
use crate::field::FieldRef;
use crate::stamp;
use crate::time::Time;

const FAILURE: &str = "_csvparsefailure";
const SKIPPED: &str = "_csvskippedemptyfield";

pub struct Config {
    pub source: FieldRef,
    pub columns: Vec<String>,
    pub target: Option<FieldRef>,
    pub lines: Result<Lines, String>,
    pub convert: Vec<(String, Kind)>,
    pub autogenerate: bool,
    pub autodetect: bool,
    pub skip_header: bool,
    pub skip_empty_columns: bool,
    pub skip_empty_rows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Float,
    Time,
    Boolean,
}

const KINDS: &[(&str, Kind)] = &[
    ("integer", Kind::Integer),
    ("float", Kind::Float),
    ("date", Kind::Time),
    ("date_time", Kind::Time),
    ("boolean", Kind::Boolean),
];

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let source = t.parsed("source", FieldRef::parse).or(FieldRef::top("message"));
        Some(Config { source, ..Config::read_columns(t) })
    }

    /// The options of the codec: there is no source but the line.
    pub fn read_columns(t: &Section<'_>) -> Config {
        let convert = t.entries("convert").or_default();
        let convert = convert.iter().filter_map(|e| e.parsed_key(named).zip(e.value.one_of(KINDS)));
        let separator = t.text("separator").or(",".to_string());
        let quote = t.text("quote_char").or("\"".to_string());
        let _ecs = t.one_of("ecs_compatibility", &[("disabled", ()), ("v1", ()), ("v8", ())]).optional();
        Config {
            source: FieldRef::top("message"),
            columns: t.texts("columns").or_default(),
            target: t.parsed("target", FieldRef::parse).optional(),
            lines: Lines::new(&separator, &quote),
            convert: convert.collect(),
            autogenerate: t.bool("autogenerate_column_names").or(true),
            autodetect: t.bool("autodetect_column_names").or(false),
            skip_header: t.bool("skip_header").or(false),
            skip_empty_columns: t.bool("skip_empty_columns").or(false),
            skip_empty_rows: t.bool("skip_empty_rows").or(false),
        }
    }
}

fn named(text: &str) -> Result<String, String> {
    Ok(text.to_string())
}

/// A column: the field it goes to, and what it is converted to.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    field: FieldRef,
    kind: Option<Kind>,
}

pub struct Csv {
    config: Config,
    lines: Lines,
    columns: Vec<Column>,
}

impl Csv {
    pub fn build(config: Config) -> Result<Csv, String> {
        let lines = config.lines.clone()?;
        let columns = config.columns.iter().map(|name| config.column(name)).collect::<Result<_, _>>()?;
        Ok(Csv { lines, columns, config })
    }

    /// The columns of the event's file, by its first line; none while that is not known.
    fn detected(&self, event: &EventMut<'_>) -> Option<Vec<Column>> {
        let event = event.read();
        let head = &event.source().head;
        let line = &head[..memchr::memchr(b'\n', head)?];
        let names = self.lines.fields(std::str::from_utf8(line).ok()?.trim_start_matches('\u{feff}')).ok()?;
        names.into_iter().map(|name| self.config.column(&name.unwrap_or_default()).ok()).collect()
    }

    fn fill(&self, event: &mut EventMut<'_>, columns: &[Column], values: &[Option<String>]) {
        for (at, value) in values.iter().enumerate() {
            if self.config.skip_empty_columns && value.as_ref().is_none_or(String::is_empty) {
                continue;
            }
            let own;
            let column = match columns.get(at) {
                Some(column) => column,
                None if !self.config.autogenerate => continue,
                None => match self.config.column(&format!("column{}", at + 1)) {
                    Ok(column) => {
                        own = column;
                        &own
                    }
                    Err(_) => continue,
                },
            };
            set(event, column, value.as_deref());
        }
    }
}

impl Config {
    fn column(&self, name: &str) -> Result<Column, String> {
        let path = if name.starts_with('[') { name.to_string() } else { format!("[{name}]") };
        let target = self.target.as_ref().map(FieldRef::canonical).unwrap_or_default();
        let field = FieldRef::parse(&format!("{target}{path}"))?;
        let kind = self.convert.iter().find(|(column, _)| column == name).map(|(_, kind)| *kind);
        Ok(Column { name: name.to_string(), field, kind })
    }
}

fn set(event: &mut EventMut<'_>, column: &Column, value: Option<&str>) {
    let Some(text) = value else {
        event.set(&column.field, New::Null);
        return;
    };
    let text_there = text.trim();
    let number = match column.kind {
        Some(Kind::Integer) => whole(text_there),
        Some(Kind::Float) => convert::float(text_there),
        Some(Kind::Boolean) => Some(text_there.to_lowercase()).filter(|text| text == "true" || text == "false"),
        Some(Kind::Time) => {
            event.set(&column.field, New::Text(time(text_there).map(|time| time.iso()).as_deref().unwrap_or(text)));
            return;
        }
        None => None,
    };
    match number {
        Some(number) => event.set(&column.field, New::Json(number.as_bytes())),
        None => event.set(&column.field, New::Text(text)),
    };
}

/// A whole number as JSON, as Ruby's code has it (`1_000`, `0x1f`); but zeros before it make it no octal one.
fn whole(text: &str) -> Option<String> {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.strip_prefix('+').unwrap_or(text)), |d| ("-", d));
    let (digits, radix) = match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (&digits[2..], 16),
        Some("0b") => (&digits[2..], 2),
        Some("0o") => (&digits[2..], 8),
        _ => (digits, 10),
    };
    let groups: Vec<&str> = digits.split('_').collect();
    if groups.iter().any(|group| group.is_empty() || !group.chars().all(|c| c.is_digit(radix))) {
        return None;
    }
    let digits = match radix {
        10 => groups.concat(),
        radix => u128::from_str_radix(&groups.concat(), radix).ok()?.to_string(),
    };
    Some(match digits.trim_start_matches('0') {
        "" => "0".to_string(),
        digits => format!("{sign}{digits}"),
    })
}

/// Ways in which Ruby's CSV knows a time, beside those of ISO 8601; in UTC where no zone is named.
const TIMES: &[&str] = &["%Y-%m-%d %H:%M:%S%.f", "%b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %Y", "%a, %b %d %H:%M:%S %Y"];
const DAYS: &[&str] = &["%b %d %Y", "%b %d, %Y", "%a %b %d %Y", "%a, %b %d %Y", "%a, %b %d, %Y"];

fn time(text: &str) -> Option<Time> {
    let of_day = |format: &&str| NaiveDate::parse_from_str(text, format).ok()?.and_hms_opt(0, 0, 0);
    let found = || {
        let time = TIMES.iter().find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
        time.or_else(|| DAYS.iter().find_map(of_day)).map(|time| time.and_utc())
    };
    stamp::from_text(text.as_bytes())
        .or_else(|| found().map(|time| Time::new(time.timestamp(), time.timestamp_subsec_nanos())))
}

/// What a text turned out to be.
pub enum Outcome {
    /// Its fields are set.
    Read,
    /// The names of the columns.
    Header,
    /// Not to be read: the tag that says so.
    Failed(&'static str),
}

impl Csv {
    /// Sets the fields of a text.
    pub fn read(&self, event: &mut EventMut<'_>, text: &str) -> Outcome {
        if text.is_empty() {
            return Outcome::Failed(if self.config.skip_empty_rows { SKIPPED } else { FAILURE });
        }
        let values = match self.lines.fields(text) {
            Ok(values) => values,
            Err(why) => {
                tracing::debug!(reason = why.0, offset = event.read().offset(), "no CSV");
                return Outcome::Failed(FAILURE);
            }
        };
        let detects = self.config.autodetect && self.columns.is_empty();
        let detected = if detects { self.detected(event) } else { None };
        if detects && detected.is_none() {
            return Outcome::Failed(FAILURE);
        }
        let columns = detected.as_deref().unwrap_or(&self.columns);
        let is_first = detects && event.read().offset() == 0;
        if is_first || self.config.skip_header && is_header(columns, &values) {
            return Outcome::Header;
        }
        self.fill(event, columns, &values);
        Outcome::Read
    }
}

fn is_header(columns: &[Column], values: &[Option<String>]) -> bool {
    let named = columns.iter().zip(values).all(|(column, value)| Some(&column.name) == value.as_ref());
    !columns.is_empty() && columns.len() == values.len() && named
}

impl Filter for Csv {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let text = match event.get(&self.config.source) {
            None | Some(View::Null) => return Applied::Unmatched,
            Some(View::Text(text)) => Some(text.into_owned()),
            Some(_) => None,
        };
        match text.map_or(Outcome::Failed(FAILURE), |text| self.read(event, &text)) {
            Outcome::Read => Applied::Matched,
            Outcome::Header => Applied::Drop,
            Outcome::Failed(tag) => {
                event.add_tag(tag);
                Applied::Unmatched
            }
        }
    }
}
