//! Sends dead letters through the pipeline as it is now. A letter is taken out of the file once its event has its
//! fate; one that fails again stays, as the letter that it is now, with its count raised.
//!
//! The record is the unit: of a record that holds several events all are sent again, and those that were stored are
//! found by their ids. Letters are read from the file as it was at the beginning, so none is sent twice by one
//! replay. When it is killed, letters of events that are stored may still be there: sent again, they are found.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;

use super::Pipeline;
use super::run::{Feed, Session, run_session};
use crate::ack::kept::Kept;
use crate::ack::letter_file::{Short, rewrite};
use crate::ack::stored::{Lines, Stored};
use crate::ack::{Letter, Letters, Shared, Summary};
use crate::batch::{Source, Span};
use crate::codec::{Block, Record};
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
    let failed = || format!("cannot read {}", path.display());
    let mut replayed = Replayed::default();
    let mut lines = Lines::open(path).with_context(failed)?;
    let mut is_over = false;
    while !is_over && *phases.borrow() == Phase::Running {
        let mut chunk = Chunk::default();
        is_over = true;
        for line in lines.by_ref() {
            let line = line.with_context(failed)?;
            match Stored::read(&line).filter(wanted) {
                Some(stored) if stored.is_cut => replayed.cut += 1,
                Some(stored) => chunk.add(stored, print(&line)),
                None => {}
            }
            if chunk.bytes >= CHUNK_BYTES {
                is_over = false;
                break;
            }
        }
        chunk.send(pipeline, path, phases, &mut replayed)?;
        is_over |= !replayed.errors.is_empty();
    }
    Ok(replayed)
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
        whole.extend_from_slice(format!("{:?}", stored.inode).as_bytes());
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
            let Stored { record, offset, input, head, source, inode, .. } = &again.stored;
            let input = if *input < pipeline.inputs.len() { *input } else { 0 };
            let fits = blocks.last().zip(inside.last()).is_some_and(|(last, there)| {
                last.input == input
                    && (&*last.source.name, &last.source.head) == (source.as_str(), head)
                    && last.source.inode == *inode
                    && !there.contains_key(offset)
                    && last.block.bytes.len() + record.len() <= pipeline.tuning.batch_bytes
            });
            if !fits {
                let (name, head, again) = (source.as_str().into(), head.clone(), Some(blocks.len()));
                let source = Arc::new(Source { name, head, inode: *inode, again });
                let (bytes, records) = (Vec::new().into(), Some(Vec::new()));
                let block = Block { bytes, offset: *offset, too_long: None, mark: None, records };
                blocks.push(Given { input, source, block, spool: None });
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

    fn send(self, pipeline: &Pipeline, path: &Path, phases: &Phases, replayed: &mut Replayed) -> anyhow::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let (blocks, inside) = self.blocks(pipeline);
        let (shared, kept, collected) = (Arc::<Shared>::default(), Arc::<Kept>::default(), Collected::default());
        let letters: Option<Box<dyn Letters>> = Some(Box::new(collected.clone()));
        let (here, phases) = (kept.clone(), phases.clone());
        let session = Session { shared, kept: here, phases, feed: Feed::Given(blocks), letters };
        let ending = run_session(pipeline, session);
        replayed.summary.merge(&ending.summary);
        replayed.errors.extend(ending.errors);
        let mut is_settled = vec![true; self.records.len()];
        for held in kept.blocks() {
            let there = held.source.again.and_then(|block| inside.get(block));
            there.into_iter().flat_map(HashMap::values).for_each(|record| is_settled[*record] = false);
        }
        let mut new: HashMap<usize, Vec<u8>> = HashMap::new();
        for mut letter in collected.take() {
            let there = letter.again.and_then(|block| inside.get(block));
            let Some(number) = there.and_then(|there| there.get(&letter.offset)).copied() else { continue };
            let stored = &self.records[number].stored;
            letter.attempts = stored.attempts + letter.attempts.max(1);
            letter.input = stored.input;
            (letter.raw, letter.is_cut) = (stored.record.clone(), false);
            letter.write(&stored.time, new.entry(number).or_default());
        }
        self.write_back(path, &is_settled, new, replayed)
    }

    /// Takes out what is settled, and puts in what failed again in its place.
    fn write_back(
        &self,
        path: &Path,
        is_settled: &[bool],
        mut new: HashMap<usize, Vec<u8>>,
        replayed: &mut Replayed,
    ) -> anyhow::Result<()> {
        let mut out: HashMap<Print, (u64, usize)> = HashMap::new();
        for (number, again) in self.records.iter().enumerate() {
            let count = again.lines.len() as u64;
            match (is_settled[number], new.contains_key(&number)) {
                (false, _) => replayed.unsettled += count,
                (true, false) => replayed.gone += count,
                (true, true) => replayed.again += count,
            }
            if is_settled[number] {
                again.lines.iter().for_each(|line| out.entry(*line).or_insert((0, number)).0 += 1);
            }
        }
        rewrite(path, &mut |line, to| match out.get_mut(&print(line)) {
            Some((left, number)) if *left > 0 => {
                *left -= 1;
                to.extend_from_slice(&new.remove(number).unwrap_or_default());
            }
            _ => to.extend_from_slice(line),
        })
        .with_context(|| format!("cannot write {} anew: what was sent will be sent again", path.display()))?;
        Ok(())
    }
}

/// Letters of events that fail again.
#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<Letter>>>);

impl Collected {
    fn take(&self) -> Vec<Letter> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Letters for Collected {
    fn append(&mut self, letters: &[&Letter]) -> Result<(), Short> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(letters.iter().map(|letter| (*letter).clone()));
        Ok(())
    }

    fn name(&self) -> String {
        "letters that failed again".to_string()
    }
}
