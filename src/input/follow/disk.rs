//! What following files needs of a disk: names, sizes and bytes. The real one is [`Real`]; tests have others.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::Path;

pub trait Disk {
    type File: OpenFile;

    /// What is in a folder, in any order.
    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>>;

    /// What a path leads to, through links.
    fn stat(&self, path: &Path) -> io::Result<Stat>;

    fn open(&self, path: &Path) -> io::Result<Self::File>;
}

/// A file that stays readable when its name is gone.
pub trait OpenFile: Send + 'static {
    fn stat(&self) -> io::Result<Stat>;

    /// Reads some of what stands at `offset`; nothing at the end.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: OsString,
    /// Of the name itself: of a symbolic link, the link's own.
    pub inode: u64,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    /// A symbolic link; only of an entry.
    Link,
    Other,
}

/// A time that is only compared: when something on the disk was changed.
pub type Changed = (i64, i64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub kind: Kind,
    pub device: u64,
    pub inode: u64,
    pub bytes: u64,
    /// When the bytes were changed.
    pub written: Changed,
    /// When anything was changed, names and rights too.
    pub touched: Changed,
    /// When the file was made, where the file system knows: an inode used again has another.
    pub born: Option<Changed>,
}

impl Stat {
    /// Whether the bytes may be others than those that were there at `self`.
    pub fn changed(&self, now: &Stat) -> bool {
        (self.bytes, self.written, self.touched, self.born) != (now.bytes, now.written, now.touched, now.born)
    }

    /// The day on which the bytes were changed, since 1970.
    pub fn day(&self) -> i64 {
        self.written.0.div_euclid(86_400)
    }

    /// Device and inode.
    pub fn inode(&self) -> Inode {
        (self.device, self.inode)
    }
}

/// Device and inode.
pub type Inode = (u64, u64);

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real;

impl Disk for Real {
    type File = File;

    fn list(&self, folder: &Path) -> io::Result<Vec<Entry>> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let entry = |entry: std::fs::DirEntry| {
            let kind = entry.file_type()?;
            let kind = match () {
                () if kind.is_file() => Kind::File,
                () if kind.is_dir() => Kind::Folder,
                () if kind.is_symlink() => Kind::Link,
                () => Kind::Other,
            };
            Ok(Entry { name: entry.file_name(), inode: entry.ino(), kind })
        };
        std::fs::read_dir(folder)?.map(|found| found.and_then(entry)).collect()
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        std::fs::metadata(path).map(|meta| stat(&meta))
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        use std::os::unix::fs::OpenOptionsExt;
        // a pipe of that name must not make the program wait for its other end
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
    }
}

impl OpenFile for File {
    fn stat(&self) -> io::Result<Stat> {
        self.metadata().map(|meta| stat(&meta))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, into, offset)
    }
}

fn stat(meta: &std::fs::Metadata) -> Stat {
    let kind = match () {
        () if meta.is_file() => Kind::File,
        () if meta.is_dir() => Kind::Folder,
        () => Kind::Other,
    };
    Stat {
        kind,
        device: meta.dev(),
        inode: meta.ino(),
        bytes: meta.len(),
        written: (meta.mtime(), meta.mtime_nsec()),
        touched: (meta.ctime(), meta.ctime_nsec()),
        born: meta.created().ok().and_then(|time| {
            let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
            Some((since.as_secs() as i64, i64::from(since.subsec_nanos())))
        }),
    }
}

/// Whether what a path leads to cannot be said since a link on the way leads in a circle.
pub fn is_circle(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Reads what stands at `offset` until `into` is full or the file ends.
pub fn read_full(file: &impl OpenFile, mut offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match file.read_at(offset, &mut into[filled..]) {
            Ok(0) => break,
            Ok(read) => {
                filled += read;
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The bytes from `offset` on, up to `bytes`.
pub fn read_some(file: &impl OpenFile, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut some = vec![0; bytes];
    let read = read_full(file, offset, &mut some)?;
    some.truncate(read);
    Ok(some)
}
