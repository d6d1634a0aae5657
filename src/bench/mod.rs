//! `onceline bench`: what a user measures on their own machine.

pub mod events;
pub mod ids;
pub mod pipeline;
pub mod plot;
pub mod sink;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of CPU that a clock has counted.
fn cpu_ns(clock: ClockId) -> f64 {
    let spent = clock_gettime(clock);
    spent.tv_sec as f64 * 1e9 + spent.tv_nsec as f64
}

/// The value below which `part` of the values lie.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len().saturating_sub(1) as f64 * part).round() as usize).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(&mut [], 0.5), 0.0);
    }
}
