//! A Ruby pattern as a tree, for the machine. What the machine does not know (numbered references, conditions,
//! `\K`, `\R`, …) and what is wrong gives no tree at all: the other engines then have the pattern, or the error.

use std::collections::HashMap;

use super::Writer;

#[derive(Clone, Debug)]
pub(super) enum Node {
    Empty,
    Text(String),
    /// One character of a set, by its place in [`Tree::sets`].
    Set(usize),
    Concat(Vec<Node>),
    Alternatives(Vec<Node>),
    Repeat(Box<Repeat>),
    /// A group with a name, by its place in [`Tree::names`].
    Group(usize, Box<Node>),
    Atomic(Box<Node>),
    Look {
        ahead: bool,
        negative: bool,
        inner: Box<Node>,
    },
    Anchor(Anchor),
    /// What a group of the name holds: the first of these that took part.
    Reference(Vec<usize>),
}

#[derive(Clone, Debug)]
pub(super) struct Repeat {
    pub inner: Node,
    pub least: u32,
    pub most: Option<u32>,
    pub lazy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    LineStart,
    LineEnd,
    TextStart,
    TextEnd,
    /// `\Z`: also before a last line end.
    TextEndLine,
    Word,
    NoWord,
}

pub(super) struct Tree {
    pub root: Node,
    pub names: Vec<String>,
    pub sets: Vec<Set>,
}

/// A set of characters.
#[derive(Clone, Debug)]
pub(super) struct Set {
    /// By a character's first byte: how many bytes it has if it belongs to the set, 0 if not, or [`ASK`].
    pub bytes: Box<[u8; 256]>,
    /// For characters beyond ASCII where some belong and some do not.
    pub others: Option<regex::Regex>,
}

pub(super) const ASK: u8 = 9;

/// Groups nested deeper than this are left to the other engines, and more counts behind one another.
const DEPTH_MAX: usize = 200;
const COUNTS_MAX: usize = 8;

pub(super) fn parse(text: &str) -> Option<Tree> {
    let chars: Vec<char> = text.chars().collect();
    let writer = Writer::new(&chars);
    let flags = Flags { fold: false, dot_all: false, extended: false };
    let (names, sets, known) = (Vec::new(), Vec::new(), HashMap::new());
    let mut parser = Parser { writer, flags, names, sets, known, depth: 0 };
    let root = parser.alternatives()?;
    let whole = parser.writer.peek(0).is_none();
    whole.then_some(Tree { root, names: parser.names, sets: parser.sets })
}

#[derive(Clone, Copy)]
struct Flags {
    fold: bool,
    dot_all: bool,
    extended: bool,
}

struct Parser<'a> {
    writer: Writer<'a>,
    flags: Flags,
    names: Vec<String>,
    sets: Vec<Set>,
    /// Sets by their spelling.
    known: HashMap<String, usize>,
    depth: usize,
}

