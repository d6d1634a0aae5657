//! The file of dead letters: made at the first letter, readable by its owner only, never larger than allowed, and on
//! the disk before the events in it count as settled.
//!
//! Others may move it away, take letters out of it or write it anew while it is appended to: a lock on the file
//! itself is held for the time of each change, and whoever gets it looks whether the path still leads to the same
//! file.

use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::Letter;
use super::told::Told;
use crate::disk::{Disk, File, PRIVATE, Real, Stream, folder_of, line_begin};

/// Where letters go.
pub trait Letters: Send {
    /// Puts letters where they stay, in order; how many of them, if not all.
    fn append(&mut self, letters: &[&Letter]) -> Result<(), Short>;

    /// What it is called.
    fn name(&self) -> String;
}

/// Not all letters were taken.
#[derive(Debug)]
pub struct Short {
    /// So many of the first ones were.
    pub taken: usize,
    pub why: io::Error,
}

#[derive(Debug)]
pub struct LetterFile<D: Disk = Real> {
    disk: D,
    path: PathBuf,
    bytes_max: u64,
    file: Option<D::File>,
    /// Letters that are there already, of what is read again.
    told: Told,
}

impl LetterFile {
    pub fn new(path: PathBuf, bytes_max: u64) -> LetterFile {
        LetterFile::new_on(Real, path, bytes_max)
    }
}

impl<D: Disk> LetterFile<D> {
    pub fn new_on(disk: D, path: PathBuf, bytes_max: u64) -> LetterFile<D> {
        LetterFile { disk, path, bytes_max, file: None, told: Told::default() }
    }

    /// These letters are there: none of them is written again.
    pub fn after(self, told: Told) -> LetterFile<D> {
        LetterFile { told, ..self }
    }

    #[cfg(test)]
    pub fn with_room(self, bytes_max: u64) -> LetterFile<D> {
        LetterFile { bytes_max, ..self }
    }

    /// The file that the path leads to now, locked until it is dropped or unlocked.
    fn locked(&mut self) -> io::Result<&mut D::File> {
        loop {
            let mut file = match self.file.take() {
                Some(file) => file,
                None => self.open()?,
            };
            file.lock()?;
            if self.disk.is_at(&file, &self.path)? {
                let bytes = end_torn(&mut file)?;
                if bytes > 0 {
                    let path = self.path.display();
                    tracing::warn!(%path, bytes, "half a letter at the end, as a kill leaves it, is taken away");
                }
                return Ok(self.file.insert(file));
            }
        }
    }

    fn open(&self) -> io::Result<D::File> {
        let folder = folder_of(&self.path);
        self.disk.make_folder(folder, PRIVATE)?;
        let file = self.disk.append(&self.path)?;
        // a new file is there after a power loss only if its name is
        self.disk.sync_folder(folder)?;
        Ok(file)
    }

    /// Writes all that are not there already.
    fn write(&mut self, letters: &[&Letter], is_told: &[bool]) -> Result<(), Short> {
        let (bytes_max, time) = (self.bytes_max, self.disk.now().iso());
        let short = |why| Short { taken: 0, why };
        let file = self.locked().map_err(short)?;
        let whole = file.bytes().map_err(short)?;
        let (mut out, mut taken, mut next) = (Vec::new(), 0, 0);
        for (letter, is_told) in letters.iter().zip(is_told) {
            if *is_told {
                taken += 1;
                continue;
            }
            let before = out.len();
            letter.write(&time, &mut out);
            // a letter that is larger than all that is allowed has a file to itself
            if whole + out.len() as u64 > bytes_max && whole + before as u64 > 0 {
                next = out.len() - before;
                out.truncate(before);
                break;
            }
            taken += 1;
        }
        if taken > 0
            && let Err(why) = file.write_all(&out).and_then(|()| file.sync())
        {
            // no half line may stay before what is written later
            let _ = file.set_len(whole);
            return Err(Short { taken: 0, why });
        }
        if taken == letters.len() {
            return Ok(());
        }
        let there = whole + out.len() as u64;
        let mut why = format!(
            "there are {there} bytes in it, the next letter has {next}, and bytes_max of [dead_letter] is {bytes_max}"
        );
        if next as u64 > bytes_max {
            why += ": a letter that is larger waits for an empty file";
        }
        Err(Short { taken, why: io::Error::new(io::ErrorKind::QuotaExceeded, why) })
    }
}

