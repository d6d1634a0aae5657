//! The spool. Any bytes as its file: as many blocks as it says, or an error. Any blocks: they come back as they were,
//! not when half of the file is gone, and not when any bit of it is another. The first line says where they are cut,
//! and where a bit of the file is changed.

use std::path::Path;
use std::sync::Arc;

use onceline::ack::kept::Held;
use onceline::batch::Source;
use onceline::codec::{Block, TooLong};
use onceline::disk::Real;
use onceline::input::spool::{Reader, write};

use super::{first_line, numbers};

type Piece = (String, Vec<u8>, u64, Vec<u8>, Option<(u64, u64)>);

pub fn check(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("any.spool");
    std::fs::write(&path, bytes).expect("a file");
    if let Some(pieces) = read(&path) {
        let first: serde_json::Value = serde_json::from_slice(first_line(bytes).0).expect("JSON");
        assert_eq!(first["blocks"].as_u64(), Some(pieces.len() as u64), "a block is passed over");
    }
    check_blocks(bytes, folder.path());
}

/// None if there is an error, which says what to do.
fn read(path: &Path) -> Option<Vec<Piece>> {
    let blocks = Reader::open(Real, path, 3).and_then(|blocks| blocks.collect::<Result<Vec<_>, _>>());
    match blocks {
        Ok(given) => Some(given.iter().map(|given| piece(&given.source, &given.block)).collect()),
        Err(error) => {
            assert!(format!("{error:#}").contains("move it away"), "{error:#}");
            None
        }
    }
}

fn piece(source: &Source, block: &Block) -> Piece {
    let long = block.too_long.map(|line| (line.bytes, line.covered));
    (source.name.to_string(), source.head.to_vec(), block.offset, block.bytes.to_vec(), long)
}

fn check_blocks(bytes: &[u8], folder: &Path) {
    let (first, text) = first_line(bytes);
    let mut numbers = numbers(first);
    let (changed, cut) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let mut held = Vec::new();
    let mut rest = text;
    for size in numbers.take(8) {
        let (taken, after) = rest.split_at(rest.len().min(size as usize));
        let too_long = (size % 5 == 0).then_some(TooLong { bytes: size, covered: size.wrapping_mul(3) });
        let source = Source { name: String::from_utf8_lossy(first).into(), head: first.into(), ..Source::default() };
        let bytes = taken.to_vec().into();
        let block = Block { bytes, offset: size.wrapping_mul(7), too_long, mark: None, records: None };
        held.push(Arc::new(Held::new(0, Arc::new(source), block)));
        rest = after;
    }
    let Some(written) = write(&Real, folder, &held).expect("a spool that can be written") else {
        return assert!(held.is_empty());
    };
    let wanted: Vec<Piece> = held.iter().map(|held| piece(&held.source, &held.block)).collect();
    assert_eq!(read(&written.path).as_ref(), Some(&wanted), "what was written");
    let good = std::fs::read(&written.path).expect("a file");
    std::fs::write(&written.path, &good[..cut as usize % good.len()]).expect("a file");
    assert_eq!(read(&written.path), None, "half of it is taken");
    let mut bad = good;
    let at = changed as usize % bad.len();
    bad[at] ^= 1 << (cut % 8);
    std::fs::write(&written.path, &bad).expect("a file");
    assert_eq!(read(&written.path), None, "something else is taken");
}
