//! Bytes as they come: every record has one fate, whatever is in it, and however the bytes were cut on their way.

use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, mpsc};

use onceline::batch::{Batch, Fate, Source};
use onceline::input::lines::{self, Bytes};
use onceline::input::{Limits, Ramp};
use onceline::output::Form;
use onceline::pipeline::pack::Packer;
use onceline::pipeline::{Pipeline, read};
use onceline::pool::Pool;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::rig::{Onceline, Run};
use super::{file, json};

const CASE: &str = "cases/public/07-dirty-bytes";
const NOW: &str = "2026-03-01T12:00:00.000Z";

fn pipeline(codec: &str, more: &str, output: &str) -> String {
    format!(
        r#"
        {more}
        [[input]]
        type = "stdin"
        codec = {codec}
        [id]
        scheme = "time-hash"
        method = "SHA1"
        repeats = "keep"
        [index]
        name = "dirty-%{{+yyyy.MM.dd}}"
        [output]
        {output}
        "#
    )
}

const MISSING_NOW: &str = "[time]\nmissing = \"now\"";
const SQLITE: &str = "type = \"sqlite\"\npath = \"{dir}/out.sqlite\"";

/// What is promised of a line of the case: a document, dropped, or a dead letter.
fn promised(line: &Value) -> Value {
    match (line["line"].as_u64(), &line["expected"]) {
        (Some(7 | 14 | 17), Value::String(_)) => "bad-json".into(),
        (Some(9 | 10), Value::String(_)) => "drop".into(),
        // the last of equal keys wins
        (Some(13), Value::String(_)) => json!({"n": 13, "time": "b"}),
        (Some(16), Value::String(_)) => json!({"n": 16, "a.b": 1, "a": {"c": 2}, "": 3}),
        (Some(12), expected) => {
            let length = expected["m_length"].as_u64().expect("a length");
            json!({"n": 12, "m": "A".repeat(length as usize)})
        }
        (_, expected) if expected.is_object() => expected.clone(),
        (line, _) => panic!("nothing is promised of line {line:?}"),
    }
}

fn without_time(mut event: Value) -> Value {
    let time = event.as_object_mut().and_then(|event| event.remove("@timestamp"));
    assert_eq!(time, Some(NOW.into()));
    event
}

#[test]
fn every_line_of_the_case_has_its_fate() {
    let (input, expected) = (file(&format!("{CASE}/input.bin")), json(&file(&format!("{CASE}/expected.json"))));
    let lines = expected["lines"].as_array().expect("lines");
    let onceline = Onceline::new(&pipeline("\"json\"", MISSING_NOW, SQLITE)).args(&["--now", NOW]);
    let explained = onceline.explain(&input);
    assert_eq!(explained.len(), 18);
    for (line, got) in lines.iter().zip(&explained) {
        match promised(line) {
            Value::String(fate) if fate == "drop" => assert_eq!(got["outcome"], "drop", "{line}"),
            Value::String(reason) => assert_eq!(got["reason"], reason, "{line}"),
            event => assert_eq!(without_time(got["event"].clone()), event, "{line}"),
        }
    }
    for number in 1..=2 {
        let run = onceline.run(&input).settled();
        let counts = ["events_in", "created", "duplicates", "dropped", "dead_lettered"];
        let want = if number == 1 { [18, 13, 0, 2, 3] } else { [18, 0, 13, 2, 3] };
        assert_eq!(run.counts(counts), want, "run {number}");
        assert_offsets(&run, lines, number);
    }
    let mut stored: Vec<String> = onceline.rows("out.sqlite").iter().map(|row| row.source.to_string()).collect();
    let events = explained.iter().filter(|line| line["outcome"] == "deliver").map(|line| line["event"].to_string());
    let mut events: Vec<String> = events.collect();
    stored.sort();
    events.sort();
    assert_eq!(stored, events);
}

/// Dead letters say where in the source their records begin.
fn assert_offsets(run: &Run, lines: &[Value], runs: usize) {
    let want = lines.iter().filter(|line| promised(line) == "bad-json").map(|line| line["offset"].as_u64());
    let mut want: Vec<_> = std::iter::repeat_n(want.collect::<Vec<_>>(), runs).flatten().collect();
    let mut got: Vec<_> = run.dead_letters.iter().map(|letter| letter["source"]["offset"].as_u64()).collect();
    // letters of several batches stand in any order
    want.sort();
    got.sort();
    assert_eq!(got, want);
    assert!(run.dead_letters.iter().all(|letter| letter["source"]["name"] == "stdin"));
}

