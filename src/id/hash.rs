//! `scheme = "hash"`: the digest alone. The same everywhere, but in no order, so an engine looks in every segment.

use super::digest::Method;
use super::encode::Encoding;
use super::{Refused, Scheme, TimeUnit};
use crate::time::Time;

pub struct Hash {
    pub method: Method,
    pub encoding: Encoding,
}

impl Scheme for Hash {
    fn write(&self, _time: Time, digest: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
        self.encoding.write(digest, out);
        Ok(())
    }

    fn method(&self) -> Option<Method> {
        Some(self.method)
    }

    fn time_unit(&self) -> Option<TimeUnit> {
        None
    }

    fn digest_bits(&self) -> u32 {
        self.method.bits()
    }

    fn chars(&self) -> usize {
        self.encoding.len(self.method.bytes())
    }

    fn made_of(&self) -> String {
        format!("{}, {}", self.method.name(), self.encoding.name())
    }
}
