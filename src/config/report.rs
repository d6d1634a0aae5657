//! What is wrong with a pipeline file, and how it is shown: file, line, column, the line itself with the place
//! underlined, what is allowed, the nearest name.
//!
//! Lines are shown as the file has them, so a variable appears as `${VAR}` and never as its text; places read as
//! secrets are shown as stars.

use std::fmt::Write as _;
use std::ops::Range;

use unicode_width::UnicodeWidthChar;

use super::overrides;
use super::tree::{Origin, Place};

/// How many columns of a line are shown, and how many of them before the place.
const WIDTH_MAX: usize = 100;
const WIDTH_BEFORE: usize = 40;
/// More than this helps nobody; the closing line counts them all.
const SHOWN_MAX: usize = 50;
const TAB: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
}

/// One thing wrong, at one place.
#[derive(Clone, Debug)]
pub struct Problem {
    pub severity: Severity,
    pub place: Place,
    pub message: String,
    pub help: Help,
}

/// What is said below a problem: the allowed, the nearest name, and notes, each on a line of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Help {
    pub allowed: Vec<String>,
    pub nearest: Option<String>,
    pub notes: Vec<String>,
}

impl Help {
    pub fn allowed<T: Into<String>>(allowed: impl IntoIterator<Item = T>) -> Help {
        Help { allowed: allowed.into_iter().map(Into::into).collect(), ..Help::default() }
    }

    /// The allowed names, and the one nearest to `given` if one is close.
    pub fn names(given: &str, allowed: &[&str]) -> Help {
        Help { nearest: nearest(given, allowed), ..Help::allowed(allowed.iter().copied()) }
    }

    pub fn note(mut self, note: impl Into<String>) -> Help {
        self.notes.push(note.into());
        self
    }
}

impl From<()> for Help {
    fn from((): ()) -> Help {
        Help::default()
    }
}

impl From<&str> for Help {
    fn from(note: &str) -> Help {
        Help::default().note(note)
    }
}

impl From<String> for Help {
    fn from(note: String) -> Help {
        Help::default().note(note)
    }
}

impl Problem {
    pub fn error(place: Place, message: impl Into<String>) -> Problem {
        Problem { severity: Severity::Error, place, message: message.into(), help: Help::default() }
    }

    pub fn warning(place: Place, message: impl Into<String>) -> Problem {
        Problem { severity: Severity::Warning, ..Problem::error(place, message) }
    }

    pub fn help(mut self, help: impl Into<Help>) -> Problem {
        self.help = help.into();
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Problem {
        self.help.notes.push(note.into());
        self
    }
}

/// The nearest of the names, if a slip of the fingers may have made `given` out of it.
pub fn nearest(given: &str, names: &[&str]) -> Option<String> {
    let given = given.to_lowercase().replace('_', "-");
    let distance = |name: &&str| strsim::damerau_levenshtein(&given, &name.to_lowercase().replace('_', "-"));
    let best = names.iter().min_by_key(|name| distance(name))?;
    let length = given.chars().count().max(best.chars().count());
    (distance(best) <= (length / 3).max(1) && distance(best) < length).then(|| (*best).to_owned())
}

/// All problems of one file in the order of their places, with the texts needed to show them.
#[derive(Clone, Debug)]
pub struct Report {
    name: String,
    text: String,
    sets: Vec<String>,
    problems: Vec<Problem>,
    secrets: Vec<Place>,
}

impl Report {
    pub(super) fn new(
        name: &str,
        text: &str,
        sets: &[String],
        mut problems: Vec<Problem>,
        secrets: Vec<Place>,
    ) -> Report {
        problems.sort_by_key(|p| (p.place.origin, p.place.span.start, p.severity, p.place.span.end));
        problems.dedup_by(|a, b| a.place == b.place && a.message == b.message);
        Report { name: name.to_owned(), text: text.to_owned(), sets: sets.to_vec(), problems, secrets }
    }

    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|p| p.severity == Severity::Error)
    }

    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Everything, with a closing line that counts; nothing at all when there is nothing to say.
    pub fn render(&self, colour: bool) -> String {
        let mut out = String::new();
        if self.problems.is_empty() {
            return out;
        }
        let paint = Paint { colour };
        for problem in self.problems.iter().take(SHOWN_MAX) {
            self.render_one(problem, &paint, &mut out);
            out.push('\n');
        }
        if self.problems.len() > SHOWN_MAX {
            let _ = writeln!(out, "and {} more\n", self.problems.len() - SHOWN_MAX);
        }
        let _ = writeln!(out, "{} in {}", self.count(), printable(&self.name));
        out
    }

    fn count(&self) -> String {
        let errors = self.problems.iter().filter(|p| p.severity == Severity::Error).count();
        let counted = |n: usize, word: &str| match n {
            0 => None,
            1 => Some(format!("1 {word}")),
            _ => Some(format!("{n} {word}s")),
        };
        let counts = [counted(errors, "error"), counted(self.problems.len() - errors, "warning")];
        counts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn render_one(&self, problem: &Problem, paint: &Paint, out: &mut String) {
        let text = self.source(problem.place.origin);
        let line = Line::find(text, &problem.place.span);
        let (head, gutter) = match problem.place.origin {
            Origin::File => {
                (format!("{}:{}:{}", printable(&self.name), line.number, line.column), line.number.to_string())
            }
            Origin::Set(_) => (format!("--set {}", printable(overrides::key_of(text))), "--set".to_owned()),
        };
        let (code, warning) = match problem.severity {
            Severity::Error => (RED, ""),
            Severity::Warning => (YELLOW, "warning: "),
        };
        let message = problem.message.lines().map(printable).collect::<Vec<_>>().join("\n    ");
        let _ = writeln!(out, "{}: {}{message}", paint.on(BOLD, &head), paint.on(code, warning));
        let shown = line.show(|at| self.is_secret(problem.place.origin, at));
        let bar = paint.on(BLUE, "|");
        let blank = " ".repeat(gutter.len());
        let _ = writeln!(out, "  {} {bar} {}", paint.on(BLUE, &gutter), shown.text);
        let carets = "^".repeat(shown.width);
        let _ = writeln!(out, "  {blank} {bar} {}{}", " ".repeat(shown.before), paint.on(code, &carets));
        for help in help_lines(&problem.help) {
            let _ = writeln!(out, "  {blank} {} {}", paint.on(BLUE, "="), printable(&help));
        }
    }

    fn source(&self, origin: Origin) -> &str {
        match origin {
            Origin::File => &self.text,
            Origin::Set(number) => self.sets.get(number).map_or("", String::as_str),
        }
    }

    fn is_secret(&self, origin: Origin, at: usize) -> bool {
        self.secrets.iter().any(|place| place.origin == origin && place.span.contains(&at))
    }
}

