//! Character sets by name: a record's bytes as text. What is not of the set becomes U+FFFD.

use std::borrow::Cow;

use encoding_rs::Encoding;

use crate::batch::{Batch, Span};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Charset {
    #[default]
    Utf8,
    /// Seven bits; Ruby's name for it is that of no set at all.
    Ascii,
    Other(&'static Encoding),
}

impl Charset {
    /// `label` is one of the WHATWG list. Sets whose line feed is not one byte cannot be cut into lines.
    pub fn parse(label: &str) -> Result<Charset, String> {
        if ["ASCII-8BIT", "BINARY"].iter().any(|name| label.trim().eq_ignore_ascii_case(name)) {
            return Ok(Charset::Ascii);
        }
        let Some(found) = Encoding::for_label(label.as_bytes()) else {
            return Err(format!("`{label}` is not a known character set"));
        };
        if !found.is_ascii_compatible() {
            return Err(format!("`{label}` cannot be read line by line: its line feed is not one byte"));
        }
        Ok(if found == encoding_rs::UTF_8 { Charset::Utf8 } else { Charset::Other(found) })
    }

    pub fn text(self, bytes: &[u8]) -> Cow<'_, str> {
        match self {
            Charset::Utf8 => String::from_utf8_lossy(bytes),
            Charset::Ascii => match std::str::from_utf8(bytes) {
                Ok(text) if text.is_ascii() => text.into(),
                _ => bytes.iter().map(|byte| if byte.is_ascii() { char::from(*byte) } else { '\u{fffd}' }).collect(),
            },
            Charset::Other(charset) => charset.decode_without_bom_handling(bytes).0,
        }
    }

    /// Where a piece of a batch stands as text: as it came, or written behind. `utf8`: all of the batch is UTF-8.
    pub fn place(self, batch: &mut Batch, bytes: Span, utf8: bool) -> Span {
        if utf8 && self == Charset::Utf8 {
            return bytes;
        }
        match self.text(batch.bytes(bytes)) {
            Cow::Borrowed(_) => bytes,
            Cow::Owned(text) => batch.write(text.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name() {
        for (label, bytes, want) in [
            ("UTF-8", &b"a\xc3\xa9\xff"[..], Ok("aé\u{fffd}")),
            ("ISO-8859-1", b"Montr\xe9al", Ok("Montréal")),
            ("cp1252", b"\x80", Ok("€")),
            ("ASCII-8BIT", b"\xe0 Montr\xe9al", Ok("\u{fffd} Montr\u{fffd}al")),
            ("UTF-16LE", b"", Err("its line feed is not one byte")),
            ("nothing", b"", Err("not a known character set")),
        ] {
            let got = Charset::parse(label).map(|charset| charset.text(bytes).into_owned());
            match (&got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{label}"),
                (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
                _ => panic!("{label}: {got:?}"),
            }
        }
    }
}
