//! `onceline positions`: how far files were read, shown or forgotten.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use onceline::ack::counted;
use onceline::ack::lock::Lock;
use onceline::pipeline::positions;
use onceline::pipeline::read::{Options, Plan};

use crate::{DONE, PipelineArgs, UNSETTLED, WRONG, Weight, complain, load, options, say};

#[derive(Subcommand)]
pub enum PositionsCommand {
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
pub struct OnePipelineArgs {
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

pub fn run(command: &PositionsCommand) -> anyhow::Result<u8> {
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
    let _locks = (Lock::state(&plan.pipeline.state)?, plan.pipeline.lock_positions()?);
    let place = plan.pipeline.positions();
    let gone = if paths.is_empty() { None } else { Some(positions::of_paths(&place.saved()?, paths)?) };
    let what = match &gone {
        Some(gone) => counted(gone.len() as u64, "position"),
        None => "all positions".to_string(),
    };
    if !yes {
        if !std::io::stdin().is_terminal() {
            complain(&format!("nobody can be asked whether to forget {what}: say --yes"));
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
        None => place.forget_all(&plan.pipeline.patterns()?)?,
    }
    say(Weight::Info, &format!("forgot {what}"));
    Ok(DONE)
}
