//! The text that Logstash's fingerprint filter hashes, in both generations that can be reproduced: with plugin 3.5.0
//! (Logstash 9.4) on, containers are joined by pipes; from 3.2.2 to 3.4.4 (Logstash 7.10 to 9.3) they are Ruby's
//! inspect text. Neither escapes anything, so different events can have one text; ours, [`super::serial`], cannot.

use super::number;
use super::sorted::Sort;
use crate::batch::{Seq, View};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    V35,
    V34,
}

impl Generation {
    /// Appends the text of a value.
    pub fn write(self, value: &View<'_>, sort: &mut Sort, out: &mut Vec<u8>) {
        match (self, value) {
            (Generation::V34, View::Array(_) | View::Object(_)) => inspect(value, sort, out),
            _ => flat(value, sort, out),
        }
    }
}

fn flat(value: &View<'_>, sort: &mut Sort, out: &mut Vec<u8>) {
    match value {
        View::Null => {}
        View::Bool(is) => out.extend_from_slice(if *is { b"true" } else { b"false" }),
        View::Number(text) => number::logstash(text, out),
        View::Text(text) => out.extend_from_slice(text.as_bytes()),
        View::Array(items) => {
            for (at, (_, item)) in items.entries().enumerate() {
                if at > 0 {
                    out.push(b'|');
                }
                flat(&item, sort, out);
            }
        }
        View::Object(members) => joined(members, flat_member, b"|", sort, out),
    }
}

fn flat_member(key: &str, value: &View<'_>, sort: &mut Sort, out: &mut Vec<u8>) {
    out.extend_from_slice(key.as_bytes());
    out.push(b'|');
    flat(value, sort, out);
    out.push(b'|');
}

fn inspect(value: &View<'_>, sort: &mut Sort, out: &mut Vec<u8>) {
    match value {
        View::Null => out.extend_from_slice(b"nil"),
        View::Text(text) => quoted(text, out),
        View::Bool(_) | View::Number(_) => flat(value, sort, out),
        View::Array(items) => {
            out.push(b'[');
            for (at, (_, item)) in items.entries().enumerate() {
                if at > 0 {
                    out.extend_from_slice(b", ");
                }
                inspect(&item, sort, out);
            }
            out.push(b']');
        }
        View::Object(members) => {
            out.push(b'{');
            joined(members, inspect_member, b", ", sort, out);
            out.push(b'}');
        }
    }
}

fn inspect_member(key: &str, value: &View<'_>, sort: &mut Sort, out: &mut Vec<u8>) {
    quoted(key, out);
    out.extend_from_slice(b"=>");
    inspect(value, sort, out);
    out.extend_from_slice(b", ");
}

/// Members in order, each of which ends with `joint`; the last one's is taken away.
fn joined(members: &Seq<'_>, write: super::sorted::WriteMember, joint: &[u8], sort: &mut Sort, out: &mut Vec<u8>) {
    if sort.write(members, write, out) > 0 {
        out.truncate(out.len() - joint.len());
    }
}

/// Text as Ruby's inspect writes it.
fn quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let short = match c {
            '"' | '\\' => c,
            '#' if matches!(chars.peek(), Some('{' | '$' | '@')) => c,
            '\n' => 'n',
            '\t' => 't',
            '\r' => 'r',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\u{1b}' => 'e',
            c if c.is_control() => {
                out.extend_from_slice(format!("\\u{:04X}", c as u32).as_bytes());
                continue;
            }
            c => {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
        };
        out.push(b'\\');
        out.push(short as u8);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, want_35: &str, want_34: &str) {
        for (generation, want) in [(Generation::V35, want_35), (Generation::V34, want_34)] {
            let mut out = Vec::new();
            generation.write(&View::of_json(json.as_bytes()), &mut Sort::default(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{json}");
        }
    }

    #[test]
    fn texts() {
        check("\"a|\\\"b\\n\"", "a|\"b\n", "a|\"b\n");
        check("null", "", "");
        check("1.50", "1.5", "1.5");
        check("[]", "", "[]");
        check("{}", "", "{}");
        check("[1,null,true,\"x\"]", "1||true|x", "[1, nil, true, \"x\"]");
        check(
            r#"{"b":2,"a":{"d":[1,null,true,1.5,"x"],"c":null}}"#,
            "a|c||d|1||true|1.5|x|b|2",
            r##"{"a"=>{"c"=>nil, "d"=>[1, nil, true, 1.5, "x"]}, "b"=>2}"##,
        );
        check(r#"{"aa":1,"a":2,"Z":3,"é":4}"#, "Z|3|a|2|aa|1|é|4", r#"{"Z"=>3, "a"=>2, "aa"=>1, "é"=>4}"#);
        check(
            r##"["\u0000\u0007\b\t\n\u000b\f\r\u001b\u007f","#{x} #$y #@z # #a","\"\\","🂡é\u00a0\u200b"]"##,
            "\0\u{7}\u{8}\t\n\u{b}\u{c}\r\u{1b}\u{7f}|#{x} #$y #@z # #a|\"\\|🂡é\u{a0}\u{200b}",
            "[\"\\u0000\\a\\b\\t\\n\\v\\f\\r\\e\\u007F\", \"\\#{x} \\#$y \\#@z # #a\", \"\\\"\\\\\", \"🂡é\u{a0}\u{200b}\"]",
        );
    }
}
