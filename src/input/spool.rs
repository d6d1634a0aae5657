//! The spool: what was read from standard input and not settled at a stop, for the next run to send first. One file
//! a stop.
//!
//! A line of JSON says how many blocks there are; each block is a line of JSON (`source`, `head`, `offset`, `day`,
//! `bytes`, `too_long`, and of records that hold several events `stored`: which of these are stored, each by its
//! record's offset, its place in that and a digest), then so many bytes as they were read, a line feed, and a line with
//! `sha256`: of all that is before that line, from the first byte of the file on. The last line says that it is whole,
//! with the same. So no block is given before every byte up to its end was proved.
//!
//! Version 1, which is read too, has a `sha256` of the bytes of each block among what it says of the block, and none of
//! anything else.

use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Given;
use crate::ack::kept::{Held, Spool};
use crate::batch::{Source, SourceNumber, StoredPart};
use crate::codec::{Block, TooLong};
use crate::disk::{Disk, File, PRIVATE, Stream, folder_of};

const VERSION: u64 = 2;
/// The digests of this version are of the records alone.
const VERSION_OF_RECORDS: u64 = 1;
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
    let mut out = Proved { inner: BufWriter::new(Stream::new(disk.create(path)?)), digest: Sha256::new() };
    writeln!(out, "{}", json!({"onceline_spool": VERSION, "blocks": pieces.len()}))?;
    let mut records = 0;
    for (held, offset, bytes) in pieces {
        records += held.count(bytes);
        let too_long = held.block.too_long.map(|line| [line.bytes, line.covered]);
        let mut header = json!({
            "source": *held.source.name, "head": BASE64.encode(&held.source.head), "offset": offset,
            "day": held.source.day, "bytes": bytes.len(), "too_long": too_long,
        });
        let stored = held.stored(*offset..offset + bytes.len() as u64);
        if !stored.is_empty() {
            let each = |part: &StoredPart| (part.offset, part.place, part.print);
            header["stored"] = json!(stored.iter().map(each).collect::<Vec<_>>());
        }
        writeln!(out, "{header}")?;
        out.write_all(bytes)?;
        out.write_all(b"\n")?;
        let proof = out.proof();
        out.write_all(proof.as_bytes())?;
    }
    let end = out.end();
    out.write_all(end.as_bytes())?;
    out.inner.into_inner().map_err(io::IntoInnerError::into_error)?.file.sync()?;
    Ok(records)
}

/// A file with the digest of all that went through.
struct Proved<F> {
    inner: F,
    digest: Sha256,
}

impl<F> Proved<F> {
    fn so_far(&self) -> String {
        hex::encode(self.digest.clone().finalize())
    }

    /// The line behind a block.
    fn proof(&self) -> String {
        format!("{{\"sha256\":\"{}\"}}\n", self.so_far())
    }

    /// The last line.
    fn end(&self) -> String {
        format!("{{\"whole\":true,\"sha256\":\"{}\"}}\n", self.so_far())
    }
}

impl<F: Write> Write for Proved<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<F: BufRead> Proved<F> {
    fn header(&mut self) -> anyhow::Result<Value> {
        let mut line = Vec::new();
        self.inner.by_ref().take(HEADER_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            bail!("it is cut short");
        }
        self.digest.update(&line);
        serde_json::from_slice(&line).context("a line is not the JSON that it should be")
    }

    /// So many bytes, and a line feed.
    fn records(&mut self, length: u64) -> anyhow::Result<Vec<u8>> {
        let with_end = length.checked_add(1).context("a block longer than any")?;
        let mut bytes = Vec::new();
        self.inner.by_ref().take(with_end).read_to_end(&mut bytes)?;
        self.digest.update(&bytes);
        ensure!(bytes.len() as u64 == with_end && bytes.pop() == Some(b'\n'), "it is cut short");
        Ok(bytes)
    }

    /// Reads a line that must be this one, and says what it is if it is not.
    fn expect(&mut self, wanted: &str, else_said: &'static str) -> anyhow::Result<()> {
        let mut line = Vec::new();
        self.inner.by_ref().take(wanted.len() as u64).read_to_end(&mut line)?;
        ensure!(line == wanted.as_bytes(), else_said);
        self.digest.update(&line);
        Ok(())
    }

