//! A pipeline file's sections as a [`Pipeline`], with everything `check` needs to speak of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cases::{self, Case};
use super::{Input, InputKind, Pipeline, Tuning};
use crate::batch::HEAD;
use crate::codec::{self, Codec, json, multiline, plain};
use crate::config::{self, Help, Report, Section};
use crate::filter::{self, Step};
use crate::id::Choice;
use crate::index::{BadName, Route};
use crate::input;
use crate::input::location::{self, Location};
use crate::output;
use crate::stamp::{Missing, Stamp};
use crate::template::Template;
use crate::time::Time;

/// What the command line says about every pipeline.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub sets: Vec<String>,
    pub once: bool,
    pub now: Option<Time>,
    pub state: Option<PathBuf>,
    pub from_start: bool,
    /// It replaces a pipeline that runs, and goes on where that came to.
    pub again: bool,
}

/// A pipeline with what is said about it.
pub struct Plan {
    pub pipeline: Pipeline,
    pub choice: Said,
    pub index: Template,
    pub strict: bool,
    /// How long indices are kept, as far as it was said.
    pub retention: Option<Duration>,
    /// What it says of itself, see [`cases`].
    pub cases: Vec<Case>,
}

/// What is left of the `[id]` section to speak of.
pub struct Said {
    pub definition: String,
    pub repeatable: bool,
    pub source: Vec<crate::field::FieldRef>,
    pub raw: bool,
    pub rule_assumed: bool,
    pub keep: bool,
    pub odds: Option<String>,
}

/// Reads a pipeline file: the plan if nothing is wrong, and what is to be said of it.
pub fn read(
    path: &Path,
    text: &[u8],
    options: &Options,
    env: &dyn Fn(&str) -> Option<String>,
) -> (Option<Plan>, Report) {
    let shown = path.display().to_string();
    let names = |text: &[u8]| memchr::memmem::find(text, location::NAMED.as_bytes()).is_some();
    let located = names(text) || options.sets.iter().any(|set| names(set.as_bytes()));
    config::read(&shown, text, &options.sets, env, |root| plan(root, path, options, located))
}

fn plan(root: &Section<'_>, path: &Path, options: &Options, located: bool) -> Option<Plan> {
    let inputs = inputs(root, options, located);
    let steps = steps(root);
    let id = root.table_or_empty("id");
    let (rate, size) = (crate::id::odds::EVENTS_PER_SECOND_ASSUMED, crate::id::odds::EVENTS_IN_INDEX_ASSUMED);
    let rate = id.float("events_per_second", 0.001..=1e9).or(rate);
    let choice = Choice::read(&id, rate, size / crate::id::odds::EVENTS_PER_SECOND_ASSUMED * rate);
    let stamp = stamp(root.table_or_empty("time"));
    let index = root.table_or_empty("index");
    let name = index.parsed("name", Template::parse_stable).required();
    let strict = index.bool("strict").or(true);
    let bad_name = [("dead-letter", BadName::DeadLetter), ("repair", BadName::Repair)];
    let bad_name = index.one_of("bad_name", &bad_name).or(BadName::DeadLetter);
    let retention = index.duration("retention", Duration::from_secs(3600)..).optional();
    let out = root.table_or_empty("output");
    let output = output::Config::read(&out);
    out.finish();
    let (letters, letters_bytes_max, letters_age_max) = dead_letter(root.table_or_empty("dead_letter"));
    let state = state_path(root.table_or_empty("state"));
    let tuning = tuning(root.table_or_empty("tuning"));
    let cases = cases::read(root);
    if let Some(choice) = &choice {
        refuse_unstrict(&id, choice, strict);
    }
    if let Some(name) = &name {
        refuse_bad_name(&index, name, bad_name);
    }
    id.finish();
    index.finish();
    let (choice, name, output) = (choice?, name?, output?);
    let state = options.state.clone().or(state).unwrap_or_else(|| default_state(path));
    let letters = letters.unwrap_or_else(|| state.join("dead-letters.ndjson"));
    let Choice { ids, definition, repeatable, source, raw, rule_assumed, keep, odds } = choice;
    let ids = match (&output, ids) {
        // there is no engine to make ids
        (output::Config::Sqlite(_), crate::id::Ids::Auto) => crate::id::Ids::sortable_uuid(),
        (_, ids) => ids,
    };
    let ordered = !raw && repeatable && output.action() == output::Action::Index;
    let pipeline = Pipeline {
        name: stem(path),
        inputs: inputs?,
        steps: steps?,
        stamp,
        ids,
        route: Route::new(name.clone(), bad_name),
        ordered,
        by_place: keep,
        strict,
        index_pattern: crate::index::pattern(&name),
        output,
        letters,
        letters_bytes_max,
        letters_age_max,
        spool: state.join("spool").join(stem(path)),
        state,
        from_start: options.from_start && !options.again,
        tuning,
        now: options.now,
    };
    let choice = Said { definition, repeatable, source, raw, rule_assumed, keep, odds };
    let retention = retention.or(pipeline.stamp.past_secs.map(|past| Duration::from_secs(past.unsigned_abs())));
    Some(Plan { pipeline, choice, index: name, strict, retention, cases: cases? })
}