fn help_lines(help: &Help) -> Vec<String> {
    let mut lines = Vec::new();
    if !help.allowed.is_empty() {
        lines.push(format!("allowed: {}", help.allowed.join(", ")));
    }
    if let Some(nearest) = &help.nearest {
        lines.push(format!("did you mean `{nearest}`?"));
    }
    lines.extend(help.notes.iter().cloned());
    lines
}

/// The line that a span begins in, and the part of the span that lies in it, in bytes of the line.
struct Line<'a> {
    number: usize,
    /// In characters, from 1.
    column: usize,
    text: &'a str,
    /// Where the line begins in the whole text.
    start: usize,
    marked: Range<usize>,
}

/// A line made fit for a terminal; `before` and `width` are columns.
struct Shown {
    text: String,
    before: usize,
    width: usize,
}

impl<'a> Line<'a> {
    fn find(text: &'a str, span: &Range<usize>) -> Line<'a> {
        let from = text.floor_char_boundary(span.start.min(text.len()));
        let to = text.floor_char_boundary(span.end.min(text.len())).max(from);
        let mut start = text[..from].rfind('\n').map_or(0, |before| before + 1);
        let number = text[..start].matches('\n').count() + 1;
        if start == 0 && text.starts_with('\u{feff}') {
            start = '\u{feff}'.len_utf8();
        }
        let start = start.min(text.len());
        let line = text[start..].split('\n').next().unwrap_or("");
        let line = line.strip_suffix('\r').unwrap_or(line);
        let begin = from.max(start) - start;
        let marked = begin.min(line.len())..(to.max(start) - start).clamp(begin.min(line.len()), line.len());
        Line { number, column: line[..marked.start].chars().count() + 1, text: line, start, marked }
    }

    fn show(&self, is_secret: impl Fn(usize) -> bool) -> Shown {
        let (mut text, mut column, mut cut) = (String::new(), 0, false);
        let (mut before, mut after) = (0, 0);
        let skip = self.window_start();
        if skip > 0 {
            text.push('…');
            column = 1;
        }
        for (at, character) in self.text.char_indices().filter(|(at, _)| *at >= skip) {
            let (shown, width) = match character {
                _ if is_secret(self.start + at) => ('*', 1),
                '\t' => (' ', TAB),
                _ => visible(character),
            };
            if column + width > WIDTH_MAX {
                cut = true;
                break;
            }
            if at < self.marked.start {
                before = column + width;
            }
            if at < self.marked.end {
                after = column + width;
            }
            match character {
                '\t' if shown == ' ' => text.push_str(&" ".repeat(TAB)),
                _ => text.push(shown),
            }
            column += width;
        }
        if cut {
            text.push('…');
        }
        let before = before.max(usize::from(skip > 0 && self.marked.start <= skip));
        Shown { text, before, width: after.saturating_sub(before).max(1) }
    }

    /// The byte that the shown part begins with: 0 unless the place lies too far to the right.
    fn window_start(&self) -> usize {
        let columns = |text: &str| text.chars().map(|c| if c == '\t' { TAB } else { visible(c).1 }).sum::<usize>();
        if columns(self.text) <= WIDTH_MAX || columns(&self.text[..self.marked.end]) < WIDTH_MAX {
            return 0;
        }
        let mut width = 0;
        for (at, character) in self.text[..self.marked.start].char_indices().rev() {
            width += columns(character.encode_utf8(&mut [0; 4]));
            if width > WIDTH_BEFORE {
                return at;
            }
        }
        0
    }
}

/// What a terminal may be sent for a character, and its columns. Control and direction characters could rewrite
/// what is on the screen.
fn visible(character: char) -> (char, usize) {
    match character {
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => ('\u{fffd}', 1),
        _ => match character.width() {
            Some(width) => (character, width),
            None => ('\u{fffd}', 1),
        },
    }
}

/// A text that others chose, as a terminal may be sent it.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| visible(c).0).collect()
}

