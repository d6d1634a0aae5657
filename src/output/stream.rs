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
use std::path::PathBuf;

use anyhow::Context;

use super::{Form, Output, Parcels, Phase, Phases};
use crate::ack::{Acks, Tally};

pub struct Stream {
    form: Form,
    name: String,
    to: Target,
}

enum Target {
    Stdout(io::Stdout),
    File(File),
}

impl Stream {
    pub fn stdout(form: Form) -> Stream {
        Stream { form, name: "standard output".to_string(), to: Target::Stdout(io::stdout()) }
    }

    /// Appends to the file at `path`, made if absent.
    pub fn file(form: Form, path: PathBuf) -> anyhow::Result<Stream> {
        let name = path.display().to_string();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        let file =
            File::options().create(true).append(true).open(&path).with_context(|| format!("cannot open {name}"))?;
        Ok(Stream { form, name, to: Target::File(file) })
    }

    fn write(&mut self, body: &[u8]) -> io::Result<()> {
        match &mut self.to {
            Target::Stdout(out) => out.write_all(body).and_then(|()| out.flush()),
            Target::File(file) => {
                file.write_all(body)?;
                match file.sync_data() {
                    // a pipe or a device keeps nothing
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                    other => other,
                }
            }
        }
    }
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
            self.write(&parcel.body).with_context(|| format!("cannot write to {}", self.name))?;
            let created = parcel.items.len() as u64;
            let bytes_out = parcel.body.len() as u64;
            acks.settle(&parcel.receipt, Tally { created, requests: 1, bytes_out, ..Tally::default() }, Vec::new());
        }
        Ok(())
    }
}
