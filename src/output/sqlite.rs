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
//! written) and `_source` (JSON). Parcels that are ready together are one transaction, on the disk before their events
//! count as delivered; the positions that they lead to are in the same transaction, so that a row is there if and only
//! if it is not read again. The file can be read while it is written.

pub mod positions;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use rusqlite::{Connection, ErrorCode};

use super::{Action, Form, Item, Next, Output, Parcel, Parcels, Phase, Phases};
use crate::ack::positions::Before;
use crate::ack::{Acks, Letter, Moves, Reason, Tally};
use crate::config::Section;
use crate::disk::{must_be_regular, private_file, private_folder};
use crate::time::Time;

/// What moves positions and brings no row is saved when nothing came for so long.
const SAVE_WAIT: Duration = Duration::from_secs(1);

/// How long to wait before a database that is full or locked is tried again.
const RETRY_WAIT: Duration = Duration::from_millis(500);

/// Parcels are joined to one transaction up to this size: small ones cost little more than their rows, and no row
/// waits long for another.
const JOIN_BYTES_MAX: usize = 1 << 20;

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
    /// Device and inode of the file that was opened; none of what is no file.
    file: Option<(u64, u64)>,
    tables: Tables,
    has_positions: bool,
    is_set_up: bool,
    /// The database takes nothing now, and it was said.
    troubled: bool,
}

