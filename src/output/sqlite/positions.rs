//! Saved positions in the database itself, so that they are there if and only if the rows are: the table
//! `_onceline_positions`, a name that no index can have, and the patterns by which files were looked for in
//! `_onceline_looked`. Several pipelines may write into one database, so each row names its pipeline.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OpenFlags, Row, params};

use crate::ack::Moves;
use crate::ack::positions::{Saved, VERSION, WAY_ON, is_possible};
use crate::input::identity::{HEAD, Identity, Mark, Position, Print, TAIL};

/// That of the positions last: who finds it finds both.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS _onceline_looked (pipeline TEXT NOT NULL, pattern TEXT NOT NULL, \
                      PRIMARY KEY (pipeline, pattern)) WITHOUT ROWID; \
                      CREATE TABLE IF NOT EXISTS _onceline_positions (version INTEGER NOT NULL, pipeline TEXT NOT NULL, \
                      number INTEGER NOT NULL, path NOT NULL, device INTEGER NOT NULL, inode INTEGER NOT NULL, \
                      born_secs INTEGER, born_nanos INTEGER, head_bytes INTEGER NOT NULL, head BLOB NOT NULL, \
                      \"offset\" INTEGER NOT NULL, tail_bytes INTEGER NOT NULL, tail BLOB NOT NULL, \
                      moved INTEGER NOT NULL, PRIMARY KEY (pipeline, number)) WITHOUT ROWID";

const SAVE: &str = "INSERT OR REPLACE INTO _onceline_positions (version, pipeline, number, path, device, inode, \
                    born_secs, born_nanos, head_bytes, head, \"offset\", tail_bytes, tail, moved) \
                    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

const LOAD: &str = "SELECT version, number, path, device, inode, born_secs, born_nanos, head_bytes, head, \"offset\", \
                    tail_bytes, tail, moved FROM _onceline_positions WHERE pipeline = ?1 ORDER BY number";

const LOOKED: &str = "INSERT OR IGNORE INTO _onceline_looked (pipeline, pattern) VALUES (?1, ?2)";

/// Opens a database to look at its positions; none if there is no such file.
pub fn open(path: &Path) -> anyhow::Result<Option<Connection>> {
    if !path.try_exists().with_context(|| format!("cannot read {}", path.display()))? {
        return Ok(None);
    }
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .with_context(|| format!("cannot open {}", path.display()))?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    Ok(Some(connection))
}

pub fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(CREATE)
}

/// Saves what moved, in the transaction that is open.
pub fn save(connection: &Connection, pipeline: &str, moves: &Moves, now_secs: i64) -> rusqlite::Result<()> {
    forget(connection, pipeline, &moves.forgotten)?;
    for pattern in &moves.looked {
        connection.prepare_cached(LOOKED)?.execute([pipeline, pattern])?;
    }
    if moves.positions.is_empty() {
        return Ok(());
    }
    let mut statement = connection.prepare_cached(SAVE)?;
    for Position { number, path, identity, mark } in &moves.positions {
        let path = match path.to_str() {
            Some(text) => Value::Text(text.to_string()),
            None => Value::Blob(path.as_os_str().as_bytes().to_vec()),
        };
        // SQLite's integers have a sign, and give all 64 bits back
        let (device, inode, offset) = (identity.device as i64, identity.inode as i64, mark.offset as i64);
        let (tail, head, born) = (mark.tail, identity.head, identity.born.unzip());
        statement.execute(params![
            VERSION as i64,
            pipeline,
            *number as i64,
            path,
            device,
            inode,
            born.0,
            born.1,
            head.bytes,
            head.hash,
            offset,
            tail.bytes,
            tail.hash,
            now_secs
        ])?;
    }
    Ok(())
}

/// The positions that a pipeline saved; none if it never did.
pub fn load(connection: &Connection, pipeline: &str, shown: &Path) -> anyhow::Result<Vec<Saved>> {
    let failed = || unusable(shown, "_onceline_positions");
    if !has_table(connection).with_context(failed)? {
        let is_gone = has_looked(connection, pipeline).with_context(failed)?;
        return if is_gone { Err(anyhow!("the table is gone")).with_context(failed) } else { Ok(Vec::new()) };
    }
    let mut statement = connection.prepare(LOAD).with_context(failed)?;
    let mut rows = statement.query([pipeline]).with_context(failed)?;
    let mut all = Vec::new();
    while let Some(row) = rows.next().with_context(failed)? {
        all.push(read(row).with_context(failed)?);
    }
    Ok(all)
}

