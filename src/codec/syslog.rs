//! `codec = "syslog"`: lines as RFC 5424 and RFC 3164 have them, with or without a priority.
//!
//! ```toml
//! [[input]]
//! type  = "file"
//! paths = "/var/log/syslog*"
//! codec = { type = "syslog", timezone = "Europe/Berlin" }
//! ```
//!
//! Fields are those of Logstash's `syslog` input. A time without a year takes the latest year in which it does not lie
//! after the day on which the source was written ([`crate::batch::Source::day`]), or `year`: reading a file again next
//! year gives the same times. What is no syslog is an event with the line in `message` and the tag
//! `_syslogparsefailure`.

use std::collections::HashMap;
use std::ops::Range;

use super::charset::Charset;
use super::{Codec, Record};
use crate::batch::{Batch, EventMut, New, Span};
use crate::config::Section;
use crate::date::zone::Zone;
use crate::date::{Local, iso8601};
use crate::field::FieldRef;
use crate::filter::syslog_pri::{FACILITIES, SEVERITIES};
use crate::json;
use crate::time::{Time, civil_from_days, days_from_civil, days_in_month};

/// The tag of a line that is no syslog.
pub const FAILURE: &str = "_syslogparsefailure";

/// So much may a line be ahead of the day on which its source was written: zones, and clocks that differ.
const DAYS_AHEAD: i64 = 2;
/// 29 February comes once in so many years.
const YEARS_BACK: i64 = 8;
const PRIORITY_MAX: u16 = 191;
const NANOS_A_SECOND: i64 = 1_000_000_000;
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

#[derive(Clone, Debug)]
pub struct Config {
    /// Of times that name none.
    pub timezone: Zone,
    /// Of times that name none.
    pub year: Option<i64>,
    pub ecs: bool,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Config {
        Config {
            timezone: t.parsed("timezone", Zone::parse).or(Zone::UTC),
            year: t.integer("year", 1970..=9999).optional(),
            ecs: t.one_of("ecs_compatibility", &[("disabled", false), ("v1", true), ("v8", true)]).or(false),
        }
    }
}

pub struct Syslog {
    timezone: Zone,
    year: Option<i64>,
    fields: Fields,
}

/// Where the parts of a message go.
#[derive(Debug)]
struct Fields {
    timestamp: FieldRef,
    priority: FieldRef,
    facility: [FieldRef; 2],
    severity: [FieldRef; 2],
    host: FieldRef,
    program: FieldRef,
    pid: FieldRef,
    msgid: FieldRef,
    data: FieldRef,
    message: FieldRef,
}

impl Fields {
    fn new(ecs: bool) -> Fields {
        let field = |plain: &str, ecs_name: &str| {
            // a reference of the program's own that is wrong would show in its tests
            let nested = FieldRef::parse(ecs_name).ok().filter(|_| ecs);
            nested.unwrap_or_else(|| FieldRef::top(plain))
        };
        Fields {
            timestamp: FieldRef::top("@timestamp"),
            priority: field("priority", "[log][syslog][priority]"),
            facility: [
                field("facility", "[log][syslog][facility][code]"),
                field("facility_label", "[log][syslog][facility][name]"),
            ],
            severity: [
                field("severity", "[log][syslog][severity][code]"),
                field("severity_label", "[log][syslog][severity][name]"),
            ],
            host: field("logsource", "[host][hostname]"),
            program: field("program", "[process][name]"),
            pid: field("pid", "[process][pid]"),
            msgid: field("msgid", "[log][syslog][msgid]"),
            data: field("structured_data", "[log][syslog][structured_data]"),
            message: FieldRef::top("message"),
        }
    }
}

/// A message taken apart: places in its line.
#[derive(Debug, Default, PartialEq)]
struct Message {
    priority: Option<u16>,
    time: When,
    host: Option<Range<usize>>,
    program: Option<Range<usize>>,
    pid: Option<Range<usize>>,
    msgid: Option<Range<usize>>,
    data: Vec<Element>,
    text: Range<usize>,
}

