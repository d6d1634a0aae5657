//! `onceline run`: the pipelines, the signals that stop them or have their files read again, and how it ended.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use onceline::ack::kept::Kept;
use onceline::ack::lock::{Held, Lock};
use onceline::ack::{Shared, Summary, counted};
use onceline::disk::Real;
use onceline::input::lines::Rest;
use onceline::input::spool::{self, Written};
use onceline::input::stdin;
use onceline::output::{self, Phase, Phases};
use onceline::pipeline::progress;
use onceline::pipeline::read::{Options, Plan};
use onceline::pipeline::run::{Feed, Session, run_session};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::{oneshot, watch};

use crate::{DONE, PipelineArgs, UNSETTLED, WRONG, Weight, complain, load, options, say, say_conflicts};

/// How long outputs have to let go once it is given up.
const LEAVE: Duration = Duration::from_secs(1);
/// How long to wait before a spool that could not be written is tried again.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// How often locks are looked after.
const HOLD: Duration = Duration::from_secs(1);

const UNREAD: &str = "stopped before the end: input that was not read is left, run it again for the rest";

#[derive(Args, Clone)]
pub struct RunArgs {
    #[command(flatten)]
    pub pipelines: PipelineArgs,
    /// Read the files there are to their ends, then stop
    #[arg(long)]
    once: bool,
    /// Read files from their beginnings, whatever was read before
    #[arg(long)]
    from_start: bool,
    /// Show a bar while it runs
    #[arg(long)]
    progress: bool,
    /// Write the counts of the run as one JSON object; - for standard output
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Exit with 1 if there is a dead letter
    #[arg(long)]
    fail_on_dead_letters: bool,
    /// On SIGHUP, take a pipeline file with another [id] or [index]: what is read again is stored again
    #[arg(long)]
    allow_new_ids: bool,
}

/// All pipelines of the process.
struct Crew {
    args: RunArgs,
    places: Vec<Place>,
    /// The state folders.
    states: Mutex<Vec<Lock>>,
    /// What another process took from under this one.
    lost: Mutex<Option<anyhow::Error>>,
    /// How often it was told to stop.
    stops: AtomicU32,
    /// When outputs were told to leave what they have, to end the process.
    left_at: Mutex<Option<Instant>>,
}

/// One pipeline of the process, and those that replace it.
struct Place {
    path: PathBuf,
    shared: Arc<Shared>,
    now: Mutex<Now>,
    /// The positions in databases that were worked on, which stay ours to the end.
    locks: Mutex<HashMap<String, Lock>>,
    /// It was ended for good.
    is_stopping: AtomicBool,
    /// The output has ended, and what is not settled is written to a spool, which may wait for room.
    is_keeping: AtomicBool,
}

/// What runs in a place.
struct Now {
    plan: Arc<Plan>,
    next: Option<Plan>,
    phase: watch::Sender<Phase>,
    phases: Phases,
    kept: Arc<Kept>,
    generation: u64,
}

impl Now {
    fn new(plan: Plan, generation: u64) -> Now {
        let (phase, phases) = watch::channel(Phase::Running);
        Now { plan: Arc::new(plan), next: None, phase, phases, kept: Arc::default(), generation }
    }
}

/// How a place ended.
struct Outcome {
    summary: Summary,
    errors: Vec<anyhow::Error>,
    kept: Option<Written>,
    /// What earlier runs kept, and this one did not come to.
    older: Vec<PathBuf>,
    /// Something is left that nobody reads by himself: standard input, or files that are not followed.
    is_unread: bool,
}

