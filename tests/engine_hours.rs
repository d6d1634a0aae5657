//! An engine that is in trouble for an hour, in simulated time: how much is sent, how the waits grow, what is said.

mod rig;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use onceline::ack::{Acks, Message, Tally};
use onceline::output::elasticsearch::{Config, Exchange, Lost};
use onceline::output::{Phase, queue};
use reqwest::Method;
use rig::{event, parcel};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

/// What an engine does for an hour.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    /// The whole request is answered with this.
    Whole(u16),
    /// Every item.
    Items(u16),
    /// One item in fifty.
    FewItems(u16),
    /// Nobody is there.
    Down,
    /// It takes the request, and answers after the client has gone; it shows what it is at.
    Slow,
    /// The same, and does not show it.
    SlowHidden,
    /// Every other minute nothing is wrong.
    Flapping,
    /// For 20 seconds it is at what another process sent.
    Killed,
}

#[derive(Clone)]
struct Engine {
    trouble: Trouble,
    start: Instant,
    timeout: Duration,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// When bulk requests came.
    at: Vec<Duration>,
    open: usize,
    open_most: usize,
    /// Names of those that the engine is at, the client's patience notwithstanding.
    at_work: Vec<String>,
    at_work_most: usize,
}

impl Engine {
    fn is_in_trouble(&self) -> bool {
        let now = self.start.elapsed();
        self.trouble != Trouble::Killed
            && now < HOUR
            && (self.trouble != Trouble::Flapping || (now.as_secs() / 60).is_multiple_of(2))
    }

    fn seen<T>(&self, with: impl FnOnce(&mut Seen) -> T) -> T {
        with(&mut self.seen.lock().expect("a lock"))
    }

    fn items(&self, body: &Bytes) -> Bytes {
        let count = memchr::memchr_iter(b'\n', body).count() / 2;
        let is_bad = |n: usize| match self.trouble {
            Trouble::Items(status) => Some(status),
            Trouble::FewItems(status) if n.is_multiple_of(50) => Some(status),
            _ => None,
        };
        let item = |n: usize| match is_bad(n).filter(|_| self.is_in_trouble()) {
            Some(status) => json!({"index": {"status": status, "error": {"type": "rejected_execution_exception"}}}),
            None => json!({"index": {"status": 201}}),
        };
        json!({"items": (0..count).map(item).collect::<Vec<_>>()}).to_string().into()
    }

    async fn answer(&self, name: &str, body: Bytes) -> Result<(u16, Bytes), Lost> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let lost = |connected| Err(Lost { why: "no answer".to_string(), connected });
        match self.trouble {
            _ if !self.is_in_trouble() => Ok((200, self.items(&body))),
            Trouble::Whole(status) => Ok((status, Bytes::new())),
            Trouble::Items(_) | Trouble::FewItems(_) => Ok((200, self.items(&body))),
            Trouble::Down | Trouble::Flapping | Trouble::Killed => lost(false),
            Trouble::Slow | Trouble::SlowHidden => {
                let (engine, name) = (self.clone(), name.to_string());
                engine.seen(|seen| {
                    seen.at_work.push(name.clone());
                    seen.at_work_most = seen.at_work_most.max(seen.at_work.len());
                });
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(300)).await;
                    engine.seen(|seen| seen.at_work.retain(|other| *other != name));
                });
                tokio::time::sleep(self.timeout).await;
                lost(true)
            }
        }
    }
}

