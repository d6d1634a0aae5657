//! The command line: commands, signals, exit status.

#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a user is told, not shown a backtrace")]

mod commands;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use onceline::config::printable;
use onceline::pipeline::explain::Show;
use onceline::pipeline::read::{Options, Plan};
use onceline::pipeline::{check, explain, read};
use onceline::time::Time;
use onceline::{bench, config};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format;

/// Everything has its fate.
const DONE: u8 = 0;
/// Stopped with something not settled.
const UNSETTLED: u8 = 1;
/// A wrong command line or pipeline file.
const WRONG: u8 = 2;

#[derive(Parser)]
#[command(
    name = "onceline",
    version,
    about = "Ingests log lines and events, and indexes each exactly once in effect.",
    long_about = "Ingests log lines and events and writes each into Elasticsearch, OpenSearch or an embedded SQLite \
                  file, exactly once in effect: every event gets an id that follows from the event itself, so a \
                  retry, a restart or a replay overwrites instead of duplicating.",
    after_help = "Examples:\n  \
        onceline run pipelines/quickstart.toml < pipelines/quickstart.ndjson\n  \
        onceline run --once --summary - nginx.toml app.toml\n  \
        onceline check nginx.toml\n  \
        head -3 access.log | onceline explain nginx.toml\n\n\
        Exit status: 0 all is settled, 1 something is not (it says what, and where it is kept), 2 a wrong command \
        line or pipeline file."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Log more: -v for what happens, -vv for how
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    /// How log lines on standard error look
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text", global = true)]
    log_format: String,
}

#[derive(Subcommand)]
enum Command {
    /// Run pipelines until every input ends
    #[command(
        long_about = "Runs the pipelines until every input ends (standard input closed, with --once the files read \
                      to their ends; without it files are followed) or until SIGINT or SIGTERM; then delivers what was read, \
                      for [tuning] drain_max at most, keeps what cannot be read again for the next run, and exits. \
                      SIGHUP reads the pipeline files again.",
        after_help = "Examples:\n  \
            cat app.log | onceline run app.toml\n  \
            onceline run --once --progress backfill.toml\n  \
            onceline run --once --from-start backfill.toml\n  \
            onceline run app.toml --set output.path=/tmp/try.sqlite --summary - < app.log"
    )]
    Run(commands::run::RunArgs),
    /// Validate pipeline files and say in words what they will do
    #[command(
        long_about = "Validates pipeline files without touching data or engines, says in plain words what each \
                      pipeline will do, and warns where a choice defeats deduplication.",
        after_help = "Example:\n  onceline check pipelines/*.toml"
    )]
    Check {
        #[command(flatten)]
        pipelines: PipelineArgs,
    },
    /// Show what would become of the events on standard input
    #[command(
        long_about = "Reads events from standard input, whatever the pipeline's input is, runs filters, id and \
                      routing, delivers nothing, and prints one JSON line an event.",
        after_help = "Example:\n  head -3 access.log | onceline explain nginx.toml\n\nA line of the answer:\n  \
            {\"event\":{…},\"id\":\"…\",\"index\":\"…\",\"action\":\"index\",\"outcome\":\"deliver\",\"reason\":null}"
    )]
    Explain {
        #[command(flatten)]
        pipelines: PipelineArgs,
        /// Which of the pipeline's inputs decodes the events, from 0
        #[arg(long, value_name = "N", default_value_t = 0)]
        input: usize,
        /// As if the events stood in this file
        #[arg(long)]
        path: Option<String>,
        /// Show `@metadata` too
        #[arg(long)]
        metadata: bool,
        /// Show what each filter did, and the time it took
        #[arg(long)]
        steps: bool,
        /// Print text for people instead of JSON
        #[arg(long)]
        pretty: bool,
    },
    /// Run the tests that pipeline files hold
    #[command(
        long_about = "Runs the cases of pipelines, `[[test]]` in the pipeline file or beside it in NAME.test.toml: what \
                      becomes of their input, without reading or delivering anything else, against what they say. \
                      Each difference is shown.",
        after_help = "Example:\n  onceline test pipelines/*.toml\n\n\
            Exit status: 0 all are good, 1 something is different, 2 a wrong file, or no test at all."
    )]
    Test {
        #[command(flatten)]
        pipelines: PipelineArgs,
    },
    /// How far files were read: show it, or forget it
    #[command(subcommand)]
    Positions(commands::positions::PositionsCommand),
    /// Look at dead letters, send them again, or drop them
    #[command(subcommand)]
    DeadLetters(commands::letters::LettersCommand),
    /// Make pipeline files of what other programs have
    #[command(subcommand)]
    Import(commands::import::ImportCommand),
    /// Measure on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Args, Clone)]
