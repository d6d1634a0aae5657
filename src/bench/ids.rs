//! `onceline bench ids --client-only`: what an id costs this program, scheme by scheme and method by method.
//!
//! CPU time of one thread, not the clock on the wall. Every row is measured once a round and the rounds go over all
//! rows, so that a machine that changes speed changes it for all. Of the rounds the median is shown, and how far
//! apart the quarter and the three-quarter points are.

use super::plot::Bar;
use super::{cpu_ns, quantile};
use crate::id::compact::Compact;
use crate::id::digest::{Digest, Method};
use crate::id::encode::Encoding;
use crate::id::hash::Hash;
use crate::id::lanes::LANES;
use crate::id::time_hash::TimeHash;
use crate::id::uuid::Uuid;
use crate::id::{Refused, Scheme};
use crate::time::Time;
use rustix::time::ClockId;
use std::hint::black_box;

/// The first event's time; each next one is a millisecond later.
const START_MILLIS: i64 = 1_772_359_200_000;

/// A scheme to measure.
pub struct Case {
    pub scheme: Box<dyn Scheme>,
    /// The name in the pipeline file.
    pub name: &'static str,
    /// None for random ids.
    pub digest: Option<Digest>,
    pub keyed: bool,
}

/// What was measured of a [`Case`]: nanoseconds of CPU an event.
#[derive(Clone, Debug)]
pub struct Row {
    pub scheme: &'static str,
    pub method: &'static str,
    pub keyed: bool,
    pub id_chars: usize,
    /// The digest alone; nothing where none is made.
    pub ns_digest: f64,
    /// The digest and the id made of it.
    pub ns_id: f64,
    /// Between the quarter and the three-quarter points of `ns_id`.
    pub ns_id_spread: f64,
}

impl Case {
    fn new(name: &'static str, scheme: Box<dyn Scheme>, key: Option<&[u8]>) -> Result<Case, String> {
        let digest = scheme.method().map(|method| Digest::new(method, key)).transpose()?;
        Ok(Case { name, keyed: key.is_some() && digest.is_some(), scheme, digest })
    }

    fn method(&self) -> &'static str {
        match &self.digest {
            Some(digest) => digest.method().name(),
            None => "UUID",
        }
    }
}

/// Every scheme with every method that it takes, and time-hash with HMAC too.
pub fn cases() -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    for method in Method::ALL {
        cases.push(Case::new("hash", Box::new(Hash { method, encoding: Encoding::Hex }), None)?);
        cases.push(Case::new("time-hash", Box::new(TimeHash { method: Some(method) }), None)?);
        if !matches!(method, Method::Murmur3x128 | Method::Murmur3) {
            cases.push(Case::new("time-hash", Box::new(TimeHash { method: Some(method) }), Some(b"key"))?);
        }
        if let Ok(compact) = Compact::new(method, Compact::TIME_DEFAULT, Compact::DIGEST_BITS_DEFAULT) {
            cases.push(Case::new("compact", Box::new(compact), None)?);
        }
    }
    cases.push(Case::new("time-hash", Box::new(TimeHash { method: None }), None)?);
    cases.push(Case::new("uuid 4", Box::new(Uuid::V4), None)?);
    cases.push(Case::new("uuid 7", Box::new(Uuid::V7), None)?);
    Ok(cases)
}

/// Measures every case over all events, `rounds` times.
pub fn client_only(events: &[Vec<u8>], cases: &[Case], rounds: usize) -> Result<Vec<Row>, Refused> {
    let mut digests = vec![Vec::with_capacity(rounds); cases.len()];
    let mut ids = vec![Vec::with_capacity(rounds); cases.len()];
    for _ in 0..rounds.max(1) {
        for (at, case) in cases.iter().enumerate() {
            digests[at].push(digest_round(events, case));
            ids[at].push(id_round(events, case)?);
        }
    }
    let row = |((case, mut digests), mut ids): ((&Case, Vec<f64>), Vec<f64>)| Row {
        scheme: case.name,
        method: case.method(),
        keyed: case.keyed,
        id_chars: case.scheme.chars(),
        ns_digest: quantile(&mut digests, 0.5),
        ns_id: quantile(&mut ids, 0.5),
        ns_id_spread: quantile(&mut ids, 0.75) - quantile(&mut ids, 0.25),
    };
    Ok(cases.iter().zip(digests).zip(ids).map(row).collect())
}

