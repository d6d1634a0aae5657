//! The text of a file that is compressed by gzip or zstd, read from an open file of any disk.

use std::io::{self, BufReader, Read};

use super::disk::{OpenFile, read_some};
use crate::input::identity::{HEAD, Position, Tail};
use crate::input::ratio::limited;

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
    pub fn read(&mut self, bytes: usize, into: &mut Vec<u8>) -> io::Result<usize> {
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
            if self.read(wanted, &mut some)? == 0 {
                return Ok(false);
            }
        }
        Ok(self.offset == offset)
    }

    /// Which of the known places, sorted by offset, is the last that fits; the text is then read up to the last
    /// that could be looked at.
    pub fn fitting(&mut self, known: &[Position]) -> Option<usize> {
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

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Text").field("offset", &self.offset).finish_non_exhaustive()
    }
}
