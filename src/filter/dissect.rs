//! `dissect`: cuts a text at fixed delimiters, without patterns.
//!
//! ```toml
//! [[filter]]
//! type = "dissect"
//! mapping = { message = "%{ts} %{+ts} %{host} %{program->} %{?pid}: %{rest}" }
//! convert_datatype = { bytes = "int" }
//! ```
//!
//! `%{name}` takes the text up to the delimiter behind it. `%{}` and `%{?name}` pass over it, `%{+name}` appends it
//! (`%{+name/2}`: as the second), `%{&name}` is named by what `name` holds, `%{name->}` passes over repeated
//! delimiters.

use memchr::memmem::Finder;

use super::convert;
use super::{Applied, Clock, Filter};
use crate::batch::{EventMut, New, Span, View};
use crate::config::Section;
use crate::field::FieldRef;

/// A whole number with more digits than this is none.
const DIGITS_MAX: i64 = 400;

#[derive(Clone, Debug)]
pub struct Config {
    pub mapping: Vec<(FieldRef, Option<Mapping>)>,
    pub convert_datatype: Vec<(FieldRef, Kind)>,
    pub tag_on_failure: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    Float,
}

impl Kind {
    const NAMES: &'static [(&'static str, Kind)] = &[("int", Kind::Int), ("float", Kind::Float)];

    fn name(self) -> &'static str {
        if self == Kind::Int { "int" } else { "float" }
    }
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let mapping = t.entries("mapping").or_default();
        let mapping = mapping.iter().filter_map(|e| e.parsed_key(FieldRef::parse).zip(e.value.parsed(Mapping::parse)));
        let kinds = t.entries("convert_datatype").or_default();
        let kinds = kinds.iter().filter_map(|e| e.parsed_key(FieldRef::parse).zip(e.value.one_of(Kind::NAMES)));
        Some(Config {
            mapping: mapping.collect(),
            convert_datatype: kinds.collect(),
            tag_on_failure: t.texts("tag_on_failure").or(vec!["_dissectfailure".to_string()]),
        })
    }
}

/// Where a text is cut, and what becomes of the pieces.
#[derive(Clone, Debug)]
pub struct Mapping {
    pieces: Vec<Piece>,
    /// What stands before the first piece.
    opening: Box<str>,
    /// The pieces that are stored, in the order in which they are: plain, appended, named by another.
    stored: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Piece {
    name: Box<str>,
    kind: PieceKind,
    /// The delimiter before it.
    before: Box<str>,
    /// Repetitions of that delimiter are passed over.
    repeats: bool,
    /// What ends it; none for the last one.
    end: Option<Delimiter>,
}

/// Up to so many bytes a delimiter is looked for by its first byte: it stands near, and a finder has to be set up.
const NEAR_BYTES_MAX: usize = 8;

#[derive(Clone, Debug)]
struct Delimiter {
    /// None of an empty one, which stands nowhere.
    first: Option<u8>,
    text: Box<[u8]>,
    finder: Finder<'static>,
}

impl Delimiter {
    fn new(text: &str) -> Delimiter {
        let first = text.as_bytes().first().copied();
        Delimiter { first, text: text.as_bytes().into(), finder: Finder::new(text).into_owned() }
    }

    fn find(&self, text: &[u8]) -> Option<usize> {
        let first = self.first?;
        if self.text.len() > NEAR_BYTES_MAX {
            return self.finder.find(text);
        }
        memchr::memchr_iter(first, text).find(|at| text[*at..].starts_with(&self.text))
    }
}

#[derive(Clone, Debug)]
enum PieceKind {
    Skip,
    Field(FieldRef),
    Append(FieldRef, u32),
    /// Named by what this field or piece holds.
    Named(FieldRef),
}

impl PieceKind {
    /// In which order pieces are stored.
    fn order(&self) -> Option<u32> {
        match self {
            PieceKind::Skip => None,
            PieceKind::Field(_) => Some(0),
            PieceKind::Append(_, number) => Some(1 + number),
            PieceKind::Named(_) => Some(u32::MAX),
        }
    }
}

impl Mapping {
    /// None for an empty text, which maps nothing.
    pub fn parse(text: &str) -> Result<Option<Mapping>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let (mut pieces, mut rest): (Vec<Piece>, &str) = (Vec::new(), text);
        let mut repeats = false;
        while let Some((before, name, after)) = next_piece(rest) {
            let (piece, next_repeats) = Piece::parse(name, before, repeats)?;
            pieces.push(piece);
            (rest, repeats) = (after, next_repeats);
        }
        if pieces.is_empty() {
            return Err("there is no `%{…}` in it".to_string());
        }
        // what stands behind the last closing bracket ends the last piece
        let closing = rest.rfind('}').map_or(rest, |at| &rest[at + 1..]);
        if !closing.is_empty() {
            let (kind, before, name) = (PieceKind::Skip, closing.into(), "".into());
            pieces.push(Piece { name, kind, before, repeats, end: None });
        }
        for at in 1..pieces.len() {
            pieces[at - 1].end = Some(Delimiter::new(&pieces[at].before));
        }
        let mut stored: Vec<usize> = (0..pieces.len()).filter(|at| pieces[*at].kind.order().is_some()).collect();
        stored.sort_by_key(|at| pieces[*at].kind.order());
        let opening = pieces[0].before.clone();
        Ok(Some(Mapping { pieces, opening, stored }))
    }

