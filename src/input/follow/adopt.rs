//! Beginning to follow a file: whether it is one that is known, and from where on it is to be read.
//!
//! Of a file that is empty nothing can be said, and of one that may be a copy still growing not all: it is unsure, and
//! is asked again when it changed. Nothing is told of it before, nor read.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::disk::{Disk, OpenFile, Stat, read_some};
use super::machine::{FileNumber, Form, Machine, SETTLE, Take, Told, Tracked};
use super::originals::Likely;
use super::turn::Opened;
use crate::input::identity::{HEAD, Identity, Mark, Print, TAIL, Tail};
use crate::input::known::{self, Place, Row, Seen, last_line_end};
use crate::input::packed::Compression;

/// A copy that did not change for so long is whole; nothing is in it that is not read elsewhere, so that this costs no
/// time.
const COPYING: Duration = Duration::from_secs(60);

/// What a file was found to be.
enum Found {
    Packed,
    /// It goes on here.
    At(Beginning),
    /// As far as is known by now it would go on here.
    Unsure(Beginning),
}

/// Where a file goes on.
struct Beginning {
    mark: Mark,
    tail: Tail,
    /// How it begins, as far as that.
    head: Vec<u8>,
    /// The place of a file that is gone which it is, by its number among those.
    was: Option<u64>,
    /// The file that it is a copy of, since when all was in it that was read there.
    copy: Option<Copy>,
}

/// What is known of a file that may be a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    of: FileNumber,
    /// Since when all is in it that was read of the original.
    whole: Option<Duration>,
}

