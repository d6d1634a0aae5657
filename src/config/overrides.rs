//! `--set KEY=VALUE`: one key of the file replaced from the command line.
//!
//! KEY is a dotted path whose parts are names or, in arrays, numbers from 0 (`input.0.codec`); a part may be quoted.
//! VALUE is TOML where it reads as TOML, else text as it stands. What is missing on the way is created.

use std::ops::Range;

use super::report::Problem;
use super::tree::{self, Entry, Kind, Node, Origin, Place, Table, Text};

/// A path has at most this many parts.
const PARTS_MAX: usize = 32;

#[derive(Debug)]
struct Part {
    name: String,
    span: Range<usize>,
}

impl Part {
    fn index(&self) -> Option<usize> {
        let digits = !self.name.is_empty() && self.name.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| self.name.parse().ok()).flatten()
    }
}

/// The key part of an argument, for the head of its messages.
pub fn key_of(argument: &str) -> &str {
    match split(argument) {
        Ok((_, value_at)) => &argument[..value_at - 1],
        Err(_) => argument.split('=').next().unwrap_or(argument),
    }
}

/// Puts the argument's value into the tree.
pub fn apply(root: &mut Node, argument: &str, number: usize, problems: &mut Vec<Problem>) {
    let origin = Origin::Set(number);
    let (parts, value_at) = match split(argument) {
        Ok(found) => found,
        Err((message, span)) => {
            let problem = Problem::error(Place { origin, span }, message);
            problems.push(problem.note("wanted: KEY=VALUE, as in `output.path=out.db` or `input.0.codec=json`"));
            return;
        }
    };
    let text = &argument[value_at..];
    let value = tree::parse_value(text, origin, value_at, problems).unwrap_or_else(|| Node {
        place: Place { origin, span: value_at..argument.len() },
        kind: Kind::Text(Text { text: text.to_owned(), ..Text::default() }),
    });
    let key = &argument[..value_at - 1];
    if let Err((message, span)) = put(root, &parts, value, key, origin) {
        problems.push(Problem::error(Place { origin, span }, message));
    }
}

type Refused = (String, Range<usize>);

/// The parts of the path, and where the value begins.
fn split(argument: &str) -> Result<(Vec<Part>, usize), Refused> {
    let mut parts = Vec::new();
    let mut at = 0;
    loop {
        let rest = &argument[at..];
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (name, length) = match quote {
            Some(quote) => {
                let end =
                    rest[1..].find(quote).ok_or_else(|| ("a quote without its end".to_owned(), at..argument.len()))?;
                (&rest[1..=end], end + 2)
            }
            None => {
                let end = rest.find(['.', '=']).unwrap_or(rest.len());
                (rest[..end].trim(), end)
            }
        };
        if name.is_empty() && quote.is_none() {
            return Err(("a part of the key is empty".to_owned(), at..at + length));
        }
        parts.push(Part { name: name.to_owned(), span: at..at + length });
        if parts.len() > PARTS_MAX {
            return Err((format!("a key of more than {PARTS_MAX} parts"), 0..at));
        }
        at += length;
        match argument[at..].bytes().next() {
            Some(b'=') => return Ok((parts, at + 1)),
            Some(b'.') => at += 1,
            Some(_) => return Err(("wanted `.` or `=` after the quoted part".to_owned(), at..argument.len())),
            None => return Err(("no `=` with a value".to_owned(), argument.len()..argument.len())),
        }
    }
}

fn put(root: &mut Node, parts: &[Part], value: Node, key: &str, origin: Origin) -> Result<(), Refused> {
    let mut node = root;
    for (i, part) in parts.iter().enumerate() {
        let next = parts.get(i + 1);
        let place = Place { origin, span: part.span.clone() };
        // Made only where it is missing: an array if a number 0 follows, else a table.
        let fresh = || match next.map(|next| next.index() == Some(0)) {
            Some(true) => Kind::Array(Vec::new()),
            _ => Kind::Table(Table::default()),
        };
        let path = &key[..parts[..i].last().map_or(0, |before| before.span.end)];
        node = match &mut node.kind {
            Kind::Table(table) => entry(table, part, place, fresh),
            Kind::Array(items) => element(items, part, place, path, fresh)?,
            Kind::Bad => return Ok(()),
            other => return Err((format!("`{path}` is {}, which has no keys", other.describe()), part.span.clone())),
        };
    }
    *node = value;
    Ok(())
}