    /// Finds where each piece stands in the text; false if a delimiter is missing.
    fn cut(&self, text: &[u8], cuts: &mut Vec<(usize, usize)>) -> bool {
        cuts.clear();
        let mut left = 0;
        if !self.opening.is_empty() {
            if !text.starts_with(self.opening.as_bytes()) {
                return false;
            }
            left = self.opening.len();
        }
        for piece in &self.pieces {
            while piece.repeats && !piece.before.is_empty() && text[left..].starts_with(piece.before.as_bytes()) {
                left += piece.before.len();
            }
            let Some(end) = &piece.end else {
                cuts.push((left, text.len()));
                return true;
            };
            let Some(at) = end.find(&text[left..]).map(|at| left + at) else { return false };
            cuts.push((left, at));
            // as in Logstash: a delimiter at the very beginning of the text stays for the next piece
            if at > 0 {
                left = at + end.text.len();
            }
        }
        true
    }
}

/// The next `%{…}`: what stands before it, what is in it, what follows.
fn next_piece(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find("%{")?;
    let len = text[start + 2..].find('}')?;
    Some((&text[..start], &text[start + 2..start + 2 + len], &text[start + len + 3..]))
}

impl Piece {
    /// The piece, and whether repetitions of the delimiter behind it are passed over.
    fn parse(text: &str, before: &str, repeats: bool) -> Result<(Piece, bool), String> {
        let sign = text.chars().next().filter(|c| matches!(c, '?' | '+' | '&'));
        let (name, number, next_repeats) = suffixed(&text[sign.map_or(0, char::len_utf8)..]);
        if matches!((sign, name.chars().next()), (Some('+'), Some('&')) | (Some('&'), Some('+'))) {
            return Err(format!("`%{{{text}}}` cannot both append and be named by another"));
        }
        if matches!(sign, Some('+' | '&')) && name.is_empty() {
            return Err(format!("`%{{{text}}}` has no name"));
        }
        let field = || FieldRef::parse(name);
        let kind = match sign {
            _ if name.is_empty() => PieceKind::Skip,
            Some('?') => PieceKind::Skip,
            Some('+') => PieceKind::Append(field()?, number),
            Some('&') => PieceKind::Named(field()?),
            _ => PieceKind::Field(field()?),
        };
        Ok((Piece { name: name.into(), kind, before: before.into(), repeats, end: None }, next_repeats))
    }
}

/// The name without `/2` and `->` at its end, in either order; the number, and whether there was an arrow.
fn suffixed(text: &str) -> (&str, u32, bool) {
    let digits = |text: &str| -> Option<(usize, u32)> {
        let count = text.bytes().rev().take_while(u8::is_ascii_digit).count();
        let at = text.len() - count;
        let is_number = (1..=2).contains(&count) && text[..at].ends_with('/');
        is_number.then(|| (at - 1, text[at..].parse().unwrap_or(0)))
    };
    if let Some(rest) = text.strip_suffix("->") {
        return digits(rest).map_or((rest, 0, true), |(at, number)| (&rest[..at], number, true));
    }
    match digits(text) {
        Some((at, number)) => match text[..at].strip_suffix("->") {
            Some(rest) => (rest, number, true),
            None => (&text[..at], number, false),
        },
        None => (text, 0, false),
    }
}

#[derive(Clone, Debug)]
pub struct Dissect {
    config: Config,
}

impl Dissect {
    pub fn build(config: Config) -> Result<Dissect, String> {
        Ok(Dissect { config })
    }

    /// Whether the field's text was cut; none if there is nothing to cut.
    fn dissect(&self, event: &mut EventMut<'_>, field: &FieldRef, mapping: &Mapping) -> Option<bool> {
        let value = event.peek(field)?;
        let text = convert::place_of_text(event, value);
        if text.len == 0 {
            return Some(false);
        }
        let mut cuts = Vec::with_capacity(mapping.pieces.len());
        if !mapping.cut(event.bytes(text), &mut cuts) {
            return Some(false);
        }
        let span = |at: usize| {
            let (start, end): (usize, usize) = cuts[at];
            Span::new(text.start as usize + start, end - start)
        };
        for &at in &mapping.stored {
            store(event, mapping, at, &span);
        }
        Some(true)
    }

    fn convert(&self, event: &mut EventMut<'_>, field: &FieldRef, kind: Kind) {
        let text = match event.get(field) {
            None | Some(View::Null) => {
                return event.add_tag(&format!("_dataconversionnullvalue_{}_{}", field.as_str(), kind.name()));
            }
            Some(View::Text(text)) => Some(text.into_owned()),
            Some(View::Number(text)) => Some(text.to_string()),
            Some(_) => None,
        };
        match text.and_then(|text| decimal(&text, kind)) {
            Some(number) => {
                event.set(field, New::Json(number.as_bytes()));
            }
            None => event.add_tag(&format!("_dataconversionuncoercible_{}_{}", field.as_str(), kind.name())),
        }
    }
}

