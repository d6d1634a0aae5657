//! Codecs: a text gives the same events however it was cut while it was read, and from any mark on those that came
//! behind it; and of JSON, what serde_json reads in it. What comes out has no key twice, of filters that
//! read a text neither. The first line is the codec's number, how many bytes a line may have, and the sizes of the pieces.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use onceline::batch::{Batch, EventRef, Fate, Source, View};
use onceline::codec::json::{Json, OnError};
use onceline::codec::{Block, Codec, cut_lines};
use onceline::input::identity::{Print, Tail};
use onceline::input::lines::Cutter;
use onceline::input::{Limits, Ramp};
use onceline::json;
use onceline::pipeline::Pipeline;
use onceline::pipeline::read::{self, Options};
use onceline::pool::Pool;
use onceline::time::Time;
use serde_json::Value;

use super::{first_line, numbers, tree};

const CODECS: [&str; 26] = [
    r#"{ type = "json" }"#,
    r#"{ type = "json", on_error = "tag" }"#,
    r#"{ type = "plain" }"#,
    r#"{ type = "plain", charset = "latin1" }"#,
    r#"{ type = "plain", charset = "gb18030" }"#,
    r#"{ type = "plain", charset = "shift_jis" }"#,
    r#"{ type = "plain", charset = "euc-kr" }"#,
    r#"{ type = "plain", charset = "big5" }"#,
    r#"{ type = "csv", columns = ["a", "b"], convert = { b = "integer" } }"#,
    r#"{ type = "csv", autodetect_column_names = true }"#,
    r#"{ type = "logfmt" }"#,
    r#"{ type = "multiline", pattern = '^\s', what = "previous" }"#,
    r#"{ type = "multiline", pattern = '^\s', what = "previous", max_lines = 2, max_bytes = 12 }"#,
    r#"{ type = "multiline", pattern = '\\$', what = "next", max_lines = 2, max_bytes = 12 }"#,
    r#"{ type = "multiline", pattern = '[{":]', negate = true, what = "previous", blank_lines = "keep", max_lines = 3 }"#,
    r#"{ type = "multiline", pattern = '}$', negate = true, what = "next", charset = "latin1", max_bytes = 40 }"#,
    r#"{ type = "multiline", pattern = '', what = "next", max_bytes = 3 }"#,
    r#"{ type = "cef", ecs_compatibility = "v8" }"#,
    r#"{ type = "syslog" }"#,
    r#"{ type = "syslog", ecs_compatibility = "v8" }"#,
    "'plain'\n[[filter]]\ntype = 'kv'\nrecursive = true",
    "'plain'\n[[filter]]\ntype = 'kv'\ntarget = '[a][b]'\ntransform_key = 'lowercase'\ntrim_key = '_'",
    "'plain'\n[[filter]]\ntype = 'csv'\ncolumns = ['a', '[b][c]', 'a', 'b']",
    "'plain'\n[[filter]]\ntype = 'csv'\nautodetect_column_names = true",
    "'plain'\n[[filter]]\ntype = 'json'\nsource = 'message'",
    "'plain'\n[[filter]]\ntype = 'json'\nsource = 'message'\ntarget = '[a][b]'",
];

thread_local! {
    static PIPELINES: RefCell<Vec<Pipeline>> = RefCell::new(CODECS.iter().map(|codec| pipeline(codec)).collect());
}

pub fn check(bytes: &[u8]) {
    let (first, text) = first_line(bytes);
    let mut sizes = numbers(first).map(|number| number as usize);
    let codec = sizes.next().unwrap_or(0) % CODECS.len();
    let line_bytes_max = sizes.next().unwrap_or(1 << 20).clamp(1, 1 << 20);
    let pieces: Vec<usize> = sizes.map(|size| size.clamp(1, 1 << 16)).collect();
    PIPELINES.with_borrow_mut(|pipelines| {
        let pipeline = &mut pipelines[codec];
        pipeline.inputs[0].line_bytes_max = line_bytes_max;
        let limits = Limits { batch_bytes: 16, ramp: Ramp::default(), ..pipeline.limits(0) };
        let from = |at: usize| {
            let bytes = text[at..].to_vec().into();
            vec![Block { bytes, offset: at as u64, too_long: None, mark: None, records: None }]
        };
        let wanted = events(pipeline, from(0));
        let blocks = blocks(text, limits, &pieces);
        let marks: Vec<usize> = blocks.iter().filter_map(|block| Some(block.mark?.offset as usize)).collect();
        let cut = events(pipeline, blocks);
        assert_eq!(cut, wanted, "by pieces");
        if pipeline.inputs[0].codec.rule().is_some() {
            for mark in marks {
                let rest = events(pipeline, from(mark));
                assert!(wanted.ends_with(&rest), "from the mark at {mark} on: {rest:?} of {wanted:?}");
                let before = wanted.len() - rest.len();
                assert_eq!(
                    events(pipeline, from(0)[..].iter().map(|block| up_to(block, mark)).collect()),
                    wanted[..before]
                );
            }
        }
    });
    if codec < 2 {
        check_json(text);
    }
}

/// What a block has before a place.
fn up_to(block: &Block, end: usize) -> Block {
    Block { bytes: block.bytes[..end].to_vec().into(), ..block.place() }
}

