//! `type = "fingerprint"`: a digest of fields, written to a field; options and results are those of Logstash's filter.
//! For document ids `[id]` is the shorter way: this filter is for pipelines that keep Logstash's, and for digests that
//! are stored.
//!
//! ```toml
//! [[filter]]
//! type   = "fingerprint"
//! source = ["user", "message"]
//! target = "[@metadata][fingerprint]"
//! method = "SHA256"
//! concatenate_sources = true
//! ```

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use regex::Regex;

use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, EventRef, New, View};
use crate::config::{Secret, Section};
use crate::field::FieldRef;
use crate::id::digest::{DIGEST_BYTES_MAX, Digest, Method};
use crate::id::encode::Encoding;
use crate::id::logstash::Generation;
use crate::id::serial::{self, Scratch, Serialization};
use crate::id::{number, uuid};
use crate::json;
use crate::secret;

/// On an event whose value has no fingerprint (Logstash's worker would stop): no address, no text, no such place.
const FAILURE_TAG: &str = "_fingerprintfailure";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Digest(Method),
    /// A random version 4 UUID.
    Uuid,
    /// The punctuation and symbols of a text.
    Punctuation,
    /// An address with all but the first `key` bits cleared.
    Network,
}

/// The methods by name.
pub const WAYS: [(&str, Way); 10] = [
    ("SHA1", Way::Digest(Method::Sha1)),
    ("SHA256", Way::Digest(Method::Sha256)),
    ("SHA384", Way::Digest(Method::Sha384)),
    ("SHA512", Way::Digest(Method::Sha512)),
    ("MD5", Way::Digest(Method::Md5)),
    ("MURMUR3", Way::Digest(Method::Murmur3)),
    ("MURMUR3_128", Way::Digest(Method::Murmur3x128)),
    ("IPV4_NETWORK", Way::Network),
    ("UUID", Way::Uuid),
    ("PUNCTUATION", Way::Punctuation),
];

#[derive(Clone, Debug)]
pub struct Config {
    pub source: Vec<FieldRef>,
    /// None: `fingerprint`, or `[event][hash]` with `ecs_compatibility`.
    pub target: Option<FieldRef>,
    pub method: Way,
    /// The key of an HMAC; of `IPV4_NETWORK` the length of the prefix.
    pub key: Option<Secret>,
    pub base64encode: bool,
    pub concatenate_sources: bool,
    pub concatenate_all_fields: bool,
    /// `ecs_compatibility = "v1"` or `"v8"`.
    pub ecs: bool,
    pub serialization: Serialization,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            source: vec![FieldRef::top("message")],
            target: None,
            method: Way::Digest(Method::Sha1),
            key: None,
            base64encode: false,
            concatenate_sources: false,
            concatenate_all_fields: false,
            ecs: false,
            serialization: Serialization::Logstash(Generation::V35),
        }
    }
}

impl Config {
    /// Reads the options; what belongs to every filter is left to the caller.
    pub fn read(t: &Section<'_>) -> Config {
        let defaults = Config::default();
        let serializations = Serialization::NAMES.map(|name| (name, Serialization::parse(name)));
        let config = Config {
            source: t.parsed_each("source", FieldRef::parse).or(defaults.source),
            target: t.parsed("target", FieldRef::parse).optional(),
            method: t.one_of("method", &WAYS).or(defaults.method),
            key: secret::read_now(t, "key", "key_file"),
            base64encode: t.bool("base64encode").or(false),
            concatenate_sources: t.bool("concatenate_sources").or(false),
            concatenate_all_fields: t.bool("concatenate_all_fields").or(false),
            ecs: t.one_of("ecs_compatibility", &[("disabled", false), ("v1", true), ("v8", true)]).or(false),
            serialization: t.one_of("serialization", &serializations).or(None).unwrap_or(defaults.serialization),
        };
        if config.method == Way::Network && !t.has("key") && !t.has("key_file") {
            t.fail_at("method", "IPV4_NETWORK needs `key`, the length of the prefix", "for example: key = \"24\"");
        }
        config
    }
}

