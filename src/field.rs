//! References to fields, as users write them: `message`, `[user][id]`, `[@metadata][index]`.

use std::fmt;

/// A parsed reference. `[@metadata]` leads into what travels with an event but is never stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldRef {
    text: Box<str>,
    path: Box<[Box<str>]>,
    metadata: bool,
    /// The [`sort`] of its name, of a top-level field.
    top: Option<u8>,
    is_timestamp: bool,
}

/// A number by which names are told apart, if not always.
pub fn sort(name: &[u8]) -> u8 {
    let [first, .., last] = name else { return name.len() as u8 };
    let middle = name[name.len() / 2];
    let [first, middle, last] = [first, &middle, last].map(|byte| usize::from(*byte));
    (name.len() * 5 + first * 7 + middle * 13 + last * 29) as u8
}

impl FieldRef {
    fn new(text: &str, path: Vec<Box<str>>, metadata: bool) -> FieldRef {
        let top = match path.as_slice() {
            [name] if !metadata => Some(sort(name.as_bytes())),
            _ => None,
        };
        let is_timestamp = top.is_some() && path[0].as_ref() == "@timestamp";
        FieldRef { text: text.into(), path: path.into(), metadata, top, is_timestamp }
    }

    /// Reads a reference: a bare name without brackets, or bracketed names one after another. A bracketed group
    /// may itself be bracketed (`[a][[b]][c]`), which adds nothing.
    pub fn parse(text: &str) -> Result<FieldRef, String> {
        let mut path: Vec<Box<str>> = Vec::new();
        if !text.contains(['[', ']']) {
            if text.is_empty() {
                return Err("a field reference is empty".to_string());
            }
            path.push(text.into());
        } else {
            bracketed(text, &mut path)?;
        }
        let metadata = path[0].as_ref() == "@metadata";
        if metadata {
            path.remove(0);
        }
        Ok(FieldRef::new(text, path, metadata))
    }

    /// As [`FieldRef::parse`], where brackets within names are written escaped.
    pub fn parse_escaped(text: &str, escapes: Escapes) -> Result<FieldRef, String> {
        let field = FieldRef::parse(text)?;
        let path = field.path.iter().map(|name| escapes.resolve(name).into());
        Ok(FieldRef::new(text, path.collect(), field.metadata))
    }

    /// A reference to one top-level field, whatever its name contains.
    pub fn top(name: &str) -> FieldRef {
        FieldRef::new(name, vec![name.into()], name == "@metadata")
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names on the way, without `@metadata`; empty for `[@metadata]` itself.
    pub fn path(&self) -> &[Box<str>] {
        &self.path
    }

    pub fn is_metadata(&self) -> bool {
        self.metadata
    }

    pub fn is_timestamp(&self) -> bool {
        self.is_timestamp
    }

    /// The name of a top-level field, and its [`sort`].
    pub fn top_name(&self) -> Option<(&str, u8)> {
        self.top.zip(self.path.first()).map(|(sorted, name)| (name.as_ref(), sorted))
    }

    /// The one spelling of this path: every name in brackets.
    pub fn canonical(&self) -> String {
        let mut out = String::with_capacity(self.text.len() + 2);
        if self.metadata {
            out.push_str("[@metadata]");
        }
        for name in &self.path {
            out.push('[');
            out.push_str(name);
            out.push(']');
        }
        out
    }
}

/// How a bracket within a name is written: `[a%5B0%5D]` or `[a&#91;0&#93;]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escapes {
    Percent,
    Ampersand,
}

impl Escapes {
    fn resolve(self, name: &str) -> String {
        let (mut out, mut rest) = (String::with_capacity(name.len()), name);
        while let Some(c) = rest.chars().next() {
            let found = match self {
                Escapes::Percent => rest.strip_prefix('%').and_then(|r| Some((hex_char(r.get(..2)?)?, 3))),
                Escapes::Ampersand => rest.strip_prefix("&#").and_then(|r| {
                    let end = r.find(';')?;
                    Some((char::from_u32(r[..end].parse().ok()?)?, end + 3))
                }),
            };
            let (resolved, used) = found.unwrap_or((c, c.len_utf8()));
            out.push(resolved);
            rest = &rest[used..];
        }
        out
    }
}

/// Only ASCII: what brackets need.
fn hex_char(digits: &str) -> Option<char> {
    u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii).map(char::from)
}

impl fmt::Display for FieldRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn bracketed(text: &str, path: &mut Vec<Box<str>>) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("field reference `{text}`: {what}"));
    let mut depth = 0usize;
    let mut name = String::new();
    // what a group closed last held, so that `[]` is told from `[[a]]`
    let mut held = false;
    for c in text.chars() {
        match c {
            '[' if depth > 0 && !name.is_empty() => return wrong("a bracket inside a name"),
            '[' => {
                depth += 1;
                held = false;
            }
            ']' if depth == 0 => return wrong("a bracket closes that was not opened"),
            ']' => {
                if !name.is_empty() {
                    path.push(std::mem::take(&mut name).into());
                    held = true;
                }
                if !held {
                    return wrong("nothing between two brackets");
                }
                depth -= 1;
            }
            _ if depth == 0 => return wrong("text outside the brackets"),
            c => name.push(c),
        }
    }
    if depth > 0 || path.is_empty() { wrong("a bracket is not closed") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, want: Option<&[&str]>) {
        let got = FieldRef::parse(text).ok();
        let path = got.as_ref().map(|r| r.path().iter().map(AsRef::as_ref).collect::<Vec<&str>>());
        assert_eq!(path.as_deref(), want, "{text}");
    }

    #[test]
    fn references() {
        check("message", Some(&["message"]));
        check("a.b", Some(&["a.b"]));
        check("[a][b]", Some(&["a", "b"]));
        check("[foo][[bar]][bingo]", Some(&["foo", "bar", "bingo"]));
        check("[[ok]]", Some(&["ok"]));
        check("[[a][b]]", Some(&["a", "b"]));
        check("[a b]", Some(&["a b"]));
        for bad in ["", "a[b]", "[a", "[a][]", "[", "]", "[]", "[a]b", "[a]]", "[a[b]]"] {
            check(bad, None);
        }
        let meta = FieldRef::parse("[@metadata][x]").unwrap();
        assert!(meta.is_metadata());
        assert_eq!(meta.path(), ["x".into()]);
        assert_eq!(meta.canonical(), "[@metadata][x]");
        assert_eq!(FieldRef::parse("a").unwrap().canonical(), "[a]");
        for (text, escapes, want) in [
            ("[a%5B0%5d]", Escapes::Percent, "a[0]"),
            ("[a%5%é]", Escapes::Percent, "a%5%é"),
            ("[a&#91;0&#93;]", Escapes::Ampersand, "a[0]"),
            ("[a&#x;&#]", Escapes::Ampersand, "a&#x;&#"),
        ] {
            assert_eq!(FieldRef::parse_escaped(text, escapes).unwrap().path(), [want.into()]);
        }
    }
}
