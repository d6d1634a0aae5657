//! Beginning to follow a file: whether it is one that is known, and from where on it is to be read.

use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, OpenFile, Stat, read_some};
use super::gone::{self, Place, inode_of};
use super::machine::{FileNumber, Form, Machine, SETTLE, Take, Told, Tracked};
use super::packed::Compression;
use crate::input::identity::{HEAD, Identity, Mark, Position, Print, TAIL};

/// What a file was found to be.
struct Found {
    /// Where it goes on, and how it begins as far as that.
    mark: Mark,
    head: Vec<u8>,
    was: Option<Position>,
    after: Option<FileNumber>,
}

impl<D: Disk> Machine<D> {
    /// Begins to follow a file that was not, or that was another (`instead`) until now.
    pub(super) fn adopt(
        &mut self,
        path: PathBuf,
        stat: &Stat,
        first: bool,
        instead: Option<FileNumber>,
        take: &mut Take<'_>,
    ) -> bool {
        let found = self.disk.open(&path).and_then(|file| {
            // between looking and opening the name may have gone to another file
            if inode_of(&file.stat()?) != inode_of(stat) {
                return Err(io::ErrorKind::NotFound.into());
            }
            let is_packed = Compression::of(&read_some(&file, 0, 4)?).is_some();
            if is_packed { Ok(Some(None)) } else { Ok(self.recognise(&file, &path, stat, first)?.map(Some)) }
        });
        let found = match found {
            Ok(Some(found)) => found,
            // the next scan looks again
            Ok(None) => return true,
            Err(error) => {
                self.stale |= error.kind() == io::ErrorKind::NotFound;
                self.trouble(&path, &error);
                return true;
            }
        };
        self.troubled.remove(&path);
        let Some(Found { mark, head, was, after }) = found else {
            let number = self.track(path, stat, &[], Mark::start(), Form::Settling(*stat, self.now));
            if let Some(file) = self.files.get_mut(&number) {
                file.instead = instead;
            }
            return true;
        };
        let number = self.track(path, stat, &head, mark, Form::Plain(None));
        // what was read to its end before needs no second look
        if was.is_some() && mark.offset == stat.bytes {
            if let Some(file) = self.files.get_mut(&number) {
                (file.stat, file.sure) = (Some(*stat), true);
            }
        } else {
            self.queue(number);
        }
        self.begin(number, was.as_ref(), after.or(instead), take)
    }

    /// A file more.
    pub(super) fn track(
        &mut self,
        path: PathBuf,
        stat: &Stat,
        head: &[u8],
        mark: Mark,
        form: Form<D::File>,
    ) -> FileNumber {
        let identity = Identity { device: stat.device, inode: stat.inode, head: Print::head(head) };
        let born = stat.born;
        let number = self.next;
        self.next += 1;
        let tracked = Tracked {
            path: path.clone(),
            identity,
            mark,
            born,
            stat: None,
            sure: false,
            half: 0,
            form,
            began: false,
            instead: None,
            named: true,
            seen: self.scans,
            active: self.now,
            queued: false,
        };
        self.by_inode.insert(tracked.inode(), number);
        self.by_path.insert(path, number);
        self.files.insert(number, tracked);
        number
    }

    /// Tells that a file began.
    pub(super) fn begin(
        &mut self,
        number: FileNumber,
        was: Option<&Position>,
        after: Option<FileNumber>,
        take: &mut Take<'_>,
    ) -> bool {
        let Some(file) = self.files.get_mut(&number) else { return true };
        file.began = true;
        let after = after.or(file.instead.take());
        take(Told::Began { file: number, position: &file.position(), was, after })
    }