/// A file that is to be recognised.
struct Asked<'a> {
    path: &'a Path,
    stat: &'a Stat,
    /// It was there at the first look: a new one goes on at its end then, or at the end that it had.
    from_end: bool,
    /// How far it is known by now, if it is unsure: to be a copy, or to have been there at the first look.
    offset: Option<u64>,
    copy: Option<Copy>,
    /// How long it did not change.
    quiet: Duration,
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
            let now = file.stat()?;
            // between looking and opening the name may have gone to another file
            if now.inode() != stat.inode() {
                return Err(io::ErrorKind::NotFound.into());
            }
            let quiet = Duration::ZERO;
            let asked = Asked { path: &path, stat: &now, from_end, offset: None, copy: None, quiet };
            Ok((now, self.recognise(&file, &asked)?))
        });
        let (stat, found) = match found {
            Ok(found) => found,
            // the next scan looks again
            Err(error) => {
                self.stale |= error.kind() == io::ErrorKind::NotFound;
                self.trouble(&path, &error);
                return true;
            }
        };
        self.troubled.remove(&path);
        let number = self.track(path, &stat, &[], Mark::start(), Form::Plain(None));
        if let Some(file) = self.files.get_mut(&number) {
            // what an empty file gets is new
            (file.instead, file.from_end) = (instead, from_end && stat.bytes > 0);
        }
        self.take_as(number, &stat, found, take)
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
            begun: None,
            form,
            from_end: false,
            began: false,
            instead: None,
            copy: None,
            start: None,
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

    /// Asks again what an unsure file is.
    pub(super) fn turn_unsure(&mut self, number: FileNumber, take: &mut Take<'_>) -> bool {
        match self.ask_again(number) {
            Ok(Some((stat, found))) => self.take_as(number, &stat, found, take),
            // the next scan finds what is there instead
            Ok(None) => {
                self.stale = true;
                true
            }
            Err(error) => {
                self.stale |= error.kind() == io::ErrorKind::NotFound;
                if let Some(file) = self.files.get(&number) {
                    let path = file.path.clone();
                    self.trouble(&path, &error);
                }
                true
            }
        }
    }

    /// None if the path leads to another file.
    fn ask_again(&mut self, number: FileNumber) -> io::Result<Option<(Stat, Found)>> {
        let Some(file) = self.files.get_mut(&number) else { return Ok(None) };
        let mut opened = file.open(&self.disk)?;
        if matches!(opened, Opened::Replaced(_)) && file.mark.offset > 0 {
            (file.mark, file.identity.head) = (Mark::start(), Print::head(b""));
            (file.copy, file.from_end) = (None, false);
            opened = file.open(&self.disk)?;
        }
        if !matches!(opened, Opened::Same) {
            return Ok(None);
        }
        self.open.insert(number);
        let Form::Plain(Some(open)) = &file.form else { return Ok(None) };
        let stat = open.file.stat()?;
        if file.stat.as_ref().is_none_or(|was| was.changed(&stat)) {
            file.active = self.now;
        }
        let Some(file) = self.files.get(&number) else { return Ok(None) };
        let Form::Plain(Some(open)) = &file.form else { return Ok(None) };
        let is_same = stat.bytes >= file.mark.offset && open.is_same(file.mark.offset)?;
        let Tracked { path, mark, from_end, copy, active, .. } = file;
        let offset = is_same.then_some(mark.offset);
        let (from_end, copy, quiet) = (*from_end && is_same, copy.filter(|_| is_same), self.now - *active);
        let asked = Asked { path, stat: &stat, from_end, offset, copy, quiet };
        Ok(Some((stat, self.recognise(&open.file, &asked)?)))
    }

    /// Follows a file as what it was found to be.
    fn take_as(&mut self, number: FileNumber, stat: &Stat, found: Found, take: &mut Take<'_>) -> bool {
        let now = self.now;
        let Some(file) = self.files.get_mut(&number) else { return true };
        let beginning = match found {
            Found::Packed => {
                file.form = Form::Settling(*stat, now);
                self.open.remove(&number);
                return true;
            }
            Found::Unsure(beginning) => {
                let was = file.stat.replace(*stat);
                // one that may be a copy is asked again without a change too
                file.sure = stat.bytes == 0 && was.is_some_and(|was| !was.changed(stat));
                if was.is_none() {
                    self.queue(number);
                }
                if let Some(file) = self.files.get_mut(&number) {
                    file.go_to(&beginning);
                }
                return true;
            }
            Found::At(beginning) => beginning,
        };
        let is_new = beginning.was.is_none() && beginning.mark.offset == 0;
        // of one that is read it is told where that was noticed
        if is_new && file.instead.is_none() && self.gone.has_inode(stat.device, stat.inode) {
            known::tell_replaced(&file.path);
        }
        file.go_to(&beginning);
        let was = beginning.was.and_then(|place| self.gone.remove(place));
        if beginning.head.len() == HEAD {
            file.start = Some(self.originals.insert(&beginning.head, number));
        }
        // what was read to its end before needs no second look
        if was.is_some() && beginning.mark.offset == stat.bytes {
            (file.stat, file.sure) = (Some(*stat), true);
        } else {
            file.stat = None;
            self.queue(number);
        }
        let after = was.as_ref().map_or(beginning.copy.map(|copy| copy.of), |was| was.file);
        self.begin(number, was.as_ref(), after, take)
    }

    /// From where on a file is to be read, and as which known one.
    fn recognise(&self, file: &D::File, asked: &Asked<'_>) -> io::Result<Found> {
        let beginning = read_some(file, 0, HEAD)?;
        if Compression::of(&beginning).is_some() {
            return Ok(Found::Packed);
        }
        if beginning.is_empty() {
            return Ok(Found::Unsure(Beginning::new(file, &beginning, 0)?));
        }
        let is_short = beginning.len() < HEAD;
        let seen = Seen { path: asked.path, stat: asked.stat, beginning: &beginning, is_packed: false };
        let place = self.gone.find(file, &seen)?;
        if let Some((place, row)) = place
            && (row == Row::Same || is_short)
        {
            return Ok(Found::At(self.known(file, &beginning, place)?));
        }
        // of what was there at the first look no line is read, whatever it is
        let likely = if is_short && asked.from_end { Likely::default() } else { self.likely(file, &beginning)? };
        let whole = asked.copy.and_then(|copy| copy.whole).or(likely.is_whole.then_some(self.now));
        let (offset, copy) = match (likely.copied, asked.copy, asked.offset) {
            (Some((offset, of)), ..) => (offset, Some(Copy { of, whole })),
            // it was one as long as the original was there
            (None, Some(copy), Some(offset)) if likely.is_unknown || !self.files.contains_key(&copy.of) => {
                (offset, Some(copy))
            }
            (None, _, Some(offset)) if asked.from_end => (offset, None),
            (None, _, None) if asked.from_end => {
                (last_line_end(file, asked.stat.bytes, self.limits.line_bytes_max as u64)?, None)
            }
            _ => (0, None),
        };
        let mut found = Beginning { copy, ..Beginning::new(file, &beginning, offset)? };
        if let Some((place, _)) = place
            && self.gone.get(place).is_some_and(|known| known.mark.offset >= offset)
        {
            found = Beginning { copy, ..self.known(file, &beginning, place)? };
        }
        let is_unsure = match () {
            () if is_short => likely.is_within && asked.quiet < SETTLE,
            () if likely.is_ahead => true,
            () if likely.is_within => whole.map_or(asked.quiet, |since| self.now.saturating_sub(since)) < COPYING,
            () => likely.is_unknown && asked.quiet < SETTLE,
        };
        Ok(if is_unsure { Found::Unsure(found) } else { Found::At(found) })
    }

    /// A file goes on at the place of one that is gone.
    fn known(&self, file: &D::File, beginning: &[u8], place: u64) -> io::Result<Beginning> {
        let Some(known) = self.gone.get(place) else { return Beginning::new(file, beginning, 0) };
        let head = beginning[..usize::from(known.identity.head.bytes).min(beginning.len())].to_vec();
        let found = Beginning::new(file, beginning, known.mark.offset)?;
        Ok(Beginning { mark: known.mark, head, was: Some(place), ..found })
    }
}

impl Beginning {
    fn new(file: &impl OpenFile, beginning: &[u8], offset: u64) -> io::Result<Beginning> {
        let mut tail = Tail::default();
        tail.push(&read_some(file, offset.saturating_sub(TAIL as u64), offset.min(TAIL as u64) as usize)?);
        let head = beginning[..usize::try_from(offset).unwrap_or(HEAD).min(beginning.len())].to_vec();
        Ok(Beginning { mark: Mark { offset, tail: tail.print() }, tail, head, was: None, copy: None })
    }
}

impl<F> Tracked<F> {
    fn go_to(&mut self, beginning: &Beginning) {
        let Beginning { mark, tail, head, copy, .. } = beginning;
        (self.mark, self.identity.head, self.copy) = (*mark, Print::head(head), *copy);
        if let Form::Plain(Some(open)) = &mut self.form {
            (open.head, open.tail) = (head.clone(), *tail);
        }
    }
}
