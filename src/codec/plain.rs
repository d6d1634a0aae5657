//! `codec = "plain"`: every line is an event with its text in `message`; a blank line too.
//!
//! ```toml
//! [[input]]
//! type = "stdin"
//! codec = { type = "plain", charset = "ISO-8859-1" }
//! ```
//!
//! Bytes that are not of the character set become U+FFFD. Ids made of the raw bytes see them as they came.

use encoding_rs::Encoding;

use super::{Codec, Record};
use crate::batch::{Batch, Span};
use crate::field::FieldRef;

pub struct Plain {
    /// None: UTF-8.
    charset: Option<&'static Encoding>,
    message: FieldRef,
}

impl Plain {
    /// `charset` is a label of the WHATWG list. Those whose line feed is not one byte cannot be cut into lines.
    pub fn build(charset: Option<&str>) -> Result<Plain, String> {
        let charset = match charset {
            None => None,
            Some(label) => {
                let Some(found) = Encoding::for_label(label.as_bytes()) else {
                    return Err(format!("`{label}` is not a known character set"));
                };
                if !found.is_ascii_compatible() {
                    return Err(format!("`{label}` cannot be read line by line: its line feed is not one byte"));
                }
                Some(found).filter(|found| *found != encoding_rs::UTF_8)
            }
        };
        Ok(Plain { charset, message: FieldRef::top("message") })
    }

    fn text(&self, batch: &mut Batch, record: Span, utf8: bool) -> Span {
        let bytes = batch.bytes(record);
        let converted = match self.charset {
            Some(charset) => charset.decode_without_bom_handling(bytes).0,
            None if utf8 => return record,
            None => String::from_utf8_lossy(bytes),
        };
        match converted {
            std::borrow::Cow::Borrowed(_) => record,
            std::borrow::Cow::Owned(text) => batch.write(text.as_bytes()),
        }
    }
}

impl Codec for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn decode(&self, batch: &mut Batch, records: &[Record]) {
        let utf8 = batch.is_utf8();
        for record in records {
            let text = self.text(batch, record.span, utf8);
            batch.push(record.span, record.offset).set_span(&self.message, text);
        }
    }
}
