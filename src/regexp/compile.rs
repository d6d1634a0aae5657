//! A tree as the machine's program. What makes it fast is decided here: for every choice it is known with which
//! bytes either way can begin, so most choices are none; and a run of characters that what follows cannot begin with
//! is never given back.

use std::collections::HashMap;

use super::machine::{ALWAYS, Machine, Op, Peek, Start};
use super::tree::{Anchor, Node, Repeat, Set, Tree};

/// A program longer than this is left to the other engines.
const OPS_MAX: usize = 200_000;

/// With which bytes something can begin.
#[derive(Clone, Copy, Debug)]
struct First {
    bytes: [u64; 4],
    empty: Empty,
}

/// Whether something can match without taking a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Empty {
    Never,
    Can,
    /// It can, but may also refuse: an anchor, a look around.
    May,
}

impl First {
    const NOTHING: First = First { bytes: [0; 4], empty: Empty::Never };
    /// What follows the end of a pattern: a match.
    const END: First = First { bytes: [0; 4], empty: Empty::Can };

    fn add(&mut self, byte: u8) {
        self.bytes[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn has(&self, byte: u8) -> bool {
        self.bytes[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    fn or(mut self, other: &First) -> First {
        for (mine, other) in self.bytes.iter_mut().zip(&other.bytes) {
            *mine |= other;
        }
        self.empty = self.empty.max(other.empty);
        self
    }

    /// The first of this and then `next`.
    fn then(self, next: &First) -> First {
        match self.empty {
            Empty::Never => self,
            empty => {
                let both = First { empty: Empty::Never, ..self }.or(next);
                let both_empty = if next.empty == Empty::Never { Empty::Never } else { empty.max(next.empty) };
                First { empty: both_empty, ..both }
            }
        }
    }

    fn meets(&self, other: &First) -> bool {
        self.bytes.iter().zip(&other.bytes).any(|(a, b)| a & b != 0)
    }
}

pub(super) fn compile(tree: Tree) -> Option<Machine> {
    let slots = tree.names.len() * 2;
    let mut compiler = Compiler {
        sets: &tree.sets,
        ops: Vec::new(),
        peeks: Vec::new(),
        known: HashMap::new(),
        literals: Vec::new(),
        marks: 0,
    };
    compiler.emit(&tree.root, &First::END)?;
    compiler.op(Op::Match)?;
    let start = if refers_back(&tree.root) { Start::Anywhere } else { compiler.start(&tree.root) };
    let first = compiler.first(&tree.root).then(&First::END);
    let first = compiler.peek(&first);
    let needle = needle(&tree.root).map(|text| memchr::memmem::Finder::new(text).into_owned());
    let Compiler { ops, peeks, literals, marks, .. } = compiler;
    Some(Machine { ops, peeks, literals, slots, marks, start, first, needle, sets: tree.sets })
}

struct Compiler<'a> {
    sets: &'a [Set],
    ops: Vec<Op>,
    peeks: Vec<Peek>,
    known: HashMap<[u64; 4], u32>,
    literals: Vec<u8>,
    marks: u32,
}

impl Compiler<'_> {
    fn op(&mut self, op: Op) -> Option<usize> {
        self.ops.push(op);
        (self.ops.len() < OPS_MAX).then_some(self.ops.len() - 1)
    }

    fn here(&self) -> u32 {
        self.ops.len() as u32
    }

    fn mark(&mut self) -> u32 {
        self.marks += 1;
        self.marks - 1
    }

    /// The place of what a way can begin with; [`ALWAYS`] if with anything.
    fn peek(&mut self, first: &First) -> u32 {
        if first.empty != Empty::Never {
            return ALWAYS;
        }
        let (peeks, next) = (&mut self.peeks, self.known.len() as u32);
        *self.known.entry(first.bytes).or_insert_with(|| {
            let bytes: Vec<u8> = (0..=255).filter(|byte| first.has(*byte)).collect();
            let mut table = Box::new([false; 256]);
            bytes.iter().for_each(|byte| table[usize::from(*byte)] = true);
            peeks.push(Peek { table, single: if let [byte] = bytes[..] { Some(byte) } else { None } });
            next
        })
    }

    fn first(&self, node: &Node) -> First {
        match node {
            Node::Empty => First::END,
            Node::Text(text) => {
                let mut first = First::NOTHING;
                first.add(text.as_bytes()[0]);
                first
            }
            Node::Set(set) => self.first_of_set(*set),
            Node::Concat(nodes) => {
                let mut first = First::END;
                for node in nodes {
                    if first.empty == Empty::Never {
                        break;
                    }
                    first = first.then(&self.first(node));
                }
                first
            }
            Node::Alternatives(nodes) => nodes.iter().fold(First::NOTHING, |first, node| first.or(&self.first(node))),
            Node::Repeat(repeat) => {
                let mut first = self.first(&repeat.inner);
                if repeat.least == 0 || repeat.most == Some(0) {
                    first.empty = first.empty.max(Empty::Can);
                }
                first
            }
            Node::Group(_, inner) | Node::Atomic(inner) => self.first(inner),
            Node::Look { .. } | Node::Anchor(_) => First { empty: Empty::May, ..First::END },
            Node::Reference(_) => First { bytes: [u64::MAX; 4], empty: Empty::May },
        }
    }

    fn first_of_set(&self, set: usize) -> First {
        let mut first = First::NOTHING;
        (0..=255).filter(|byte| self.sets[set].bytes[usize::from(*byte)] != 0).for_each(|byte| first.add(byte));
        first
    }

    /// Writes the node's program; `next` is what can follow it.
    fn emit(&mut self, node: &Node, next: &First) -> Option<()> {
        match node {
            Node::Empty => {}
            Node::Text(text) => match text.as_bytes() {
                [byte] => drop(self.op(Op::Byte(*byte))?),
                bytes => {
                    let at = self.literals.len() as u32;
                    self.literals.extend_from_slice(bytes);
                    self.op(Op::Text(at, bytes.len() as u32))?;
                }
            },
            Node::Set(set) => drop(self.op(Op::Set(*set as u32))?),
            Node::Concat(nodes) => {
                for (i, node) in nodes.iter().enumerate() {
                    let mut rest = First::END;
                    for node in &nodes[i + 1..] {
                        if rest.empty == Empty::Never {
                            break;
                        }
                        rest = rest.then(&self.first(node));
                    }
                    self.emit(node, &rest.then(next))?;
                }
            }
            Node::Alternatives(nodes) => self.alternatives(nodes, next)?,
            Node::Repeat(repeat) => match repeat.inner {
                Node::Set(set) => self.run(set, repeat, next)?,
                _ => self.repeat(repeat, next)?,
            },
            Node::Group(number, inner) => {
                self.op(Op::Save(*number as u32 * 2))?;
                self.emit(inner, next)?;
                self.op(Op::Save(*number as u32 * 2 + 1))?;
            }
            Node::Atomic(inner) => {
                let mark = self.mark();
                self.op(Op::Begin(mark))?;
                self.emit(inner, &First::END)?;
                self.op(Op::Commit(mark))?;
            }
            Node::Look { ahead, negative, inner } => self.look(*ahead, *negative, inner)?,
            Node::Anchor(anchor) => drop(self.op(Op::Anchor(*anchor))?),
            Node::Reference(groups) => {
                let last = groups.len() - 1;
                for (i, group) in groups.iter().enumerate() {
                    self.op(Op::Reference { group: *group as u32, skip: (last - i) as u32 })?;
                }
            }
        }
        Some(())
    }

    fn alternatives(&mut self, nodes: &[Node], next: &First) -> Option<()> {
        let firsts: Vec<First> = nodes.iter().map(|node| self.first(node).then(next)).collect();
        let mut ends = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            let Some(others) = firsts.get(i + 1..).filter(|others| !others.is_empty()) else {
                self.emit(node, next)?;
                break;
            };
            let others = others.iter().fold(First::NOTHING, |all, first| all.or(first));
            let split = self.split(&firsts[i], &others)?;
            self.emit(node, next)?;
            ends.push(self.op(Op::Jump(0))?);
            self.turn(split, self.here());
        }
        let end = self.here();
        ends.into_iter().for_each(|at| self.ops[at] = Op::Jump(end));
        Some(())
    }

    /// A choice between what comes next and another place, which is told by [`Compiler::turn`].
    fn split(&mut self, first: &First, second: &First) -> Option<usize> {
        let (near, far) = (self.peek(first), self.peek(second));
        let to = self.here() + 1;
        self.op(Op::Split { first: to, second: to, near, far })
    }

    fn turn(&mut self, split: usize, place: u32) {
        if let Op::Split { second, .. } = &mut self.ops[split] {
            *second = place;
        }
    }

    /// What comes next is the second choice.
    fn swap(&mut self, split: usize) {
        if let Op::Split { first, second, near, far } = &mut self.ops[split] {
            std::mem::swap(first, second);
            std::mem::swap(near, far);
        }
    }

    /// One set, several times.
    fn run(&mut self, set: usize, repeat: &Repeat, next: &First) -> Option<()> {
        let (least, most) = (repeat.least, repeat.most.unwrap_or(u32::MAX));
        let (index, peek) = (set as u32, self.peek(next));
        if repeat.lazy {
            return self.op(Op::Lazy { set: index, least, most, peek }).map(drop);
        }
        let all = self.sets[set].is_all() && most == u32::MAX;
        let keeps = least == most || !self.first_of_set(set).meets(next) && next.empty != Empty::May;
        match (keeps, all) {
            (true, true) if least <= 1 => self.op(Op::End { least }),
            (true, _) => self.op(Op::Keep { set: index, least, most }),
            (false, true) if least <= 1 => self.op(Op::Rest { least, peek }),
            _ => self.op(Op::Run { set: index, least, most, peek }),
        }
        .map(drop)
    }

    fn repeat(&mut self, repeat: &Repeat, next: &First) -> Option<()> {
        let inner = &repeat.inner;
        let first = self.first(inner);
        // what can follow one turn: another, or what is behind
        let around = First { empty: Empty::Never, ..first }.or(next);
        for _ in 0..repeat.least {
            self.emit(inner, &around)?;
        }
        let begins = first.then(&around);
        let Some(most) = repeat.most else {
            return self.loops(repeat, &begins, &around, next);
        };
        let mut splits = Vec::new();
        for _ in repeat.least..most {
            let split = self.split(&begins, next)?;
            splits.push(split);
            self.emit(inner, &around)?;
        }
        let end = self.here();
        for split in splits {
            self.turn(split, end);
            if repeat.lazy {
                self.swap(split);
            }
        }
        Some(())
    }

    /// Turns without end; one that took nothing is the last.
    fn loops(&mut self, repeat: &Repeat, begins: &First, around: &First, next: &First) -> Option<()> {
        let empty = self.first(&repeat.inner).empty != Empty::Never;
        let split = self.split(begins, next)?;
        let mark = empty.then(|| self.mark());
        if let Some(mark) = mark {
            self.op(Op::Note(mark))?;
        }
        self.emit(&repeat.inner, around)?;
        let check = match mark {
            Some(mark) => Some(self.op(Op::Moved { mark, end: 0 })?),
            None => None,
        };
        self.op(Op::Jump(split as u32))?;
        let behind = self.here();
        if let Some(check) = check
            && let Op::Moved { end, .. } = &mut self.ops[check]
        {
            *end = behind;
        }
        self.turn(split, behind);
        if repeat.lazy {
            self.swap(split);
        }
        Some(())
    }

    fn look(&mut self, ahead: bool, negative: bool, inner: &Node) -> Option<()> {
        if !ahead && let Node::Set(set) = inner {
            return self.op(Op::Behind { set: *set as u32, negative }).map(drop);
        }
        let mark = self.mark();
        let begin = self.op(Op::Look { mark, negative, end: 0 })?;
        if ahead {
            self.emit(inner, &First::END)?;
        } else {
            self.behind(inner)?;
        }
        self.op(if negative { Op::Refuse(mark) } else { Op::Return(mark) })?;
        let behind = self.here();
        if let Op::Look { end, .. } = &mut self.ops[begin] {
            *end = behind;
        }
        Some(())
    }

    /// Only alternatives of fixed lengths can be looked for behind, in Ruby as well.
    fn behind(&mut self, inner: &Node) -> Option<()> {
        let one = std::slice::from_ref(inner);
        let nodes = if let Node::Alternatives(nodes) = inner { &nodes[..] } else { one };
        let mut ends = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            let anything = First { empty: Empty::May, ..First::END };
            let split = if i + 1 < nodes.len() { Some(self.split(&anything, &anything)?) } else { None };
            self.op(Op::Back(node.length()? as u32))?;
            self.emit(node, &First::END)?;
            ends.push(self.op(Op::Jump(0))?);
            if let Some(split) = split {
                self.turn(split, self.here());
            }
        }
        let end = self.here();
        ends.into_iter().for_each(|at| self.ops[at] = Op::Jump(end));
        Some(())
    }

