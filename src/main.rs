//! The command line: commands, signals, exit status.

#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a user is told, not shown a backtrace")]

use std::collections::{BTreeSet, HashSet};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use onceline::ack::lock::StateLock;
use onceline::ack::{Shared, Summary, counted};
use onceline::output::Phase;
use onceline::pipeline::read::{Options, Plan};
use onceline::pipeline::{check, explain, positions, progress, read, run};
use onceline::time::Time;
use onceline::{bench, config};

/// Everything has its fate.
const DONE: u8 = 0;
/// Stopped with something not settled.
const UNSETTLED: u8 = 1;
/// A wrong command line or pipeline file.
const WRONG: u8 = 2;

/// How long after the first signal what was read may still be delivered.
const DRAIN: Duration = Duration::from_secs(30);

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
                      to their ends; without it files are followed) or until SIGINT or SIGTERM; then delivers what was read and exits.",
        after_help = "Examples:\n  \
            cat app.log | onceline run app.toml\n  \
            onceline run --once --progress backfill.toml\n  \
            onceline run --once --from-start backfill.toml\n  \
            onceline run app.toml --set output.path=/tmp/try.sqlite --summary - < app.log"
    )]
    Run(RunArgs),
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
        /// Show `@metadata` too
        #[arg(long)]
        metadata: bool,
    },
    /// How far files were read: show it, or forget it
    #[command(subcommand)]
    Positions(PositionsCommand),
    /// Measure on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Args)]
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

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    pipelines: PipelineArgs,
    /// Read the files there are to their ends, then stop
    #[arg(long)]
    once: bool,
    /// Read files from their beginnings, whatever was read before
    #[arg(long)]
    from_start: bool,
    /// Show a bar while it runs
    #[arg(long)]
    progress: bool,
    /// Write the counts of the run as one JSON object; - for standard output
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Exit with 1 if there is a dead letter
    #[arg(long)]
    fail_on_dead_letters: bool,
}

#[derive(Subcommand)]
enum PositionsCommand {
    /// Print the saved positions of a pipeline
    #[command(after_help = "Example:\n  onceline positions show app.toml")]
    Show {
        #[command(flatten)]
        pipeline: OnePipelineArgs,
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Forget saved positions: what was read is read again at the next run
    #[command(
        long_about = "Forgets the saved positions of a pipeline, or of some files, so that the next run reads them \
                      from their beginnings. What is stored already is found by its id. Refused while the pipeline \
                      runs.",
        after_help = "Examples:\n  \
            onceline positions reset app.toml\n  \
            onceline positions reset app.toml /var/log/app/a.json --yes"
    )]
    Reset {
        #[command(flatten)]
        pipeline: OnePipelineArgs,
        /// Files whose positions are forgotten [default: all]
        #[arg(value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Args)]
struct OnePipelineArgs {
    /// Pipeline file
    #[arg(value_name = "PIPELINE.toml")]
    file: PathBuf,
    /// Override one key, as it is overridden for `run`
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// The state folder, as it is given to `run`
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
        Command::Run(args) => run_command(&args),
        Command::Check { pipelines } => check_command(&pipelines),
        Command::Explain { pipelines, input, metadata } => explain_command(&pipelines, input, metadata),
        Command::Positions(command) => positions_command(&command),
        Command::Bench(command) => bench_command(command),
    };
    ExitCode::from(status.unwrap_or_else(|error| {
        eprintln!("onceline: {error:#}");
        UNSETTLED
    }))
}

fn start_log(verbose: u8, json: bool) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    if json {
        log.json().flatten_event(true).init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).init();
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
                eprintln!("onceline: cannot read {}: {error}", path.display());
                good = false;
                continue;
            }
        };
        let (plan, report) = read::read(path, &text, options, &config::process_env);
        if !report.is_empty() {
            eprint!("{}", report.render(std::io::stderr().is_terminal()));
        }
        match plan {
            Some(plan) => plans.push((path.clone(), plan)),
            None => good = false,
        }
    }
    Ok(good.then_some(plans))
}

fn options(args: &PipelineArgs) -> Options {
    Options { sets: args.sets.clone(), now: args.now, state: args.state.clone(), ..Options::default() }
}

