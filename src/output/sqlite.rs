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
//! written) and `_source` (JSON). A parcel is one transaction, on the disk before its events count as delivered.
//! The file can be read while it is written.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use rusqlite::{Connection, ErrorCode};

use super::{Action, Form, Item, Output, Parcel, Parcels, Phase, Phases};
use crate::ack::{Acks, Letter, Reason, Tally};
use crate::config::Section;

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
    connection: Connection,
    tables: HashMap<std::sync::Arc<str>, Statements>,
}

/// The statements of one table. Indices are few, so their text is kept and SQLite's own cache keeps them prepared.
struct Statements {
    insert: String,
    count_up: String,
}

impl Sqlite {
    pub fn open(config: Config) -> anyhow::Result<Sqlite> {
        if let Some(folder) = config.path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let shown = config.path.display().to_string();
        let connection = Connection::open(&config.path).with_context(|| format!("cannot open {shown}"))?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.set_prepared_statement_cache_capacity(256);
        // WAL lets others read meanwhile; FULL puts each transaction on the disk before it is acknowledged
        connection.pragma_update(None, "journal_mode", "wal").with_context(|| format!("{shown} is no database"))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "cache_size", -32_768)?;
        Ok(Sqlite { config, connection, tables: HashMap::new() })
    }

    /// Writes a parcel in one transaction.
    fn write(&mut self, parcel: &Parcel) -> rusqlite::Result<(Tally, Vec<Letter>)> {
        for index in &parcel.indices {
            if !self.tables.contains_key(index) && !reserved(index) {
                let statements = create_table(&self.connection, index)?;
                self.tables.insert(index.clone(), statements);
            }
        }
        let mut tally = Tally { requests: 1, bytes_out: parcel.body.len() as u64, ..Tally::default() };
        let mut letters = Vec::new();
        let transaction = self.connection.transaction()?;
        for item in &parcel.items {
            let Some(statements) = self.tables.get(&parcel.indices[item.index as usize]) else {
                letters.push(reserved_name(parcel, item, self.config.action));
                continue;
            };
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
        transaction.commit()?;
        Ok((tally, letters))
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

    fn run(mut self: Box<Self>, mut parcels: Parcels, acks: Acks, phases: Phases) -> anyhow::Result<()> {
        let mut troubled = false;
        while let Some(parcel) = parcels.next_blocking() {
            loop {
                if *phases.borrow() == Phase::Abandon {
                    return Ok(());
                }
                match self.write(&parcel) {
                    Ok((tally, letters)) => {
                        if std::mem::take(&mut troubled) {
                            tracing::info!(path = %self.config.path.display(), "the database takes rows again");
                        }
                        acks.settle(&parcel.receipt, tally, letters);
                        break;
                    }
                    Err(error) if passing(&error) => {
                        if !std::mem::replace(&mut troubled, true) {
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
        }
        // leaves one file behind where nobody else has it open
        let _ = self.connection.pragma_update(None, "wal_checkpoint", "truncate");
        Ok(())
    }
}
