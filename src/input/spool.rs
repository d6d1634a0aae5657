//! The spool: what was read from standard input and not settled at a stop, for the next run to send first. One file
//! a stop.
//!
//! A line of JSON says how many blocks there are; each block is a line of JSON (`source`, `head`, `offset`, `bytes`,
//! `too_long`, `sha256`), then so many bytes as they were read, and a line feed; the last line says that it is whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::Given;
use crate::ack::kept::{Held, Spool};
use crate::ack::letter_file::sync_folder;
use crate::batch::Source;
use crate::codec::{Block, TooLong};
use crate::time::Time;

const VERSION: u64 = 1;
/// The larger of what a header can be: a name and a head, and some room.
const HEADER_BYTES_MAX: u64 = 64 << 10;
const END: &str = ".spool";

/// A spool that was written.
#[derive(Clone, Debug)]
pub struct Written {
    pub path: PathBuf,
    pub records: u64,
}

/// Writes what is not settled to a new file in `folder`: whole or not at all, on the disk, for its owner only. None
/// if there is nothing.
pub fn write(folder: &Path, held: &[Arc<Held>]) -> io::Result<Option<Written>> {
    let pieces: Vec<(&Held, u64, &[u8])> =
        held.iter().flat_map(|held| held.open().into_iter().map(|(offset, bytes)| (&**held, offset, bytes))).collect();
    let Some((held, offset, _)) = pieces.first() else { return Ok(None) };
    let now = Time::now();
    let name = format!("{:010}{:09}-{}-{}", now.secs, now.nanos, std::process::id(), held.block.offset ^ offset);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let (path, new) = (folder.join(format!("{name}{END}")), folder.join(format!("{name}.new")));
    let written = write_file(&new, &pieces).and_then(|records| std::fs::rename(&new, &path).map(|()| records));
    if written.is_err() {
        // half of it is of no use, and takes the room that is missing
        let _ = std::fs::remove_file(&new);
    }
    let records = written?;
    sync_folder(&path)?;
    Ok(Some(Written { path, records }))
}

fn write_file(path: &Path, pieces: &[(&Held, u64, &[u8])]) -> io::Result<u64> {
    let mut out = BufWriter::new(OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?);
    writeln!(out, "{}", json!({"onceline_spool": VERSION, "blocks": pieces.len()}))?;
    let mut records = 0;
    for (held, offset, bytes) in pieces {
        let line_feeds = memchr::memchr_iter(b'\n', bytes).count() as u64;
        records += line_feeds + u64::from(bytes.last() != Some(&b'\n'));
        let too_long = held.block.too_long.map(|line| [line.bytes, line.covered]);
        let header = json!({
            "source": *held.source.name, "head": BASE64.encode(&held.source.head), "offset": offset,
            "bytes": bytes.len(), "too_long": too_long, "sha256": digest(bytes),
        });
        writeln!(out, "{header}")?;
        out.write_all(bytes)?;
        out.write_all(b"\n")?;
    }
    writeln!(out, "{}", json!({"whole": true}))?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    Ok(records)
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(<sha2::Sha256 as sha2::Digest>::digest(bytes))
}

/// The spools in a folder, the oldest first. What a stop could not write to its end is removed.
pub fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot look into {}", folder.display())),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot look into {}", folder.display()))?.path();
        match path.extension().and_then(|end| end.to_str()) {
            Some("spool") => files.push(path),
            Some("new") => drop(std::fs::remove_file(&path)),
            _ => {}
        }
    }
    files.sort();
    Ok(files)
}

/// Removes a spool of which all is settled.
pub fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path).and_then(|()| sync_folder(path)) {
        tracing::error!(path = %path.display(), %error, "a spool that was sent cannot be removed: it will be sent again");
    }
}

/// Reads a spool, block by block.
pub struct Reader {
    file: BufReader<File>,
    spool: Arc<Spool>,
    left: u64,
    input: usize,
}

impl Reader {
    /// `input` is the one that reads standard input.
    pub fn open(path: &Path, input: usize) -> anyhow::Result<Reader> {
        let mut file = BufReader::new(File::open(path).with_context(|| format!("cannot open {}", path.display()))?);
        let left = header(&mut file)
            .and_then(|first| {
                let version = first["onceline_spool"].as_u64();
                ensure!(version == Some(VERSION), "it is no spool of this version");
                first["blocks"].as_u64().context("it does not say how many blocks there are")
            })
            .with_context(|| damaged(path))?;
        let spool = Arc::new(Spool { path: path.to_path_buf(), open: left.into() });
        Ok(Reader { file, spool, left, input })
    }