pub struct Fingerprint {
    sources: Vec<FieldRef>,
    target: FieldRef,
    work: Work,
    concatenated: Concatenated,
    serialization: Serialization,
}

enum Work {
    /// How it is written; a number as it is where there is no encoding.
    Digest(Box<Digest>, Option<Encoding>),
    Uuid,
    Punctuation(Regex),
    Network(i64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Concatenated {
    No,
    Sources,
    AllFields,
}

/// A value that has no fingerprint.
struct Failed;

thread_local! {
    static SCRATCH: RefCell<(Scratch, Vec<u8>)> = RefCell::default();
}

pub fn build(config: Config) -> Result<Fingerprint, String> {
    let key = config.key.as_ref().map(Secret::reveal);
    let work = match config.method {
        Way::Uuid => Work::Uuid,
        Way::Punctuation => Work::Punctuation(Regex::new(r"[\p{P}\p{S}]+").map_err(|e| e.to_string())?),
        Way::Network => Work::Network(leading_number(key.ok_or("IPV4_NETWORK needs a key, the length of the prefix")?)),
        // Logstash ignores the key here
        Way::Digest(Method::Murmur3) => Work::Digest(Box::new(Digest::new(Method::Murmur3, None)?), None),
        Way::Digest(method) => {
            let key = key.map(str::as_bytes).filter(|_| method != Method::Murmur3x128);
            let encoding = if config.base64encode { Encoding::Base64 } else { Encoding::Hex };
            Work::Digest(Box::new(Digest::new(method, key)?), Some(encoding))
        }
    };
    let concatenated = match (config.concatenate_all_fields, config.concatenate_sources) {
        (true, _) => Concatenated::AllFields,
        (false, true) => Concatenated::Sources,
        (false, false) => Concatenated::No,
    };
    let mut sources = config.source;
    let joined = concatenated == Concatenated::Sources && config.serialization != Serialization::V1;
    if joined || config.method == Way::Punctuation {
        sources.sort_by(|a, b| a.as_str().cmp(b.as_str()));
    }
    let target = match config.target {
        Some(target) => target,
        None if config.ecs => FieldRef::parse("[event][hash]")?,
        None => FieldRef::top("fingerprint"),
    };
    Ok(Fingerprint { sources, target, work, concatenated, serialization: config.serialization })
}

impl Filter for Fingerprint {
    fn apply(&self, event: &mut EventMut<'_>, _clock: &Clock) -> Applied {
        SCRATCH.with_borrow_mut(|(scratch, result)| {
            result.clear();
            let done = match self.result(&event.read(), scratch, result) {
                Ok(true) => event.set(&self.target, New::Json(result)),
                // none of the sources is there: nothing is written, and that is no failure
                Ok(false) => true,
                Err(Failed) => false,
            };
            if done {
                Applied::Matched
            } else {
                event.add_tag(FAILURE_TAG);
                Applied::Unmatched
            }
        })
    }

    fn random(&self) -> Option<&FieldRef> {
        matches!(self.work, Work::Uuid).then_some(&self.target)
    }
}

impl Fingerprint {
    /// Writes the fingerprint as JSON; false if there is none.
    fn result(&self, event: &EventRef<'_>, scratch: &mut Scratch, out: &mut Vec<u8>) -> Result<bool, Failed> {
        if let Work::Uuid = self.work {
            out.push(b'"');
            uuid::write_v4(out);
            out.push(b'"');
            return Ok(true);
        }
        let punctuation = matches!(self.work, Work::Punctuation(_));
        if self.concatenated != Concatenated::No && !punctuation {
            self.concatenate(event, scratch);
            self.of_bytes(&scratch.bytes, out)?;
            return Ok(true);
        }
        // each source overwrites what the one before it wrote, so only the last one counts
        let present = self.sources.iter().rev().find_map(|field| Some((field, self.value(event, field)?)));
        let Some((field, value)) = present else { return Ok(false) };
        match &value {
            View::Array(items) if self.serialization != Serialization::V1 && !punctuation => {
                out.push(b'[');
                for (at, (_, item)) in items.entries().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    self.of_value(event, None, &item, scratch, out)?;
                }
                out.push(b']');
            }
            value => self.of_value(event, Some(field), value, scratch, out)?,
        }
        Ok(true)
    }

    fn value<'a>(&self, event: &EventRef<'a>, field: &FieldRef) -> Option<View<'a>> {
        let versioned = self.serialization != Serialization::V1 && serial::is_version(field);
        event.get(field).or_else(|| versioned.then(|| View::Text("1".into())))
    }

    fn concatenate(&self, event: &EventRef<'_>, scratch: &mut Scratch) {
        let mut all: Vec<FieldRef> = Vec::new();
        let fields = if self.concatenated == Concatenated::AllFields {
            all.extend(event.fields().entries().map(|(name, _)| FieldRef::top(&name)));
            if self.serialization != Serialization::V1 && !all.iter().any(serial::is_version) {
                all.push(FieldRef::top("@version"));
            }
            all.sort_by(|a, b| a.as_str().cmp(b.as_str()));
            &all
        } else {
            &self.sources
        };
        let Scratch { bytes, sort } = scratch;
        bytes.clear();
        match self.serialization {
            Serialization::V1 => serial::v1(event, fields, sort, bytes),
            Serialization::Logstash(generation) => serial::logstash(event, fields, generation, sort, bytes),
        }
    }

    /// The fingerprint of one value; `field` is where it stands, unless it is one of an array.
    fn of_value(
        &self,
        event: &EventRef<'_>,
        field: Option<&FieldRef>,
        value: &View<'_>,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        match (&self.work, value) {
            (Work::Digest(digest, _), View::Number(text)) if self.serialization != Serialization::V1 => {
                if let Some((bytes, len)) = integer_bytes(digest.method(), text) {
                    return self.of_bytes(&bytes[..len], out);
                }
            }
            (Work::Punctuation(kept), View::Text(text)) => {
                let kept: String = kept.find_iter(text).map(|found| found.as_str()).collect();
                json::write_string(kept.as_bytes(), out);
                return Ok(());
            }
            (Work::Punctuation(_), _) => return Err(Failed),
            _ => {}
        }
        let Scratch { bytes, sort } = scratch;
        let timed = field.is_some_and(|field| field.is_timestamp() && event.time().is_some());
        if let (View::Text(text), false) = (value, timed) {
            return self.of_bytes(text.as_bytes(), out);
        }
        bytes.clear();
        match (self.serialization, field) {
            (Serialization::Logstash(generation), Some(field)) => {
                serial::logstash_value(event, field, Some(value), generation, sort, bytes);
            }
            (Serialization::Logstash(generation), None) => generation.write(value, sort, bytes),
            (Serialization::V1, field) => serial::v1(event, field.map_or(&[], std::slice::from_ref), sort, bytes),
        }
        self.of_bytes(bytes, out)
    }

    fn of_bytes(&self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Failed> {
        match &self.work {
            Work::Digest(digest, encoding) => {
                let mut digested = [0; DIGEST_BYTES_MAX];
                let len = digest.digest(bytes, &mut digested);
                match encoding {
                    Some(encoding) => {
                        out.push(b'"');
                        encoding.write(&digested[..len], out);
                        out.push(b'"');
                    }
                    None => {
                        let number = digested[..len].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
                        crate::time::digits(out, number, 1);
                    }
                }
                Ok(())
            }
            Work::Network(prefix) => {
                let text = std::str::from_utf8(bytes).map_err(|_| Failed)?;
                let network = network(text, *prefix).ok_or(Failed)?;
                json::write_string(network.as_bytes(), out);
                Ok(())
            }
            Work::Uuid | Work::Punctuation(_) => Err(Failed),
        }
    }
}

