//! `onceline dead-letters`: looks at a pipeline's dead letters, sends them again, or drops them.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use onceline::ack::letter_file::rewrite;
use onceline::ack::stored::{Claim, Lines, Stored};
use onceline::ack::{Reason, counted};
use onceline::config::printable;
use onceline::config::units::duration;
use onceline::output::{Phase, Phases};
use onceline::pipeline::read::{Options, Plan};
use onceline::pipeline::replay::{Replayed, replay};
use onceline::time::Time;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use crate::{DONE, PipelineArgs, UNSETTLED, WRONG, Weight, complain, load, options, parse_time, say};

#[derive(Subcommand)]
pub enum LettersCommand {
    /// Count the letters by reason and index
    #[command(after_help = "Example:\n  onceline dead-letters list app.toml")]
    List {
        #[command(flatten)]
        of: Of,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Print letters, indented
    #[command(after_help = "Examples:\n  onceline dead-letters show app.toml 3\n  \
            onceline dead-letters show app.toml --reason rejected")]
    Show {
        #[command(flatten)]
        of: Of,
        /// Which letter of the file, from 1 [default: all]
        #[arg(value_name = "N", conflicts_with = "reason")]
        number: Option<u64>,
        /// Only those with this reason
        #[arg(long, value_name = "REASON", value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Send letters through the pipeline as it is now
    #[command(
        long_about = "Sends letters through the pipeline as it is now, from the record as it was read. A letter is \
                      taken out of the file once its event is stored or dropped; one that fails again stays, with \
                      its count of attempts raised.",
        after_help = "Example:\n  onceline dead-letters replay app.toml --reason rejected"
    )]
    Replay {
        #[command(flatten)]
        of: Of,
        /// Only those with this reason
        #[arg(long, value_name = "REASON", value_parser = parse_reason)]
        reason: Option<String>,
    },
    /// Take letters out of the file for good
    #[command(after_help = "Example:\n  onceline dead-letters drop app.toml --older-than 90d --yes")]
    Drop {
        #[command(flatten)]
        of: Of,
        /// Only those with this reason
        #[arg(long, value_name = "REASON", value_parser = parse_reason)]
        reason: Option<String>,
        /// Only those written before this time
        #[arg(long, value_name = "RFC3339", value_parser = parse_time)]
        before: Option<Time>,
        /// Only those written longer ago than this, e.g. 30d
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "before")]
        older_than: Option<Duration>,
        /// Only lines that are no letters, which nothing else drops
        #[arg(long, conflicts_with_all = ["reason", "before", "older_than"])]
        unreadable: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// Whose letters.
#[derive(Args)]
pub struct Of {
    /// Pipeline file
    #[arg(value_name = "PIPELINE.toml")]
    pipeline: PathBuf,
    /// Another file of letters, such as one that was moved away
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Override one key, e.g. output.path=x.sqlite
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Fix the clock, e.g. 2026-03-01T12:00:00Z
    #[arg(long, value_name = "RFC3339", value_parser = parse_time)]
    now: Option<Time>,
    /// The state folder
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| "not a duration as 90s, 12h, 30d".to_string())
}

fn parse_reason(text: &str) -> Result<String, String> {
    let names = Reason::ALL.map(|reason| reason.as_str());
    if names.contains(&text) { Ok(text.to_string()) } else { Err(format!("the reasons are {}", names.join(", "))) }
}

impl Of {
    fn plan(&self) -> anyhow::Result<Option<(Plan, PathBuf)>> {
        let (files, sets) = (vec![self.pipeline.clone()], self.sets.clone());
        let args = PipelineArgs { files, sets, now: self.now, state: self.state.clone() };
        // how the inputs read does not matter
        let plans = load(&args, &Options { once: true, ..options(&args) })?;
        Ok(plans.and_then(|mut plans| plans.pop()).map(|(_, plan)| {
            let file = self.file.clone().unwrap_or_else(|| plan.pipeline.letters.clone());
            (plan, file)
        }))
    }
}