/// The inputs; events of files say where they begin if the pipeline asks (`located`).
fn inputs(root: &Section<'_>, options: &Options, located: bool) -> Option<Vec<Input>> {
    let tables = root.tables("input").required()?;
    let mut inputs = Vec::new();
    let mut earlier = Vec::new();
    let mut stdin = 0;
    for t in tables {
        let kind = t.one_of("type", &[("stdin", true), ("file", false)]).required();
        let kind = match kind {
            Some(true) => {
                stdin += 1;
                if stdin > 1 {
                    t.fail_at("type", "standard input can be read by one input only", ());
                }
                Some(InputKind::Stdin)
            }
            Some(false) => files(&t, options).map(|mut files| {
                files.earlier.clone_from(&earlier);
                let (paths, exclude) = (files.paths.clone(), files.exclude.clone());
                earlier.push(input::file::Earlier { input: inputs.len(), paths, exclude });
                InputKind::File(files)
            }),
            None => None,
        };
        let stores = matches!(kind, Some(InputKind::File(_))) && t.bool("add_location").or(false);
        let location = Location::new(located, stores);
        let codec = codec(&t);
        let line_bytes_max = t.bytes("line_bytes_max", HEAD as u64..=256 << 20).or(1 << 20) as usize;
        match (kind, codec) {
            (Some(kind), Some(codec)) => inputs.push(Some(Input { kind, codec, line_bytes_max, location })),
            (None, _) => {
                t.skip_rest();
                inputs.push(None);
            }
            _ => inputs.push(None),
        }
        t.finish();
    }
    inputs.into_iter().collect()
}

fn files(t: &Section<'_>, options: &Options) -> Option<input::file::Config> {
    let paths = t.texts("paths").required();
    let exclude = t.texts("exclude").or_default();
    for (key, patterns) in [("paths", paths.as_deref().unwrap_or_default()), ("exclude", &exclude)] {
        for pattern in patterns {
            if let Err(error) = glob::Pattern::new(pattern) {
                t.fail_quoting(key, format!("`{pattern}` is not a pattern: {}", error.msg), ());
            }
        }
    }
    let follow = follow(t);
    let paths = paths?;
    if paths.is_empty() {
        t.fail_at("paths", "no path is given", ());
    }
    let follow = (!options.once).then_some(follow);
    Some(input::file::Config { paths, exclude, follow, earlier: Vec::new() })
}

/// How files are followed; looked at with `--once` too, so that a pipeline file is right or wrong in itself.
fn follow(t: &Section<'_>) -> input::follow::Config {
    let second = Duration::from_secs(1);
    input::follow::Config {
        from_end: t.one_of("read_from", &[("beginning", false), ("end", true)]).or(false),
        poll_interval: t.duration("poll_interval", Duration::from_millis(10)..=3600 * second).or(second),
        open_files_max: t.integer("open_files_max", 1..=1_000_000).or(512),
        close_after: t.duration("close_after", second..).or(300 * second),
        idle_flush: t.duration("idle_flush", Duration::from_millis(100)..).optional(),
    }
}