    /// From where on a file is to be read that is not compressed, and as which known one: the rule of recognition.
    /// None while that cannot be said.
    fn recognise(&mut self, file: &D::File, path: &Path, stat: &Stat, first: bool) -> io::Result<Option<Found>> {
        let beginning = read_some(file, 0, HEAD)?;
        let by_head = self.gone.of_head(&beginning);
        let moved = |number: &u64| self.gone.get(*number).is_some_and(|known| gone::may_have_moved(known, path, stat));
        let moved: Vec<u64> = by_head.into_iter().filter(moved).collect();
        for candidates in [self.gone.of_inode(stat), moved] {
            let mut best: Option<(u64, u64)> = None;
            for number in candidates {
                let Some(known) = self.gone.get(number) else { continue };
                if best.is_none_or(|(_, offset)| known.mark.offset > offset) && gone::fits(file, known)? {
                    best = Some((number, known.mark.offset));
                }
            }
            if let Some(known) = best.and_then(|(number, _)| self.gone.remove(number)) {
                let Place { position, file: after, .. } = known;
                let head = beginning[..usize::from(position.identity.head.bytes).min(beginning.len())].to_vec();
                return Ok(Some(Found { mark: position.mark, head, was: Some(position), after }));
            }
        }
        let (offset, after) = match self.copied(file, &beginning, stat) {
            Some((_, original)) if self.may_be_copying(original, path, stat) => return Ok(None),
            Some((offset, original)) => (last_line_end(file, offset, u64::MAX)?, Some(original)),
            None if first && self.rules.from_end => {
                (last_line_end(file, stat.bytes, self.limits.line_bytes_max as u64)?, None)
            }
            None => (0, None),
        };
        let before = read_some(file, offset.saturating_sub(TAIL as u64), offset.min(TAIL as u64) as usize)?;
        let head = beginning[..usize::try_from(offset).unwrap_or(HEAD).min(beginning.len())].to_vec();
        Ok(Some(Found { mark: Mark { offset, tail: Print::tail(&before) }, head, was: None, after }))
    }

    /// Notes the heads of files that new ones may be copies of.
    pub(super) fn note_originals(&mut self, are_wanted: bool) {
        self.originals.clear();
        let long = |file: &Tracked<D::File>| file.began && usize::from(file.identity.head.bytes) == HEAD;
        for (number, file) in self.files.iter().filter(|(_, file)| are_wanted && long(file)) {
            self.originals.entry(file.identity.head).or_default().push(*number);
        }
    }

    /// Whether a copy that is shorter than what was read of the original may still grow.
    fn may_be_copying(&mut self, original: FileNumber, path: &Path, stat: &Stat) -> bool {
        if self.files.get(&original).is_none_or(|original| original.mark.offset <= stat.bytes) {
            return false;
        }
        let (was, since) = self.copying.entry(path.to_path_buf()).or_insert((*stat, self.now));
        if was.changed(stat) {
            (*was, *since) = (*stat, self.now);
        }
        self.now < *since + SETTLE
    }

    /// How far a file is a copy of one that is followed, such as the copy of copytruncate: as much as was read
    /// there is not read again.
    fn copied(&self, file: &D::File, beginning: &[u8], stat: &Stat) -> Option<(u64, FileNumber)> {
        if beginning.len() < HEAD {
            return None;
        }
        let mut copied = None;
        for number in self.originals.get(&Print::head(beginning))? {
            let Some(known) = self.files.get(number) else { continue };
            let offset = known.mark.offset.min(stat.bytes);
            let from = offset.saturating_sub(TAIL as u64);
            let same = |original: &D::File| {
                let of = |file: &D::File| read_some(file, from, (offset - from) as usize).ok();
                original.stat().is_ok_and(|stat| inode_of(&stat) == known.inode()) && of(original) == of(file)
            };
            let is_copy = match &known.form {
                Form::Plain(Some(open)) => same(&open.file),
                Form::Plain(None) => self.disk.open(&known.path).is_ok_and(|original| same(&original)),
                _ => false,
            };
            if is_copy {
                copied = copied.max(Some((offset, *number)));
            }
        }
        copied
    }
}

/// Where the last whole line ends, looked for as far back as a line may be long.
fn last_line_end(file: &impl OpenFile, bytes: u64, line_bytes_max: u64) -> io::Result<u64> {
    let mut end = bytes;
    while end > 0 && bytes - end < line_bytes_max {
        let from = end.saturating_sub(64 << 10);
        let some = read_some(file, from, (end - from) as usize)?;
        if let Some(at) = memchr::memrchr(b'\n', &some) {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(if end == 0 { 0 } else { bytes })
}
