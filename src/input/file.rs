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

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Context;

use super::Intake;
use super::follow;
use super::follow::disk::{Disk, OpenFile, Real, Stat, is_circle, read_some};
use super::follow::pattern::{find, leaves_out};
use super::identity::{HEAD, Identity, Mark, Position, Print, TAIL, Tail};
use super::known::{self, Known, Likeness, Row, Seen};
use super::lines::{Bytes, Start};
use super::packed::{self, Compression};

/// How many files are read at the same time: enough to hide the opening of small ones.
pub const READERS_MAX: usize = 4;

#[derive(Clone, Debug)]
pub struct Config {
    pub paths: Vec<String>,
    pub exclude: Vec<String>,
    /// How files are followed as they grow; none where they are read to their ends.
    pub follow: Option<follow::Config>,
    /// The pipeline's inputs before this one: a file is read by one of them.
    pub earlier: Vec<Earlier>,
}

/// Which files another input reads.
#[derive(Clone, Debug)]
pub struct Earlier {
    pub input: usize,
    pub paths: Vec<String>,
    pub exclude: Vec<String>,
}

impl Earlier {
    /// The files there are now; what cannot be looked at is told of by its own input.
    fn files(paths: &[String], exclude: &[String]) -> HashMap<(u64, u64), PathBuf> {
        let exclude: Vec<glob::Pattern> = exclude.iter().flat_map(|pattern| glob::Pattern::new(pattern)).collect();
        let paths = paths.iter().flat_map(|pattern| find(&Real, pattern)).flat_map(|(found, _)| found);
        let paths = paths.filter(|path| !leaves_out(&exclude, path));
        let file = |path: PathBuf| {
            let meta = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
            Some(((meta.dev(), meta.ino()), path))
        };
        paths.filter_map(file).collect()
    }
}

impl Config {
    /// The files there are, in the order of the patterns and by name, each once.
    fn find(&self) -> anyhow::Result<Found> {
        let exclude: Vec<glob::Pattern> =
            self.exclude.iter().map(|p| glob::Pattern::new(p)).collect::<Result<_, _>>()?;
        let (mut files, mut unread, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        for pattern in &self.paths {
            let (paths, folders) = find(&Real, pattern).with_context(|| format!("`{pattern}`"))?;
            for (folder, error) in folders.into_iter().filter(|(_, error)| !is_circle(error)) {
                unread.push(anyhow::Error::new(error).context(format!("cannot look into {}", folder.display())));
            }
            let is_named = !pattern.contains(['*', '?', '[']);
            for path in paths.into_iter().filter(|path| !leaves_out(&exclude, path)) {
                match look(&path, is_named) {
                    Ok(Some(inode)) if seen.insert(inode) => files.push(path),
                    Ok(_) => {}
                    Err(error) => unread.push(error),
                }
            }
        }
        if files.is_empty() && unread.is_empty() {
            tracing::warn!(paths = ?self.paths, "no file matches");
        }
        Ok(Found { files, unread })
    }

    /// How many bytes there are to read; none if a file is compressed or cannot be looked at, or there is no end.
    pub fn bytes(&self) -> Option<u64> {
        if self.follow.is_some() {
            return None;
        }
        self.find().ok()?.files.iter().try_fold(0, |sum, path| Some(sum + text_size(path)?))
    }

    /// Why this input cannot be beside those before it: both would read a file, and it has one position.
    pub fn conflict(&self, input: usize) -> Option<String> {
        let own = Earlier::files(&self.paths, &self.exclude);
        self.earlier.iter().find_map(|earlier| {
            let theirs = Earlier::files(&earlier.paths, &earlier.exclude);
            let file = theirs.iter().filter(|(inode, _)| own.contains_key(inode)).map(|(_, path)| path).min()?;
            let (first, file) = (earlier.input, file.display());
            Some(format!("inputs {first} and {input} both read {file}: leave it out of one by `paths` or `exclude`"))
        })
    }

    /// The patterns from the root on: they are the same wherever the program is started.
    pub fn patterns(&self) -> anyhow::Result<Vec<String>> {
        Ok(follow::pattern::from_root(&self.paths)?.iter().map(|pattern| pattern.as_str().to_string()).collect())
    }

    /// Reads all files, or follows them. One that cannot be read to its end does not keep the others from it; the
    /// first such error is given back at the end.
    pub fn run(&self, intake: &Intake) -> anyhow::Result<()> {
        if let Some(config) = &self.follow {
            return follow::run(self, config, intake);
        }
        let Found { files, unread } = self.find()?;
        for error in &unread {
            tracing::error!(error = format!("{error:#}"), "not all files can be read");
        }
        let files = Mutex::new(files.into_iter());
        // what comes later is new to those who follow
        intake.shared.lock().1.note_look(self.patterns()?, Vec::new());
        let failed = Mutex::new(unread.into_iter().next());
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

/// The files to read, and why others cannot be.
struct Found {
    files: Vec<PathBuf>,
    unread: Vec<anyhow::Error>,
}

/// Device and inode of a file; none if there is no file. One that is named must be there.
fn look(path: &Path, is_named: bool) -> anyhow::Result<Option<(u64, u64)>> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(Some((meta.dev(), meta.ino()))),
        Ok(meta) if is_named => {
            anyhow::bail!("{shown} is a {}, not a file", if meta.is_dir() { "folder" } else { "pipe or device" })
        }
        Ok(_) => Ok(None),
        Err(error) if is_named && error.kind() == io::ErrorKind::NotFound => anyhow::bail!("there is no file {shown}"),
        // a link that leads nowhere or in a circle, or a file that went away meanwhile
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_circle(&error) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {shown}")),
    }
}

/// The bytes of a file's text; none if it is compressed or cannot be looked at.
pub fn text_size(path: &Path) -> Option<u64> {
    let file = File::open(path).ok()?;
    let beginning = read_some(&file, 0, 4).ok()?;
    Compression::of(&beginning).is_none().then(|| file.metadata().ok().map(|meta| meta.len()))?
}

/// Reads what is new in a file.
fn read(path: &Path, intake: &Intake) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", path.display());
    let Opened { mut text, opening } = Opened::find(path, &intake.known).with_context(failed)?;
    intake.read_file(&mut text.bytes(), &path.display().to_string(), opening).with_context(failed)
}

