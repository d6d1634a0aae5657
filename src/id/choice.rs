//! The `[id]` section: which scheme a pipeline's ids are made by.
//!
//! ```toml
//! [id]
//! scheme = "time-hash"       # auto | uuid | hash | time-hash | compact | field
//! method = "MD5"             # MD5 | SHA1 | SHA256 | SHA384 | SHA512 | MURMUR3_128 | MURMUR3 | UUID
//! key = "${FINGERPRINT_KEY:test}"
//! source = ["message"]       # left out: the event's raw bytes
//! ```

use super::compact::Compact;
use super::digest::{Digest, Method};
use super::encode::Encoding;
use super::hash::Hash;
use super::serial::{Content, Digests, Scratch, Serialization};
use super::time_hash::TimeHash;
use super::uuid::Uuid;
use super::{Recipe, Scheme, TimeUnit, definition};
use crate::ack::Reason;
use crate::batch::{Batch, EventRef};
use crate::config::{Help, Section};
use crate::field::FieldRef;
use crate::secret;
use crate::template::Template;
use crate::time::Time;

/// The engines take no longer id, and one that is longer makes them refuse the whole request.
pub const ID_BYTES_MAX: usize = 512;

/// How the events of a pipeline get their ids.
pub enum Ids {
    /// The engine's own.
    Auto,
    /// From the event as it stands.
    Field(Template),
    Made(Box<Recipe>),
}

impl Ids {
    /// What stands in for the engine's own ids where there is no engine.
    pub fn sortable_uuid() -> Ids {
        Ids::Made(Box::new(Recipe { scheme: Box::new(Uuid::V7), hashed: None }))
    }

    /// The fields that ids are made of without a hash.
    pub fn fields(&self) -> impl Iterator<Item = &FieldRef> {
        let template = if let Ids::Field(template) = self { Some(template) } else { None };
        template.into_iter().flat_map(Template::fields)
    }

    /// Hashes the live events of a batch, for [`Ids::write`].
    pub fn digest(&self, batch: &Batch, scratch: &mut Scratch, digests: &mut Digests) {
        if let Ids::Made(recipe) = self {
            recipe.digest_batch(batch, scratch, digests);
        }
    }

