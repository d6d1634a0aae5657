//! `onceline test`: the cases of a pipeline, and what is different from what they say.
//!
//! ```toml
//! [[test]]
//! name   = "a request"
//! input  = '192.0.2.7 - - [12/Mar/2026:10:00:00 +0100] "GET /a HTTP/1.1" 200 5 "-" "curl/8"'
//! fields = { verb = "GET", response = 200 }
//! index  = "apache-2026.03.12"
//!
//! [[test]]
//! name   = "what is no request, and a health check"
//! input  = ["oh", '- - - [12/Mar/2026:10:00:00 +0100] "GET /healthz HTTP/1.1" 200 2 "-" "-"']
//! expect = [{ dead_letter = "no-timestamp" }, { dropped = true }]
//! ```
//!
//! They stand in the pipeline file, or beside it: those of `apache.toml` in `apache.test.toml`.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::explain::{self, Answer, Show};
use super::{Pipeline, pretty};
use crate::ack::Reason;
use crate::config::{self, Report, Section};
use crate::field::FieldRef;
use crate::time::Time;

/// How the name of a file of cases ends.
const BESIDE: &str = ".test.toml";

/// A `[[test]]`.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    /// Which of the pipeline's inputs decodes the lines.
    input: usize,
    text: Vec<u8>,
    /// The file that the lines are taken to be of.
    path: Option<String>,
    now: Option<Time>,
    expected: Events,
}

#[derive(Debug)]
enum Events {
    /// Each event there is.
    Each(Expected),
    /// So many, in this order.
    Listed(Vec<Expected>),
}

/// What is said of an event.
#[derive(Debug)]
struct Expected {
    outcome: Outcome,
    fields: Vec<(FieldRef, Value)>,
    absent: Vec<FieldRef>,
    /// All of it.
    event: Option<Value>,
    tags: Option<Vec<String>>,
    id: Option<String>,
    index: Option<String>,
}

#[derive(Debug, PartialEq)]
enum Outcome {
    Deliver,
    Drop,
    DeadLetter(Reason),
}

/// The cases in a file; none if one is wrong.
pub fn read(root: &Section<'_>) -> Option<Vec<Case>> {
    let tables = root.tables("test").or_default();
    let cases: Vec<_> = tables.into_iter().enumerate().map(|(at, t)| Case::read(&t, at + 1)).collect();
    cases.into_iter().collect()
}

/// Where the cases beside a pipeline file stand, if there are any.
pub fn beside(pipeline: &Path) -> PathBuf {
    pipeline.with_extension(BESIDE.trim_start_matches('.'))
}

/// The pipeline file that a file of cases stands beside; none for any other file.
pub fn pipeline_of(path: &Path) -> Option<PathBuf> {
    let stem = path.file_name()?.to_str()?.strip_suffix(BESIDE)?;
    Some(path.with_file_name(format!("{stem}.toml")))
}

/// The cases of a file that holds nothing else.
pub fn read_file(path: &Path, text: &[u8]) -> (Option<Vec<Case>>, Report) {
    config::read(&path.display().to_string(), text, &[], &config::process_env, read)
}

impl Case {
    fn read(t: &Section<'_>, number: usize) -> Option<Case> {
        let name = t.text("name").or(format!("test {number}"));
        let input = t.integer("input_number", 0..=1000).or(0);
        let lines = t.texts("input").required();
        let path = t.text("path").optional();
        let now = t.parsed("now", |text| Time::rfc3339(text.as_bytes()).ok_or("not a time as 2026-03-01T12:00:00Z"));
        let now = now.optional();
        let expected = if t.has("expect") {
            let listed = t.item("expect").required().and_then(|item| item.tables());
            listed.and_then(|each| each.iter().map(Expected::read).collect::<Option<_>>()).map(Events::Listed)
        } else {
            Expected::read(t).map(Events::Each)
        };
        let mut text = Vec::new();
        for line in lines? {
            text.extend_from_slice(line.strip_suffix('\n').unwrap_or(&line).as_bytes());
            text.push(b'\n');
        }
        Some(Case { name, input, text, path, now, expected: expected? })
    }

