//! `type = "stdin"`: reads standard input until it is closed. It cannot be read again, so what is not settled when
//! the run ends is kept for the next one.
//!
//! ```toml
//! [[input]]
//! type = "stdin"
//! codec = "json"
//! ```

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{FileType, SeekFrom};

use super::Intake;
use super::lines::{Bytes, Rest};
use crate::batch::Source;
use crate::time::Time;

const NAME: &str = "stdin";

/// What the rest of it is the rest of.
pub fn source(rest: &Rest) -> Arc<Source> {
    let day = Some(Time::now().day());
    Arc::new(Source { name: NAME.into(), head: rest.head().into(), day, ..Source::default() })
}

/// Whether there is something to read: the rest of a file, or what waits in a pipe. Nothing is read.
pub fn has_bytes() -> bool {
    let stdin = std::io::stdin();
    let Ok(stat) = rustix::fs::fstat(&stdin) else { return false };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let at = rustix::fs::seek(&stdin, SeekFrom::Current(0));
            at.is_ok_and(|at| i64::try_from(at).is_ok_and(|at| at < stat.st_size))
        }
        FileType::Fifo => rustix::io::ioctl_fionread(&stdin).is_ok_and(|waiting| waiting > 0),
        _ => false,
    }
}

/// `rest` is what was read of it and not handed over, by the pipeline that this one replaces.
pub fn run(intake: &Intake, rest: Rest) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    intake
        .read_once(&mut Bytes::Descriptor(stdin.as_fd()), NAME, rest)
        .map_err(|error| anyhow::Error::from(error).context("cannot read standard input"))
}
