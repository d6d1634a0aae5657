//! `codec = "multiline"`: lines that belong together are one event, with a line feed between them in `message`.
//!
//! ```toml
//! [[input]]
//! type = "file"
//! paths = ["/var/log/app/server.log"]
//! codec = { type = "multiline", pattern = '^\s', what = "previous" }
//! ```
//!
//! Options and limits are those of Logstash's codec. Here is what becomes of a record, whoever cut it: out of a file,
//! a message that holds it all, a dead letter. Which lines it is of is told by [`Rule`], which who reads has too, so
//! that no batch and no saved position ends within a record.

use std::sync::Arc;
use std::time::Duration;

use super::charset::Charset;
use super::rule::{Measure, Neighbour, Rule};
use super::{Codec, Record};
use crate::batch::{Batch, Value};
use crate::config::{Fault, Section};
use crate::field::FieldRef;
use crate::filter::grok::library::Library;
use crate::filter::grok::standard::Names;
use crate::regexp::OfLine;

const BYTES_BEYOND: &str = "multiline_codec_max_bytes_reached";
const LINES_BEYOND: &str = "multiline_codec_max_lines_reached";

pub struct Multiline {
    rule: Arc<Rule>,
    message: FieldRef,
    tags: FieldRef,
    /// The tags as JSON of an event of several lines, of one beyond the most bytes, of one beyond the most lines, and
    /// of those that are several of these: by the sum of 1, 2 and 4.
    lists: [Option<String>; 8],
    /// Where the text is kept too.
    original: Option<FieldRef>,
}

impl Multiline {
    pub fn read(t: &Section<'_>) -> Option<Multiline> {
        let files = t.parsed_each("patterns_dir", |path| Library::of_path(path.as_ref(), "*")).or_default();
        let mut library = Library::standard(Names::Legacy);
        files.into_iter().for_each(|file| library.add(file));
        let pattern = t.parsed("pattern", |text| pattern(text, &library)).required();
        let what = t.one_of("what", &[("previous", Neighbour::Previous), ("next", Neighbour::Next)]).required();
        let negate = t.bool("negate").or(false);
        let tag = t.text("multiline_tag").or("multiline".to_string());
        let lines_max = t.integer("max_lines", 0..=10_000_000).or(500);
        let bytes_max = t.bytes("max_bytes", 0..=256 << 20).or(10 << 20);
        let keeps_blank = t.one_of("blank_lines", &[("drop", false), ("keep", true)]).or(false);
        let charset = t.parsed("charset", Charset::parse).or_default();
        let (least, most) = (Duration::from_millis(100), Duration::from_secs(30 * 86_400));
        let flush_after = t.duration("auto_flush_interval", least..=most).or(Duration::from_secs(5));
        let is_ecs = t.one_of("ecs_compatibility", &[("disabled", false), ("v1", true), ("v8", true)]).or(false);
        let original = is_ecs.then(|| FieldRef::parse("[event][original]").ok()).flatten();
        let (pattern, what) = (pattern?, what?);
        let rule = Rule { pattern, negate, what, lines_max, bytes_max, keeps_blank, charset, flush_after };
        let (message, tags) = (FieldRef::top("message"), FieldRef::top("tags"));
        let lists = std::array::from_fn(|which| list(which, &tag));
        Some(Multiline { rule: Arc::new(rule), message, tags, lists, original })
    }
}

/// The tags of an event as JSON; none if it has none. Without a text there is no tag for several lines.
fn list(which: usize, several: &str) -> Option<String> {
    let mut tags: Vec<&str> = Vec::new();
    for (bit, tag) in [(1, several), (2, BYTES_BEYOND), (4, LINES_BEYOND)] {
        if which & bit != 0 && !tag.is_empty() && !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    (!tags.is_empty()).then(|| serde_json::Value::from(tags).to_string())
}

fn pattern(text: &str, library: &Library) -> Result<OfLine, Fault> {
    Ok(OfLine::parse(&library.expand(text, true)?)?)
}

impl Codec for Multiline {
    fn name(&self) -> &'static str {
        "multiline"
    }

    fn rule(&self) -> Option<&Arc<Rule>> {
        Some(&self.rule)
    }

    fn decode(&self, batch: &mut Batch, records: &[Record]) {
        let rule = &*self.rule;
        let (utf8, mut joined) = (batch.is_utf8(), Vec::new());
        // a list of tags is written once for all
        let mut written = [None; 8];
        for record in records {
            let lines_as_read = batch.bytes(record.span);
            let Measure { lines, beyond, as_it_stands } = rule.measure(lines_as_read);
            let mut raw = record.span;
            if !as_it_stands {
                joined.clear();
                rule.join(lines_as_read, &mut joined);
                raw = batch.write(&joined);
            }
            let text = rule.charset.place(batch, raw, utf8);
            let which = usize::from(lines > 1) + 2 * usize::from(beyond.bytes) + 4 * usize::from(beyond.lines);
            let tags = self.lists[which]
                .as_ref()
                .map(|list| Value::Json(*written[which].get_or_insert_with(|| batch.write(list.as_bytes()))));
            let mut event = batch.push(raw, record.offset);
            event.set_span(&self.message, text);
            if let Some(original) = &self.original {
                event.set_span(original, text);
            }
            if let Some(tags) = tags {
                event.put(&self.tags, tags);
            }
        }
    }
}
