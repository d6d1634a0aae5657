//! Saved positions: how far each file was read and settled, in `positions.json` of the state folder.
//!
//! ```json
//! {"version":2,"looked":["/var/log/*.log"],"files":[
//!   {"number":1,"path":"/var/log/a.log","device":64768,"inode":1234,"born":[1772359000,0],
//!    "head":{"bytes":1024,"hash":"…"},"offset":5120,"tail":{"bytes":64,"hash":"…"},"moved":1772359200}]}
//! ```
//!
//! Each position has a number, since of all else nothing is unique: an inode is used again while the file that had it
//! lives on in a compressed one.
//!
//! The file is replaced as a whole, so that it is always one that was complete. What cannot be understood is an
//! error, never taken for an empty one. What moves between two saves is noted beside it: [`recent`].

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use base64::Engine;
use serde_json::{Map, Value, json};

use super::Moves;
use super::recent::{self, Recent};
use crate::disk::{Disk, File, PRIVATE, Real};
use crate::input::identity::{HEAD, Identity, Mark, Position, Print, TAIL};
use crate::time::Time;

/// The version of what is written; any other is refused.
pub const VERSION: u64 = 2;

/// A position whose file is gone is forgotten when it did not move for so long.
pub const GONE_SECS_MAX: i64 = 60 * 86_400;

/// How to go on where saved positions cannot be used.
pub const WAY_ON: &str = "mend or move it away, or forget all positions with `onceline positions reset PIPELINE.toml`: \
                          then everything is read again, and what is stored already is found by its id";

/// Takes what is to be saved, and puts it on the disk.
pub trait Save: Send {
    /// Keeps `moves` with all that it was given before, even where it could not write.
    fn save(&mut self, moves: Moves) -> anyhow::Result<()>;

    /// Keeps `moves` for the next save, and writes it where a kill leaves it. That costs little and promises nothing.
    fn note(&mut self, moves: Moves);
}

/// What earlier runs saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    pub positions: Vec<Position>,
    /// Patterns by which files were looked for.
    pub looked: BTreeSet<String>,
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
    /// The folder was made, or found, and lasts.
    has_folder: bool,
    /// By number.
    files: BTreeMap<u64, Saved>,
    looked: BTreeSet<String>,
    recent: Recent<D>,
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
        Store {
            disk,
            state: state.to_path_buf(),
            has_folder: false,
            files: BTreeMap::new(),
            looked: BTreeSet::new(),
            recent: Recent::default(),
        }
    }

    pub fn load_from(disk: D, state: &Path) -> anyhow::Result<Store<D>> {
        let path = Store::path(state);
        let text = match disk.read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Store::empty_on(disk, state)),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}; {WAY_ON}", path.display())),
        };
        let (saved, looked) = parse(&text)
            .map_err(|why| anyhow::anyhow!("the positions in {} cannot be used: {why}; {WAY_ON}", path.display()))?;
        let (noted, looked_since) = match disk.read(&recent::path(state)) {
            Ok(noted) => recent::read(&noted, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Default::default(),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", recent::path(state).display()));
            }
        };
        let mut store = Store::empty_on(disk, state);
        saved.into_iter().chain(noted).for_each(|saved| store.put(saved));
        store.looked = looked.into_iter().chain(looked_since).collect();
        Ok(store)
    }

    fn put(&mut self, saved: Saved) {
        self.files.insert(saved.position.number, saved);
    }

    pub fn saved(&self) -> impl Iterator<Item = &Saved> {
        self.files.values()
    }

    pub fn positions(&self) -> Vec<Position> {
        self.saved().map(|saved| saved.position.clone()).collect()
    }

    pub fn before(&self) -> Before {
        Before { positions: self.positions(), looked: self.looked.clone() }
    }

    /// Keeps in mind that files were looked for by these patterns.
    pub fn note_look(&mut self, patterns: impl IntoIterator<Item = String>) {
        self.looked.extend(patterns);
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
    pub fn write(&mut self) -> anyhow::Result<()> {
        let path = Store::path(&self.state);
        let whole = || format!("cannot write {}", path.display());
        if !self.has_folder {
            self.disk.make_folder(&self.state, PRIVATE).with_context(whole)?;
            self.has_folder = true;
        }
        let text = text(&self.looked, &mut self.saved());
        let draft = self.state.join("positions.json.new");
        let written = self
            .disk
            .create(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync()))
            .and_then(|()| self.disk.rename(&draft, &path));
        if written.is_err() {
            // somebody may have removed it
            self.has_folder = false;
            // a draft that is not whole takes room that the disk may not have
            let _ = self.disk.remove(&draft);
        }
        written.with_context(whole)?;
        // the new name is on the disk only when the folder is
        self.disk.sync_folder(&self.state).with_context(whole)?;
        self.recent.begin(&self.disk, &self.state, &text);
        Ok(())
    }
}

