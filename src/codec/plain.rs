//! `codec = "plain"`: every line is an event with its text in `message`; a blank line too.
//!
//! ```toml
//! [[input]]
//! type = "stdin"
//! codec = { type = "plain", charset = "ISO-8859-1" }
//! ```
//!
//! Bytes that are not of the character set become U+FFFD. Ids made of the raw bytes see them as they came.

use super::charset::Charset;
use super::{Codec, Record};
use crate::batch::Batch;
use crate::field::FieldRef;

pub struct Plain {
    charset: Charset,
    message: FieldRef,
}

impl Plain {
    pub fn build(charset: Option<&str>) -> Result<Plain, String> {
        let charset = charset.map_or(Ok(Charset::Utf8), Charset::parse)?;
        Ok(Plain { charset, message: FieldRef::top("message") })
    }
}

impl Codec for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn decode(&self, batch: &mut Batch, records: &[Record]) {
        let utf8 = batch.is_utf8();
        for record in records {
            let text = self.charset.place(batch, record.span, utf8);
            batch.push(record.span, record.offset).set_span(&self.message, text);
        }
    }
}