    fn is_at_its_end(&mut self) -> io::Result<bool> {
        Ok(self.inner.fill_buf()?.is_empty())
    }
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
    file: Proved<BufReader<Stream<D::File>>>,
    version: u64,
    path: PathBuf,
    spool: Arc<Spool>,
    left: u64,
    input: usize,
}

impl<D: Disk> Reader<D> {
    /// `input` is the one that reads standard input.
    pub fn open(disk: D, path: &Path, input: usize) -> anyhow::Result<Reader<D>> {
        let file = disk.open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let mut file = Proved { inner: BufReader::new(Stream::new(file)), digest: Sha256::new() };
        let (version, left) = file
            .header()
            .and_then(|first| {
                let version = first["onceline_spool"].as_u64().context("it is no spool")?;
                ensure!((VERSION_OF_RECORDS..=VERSION).contains(&version), "its version is {version}, not {VERSION}");
                Ok((version, first["blocks"].as_u64().context("it does not say how many blocks there are")?))
            })
            .with_context(|| damaged(path))?;
        // its end is open too: how many blocks there are is not believed before that was read
        let spool = Arc::new(Spool::new(disk, path, left.saturating_add(1)));
        Ok(Reader { file, version, path: path.to_path_buf(), spool, left, input })
    }

    /// What is known of it while it is sent.
    pub fn spool(&self) -> Arc<Spool> {
        self.spool.clone()
    }

