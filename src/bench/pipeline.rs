//! `onceline bench pipeline`: what an event costs on the whole way, and at each stage of it.
//!
//! The whole way is CPU time of this process, which reads a file and sends bulk requests to a sink of its own on
//! loopback (another process). The stages are CPU time of one thread over the same events. Rounds are interleaved;
//! the median counts.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::Context;
use rustix::time::ClockId;

use super::plot::Bar;
use super::{cpu_ns, quantile};
use crate::ack::Shared;
use crate::batch::{Batch, Source};
use crate::codec::{Block, Record};
use crate::id;
use crate::output::{Action, Form, Phase};
use crate::pipeline::Pipeline;
use crate::pipeline::pack::Packer;
use crate::pipeline::read::{self, Options};
use crate::pipeline::run;
use crate::pool::Pool;

/// What is measured without a pipeline file.
const USUAL: &str = "[[input]]\ntype = \"file\"\npaths = [\"\"]\ncodec = \"json\"\n[id]\nscheme = \"time-hash\"\n\
                     method = \"MD5\"\n[index]\nname = \"bench-%{+yyyy.MM.dd}\"\n[time]\nfuture = \"36500d\"\n\
                     [output]\ntype = \"elasticsearch\"\naction = \"create\"\n";

/// Bytes of a block, as the inputs hand it over.
const BLOCK: usize = 1 << 20;

/// What was measured: nanoseconds of CPU an event.
pub struct Row {
    pub stage: &'static str,
    pub ns: f64,
    /// Between the quarter and the three-quarter points.
    pub ns_spread: f64,
}

pub struct Report {
    pub events: u64,
    pub bytes: u64,
    pub rows: Vec<Row>,
}

/// Measures a pipeline file, or the usual JSON one, over the events in the file `input`.
pub fn run(file: Option<&Path>, sets: &[String], input: &Path, rounds: usize) -> anyhow::Result<Report> {
    let sink = Sink::start()?;
    let path = file.unwrap_or(Path::new("bench.toml"));
    let text = match file {
        Some(file) => std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?,
        None => USUAL.as_bytes().to_vec(),
    };
    let state = std::env::temp_dir().join(format!("onceline-bench-{}", std::process::id()));
    let read = |sets: Vec<String>| {
        let options = Options { sets, once: true, from_start: true, state: Some(state.clone()), ..Options::default() };
        let (plan, report) = read::read(path, &text, &options, &crate::config::process_env);
        plan.ok_or_else(|| anyhow::anyhow!("{}", report.render(false)))
    };
    // as it stands, for its action; then with its input and output exchanged, whatever their keys were
    let action = read(sets.to_vec())?.pipeline.output.action();
    let mut sets = sets.to_vec();
    sets.push("input.0.type=\"file\"".to_string());
    sets.push(format!("input.0.paths=[{}]", serde_json::Value::from(input.to_string_lossy())));
    let (action, url) = (action.as_str(), &sink.url);
    sets.push(format!("output={{type=\"elasticsearch\",action=\"{action}\",hosts=[\"{url}\"]}}"));
    let plan = read(sets)?;
    let lines = std::fs::read(input).with_context(|| format!("cannot read {}", input.display()))?;
    let measured = measure(&plan.pipeline, &lines, rounds);
    // positions and dead letters of a measurement are nobody's
    let _ = std::fs::remove_dir_all(&state);
    measured
}

