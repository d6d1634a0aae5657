//! `onceline check`: what a pipeline will do, in words, and which of its choices defeat deduplication.

use std::fmt::Write;
use std::path::Path;

use super::read::Plan;
use super::{InputKind, Pipeline};
use crate::config::{bytes_text, duration_words};
use crate::input::file;
use crate::output::Config;
use crate::stamp::Missing;
use crate::template::Unit;

/// Names that hold something else when the same event is read again: the time it arrived, or the machine and the
/// file it came by.
const CHANGING: &[&str] = &[
    "[host]",
    "[hostname]",
    "[agent]",
    "[beat]",
    "[collector]",
    "[ingest_time]",
    "[ingested_at]",
    "[received_at]",
    "[event][ingested]",
    "[event][created]",
    "[@version]",
    "[path]",
    "[offset]",
    "[log][offset]",
    "[log][file]",
    "[tags]",
];

/// What `check` prints for one pipeline.
pub fn describe(path: &Path, plan: &Plan) -> String {
    let mut out = String::new();
    let pipeline = &plan.pipeline;
    let mut line = |name: &str, text: String| {
        // writing to a String cannot fail
        let _ = writeln!(out, "  {name:<12} {text}");
    };
    for input in &pipeline.inputs {
        let longest = bytes_text(input.line_bytes_max as u64);
        let from = match &input.kind {
            InputKind::Stdin => "standard input until it is closed".to_string(),
            InputKind::File(config) => file_words(config),
        };
        let records = input.codec.rule().map_or_else(String::new, |rule| rule.words());
        line("reads", format!("{from}, codec {}{records}, lines up to {longest}", input.codec.name()));
    }
    for step in &pipeline.steps {
        let when = step.when.as_ref().map_or_else(String::new, |when| format!(" when {}", when.as_str()));
        line("then", format!("{}{when}", step.label));
    }
    line("time", time_words(pipeline));
    line("id", plan.choice.definition.clone());
    line("hashes", hashed_words(plan));
    line("index", index_words(plan));
    line("writes", pipeline.output.words());
    line("dead letters", pipeline.letters.display().to_string());
    line("state", pipeline.state.display().to_string());
    if let Some(place) = pipeline.positions_words() {
        line("positions", place);
    }
    let mut said = format!("{}: good\n{out}", path.display());
    for warning in warnings(plan) {
        let _ = writeln!(said, "  warning: {warning}");
    }
    said
}

fn file_words(config: &file::Config) -> String {
    let paths = config.paths.join(", ");
    let Some(follow) = &config.follow else { return format!("the files {paths} to their ends") };
    let from = if follow.from_end {
        "from their ends on, if they are there at the first start"
    } else {
        "from their beginnings"
    };
    format!("the files {paths} {from}, as they grow; with --once to their ends")
}

fn time_words(pipeline: &Pipeline) -> String {
    let stamp = &pipeline.stamp;
    let secs = |secs: i64| duration_words(std::time::Duration::from_secs(secs.unsigned_abs()));
    let past = stamp.past_secs.map_or_else(|| "any time back".to_string(), |past| format!("{} back", secs(past)));
    let future = stamp.future_secs.map_or_else(String::new, |future| format!(" and {} ahead", secs(future)));
    let missing = match stamp.missing {
        Missing::DeadLetter => "without one an event is a dead letter",
        Missing::Now => "without one an event gets the present time",
    };
    format!("@timestamp, accepted {past}{future}; {missing}")
}

fn hashed_words(plan: &Plan) -> String {
    let choice = &plan.choice;
    if choice.raw {
        let repeats = if choice.keep { ", and its place in the source" } else { "" };
        return format!("the record as it was read{repeats}");
    }
    if choice.source.is_empty() {
        return "nothing: ids are not made of a digest".to_string();
    }
    let names: Vec<&str> = choice.source.iter().map(|field| field.as_str()).collect();
    let repeats = if choice.keep { ", and the record's place in the source" } else { "" };
    format!("{}{repeats}", names.join(", "))
}