    /// What is different from what is said, a line each; none if the case holds.
    pub fn differences(&self, pipeline: &mut Pipeline) -> io::Result<Vec<String>> {
        if self.input >= pipeline.inputs.len() {
            return Ok(vec![format!("the pipeline has no input {}, they count from 0", self.input)]);
        }
        let now = pipeline.now;
        pipeline.now = self.now.or(now);
        let show = Show { metadata: true, ..Show::default() };
        let answers = explain::answers(pipeline, self.input, &self.text, self.path.as_deref(), show);
        pipeline.now = now;
        Ok(self.expected.differences(&answers?))
    }
}

impl Events {
    fn differences(&self, answers: &[Answer]) -> Vec<String> {
        let count = answers.len();
        let expected: Vec<&Expected> = match self {
            Events::Each(_) if count == 0 => return vec!["the input makes no event".to_string()],
            Events::Each(expected) => vec![expected; count],
            Events::Listed(listed) => listed.iter().collect(),
        };
        let mut differences = Vec::new();
        if expected.len() != count {
            differences.push(format!("the input makes {count} events, not {}", expected.len()));
        }
        for (number, (answer, expected)) in answers.iter().zip(expected).enumerate() {
            let of = if count > 1 { format!("event {}: ", number + 1) } else { String::new() };
            differences.extend(expected.differences(answer).into_iter().map(|difference| of.clone() + &difference));
        }
        differences
    }
}

impl Expected {
    fn read(t: &Section<'_>) -> Option<Expected> {
        let field = |text: &str| FieldRef::parse(text);
        let outcome = match (t.bool("dropped").or(false), t.one_of("dead_letter", &reasons()).optional()) {
            (true, Some(_)) => {
                t.fail_at("dropped", "an event that is dropped is no dead letter", ());
                return None;
            }
            (true, None) => Outcome::Drop,
            (false, Some(reason)) => Outcome::DeadLetter(reason),
            (false, None) => Outcome::Deliver,
        };
        let mut fields = Vec::new();
        for entry in t.entries("fields").or_default() {
            fields.extend(entry.parsed_key(field).zip(entry.value.json()));
        }
        let absent = t.parsed_each("absent", field).or_default();
        let event = t.item("event").optional().and_then(|item| item.json());
        let (tags, id, index) = (t.texts("tags").optional(), t.text("id").optional(), t.text("index").optional());
        Some(Expected { outcome, fields, absent, event, tags, id, index })
    }

    fn differences(&self, answer: &Answer) -> Vec<String> {
        let mut found = Vec::new();
        self.outcome_of(answer, &mut found);
        let event = parsed(&answer.event);
        let metadata = answer.metadata.as_deref().map_or(Value::Null, parsed);
        let at = |field: &FieldRef| find(if field.is_metadata() { &metadata } else { &event }, field.path());
        for (field, expected) in &self.fields {
            compare(&field.canonical(), at(field), expected, &mut found);
        }
        for field in &self.absent {
            if let Some(value) = at(field) {
                found.push(format!("{} is {}, not missing", field.canonical(), pretty::shown(value)));
            }
        }
        if let Some(expected) = &self.event {
            compare_all("", &event, expected, &mut found);
        }
        if let Some(expected) = &self.tags {
            let tags = match event.get("tags") {
                Some(tag @ Value::String(_)) => vec![tag.clone()],
                Some(Value::Array(tags)) => tags.clone(),
                _ => Vec::new(),
            };
            compare("[tags]", Some(&Value::from(tags)), &Value::from(expected.clone()), &mut found);
        }
        let id = answer.id.as_deref().map(String::from_utf8_lossy);
        for (what, is, expected) in [("id", id.as_deref(), &self.id), ("index", answer.index.as_deref(), &self.index)] {
            if let Some(expected) = expected {
                compare(what, is.map(Value::from).as_ref(), &Value::from(expected.as_str()), &mut found);
            }
        }
        found
    }

