//! A pipeline: what a pipeline file describes, ready to run.

pub mod cases;
pub mod check;
pub mod explain;
pub mod pack;
pub mod positions;
mod pretty;
pub mod progress;
pub mod read;
pub mod replay;
pub mod run;
pub mod trace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::ack::counted;
use crate::ack::stored::{self, Old};
use crate::batch::{Batch, Source};
use crate::codec::{self, Block, Codec, Cutting, Record};
use crate::config::units::duration_text;
use crate::filter::{Clock, Step};
use crate::id::Ids;
use crate::index::Route;
use crate::input::{self, Limits, Ramp, stdin};
use crate::output;
use crate::stamp::Stamp;
use crate::time::Time;

pub struct Pipeline {
    pub name: String,
    pub inputs: Vec<Input>,
    pub steps: Vec<Step>,
    pub stamp: Stamp,
    pub ids: Ids,
    pub route: Route,
    /// An id says less than the whole event, so an older version must never overwrite a newer one.
    pub ordered: bool,
    /// Ids are made of the record's place in its source too.
    pub by_place: bool,
    /// What breaks the promise of no duplicates is refused.
    pub strict: bool,
    /// The index names, with `*` for what differs.
    pub index_pattern: String,
    pub output: output::Config,
    pub letters: PathBuf,
    /// The folder of what outlives a run.
    pub state: PathBuf,
    /// Saved positions are not looked at, and then replaced.
    pub from_start: bool,
    /// The file of dead letters never grows beyond this.
    pub letters_bytes_max: u64,
    /// Older dead letters are told of.
    pub letters_age_max: Option<Duration>,
    /// Where a stop keeps what cannot be read again.
    pub spool: PathBuf,
    pub tuning: Tuning,
    /// The clock stands still at this time.
    pub now: Option<Time>,
}

pub struct Input {
    pub kind: InputKind,
    pub codec: Box<dyn Codec>,
    pub line_bytes_max: usize,
    pub location: input::location::Location,
}

pub enum InputKind {
    Stdin,
    File(input::file::Config),
}

impl Input {
    /// How its sources are cut into records.
    pub fn cutting(&self) -> Cutting {
        Cutting { rule: self.codec.rule().cloned(), line_bytes_max: self.line_bytes_max }
    }

    /// Whether it comes to an end by itself.
    pub fn has_an_end(&self) -> bool {
        !matches!(&self.kind, InputKind::File(config) if config.follow.is_some())
    }

    /// Whether there is something that a stop has left before the end. What a pipe brings later is another run's.
    pub fn is_left_unread(&self) -> bool {
        match &self.kind {
            InputKind::Stdin => stdin::has_bytes(),
            InputKind::File(_) => self.has_an_end(),
        }
    }
}

/// How large the first block is: a fraction of a second's work for any engine.
const FIRST_BLOCK_BYTES: usize = 32 << 10;

/// What a pipeline takes of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    pub workers: usize,
    pub batch_bytes: usize,
    pub bytes_in_flight_max: usize,
    /// How long a stop goes on delivering what was read.
    pub drain_max: Duration,
}

impl Pipeline {
    pub fn limits(&self, input: usize) -> Limits {
        let Cutting { line_bytes_max, rule } = self.inputs[input].cutting();
        let (batch_bytes, ramp) = (self.tuning.batch_bytes, Ramp::from(FIRST_BLOCK_BYTES));
        Limits { batch_bytes, line_bytes_max, rule, ramp }
    }

    pub fn clock(&self) -> Clock {
        Clock { now: self.now.unwrap_or_else(Time::now) }
    }

    /// How many dead letters in a file are older than they should be, in words too; none if there are none.
    pub fn old_letters(&self, file: &Path) -> std::io::Result<Option<(u64, String)>> {
        let Some(age_max) = self.letters_age_max else { return Ok(None) };
        let old = stored::old(file, self.clock().now.ago(age_max))?;
        Ok(old.map(|Old { count, first }| {
            let (letters, age) = (counted(count, "dead letter"), duration_text(age_max));
            let (are, file) = (if count == 1 { "is" } else { "are" }, file.display());
            (count, format!("{letters} in {file} {are} older than {age}, the first of {first}: replay or drop them"))
        }))
    }

    /// A block's events as they are to be stored, in `batch`: decoded, filtered, with their time or their fate.
    pub fn transform(
        &self,
        input: usize,
        block: Block,
        source: Arc<Source>,
        records: &mut Vec<Record>,
        batch: &mut Batch,
    ) {
        let clock = self.clock();
        self.decode(input, block, source, records, batch);
        for step in &self.steps {
            step.apply(batch, &clock);
        }
        self.stamp.apply(batch, &clock);
    }

    /// A block's events as they were read.
    fn decode(&self, input: usize, block: Block, source: Arc<Source>, records: &mut Vec<Record>, batch: &mut Batch) {
        let input = &self.inputs[input];
        Pipeline::decode_records(input, block, source, records, batch);
        input.location.apply(batch);
    }

    fn decode_records(input: &Input, block: Block, source: Arc<Source>, records: &mut Vec<Record>, batch: &mut Batch) {
        records.clear();
        input.cutting().cut(&block, records);
        batch.refill(block.bytes, source);
        if let (Some(line), [record]) = (block.too_long, records.as_slice()) {
            let length = line.bytes - u64::from(record.span.start);
            return codec::push_too_long(batch, *record, length, input.line_bytes_max);
        }
        let max = input.line_bytes_max;
        if records.iter().all(|record| !codec::is_too_long(batch.bytes(record.span), max)) {
            return input.codec.decode(batch, records);
        }
        let is_too_long = |batch: &Batch, record: &Record| codec::is_too_long(batch.bytes(record.span), max);
        let mut rest = records.as_slice();
        while let [first, ..] = rest {
            let is_long = is_too_long(batch, first);
            let end = rest.iter().position(|record| is_too_long(batch, record) != is_long).unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            rest = after;
            if !is_long {
                input.codec.decode(batch, run);
                continue;
            }
            for long in run {
                codec::push_too_long(batch, *long, u64::from(long.span.len), max);
            }
        }
    }
}
