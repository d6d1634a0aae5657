//! What outlives a process: the time, the disk, the engine, the lines that were written; and the fault that ends a
//! life at a certain step.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceline::time::Time;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::check;
use crate::disk::Disk;
use crate::engine::Engine;
use crate::logs::Logs;
use crate::pipe::Pipe;
use crate::run::Counts;
use crate::scenario::{Fault, Scenario, Trouble};
use crate::writer::Lines;

/// How many of the last steps are shown of a seed that failed.
const STEPS_SHOWN: usize = 60;

pub struct World {
    pub scenario: Scenario,
    pub disk: Disk,
    pub logs: Logs,
    pub pipe: Pipe,
    pub engine: Engine,
    pub lines: Mutex<Lines>,
    pub letters: Mutex<check::Known>,
    pub counts: Mutex<Counts>,
    /// Dead letters are being sent again.
    pub is_replaying: AtomicBool,
    pub clock: Clock,
}

impl World {
    /// A life has ended: of standard input a kill may lose what had been read.
    pub fn pipe_ended(&self, is_killed: bool) {
        let places = self.pipe.ended(is_killed);
        if is_killed {
            lock(&self.lines).killed(places, self);
        }
    }
}

/// Simulated time, the steps taken in it, and what was found wrong.
#[derive(Clone)]
pub struct Clock {
    start: Instant,
    state: Arc<Mutex<Steps>>,
    ends: Arc<watch::Sender<bool>>,
}

#[derive(Default)]
struct Steps {
    count: u64,
    /// The life ends at this step.
    crash_at: Option<u64>,
    digest: u64,
    last: VecDeque<(Duration, &'static str, u64)>,
    wrong: Vec<String>,
    faults: Vec<Fault>,
}

/// The process is no more: nothing it does has an effect.
#[derive(Clone, Copy, Debug)]
pub struct Crashed;

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clock {
    pub fn start() -> Clock {
        Clock { start: Instant::now(), state: Arc::default(), ends: Arc::new(watch::Sender::new(false)) }
    }

    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// These faults are to come, from `from` on.
    pub fn plan_faults(&self, faults: &[Fault], from: Duration) {
        let later = |fault: &Fault| Fault { time: fault.time.start + from..fault.time.end + from, ..fault.clone() };
        lock(&self.state).faults.extend(faults.iter().map(later));
    }

    /// How likely a trouble meets what happens now.
    pub fn trouble(&self, kind: Trouble) -> f64 {
        let now = self.now();
        let state = lock(&self.state);
        let now = state.faults.iter().filter(|fault| fault.kind == kind && fault.time.contains(&now));
        now.map(|fault| fault.share).fold(0.0, f64::max)
    }

    /// The faults of one kind, whenever they are.
    pub fn faults(&self, kind: Trouble) -> Vec<Range<Duration>> {
        let state = lock(&self.state);
        state.faults.iter().filter(|fault| fault.kind == kind).map(|fault| fault.time.clone()).collect()
    }

    /// As a machine's clock tells it.
    pub fn time(&self) -> Time {
        let now = self.now();
        Time::new(1_772_000_000 + now.as_secs() as i64, now.subsec_nanos())
    }

    /// Notes something that happens, whoever does it.
    pub fn note(&self, what: &'static str, detail: u64) {
        let now = self.now();
        let mut state = lock(&self.state);
        let words = [now.as_millis() as u64, what.len() as u64, u64::from(what.as_bytes()[0]), detail];
        for word in words {
            state.digest = (state.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
        state.last.push_back((now, what, detail));
        if state.last.len() > STEPS_SHOWN {
            state.last.pop_front();
        }
        if self.is_traced() {
            eprintln!("{:10.3} {what} {detail}", now.as_secs_f64());
        }
    }

    /// Every step is printed.
    pub fn is_traced(&self) -> bool {
        std::env::var_os("ONCELINE_TRACE").is_some()
    }

    /// A step of the process: where it may end.
    pub fn step(&self, what: &'static str, detail: u64) -> Result<(), Crashed> {
        if *self.ends.borrow() {
            return Err(Crashed);
        }
        self.note(what, detail);
        let mut state = lock(&self.state);
        state.count += 1;
        if state.crash_at.is_some_and(|at| state.count >= at) {
            drop(state);
            self.crash();
            return Err(Crashed);
        }
        Ok(())
    }

    pub fn crash(&self) {
        self.note("crash", 0);
        self.ends.send_replace(true);
    }

    /// A new life, which ends after so many steps, if it is given.
    pub fn begin(&self, steps: Option<u64>) {
        let mut state = lock(&self.state);
        state.crash_at = steps.map(|steps| state.count + steps);
        self.ends.send_replace(false);
    }

    pub fn is_over(&self) -> bool {
        *self.ends.borrow()
    }

    pub async fn crashed(&self) {
        let mut ends = self.ends.subscribe();
        // the sender lives in self
        let _ = ends.wait_for(|ends| *ends).await;
    }

    /// Notes that a promise was broken.
    pub fn wrong(&self, why: String) {
        let mut state = lock(&self.state);
        if state.wrong.len() < 10 {
            state.wrong.push(why);
        }
    }

    pub fn is_wrong(&self) -> bool {
        !lock(&self.state).wrong.is_empty()
    }

    /// What was found wrong, the last steps before it, and a digest of all steps.
    pub fn story(&self) -> (Vec<String>, Vec<String>, u64) {
        let state = lock(&self.state);
        let last = state.last.iter().map(|(at, what, n)| format!("{:10.3} s  {what} {n}", at.as_secs_f64()));
        (state.wrong.clone(), last.collect(), state.digest)
    }
}
