//! The machine that runs a compiled pattern as Ruby does: the first way that leads to a match, with everything kept
//! on a stack that can be taken back. Each time something is taken back counts as a step, and steps are limited.

use std::ops::Range;
use std::sync::OnceLock;

use super::Runaway;
use super::tree::{Anchor, Set};

/// In place of what a way can begin with: with anything.
pub(super) const ALWAYS: u32 = u32::MAX;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Match,
    Byte(u8),
    /// A piece of the literals: start and length.
    Text(u32, u32),
    Set(u32),
    /// As many as there are, none given back.
    Keep {
        set: u32,
        least: u32,
        most: u32,
    },
    /// As many as there are, given back one by one; `peek` is what can follow.
    Run {
        set: u32,
        least: u32,
        most: u32,
        peek: u32,
    },
    /// Everything to the end, none given back.
    End {
        least: u32,
    },
    /// Everything to the end, given back one by one.
    Rest {
        least: u32,
        peek: u32,
    },
    /// As few as will do.
    Lazy {
        set: u32,
        least: u32,
        most: u32,
        peek: u32,
    },
    Jump(u32),
    Split {
        first: u32,
        second: u32,
        near: u32,
        far: u32,
    },
    Save(u32),
    /// Notes where a turn of a loop begins.
    Note(u32),
    /// Ends the loop if the turn took nothing.
    Moved {
        mark: u32,
        end: u32,
    },
    /// From here to its commit the first way that fits is the only one.
    Begin(u32),
    Commit(u32),
    Look {
        mark: u32,
        negative: bool,
        end: u32,
    },
    Return(u32),
    Refuse(u32),
    /// The character before this place.
    Behind {
        set: u32,
        negative: bool,
    },
    /// So many characters back.
    Back(u32),
    Anchor(Anchor),
    /// What the group holds; if it took part, the next `skip` references are passed over.
    Reference {
        group: u32,
        skip: u32,
    },
}

/// With which bytes a way can begin.
#[derive(Clone, Debug)]
pub(super) struct Peek {
    pub table: Box<[bool; 256]>,
    pub single: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Anywhere,
    Line,
    Text,
}

#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub ops: Vec<Op>,
    pub peeks: Vec<Peek>,
    pub literals: Vec<u8>,
    pub sets: Vec<Set>,
    pub slots: usize,
    pub marks: u32,
    pub start: Start,
    /// What a match begins with.
    pub first: u32,
    pub needle: Option<memchr::memmem::Finder<'static>>,
}

/// What can be taken back.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// Another way from a place.
    Way {
        op: u32,
        at: u32,
    },
    Slot {
        slot: u32,
        was: u32,
    },
    Mark {
        mark: u32,
        was: u32,
    },
    /// A run that can give back down to `low`.
    Run {
        op: u32,
        low: u32,
        at: u32,
    },
    Lazy {
        op: u32,
        at: u32,
        count: u32,
    },
}

/// Where the groups of a match stand, and the memory of the machine; kept from one event to the next.
#[derive(Debug, Default)]
pub struct Found {
    pub(super) slots: Vec<u32>,
    stack: Vec<Entry>,
    /// By mark: a place in the text, and the height of the stack.
    marks: Vec<(u32, u32)>,
}

impl Found {
    /// Where a group stands, by its number from 0.
    pub fn group(&self, number: usize) -> Option<Range<usize>> {
        let (start, end) = (*self.slots.get(number * 2)?, *self.slots.get(number * 2 + 1)?);
        (start != NONE && end != NONE).then_some(start as usize..end as usize)
    }

    pub(super) fn fill(&mut self, groups: impl Iterator<Item = Option<(usize, usize)>>) {
        self.slots.clear();
        for group in groups {
            let (start, end) = group.map_or((NONE, NONE), |(start, end)| (start as u32, end as u32));
            self.slots.extend([start, end]);
        }
    }

    /// Takes back what was set above `height`; ways are forgotten.
    fn undo(&mut self, height: usize) {
        while self.stack.len() > height {
            match self.stack.pop() {
                Some(Entry::Slot { slot, was }) => self.slots[slot as usize] = was,
                Some(Entry::Mark { mark, was }) => self.marks[mark as usize].0 = was,
                _ => {}
            }
        }
    }

