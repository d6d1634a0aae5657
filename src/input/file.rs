//! `type = "file"` with `--once`: reads files by path and pattern to their ends, several at a time, each in its order.
//!
//! ```toml
//! [[input]]
//! type = "file"
//! paths = ["/var/log/app/*.log", "/var/log/app/*.log.gz"]
//! exclude = ["/var/log/app/debug*"]
//! codec = "json"
//! ```
//!
//! Files compressed by gzip or zstd are known by their first bytes, whatever their name. A file that several
//! patterns or links lead to is read once. Of a file that was read before only what is new is read.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Context;

use super::Intake;
use super::follow::{self, pattern::leaves_out};
use super::identity::{FileKey, HEAD, Identity, Mark, Position, Print, TAIL, Tail};
use super::known::{Asked, Found, Known};
use super::lines::{Bytes, Start};
use super::ratio::limited;
use crate::ack::Shared;

/// How many files are read at the same time: enough to hide the opening of small ones.
pub const READERS_MAX: usize = 4;

#[derive(Clone, Debug)]
pub struct Config {
    pub paths: Vec<String>,
    pub exclude: Vec<String>,
    /// How files are followed as they grow; none where they are read to their ends.
    pub follow: Option<follow::Config>,
}

impl Config {
    /// The files there are, sorted by name, each once.
    pub fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let exclude: Vec<glob::Pattern> =
            self.exclude.iter().map(|p| glob::Pattern::new(p)).collect::<Result<_, _>>()?;
        let (mut files, mut seen) = (Vec::new(), HashSet::new());
        for pattern in &self.paths {
            let is_literal = !pattern.contains(['*', '?', '[']);
            for path in glob::glob(pattern).with_context(|| format!("`{pattern}`"))? {
                let path = path.with_context(|| format!("cannot look for `{pattern}`"))?;
                if leaves_out(&exclude, &path) {
                    continue;
                }
                let meta = match std::fs::metadata(&path) {
                    // a link that leads nowhere, or a file that went away meanwhile
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_literal => continue,
                    other => other.with_context(|| format!("cannot read {}", path.display()))?,
                };
                if is_literal && !meta.is_file() {
                    anyhow::bail!(
                        "{pattern} is a {}, not a file",
                        if meta.is_dir() { "folder" } else { "pipe or device" }
                    );
                }
                if meta.is_file() && seen.insert((meta.dev(), meta.ino())) {
                    files.push(path);
                }
            }
            if is_literal && !Path::new(pattern).try_exists().with_context(|| format!("cannot read {pattern}"))? {
                anyhow::bail!("there is no file {pattern}");
            }
        }
        if files.is_empty() {
            tracing::warn!(paths = ?self.paths, "no file matches");
        }
        Ok(files)
    }

    /// How many bytes there are to read; none if a file is compressed or cannot be looked at, or there is no end.
    pub fn bytes(&self) -> Option<u64> {
        if self.follow.is_some() {
            return None;
        }
        self.files().ok()?.iter().try_fold(0, |sum, path| Some(sum + text_size(path)?))
    }

    /// Notes the files that were read elsewhere before. Their positions are then saved with the first that are, and
    /// so before a new file in their old place takes the old entry.
    pub fn note_moved(&self, known: &Known, shared: &Shared) -> anyhow::Result<()> {
        // who follows looks them up by himself
        if self.follow.is_some() || !known.has_strays() {
            return Ok(());
        }
        for path in self.files()? {
            let at = std::fs::metadata(&path).map(|meta| (meta.dev(), meta.ino()));
            if at.is_ok_and(|(device, inode)| known.is_known(device, inode, &absolute(&path))) {
                continue;
            }
            // one that cannot be read is told of when it is read
            let Ok(opened) = Opened::find(&path, known) else { continue };
            if opened.has_moved {
                let mark = Mark { offset: opened.start.offset, tail: opened.start.tail.print() };
                shared.lock().1.note(opened.file.at(mark));
            }
        }
        Ok(())
    }

    /// Reads all files, or follows them. One that cannot be read to its end does not keep the others from it; the
    /// first such error
    /// is given back at the end.
    pub fn run(&self, intake: &Intake) -> anyhow::Result<()> {
        if let Some(config) = &self.follow {
            return follow::run(self, config, intake);
        }
        let files = Mutex::new(self.files()?.into_iter());
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..READERS_MAX {
                scope.spawn(|| {
                    while let Some(path) = files.lock().ok().and_then(|mut files| files.next()) {
                        if let Err(error) = read(&path, intake) {
                            tracing::error!(path = %path.display(), error = format!("{error:#}"), "a file was not read to its end");
                            if let Ok(mut first) = failed.lock() {
                                first.get_or_insert(error);
                            }
                        }
                    }
                });
            }
        });
        failed.into_inner().ok().flatten().map_or(Ok(()), Err)
    }
}

