//! TOML text as a tree of our own that remembers where each value was written.
//!
//! Parsing stops at nothing: what cannot be read becomes [`Kind::Bad`] and a problem, so that the rest of the file
//! is still looked at. No key has a meaning here; that is the reader's.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::report::Problem;

/// Tables deeper than this are refused, so that no file can exhaust the stack.
const DEPTH_MAX: usize = 64;

/// Which text a span points into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    #[default]
    File,
    /// The `--set` argument of this number.
    Set(usize),
}

/// A stretch of the file, or of a `--set` argument, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub origin: Origin,
    pub span: Range<usize>,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub place: Place,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Text(Text),
    Integer(i64),
    Float(f64),
    Bool(bool),
    /// An unquoted date or time; no key wants one, so its text is all that is kept.
    Datetime(String),
    Array(Vec<Node>),
    Table(Table),
    /// Already reported; reading it gives nothing and says nothing more.
    Bad,
}

#[derive(Clone, Debug, Default)]
pub struct Text {
    pub text: String,
    /// Parts of it came from a variable: it is never shown.
    pub variable: bool,
    /// It is one `${…}` and nothing else: it may stand for a number or a boolean.
    pub whole: bool,
}

/// The entries in the order written.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub place: Place,
    pub value: Node,
}

impl Table {
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

impl Kind {
    /// Whether a variable gave any of it.
    pub fn has_variable(&self) -> bool {
        match self {
            Kind::Text(text) => text.variable,
            Kind::Array(nodes) => nodes.iter().any(|node| node.kind.has_variable()),
            Kind::Table(table) => table.entries.iter().any(|entry| entry.value.kind.has_variable()),
            _ => false,
        }
    }

    /// With its article, for messages.
    pub fn describe(&self) -> &'static str {
        match self {
            Kind::Text(_) => "a string",
            Kind::Integer(_) => "an integer",
            Kind::Float(_) => "a float",
            Kind::Bool(_) => "a boolean",
            Kind::Datetime(_) => "a date or time",
            Kind::Array(_) => "an array",
            Kind::Table(_) => "a table",
            Kind::Bad => "nothing readable",
        }
    }
}

/// The tree and the syntax problems. With problems the tree is a guess and no error should be drawn from it.
pub fn parse(text: &str, problems: &mut Vec<Problem>) -> Node {
    let root = Node { place: Place::default(), kind: Kind::Table(Table::default()) };
    if let Some(at) = too_deep(text) {
        let place = Place { origin: Origin::File, span: at..at + 1 };
        problems.push(Problem::error(place, format!("a key of more than {DEPTH_MAX} parts")));
        return root;
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    let lines: Vec<usize> =
        if errors.is_empty() { Vec::new() } else { memchr::memchr_iter(b'\n', text.as_bytes()).collect() };
    let mut line_before = None;
    for error in errors {
        let span = inside(text, error.span().unwrap_or(text.len()..text.len()));
        // One slip makes the parser stumble on for the rest of the line: the first word is the useful one.
        let line = lines.partition_point(|end| *end < span.start);
        if line_before.replace(line) == Some(line) {
            continue;
        }
        let message = match error.message() {
            "duplicate key" => format!("`{}` is given twice", &text[span.clone()]),
            unquoted if unquoted.starts_with("string values must be quoted") => match span.is_empty() {
                true => "a value is missing".to_owned(),
                false => "a string needs quotes".to_owned(),
            },
            other => other.to_owned(),
        };
        problems.push(Problem::error(Place { origin: Origin::File, span }, message));
    }
    let walk = &mut Walk { text, origin: Origin::File, shift: 0, problems };
    Node { kind: Kind::Table(walk.table(table.into_inner(), 0)), ..root }
}

/// One TOML value standing alone, as in `--set`: `shift` is where it begins in the argument. `None`: not TOML.
pub fn parse_value(text: &str, origin: Origin, shift: usize, problems: &mut Vec<Problem>) -> Option<Node> {
    if too_deep(text).is_some() {
        return None;
    }
    let value = DeValue::parse(text).ok()?;
    Some(Walk { text, origin, shift, problems }.node(value, 0))
}

/// Where a key of too many dotted parts is. The parser recurses over these with no limit of its own. Dots in strings
/// and comments are harmless, so only what could be a key is counted: what stands at a line's start or after `{` or `,`.
fn too_deep(text: &str) -> Option<usize> {
    let (mut dots, mut key_like, mut before) = (0, true, b'\n');
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\n' | b',' | b'{' => (dots, key_like) = (0, true),
            b'.' if before == b'.' => key_like = false,
            b'.' => dots += 1,
            _ if byte.is_ascii_alphanumeric() || b"_-[]\"' \t\r".contains(&byte) => {}
            _ => key_like = false,
        }
        if key_like && dots > DEPTH_MAX {
            return Some(at);
        }
        before = byte;
    }
    None
}