impl<D: Disk + Send> Save for Store<D> {
    fn save(&mut self, moves: Moves) -> anyhow::Result<()> {
        let moved_secs = Time::now().secs;
        self.keep(moves, moved_secs);
        self.write()
    }

    fn note(&mut self, moves: Moves) {
        let moved_secs = Time::now().secs;
        let moved: Vec<Saved> =
            moves.positions.iter().map(|position| Saved { position: position.clone(), moved_secs }).collect();
        let looked = moves.looked.iter().cloned().collect();
        self.recent.note(&self.disk, &self.state, &moved, &looked);
        self.keep(moves, moved_secs);
    }
}

impl<D: Disk> Store<D> {
    fn keep(&mut self, moves: Moves, moved_secs: i64) {
        moves.forgotten.iter().for_each(|number| drop(self.files.remove(number)));
        moves.positions.into_iter().for_each(|position| self.put(Saved { position, moved_secs }));
        self.looked.extend(moves.looked);
    }
}

/// Forgets all positions, whatever is in their file. That files were looked for stays known, by `patterns` at least:
/// all of them are read from the beginning.
pub fn forget_all(state: &Path, patterns: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    let mut store = Store::load(state).unwrap_or_else(|_| Store::empty(state));
    store.files.clear();
    store.note_look(patterns);
    store.write()
}

pub fn text(looked: &BTreeSet<String>, saved: &mut dyn Iterator<Item = &Saved>) -> String {
    let mut text = format!("{{\"version\":{VERSION},\"looked\":{},\"files\":[", json!(looked));
    for (number, saved) in saved.enumerate() {
        text.push_str(if number == 0 { "\n" } else { ",\n" });
        text.push_str(&file_json(saved).to_string());
    }
    text.push_str("\n]}\n");
    text
}

fn file_json(saved: &Saved) -> Value {
    let Position { number, path, identity, mark } = &saved.position;
    let print = |print: &Print| json!({"bytes": print.bytes, "hash": hex::encode(print.hash)});
    let mut file = json!({
        "number": number, "path": path.to_string_lossy(), "device": identity.device, "inode": identity.inode,
        "head": print(&identity.head), "offset": mark.offset, "tail": print(&mark.tail),
        "moved": saved.moved_secs,
    });
    if let Some(born) = identity.born {
        file["born"] = json!([born.0, born.1]);
    }
    if path.to_str().is_none() {
        // for people it is the nearest text, for us the bytes
        file["path_base64"] = base64::engine::general_purpose::STANDARD.encode(path.as_os_str().as_bytes()).into();
    }
    file
}

/// Reads the text of a file of positions. Whatever the bytes are, this answers, with words for what is wrong.
pub fn parse(text: &[u8]) -> Result<(Vec<Saved>, BTreeSet<String>), String> {
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
        if !known.insert(saved.position.number) {
            return Err(format!("file number {number}: its number is there twice"));
        }
        Ok(saved)
    };
    let looked = root.get("looked").and_then(Value::as_array).ok_or("it has no `looked`")?;
    let looked = looked.iter().map(|pattern| pattern.as_str().map(str::to_string));
    let looked = looked.collect::<Option<_>>().ok_or("a pattern in `looked` is no text")?;
    Ok((files.iter().enumerate().map(read).collect::<Result<_, _>>()?, looked))
}