pub fn run(args: &RunArgs) -> anyhow::Result<u8> {
    // first, so that one that comes at once is heard
    let signals = watch_signals(args.once)?;
    let Some(plans) = load(&args.pipelines, &how(args))? else { return Ok(WRONG) };
    let reading = plans.iter().filter(|(_, plan)| plan.pipeline.reads_stdin()).count();
    let reads_stdin = reading > 0;
    if reading > 1 {
        complain("standard input can be read by one pipeline only");
        return Ok(WRONG);
    }
    if let Some(place) = shared_place(&plans) {
        complain(&place);
        return Ok(WRONG);
    }
    if say_conflicts(&plans) {
        return Ok(WRONG);
    }
    // held to the end of the process: who replaces a pipeline has the same folder
    let states = lock_states(&plans)?;
    let shared: Vec<Arc<Shared>> = plans.iter().map(|_| Arc::default()).collect();
    let bar = args.progress.then(|| progress::start(&plans, &shared));
    let places = plans.into_iter().zip(shared).map(|((path, plan), shared)| Place {
        path,
        shared,
        now: Mutex::new(Now::new(plan, 0)),
        locks: Mutex::default(),
        is_stopping: AtomicBool::new(false),
        is_keeping: AtomicBool::new(false),
    });
    let places: Vec<Place> = places.collect();
    places.iter().try_for_each(|place| place.lock_positions(&place.now().0))?;
    let crew = Arc::new(Crew {
        args: args.clone(),
        places,
        states: Mutex::new(states),
        lost: Mutex::default(),
        stops: AtomicU32::new(0),
        left_at: Mutex::default(),
    });
    if signals.send(crew.clone()).is_err() {
        // a signal came first, and whoever heard it ends the process
        return Ok(DONE);
    }
    crew.places.iter().for_each(Place::say_old_letters);
    let started = Instant::now();
    let is_told = !reads_stdin && tell_unread();
    let outcomes = crew.work();
    // who writes into a pipe may begin later
    if !reads_stdin && !is_told {
        tell_unread();
    }
    if let Some(bar) = bar {
        bar.stop();
    }
    crew.finish(&outcomes, started.elapsed().as_secs_f64())
}

/// Says that what is given on standard input is read by nobody, if something is.
fn tell_unread() -> bool {
    let has_bytes = stdin::has_bytes();
    if has_bytes {
        tracing::warn!("there is something on standard input, which no [[input]] reads: `type = \"stdin\"` does");
    }
    has_bytes
}

/// The place where two pipelines would save positions, and what to do about it; none if each has its own.
fn shared_place(plans: &[(PathBuf, Plan)]) -> Option<String> {
    let mut places = HashSet::new();
    let place =
        plans.iter().filter_map(|(_, plan)| plan.pipeline.saves_in()).find(|place| !places.insert(place.clone()))?;
    Some(format!("two pipelines would save positions in {place}: give each a file name or a `[state] path` of its own"))
}

/// Takes the state folders of all pipelines, each once.
fn lock_states(plans: &[(PathBuf, Plan)]) -> anyhow::Result<Vec<Lock>> {
    let states = plans.iter().map(|(_, plan)| std::path::absolute(&plan.pipeline.state));
    let states = states.collect::<Result<BTreeSet<_>, _>>().context("cannot find the state folder")?;
    states.iter().map(|state| Lock::state(state)).collect()
}

fn how(args: &RunArgs) -> Options {
    Options { once: args.once, from_start: args.from_start, ..options(&args.pipelines) }
}