fn index_words(plan: &Plan) -> String {
    let by = match plan.index.unit() {
        None => "by nothing of the time".to_string(),
        Some(unit) => format!("a new one each {}, by the event's own time in UTC", name(unit)),
    };
    let strict =
        if plan.strict { "strict: what would break the promise of no duplicates is refused" } else { "not strict" };
    format!("{}, {by}; {strict}", plan.index.as_str())
}

fn warnings(plan: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    let choice = &plan.choice;
    let used = choice.source.iter().chain(plan.pipeline.ids.fields());
    for field in used {
        let path = field.canonical();
        let steps = plan.pipeline.steps.iter();
        if let Some(step) = steps.rev().find(|s| s.filter.random().is_some_and(|random| random.canonical() == path)) {
            out.push(format!(
                "the id depends on {field}, which {} fills at random: an event that is read again is stored again",
                step.label
            ));
        }
        if CHANGING.iter().any(|changing| path == *changing || path.starts_with(&format!("{changing}["))) {
            out.push(format!(
                "the id depends on {field}, which may be another when the same event is read again by another host or \
                 at another time: then it is stored twice"
            ));
        }
    }
    if choice.rule_assumed {
        out.push(
            "several fields are hashed by the rule `v1`, since [id] does not say one; ids that Logstash made need \
             `serialization = \"logstash-3.5\"` or \"logstash-3.4\""
                .to_string(),
        );
    }
    if plan.pipeline.stamp.missing == Missing::Now {
        out.push(
            "an event without a time gets the present one, so a replay stores it again under another id and perhaps \
             in another index"
                .to_string(),
        );
    }
    if !choice.repeatable {
        out.push("the ids do not follow from the events: a replay stores them again".to_string());
    }
    out.extend(choice.odds.clone());
    out.extend(index_warnings(plan));
    out
}

fn index_warnings(plan: &Plan) -> Vec<String> {
    let mut out = crate::index::week_traps(&plan.index);
    let unit = plan.index.unit();
    if let Some(unit @ (Unit::Minute | Unit::Second | Unit::Fraction)) = unit {
        let month = if unit == Unit::Minute { " (`mm` is the minute, `MM` the month)" } else { "" };
        out.push(format!("the index name changes every {}{month}: that makes very many small indices", name(unit)));
    }
    let Some(retention) = plan.retention else { return out };
    let kept = retention.as_secs() / 86_400;
    match unit {
        Some(Unit::Hour) if kept > 7 => out.push(format!(
            "an index an hour kept for {kept} days makes {} indices: a day each is usual for more than a week",
            kept * 24
        )),
        Some(Unit::Day) if kept > 400 => out.push(format!(
            "an index a day kept for {kept} days makes as many indices: a month each is usual for more than a year"
        )),
        Some(unit @ (Unit::Week | Unit::Month | Unit::Year)) if kept < 2 * days(unit) => out.push(format!(
            "an index a {} is deleted whole, so events kept for {kept} days stay up to a {} longer: take a finer name",
            name(unit),
            name(unit)
        )),
        None if kept > 0 => out.push(format!(
            "events are kept for {kept} days, but the index name does not depend on the time, so old ones cannot be \
             deleted with their index"
        )),
        _ => {}
    }
    out
}

fn name(unit: Unit) -> &'static str {
    match unit {
        Unit::Fraction => "fraction of a second",
        Unit::Second => "second",
        Unit::Minute => "minute",
        Unit::Hour => "hour",
        Unit::Day => "day",
        Unit::Week => "week",
        Unit::Month => "month",
        Unit::Year => "year",
    }
}

fn days(unit: Unit) -> u64 {
    match unit {
        Unit::Year => 365,
        Unit::Month => 30,
        Unit::Week => 7,
        _ => 1,
    }
}

impl Config {
    /// The output in words, without secrets.
    pub fn words(&self) -> String {
        let action = self.action().as_str();
        match self {
            Config::Elasticsearch(config) => format!("to {} by {action}", config.words()),
            Config::Sqlite(config) => format!("to the SQLite file {} by {action}", config.path.display()),
            Config::Ndjson { path: Some(path), .. } => format!("bulk lines ({action}) to {}", path.display()),
            Config::Ndjson { path: None, .. } => format!("bulk lines ({action}) to standard output"),
            Config::Stdout => "events to standard output".to_string(),
        }
    }
}