struct PipelineArgs {
    /// Pipeline files
    #[arg(required = true, value_name = "PIPELINE.toml")]
    files: Vec<PathBuf>,
    /// Override one key, e.g. output.path=x.sqlite or input.0.codec=json
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Fix the clock, e.g. 2026-03-01T12:00:00Z
    #[arg(long, value_name = "RFC3339", value_parser = parse_time)]
    now: Option<Time>,
    /// Folder for what outlives a run: positions, and dead letters unless [dead_letter] says where
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// What an id costs, by scheme and method
    #[command(after_help = "Example:\n  onceline bench ids --client-only")]
    Ids {
        /// Measure this program only, without an engine
        #[arg(long, required = true)]
        client_only: bool,
        /// Events to make ids of, a line each [default: generated ones]
        #[arg(long, value_name = "FILE")]
        input: Option<PathBuf>,
        /// Rounds, of which the median counts
        #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rounds: u32,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// What an event costs on the whole way, and at each stage
    #[command(
        long_about = "Measures nanoseconds of CPU an event: the whole way from a file to a bulk endpoint on loopback \
                      (a sink of its own, in another process), and each stage of it. With a pipeline file, its \
                      filters, ids and routing; its output is replaced by the sink.",
        after_help = "Examples:\n  onceline bench pipeline\n  onceline bench pipeline nginx.toml --input access.log"
    )]
    Pipeline {
        /// Pipeline file [default: JSON lines, time-hash MD5, an index a day]
        #[arg(value_name = "PIPELINE.toml")]
        file: Option<PathBuf>,
        /// Override one key of the pipeline file
        #[arg(long = "set", value_name = "KEY=VALUE")]
        sets: Vec<String>,
        /// Events to read [default: generated ones]
        #[arg(long, value_name = "FILE")]
        input: Option<PathBuf>,
        /// How many events to generate
        #[arg(long, value_name = "N", default_value_t = 500_000, conflicts_with = "input")]
        events: u64,
        /// Rounds, of which the median counts
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        rounds: u32,
        #[command(flatten)]
        show: ShowArgs,
    },
    /// The other side of `bench pipeline`
    #[command(hide = true)]
    Sink,
}

#[derive(Args)]
struct ShowArgs {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Draw the figures as bars
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

fn parse_time(text: &str) -> Result<Time, String> {
    Time::rfc3339(text.as_bytes()).ok_or_else(|| "not a time as 2026-03-01T12:00:00Z".to_string())
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    start_log(cli.verbose, cli.log_format == "json");
    let status = match cli.command {
        Command::Run(args) => commands::run::run(&args),
        Command::Check { pipelines } => check_command(&pipelines),
        Command::Explain { pipelines, input, path, metadata, steps, pretty } => {
            let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            explain_command(&pipelines, input, path.as_deref(), Show { metadata, steps, pretty, colour })
        }
        Command::Test { pipelines } => commands::test::run(&pipelines),
        Command::Positions(command) => commands::positions::run(&command),
        Command::DeadLetters(command) => commands::letters::run(&command),
        Command::Import(command) => commands::import::run(&command),
        Command::Bench(command) => bench_command(command),
    };
    ExitCode::from(status.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        UNSETTLED
    }))
}

/// The log is JSON lines, and with it all that is said on standard error.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// How much what is said weighs, in a log of JSON lines.
#[derive(Clone, Copy)]
enum Weight {
    Info,
    Error,
}

/// Says something on standard error; it may name what others chose: a file, a field.
fn say(weight: Weight, text: &str) {
    match IS_JSON.load(Ordering::Relaxed) {
        true => say_json(weight, text),
        false => eprintln!("onceline: {}", printable(text)),
    }
}

fn say_json(weight: Weight, text: &str) {
    let level = match weight {
        Weight::Info => "INFO",
        Weight::Error => "ERROR",
    };
    eprintln!("{}", serde_json::json!({"timestamp": Time::now().iso(), "level": level, "message": text}));
}

/// Says that something is as it must not be.
fn complain(text: &str) {
    say(Weight::Error, text);
}

fn start_log(verbose: u8, json: bool) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    IS_JSON.store(json, Ordering::Relaxed);
    if json {
        log.json().flatten_event(true).init();
    } else {
        // a name of a file must not look like a line of the log, nor move a terminal's cursor
        let fields = format::debug_fn(|out, field, value| {
            let value = printable(&format!("{value:?}"));
            if field.name() == "message" { write!(out, "{value}") } else { write!(out, "{field}={value}") }
        });
        log.fmt_fields(fields.delimited(" ")).with_ansi(std::io::stderr().is_terminal()).init();
    }
}