    /// Writes the id of an event that a filter made, once [`Ids::write`] has given it that of another event of its
    /// record: it differs from every other, if ids are made of a hash. The user's own field is taken as it is.
    pub fn write_apart(
        &self,
        event: &EventRef<'_>,
        time: Time,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<(), (Reason, String)> {
        let Ids::Made(recipe) = self else { return Ok(()) };
        out.clear();
        let written = recipe.write_apart(event, time, scratch, out);
        written.map_err(|refused| (refused.reason(), refused.to_string()))
    }

    /// Writes the event's id; false where only the engine will know it. When it refuses, `out` may hold a part.
    pub fn write(
        &self,
        event: &EventRef<'_>,
        time: Time,
        digests: &Digests,
        out: &mut Vec<u8>,
    ) -> Result<bool, (Reason, String)> {
        match self {
            Ids::Auto => return Ok(false),
            Ids::Made(recipe) => {
                let written = recipe.write_digested(event.index(), time, digests, out);
                written.map_err(|refused| (refused.reason(), refused.to_string()))?;
            }
            Ids::Field(template) => {
                template.render_strict(event, out).map_err(|e| (Reason::IdMissing, format!("no id: {e}")))?;
                if out.is_empty() {
                    return Err((Reason::IdMissing, "the id is empty".to_string()));
                }
            }
        }
        if out.len() > ID_BYTES_MAX {
            return Err((Reason::IdTooLong, format!("the id has {} bytes, {ID_BYTES_MAX} are allowed", out.len())));
        }
        Ok(true)
    }
}

/// What was read of `[id]`, for the pipeline and for `check`.
pub struct Choice {
    pub ids: Ids,
    /// The id in one line, comparable between versions and machines.
    pub definition: String,
    /// The same event read again gets the same id.
    pub repeatable: bool,
    /// The fields that are hashed; none where the raw bytes are.
    pub source: Vec<FieldRef>,
    pub raw: bool,
    /// Several fields are hashed and nobody said by which rule.
    pub rule_assumed: bool,
    pub keep: bool,
    /// What is said of a digest that is short.
    pub odds: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Auto,
    Uuid,
    Hash,
    TimeHash,
    Compact,
    Field,
}

const SCHEMES: &[(&str, Kind)] = &[
    ("auto", Kind::Auto),
    ("uuid", Kind::Uuid),
    ("hash", Kind::Hash),
    ("time-hash", Kind::TimeHash),
    ("compact", Kind::Compact),
    ("field", Kind::Field),
];

impl Choice {
    /// `rate`: how many events a second to reckon collisions with.
    pub fn read(t: &Section<'_>, rate: f64, events_in_index: f64) -> Option<Choice> {
        let kind = t.one_of("scheme", SCHEMES).required();
        let Some(kind) = kind else {
            t.skip_rest();
            return None;
        };
        match kind {
            Kind::Auto => Some(random(Ids::Auto, "the engine's own ids".to_string())),
            Kind::Field => {
                let template = t.parsed("field", Template::parse_stable).required()?;
                let definition = format!("the field {}", template.as_str());
                Some(Choice { repeatable: true, ..random(Ids::Field(template), definition) })
            }
            Kind::Uuid => {
                let wanted = t.integer("version", 4..=7).or(Uuid::VERSION_DEFAULT);
                let Some(version) = Uuid::version(wanted) else {
                    t.fail_at("version", format!("there is no version {wanted} here"), Help::allowed(["4", "7"]));
                    return None;
                };
                let definition = definition(&version, "", None, false);
                Some(random(Ids::Made(Box::new(Recipe { scheme: Box::new(version), hashed: None })), definition))
            }
            Kind::Hash | Kind::TimeHash | Kind::Compact => hashed(t, kind, rate, events_in_index),
        }
    }
}

fn random(ids: Ids, definition: String) -> Choice {
    let (source, raw) = (Vec::new(), false);
    Choice { ids, definition, repeatable: false, source, raw, rule_assumed: false, keep: false, odds: None }
}

fn hashed(t: &Section<'_>, kind: Kind, rate: f64, events_in_index: f64) -> Option<Choice> {
    let mut methods: Vec<(&str, Option<Method>)> = Method::ALL.into_iter().map(|m| (m.name(), Some(m))).collect();
    if kind == Kind::TimeHash {
        methods.push(("UUID", None));
    }
    let method = t.one_of("method", &methods).required();
    let scheme = match method {
        Some(method) => scheme(t, kind, method),
        None => {
            t.skip_rest();
            None
        }
    };
    let key = secret::read_now(t, "key", "key_file");
    let source = t.parsed_each("source", FieldRef::parse).optional();
    let rule = t.parsed("serialization", |name| {
        Serialization::parse(name).ok_or_else(|| format!("`{name}` is none of {}", Serialization::NAMES.join(", ")))
    });
    let rule = rule.optional();
    let keep = t.one_of("repeats", &[("merge", false), ("keep", true)]).or(false);
    let serialization = rule.unwrap_or(Serialization::V1);
    let content = Content::new(source.clone(), serialization, keep);
    if let Err(why) = &content {
        t.fail_quoting("source", why.as_str(), "leave `source` out to hash the event's raw bytes");
    }
    let scheme = scheme?;
    let Some(method) = method? else {
        let unused = ["key", "key_file", "source", "serialization", "repeats"].into_iter().find(|key| t.has(key));
        if let Some(key) = unused {
            t.fail_at(key, format!("`{key}` has no use with the method UUID, which hashes nothing"), ());
        }
        let definition = definition(scheme.as_ref(), "", None, false);
        return Some(random(Ids::Made(Box::new(Recipe { scheme, hashed: None })), definition));
    };
    let digest = match Digest::new(method, key.as_ref().map(|key| key.reveal().as_bytes())) {
        Ok(digest) => digest,
        Err(why) => {
            t.fail_at(if t.has("key") { "key" } else { "key_file" }, why, ());
            return None;
        }
    };
    let fields = source.clone().unwrap_or_default();
    let odds = super::odds::warning(scheme.as_ref(), rate, events_in_index);
    let line = definition(scheme.as_ref(), serialization.name(), key.as_ref().map(|k| k.reveal().as_bytes()), keep);
    Some(Choice {
        ids: Ids::Made(Box::new(Recipe { scheme, hashed: Some((content.ok()?, digest)) })),
        definition: line,
        repeatable: true,
        raw: source.is_none(),
        rule_assumed: fields.len() > 1 && rule.is_none(),
        source: fields,
        keep,
        odds,
    })
}

/// The scheme with the keys that are its own.
fn scheme(t: &Section<'_>, kind: Kind, method: Option<Method>) -> Option<Box<dyn Scheme>> {
    match (kind, method) {
        (Kind::Hash, Some(method)) => {
            let choices = [Encoding::Hex, Encoding::Base64, Encoding::Base64Url].map(|e| (e.name(), e));
            let encoding = t.one_of("encoding", &choices).or(Encoding::Hex);
            Some(Box::new(Hash { method, encoding }))
        }
        (Kind::Compact, Some(method)) => {
            let unit = t.one_of("time", &[("ms", TimeUnit::Millis), ("s", TimeUnit::Seconds)]).or(TimeUnit::Millis);
            let bits = t.integer::<u32>("digest_bits", 1..=512).or(96);
            match Compact::new(method, unit, bits) {
                Ok(compact) => Some(Box::new(compact)),
                Err(why) => {
                    t.fail_at("digest_bits", why, Help::allowed(["a multiple of 8 from 64 to the method's bits"]));
                    None
                }
            }
        }
        _ => Some(Box::new(TimeHash { method })),
    }
}