impl Parser<'_> {
    /// Up to the end of the group, which is not passed.
    fn alternatives(&mut self) -> Option<Node> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let (mut done, mut pieces) = (Vec::new(), Vec::new());
        while let Some(c) = self.writer.peek(0).filter(|c| *c != ')') {
            if c == '|' {
                self.writer.at += 1;
                done.push(concat(std::mem::take(&mut pieces)));
            } else if !self.skips(c) {
                let atom = self.atom()?;
                let atom = self.repeated(atom)?;
                pieces.push(atom);
            }
        }
        self.depth -= 1;
        if done.is_empty() {
            return Some(concat(pieces));
        }
        done.push(concat(pieces));
        Some(Node::Alternatives(done))
    }

    /// Passes over white space and a comment where they mean nothing.
    fn skips(&mut self, c: char) -> bool {
        if !self.flags.extended || !(c.is_ascii_whitespace() || c == '#') {
            return false;
        }
        self.writer.at += 1;
        while c == '#' && self.writer.next().is_some_and(|c| c != '\n') {}
        true
    }

    fn atom(&mut self) -> Option<Node> {
        match self.writer.next()? {
            '\\' => self.escape(),
            '[' => {
                self.writer.out.clear();
                self.writer.class().ok()?;
                self.spelled_set()
            }
            '(' => self.group(),
            '.' => self.set(if self.flags.dot_all { "(?s:.)" } else { r"[^\n]" }),
            '^' => Some(Node::Anchor(Anchor::LineStart)),
            '$' => Some(Node::Anchor(Anchor::LineEnd)),
            '*' | '+' | '?' => None,
            '{' if self.writer.interval().is_some() => None,
            c => self.character(c),
        }
    }

    fn character(&mut self, c: char) -> Option<Node> {
        if self.flags.fold && c.is_alphabetic() {
            return self.set(&regex::escape(c.encode_utf8(&mut [0; 4])));
        }
        Some(Node::Text(c.to_string()))
    }

    /// After a backslash.
    fn escape(&mut self) -> Option<Node> {
        let c = self.writer.peek(0)?;
        let plain = match c {
            'b' => Node::Anchor(Anchor::Word),
            'B' => Node::Anchor(Anchor::NoWord),
            'A' => Node::Anchor(Anchor::TextStart),
            'z' => Node::Anchor(Anchor::TextEnd),
            'Z' => Node::Anchor(Anchor::TextEndLine),
            'n' => Node::Text("\n".to_string()),
            't' => Node::Text("\t".to_string()),
            'r' => Node::Text("\r".to_string()),
            'k' => return self.reference(),
            'G' | 'K' | 'R' | 'X' | 'g' | '1'..='9' => return None,
            c if c.is_ascii_punctuation() || c == ' ' => Node::Text(c.to_string()),
            _ => {
                self.writer.out.clear();
                self.writer.escape(false).ok()?;
                return self.spelled_set();
            }
        };
        self.writer.at += 1;
        Some(plain)
    }

    fn reference(&mut self) -> Option<Node> {
        self.writer.at += 1;
        if self.flags.fold || self.writer.next() != Some('<') {
            return None;
        }
        let name = self.writer.until('>').ok()?;
        let groups: Vec<usize> = (0..self.names.len()).rev().filter(|n| self.names[*n] == name).collect();
        (!groups.is_empty()).then_some(Node::Reference(groups))
    }

    /// After `(`.
    fn group(&mut self) -> Option<Node> {
        if self.writer.peek(0) != Some('?') {
            return self.rest_of_group();
        }
        self.writer.at += 1;
        let look = |ahead, negative, inner| Node::Look { ahead, negative, inner: Box::new(inner) };
        match (self.writer.next()?, self.writer.peek(0)) {
            ('#', _) => {
                self.writer.until(')').ok()?;
                Some(Node::Empty)
            }
            (':', _) => self.rest_of_group(),
            ('>', _) => Some(Node::Atomic(Box::new(self.rest_of_group()?))),
            ('=', _) => Some(look(true, false, self.rest_of_group()?)),
            ('!', _) => Some(look(true, true, self.rest_of_group()?)),
            ('<', Some(c @ ('=' | '!'))) => {
                self.writer.at += 1;
                Some(look(false, c == '!', self.rest_of_group()?))
            }
            (open @ ('<' | '\''), _) => {
                let name = self.writer.until(if open == '<' { '>' } else { open }).ok()?;
                let number = self.names.len();
                self.names.push(name);
                Some(Node::Group(number, Box::new(self.rest_of_group()?)))
            }
            (c, _) => self.options(c),
        }
    }

    fn rest_of_group(&mut self) -> Option<Node> {
        let flags = self.flags;
        let inner = self.alternatives()?;
        self.flags = flags;
        (self.writer.next() == Some(')')).then_some(inner)
    }

    /// After `(?` and one more character: `(?i)` up to the end of its group, or `(?i:…)`.
    fn options(&mut self, first: char) -> Option<Node> {
        let (outer, mut on, mut c) = (self.flags, true, first);
        let mut flags = outer;
        loop {
            match c {
                '-' => on = false,
                'i' => flags.fold = on,
                'm' => flags.dot_all = on,
                'x' => flags.extended = on,
                'a' | 'u' | 'd' => {}
                ':' | ')' => break,
                _ => return None,
            }
            c = self.writer.next()?;
        }
        self.flags = flags;
        let inner = self.alternatives()?;
        self.flags = outer;
        (c == ')' || self.writer.next() == Some(')')).then_some(inner)
    }

    fn repeated(&mut self, mut atom: Node) -> Option<Node> {
        for _ in 0..COUNTS_MAX {
            let (least, most) = match self.writer.peek(0) {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.writer.at += 1;
                    let Some((least, most)) = self.writer.interval() else {
                        self.writer.at -= 1;
                        return Some(atom);
                    };
                    // in Ruby `a{3}?` is no lazy count, but three or none
                    let optional = least == most.unwrap_or(u32::MAX) && self.writer.peek(0) == Some('?');
                    let lazy = !optional && self.takes('?');
                    atom = self.repeat(atom, least, most, lazy)?;
                    continue;
                }
                _ => return Some(atom),
            };
            self.writer.at += 1;
            let lazy = self.takes('?');
            atom = self.repeat(atom, least, most, lazy)?;
            if !lazy && self.takes('+') {
                atom = Node::Atomic(Box::new(atom));
            }
        }
        None
    }

    fn takes(&mut self, c: char) -> bool {
        let there = self.writer.peek(0) == Some(c);
        self.writer.at += usize::from(there);
        there
    }

    fn repeat(&mut self, inner: Node, least: u32, most: Option<u32>, lazy: bool) -> Option<Node> {
        let inner = match inner {
            Node::Anchor(_) | Node::Look { .. } | Node::Empty => return None,
            // so that it runs as a set
            Node::Text(text) if text.chars().count() == 1 => self.set(&regex::escape(&text))?,
            inner => inner,
        };
        if most.is_some_and(|most| most < least) {
            return None;
        }
        Some(Node::Repeat(Box::new(Repeat { inner, least, most, lazy })))
    }

    fn spelled_set(&mut self) -> Option<Node> {
        let spelled = std::mem::take(&mut self.writer.out);
        self.set(&spelled)
    }

    /// A set as the linear engine spells it.
    fn set(&mut self, spelled: &str) -> Option<Node> {
        let fold = if self.flags.fold { "i" } else { "" };
        let spelled = format!("(?{fold}:{spelled})");
        if let Some(number) = self.known.get(&spelled) {
            return Some(Node::Set(*number));
        }
        self.sets.push(Set::new(&spelled, self.flags.fold)?);
        self.known.insert(spelled, self.sets.len() - 1);
        Some(Node::Set(self.sets.len() - 1))
    }
}

