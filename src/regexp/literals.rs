//! The pieces of text of which every match of a pattern holds one: where none of them stands in a text, the pattern need
//! not be tried.

use regex_syntax::hir::{Class, Hir, HirKind};

/// A shorter piece stands nearly everywhere.
const BYTES_MIN: usize = 2;
/// A pattern that needs one of more pieces is tried always.
const PIECES_MAX: usize = 256;

/// The pieces in lower case, to be looked for in any case; none where they cannot be told. `pattern` is in the engines'
/// spelling.
pub fn required(pattern: &str) -> Option<Vec<Vec<u8>>> {
    one_of(&regex_syntax::parse(pattern).ok()?)
}

fn one_of(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Capture(capture) => one_of(&capture.sub),
        HirKind::Repetition(repetition) if repetition.min > 0 => one_of(&repetition.sub),
        HirKind::Alternation(branches) => {
            let all: Vec<Vec<u8>> = branches.iter().map(one_of).collect::<Option<Vec<_>>>()?.concat();
            (all.len() <= PIECES_MAX).then_some(all)
        }
        HirKind::Concat(parts) => in_row(parts),
        HirKind::Literal(_) => in_row(std::slice::from_ref(hir)),
        _ => None,
    }
}

/// The best that parts in a row need: what stands side by side is one piece.
fn in_row(parts: &[Hir]) -> Option<Vec<Vec<u8>>> {
    let (mut best, mut run): (Option<Vec<Vec<u8>>>, Vec<u8>) = (None, Vec::new());
    let mut offer = |pieces: Vec<Vec<u8>>| {
        let rank = |pieces: &Vec<Vec<u8>>| (pieces.iter().map(Vec::len).min(), std::cmp::Reverse(pieces.len()));
        let is_long = pieces.iter().all(|piece| piece.len() >= BYTES_MIN);
        if is_long && best.as_ref().is_none_or(|best| rank(best) < rank(&pieces)) {
            best = Some(pieces);
        }
    };
    for part in parts {
        if exact(part, &mut run) {
            continue;
        }
        offer(vec![std::mem::take(&mut run)]);
        if let Some(pieces) = one_of(part) {
            offer(pieces);
        }
    }
    offer(vec![run]);
    best
}

/// Adds what a part stands for to `run`, if that is one text, whatever its case.
fn exact(hir: &Hir, run: &mut Vec<u8>) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => run.extend(literal.0.to_ascii_lowercase()),
        HirKind::Class(class) => match letter(class) {
            Some(letter) => run.push(letter),
            None => return false,
        },
        HirKind::Capture(capture) => return exact(&capture.sub, run),
        HirKind::Concat(parts) => {
            let before = run.len();
            if !parts.iter().all(|part| exact(part, run)) {
                run.truncate(before);
                return false;
            }
        }
        HirKind::Empty => {}
        _ => return false,
    }
    true
}

/// The letter of which a class holds both cases: what becomes of a letter where case does not count. It then holds two
/// letters beyond ASCII too, the long s and the sign of the kelvin, that are not looked for.
fn letter(class: &Class) -> Option<u8> {
    let Class::Unicode(class) = class else { return None };
    let mut found = None;
    for c in class.ranges().iter().take(4).flat_map(|range| range.start()..=range.end()).take(4) {
        let lower = match c {
            '\u{17f}' => b's',
            '\u{212a}' => b'k',
            c if c.is_ascii_alphabetic() => c.to_ascii_lowercase() as u8,
            _ => return None,
        };
        if found.replace(lower).is_some_and(|other| other != lower) {
            return None;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces() {
        for (pattern, want) in [
            ("abc", Some(vec!["abc"])),
            ("(?i)Mask", Some(vec!["mask"])),
            ("(Fire)(?:fox)/[0-9]+", Some(vec!["firefox/"])),
            ("[0-9]+x(?:Opera|IEx) y", Some(vec!["opera", "iex"])),
            ("a(?:Opera|IE)?bc", Some(vec!["bc"])),
            ("(?:Opera|I)", None),
            ("(?:ab)+", Some(vec!["ab"])),
            ("(?:ab)*", None),
            ("a.b", None),
            ("[Aa][Bb][ab]", Some(vec!["ab"])),
            ("^É t$", Some(vec!["É t"])),
            ("(?=a)", None),
        ] {
            let want = want.map(|pieces| pieces.into_iter().map(|piece| piece.as_bytes().to_vec()).collect());
            assert_eq!(required(pattern), want, "{pattern}");
        }
    }
}