#[derive(Debug, Default, PartialEq)]
enum When {
    #[default]
    None,
    /// With a date, and perhaps an offset.
    Full(Range<usize>),
    /// A month, a day, nanoseconds of the day; and a year if there is one.
    Short { year: Option<i64>, month: u32, day: u32, nanos: i64 },
}

/// A structured data element: its id, and its parameters.
#[derive(Debug, PartialEq)]
struct Element {
    id: Range<usize>,
    params: Vec<(Range<usize>, String)>,
}

/// Reads a line from left to right.
struct Scan<'a> {
    line: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn rest(&self) -> &[u8] {
        &self.line[self.at..]
    }

    fn take(&mut self, text: &[u8]) -> bool {
        let is_there = self.rest().starts_with(text);
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    /// Up to the next blank, which is passed over; none if there is nothing.
    fn word(&mut self) -> Option<Range<usize>> {
        let len = memchr::memchr(b' ', self.rest()).unwrap_or(self.rest().len());
        let word = self.at..self.at + len;
        self.at = (word.end + 1).min(self.line.len());
        (len > 0).then_some(word)
    }

    /// A word of RFC 5424, where `-` is none.
    fn header(&mut self) -> Option<Option<Range<usize>>> {
        let word = self.word()?;
        let is_nil = self.line[word.clone()] == *b"-";
        Some((!is_nil).then_some(word))
    }

    fn number(&mut self, digits: Range<usize>) -> Option<i64> {
        let len = self.rest().iter().take(digits.end).take_while(|byte| byte.is_ascii_digit()).count();
        let text = std::str::from_utf8(&self.rest()[..len]).ok().filter(|_| len >= digits.start)?;
        let value = text.parse().ok()?;
        self.at += len;
        Some(value)
    }
}

/// Takes a line apart; none if it is no syslog.
fn message(line: &[u8]) -> Option<Message> {
    let mut scan = Scan { line, at: 0 };
    let priority = priority(&mut scan);
    if priority.is_some() && scan.take(b"1 ") {
        return standard(&mut scan, priority);
    }
    let time = short(&mut scan).or_else(|| {
        scan.at = if priority.is_some() { memchr::memchr(b'>', line)? + 1 } else { 0 };
        let word = scan.word()?;
        let text = std::str::from_utf8(&line[word.clone()]).ok()?;
        (text.len() >= 19 && iso8601::parse(text, &Zone::UTC).is_some()).then_some(When::Full(word))
    })?;
    let mut message = Message { priority, time, ..Message::default() };
    // a line that its own host wrote may name none
    if !is_tag(next_word(&scan)) {
        message.host = scan.word();
    }
    tag(&mut scan, &mut message);
    message.text = scan.at..line.len();
    Some(message)
}

fn priority(scan: &mut Scan<'_>) -> Option<u16> {
    let was = scan.at;
    let value = (scan.take(b"<")).then(|| scan.number(1..3)).flatten();
    let value = value.filter(|_| scan.take(b">")).and_then(|value| u16::try_from(value).ok());
    if value.is_none_or(|value| value > PRIORITY_MAX) {
        scan.at = was;
    }
    value.filter(|value| *value <= PRIORITY_MAX)
}

/// RFC 5424, behind its version.
fn standard(scan: &mut Scan<'_>, priority: Option<u16>) -> Option<Message> {
    let time = scan.header()?;
    if let Some(time) = &time {
        Time::rfc3339(&scan.line[time.clone()])?;
    }
    let time = time.map_or(When::None, When::Full);
    let (host, program, pid, msgid) = (scan.header()?, scan.header()?, scan.header()?, scan.header()?);
    let data = structured(scan)?;
    if !scan.rest().is_empty() && !scan.take(b" ") {
        return None;
    }
    scan.take(b"\xef\xbb\xbf");
    Some(Message { priority, time, host, program, pid, msgid, data, text: scan.at..scan.line.len() })
}