/// A file at the place where its reading goes on.
struct Opened {
    text: Text,
    opening: Opening,
}

/// What is known of a file when its reading begins.
pub struct Opening {
    pub start: Start,
    /// At the start; its number is that of the place that it goes on from, or 0.
    pub position: Position,
    /// The place was saved under another name.
    pub has_moved: bool,
    /// The day on which it was written last.
    pub day: i64,
}

impl Opened {
    fn find(path: &Path, known: &Known) -> io::Result<Opened> {
        let file = Real.open(path)?;
        let stat = OpenFile::stat(&file)?;
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let (text, head, found) = match packed::Text::open(file.try_clone()?)? {
            Some(text) => {
                let head = text.beginning.clone();
                let seen = Seen { path: &absolute, stat: &stat, beginning: &head, is_packed: true };
                let candidates = known.candidates(&seen).into_iter();
                let places = candidates.filter_map(|(number, _)| Some((known.get(number)?.clone(), ()))).collect();
                let again = || packed::Text::open(file.try_clone()?);
                let found = known::find_packed(text, places, again)?;
                let (text, found) = found.ok_or_else(|| io::Error::other("it was changed just now"))?;
                (Text::Packed(Box::new(text)), head, found.map(|(place, ())| place))
            }
            None => {
                let head = read_some(&file, 0, HEAD)?;
                let seen = Seen { path: &absolute, stat: &stat, beginning: &head, is_packed: false };
                let (offset, found) = place_in(&file, &seen, known)?;
                (Text::at(file, offset)?, head, found)
            }
        };
        let (offset, tail) = text.place();
        let Stat { device, inode, born, .. } = stat;
        let identity = Identity { device, inode, born, head: Print::head(&head) };
        let number = found.as_ref().map_or(0, |place| place.number);
        let mark = Mark { offset, tail: tail.print() };
        let position = Position { number, path: absolute, identity, mark };
        let is_where_it_was = |place: &Position| place.identity.has_inode_of(&identity) && place.path == position.path;
        let has_moved = found.as_ref().map_or(offset > 0, |place| !is_where_it_was(place));
        match &found {
            Some(place) if !place.identity.has_inode_of(&identity) => {
                tracing::info!(path = %path.display(), was = %place.path.display(), "the file was read elsewhere: going on");
            }
            None if offset == 0 && known.has_inode(device, inode) => {
                known::tell_replaced(path);
            }
            _ => {}
        }
        Ok(Opened {
            text,
            opening: Opening { start: Start { offset, head, tail }, position, has_moved, day: stat.day() },
        })
    }
}