#[test]
fn without_a_time_every_line_of_the_case_is_set_aside() {
    let onceline = Onceline::new(&pipeline("\"json\"", "", SQLITE)).args(&["--now", NOW]);
    let run = onceline.run(&file(&format!("{CASE}/input.bin"))).settled();
    assert_eq!(run.counts(["events_in", "created", "dropped", "dead_lettered"]), [18, 0, 2, 16]);
    let count = |reason: &str| run.dead_letters.iter().filter(|letter| letter["reason"] == reason).count();
    assert_eq!((count("no-timestamp"), count("bad-json")), (13, 3));
}

#[test]
fn what_is_sent_is_one_json_line_each() {
    let input = file(&format!("{CASE}/input.bin"));
    for (output, lines) in [("type = \"ndjson\"", 26), ("type = \"stdout\"", 13)] {
        let run = Onceline::new(&pipeline("\"json\"", MISSING_NOW, output)).args(&["--now", NOW]).run(&input).settled();
        let parsed: Vec<Value> = run.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(parsed.len(), lines);
        assert!(!run.stdout.contains('\u{0}') && !run.stdout.contains('\r'));
    }
}

#[test]
fn the_case_read_as_text_loses_nothing() {
    let input = file(&format!("{CASE}/input.bin"));
    let onceline = Onceline::new(&pipeline("\"plain\"", MISSING_NOW, SQLITE)).args(&["--now", NOW]);
    let run = onceline.run(&input).settled();
    // a record of no bytes gives nothing to hash
    assert_eq!(run.counts(["events_in", "created", "dropped", "dead_lettered"]), [18, 17, 0, 1]);
    assert_eq!(run.dead_letters[0]["reason"], "id-missing");
    let tagged = "{ type = \"json\", on_error = \"tag\" }";
    let onceline = Onceline::new(&pipeline(tagged, MISSING_NOW, SQLITE)).args(&["--now", NOW]);
    let run = onceline.run(&input).settled();
    assert_eq!(run.counts(["events_in", "created", "dropped", "dead_lettered"]), [18, 16, 2, 0]);
    let rows = onceline.rows("out.sqlite");
    assert_eq!(rows.iter().filter(|row| row.source["tags"] == json!(["_jsonparsefailure"])).count(), 3);
}

fn plan(codec: &str, more: &str) -> Pipeline {
    let text = pipeline(codec, &format!("{MISSING_NOW}\n{more}"), "type = \"stdout\"");
    let now = onceline::time::Time::rfc3339(NOW.as_bytes());
    let options = read::Options { now, ..read::Options::default() };
    let (plan, report) = read::read(Path::new("dirty.toml"), text.as_bytes(), &options, &|_| None);
    plan.unwrap_or_else(|| panic!("{}", report.render(false))).pipeline
}

/// Everything that becomes of the events of one source, read by `bytes`.
fn fates(pipeline: &Pipeline, bytes: &mut Bytes<'_>, limits: Limits, mut taken: impl FnMut()) -> Vec<String> {
    let mut out = Vec::new();
    let (mut packer, mut records, mut batch) =
        (Packer::new(pipeline, Form::Rows, Pool::default()), Vec::new(), Batch::default());
    let mut take = |block, head: &[u8]| {
        let source = Arc::new(Source { name: "stdin".into(), head: head.into(), ..Source::default() });
        pipeline.transform(0, block, source, &mut records, &mut batch);
        packer.begin(&batch);
        for n in 0..batch.len() {
            let event = batch.event(n);
            let fate = match event.fate() {
                Fate::Dropped => "dropped".to_owned(),
                Fate::Dead(death) => format!("{} {} {:?}", death.reason, death.detail, event.raw()),
                Fate::Live => match packer.address(&event) {
                    Ok(_) => {
                        let mut source = Vec::new();
                        event.write_source(&mut source);
                        let id = String::from_utf8_lossy(packer.id()).into_owned();
                        format!("{id} {}", String::from_utf8(source).expect("UTF-8"))
                    }
                    Err((reason, detail)) => format!("{reason} {detail}"),
                },
            };
            out.push(format!("{} {fate}", event.offset()));
        }
        let packed = packer.pack(&batch);
        assert_eq!(packed.items.len() + packed.letters.len() + packed.dropped as usize, batch.len());
        taken();
        true
    };
    lines::read(bytes, lines::Start::default(), limits, &Pool::default(), &|| true, &mut take)
        .expect("bytes that can be read");
    out
}