pub fn run(command: &LettersCommand) -> anyhow::Result<u8> {
    let of = match command {
        LettersCommand::List { of, .. } | LettersCommand::Show { of, .. } => of,
        LettersCommand::Replay { of, .. } | LettersCommand::Drop { of, .. } => of,
    };
    let Some((plan, file)) = of.plan()? else { return Ok(WRONG) };
    if !file.try_exists().with_context(|| format!("cannot read {}", file.display()))? {
        if of.file.is_some() {
            complain(&format!("there is no file {}", file.display()));
            return Ok(WRONG);
        }
        if !matches!(command, LettersCommand::List { json: true, .. }) {
            say(Weight::Info, &format!("there are no dead letters in {}", file.display()));
            return Ok(DONE);
        }
    }
    let by = |reason: &Option<String>| {
        let reason = reason.clone();
        move |letter: &Stored| reason.as_ref().is_none_or(|reason| letter.reason == *reason)
    };
    match command {
        LettersCommand::List { json, .. } => list(&plan, &file, *json),
        LettersCommand::Show { number, reason, .. } => show(&file, *number, &by(reason)),
        LettersCommand::Replay { reason, .. } => claimed(&file, || send(&plan, &file, &by(reason))),
        LettersCommand::Drop { unreadable: true, yes, .. } => {
            let is_wanted = |line: &[u8]| Stored::read(line).is_none();
            claimed(&file, || drop_lines(&file, "unreadable line", &is_wanted, *yes))
        }
        LettersCommand::Drop { reason, before, older_than, yes, .. } => {
            let by_reason = by(reason);
            let before = before.or(older_than.map(|age| plan.pipeline.clock().now.ago(age)));
            let is_old =
                |letter: &Stored| Time::rfc3339(letter.time.as_bytes()).zip(before).is_some_and(|(t, b)| t < b);
            let wanted = |letter: &Stored| by_reason(letter) && (before.is_none() || is_old(letter));
            let is_wanted = |line: &[u8]| Stored::read(line).is_some_and(|letter| wanted(&letter));
            claimed(&file, || drop_lines(&file, "letter", &is_wanted, *yes))
        }
    }
}

/// Runs what takes letters out of the file, unless another process does.
fn claimed(file: &Path, work: impl FnOnce() -> anyhow::Result<u8>) -> anyhow::Result<u8> {
    let claim = Claim::take(file).with_context(|| format!("cannot lock {}", file.display()))?;
    if claim.is_none() {
        complain(&format!("another process replays or drops letters of {}", file.display()));
        return Ok(UNSETTLED);
    }
    work()
}

