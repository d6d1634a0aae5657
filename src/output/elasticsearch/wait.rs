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

/// What is said once when it begins and once when it ends. What comes and goes is not said each time.
#[derive(Debug, Default)]
pub struct News {
    since: Option<Instant>,
    is_said: bool,
    said_at: Option<Instant>,
}

/// What comes back within this time of its end is said again only if it is still there then.
const QUIET: Duration = Duration::from_secs(60);

impl News {
    /// Whether it is to be said now that it began.
    pub fn begins(&mut self, now: Instant) -> bool {
        self.since.get_or_insert(now);
        let is_new = !self.is_said && !self.is_quiet(now);
        if is_new {
            (self.is_said, self.said_at) = (true, Some(now));
        }
        is_new
    }

    /// How long it lasted, if it is to be said that it ended.
    pub fn ends(&mut self, now: Instant) -> Option<Duration> {
        let since = self.since.take()?;
        let was_said = std::mem::take(&mut self.is_said);
        if was_said {
            self.said_at = Some(now);
        }
        was_said.then(|| now.duration_since(since))
    }

    /// It was said that it began, and not that it ended.
    pub fn is_said(&self) -> bool {
        self.is_said
    }

    /// It was said not long ago, so that it must be remembered.
    pub fn is_quiet(&self, now: Instant) -> bool {
        self.said_at.is_some_and(|at| now.duration_since(at) < QUIET)
    }
}

/// A single failed try that was short is no news.
const NEWS_AFTER: Duration = Duration::from_secs(5);

/// Trouble with one host of several.
#[derive(Debug, Default)]
pub struct HostTrouble {
    tries: u32,
    news: News,
}

impl HostTrouble {
    /// It failed, having taken `took`; `connected`: it was reached. Said once.
    pub fn begins(&mut self, why: &str, connected: bool, took: Duration, now: Instant) {
        self.tries = self.tries.saturating_add(1);
        let is_news = !connected || self.tries >= 2 || took >= NEWS_AFTER;
        if is_news && self.news.begins(now) {
            tracing::warn!(error = %why, "a host fails: the others are asked, it is tried now and then");
        }
    }

    /// It answered. Said once.
    pub fn ends(&mut self, host: &str, now: Instant) {
        self.tries = 0;
        if let Some(lasted) = self.news.ends(now) {
            tracing::warn!(%host, seconds = lasted.as_secs(), "a host that failed answers again");
        }
    }
}

/// Trouble with the engine as a whole.
#[derive(Debug, Default)]
pub struct Trouble {
    hosts: u32,
    away: News,
    refused: News,
}

impl Trouble {
    pub fn new(hosts: usize) -> Trouble {
        Trouble { hosts: u32::try_from(hosts).unwrap_or(u32::MAX), ..Trouble::default() }
    }

    /// A request failed for the `tries`th time in a row, the last try having taken `took`. Said once, and once more
    /// if what time would mend becomes what somebody must mend.
    pub fn begins(&mut self, delay: &Delay, tries: u32, took: Duration, now: Instant) {
        match delay {
            Delay::Refused(why) => {
                if self.refused.begins(now) {
                    tracing::error!(error = %why,
                        "the engine refuses us: everything is kept until it lets us, tried again and again");
                }
            }
            Delay::Away(why) => {
                // of several hosts each must have had its turn
                let is_news = tries >= self.hosts.max(2) || took >= NEWS_AFTER && self.hosts == 1;
                if is_news && !self.refused.is_said && self.away.begins(now) {
                    tracing::warn!(error = %why,
                        "the engine cannot be written to: everything is kept, tried again and again");
                }
            }
        }
    }

    /// A request was answered. Said once.
    pub fn ends(&mut self, now: Instant) {
        if let Some(lasted) = self.refused.ends(now).max(self.away.ends(now)) {
            tracing::warn!(seconds = lasted.as_secs(), "the engine takes events again");
        }
    }
}

/// Items that fail while others pass. A few tries are usual when an engine has much to do.
#[derive(Debug, Default)]
pub struct Busy(News);

impl Busy {
    pub fn begins(&mut self, tries: u32, now: Instant) {
        if tries >= 4 && self.0.begins(now) {
            tracing::warn!(tries, "the engine puts some events off: they are kept, sent again and again");
        }
    }

    pub fn ends(&mut self, now: Instant) {
        if let Some(lasted) = self.0.ends(now) {
            tracing::warn!(seconds = lasted.as_secs(), "the events that the engine put off have their fate");
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

    #[test]
    fn what_comes_and_goes_is_said_once_a_minute() {
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut news = News::default();
        assert!(news.begins(at(0)) && !news.begins(at(1)));
        assert_eq!(news.ends(at(2)), Some(Duration::from_secs(2)));
        assert_eq!(news.ends(at(3)), None);
        for secs in 4..60 {
            assert!(!news.begins(at(secs)));
            assert_eq!(news.ends(at(secs)), None);
        }
        assert!(!news.begins(at(61)), "not yet");
        assert!(news.begins(at(62)), "but it has lasted");
        assert_eq!(news.ends(at(65)), Some(Duration::from_secs(4)));
    }
}