impl<D: Disk> Letters for LetterFile<D> {
    fn append(&mut self, letters: &[&Letter]) -> Result<(), Short> {
        let is_told: Vec<bool> = letters.iter().map(|letter| self.told.take(letter)).collect();
        if is_told.iter().all(|is_told| *is_told) {
            return Ok(());
        }
        let written = self.write(letters, &is_told);
        if let Err(short) = &written {
            // these are asked for once more
            let rest = letters.iter().zip(&is_told).skip(short.taken);
            rest.filter(|(_, is_told)| **is_told).for_each(|(letter, _)| self.told.give_back(letter));
        }
        if let Some(file) = &self.file
            && file.unlock().is_err()
        {
            // closing it gives the lock up too
            self.file = None;
        }
        written
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Takes half a letter away from the end, which a kill has left there: it was never counted, so its event is read
/// again. A whole one that only wants its line feed (edited by hand) gets it. Says how many bytes were taken away.
fn end_torn(file: &mut impl File) -> io::Result<usize> {
    let length = file.bytes()?;
    let begin = line_begin(file, length)?;
    if begin == length {
        return Ok(0);
    }
    let mut rest = vec![0; (length - begin) as usize];
    let count = file.read_at(begin, &mut rest)?;
    if is_torn(&rest[..count]) {
        return file.set_len(begin).map(|()| count);
    }
    file.write_all(b"\n").map(|()| 0)
}

/// Whether this is the beginning of a letter, and not all of it.
pub(super) fn is_torn(line: &[u8]) -> bool {
    line.last() != Some(&b'\n') && serde_json::from_slice::<serde_json::Value>(line).is_err()
}

/// Writes the file of letters anew, atomically: `change` gets each line and writes what is to stand for it. Nothing
/// is appended meanwhile. False if there is no such file.
pub fn rewrite(path: &Path, change: &mut dyn FnMut(&[u8], &mut Vec<u8>)) -> io::Result<bool> {
    rewrite_on(&Real, path, change)
}

/// As [`rewrite`], on any disk.
pub fn rewrite_on<D: Disk>(disk: &D, path: &Path, change: &mut dyn FnMut(&[u8], &mut Vec<u8>)) -> io::Result<bool> {
    loop {
        let file = match disk.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        file.lock()?;
        if !disk.is_at(&file, path)? {
            continue;
        }
        // locked until the new one has its place
        let mut file = Stream::new(file);
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        let written = copy(disk, &mut file, &new, change).and_then(|()| disk.rename(&new, path));
        if written.is_err() {
            // half of it is of no use, and takes the room that is missing
            let _ = disk.remove(&new);
        }
        written?;
        disk.sync_folder(folder_of(path))?;
        return Ok(true);
    }
}

fn copy<D: Disk>(
    disk: &D,
    from: &mut Stream<D::File>,
    to: &Path,
    change: &mut dyn FnMut(&[u8], &mut Vec<u8>),
) -> io::Result<()> {
    let to = disk.create(to)?;
    // whoever was let read it goes on to
    to.allow_as(&from.file)?;
    let (mut from, mut to) = (BufReader::new(from), BufWriter::new(Stream::new(to)));
    let (mut line, mut out) = (Vec::new(), Vec::new());
    while from.read_until(b'\n', &mut line)? > 0 {
        change(&line, &mut out);
        to.write_all(&out)?;
        line.clear();
        out.clear();
    }
    to.into_inner().map_err(io::IntoInnerError::into_error)?.file.sync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::letter::tests::sample;
    use crate::time::Time;

    fn lines(path: &Path) -> usize {
        std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
    }

    #[test]
    fn it_never_grows_beyond_what_is_allowed_and_goes_on_when_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/dead.ndjson");
        let (letter, mut line) = (sample(), Vec::new());
        letter.write(&Time::now().iso(), &mut line);
        let mut file = LetterFile::new(path.clone(), line.len() as u64 * 3 + 1);
        file.append(&[&letter, &letter]).unwrap();
        let short = file.append(&[&letter, &letter]).unwrap_err();
        assert_eq!((short.taken, lines(&path)), (1, 3), "{short:?}");
        assert_eq!(file.append(&[&letter]).unwrap_err().taken, 0);
        // moved away
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        file.append(&[&letter]).unwrap();
        assert_eq!((lines(&path), lines(&folder.path().join("old"))), (1, 3));
        // removed
        std::fs::remove_file(&path).unwrap();
        file.append(&[&letter]).unwrap();
        // written anew
        assert!(rewrite(&path, &mut |_, _| {}).unwrap());
        file.append(&[&letter]).unwrap();
        assert_eq!(lines(&path), 1);
        assert!(!rewrite(&folder.path().join("none"), &mut |_, _| {}).unwrap());
        // larger than all that is allowed
        let mut small = LetterFile::new(folder.path().join("small"), 1);
        small.append(&[&letter]).unwrap();
        assert_eq!(small.append(&[&letter]).unwrap_err().taken, 0);
    }

    /// `before`: bytes that are there; letters of one size follow, for which there is not room enough.
    fn check_said(before: usize, bytes_max: usize, taken: usize, said: &str) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letters");
        std::fs::write(&path, vec![b'\n'; before]).unwrap();
        let letter = sample();
        let short = LetterFile::new(path, bytes_max as u64).append(&[&letter, &letter, &letter]).unwrap_err();
        assert_eq!((short.taken, short.why.to_string().as_str()), (taken, said));
    }

