//! `codec = "cef"`: every line is an event in the Common Event Format, with or without a syslog header before it.
//!
//! ```toml
//! [[input]]
//! type  = "file"
//! paths = "/var/log/firewall.cef"
//! codec = { type = "cef", ecs_compatibility = "v8" }
//! ```
//!
//! Short names of extensions become long ones, or with `ecs_compatibility` fields of the Elastic Common Schema, of
//! which the times are read and `rt` is the event's own. What is no CEF is an event with the line in `message` and the
//! tag `_cefparsefailure`; a blank line is dropped.

mod names;
mod times;

use std::collections::HashMap;
use std::ops::Range;

use super::charset::Charset;
use super::{Codec, Record};
use crate::batch::{Batch, EventMut, Fate, New, Span};
use crate::config::Section;
use crate::date::locale::Locale;
use crate::date::zone::Zone;
use crate::field::FieldRef;
use times::Times;

/// The tag of a line that is no CEF.
pub const FAILURE: &str = "_cefparsefailure";

pub struct Config {
    /// Fields of the Elastic Common Schema.
    pub ecs: bool,
    /// The device is the host of the event, not who observed it.
    pub is_host: bool,
    /// Where the line goes as it came.
    pub raw_data_field: Option<FieldRef>,
    /// Of times that name none, if the device's is not told.
    pub default_timezone: Zone,
    /// Whose names of months are read.
    pub locale: std::sync::Arc<Locale>,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Config {
        Config {
            ecs: t.one_of("ecs_compatibility", &[("disabled", false), ("v1", true), ("v8", true)]).or(false),
            is_host: t.one_of("device", &[("observer", false), ("host", true)]).or(false),
            raw_data_field: t.parsed("raw_data_field", FieldRef::parse).optional(),
            default_timezone: t.parsed("default_timezone", Zone::parse).or(Zone::UTC),
            locale: t.parsed("locale", Locale::parse).or(Locale::english()),
        }
    }
}

pub struct Cef {
    header: Vec<FieldRef>,
    syslog: FieldRef,
    /// By each name that an extension may have.
    targets: HashMap<Box<str>, Target>,
    raw: Option<FieldRef>,
    message: FieldRef,
    /// Only with the schema are times read.
    times: Option<Times>,
}

/// Where an extension goes.
#[derive(Debug)]
struct Target {
    field: FieldRef,
    reads: Reads,
}

/// What an extension is, beside a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    Text,
    Time,
    Zone,
}

impl Cef {
    pub fn build(config: Config) -> Result<Cef, String> {
        let field = |[plain, schema]: [&str; 2]| {
            if config.ecs { FieldRef::parse(schema) } else { Ok(FieldRef::top(plain)) }
        };
        let times = config.ecs.then(|| Times::new(config.default_timezone, &config.locale)).transpose()?;
        Ok(Cef {
            header: names::HEADER.into_iter().map(field).collect::<Result<_, _>>()?,
            syslog: field(names::SYSLOG)?,
            targets: targets(config.ecs, config.is_host)?,
            raw: config.raw_data_field,
            message: FieldRef::top("message"),
            times,
        })
    }
}

fn targets(ecs: bool, is_host: bool) -> Result<HashMap<Box<str>, Target>, String> {
    let mut targets: HashMap<Box<str>, Target> = HashMap::new();
    let mut add = |long: &str, short: &str, schema: &str| -> Result<(), String> {
        let reads = match (ecs, long) {
            (true, long) if names::TIMES.contains(&long) => Reads::Time,
            (true, "deviceTimeZone") => Reads::Zone,
            _ => Reads::Text,
        };
        let schema = schema.replace("[@]", if is_host { "[host]" } else { "[observer]" });
        for name in [short, long] {
            let field = if ecs { FieldRef::parse(&schema)? } else { FieldRef::top(long) };
            targets.insert(name.into(), Target { field, reads });
        }
        if ecs && let Some((former, _)) = names::FORMER.iter().find(|(_, now)| *now == long) {
            targets.insert((*former).into(), Target { field: FieldRef::parse(&schema)?, reads });
        }
        Ok(())
    };
    for (long, short, schema) in names::NAMES {
        add(long, short, schema)?;
    }
    for (long, short, schema) in names::BY_DEVICE {
        add(long, short, schema[usize::from(is_host)])?;
    }
    for (long, short, schema) in names::NUMBERED {
        for n in names::NUMBERS {
            add(&format!("{long}{n}"), &format!("{short}{n}"), &format!("[cef][{schema}_{n}][value]"))?;
            add(&format!("{long}{n}Label"), &format!("{short}{n}Label"), &format!("[cef][{schema}_{n}][label]"))?;
        }
    }
    Ok(targets)
}