fn entry<'t>(table: &'t mut Table, part: &Part, place: Place, fresh: impl Fn() -> Kind) -> &'t mut Node {
    let at = match table.entries.iter().position(|entry| entry.key == part.name) {
        Some(at) => at,
        None => {
            let value = Node { place: place.clone(), kind: fresh() };
            table.entries.push(Entry { key: part.name.clone(), place, value });
            table.entries.len() - 1
        }
    };
    &mut table.entries[at].value
}

fn element<'t>(
    items: &'t mut Vec<Node>,
    part: &Part,
    place: Place,
    path: &str,
    fresh: impl Fn() -> Kind,
) -> Result<&'t mut Node, Refused> {
    let Some(index) = part.index() else {
        let message = format!("`{path}` is an array: name its entries by number, as in `{path}.0`");
        return Err((message, part.span.clone()));
    };
    let count = items.len();
    if index > count {
        let message = match count {
            0 => format!("`{path}` is empty: only `{path}.0` can be added"),
            1 => format!("`{path}` has one entry, `{path}.0`: only `{path}.1` can be added"),
            _ => format!("`{path}` has the entries 0 to {}: only `{path}.{count}` can be added", count - 1),
        };
        return Err((message, part.span.clone()));
    }
    if index == count {
        items.push(Node { place, kind: fresh() });
    }
    Ok(&mut items[index])
}

#[cfg(test)]
mod tests {
    use super::super::tree::tests::outline;
    use super::*;

    fn check(text: &str, set: &str, expected: &str) {
        let mut problems = Vec::new();
        let mut root = tree::parse(text, &mut problems);
        apply(&mut root, set, 0, &mut problems);
        let got = match problems.first() {
            Some(problem) => format!("{} at {:?}", problem.message, &set[problem.place.span.clone()]),
            None => outline(&root),
        };
        assert_eq!(got, expected, "{text} --set {set}");
    }

    #[test]
    fn values_are_toml_or_text() {
        check("", "a=1", "{a=1}");
        check("", "a=x y", "{a=\"x y\"}");
        check("", "a=\"x\"", "{a=\"x\"}");
        check("", "a=", "{a=\"\"}");
        check("", "a=b=c", "{a=\"b=c\"}");
        check("", "a=[\"x\", {b = 1}]", "{a=[\"x\" {b=1}]}");
        check("", "a=[1", "{a=\"[1\"}");
        check("a = 1", "a=false", "{a=false}");
    }

    #[test]
    fn paths_lead_through_tables_and_arrays() {
        let inputs = "[[input]]\ncodec = 'plain'\n[[input]]\n";
        check(inputs, "input.0.codec=json", "{input=[{codec=\"json\"} {}]}");
        check(inputs, "input.1.paths=[\"a\"]", "{input=[{codec=\"plain\"} {paths=[\"a\"]}]}");
        check(inputs, "input.2.type=stdin", "{input=[{codec=\"plain\"} {} {type=\"stdin\"}]}");
        check("", "filter.0.match.x=1", "{filter=[{match={x=1}}]}");
        check("", "output.tls.ca=x", "{output={tls={ca=\"x\"}}}");
        check("a = ['x']", "a.1=y", "{a=[\"x\" \"y\"]}");
        check("", "f.\"a.b\".'c=d'=1", "{f={a.b={c=d=1}}}");
        check("", "f.[a][b]=1", "{f={[a][b]=1}}");
        check("a = 1", " a =2", "{a=2}");
    }

    #[test]
    fn a_bad_path_is_named() {
        check("", "a", "no `=` with a value at \"\"");
        check("", "=1", "a part of the key is empty at \"\"");
        check("", "a.=1", "a part of the key is empty at \"\"");
        check("", "'a'b=1", "wanted `.` or `=` after the quoted part at \"b=1\"");
        check("a = 1", "a.b=1", "`a` is an integer, which has no keys at \"b\"");
        check("a = []", "a.1.b=1", "`a` is empty: only `a.0` can be added at \"1\"");
        check("a = [1]", "a.5=1", "`a` has one entry, `a.0`: only `a.1` can be added at \"5\"");
        check("a = [1]", "a.b=1", "`a` is an array: name its entries by number, as in `a.0` at \"b\"");
        check(
            "a = [1]",
            "a.99999999999999999999999=1",
            "`a` is an array: name its entries by number, as in `a.0` at \"99999999999999999999999\"",
        );
        let deep = format!("{}a=1", "a.".repeat(100));
        check("", &deep, &format!("a key of more than 32 parts at {:?}", &deep[..64]));
    }
}
