//! Sends dead letters through the pipeline as it is now. A letter is taken out of the file once its event has its
//! fate; one that fails again stays, as the letter that it is now, with its count raised.
//!
//! The record is the unit: of a record that holds several events all are sent again, and those that were stored are
//! found by their ids. Letters are read from the file as it was at the beginning, so none is sent twice by one
//! replay. When it is killed, letters of events that are stored may still be there: sent again, they are found.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;

use super::Pipeline;
use super::run::{Ending, Feed, Session, run_session};
use crate::ack::kept::Kept;
use crate::ack::letter_file::{Short, rewrite_on};
use crate::ack::stored::{Lines, Stored};
use crate::ack::{Letter, Letters, Shared, Summary};
use crate::batch::{Source, Span};
use crate::codec::{Block, Record};
use crate::disk::{Disk, Real};
use crate::input::Given;
use crate::output::{Phase, Phases};

/// So much is sent before the file is written anew.
const CHUNK_BYTES: usize = 32 << 20;

/// What became of the letters.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Letters that are no longer in the file.
    pub gone: u64,
    /// Letters that failed again.
    pub again: u64,
    /// Letters that hold only the beginning of their record.
    pub cut: u64,
    /// Letters whose events are not settled: they stay as they are.
    pub unsettled: u64,
    /// What became of the events.
    pub summary: Summary,
    pub errors: Vec<anyhow::Error>,
}

type Print = [u8; 16];

fn print(line: &[u8]) -> Print {
    let digest: [u8; 32] = <sha2::Sha256 as sha2::Digest>::digest(line).into();
    let mut print = [0; 16];
    print.copy_from_slice(&digest[..16]);
    print
}

/// A record to be sent, with the letters that it has.
struct Again {
    stored: Stored,
    lines: Vec<Print>,
}

/// Sends the letters in `path` that `wanted` says yes to.
pub fn replay(
    pipeline: &Pipeline,
    path: &Path,
    wanted: &dyn Fn(&Stored) -> bool,
    phases: &Phases,
) -> anyhow::Result<Replayed> {
    let mut replay = Replay::begin(Real, path, CHUNK_BYTES)?;
    while *phases.borrow() == Phase::Running
        && replay.replayed.errors.is_empty()
        && let Some((blocks, sending)) = replay.next(pipeline, wanted)?
    {
        let (shared, kept, phases) = (Arc::<Shared>::default(), sending.kept.clone(), phases.clone());
        let letters: Option<Box<dyn Letters>> = Some(Box::new(sending.failed.clone()));
        let session = Session { shared, kept, phases, feed: Feed::Given(blocks), letters };
        let Ending { summary, errors, .. } = run_session(pipeline, session);
        replay.replayed.errors.extend(errors);
        replay.settle(sending, &summary)?;
    }
    Ok(replay.replayed)
}

/// A replay without the sending: a chunk of letters after the other, each as blocks to be sent, and then settled.
pub struct Replay<D: Disk> {
    disk: D,
    path: PathBuf,
    lines: Lines<D>,
    chunk_bytes: usize,
    pub replayed: Replayed,
}

impl<D: Disk> Replay<D> {
    pub fn begin(disk: D, path: &Path, chunk_bytes: usize) -> anyhow::Result<Replay<D>> {
        let lines = Lines::open_on(&disk, path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Replay { disk, path: path.to_path_buf(), lines, chunk_bytes, replayed: Replayed::default() })
    }

    /// What is to be sent next; none at the end.
    pub fn next(
        &mut self,
        pipeline: &Pipeline,
        wanted: &dyn Fn(&Stored) -> bool,
    ) -> anyhow::Result<Option<(Vec<Given>, Sending)>> {
        let mut chunk = Chunk::default();
        for line in self.lines.by_ref() {
            let line = line.with_context(|| format!("cannot read {}", self.path.display()))?;
            match Stored::read(&line).filter(wanted) {
                Some(stored) if stored.is_cut => self.replayed.cut += 1,
                Some(stored) => chunk.add(stored, print(&line)),
                None => {}
            }
            if chunk.bytes >= self.chunk_bytes {
                break;
            }
        }
        if chunk.records.is_empty() {
            return Ok(None);
        }
        let (blocks, inside) = chunk.blocks(pipeline);
        let (kept, failed) = (Arc::default(), Failed::default());
        Ok(Some((blocks, Sending { records: chunk.records, inside, kept, failed })))
    }

    /// The sending has come to its end: takes out of the file what is settled, and puts in what failed again.
    pub fn settle(&mut self, sending: Sending, summary: &Summary) -> anyhow::Result<()> {
        self.replayed.summary.merge(summary);
        let is_settled = sending.settled();
        let new = sending.failed_again();
        self.write_back(&sending.records, &is_settled, new)
    }

    /// Takes out what is settled, and puts in what failed again in its place.
    fn write_back(
        &mut self,
        records: &[Again],
        is_settled: &[bool],
        mut new: HashMap<usize, Vec<u8>>,
    ) -> anyhow::Result<()> {
        let mut out: HashMap<Print, (u64, usize)> = HashMap::new();
        for (number, again) in records.iter().enumerate() {
            let count = again.lines.len() as u64;
            match (is_settled[number], new.contains_key(&number)) {
                (false, _) => self.replayed.unsettled += count,
                (true, false) => self.replayed.gone += count,
                (true, true) => self.replayed.again += count,
            }
            if is_settled[number] {
                again.lines.iter().for_each(|line| out.entry(*line).or_insert((0, number)).0 += 1);
            }
        }
        rewrite_on(&self.disk, &self.path, &mut |line, to| match out.get_mut(&print(line)) {
            Some((left, number)) if *left > 0 => {
                *left -= 1;
                to.extend_from_slice(&new.remove(number).unwrap_or_default());
            }
            _ => to.extend_from_slice(line),
        })
        .with_context(|| format!("cannot write {} anew: what was sent will be sent again", self.path.display()))?;
        Ok(())
    }
}