/// As [`load`], with the patterns by which files were looked for.
pub fn load_all(
    connection: &Connection,
    pipeline: &str,
    shown: &Path,
) -> anyhow::Result<(Vec<Saved>, BTreeSet<String>)> {
    let saved = load(connection, pipeline, shown)?;
    let mut looked = BTreeSet::new();
    if has_table(connection)? {
        looked = load_looked(connection, pipeline).with_context(|| unusable(shown, "_onceline_looked"))?;
    }
    Ok((saved, looked))
}

fn load_looked(connection: &Connection, pipeline: &str) -> rusqlite::Result<BTreeSet<String>> {
    let mut statement = connection.prepare("SELECT pattern FROM _onceline_looked WHERE pipeline = ?1")?;
    statement.query_map([pipeline], |row| row.get(0))?.collect()
}

fn unusable(shown: &Path, table: &str) -> String {
    format!("the positions in {} (table {table}) cannot be used; {WAY_ON}", shown.display())
}

/// Whether positions were ever saved.
pub fn has_table(connection: &Connection) -> rusqlite::Result<bool> {
    connection.table_exists(None, "_onceline_positions")
}

/// Whether files were ever looked for, which is saved in one transaction with what was found.
fn has_looked(connection: &Connection, pipeline: &str) -> rusqlite::Result<bool> {
    let count = "SELECT count(*) FROM _onceline_looked WHERE pipeline = ?1";
    Ok(connection.table_exists(None, "_onceline_looked")?
        && connection.query_row(count, [pipeline], |row| row.get::<_, i64>(0))? > 0)
}

fn read(row: &Row<'_>) -> anyhow::Result<Saved> {
    let version: i64 = row.get(0)?;
    anyhow::ensure!(version == VERSION as i64, "they are of version {version}, this program knows {VERSION}");
    let unsigned = |at| row.get::<_, i64>(at).map(|number| number as u64);
    let path = match row.get_ref(2)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => PathBuf::from(OsString::from_vec(bytes.to_vec())),
        other => anyhow::bail!("a path is {other:?}"),
    };
    let print = |bytes_at, hash_at, bytes_max: usize| {
        let print = Print { bytes: row.get(bytes_at)?, hash: row.get(hash_at)? };
        anyhow::ensure!(usize::from(print.bytes) <= bytes_max, "a print is of {} bytes", print.bytes);
        Ok(print)
    };
    let born = row.get::<_, Option<i64>>(5)?.zip(row.get(6)?);
    let identity = Identity { device: unsigned(3)?, inode: unsigned(4)?, born, head: print(7, 8, HEAD)? };
    let mark = Mark { offset: unsigned(9)?, tail: print(10, 11, TAIL)? };
    anyhow::ensure!(is_possible(&mark.offset), "an offset is {}", mark.offset as i64);
    anyhow::ensure!(u64::from(mark.tail.bytes) == mark.offset.min(TAIL as u64), "a tail does not fit its offset");
    let number = unsigned(1)?;
    anyhow::ensure!(number > 0 && is_possible(&number), "a number is {}", number as i64);
    Ok(Saved { position: Position { number, path, identity, mark }, moved_secs: row.get(12)? })
}

/// Forgets all positions of a pipeline, whatever they look like. That files were looked for stays known, by `patterns`
/// at least: all of them are read from the beginning.
pub fn forget_all(connection: &Connection, pipeline: &str, patterns: &[String]) -> rusqlite::Result<()> {
    if has_table(connection)? {
        connection.execute("DELETE FROM _onceline_positions WHERE pipeline = ?1", [pipeline])?;
        let left: i64 = connection.query_row("SELECT count(*) FROM _onceline_positions", [], |row| row.get(0))?;
        if left == 0 {
            // it may be of another version
            connection.execute("DROP TABLE _onceline_positions", [])?;
        }
    }
    create(connection)?;
    for pattern in patterns {
        connection.execute(LOOKED, [pipeline, pattern])?;
    }
    Ok(())
}

