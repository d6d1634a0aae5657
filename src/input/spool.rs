//! The spool: what was read from standard input and not settled at a stop, for the next run to send first. One file
//! a stop.
//!
//! A line of JSON says how many blocks there are; each block is a line of JSON (`source`, `head`, `offset`, `day`,
//! `bytes`, `too_long`, `sha256`, and of records that hold several events `stored`: which of these are stored, each by its
//! record's offset, its place in that and a digest), then so many bytes as they were read, and a line feed; the last line
//! says that it is whole.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::Given;
use crate::ack::kept::{Held, Spool};
use crate::batch::{Source, SourceNumber, StoredPart};
use crate::codec::{Block, TooLong};
use crate::disk::{Disk, File, PRIVATE, Stream, folder_of};

const VERSION: u64 = 1;
/// No header is larger: what is stored of a block weighs more than the block, if its events are small.
const HEADER_BYTES_MAX: u64 = 256 << 20;
const END: &str = ".spool";

/// A spool that was written.
#[derive(Clone, Debug)]
pub struct Written {
    pub path: PathBuf,
    pub records: u64,
}

/// Writes what is not settled to a new file in `folder`: whole or not at all, on the disk, for its owner only. None
/// if there is nothing.
pub fn write(disk: &impl Disk, folder: &Path, held: &[Arc<Held>]) -> io::Result<Option<Written>> {
    let pieces: Vec<(&Held, u64, &[u8])> =
        held.iter().flat_map(|held| held.open().into_iter().map(|(offset, bytes)| (&**held, offset, bytes))).collect();
    if pieces.is_empty() {
        return Ok(None);
    }
    disk.make_folder(folder, PRIVATE)?;
    let name = next_name(disk, folder)?;
    let (path, new) = (folder.join(format!("{name}{END}")), folder.join(format!("{name}.new")));
    let written = write_file(disk, &new, &pieces).and_then(|records| disk.rename(&new, &path).map(|()| records));
    if written.is_err() {
        // half of it is of no use, and takes the room that is missing
        let _ = disk.remove(&new);
    }
    let records = written?;
    disk.sync_folder(folder)?;
    Ok(Some(Written { path, records }))
}

/// The time in nanoseconds, or if the clock was set back, the number behind those of the spools there are.
fn next_name(disk: &impl Disk, folder: &Path) -> io::Result<String> {
    let now = disk.now();
    let now = i128::from(now.secs) * 1_000_000_000 + i128::from(now.nanos);
    let names = disk.list(folder)?.into_iter().filter(|path| is_spool(path));
    let last = names.filter_map(|path| number(&path)).max().unwrap_or(0);
    Ok(format!("{:019}", now.max(i128::from(last) + 1)))
}

/// The number that a spool's name is.
pub fn number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}

fn write_file(disk: &impl Disk, path: &Path, pieces: &[(&Held, u64, &[u8])]) -> io::Result<u64> {
    let mut out = BufWriter::new(Stream::new(disk.create(path)?));
    writeln!(out, "{}", json!({"onceline_spool": VERSION, "blocks": pieces.len()}))?;
    let mut records = 0;
    for (held, offset, bytes) in pieces {
        records += held.count(bytes);
        let too_long = held.block.too_long.map(|line| [line.bytes, line.covered]);
        let mut header = json!({
            "source": *held.source.name, "head": BASE64.encode(&held.source.head), "offset": offset,
            "day": held.source.day, "bytes": bytes.len(), "too_long": too_long, "sha256": digest(bytes),
        });
        let stored = held.stored(*offset..offset + bytes.len() as u64);
        if !stored.is_empty() {
            let each = |part: &StoredPart| (part.offset, part.place, part.print);
            header["stored"] = json!(stored.iter().map(each).collect::<Vec<_>>());
        }
        writeln!(out, "{header}")?;
        out.write_all(bytes)?;
        out.write_all(b"\n")?;
    }
    writeln!(out, "{}", json!({"whole": true}))?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.file.sync()?;
    Ok(records)
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(<sha2::Sha256 as sha2::Digest>::digest(bytes))
}

/// The spools in a folder, the oldest first. What a stop could not write to its end is removed.
pub fn files(disk: &impl Disk, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let paths = match disk.list(folder) {
        Ok(paths) => paths,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot look into {}", folder.display())),
    };
    let (mut files, rest): (Vec<PathBuf>, Vec<PathBuf>) = paths.into_iter().partition(|path| is_spool(path));
    for path in rest.into_iter().filter(|path| path.extension().is_some_and(|end| end == "new")) {
        // it takes room, and does no other harm
        let _ = disk.remove(&path);
    }
    files.sort();
    Ok(files)
}