/// The bytes of a file's text; none if it is compressed or cannot be looked at.
pub fn text_size(path: &Path) -> Option<u64> {
    let mut file = File::open(path).ok()?;
    let bytes = file.metadata().ok()?.len();
    matches!(compression(&mut file), Ok(Compression::None)).then_some(bytes)
}

/// Reads what is new in a file.
fn read(path: &Path, intake: &Intake) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", path.display());
    let Opened { mut text, start, file, has_moved } = Opened::find(path, &intake.known).with_context(failed)?;
    let name = path.display().to_string();
    intake.read_file(&mut text.bytes(), start, &name, file, has_moved).with_context(failed)
}

/// A file at the place where its reading goes on.
struct Opened {
    text: Text,
    start: Start,
    file: FileKey,
    /// Its position was saved under another name.
    has_moved: bool,
}

impl Opened {
    fn find(path: &Path, known: &Known) -> io::Result<Opened> {
        let mut text = Text::open(path)?;
        let meta = text.file.metadata()?;
        let (device, inode) = (meta.dev(), meta.ino());
        let head = text.head()?;
        let mut asked = Asked { device, inode, head: &head, tail_at: &mut |offset| text.go_to(offset) };
        let found = known.find(&mut asked, &is_in_place)?;
        let (shown, absolute) = (path.display(), absolute(path));
        let (offset, has_moved) = match found {
            Found::New => (0, false),
            Found::Replaced => {
                tracing::info!(path = %shown, "the file was truncated or replaced: reading it from its beginning");
                (0, false)
            }
            Found::Same(position) => (position.mark.offset, position.path != absolute),
            Found::Moved(position) => {
                tracing::info!(path = %shown, was = %position.path.display(), "the file was read elsewhere: going on");
                (position.mark.offset, true)
            }
        };
        let tail = text.go_to(offset)?.ok_or_else(|| io::Error::other("it was cut short just now"))?;
        let file =
            FileKey { path: absolute, identity: Identity { device, inode, head: Print::head(&head) }, number: 0 };
        Ok(Opened { text, start: Start { offset, head, tail }, file, has_moved })
    }
}

/// Whether a known file is still at its path with what was read of it. One that cannot be looked at is.
fn is_in_place(position: &Position) -> bool {
    let holds = || {
        let mut text = Text::open(&position.path)?;
        let tail = text.go_to(position.mark.offset)?;
        Ok::<bool, io::Error>(
            position.identity.head.begins(&text.head()?) && tail.is_some_and(|tail| tail.print() == position.mark.tail),
        )
    };
    position.is_at_its_path() && holds().unwrap_or(true)
}

/// The path that leads to the file from wherever the next run or command is started.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// The text of a file, decompressed, with a place in it.
struct Text {
    file: File,
    /// Of a compressed file: what decompresses it, and how far it came.
    stream: Option<(Box<dyn Read + Send>, u64, Tail)>,
    compression: Compression,
}

impl Text {
    fn open(path: &Path) -> io::Result<Text> {
        let mut file = File::open(path)?;
        let compression = compression(&mut file)?;
        let mut text = Text { file, stream: None, compression };
        text.rewind()?;
        Ok(text)
    }

    fn rewind(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        let stream: Box<dyn Read + Send> = match self.compression {
            Compression::None => return Ok(()),
            Compression::Gzip => Box::new(limited(self.file.try_clone()?, |file| {
                Ok(flate2::read::MultiGzDecoder::new(BufReader::new(file)))
            })?),
            Compression::Zstd => Box::new(limited(self.file.try_clone()?, zstd::stream::read::Decoder::new)?),
        };
        self.stream = Some((stream, 0, Tail::default()));
        Ok(())
    }

    /// The first bytes. What is broken behind them is told when it is read for good.
    fn head(&mut self) -> io::Result<Vec<u8>> {
        self.rewind()?;
        let mut head = Vec::with_capacity(HEAD);
        match &mut self.stream {
            None => (&self.file).take(HEAD as u64).read_to_end(&mut head).map(drop)?,
            Some((stream, ..)) => drop(stream.by_ref().take(HEAD as u64).read_to_end(&mut head)),
        }
        self.rewind().map(|()| head)
    }

