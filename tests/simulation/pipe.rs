//! Standard input: a pipe that outlives the processes that read it, as a supervisor hands it on.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::logs::Text;
use crate::world::lock;

/// What its lines stand in.
pub const PIPE: Text = Text { file: 0, generation: 0 };

#[derive(Clone, Default)]
pub struct Pipe(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// All that was ever written to it.
    bytes: Vec<u8>,
    read: usize,
    /// What is before is settled, in a spool, or lost.
    secured: usize,
    is_closed: bool,
    /// Where a process ended in the middle of a line.
    cuts: Vec<usize>,
    /// What a process had read that was killed.
    lost: Vec<Range<usize>>,
}

impl Pipe {
    pub fn len(&self) -> u64 {
        lock(&self.0).bytes.len() as u64
    }

    pub fn write(&self, bytes: &[u8]) {
        lock(&self.0).bytes.extend_from_slice(bytes);
    }

    pub fn close(&self) {
        lock(&self.0).is_closed = true;
    }

    /// Takes up to so many bytes; none at the end.
    pub fn take(&self, bytes_max: usize) -> Option<Vec<u8>> {
        let mut state = lock(&self.0);
        let end = state.bytes.len().min(state.read + bytes_max);
        let taken = state.bytes[state.read..end].to_vec();
        state.read = end;
        (!taken.is_empty() || !state.is_closed).then_some(taken)
    }

    /// How much was read of a line without its end; none at a line's end.
    pub fn begun(&self) -> Option<usize> {
        let state = lock(&self.0);
        let read = &state.bytes[..state.read];
        let begin = memchr::memrchr(b'\n', read).map_or(0, |at| at + 1);
        (begin < state.read).then_some(state.read - begin)
    }

    pub fn is_done(&self) -> bool {
        let state = lock(&self.0);
        state.is_closed && state.read == state.bytes.len()
    }

    /// A process has ended. What it had read has its fate or is kept, unless it was killed: then the places of what
    /// may be lost.
    pub fn ended(&self, is_killed: bool) -> Range<u64> {
        let is_cut = self.begun().is_some();
        let mut state = lock(&self.0);
        let read = state.read;
        if is_cut && state.cuts.last() != Some(&read) {
            state.cuts.push(read);
        }
        let may_be_lost = state.secured..read;
        state.secured = read;
        if is_killed {
            state.lost.push(may_be_lost.clone());
        }
        may_be_lost.start as u64..may_be_lost.end as u64
    }

    /// What was read so far is in a spool or has its fate, but for so much at its end.
    pub fn secure(&self, rest: u64) {
        let mut state = lock(&self.0);
        state.secured = state.read - rest as usize;
    }

    /// The place up to which it was read.
    pub fn read(&self) -> u64 {
        lock(&self.0).read as u64
    }

    /// Several processes read parts of it.
    pub fn is_cut(&self, line: Range<u64>) -> bool {
        lock(&self.0).cuts.iter().any(|cut| line.start < *cut as u64 && (*cut as u64) < line.end)
    }

    /// The pieces of lines that several processes read.
    pub fn pieces(&self) -> Vec<Piece> {
        let state = lock(&self.0);
        // one between two cuts is one
        let mut pieces = BTreeSet::new();
        for cut in &state.cuts {
            let begin = memchr::memrchr(b'\n', &state.bytes[..*cut]).map_or(0, |at| at + 1);
            let end = memchr::memchr(b'\n', &state.bytes[*cut..]).map_or(state.bytes.len(), |at| cut + at);
            let inside = |other: &&usize| begin < **other && **other < end;
            let ends: Vec<usize> = state.cuts.iter().filter(inside).copied().chain([begin, end]).collect();
            let before = ends.iter().filter(|at| *at < cut).max().copied().unwrap_or(begin);
            let after = ends.iter().filter(|at| *at > cut).min().copied().unwrap_or(end);
            pieces.extend([(before, *cut), (*cut, after)]);
        }
        pieces.into_iter().map(|(from, to)| state.piece(from..to)).collect()
    }
}

/// A piece of a line, without the line's end.
pub struct Piece {
    pub text: String,
    /// It may have been lost by a process that was killed.
    pub is_lost: bool,
}

impl State {
    fn piece(&self, place: Range<usize>) -> Piece {
        let is_lost = self.lost.iter().any(|lost| lost.start < place.end && place.start < lost.end);
        let text = String::from_utf8_lossy(&self.bytes[place]);
        Piece { text: text.trim_end_matches('\r').to_string(), is_lost }
    }
}
