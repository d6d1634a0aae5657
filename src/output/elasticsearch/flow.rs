//! The loop that takes parcels in, has requests on their way, and tells each item's fate.
//!
//! All state lives here, on one thread; a request's task only waits and sends. Without order there is one lane as
//! wide as the requests in flight; with order there is a lane for each part of the ids, one request wide, and what
//! is sent again goes before what comes after it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Config;
use super::answer::Answer;
use super::at_work::{GivenUp, Patience};
use super::client::{Exchange, Lost};
use super::hold::Holds;
use super::load::{Loads, Unit};
use super::request::{Delay, Next, Parts, Pending, Reply, Rules};
use super::wait::{Backoff, Busy, News, Trouble, Waits};
use crate::ack::{Acks, Tally};
use crate::output::{Parcels, Phases, abandoned};

/// Only what is needed to tell the fates: other keys of an answer would cost more than the rest of the request.
const FILTER: &str = "errors,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by";

/// Parcels are joined to one request up to this size, and as much is taken in ahead.
const JOIN_BYTES_MAX: usize = 1 << 20;

/// A request that is lost or put off this often after it was sent, and is larger than this, is sent in halves:
/// perhaps the engine cannot do so much at once.
const LOST_MAX: u32 = 3;
const LOST_BYTES_MIN: usize = 256 << 10;

/// Bounds of requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub bytes: usize,
    pub items: usize,
    pub in_flight: usize,
    pub room: Room,
}

/// What bounds the reading.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub bytes_in_flight_max: usize,
    /// What a batch takes of it when it is read.
    pub batch_bytes: usize,
}

impl Room {
    /// What is held and takes so many bytes leaves less than a batch takes. One that would take more than all takes all.
    fn is_taken_by(&self, held_bytes: usize) -> bool {
        held_bytes > self.bytes_in_flight_max - self.batch_bytes.min(self.bytes_in_flight_max)
    }
}

pub struct Flow<E> {
    engine: Arc<E>,
    acks: Acks,
    rules: Rules,
    limits: Limits,
    waits: Waits,
    loads: Loads,
    lanes: Vec<Lane>,
    /// Items sent again, apart from their request, when their time comes.
    later: Vec<(Instant, Vec<Unit>)>,
    holds: Holds,
    tasks: JoinSet<Came>,
    trouble: Trouble,
    /// Requests that failed as a whole the last time.
    troubled: usize,
    busy: Busy,
    full: News,
    /// How requests are named, and how many were.
    session: String,
    requests: u64,
    /// The bulk endpoint, with what it is asked to say and how long a shard is waited for.
    path: Arc<str>,
    patience: Patience,
    /// What was sent and not told yet.
    cost: Tally,
}

#[derive(Debug, Default)]
struct Lane {
    queue: VecDeque<Job>,
    queued_bytes: usize,
    in_flight: usize,
}

/// Units that wait to be sent.
#[derive(Debug)]
struct Job {
    units: Vec<Unit>,
    bytes: usize,
    /// May be joined with its neighbours.
    is_fresh: bool,
}

/// Where a request came from, and so where it goes on.
#[derive(Clone, Debug)]
enum Origin {
    Lane(usize),
    Probe(Arc<str>),
}

/// A request in flight.
struct Request {
    pending: Pending,
    body: Bytes,
    origin: Origin,
    backoff: Backoff,
    lost: u32,
    /// Only items that failed before.
    is_again: bool,
    name: String,
    sendings: u32,
    /// What was sent before and may still be at work.
    given_up: Option<GivenUp>,
    /// Other parts of a request that was halved, the next last: sent in its place, one after the other.
    rest: Vec<Vec<Unit>>,
}

struct Came {
    request: Request,
    reply: Reply,
    took: Duration,
    /// False if it waits for what was sent before.
    was_sent: bool,
}

