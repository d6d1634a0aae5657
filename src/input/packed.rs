//! The text of a file that is compressed by gzip or zstd, whatever its name, read from an open file of any disk.

use std::io::{self, BufReader, Read};

use super::follow::disk::{OpenFile, read_some};
use super::identity::{HEAD, Position, Tail};
use super::ratio::limited;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    Gzip,
    Zstd,
}

impl Compression {
    /// By a file's first bytes.
    pub fn of(beginning: &[u8]) -> Option<Compression> {
        match beginning {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            _ => None,
        }
    }
}

/// An open file as a stream.
struct Stream<F> {
    file: F,
    at: u64,
}

impl<F: OpenFile> Read for Stream<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(self.at, into)?;
        self.at += read as u64;
        Ok(read)
    }
}

fn buffered<R: Read>(stream: R) -> BufReader<R> {
    BufReader::with_capacity(64 << 10, stream)
}

/// Decompressed text from some place on.
pub struct Text {
    decoder: Box<dyn Read + Send>,
    /// The text's first bytes, taken out of the decoder already.
    pub beginning: Vec<u8>,
    /// What was wrong right behind it.
    broken: Option<io::Error>,
    pub offset: u64,
    pub tail: Tail,
}

impl Text {
    /// The text from its beginning on; none if the file is not compressed after all.
    pub fn open(file: impl OpenFile) -> io::Result<Option<Text>> {
        let Some(compression) = Compression::of(&read_some(&file, 0, 4)?) else { return Ok(None) };
        let stream = Stream { file, at: 0 };
        let mut decoder: Box<dyn Read + Send> = match compression {
            Compression::Gzip => {
                Box::new(limited(stream, |stream| Ok(flate2::bufread::MultiGzDecoder::new(buffered(stream))))?)
            }
            Compression::Zstd => {
                Box::new(limited(stream, |stream| zstd::stream::read::Decoder::with_buffer(buffered(stream)))?)
            }
        };
        let mut beginning = Vec::with_capacity(HEAD);
        let broken = decoder.by_ref().take(HEAD as u64).read_to_end(&mut beginning).err();
        Ok(Some(Text { decoder, beginning, broken, offset: 0, tail: Tail::default() }))
    }

    /// Appends up to `bytes` bytes; fewer only at the end, or before an error.
    pub fn read_to(&mut self, bytes: usize, into: &mut Vec<u8>) -> io::Result<usize> {
        let from = into.len();
        if let Some(rest) = usize::try_from(self.offset).ok().and_then(|at| self.beginning.get(at..)) {
            into.extend_from_slice(&rest[..rest.len().min(bytes)]);
        }
        let wanted = bytes - (into.len() - from);
        let read = match self.broken.take() {
            Some(error) if wanted > 0 => Err(error),
            broken => {
                self.broken = broken;
                self.decoder.by_ref().take(wanted as u64).read_to_end(into)
            }
        };
        self.offset += (into.len() - from) as u64;
        self.tail.push(&into[from..]);
        read.map(|_| into.len() - from)
    }

    /// Reads on to `offset`; false if the text ends before.
    pub fn skip_to(&mut self, offset: u64) -> io::Result<bool> {
        let mut some = Vec::new();
        while self.offset < offset {
            some.clear();
            let wanted = usize::try_from(offset - self.offset).unwrap_or(usize::MAX).min(256 << 10);
            if self.read_to(wanted, &mut some)? == 0 {
                return Ok(false);
            }
        }
        Ok(self.offset == offset)
    }

    /// Which of the known places, sorted by offset, is the last that fits; the text is then read up to the last
    /// that could be looked at.
    pub fn fitting(&mut self, known: &[&Position]) -> Option<usize> {
        let mut found = None;
        for (place, position) in known.iter().enumerate() {
            match self.skip_to(position.mark.offset) {
                Ok(true) if position.mark.tail.ends(self.tail.bytes()) => found = Some(place),
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        found
    }
}

impl Read for Text {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.offset).ok().and_then(|at| self.beginning.get(at..)).unwrap_or_default();
        let read = match self.broken.take() {
            broken if !rest.is_empty() => {
                self.broken = broken;
                let count = rest.len().min(into.len());
                into[..count].copy_from_slice(&rest[..count]);
                count
            }
            Some(error) => return Err(error),
            None => self.decoder.read(into)?,
        };
        self.offset += read as u64;
        self.tail.push(&into[..read]);
        Ok(read)
    }
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Text").field("offset", &self.offset).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::identity::Print;
    use std::io::Write;

    #[test]
    fn a_place_in_a_text() {
        let text: Vec<u8> = (0..60_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for bytes in [gzip.finish().unwrap(), zstd::encode_all(&text[..], 1).unwrap()] {
            std::fs::write(&path, &bytes).unwrap();
            let open = || Text::open(std::fs::File::open(&path).unwrap()).unwrap().unwrap();
            assert_eq!(open().beginning, text[..HEAD]);
            for offset in [70_000, 10, 0, 64, 65, text.len(), 5] {
                let mut opened = open();
                assert!(opened.skip_to(offset as u64).unwrap());
                assert_eq!(opened.tail.print(), Print::tail(&text[..offset]), "{offset}");
                let mut rest = Vec::new();
                opened.read_to_end(&mut rest).unwrap();
                assert_eq!((&rest[..], opened.offset), (&text[offset..], text.len() as u64));
            }
            assert!(!open().skip_to(text.len() as u64 + 1).unwrap());
            // half of it: what is whole is given, then the error
            std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
            let (mut rest, mut cut) = (Vec::new(), open());
            assert!(cut.read_to_end(&mut rest).is_err() && rest.len() > HEAD && text.starts_with(&rest));
        }
    }
}