/// Every read gives one byte: a datagram each, and an empty one for the end.
fn fates_of_bytes(pipeline: &Pipeline, input: &[u8], limits: Limits) -> Vec<String> {
    let (sender, receiver) = UnixDatagram::pair().expect("a pair of sockets");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for byte in input.chunks(1).chain([&b""[..]]) {
                sender.send(byte).expect("send a byte");
            }
        });
        fates(pipeline, &mut Bytes::Descriptor(receiver.as_fd()), limits, || {})
    })
}

fn whole(pipeline: &Pipeline, input: &[u8]) -> Vec<String> {
    let limits = Limits { batch_bytes: 1 << 22, ..pipeline.limits(0) };
    fates(pipeline, &mut Bytes::Stream(Box::new(input)), limits, || {})
}

/// The case with its long line cut short, so that all of its boundaries can be tried, and with lines about as long
/// as is allowed.
fn small_case() -> Vec<u8> {
    let input = file(&format!("{CASE}/input.bin"));
    let long = input.windows(200).position(|window| window == [b'A'; 200]).expect("the long line");
    let end = long + input[long..].iter().position(|byte| *byte != b'A').expect("its end");
    let mut small = [&input[..long + 20], &input[end..]].concat();
    small.push(b'\n');
    for (length, line_end) in
        [(1023, "\r\n"), (1024, "\r\n"), (1024, "\n"), (1025, "\n"), (1025, "\r\n"), (3000, "\r\n")]
    {
        small.extend_from_slice(format!("{{\"n\":\"{}\"}}{line_end}", "x".repeat(length - 8)).as_bytes());
    }
    small.extend_from_slice(format!("\u{feff}{{\"n\":\"{}\"}}\r\n", "y".repeat(1024 - 8)).as_bytes());
    small.extend_from_slice(b"{\"n\":\"after\"}\n{\"n\":\"last\"}");
    small
}

#[test]
fn a_cut_at_any_boundary_changes_nothing() {
    let (input, pipeline) = (small_case(), plan("\"json\"\nline_bytes_max = 1024", ""));
    let want = whole(&pipeline, &input);
    assert_eq!(want.len(), 18 + 9);
    // handed over at the first whole line after the cut; everything odd stands at the beginning, and at line ends
    let odd = |at: &usize| {
        *at < 700 || at.is_multiple_of(31) || input[at.saturating_sub(6)..].iter().take(12).any(|b| *b == b'\n')
    };
    for at in (1..=input.len()).filter(odd) {
        let limits = Limits { batch_bytes: at, line_bytes_max: 1024, rule: None, ramp: Ramp::from(1) };
        assert_eq!(fates(&pipeline, &mut Bytes::Stream(Box::new(&input[..])), limits, || {}), want, "cut at {at}");
    }
    for batch_bytes in [1, 1000, 1024, 1100, 1 << 20] {
        let limits = Limits { batch_bytes, line_bytes_max: 1024, rule: None, ramp: Ramp::from(1) };
        assert_eq!(fates_of_bytes(&pipeline, &input, limits), want, "byte by byte, {batch_bytes} handed over");
    }
}

#[test]
fn a_source_that_pauses_anywhere_changes_nothing() {
    let (input, pipeline) = (small_case(), plan("\"json\"\nline_bytes_max = 1024", ""));
    let want = whole(&pipeline, &input);
    for at in [10, 100, 200, 330, 600] {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let (taken, paused) = mpsc::channel();
        let rest = input.clone();
        let feeder = std::thread::spawn(move || {
            use std::io::Write;
            writer.write_all(&rest[..at]).expect("write the beginning");
            // the whole lines of the beginning are handed over without waiting for more
            if rest[..at].contains(&b'\n') {
                paused.recv().expect("a block");
            }
            writer.write_all(&rest[at..]).expect("write the rest");
        });
        let limits = Limits { batch_bytes: 1 << 20, line_bytes_max: 1024, rule: None, ramp: Ramp::from(1) };
        let got =
            fates(&pipeline, &mut Bytes::Descriptor(reader.as_fd()), limits, || taken.send(()).unwrap_or_default());
        feeder.join().expect("the feeder");
        assert_eq!(got, want, "pause at {at}");
    }
}