fn is_spool(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "spool")
}

/// Removes a spool of which all is settled, so that it stays removed.
pub fn remove(disk: &impl Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    disk.sync_folder(folder_of(path))
}

/// Reads a spool, block by block.
pub struct Reader<D: Disk> {
    file: BufReader<Stream<D::File>>,
    path: PathBuf,
    spool: Arc<Spool>,
    left: u64,
    input: usize,
}

impl<D: Disk> Reader<D> {
    /// `input` is the one that reads standard input.
    pub fn open(disk: D, path: &Path, input: usize) -> anyhow::Result<Reader<D>> {
        let file = disk.open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut file = BufReader::new(Stream::new(file));
        let left = header(&mut file)
            .and_then(|first| {
                let version = first["onceline_spool"].as_u64();
                ensure!(version == Some(VERSION), "it is no spool of this version");
                first["blocks"].as_u64().context("it does not say how many blocks there are")
            })
            .with_context(|| damaged(path))?;
        let spool = Arc::new(Spool::new(disk, path, left));
        Ok(Reader { file, path: path.to_path_buf(), spool, left, input })
    }

    /// What is known of it while it is sent.
    pub fn spool(&self) -> Arc<Spool> {
        self.spool.clone()
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
        let (day, stored) = (head["day"].as_i64(), stored(&head["stored"])?);
        let number = number(&self.path).map(SourceNumber::Spool);
        let source = Source { name: name.into(), head: known.into(), day, stored, number, ..Source::default() };
        let source = Arc::new(source);
        let block = Block { bytes: bytes.into(), offset, too_long, mark: None, records: None };
        Ok(Some(Given { input: self.input, source, block, spool: Some(self.spool.clone()) }))
    }
}

impl<D: Disk> Iterator for Reader<D> {
    type Item = anyhow::Result<Given>;

    fn next(&mut self) -> Option<Self::Item> {
        self.block().with_context(|| damaged(&self.path)).transpose()
    }
}

fn stored(parts: &Value) -> anyhow::Result<Arc<[StoredPart]>> {
    let part = |part: &Value| {
        let place = u32::try_from(part[1].as_u64()?).ok()?;
        Some(StoredPart { offset: part[0].as_u64()?, place, print: part[2].as_u64()? })
    };
    let parts = parts.as_array().into_iter().flatten().map(part);
    parts.collect::<Option<_>>().context("what is said to be stored cannot be read")
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
    use crate::disk::Real;
    use std::os::unix::fs::PermissionsExt;

    fn held(offset: u64, bytes: &[u8], too_long: Option<TooLong>) -> Arc<Held> {
        let source =
            Arc::new(Source { name: "stdin".into(), head: b"he\xffad".as_slice().into(), ..Source::default() });
        let block = Block { bytes: bytes.to_vec().into(), offset, too_long, mark: None, records: None };
        Arc::new(Held::new(0, source, block))
    }

    fn read(path: &Path) -> anyhow::Result<Vec<Given>> {
        Reader::open(Real, path, 3)?.collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join("a/spool");
        assert!(files(&Real, &spool).unwrap().is_empty());
        assert!(write(&Real, &spool, &[]).unwrap().is_none());
        let long = TooLong { bytes: 99, covered: 101 };
        let part = |offset, place| StoredPart { offset, place, print: u64::MAX - u64::from(place) };
        let all = [held(5, b"a\n\xff\n", None), held(9, b"long", Some(long)), held(110, b"half", None)];
        all[0].note_stored([part(5, 0), part(7, 2), part(9, 0)].into_iter());
        let written = write(&Real, &spool, &all).unwrap().unwrap();
        assert_eq!(written.records, 4);
        std::fs::write(spool.join("half.new"), "x").unwrap();
        assert_eq!(files(&Real, &spool).unwrap(), [written.path.as_path()]);
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
        assert_eq!(*got[0].source.stored, [part(5, 0), part(7, 2)], "of the piece alone");
        assert!(got[1].source.stored.is_empty());
    }

    #[test]
    fn damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(&Real, folder.path(), &[held(0, b"abc\n", None)]).unwrap().unwrap().path;
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
