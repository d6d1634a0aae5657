//! `positions.json`: any bytes are positions or an error, never a silent empty state; what was read is written and
//! read again.

use onceline::ack::positions::{self, Saved, Store, VERSION};
use serde_json::Value;

pub fn check(bytes: &[u8]) {
    let (mut saved, looked) = match positions::parse(bytes) {
        Ok(saved) => saved,
        Err(why) => return assert!(!why.is_empty()),
    };
    let text: Value = serde_json::from_slice(bytes).expect("only JSON is taken");
    assert_eq!(text["version"], VERSION);
    assert_eq!(text["files"].as_array().map(Vec::len), Some(saved.len()), "a file is passed over");
    let whole = bytes.trim_ascii_end();
    for cut in [1, 2, whole.len() / 2, whole.len()] {
        assert!(positions::parse(&whole[..whole.len() - cut]).is_err(), "half of it is taken");
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(Store::path(folder.path()), bytes).expect("a file");
    let mut store = Store::load(folder.path()).expect("what can be read can be loaded");
    saved.sort_by_key(key);
    assert!(store.saved().eq(&saved));
    store.write().expect("a file that can be written");
    let (mut again, looked_again) =
        positions::parse(&std::fs::read(Store::path(folder.path())).expect("a file")).expect("positions");
    again.sort_by_key(key);
    assert_eq!((again, looked_again), (saved, looked), "written and read again");
}

fn key(saved: &Saved) -> u64 {
    saved.position.number
}