impl<E: Exchange> Flow<E> {
    pub fn new(engine: Arc<E>, acks: Acks, rules: Rules, limits: Limits, waits: Waits, config: &Config) -> Flow<E> {
        let request_max = config.request_timeout;
        let patience = Patience { ordered: rules.ordered, request_max };
        // a shard that is away is answered for before the request is given up, so that others do not wait with it
        let shard_wait = (request_max / 2).as_millis().max(1);
        let path = format!("_bulk?timeout={shard_wait}ms&filter_path={FILTER}").into();
        let lanes = if rules.ordered { limits.in_flight } else { 1 };
        Flow {
            engine,
            acks,
            rules,
            limits,
            waits,
            loads: Loads::new(rules.ordered),
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            later: Vec::new(),
            holds: Holds::new(waits),
            tasks: JoinSet::new(),
            trouble: Trouble::new(config.hosts.len()),
            troubled: 0,
            busy: Busy::default(),
            full: News::default(),
            session: format!("{}-{:08x}", config.name, fastrand::u32(..)),
            requests: 0,
            path,
            patience,
            cost: Tally::default(),
        }
    }

    pub async fn run(mut self, mut parcels: Parcels, mut phases: Phases) -> anyhow::Result<()> {
        let mut has_ended = false;
        loop {
            self.dispatch();
            if has_ended && self.is_idle() {
                break;
            }
            let is_hungry = !has_ended && self.is_hungry();
            self.say_if_full();
            let due = self.next_due();
            tokio::select! {
                // what has come makes room for what comes
                biased;
                () = abandoned(&mut phases) => break,
                Some(came) = self.tasks.join_next() => match came {
                    Ok(came) => self.came(came),
                    // a task only waits and sends; its panic must not pass for a delivery
                    Err(error) => return Err(anyhow::Error::new(error).context("a request ended without a result")),
                },
                parcel = parcels.next(), if is_hungry => match parcel {
                    Some(parcel) => {
                        let units = self.loads.add(parcel);
                        self.queue(units);
                    }
                    None => has_ended = true,
                },
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
        }
        self.loads.note_done();
        if let Some(receipt) = self.loads.any_receipt() {
            self.acks.settle(receipt, std::mem::take(&mut self.cost), Vec::new());
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.tasks.is_empty()
            && self.later.is_empty()
            && self.holds.is_empty()
            && self.lanes.iter().all(|lane| lane.queue.is_empty())
    }

    fn is_hungry(&self) -> bool {
        self.lanes.iter().map(|lane| lane.queued_bytes).sum::<usize>() < JOIN_BYTES_MAX
    }

    /// Events of indices in trouble may fill what may be in flight, and then nobody goes on. Said once.
    fn say_if_full(&mut self) {
        if self.holds.is_empty() && !self.full.is_said() {
            return;
        }
        let (now, bytes) = (Instant::now(), self.loads.bytes());
        let is_idle = self.later.is_empty() && self.lanes.iter().all(|lane| lane.in_flight == 0);
        let room = self.limits.room;
        if !self.holds.is_empty() && is_idle && room.is_taken_by(bytes) {
            if self.full.begins(now) {
                let (indices, held_bytes) = (self.holds.names(), bytes);
                let Room { bytes_in_flight_max, batch_bytes: next_batch_bytes } = room;
                tracing::warn!(%indices, held_bytes, next_batch_bytes, bytes_in_flight_max, "what is kept for indices \
                    that take no events and one more batch are together more than bytes_in_flight_max: nothing more \
                    is read until one of them takes events again");
            }
        } else if !room.is_taken_by(bytes)
            && let Some(lasted) = self.full.ends(now)
        {
            tracing::warn!(seconds = lasted.as_secs(), "there is room again, reading goes on");
        }
    }

    fn width(&self) -> usize {
        if self.rules.ordered { 1 } else { self.limits.in_flight }
    }

    fn next_due(&self) -> Option<Instant> {
        let has_room = self.lanes.iter().any(|lane| lane.in_flight < self.width());
        let later = self.later.iter().map(|(at, _)| *at).min().filter(|_| has_room);
        later.into_iter().chain(self.holds.next_at()).min()
    }

    /// Units of a new parcel to the end of their lanes.
    fn queue(&mut self, units: Vec<Unit>) {
        for (lane, units) in self.by_lane(units) {
            self.lanes[lane].push(Job::new(&self.loads, units, true), false);
        }
    }

    fn by_lane(&self, units: Vec<Unit>) -> Vec<(usize, Vec<Unit>)> {
        if units.is_empty() {
            return Vec::new();
        }
        let count = self.lanes.len();
        if count == 1 {
            return vec![(0, units)];
        }
        let mut lanes: Vec<(usize, Vec<Unit>)> = (0..count).map(|lane| (lane, Vec::new())).collect();
        for unit in units {
            lanes[self.loads.item(&unit).id_hash as usize % count].1.push(unit);
        }
        lanes.retain(|(_, units)| !units.is_empty());
        lanes
    }

    /// Sends all that may be sent now.
    fn dispatch(&mut self) {
        let now = Instant::now();
        while let Some((index, units)) = self.holds.probe(&self.loads, now) {
            self.begin(units, Origin::Probe(index));
        }
        for lane in 0..self.lanes.len() {
            while self.lanes[lane].in_flight < self.width() {
                let Some(mut units) = self.due(now).or_else(|| self.next_units(lane)) else { break };
                self.holds.divert(&mut self.loads, &mut units);
                if !units.is_empty() {
                    self.begin(units, Origin::Lane(lane));
                }
            }
        }
    }

    /// Items whose time to be sent again has come, together.
    fn due(&mut self, now: Instant) -> Option<Vec<Unit>> {
        let mut units: Vec<Unit> = Vec::new();
        let mut bytes = 0;
        let (loads, limits) = (&self.loads, self.limits);
        self.later.retain_mut(|(at, waiting)| {
            let size = loads.size(waiting);
            let bytes_max = limits.bytes.min(JOIN_BYTES_MAX);
            let fits = units.len() + waiting.len() <= limits.items && bytes + size <= bytes_max;
            if *at > now || !(units.is_empty() || fits) {
                return true;
            }
            bytes += size;
            units.append(waiting);
            false
        });
        (!units.is_empty()).then_some(units)
    }

    /// The next request's worth of a lane: small parcels joined, one too large cut.
    fn next_units(&mut self, lane: usize) -> Option<Vec<Unit>> {
        let limits = self.limits;
        let loads = &self.loads;
        let lane = &mut self.lanes[lane];
        let mut job = lane.pop()?;
        while job.is_fresh
            && let Some(next) = lane.queue.front()
            && next.is_fresh
            && job.bytes + next.bytes <= JOIN_BYTES_MAX.min(limits.bytes)
            && job.units.len() + next.units.len() <= limits.items
            && let Some(next) = lane.pop()
        {
            job.units.extend_from_slice(&next.units);
            job.bytes += next.bytes;
        }
        // what was put together of many parcels is copied to be sent, and so much more memory
        let bytes_max = if job.is_fresh { limits.bytes } else { limits.bytes.min(JOIN_BYTES_MAX) };
        if job.units.len() > 1 && (job.bytes > bytes_max || job.units.len() > limits.items) {
            let mut bytes = 0;
            let fits = job.units.iter().take(limits.items).take_while(|unit| {
                bytes += loads.item(unit).size();
                bytes <= bytes_max
            });
            let rest = job.units.split_off(fits.count().max(1));
            if !rest.is_empty() {
                lane.push(Job::new(loads, rest, job.is_fresh), true);
            }
        }
        Some(job.units)
    }

    fn begin(&mut self, units: Vec<Unit>, origin: Origin) {
        if let Origin::Lane(lane) = origin {
            self.lanes[lane].in_flight += 1;
        }
        self.start(units, origin, Vec::new(), None);
    }

    /// A request of a lane has come to its end: its place in flight goes to the rest of it, or is free.
    fn end(&mut self, lane: usize, mut rest: Vec<Vec<Unit>>) {
        while let Some(mut units) = rest.pop() {
            self.holds.divert(&mut self.loads, &mut units);
            if !units.is_empty() {
                return self.start(units, Origin::Lane(lane), rest, None);
            }
        }
        self.lanes[lane].in_flight -= 1;
    }

    fn start(&mut self, units: Vec<Unit>, origin: Origin, rest: Vec<Vec<Unit>>, given_up: Option<GivenUp>) {
        let is_again = units.iter().all(|unit| unit.attempts > 0);
        let pending = Pending { units };
        let body = pending.body(&self.loads);
        self.requests += 1;
        let name = format!("{}-{}", self.session, self.requests);
        let (backoff, lost, sendings) = (Backoff::default(), 0, 0);
        let request = Request { pending, body, origin, backoff, lost, is_again, name, sendings, given_up, rest };
        self.send(request, Duration::ZERO, false);
    }

    /// Sends after a wait, which keeps its place in flight: an engine in trouble is not given more.
    fn send(&mut self, mut request: Request, wait: Duration, renew: bool) {
        let (engine, path, patience) = (self.engine.clone(), self.path.clone(), self.patience);
        self.tasks.spawn(async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            if renew && let Err(error) = engine.renew().await {
                // the refusal was said; this says why renewing does not help
                tracing::debug!(error = format!("{error:#}"), "cannot read the credentials again");
            }
            let start = Instant::now();
            if let Some(given_up) = &request.given_up {
                if let Err(why) = given_up.is_through(&*engine, patience).await {
                    let reply = Reply::Lost { why, connected: false };
                    return Came { request, reply, took: start.elapsed(), was_sent: false };
                }
                request.given_up = None;
            }
            request.sendings += 1;
            let reply = exchange(&*engine, &path, &request).await;
            Came { request, reply, took: start.elapsed(), was_sent: true }
        });
    }

    fn came(&mut self, came: Came) {
        let Came { mut request, reply, took, was_sent } = came;
        if was_sent {
            self.cost.retries += request.pending.sent();
            self.cost.requests += 1;
            self.cost.bytes_out += request.body.len() as u64;
        }
        let now = Instant::now();
        let is_refused = matches!(reply, Reply::Refused { .. });
        let is_too_large = matches!(reply, Reply::Refused { status: 413, .. });
        match &reply {
            Reply::Items(_) => self.limits.bytes = self.limits.bytes.max(request.body.len()),
            // an engine refuses what is more than a tenth of its memory with a 429 for the whole, however idle it is
            Reply::Lost { connected: true, .. } | Reply::Refused { status: 429, .. } => request.lost += 1,
            _ => {}
        }
        if reply.leaves_it_at_work() {
            request.given_up = Some(GivenUp { name: request.name.clone(), at: now });
        }
        let next = request.pending.answered(&self.loads, &self.rules, &reply);
        if !matches!(next, Next::Whole(_)) {
            self.out_of_trouble(&mut request);
            if self.troubled == 0 {
                self.trouble.ends(now);
            }
        }
        match next {
            Next::Whole(delay) => self.whole(request, delay, took, now),
            Next::Halves(first, second) => {
                if is_too_large {
                    // later requests are no larger than what is tried next
                    let tried = self.loads.size(&first).max(self.loads.size(&second));
                    self.limits.bytes = self.limits.bytes.min(tried);
                }
                self.halves(request, first, second, now);
            }
            Next::Parts(parts) => {
                if is_too_large {
                    self.limits.bytes = self.limits.bytes.min(request.body.len() - 1).max(1);
                }
                self.parts(request, parts, is_refused, now);
            }
        }
    }

    fn whole(&mut self, mut request: Request, delay: Delay, took: Duration, now: Instant) {
        let wait = request.backoff.next(&self.waits);
        self.troubled += usize::from(request.backoff.tries == 1);
        self.trouble.begins(&delay, request.backoff.tries, took, now);
        tracing::debug!(tries = request.backoff.tries, ?wait, ?delay, "a request is sent again");
        let units = &mut request.pending.units;
        let is_of_lane = matches!(request.origin, Origin::Lane(_));
        if is_of_lane && request.lost >= LOST_MAX && request.body.len() >= LOST_BYTES_MIN && units.len() > 1 {
            let mut first = std::mem::take(units);
            let second = first.split_off(first.len() / 2);
            self.out_of_trouble(&mut request);
            return self.halves(request, first, second, now);
        }
        self.send(request, wait, matches!(delay, Delay::Refused(_)));
    }

    fn out_of_trouble(&mut self, request: &mut Request) {
        self.troubled -= usize::from(request.backoff.tries > 0);
        request.backoff = Backoff::default();
    }

    fn halves(&mut self, mut request: Request, mut first: Vec<Unit>, second: Vec<Unit>, now: Instant) {
        match request.origin {
            Origin::Lane(_) => {
                request.rest.push(second);
                self.start(first, request.origin, request.rest, request.given_up);
            }
            Origin::Probe(index) => {
                first.extend(second);
                self.holds.halve(&index, first, now);
            }
        }
    }

    fn parts(&mut self, request: Request, mut parts: Parts, is_refused: bool, now: Instant) {
        for ended in std::mem::take(&mut parts.ended) {
            if let Some(receipt) = self.loads.close(&ended) {
                let mut tally = std::mem::take(&mut self.cost);
                tally.add(&ended.tally);
                self.acks.settle(&receipt, tally, ended.letters);
                self.loads.lighten(ended.load);
            }
        }
        match request.origin.clone() {
            Origin::Lane(lane) => self.lane_parts(lane, request, parts, now),
            Origin::Probe(index) => self.probe_parts(&index, parts, is_refused, now),
        }
    }

    fn lane_parts(&mut self, lane: usize, request: Request, mut parts: Parts, now: Instant) {
        for (index, cause) in &parts.causes {
            let held: Vec<Unit> = parts.held.extract_if(.., |unit| self.loads.index(unit) == index).collect();
            self.loads.delay(&held);
            self.holds.refused(index, cause, held, now);
        }
        if parts.again.is_empty() {
            if request.is_again {
                self.busy.ends(now);
            }
            return self.end(lane, request.rest);
        }
        let wait = self.wait_of(&parts.again);
        let is_mostly_bad = parts.again.len() > parts.good;
        if self.rules.ordered || is_mostly_bad {
            let pending = Pending { units: parts.again };
            let body = pending.body(&self.loads);
            self.send(Request { pending, body, lost: 0, is_again: true, ..request }, wait, false);
        } else {
            self.put_off(now + wait, parts.again);
            self.end(lane, request.rest);
        }
    }

    /// How long items wait that failed alone; said if it lasts.
    fn wait_of(&mut self, again: &[Unit]) -> Duration {
        let tries = again.iter().map(|unit| unit.attempts).max().unwrap_or(1);
        self.busy.begins(tries, Instant::now());
        Backoff { tries: tries.saturating_sub(1) }.next(&self.waits)
    }

    fn probe_parts(&mut self, index: &str, parts: Parts, is_refused: bool, now: Instant) {
        let mut rest = parts.held;
        let is_still = !rest.is_empty();
        if is_still || (self.rules.ordered && !parts.again.is_empty()) {
            // one index: either all that failed is held, or nothing
            rest.extend(parts.again);
            self.holds.back(index, rest, now);
            return;
        }
        if is_refused {
            return self.holds.unsure(index, now);
        }
        let released = self.holds.release(index, now);
        for (lane, units) in self.by_lane(released) {
            self.lanes[lane].push(Job::new(&self.loads, units, false), true);
        }
        if !parts.again.is_empty() {
            let wait = self.wait_of(&parts.again);
            self.put_off(now + wait, parts.again);
        }
    }

    fn put_off(&mut self, until: Instant, units: Vec<Unit>) {
        self.loads.delay(&units);
        self.later.push((until, units));
    }
}

impl Job {
    fn new(loads: &Loads, units: Vec<Unit>, is_fresh: bool) -> Job {
        Job { bytes: loads.size(&units), units, is_fresh }
    }
}

impl Lane {
    fn push(&mut self, job: Job, is_first: bool) {
        self.queued_bytes += job.bytes;
        if is_first { self.queue.push_front(job) } else { self.queue.push_back(job) }
    }