fn lines(file: &Path) -> anyhow::Result<Option<Lines>> {
    match Lines::open(file) {
        Ok(lines) => Ok(Some(lines)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

#[derive(Default)]
struct Group {
    count: u64,
    first: String,
    last: String,
}

fn list(plan: &Plan, file: &Path, is_json: bool) -> anyhow::Result<u8> {
    let old = plan.pipeline.old_letters(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut groups: BTreeMap<(String, Option<String>), Group> = BTreeMap::new();
    let (mut all, mut bytes, mut unreadable) = (0, 0, 0);
    for line in lines(file)?.into_iter().flatten() {
        let line = line.with_context(|| format!("cannot read {}", file.display()))?;
        bytes += line.len() as u64;
        let Some(letter) = Stored::read(&line) else {
            unreadable += 1;
            continue;
        };
        all += 1;
        let group = groups.entry((letter.reason, letter.index)).or_default();
        group.count += 1;
        if group.first.is_empty() || letter.time < group.first {
            group.first.clone_from(&letter.time);
        }
        group.last = group.last.clone().max(letter.time);
    }
    let mut out = String::new();
    if is_json {
        let groups = groups.iter().map(|((reason, index), group)| {
            json!({"reason": reason, "index": index, "count": group.count, "first": group.first, "last": group.last})
        });
        let groups: Vec<Value> = groups.collect();
        out = json!({"file": file, "letters": all, "bytes": bytes, "unreadable": unreadable,
            "old": old.map_or(0, |(count, _)| count), "groups": groups})
        .to_string();
    } else {
        out.push_str(&table(&groups));
        if unreadable > 0 {
            let lines = counted(unreadable, "line");
            out.push_str(&format!("{lines} that cannot be read: see `dead-letters show`, `drop --unreadable`\n"));
        }
        out.push_str(&format!("{} in {}", counted(all, "letter"), file.display()));
        old.iter().for_each(|(_, words)| out.push_str(&format!("\n{words}")));
    }
    print(&format!("{out}\n"))
}

/// A line for each group, in columns as wide as what is in them.
fn table(groups: &BTreeMap<(String, Option<String>), Group>) -> String {
    let row = |((reason, index), group): (&(String, Option<String>), &Group)| {
        let index = index.as_deref().map_or_else(|| "-".to_string(), printable);
        [printable(reason), index, group.count.to_string(), printable(&group.first), printable(&group.last)]
    };
    let titles = ["reason", "index", "letters", "first", "last"].map(str::to_string);
    let rows: Vec<[String; 5]> = std::iter::once(titles).chain(groups.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let [reasons, indices, counts, times] = [0, 1, 2, 3].map(width);
    let pad = |text: &str, width: usize| " ".repeat(width - text.width());
    let line = |[reason, index, count, first, last]: &[String; 5]| {
        let (after_reason, after_index) = (pad(reason, reasons), pad(index, indices));
        let (before_count, after_first) = (pad(count, counts), pad(first, times));
        format!("{reason}{after_reason}  {index}{after_index}  {before_count}{count}  {first}{after_first}  {last}\n")
    };
    rows.iter().map(line).collect()
}

fn show(file: &Path, number: Option<u64>, wanted: &dyn Fn(&Stored) -> bool) -> anyhow::Result<u8> {
    let mut shown = 0;
    for (n, line) in (1..).zip(lines(file)?.into_iter().flatten()) {
        let line = line.with_context(|| format!("cannot read {}", file.display()))?;
        let is_wanted = match number {
            Some(number) => n == number,
            None => Stored::read(&line).is_some_and(|letter| wanted(&letter)),
        };
        if !is_wanted {
            continue;
        }
        shown += 1;
        let text = match serde_json::from_slice::<Value>(&line) {
            Ok(letter) => format!("{letter:#}\n"),
            Err(_) => String::from_utf8_lossy(&line).into_owned(),
        };
        if print(&text)? != DONE {
            break;
        }
    }
    if let (0, Some(number)) = (shown, number) {
        complain(&format!("{} has no letter {number}, they count from 1", file.display()));
        return Ok(WRONG);
    }
    Ok(DONE)
}

/// Prints to standard output; not done if nobody reads it.
fn print(text: &str) -> anyhow::Result<u8> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(UNSETTLED),
        other => other.context("cannot print").map(|()| DONE),
    }
}

fn send(plan: &Plan, file: &Path, wanted: &dyn Fn(&Stored) -> bool) -> anyhow::Result<u8> {
    let phases = watch_signals(plan.pipeline.tuning.drain_max)?;
    let replayed = replay(&plan.pipeline, file, wanted, &phases)?;
    let Replayed { gone, again, cut, unsettled, summary, errors } = &replayed;
    for error in errors {
        complain(&format!("{error:#}"));
    }
    println!(
        "{}: {} created, {} duplicates, {} dropped",
        counted(summary.tally.events_in, "event"),
        summary.tally.created,
        summary.tally.duplicates,
        summary.tally.dropped
    );
    println!("{} taken out of {}", counted(*gone, "letter"), file.display());
    for (count, what) in [
        (again, "failed again and stayed, with their attempts raised: see `dead-letters show`"),
        (cut, "stayed, since they hold only the beginning of a line that was too long"),
        (unsettled, "stayed as they are: not settled"),
    ] {
        if *count > 0 {
            println!("{} {what}", counted(*count, "letter"));
        }
    }
    let is_settled = errors.is_empty() && *unsettled == 0 && *phases.borrow() == Phase::Running;
    Ok(if is_settled { DONE } else { UNSETTLED })
}

/// The first signal drains for a time, the second leaves what is not settled where it is.
fn watch_signals(drain_max: std::time::Duration) -> anyhow::Result<Phases> {
    use tokio::signal::unix::{SignalKind, signal};
    let (phase, phases) = tokio::sync::watch::channel(Phase::Running);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) =
        runtime.block_on(async { anyhow::Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)) })?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            phase.send_replace(Phase::Draining);
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = tokio::time::sleep(drain_max) => {}
            }
            phase.send_replace(Phase::Abandon);
            phase.closed().await;
        });
    });
    Ok(phases)
}

fn drop_lines(file: &Path, what: &str, is_wanted: &dyn Fn(&[u8]) -> bool, yes: bool) -> anyhow::Result<u8> {
    let failed = || format!("cannot read {}", file.display());
    let mut count = 0;
    for line in lines(file)?.into_iter().flatten() {
        count += u64::from(is_wanted(&line.with_context(failed)?));
    }
    let lost = counted(count, what);
    if !yes && count > 0 {
        if !io::stdin().is_terminal() {
            complain(&format!("{lost} of {} would be lost: say --yes", file.display()));
            return Ok(WRONG);
        }
        eprint!("{lost} of {} will be lost. Drop them? [y/N] ", file.display());
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(UNSETTLED);
        }
    }
    let mut dropped = 0;
    rewrite(file, &mut |line, to| {
        // no more than was asked about
        if dropped < count && is_wanted(line) {
            dropped += 1;
        } else {
            to.extend_from_slice(line);
        }
    })
    .with_context(|| format!("cannot write {}", file.display()))?;
    print(&format!("{} dropped from {}\n", counted(dropped, what), file.display()))
}
