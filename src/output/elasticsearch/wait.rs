//! Waits that grow, and trouble that is said once.

use std::time::Duration;

use tokio::time::Instant;

use super::request::Delay;

/// Bounds of the waits between tries.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    pub min: Duration,
    pub max: Duration,
}

/// How often in a row something failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    pub tries: u32,
}

impl Backoff {
    /// The next wait: anything up to a bound that doubles, so that many who wait do not come back together.
    pub fn next(&mut self, waits: &Waits) -> Duration {
        let bound = waits.min.saturating_mul(1 << self.tries.min(20)).min(waits.max);
        self.tries = self.tries.saturating_add(1);
        bound.mul_f64(fastrand::f64())
    }
}

/// Trouble with the engine as a whole.
#[derive(Debug, Default)]
pub struct Trouble(Option<(Instant, bool)>);

/// A single failed try that was short is no news.
const NEWS_AFTER: Duration = Duration::from_secs(5);

impl Trouble {
    /// A request failed for the `tries`th time in a row, the last try having taken `took`. Said once, and once more
    /// if what time would mend becomes what somebody must mend.
    pub fn begins(&mut self, delay: &Delay, tries: u32, took: Duration, now: Instant) {
        let (is_refusal, why) = match delay {
            Delay::Away(why) => (false, why),
            Delay::Refused(why) => (true, why),
        };
        let is_said = matches!(self.0, Some((_, was_refusal)) if was_refusal || !is_refusal);
        let is_news = is_refusal || tries >= 2 || took >= NEWS_AFTER;
        if is_said || !is_news {
            return;
        }
        let since = self.0.map_or(now, |(since, _)| since);
        self.0 = Some((since, is_refusal));
        if is_refusal {
            tracing::error!(error = %why, "the engine refuses us: everything is kept until it lets us, tried again and again");
        } else {
            tracing::warn!(error = %why, "the engine cannot be written to: everything is kept, tried again and again");
        }
    }

    /// A request was answered. Said once.
    pub fn ends(&mut self, now: Instant) {
        if let Some((since, _)) = self.0.take() {
            let seconds = now.duration_since(since).as_secs();
            tracing::info!(seconds, "the engine takes events again");
        }
    }
}

/// Items that fail while others pass. A few tries are usual when an engine has much to do.
#[derive(Debug, Default)]
pub struct Busy(Option<Instant>);

impl Busy {
    pub fn begins(&mut self, tries: u32, now: Instant) {
        if tries >= 4 && self.0.is_none() {
            self.0 = Some(now);
            tracing::warn!(tries, "the engine puts some events off: they are kept, sent again and again");
        }
    }

    pub fn ends(&mut self, now: Instant) {
        if let Some(since) = self.0.take() {
            let seconds = now.duration_since(since).as_secs();
            tracing::info!(seconds, "the events that the engine put off have their fate");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_bound() {
        let waits = Waits { min: Duration::from_millis(200), max: Duration::from_secs(30) };
        let mut backoff = Backoff::default();
        for n in 0..100 {
            let bound = Duration::from_millis(200 << n.min(20)).min(waits.max);
            assert!(backoff.next(&waits) <= bound);
        }
        let longest = (0..1000).map(|_| Backoff { tries: 99 }.next(&waits)).max().unwrap();
        assert!(longest > Duration::from_secs(20));
    }
}