fn structured(scan: &mut Scan<'_>) -> Option<Vec<Element>> {
    let mut elements = Vec::new();
    if scan.take(b"-") {
        return Some(elements);
    }
    while scan.take(b"[") {
        let id = name(scan)?;
        let mut params = Vec::new();
        while scan.take(b" ") {
            let key = name(scan)?;
            if !scan.take(b"=\"") {
                return None;
            }
            params.push((key, quoted(scan)?));
        }
        if !scan.take(b"]") {
            return None;
        }
        elements.push(Element { id, params });
    }
    (!elements.is_empty()).then_some(elements)
}

fn name(scan: &mut Scan<'_>) -> Option<Range<usize>> {
    let ends = |byte: &u8| matches!(byte, b'=' | b' ' | b']' | b'"');
    let len = scan.rest().iter().position(ends).filter(|len| *len > 0)?;
    let name = scan.at..scan.at + len;
    scan.at += len;
    Some(name)
}

/// Up to the quote that ends a value; a backslash guards `"`, `\` and `]`, and stays before anything else.
fn quoted(scan: &mut Scan<'_>) -> Option<String> {
    let mut value = Vec::new();
    loop {
        match scan.rest() {
            [b'"', ..] => {
                scan.at += 1;
                return String::from_utf8(value).ok();
            }
            [b'\\', guarded @ (b'"' | b'\\' | b']'), ..] => {
                value.push(*guarded);
                scan.at += 2;
            }
            [byte, ..] => {
                value.push(*byte);
                scan.at += 1;
            }
            [] => return None,
        }
    }
}

/// `Mar 12 10:00:00`, the day of one digit behind a blank or two; with a year behind the day as some devices write
/// it, and decimals.
fn short(scan: &mut Scan<'_>) -> Option<When> {
    let month = MONTHS.iter().position(|name| scan.rest().starts_with(&name[..]))? as u32 + 1;
    scan.at += 3;
    if !scan.take(b" ") {
        return None;
    }
    scan.take(b" ");
    let day = u32::try_from(scan.number(1..2)?).ok()?;
    if !scan.take(b" ") {
        return None;
    }
    let mut year = None;
    if scan.rest().get(4) == Some(&b' ') {
        year = Some(scan.number(4..4)?);
        scan.take(b" ");
    }
    let hour = scan.number(2..2)?;
    let minute = scan.take(b":").then(|| scan.number(2..2)).flatten()?;
    let second = scan.take(b":").then(|| scan.number(2..2)).flatten()?;
    let mut nanos = ((hour * 60 + minute) * 60 + second) * NANOS_A_SECOND;
    if scan.take(b".") {
        let (from, decimals) = (scan.at, scan.number(1..9)?);
        nanos += decimals * 10_i64.pow(9 - (scan.at - from) as u32);
    }
    let ends = matches!(scan.rest(), [] | [b' ' | b':', ..]);
    let is_time = hour < 24 && minute < 60 && second < 60;
    if !ends || !is_time || !(1..=31).contains(&day) {
        return None;
    }
    scan.take(b":");
    scan.take(b" ");
    Some(When::Short { year, month, day, nanos })
}

fn next_word<'a>(scan: &Scan<'a>) -> &'a [u8] {
    let rest = &scan.line[scan.at..];
    &rest[..memchr::memchr(b' ', rest).unwrap_or(rest.len())]
}

/// `program:`, `program[pid]:`.
fn is_tag(word: &[u8]) -> bool {
    word.len() > 1 && word.ends_with(b":")
}

/// The program and its process, behind which the text begins.
fn tag(scan: &mut Scan<'_>, message: &mut Message) {
    let word = next_word(scan);
    if !is_tag(word) {
        return;
    }
    let start = scan.at;
    let name_len = memchr::memchr(b'[', word).unwrap_or(word.len() - 1);
    if name_len > 0 {
        message.program = Some(start..start + name_len);
    }
    if word.ends_with(b"]:") && name_len + 1 < word.len() - 2 {
        message.pid = Some(start + name_len + 1..start + word.len() - 2);
    }
    scan.at += word.len();
    scan.take(b" ");
}

/// The latest year in which a date does not lie after `day`, within what clocks and zones may differ.
fn year_until(day: i64, month: u32, of_month: u32) -> Option<i64> {
    let latest = day + DAYS_AHEAD;
    let (year, ..) = civil_from_days(latest);
    (year - YEARS_BACK..=year)
        .rev()
        .find(|year| of_month <= days_in_month(*year, month) && days_from_civil(*year, month, of_month) <= latest)
}