impl Exchange for Engine {
    async fn call(&self, _: Method, path: &str, _: Option<(&'static str, Bytes)>) -> Result<(u16, Bytes), Lost> {
        assert!(path.starts_with("_tasks"), "{path}");
        if self.trouble == Trouble::SlowHidden {
            return Ok((403, Bytes::new()));
        }
        let names = match self.trouble {
            Trouble::Killed if self.start.elapsed().as_secs() < 20 => vec!["onceline-5-abc-1.1".to_string()],
            _ => self.seen(|seen| seen.at_work.clone()),
        };
        let task = |name: &String| (name.clone(), json!({"headers": {"X-Opaque-Id": name}}));
        let tasks: serde_json::Map<_, _> = names.iter().map(task).collect();
        Ok((200, json!({"nodes": {"a": {"tasks": tasks}}}).to_string().into()))
    }

    async fn call_named(
        &self,
        name: &str,
        _: Method,
        _: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<(u16, Bytes), Lost> {
        let body = body.map(|(_, body)| body).unwrap_or_default();
        let now = self.start.elapsed();
        self.seen(|seen| {
            seen.at.push(now);
            seen.open += 1;
            seen.open_most = seen.open_most.max(seen.open);
        });
        let answer = self.answer(name, body).await;
        self.seen(|seen| seen.open -= 1);
        answer
    }

    async fn renew(&self) -> anyhow::Result<()> {
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("a lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Hour {
    seen: Seen,
    tally: Tally,
    lines: Vec<String>,
}

/// Two hours of events, a parcel a second, the first of them in trouble.
fn hour(trouble: Trouble, config: Config) -> Hour {
    let log = Log::default();
    let written = log.clone();
    let subscriber =
        tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || log.clone()).finish();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (acks, settled) = Acks::channel();
    let seen: Arc<Mutex<Seen>> = Arc::default();
    tracing::subscriber::with_default(subscriber, || {
        runtime.block_on(async {
            let (start, seen, timeout) = (Instant::now(), seen.clone(), config.request_timeout);
            let engine = Engine { trouble, start, timeout, seen };
            let (slots, parcels) = queue(16);
            let (_phase, phases) = watch::channel(Phase::Running);
            let feed = async {
                for n in 0..200_u64 {
                    let events: Vec<_> =
                        (0..100).map(|i| event("logs", &format!("{n}-{i}"), json!({"n": n}))).collect();
                    while slots.try_take().map(|slot| slot.send(parcel(config.action, n, &events))).is_none() {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                    tokio::time::sleep(Duration::from_secs(36)).await;
                }
                drop(slots);
            };
            let (done, ()) = tokio::join!(config.deliver(engine, parcels, acks, phases), feed);
            done.expect("a good end");
        });
    });
    let mut tally = Tally::default();
    for message in settled.try_iter() {
        let Message::Settled(settled) = message else { panic!("{message:?}") };
        tally.add(&settled.tally);
    }
    let text = String::from_utf8(written.0.lock().expect("a lock").clone()).expect("text");
    let seen = std::mem::take(&mut *seen.lock().expect("a lock"));
    Hour { seen, tally, lines: text.lines().map(str::to_string).collect() }
}

fn check(trouble: Trouble, requests_most: usize, begins: &str, ends: &str) {
    let config = Config { strict: false, ..Config::default() };
    let in_flight = config.requests_in_flight_max;
    let wait_max = config.retry_wait_max;
    let Hour { seen, tally, lines } = hour(trouble, config);
    assert_eq!((tally.created, tally.fates()), (20_000, 20_000), "{trouble:?}");
    assert!(seen.open_most <= in_flight, "{trouble:?}: {} requests at once", seen.open_most);
    let in_hour: Vec<Duration> = seen.at.iter().copied().filter(|at| *at < HOUR).collect();
    assert!(in_hour.len() <= requests_most, "{trouble:?}: {} requests in an hour", in_hour.len());
    // they grow to their bound, and no two are the same
    let mut gaps: Vec<Duration> = in_hour.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (early, late) = (gaps[..5].iter().max(), gaps[gaps.len() - 5..].iter().max());
    assert!(early.is_some_and(|gap| *gap < wait_max), "{trouble:?}: {gaps:?}");
    if !matches!(trouble, Trouble::FewItems(_) | Trouble::Flapping) {
        assert!(late > early, "{trouble:?}: {gaps:?}");
    }
    gaps.sort();
    gaps.dedup();
    assert!(gaps.len() > in_hour.len() / 2, "{trouble:?}: no jitter in {gaps:?}");
    let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
    assert_eq!((count(begins), count(ends), lines.len()), (1, 1, 2), "{trouble:?}: {lines:#?}");
}

#[test]
fn an_hour_of_trouble_is_said_once_and_makes_no_pile() {
    let away = "the engine cannot be written to";
    let again = "the engine takes events again";
    // four places, a try each in 15 s on the average
    check(Trouble::Whole(429), 1300, away, again);
    check(Trouble::Whole(503), 1300, away, again);
    check(Trouble::Down, 1300, away, again);
    check(Trouble::Whole(401), 1300, "the engine refuses us", again);
    check(Trouble::Items(429), 1300, "puts some events off", "have their fate");
    check(Trouble::FewItems(429), 3000, "puts some events off", "have their fate");
}

#[test]
fn a_slow_engine_gets_no_pile() {
    let of = |trouble| hour(trouble, Config { strict: false, ..Config::default() });
    let slow = of(Trouble::Slow);
    // each takes five minutes there, and is not sent again before
    assert!(slow.seen.at_work_most <= 4, "{} at work at once", slow.seen.at_work_most);
    assert_eq!((slow.tally.fates(), slow.lines.len()), (20_000, 2), "{:#?}", slow.lines);
    // who shows nothing gets a few more, since each is waited for for a minute
    let hidden = of(Trouble::SlowHidden);
    assert!(hidden.seen.at_work_most <= 20, "{} at work at once", hidden.seen.at_work_most);
    assert_eq!((hidden.tally.fates(), hidden.lines.len()), (20_000, 2), "{:#?}", hidden.lines);
}

#[test]
fn where_the_newest_must_win_what_a_killed_process_sent_is_waited_for() {
    let first = |ordered| {
        let config = Config { strict: false, ordered, name: "onceline-5".to_string(), ..Config::default() };
        hour(Trouble::Killed, config).seen.at[0]
    };
    assert!((20..22).contains(&first(true).as_secs()), "{:?}", first(true));
    assert_eq!(first(false), Duration::ZERO);
}

#[test]
fn what_comes_and_goes_is_not_said_each_time() {
    let flapping = hour(Trouble::Flapping, Config { strict: false, ..Config::default() });
    assert_eq!(flapping.tally.fates(), 20_000);
    // thirty times there and away
    assert!((2..=60).contains(&flapping.lines.len()), "{:#?}", flapping.lines);
}
