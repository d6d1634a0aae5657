//! `type = "sqlite"`: an embedded database file; no server is needed.
//!
//! ```toml
//! [output]
//! type = "sqlite"
//! path = "events.sqlite"
//! action = "index"
//! ```
//!
//! One table an index, named as the index, with the columns `_id` (primary key), `_version` (how often the event was
//! written) and `_source` (JSON). A parcel is one transaction, on the disk before its events count as delivered; the
//! positions that it leads to are in the same transaction, so that a row is there if and only if it is not read
//! again. The file can be read while it is written.

pub mod positions;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rusqlite::{Connection, ErrorCode};

use super::{Action, Form, Item, Next, Output, Parcel, Parcels, Phase, Phases};
use crate::ack::positions::Before;
use crate::ack::{Acks, Letter, Moves, Reason, Tally};
use crate::config::Section;
use crate::disk::private_folder;
use crate::time::Time;

/// What moves positions and brings no row is saved when nothing came for so long.
const SAVE_WAIT: Duration = Duration::from_secs(1);

/// How long to wait before a database that is full or locked is tried again.
const RETRY_WAIT: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub struct Config {
    pub path: PathBuf,
    pub action: Action,
}

impl Config {
    pub fn read(t: &Section<'_>) -> Option<Config> {
        let path = t.path("path").required();
        let action = Action::read(t);
        Some(Config { path: path?, action })
    }
}

pub struct Sqlite {
    config: Config,
    /// Whose positions are saved.
    pipeline: String,
    connection: Connection,
    tables: HashMap<std::sync::Arc<str>, Statements>,
    has_positions: bool,
    /// The database takes nothing now, and it was said.
    troubled: bool,
}

/// The statements of one table. Indices are few, so their text is kept and SQLite's own cache keeps them prepared.
struct Statements {
    insert: String,
    count_up: String,
}

impl Sqlite {
    pub fn open(config: Config, pipeline: &str) -> anyhow::Result<Sqlite> {
        if let Some(folder) = config.path.parent() {
            private_folder(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let shown = config.path.display().to_string();
        make(&config.path).with_context(|| format!("cannot make {shown}"))?;
        let connection = Connection::open(&config.path).with_context(|| format!("cannot open {shown}"))?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.set_prepared_statement_cache_capacity(256);
        // WAL lets others read meanwhile; FULL puts each transaction on the disk before it is acknowledged
        connection.pragma_update(None, "journal_mode", "wal").with_context(|| format!("{shown} is no database"))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "cache_size", -32_768)?;
        let (pipeline, tables) = (pipeline.to_string(), HashMap::new());
        Ok(Sqlite { config, pipeline, connection, tables, has_positions: false, troubled: false })
    }

    /// Delivers a parcel; false if it was given up.
    fn deliver(&mut self, parcel: &Parcel, acks: &Acks, phases: &Phases) -> anyhow::Result<bool> {
        let action = self.config.action;
        let is_refused = |item: &&Item| reserved(&parcel.indices[item.index as usize]);
        let refused: Vec<Letter> =
            parcel.items.iter().filter(is_refused).map(|item| reserved_name(parcel, item, action)).collect();
        let rows = (parcel.items.len() - refused.len()) as u64;
        if !refused.is_empty() {
            acks.settle(&parcel.receipt, Tally::default(), refused);
        }
        // letters of all that was read up to here are on the disk before the positions say that it was
        let moves = match parcel.receipt.claim() {
            Some(_) => acks.flush(Some((&parcel.receipt, rows))),
            None => Some(Moves::default()),
        };
        let Some(moves) = moves else { return Ok(false) };
        let Some(tally) = self.patiently(phases, |sqlite| sqlite.write(parcel, &moves))? else { return Ok(false) };
        acks.settle(&parcel.receipt, tally, Vec::new());
        Ok(true)
    }

    /// Tries until the database takes it; none if it was given up.
    fn patiently<T>(
        &mut self,
        phases: &Phases,
        mut write: impl FnMut(&mut Sqlite) -> rusqlite::Result<T>,
    ) -> anyhow::Result<Option<T>> {
        while *phases.borrow() != Phase::Abandon {
            match write(self) {
                Ok(written) => {
                    if std::mem::take(&mut self.troubled) {
                        tracing::info!(path = %self.config.path.display(), "the database takes rows again");
                    }
                    return Ok(Some(written));
                }
                Err(error) if passing(&error) => {
                    if !std::mem::replace(&mut self.troubled, true) {
                        let path = self.config.path.display();
                        tracing::warn!(%path, %error, "the database takes no rows; waiting for it");
                    }
                    std::thread::sleep(RETRY_WAIT);
                }
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot write {}", self.config.path.display()));
                }
            }
        }
        Ok(None)
    }

    /// Writes a parcel and the positions it leads to in one transaction.
    fn write(&mut self, parcel: &Parcel, moves: &Moves) -> rusqlite::Result<Tally> {
        for index in &parcel.indices {
            if !self.tables.contains_key(index) && !reserved(index) {
                let statements = create_table(&self.connection, index)?;
                self.tables.insert(index.clone(), statements);
            }
        }
        self.create_positions(moves)?;
        let mut tally = Tally { requests: 1, bytes_out: parcel.body.len() as u64, ..Tally::default() };
        let transaction = self.connection.transaction()?;
        for item in &parcel.items {
            let Some(statements) = self.tables.get(&parcel.indices[item.index as usize]) else { continue };
            let (id, source) = (text(parcel.head(item)), text(parcel.source(item)));
            let inserted = transaction.prepare_cached(&statements.insert)?.execute([&id, &source])?;
            if inserted == 1 {
                tally.created += 1;
                continue;
            }
            tally.duplicates += 1;
            if self.config.action == Action::Index {
                transaction.prepare_cached(&statements.count_up)?.execute([&id, &source])?;
            }
        }
        positions::save(&transaction, &self.pipeline, moves, Time::now().secs)?;
        transaction.commit()?;
        Ok(tally)
    }