/// Reads all pipeline files, and says what is wrong with any of them; none if something is.
fn load(args: &PipelineArgs, options: &Options) -> anyhow::Result<Option<Vec<(PathBuf, Plan)>>> {
    let mut plans = Vec::new();
    let mut good = true;
    for path in &args.files {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) => {
                complain(&format!("cannot read {}: {error}", path.display()));
                good = false;
                continue;
            }
        };
        let (plan, report) = read::read(path, &text, options, &config::process_env);
        say_report(&report);
        match plan {
            Some(plan) => plans.push((path.clone(), plan)),
            None => good = false,
        }
    }
    Ok(good.then_some(plans))
}

fn say_report(report: &config::Report) {
    if report.is_empty() {
        return;
    }
    match IS_JSON.load(Ordering::Relaxed) {
        true => say_json(Weight::Error, report.render(false).trim_end()),
        false => eprint!("{}", report.render(std::io::stderr().is_terminal())),
    }
}

fn options(args: &PipelineArgs) -> Options {
    Options { sets: args.sets.clone(), now: args.now, state: args.state.clone(), ..Options::default() }
}

/// Says where two inputs of a pipeline read one file; true if any do.
fn say_conflicts(plans: &[(PathBuf, Plan)]) -> bool {
    let conflicts = plans.iter().filter_map(|(path, plan)| Some((path, plan.pipeline.conflict()?)));
    conflicts.inspect(|(path, why)| complain(&format!("{}: {why}", path.display()))).count() > 0
}

fn check_command(args: &PipelineArgs) -> anyhow::Result<u8> {
    let Some(plans) = commands::test::load_with_cases(args)? else { return Ok(WRONG) };
    if say_conflicts(&plans) {
        return Ok(WRONG);
    }
    let mut out = std::io::stdout().lock();
    for (number, (path, plan)) in plans.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        write!(out, "{}", check::describe(path, plan))?;
    }
    Ok(DONE)
}

fn explain_command(args: &PipelineArgs, input: usize, path: Option<&str>, show: Show) -> anyhow::Result<u8> {
    let [_] = args.files.as_slice() else {
        complain("explain takes one pipeline file");
        return Ok(WRONG);
    };
    let Some(plans) = load(args, &options(args))? else { return Ok(WRONG) };
    for (file, plan) in &plans {
        if input >= plan.pipeline.inputs.len() {
            complain(&format!("{} has no input {input}, they count from 0", file.display()));
            return Ok(WRONG);
        }
        let mut out = std::io::stdout().lock();
        match explain::run(&plan.pipeline, input, path, show, &mut out) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            other => other.context("cannot explain")?,
        }
    }
    Ok(DONE)
}

fn bench_command(command: BenchCommand) -> anyhow::Result<u8> {
    match command {
        BenchCommand::Ids { input, rounds, show, .. } => bench_ids(input.as_deref(), rounds, &show)?,
        BenchCommand::Pipeline { file, sets, input, events, rounds, show } => {
            let generated = std::env::temp_dir().join(format!("onceline-bench-{}.ndjson", std::process::id()));
            if input.is_none() {
                bench::pipeline::generate(events, &generated)?;
            }
            let lines = input.as_deref().unwrap_or(&generated);
            let report = bench::pipeline::run(file.as_deref(), &sets, lines, rounds as usize);
            if input.is_none() {
                std::fs::remove_file(&generated).context("cannot remove the generated events")?;
            }
            let report = report?;
            show.print(&report.table(), &report.json())?;
            show.plot("CPU an event, by stage", "ns", &report.bars())?;
        }
        BenchCommand::Sink => bench::sink::run().context("the sink failed")?,
    }
    Ok(DONE)
}

fn bench_ids(input: Option<&Path>, rounds: u32, show: &ShowArgs) -> anyhow::Result<()> {
    let events: Vec<Vec<u8>> = match input {
        Some(path) => {
            let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            text.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
        }
        None => bench::ids::sample_events(10_000, 300),
    };
    anyhow::ensure!(!events.is_empty(), "there is no event to make an id of");
    let cases = bench::ids::cases().map_err(anyhow::Error::msg)?;
    let rows = bench::ids::client_only(&events, &cases, rounds as usize)
        .map_err(|refused| anyhow::anyhow!("an event gets no id: {refused}"))?;
    show.print(&bench::ids::table(&rows), &bench::ids::json(&rows))?;
    show.plot("CPU an id", "ns", &bench::ids::bars(&rows))
}

impl ShowArgs {
    fn print(&self, table: &str, json: &serde_json::Value) -> anyhow::Result<()> {
        let text = if self.json { format!("{json}\n") } else { table.to_string() };
        std::io::stdout().write_all(text.as_bytes()).context("cannot print the figures")
    }

    fn plot(&self, title: &str, unit: &str, bars: &[bench::plot::Bar]) -> anyhow::Result<()> {
        let Some(path) = &self.plot else { return Ok(()) };
        std::fs::write(path, bench::plot::bars(title, unit, bars))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
