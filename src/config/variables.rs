//! `${VAR}` and `${VAR:default}` in every string value, `$${` for a literal `${`.
//!
//! A default may hold braces as long as they pair (`${NAME:logs-%{+yyyy}}`); neither it nor the variable's own text
//! is looked through again. A variable set to nothing is set.

use super::report::Problem;
use super::tree::{Kind, Node, Text};

type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces the variables of all strings below `node`; a string that cannot be completed becomes [`Kind::Bad`].
/// `source` gives the text that a place points into, to find the variable in it.
pub fn expand(node: &mut Node, env: Environment<'_>, source: &dyn Fn(&Node) -> String, problems: &mut Vec<Problem>) {
    match &mut node.kind {
        Kind::Array(items) => items.iter_mut().for_each(|item| expand(item, env, source, problems)),
        Kind::Table(table) => {
            table.entries.iter_mut().for_each(|entry| expand(&mut entry.value, env, source, problems));
        }
        Kind::Text(text) if text.text.contains("${") => match expand_text(&text.text, env) {
            Ok(expanded) => *text = expanded,
            Err(fault) => {
                let mut place = node.place.clone();
                if let Some(at) = source(node).find(&fault.written) {
                    place.span = place.span.start + at..place.span.start + at + fault.written.len();
                }
                problems.push(Problem::error(place, fault.message).note(fault.note));
                node.kind = Kind::Bad;
            }
        },
        _ => {}
    }
}

struct Fault {
    message: String,
    note: &'static str,
    /// The part of the text at fault, as written.
    written: String,
}

const LITERAL: &str = "write `$${` for a literal `${`";

fn expand_text(text: &str, env: Environment<'_>) -> Result<Text, Fault> {
    let mut out = Text::default();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.text.push_str(&rest[..at - 1]);
            out.text.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        let end = closing(&rest[at..]).ok_or_else(|| Fault {
            message: "a `${` without its `}`".to_owned(),
            note: LITERAL,
            written: rest[at..].to_owned(),
        })?;
        let written = &rest[at..at + end];
        out.text.push_str(&rest[..at]);
        out.text.push_str(&value(written, env)?);
        out.variable = true;
        out.whole = written.len() == text.len();
        rest = &rest[at + end..];
    }
    out.text.push_str(rest);
    Ok(out)
}

/// The length of the `${…}` that the text begins with.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' if open == 1 => return Some(at + 1),
            b'}' => open -= 1,
            _ => {}
        }
    }
    None
}

fn value(written: &str, env: Environment<'_>) -> Result<String, Fault> {
    let inner = &written[2..written.len() - 1];
    let (name, default) = match inner.split_once(':') {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let named = first && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let fault = |message, note| Fault { message, note, written: written.to_owned() };
    if !named {
        return Err(fault(format!("`{written}` does not name a variable"), LITERAL));
    }
    env(name).or_else(|| default.map(str::to_owned)).ok_or_else(|| {
        fault(format!("the variable `{name}` is not set"), "set it, or give it a default as in `${NAME:default}`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let env = |name: &str| match name {
            "A" => Some("one".to_owned()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${A}".to_owned()),
            _ => None,
        };
        let got = expand_text(text, &env);
        match (&got, expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got.text, expected, "{text}"),
            (Err(fault), Err(expected)) => assert_eq!(fault.message, expected, "{text}"),
            _ => panic!("{text}: {:?}, expected {expected:?}", got.map(|t| t.text).map_err(|f| f.message)),
        }
    }

    #[test]
    fn variables() {
        check("${A}", Ok("one"));
        check("x${A}y${A}z", Ok("xoneyonez"));
        check("${B:two}", Ok("two"));
        check("${B:}", Ok(""));
        check("${A:two}", Ok("one"));
        check("${EMPTY:two}", Ok(""));
        check("${TRICK}", Ok("${A}"));
        check("${B:logs-%{+yyyy}}-x", Ok("logs-%{+yyyy}-x"));
        check("$${A}", Ok("${A}"));
        check("$$${A}", Ok("$${A}"));
        check("$${A}${A}", Ok("${A}one"));
        check("$A {A} $ %{A}", Ok("$A {A} $ %{A}"));
        check("é${A}é", Ok("éoneé"));
        check("${B}", Err("the variable `B` is not set"));
        check("${A", Err("a `${` without its `}`"));
        check("${}", Err("`${}` does not name a variable"));
        check("${1A}", Err("`${1A}` does not name a variable"));
        check("${A B}", Err("`${A B}` does not name a variable"));
    }

    #[test]
    fn only_a_lone_variable_is_whole() {
        for (text, whole, variable) in [
            ("${A}", true, true),
            ("${B:1}", true, true),
            ("${A} ", false, true),
            ("${A}${A}", false, true),
            ("$${A}", false, false),
        ] {
            let got = expand_text(text, &|_| Some("1".to_owned())).ok().unwrap_or_default();
            assert_eq!((got.whole, got.variable), (whole, variable), "{text}");
        }
    }
}