    /// Goes to a place, and gives the last bytes before it; none if the text ends before.
    fn go_to(&mut self, offset: u64) -> io::Result<Option<Tail>> {
        let Some((_, at, _)) = &self.stream else { return self.seek_to(offset) };
        if *at > offset {
            self.rewind()?;
        }
        let Some((stream, at, tail)) = &mut self.stream else { return Ok(None) };
        let mut skipped = vec![0; SKIP_BYTES];
        while *at < offset {
            let wanted = usize::try_from(offset - *at).unwrap_or(SKIP_BYTES).min(SKIP_BYTES);
            match stream.read(&mut skipped[..wanted]) {
                Ok(0) => return Ok(None),
                Ok(read) => {
                    tail.push(&skipped[..read]);
                    *at += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // what is broken before the place was read otherwise: it is not that file
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(*tail))
    }

    fn seek_to(&mut self, offset: u64) -> io::Result<Option<Tail>> {
        if self.file.metadata()?.len() < offset {
            return Ok(None);
        }
        let from = offset.saturating_sub(TAIL as u64);
        self.file.seek(SeekFrom::Start(from))?;
        let mut before = Vec::with_capacity(TAIL);
        (&self.file).take(offset - from).read_to_end(&mut before)?;
        let mut tail = Tail::default();
        tail.push(&before);
        Ok((before.len() as u64 == offset - from).then_some(tail))
    }

    /// What follows from the place on.
    fn bytes(&mut self) -> Bytes<'_> {
        match &mut self.stream {
            Some((stream, ..)) => Bytes::Stream(Box::new(stream)),
            None => Bytes::Descriptor(self.file.as_fd()),
        }
    }
}

/// How much is decompressed at a time on the way to a place.
const SKIP_BYTES: usize = 64 << 10;

#[derive(Clone, Copy)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

/// By the first bytes; the file is then at its beginning again.
fn compression(file: &mut File) -> io::Result<Compression> {
    let mut magic = [0u8; 4];
    let known = file.read(&mut magic)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(match &magic[..known] {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => Compression::Zstd,
        _ => Compression::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn position(path: &Path, inode: u64, text: &[u8]) -> Position {
        let identity = Identity { device: 1, inode, head: Print::head(text) };
        Position { path: path.into(), identity, mark: Mark { offset: text.len() as u64, tail: Print::tail(text) } }
    }

    #[test]
    fn files_that_moved_are_noted_before_any_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (here, gone) = (dir.path().join("here.gz"), dir.path().join("gone"));
        let text = b"a line\n".repeat(1000);
        let mut gzip = flate2::write::GzEncoder::new(File::create(&here).unwrap(), flate2::Compression::fast());
        gzip.write_all(&text).and_then(|()| gzip.try_finish()).unwrap();
        std::fs::write(dir.path().join("new"), "another\n").unwrap();
        let config = Config { paths: vec![format!("{}/*", dir.path().display())], exclude: Vec::new(), follow: None };
        let known = Known::new(vec![position(&gone, 1, &text[..4900])]);
        let shared = Shared::default();
        config.note_moved(&known, &shared).unwrap();
        let noted = shared.lock().1.take_moved();
        let [noted] = noted.as_slice() else { panic!("{noted:?}") };
        assert_eq!((&noted.path, noted.mark), (&here, position(&gone, 1, &text[..4900]).mark));
        assert_eq!(noted.identity.inode, std::fs::metadata(&here).unwrap().ino());
    }

    #[test]
    fn a_place_in_a_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let text: Vec<u8> = (0..20_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        for bytes in [text.clone(), gzip.finish().unwrap(), zstd::encode_all(&text[..], 1).unwrap()] {
            std::fs::write(&path, &bytes).unwrap();
            let mut opened = Text::open(&path).unwrap();
            assert_eq!(opened.head().unwrap(), text[..HEAD]);
            for offset in [70_000, 10, 0, 64, 65, text.len(), 5, text.len() + 1] {
                let tail = opened.go_to(offset as u64).unwrap();
                let want = text.get(..offset).map(Print::tail);
                assert_eq!(tail.map(|tail| tail.print()), want, "{offset}");
            }
        }
    }
}