/// Records on their way.
pub struct Sending {
    records: Vec<Again>,
    /// For each block, which records are in it by their offset.
    inside: Vec<HashMap<u64, usize>>,
    /// Where the sending keeps what is not settled.
    pub kept: Arc<Kept>,
    /// Where the sending puts letters.
    pub failed: Failed,
}

impl Sending {
    /// Which records are settled.
    fn settled(&self) -> Vec<bool> {
        let mut is_settled = vec![true; self.records.len()];
        for held in self.kept.blocks() {
            let there = held.source.again.and_then(|block| self.inside.get(block));
            there.into_iter().flat_map(HashMap::values).for_each(|record| is_settled[*record] = false);
        }
        is_settled
    }

    /// The letters that records have now, written as they stand in a file.
    fn failed_again(&self) -> HashMap<usize, Vec<u8>> {
        let mut new: HashMap<usize, Vec<u8>> = HashMap::new();
        for mut letter in self.failed.take() {
            let there = letter.again.and_then(|block| self.inside.get(block));
            let Some(number) = there.and_then(|there| there.get(&letter.offset)).copied() else { continue };
            let stored = &self.records[number].stored;
            letter.attempts = stored.attempts + letter.attempts.max(1);
            letter.input = stored.input;
            (letter.raw, letter.is_cut) = (stored.record.clone(), false);
            letter.write(&stored.time, new.entry(number).or_default());
        }
        new
    }
}

#[derive(Default)]
struct Chunk {
    records: Vec<Again>,
    /// The place among the records of each record there is.
    places: HashMap<(Print, u64, usize), usize>,
    bytes: usize,
}

impl Chunk {
    fn add(&mut self, stored: Stored, line: Print) {
        let mut whole = stored.record.clone();
        whole.extend_from_slice(&stored.head);
        whole.extend_from_slice(stored.source.as_bytes());
        whole.extend_from_slice(format!("{:?}", (stored.inode, stored.number)).as_bytes());
        match self.places.entry((print(&whole), stored.offset, stored.input)) {
            Entry::Occupied(there) => {
                let again = &mut self.records[*there.get()];
                again.lines.push(line);
                again.stored.attempts = again.stored.attempts.max(stored.attempts);
            }
            Entry::Vacant(free) => {
                free.insert(self.records.len());
                self.bytes += whole.len() + 200;
                self.records.push(Again { stored, lines: vec![line] });
            }
        }
    }

    /// The records as blocks, each with its number, and which records are in it by their offset.
    fn blocks(&self, pipeline: &Pipeline) -> (Vec<Given>, Vec<HashMap<u64, usize>>) {
        let (mut blocks, mut inside): (Vec<Given>, Vec<HashMap<u64, usize>>) = (Vec::new(), Vec::new());
        for (number, again) in self.records.iter().enumerate() {
            let Stored { record, offset, input, head, source, inode, day, number: of, .. } = &again.stored;
            let input = if *input < pipeline.inputs.len() { *input } else { 0 };
            let fits = blocks.last().zip(inside.last()).is_some_and(|(last, there)| {
                last.input == input
                    && (&*last.source.name, &last.source.head) == (source.as_str(), head)
                    && (last.source.inode, last.source.day, last.source.number) == (*inode, *day, *of)
                    && !there.contains_key(offset)
                    && last.block.bytes.len() + record.len() <= pipeline.tuning.batch_bytes
            });
            if !fits {
                let (name, head, again) = (source.as_str().into(), head.clone(), Some(blocks.len()));
                let (inode, day, number) = (*inode, *day, *of);
                let source = Source { name, head, inode, day, again, number, ..Source::default() };
                let (bytes, records) = (Vec::new().into(), Some(Vec::new()));
                let block = Block { bytes, offset: *offset, too_long: None, mark: None, records };
                blocks.push(Given { input, source: Arc::new(source), block, spool: None });
                inside.push(HashMap::new());
            }
            if let (Some(given), Some(inside)) = (blocks.last_mut(), inside.last_mut()) {
                let span = Span::new(given.block.bytes.len(), record.len());
                given.block.bytes.extend_from_slice(record);
                given.block.bytes.push(b'\n');
                given.block.records.get_or_insert_default().push(Record { span, offset: *offset });
                inside.insert(*offset, number);
            }
        }
        (blocks, inside)
    }
}

/// Letters of events that fail again.
#[derive(Clone, Default)]
pub struct Failed(Arc<Mutex<Vec<Letter>>>);

impl Failed {
    fn take(&self) -> Vec<Letter> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Letters for Failed {
    fn append(&mut self, letters: &[&Letter]) -> Result<(), Short> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(letters.iter().map(|letter| (*letter).clone()));
        Ok(())
    }

    fn name(&self) -> String {
        "letters that failed again".to_string()
    }
}
