//! `codec = "logfmt"`: every line is `key=value` pairs, values in quotes where they hold blanks.
//!
//! ```toml
//! [[input]]
//! type = "stdin"
//! codec = "logfmt"
//! ```
//!
//! A key without a value is `true`; a key that comes again takes the last value; values are text. Within quotes `\"`,
//! `\\`, `\n`, `\t` and `\r` are read as in Go. A line without a pair is an event with the line in `message` and the
//! tag `_logfmtparsefailure`; a blank line is dropped.

use super::{Codec, Record};
use crate::batch::{Batch, EventMut, Fate, New};
use crate::field::FieldRef;

/// The tag of a line that is no logfmt.
pub const FAILURE: &str = "_logfmtparsefailure";

pub struct Logfmt {
    message: FieldRef,
}

impl Default for Logfmt {
    fn default() -> Logfmt {
        Logfmt { message: FieldRef::top("message") }
    }
}

/// One pair as it stands in the line.
#[derive(Debug, PartialEq, Eq)]
struct Pair<'a> {
    key: &'a str,
    value: Option<Text<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Text<'a> {
    Plain(&'a str),
    /// With escapes in it.
    Escaped(&'a str),
}

/// The pairs of a line; none at the first piece that is no pair: no key, or a quote that is not closed.
fn pairs(line: &str) -> Option<Vec<Pair<'_>>> {
    let (mut pairs, mut rest) = (Vec::new(), line.trim_start());
    while !rest.is_empty() {
        let key_end = rest.find(|c: char| c == '=' || c == '"' || c.is_whitespace()).unwrap_or(rest.len());
        let (key, behind) = rest.split_at(key_end);
        if key.is_empty() {
            return None;
        }
        let (value, behind) = match behind.strip_prefix('=') {
            None if behind.starts_with('"') => return None,
            None => (None, behind),
            Some(behind) => {
                let (text, behind) = value(behind)?;
                (Some(text), behind)
            }
        };
        pairs.push(Pair { key, value });
        rest = behind.trim_start();
    }
    Some(pairs)
}

fn value(text: &str) -> Option<(Text<'_>, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return (!text[..end].contains('"')).then_some((Text::Plain(&text[..end]), &text[end..]));
    };
    let (mut at, mut escaped) = (0, false);
    let bytes = quoted.as_bytes();
    while *bytes.get(at)? != b'"' {
        if bytes[at] == b'\\' {
            escaped = true;
            at += 1;
        }
        at += 1;
    }
    let (inner, behind) = (&quoted[..at], &quoted[at + 1..]);
    let ends = behind.is_empty() || behind.starts_with(char::is_whitespace);
    ends.then_some((if escaped { Text::Escaped(inner) } else { Text::Plain(inner) }, behind))
}

fn unescape(text: &str) -> String {
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('t')) => out.push('\t'),
            ('\\', Some('r')) => out.push('\r'),
            ('\\', Some(escaped)) => out.push(escaped),
            (c, _) => out.push(c),
        }
    }
    out
}

fn fill(event: &mut EventMut<'_>, pairs: &[Pair<'_>]) {
    for Pair { key, value } in pairs {
        let field = FieldRef::top(key);
        match value {
            None => event.set(&field, New::Bool(true)),
            Some(Text::Plain(text)) => event.set(&field, New::Text(text)),
            Some(Text::Escaped(text)) => event.set(&field, New::Text(&unescape(text))),
        };
    }
}

impl Codec for Logfmt {
    fn name(&self) -> &'static str {
        "logfmt"
    }

    fn decode(&self, batch: &mut Batch, records: &[Record]) {
        for record in records {
            let line = String::from_utf8_lossy(batch.bytes(record.span)).into_owned();
            let mut event = batch.push(record.span, record.offset);
            match pairs(&line) {
                Some(pairs) if pairs.is_empty() => event.end(Fate::Dropped),
                Some(pairs) if pairs.iter().any(|pair| pair.value.is_some()) => fill(&mut event, &pairs),
                _ => {
                    event.set(&self.message, New::Text(&line));
                    event.add_tag(FAILURE);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Source;
    use crate::codec::tests::decoded;
    use proptest::prelude::*;

    fn decode(bytes: &[u8]) -> Vec<String> {
        decoded(&Logfmt::default(), bytes, Source::default())
    }

    #[test]
    fn lines() {
        for (line, want) in [
            (r#"level=info msg="a \"b\"\\\n" n=1 flag"#, r#"{"level":"info","msg":"a \"b\"\\\n","n":"1","flag":true}"#),
            ("a= b=x=y  ", r#"{"a":"","b":"x=y"}"#),
            ("a=1 a=2", r#"{"a":"2"}"#),
            (r#"a="" b="c d""#, r#"{"a":"","b":"c d"}"#),
            ("é=ü", r#"{"é":"ü"}"#),
            (" \t", "dropped"),
            ("a sentence", r#"{"message":"a sentence","tags":["_logfmtparsefailure"]}"#),
            (r#"a="b"#, r#"{"message":"a=\"b","tags":["_logfmtparsefailure"]}"#),
            (r#"a="b"c"#, r#"{"message":"a=\"b\"c","tags":["_logfmtparsefailure"]}"#),
            (r#"a=b"c"#, r#"{"message":"a=b\"c","tags":["_logfmtparsefailure"]}"#),
            ("=1", r#"{"message":"=1","tags":["_logfmtparsefailure"]}"#),
        ] {
            assert_eq!(decode(line.as_bytes()), [want], "{line}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(pairs in prop::collection::btree_map("[a-z.]{1,4}", "[a-c\"\\\\ \n=é]{0,5}", 1..4)) {
            let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let line: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}=\"{}\"", quoted(v))).collect();
            let want = serde_json::to_string(&pairs).unwrap();
            prop_assert_eq!(decode(line.join(" ").as_bytes()), [want]);
        }

        #[test]
        fn any_line_is_one_event(line in "[a=\"\\\\ é]{0,12}") {
            prop_assert_eq!(decode(line.as_bytes()).len(), usize::from(!line.is_empty()));
        }
    }
}
