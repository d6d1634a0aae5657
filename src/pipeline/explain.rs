//! `onceline explain`: what would become of each event, without delivering anything.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use super::Pipeline;
use super::pack::{Address, Packer};
use crate::ack::Reason;
use crate::batch::{Batch, EventRef, Fate, Source, View};
use crate::input::lines::{self, Bytes};
use crate::json;
use crate::output::Form;
use crate::pool::Pool;

/// Explains the events on standard input, read by the codec of input number `input`; a JSON line each.
pub fn run(pipeline: &Pipeline, input: usize, metadata: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut packer = Packer::new(pipeline, Form::Rows);
    let mut records = Vec::new();
    let mut batch = Batch::default();
    let mut failed = Ok(());
    let stdin = io::stdin();
    let mut take = |block, head: &[u8]| {
        let source = Arc::new(Source { name: "stdin".into(), head: head.into(), ..Source::default() });
        pipeline.transform(input, block, source, &mut records, &mut batch);
        failed = explain(pipeline, &mut packer, &batch, metadata, out);
        failed.is_ok()
    };
    let mut bytes = Bytes::Descriptor(stdin.as_fd());
    let start = lines::Start::default();
    lines::read(&mut bytes, start, pipeline.limits(input), &Pool::default(), &|| true, &mut take)?;
    failed
}

fn explain(
    pipeline: &Pipeline,
    packer: &mut Packer<'_>,
    batch: &Batch,
    metadata: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut text = Vec::new();
    packer.begin(batch);
    for index in 0..batch.len() {
        let event = batch.event(index);
        match event.fate() {
            Fate::Dropped => line(&event, metadata, Outcome::Drop, &mut text),
            Fate::Dead(death) => {
                line(&event, metadata, Outcome::Dead(death.reason, &death.detail), &mut text);
            }
            Fate::Live => match packer.address(&event) {
                Ok(address) => {
                    let outcome = Outcome::Deliver { packer, address, action: pipeline.output.action().as_str() };
                    line(&event, metadata, outcome, &mut text);
                }
                Err((reason, detail)) => line(&event, metadata, Outcome::Dead(reason, &detail), &mut text),
            },
        }
    }
    out.write_all(&text)?;
    out.flush()
}

enum Outcome<'a, 'p> {
    Deliver { packer: &'a Packer<'p>, address: Address, action: &'static str },
    Drop,
    Dead(Reason, &'a str),
}

fn line(event: &EventRef<'_>, metadata: bool, outcome: Outcome<'_, '_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"event\":");
    if event.fields().is_empty() && !matches!(outcome, Outcome::Deliver { .. }) {
        match std::str::from_utf8(event.raw()) {
            Ok(raw) => json::write_string(raw.as_bytes(), out),
            Err(_) => json::write_string(String::from_utf8_lossy(event.raw()).as_bytes(), out),
        }
    } else {
        event.write_source(out);
    }
    if metadata {
        out.extend_from_slice(b",\"@metadata\":");
        View::Object(event.metadata()).write_json(out);
    }
    let (mut id, mut index, mut action) = (None, None, None);
    let (name, reason) = match &outcome {
        Outcome::Deliver { packer, address, action: does } => {
            id = address.has_id.then(|| packer.id());
            index = Some(packer.index_name(*address).as_bytes());
            action = Some(does.as_bytes());
            ("deliver", None)
        }
        Outcome::Drop => ("drop", None),
        Outcome::Dead(reason, detail) => ("dead-letter", Some((reason.as_str(), *detail))),
    };
    for (key, value) in [("id", id), ("index", index), ("action", action), ("outcome", Some(name.as_bytes()))] {
        pair(key, value, out);
    }
    pair("reason", reason.map(|(reason, _)| reason.as_bytes()), out);
    if let Some((_, detail)) = reason {
        pair("detail", Some(detail.as_bytes()), out);
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
