//! `onceline test`: whether pipelines do what their cases say.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use onceline::pipeline::cases::{self, Case};
use onceline::pipeline::read::Plan;

use crate::{DONE, PipelineArgs, UNSETTLED, WRONG, load, options};

pub fn run(args: &PipelineArgs) -> anyhow::Result<u8> {
    let Some(plans) = load_with_cases(args)? else { return Ok(WRONG) };
    let mut out = std::io::stdout().lock();
    let (mut all, mut wrong) = (0, 0);
    for (path, mut plan) in plans {
        writeln!(out, "{}", path.display())?;
        if plan.cases.is_empty() {
            writeln!(out, "  no [[test]]")?;
        }
        for case in &plan.cases {
            let differences = case.differences(&mut plan.pipeline)?;
            say(&mut out, case, &differences)?;
            all += 1;
            wrong += usize::from(!differences.is_empty());
        }
    }
    writeln!(out, "{all} {}, {wrong} wrong", if all == 1 { "test" } else { "tests" })?;
    Ok(match (all, wrong) {
        (0, _) => WRONG,
        (_, 0) => DONE,
        _ => UNSETTLED,
    })
}

fn say(out: &mut dyn Write, case: &Case, differences: &[String]) -> std::io::Result<()> {
    writeln!(out, "  {}  {}", if differences.is_empty() { "good " } else { "WRONG" }, case.name)?;
    differences.iter().try_for_each(|difference| writeln!(out, "           {difference}"))
}

/// As [`load`], with the cases that stand beside pipeline files. A file of cases stands for its pipeline file.
pub fn load_with_cases(args: &PipelineArgs) -> anyhow::Result<Option<Vec<(PathBuf, Plan)>>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for file in &args.files {
        let file = cases::pipeline_of(file).unwrap_or_else(|| file.clone());
        if !files.contains(&file) {
            files.push(file);
        }
    }
    let args = PipelineArgs { files, ..args.clone() };
    let Some(mut plans) = load(&args, &options(&args))? else { return Ok(None) };
    let mut good = true;
    for (path, plan) in &mut plans {
        let beside = cases::beside(path);
        let text = match std::fs::read(&beside) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", beside.display())),
        };
        let (cases, report) = cases::read_file(&beside, &text);
        crate::say_report(&report);
        match cases {
            Some(cases) => plan.cases.extend(cases),
            None => good = false,
        }
    }
    Ok(good.then_some(plans))
}
