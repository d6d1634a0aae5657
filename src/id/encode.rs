//! Bytes as text: lower-case hex, base64 and base64url, appended to a buffer without allocating for themselves.

const HEX: [[u8; 2]; 256] = hex_pairs();
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

const fn hex_pairs() -> [[u8; 2]; 256] {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut at = 0;
    while at < 256 {
        pairs[at] = [digits[at >> 4], digits[at & 15]];
        at += 1;
    }
    pairs
}

/// How a digest is written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Lower case.
    Hex,
    /// The usual alphabet, padded: what Logstash's `base64encode` gives.
    Base64,
    /// The alphabet that is safe in addresses, unpadded.
    Base64Url,
}

impl Encoding {
    pub const NAMES: [&str; 3] = ["hex", "base64", "base64url"];

    pub fn parse(name: &str) -> Option<Encoding> {
        match name {
            "hex" => Some(Encoding::Hex),
            "base64" => Some(Encoding::Base64),
            "base64url" => Some(Encoding::Base64Url),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Encoding::Hex => "hex",
            Encoding::Base64 => "base64",
            Encoding::Base64Url => "base64url",
        }
    }

    /// How many characters `bytes` bytes become.
    pub fn len(self, bytes: usize) -> usize {
        match self {
            Encoding::Hex => bytes * 2,
            Encoding::Base64 => bytes.div_ceil(3) * 4,
            Encoding::Base64Url => (bytes * 8).div_ceil(6),
        }
    }

    pub fn write(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Encoding::Hex => hex(bytes, out),
            Encoding::Base64 => base64(bytes, BASE64, true, out),
            Encoding::Base64Url => base64(bytes, BASE64URL, false, out),
        }
    }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes.len() * 2, 0);
    for (pair, byte) in out[start..].chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&HEX[usize::from(*byte)]);
    }
}

/// base64url without padding.
pub fn base64url(bytes: &[u8], out: &mut Vec<u8>) {
    base64(bytes, BASE64URL, false, out);
}

fn base64(bytes: &[u8], alphabet: &[u8; 64], padded: bool, out: &mut Vec<u8>) {
    let letter = |group: u32, shift: u32| alphabet[(group >> shift & 63) as usize];
    out.reserve(bytes.len().div_ceil(3) * 4);
    let mut triples = bytes.chunks_exact(3);
    for triple in &mut triples {
        let group = u32::from(triple[0]) << 16 | u32::from(triple[1]) << 8 | u32::from(triple[2]);
        out.extend_from_slice(&[letter(group, 18), letter(group, 12), letter(group, 6), letter(group, 0)]);
    }
    let rest = match *triples.remainder() {
        [a] => {
            let group = u32::from(a) << 16;
            [letter(group, 18), letter(group, 12), b'=', b'=']
        }
        [a, b] => {
            let group = u32::from(a) << 16 | u32::from(b) << 8;
            [letter(group, 18), letter(group, 12), letter(group, 6), b'=']
        }
        _ => return,
    };
    let kept = if padded { 4 } else { triples.remainder().len() + 1 };
    out.extend_from_slice(&rest[..kept]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::base64::Engine;
    use ::base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    fn text(encoding: Encoding, bytes: &[u8]) -> String {
        let mut out = b"before ".to_vec();
        encoding.write(bytes, &mut out);
        assert_eq!(out.len(), 7 + encoding.len(bytes.len()));
        String::from_utf8(out).unwrap().strip_prefix("before ").unwrap().to_owned()
    }

    proptest! {
        #[test]
        fn there_and_back(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(&::hex::decode(text(Encoding::Hex, &bytes)).unwrap(), &bytes);
            prop_assert_eq!(text(Encoding::Hex, &bytes), ::hex::encode(&bytes));
            prop_assert_eq!(&STANDARD.decode(text(Encoding::Base64, &bytes)).unwrap(), &bytes);
            prop_assert_eq!(&URL_SAFE_NO_PAD.decode(text(Encoding::Base64Url, &bytes)).unwrap(), &bytes);
        }
    }

    #[test]
    fn names() {
        for name in Encoding::NAMES {
            assert_eq!(Encoding::parse(name).map(Encoding::name), Some(name));
        }
        assert_eq!(Encoding::parse("HEX"), None);
    }
}