fn pipeline(codec: &str) -> Pipeline {
    let text = format!(
        "[[input]]\ntype = 'stdin'\ncodec = {codec}\n[time]\nmissing = 'now'\n[index]\nname = 'x'\nstrict = false\n\
         [output]\ntype = 'stdout'\n[id]\nmethod = 'SHA256'\nscheme = 'hash'\nsource = 'raw'\n"
    );
    let options = Options { now: Some(Time::new(1_772_000_000, 0)), once: true, ..Options::default() };
    let (plan, report) = read::read(Path::new("codecs.toml"), text.as_bytes(), &options, &|_| None);
    plan.unwrap_or_else(|| panic!("{}", report.render(false))).pipeline
}

/// The text as it is cut into blocks when it comes in pieces of these sizes.
fn blocks(text: &[u8], limits: Limits, sizes: &[usize]) -> Vec<Block> {
    let mut cutter = Cutter::new(limits.clone(), &Pool::default(), 0, Tail::default());
    let (mut blocks, mut rest) = (Vec::new(), text);
    for size in sizes.iter().chain(std::iter::repeat(sizes.last().unwrap_or(&7))) {
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        cutter.buffer.extend_from_slice(piece);
        rest = after;
        blocks.extend(std::iter::from_fn(|| cutter.cut(rest.is_empty())));
        if rest.is_empty() {
            break;
        }
    }
    for mark in blocks.iter().filter_map(|block| block.mark) {
        let before = &text[..mark.offset as usize];
        assert!(before.ends_with(b"\n"), "a mark within a line");
        assert_eq!(mark.tail, Print::tail(before), "what stands before {}", mark.offset);
    }
    blocks
}

fn events(pipeline: &Pipeline, blocks: Vec<Block>) -> Vec<String> {
    let (mut records, mut batch, mut all) = (Vec::new(), Batch::default(), Vec::new());
    for block in blocks {
        pipeline.transform(0, block, Arc::new(Source::default()), &mut records, &mut batch);
        all.extend((0..batch.len()).map(|index| told(&batch.event(index))));
    }
    all
}

/// All that an event is.
fn told(event: &EventRef<'_>) -> String {
    let mut source = Vec::new();
    event.write_source(&mut source);
    assert!(!source.contains(&b'\n'), "an event of two lines");
    let source = String::from_utf8(source).expect("a stored event is UTF-8");
    if let Fate::Live = event.fate() {
        serde_json::from_str::<Value>(&source)
            .map_err(|error| assert!(error.to_string().contains("out of range"), "{source}: {error}"))
            .ok();
        check_keys(source.as_bytes());
    }
    let part = event.part().map(|(number, _)| number);
    format!("{} {part:?} {:?} {:?} {source}", event.offset(), event.raw(), event.fate())
}

/// No object has a key twice, however deep it is.
fn check_keys(event: &[u8]) {
    let mut containers = vec![event];
    while let Some(container) = containers.pop() {
        let is_object = container.starts_with(b"{");
        let mut keys = BTreeSet::new();
        for (key, value) in json::members(container) {
            let is_new = !is_object || keys.insert(json::unescape(key));
            assert!(is_new, "a key is there twice: {}", String::from_utf8_lossy(event));
            containers.push(value);
        }
    }
}

/// Line by line what serde_json reads, where it reads more than we promise.
fn check_json(text: &[u8]) {
    let mut records = Vec::new();
    cut_lines(text, 0, &mut records);
    for record in records {
        let mut batch = Batch::new(text.to_vec(), Arc::default());
        Json::new(OnError::DeadLetter, json::FIELDS_MAX).decode(&mut batch, &[record]);
        let line = batch.bytes(record.span).to_vec();
        let line = &line[line.iter().take_while(|byte| **byte == 0).count()..];
        check_line(&batch, &String::from_utf8_lossy(line));
    }
}

fn check_line(batch: &Batch, line: &str) {
    let fates: Vec<&Fate> = (0..batch.len()).map(|index| batch.event(index).fate()).collect();
    let (is_dead, is_dropped) = (matches!(fates[..], [Fate::Dead(_)]), matches!(fates[..], [Fate::Dropped]));
    if line.trim_matches([' ', '\t', '\r']).is_empty() {
        return assert!(is_dropped, "{line:?}");
    }
    let wanted = match serde_json::from_str(line) {
        Ok(Value::Object(event)) => vec![Value::Object(event)],
        Ok(Value::Array(events)) if events.is_empty() => return assert!(is_dropped, "{line:?}"),
        Ok(Value::Array(events)) if events.iter().all(Value::is_object) => events,
        Ok(_) => return assert!(is_dead, "{line:?}"),
        Err(error) if is_tolerated(&error) => return,
        Err(error) => return assert!(is_dead, "{line:?}: {error}"),
    };
    if is_dead {
        let depth = line.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
        return assert!(depth > 100, "{line:?} is set aside: {fates:?}");
    }
    assert_eq!(batch.len(), wanted.len(), "{line:?}");
    for (index, mut want) in wanted.into_iter().enumerate() {
        let event = batch.event(index);
        want.as_object_mut().map(|event| event.remove("@metadata"));
        let mut stored = Vec::new();
        event.write_source(&mut stored);
        assert_eq!(serde_json::from_slice::<Value>(&stored).expect("JSON is stored"), want, "{line:?}");
        assert_eq!(tree(&View::Object(event.fields())), Some(want), "{line:?}");
    }
}

/// What serde_json refuses and we take: numbers of any size, and half a surrogate pair.
pub fn is_tolerated(error: &serde_json::Error) -> bool {
    let text = error.to_string();
    ["out of range", "surrogate", "end of hex escape", "unicode code point", "recursion limit"]
        .iter()
        .any(|tolerated| text.contains(tolerated))
}
