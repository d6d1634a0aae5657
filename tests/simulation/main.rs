//! A deterministic simulation of the whole way: the pipeline's own code over a simulated disk and a simulated engine,
//! in simulated time, with faults of both and with crashes at any step. One seed is one run, to the byte.
//!
//! `cargo test --test simulation` runs a thousand seeds; `ONCELINE_SEEDS=N` so many, `ONCELINE_SEED=S` that one, and with
//! `ONCELINE_TRACE=1` its steps are printed. See README.md for what it shows and how to extend it.

mod check;
mod disk;
mod engine;
mod input;
mod life;
mod logs;
mod pipe;
mod run;
mod saves;
mod scenario;
mod session;
mod world;
mod writer;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds that once failed.
const KEPT: &str = include_str!("seeds.txt");

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn kept() -> impl Iterator<Item = u64> {
    KEPT.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok())
}

#[test]
fn every_line_has_exactly_one_fate() {
    let seeds: Vec<u64> = match (number("ONCELINE_SEED"), number("ONCELINE_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, count) => kept().chain(1..=count.unwrap_or(1000)).collect(),
    };
    let (next, done, failed) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(Vec::new()));
    let sums = Mutex::new(run::Counts::default());
    // for trying out what the simulation finds: up to the first seed that fails
    let is_first_enough = std::env::var_os("ONCELINE_FIRST").is_some();
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(seeds.len()) {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    if is_first_enough && !world::lock(&failed).is_empty() {
                        break;
                    }
                    let outcome = run::run(*seed);
                    world::lock(&sums).add(&outcome.counts);
                    if !outcome.wrong.is_empty() {
                        let mut failed = world::lock(&failed);
                        if failed.is_empty() {
                            println!("{}", outcome.words(*seed));
                        }
                        failed.push(*seed);
                    }
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if done.is_multiple_of(1000) {
                        let (seconds, failed) = (started.elapsed().as_secs_f64(), world::lock(&failed).len());
                        println!("{done} of {} seeds after {seconds:.0} s, {failed} failed", seeds.len());
                    }
                }
            });
        }
    });
    let (count, seconds) = (seeds.len(), started.elapsed().as_secs_f64());
    println!("{count} seeds in {seconds:.1} s: {}", world::lock(&sums).words());
    let mut failed = failed.into_inner().unwrap_or_default();
    failed.sort_unstable();
    assert!(
        failed.is_empty(),
        "{} of {count} seeds failed, keep them in tests/simulation/seeds.txt: {failed:?}",
        failed.len()
    );
}

/// The same seed is the same run, step by step.
#[test]
fn a_seed_is_one_run() {
    for seed in [1, 2, 3, 5, 8] {
        let (first, second) = (run::run(seed), run::run(seed));
        assert_eq!(first.digest, second.digest, "seed {seed}");
    }
}
