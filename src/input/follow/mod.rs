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
pub mod machine;
mod originals;
pub mod pattern;
mod scan;
mod turn;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Resource, getrlimit};

use super::identity::{FileKey, Mark, Position};
use super::known::Place;
use super::{Draft, Intake, file};
use crate::ack::Shared;
use crate::ack::positions::WAY_ON;
use crate::batch::{Source, SourceNumber};
use crate::codec::Block;
use crate::pool::Buffer;
use disk::Real;
use machine::{FileNumber, Machine, Rules, Told};
use pattern::{Other, Paths};
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
    let mut rules = config.rules(files)?;
    let known = intake.before.positions.clone();
    let looked = intake.before.looked.iter().map(|pattern| {
        let unusable = || format!("a pattern in the saved positions cannot be used, `{pattern}`; {WAY_ON}");
        glob::Pattern::new(pattern).with_context(unusable)
    });
    let mut watch = Watch::new();
    let mut lanes = Lanes::new(&known, intake.input);
    let earlier = |earlier: &file::Earlier| {
        let (patterns, exclude) = (pattern::from_root(&earlier.paths)?, pattern::excluding(&earlier.exclude)?);
        anyhow::Ok(Other { input: earlier.input, patterns, exclude })
    };
    // the rest is for the output, the state and other inputs
    if let Some(open_max) = getrlimit(Resource::Nofile).current {
        rules.open_files_max = rules.open_files_max.min(usize::try_from(open_max / 2).unwrap_or(usize::MAX)).max(1);
    }
    let mut machine = Machine::new(Real, rules, intake.limits.clone(), &intake.pool, known)
        .looked_before(looked.collect::<anyhow::Result<_>>()?)
        .left_to(files.earlier.iter().map(earlier).collect::<Result<_, _>>()?);
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
        let patterns = pattern::from_root(&files.paths)?;
        Ok(Rules {
            paths: patterns.iter().map(|pattern| Paths::parse(pattern.as_str())).collect::<Result<_, _>>()?,
            patterns,
            exclude: pattern::excluding(&files.exclude)?,
            from_end: self.from_end,
            poll_interval: self.poll_interval,
            open_files_max: self.open_files_max,
            close_after: self.close_after,
            idle_flush: self.idle_flush,
        })
    }
}

struct Followed {
    /// Where its blocks are settled: those of one partition in the order in which they come. It is that of the file
    /// whose place it stands on, if that has something open.
    partition: u32,
    key: Arc<FileKey>,
    source: Arc<Source>,
    /// Up to where it was handed over.
    mark: Mark,
}

/// Makes blocks of what the machine tells, each with its place in the ledger.
pub struct Lanes {
    /// Which of the pipeline's inputs it is.
    input: usize,
    files: HashMap<FileNumber, Followed>,
    /// The highest number that was saved.
    saved: u64,
    /// Places of files that were there at the first look, as long as that lasts.
    met: Option<Vec<Position>>,
}

/// Takes a block that is ready. Says whether it goes on.
type Submit<'a> = dyn FnMut(Draft) -> bool + 'a;

impl Lanes {
    /// With the places that were saved.
    pub fn new(known: &[Position], input: usize) -> Lanes {
        let saved = known.iter().map(|known| known.number).max().unwrap_or(0);
        Lanes { input, files: HashMap::new(), saved, met: Some(Vec::new()) }
    }

