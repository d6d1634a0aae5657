//! `type = "file"`: reads files by path and pattern to their ends, several at a time, each in its order.
//!
//! ```toml
//! [[input]]
//! type = "file"
//! paths = ["/var/log/app/*.log", "/var/log/app/*.log.gz"]
//! exclude = ["/var/log/app/debug*"]
//! codec = "json"
//! ```
//!
//! Files compressed by gzip or zstd are known by their first bytes, whatever their name. A file that several
//! patterns or links lead to is read once.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Context;

use super::Intake;
use super::lines::Bytes;

/// How many files are read at the same time: enough to hide the opening of small ones.
pub const READERS_MAX: usize = 4;

#[derive(Clone, Debug)]
pub struct Config {
    pub paths: Vec<String>,
    pub exclude: Vec<String>,
}

impl Config {
    /// The files there are, sorted by name, each once.
    pub fn files(&self) -> anyhow::Result<Vec<PathBuf>> {
        let exclude: Vec<glob::Pattern> =
            self.exclude.iter().map(|p| glob::Pattern::new(p)).collect::<Result<_, _>>()?;
        let (mut files, mut seen) = (Vec::new(), HashSet::new());
        for pattern in &self.paths {
            let is_literal = !pattern.contains(['*', '?', '[']);
            for path in glob::glob(pattern).with_context(|| format!("`{pattern}`"))? {
                let path = path.with_context(|| format!("cannot look for `{pattern}`"))?;
                if exclude.iter().any(|e| e.matches_path(&path)) {
                    continue;
                }
                let meta = match std::fs::metadata(&path) {
                    // a link that leads nowhere, or a file that went away meanwhile
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_literal => continue,
                    other => other.with_context(|| format!("cannot read {}", path.display()))?,
                };
                if is_literal && !meta.is_file() {
                    anyhow::bail!(
                        "{pattern} is a {}, not a file",
                        if meta.is_dir() { "folder" } else { "pipe or device" }
                    );
                }
                if meta.is_file() && seen.insert((meta.dev(), meta.ino())) {
                    files.push(path);
                }
            }
            if is_literal && !Path::new(pattern).try_exists().with_context(|| format!("cannot read {pattern}"))? {
                anyhow::bail!("there is no file {pattern}");
            }
        }
        if files.is_empty() {
            tracing::warn!(paths = ?self.paths, "no file matches");
        }
        Ok(files)
    }

    /// How many bytes there are to read; none if a file is compressed or cannot be looked at.
    pub fn bytes(&self) -> Option<u64> {
        self.files().ok()?.iter().try_fold(0, |sum, path| {
            let mut file = File::open(path).ok()?;
            let bytes = file.metadata().ok()?.len();
            matches!(compression(&mut file), Ok(Compression::None)).then_some(sum + bytes)
        })
    }

    /// Reads all files. One that cannot be read to its end does not keep the others from it; the first such error
    /// is given back at the end.
    pub fn run(&self, intake: &Intake) -> anyhow::Result<()> {
        let files = Mutex::new(self.files()?.into_iter());
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..READERS_MAX {
                scope.spawn(|| {
                    while let Some(path) = files.lock().ok().and_then(|mut files| files.next()) {
                        if let Err(error) = read(&path, intake) {
                            tracing::error!(path = %path.display(), error = format!("{error:#}"), "a file was not read to its end");
                            if let Ok(mut first) = failed.lock() {
                                first.get_or_insert(error);
                            }
                        }
                    }
                });
            }
        });
        failed.into_inner().ok().flatten().map_or(Ok(()), Err)
    }
}

fn read(path: &Path, intake: &Intake) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let failed = || format!("cannot read {name}");
    let mut file = File::open(path).with_context(failed)?;
    let mut bytes = match compression(&mut file).with_context(failed)? {
        Compression::None => return intake.read(&mut Bytes::Descriptor(file.as_fd()), &name).with_context(failed),
        Compression::Gzip => Bytes::Stream(Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(file)))),
        Compression::Zstd => Bytes::Stream(Box::new(zstd::stream::read::Decoder::new(file).with_context(failed)?)),
    };
    intake.read(&mut bytes, &name).with_context(failed)
}

enum Compression {
    None,
    Gzip,
    Zstd,
}

/// By the first bytes; the file is then at its beginning again.
fn compression(file: &mut File) -> std::io::Result<Compression> {
    let mut magic = [0u8; 4];
    let known = file.read(&mut magic)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(match &magic[..known] {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd] => Compression::Zstd,
        _ => Compression::None,
    })
}
