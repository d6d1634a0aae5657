//! What is written and must last: dead letters, positions, spools. Behind a trait so that a simulated disk can fill
//! up, fail and forget what was not synced.

use std::fs::{DirBuilder, File as RealFile, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::time::Time;

/// A disk for small files.
pub trait Disk: Clone + Send + Sync + 'static {
    type File: File;

    /// What time it is, for what is written down.
    fn now(&self) -> Time;

    /// The whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Opens for reading.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens for reading, and for writing at the end; made if it is not there, readable by its owner only.
    fn append(&self, path: &Path) -> io::Result<Self::File>;

    /// A new, empty file in the place of what was there, which a crash in the middle of a rename may have left as
    /// another name of a file in use; readable by its owner only.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The paths of what is in a folder.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;

    /// Makes a folder, and those above it, if it is absent; and that it lasts, if it is there.
    fn make_folder(&self, path: &Path, mode: u32) -> io::Result<()>;

    /// Makes last what names stand in a folder: a new file, a rename.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;

    /// The path leads to this file.
    fn is_at(&self, file: &Self::File, path: &Path) -> io::Result<bool>;
}

pub trait File: Send {
    fn bytes(&self) -> io::Result<u64>;

    /// What stands at a place; less than was asked for only at the end.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes last what was written.
    fn sync(&mut self) -> io::Result<()>;

    fn set_len(&mut self, bytes: u64) -> io::Result<()>;

    /// Waits until no other process that asks for the same has the file.
    fn lock(&self) -> io::Result<()>;

    fn unlock(&self) -> io::Result<()>;

    /// Whoever may read the other file may read this one.
    fn allow_as(&self, other: &Self) -> io::Result<()>;
}

/// Only the owner enters.
pub const PRIVATE: u32 = 0o700;

/// The folder that a path is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path by which all who come to a file by links know it, whether or not it is there yet.
pub fn resolved(path: &Path) -> PathBuf {
    let error = match path.canonicalize() {
        Ok(found) => return found,
        Err(error) => error,
    };
    // a link that leads to nothing yet; those in a circle have another error
    if error.kind() == io::ErrorKind::NotFound
        && let Ok(to) = path.read_link()
    {
        return resolved(&folder_of(path).join(to));
    }
    match path.file_name() {
        Some(name) => resolved(folder_of(path)).join(name),
        None => path.to_path_buf(),
    }
}

/// Makes a folder if it is absent, and what leads to it, open to its owner only.
pub fn private_folder(path: &Path) -> io::Result<()> {
    Real.make_folder(path, PRIVATE)
}

/// Opens a file, which is made for its owner only, whatever the umask says, if it is absent.
pub fn private_file(options: &mut OpenOptions, path: &Path) -> io::Result<RealFile> {
    match make_private(options, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match options.create_new(false).open(path) {
            // a link is there that leads to nothing yet
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_private(options, &resolved(path)),
            there => there,
        },
        made => made,
    }
}

fn make_private(options: &mut OpenOptions, path: &Path) -> io::Result<RealFile> {
    let file = options.mode(0o600).create_new(true).open(path)?;
    if file.metadata()?.mode() & 0o600 != 0o600 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Options that do not wait for the other end of a pipe: see [`regular`].
pub fn no_wait() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    options
}

/// A file that keeps what is written into it: a pipe or a device in its place would wait for somebody, or forget.
pub fn regular(file: RealFile) -> io::Result<RealFile> {
    must_be_regular(&file.metadata()?).map(|()| file)
}

/// As [`regular`], of what another opens.
pub fn must_be_regular(there: &Metadata) -> io::Result<()> {
    if there.is_file() { Ok(()) } else { Err(io::Error::other("it is no regular file")) }
}

/// Where the line that `end` stands in begins.
pub fn line_begin(file: &impl File, end: u64) -> io::Result<u64> {
    let (mut at, mut piece) = (end, [0; 4096]);
    while at > 0 {
        let from = at.saturating_sub(piece.len() as u64);
        let wanted = (at - from) as usize;
        if file.read_at(from, &mut piece[..wanted])? < wanted {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(found) = memchr::memrchr(b'\n', &piece[..wanted]) {
            return Ok(from + found as u64 + 1);
        }
        at = from;
    }
    Ok(0)
}

/// A file as a stream: read from its beginning, or written at its end.
pub struct Stream<F> {
    pub file: F,
    at: u64,
}

impl<F> Stream<F> {
    pub fn new(file: F) -> Stream<F> {
        Stream { file, at: 0 }
    }
}

impl<F: File> Read for Stream<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(self.at, into)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl<F: File> Write for Stream<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The machine's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

impl Disk for Real {
    type File = RealFile;

    fn now(&self) -> Time {
        Time::now()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn open(&self, path: &Path) -> io::Result<RealFile> {
        regular(no_wait().read(true).open(path)?)
    }

    fn append(&self, path: &Path) -> io::Result<RealFile> {
        regular(private_file(no_wait().read(true).append(true), path)?)
    }

    fn create(&self, path: &Path) -> io::Result<RealFile> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        private_file(OpenOptions::new().write(true), path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
    }

    fn make_folder(&self, path: &Path, mode: u32) -> io::Result<()> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        if !path.is_dir() {
            self.make_folder(folder_of(path), mode)?;
            let made = DirBuilder::new().mode(mode).create(path).and_then(|()| {
                let is_open = std::fs::metadata(path)?.mode() & mode == mode;
                if is_open { Ok(()) } else { std::fs::set_permissions(path, Permissions::from_mode(mode)) }
            });
            match made {
                // another made it meanwhile
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
                other => other?,
            }
        }
        // whoever made it, and failed or was ended then, may not have made it last
        self.sync_folder(folder_of(path))
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        match RealFile::open(path).and_then(|folder| folder.sync_all()) {
            // a folder that may be written to but not read, or of no disk
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => {
                Ok(())
            }
            other => other,
        }
    }

    fn is_at(&self, file: &RealFile, path: &Path) -> io::Result<bool> {
        let ours = file.metadata()?;
        match std::fs::metadata(path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl File for RealFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < into.len() {
            match FileExt::read_at(self, &mut into[count..], offset + count as u64) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(count)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Write::write_all(self, bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.sync_data() {
            // a device keeps nothing
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            other => other,
        }
    }

    fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        RealFile::set_len(self, bytes)
    }

    fn lock(&self) -> io::Result<()> {
        Ok(flock(self, FlockOperation::LockExclusive)?)
    }

    fn unlock(&self) -> io::Result<()> {
        Ok(flock(self, FlockOperation::Unlock)?)
    }

    fn allow_as(&self, other: &RealFile) -> io::Result<()> {
        self.set_permissions(other.metadata()?.permissions())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_to_what_is_not_there_yet() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        std::fs::create_dir(folder.join("real")).unwrap();
        for (to, name) in [("real", "d"), ("../b", "real/a"), ("d/new", "b"), ("y", "x"), ("x", "y")] {
            symlink(to, folder.join(name)).unwrap();
        }
        for name in ["real/new", "d/new", "b", "real/a", "d/a"] {
            assert_eq!(resolved(&folder.join(name)), folder.join("real/new"), "{name}");
        }
        // a circle has an end
        assert_eq!(resolved(&folder.join("d/../x")), folder.join("x"));
    }
}
