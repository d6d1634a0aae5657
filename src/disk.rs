//! What is written and must last: dead letters, positions. Behind a trait so that a simulated disk can fill up, fail
//! and forget what was not synced.

use std::fs::File as RealFile;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A disk for small files.
pub trait Disk {
    type File: File;

    /// The whole file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Opens for writing at the end, made if it is not there, with its folders; readable by its owner only.
    fn append(&self, path: &Path) -> io::Result<Self::File>;

    /// An empty file, whatever was there; readable by its owner only.
    fn create(&self, path: &Path) -> io::Result<Self::File>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes a folder if it is absent, open to its owner only.
    fn make_folder(&self, path: &Path) -> anyhow::Result<()>;

    /// Makes last what names stand in a folder: a new file, a rename.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

pub trait File: Send {
    fn bytes(&self) -> io::Result<u64>;

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes last what was written.
    fn sync(&mut self) -> io::Result<()>;

    fn set_len(&mut self, bytes: u64) -> io::Result<()>;

    /// The last `count` bytes, or all.
    fn tail(&mut self, count: u64) -> io::Result<Vec<u8>>;
}

/// Makes a folder if it is absent, and what leads to it, open to its owner only.
pub fn private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Where the line that `end` stands in begins.
pub fn line_begin(file: &RealFile, end: u64) -> io::Result<u64> {
    let (mut at, mut piece) = (end, [0; 4096]);
    while at > 0 {
        let from = at.saturating_sub(piece.len() as u64);
        let piece = &mut piece[..(at - from) as usize];
        file.read_exact_at(piece, from)?;
        if let Some(found) = memchr::memrchr(b'\n', piece) {
            return Ok(from + found as u64 + 1);
        }
        at = from;
    }
    Ok(0)
}

/// The machine's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

impl Disk for Real {
    type File = RealFile;

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn append(&self, path: &Path) -> io::Result<RealFile> {
        use std::os::unix::fs::OpenOptionsExt;
        if let Some(folder) = path.parent() {
            private_folder(folder)?;
        }
        std::fs::OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)
    }

    fn create(&self, path: &Path) -> io::Result<RealFile> {
        use std::os::unix::fs::OpenOptionsExt;
        std::fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn make_folder(&self, path: &Path) -> anyhow::Result<()> {
        crate::ack::lock::make_folder(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match RealFile::open(path).and_then(|folder| folder.sync_all()) {
            // a folder that may be written to but not read, or of no disk
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => {
                Ok(())
            }
            other => other,
        }
    }
}

impl File for RealFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
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

    fn tail(&mut self, count: u64) -> io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let len = self.metadata()?.len();
        let mut bytes = vec![0; len.min(count) as usize];
        self.read_exact_at(&mut bytes, len.saturating_sub(count))?;
        Ok(bytes)
    }
}
