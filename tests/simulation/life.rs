//! One life of the process: sessions, each replacing the one before, until it is told to stop, is done, or is cut off.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceline::ack::kept::Kept;
use onceline::ack::{LetterFile, Saving, Shared};
use onceline::disk::Disk;
use onceline::input::lines::Rest;
use onceline::output::Phase;
use onceline::pipeline::Pipeline;
use onceline::pipeline::replay::Replay;
use onceline::pipeline::run::Feed;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::check;
use crate::input::SPOOLS;
use crate::saves;
use crate::scenario::Plan;
use crate::session::Session;
use crate::world::{Crashed, World, lock};

pub const LETTERS: &str = "/state/dead-letters.ndjson";

/// How a life came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Crashed,
    /// Told to stop, or done.
    Stopped,
}

/// What is asked of a life.
#[derive(Clone, Debug, Default)]
pub struct Order {
    /// When it is told to stop, and how long it may drain; else it ends when all is done.
    pub stop: Option<(Duration, Duration)>,
    pub kill_after: Option<Duration>,
    /// Reads everything again.
    pub from_start: bool,
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Stopped,
    Replaced,
}

struct Life<'a> {
    world: &'a Arc<World>,
    order: Order,
    /// When it is told to stop.
    stop_at: Option<Duration>,
    shared: Arc<Shared>,
}

/// Runs one life to its end. It begins with the plan that is the newest by now.
pub async fn live(world: &Arc<World>, pipelines: &[Pipeline], order: Order) -> Ended {
    let stop_at = order.stop.map(|(after, _)| world.clock.now() + after);
    let life = Life { world, order, stop_at, shared: Arc::default() };
    let done = tokio::select! {
        biased;
        () = world.clock.crashed() => Err(Crashed),
        () = life.kill() => Err(Crashed),
        done = life.run(pipelines) => done,
    };
    world.pipe_ended(done.is_err());
    if done.is_ok() { Ended::Stopped } else { Ended::Crashed }
}

/// Sends all dead letters again, file by file, unless it is cut off.
pub async fn replay(world: &Arc<World>, pipelines: &[Pipeline], order: Order) -> Ended {
    let stop_at = order.stop.map(|(after, _)| world.clock.now() + after);
    let life = Life { world, order, stop_at, shared: Arc::default() };
    let phases = watch::Sender::new(Phase::Running);
    let all = async {
        for path in world.disk.list(Path::new(saves::STATE)).map_err(|_| Crashed)? {
            if path.to_string_lossy().starts_with(LETTERS) && path.extension().is_none_or(|end| end != "new") {
                life.replay(pipelines, &path, &phases).await?;
            }
        }
        Ok(())
    };
    let done: Result<(), Crashed> = tokio::select! {
        biased;
        () = world.clock.crashed() => Err(Crashed),
        () = life.kill() => Err(Crashed),
        never = life.watch_replay(&phases) => match never {},
        done = all => done,
    };
    lock(&world.counts).replays += 1;
    if done.is_ok() { Ended::Stopped } else { Ended::Crashed }
}