/// The span moved onto character borders within the text.
fn inside(text: &str, span: Range<usize>) -> Range<usize> {
    let start = text.floor_char_boundary(span.start.min(text.len()));
    let end = text.ceil_char_boundary(span.end.min(text.len()));
    start..end.max(start)
}

struct Walk<'a> {
    text: &'a str,
    origin: Origin,
    shift: usize,
    problems: &'a mut Vec<Problem>,
}

impl Walk<'_> {
    fn place(&self, span: Range<usize>) -> Place {
        let span = inside(self.text, span);
        Place { origin: self.origin, span: span.start + self.shift..span.end + self.shift }
    }

    fn table(&mut self, table: DeTable<'_>, depth: usize) -> Table {
        let mut entries: Vec<Entry> = Vec::with_capacity(table.len());
        for (key, value) in table {
            let place = self.place(key.span());
            entries.push(Entry { key: key.into_inner().into_owned(), place, value: self.node(value, depth + 1) });
        }
        // The crate keeps tables sorted by name; the order written is the order of the spans.
        entries.sort_by_key(|entry| entry.place.span.start);
        Table { entries }
    }

    fn node(&mut self, value: Spanned<DeValue<'_>>, depth: usize) -> Node {
        let place = self.place(value.span());
        let kind = if depth > DEPTH_MAX {
            self.problems.push(Problem::error(place.clone(), format!("tables nest more than {DEPTH_MAX} deep")));
            Kind::Bad
        } else {
            self.kind(value.into_inner(), &place, depth)
        };
        Node { place, kind }
    }

    fn kind(&mut self, value: DeValue<'_>, place: &Place, depth: usize) -> Kind {
        match value {
            DeValue::String(text) => Kind::Text(Text { text: text.into_owned(), ..Text::default() }),
            DeValue::Boolean(value) => Kind::Bool(value),
            DeValue::Datetime(value) => Kind::Datetime(value.to_string()),
            DeValue::Array(items) => Kind::Array(items.into_iter().map(|item| self.node(item, depth + 1)).collect()),
            DeValue::Table(table) => Kind::Table(self.table(table, depth)),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Kind::Integer(number),
                Err(_) => self.bad(place, "an integer beyond 64 bits"),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => Kind::Float(number),
                Err(_) => self.bad(place, "not a number"),
            },
        }
    }

    fn bad(&mut self, place: &Place, message: &str) -> Kind {
        self.problems.push(Problem::error(place.clone(), message.to_owned()));
        Kind::Bad
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn outline(node: &Node) -> String {
        match &node.kind {
            Kind::Text(text) => format!("{:?}", text.text),
            Kind::Integer(n) => n.to_string(),
            Kind::Float(n) => format!("{n:?}"),
            Kind::Bool(b) => b.to_string(),
            Kind::Datetime(text) => text.clone(),
            Kind::Array(items) => format!("[{}]", items.iter().map(outline).collect::<Vec<_>>().join(" ")),
            Kind::Table(table) => {
                let entry = |e: &Entry| format!("{}={}", e.key, outline(&e.value));
                format!("{{{}}}", table.entries.iter().map(entry).collect::<Vec<_>>().join(" "))
            }
            Kind::Bad => "bad".to_owned(),
        }
    }

    fn check(text: &str, expected: &str, problem_count: usize) {
        let mut problems = Vec::new();
        let root = parse(text, &mut problems);
        assert_eq!(outline(&root), expected, "{text}");
        assert_eq!(problems.len(), problem_count, "{text}: {problems:?}");
    }

    #[test]
    fn values_in_the_order_written() {
        check("z = 1\na = 0x1F\n[b]\nd = 1979-05-27\nc = [1.5, true]", "{z=1 a=31 b={d=1979-05-27 c=[1.5 true]}}", 0);
        check("[[f]]\nx.y = 'a'\n[[f]]\n", "{f=[{x={y=\"a\"}} {}]}", 0);
        check("\u{feff}a = 1\r\nb = 2\r\n", "{a=1 b=2}", 0);
    }

    #[test]
    fn what_cannot_be_read_is_bad_and_said_once() {
        check("a = 99999999999999999999\nb = 1", "{a=bad b=1}", 1);
        check("a = 1\na = 2\n", "{a=1}", 1);
    }

    #[test]
    fn depth_is_limited() {
        for text in [format!("{}a = 1", "a.".repeat(200_000)), format!("[{}a]", "a.".repeat(200_000))] {
            let mut problems = Vec::new();
            parse(&text, &mut problems);
            assert_eq!(problems.len(), 1);
        }
        for text in ["[".repeat(10_000), format!("a = {}", "[".repeat(10_000)), format!("a = {}", "{a=".repeat(10_000))]
        {
            let mut problems = Vec::new();
            parse(&text, &mut problems);
            assert!(!problems.is_empty());
        }
        check(&format!("a = \"{}\"", ".".repeat(200)), &format!("{{a={:?}}}", ".".repeat(200)), 0);
    }
}