    /// Forgets the ways above `height`, keeps what was set.
    fn commit(&mut self, height: usize) {
        let mut keep = height;
        for i in height..self.stack.len() {
            if matches!(self.stack[i], Entry::Slot { .. } | Entry::Mark { .. }) {
                self.stack[keep] = self.stack[i];
                keep += 1;
            }
        }
        self.stack.truncate(keep);
    }
}

/// One attempt from one place.
struct Attempt<'a> {
    machine: &'a Machine,
    text: &'a [u8],
    found: &'a mut Found,
}

impl Machine {
    /// Looks for the first match and takes what it costs from `steps`.
    pub(super) fn find(&self, text: &str, found: &mut Found, steps: &mut u64) -> Result<bool, Runaway> {
        let text = text.as_bytes();
        if text.len() >= NONE as usize || self.needle.as_ref().is_some_and(|needle| needle.find(text).is_none()) {
            return Ok(false);
        }
        found.marks.resize(found.marks.len().max(self.marks as usize), (0, 0));
        let mut from = Some(0);
        while let Some(at) = from.and_then(|from| self.candidate(text, from)) {
            found.slots.clear();
            found.slots.resize(self.slots, NONE);
            found.stack.clear();
            let mut attempt = Attempt { machine: self, text, found };
            if attempt.run(at, steps)? {
                return Ok(true);
            }
            from = (at < text.len()).then(|| at + char_len(text[at]));
        }
        Ok(false)
    }

    /// The next place where a match can begin.
    fn candidate(&self, text: &[u8], from: usize) -> Option<usize> {
        match self.start {
            Start::Text => (from == 0).then_some(0),
            Start::Line if from == 0 => Some(0),
            Start::Line => {
                let line = memchr::memchr(b'\n', &text[from - 1..])? + from;
                (line < text.len()).then_some(line)
            }
            Start::Anywhere if self.first == ALWAYS => Some(from),
            Start::Anywhere => {
                let peek = &self.peeks[self.first as usize];
                let rest = &text[from..];
                let skip = match peek.single {
                    Some(byte) => memchr::memchr(byte, rest)?,
                    None => rest.iter().position(|byte| peek.table[usize::from(*byte)])?,
                };
                Some(from + skip)
            }
        }
    }
}