fn check_command(args: &PipelineArgs) -> anyhow::Result<u8> {
    let Some(plans) = load(args, &options(args))? else { return Ok(WRONG) };
    let mut out = std::io::stdout().lock();
    for (number, (path, plan)) in plans.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        write!(out, "{}", check::describe(path, plan))?;
    }
    Ok(DONE)
}

fn explain_command(args: &PipelineArgs, input: usize, metadata: bool) -> anyhow::Result<u8> {
    let [_] = args.files.as_slice() else {
        eprintln!("onceline: explain takes one pipeline file");
        return Ok(WRONG);
    };
    let Some(plans) = load(args, &Options { explain: true, ..options(args) })? else { return Ok(WRONG) };
    for (path, plan) in &plans {
        if input >= plan.pipeline.inputs.len() {
            eprintln!("onceline: {} has no input {input}, they count from 0", path.display());
            return Ok(WRONG);
        }
        let mut out = std::io::stdout().lock();
        match explain::run(&plan.pipeline, input, metadata, &mut out) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            other => other.context("cannot explain")?,
        }
    }
    Ok(DONE)
}

fn positions_command(command: &PositionsCommand) -> anyhow::Result<u8> {
    let (PositionsCommand::Show { pipeline: one, .. } | PositionsCommand::Reset { pipeline: one, .. }) = command;
    let OnePipelineArgs { file, sets, state } = one;
    let args = PipelineArgs { files: vec![file.clone()], sets: sets.clone(), now: None, state: state.clone() };
    let plans = load(&args, &Options { once: true, ..options(&args) })?;
    let Some([(_, plan)]) = plans.as_deref() else { return Ok(WRONG) };
    match command {
        PositionsCommand::Show { json, .. } => {
            let saved = plan.pipeline.positions().saved()?;
            let text = if *json { format!("{}\n", positions::to_json(&saved)) } else { positions::table(&saved) };
            std::io::stdout().write_all(text.as_bytes()).context("cannot print the positions")?;
            Ok(DONE)
        }
        PositionsCommand::Reset { paths, yes, .. } => reset_positions(plan, paths, *yes),
    }
}

fn reset_positions(plan: &Plan, paths: &[PathBuf], yes: bool) -> anyhow::Result<u8> {
    let _lock = StateLock::take(&plan.pipeline.state)?;
    let place = plan.pipeline.positions();
    let gone = if paths.is_empty() { None } else { Some(positions::of_paths(&place.saved()?, paths)?) };
    let what = match &gone {
        Some(gone) => counted(gone.len() as u64, "position"),
        None => "all positions".to_string(),
    };
    if !yes {
        if !std::io::stdin().is_terminal() {
            eprintln!("onceline: nobody can be asked whether to forget {what}: say --yes");
            return Ok(WRONG);
        }
        eprint!("forget {what} of {}? [y/N] ", plan.pipeline.name);
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).context("cannot read the answer")?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(UNSETTLED);
        }
    }
    match &gone {
        Some(gone) => place.forget(gone)?,
        None => place.forget_all()?,
    }
    eprintln!("onceline: forgot {what}");
    Ok(DONE)
}

/// Takes the state folders of all pipelines, each once. None, and said, if two would save positions in one place.
fn lock_states(plans: &[(PathBuf, Plan)]) -> anyhow::Result<Option<Vec<StateLock>>> {
    let (mut states, mut places) = (BTreeSet::new(), HashSet::new());
    for (_, plan) in plans {
        states.insert(std::path::absolute(&plan.pipeline.state).context("cannot find the state folder")?);
        if let Some(place) = plan.pipeline.saves_in()
            && !places.insert(place.clone())
        {
            eprintln!(
                "onceline: two pipelines would save positions in {place}: give each a file name or a `[state] path` of its own"
            );
            return Ok(None);
        }
    }
    states.iter().map(|state| StateLock::take(state)).collect::<anyhow::Result<_>>().map(Some)
}

