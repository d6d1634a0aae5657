//! `type = "stdin"`: reads standard input until it is closed.
//!
//! ```toml
//! [[input]]
//! type = "stdin"
//! codec = "json"
//! ```

use std::os::fd::AsFd;

use super::Intake;
use super::lines::Bytes;

pub fn run(intake: &Intake) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    intake
        .read(&mut Bytes::Descriptor(stdin.as_fd()), "stdin")
        .map_err(|error| anyhow::Error::from(error).context("cannot read standard input"))
}