impl Attempt<'_> {
    fn run(&mut self, start: usize, steps: &mut u64) -> Result<bool, Runaway> {
        let (mut op, mut at) = (0, start);
        loop {
            match self.step(op, at) {
                Some((_, end)) if end == usize::MAX => return Ok(true),
                Some(next) => (op, at) = next,
                None => match self.back(steps)? {
                    Some(next) => (op, at) = next,
                    None => return Ok(false),
                },
            }
        }
    }

    fn peeks(&self, peek: u32, at: usize) -> bool {
        if peek == ALWAYS {
            return true;
        }
        self.text.get(at).is_some_and(|byte| self.machine.peeks[peek as usize].table[usize::from(*byte)])
    }

    /// The next operation and place; `None` if this way leads nowhere, and no place at all at a match.
    #[inline]
    fn step(&mut self, op: u32, at: usize) -> Option<(u32, usize)> {
        let machine = self.machine;
        let text = self.text;
        let next = op + 1;
        match machine.ops[op as usize] {
            Op::Byte(byte) => (*text.get(at)? == byte).then_some((next, at + 1)),
            Op::Text(start, len) => {
                let literal = &machine.literals[start as usize..(start + len) as usize];
                text[at..].starts_with(literal).then_some((next, at + literal.len()))
            }
            Op::Set(set) => Some((next, at + machine.sets[set as usize].takes(text, at)?)),
            Op::Keep { set, least, most } => {
                let (end, count) = run_of(&machine.sets[set as usize], text, at, most);
                (count >= least).then_some((next, end))
            }
            Op::End { least } => (least == 0 || at < text.len()).then_some((next, text.len())),
            Op::Split { first, second, near, far } => {
                if !self.peeks(near, at) {
                    return self.peeks(far, at).then_some((second, at));
                }
                if self.peeks(far, at) {
                    self.found.stack.push(Entry::Way { op: second, at: at as u32 });
                }
                Some((first, at))
            }
            Op::Save(slot) => {
                let was = std::mem::replace(&mut self.found.slots[slot as usize], at as u32);
                // nothing to go back to from here, so nothing to put back
                if !self.found.stack.is_empty() {
                    self.found.stack.push(Entry::Slot { slot, was });
                }
                Some((next, at))
            }
            Op::Jump(to) => Some((to, at)),
            Op::Match => Some((next, usize::MAX)),
            other => self.rare(other, op, at),
        }
    }

    fn rare(&mut self, this: Op, op: u32, at: usize) -> Option<(u32, usize)> {
        let (machine, text, next) = (self.machine, self.text, op + 1);
        let found = &mut *self.found;
        match this {
            Op::Run { set, least, most, .. } => {
                let set = &machine.sets[set as usize];
                let (end, count) = run_of(set, text, at, most);
                let low = if count < least { return None } else { run_of(set, text, at, least).0 };
                self.give_back(op, low, end)
            }
            Op::Rest { least, .. } => {
                let low = if least == 0 { at } else { at + char_len(*text.get(at)?) };
                self.give_back(op, low, text.len())
            }
            Op::Lazy { set, least, .. } => {
                let (end, count) = run_of(&machine.sets[set as usize], text, at, least);
                if count < least { None } else { self.take_more(op, end, count) }
            }
            Op::Note(mark) => {
                let was = std::mem::replace(&mut found.marks[mark as usize].0, at as u32);
                found.stack.push(Entry::Mark { mark, was });
                Some((next, at))
            }
            Op::Moved { mark, end } => Some((if found.marks[mark as usize].0 == at as u32 { end } else { next }, at)),
            Op::Begin(mark) => {
                found.marks[mark as usize].1 = found.stack.len() as u32;
                Some((next, at))
            }
            Op::Commit(mark) => {
                found.commit(found.marks[mark as usize].1 as usize);
                Some((next, at))
            }
            Op::Look { mark, negative, end } => {
                found.marks[mark as usize] = (at as u32, found.stack.len() as u32);
                if negative {
                    found.stack.push(Entry::Way { op: end, at: at as u32 });
                }
                Some((next, at))
            }
            Op::Return(mark) => {
                let (place, height) = found.marks[mark as usize];
                found.commit(height as usize);
                Some((next, place as usize))
            }
            Op::Refuse(mark) => {
                found.undo(found.marks[mark as usize].1 as usize);
                None
            }
            Op::Behind { set, negative } => {
                let set = &machine.sets[set as usize];
                let there = before(text, at).is_some_and(|before| set.takes(text, before).is_some());
                (there != negative).then_some((next, at))
            }
            Op::Back(count) => (0..count).try_fold(at, |at, _| before(text, at)).map(|at| (next, at)),
            Op::Anchor(anchor) => holds(anchor, text, at).then_some((next, at)),
            Op::Reference { group, skip } => match found.group(group as usize) {
                None => (skip > 0).then_some((next, at)),
                Some(range) => text[at..].starts_with(&text[range.clone()]).then(|| (next + skip, at + range.len())),
            },
            _ => None,
        }
    }

    /// The longest end of a run, not above `high` nor below `low`, that what follows can begin at.
    fn give_back(&mut self, op: u32, low: usize, high: usize) -> Option<(u32, usize)> {
        let peek = match self.machine.ops[op as usize] {
            Op::Run { peek, .. } | Op::Rest { peek, .. } => peek,
            _ => ALWAYS,
        };
        let mut at = high;
        if peek != ALWAYS {
            let end = self.text.len().min(high + 1);
            let window = self.text.get(low..end)?;
            let peek = &self.machine.peeks[peek as usize];
            at = low
                + match peek.single {
                    Some(byte) => memchr::memrchr(byte, window)?,
                    None => window.iter().rposition(|byte| peek.table[usize::from(*byte)])?,
                };
        }
        if at > low {
            self.found.stack.push(Entry::Run { op, low: low as u32, at: at as u32 });
        }
        Some((op + 1, at))
    }

    /// The next end of a lazy run, from `at` on, that what follows can begin at.
    fn take_more(&mut self, op: u32, mut at: usize, mut count: u32) -> Option<(u32, usize)> {
        let Op::Lazy { set, most, peek, .. } = self.machine.ops[op as usize] else { return None };
        let set = &self.machine.sets[set as usize];
        if let Some(Peek { single: Some(byte), .. }) = self.machine.peeks.get(peek as usize)
            && most == u32::MAX
            && set.is_all()
        {
            at += memchr::memchr(*byte, &self.text[at..])?;
        } else {
            while !self.peeks(peek, at) {
                if count >= most {
                    return None;
                }
                at += set.takes(self.text, at)?;
                count += 1;
            }
        }
        if count < most {
            self.found.stack.push(Entry::Lazy { op, at: at as u32, count });
        }
        Some((op + 1, at))
    }

    /// Takes back to the last place from where there is another way.
    fn back(&mut self, steps: &mut u64) -> Result<Option<(u32, usize)>, Runaway> {
        while let Some(entry) = self.found.stack.pop() {
            match entry {
                Entry::Slot { slot, was } => {
                    self.found.slots[slot as usize] = was;
                    continue;
                }
                Entry::Mark { mark, was } => {
                    self.found.marks[mark as usize].0 = was;
                    continue;
                }
                _ => {}
            }
            *steps = steps.checked_sub(1).ok_or(Runaway::Steps)?;
            let next = match entry {
                Entry::Way { op, at } => Some((op, at as usize)),
                Entry::Run { op, low, at } => before(self.text, at as usize)
                    .filter(|at| *at >= low as usize)
                    .and_then(|at| self.give_back(op, low as usize, at)),
                Entry::Lazy { op, at, count } => self.one_more(op, at as usize, count),
                Entry::Slot { .. } | Entry::Mark { .. } => None,
            };
            if next.is_some() {
                return Ok(next);
            }
        }
        Ok(None)
    }

    fn one_more(&mut self, op: u32, at: usize, count: u32) -> Option<(u32, usize)> {
        let Op::Lazy { set, .. } = self.machine.ops[op as usize] else { return None };
        let len = self.machine.sets[set as usize].takes(self.text, at)?;
        self.take_more(op, at + len, count + 1)
    }
}