impl Crew {
    /// Runs every place to its end, or leaves those that do not end although they must.
    fn work(self: &Arc<Crew>) -> Vec<Outcome> {
        let (send, ended) = mpsc::channel();
        for number in 0..self.places.len() {
            let (crew, send) = (self.clone(), send.clone());
            std::thread::spawn(move || {
                // nobody hears it if the process ends without this place
                let _ = send.send((number, crew.places[number].live(&crew)));
            });
        }
        drop(send);
        let mut outcomes: Vec<Option<Outcome>> = self.places.iter().map(|_| None).collect();
        let mut held = Instant::now();
        while outcomes.iter().any(Option::is_none) {
            if held.elapsed() >= HOLD {
                self.hold();
                held = Instant::now();
            }
            let is_over = match ended.recv_timeout(Duration::from_millis(50)) {
                Ok((number, outcome)) => {
                    outcomes[number].get_or_insert(outcome);
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            for (place, outcome) in self.places.iter().zip(&mut outcomes) {
                // one that waits for room on the disk has let go of its output
                let is_stuck = self.is_overdue() && !place.is_keeping.load(Ordering::Acquire);
                if outcome.is_none() && (is_stuck || is_over) {
                    *outcome = Some(place.leave(self));
                }
            }
        }
        outcomes.into_iter().flatten().collect()
    }

    /// Sees to it that no other process can take what this one works on, which it could once a lock is removed.
    fn hold(&self) {
        let hold = |taken: &mut Lock| match taken.hold() {
            Ok(false) => {}
            Ok(true) => tracing::warn!(path = %taken.path().display(), "the lock was removed, and is made anew"),
            Err(error) if error.is::<Held>() => {
                let mut lost = lock(&self.lost);
                if lost.is_none() {
                    *lost = Some(error.context("its lock was removed while it ran"));
                    // whoever hears signals stops what runs
                    let _ = kill_process(getpid(), Signal::TERM);
                }
            }
            Err(error) => tracing::debug!(path = %taken.path().display(), "cannot be locked anew: {error:#}"),
        };
        lock(&self.states).iter_mut().for_each(hold);
        self.places.iter().for_each(|place| lock(&place.locks).values_mut().for_each(hold));
    }

    fn is_overdue(&self) -> bool {
        lock(&self.left_at).is_some_and(|at| at.elapsed() >= LEAVE)
    }

    fn is_hurried(&self) -> bool {
        self.stops.load(Ordering::Relaxed) >= 2
    }

    /// The first time: end the reading and deliver what was read, for a time. The second: leave the rest.
    fn stop(self: &Arc<Crew>) {
        if self.stops.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("going down: delivering what was read, a second signal leaves it");
            for number in 0..self.places.len() {
                self.places[number].is_stopping.store(true, Ordering::Relaxed);
                self.places[number].shared.set_awaited(false);
                self.drain(number);
            }
            return;
        }
        lock(&self.left_at).get_or_insert_with(Instant::now);
        for place in &self.places {
            lock(&place.now).phase.send_replace(Phase::Abandon);
        }
    }

    /// Ends the reading, and after `drain_max` the delivering.
    fn drain(self: &Arc<Crew>, number: usize) {
        let now = lock(&self.places[number].now);
        now.phase.send_if_modified(|phase| std::mem::replace(phase, Phase::Draining.max(*phase)) == Phase::Running);
        let (crew, generation, wait) = (self.clone(), now.generation, now.plan.pipeline.tuning.drain_max);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            let place = &crew.places[number];
            let now = lock(&place.now);
            if now.generation == generation {
                now.phase.send_replace(Phase::Abandon);
                if place.is_stopping.load(Ordering::Relaxed) {
                    lock(&crew.left_at).get_or_insert_with(Instant::now);
                }
            }
        });
    }

    /// Reads the pipeline files again: all of them replace those that run, or none does.
    fn reload(self: &Arc<Crew>) {
        if self.stops.load(Ordering::Relaxed) > 0 {
            return;
        }
        let plans = match load(&self.args.pipelines, &Options { again: true, ..how(&self.args) }) {
            Ok(Some(plans)) => plans,
            Ok(None) => {
                complain("the pipelines go on as they were");
                return;
            }
            Err(error) => {
                complain(&format!("{error:#}; the pipelines go on as they were"));
                return;
            }
        };
        let place = shared_place(&plans);
        let mut is_good = place.is_none();
        place.iter().for_each(|place| complain(place));
        is_good &= !say_conflicts(&plans);
        for (place, (path, plan)) in self.places.iter().zip(&plans) {
            for why in place.refusals(plan, self.args.allow_new_ids) {
                complain(&format!("{}: {why}", path.display()));
                is_good = false;
            }
        }
        if !is_good {
            complain("the pipelines go on as they were");
            return;
        }
        for (number, (path, plan)) in plans.into_iter().enumerate() {
            say(Weight::Info, &format!("{}: read again, replaces what runs", path.display()));
            lock(&self.places[number].now).next = Some(plan);
            self.places[number].shared.set_awaited(true);
            self.drain(number);
        }
    }
}

