//! What a session reads: files that are followed, standard input with what earlier runs kept of it, or what it is
//! given.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use onceline::batch::HEAD;
use onceline::codec::Record;
use onceline::input::follow::Lanes;
use onceline::input::follow::machine::{Hint, Machine, Rules};
use onceline::input::follow::pattern::Paths;
use onceline::input::lines::{self, Bytes, Rest};
use onceline::input::{Draft, Given, Job, Limits, Ramp, Series, spool, stdin};
use onceline::output::Slots;
use onceline::pipeline::run::Feed;
use onceline::pool::Pool;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::check;
use crate::logs;
use crate::scenario::LINE_BYTES_MAX;
use crate::session::Session;
use crate::world::{Crashed, lock};

pub const SPOOLS: &str = "/state/spool/simulation";

/// How long the end of a line that was begun is waited for at a stop.
const REST_WAIT: Duration = Duration::from_secs(1);

/// Where blocks go.
struct Ways {
    slots: Slots,
    jobs: mpsc::Sender<Job>,
}

/// What there is for now, then nothing more for now.
struct Piece<'a>(&'a [u8]);

impl Read for Piece<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Session<'_> {
    pub async fn take_in(&self, feed: Feed, slots: Slots, jobs: mpsc::Sender<Job>) -> Result<(), Crashed> {
        let ways = Ways { slots, jobs };
        match feed {
            Feed::Inputs { rest } => {
                let (files, stdin) = tokio::join!(self.follow(&ways), self.read_stdin(rest, &ways));
                files.and(stdin)
            }
            Feed::Given(blocks) => self.give(&mut blocks.into_iter().map(Ok), &ways).await,
        }
    }

    fn limits(&self) -> Limits {
        let ramp = Ramp::from(self.plan.batch_bytes / 8);
        Limits { batch_bytes: self.plan.batch_bytes, ramp, ..self.pipeline.limits(0) }
    }

    async fn follow(&self, ways: &Ways) -> Result<(), Crashed> {
        let world = self.world;
        let (pool, known) = (Pool::default(), self.positions.clone());
        let mut machine = Machine::new(world.logs.clone(), self.rules(), self.limits(), &pool, known);
        let mut lanes = Lanes::new(&self.positions, 0);
        while self.is_running() {
            world.clock.step("look", 0)?;
            let mut drafts = Vec::new();
            let next = machine.step(world.clock.now(), &self.hints(), &mut |told| {
                if world.clock.is_traced() {
                    let told = format!("{told:?}");
                    eprintln!("           {}", &told[..told.len().min(60_000)]);
                }
                lanes.hear(told, &self.shared, &mut |draft| {
                    drafts.push(draft);
                    true
                })
            });
            for draft in drafts {
                self.submit(draft, ways).await?;
            }
            let wait = next.saturating_sub(world.clock.now());
            tokio::select! {
                biased;
                () = self.stopping() => {}
                () = sleep(wait) => {}
                // something is said to have changed
                () = self.pause(20_000) => {}
            }
        }
        Ok(())
    }

    fn hints(&self) -> Vec<Hint> {
        let mut rng = lock(&self.rng);
        match rng.u8(..3) {
            0 => Vec::new(),
            1 => vec![Hint::Folders],
            _ => vec![Hint::Path(logs::path(rng.usize(..self.world.scenario.files)))],
        }
    }

    fn rules(&self) -> Rules {
        let pattern = "/log/*";
        Rules {
            paths: Paths::parse(pattern).into_iter().collect(),
            patterns: glob::Pattern::new(pattern).into_iter().collect(),
            exclude: Vec::new(),
            from_end: false,
            poll_interval: self.world.scenario.poll_interval,
            open_files_max: self.world.scenario.open_files_max,
            close_after: Duration::from_secs(30),
            idle_flush: None,
        }
    }

    /// Hands a block over. False once nobody takes blocks any more.
    async fn submit(&self, draft: Draft, ways: &Ways) -> Result<bool, Crashed> {
        let bytes = draft.block.bytes.len();
        let permit = self.wait_for(|| self.budget.try_take(draft.weight())).await;
        let slot = if permit.is_some() { self.wait_for(|| ways.slots.try_take()).await } else { None };
        let Some((permit, slot)) = permit.zip(slot) else {
            draft.keep_back(self.limits().cutting());
            return Ok(false);
        };
        self.world.clock.step("hand over", bytes as u64)?;
        self.note_handed(&draft);
        let _ = ways.jobs.send(draft.job(permit, slot, &self.shared)).await;
        Ok(true)
    }

    fn note_handed(&self, draft: &Draft) {
        let mut handed = lock(&self.handed);
        let mut note = |n: Option<u64>| {
            handed.1 += 1;
            if let Some(n) = n {
                *handed.0.entry(n).or_default() += 1;
            }
        };
        let Some((file, mark)) = draft.file.as_ref().zip(draft.block.mark) else {
            let mut records = Vec::new();
            self.limits().cutting().cut(&draft.block, &mut records);
            let text = |record: &Record| &draft.block.bytes[record.span.start as usize..][..record.span.len as usize];
            let numbers = |record| check::numbers(&String::from_utf8_lossy(text(record)));
            return records.iter().flat_map(numbers).for_each(&mut note);
        };
        let position = file.at(mark);
        let lines = lock(&self.world.lines);
        let Some(text) = self.world.logs.texts_of(&position).into_iter().next() else {
            let place = format!("{} of {:?}", mark.offset, position.path);
            return self.world.clock.wrong(format!("what was read up to {place} stands in no text"));
        };
        let covered = draft.block.offset..mark.offset;
        let mut places = lock(&self.places);
        for line in lines.of(text).filter(|line| covered.contains(&line.start)) {
            note(Some(line.n));
            check::place(self.world, &lines, &mut places, line);
        }
        if mark.offset >= HEAD as u64 {
            places.known.entry(text).or_insert(self.world.clock.now());
        }
    }

    async fn read_stdin(&self, rest: Rest, ways: &Ways) -> Result<(), Crashed> {
        if !self.world.scenario.has_stdin {
            return Ok(());
        }
        if !self.give_spools(ways).await? {
            self.kept.hold_rest(0, stdin::source(&rest), rest);
            return Ok(());
        }
        let (pipe, mut rest) = (&self.world.pipe, rest);
        let mut series = Series::once(0, "stdin", &self.shared, &self.kept);
        while self.is_running() {
            let bytes_max = lock(&self.rng).usize(1..20_000);
            let Some(bytes) = pipe.take(bytes_max) else {
                self.cut(Bytes::Stream(Box::new(io::empty())), rest, &mut series, ways).await?;
                return Ok(());
            };
            self.world.clock.step("read stdin", bytes.len() as u64)?;
            if !bytes.is_empty() {
                rest = self.cut(Bytes::Stream(Box::new(Piece(&bytes))), rest, &mut series, ways).await?;
                continue;
            }
            tokio::select! {
                biased;
                () = self.stopping() => {}
                () = self.pause(700) => {}
            }
        }
        let bytes = self.line_end().await?;
        rest = self.cut(Bytes::Stream(Box::new(Piece(&bytes))), rest, &mut series, ways).await?;
        self.kept.hold_rest(0, stdin::source(&rest), rest);
        Ok(())
    }

    /// The end of a line that was begun, and no byte behind it.
    async fn line_end(&self) -> Result<Vec<u8>, Crashed> {
        let (pipe, limit) = (&self.world.pipe, self.world.clock.now() + REST_WAIT);
        let mut end = Vec::new();
        while pipe.begun().is_some_and(|bytes| bytes <= LINE_BYTES_MAX) && self.world.clock.now() < limit {
            match pipe.take(1) {
                Some(byte) if !byte.is_empty() => end.extend(byte),
                Some(_) => self.pause(20).await,
                None => break,
            }
        }
        self.world.clock.step("read stdin", end.len() as u64)?;
        Ok(end)
    }

    /// Hands the whole lines over; what is left of it.
    async fn cut(&self, mut bytes: Bytes<'_>, rest: Rest, series: &mut Series, ways: &Ways) -> Result<Rest, Crashed> {
        let mut drafts = Vec::new();
        let mut take = |block, head: &[u8]| {
            drafts.push(series.next(block, head));
            true
        };
        let (_, rest) = lines::read_on(&mut bytes, self.limits(), &Pool::default(), &|| true, &mut take, rest);
        for draft in drafts {
            self.submit(draft, ways).await?;
        }
        Ok(rest)
    }

    /// What earlier runs kept goes first, as `pipeline::run` has it.
    async fn give_spools(&self, ways: &Ways) -> Result<bool, Crashed> {
        for path in self.told(spool::files(&self.world.disk, Path::new(SPOOLS)))? {
            let mut reader = self.told(spool::Reader::open(self.world.disk.clone(), &path, 0))?;
            self.give(&mut reader, ways).await?;
            let spool = reader.spool();
            while !spool.lets_pass(self.pipeline.ordered) {
                self.world.clock.step("spool waits", 0)?;
                if !self.is_running() {
                    return Ok(false);
                }
                self.pause(500).await;
            }
        }
        Ok(true)
    }

    async fn give(&self, blocks: &mut dyn Iterator<Item = anyhow::Result<Given>>, ways: &Ways) -> Result<(), Crashed> {
        let mut series = Series::once(0, "", &self.shared, &self.kept);
        for given in blocks {
            let given = self.told(given)?;
            let is_in_spool = given.spool.is_some();
            let draft = series.given(given, &self.kept);
            let is_taken = match self.is_running() {
                true => self.submit(draft, ways).await?,
                false => {
                    draft.keep_back(self.limits().cutting());
                    false
                }
            };
            if !is_taken && is_in_spool {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What cannot be read although the process lives is a broken promise.
    fn told<T>(&self, of: anyhow::Result<T>) -> Result<T, Crashed> {
        of.map_err(|error| {
            if !self.world.clock.is_over() {
                self.world.clock.wrong(format!("what was kept cannot be read: {error:#}"));
                self.world.clock.crash();
            }
            Crashed
        })
    }
}
