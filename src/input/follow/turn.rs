//! One turn of reading a file: a block's worth of it, checked after it was read to be of the same file still.

use std::io;
use std::time::Duration;

use super::disk::{Disk, OpenFile, Stat, read_full, read_some};
use super::machine::{Begun, FileNumber, Form, Machine, Open, Take, Told, Tracked, Waits};
use crate::codec::Block;
use crate::input::Limits;
use crate::input::identity::{HEAD, Identity, Mark, Position, Print, TAIL, Tail};
use crate::input::known::{self, Seen};
use crate::input::lines::Cutter;
use crate::input::packed::{Compression, Text};
use crate::pool::Pool;

/// What came of reading.
enum Got {
    /// Blocks, and whether the file's end was reached; `half` bytes stand behind them, of which `lines` are whole lines
    /// of a record that is open.
    Blocks {
        blocks: Vec<(Block, Tail)>,
        end: bool,
        half: u64,
        lines: Vec<u8>,
        stat: Stat,
    },
    /// The path leads to another file, or nowhere.
    Missing,
    /// The file is not what it was.
    Replaced(Stat),
    Compressed(Stat),
}

/// What came of opening a file.
pub(super) enum Opened {
    Same,
    /// The path leads to another file, or nowhere.
    Missing,
    /// The file is not what it was.
    Replaced(Stat),
}

/// A known place, and whose it is.
type Fitting = (Position, Origin);

#[derive(Clone, Copy, Debug)]
enum Origin {
    Own,
    /// Of a file that is gone, by its number among those.
    Gone(u64),
    /// Of another file that is followed.
    Other(FileNumber),
}

impl<D: Disk> Machine<D> {
    /// Reads some of a file. False once nobody takes anything.
    pub(super) fn turn(&mut self, number: FileNumber, take: &mut Take<'_>) -> bool {
        let Some(file) = self.files.get(&number) else { return true };
        let (opens, began) = (matches!(file.form, Form::Plain(None) | Form::Settling(..)), file.began);
        if opens && !self.make_room(take) {
            self.queue(number);
            return true;
        }
        match self.files.get(&number).map(|file| &file.form) {
            Some(Form::Plain(_)) if began => self.turn_plain(number, take),
            Some(Form::Plain(_)) => self.turn_unsure(number, take),
            Some(Form::Settling(..)) => self.open_packed(number, take),
            Some(Form::Packed(..)) => self.turn_packed(number, take),
            Some(Form::Unpacked) | None => true,
        }
    }

    fn turn_plain(&mut self, number: FileNumber, take: &mut Take<'_>) -> bool {
        let (now, idle_flush, limits) = (self.now, self.rules.idle_flush, &self.limits);
        let Some(file) = self.files.get_mut(&number) else { return true };
        let was_open = file.is_open();
        let quiet = file.stat.is_some().then(|| now.saturating_sub(file.active));
        let flush = |cutter: &mut Cutter| {
            let waits = Waits::new(cutter.is_within_line(), idle_flush, limits);
            let is_due = |wait: Option<Duration>| wait.is_some() && quiet >= wait;
            if is_due(waits.all) {
                return cutter.cut(true);
            }
            if is_due(waits.record) { cutter.cut_open() } else { None }
        };
        let got = read(&self.disk, file, limits, &self.pool, &flush);
        if file.is_open() {
            self.open.insert(number);
        }
        match got {
            Ok(Got::Blocks { blocks, end, half, lines, stat }) => {
                file.begun = None;
                for (block, tail) in blocks {
                    if !hand_over(number, file, block, tail, stat.day(), take) {
                        return false;
                    }
                }
                if file.start.is_none()
                    && let Form::Plain(Some(Open { head, .. })) = &file.form
                    && head.len() == HEAD
                {
                    file.start = Some(self.originals.insert(head, number));
                }
                if !lines.is_empty() {
                    file.begin_record(lines, half, stat.day());
                }
                if file.stat.as_ref().is_none_or(|was| was.changed(&stat)) {
                    file.active = now;
                }
                if end {
                    file.sure = file.stat.as_ref().is_some_and(|was| !was.changed(&stat));
                    (file.stat, file.half) = (Some(stat), half);
                } else {
                    file.stat = None;
                    self.queue(number);
                }
                true
            }
            Ok(Got::Missing) => {
                self.stale = true;
                true
            }
            Ok(Got::Replaced(stat)) => {
                let (path, named) = (file.path.clone(), file.named);
                known::tell_replaced(&path);
                // what waited for its end is no half line of the file that is there now
                file.half = 0;
                // what was open is surely the same file, though with other bytes
                let follow = named && (was_open || self.is_wanted(&path));
                self.lose(number, take) && (!follow || self.adopt(path, &stat, false, Some(number), take))
            }
            Ok(Got::Compressed(stat)) => {
                file.form = Form::Settling(stat, now);
                self.open.remove(&number);
                true
            }
            Err(error) => {
                let path = file.path.clone();
                self.stale |= error.kind() == io::ErrorKind::NotFound;
                self.trouble(&path, &error);
                true
            }
        }
    }

