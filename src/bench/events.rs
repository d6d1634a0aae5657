//! Events to measure with, for when no file is given: JSON lines of about 300 bytes over three days in time order,
//! one in twenty an exact repeat of an earlier one. The same seed gives the same lines.

use std::io::{self, Write};

use crate::time::Time;

/// 2026-03-01T00:00:00Z.
const START_MILLIS: u64 = 1_772_323_200_000;
const SPAN_MILLIS: u64 = 3 * 86_400_000;
/// How many earlier lines a repeat is taken from.
const RECENT: usize = 10_000;

const SERVICES: &[&str] = &["orders", "billing", "catalog", "gateway", "login", "search", "shipping", "mail"];
const LEVELS: &[&str] = &["INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR"];
const MESSAGES: &[&str] = &[
    "request served",
    "waited for a connection of the pool",
    "not in the cache, read from the database",
    "payment accepted by the provider",
    "session renewed",
    "upstream did not answer in time, asked again",
    "field \\\"email\\\" must not be blank",
    "message sent to the topic orders.v1",
];

/// A small generator whose numbers depend on the seed alone (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Writes `count` lines; says how many of them are different.
pub fn write(count: u64, seed: u64, out: &mut dyn Write) -> io::Result<u64> {
    let mut random = Random(seed);
    let mut recent: Vec<Vec<u8>> = Vec::new();
    let mut distinct = 0;
    for n in 0..count {
        if recent.len() > 100 && random.below(100) < 5 {
            let again = random.below(recent.len() as u64) as usize;
            out.write_all(&recent[again])?;
            continue;
        }
        let line = line(&mut random, START_MILLIS + n * SPAN_MILLIS / count.max(1));
        out.write_all(&line)?;
        if recent.len() < RECENT {
            recent.push(line);
        } else {
            recent[distinct as usize % RECENT] = line;
        }
        distinct += 1;
    }
    Ok(distinct)
}

fn line(random: &mut Random, millis: u64) -> Vec<u8> {
    let time = Time::from_millis((millis + random.below(2000)) as i64).iso();
    let service = random.pick(SERVICES);
    format!(
        "{{\"@timestamp\":\"{time}\",\"level\":\"{}\",\"service\":\"{service}\",\"host\":\"{service}-{:02}\",\
         \"message\":\"{} id={}\",\"trace_id\":\"{:016x}{:016x}\",\"duration_ms\":{},\"status\":{},\
         \"user\":{{\"id\":{},\"plan\":\"{}\"}},\"region\":\"{}\"}}\n",
        random.pick(LEVELS),
        random.below(12),
        random.pick(MESSAGES),
        random.below(100_000_000),
        random.next(),
        random.next(),
        random.below(2500),
        random.pick(&["200", "200", "200", "201", "404", "500"]),
        random.below(1_000_000),
        random.pick(&["free", "pro", "team"]),
        random.pick(&["europe-west-1", "europe-north-1", "us-east-2"]),
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides() {
        let make = |seed| {
            let mut out = Vec::new();
            let distinct = write(2000, seed, &mut out).unwrap();
            (distinct, out)
        };
        let (distinct, lines) = make(1);
        assert_eq!(make(1), (distinct, lines.clone()));
        assert_ne!(make(2).1, lines);
        let lines: Vec<&[u8]> = lines.split(|b| *b == b'\n').filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), 2000);
        assert_eq!(lines.iter().collect::<std::collections::HashSet<_>>().len() as u64, distinct);
        assert!(lines.iter().all(|line| serde_json::from_slice::<serde_json::Value>(line).is_ok()));
        let bytes: usize = lines.iter().map(|line| line.len()).sum();
        assert!((250..350).contains(&(bytes / lines.len())), "{}", bytes / lines.len());
    }
}