impl Set {
    pub(super) fn new(spelled: &str, fold: bool) -> Option<Set> {
        let regex = regex::Regex::new(&format!(r"\A{spelled}\z")).ok()?;
        let holds = |c: char| regex.is_match(c.encode_utf8(&mut [0; 4]));
        let mut bytes = Box::new([0; 256]);
        for byte in 0..128u8 {
            bytes[usize::from(byte)] = u8::from(holds(char::from(byte)));
        }
        // a spelling without classes treats all that is not ASCII alike
        let classes = [r"\p", r"\P", r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", r"\x{", r"\u"];
        let uniform = !fold && spelled.is_ascii() && !classes.iter().any(|class| spelled.contains(class));
        let mark = |len: u8| if !uniform { ASK } else { u8::from(holds('中')) * len };
        for (range, len) in [(0xc2..=0xdf, 2), (0xe0..=0xef, 3), (0xf0..=0xf4, 4)] {
            bytes[range].fill(mark(len));
        }
        Some(Set { bytes, others: (!uniform).then_some(regex) })
    }

    /// The length of the character at `at`, if it belongs to the set.
    #[inline]
    pub(super) fn takes(&self, text: &[u8], at: usize) -> Option<usize> {
        match self.bytes[usize::from(*text.get(at)?)] {
            0 => None,
            ASK => self.asks(text, at),
            len => Some(usize::from(len)),
        }
    }

    #[cold]
    fn asks(&self, text: &[u8], at: usize) -> Option<usize> {
        let len = match text[at] {
            0xe0..=0xef => 3,
            0xf0.. => 4,
            _ => 2,
        };
        let c = std::str::from_utf8(text.get(at..at + len)?).ok()?;
        self.others.as_ref()?.is_match(c).then_some(len)
    }

    /// Whether every character belongs to it.
    pub(super) fn is_all(&self) -> bool {
        self.others.is_none() && self.bytes[..128].iter().all(|len| *len == 1) && self.bytes[0xc2] == 2
    }
}

fn concat(pieces: Vec<Node>) -> Node {
    let mut out: Vec<Node> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match (piece, out.last_mut()) {
            (Node::Empty, _) => {}
            (Node::Text(more), Some(Node::Text(text))) => text.push_str(&more),
            (Node::Concat(more), _) => out.extend(more),
            (piece, _) => out.push(piece),
        }
    }
    match out.len() {
        0 => Node::Empty,
        1 => out.remove(0),
        _ => Node::Concat(out),
    }
}

impl Node {
    /// How many characters it takes, if that is always the same.
    pub(super) fn length(&self) -> Option<usize> {
        match self {
            Node::Empty | Node::Anchor(_) | Node::Look { .. } => Some(0),
            Node::Text(text) => Some(text.chars().count()),
            Node::Set(_) => Some(1),
            Node::Concat(nodes) => nodes.iter().try_fold(0usize, |sum, node| sum.checked_add(node.length()?)),
            Node::Alternatives(nodes) => {
                let first = nodes.first()?.length()?;
                nodes.iter().all(|node| node.length() == Some(first)).then_some(first)
            }
            Node::Repeat(repeat) if repeat.most == Some(repeat.least) => {
                repeat.inner.length()?.checked_mul(repeat.least as usize)
            }
            Node::Repeat(_) | Node::Reference(_) => None,
            Node::Group(_, inner) | Node::Atomic(inner) => inner.length(),
        }
    }
}