/// A line taken apart: places in it, with their escapes.
#[derive(Debug, Default)]
struct Message {
    header: [Range<usize>; 7],
    syslog: Option<Range<usize>>,
    extensions: Vec<(Range<usize>, Range<usize>)>,
}

impl Message {
    /// Reads a line; false if it is no CEF.
    fn read(&mut self, line: &str) -> bool {
        self.extensions.clear();
        self.syslog = None;
        let mut whole = 0..line.len();
        // some connectors quote the whole
        if line.starts_with('"') {
            whole = 1..line.len() - usize::from(line.len() > 1 && line.ends_with('"'));
        }
        let line = &line[..whole.end];
        let Some(at) = self.read_header(line, whole.start) else { return false };
        let version = &mut self.header[0];
        if let Some(blank) = line[version.clone()].rfind(' ') {
            self.syslog = Some(version.start..version.start + blank);
            version.start += blank + 1;
        }
        if line[version.clone()].starts_with("CEF:") {
            version.start += "CEF:".len();
        }
        self.read_extensions(line, at)
    }

    /// Seven pieces, each up to a pipe that no backslash guards. Gives where the extensions begin.
    fn read_header(&mut self, line: &str, mut at: usize) -> Option<usize> {
        let bytes = line.as_bytes();
        for piece in &mut self.header {
            let start = at;
            loop {
                match bytes.get(at..)? {
                    [b'|', ..] => break,
                    [b'\\', b'\\' | b'|', ..] => at += 2,
                    [_, ..] => at += 1,
                    [] => return None,
                }
            }
            *piece = start..at;
            at += 1;
        }
        Some(at)
    }

    /// `key=value` after `key=value`: a value goes on over blanks, up to those that a key follows.
    fn read_extensions(&mut self, line: &str, at: usize) -> bool {
        let bytes = &line.as_bytes()[..at + line[at..].trim_end_matches(is_blank).len()];
        let mut at = line.len() - line[at..].trim_start_matches(is_blank).len();
        while at < bytes.len() {
            let Some(equals) = key_end(bytes, at) else { return false };
            let (mut end, mut next) = (equals + 1, bytes.len());
            while end < bytes.len() {
                if !is_blank(bytes[end] as char) {
                    end += 1;
                    continue;
                }
                let blanks = bytes[end..].iter().take_while(|byte| is_blank(**byte as char)).count();
                if key_end(bytes, end + blanks).is_some() {
                    next = end + blanks;
                    break;
                }
                end += blanks;
            }
            self.extensions.push((at..equals, equals + 1..end));
            at = next;
        }
        true
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '\x0b' | '\x0c')
}

/// Where the `=` is behind the key at `at`: a word, perhaps with `.parts` and an `[index]`.
fn key_end(bytes: &[u8], at: usize) -> Option<usize> {
    let while_ = |from: usize, holds: fn(&u8) -> bool| {
        let len = bytes[from.min(bytes.len())..].iter().take_while(|byte| holds(byte)).count();
        (len > 0).then_some(from + len)
    };
    let mut end = while_(at, |byte| byte.is_ascii_alphanumeric() || *byte == b'_')?;
    while bytes.get(end) == Some(&b'.') {
        let is_part = |byte: &u8| !matches!(byte, b'.' | b'=' | b'|' | b'\\' | b'[' | b']') && !is_blank(*byte as char);
        end = while_(end + 1, is_part)?;
    }
    if bytes.get(end) == Some(&b'[') {
        end = while_(end + 1, u8::is_ascii_digit)?;
        end += usize::from(bytes.get(end) == Some(&b']'));
    }
    let is_whole = !bytes[at..end].contains(&b'[') || bytes[end - 1] == b']';
    (bytes.get(end) == Some(&b'=') && is_whole).then_some(end)
}

