//! The letters that are in the file of lines that may be read again: a line has one letter, however often it is read.
//!
//! No position passes a line that is held, so what was refused behind it is read and refused again after each stop.
//! Such a letter says of which file it is, by the number with which the file's position is saved, or of which spool.
//! Those behind a saved position, and those of a spool that is there, are looked for at a session's start. A letter whose
//! number is not saved says nothing: whether the file that is there now is the one that it was of, nobody knows.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use super::letter::Print;
use super::letter_file::is_torn;
use super::stored::Lines;
use super::{Letter, Line};
use crate::batch::SourceNumber;
use crate::disk::{Disk, folder_of};
use crate::input::identity::Position;
use crate::json;

/// Numbers above this are no numbers of files: there must be a next one.
const NUMBER_MAX: u64 = 1 << 62;

/// How many letters there are of each line: a line may hold an event twice.
#[derive(Debug, Default)]
pub struct Told {
    letters: HashMap<Print, u32>,
    number_max: u64,
}

impl Told {
    /// The letters in the file at `path` of what is read again from these positions on, and of these spools.
    pub fn load<D: Disk>(disk: &D, path: &Path, positions: &[Position], spools: &HashSet<u64>) -> io::Result<Told> {
        let marks: HashMap<u64, u64> =
            positions.iter().map(|position| (position.number, position.mark.offset)).collect();
        let mut told = Told::default();
        let mut lines = match Lines::open_on(disk, path) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(told);
            }
            lines => lines?,
        };
        for line in &mut lines {
            let line = line?;
            // half a letter, which a kill left at the end, is taken away before the next is written
            if is_torn(&line) {
                continue;
            }
            let Some((Line { number, print }, offset)) = line_of(&line) else { continue };
            let is_read_again = match number {
                SourceNumber::File(number) => {
                    told.number_max = told.number_max.max(number);
                    marks.get(&number).is_some_and(|mark| *mark <= offset)
                }
                SourceNumber::Spool(number) => spools.contains(&number),
            };
            if is_read_again {
                *told.letters.entry(print).or_default() += 1;
            }
        }
        // who wrote them may have been killed before they were on the disk; those that are not sure to stay do not count
        if !told.letters.is_empty()
            && let Err(error) = lines.sync().and_then(|()| disk.sync_folder(folder_of(path)))
        {
            tracing::warn!(path = %path.display(), %error, "dead letters that are there may be written once more: they cannot be made to last");
            told.letters.clear();
        }
        Ok(told)
    }

    /// The highest number of a file in any letter. It must not be given to another file, saved or not.
    pub fn number_max(&self) -> u64 {
        self.number_max
    }

    /// Whether the letter is there; it is not found a second time.
    pub fn take(&mut self, letter: &Letter) -> bool {
        let Some(count) = letter.line.as_ref().and_then(|line| self.letters.get_mut(&line.print)) else { return false };
        *count -= 1;
        if *count == 0
            && let Some(line) = &letter.line
        {
            self.letters.remove(&line.print);
        }
        true
    }

    /// A letter that was found is to be found again.
    pub fn give_back(&mut self, letter: &Letter) {
        if let Some(line) = &letter.line {
            *self.letters.entry(line.print).or_default() += 1;
        }
    }
}

