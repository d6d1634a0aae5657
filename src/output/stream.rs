//! `type = "ndjson"` and `type = "stdout"`: bytes in order, to a file or to standard output.
//!
//! ```toml
//! [output]
//! type = "ndjson"
//! path = "out.ndjson"   # left out: standard output
//! action = "create"
//! ```
//!
//! `ndjson` writes action and source lines, ready for any `_bulk` endpoint; `stdout` the source alone, a line an
//! event. Every event counts as created, since nobody is asked.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::{Form, Output, Parcels, Phase, Phases};
use crate::ack::{Acks, Tally};
use crate::disk::{Disk, Real, line_begin, private_file, private_folder};

/// How long to wait before a disk that is full is tried again.
const RETRY_WAIT: Duration = Duration::from_millis(500);

pub struct Stream {
    form: Form,
    name: String,
    to: Target,
}

enum Target {
    Stdout(io::Stdout),
    File(File, PathBuf),
}

impl Stream {
    pub fn stdout(form: Form) -> Stream {
        Stream { form, name: "standard output".to_string(), to: Target::Stdout(io::stdout()) }
    }

    /// Appends to the file at `path`, made if absent.
    pub fn file(form: Form, path: PathBuf) -> anyhow::Result<Stream> {
        let name = path.display().to_string();
        let file = open(&path)?;
        cut_torn(&file, form).with_context(|| format!("cannot look at the end of {name}"))?;
        Ok(Stream { form, name, to: Target::File(file, path) })
    }

    /// Writes all of it, or nothing where that can be undone. A disk that is full is waited for, said once; false
    /// if it was given up.
    fn deliver(&mut self, body: &[u8], phases: &Phases) -> io::Result<bool> {
        let mut is_troubled = false;
        let mut written = 0;
        loop {
            match self.to.write(body, &mut written) {
                Ok(()) => {
                    if is_troubled {
                        tracing::warn!(to = %self.name, "there is room again");
                    }
                    return Ok(true);
                }
                Err(error) if is_full(&error) => {
                    if !std::mem::replace(&mut is_troubled, true) {
                        tracing::error!(to = %self.name, %error, "there is no room: waiting for it, nothing more is taken in");
                    }
                    if *phases.borrow() == Phase::Abandon {
                        return Ok(false);
                    }
                    std::thread::sleep(RETRY_WAIT);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A file to append to, and the folder it is in.
fn open(path: &Path) -> anyhow::Result<File> {
    if let Some(folder) = path.parent() {
        private_folder(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let opened = private_file(File::options().read(true).append(true), path);
    opened.with_context(|| format!("cannot open {}", path.display()))
}

/// What room on a disk mends.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

impl Target {
    /// Goes on behind what was `written` before.
    fn write(&mut self, body: &[u8], written: &mut usize) -> io::Result<()> {
        match self {
            Target::Stdout(out) => {
                // standard output buffers lines, and would forget how much of them it could write
                let mut out = out.lock();
                write_on(&mut rustix::fd::AsFd::as_fd(&out), body, written)?;
                out.flush()
            }
            Target::File(file, path) => {
                let mut meta = file.metadata()?;
                if !meta.is_file() {
                    return write_on(&mut rustix::fd::AsFd::as_fd(file), body, written);
                }
                loop {
                    if !Real.is_at(file, path)? {
                        *file = reopen(path)?;
                        meta = file.metadata()?;
                    }
                    let done = file.write_all(body).and_then(|()| file.sync_data());
                    if done.is_err() {
                        // no half of it may stay before it is written again
                        file.set_len(meta.len())?;
                    }
                    done?;
                    // removed meanwhile, it took with it what was written; renamed, it has that
                    if file.metadata()?.nlink() > 0 {
                        return Ok(());
                    }
                }
            }
        }
    }
}

/// Somebody moved or removed the file: what comes now is written where it was.
fn reopen(path: &Path) -> io::Result<File> {
    tracing::warn!(path = %path.display(), "the file was moved away or removed: going on in a new one");
    open(path).map_err(|error| match error.downcast_ref::<io::Error>() {
        Some(why) => io::Error::new(why.kind(), format!("{error:#}")),
        None => io::Error::other(error),
    })
}

fn write_on(to: &mut std::os::fd::BorrowedFd<'_>, body: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < body.len() {
        match rustix::io::write(*to, &body[*written..]) {
            Ok(count) => *written += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A run that was killed may have left half a line, or an action without its source: what stands there was never
/// counted as written, and nothing could be read behind it.
fn cut_torn(file: &File, form: Form) -> io::Result<()> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Ok(());
    }
    let mut whole = line_begin(file, meta.len())?;
    if matches!(form, Form::Bulk(_)) && whole > 0 {
        let last = line_begin(file, whole - 1)?;
        let mut begin = [0; 20];
        let known = file.read_at(&mut begin, last)?;
        let is_action = |action: &[u8]| begin[..known].starts_with(action);
        if is_action(b"{\"index\":{\"_index\":") || is_action(b"{\"create\":{\"_index\"") {
            whole = last;
        }
    }
    if whole < meta.len() { file.set_len(whole) } else { Ok(()) }
}

impl Output for Stream {
    fn form(&self) -> Form {
        self.form
    }

    fn run(mut self: Box<Self>, mut parcels: Parcels, acks: Acks, phases: Phases) -> anyhow::Result<()> {
        while let Some(parcel) = parcels.next_blocking() {
            if *phases.borrow() == Phase::Abandon {
                return Ok(());
            }
            if !self.deliver(&parcel.body, &phases).with_context(|| format!("cannot write to {}", self.name))? {
                return Ok(());
            }
            let created = parcel.items.len() as u64;
            let bytes_out = parcel.body.len() as u64;
            acks.settle(&parcel.receipt, Tally { created, requests: 1, bytes_out, ..Tally::default() }, Vec::new());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Action;

    #[test]
    fn what_is_moved_away_or_removed_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/out");
        let text = |path: &Path| std::fs::read_to_string(path).unwrap();
        let mut stream = Stream::file(Form::Lines, path.clone()).unwrap();
        let mut write = |body: &str| stream.to.write(body.as_bytes(), &mut 0).unwrap();
        write("1\n");
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        write("2\n");
        write("3\n");
        assert_eq!((text(&folder.path().join("old")), text(&path)), ("1\n".into(), "2\n3\n".into()));
        std::fs::remove_dir_all(folder.path().join("deep")).unwrap();
        write("4\n");
        // another file has its place
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "5\n").unwrap();
        write("6\n");
        assert_eq!(text(&path), "5\n6\n");
    }

    #[test]
    fn a_torn_end_is_cut() {
        let check = |text: &str, form: Form, want: &str| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("out");
            std::fs::write(&path, text).unwrap();
            Stream::file(form, path.clone()).unwrap();
            assert_eq!(std::fs::read_to_string(path).unwrap(), want, "{text}");
        };
        let bulk = Form::Bulk(Action::Index);
        let pair = "{\"index\":{\"_index\":\"a\"}}\n{\"n\":1}\n";
        check("", bulk, "");
        check(pair, bulk, pair);
        check(&format!("{pair}{{\"ind"), bulk, pair);
        check(&format!("{pair}{pair}")[..pair.len() + 26], bulk, pair);
        check(&format!("{pair}{pair}")[..pair.len() + 30], bulk, pair);
        check("{\"n\":1}\n{\"n\"", Form::Lines, "{\"n\":1}\n");
        check(&"x".repeat(10_000), Form::Lines, "");
    }
}