    fn outcome_of(&self, answer: &Answer, found: &mut Vec<String>) {
        let is = match (answer.outcome, &answer.reason) {
            ("deliver", _) => Outcome::Deliver,
            (_, Some((reason, _))) => Outcome::DeadLetter(*reason),
            _ => Outcome::Drop,
        };
        if is != self.outcome {
            let detail = answer.reason.as_ref().map_or(String::new(), |(_, detail)| format!(" ({detail})"));
            found.push(format!("it is {}{detail}, not {}", is.words(), self.outcome.words()));
        }
    }
}

impl Outcome {
    fn words(&self) -> String {
        match self {
            Outcome::Deliver => "delivered".to_string(),
            Outcome::Drop => "dropped".to_string(),
            Outcome::DeadLetter(reason) => format!("a dead letter `{reason}`"),
        }
    }
}

fn reasons() -> Vec<(&'static str, Reason)> {
    Reason::ALL.iter().map(|reason| (reason.as_str(), *reason)).collect()
}

/// A record that is no event is shown as text.
fn parsed(text: &[u8]) -> Value {
    serde_json::from_slice(text).unwrap_or(Value::Null)
}

fn find<'a>(event: &'a Value, path: &[Box<str>]) -> Option<&'a Value> {
    path.iter().try_fold(event, |value, name| match value {
        Value::Array(elements) => elements.get(name.parse::<usize>().ok()?),
        value => value.get(&**name),
    })
}

/// A table is compared by what is said of its members, anything else as a whole.
fn compare(name: &str, is: Option<&Value>, expected: &Value, found: &mut Vec<String>) {
    match (is, expected) {
        (None, expected) => found.push(format!("{name} is missing, not {}", pretty::shown(expected))),
        (Some(is @ Value::Object(_)), Value::Object(members)) => {
            for (member, expected) in members {
                compare(&format!("{name}[{member}]"), is.get(member), expected, found);
            }
        }
        (Some(is), expected) if !are_equal(is, expected) => {
            found.push(format!("{name} is {}, not {}", pretty::shown(is), pretty::shown(expected)));
        }
        _ => {}
    }
}

/// As [`compare`], and nothing else may be there.
fn compare_all(name: &str, is: &Value, expected: &Value, found: &mut Vec<String>) {
    let (Value::Object(there), Value::Object(members)) = (is, expected) else {
        return compare(name, Some(is), expected, found);
    };
    for (member, expected) in members {
        let name = format!("{name}[{member}]");
        match there.get(member) {
            Some(is) => compare_all(&name, is, expected, found),
            None => compare(&name, None, expected, found),
        }
    }
    for (member, value) in there.iter().filter(|(member, _)| !members.contains_key(*member)) {
        found.push(format!("{name}[{member}] is {}, not missing", pretty::shown(value)));
    }
}

/// Numbers are equal by what they say: 1 and 1.0 are.
fn are_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64() && (a.is_f64() || b.is_f64()),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| are_equal(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| are_equal(a, b)))
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;
    use crate::pipeline::read::{self, Options};

    const PIPELINE: &str = r#"