/// What the murmurs hash of an integer: not its text but its bytes, little-endian.
fn integer_bytes(method: Method, text: &str) -> Option<([u8; 8], usize)> {
    if !matches!(method, Method::Murmur3 | Method::Murmur3x128) || !number::is_integer(text) {
        return None;
    }
    let value: i64 = text.parse().ok()?;
    let short = method == Method::Murmur3x128 && i32::try_from(value).is_ok();
    Some((value.to_le_bytes(), if short { 4 } else { 8 }))
}

/// The number a text begins with, and zero if it begins with none.
fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let value = digits[..end].bytes().fold(0i64, |n, b| n.saturating_mul(10).saturating_add(i64::from(b - b'0')));
    if text.starts_with('-') { -value } else { value }
}

/// An address with the bits behind the prefix cleared; none if it is no address or has fewer bits.
fn network(text: &str, prefix: i64) -> Option<String> {
    let prefix = u32::try_from(prefix).ok()?;
    match text.parse().ok()? {
        IpAddr::V4(address) => {
            let cleared = 32u32.checked_sub(prefix)?;
            let mask = u32::MAX.checked_shl(cleared).unwrap_or(0);
            Some(Ipv4Addr::from_bits(address.to_bits() & mask).to_string())
        }
        IpAddr::V6(address) => {
            let cleared = 128u32.checked_sub(prefix)?;
            let mask = u128::MAX.checked_shl(cleared).unwrap_or(0);
            Some(Ipv6Addr::from_bits(address.to_bits() & mask).to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        for (address, prefix, want) in [
            ("123.123.123.123", 24, Some("123.123.123.0")),
            ("10.1.2.3", 0, Some("0.0.0.0")),
            ("10.1.2.3", 32, Some("10.1.2.3")),
            ("10.1.2.3", 33, None),
            ("10.1.2.3", -1, None),
            ("10.1.2", 8, None),
            ("host", 8, None),
            ("", 8, None),
            ("2001:db8:1:2:3:4:5:6", 32, Some("2001:db8::")),
            ("::ffff:10.1.2.3", 120, Some("::ffff:10.1.2.0")),
        ] {
            assert_eq!(network(address, prefix).as_deref(), want, "{address}/{prefix}");
        }
    }

    #[test]
    fn prefixes() {
        for (key, want) in [("24", 24), ("abc", 0), ("", 0), (" 16x", 16), ("-3", -3), ("8.9", 8)] {
            assert_eq!(leading_number(key), want, "{key}");
        }
    }

    #[test]
    fn what_has_no_fingerprint_is_tagged() {
        for (method, key, event) in [
            (Way::Network, Some("24"), r#"{"message":"not an address"}"#),
            (Way::Network, Some("24"), r#"{"message":["10.0.0.1",7]}"#),
            (Way::Punctuation, None, r#"{"message":7}"#),
            (Way::Digest(Method::Md5), None, r#"{"message":"a","fingerprint":{}}"#),
        ] {
            let target = (method == Way::Digest(Method::Md5)).then(|| FieldRef::parse("[message][x]").unwrap());
            let config = Config { method, key: key.map(Secret::new), target, ..Config::default() };
            let filter = build(config).unwrap();
            let mut batch = crate::batch::Batch::default();
            let whole = batch.write(event.as_bytes());
            let mut entries = Vec::new();
            json::Scanner::default().scan(event.as_bytes(), true, &mut entries).unwrap();
            batch.push_json(whole, 0, whole, 0, &entries);
            let clock = Clock { now: crate::time::Time::EPOCH };
            assert_eq!(filter.apply(&mut batch.event_mut(0), &clock), Applied::Unmatched);
            let mut out = Vec::new();
            batch.event(0).write_source(&mut out);
            let stored = String::from_utf8(out).unwrap();
            assert!(stored.ends_with(r#""tags":["_fingerprintfailure"]}"#), "{stored}");
        }
    }
}
