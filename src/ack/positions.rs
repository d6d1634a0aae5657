//! Saved positions: how far each file was read and settled, in `positions.json` of the state folder.
//!
//! ```json
//! {"version":1,"files":[{"path":"/var/log/a.log","device":64768,"inode":1234,
//!   "head":{"bytes":1024,"hash":"…"},"offset":5120,"tail":{"bytes":64,"hash":"…"},"moved":1772359200}]}
//! ```
//!
//! The file is replaced as a whole, so that it is always one that was complete. What cannot be understood is an
//! error, never taken for an empty one.

use std::collections::BTreeMap;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use serde_json::{Map, Value, json};

use crate::disk::{Disk, File, PRIVATE, Real};
use crate::input::identity::{HEAD, Identity, Mark, Position, Print, TAIL};
use crate::time::Time;

/// The version of what is written; any other is refused.
pub const VERSION: u64 = 1;

/// A position whose file is gone is forgotten when it did not move for so long.
pub const GONE_SECS_MAX: i64 = 60 * 86_400;

/// How to go on where saved positions cannot be used.
pub const WAY_ON: &str = "mend or move it away, or forget all positions with `onceline positions reset PIPELINE.toml`: \
                          then everything is read again, and what is stored already is found by its id";

/// Takes positions that moved, and puts them on the disk.
pub trait Save: Send {
    /// Keeps `moved` with all that it was given before, even where it could not write.
    fn save(&mut self, moved: Vec<Position>) -> anyhow::Result<()>;
}

/// A position as it is saved: with the time when it last moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    pub position: Position,
    /// In seconds since 1970.
    pub moved_secs: i64,
}

impl Saved {
    /// Whether the file is gone, and for long.
    pub fn is_forgotten(&self, now_secs: i64) -> bool {
        now_secs.saturating_sub(self.moved_secs) > GONE_SECS_MAX && !self.position.is_at_its_path()
    }
}

impl Position {
    /// Whether the path still leads to the file that was read.
    pub fn is_at_its_path(&self) -> bool {
        let identity = &self.identity;
        std::fs::metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (identity.device, identity.inode))
    }
}

/// `positions.json`, as it is in memory.
#[derive(Debug)]
pub struct Store<D: Disk = Real> {
    disk: D,
    state: PathBuf,
    /// By device and inode.
    files: BTreeMap<(u64, u64), Saved>,
}

impl Store {
    /// A store without positions, which replaces what was saved at the first save.
    pub fn empty(state: &Path) -> Store {
        Store::empty_on(Real, state)
    }

    /// What was saved in a state folder; nothing if nothing was.
    pub fn load(state: &Path) -> anyhow::Result<Store> {
        Store::load_from(Real, state)
    }

    pub fn path(state: &Path) -> PathBuf {
        state.join("positions.json")
    }
}

impl<D: Disk> Store<D> {
    pub fn empty_on(disk: D, state: &Path) -> Store<D> {
        Store { disk, state: state.to_path_buf(), files: BTreeMap::new() }
    }

    pub fn load_from(disk: D, state: &Path) -> anyhow::Result<Store<D>> {
        let path = Store::path(state);
        let text = match disk.read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Store::empty_on(disk, state)),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}; {WAY_ON}", path.display())),
        };
        let saved = parse(&text)
            .map_err(|why| anyhow::anyhow!("the positions in {} cannot be used: {why}; {WAY_ON}", path.display()))?;
        let by_inode = |saved: Saved| ((saved.position.identity.device, saved.position.identity.inode), saved);
        Ok(Store { disk, state: state.to_path_buf(), files: saved.into_iter().map(by_inode).collect() })
    }

    pub fn saved(&self) -> impl Iterator<Item = &Saved> {
        self.files.values()
    }

    pub fn positions(&self) -> Vec<Position> {
        self.saved().map(|saved| saved.position.clone()).collect()
    }

    /// Forgets the positions of files that are gone for long.
    pub fn forget_gone(&mut self, now_secs: i64) {
        self.files.retain(|_, saved| !saved.is_forgotten(now_secs));
    }

    /// Keeps the positions that `keep` says.
    pub fn retain(&mut self, keep: impl Fn(&Position) -> bool) {
        self.files.retain(|_, saved| keep(&saved.position));
    }

    /// Replaces the file on the disk.
    pub fn write(&self) -> anyhow::Result<()> {
        let path = Store::path(&self.state);
        let whole = || format!("cannot write {}", path.display());
        self.disk.make_folder(&self.state, PRIVATE).with_context(whole)?;
        let text = text(&mut self.saved());
        let draft = self.state.join("positions.json.new");
        let written = self
            .disk
            .create(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync()))
            .and_then(|()| self.disk.rename(&draft, &path));
        if written.is_err() {
            // a draft that is not whole takes room that the disk may not have
            let _ = self.disk.remove(&draft);
        }
        written.with_context(whole)?;
        // the new name is on the disk only when the folder is
        self.disk.sync_folder(&self.state).with_context(whole)
    }
}