type Tables = HashMap<Arc<str>, Statements>;

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
        let (pipeline, tables) = (pipeline.to_string(), HashMap::new());
        let (has_positions, is_set_up, troubled) = (false, false, false);
        let file = inode(&config.path);
        let mut sqlite = Sqlite { config, pipeline, connection, file, tables, has_positions, is_set_up, troubled };
        match sqlite.set_up() {
            // what passes is waited for with the first row
            Err(error) if !passing(&error) => {
                Err(error).with_context(|| format!("{shown} cannot be used as a database"))
            }
            _ => Ok(sqlite),
        }
    }

    /// Says how the database is to be written, which may write to it.
    fn set_up(&mut self) -> rusqlite::Result<()> {
        if self.is_set_up {
            return Ok(());
        }
        // WAL lets others read meanwhile; FULL puts each transaction on the disk before it is acknowledged
        self.connection.pragma_update(None, "journal_mode", "wal")?;
        self.connection.pragma_update(None, "synchronous", "full")?;
        self.connection.pragma_update(None, "cache_size", -32_768)?;
        self.is_set_up = true;
        Ok(())
    }

    /// Delivers parcels; false if it was given up.
    fn deliver(&mut self, parcels: &[Parcel], acks: &Acks, phases: &Phases) -> anyhow::Result<bool> {
        let action = self.config.action;
        let mut next = Vec::new();
        for parcel in parcels {
            let is_refused = |item: &&Item| reserved(&parcel.indices[item.index as usize]);
            let refused: Vec<Letter> =
                parcel.items.iter().filter(is_refused).map(|item| reserved_name(parcel, item, action)).collect();
            if parcel.receipt.claim().is_some() {
                next.push((parcel.receipt.clone(), (parcel.items.len() - refused.len()) as u64));
            }
            if !refused.is_empty() {
                acks.settle(&parcel.receipt, Tally::default(), refused);
            }
        }
        // letters of all that was read up to here are on the disk before the positions say that it was
        let moves = if next.is_empty() { Some(Moves::default()) } else { acks.flush(next) };
        let Some(moves) = moves else { return Ok(false) };
        let Some(tallies) = self.patiently(phases, |sqlite| sqlite.write(parcels, &moves))? else { return Ok(false) };
        self.must_be_there()?;
        for (parcel, tally) in parcels.iter().zip(tallies) {
            acks.settle(&parcel.receipt, tally, Vec::new());
        }
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
                        tracing::warn!(path = %self.config.path.display(), "the database takes rows again");
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

    /// SQLite writes on into a file that was removed, and says nothing.
    fn must_be_there(&self) -> anyhow::Result<()> {
        let path = self.config.path.display();
        let is_there = self.file == inode(&self.config.path);
        anyhow::ensure!(
            is_there,
            "{path} was removed or replaced while it was in use: what was written last is not in it"
        );
        Ok(())
    }

    /// Writes parcels and the positions they lead to in one transaction; a tally for each.
    fn write(&mut self, parcels: &[Parcel], moves: &Moves) -> rusqlite::Result<Vec<Tally>> {
        self.set_up()?;
        for index in parcels.iter().flat_map(|parcel| &parcel.indices) {
            if !self.tables.contains_key(index) && !reserved(index) {
                let statements = create_table(&self.connection, index)?;
                self.tables.insert(index.clone(), statements);
            }
        }
        self.create_positions(moves)?;
        let mut tallies = Vec::with_capacity(parcels.len());
        let transaction = self.connection.transaction()?;
        for parcel in parcels {
            tallies.push(write_rows(&transaction, &self.tables, self.config.action, parcel)?);
        }
        positions::save(&transaction, &self.pipeline, moves, Time::now().secs)?;
        transaction.commit()?;
        if let Some(first) = tallies.first_mut() {
            first.requests = 1;
        }
        Ok(tallies)
    }

    /// Saves what no row came with; false if it was given up.
    fn save(&mut self, acks: &Acks, phases: &Phases) -> anyhow::Result<bool> {
        let moves = acks.flush(Vec::new()).unwrap_or_default();
        if moves.is_empty() {
            return Ok(true);
        }
        let is_saved = self.patiently(phases, |sqlite| sqlite.write_positions(&moves))?.is_some();
        self.must_be_there()?;
        Ok(is_saved)
    }

    /// Writes positions that no row came with.
    fn write_positions(&mut self, moves: &Moves) -> rusqlite::Result<()> {
        self.set_up()?;
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
    match std::fs::metadata(path) {
        // it may be readable only
        Ok(there) => must_be_regular(&there),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            private_file(OpenOptions::new().write(true), path).map(drop)
        }
        Err(error) => Err(error),
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Writes the rows of a parcel, in the transaction that is open.
fn write_rows(connection: &Connection, tables: &Tables, action: Action, parcel: &Parcel) -> rusqlite::Result<Tally> {
    let mut tally = Tally { bytes_out: parcel.body.len() as u64, ..Tally::default() };
    for item in &parcel.items {
        let Some(statements) = tables.get(&parcel.indices[item.index as usize]) else { continue };
        let (id, source) = (text(parcel.head(item)), text(parcel.source(item)));
        let inserted = connection.prepare_cached(&statements.insert)?.execute([&id, &source])?;
        if inserted == 1 {
            tally.created += 1;
            continue;
        }
        tally.duplicates += 1;
        if action == Action::Index {
            connection.prepare_cached(&statements.count_up)?.execute([&id, &source])?;
        }
    }
    Ok(tally)
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Names that SQLite keeps for itself.
fn reserved(index: &str) -> bool {
    index.starts_with("sqlite_")
}

fn reserved_name(parcel: &Parcel, item: &Item, action: Action) -> Letter {
    let detail = "sqlite keeps names that begin with sqlite_ for itself".to_string();
    Letter {
        event: Some(parcel.source(item).to_vec()),
        id: Some(text(parcel.head(item)).into_owned()),
        index: Some(parcel.indices[item.index as usize].to_string()),
        action: Some(action.as_str()),
        attempts: 1,
        source: parcel.source.to_string(),
        offset: item.offset,
        is_part: item.is_part,
        ..Letter::new(Reason::BadIndexName, detail)
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

/// A parcel and those that are ready with it: one transaction.
fn join(first: Parcel, parcels: &mut Parcels) -> Vec<Parcel> {
    let mut bytes = first.body.len();
    let mut joined = vec![first];
    while bytes < JOIN_BYTES_MAX
        && let Some(next) = parcels.try_next()
    {
        bytes += next.body.len();
        joined.push(next);
    }
    joined
}

/// The end of a run that was given up at its beginning.
const STOPPED: &str = "stopped before the database could be used";

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
        looked?.context(STOPPED)?;
        if let Some(patterns) = anew {
            let forgotten = self.patiently(phases, |sqlite| {
                sqlite.set_up()?;
                let transaction = sqlite.connection.unchecked_transaction()?;
                positions::forget_all(&transaction, &sqlite.pipeline, patterns)?;
                transaction.commit()
            });
            forgotten?.context(STOPPED)?;
            return Ok(Some(Before { looked: patterns.iter().cloned().collect(), ..Before::default() }));
        }
        let (saved, looked) = positions::load_all(&self.connection, &self.pipeline, &self.config.path)?;
        let now_secs = Time::now().secs;
        let (gone, kept): (Vec<_>, Vec<_>) = saved.into_iter().partition(|saved| saved.is_forgotten(now_secs));
        let gone: Vec<u64> = gone.into_iter().map(|saved| saved.position.number).collect();
        let forgotten = self.patiently(phases, |sqlite| positions::forget(&sqlite.connection, &sqlite.pipeline, &gone));
        forgotten?.context(STOPPED)?;
        Ok(Some(Before { positions: kept.into_iter().map(|saved| saved.position).collect(), looked }))
    }

    fn run(mut self: Box<Self>, mut parcels: Parcels, acks: Acks, phases: Phases) -> anyhow::Result<()> {
        loop {
            match parcels.next_within(SAVE_WAIT) {
                Next::Parcel(first) => {
                    let joined = join(first, &mut parcels);
                    if !self.deliver(&joined, &acks, &phases)? {
                        return Ok(());
                    }
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::{Message, Receipt};
    use crate::output::queue;

    fn parcel(number: u64, size: usize) -> Parcel {
        let receipt = Receipt::new(0, number, None);
        receipt.open(1);
        let body = format!("{number}{}\n", "x".repeat(size)).into_bytes();
        let source_at = number.to_string().len() as u32;
        let item =
            Item { head_at: 0, source_at, end: body.len() as u32, index: 0, id_hash: 1, is_part: false, offset: 0 };
        Parcel { body: body.into(), items: vec![item], indices: vec!["a".into()], source: "test".into(), receipt }
    }

    #[test]
    fn what_is_ready_together_is_one_transaction() {
        let check = |sizes: &[usize], transactions: u64| {
            let folder = tempfile::tempdir().unwrap();
            let config = Config { path: folder.path().join("a.sqlite"), action: Action::Index };
            let sqlite = Box::new(Sqlite::open(config, "a").unwrap());
            let (slots, parcels) = queue(64);
            let (acks, settled) = Acks::channel();
            let (_phase, phases) = tokio::sync::watch::channel(Phase::Running);
            for (number, size) in sizes.iter().enumerate() {
                let slot = slots.try_take().unwrap();
                // a slot that nobody fills is passed over
                drop(slots.try_take());
                assert!(slot.send(parcel(number as u64, *size)).is_ok());
            }
            drop(slots);
            // nobody answers what positions moved, and none of these has one
            let thread = std::thread::spawn(move || sqlite.run(parcels, acks, phases));
            let mut tally = Tally::default();
            let mut order = Vec::new();
            for message in settled {
                let Message::Settled(settled) = message else { continue };
                tally.add(&settled.tally);
                order.push(settled.receipt.number());
            }
            thread.join().unwrap().unwrap();
            assert_eq!((tally.created, tally.requests), (sizes.len() as u64, transactions), "{sizes:?}");
            assert_eq!(order, (0..sizes.len() as u64).collect::<Vec<_>>());
        };
        check(&[], 0);
        check(&[10], 1);
        check(&[10; 30], 1);
        check(&[10, JOIN_BYTES_MAX, 10], 2);
        check(&[JOIN_BYTES_MAX; 3], 3);
    }
}