    fn pop(&mut self) -> Option<Job> {
        let job = self.queue.pop_front()?;
        self.queued_bytes -= job.bytes;
        Some(job)
    }
}

async fn exchange(engine: &impl Exchange, path: &str, request: &Request) -> Reply {
    let body = Some(("application/x-ndjson", request.body.clone()));
    let name = format!("{}.{}", request.name, request.sendings);
    match engine.call_named(&name, reqwest::Method::POST, path, body).await {
        Err(Lost { why, connected }) => Reply::Lost { why, connected },
        Ok((200, text)) => match Answer::read(text, request.pending.units.len()) {
            Some(answer) => Reply::Items(answer),
            None => Reply::Lost { why: "its answer is not one status an item".to_string(), connected: true },
        },
        Ok((status, body)) => Reply::Refused { status, body },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_taken_when_no_batch_is_let_in() {
        for (bytes_in_flight_max, batch_bytes, held_bytes, want) in [
            (100, 40, 60, false),
            (100, 40, 61, true),
            // nothing of it may be taken
            (100, 100, 1, true),
            (100, 101, 1, true),
            (100, 101, 0, false),
            (usize::MAX, 0, usize::MAX, false),
        ] {
            let room = Room { bytes_in_flight_max, batch_bytes };
            assert_eq!(room.is_taken_by(held_bytes), want, "{held_bytes} beside {room:?}");
        }
    }
}