impl<D: Disk + Send> Save for Store<D> {
    fn save(&mut self, moved: Vec<Position>) -> anyhow::Result<()> {
        let moved_secs = Time::now().secs;
        for position in moved {
            let key = (position.identity.device, position.identity.inode);
            self.files.insert(key, Saved { position, moved_secs });
        }
        self.write()
    }
}

/// Removes the file of positions, whatever is in it.
pub fn remove(state: &Path) -> anyhow::Result<()> {
    let path = Store::path(state);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn text(saved: &mut dyn Iterator<Item = &Saved>) -> String {
    let mut text = format!("{{\"version\":{VERSION},\"files\":[");
    for (number, saved) in saved.enumerate() {
        text.push_str(if number == 0 { "\n" } else { ",\n" });
        text.push_str(&file_json(saved).to_string());
    }
    text.push_str("\n]}\n");
    text
}

fn file_json(saved: &Saved) -> Value {
    let Position { path, identity, mark } = &saved.position;
    let print = |print: &Print| json!({"bytes": print.bytes, "hash": hex::encode(print.hash)});
    let mut file = json!({
        "path": path.to_string_lossy(), "device": identity.device, "inode": identity.inode,
        "head": print(&identity.head), "offset": mark.offset, "tail": print(&mark.tail),
        "moved": saved.moved_secs,
    });
    if path.to_str().is_none() {
        // for people it is the nearest text, for us the bytes
        file["path_base64"] = base64::engine::general_purpose::STANDARD.encode(path.as_os_str().as_bytes()).into();
    }
    file
}

/// Reads the text of a file of positions. Whatever the bytes are, this answers, with words for what is wrong.
pub fn parse(text: &[u8]) -> Result<Vec<Saved>, String> {
    let root: Value = serde_json::from_slice(text).map_err(|error| format!("it is not JSON ({error})"))?;
    match root.get("version").map(Value::as_u64) {
        Some(Some(VERSION)) => {}
        Some(_) => return Err(format!("it is of version {}, this program knows {VERSION}", root["version"])),
        None => return Err("it says no version".to_string()),
    }
    let files = root.get("files").and_then(Value::as_array).ok_or("it has no `files`")?;
    let mut known = std::collections::HashSet::new();
    let read = |(number, file): (usize, &Value)| {
        let saved = file.as_object().ok_or_else(|| "not an object".to_string()).and_then(file_of);
        let saved = saved.map_err(|why| format!("file number {number}: {why}"))?;
        let identity = &saved.position.identity;
        if !known.insert((identity.device, identity.inode)) {
            return Err(format!("file number {number}: its inode is there twice"));
        }
        Ok(saved)
    };
    files.iter().enumerate().map(read).collect()
}

fn file_of(file: &Map<String, Value>) -> Result<Saved, String> {
    let wrong = |key: &str| format!("`{key}` is missing or wrong");
    let number = |key: &str| file.get(key).and_then(Value::as_u64).ok_or_else(|| wrong(key));
    let path = match (file.get("path_base64"), file.get("path")) {
        (None, Some(Value::String(path))) => PathBuf::from(path),
        (Some(Value::String(bytes)), _) => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(bytes).map_err(|_| wrong("path_base64"))?;
            PathBuf::from(std::ffi::OsString::from_vec(bytes))
        }
        _ => return Err(wrong("path")),
    };
    let print = |key: &str, bytes_max: usize| {
        let bytes = file.get(key).and_then(|print| print.get("bytes")).and_then(Value::as_u64);
        let bytes = bytes.filter(|bytes| *bytes <= bytes_max as u64).ok_or_else(|| wrong(key))?;
        let mut hash = [0; 16];
        let text = file.get(key).and_then(|print| print.get("hash")).and_then(Value::as_str);
        hex::decode_to_slice(text.unwrap_or_default(), &mut hash).map_err(|_| wrong(key))?;
        Ok::<Print, String>(Print { bytes: bytes as u16, hash })
    };
    let (head, tail) = (print("head", HEAD)?, print("tail", TAIL)?);
    let mark = Mark { offset: number("offset")?, tail };
    if u64::from(mark.tail.bytes) != mark.offset.min(TAIL as u64) {
        return Err("`tail` does not fit `offset`".to_string());
    }
    let identity = Identity { device: number("device")?, inode: number("inode")?, head };
    let moved_secs = file.get("moved").and_then(Value::as_i64).ok_or_else(|| wrong("moved"))?;
    Ok(Saved { position: Position { path, identity, mark }, moved_secs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position(path: &str, inode: u64, text: &[u8]) -> Position {
        let identity = Identity { device: u64::MAX, inode, head: Print::head(text) };
        let mark = Mark { offset: text.len() as u64, tail: Print::tail(text) };
        Position { path: path.into(), identity, mark }
    }

    fn strange() -> Position {
        Position { path: PathBuf::from(std::ffi::OsString::from_vec(b"/caf\xe9\n\"".to_vec())), ..position("", 3, b"") }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let mut store = Store::load(&state).unwrap();
        assert_eq!(store.positions(), []);
        let all = [position("/a", 1, b"one\n"), position("/b \u{e9}", 2, &[b'x'; 5000]), strange()];
        store.save(all.to_vec()).unwrap();
        assert_eq!(Store::load(&state).unwrap().positions(), all);
        // a file goes on under the name it has now
        store.save(vec![position("/c", 2, &[b'x'; 6000])]).unwrap();
        let loaded = Store::load(&state).unwrap();
        assert_eq!(loaded.positions(), [all[0].clone(), position("/c", 2, &[b'x'; 6000]), strange()]);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&state), mode(&Store::path(&state))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "no draft is left");
        // a store that is empty replaces all
        Store::empty(&state).save(vec![all[0].clone()]).unwrap();
        assert_eq!(Store::load(&state).unwrap().positions(), all[..1]);
        remove(&state).unwrap();
        remove(&state).unwrap();
        assert_eq!(Store::load(&state).unwrap().positions(), []);
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let good = text(&mut [Saved { position: position("/a", 1, b"one\n"), moved_secs: 5 }].iter());
        for (wrong, said) in [
            (String::new(), "not JSON"),
            (good[..good.len() / 2].to_string(), "not JSON"),
            ("{}".to_string(), "says no version"),
            (good.replace("\"version\":1", "\"version\":2"), "is of version 2, this program knows 1"),
            ("{\"version\":1}".to_string(), "no `files`"),
            ("{\"version\":1,\"files\":[7]}".to_string(), "file number 0: not an object"),
            (good.replace("\"path\"", "\"pth\""), "`path` is missing or wrong"),
            (good.replace("\"offset\":4", "\"offset\":-4"), "`offset` is missing or wrong"),
            (good.replace("\"offset\":4", "\"offset\":3"), "`tail` does not fit"),
            (good.replace("\"bytes\":4", "\"bytes\":70000"), "`head` is missing or wrong"),
            (good.replace("\"inode\":1,", ""), "`inode` is missing or wrong"),
            (good.replace("\n]}", ",") + good.split_once('[').unwrap().1, "inode is there twice"),
        ] {
            std::fs::write(Store::path(dir.path()), &wrong).unwrap();
            let error = Store::load(dir.path()).expect_err(&wrong).to_string();
            assert!(error.contains(said), "{wrong}: {error}");
            assert!(error.contains("positions.json") && error.contains("onceline positions reset"), "{error}");
        }
        std::fs::remove_file(Store::path(dir.path())).unwrap();
        std::fs::create_dir(Store::path(dir.path())).unwrap();
        assert!(Store::load(dir.path()).unwrap_err().to_string().contains("cannot read"), "not taken for none");
    }

    #[test]
    fn a_save_that_fails_is_made_good_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let mut store = Store::empty(&state);
        store.save(vec![position("/a", 1, b"one\n")]).unwrap();
        // a folder in the draft's place stands for a disk that takes nothing
        std::fs::create_dir(state.join("positions.json.new")).unwrap();
        store.save(vec![position("/b", 2, b"two\n")]).unwrap_err();
        assert_eq!(Store::load(&state).unwrap().positions(), [position("/a", 1, b"one\n")], "the old one is whole");
        std::fs::remove_dir(state.join("positions.json.new")).unwrap();
        store.save(Vec::new()).unwrap();
        assert_eq!(Store::load(&state).unwrap().positions().len(), 2);
    }

    #[test]
    fn files_that_are_gone_for_long_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("here");
        std::fs::write(&path, b"").unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        let mut here = position("", meta.ino(), b"");
        (here.path, here.identity.device) = (path, meta.dev());
        let mut store = Store::empty(dir.path());
        for (position, moved_secs) in [(here.clone(), 0), (position("/gone", 1, b""), 0), (position("/new", 2, b""), 9)]
        {
            store.files.insert((position.identity.device, position.identity.inode), Saved { position, moved_secs });
        }
        store.forget_gone(GONE_SECS_MAX + 5);
        let paths: Vec<PathBuf> = store.positions().into_iter().map(|position| position.path).collect();
        assert!(paths.contains(&here.path) && paths.contains(&PathBuf::from("/new")) && paths.len() == 2, "{paths:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