[[input]]
type = "stdin"
codec = "json"
[[filter]]
type = "drop"
when = "[level] == 'debug'"
[[filter]]
type = "split"
field = "parts"
when = "[parts]"
[[filter]]
type = "mutate"
add_field = { "[@metadata][day]" = "%{+EEE}" }
[id]
scheme = "time-hash"
method = "MD5"
[index]
name = "a-%{+yyyy}"
[output]
type = "stdout"
"#;

    /// What is different in each case of the text.
    fn check(tests: &str, want: &str) {
        let text = format!("{PIPELINE}{tests}");
        let (plan, report) = read::read(Path::new("a.toml"), text.as_bytes(), &Options::default(), &|_| None);
        let mut plan = plan.unwrap_or_else(|| panic!("{}", report.render(false)));
        let mut got = String::new();
        for case in &plan.cases {
            for difference in case.differences(&mut plan.pipeline).unwrap() {
                writeln!(got, "{}: {difference}", case.name).unwrap();
            }
        }
        assert_eq!(got, want, "{tests}");
    }

    #[test]
    fn what_holds_and_what_does_not() {
        let event =
            r#"'{"@timestamp":"2026-03-01T10:00:00Z","level":"info","n":1.0,"o":{"a":[1,2],"b":null},"tags":["x"]}'"#;
        let good = r#"fields = { level = "info", n = 1, o = { a = [1, 2] }, "[o][a][1]" = 2, "[@metadata][day]" = "Sun" }
            tags = "x"
            absent = ["x", "[o][c]"]
            id = "69a40e20abafc0f64ccee7ab5d1dbc6d238181f8"
            index = "a-2026""#;
        check(&format!("[[test]]\ninput = {event}\n{good}"), "");
        for (expected, want) in [
            ("fields = { level = 'warn' }", "[level] is \"info\", not \"warn\""),
            ("fields = { o = { c = 1 } }", "[o][c] is missing, not 1"),
            ("fields = { o = 1 }", "[o] is {\"a\":[1,2],\"b\":null}, not 1"),
            ("fields = { '[o][a][2]' = 1 }", "[o][a][2] is missing, not 1"),
            ("absent = 'level'", "[level] is \"info\", not missing"),
            ("tags = []", "[tags] is [\"x\"], not []"),
            ("id = ''", "id is \"69a40e20abafc0f64ccee7ab5d1dbc6d238181f8\", not \"\""),
            ("index = 'b'", "index is \"a-2026\", not \"b\""),
            ("dropped = true", "it is delivered, not dropped"),
            ("dead_letter = 'too-old'", "it is delivered, not a dead letter `too-old`"),
            (
                "now = '2026-02-01T00:00:00Z'",
                "it is a dead letter `too-new` (2026-03-01T10:00:00.000Z is too far ahead), not delivered",
            ),
        ] {
            check(&format!("[[test]]\nname = 'n'\ninput = {event}\n{expected}"), &format!("n: {want}\n"));
        }
        let all =
            "[[test]]\ninput = '{\"@timestamp\":\"2026-03-01T10:00:00Z\",\"o\":{\"a\":1}}'\nevent = { o = { b = 2 } }";
        check(
            all,
            "test 1: [o][b] is missing, not 2\ntest 1: [o][a] is 1, not missing\ntest 1: [@timestamp] is \"2026-03-01T10:00:00Z\", not missing\n",
        );
    }

    #[test]
    fn several_events() {
        let input = r#"input = ['{"@timestamp":"2026-03-01T10:00:00Z","parts":["a","b"]}', '{"level":"debug"}', 'no']"#;
        let listed = "expect = [{ fields = { parts = 'a' } }, { fields = { parts = 'c' } }, { dropped = true }, { dead_letter = 'bad-json' }]";
        let good = listed.replace("'c'", "'b'");
        check(&format!("[[test]]\n{input}\n{good}"), "");
        check(&format!("[[test]]\n{input}\n{listed}"), "test 1: event 2: [parts] is \"b\", not \"c\"\n");
        check(&format!("[[test]]\n{input}\nexpect = [{{}}]"), "test 1: the input makes 4 events, not 1\n");
        check("[[test]]\ninput = []", "test 1: the input makes no event\n");
        check("[[test]]\ninput_number = 1\ninput = '{}'", "test 1: the pipeline has no input 1, they count from 0\n");
    }
}