impl Place {
    /// Runs what is in this place, and what replaces it, to the end.
    fn live(&self, crew: &Crew) -> Outcome {
        let mut rest = Rest::default();
        loop {
            let (plan, phases, kept) = self.now();
            let feed = Feed::Inputs { rest };
            let (shared, kept_here) = (self.shared.clone(), kept.clone());
            let session = Session { shared, kept: kept_here, phases, feed, letters: None };
            let ending = run_session(&plan.pipeline, session);
            if !ending.errors.is_empty() || !self.replaced() {
                let is_unread = ending.is_unread;
                return Outcome { is_unread, ..self.end(crew, &plan, &kept, ending.errors) };
            }
            rest = kept.take_rest().unwrap_or_default();
            if let Err(error) = self.keep(crew, &plan, &kept) {
                return self.outcome(&plan, Err(error), Vec::new());
            }
            self.is_keeping.store(false, Ordering::Release);
            self.shared.forget_unsettled();
        }
    }

    /// Says which dead letters are older than they should be.
    fn say_old_letters(&self) {
        let pipeline = &self.now().0.pipeline;
        match pipeline.old_letters(&pipeline.letters) {
            Ok(Some((_, old))) => say(Weight::Info, &format!("{}: {old}", self.path.display())),
            Ok(None) => {}
            Err(error) => tracing::warn!(path = %pipeline.letters.display(), %error, "dead letters cannot be read"),
        }
    }

    /// No other process works on the positions that a plan saves.
    fn lock_positions(&self, plan: &Plan) -> anyhow::Result<()> {
        let mut locks = lock(&self.locks);
        if let Some(place) = plan.pipeline.saves_in()
            && !locks.contains_key(&place)
            && let Some(taken) = plan.pipeline.lock_positions()?
        {
            locks.insert(place, taken);
        }
        Ok(())
    }

    fn now(&self) -> (Arc<Plan>, Phases, Arc<Kept>) {
        let now = lock(&self.now);
        (now.plan.clone(), now.phases.clone(), now.kept.clone())
    }

    /// Puts the next plan in the place of the one that ended; false if it ended for good.
    fn replaced(&self) -> bool {
        let mut now = lock(&self.now);
        match now.next.take() {
            Some(next) if !self.is_stopping.load(Ordering::Relaxed) => {
                *now = Now::new(next, now.generation + 1);
                self.shared.set_awaited(false);
                true
            }
            _ => false,
        }
    }

    fn end(&self, crew: &Crew, plan: &Plan, kept: &Kept, errors: Vec<anyhow::Error>) -> Outcome {
        self.outcome(plan, self.keep(crew, plan, kept), errors)
    }

    fn keep(&self, crew: &Crew, plan: &Plan, kept: &Kept) -> anyhow::Result<Option<Written>> {
        self.is_keeping.store(true, Ordering::Release);
        keep(kept, &plan.pipeline.spool, crew)
    }

    fn outcome(&self, plan: &Plan, kept: anyhow::Result<Option<Written>>, mut errors: Vec<anyhow::Error>) -> Outcome {
        let kept = kept.unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        // a folder that cannot be looked into was said at the start
        let spools = plan.pipeline.reads_stdin().then(|| spool::files(&Real, &plan.pipeline.spool).unwrap_or_default());
        let mut older = spools.unwrap_or_default();
        older.retain(|path| kept.as_ref().is_none_or(|kept| *path != kept.path));
        Outcome { summary: self.shared.lock().0, errors, kept, older, is_unread: plan.pipeline.has_an_end() }
    }

    /// Ends without what runs here, which does not let go.
    fn leave(&self, crew: &Crew) -> Outcome {
        let (plan, _, kept) = self.now();
        self.end(crew, &plan, &kept, vec![anyhow!("the output did not end by itself and was left")])
    }

