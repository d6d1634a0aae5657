//! `onceline explain`: what would become of each event, without delivering anything; as JSON, or for people (see
//! [`super::pretty`]), and with what each filter did (see [`super::trace`]).

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use super::pack::{Address, Packer};
use super::trace::{Told, Trace};
use super::{Pipeline, pretty};
use crate::ack::Reason;
use crate::batch::{Batch, EventRef, Fate, Source, View};
use crate::codec::{Block, Cutting, Record};
use crate::input::lines::{self, Bytes};
use crate::json;
use crate::output::Form;
use crate::pool::Pool;

/// What is shown, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Show {
    pub metadata: bool,
    /// What each filter did.
    pub steps: bool,
    /// As text for people.
    pub pretty: bool,
    /// With colours.
    pub colour: bool,
}

/// What would become of an event.
pub struct Answer {
    /// As JSON.
    pub event: Vec<u8>,
    pub metadata: Option<Vec<u8>>,
    pub id: Option<Vec<u8>>,
    pub index: Option<String>,
    pub action: Option<&'static str>,
    /// `deliver`, `drop` or `dead-letter`.
    pub outcome: &'static str,
    pub reason: Option<(Reason, String)>,
    pub steps: Option<Vec<Told>>,
}

/// Explains the events on standard input, read by the codec of input number `input`; with a path as if they stood in
/// that file.
pub fn run(pipeline: &Pipeline, input: usize, path: Option<&str>, show: Show, out: &mut dyn Write) -> io::Result<()> {
    let mut failed = Ok(());
    let stdin = io::stdin();
    let source = source_at(path);
    each(pipeline, input, show, &mut Bytes::Descriptor(stdin.as_fd()), &source, &mut |answers| {
        let mut text = Vec::new();
        for answer in answers {
            if show.pretty { pretty::write(&answer, show.colour, &mut text) } else { write(&answer, &mut text) }
        }
        failed = out.write_all(&text).and_then(|()| out.flush());
        failed.is_ok()
    })?;
    failed
}

/// What would become of the events of a text, as if it stood in a file.
pub fn answers(
    pipeline: &Pipeline,
    input: usize,
    text: &[u8],
    path: Option<&str>,
    show: Show,
) -> io::Result<Vec<Answer>> {
    let mut all = Vec::new();
    let source = source_at(path);
    each(pipeline, input, show, &mut Bytes::Stream(Box::new(text)), &source, &mut |answers| {
        all.extend(answers);
        true
    })?;
    Ok(all)
}

fn source_at(path: Option<&str>) -> Source {
    Source { name: path.unwrap_or("stdin").into(), inode: path.map(|_| (0, 0)), ..Source::default() }
}

fn each(
    pipeline: &Pipeline,
    input: usize,
    show: Show,
    bytes: &mut Bytes<'_>,
    source: &Source,
    tell: &mut dyn FnMut(Vec<Answer>) -> bool,
) -> io::Result<()> {
    let mut explain = Explain {
        pipeline,
        show,
        packer: Packer::new(pipeline, Form::Rows, Pool::default()),
        batch: Batch::default(),
        records: vec![],
    };
    let cutting = pipeline.inputs[input].cutting();
    let mut take = |block, head: &[u8]| {
        let day = Some(pipeline.clock().now.day());
        let source = Arc::new(Source { head: head.into(), day, ..source.clone() });
        let blocks = if show.steps { single(block, &cutting) } else { vec![block] };
        tell(blocks.into_iter().flat_map(|block| explain.block(input, block, source.clone())).collect())
    };
    lines::read(bytes, lines::Start::default(), pipeline.limits(input), &Pool::default(), &|| true, &mut take)
}

/// A block a record, so that the time of a filter is that of one record.
fn single(block: Block, cutting: &Cutting) -> Vec<Block> {
    if block.too_long.is_some() {
        return vec![block];
    }
    let mut records = Vec::new();
    cutting.cut(&block, &mut records);
    let alone = |record: Record| {
        let (start, len) = (record.span.start as usize, record.span.len as usize);
        let span = crate::batch::Span::new(0, len);
        let bytes = block.bytes[start..start + len].to_vec().into();
        Block { bytes, too_long: None, records: Some(vec![Record { span, ..record }]), ..block.place() }
    };
    records.into_iter().map(alone).collect()
}

