//! `run --progress`: a bar on a terminal, from the counts that are kept anyway.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use super::InputKind;
use super::read::Plan;
use crate::ack::Shared;

const REFRESH: Duration = Duration::from_millis(200);

pub struct Bar {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Starts a bar over all pipelines; where standard error is no terminal, nothing is drawn.
pub fn start(plans: &[(PathBuf, Plan)], shared: &[Arc<Shared>]) -> Bar {
    let stop = Arc::new(AtomicBool::new(false));
    let total = plans.iter().try_fold(0, |sum, (_, plan)| Some(sum + plan.pipeline.bytes_to_read()?));
    let (stopped, shared) = (stop.clone(), shared.to_vec());
    let thread = std::thread::spawn(move || draw(total, &shared, &stopped));
    Bar { stop, thread }
}

impl Bar {
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        // a bar that failed to draw is no reason to fail
        let _ = self.thread.join();
    }
}

fn draw(total: Option<u64>, shared: &[Arc<Shared>], stop: &AtomicBool) {
    let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
    let template = match total {
        Some(_) => "{bar:30} {percent:>3}% {binary_bytes}/{binary_total_bytes}, {msg}, {eta} left",
        None => "{spinner} {elapsed} {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    let started = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let (mut events, mut duplicates, mut bytes) = (0, 0, 0);
        for shared in shared {
            let counts = shared.lock();
            events += counts.0.tally.events_in;
            duplicates += counts.0.tally.duplicates;
            bytes += counts.1.settled_bytes();
        }
        let rate = (events as f64 / started.elapsed().as_secs_f64().max(0.001)) as u64;
        let (events, rate, duplicates) = (HumanCount(events), HumanCount(rate), HumanCount(duplicates));
        bar.set_message(format!("{events} events, {rate}/s, {duplicates} duplicates, {} settled", HumanBytes(bytes)));
        bar.set_position(bytes);
        std::thread::park_timeout(REFRESH);
    }
    bar.finish_and_clear();
}

impl super::Pipeline {
    /// The bytes there are to read, where that is known: files that are not compressed, or a redirected one.
    pub fn bytes_to_read(&self) -> Option<u64> {
        self.inputs.iter().try_fold(0, |sum, input| {
            let bytes = match &input.kind {
                InputKind::Stdin => {
                    let stat = rustix::fs::fstat(std::io::stdin()).ok()?;
                    let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
                    regular.then(|| u64::try_from(stat.st_size).ok())??
                }
                InputKind::File(config) => config.bytes()?,
            };
            Some(sum + bytes)
        })
    }

    /// Whether an input has an end, up to which somebody must have it read.
    pub fn has_an_end(&self) -> bool {
        self.inputs.iter().any(super::Input::has_an_end)
    }

    pub fn reads_stdin(&self) -> bool {
        self.inputs.iter().any(|input| matches!(input.kind, InputKind::Stdin))
    }
}
