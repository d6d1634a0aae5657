//! Digests, prepared once and used for every event: with a key it is an HMAC whose inner and outer state are
//! computed when the pipeline is built and copied for each event.

use crate::id::lanes::{LANES, Md5x8};
use crate::id::murmur;
use hmac::{EagerHash, Hmac, KeyInit, Mac};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha384, Sha512};

/// The longest digest, in bytes.
pub const DIGEST_BYTES_MAX: usize = 64;

/// Below this, one text after the other is as fast as all lanes at once.
const LANES_WORTHWHILE: usize = 4;

/// MURMUR3_128 starts from this seed, because Logstash's does.
const MURMUR3_128_SEED: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Md5,
    Sha1,
    Sha256,
    Sha384,
    Sha512,
    Murmur3x128,
    Murmur3,
}

impl Method {
    pub const ALL: [Method; 7] = [
        Method::Md5,
        Method::Sha1,
        Method::Sha256,
        Method::Sha384,
        Method::Sha512,
        Method::Murmur3x128,
        Method::Murmur3,
    ];

    pub fn parse(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name)
    }

    /// The name in the pipeline file.
    pub fn name(self) -> &'static str {
        match self {
            Method::Md5 => "MD5",
            Method::Sha1 => "SHA1",
            Method::Sha256 => "SHA256",
            Method::Sha384 => "SHA384",
            Method::Sha512 => "SHA512",
            Method::Murmur3x128 => "MURMUR3_128",
            Method::Murmur3 => "MURMUR3",
        }
    }

    /// The length of the digest in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Method::Md5 | Method::Murmur3x128 => 16,
            Method::Sha1 => 20,
            Method::Sha256 => 32,
            Method::Sha384 => 48,
            Method::Sha512 => 64,
            Method::Murmur3 => 4,
        }
    }

    pub fn bits(self) -> u32 {
        self.bytes() as u32 * 8
    }
}

/// A method, with its key if there is one. One is shared by all workers.
#[derive(Clone)]
pub struct Digest {
    method: Method,
    state: State,
    /// MD5 of several texts at once.
    lanes: Option<Md5x8>,
}

/// What is copied for an event.
#[derive(Clone)]
enum State {
    Plain,
    Md5(Hmac<Md5>),
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    Sha384(Hmac<Sha384>),
    Sha512(Hmac<Sha512>),
}

impl Digest {
    /// A key, even an empty one, makes an HMAC.
    pub fn new(method: Method, key: Option<&[u8]>) -> Result<Digest, String> {
        let state = match (key, method) {
            (None, _) => State::Plain,
            (Some(key), Method::Md5) => State::Md5(keyed(key)?),
            (Some(key), Method::Sha1) => State::Sha1(keyed(key)?),
            (Some(key), Method::Sha256) => State::Sha256(keyed(key)?),
            (Some(key), Method::Sha384) => State::Sha384(keyed(key)?),
            (Some(key), Method::Sha512) => State::Sha512(keyed(key)?),
            (Some(_), Method::Murmur3x128 | Method::Murmur3) => {
                return Err(format!("{} takes no key: it is not a hash that HMAC can be made of", method.name()));
            }
        };
        let lanes = (method == Method::Md5).then(|| Md5x8::new(key));
        Ok(Digest { method, state, lanes })
    }

    pub fn method(&self) -> Method {
        self.method
    }

    /// Writes the digest of `bytes` to the front of `out` and says how long it is.
    /// MURMUR3 is written big-endian, so that its hex is the number's.
    pub fn digest(&self, bytes: &[u8], out: &mut [u8; DIGEST_BYTES_MAX]) -> usize {
        match (&self.state, self.method) {
            (State::Plain, Method::Md5) => put(&Md5::digest(bytes), out),
            (State::Plain, Method::Sha1) => put(&Sha1::digest(bytes), out),
            (State::Plain, Method::Sha256) => put(&Sha256::digest(bytes), out),
            (State::Plain, Method::Sha384) => put(&Sha384::digest(bytes), out),
            (State::Plain, Method::Sha512) => put(&Sha512::digest(bytes), out),
            (State::Plain, Method::Murmur3x128) => put(&murmur::x64_128(bytes, MURMUR3_128_SEED), out),
            (State::Plain, Method::Murmur3) => put(&murmur::x86_32(bytes, 0).to_be_bytes(), out),
            (State::Md5(state), _) => put(&mac(state, bytes), out),
            (State::Sha1(state), _) => put(&mac(state, bytes), out),
            (State::Sha256(state), _) => put(&mac(state, bytes), out),
            (State::Sha384(state), _) => put(&mac(state, bytes), out),
            (State::Sha512(state), _) => put(&mac(state, bytes), out),
        }
    }
}

impl Digest {
    /// How many texts [`Digest::digest_group`] takes at once; 1 where that gains nothing.
    pub fn group(&self) -> usize {
        if self.lanes.is_some() { LANES } else { 1 }
    }