fn measure(pipeline: &Pipeline, lines: &[u8], rounds: usize) -> anyhow::Result<Report> {
    let mut stages: Vec<(&'static str, Vec<f64>)> = Vec::new();
    let mut whole = Vec::new();
    let mut events = 0;
    for _ in 0..rounds.max(1) {
        let mut spent = stage_round(pipeline, lines);
        let start = cpu_ns(ClockId::ProcessCPUTime);
        events = whole_round(pipeline)?;
        whole.push((cpu_ns(ClockId::ProcessCPUTime) - start) / events.max(1) as f64);
        spent.iter_mut().for_each(|(_, ns)| *ns /= events.max(1) as f64);
        for (n, (stage, ns)) in spent.into_iter().enumerate() {
            if stages.len() <= n {
                stages.push((stage, Vec::new()));
            }
            stages[n].1.push(ns);
        }
    }
    let row = |stage, mut all: Vec<f64>| Row {
        stage,
        ns: quantile(&mut all, 0.5),
        ns_spread: quantile(&mut all, 0.75) - quantile(&mut all, 0.25),
    };
    let mut rows: Vec<Row> = stages.into_iter().map(|(stage, all)| row(stage, all)).collect();
    let sum: f64 = rows.iter().map(|row| row.ns).sum();
    let whole = row("whole way", whole);
    rows.push(Row { stage: "read, send, answer", ns: (whole.ns - sum).max(0.0), ns_spread: whole.ns_spread });
    rows.push(whole);
    Ok(Report { events, bytes: lines.len() as u64, rows })
}

fn whole_round(pipeline: &Pipeline) -> anyhow::Result<u64> {
    let (_phase, phases) = tokio::sync::watch::channel(Phase::Running);
    let ending = run::run(pipeline, &Arc::new(Shared::default()), &phases);
    if let Some(error) = ending.errors.into_iter().next() {
        return Err(error);
    }
    let summary = ending.summary;
    anyhow::ensure!(summary.unsettled() == 0, "{} events are not settled", summary.unsettled());
    Ok(summary.tally.events_in)
}

/// Every stage over all lines, block by block; nanoseconds of CPU in all.
fn stage_round(pipeline: &Pipeline, lines: &[u8]) -> Vec<(&'static str, f64)> {
    let mut spent = [
        ("cut records", 0.0),
        ("decode", 0.0),
        ("filters", 0.0),
        ("time", 0.0),
        ("digest", 0.0),
        ("id, index, body", 0.0),
    ];
    let (clock, source, cutting) = (pipeline.clock(), Arc::new(Source::default()), pipeline.inputs[0].cutting());
    let mut packer = Packer::new(pipeline, Form::Bulk(Action::Create), Pool::default());
    let (mut scratch, mut digests) = (id::Scratch::default(), id::Digests::default());
    let (mut records, mut batch): (Vec<Record>, Batch) = (Vec::new(), Batch::default());
    let mut rest = lines;
    while !rest.is_empty() {
        let most = rest.len().min(BLOCK);
        let cut = memchr::memrchr(b'\n', &rest[..most]).map_or(rest.len(), |at| at + 1);
        let (block, after) = rest.split_at(cut);
        rest = after;
        let block = Block { bytes: block.to_vec().into(), offset: 0, too_long: None, mark: None, records: None };
        let mut watch = Watch(cpu_ns(ClockId::ThreadCPUTime));
        records.clear();
        cutting.cut(&block, &mut records);
        spent[0].1 += watch.lap();
        batch.refill(block.bytes, source.clone());
        watch.lap();
        pipeline.inputs[0].codec.decode(&mut batch, &records);
        spent[1].1 += watch.lap();
        pipeline.steps.iter().for_each(|step| drop(step.apply(&mut batch, &clock)));
        spent[2].1 += watch.lap();
        pipeline.stamp.apply(&mut batch, &clock);
        spent[3].1 += watch.lap();
        pipeline.ids.digest(&batch, &mut scratch, &mut digests);
        let digest = watch.lap();
        spent[4].1 += digest;
        std::hint::black_box(packer.pack(&batch));
        // packing hashes too
        spent[5].1 += watch.lap() - digest;
    }
    spent.to_vec()
}

struct Watch(f64);

impl Watch {
    /// Nanoseconds of CPU since the last lap.
    fn lap(&mut self) -> f64 {
        let now = cpu_ns(ClockId::ThreadCPUTime);
        now - std::mem::replace(&mut self.0, now)
    }
}

/// The sink's process; it ends when its standard input is closed.
struct Sink {
    url: String,
    child: Child,
}

impl Sink {
    fn start() -> anyhow::Result<Sink> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(program)
            .args(["bench", "sink"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the sink")?;
        let mut url = String::new();
        let stdout = child.stdout.take().context("the sink has no output")?;
        BufReader::new(stdout).read_line(&mut url).context("the sink says no address")?;
        Ok(Sink { url: url.trim().to_string(), child })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // it ends by itself now
        let _ = self.child.wait();
    }
}

impl Report {
    /// The figures as a table for people.
    pub fn table(&self) -> String {
        let mut text = format!("{} events, {} bytes each\n", self.events, self.bytes / self.events.max(1));
        text.push_str(&format!("{:<20} {:>12} {:>8}\n", "stage", "ns an event", "spread"));
        for row in &self.rows {
            text.push_str(&format!("{:<20} {:>12.0} {:>8.0}\n", row.stage, row.ns, row.ns_spread));
        }
        text
    }

    pub fn json(&self) -> serde_json::Value {
        let row = |row: &Row| serde_json::json!({"stage": row.stage, "ns": row.ns, "ns_spread": row.ns_spread});
        let stages: Vec<serde_json::Value> = self.rows.iter().map(row).collect();
        serde_json::json!({"events": self.events, "bytes": self.bytes, "stages": stages})
    }

    pub fn bars(&self) -> Vec<Bar> {
        self.rows.iter().map(|row| Bar { label: row.stage.to_string(), value: row.ns }).collect()
    }
}

/// Writes `count` generated events to a file, for [`run()`].
pub fn generate(count: u64, path: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).with_context(failed)?);
    super::events::write(count, 1, &mut file).with_context(failed)?;
    file.flush().with_context(failed)
}
