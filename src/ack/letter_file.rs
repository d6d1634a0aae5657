//! The file of dead letters: made at the first letter, readable by its owner only, never larger than allowed, and on
//! the disk before the events in it count as settled.
//!
//! Others may move it away, take letters out of it or write it anew while it is appended to: a lock on the file
//! itself is held for the time of each change, and whoever gets it looks whether the path still leads to the same
//! file.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::Letter;
use crate::disk::{Disk, Real, line_begin, private_folder};
use crate::time::Time;

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
pub struct LetterFile {
    path: PathBuf,
    bytes_max: u64,
    file: Option<File>,
}

impl LetterFile {
    pub fn new(path: PathBuf, bytes_max: u64) -> LetterFile {
        LetterFile { path, bytes_max, file: None }
    }

    /// The file that the path leads to now, locked until it is dropped or unlocked.
    fn locked(&mut self) -> io::Result<&mut File> {
        if let Some(folder) = self.path.parent() {
            private_folder(folder)?;
        }
        loop {
            let file = match self.file.take() {
                Some(file) => file,
                None => {
                    let opened =
                        OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(&self.path)?;
                    // a new file is there after a power loss only if its name is
                    sync_folder(&self.path)?;
                    opened
                }
            };
            flock(&file, FlockOperation::LockExclusive)?;
            if is_at(&file, &self.path)? {
                end_torn(&file)?;
                return Ok(self.file.insert(file));
            }
        }
    }

    fn write(&mut self, letters: &[&Letter]) -> Result<(), Short> {
        let bytes_max = self.bytes_max;
        let short = |why| Short { taken: 0, why };
        let file = self.locked().map_err(short)?;
        let whole = file.metadata().map_err(short)?.len();
        let time = Time::now().iso();
        let (mut out, mut taken) = (Vec::new(), 0);
        for letter in letters {
            let before = out.len();
            letter.write(&time, &mut out);
            // a letter that is larger than all that is allowed has a file to itself
            if whole + out.len() as u64 > bytes_max && whole + before as u64 > 0 {
                out.truncate(before);
                break;
            }
            taken += 1;
        }
        if let Err(why) = file.write_all(&out).and_then(|()| synced(file)) {
            // no half line may stay before what is written later
            let _ = file.set_len(whole);
            return Err(Short { taken: 0, why });
        }
        if taken == letters.len() {
            return Ok(());
        }
        let why = io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!("there are {whole} bytes in it, and bytes_max of [dead_letter] is {bytes_max}"),
        );
        Err(Short { taken, why })
    }
}

impl Letters for LetterFile {
    fn append(&mut self, letters: &[&Letter]) -> Result<(), Short> {
        let written = self.write(letters);
        if let Some(file) = &self.file
            && flock(file, FlockOperation::Unlock).is_err()
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

fn synced(file: &File) -> io::Result<()> {
    match file.sync_data() {
        // a device keeps nothing
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

/// Takes half a letter away from the end, which a kill has left there: it was never counted, so its event is read
/// again. A whole one that only wants its line feed (edited by hand) gets it.
fn end_torn(mut file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let begin = line_begin(file, length)?;
    if begin == length {
        return Ok(());
    }
    let mut rest = vec![0; (length - begin) as usize];
    file.read_exact_at(&mut rest, begin)?;
    match serde_json::from_slice::<serde_json::Value>(&rest) {
        Ok(_) => file.write_all(b"\n"),
        Err(_) => file.set_len(begin),
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes the file of letters anew, atomically: `change` gets each line and writes what is to stand for it. Nothing
/// is appended meanwhile. False if there is no such file.
pub fn rewrite(path: &Path, change: &mut dyn FnMut(&[u8], &mut Vec<u8>)) -> io::Result<bool> {
    loop {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        flock(&file, FlockOperation::LockExclusive)?;
        if !is_at(&file, path)? {
            continue;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let new = PathBuf::from(name);
        let written = copy(&file, &new, change).and_then(|()| std::fs::rename(&new, path));
        if written.is_err() {
            // half of it is of no use, and takes the room that is missing
            let _ = std::fs::remove_file(&new);
        }
        written?;
        sync_folder(path)?;
        return Ok(true);
    }
}

fn copy(from: &File, to: &Path, change: &mut dyn FnMut(&[u8], &mut Vec<u8>)) -> io::Result<()> {
    let to = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(to)?;
    // whoever was let read it goes on to
    to.set_permissions(from.metadata()?.permissions())?;
    let (mut from, mut to) = (BufReader::new(from), BufWriter::new(to));
    let (mut line, mut out) = (Vec::new(), Vec::new());
    while from.read_until(b'\n', &mut line)? > 0 {
        change(&line, &mut out);
        to.write_all(&out)?;
        line.clear();
        out.clear();
    }
    to.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Puts on the disk that a file has come or gone.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    Real.sync_folder(path.parent().unwrap_or(Path::new("")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ack::letter::tests::sample;

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