/// Writes a text with its escapes resolved; `guarded` says what a backslash stands before, and becomes what.
fn unescape(text: &[u8], guarded: fn(u8) -> Option<u8>, out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        match rest.get(at + 1).and_then(|byte| guarded(*byte)) {
            Some(byte) => {
                out.push(byte);
                rest = &rest[at + 2..];
            }
            None => {
                out.push(b'\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out.extend_from_slice(rest);
}

fn in_header(byte: u8) -> Option<u8> {
    matches!(byte, b'\\' | b'|').then_some(byte)
}

fn in_value(byte: u8) -> Option<u8> {
    match byte {
        b'\\' | b'=' => Some(byte),
        b'n' => Some(b'\n'),
        b'r' => Some(b'\r'),
        _ => None,
    }
}

/// A piece of a line that stands in the batch.
fn part(line: Span, range: &Range<usize>) -> Span {
    Span::new(line.start as usize + range.start, range.len())
}

fn set(event: &mut EventMut<'_>, field: &FieldRef, text: Span, guarded: fn(u8) -> Option<u8>) -> bool {
    if !event.bytes(text).contains(&b'\\') {
        return event.set_span(field, text);
    }
    let mut draft = event.take_draft();
    unescape(event.bytes(text), guarded, &mut draft);
    let text = event.write(&draft);
    event.keep_draft(draft);
    event.set_span(field, text)
}

impl Cef {
    /// Sets the fields; false if one of them cannot be set, or a time is none.
    fn fill(&self, event: &mut EventMut<'_>, line: Span, message: &Message, day: Option<i64>) -> bool {
        let mut is_set = true;
        for (field, text) in self.header.iter().zip(&message.header) {
            is_set &= set(event, field, part(line, text), in_header);
        }
        if let Some(text) = &message.syslog {
            is_set &= set(event, &self.syslog, part(line, text), in_header);
        }
        if let Some(times) = &self.times {
            is_set &= self.fill_times(event, line, message, times, day);
        }
        for (key, value) in &message.extensions {
            let (key, value) = (part(line, key), part(line, value));
            let known = self.known(event, key);
            is_set &= match known {
                Some(Target { reads: Reads::Time, .. }) => true,
                Some(target) => set(event, &target.field, value, in_value),
                None => named(event, key).is_some_and(|field| set(event, &field, value, in_value)),
            };
        }
        is_set
    }

    fn known(&self, event: &EventMut<'_>, key: Span) -> Option<&Target> {
        std::str::from_utf8(event.bytes(key)).ok().and_then(|key| self.targets.get(key))
    }

    fn fill_times(
        &self,
        event: &mut EventMut<'_>,
        line: Span,
        message: &Message,
        times: &Times,
        day: Option<i64>,
    ) -> bool {
        let of = |event: &EventMut<'_>, key: &Range<usize>, reads: Reads| {
            self.known(event, part(line, key)).filter(|target| target.reads == reads)
        };
        let zone = message.extensions.iter().rev().find(|(key, _)| of(event, key, Reads::Zone).is_some());
        let zone = zone.map(|(_, value)| part(line, value));
        for (key, value) in &message.extensions {
            let Some(target) = of(event, key, Reads::Time) else { continue };
            let text = String::from_utf8_lossy(event.bytes(part(line, value)));
            if text.trim().is_empty() {
                // a time that is not there is no text
                if !target.field.is_timestamp() {
                    event.set(&target.field, New::Null);
                }
                continue;
            }
            let zone = zone.and_then(|zone| std::str::from_utf8(event.bytes(zone)).ok());
            let Some(time) = times.read(&text, zone, day) else { return false };
            if !event.set_iso(&target.field, time) {
                return false;
            }
        }
        true
    }

    /// The event of a line that is no CEF.
    fn fail(&self, event: &mut EventMut<'_>, line: Span) {
        let names: Vec<FieldRef> = event.read().fields().entries().map(|(name, _)| FieldRef::top(&name)).collect();
        for name in &names {
            event.remove(name);
        }
        event.set_span(&self.message, line);
        event.add_tag(FAILURE);
    }
}

/// The field of a key that is not known: what it is called, or a place in what it is called.
fn named(event: &EventMut<'_>, key: Span) -> Option<FieldRef> {
    let key = std::str::from_utf8(event.bytes(key)).ok()?;
    match key.split_once('[') {
        None => Some(FieldRef::top(key)),
        Some((name, index)) => FieldRef::parse(&format!("[{name}][{index}")).ok(),
    }
}

impl Codec for Cef {
    fn name(&self) -> &'static str {
        "cef"
    }

    fn reads_day(&self) -> bool {
        self.times.is_some()
    }

    fn decode(&self, batch: &mut Batch, records: &[Record]) {
        let (utf8, day, mut message) = (batch.is_utf8(), batch.source().day, Message::default());
        for record in records {
            let line = Charset::Utf8.place(batch, record.span, utf8);
            // what is not UTF-8 is no CEF
            let text = std::str::from_utf8(batch.bytes(record.span)).ok();
            let is_blank = text.is_some_and(|text| text.trim().is_empty());
            let is_read = text.is_some_and(|text| message.read(text));
            let mut event = batch.push(record.span, record.offset);
            if is_blank {
                event.end(Fate::Dropped);
                continue;
            }
            if let Some(raw) = &self.raw {
                event.set_span(raw, line);
            }
            if !is_read || !self.fill(&mut event, line, &message, day) {
                self.fail(&mut event, line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Source;
    use crate::codec::tests::decoded;
    use crate::time::Time;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn config(ecs: bool) -> Config {
        let (default_timezone, locale) = (Zone::UTC, Locale::english());
        Config { ecs, is_host: false, raw_data_field: None, default_timezone, locale }
    }

    fn decode(config: Config, bytes: &[u8]) -> Vec<String> {
        let day = Time::rfc3339(b"2026-03-12T00:00:00Z").unwrap().secs / 86_400;
        let source = Source { day: Some(day), ..Source::default() };
        decoded(&Cef::build(config).unwrap(), bytes, source)
    }

    const HEADER: &str = "CEF:0|v|p|1|c|n|3|";

    /// `want`: what the event has beside its header, or the whole of it if it begins with a brace.
    fn check(config: Config, line: &str, want: &str) {
        let header = r#""cefVersion":"0","deviceVendor":"v","deviceProduct":"p","deviceVersion":"1","deviceEventClassId":"c","name":"n","severity":"3""#;
        let comma = if want.is_empty() { "" } else { "," };
        let whole = if want.starts_with('{') { want.to_string() } else { format!("{{{header}{comma}{want}}}") };
        assert_eq!(decode(config, line.as_bytes()), [whole], "{line}");
    }

    #[test]
    fn headers() {
        for (line, want) in [
            ("CEF:0|v|p|1|c|n|3|", ""),
            (r#""CEF:0|v|p|1|c|n|3|a=b""#, r#""a":"b""#),
            ("Sep 19 08:26:10 host CEF:0|v|p|1|c|n|3|", r#""syslog":"Sep 19 08:26:10 host""#),
            (
                r"CEF:1|se\\c\||\p=|1.\|0||\x\\\\|\|10|",
                r#"{"cefVersion":"1","deviceVendor":"se\\c|","deviceProduct":"\\p=","deviceVersion":"1.|0","deviceEventClassId":"","name":"\\x\\\\","severity":"|10"}"#,
            ),
            ("CEF:0|v|p|1|c|n|3", r#"{"message":"CEF:0|v|p|1|c|n|3","tags":["_cefparsefailure"]}"#),
            (r"a|b|c\|d|e|f", r#"{"message":"a|b|c\\|d|e|f","tags":["_cefparsefailure"]}"#),
            ("\"", r#"{"message":"\"","tags":["_cefparsefailure"]}"#),
        ] {
            check(config(false), line, want);
        }
        let ill_formed = decode(config(false), b"no \xff|1|2|3|4|5|6|");
        assert_eq!(ill_formed, ["{\"message\":\"no \u{fffd}|1|2|3|4|5|6|\",\"tags\":[\"_cefparsefailure\"]}"]);
        let blank = decode(config(false), b" \r\nnone\n");
        assert_eq!(blank, ["dropped", r#"{"message":"none","tags":["_cefparsefailure"]}"#]);
    }

    #[test]
    fn extensions() {
        for (extensions, want) in [
            ("src=10.0.0.1 dst=::1 spt=1", r#""sourceAddress":"10.0.0.1","destinationAddress":"::1","sourcePort":"1""#),
            (
                " src=a  dproc=I E x.y  spt=1 ",
                r#""sourceAddress":"a","destinationProcessName":"I E x.y","sourcePort":"1""#,
            ),
            (r"moo=this =has = equals\= and=", r#""moo":"this =has = equals=","and":"""#),
            (r"moo=a|b\|c \d\", r#""moo":"a|b\\|c \\d\\""#),
            (r"msg=a\=b\nc\rd\\e z=1", r#""message":"a=b\nc\rd\\e","z":"1""#),
            (
                "ad.x=1 ad.E_,C=2 ad.f[0]=3 ad.g.h[12]=4",
                r#""ad.x":"1","ad.E_,C":"2","ad.f":{"0":"3"},"ad.g.h":{"12":"4"}"#,
            ),
            ("c=a[x]=1 b[1=2", r#""c":"a[x]=1 b[1=2""#),
            (r"q=a\=b&c\=d e.f&g\=h end=x", r#""q":"a=b&c=d e.f&g=h","endTime":"x""#),
            ("src=1 src=2 sourceAddress=3", r#""sourceAddress":"3""#),
            ("cs15=s cs15Label=l cs16=t", r#""deviceCustomString15":"s","deviceCustomString15Label":"l","cs16":"t""#),
            ("sourceLatitude=1 destinationTimeZone=2", r#""sourceLatitude":"1","destinationTimeZone":"2""#),
            ("target=aああ", r#""target":"aああ""#),
            ("rt=1500464384997", r#""deviceReceiptTime":"1500464384997""#),
        ] {
            check(config(false), &format!("{HEADER}{extensions}"), want);
        }
        for extensions in ["a[x]=1 b[1=2 c=d", "no pairs", "a[0]=1 a=2 a[1]=3"] {
            let want = format!(r#"{{"message":"{HEADER}{extensions}","tags":["_cefparsefailure"]}}"#);
            check(config(false), &format!("{HEADER}{extensions}"), &want);
        }
        let raw_data_field = FieldRef::parse("[event][original]").ok();
        let got = decode(Config { raw_data_field, ..config(false) }, b"CEF:0|v|p|1|c|n|3|a=1").remove(0);
        assert!(got.starts_with(r#"{"event":{"original":"CEF:0|v|p|1|c|n|3|a=1"},"cefVersion":"0","#), "{got}");
    }

    #[test]
    fn names_of_the_elastic_common_schema() {
        let host = Config { is_host: true, ..config(true) };
        let got = decode(host, format!("{HEADER}dvchost=h dvc=1 deviceExternalId=i").as_bytes()).remove(0);
        assert!(got.contains(r#""host":{"name":"h","ip":"1","id":"i"}"#), "{got}");
        let header = r#"{"cef":{"version":"0","name":"n"},"observer":{"vendor":"v","product":"p","version":"1"},"event":{"code":"c","severity":"3"},"log":{"syslog":{"header":"x"}}"#;
        for (extensions, want) in [
            ("", format!("{header}}}")),
            ("src=1 new=y", format!(r#"{header},"source":{{"ip":"1"}},"new":"y"}}"#)),
            ("dvchost=h", header.replace(r#""version":"1""#, r#""version":"1","hostname":"h""#) + "}"),
            (
                "cn2Label=l cs2=s",
                header.replace(
                    r#""name":"n""#,
                    r#""name":"n","device_custom_number_2":{"label":"l"},"device_custom_string_2":{"value":"s"}"#,
                ) + "}",
            ),
            ("sourceLatitude=7", format!(r#"{header},"source":{{"geo":{{"location":{{"lat":"7"}}}}}}}}"#)),
            ("start= new=y", header.replace(r#""3""#, r#""3","start":null"#) + r#","new":"y"}"#),
            ("rt= new=y", format!(r#"{header},"new":"y"}}"#)),
        ] {
            assert_eq!(decode(config(true), format!("x {HEADER}{extensions}").as_bytes()), [want], "{extensions}");
        }
    }

    #[test]
    fn times() {
        for (extensions, want) in [
            ("rt=1500464384997", "2017-07-19T11:39:44.997Z"),
            ("rt=1500464384997.5", "2017-07-19T11:39:44.997500Z"),
            ("rt=Jul 19 2017 10:50:21.127 dtz=Europe/Moscow", "2017-07-19T07:50:21.127Z"),
            ("dtz=+02:00 rt=Jul 19 2017 10:50:21", "2017-07-19T08:50:21.000Z"),
            ("rt=Jul 19 2017 10:50:21.127456789 UTC dtz=Europe/Moscow", "2017-07-19T10:50:21.127456789Z"),
            ("rt=Jul 19 2017 10:50:21 PDT", "2017-07-19T17:50:21.000Z"),
            ("rt=Mar 12 10:00:00", "2026-03-12T10:00:00.000Z"),
            ("rt=Mar 12 10:00:00.5 America/New_York", "2026-03-12T14:00:00.500Z"),
            ("rt=Mar 15 10:00:00", "2025-03-15T10:00:00.000Z"),
            ("rt=Feb 29 10:00:00", "2024-02-29T10:00:00.000Z"),
            ("rt=Dec 31 10:00:00", "2025-12-31T10:00:00.000Z"),
            ("rt=yesterday", ""),
            ("rt=Mar 12 10:00:00 dtz=Nowhere", ""),
        ] {
            let got = decode(config(true), format!("{HEADER}{extensions}").as_bytes()).remove(0);
            let want = if want.is_empty() { FAILURE.to_string() } else { format!(r#""@timestamp":"{want}""#) };
            assert!(got.contains(&want), "{extensions}: {got}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_one_event(
            line in r#"(CEF:0)?(\|[a |\\]{0,3}){0,8}[a =.\[\]0\\"é]{0,20}"#,
            ecs in any::<bool>(),
        ) {
            let got = decode(config(ecs), line.as_bytes());
            prop_assert_eq!(got.len(), usize::from(!line.is_empty()));
            let is_object = got.first().is_none_or(|event| event.starts_with('{'));
            prop_assert!(line.trim().is_empty() || is_object);
        }

        #[test]
        fn what_is_written_is_read(
            pairs in prop::collection::btree_map("x[a-z_]{1,4}", r"([a-c=\\|é]([a-c=\\ |é]{0,5}[a-c|é])?)?", 0..4),
        ) {
            let quoted = |text: &str| text.replace('\\', r"\\").replace('=', r"\=");
            let line: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={}", quoted(v))).collect();
            let got = decode(config(false), format!("{HEADER}{}", line.join("  ")).as_bytes()).remove(0);
            let mut got: BTreeMap<String, String> = serde_json::from_str(&got).unwrap();
            got.retain(|key, _| key.starts_with('x'));
            prop_assert_eq!(got, pairs);
        }
    }
}
