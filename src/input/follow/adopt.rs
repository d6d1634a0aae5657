//! Beginning to follow a file: whether it is one that is known, and from where on it is to be read.

use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, OpenFile, Stat, read_some};
use super::machine::{FileNumber, Form, Machine, SETTLE, Take, Told, Tracked};
use crate::input::identity::{HEAD, Identity, Mark, Print, TAIL};
use crate::input::known::{self, Place, Seen, last_line_end};
use crate::input::packed::Compression;

/// What a file was found to be.
struct Found {
    /// Where it goes on, and how it begins as far as that.
    mark: Mark,
    head: Vec<u8>,
    was: Option<Place>,
    after: Option<FileNumber>,
}

impl<D: Disk> Machine<D> {
    /// Begins to follow a file that was not, or that was another (`instead`) until now; a new one perhaps `from_end`.
    pub(super) fn adopt(
        &mut self,
        path: PathBuf,
        stat: &Stat,
        from_end: bool,
        instead: Option<FileNumber>,
        take: &mut Take<'_>,
    ) -> bool {
        let found = self.disk.open(&path).and_then(|file| {
            // between looking and opening the name may have gone to another file
            if file.stat()?.inode() != stat.inode() {
                return Err(io::ErrorKind::NotFound.into());
            }
            let is_packed = Compression::of(&read_some(&file, 0, 4)?).is_some();
            if is_packed { Ok(Some(None)) } else { Ok(self.recognise(&file, &path, stat, from_end)?.map(Some)) }
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
                (file.instead, file.from_end) = (instead, from_end);
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
        let Stat { device, inode, born, .. } = *stat;
        let identity = Identity { device, inode, born, head: Print::head(head) };
        let number = self.next;
        self.next += 1;
        let tracked = Tracked {
            path: path.clone(),
            identity,
            mark,
            stat: None,
            sure: false,
            half: 0,
            form,
            from_end: false,
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
        was: Option<&Place>,
        after: Option<FileNumber>,
        take: &mut Take<'_>,
    ) -> bool {
        let Some(file) = self.files.get_mut(&number) else { return true };
        file.began = true;
        let after = after.or(file.instead.take());
        take(Told::Began { file: number, position: &file.position(), was, after })
    }

    /// From where on a file is to be read that is not compressed, and as which known one. None while that cannot be
    /// said.
    fn recognise(&mut self, file: &D::File, path: &Path, stat: &Stat, from_end: bool) -> io::Result<Option<Found>> {
        let beginning = read_some(file, 0, HEAD)?;
        let seen = Seen { path, stat, beginning: &beginning, is_packed: false };
        let found = self.gone.find(file, &seen)?;
        if let Some(place) = found.and_then(|(number, _)| self.gone.remove(number)) {
            let head = beginning[..usize::from(place.position.identity.head.bytes).min(beginning.len())].to_vec();
            return Ok(Some(Found { mark: place.position.mark, head, after: place.file, was: Some(place) }));
        }
        let (offset, after) = match self.copied(file, &beginning, stat) {
            Some((_, original)) if self.may_be_copying(original, path, stat) => return Ok(None),
            Some((offset, original)) => (offset, Some(original)),
            None if from_end => (last_line_end(file, stat.bytes, self.limits.line_bytes_max as u64)?, None),
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

    /// How far a file is a copy of one that is followed, and of which.
    fn copied(&self, file: &D::File, beginning: &[u8], stat: &Stat) -> Option<(u64, FileNumber)> {
        if beginning.len() < HEAD {
            return None;
        }
        let mut copied = None;
        for number in self.originals.get(&Print::head(beginning))? {
            let Some(tracked) = self.files.get(number) else { continue };
            let position = tracked.position();
            let offset = |original: &D::File| {
                let is_it = original.stat().is_ok_and(|stat| stat.inode() == tracked.inode());
                is_it.then(|| known::copied(file, stat.bytes, original, &position).ok().flatten()).flatten()
            };
            let offset = match &tracked.form {
                Form::Plain(Some(open)) => offset(&open.file),
                Form::Plain(None) => self.disk.open(&tracked.path).ok().and_then(|original| offset(&original)),
                _ => None,
            };
            copied = copied.max(offset.map(|offset| (offset, *number)));
        }
        copied
    }
}
