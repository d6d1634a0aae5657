//! `codec = "csv"`: every line is a line of CSV, with the options of the filter `csv`.
//!
//! ```toml
//! [[input]]
//! type = "stdin"
//! codec = { type = "csv", columns = ["time", "user", "bytes"], convert = { bytes = "integer" } }
//! ```
//!
//! A line that is no CSV is an event with the line in `message` and the tag `_csvparsefailure`; a blank line is
//! dropped. A field does not hold a line end: a record is a line.

use super::{Codec, Record};
use crate::batch::{Batch, Fate, New};
use crate::field::FieldRef;
use crate::filter::csv::{Csv as Reading, Outcome};

pub struct Csv {
    reading: Reading,
    message: FieldRef,
}

impl Csv {
    pub fn new(reading: Reading) -> Csv {
        Csv { reading, message: FieldRef::top("message") }
    }
}

impl Codec for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn decode(&self, batch: &mut Batch, records: &[Record]) {
        for record in records {
            let line = String::from_utf8_lossy(batch.bytes(record.span)).into_owned();
            let mut event = batch.push(record.span, record.offset);
            if line.trim().is_empty() {
                event.end(Fate::Dropped);
                continue;
            }
            match self.reading.read(&mut event, &line) {
                Outcome::Read => {}
                Outcome::Header => event.end(Fate::Dropped),
                Outcome::Failed(tag) => {
                    event.set(&self.message, New::Text(&line));
                    event.add_tag(tag);
                }
            }
        }
    }
}