/// From where on a file is new that is not compressed, and the known place that is, if it is one.
fn place_in(file: &File, seen: &Seen<'_>, known: &Known) -> io::Result<(u64, Option<Position>)> {
    let found = known.find(file, seen)?;
    let place = found.and_then(|(number, _)| known.get(number).cloned());
    let offset = place.as_ref().map_or(0, |place| place.mark.offset);
    if matches!(found, Some((_, Row::Same))) {
        return Ok((offset, place));
    }
    let mut copied = 0;
    for (number, row) in known.candidates(seen) {
        let Some(place) = known.get(number).filter(|_| row == Row::Moved) else { continue };
        // what cannot be read is no original
        if let Ok(original) = Real.open(&place.path)
            && let Ok(Likeness::Within(offset) | Likeness::Beyond(offset)) = known::likeness(file, &original, place)
        {
            copied = copied.max(offset);
        }
    }
    Ok(if copied > offset { (copied, None) } else { (offset, place) })
}

/// The text of a file, decompressed, with a place in it.
enum Text {
    Plain(File, u64, Tail),
    Packed(Box<packed::Text>),
}

impl Text {
    /// A text that is not compressed.
    fn at(mut file: File, offset: u64) -> io::Result<Text> {
        let from = offset.saturating_sub(TAIL as u64);
        let mut tail = Tail::default();
        tail.push(&read_some(&file, from, (offset - from) as usize)?);
        file.seek(SeekFrom::Start(offset))?;
        Ok(Text::Plain(file, offset, tail))
    }

    fn place(&self) -> (u64, Tail) {
        match self {
            Text::Plain(_, offset, tail) => (*offset, *tail),
            Text::Packed(text) => (text.offset, text.tail),
        }
    }

    /// What follows from the place on.
    fn bytes(&mut self) -> Bytes<'_> {
        match self {
            Text::Plain(file, ..) => Bytes::Descriptor((*file).as_fd()),
            Text::Packed(text) => Bytes::Stream(Box::new(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_goes_on_where_the_original_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let text: String = (0..500).map(|n| format!("line {n}\n")).collect();
        let at = |name: &str| folder.path().join(name);
        let find = |name: &str, known: &Known| Opened::find(&at(name), known).unwrap().opening;
        std::fs::write(at("a"), &text[..3000]).unwrap();
        let mut a = find("a", &Known::default()).position;
        (a.number, a.mark) = (1, Mark { offset: 2998, tail: Print::tail(&text.as_bytes()[..2998]) });
        let known = Known::new(vec![a.clone()]);
        let half = 1 + text[..2000].rfind('\n').unwrap();
        for (name, bytes, offset, number) in
            [("b", 4000, 2998, 1), ("c", 2998, 2998, 1), ("d", 2000, half, 0), ("e", 1000, 0, 0)]
        {
            std::fs::write(at(name), &text[..bytes]).unwrap();
            let found = find(name, &known);
            assert_eq!((found.position.mark.offset, found.position.number), (offset as u64, number), "{name}");
            assert_eq!(found.has_moved, offset > 0, "{name}");
        }
        assert!(!find("a", &known).has_moved);
        // there is no original
        std::fs::write(at("a"), "other\n").unwrap();
        assert_eq!(find("d", &known).position.mark.offset, 0);
        assert_eq!(find("b", &known).position.mark.offset, 2998);
    }
}