    /// How many files it knows, those that ended included.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    pub fn hear(&mut self, told: Told<'_>, shared: &Shared, submit: &mut Submit<'_>) -> bool {
        match told {
            Told::Began { file, position, was, after } => self.begin(file, position, was, after, shared, submit),
            Told::Looked { patterns } => {
                let patterns = patterns.iter().map(|pattern| pattern.as_str().to_string());
                shared.lock().1.note_look(patterns, self.met.take().unwrap_or_default());
                true
            }
            Told::Moved { file, path } => {
                let Some(followed) = self.files.get_mut(&file) else { return true };
                let FileKey { identity, number, .. } = *followed.key;
                followed.key = Arc::new(FileKey { path: path.to_path_buf(), identity, number });
                followed.source = Arc::new(source(&followed.key, &followed.source.head));
                self.claim(file, shared, submit)
            }
            Told::Lines { file, block, head, day, identity, mark } => {
                let Some(followed) = self.files.get_mut(&file) else { return true };
                if *identity != followed.key.identity {
                    let FileKey { path, number, .. } = &*followed.key;
                    followed.key = Arc::new(FileKey { path: path.clone(), identity: *identity, number: *number });
                }
                if head.len() > followed.source.head.len() || followed.source.day != Some(day) {
                    followed.source = Arc::new(Source { day: Some(day), ..source(&followed.key, head) });
                }
                followed.mark = *mark;
                self.submit(file, block, shared, submit)
            }
            // it may turn up again, by another name or compressed
            Told::Ended { file } => {
                if let Some(followed) = self.files.get(&file) {
                    shared.lock().1.release(followed.partition);
                }
                true
            }
            // a saved place may be that of a file of another input
            Told::Forgotten { place } => {
                let followed = place.file.and_then(|file| self.files.remove(&file));
                followed.into_iter().for_each(|followed| shared.lock().1.forget(followed.key.number));
                true
            }
        }
    }

    fn begin(
        &mut self,
        file: FileNumber,
        position: &Position,
        was: Option<&Place>,
        after: Option<FileNumber>,
        shared: &Shared,
        submit: &mut Submit<'_>,
    ) -> bool {
        let (partition, number) = {
            let ledger = &mut shared.lock().1;
            let lane = after.and_then(|after| self.files.get(&after)).map(|before| before.partition);
            let lane = lane.filter(|lane| ledger.share(*lane));
            let partition = lane.unwrap_or_else(|| ledger.partition(position.mark.offset));
            // what it goes on from is no more
            let went = was.and_then(|was| was.file).and_then(|went| self.files.remove(&went));
            let saved = was.map(|was| was.position.number);
            let number = went.map_or_else(|| ledger.number_file(saved, self.saved), |went| went.key.number);
            (partition, number)
        };
        let key = Arc::new(FileKey { path: position.path.clone(), identity: position.identity, number });
        let source = Arc::new(source(&key, &[]));
        self.files.insert(file, Followed { partition, key: key.clone(), source, mark: position.mark });
        match was {
            Some(was) if was.position.is_same(position) && (was.file.is_some() || was.position.number == number) => {
                true
            }
            None if position.mark.offset == 0 => {
                shared.lock().1.begin_file(number);
                true
            }
            // behind what is left out, which stands on nothing
            None if after.is_none()
                && let Some(met) = &mut self.met =>
            {
                met.push(key.at(position.mark));
                true
            }
            // under another name than it was saved with, or behind what was read of another
            _ => self.claim(file, shared, submit),
        }
    }

    /// Has a file's place saved once all before it is settled, without a line: by a block with nothing in it.
    fn claim(&self, file: FileNumber, shared: &Shared, submit: &mut Submit<'_>) -> bool {
        let offset = self.files.get(&file).map_or(0, |followed| followed.mark.offset);
        let block = Block { bytes: Buffer::default(), offset, too_long: None, mark: None, records: None };
        self.submit(file, block, shared, submit)
    }

    fn submit(&self, file: FileNumber, mut block: Block, shared: &Shared, submit: &mut Submit<'_>) -> bool {
        let Some(followed) = self.files.get(&file) else { return true };
        let partition = followed.partition;
        let number = shared.lock().1.number_batch(partition);
        block.mark = Some(followed.mark);
        let (source, file) = (followed.source.clone(), Some(followed.key.clone()));
        // what nobody takes is read again
        submit(Draft { partition, number, block, input: self.input, source, file, keep: None })
    }
}

fn source(file: &FileKey, head: &[u8]) -> Source {
    let FileKey { path, identity, number } = file;
    let (inode, number) = (Some((identity.device, identity.inode)), Some(SourceNumber::File(*number)));
    Source { name: path.to_string_lossy().into(), head: head.into(), inode, number, ..Source::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::identity::{Identity, Print};

    fn position(path: &str, text: &str) -> Position {
        let (head, tail) = (Print::head(text.as_bytes()), Print::tail(text.as_bytes()));
        let identity = Identity { device: 1, inode: 7, born: None, head };
        Position { number: 0, path: path.into(), identity, mark: Mark { offset: text.len() as u64, tail } }
    }

    /// A file was read, and not settled yet, when it goes and another gets its inode, which is settled before.
    #[test]
    fn files_that_had_one_inode_keep_a_place_each() {
        let shared = Shared::default();
        let mut lanes = Lanes::new(&[Position { number: 4, ..position("/old", "old") }], 0);
        let mut drafts = Vec::new();
        let texts = ["one\n", "another\n"];
        for (file, text) in texts.into_iter().enumerate() {
            let file = file as FileNumber;
            let Position { identity, mark, .. } = position("", text);
            let mut hear = |told: Told<'_>| {
                lanes.hear(told, &shared, &mut |draft| {
                    drafts.push(draft);
                    true
                })
            };
            let began = position("/a", "");
            assert!(hear(Told::Began { file, position: &began, was: None, after: None }));
            let block =
                Block { bytes: text.as_bytes().to_vec().into(), offset: 0, too_long: None, mark: None, records: None };
            let head = text.as_bytes();
            assert!(hear(Told::Lines { file, block, head, day: 0, identity: &identity, mark: &mark }));
            assert!(hear(Told::Ended { file }));
        }
        let ledger = &mut shared.lock().1;
        for draft in &drafts {
            ledger.open(draft.partition, draft.number, 0..draft.block.bytes.len() as u64);
        }
        let mut saved = Vec::new();
        for draft in drafts.into_iter().rev() {
            ledger.settle(draft.partition, draft.number, draft.file.zip(draft.block.mark));
            saved.extend(ledger.take_moved().positions);
        }
        let want = [(6, texts[1]), (5, texts[0])].map(|(number, text)| Position { number, ..position("/a", text) });
        assert_eq!((saved, ledger.partitions()), (want.to_vec(), 0));
    }
}