/// Forgets some, by their numbers.
pub fn forget(connection: &Connection, pipeline: &str, numbers: &[u64]) -> rusqlite::Result<()> {
    for number in numbers {
        let text = "DELETE FROM _onceline_positions WHERE pipeline = ?1 AND number = ?2";
        connection.prepare_cached(text)?.execute(params![pipeline, *number as i64])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(path: &[u8], number: u64, text: &[u8]) -> Position {
        let born = number.is_multiple_of(2).then_some((-1, 5));
        // two of one inode
        let identity = Identity { device: u64::MAX - 1, inode: 7, born, head: Print::head(text) };
        let mark = Mark { offset: text.len() as u64, tail: Print::tail(text) };
        Position { number, path: PathBuf::from(OsString::from_vec(path.to_vec())), identity, mark }
    }

    fn moved(positions: &[Position]) -> Moves {
        Moves { positions: positions.to_vec(), looked: vec!["/*".into()], ..Moves::default() }
    }

    fn positions(connection: &Connection, pipeline: &str) -> Vec<Position> {
        let loaded = load(connection, pipeline, Path::new("a.sqlite")).unwrap();
        loaded.into_iter().map(|saved| saved.position).collect()
    }

    #[test]
    fn what_is_saved_is_loaded_by_the_same_pipeline() {
        let connection = Connection::open_in_memory().unwrap();
        assert_eq!(positions(&connection, "a"), []);
        forget_all(&connection, "a", &[]).unwrap();
        let all = [position(b"/a", 1, b"one\n"), position(b"/caf\xe9", 2, &[b'x'; 3000])];
        save(&connection, "a", &moved(&all), 5).unwrap();
        assert_eq!(positions(&connection, "a"), all);
        assert_eq!(positions(&connection, "b"), []);
        let grown = position(b"/b", 1, b"one\ntwo\n");
        save(&connection, "a", &moved(std::slice::from_ref(&grown)), 6).unwrap();
        assert_eq!(positions(&connection, "a"), [grown.clone(), all[1].clone()]);
        save(&connection, "a", &Moves { forgotten: vec![2], ..Moves::default() }, 7).unwrap();
        assert_eq!(positions(&connection, "a"), [grown]);
        // of another version of the table
        connection.execute("ALTER TABLE _onceline_positions DROP COLUMN moved", []).unwrap();
        load(&connection, "a", Path::new("a.sqlite")).unwrap_err();
        forget_all(&connection, "a", &["/a".to_string()]).unwrap();
        let (saved, looked) = load_all(&connection, "a", Path::new("a.sqlite")).unwrap();
        assert_eq!((saved, looked), (Vec::new(), ["/*", "/a"].map(String::from).into()));
    }

    #[test]
    fn a_table_that_was_dropped_is_missed() {
        let connection = Connection::open_in_memory().unwrap();
        let dropped = |pipeline| {
            connection.execute("DROP TABLE _onceline_positions", []).unwrap();
            load(&connection, pipeline, Path::new("a.sqlite")).map_err(|error| format!("{error:#}"))
        };
        create(&connection).unwrap();
        assert_eq!(dropped("a").unwrap(), [], "nothing was in it");
        create(&connection).unwrap();
        save(&connection, "a", &moved(&[position(b"/a", 1, b"one\n")]), 5).unwrap();
        let error = dropped("a").unwrap_err();
        assert!(error.contains("the table is gone") && error.contains("positions reset"), "{error}");
        assert_eq!(positions(&connection, "b"), [], "another pipeline saved none");
        forget_all(&connection, "a", &[]).unwrap();
        assert_eq!(positions(&connection, "a"), []);
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        for (change, said) in [
            ("version = 1", "they are of version 1, this program knows 2"),
            ("\"offset\" = 3", "does not fit"),
            ("\"offset\" = -9", "an offset is -9"),
            ("number = -1", "a number is -1"),
            ("tail = x'00'", "_onceline_positions"),
            ("head_bytes = 2000", "of 2000 bytes"),
            ("path = 5", "a path is"),
            ("moved = 'text'", "_onceline_positions"),
        ] {
            let connection = Connection::open_in_memory().unwrap();
            create(&connection).unwrap();
            save(&connection, "a", &moved(&[position(b"/a", 1, b"one\n")]), 5).unwrap();
            connection.execute(&format!("UPDATE _onceline_positions SET {change}"), []).unwrap();
            let error = format!("{:#}", load(&connection, "a", Path::new("a.sqlite")).expect_err(change));
            assert!(error.contains(said) && error.contains("a.sqlite") && error.contains("positions reset"), "{error}");
        }
    }
}
