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
use super::{Draft, Intake, file};
use crate::ack::Shared;
use crate::batch::Source;
use crate::codec::Block;
use crate::pool::Buffer;
use disk::Real;
use gone::Inode;
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
    let mut watch = Watch::new();
    let mut lanes = Lanes::new(&known, intake.input);
    let mut machine = Machine::new(Real, rules, intake.limits, &intake.pool, known);
    let began = Instant::now();
    let mut hints = Vec::new();
    while intake.is_running() {
        let stepped = began.elapsed();
        let next = machine.step(stepped, &hints, &mut |told| {
            intake.is_running() && lanes.hear(told, &intake.shared, &mut |draft| intake.submit(draft))
        });
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

/// Makes blocks of what the machine tells, each with its place in the ledger.
pub struct Lanes {
    /// Which of the pipeline's inputs it is.
    input: usize,
    lanes: Vec<Lane>,
    files: HashMap<FileNumber, Followed>,
    /// The last file that had an inode.
    by_inode: HashMap<Inode, FileNumber>,
    /// Saved places of files not met yet.
    saved: HashMap<Inode, Position>,
}

/// Takes a block that is ready. Says whether it goes on.
type Submit<'a> = dyn FnMut(Draft) -> bool + 'a;

impl Lanes {
    /// With the places that were saved.
    pub fn new(known: &[Position], input: usize) -> Lanes {
        let inode = |known: &Position| (known.identity.device, known.identity.inode);
        let saved = known.iter().map(|known| (inode(known), known.clone())).collect();
        Lanes { input, lanes: Vec::new(), files: HashMap::new(), by_inode: HashMap::new(), saved }
    }

    pub fn hear(&mut self, told: Told<'_>, shared: &Shared, submit: &mut Submit<'_>) -> bool {
        match told {
            Told::Began { file, position, was, after } => {
                self.keep_place_of_inode(file, position, was, shared, submit)
                    && self.begin(file, position, was, after, shared, submit)
            }
            Told::Moved { file, path } => {
                let Some(followed) = self.files.get_mut(&file) else { return true };
                let FileKey { identity, number, .. } = *followed.key;
                followed.key = Arc::new(FileKey { path: path.to_path_buf(), identity, number });
                followed.source = Arc::new(source(path, &identity, &followed.source.head));
                self.claim(file, submit)
            }
            Told::Lines { file, block, head, identity, mark } => {
                let Some(followed) = self.files.get_mut(&file) else { return true };
                if identity != followed.key.identity {
                    let FileKey { path, number, .. } = &*followed.key;
                    followed.key = Arc::new(FileKey { path: path.clone(), identity, number: *number });
                }
                if head.len() > followed.source.head.len() {
                    followed.source = Arc::new(source(&followed.key.path, &identity, head));
                }
                followed.mark = mark;
                self.submit(file, block, submit)
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
        shared: &Shared,
        submit: &mut Submit<'_>,
    ) -> bool {
        let number = shared.lock().1.number_file();
        let lane = after.and_then(|after| self.files.get(&after)).map(|before| before.lane);
        let lane = lane.unwrap_or_else(|| {
            let partition = shared.lock().1.partition(position.mark.offset);
            self.lanes.push(Lane { partition, number: 0 });
            self.lanes.len() - 1
        });
        let key = Arc::new(FileKey { path: position.path.clone(), identity: position.identity, number });
        let source = Arc::new(source(&position.path, &position.identity, &[]));
        self.files.insert(file, Followed { lane, key, source, mark: position.mark });
        // a place that no line leads to: behind what is left out, or under another name than it was saved with
        let is_saved = was.map_or(position.mark.offset == 0, |was| was == position);
        is_saved || self.claim(file, submit)
    }

    /// Places are saved by inode, and a file that begins with one that was used before would take the place of the
    /// file that had it, which may turn up again, compressed: that one is saved apart.
    fn keep_place_of_inode(
        &mut self,
        file: FileNumber,
        position: &Position,
        was: Option<&Position>,
        shared: &Shared,
        submit: &mut Submit<'_>,
    ) -> bool {
        let inode = (position.identity.device, position.identity.inode);
        if let Some(saved) = self.saved.remove(&inode)
            && Some(&saved) != was
            && let Some(identity) = apart(&saved.identity)
        {
            shared.lock().1.note(Position { identity, ..saved });
        }
        let Some(before) = self.by_inode.insert(inode, file) else { return true };
        let Some(followed) = self.files.get_mut(&before) else { return true };
        let Some(identity) = apart(&followed.key.identity) else { return true };
        let FileKey { path, number, .. } = &*followed.key;
        followed.key = Arc::new(FileKey { path: path.clone(), identity, number: *number });
        self.claim(before, submit)
    }

    /// Has a file's place saved once all before it is settled, without a line: by a block with nothing in it.
    fn claim(&mut self, file: FileNumber, submit: &mut Submit<'_>) -> bool {
        let offset = self.files.get(&file).map_or(0, |followed| followed.mark.offset);
        let block = Block { bytes: Buffer::default(), offset, too_long: None, mark: None, records: None };
        self.submit(file, block, submit)
    }

    fn submit(&mut self, file: FileNumber, mut block: Block, submit: &mut Submit<'_>) -> bool {
        let Some(followed) = self.files.get(&file) else { return true };
        let lane = &mut self.lanes[followed.lane];
        let number = lane.number;
        lane.number += 1;
        block.mark = Some(followed.mark);
        let (source, file) = (followed.source.clone(), Some(followed.key.clone()));
        // what nobody takes is read again
        submit(Draft { partition: lane.partition, number, block, input: self.input, source, file, keep: None })
    }
}

/// A file without its inode, which another has now: known by its head alone.
fn apart(identity: &Identity) -> Option<Identity> {
    let mut number = [0; 8];
    number.copy_from_slice(&identity.head.hash[..8]);
    // no file has device 0; half of the range will do
    let inode = u64::from_be_bytes(number) >> 1;
    (identity.head.bytes > 0).then_some(Identity { device: 0, inode, head: identity.head })
}

fn source(path: &Path, identity: &Identity, head: &[u8]) -> Source {
    let inode = Some((identity.device, identity.inode));
    Source { name: path.to_string_lossy().into(), head: head.into(), inode, again: None }
}
