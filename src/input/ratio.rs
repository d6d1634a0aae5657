//! A bound for what a compressed file becomes. It is read piece by piece, so a small file that hides an endless text
//! takes no memory; but it would take days, and fill disk and indices.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A text longer than this many times what it was read from is no log.
const RATIO_MAX: u64 = 1000;
/// So much may come of anything: what is short does no harm, however well it is compressed.
const TEXT_BYTES_FREE: u64 = 64 << 20;

/// A decompressor that stops at a text that is far too long.
pub struct Limited<D> {
    decoder: D,
    /// Compressed bytes read so far.
    read: Arc<AtomicU64>,
    text: u64,
    free: u64,
}

pub struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

/// What `decoder` makes of `source`.
pub fn limited<R: Read, D: Read>(
    source: R,
    decoder: impl FnOnce(Counted<R>) -> io::Result<D>,
) -> io::Result<Limited<D>> {
    let read = Arc::new(AtomicU64::new(0));
    let decoder = decoder(Counted { inner: source, read: read.clone() })?;
    Ok(Limited { decoder, read, text: 0, free: TEXT_BYTES_FREE })
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl<D: Read> Read for Limited<D> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.text > self.free && self.text / RATIO_MAX > self.read.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} bytes came of {RATIO_MAX} times fewer: decompress it by hand if it is a log", self.text),
            ));
        }
        let read = self.decoder.read(into)?;
        self.text += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn check(packed: &[u8], is_gzip: bool, text: u64, is_stopped: bool) {
        let decoder = |source| -> io::Result<Box<dyn Read + '_>> {
            Ok(match is_gzip {
                true => Box::new(flate2::read::MultiGzDecoder::new(source)),
                false => Box::new(zstd::stream::read::Decoder::new(source)?),
            })
        };
        let mut limited = limited(packed, decoder).unwrap();
        limited.free = 1 << 20;
        let read = io::copy(&mut limited, &mut io::sink());
        match read {
            Ok(read) => assert!(!is_stopped && read == text, "{read} of {text}"),
            Err(error) => assert!(is_stopped && error.to_string().contains("decompress it by hand"), "{error}"),
        }
    }

    #[test]
    fn a_bomb_is_stopped_and_a_log_is_not() {
        let gzip = |text: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            gzip.write_all(text).unwrap();
            gzip.finish().unwrap()
        };
        let zstd = |text: &[u8]| zstd::encode_all(text, 3).unwrap();
        let zeros = vec![0; 8 << 20];
        check(&zstd(&zeros), false, 8 << 20, true);
        check(&gzip(&zeros), true, 8 << 20, true);
        // short enough to do no harm
        check(&zstd(&zeros[..1 << 20]), false, 1 << 20, false);
        // the same message all the time
        let log: String =
            (0..50_000).map(|n| format!("{n:08} the connection was refused by the other side\n")).collect();
        check(&gzip(log.as_bytes()), true, log.len() as u64, false);
        check(&zstd(log.as_bytes()), false, log.len() as u64, false);
    }
}