    /// Why a plan must not replace what runs.
    fn refusals(&self, new: &Plan, allow_new_ids: bool) -> Vec<String> {
        let old = lock(&self.now).plan.clone();
        let hashed = |plan: &Plan| {
            let fields: Vec<String> = plan.choice.source.iter().map(|field| field.as_str().to_string()).collect();
            (plan.choice.definition.clone(), fields, plan.choice.raw, plan.choice.keep)
        };
        let mut why = Vec::new();
        let allow = "start with --allow-new-ids if that is wanted";
        if !allow_new_ids && hashed(&old) != hashed(new) {
            why.push(format!("another [id] is refused: what is read again would be stored again; {allow}"));
        }
        if !allow_new_ids && old.index.as_str() != new.index.as_str() {
            why.push(format!("another [index] name is refused: what is read again would be stored again; {allow}"));
        }
        if old.pipeline.state != new.pipeline.state {
            why.push("another state folder is refused while it runs: start it anew".to_string());
        }
        if old.pipeline.reads_stdin() != new.pipeline.reads_stdin() {
            why.push("to read standard input, or no longer, is refused while it runs: start it anew".to_string());
        }
        if let Some(error) = self.shared.unsaved() {
            why.push(format!(
                "positions cannot be saved, and a new pipeline would begin where they were last: {error}"
            ));
        }
        if let Err(error) = self.lock_positions(new) {
            why.push(format!("{error:#}"));
        }
        // a file that is appended to is not touched while it is in use
        let is_tried = !matches!(new.pipeline.output, output::Config::Ndjson { .. });
        if is_tried && let Err(error) = new.pipeline.output.open(&new.pipeline) {
            why.push(format!("the output cannot be opened: {error:#}"));
        }
        why
    }
}

