//! `scheme = "uuid"`: random ids, version 4, or version 7 in the order in which they were made (the present time, not
//! the event's). Fixed before the first send, so a retry does not store twice, but a re-read does.

use super::digest::Method;
use super::{Refused, Scheme, TimeUnit};
use crate::time::Time;

/// The length of a UUID with its dashes.
pub const CHARS: usize = 36;
pub const V4_RANDOM_BITS: u32 = 122;
/// Of a version 7 UUID, beside its milliseconds.
const V7_RANDOM_BITS: u32 = 74;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uuid {
    V4,
    V7,
}

impl Uuid {
    pub const VERSION_DEFAULT: i64 = 7;

    pub fn version(version: i64) -> Option<Uuid> {
        match version {
            4 => Some(Uuid::V4),
            7 => Some(Uuid::V7),
            _ => None,
        }
    }
}

/// Appends a version 4 UUID, lower case with dashes.
pub fn write_v4(out: &mut Vec<u8>) {
    write(::uuid::Uuid::new_v4(), out);
}

/// Appends a version 7 UUID; within a process each is greater than the one before.
pub fn write_v7(out: &mut Vec<u8>) {
    write(::uuid::Uuid::now_v7(), out);
}

fn write(uuid: ::uuid::Uuid, out: &mut Vec<u8>) {
    let mut text = [0; CHARS];
    out.extend_from_slice(uuid.hyphenated().encode_lower(&mut text).as_bytes());
}

impl Scheme for Uuid {
    fn write(&self, _time: Time, _digest: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
        match self {
            Uuid::V4 => write_v4(out),
            Uuid::V7 => write_v7(out),
        }
        Ok(())
    }

    fn method(&self) -> Option<Method> {
        None
    }

    fn time_unit(&self) -> Option<TimeUnit> {
        None
    }

    fn digest_bits(&self) -> u32 {
        match self {
            Uuid::V4 => V4_RANDOM_BITS,
            Uuid::V7 => V7_RANDOM_BITS,
        }
    }

    fn chars(&self) -> usize {
        CHARS
    }

    fn made_of(&self) -> String {
        let version = if *self == Uuid::V4 { 4 } else { 7 };
        format!("UUID version {version}, hex")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (scheme, digit) in [(Uuid::V4, b'4'), (Uuid::V7, b'7')] {
            let mut seen = Vec::new();
            for _ in 0..100 {
                let mut out = Vec::new();
                scheme.write(Time::EPOCH, &[], &mut out).unwrap();
                assert_eq!((out.len(), out[8], out[14]), (CHARS, b'-', digit));
                seen.push(out);
            }
            assert!(scheme == Uuid::V4 || seen.is_sorted());
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), 100);
        }
        assert_eq!((Uuid::version(4), Uuid::version(7), Uuid::version(1)), (Some(Uuid::V4), Some(Uuid::V7), None));
    }
}