const BOLD: &str = "1";
const RED: &str = "1;31";
const YELLOW: &str = "1;33";
const BLUE: &str = "34";

struct Paint {
    colour: bool,
}

impl Paint {
    fn on(&self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, span: Range<usize>, expected: &str) {
        let problem = Problem::error(Place { origin: Origin::File, span }, "wrong");
        let shown = Report::new("a.toml", text, &[], vec![problem], Vec::new()).render(false);
        assert_eq!(shown, format!("{expected}\n\n1 error in a.toml\n"));
    }

    #[test]
    fn places() {
        check("a = 1\nb = 22\n", 10..12, "a.toml:2:5: wrong\n  2 | b = 22\n    |     ^^");
        check("\tb\t= 22", 5..7, "a.toml:1:6: wrong\n  1 |     b    = 22\n    |            ^^");
        check("b = '日本', x", 4..12, "a.toml:1:5: wrong\n  1 | b = '日本', x\n    |     ^^^^^^");
        check("b = '日本', xy", 14..16, "a.toml:1:11: wrong\n  1 | b = '日本', xy\n    |             ^^");
        check("a = 1\r\n", 4..7, "a.toml:1:5: wrong\n  1 | a = 1\n    |     ^");
        check("\u{feff}a = 1", 0..4, "a.toml:1:1: wrong\n  1 | a = 1\n    | ^");
        check("", 0..0, "a.toml:1:1: wrong\n  1 | \n    | ^");
        check("a\n", 2..2, "a.toml:2:1: wrong\n  2 | \n    | ^");
        check("a = [\n1,\n2]", 4..11, "a.toml:1:5: wrong\n  1 | a = [\n    |     ^");
        check("a\u{1b}[2Jb", 0..1, "a.toml:1:1: wrong\n  1 | a\u{fffd}[2Jb\n    | ^");
        check("a", 100..200, "a.toml:1:2: wrong\n  1 | a\n    |  ^");
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("{}XYZ{}", "a".repeat(500), "b".repeat(500));
        let shown = format!("…{}XYZ{}…", "a".repeat(41), "b".repeat(55));
        check(&text, 500..503, &format!("a.toml:1:501: wrong\n  1 | {shown}\n    | {}^^^", " ".repeat(42)));
        let carets = "^".repeat(58);
        check(&text, 500..1003, &format!("a.toml:1:501: wrong\n  1 | {shown}\n    | {}{carets}", " ".repeat(42)));
        let shown = format!("{}…", "a".repeat(100));
        check(&text, 3..5, &format!("a.toml:1:4: wrong\n  1 | {shown}\n    |    ^^"));
    }

    #[test]
    fn nearest_names() {
        let names = ["auto", "uuid", "hash", "time-hash", "compact", "field", "source_encoding"];
        for (given, expected) in [
            ("tim-hash", Some("time-hash")),
            ("time_hash", Some("time-hash")),
            ("TIME-HASH", Some("time-hash")),
            ("hsah", Some("hash")),
            ("source-encoding", Some("source_encoding")),
            ("snowflake", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, &names).as_deref(), expected, "{given}");
        }
        assert_eq!(nearest("a", &[]), None);
    }

    #[test]
    fn colours_only_when_asked() {
        let problem = Problem::warning(Place::default(), "wrong").note("why");
        let report = Report::new("a.toml", "a", &[], vec![problem], Vec::new());
        assert!(!report.render(false).contains('\x1b'));
        assert!(report.render(true).contains("\x1b[1;33mwarning: \x1b[0m"));
        assert!(!report.has_errors());
    }
}