/// Whether an offset or a number can be: no file is so long, and there is a next number.
pub fn is_possible(number: &u64) -> bool {
    i64::try_from(*number).is_ok()
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
    let mark = Mark { offset: number("offset").ok().filter(is_possible).ok_or_else(|| wrong("offset"))?, tail };
    if u64::from(mark.tail.bytes) != mark.offset.min(TAIL as u64) {
        return Err("`tail` does not fit `offset`".to_string());
    }
    let born = match file.get("born") {
        None => None,
        Some(born) => Some((born[0].as_i64().zip(born[1].as_i64())).ok_or_else(|| wrong("born"))?),
    };
    let identity = Identity { device: number("device")?, inode: number("inode")?, born, head };
    let place =
        number("number").ok().filter(|number| *number > 0 && is_possible(number)).ok_or_else(|| wrong("number"))?;
    let moved_secs = file.get("moved").and_then(Value::as_i64).ok_or_else(|| wrong("moved"))?;
    Ok(Saved { position: Position { number: place, path, identity, mark }, moved_secs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn position(path: &str, inode: u64, text: &[u8]) -> Position {
        let born = inode.is_multiple_of(2).then_some((-1, 5));
        let identity = Identity { device: u64::MAX, inode, born, head: Print::head(text) };
        let mark = Mark { offset: text.len() as u64, tail: Print::tail(text) };
        Position { number: inode, path: path.into(), identity, mark }
    }

    fn moved(position: Position) -> Moves {
        Moves { positions: vec![position], ..Moves::default() }
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
        store.save(Moves { positions: all.to_vec(), looked: vec!["/*".into()], ..Moves::default() }).unwrap();
        assert_eq!(Store::load(&state).unwrap().positions(), all);
        // a file goes on under the name it has now
        store.save(moved(position("/c", 2, &[b'x'; 6000]))).unwrap();
        let loaded = Store::load(&state).unwrap();
        assert_eq!(loaded.positions(), [all[0].clone(), position("/c", 2, &[b'x'; 6000]), strange()]);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&state), mode(&Store::path(&state))), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 1, "no draft is left");
        // two of one inode, and one that is kept no longer
        let mut twin = position("/c.gz", 2, b"other\n");
        twin.number = 9;
        store.save(Moves { positions: vec![twin.clone()], forgotten: vec![1, 3], ..Moves::default() }).unwrap();
        assert_eq!(Store::load(&state).unwrap().positions(), [position("/c", 2, &[b'x'; 6000]), twin]);
        // a store that is empty replaces all
        Store::empty(&state).save(moved(all[0].clone())).unwrap();
        assert_eq!(Store::load(&state).unwrap().before().positions, all[..1]);
        for patterns in [["/a*"], ["/b*"]] {
            forget_all(&state, patterns.map(String::from)).unwrap();
        }
        let looked = ["/a*", "/b*"].map(String::from).into();
        assert_eq!(Store::load(&state).unwrap().before(), Before { positions: Vec::new(), looked });
        std::fs::write(Store::path(&state), "no JSON").unwrap();
        forget_all(&state, ["/c*".to_string()]).unwrap();
        let looked = ["/c*".to_string()].into();
        assert_eq!(Store::load(&state).unwrap().before(), Before { positions: Vec::new(), looked });
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let saved = Saved { position: position("/a", 2, b"one\n"), moved_secs: 5 };
        let good = text(&["/*".to_string()].into(), &mut [saved].iter());
        for (wrong, said) in [
            (String::new(), "not JSON"),
            (good[..good.len() / 2].to_string(), "not JSON"),
            ("{}".to_string(), "says no version"),
            (good.replace("\"version\":2", "\"version\":1"), "is of version 1, this program knows 2"),
            ("{\"version\":2}".to_string(), "no `files`"),
            (good.replace("looked", "lucked"), "no `looked`"),
            (good.replace("\"/*\"", "1"), "`looked` is no text"),
            ("{\"version\":2,\"looked\":[],\"files\":[7]}".to_string(), "file number 0: not an object"),
            (good.replace("\"path\"", "\"pth\""), "`path` is missing or wrong"),
            (good.replace("\"offset\":4", "\"offset\":-4"), "`offset` is missing or wrong"),
            (good.replace("\"offset\":4", "\"offset\":9223372036854775808"), "`offset` is missing or wrong"),
            (good.replace("\"offset\":4", "\"offset\":3"), "`tail` does not fit"),
            (good.replace("\"bytes\":4", "\"bytes\":70000"), "`head` is missing or wrong"),
            (good.replace("\"inode\":2,", ""), "`inode` is missing or wrong"),
            (good.replace("\"number\":2,", "\"number\":0,"), "`number` is missing or wrong"),
            (good.replace("\"number\":2,", "\"number\":18446744073709551615,"), "`number` is missing or wrong"),
            (good.replace("\"born\":[-1,5],", "\"born\":[-1],"), "`born` is missing or wrong"),
            (good.replace("\n]}", ",") + good.split_once("\"files\":[").unwrap().1, "number is there twice"),
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
        store.save(moved(position("/a", 1, b"one\n"))).unwrap();
        // a folder in the draft's place stands for a disk that takes nothing
        std::fs::create_dir(state.join("positions.json.new")).unwrap();
        store.save(moved(position("/b", 2, b"two\n"))).unwrap_err();
        assert_eq!(Store::load(&state).unwrap().positions(), [position("/a", 1, b"one\n")], "the old one is whole");
        std::fs::remove_dir(state.join("positions.json.new")).unwrap();
        store.save(Moves::default()).unwrap();
        assert_eq!(Store::load(&state).unwrap().positions().len(), 2);
    }

    #[test]
    fn files_that_are_gone_for_long_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("here");
        std::fs::write(&path, b"").unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        let mut here = position("", meta.ino(), b"");
        (here.path, here.identity.device, here.number) = (path, meta.dev(), 3);
        let mut store = Store::empty(dir.path());
        for (position, moved_secs) in [(here.clone(), 0), (position("/gone", 1, b""), 0), (position("/new", 2, b""), 9)]
        {
            store.put(Saved { position, moved_secs });
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
