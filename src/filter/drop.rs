//! `drop`: ends events. With `percentage` it ends about so many of a hundred, chosen by a hash of the event's raw
//! bytes and not by chance: whoever reads the same input again drops the same events. Equal records share a fate.

use super::{Applied, Clock, Filter};
use crate::batch::EventMut;
use crate::config::Section;

#[derive(Clone, Debug)]
pub struct Config {
    pub percentage: f64,
}

impl Default for Config {
    fn default() -> Config {
        Config { percentage: 100.0 }
    }
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let percentage = t.float("percentage", 0.0..=100.0).or(Config::default().percentage);
        Some(Config { percentage })
    }
}

#[derive(Clone, Debug)]
pub struct Drop {
    /// Of 1.
    share: f64,
}

impl Drop {
    pub fn build(config: Config) -> Result<Drop, String> {
        if !(0.0..=100.0).contains(&config.percentage) {
            return Err("`percentage` lies between 0 and 100".to_string());
        }
        Ok(Drop { share: config.percentage / 100.0 })
    }
}

impl Filter for Drop {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let drop = self.share >= 1.0 || place(event.read().raw()) < self.share;
        if drop { Applied::Drop } else { Applied::Matched }
    }
}

/// A number from 0 up to 1, spread evenly over different bytes and the same for equal ones: FNV-1a, mixed. It
/// never changes, or a replay would store what an older version dropped.
fn place(bytes: &[u8]) -> f64 {
    let mut hash =
        bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenly_and_for_ever() {
        for percentage in [0.0, 1.0, 40.0, 99.0] {
            let share = percentage / 100.0;
            let dropped = (0..10_000).filter(|i| place(format!("{{\"n\":{i}}}").as_bytes()) < share).count() as f64;
            assert!((dropped - share * 10_000.0).abs() < 200.0, "{percentage}: {dropped}");
        }
        let golden: Vec<String> = ["", "a", "b"].iter().map(|t| format!("{:.6}", place(t.as_bytes()))).collect();
        assert_eq!(golden, ["0.936769", "0.510295", "0.431262"]);
        assert!(Drop::build(Config { percentage: 101.0 }).is_err());
    }
}
