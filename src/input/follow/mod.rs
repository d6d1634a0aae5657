//! `type = "file"` without `--once`: files are read as they grow, through rotation, truncation and restarts.
//!
//! ```toml
//! [[input]]
//! type = "file"
//! paths = ["/var/log/app/*.log"]
//! read_from = "end"
//! codec = "json"
//! ```
//!
//! One thread reads all files: [`machine`] decides, and knows neither clock nor thread; here it gets the time, what
//! [`watch`] says to have changed, and an [`Intake`] for what it read.

mod adopt;
pub mod disk;
mod gone;
pub mod machine;
mod packed;
pub mod pattern;
mod scan;
mod turn;
mod watch;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::identity::{FileKey, Identity, Mark, Position};
use super::{Intake, Of, file};
use crate::batch::Source;
use crate::codec::Block;
use crate::pool::Buffer;
use disk::Real;
use machine::{FileNumber, Machine, Rules, Told};
use pattern::Paths;
use watch::Watch;

/// What is said of following beside the paths.
#[derive(Clone, Debug)]
pub struct Config {
    /// Files that are there at the first start are read from their end on.
    pub from_end: bool,
    pub poll_interval: Duration,
    pub open_files_max: usize,
    pub close_after: Duration,
    pub idle_flush: Option<Duration>,
}

/// Lines that come one by one wait so long for more: a block each would cost more than what is in it.
const LINGER: Duration = Duration::from_millis(20);
/// How often is asked whether the program goes down.
const WATCH: Duration = Duration::from_millis(200);

/// Follows files until the program goes down.
pub fn run(files: &file::Config, config: &Config, intake: &Intake) -> anyhow::Result<()> {
    let rules = config.rules(files)?;
    let known = intake.known.positions().to_vec();
    let mut machine = Machine::new(Real, rules, intake.limits, &intake.pool, known);
    let mut watch = Watch::new();
    let mut desk = Desk { intake, lanes: Vec::new(), files: HashMap::new() };
    let began = Instant::now();
    let mut hints = Vec::new();
    while intake.is_running() {
        let stepped = began.elapsed();
        let next = machine.step(stepped, &hints, &mut |told| desk.hear(told));
        watch.follow(machine.folders());
        let wait = next.saturating_sub(began.elapsed()).min(WATCH);
        if !wait.is_zero() && watch.wait(wait) {
            std::thread::sleep((stepped + LINGER).saturating_sub(began.elapsed()));
        }
        hints = watch.hints();
    }
    Ok(())
}

impl Config {
    fn rules(&self, files: &file::Config) -> anyhow::Result<Rules> {
        let absolute = |pattern: &String| {
            let full = std::path::absolute(pattern)?;
            anyhow::Ok(full.to_string_lossy().into_owned())
        };
        let paths: Vec<String> = files.paths.iter().map(absolute).collect::<Result<_, _>>()?;
        // a name alone is left out wherever it is
        let exclude = |pattern: &String| if pattern.contains('/') { absolute(pattern) } else { Ok(pattern.clone()) };
        let exclude: Vec<String> = files.exclude.iter().map(exclude).collect::<Result<_, _>>()?;
        Ok(Rules {
            paths: paths.iter().map(|pattern| Paths::parse(pattern)).collect::<Result<_, _>>()?,
            patterns: paths.iter().map(|pattern| glob::Pattern::new(pattern)).collect::<Result<_, _>>()?,
            exclude: exclude.iter().map(|pattern| glob::Pattern::new(pattern)).collect::<Result<_, _>>()?,
            from_end: self.from_end,
            poll_interval: self.poll_interval,
            open_files_max: self.open_files_max,
            close_after: self.close_after,
            idle_flush: self.idle_flush,
        })
    }
}

/// Blocks in the order in which they must be settled: those of a file, and of the file that it stands on.
struct Lane {
    partition: u32,
    /// Of the next block.
    number: u64,
}

struct Followed {
    lane: usize,
    key: Arc<FileKey>,
    source: Arc<Source>,
    /// Up to where it was handed over.
    mark: Mark,
}

/// Hands over what the machine tells.
struct Desk<'a> {
    intake: &'a Intake,
    lanes: Vec<Lane>,
    files: HashMap<FileNumber, Followed>,
}

impl Desk<'_> {
    fn hear(&mut self, told: Told<'_>) -> bool {
        if !self.intake.is_running() {
            return false;
        }
        match told {
            Told::Began { file, position, was, after } => self.begin(file, position, was, after),
            Told::Moved { file, path } => {
                let Some(followed) = self.files.get_mut(&file) else { return true };
                let identity = followed.key.identity;
                followed.key = Arc::new(FileKey { path: path.to_path_buf(), identity });
                followed.source = Arc::new(source(path, &identity, &followed.source.head));
                self.claim(file)
            }
            Told::Lines { file, block, head, identity, mark } => {
                let Some(followed) = self.files.get_mut(&file) else { return true };
                if identity != followed.key.identity {
                    followed.key = Arc::new(FileKey { path: followed.key.path.clone(), identity });
                }
                if head.len() > followed.source.head.len() {
                    followed.source = Arc::new(source(&followed.key.path, &identity, head));
                }
                followed.mark = mark;
                self.submit(file, block)
            }
            // it may turn up again, by another name or compressed
            Told::Ended { .. } => true,
            Told::Forgotten { file, .. } => {
                file.map(|file| self.files.remove(&file));
                true
            }
        }
    }

    fn begin(
        &mut self,
        file: FileNumber,
        position: &Position,
        was: Option<&Position>,
        after: Option<FileNumber>,
    ) -> bool {
        let lane = after.and_then(|after| self.files.get(&after)).map(|before| before.lane);
        let lane = lane.unwrap_or_else(|| {
            let partition = self.intake.shared.lock().1.partition(position.mark.offset);
            self.lanes.push(Lane { partition, number: 0 });
            self.lanes.len() - 1
        });
        let key = Arc::new(FileKey { path: position.path.clone(), identity: position.identity });
        let source = Arc::new(source(&position.path, &position.identity, &[]));
        self.files.insert(file, Followed { lane, key, source, mark: position.mark });
        // a place that no line leads to: behind what is left out, or under another name than it was saved with
        let is_saved = was.map_or(position.mark.offset == 0, |was| was == position);
        is_saved || self.claim(file)
    }

    /// Has a file's place saved once all before it is settled, without a line: by a block with nothing in it.
    fn claim(&mut self, file: FileNumber) -> bool {
        let offset = self.files.get(&file).map_or(0, |followed| followed.mark.offset);
        self.submit(file, Block { bytes: Buffer::default(), offset, too_long: None, mark: None, records: None })
    }

    fn submit(&mut self, file: FileNumber, mut block: Block) -> bool {
        let Some(followed) = self.files.get(&file) else { return true };
        let lane = &mut self.lanes[followed.lane];
        let number = lane.number;
        lane.number += 1;
        block.mark = Some(followed.mark);
        let (source, key) = (followed.source.clone(), Some(followed.key.clone()));
        let of = Of { input: self.intake.input, source, file: key, keep: None };
        // what nobody takes is read again
        self.intake.submit((lane.partition, number), block, of).is_none()
    }
}

fn source(path: &Path, identity: &Identity, head: &[u8]) -> Source {
    let inode = Some((identity.device, identity.inode));
    Source { name: path.to_string_lossy().into(), head: head.into(), inode, again: None }
}