type BuildCodec = fn(&Section<'_>) -> Option<Box<dyn Codec>>;

/// Every codec, by its `type`.
const CODECS: &[(&str, BuildCodec)] = &[
    ("plain", |t| {
        let charset = t.text("charset").optional();
        match plain::Plain::build(charset.as_deref()) {
            Ok(plain) => Some(Box::new(plain)),
            Err(why) => {
                t.fail_quoting("charset", why, ());
                None
            }
        }
    }),
    ("json", json_codec),
    // lines of JSON is what `json` reads here; Logstash has a codec for each
    ("json_lines", json_codec),
    ("csv", |t| match filter::csv::Csv::build(filter::csv::Config::read_columns(t)) {
        Ok(reading) => Some(Box::new(codec::csv::Csv::new(reading))),
        Err(why) => {
            t.fail_quoting("separator", why, ());
            None
        }
    }),
    ("multiline", |t| multiline::Multiline::read(t).map(|multiline| Box::new(multiline) as Box<dyn Codec>)),
    ("cef", cef_codec),
    ("logfmt", |_| Some(Box::new(codec::logfmt::Logfmt::default()))),
    ("syslog", |t| Some(Box::new(codec::syslog::Syslog::build(&codec::syslog::Config::read(t))))),
];

fn cef_codec(t: &Section<'_>) -> Option<Box<dyn Codec>> {
    match codec::cef::Cef::build(codec::cef::Config::read(t)) {
        Ok(cef) => Some(Box::new(cef)),
        Err(why) => {
            t.fail_quoting("locale", why, ());
            None
        }
    }
}

fn json_codec(t: &Section<'_>) -> Option<Box<dyn Codec>> {
    let choices = [("dead-letter", json::OnError::DeadLetter), ("tag", json::OnError::Tag)];
    let on_error = t.one_of("on_error", &choices).or(json::OnError::DeadLetter);
    let fields_max = t.integer("fields_max", 1..=1_000_000).or(crate::json::FIELDS_MAX);
    Some(Box::new(json::Json::new(on_error, fields_max)))
}

/// The codec of an input; without one, `plain`.
fn codec(t: &Section<'_>) -> Option<Box<dyn Codec>> {
    if !t.has("codec") {
        return plain::Plain::build(None).ok().map(|plain| Box::new(plain) as Box<dyn Codec>);
    }
    let c = t.component("codec").required()?;
    let codec = match c.one_of("type", CODECS).required() {
        Some(build) => build(&c),
        None => {
            c.skip_rest();
            None
        }
    };
    c.finish();
    codec
}

fn steps(root: &Section<'_>) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    for t in root.tables("filter").or_default() {
        steps.push(filter::read(&t));
        t.finish();
    }
    steps.into_iter().collect()
}

fn stamp(t: Section<'_>) -> Stamp {
    let missing = [("dead-letter", Missing::DeadLetter), ("now", Missing::Now)];
    let missing = t.one_of("missing", &missing).or(Missing::DeadLetter);
    let past = t.duration("past", Duration::ZERO..).optional();
    let future = t.duration("future", Duration::ZERO..).or(Duration::from_secs(86_400));
    t.finish();
    let secs = |d: Duration| i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
    Stamp { missing, past_secs: past.map(secs), future_secs: Some(secs(future)) }
}

fn state_path(t: Section<'_>) -> Option<PathBuf> {
    let path = t.path("path").optional();
    t.finish();
    path
}

fn dead_letter(t: Section<'_>) -> (Option<PathBuf>, u64, Option<Duration>) {
    let path = t.path("path").optional();
    let bytes_max = t.bytes("bytes_max", 4096..=1 << 50).or(1 << 30);
    let age_max = t.duration("age_max", Duration::from_secs(1)..=Duration::from_secs(100 * 365 * 86_400)).optional();
    t.finish();
    (path, bytes_max, age_max)
}

fn tuning(t: Section<'_>) -> Tuning {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let tuning = Tuning {
        workers: t.integer("workers", 1..=256).or(cores),
        batch_bytes: t.bytes("batch_bytes", 4096..=64 << 20).or(1 << 20) as usize,
        bytes_in_flight_max: t.bytes("bytes_in_flight_max", 1 << 20..=1 << 36).or(64 << 20) as usize,
        drain_max: t.duration("drain_max", Duration::ZERO..=Duration::from_secs(86_400)).or(Duration::from_secs(30)),
    };
    t.finish();
    tuning
}

/// Ids that a second reading does not find again are no promise of no duplicates.
fn refuse_unstrict(id: &Section<'_>, choice: &Choice, strict: bool) {
    if strict && !choice.repeatable {
        let note = "set `strict = false` in [index] to take duplicates on a replay, or take a scheme that follows from \
                    the event: time-hash, compact, hash or field";
        let key = if id.has("method") && !id.has("version") && choice.definition.starts_with("time") {
            "method"
        } else {
            "scheme"
        };
        let message = "a replay would store the same event under another id, and [index] strict promises no duplicates";
        id.fail_at(key, message, Help::default().note(note));
    }
}

/// What no event can make legal is told at once: the fixed parts of the name, with something plain for the rest.
fn refuse_bad_name(index: &Section<'_>, name: &Template, bad_name: BadName) {
    let filled = crate::index::pattern(name).replace('*', "0");
    if let Err(why) = crate::index::legal(&filled)
        && (bad_name == BadName::DeadLetter || name.is_constant())
    {
        index.fail_quoting("name", format!("no engine takes this index name: it {why}"), ());
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "pipeline".to_string(), |stem| stem.to_string_lossy().into_owned())
}

/// Where a pipeline keeps its state unless told: in the user's state folder, by the file's name and place.
fn default_state(path: &Path) -> PathBuf {
    let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let digest = <sha2::Sha256 as sha2::Digest>::digest(place.to_string_lossy().as_bytes());
    let name = format!("{}-{}", stem(path), hex::encode(&digest[..4]));
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|base| base.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    base.or_else(home).unwrap_or_else(|| PathBuf::from(".")).join("onceline").join(name)
}