    fn block(&mut self) -> anyhow::Result<Option<Given>> {
        if self.left == 0 {
            return self.end().map(|()| None);
        }
        self.left -= 1;
        let head = self.file.header()?;
        let bytes = self.file.records(head["bytes"].as_u64().context("a block without its length")?)?;
        if self.version == VERSION_OF_RECORDS {
            let is_same = head["sha256"] == hex::encode(Sha256::digest(&bytes));
            ensure!(is_same, "the bytes of a block are not those that were written");
        } else {
            let proof = self.file.proof();
            self.file.expect(&proof, "a block, or what is said of it, is not what was written")?;
        }
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

    fn end(&mut self) -> anyhow::Result<()> {
        if self.version == VERSION_OF_RECORDS {
            ensure!(self.file.header()?["whole"] == true, "its end is missing");
        } else {
            let end = self.file.end();
            self.file.expect(&end, "its end is missing, or not what was written")?;
        }
        ensure!(self.file.is_at_its_end()?, "something was written behind its end");
        self.spool.settled();
        Ok(())
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

    /// A spool with all that can be said of a block; what is in it.
    fn full(folder: &Path) -> (PathBuf, Vec<u8>) {
        let source = Source { name: "stdin".into(), head: b"ab".as_slice().into(), day: Some(1), ..Source::default() };
        let block = Block { bytes: b"abc\n".to_vec().into(), offset: 1, too_long: None, mark: None, records: None };
        let all =
            [Arc::new(Held::new(0, Arc::new(source), block)), held(9, b"x", Some(TooLong { bytes: 1, covered: 1 }))];
        all[0].note_stored([StoredPart { offset: 1, place: 1, print: 1 }].into_iter());
        let path = write(&Real, folder, &all).unwrap().unwrap().path;
        let text = std::fs::read(&path).unwrap();
        (path, text)
    }

    fn check_damaged(path: &Path, text: &[u8]) {
        std::fs::write(path, text).unwrap();
        let said = format!("{:#}", read(path).map(|_| String::from_utf8_lossy(text).into_owned()).unwrap_err());
        assert!(said.contains("move it away"), "{said}");
    }

    #[test]
    fn damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let (path, good) = full(folder.path());
        (0..good.len()).for_each(|len| check_damaged(&path, &good[..len]));
        for (at, byte) in good.iter().enumerate() {
            for other in [byte ^ 1, byte ^ 2, b' ', b'0', b'\n'] {
                if other != *byte {
                    check_damaged(&path, &[&good[..at], &[other], &good[at + 1..]].concat());
                }
            }
        }
        check_damaged(&path, &[&good, b"\n".as_slice()].concat());
        let with = |from: &str, to: &str| String::from_utf8_lossy(&good).replace(from, to).into_bytes();
        check_damaged(&path, &with("\"bytes\":4", &format!("\"bytes\":{}", u64::MAX)));
        // as each of it could be meant
        for (from, to) in [
            ("\"day\":1", "\"day\":2"),
            ("\"head\":\"YWI=\"", "\"head\":\"YWM=\""),
            ("\"source\":\"stdin\"", "\"source\":\"other\""),
            ("\"offset\":1", "\"offset\":2"),
            ("\"stored\":[[1,1,1]]", "\"stored\":[]"),
            ("\"too_long\":[1,1]", "\"too_long\":null"),
            ("\"onceline_spool\":2", "\"onceline_spool\":1"),
            ("\"onceline_spool\":2", "\"onceline_spool\":3"),
            ("{\"bytes\"", "{ \"bytes\""),
        ] {
            assert_ne!(with(from, to), good, "{from}");
            check_damaged(&path, &with(from, to));
        }
        std::fs::write(&path, &good).unwrap();
        assert_eq!(read(&path).unwrap().len(), 2);
    }

    #[test]
    fn the_form_stays() {
        let proved = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/spool/proved");
        let got = read(Path::new(proved)).unwrap();
        let got: Vec<_> =
            got.iter().map(|given| (given.block.offset, given.block.bytes.as_slice(), given.source.day)).collect();
        assert_eq!(got, [(5, b"a\nb\n".as_slice(), Some(20000)), (9, b"a".as_slice(), None)]);
    }

    /// Whether a spool is there once all is settled that it gave.
    fn check_gone(path: &Path, text: &[u8], is_gone: bool) {
        std::fs::write(path, text).unwrap();
        let mut reader = Reader::open(Real, path, 0).unwrap();
        let spool = reader.spool();
        for given in reader.by_ref().map_while(Result::ok) {
            given.spool.unwrap().settled();
        }
        assert_eq!((spool.is_gone(), !path.try_exists().unwrap()), (is_gone, is_gone));
    }

    #[test]
    fn one_that_holds_more_than_it_says_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (path, good) = full(folder.path());
        check_gone(&path, &good, true);
        check_gone(&path, &[&good, b"more".as_slice()].concat(), false);
        let digest = hex::encode(Sha256::digest(b"a\n"));
        let block = json!({"source": "", "head": "", "offset": 0, "bytes": 2, "sha256": digest});
        for (says, is_gone) in [(2, true), (1, false)] {
            let first = json!({"onceline_spool": 1, "blocks": says});
            let text = format!("{first}\n{block}\na\n\n{block}\na\n\n{{\"whole\":true}}\n");
            check_gone(&path, text.as_bytes(), is_gone);
        }
    }

    /// As it was written before all of it was under a digest.
    #[test]
    fn an_older_spool_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.spool");
        let old = "{\"blocks\":1,\"onceline_spool\":1}\n{\"bytes\":4,\"day\":20000,\"head\":\"YWI=\",\"offset\":5,\
            \"sha256\":\"edeaaff3f1774ad2888673770c6d64097e391bc362d7d6fb34982ddf0efd18cb\",\"source\":\"stdin\",\
            \"stored\":[[5,1,7]],\"too_long\":null}\nabc\n\n{\"whole\":true}\n";
        std::fs::write(&path, old).unwrap();
        let got = read(&path).unwrap();
        let [given] = got.as_slice() else { panic!("{}", got.len()) };
        let source = &given.source;
        assert_eq!(
            (given.block.offset, given.block.bytes.as_slice(), source.day),
            (5, b"abc\n".as_slice(), Some(20000))
        );
        assert_eq!(
            (&*source.head, &*source.stored),
            (b"ab".as_slice(), &[StoredPart { offset: 5, place: 1, print: 7 }][..])
        );
        (0..old.len()).for_each(|len| check_damaged(&path, &old.as_bytes()[..len]));
        check_damaged(&path, old.replace("abc", "abd").as_bytes());
        check_damaged(&path, format!("{old}{old}").as_bytes());
    }
}
