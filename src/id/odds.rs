//! How likely it is that two different events of one index get one id, for `check` to say where a digest is short.

use super::{Scheme, TimeUnit};

/// From this many bits on, `check` is silent: a time of its own stands before most digests.
const BITS_ENOUGH: u32 = 96;

/// The rate and the size of an index that `check` assumes where it is told nothing else.
pub const EVENTS_PER_SECOND_ASSUMED: f64 = 10_000.0;
/// A day at that rate.
pub const EVENTS_IN_INDEX_ASSUMED: f64 = 86_400.0 * EVENTS_PER_SECOND_ASSUMED;

/// The probability that at least two different events of an index share an id.
///
/// Digests that stand behind a time need to differ only within one unit of it: n events there make n²/2 pairs, each
/// of which collides with a probability of 2^-bits, and events / n such units are in the index. Without a time, all
/// events of the index are one unit.
pub fn collision_odds(
    events_per_second: f64,
    digest_bits: u32,
    time_unit: Option<TimeUnit>,
    events_in_index: f64,
) -> f64 {
    let together = match time_unit {
        Some(unit) => (events_per_second * unit.seconds()).min(events_in_index),
        None => events_in_index,
    };
    let expected = events_in_index * together * 0.5 * (-f64::from(digest_bits)).exp2();
    -(-expected).exp_m1()
}

/// What `check` says of a digest under 96 bits; nothing of a longer one.
pub fn warning(scheme: &dyn Scheme, events_per_second: f64, events_in_index: f64) -> Option<String> {
    let (method, bits) = (scheme.method()?, scheme.digest_bits());
    if bits >= BITS_ENOUGH {
        return None;
    }
    let odds = collision_odds(events_per_second, bits, scheme.time_unit(), events_in_index);
    let within = match scheme.time_unit() {
        Some(TimeUnit::Millis) => " within each millisecond",
        Some(TimeUnit::Seconds) => " within each second",
        None => "",
    };
    Some(format!(
        "{bits} bits of {} tell events apart{within}: at {} events a second, two different events of an index of {} \
         share an id with a probability of {}, and then one replaces the other",
        method.name(),
        thousands(events_per_second),
        thousands(events_in_index),
        chance(odds),
    ))
}

/// `1 in 4,300,000` where that reads well, a percentage where it is likely.
fn chance(odds: f64) -> String {
    match odds {
        o if o > 0.9999 => "nearly 1".to_owned(),
        o if o > 0.01 => format!("{:.0} in 100", o * 100.0),
        o if o > 1e-12 => format!("1 in {}", thousands(two_figures(1.0 / o))),
        o => format!("1 in {:.0e}", 1.0 / o),
    }
}

fn two_figures(value: f64) -> f64 {
    let scale = 10f64.powf(value.log10().floor() - 1.0);
    (value / scale).round() * scale
}

/// A whole number with commas.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::compact::Compact;
    use super::super::digest::Method;
    use super::super::encode::Encoding;
    use super::super::hash::Hash;
    use super::super::time_hash::TimeHash;
    use super::*;

    #[test]
    fn odds() {
        for (rate, bits, unit, events, want) in [
            // 10 events a millisecond make 50 pairs, in 1e8 units.
            (1e4, 64, Some(TimeUnit::Millis), 1e9, 5e9 / 2f64.powi(64)),
            (1e4, 64, Some(TimeUnit::Seconds), 1e9, 5e12 / 2f64.powi(64)),
            // Fewer than one a unit: pairs are rare, not impossible.
            (10.0, 64, Some(TimeUnit::Millis), 1e6, 5e3 / 2f64.powi(64)),
            // Without a time: the birthday bound.
            (1e4, 64, None, 1e9, 1.0 - (-1e18 / 2f64.powi(65)).exp()),
            (1e4, 32, None, 77_163.0, 0.5),
            (1e4, 32, None, 1e9, 1.0),
            (1e4, 128, None, 1e9, 1e18 / 2f64.powi(129)),
        ] {
            let got = collision_odds(rate, bits, unit, events);
            assert!((got / want - 1.0).abs() < 1e-3, "{bits} {unit:?} {events}: {got} {want}");
        }
    }

    #[test]
    fn what_check_says() {
        let compact = |bits| Compact::new(Method::Sha256, TimeUnit::Millis, bits).unwrap();
        let say = |scheme: &dyn Scheme| warning(scheme, EVENTS_PER_SECOND_ASSUMED, EVENTS_IN_INDEX_ASSUMED);
        assert_eq!(say(&compact(96)), None);
        assert_eq!(
            say(&compact(64)).as_deref(),
            Some(
                "64 bits of SHA256 tell events apart within each millisecond: at 10,000 events a second, two different \
                 events of an index of 864,000,000 share an id with a probability of 1 in 4,300,000,000, and then one \
                 replaces the other"
            )
        );
        let murmur = Hash { method: Method::Murmur3, encoding: Encoding::Hex };
        assert!(say(&murmur).unwrap().contains("probability of nearly 1,"));
        let murmur = TimeHash { method: Some(Method::Murmur3) };
        assert!(say(&murmur).unwrap().contains("within each second"));
        assert_eq!(say(&Hash { method: Method::Md5, encoding: Encoding::Hex }), None);
        assert_eq!(say(&TimeHash { method: None }), None);
    }
}