/// Lines that reach far into codecs and filters, and bytes that do not.
fn lines_of_all_kinds() -> impl Strategy<Value = Vec<u8>> {
    let value = prop_oneof![
        Just("null".to_owned()),
        Just("\"2026-03-01T10:00:00Z\"".to_owned()),
        Just("1772359200".to_owned()),
        Just("{\"k\":[1,{\"k\":2}]}".to_owned()),
        Just("[\"a\",\"a\"]".to_owned()),
        Just("\"\\ud800\\u0000\"".to_owned()),
        Just("-0.0e-400".to_owned()),
        "\"[a-z |%{}\\[\\]]{0,8}\"",
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
    ];
    let key = prop::sample::select(vec!["@timestamp", "@metadata", "tags", "message", "a", "a", "b", "", "[a][b]"]);
    let object = prop::collection::vec((key, value), 0..5).prop_map(|pairs| {
        format!("{{{}}}", pairs.iter().map(|(k, v)| format!("\"{k}\":{v}")).collect::<Vec<_>>().join(","))
    });
    let line = prop_oneof![
        4 => object.clone().prop_map(String::into_bytes),
        1 => prop::collection::vec(object.clone(), 0..3).prop_map(|all| format!("[{}]", all.join(",")).into_bytes()),
        2 => (object, any::<prop::sample::Index>(), any::<u8>()).prop_map(|(text, at, byte)| {
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        }),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    let end = prop::sample::select(vec!["\n", "\r\n", "\n\n", "\n\u{feff}"]);
    prop::collection::vec((line, end), 0..12)
        .prop_map(|lines| lines.iter().flat_map(|(line, end)| [line.as_slice(), end.as_bytes()].concat()).collect())
}

const FILTERS: &str = r#"
[[filter]]
type = "json"
source = "message"
target = "[a][doc]"
when = '[message] =~ /k/ or [a] in [tags] or [b] > 3'
[[filter]]
type = "date"
match = ["a", "ISO8601", "UNIX_MS", "UNIX"]
add_tag = ["at-%{b}"]
[[filter]]
type = "fingerprint"
source = ["a", "b"]
concatenate_sources = true
target = "[@metadata][f]"
[[filter]]
type = "mutate"
convert = { a = "string", b = "integer" }
rename = { "[a][k]" = "[k][%{b}]" }
split = { message = " " }
merge = { tags = "a" }
add_field = { "[c][%{a}]" = "%{+yyyy} %{[@metadata][f]}" }
remove_field = ["b"]
[[filter]]
type = "drop"
percentage = 20
"#;

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_have_one_fate_each(input in lines_of_all_kinds(), batch_bytes in 1usize..200) {
        for codec in ["\"json\"", "\"plain\"", "{ type = \"json\", on_error = \"tag\" }", "{ type = \"plain\", charset = \"windows-1252\" }"] {
            let pipeline = plan(codec, FILTERS);
            let want = whole(&pipeline, &input);
            let lines = input.split(|byte| *byte == b'\n').count() - usize::from(input.is_empty() || input.ends_with(b"\n"));
            if codec.contains("plain") {
                prop_assert_eq!(want.len(), lines);
            } else {
                prop_assert!(want.len() >= lines);
            }
            let limits = Limits { batch_bytes, ..pipeline.limits(0) };
            prop_assert_eq!(fates_of_bytes(&pipeline, &input, limits), want);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_explain_says_is_what_run_stores(input in lines_of_all_kinds()) {
        let onceline = Onceline::new(&pipeline("\"json\"", &format!("{MISSING_NOW}\n{FILTERS}"), SQLITE)).args(&["--now", NOW]);
        let explained = onceline.explain(&input);
        let run = onceline.run(&input).settled();
        let delivered = explained.iter().filter(|line| line["outcome"] == "deliver");
        let mut want: Vec<String> =
            delivered.map(|line| format!("{} {} {}", line["index"], line["id"], line["event"])).collect();
        want.sort();
        prop_assert_eq!(run.count("created"), want.len() as u64);
        prop_assert_eq!(run.count("events_in"), explained.len() as u64);
        let rows = onceline.rows("out.sqlite");
        let mut got: Vec<String> =
            rows.iter().map(|row| format!("{} {} {}", json!(row.index), json!(row.id), row.source)).collect();
        got.sort();
        prop_assert_eq!(got, want);
    }
}