    fn start(&self, root: &Node) -> Start {
        let mut node = root;
        loop {
            match node {
                Node::Concat(nodes) => node = &nodes[0],
                Node::Group(_, inner) => node = inner,
                Node::Anchor(Anchor::TextStart) => return Start::Text,
                Node::Anchor(Anchor::LineStart) => return Start::Line,
                // if it leads to no match from the beginning, it leads to none from anywhere
                Node::Repeat(repeat)
                    if repeat.least == 0
                        && repeat.most.is_none()
                        && matches!(repeat.inner, Node::Set(set) if self.sets[set].is_all()) =>
                {
                    return Start::Text;
                }
                _ => return Start::Anywhere,
            }
        }
    }
}

/// The longest text that every match holds.
fn needle(node: &Node) -> Option<&[u8]> {
    match node {
        Node::Text(text) => Some(text.as_bytes()),
        Node::Group(_, inner) | Node::Atomic(inner) => needle(inner),
        Node::Concat(nodes) => nodes.iter().filter_map(needle).max_by_key(|text| text.len()),
        Node::Repeat(repeat) if repeat.least > 0 => needle(&repeat.inner),
        _ => None,
    }
}

fn refers_back(node: &Node) -> bool {
    match node {
        Node::Reference(_) => true,
        Node::Empty | Node::Text(_) | Node::Set(_) | Node::Anchor(_) => false,
        Node::Concat(nodes) | Node::Alternatives(nodes) => nodes.iter().any(refers_back),
        Node::Repeat(repeat) => refers_back(&repeat.inner),
        Node::Group(_, inner) | Node::Atomic(inner) | Node::Look { inner, .. } => refers_back(inner),
    }
}