    fn block(&mut self) -> anyhow::Result<Option<Given>> {
        if self.left == 0 {
            ensure!(header(&mut self.file)?["whole"] == true, "its end is missing");
            return Ok(None);
        }
        self.left -= 1;
        let head = header(&mut self.file)?;
        let length = head["bytes"].as_u64().context("a block without its length")?;
        let mut bytes = Vec::new();
        let with_end = length.checked_add(1).context("a block longer than any")?;
        self.file.by_ref().take(with_end).read_to_end(&mut bytes)?;
        ensure!(bytes.len() as u64 == with_end && bytes.pop() == Some(b'\n'), "it is cut short");
        ensure!(head["sha256"] == digest(&bytes), "the bytes of a block are not those that were written");
        let offset = head["offset"].as_u64().context("a block without its place")?;
        let too_long = match (head["too_long"][0].as_u64(), head["too_long"][1].as_u64()) {
            (Some(bytes), Some(covered)) => Some(TooLong { bytes, covered }),
            _ => None,
        };
        let known = BASE64.decode(head["head"].as_str().unwrap_or_default())?;
        let name = head["source"].as_str().context("a block without its source")?;
        let source = Arc::new(Source { name: name.into(), head: known.into(), ..Source::default() });
        let block = Block { bytes: bytes.into(), offset, too_long, mark: None, records: None };
        Ok(Some(Given { input: self.input, source, block, spool: Some(self.spool.clone()) }))
    }
}

impl Iterator for Reader {
    type Item = anyhow::Result<Given>;

    fn next(&mut self) -> Option<Self::Item> {
        self.block().with_context(|| damaged(&self.spool.path)).transpose()
    }
}

fn damaged(path: &Path) -> String {
    let path = path.display();
    format!("the spool {path} cannot be read: move it away to go on without what is in it")
}

fn header(file: &mut impl BufRead) -> anyhow::Result<Value> {
    let mut line = Vec::new();
    file.take(HEADER_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        bail!("it is cut short");
    }
    serde_json::from_slice(&line).context("a line is not the JSON that it should be")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn held(offset: u64, bytes: &[u8], too_long: Option<TooLong>) -> Arc<Held> {
        let source =
            Arc::new(Source { name: "stdin".into(), head: b"he\xffad".as_slice().into(), ..Source::default() });
        let block = Block { bytes: bytes.to_vec().into(), offset, too_long, mark: None, records: None };
        Arc::new(Held::new(0, source, block))
    }

    fn read(path: &Path) -> anyhow::Result<Vec<Given>> {
        Reader::open(path, 3)?.collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join("a/spool");
        assert!(files(&spool).unwrap().is_empty());
        assert!(write(&spool, &[]).unwrap().is_none());
        let long = TooLong { bytes: 99, covered: 101 };
        let all = [held(5, b"a\n\xff\n", None), held(9, b"long", Some(long)), held(110, b"half", None)];
        let written = write(&spool, &all).unwrap().unwrap();
        assert_eq!(written.records, 4);
        std::fs::write(spool.join("half.new"), "x").unwrap();
        assert_eq!(files(&spool).unwrap(), [written.path.as_path()]);
        assert!(!spool.join("half.new").try_exists().unwrap());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&written.path), mode(&spool)), (0o600, 0o700));
        let got = read(&written.path).unwrap();
        for (got, want) in got.iter().zip(&all) {
            assert_eq!((got.input, &got.source.head, &got.source.name), (3, &want.source.head, &want.source.name));
            assert_eq!((got.block.offset, &*got.block.bytes), (want.block.offset, &*want.block.bytes));
            assert_eq!(
                got.block.too_long.map(|l| (l.bytes, l.covered)),
                want.block.too_long.map(|l| (l.bytes, l.covered))
            );
        }
        assert_eq!(got.len(), 3);
    }

    #[test]
    fn damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), &[held(0, b"abc\n", None)]).unwrap().unwrap().path;
        let good = std::fs::read(&path).unwrap();
        let mut bad: Vec<Vec<u8>> = (0..good.len()).map(|len| good[..len].to_vec()).collect();
        let at = good.windows(3).position(|window| window == b"abc").unwrap();
        bad.push([&good[..at], b"abd", &good[at + 3..]].concat());
        bad.push(good.iter().map(|b| if *b == b'1' { b'2' } else { *b }).collect());
        let longest = format!("\"bytes\":{}", u64::MAX);
        bad.push(String::from_utf8_lossy(&good).replace("\"bytes\":4", &longest).into_bytes());
        for text in bad {
            std::fs::write(&path, &text).unwrap();
            let said = format!("{:#}", read(&path).unwrap_err());
            assert!(said.contains("move it away"), "{said}");
        }
    }
}