impl Syslog {
    pub fn build(config: &Config) -> Syslog {
        Syslog { timezone: config.timezone, year: config.year, fields: Fields::new(config.ecs) }
    }

    fn set_time(&self, event: &mut EventMut<'_>, line: Span, when: &When, day: Option<i64>) {
        let time = match when {
            When::None => None,
            When::Full(text) => {
                let span = part(line, text);
                if Time::rfc3339(event.bytes(span)).is_some() {
                    event.set_span(&self.fields.timestamp, span);
                    return;
                }
                std::str::from_utf8(event.bytes(span)).ok().and_then(|text| iso8601::parse(text, &self.timezone))
            }
            When::Short { year, month, day: of_month, nanos } => {
                let year = year.or(self.year).or_else(|| year_until(day?, *month, *of_month));
                let year = year.filter(|year| *of_month <= days_in_month(*year, *month));
                let days = year.map(|year| days_from_civil(year, *month, *of_month));
                days.and_then(|days| self.timezone.resolve_lenient(Local { days, nanos: *nanos }))
            }
        };
        if let Some(time) = time {
            event.set_iso(&self.fields.timestamp, time);
        }
    }

    fn fill(&self, event: &mut EventMut<'_>, line: Span, message: &Message, day: Option<i64>) {
        let fields = &self.fields;
        self.set_time(event, line, &message.time, day);
        if let Some(priority) = message.priority {
            event.set(&fields.priority, New::Int(priority.into()));
            let (facility, severity) = (priority >> 3, priority & 7);
            for ([code, name], value, names) in
                [(&fields.facility, facility, &FACILITIES[..]), (&fields.severity, severity, &SEVERITIES[..])]
            {
                event.set(code, New::Int(value.into()));
                if let Some(label) = names.get(usize::from(value)) {
                    event.set(name, New::Text(label));
                }
            }
        }
        let texts = [
            (&fields.host, &message.host),
            (&fields.program, &message.program),
            (&fields.pid, &message.pid),
            (&fields.msgid, &message.msgid),
        ];
        for (field, text) in texts {
            if let Some(text) = text {
                event.set_span(field, part(line, text));
            }
        }
        if !message.data.is_empty() {
            let data = data_json(event.bytes(line), &message.data);
            event.set(&fields.data, New::Json(&data));
        }
        event.set_span(&fields.message, part(line, &message.text));
    }
}

fn part(line: Span, range: &Range<usize>) -> Span {
    Span::new(line.start as usize + range.start, range.len())
}

/// `{"id": {"name": "value"}}`; a name that comes again has a list, an id that does is one object.
fn data_json(line: &[u8], elements: &[Element]) -> Vec<u8> {
    let mut out = vec![b'{'];
    let by_id = grouped(elements.iter().map(|Element { id, params }| (&line[id.clone()], params)));
    for (at, (id, params)) in by_id.iter().enumerate() {
        separate(at, &mut out);
        json::write_string(id, &mut out);
        out.extend_from_slice(b":{");
        let params = params.iter().copied().flatten();
        let by_name = grouped(params.map(|(name, value)| (&line[name.clone()], value.as_ref())));
        for (at, (name, values)) in by_name.iter().enumerate() {
            separate(at, &mut out);
            json::write_string(name, &mut out);
            out.push(b':');
            write_values(values, &mut out);
        }
        out.push(b'}');
    }
    out.push(b'}');
    out
}

/// What comes under one name, by the order of the names.
fn grouped<'a, T>(named: impl Iterator<Item = (&'a [u8], T)>) -> Vec<(&'a [u8], Vec<T>)> {
    let (mut groups, mut places) = (Vec::<(&[u8], Vec<T>)>::new(), HashMap::new());
    for (name, value) in named {
        let place = *places.entry(name).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, values)) => values.push(value),
            None => groups.push((name, vec![value])),
        }
    }
    groups
}