    #[test]
    fn a_full_file_says_what_is_compared() {
        let mut line = Vec::new();
        sample().write(&Time::now().iso(), &mut line);
        let size = line.len();
        let words = |there, bytes_max| {
            format!(
                "there are {there} bytes in it, the next letter has {size}, and bytes_max of [dead_letter] is {bytes_max}"
            )
        };
        check_said(0, size * 2 + 1, 2, &words(size * 2, size * 2 + 1));
        check_said(10, size * 2, 1, &words(size + 10, size * 2));
        check_said(10, size, 0, &words(10, size));
        let larger = words(size, size - 1) + ": a letter that is larger waits for an empty file";
        check_said(0, size - 1, 1, &larger);
    }

    #[test]
    fn half_a_letter_is_taken_away_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("letters");
        let check = |before: &str, want: &str| {
            std::fs::write(&path, before).unwrap();
            LetterFile::new(path.clone(), 1 << 30).append(&[&sample()]).unwrap();
            let got = std::fs::read_to_string(&path).unwrap();
            let rest = got.strip_prefix(want).unwrap_or_else(|| panic!("{got}"));
            assert!(rest.contains("bad-json") && rest.lines().count() == 1, "{rest}");
        };
        check("", "");
        check("{\"a\":1}\n", "{\"a\":1}\n");
        check("{\"a\":1}\n{\"a\":", "{\"a\":1}\n");
        check("{\"a\":1}\n{\"a\":2}", "{\"a\":1}\n{\"a\":2}\n");
        check("{\"a\":", "");
        check(&format!("{{}}\n{{\"a\":\"{}", "b".repeat(100_000)), "{}\n");
    }

    #[test]
    fn appending_and_rewriting_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dead.ndjson");
        let mut taken = 0;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut file = LetterFile::new(path.clone(), 1 << 30);
                    for _ in 0..100 {
                        file.append(&[&sample()]).unwrap();
                    }
                });
            }
            for _ in 0..100 {
                let mut before = 0;
                let there = rewrite(&path, &mut |_, _| before += 1);
                if there.unwrap() {
                    taken += before;
                }
            }
        });
        assert_eq!(taken + lines(&path), 200);
    }
}