    /// Saves what no row came with; false if it was given up.
    fn save(&mut self, acks: &Acks, phases: &Phases) -> anyhow::Result<bool> {
        let moves = acks.flush(None).unwrap_or_default();
        let is_saved = moves.is_empty() || self.patiently(phases, |sqlite| sqlite.write_positions(&moves))?.is_some();
        Ok(is_saved)
    }

    /// Writes positions that no row came with.
    fn write_positions(&mut self, moves: &Moves) -> rusqlite::Result<()> {
        self.create_positions(moves)?;
        let transaction = self.connection.transaction()?;
        positions::save(&transaction, &self.pipeline, moves, Time::now().secs)?;
        transaction.commit()
    }

    fn create_positions(&mut self, moves: &Moves) -> rusqlite::Result<()> {
        if !moves.is_empty() && !self.has_positions {
            positions::create(&self.connection)?;
            self.has_positions = true;
        }
        Ok(())
    }
}

/// An empty file if there is none, for its owner only: SQLite gives the files beside it the same rights.
fn make(path: &Path) -> io::Result<()> {
    let name = path.as_os_str().as_encoded_bytes();
    if name.starts_with(b"file:") || name.starts_with(b":") {
        // a name that SQLite understands otherwise
        return Ok(());
    }
    match OpenOptions::new().create_new(true).write(true).mode(0o600).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map(drop),
    }
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Names that SQLite keeps for itself.
fn reserved(index: &str) -> bool {
    index.starts_with("sqlite_")
}

fn reserved_name(parcel: &Parcel, item: &Item, action: Action) -> Letter {
    Letter {
        reason: Reason::BadIndexName,
        detail: "sqlite keeps names that begin with sqlite_ for itself".to_string(),
        event: Some(parcel.source(item).to_vec()),
        raw: Vec::new(),
        is_cut: false,
        id: Some(text(parcel.head(item)).into_owned()),
        index: Some(parcel.indices[item.index as usize].to_string()),
        action: Some(action.as_str()),
        status: None,
        error: None,
        attempts: 1,
        source: parcel.source.to_string(),
        offset: item.offset,
        input: 0,
        head: None,
        inode: None,
        again: None,
    }
}

fn create_table(connection: &Connection, index: &str) -> rusqlite::Result<Statements> {
    let table = format!("\"{}\"", index.replace('"', "\"\""));
    connection.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS {table} (_id TEXT PRIMARY KEY, _version INTEGER NOT NULL, _source TEXT NOT NULL) \
         WITHOUT ROWID"
    ))?;
    Ok(Statements {
        insert: format!("INSERT INTO {table} (_id, _version, _source) VALUES (?1, 1, ?2) ON CONFLICT DO NOTHING"),
        count_up: format!("UPDATE {table} SET _version = _version + 1, _source = ?2 WHERE _id = ?1"),
    })
}

/// Whether the trouble may pass by itself: another process holds the file, or the disk is full.
fn passing(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
        )
    )
}

impl Output for Sqlite {
    fn form(&self) -> Form {
        Form::Rows
    }

    fn positions(&mut self, anew: Option<&[String]>, phases: &Phases) -> anyhow::Result<Option<Before>> {
        // a disk that is full, or another process, can keep the database from being read too
        let looked = self.patiently(phases, |sqlite| match positions::has_table(&sqlite.connection) {
            Err(error) if passing(&error) => Err(error),
            // what will not pass is told below, in its own words
            _ => Ok(()),
        });
        looked?.context("stopped before the database could be read")?;
        let failed = || format!("cannot forget positions in {}", self.config.path.display());
        if let Some(patterns) = anew {
            let transaction = self.connection.unchecked_transaction().with_context(failed)?;
            positions::forget_all(&transaction, &self.pipeline, patterns).with_context(failed)?;
            transaction.commit().with_context(failed)?;
            return Ok(Some(Before { looked: patterns.iter().cloned().collect(), ..Before::default() }));
        }
        let (saved, looked) = positions::load_all(&self.connection, &self.pipeline, &self.config.path)?;
        let now_secs = Time::now().secs;
        let (gone, kept): (Vec<_>, Vec<_>) = saved.into_iter().partition(|saved| saved.is_forgotten(now_secs));
        let gone: Vec<u64> = gone.into_iter().map(|saved| saved.position.number).collect();
        positions::forget(&self.connection, &self.pipeline, &gone).with_context(failed)?;
        Ok(Some(Before { positions: kept.into_iter().map(|saved| saved.position).collect(), looked }))
    }

    fn run(mut self: Box<Self>, mut parcels: Parcels, acks: Acks, phases: Phases) -> anyhow::Result<()> {
        loop {
            match parcels.next_within(SAVE_WAIT) {
                Next::Parcel(parcel) if !self.deliver(&parcel, &acks, &phases)? => return Ok(()),
                Next::Parcel(_) => {}
                // what ended without a row moves positions too
                Next::None if !self.save(&acks, &phases)? => return Ok(()),
                Next::None => {}
                Next::End => break,
            }
        }
        if !self.save(&acks, &phases)? {
            return Ok(());
        }
        // leaves one file behind where nobody else has it open
        let _ = self.connection.pragma_update(None, "wal_checkpoint", "truncate");
        Ok(())
    }
}