    /// The digests of at most [`Digest::group`] texts, which go to `put` with their place in `texts`.
    pub fn digest_group(&self, texts: &[&[u8]], mut put: impl FnMut(usize, &[u8])) {
        match &self.lanes {
            Some(lanes) if (LANES_WORTHWHILE..=LANES).contains(&texts.len()) => {
                let mut all: [&[u8]; LANES] = [&[]; LANES];
                all[..texts.len()].copy_from_slice(texts);
                let digests = lanes.digest(&all);
                digests.iter().take(texts.len()).enumerate().for_each(|(at, digest)| put(at, digest));
            }
            _ => {
                for (at, text) in texts.iter().enumerate() {
                    let mut digest = [0; DIGEST_BYTES_MAX];
                    let len = self.digest(text, &mut digest);
                    put(at, &digest[..len]);
                }
            }
        }
    }
}

fn keyed<D: EagerHash>(key: &[u8]) -> Result<Hmac<D>, String> {
    Hmac::new_from_slice(key).map_err(|e| format!("the key cannot be used: {e}"))
}

fn mac<D: EagerHash>(state: &Hmac<D>, bytes: &[u8]) -> hmac::digest::Output<Hmac<D>> {
    state.clone().chain_update(bytes).finalize().into_bytes()
}

fn put(digest: &[u8], out: &mut [u8; DIGEST_BYTES_MAX]) -> usize {
    out[..digest.len()].copy_from_slice(digest);
    digest.len()
}

/// Tells two keys apart without showing either: the first 8 hex digits of HMAC-SHA256(key, "onceline").
pub fn key_check(key: &[u8]) -> String {
    let mut out = [0; DIGEST_BYTES_MAX];
    let mut text = Vec::with_capacity(8);
    if let Ok(digest) = Digest::new(Method::Sha256, Some(key)) {
        digest.digest(b"onceline", &mut out);
        super::encode::hex(&out[..4], &mut text);
    }
    text.iter().map(|b| char::from(*b)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hexed(method: Method, key: Option<&str>, text: &[u8]) -> String {
        let mut out = [0; DIGEST_BYTES_MAX];
        let len = Digest::new(method, key.map(str::as_bytes)).unwrap().digest(text, &mut out);
        assert_eq!(len, method.bytes());
        hex::encode(&out[..len])
    }

    #[test]
    fn known() {
        let text = b"123.123.123.123";
        for (method, key, want) in [
            (Method::Md5, None, "ccdd8d3d940a01b2fb3258c059924c0d"),
            (Method::Md5, Some("longencryptionkey"), "9336c879e305c9604a3843fc3e75948f"),
            (Method::Sha1, None, "3a5076c520b4b463f43806896ea0b3978d09dcae"),
            (Method::Sha256, None, "4dabcab210766e35f03e77120e6986d6e6d4752b2a9ff22980b9253d026080d8"),
            (Method::Murmur3x128, None, "41cbc4056eed401d091dfbeabf7ea9e0"),
            (Method::Murmur3, None, "ef3cb613"),
        ] {
            assert_eq!(hexed(method, key, text), want);
        }
        assert_eq!(
            hexed(Method::Sha256, Some(""), b"x"),
            "4cbc96099a6467ce002461f10549b4898265ebe6188b45efacc44293516e62c4"
        );
    }

    #[test]
    fn names_and_keys() {
        for method in Method::ALL {
            assert_eq!(Method::parse(method.name()), Some(method));
            let keyed = Digest::new(method, Some(b"k"));
            assert_eq!(keyed.is_ok(), !matches!(method, Method::Murmur3 | Method::Murmur3x128));
        }
        assert_eq!(Method::parse("UUID"), None);
        assert_eq!(key_check(b"test").len(), 8);
        assert_ne!(key_check(b"test"), key_check(b"Test"));
    }

    fn one_shot<D: EagerHash>(key: &[u8], text: &[u8]) -> Vec<u8> {
        let mut mac = Hmac::<D>::new_from_slice(key).unwrap();
        mac.update(text);
        mac.finalize().into_bytes().to_vec()
    }

    proptest! {
        #[test]
        fn prepared_is_one_shot(key in proptest::collection::vec(any::<u8>(), 0..200),
                                texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..4)) {
            for method in [Method::Md5, Method::Sha1, Method::Sha256, Method::Sha384, Method::Sha512] {
                let prepared = Digest::new(method, Some(&key)).unwrap();
                for text in &texts {
                    let mut out = [0; DIGEST_BYTES_MAX];
                    let len = prepared.digest(text, &mut out);
                    let want = match method {
                        Method::Md5 => one_shot::<Md5>(&key, text),
                        Method::Sha1 => one_shot::<Sha1>(&key, text),
                        Method::Sha256 => one_shot::<Sha256>(&key, text),
                        Method::Sha384 => one_shot::<Sha384>(&key, text),
                        _ => one_shot::<Sha512>(&key, text),
                    };
                    prop_assert_eq!(&out[..len], &want[..]);
                }
            }
        }
    }
}