impl Life<'_> {
    /// As `pipeline::replay` has it.
    async fn replay(&self, pipelines: &[Pipeline], path: &Path, phases: &watch::Sender<Phase>) -> Result<(), Crashed> {
        let (world, scenario) = (self.world, &self.world.scenario);
        let number = scenario.newest_plan(world.clock.now());
        let (plan, pipeline) = (&scenario.plans[number], &pipelines[number]);
        // what cannot be read or written ends the replay, and the letters stay
        let ended = |_: anyhow::Error| Crashed;
        let Ok(mut replay) = Replay::begin(world.disk.clone(), path, scenario.replay_bytes) else { return Ok(()) };
        while *phases.borrow() == Phase::Running
            && let Some((blocks, sending)) = replay.next(pipeline, &|_| true).map_err(ended)?
        {
            let (kept, phases) = (sending.kept.clone(), phases.clone());
            let session = Session::new(world, plan, pipeline, Arc::default(), kept, phases, Vec::new());
            let failed = Box::new(sending.failed.clone());
            session.run(Feed::Given(blocks), Saving::new(None), failed).await?;
            let (summary, _) = session.counts();
            world.clock.step("letters sent again", summary.tally.events_in)?;
            replay.settle(sending, &summary).map_err(ended)?;
        }
        lock(&world.counts).sent_again += replay.replayed.gone;
        Ok(())
    }

    /// Tells a replay to stop, or says that it takes too long.
    async fn watch_replay(&self, phases: &watch::Sender<Phase>) -> std::convert::Infallible {
        match self.order.stop {
            Some((after, drain)) => {
                sleep(after).await;
                phases.send_replace(Phase::Draining);
                sleep(drain).await;
            }
            None => {
                sleep(self.world.scenario.replay_calm() + self.world.scenario.patience() * 20).await;
                self.world.clock.wrong("a replay does not come to its end".to_string());
            }
        }
        phases.send_replace(Phase::Abandon);
        std::future::pending().await
    }

    async fn kill(&self) {
        match self.order.kill_after {
            Some(after) => sleep(after).await,
            None => std::future::pending().await,
        }
        self.world.clock.crash();
    }

    /// As `commands::run` has it.
    async fn run(&self, pipelines: &[Pipeline]) -> Result<(), Crashed> {
        let scenario = &self.world.scenario;
        let (mut rest, mut is_first) = (Rest::default(), true);
        loop {
            let number = scenario.newest_plan(self.world.clock.now());
            let (plan, pipeline) = (&scenario.plans[number], &pipelines[number]);
            let kept = Arc::<Kept>::default();
            let why = self.session(plan, pipeline, &kept, rest, is_first && self.order.from_start).await?;
            rest = if why == Why::Replaced { kept.take_rest().unwrap_or_default() } else { Rest::default() };
            self.keep(&kept, &rest).await?;
            if why == Why::Stopped {
                return Ok(());
            }
            self.shared.forget_unsettled();
            lock(&self.world.counts).reloads += 1;
            is_first = false;
        }
    }

    async fn session(
        &self,
        plan: &Plan,
        pipeline: &Pipeline,
        kept: &Arc<Kept>,
        rest: Rest,
        from_start: bool,
    ) -> Result<Why, Crashed> {
        let world = self.world;
        self.shared.begin();
        let watched = match saves::load(world, from_start) {
            Ok(watched) => watched,
            Err(_) if world.clock.is_over() => return Err(Crashed),
            Err(error) => {
                world.clock.wrong(format!("saved positions cannot be read: {error:#}"));
                return Err(Crashed);
            }
        };
        check::positions(world, &watched.store.positions(), "found at a start");
        let phases = watch::Sender::new(Phase::Running);
        let positions = watched.store.positions();
        let told = saves::told(world, &positions)?;
        self.shared.lock().1.number_above(told.number_max());
        let letters = LetterFile::new_on(world.disk.clone(), LETTERS.into(), world.scenario.letters_bytes_max);
        let letters = letters.after(told);
        let session = Session::new(world, plan, pipeline, self.shared.clone(), kept.clone(), phases, positions);
        let saving = Saving::new(Some(Box::new(watched)));
        let why = Mutex::new(Why::Stopped);
        tokio::select! {
            biased;
            ended = session.run(Feed::Inputs { rest }, saving, Box::new(letters)) => ended?,
            never = self.watch(&session, &why) => match never {},
        }
        let why = *lock(&why);
        Ok(why)
    }

    /// Ends the session when its time has come, or when all is done; says so if that takes too long.
    async fn watch(&self, session: &Session<'_>, why: &Mutex<Why>) -> std::convert::Infallible {
        let (world, scenario) = (self.world, &self.world.scenario);
        let next = scenario.plans.iter().map(|plan| plan.from).find(|from| *from > world.clock.now());
        let (at, drain) = match (next, self.stop_at, self.order.stop) {
            (Some(next), stop, _) if stop.is_none_or(|stop| next < stop) => {
                *lock(why) = Why::Replaced;
                (next, scenario.drain)
            }
            (_, Some(stop), Some((_, drain))) => (stop, drain),
            _ => {
                self.until_done(session).await;
                (world.clock.now(), scenario.patience())
            }
        };
        sleep(at.saturating_sub(world.clock.now())).await;
        world.clock.note("told to end", 0);
        session.phases.send_replace(Phase::Draining);
        sleep(drain).await;
        session.phases.send_replace(Phase::Abandon);
        std::future::pending().await
    }

    async fn until_done(&self, session: &Session<'_>) {
        let (world, scenario) = (self.world, &self.world.scenario);
        sleep(scenario.calm().saturating_sub(world.clock.now())).await;
        // copying takes its time too
        while !lock(&world.lines).is_over {
            sleep(Duration::from_secs(1)).await;
        }
        // the second time after all files were looked at once more, copies are surely whole, and a record that half a
        // line follows is
        for again in [Duration::ZERO, Duration::from_secs(90)] {
            sleep(again).await;
            let done = async {
                while !is_done(session) || self.order.from_start && !session.has_read_all() {
                    sleep(Duration::from_secs(1)).await;
                }
            };
            if timeout(scenario.patience(), done).await.is_ok() {
                continue;
            }
            let (summary, open) = session.counts();
            let words = summary.words(1.0);
            world.clock.wrong(format!("it does not come to its end: {open} batches open, {words}"));
            session.phases.send_replace(Phase::Abandon);
            std::future::pending::<()>().await;
        }
    }

    /// What cannot be read again is kept, once there is room; but not the rest that the next session goes on with.
    async fn keep(&self, kept: &Kept, rest: &Rest) -> Result<(), Crashed> {
        let written = loop {
            match kept.write(&self.world.disk, Path::new(SPOOLS)) {
                Ok(written) => break written,
                Err(_) => self.world.clock.step("the spool waits", 0)?,
            }
            sleep(Duration::from_millis(500)).await;
        };
        self.world.pipe.secure(rest.covered());
        let records = written.map_or(0, |written| written.records);
        lock(&self.world.counts).kept += records;
        self.world.clock.step("kept", records)
    }
}

fn is_done(session: &Session<'_>) -> bool {
    let (summary, open) = session.counts();
    summary.unsettled() == 0 && open == 0 && check::is_done(session.world)
}