/// Of which line a letter is, and where that begins. None of a letter of what is read once, or of an earlier version.
fn line_of(letter: &[u8]) -> Option<(Line, u64)> {
    // most letters of standard input are passed over without looking closer
    memchr::memmem::find(letter, b"\"print\":\"")?;
    let (_, source) = json::members(letter).filter(|(key, _)| *key == b"source").last()?;
    let (mut number, mut print, mut offset) = (None, None, None);
    for (key, value) in json::members(source) {
        let read = || std::str::from_utf8(value).ok()?.parse::<u64>().ok();
        match key {
            b"file" => number = read().filter(|number| *number <= NUMBER_MAX).map(SourceNumber::File),
            b"spool" => number = read().map(SourceNumber::Spool),
            b"offset" => offset = read(),
            b"print" => {
                let mut bytes = Print::default();
                let hex_digits = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
                hex::decode_to_slice(hex_digits, &mut bytes).ok()?;
                print = Some(bytes);
            }
            _ => {}
        }
    }
    Some((Line { number: number?, print: print? }, offset?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::letter::tests::sample;
    use crate::ack::letter_file::{LetterFile, Letters};
    use crate::disk::Real;
    use crate::input::identity::{Identity, Mark, Print as Digest};

    fn letter(number: SourceNumber, print: u8, offset: u64) -> Letter {
        Letter { line: Some(Line { number, print: [print; 16] }), offset, ..sample() }
    }

    fn position(number: u64, offset: u64) -> Position {
        let identity = Identity { device: 1, inode: 1, born: None, head: Digest::head(b"") };
        let mark = Mark { offset, tail: Digest::tail(b"") };
        Position { number, path: "/a".into(), identity, mark }
    }

    /// Half a letter is cut off before the next one is written, and would be missed.
    #[test]
    fn half_a_letter_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dead.ndjson");
        let one = letter(SourceNumber::File(3), 1, 10);
        let mut line = Vec::new();
        one.write("2026-03-01T10:00:00.000Z", &mut line);
        for len in 0..=line.len() {
            std::fs::write(&path, &line[..len]).unwrap();
            let mut told = Told::load(&Real, &path, &[position(3, 0)], &HashSet::new()).unwrap();
            assert_eq!(told.take(&one), len + 1 >= line.len(), "{len}");
        }
    }

    #[test]
    fn letters_behind_a_position_are_found_as_often_as_they_are_there() {
        use SourceNumber::{File, Spool};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dead.ndjson");
        let load = |positions: &[Position]| Told::load(&Real, &path, positions, &HashSet::from([1])).unwrap();
        assert_eq!(load(&[]).number_max(), 0);
        let there = [
            letter(File(1), 1, 9),
            letter(File(1), 2, 10),
            letter(File(1), 3, 10),
            letter(File(1), 3, 10),
            letter(File(2), 4, 0),
            letter(File(7), 5, 99),
            letter(Spool(1), 6, 0),
            letter(Spool(2), 7, 0),
            Letter { event: Some(b"{\"source\":{\"file\":99,\"print\":\"00\"}}".to_vec()), ..sample() },
        ];
        let mut file = LetterFile::new(path.clone(), u64::MAX);
        file.append(&there.each_ref()).unwrap();
        let mut told = load(&[position(1, 10), position(2, 0), position(3, 0)]);
        assert_eq!(told.number_max(), 7);
        let found = there.each_ref().map(|letter| told.take(letter));
        assert_eq!(found, [false, true, true, true, true, false, true, false, false]);
        assert!(!there.iter().any(|letter| told.take(letter)), "each once");
        told.give_back(&there[2]);
        assert!(told.take(&there[2]) && !told.take(&there[2]));
        // a number above which there is none is none
        std::fs::write(
            &path,
            format!("{{\"source\":{{\"offset\":0,\"file\":{},\"print\":\"{}\"}}}}\n", u64::MAX, "0".repeat(32)),
        )
        .unwrap();
        assert_eq!(load(&[]).number_max(), 0);
    }

    #[test]
    fn what_is_there_is_not_written_and_needs_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dead.ndjson");
        let all = [1, 2, 3, 4].map(|n| letter(SourceNumber::File(1), n, u64::from(n)));
        let size = || std::fs::metadata(&path).unwrap().len();
        LetterFile::new(path.clone(), u64::MAX).append(&[&all[1], &all[3]]).unwrap();
        let (two, positions) = (size(), [position(1, 0)]);
        let told = || Told::load(&Real, &path, &positions, &HashSet::new()).unwrap();
        // no room for a third one: what is there does not wait for it
        let mut file = LetterFile::new(path.clone(), two).after(told());
        file.append(&[&all[3]]).unwrap();
        let short = file.append(&all.each_ref()).unwrap_err();
        assert_eq!((short.taken, size()), (0, two));
        let mut file = LetterFile::new(path.clone(), two + two / 2).after(told());
        let short = file.append(&all.each_ref()).unwrap_err();
        assert_eq!((short.taken, size()), (2, two + two / 2));
        let mut file = file.with_room(u64::MAX);
        file.append(&[&all[2], &all[3]]).unwrap();
        assert_eq!(size(), two * 2);
    }
}