fn run_command(args: &RunArgs) -> anyhow::Result<u8> {
    let options = Options { once: args.once, from_start: args.from_start, ..options(&args.pipelines) };
    let Some(plans) = load(&args.pipelines, &options)? else {
        return Ok(WRONG);
    };
    if plans.iter().filter(|(_, plan)| plan.pipeline.reads_stdin()).count() > 1 {
        eprintln!("onceline: standard input can be read by one pipeline only");
        return Ok(WRONG);
    }
    let Some(_locks) = lock_states(&plans)? else { return Ok(WRONG) };
    let started = Instant::now();
    let (phase, phases) = tokio::sync::watch::channel(Phase::Running);
    watch_signals(phase)?;
    let shared: Vec<Arc<Shared>> = plans.iter().map(|_| Arc::default()).collect();
    let bar = args.progress.then(|| progress::start(&plans, &shared));
    let endings: Vec<run::Ending> = std::thread::scope(|scope| {
        let running: Vec<_> = plans
            .iter()
            .zip(&shared)
            .map(|((_, plan), shared)| scope.spawn(|| run::run(&plan.pipeline, shared, &phases)))
            .collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    if let Some(bar) = bar {
        bar.stop();
    }
    let may_leave = args.once || plans.iter().any(|(_, plan)| plan.pipeline.reads_stdin());
    if may_leave && *phases.borrow() != Phase::Running {
        eprintln!("onceline: stopped by a signal: input that was not read is left, run it again for the rest");
    }
    finish(args, &plans, &endings, started.elapsed().as_secs_f64())
}

/// Says how the run ended, and gives its exit status.
fn finish(args: &RunArgs, plans: &[(PathBuf, Plan)], endings: &[run::Ending], seconds: f64) -> anyhow::Result<u8> {
    let mut total = Summary::default();
    let mut status = if endings.len() < plans.len() { UNSETTLED } else { DONE };
    for ((path, plan), ending) in plans.iter().zip(endings) {
        total.merge(&ending.summary);
        for error in &ending.errors {
            eprintln!("onceline: {}: {error:#}", path.display());
            status = UNSETTLED;
        }
        if ending.summary.unsettled() > 0 {
            eprintln!("onceline: {}: {} not settled", path.display(), counted(ending.summary.unsettled(), "event"));
            status = UNSETTLED;
        }
        if ending.summary.dead_lettered > 0 {
            let (count, file) = (ending.summary.dead_lettered, plan.pipeline.letters.display());
            eprintln!("onceline: {}: {}, see {file}", path.display(), counted(count, "dead letter"));
            if args.fail_on_dead_letters {
                status = UNSETTLED;
            }
        }
    }
    eprintln!("onceline: {}", total.words(seconds));
    if let [(_, plan)] = plans
        && let Some(hint) = plan.pipeline.output.look()
    {
        eprintln!("onceline: {hint}");
    }
    if let Some(file) = &args.summary {
        write_summary(file, plans, endings, &total, seconds)?;
    }
    Ok(status)
}

fn write_summary(
    file: &Path,
    plans: &[(PathBuf, Plan)],
    endings: &[run::Ending],
    total: &Summary,
    seconds: f64,
) -> anyhow::Result<()> {
    let mut object = total.to_json(seconds);
    if plans.len() > 1 {
        let each = plans.iter().zip(endings);
        // two files of one name are told apart by their folders
        let is_shared = |name: &str| plans.iter().filter(|(_, plan)| plan.pipeline.name == name).count() > 1;
        let each = each.map(|((path, plan), ending)| {
            let name = &plan.pipeline.name;
            let name = if is_shared(name) { path.display().to_string() } else { name.clone() };
            (name, ending.summary.to_json(seconds).into())
        });
        object.insert("pipelines".to_string(), serde_json::Value::Object(each.collect()));
    }
    let text = format!("{}\n", serde_json::Value::Object(object));
    if file == Path::new("-") {
        std::io::stdout().write_all(text.as_bytes()).context("cannot write the summary")
    } else {
        std::fs::write(file, text).with_context(|| format!("cannot write the summary to {}", file.display()))
    }
}

/// SIGINT or SIGTERM once: end the reading and deliver what was read, for a time. Twice: leave the rest unsettled.
fn watch_signals(phase: tokio::sync::watch::Sender<Phase>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return;
            };
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            tracing::warn!("going down: delivering what was read, a second signal leaves it");
            phase.send_replace(Phase::Draining);
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = tokio::time::sleep(DRAIN) => {}
            }
            phase.send_replace(Phase::Abandon);
            phase.closed().await;
        });
    });
    Ok(())
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