fn digest_round(events: &[Vec<u8>], case: &Case) -> f64 {
    let Some(digest) = &case.digest else { return 0.0 };
    let start = cpu_ns(ClockId::ThreadCPUTime);
    for group in events.chunks(digest.group()) {
        digests(digest, group, |_, digest| {
            black_box(digest);
        });
    }
    (cpu_ns(ClockId::ThreadCPUTime) - start) / events.len().max(1) as f64
}

/// Events hashed together, as the pipeline does.
fn digests(digest: &Digest, group: &[Vec<u8>], put: impl FnMut(usize, &[u8])) {
    let mut texts: [&[u8]; LANES] = [&[]; LANES];
    for (text, event) in texts.iter_mut().zip(group) {
        *text = black_box(event);
    }
    digest.digest_group(&texts[..group.len()], put);
}

fn id_round(events: &[Vec<u8>], case: &Case) -> Result<f64, Refused> {
    let mut id = Vec::with_capacity(256);
    let mut refused = Ok(());
    let mut write = |millis: i64, digest: &[u8]| {
        id.clear();
        if let Err(no) = case.scheme.write(Time::from_millis(millis), digest, &mut id) {
            refused = Err(no);
        }
        black_box(&id);
    };
    let start = cpu_ns(ClockId::ThreadCPUTime);
    let mut millis = START_MILLIS;
    for group in events.chunks(case.digest.as_ref().map_or(1, Digest::group)) {
        match &case.digest {
            Some(digest) => digests(digest, group, |at, digest| write(millis + at as i64, digest)),
            None => write(millis, &[]),
        }
        millis += group.len() as i64;
    }
    let spent = cpu_ns(ClockId::ThreadCPUTime) - start;
    refused.map(|()| spent / events.len().max(1) as f64)
}

/// Access-log lines of about `bytes` bytes, all different, for when no file is given.
pub fn sample_events(count: usize, bytes: usize) -> Vec<Vec<u8>> {
    let line = |n: usize| {
        let mut text = format!(
            "10.{}.{}.{} - - [01/Mar/2026:10:{:02}:{:02} +0000] \"GET /item/{n} HTTP/1.1\" 200 {} \"",
            n >> 16 & 255,
            n >> 8 & 255,
            n & 255,
            n / 60 % 60,
            n % 60,
            n % 5000
        );
        while text.len() < bytes {
            text.push_str("Mozilla/5.0 (X11; Linux x86_64) ");
        }
        text.truncate(bytes.max(1));
        text.into_bytes()
    };
    (0..count).map(line).collect()
}

/// The rows as a table for people.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<10} {:<12} {:<5} {:>8} {:>12} {:>10} {:>8} {:>14}\n",
        "scheme", "method", "key", "id chars", "ns a digest", "ns an id", "spread", "ids a CPU-s"
    );
    for row in rows {
        text.push_str(&format!(
            "{:<10} {:<12} {:<5} {:>8} {:>12.0} {:>10.0} {:>8.0} {:>14.0}\n",
            row.scheme,
            row.method,
            if row.keyed { "HMAC" } else { "-" },
            row.id_chars,
            row.ns_digest,
            row.ns_id,
            row.ns_id_spread,
            1e9 / row.ns_id
        ));
    }
    text
}

/// A bar a row, for `--plot`.
pub fn bars(rows: &[Row]) -> Vec<Bar> {
    let label = |row: &Row| format!("{} {}{}", row.scheme, if row.keyed { "HMAC-" } else { "" }, row.method);
    rows.iter().map(|row| Bar { label: label(row), value: row.ns_id }).collect()
}

/// The rows as one JSON array, for `--json`.
pub fn json(rows: &[Row]) -> serde_json::Value {
    let row = |row: &Row| {
        serde_json::json!({
            "scheme": row.scheme, "method": row.method, "hmac": row.keyed, "id_chars": row.id_chars,
            "ns_digest": row.ns_digest, "ns_id": row.ns_id, "ns_id_spread": row.ns_id_spread,
        })
    };
    rows.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_row() {
        let events = sample_events(50, 300);
        assert!(events.iter().all(|event| event.len() == 300));
        let cases = cases().unwrap();
        let rows = client_only(&events, &cases, 3).unwrap();
        assert_eq!(rows.len(), cases.len());
        for row in &rows {
            assert!(row.ns_id > 0.0 && row.ns_id_spread >= 0.0, "{row:?}");
        }
        assert_eq!(table(&rows).lines().count(), rows.len() + 1);
        assert_eq!(json(&rows).as_array().unwrap().len(), rows.len());
    }
}