/// How far a run of a set reaches, and how many characters it has.
#[inline]
fn run_of(set: &Set, text: &[u8], mut at: usize, most: u32) -> (usize, u32) {
    let mut count = 0;
    loop {
        // what is ASCII in one go
        let end = text.len().min(at.saturating_add((most - count) as usize));
        let window = &text[at..end];
        let run = window.iter().position(|byte| set.bytes[usize::from(*byte)] != 1).unwrap_or(window.len());
        at += run;
        count += run as u32;
        if run == window.len() {
            return (at, count);
        }
        match set.takes(text, at) {
            Some(len) => at += len,
            None => return (at, count),
        }
        count += 1;
    }
}

fn char_len(first: u8) -> usize {
    match first {
        0..0xc0 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
    }
}

/// Where the character before a place begins.
fn before(text: &[u8], at: usize) -> Option<usize> {
    let mut at = at.checked_sub(1)?;
    while at > 0 && text[at] & 0xc0 == 0x80 {
        at -= 1;
    }
    Some(at)
}

fn holds(anchor: Anchor, text: &[u8], at: usize) -> bool {
    let end = text.len();
    match anchor {
        Anchor::LineStart => at == 0 || text[at - 1] == b'\n' && at < end,
        Anchor::LineEnd => at == end || text[at] == b'\n',
        Anchor::TextStart => at == 0,
        Anchor::TextEnd => at == end,
        Anchor::TextEndLine => at == end || at + 1 == end && text[at] == b'\n',
        Anchor::Word => is_word_edge(text, at),
        Anchor::NoWord => !is_word_edge(text, at),
    }
}

fn is_word_edge(text: &[u8], at: usize) -> bool {
    let after = is_word(text, Some(at));
    is_word(text, before(text, at)) != after
}

fn is_word(text: &[u8], at: Option<usize>) -> bool {
    match at.and_then(|at| text.get(at).map(|byte| (at, *byte))) {
        None => false,
        Some((_, byte)) if byte.is_ascii() => byte.is_ascii_alphanumeric() || byte == b'_',
        Some((at, _)) => {
            static WORD: OnceLock<Option<Set>> = OnceLock::new();
            WORD.get_or_init(|| Set::new(r"\w", false)).as_ref().is_some_and(|set| set.takes(text, at).is_some())
        }
    }
}