fn write_values(values: &[&str], out: &mut Vec<u8>) {
    if let [value] = values {
        return json::write_string(value.as_bytes(), out);
    }
    out.push(b'[');
    for (at, value) in values.iter().enumerate() {
        separate(at, out);
        json::write_string(value.as_bytes(), out);
    }
    out.push(b']');
}

fn separate(at: usize, out: &mut Vec<u8>) {
    if at > 0 {
        out.push(b',');
    }
}

impl Codec for Syslog {
    fn name(&self) -> &'static str {
        "syslog"
    }

    fn reads_day(&self) -> bool {
        self.year.is_none()
    }

    fn decode(&self, batch: &mut Batch, records: &[Record]) {
        let (utf8, day) = (batch.is_utf8(), batch.source().day);
        for record in records {
            let line = Charset::Utf8.place(batch, record.span, utf8);
            let message = message(batch.bytes(line));
            let mut event = batch.push(record.span, record.offset);
            match message {
                Some(message) => self.fill(&mut event, line, &message, day),
                None => {
                    event.set_span(&self.fields.message, line);
                    event.add_tag(FAILURE);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Source;
    use crate::codec::cut_lines;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn config() -> Config {
        Config { timezone: Zone::UTC, year: None, ecs: false }
    }

    fn decode(config: &Config, written: &str, bytes: &[u8]) -> Vec<String> {
        let mut records = Vec::new();
        cut_lines(bytes, 0, &mut records);
        let day = Time::rfc3339(format!("{written}T00:00:00Z").as_bytes()).map(|time| time.day());
        let mut batch = Batch::new(bytes.to_vec(), Arc::new(Source { day, ..Source::default() }));
        Syslog::build(config).decode(&mut batch, &records);
        let show = |at| {
            let mut out = Vec::new();
            batch.event(at).write_source(&mut out);
            String::from_utf8(out).unwrap()
        };
        (0..batch.len()).map(show).collect()
    }

    #[test]
    fn messages() {
        let five = r#"{"@timestamp":"2026-03-12T10:00:00.003000+01:00","priority":165,"facility":20,"facility_label":"local4","severity":5,"severity_label":"notice","logsource":"web-1","program":"app","pid":"8710","msgid":"ID47","structured_data":{"a@1":{"x":["1","2"],"y":"]\"\\q"},"b":{}},"message":"é"}"#;
        let old = |more: &str| format!(r#"{{"@timestamp":"2026-03-12T10:00:00.000Z",{more}}}"#);
        for (line, want) in [
            (
                "<165>1 2026-03-12T10:00:00.003000+01:00 web-1 app 8710 ID47 [a@1 x=\"1\" y=\"\\]\\\"\\q\" x=\"2\"][b] \u{feff}é",
                five.to_string(),
            ),
            (
                "<0>1 - - - - - -",
                r#"{"priority":0,"facility":0,"facility_label":"kernel","severity":0,"severity_label":"emergency","message":""}"#.to_string(),
            ),
            (
                "<0>1 - - - - - [a x=\"1\"][b][a y=\"2\" x=\"3\"]",
                r#"{"priority":0,"facility":0,"facility_label":"kernel","severity":0,"severity_label":"emergency","structured_data":{"a":{"x":["1","3"],"y":"2"},"b":{}},"message":""}"#.to_string(),
            ),
            ("Mar 12 10:00:00 web-1 sshd[17]: Accepted key", old(r#""logsource":"web-1","program":"sshd","pid":"17","message":"Accepted key""#)),
            ("Mar 12 10:00:00 web-1 kernel: [ 1.5] eth0: up", old(r#""logsource":"web-1","program":"kernel","message":"[ 1.5] eth0: up""#)),
            ("Mar 12 10:00:00 cron: done", old(r#""program":"cron","message":"done""#)),
            ("Mar 12 10:00:00 web-1 no tag: here", old(r#""logsource":"web-1","message":"no tag: here""#)),
            ("Mar 12 2026 10:00:00 fw-1 : %ASA-4-1: x", old(r#""logsource":"fw-1","message":": %ASA-4-1: x""#)),
            ("Mar 12 2026 10:00:00: %ASA-4-1: x", old(r#""program":"%ASA-4-1","message":"x""#)),
            ("2026-03-12T10:00:00+00:00 web-1 a[b]: c", r#"{"@timestamp":"2026-03-12T10:00:00+00:00","logsource":"web-1","program":"a","pid":"b","message":"c"}"#.to_string()),
            ("Mar  2 10:00:00.25 h p: c", r#"{"@timestamp":"2026-03-02T10:00:00.250Z","logsource":"h","program":"p","message":"c"}"#.to_string()),
            ("nothing of it", r#"{"message":"nothing of it","tags":["_syslogparsefailure"]}"#.to_string()),
        ] {
            assert_eq!(decode(&config(), "2026-03-12", line.as_bytes()), [want], "{line}");
        }
    }

    #[test]
    fn what_is_no_syslog() {
        for line in [
            "",
            "<165>",
            "<165>1",
            "<192>1 - - - - - -",
            "<1>1 - - - - - [",
            "<1>1 - - - - - [a x=\"1]",
            "<1>1 - - - - - [a]b",
            "<1>1 yesterday - - - - -",
            "Mar 12",
            "Mar 32 10:00:00 h",
            "Mar 12 24:00:00 h",
            "Mar 12 10:00:00x h",
            "2026-03-12 h",
        ] {
            let want = format!(r#"{{"message":{},"tags":["_syslogparsefailure"]}}"#, serde_json::Value::from(line));
            assert_eq!(decode(&config(), "2026-03-12", format!("{line}\n").as_bytes()), [want], "{line}");
        }
    }

    #[test]
    fn the_year_is_that_of_the_source() {
        let zoned = Config { timezone: Zone::parse("Europe/Berlin").unwrap(), ..config() };
        for (config, written, line, want) in [
            (config(), "2026-03-12", "Dec 31 23:59:59", "2025-12-31T23:59:59.000Z"),
            (config(), "2026-12-31", "Jan  1 00:00:00", "2027-01-01T00:00:00.000Z"),
            (config(), "2026-12-30", "Jan  3 00:00:00", "2026-01-03T00:00:00.000Z"),
            (config(), "2027-01-01", "Dec 31 23:00:00", "2026-12-31T23:00:00.000Z"),
            (config(), "2026-03-12", "Feb 29 10:00:00", "2024-02-29T10:00:00.000Z"),
            (Config { year: Some(2019), ..config() }, "2026-03-12", "Mar 12 10:00:00", "2019-03-12T10:00:00.000Z"),
            (config(), "2026-03-12", "Mar 12 2018 10:00:00", "2018-03-12T10:00:00.000Z"),
            (zoned, "2026-07-12", "Jul 12 10:00:00", "2026-07-12T08:00:00.000Z"),
        ] {
            let want = format!(r#"{{"@timestamp":"{want}","logsource":"h","program":"p","message":"m"}}"#);
            assert_eq!(decode(&config, written, format!("{line} h p: m").as_bytes()), [want], "{written} {line}");
        }
        let unknown = decode(&config(), "", b"Mar 12 10:00:00 h p: m");
        assert_eq!(unknown, [r#"{"logsource":"h","program":"p","message":"m"}"#]);
    }

    #[test]
    fn names_of_the_elastic_common_schema() {
        let ecs = Config { ecs: true, ..config() };
        let want = r#"{"log":{"syslog":{"priority":34,"facility":{"code":4,"name":"security/authorization"},"severity":{"code":2,"name":"critical"},"msgid":"m"}},"host":{"hostname":"h"},"process":{"name":"su","pid":"7"},"message":"no"}"#;
        assert_eq!(decode(&ecs, "2026-03-12", b"<34>1 - h su 7 m - no"), [want]);
    }

    proptest! {
        #[test]
        fn any_line_is_one_event(line in "(<[0-9]{1,3}>)?(1 )?[-MarDec0-9T:Z. \\[\\]=\"\\\\é]{0,40}") {
            prop_assert_eq!(decode(&config(), "2026-03-12", format!("{line}\n").as_bytes()).len(), 1);
        }
    }
}