    /// Opens what is compressed once it stopped changing, and finds where to go on.
    fn open_packed(&mut self, number: FileNumber, take: &mut Take<'_>) -> bool {
        let Some(file) = self.files.get(&number) else { return true };
        let (path, inode) = (file.path.clone(), file.inode());
        let opened = || -> io::Result<Option<(Stat, Text)>> {
            let open = self.disk.open(&path)?;
            let stat = open.stat()?;
            if stat.inode() != inode {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(Text::open(open)?.map(|text| (stat, text)))
        };
        let (stat, text) = match opened() {
            Ok(Some(opened)) => opened,
            Ok(None) => {
                // it is not compressed any more
                let stat = self.disk.stat(&path);
                return self.lose(number, take)
                    && stat.map_or(true, |stat| self.adopt(path, &stat, false, Some(number), take));
            }
            Err(error) => {
                self.stale |= error.kind() == io::ErrorKind::NotFound;
                self.trouble(&path, &error);
                return true;
            }
        };
        let (began, from_end) = (file.began, file.from_end);
        if !self.hand_over_orphans(take) {
            return false;
        }
        let Some((mut text, known)) = self.place_in(number, &stat, text) else { return true };
        if from_end && known.is_none() {
            // what is damaged is not new either
            let _ = text.skip_to(u64::MAX);
        }
        let (was, after) = match &known {
            Some((_, Origin::Gone(place))) => self.gone.remove(*place).map_or((None, None), |place| {
                let after = place.file;
                (Some(place), after)
            }),
            Some((_, Origin::Other(other))) => (None, Some(*other)),
            _ => (None, None),
        };
        let is_own = matches!(known, Some((_, Origin::Own)));
        let head = text.beginning[..usize::try_from(text.offset).unwrap_or(HEAD).min(text.beginning.len())].to_vec();
        let identity = Identity { device: inode.0, inode: inode.1, born: stat.born, head: Print::head(&head) };
        let mark = Mark { offset: text.offset, tail: text.tail.print() };
        let cutter = Cutter::new(self.limits.clone(), &self.pool, text.offset, text.tail);
        let form = Form::Packed(Box::new((text, cutter)), stat);
        if is_own || !began {
            let Some(file) = self.files.get_mut(&number) else { return true };
            (file.identity, file.mark, file.form, file.begun) = (identity, mark, form, None);
            self.open.insert(number);
            self.queue(number);
            return is_own || self.begin(number, was.as_ref(), after, take);
        }
        // another text has its name now
        if !self.lose(number, take) {
            return false;
        }
        let instead = number;
        let number = self.track(path, &stat, &head, mark, form);
        self.open.insert(number);
        self.queue(number);
        self.begin(number, was.as_ref(), after.or(Some(instead)), take)
    }

    /// Records that are open in files that have no name any more: the text that is to be read may be theirs, and would
    /// have them too.
    fn hand_over_orphans(&mut self, take: &mut Take<'_>) -> bool {
        let orphans = self.files.iter_mut().filter(|(_, file)| !file.named);
        orphans.map(|(number, file)| (*number, file)).all(|(number, file)| match file.begun.take() {
            Some(begun) => hand_over_begun(number, file, begun, take),
            None => true,
        })
    }

    /// The text at the place from where on it is new: behind what was read of it, or of the file it was made of;
    /// and the known place that is. None if it cannot be read now.
    fn place_in(&self, number: FileNumber, stat: &Stat, text: Text) -> Option<(Text, Option<Fitting>)> {
        let file = self.files.get(&number)?;
        let beginning = text.beginning.clone();
        let seen = Seen { path: &file.path, stat, beginning: &beginning, is_packed: true };
        let mut known: Vec<Fitting> = Vec::new();
        if file.began {
            known.push((file.position(), Origin::Own));
        }
        let gone = self.gone.candidates(&seen).into_iter();
        known.extend(gone.filter_map(|(place, _)| Some((self.gone.get(place)?.clone(), Origin::Gone(place)))));
        let others = self.files.iter().filter(|(other, file)| **other != number && file.began);
        let others = others.map(|(other, file)| (file.position(), Origin::Other(*other)));
        known.extend(others.filter(|(position, _)| seen.row(position).is_some()));
        let again = || {
            let open = self.disk.open(&file.path)?;
            if open.stat()?.inode() == stat.inode() { Text::open(open) } else { Ok(None) }
        };
        known::find_packed(text, known, again).ok().flatten()
    }

    fn turn_packed(&mut self, number: FileNumber, take: &mut Take<'_>) -> bool {
        let block_bytes = self.limits.block_bytes();
        let Some(file) = self.files.get_mut(&number) else { return true };
        let Form::Packed(packed, stat) = &mut file.form else { return true };
        let (stat, (text, cutter)) = (*stat, packed.as_mut());
        let room = block_bytes.saturating_sub(cutter.buffer.len()).max(4096);
        let read = text.read_to(room, &mut cutter.buffer);
        let end = matches!(read, Ok(read) if read < room);
        // whole lines before a break are as good as any
        let broken = read.err();
        let beginning = text.beginning.clone();
        let next =
            |cutter: &mut Cutter| cutter.cut(end).or_else(|| if broken.is_some() { cutter.cut_open() } else { None });
        while let Some(block) = next(cutter) {
            let mark = Mark { offset: end_of(&block), tail: cutter.tail().print() };
            let head = &beginning[..usize::try_from(mark.offset).unwrap_or(HEAD).min(beginning.len())];
            file.identity.head = Print::head(head);
            file.mark = mark;
            let (identity, day) = (&file.identity, stat.day());
            if !take(Told::Lines { file: number, block, head, day, identity, mark: &mark }) {
                return false;
            }
        }
        let path = file.path.clone();
        if !end && broken.is_none() {
            self.queue(number);
            return true;
        }
        (file.form, file.stat, file.sure, file.half) = (Form::Unpacked, Some(stat), true, 0);
        self.open.remove(&number);
        if let Some(error) = broken {
            tracing::error!(path = %path.display(), %error, "compressed data is damaged; what stands behind is left out");
        }
        true
    }
}

/// Where in its source a block ends.
fn end_of(block: &Block) -> u64 {
    block.offset + block.too_long.map_or(block.bytes.len() as u64, |line| line.covered)
}

/// Hands a block over; the file's mark and head move with it.
fn hand_over<F>(
    number: FileNumber,
    file: &mut Tracked<F>,
    block: Block,
    tail: Tail,
    day: i64,
    take: &mut Take<'_>,
) -> bool {
    let Form::Plain(Some(open)) = &mut file.form else { return true };
    note_head(&mut open.head, &mut file.identity, &block);
    open.tail = tail;
    file.mark = Mark { offset: end_of(&block), tail: tail.print() };
    let (identity, mark) = (&file.identity, &file.mark);
    take(Told::Lines { file: number, block, head: &open.head, day, identity, mark })
}

/// As [`hand_over`], of a record that is open in a file that may be gone.
pub(super) fn hand_over_begun<F>(number: FileNumber, file: &mut Tracked<F>, begun: Begun, take: &mut Take<'_>) -> bool {
    let Begun { lines, mut head, mut tail, day, .. } = begun;
    tail.push(&lines);
    file.half = file.half.saturating_sub(lines.len() as u64);
    let block = Block { bytes: lines.into(), offset: file.mark.offset, too_long: None, mark: None, records: None };
    note_head(&mut head, &mut file.identity, &block);
    file.mark = Mark { offset: end_of(&block), tail: tail.print() };
    if let Form::Plain(Some(open)) = &mut file.form {
        open.tail = tail;
        open.head.clone_from(&head);
    }
    let (identity, mark) = (&file.identity, &file.mark);
    take(Told::Lines { file: number, block, head: &head, day, identity, mark })
}

/// A block brings the first bytes of its file, or more of them.
fn note_head(head: &mut Vec<u8>, identity: &mut Identity, block: &Block) {
    if let Some(more) =
        usize::try_from(block.offset).ok().and_then(|from| block.bytes.get(head.len().checked_sub(from)?..))
    {
        head.extend_from_slice(&more[..more.len().min(HEAD - head.len())]);
    }
    if head.len() > usize::from(identity.head.bytes) {
        identity.head = Print::head(head);
    }
}

/// Reads a block's worth from the mark on, and looks whether what was read is of the same file: only after reading can
/// that be known. `flush` cuts off what counts as whole at the end.
fn read<D: Disk>(
    disk: &D,
    file: &mut Tracked<D::File>,
    limits: &Limits,
    pool: &Pool,
    flush: &dyn Fn(&mut Cutter) -> Option<Block>,
) -> io::Result<Got> {
    match file.open(disk)? {
        Opened::Same => {}
        Opened::Missing => return Ok(Got::Missing),
        Opened::Replaced(stat) => return Ok(Got::Replaced(stat)),
    }
    let Form::Plain(Some(open)) = &file.form else { return Ok(Got::Missing) };
    let stat = open.file.stat()?;
    let offset = file.mark.offset;
    if stat.bytes < offset {
        return Ok(Got::Replaced(stat));
    }
    let mut cutter = Cutter::new(limits.clone(), pool, offset, open.tail);
    let mut blocks = Vec::new();
    let mut end = false;
    while blocks.is_empty() && !end {
        let from = cutter.buffer.len();
        let at = cutter.end();
        // what is there now and a little more, so that small files cost little
        let there = usize::try_from(stat.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let wanted = (there.saturating_add(512)).min(limits.block_bytes());
        cutter.buffer.resize(from + wanted, 0);
        let read = read_full(&open.file, at, &mut cutter.buffer[from..])?;
        cutter.buffer.truncate(from + read);
        if offset == 0 && at == 0 && Compression::of(&cutter.buffer).is_some() {
            return Ok(Got::Compressed(stat));
        }
        end = read < wanted;
        while let Some(block) = cutter.cut(false) {
            blocks.push((block, cutter.tail()));
        }
    }
    // what came meanwhile was not quiet
    let is_as_it_was = file.stat.as_ref().is_some_and(|was| !was.changed(&stat)) && cutter.end() == stat.bytes;
    if end
        && is_as_it_was
        && let Some(block) = flush(&mut cutter)
    {
        blocks.push((block, cutter.tail()));
    }
    let half = cutter.end() - blocks.last().map_or(offset, |(block, _)| end_of(block));
    if !open.is_same(offset)? {
        return Ok(Got::Replaced(open.file.stat()?));
    }
    Ok(Got::Blocks { blocks, end, half, lines: cutter.open_lines().to_vec(), stat })
}

impl<F: OpenFile> Tracked<F> {
    /// Opens it at its mark, if it is not open.
    pub fn open<D: Disk<File = F>>(&mut self, disk: &D) -> io::Result<Opened> {
        let Form::Plain(form @ None) = &mut self.form else { return Ok(Opened::Same) };
        let (identity, mark) = (&self.identity, &self.mark);
        let file = disk.open(&self.path)?;
        let stat = file.stat()?;
        if stat.inode() != (identity.device, identity.inode) {
            return Ok(Opened::Missing);
        }
        if identity.born.zip(stat.born).is_some_and(|(was, is)| was != is) {
            return Ok(Opened::Replaced(stat));
        }
        let head = read_some(&file, 0, usize::from(identity.head.bytes))?;
        let bytes = mark.offset.min(TAIL as u64);
        let before = read_some(&file, mark.offset - bytes, bytes as usize)?;
        if !identity.head.begins(&head) || !mark.tail.ends(&before) {
            return Ok(Opened::Replaced(stat));
        }
        let mut tail = Tail::default();
        tail.push(&before);
        *form = Some(Open { file, head, tail });
        Ok(Opened::Same)
    }
}

impl<F> Tracked<F> {
    /// Keeps the lines of a record that is open, of the `half` bytes behind the mark.
    fn begin_record(&mut self, lines: Vec<u8>, half: u64, day: i64) {
        if let Form::Plain(Some(open)) = &self.form {
            let is_all = lines.len() as u64 == half;
            self.begun = Some(Begun { lines, is_all, head: open.head.clone(), tail: open.tail, day });
        }
    }
}

impl<F: OpenFile> Open<F> {
    /// Whether what stands before the mark is still what was read.
    pub fn is_same(&self, offset: u64) -> io::Result<bool> {
        let (mut head, mut tail) = ([0; HEAD], [0; TAIL]);
        let (head, tail) = (&mut head[..self.head.len()], &mut tail[..self.tail.bytes().len()]);
        Ok(read_full(&self.file, 0, head)? == self.head.len()
            && *head == self.head[..]
            && read_full(&self.file, offset - tail.len() as u64, tail)? == tail.len()
            && *tail == *self.tail.bytes())
    }
}
