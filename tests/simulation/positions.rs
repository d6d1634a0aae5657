//! Saved positions of the line sources: a stand-in until the pipeline's own are there.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use onceline::disk::{Disk as _, File as _};

use crate::disk::{Disk, Inode};

pub const PATH: &str = "/state/positions.json";

pub fn load(disk: &Disk) -> io::Result<BTreeMap<Inode, u64>> {
    match disk.read(Path::new(PATH)) {
        Ok(text) => parse(&text).ok_or_else(|| io::Error::other("the saved positions are corrupt")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error),
    }
}

fn parse(text: &[u8]) -> Option<BTreeMap<Inode, u64>> {
    serde_json::from_slice(text).ok()
}

pub fn save(disk: &Disk, positions: &BTreeMap<Inode, u64>) -> io::Result<()> {
    let path = PathBuf::from(PATH);
    let temporary = path.with_extension("new");
    let text = serde_json::to_vec(positions).unwrap_or_default();
    let mut file = disk.create(&temporary)?;
    file.write_all(&text)?;
    file.sync()?;
    disk.rename(&temporary, &path)?;
    disk.sync_folder(path.parent().unwrap_or(Path::new("/")))
}