fn store(event: &mut EventMut<'_>, mapping: &Mapping, at: usize, span: &dyn Fn(usize) -> Span) {
    let piece = &mapping.pieces[at];
    match &piece.kind {
        PieceKind::Skip => {}
        PieceKind::Field(field) => {
            event.set_span(field, span(at));
        }
        PieceKind::Append(field, _) => append(event, field, &piece.before, span(at)),
        PieceKind::Named(by) => {
            let name = match event.get(by) {
                Some(view) => convert::text_of(&view).into_owned(),
                None => {
                    let other = (0..mapping.pieces.len()).find(|n| *n != at && mapping.pieces[*n].name == piece.name);
                    other.map(|n| String::from_utf8_lossy(event.bytes(span(n))).into_owned()).unwrap_or_default()
                }
            };
            if let Ok(field) = FieldRef::parse(&name) {
                event.set_span(&field, span(at));
            }
        }
    }
}

/// Joins with what is there by the delimiter before the piece, or a blank where there is none.
fn append(event: &mut EventMut<'_>, field: &FieldRef, before: &str, text: Span) {
    let Some(held) = event.get(field) else {
        event.set_span(field, text);
        return;
    };
    let mut joined = convert::text_of(&held).into_owned();
    joined.push_str(if before.is_empty() { " " } else { before });
    joined.push_str(&String::from_utf8_lossy(event.bytes(text)));
    event.set(field, New::Text(&joined));
}

/// A decimal number as JSON; a whole one is cut.
fn decimal(text: &str, kind: Kind) -> Option<String> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("", &text[1..]),
        _ => ("", text),
    };
    let (mantissa, exponent) =
        rest.split_once(['e', 'E']).map_or((rest, 0), |(m, e)| (m, e.parse().unwrap_or(i64::MAX)));
    let (head, tail) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(head) || !all_digits(tail) || head.len() + tail.len() == 0 || exponent.abs() > DIGITS_MAX {
        return None;
    }
    let digits = format!("{head}{tail}");
    if kind == Kind::Float {
        let point = if tail.is_empty() { String::new() } else { format!(".{tail}") };
        let whole = match head.trim_start_matches('0') {
            "" => "0",
            whole => whole,
        };
        let power = if exponent == 0 { String::new() } else { format!("E{exponent}") };
        return Some(format!("{sign}{whole}{point}{power}"));
    }
    let places = usize::try_from(head.len() as i64 + exponent).unwrap_or(0);
    let whole: String = digits.chars().chain(std::iter::repeat('0')).take(places).collect();
    Some(match whole.trim_start_matches('0') {
        "" => "0".to_string(),
        whole => format!("{sign}{whole}"),
    })
}

impl Filter for Dissect {
    fn apply(&self, event: &mut EventMut<'_>, _: &Clock) -> Applied {
        let mut applied = Applied::Unmatched;
        for (field, mapping) in &self.config.mapping {
            let Some(mapping) = mapping else { continue };
            match self.dissect(event, field, mapping) {
                Some(true) => applied = Applied::Matched,
                Some(false) => self.config.tag_on_failure.iter().for_each(|tag| event.add_tag(tag)),
                None => tracing::debug!(%field, offset = event.read().offset(), "nothing to dissect"),
            }
        }
        for (field, kind) in &self.config.convert_datatype {
            self.convert(event, field, *kind);
        }
        applied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes() {
        for (text, want) in [
            ("a", ("a", 0, false)),
            ("a->", ("a", 0, true)),
            ("a/12", ("a", 12, false)),
            ("a/2->", ("a", 2, true)),
            ("a->/2", ("a", 2, true)),
            ("a/123", ("a/123", 0, false)),
            ("->", ("", 0, true)),
            ("/3", ("", 3, false)),
            ("", ("", 0, false)),
        ] {
            assert_eq!(suffixed(text), want, "{text}");
        }
    }

    #[test]
    fn decimals() {
        for (text, int, float) in [
            ("-2.9", Some("-2"), Some("-2.9")),
            ("1.2e3", Some("1200"), Some("1.2E3")),
            ("+007", Some("7"), Some("7")),
            (".5", Some("0"), Some("0.5")),
            ("-0.5", Some("0"), Some("-0.5")),
            ("5.", Some("5"), Some("5")),
            ("125e-1", Some("12"), Some("125E-1")),
            ("1e400000", None, None),
            ("1e", None, None),
            (" 5", None, None),
            (".", None, None),
            ("", None, None),
            ("-", None, None),
            ("0x10", None, None),
        ] {
            assert_eq!(decimal(text, Kind::Int).as_deref(), int, "{text}");
            assert_eq!(decimal(text, Kind::Float).as_deref(), float, "{text}");
        }
    }
}
