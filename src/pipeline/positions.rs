//! `onceline positions`: how far each file was read and settled, shown and forgotten.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use super::{InputKind, Pipeline};
use crate::ack::lock::Lock;
use crate::ack::positions::{self, Saved, Store};
use crate::config::printable;
use crate::disk::resolved;
use crate::input::file;
use crate::input::identity::Position;
use crate::output;
use crate::output::sqlite::positions as table;

/// Where a pipeline's positions are.
pub enum Place<'a> {
    /// `positions.json` in the state folder.
    State(&'a Path),
    /// With the rows.
    Database { path: &'a Path, pipeline: &'a str },
}

impl Pipeline {
    pub fn positions(&self) -> Place<'_> {
        match &self.output {
            output::Config::Sqlite(config) => Place::Database { path: &config.path, pipeline: &self.name },
            _ => Place::State(&self.state),
        }
    }

    /// Keeps other processes from positions of files that are saved in a database; a state folder has a lock anyway.
    pub fn lock_positions(&self) -> anyhow::Result<Option<Lock>> {
        match self.positions() {
            Place::Database { path, pipeline } if self.saves_in().is_some() => {
                Lock::positions(path, pipeline).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The patterns by which its files are looked for.
    pub fn patterns(&self) -> anyhow::Result<Vec<String>> {
        let mut patterns = Vec::new();
        for input in &self.inputs {
            if let InputKind::File(config) = &input.kind {
                patterns.extend(config.patterns()?);
            }
        }
        Ok(patterns)
    }

    /// Why its inputs cannot be together; none if no two of them read a file.
    pub fn conflict(&self) -> Option<String> {
        self.inputs.iter().enumerate().find_map(|(number, input)| match &input.kind {
            InputKind::File(config) => config.conflict(number),
            InputKind::Stdin => None,
        })
    }

    /// What the place is called where positions of files are saved; none if it has no files.
    pub fn saves_in(&self) -> Option<String> {
        let has_files = self.inputs.iter().any(|input| matches!(input.kind, InputKind::File(_)));
        let shown = |path: &Path| resolved(path).display().to_string();
        has_files.then(|| match self.positions() {
            Place::State(state) => shown(state),
            Place::Database { path, pipeline } => format!("{} as those of `{pipeline}`", shown(path)),
        })
    }

    /// A digest of where numbers are given to files and spools: a letter of another place is of another line.
    pub fn numbers_of(&self) -> [u8; 16] {
        let place = (self.saves_in(), resolved(&self.spool));
        let mut print = [0; 16];
        print.copy_from_slice(&<sha2::Sha256 as sha2::Digest>::digest(format!("{place:?}"))[..16]);
        print
    }

    /// Where positions of files are saved, in words.
    pub fn positions_words(&self) -> Option<String> {
        self.saves_in().map(|_| match self.positions() {
            Place::State(_) => "in the state folder".to_string(),
            Place::Database { path, .. } => format!("in {}, with the rows", path.display()),
        })
    }
}

impl Place<'_> {
    /// What was saved, by path.
    pub fn saved(&self) -> anyhow::Result<Vec<Saved>> {
        let mut saved = match self {
            Place::State(state) => Store::load(state)?.saved().cloned().collect(),
            Place::Database { path, pipeline } => match table::open(path)? {
                Some(connection) => table::load(&connection, pipeline, path)?,
                None => Vec::new(),
            },
        };
        saved.sort_by(|a, b| a.position.path.cmp(&b.position.path));
        Ok(saved)
    }

    /// Forgets everything, whatever it looks like; only that files were looked for by these patterns stays known.
    pub fn forget_all(&self, patterns: &[String]) -> anyhow::Result<()> {
        match self {
            Place::State(state) => positions::forget_all(state, patterns.iter().cloned()),
            Place::Database { path, pipeline } => {
                let Some(mut connection) = table::open(path)? else { return Ok(()) };
                let failed = || format!("cannot forget the positions in {}", path.display());
                let transaction = connection.transaction().with_context(failed)?;
                table::forget_all(&transaction, pipeline, patterns).with_context(failed)?;
                transaction.commit().with_context(failed)
            }
        }
    }

    /// Forgets these.
    pub fn forget(&self, gone: &[Position]) -> anyhow::Result<()> {
        match self {
            Place::State(state) => {
                let mut store = Store::load(state)?;
                store.retain(|position| !gone.contains(position));
                store.write()
            }
            Place::Database { path, pipeline } => {
                let Some(mut connection) = table::open(path)? else { return Ok(()) };
                let transaction = connection.transaction()?;
                let numbers: Vec<u64> = gone.iter().map(|position| position.number).collect();
                table::forget(&transaction, pipeline, &numbers)?;
                transaction.commit().with_context(|| format!("cannot forget the positions in {}", path.display()))
            }
        }
    }
}

/// The saved positions of some paths; an error names those that have none.
pub fn of_paths(saved: &[Saved], paths: &[PathBuf]) -> anyhow::Result<Vec<Position>> {
    let mut found = Vec::new();
    for path in paths {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let before = found.len();
        let here = saved.iter().map(|saved| &saved.position).filter(|position| position.path == absolute);
        found.extend(here.cloned());
        anyhow::ensure!(found.len() > before, "no position is saved of {}", absolute.display());
    }
    Ok(found)
}

/// How a saved position compares with the file there is.
struct Shown<'a> {
    position: &'a Position,
    /// Of the text; none if the file is compressed, or gone.
    size: Option<u64>,
    is_there: bool,
}

impl Shown<'_> {
    fn of(saved: &Saved) -> Shown<'_> {
        let position = &saved.position;
        let is_there = position.is_at_its_path();
        Shown { position, size: is_there.then(|| file::text_size(&position.path)).flatten(), is_there }
    }

    fn percent(&self) -> Option<u64> {
        let size = u128::from(self.size?);
        // a part of a percent that is missing is missing; an empty file is read
        let percent = (u128::from(self.position.mark.offset) * 100).checked_div(size).unwrap_or(100);
        u64::try_from(percent).ok()
    }
}

/// Positions as a table for people.
pub fn table(saved: &[Saved]) -> String {
    let mut text = format!("{:>14} {:>14} {:>5}  {}\n", "offset", "size", "%", "path");
    for shown in saved.iter().map(Shown::of) {
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_string(), |number| number.to_string());
        let gone = if shown.is_there { "" } else { " (gone, or another file now)" };
        let (offset, path) = (shown.position.mark.offset, printable(&shown.position.path.to_string_lossy()));
        let (size, percent) = (number(shown.size), number(shown.percent()));
        text.push_str(&format!("{offset:>14} {size:>14} {percent:>5}  {path}{gone}\n"));
    }
    text
}

/// Positions as JSON.
pub fn to_json(saved: &[Saved]) -> Value {
    let file = |saved: &Saved| {
        let shown = Shown::of(saved);
        let Position { path, identity, mark, .. } = shown.position;
        json!({
            "path": path.to_string_lossy(), "offset": mark.offset, "size": shown.size, "percent": shown.percent(),
            "is_there": shown.is_there, "device": identity.device, "inode": identity.inode,
            "moved": crate::time::Time::new(saved.moved_secs, 0).iso(),
        })
    };
    json!({"files": saved.iter().map(file).collect::<Vec<Value>>()})
}
