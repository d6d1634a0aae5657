//! `onceline import`: pipeline files made of what others have.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use onceline::import::{Options, Source, logstash};

use crate::{DONE, UNSETTLED, WRONG, complain};

#[derive(Subcommand)]
pub enum ImportCommand {
    /// Make a pipeline file of a Logstash configuration
    #[command(
        long_about = "Reads a Logstash configuration and prints a pipeline file that does the same: inputs, codecs, \
                      filters, conditions as `when`, the fingerprint with its time prefix as [id], one output. What \
                      has no counterpart stays as a comment at its place, and is listed on standard error.",
        after_help = "Examples:\n  \
            onceline import logstash apache.conf > apache.toml\n  \
            onceline import logstash /etc/logstash/conf.d/*.conf > pipeline.toml && onceline check pipeline.toml\n\n\
            Exit status: 0 all has a counterpart, 1 something has none, 2 a file cannot be read."
    )]
    Logstash(LogstashArgs),
}

#[derive(Args)]
pub struct LogstashArgs {
    /// Configuration files, or folders of them; `-` is standard input
    #[arg(required = true, value_name = "FILE.conf")]
    files: Vec<PathBuf>,
    /// Resolve `\n`, `\"` and the like in strings, as `config.support_escapes` does
    #[arg(long)]
    support_escapes: bool,
    /// The Logstash whose defaults are meant, e.g. 8.15: from 8 on `ecs_compatibility`, from 9.4 on other hashes of several fields
    #[arg(long, value_name = "VERSION", value_parser = version)]
    logstash: Option<(u32, u32)>,
    /// Which output is kept, from 1 [default: the first to an engine]
    #[arg(long, value_name = "N")]
    output: Option<usize>,
}

fn version(text: &str) -> Result<(u32, u32), String> {
    let mut numbers = text.split('.').map(str::parse);
    match (numbers.next(), numbers.next().unwrap_or(Ok(0))) {
        (Some(Ok(major)), Ok(minor)) => Ok((major, minor)),
        _ => Err("not a version as 8.15".to_string()),
    }
}

pub fn run(command: &ImportCommand) -> anyhow::Result<u8> {
    let ImportCommand::Logstash(args) = command;
    let sources = match sources(&args.files) {
        Ok(sources) => sources,
        Err(error) => {
            complain(&format!("{error:#}"));
            return Ok(WRONG);
        }
    };
    let options = Options { escapes: args.support_escapes, version: args.logstash, output: args.output };
    let import = match logstash(&sources, &options) {
        Ok(import) => import,
        Err(wrong) => {
            eprint!("{}", wrong.render(&sources));
            return Ok(WRONG);
        }
    };
    std::io::stdout().write_all(import.toml.as_bytes()).context("cannot print the pipeline file")?;
    for remark in &import.remarks {
        eprintln!("{}", remark.render(&sources));
    }
    match import.lost() {
        0 => Ok(DONE),
        1 => {
            complain("one thing has no counterpart");
            Ok(UNSETTLED)
        }
        count => {
            complain(&format!("{count} things have no counterpart"));
            Ok(UNSETTLED)
        }
    }
}

/// The files, those of a folder by name.
fn sources(paths: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    let mut sources = Vec::new();
    for path in paths {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
            let mut files: Vec<PathBuf> = entries.map(|entry| entry.map(|e| e.path())).collect::<Result<_, _>>()?;
            files.retain(|file| file.extension().is_some_and(|end| end == "conf"));
            files.sort();
            anyhow::ensure!(!files.is_empty(), "no file in {} ends with .conf", path.display());
            for file in files {
                sources.push(source(&file)?);
            }
        } else {
            sources.push(source(path)?);
        }
    }
    Ok(sources)
}

fn source(path: &Path) -> anyhow::Result<Source> {
    let mut bytes = Vec::new();
    let name = if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
        "stdin".to_string()
    } else {
        bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
    };
    let text = String::from_utf8(bytes).with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(Source { name, text })
}