struct Explain<'a> {
    pipeline: &'a Pipeline,
    show: Show,
    packer: Packer<'a>,
    batch: Batch,
    records: Vec<Record>,
}

impl Explain<'_> {
    fn block(&mut self, input: usize, block: Block, source: Arc<Source>) -> Vec<Answer> {
        let Explain { pipeline, batch, records, .. } = self;
        let steps = if self.show.steps {
            pipeline.decode(input, block, source, records, batch);
            let steps = Trace::of(&pipeline.steps, batch, &pipeline.clock());
            pipeline.stamp.apply(batch, &pipeline.clock());
            Some(steps)
        } else {
            pipeline.transform(input, block, source, records, batch);
            None
        };
        let batch = std::mem::take(&mut self.batch);
        self.packer.begin(&batch);
        let mut steps = steps.into_iter().flatten();
        let answers = (0..batch.len()).map(|index| {
            let answer = self.answer(&batch.event(index));
            Answer { steps: steps.next().filter(|_| self.show.steps), ..answer }
        });
        let answers = answers.collect();
        self.batch = batch;
        answers
    }

    fn answer(&mut self, event: &EventRef<'_>) -> Answer {
        let address = match event.fate() {
            Fate::Live => self.packer.address(event).map_err(|(reason, detail)| Some((reason, detail))),
            Fate::Dead(death) => Err(Some((death.reason, death.detail.clone()))),
            Fate::Dropped => Err(None),
        };
        let mut answer = Answer {
            event: event_of(event, address.is_ok()),
            metadata: self.show.metadata.then(|| {
                let mut out = Vec::new();
                View::Object(event.metadata()).write_json(&mut out);
                out
            }),
            id: None,
            index: None,
            action: None,
            outcome: "drop",
            reason: None,
            steps: None,
        };
        match address {
            Ok(address) => self.deliver(address, &mut answer),
            Err(None) => {}
            Err(reason) => (answer.outcome, answer.reason) = ("dead-letter", reason),
        }
        answer
    }

    fn deliver(&self, address: Address, answer: &mut Answer) {
        answer.outcome = "deliver";
        answer.id = address.has_id.then(|| self.packer.id().to_vec());
        answer.index = Some(self.packer.index_name(address).to_string());
        answer.action = Some(self.pipeline.output.action().as_str());
    }
}

/// The event as it would be stored; a record that is no event as text.
fn event_of(event: &EventRef<'_>, is_delivered: bool) -> Vec<u8> {
    let mut out = Vec::new();
    if event.fields().is_empty() && !is_delivered {
        json::write_string(String::from_utf8_lossy(event.raw()).as_bytes(), &mut out);
    } else {
        event.write_source(&mut out);
    }
    out
}

/// The answer as a line of JSON.
fn write(answer: &Answer, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"event\":");
    out.extend_from_slice(&answer.event);
    if let Some(metadata) = &answer.metadata {
        out.extend_from_slice(b",\"@metadata\":");
        out.extend_from_slice(metadata);
    }
    pair("id", answer.id.as_deref(), out);
    pair("index", answer.index.as_deref().map(str::as_bytes), out);
    pair("action", answer.action.map(str::as_bytes), out);
    pair("outcome", Some(answer.outcome.as_bytes()), out);
    pair("reason", answer.reason.as_ref().map(|(reason, _)| reason.as_str().as_bytes()), out);
    if let Some((_, detail)) = &answer.reason {
        pair("detail", Some(detail.as_bytes()), out);
    }
    if let Some(steps) = &answer.steps {
        out.extend_from_slice(b",\"steps\":[");
        for (at, told) in steps.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            told.write(out);
        }
        out.push(b']');
    }
    out.extend_from_slice(b"}\n");
}

fn pair(key: &str, value: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(b',');
    json::write_string(key.as_bytes(), out);
    out.push(b':');
    match value {
        Some(value) => json::write_string(value, out),
        None => out.extend_from_slice(b"null"),
    }
}