/// Keeps what cannot be read again. Waits for room on the disk until somebody is in a hurry.
fn keep(kept: &Kept, folder: &Path, crew: &Crew) -> anyhow::Result<Option<Written>> {
    let mut is_said = false;
    loop {
        match kept.write(&Real, folder) {
            Ok(written) => return Ok(written),
            Err(error) if crew.is_hurried() => {
                let lost = format!(
                    "what was read of standard input is not settled and is given up: it cannot be kept in {}",
                    folder.display()
                );
                return Err(error).context(lost);
            }
            Err(error) => {
                if !std::mem::replace(&mut is_said, true) {
                    let path = folder.display();
                    tracing::error!(%path, %error, "what was read of standard input cannot be kept: waiting, another signal gives it up");
                }
                std::thread::sleep(RETRY_WAIT);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// SIGINT and SIGTERM stop, SIGHUP has the pipeline files read again, as soon as it is said whose. Before that nothing
/// was read, and there is nothing to wait for.
fn watch_signals(once: bool) -> anyhow::Result<oneshot::Sender<Arc<Crew>>> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate, mut hang_up, mut too_large) = runtime.block_on(async {
        let stops = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let too_large = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
        anyhow::Ok((stops.0, stops.1, signal(SignalKind::hangup())?, too_large))
    })?;
    let (send, mut crew) = oneshot::channel::<Arc<Crew>>();
    std::thread::spawn(move || {
        runtime.block_on(async {
            let has_begun = tokio::select! {
                biased;
                Ok(crew) = &mut crew => Some(crew),
                _ = interrupt.recv() => None,
                _ = terminate.recv() => None,
            };
            let crew = has_begun.unwrap_or_else(|| stop_at_the_start(crew, once));
            loop {
                tokio::select! {
                    _ = interrupt.recv() => crew.stop(),
                    _ = terminate.recv() => crew.stop(),
                    _ = hang_up.recv() => crew.reload(),
                    // a file is as large as it may be: who writes to it is told, and waits as for a full disk
                    _ = too_large.recv() => {}
                }
            }
        });
    });
    Ok(send)
}

/// Stops a crew that has begun meanwhile; if there is none, none can begin any more.
#[expect(clippy::exit, reason = "nothing was read, nothing is written, and reading a pipeline file may wait for ever")]
fn stop_at_the_start(mut crew: oneshot::Receiver<Arc<Crew>>, once: bool) -> Arc<Crew> {
    crew.close();
    let Ok(crew) = crew.try_recv() else {
        say(Weight::Info, "stopped by a signal before it began");
        // somebody counts on what has an end to be read to it
        let status = if once || stdin::has_bytes() { UNSETTLED } else { DONE };
        std::process::exit(status.into())
    };
    crew.stop();
    crew
}

impl Crew {
    /// Says how the run ended, and gives its exit status.
    fn finish(&self, outcomes: &[Outcome], seconds: f64) -> anyhow::Result<u8> {
        let mut total = Summary::default();
        let mut status = DONE;
        if let Some(lost) = &*lock(&self.lost) {
            complain(&format!("{lost:#}"));
            status = UNSETTLED;
        }
        for (place, outcome) in self.places.iter().zip(outcomes) {
            total.merge(&outcome.summary);
            for error in &outcome.errors {
                complain(&format!("{}: {error:#}", place.path.display()));
                status = UNSETTLED;
            }
            let unread = outcome.is_unread && self.stops.load(Ordering::Relaxed) > 0;
            let unread = unread.then(|| UNREAD.to_string());
            for left in unsettled_words(outcome).into_iter().chain(older_words(outcome)).chain(unread) {
                complain(&format!("{}: {left}", place.path.display()));
                status = UNSETTLED;
            }
            if outcome.summary.dead_lettered > 0 {
                let (count, plan) = (counted(outcome.summary.dead_lettered, "dead letter"), place.now().0);
                let letters = plan.pipeline.letters.display();
                say(Weight::Info, &format!("{}: {count}, see {letters}", place.path.display()));
                if self.args.fail_on_dead_letters {
                    status = UNSETTLED;
                }
            }
        }
        self.places.iter().for_each(Place::say_old_letters);
        say(Weight::Info, &total.words(seconds));
        if let [place] = self.places.as_slice()
            && let Some(hint) = place.now().0.pipeline.output.look()
        {
            say(Weight::Info, &hint);
        }
        if let Some(file) = &self.args.summary {
            self.write_summary(file, outcomes, &total, seconds)?;
        }
        Ok(status)
    }

    fn write_summary(&self, file: &Path, outcomes: &[Outcome], total: &Summary, seconds: f64) -> anyhow::Result<()> {
        let mut object = total.to_json(seconds);
        if self.places.len() > 1 {
            let names: Vec<String> = self.places.iter().map(|place| place.now().0.pipeline.name.clone()).collect();
            let each = self.places.iter().zip(&names).zip(outcomes).map(|((place, name), outcome)| {
                // two files of one name are told apart by their folders
                let is_shared = names.iter().filter(|other| *other == name).count() > 1;
                let name = if is_shared { place.path.display().to_string() } else { name.clone() };
                (name, outcome.summary.to_json(seconds).into())
            });
            object.insert("pipelines".to_string(), serde_json::Value::Object(each.collect()));
        }
        let text = format!("{}\n", serde_json::Value::Object(object));
        if file == Path::new("-") {
            std::io::stdout().write_all(text.as_bytes()).context("cannot write the summary")
        } else {
            std::fs::write(file, text).with_context(|| format!("cannot write the summary to {}", file.display()))
        }
    }
}

/// What is not settled, and where it is kept.
fn unsettled_words(outcome: &Outcome) -> Option<String> {
    let unsettled = outcome.summary.unsettled();
    let events = counted(unsettled, "event");
    match &outcome.kept {
        Some(Written { path, records }) => {
            let (records, path) = (counted(*records, "record"), path.display());
            let before = if unsettled > 0 { format!("{events} not settled; ") } else { String::new() };
            Some(format!("{before}{records} of standard input kept in {path}, which the next run sends first"))
        }
        None if unsettled > 0 => Some(format!("{events} not settled")),
        None => None,
    }
}

/// What is left of what earlier runs kept.
fn older_words(outcome: &Outcome) -> Option<String> {
    let first = outcome.older.first()?.display();
    let spools = counted(outcome.older.len() as u64, "spool");
    Some(format!("{spools} of earlier runs not sent to the end, from {first} on; the next run sends them first"))
}
