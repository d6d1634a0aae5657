//! `scheme = "compact"`: base64url, without padding, of the big-endian time and then the leading bytes of the digest.
//! The engines store such an id as the bytes it decodes to, so it is short there and in time order.
//! As text it is not in order: base64url puts letters before digits.

use super::digest::{DIGEST_BYTES_MAX, Method};
use super::encode::{Encoding, base64url};
use super::{Refused, Scheme, TimeUnit, time_hash};
use crate::time::Time;

/// Milliseconds that six bytes hold: to the year 10889.
const MILLIS_MAX: i64 = (1 << 48) - 1;
const DIGEST_BITS_MIN: u32 = 64;

pub struct Compact {
    method: Method,
    time: TimeUnit,
    digest_bytes: usize,
}

impl Compact {
    pub const DIGEST_BITS_DEFAULT: u32 = 96;
    pub const TIME_DEFAULT: TimeUnit = TimeUnit::Millis;

    pub fn new(method: Method, time: TimeUnit, digest_bits: u32) -> Result<Compact, String> {
        if method.bits() < DIGEST_BITS_MIN {
            let (name, bits) = (method.name(), method.bits());
            return Err(format!("compact needs a digest of at least {DIGEST_BITS_MIN} bits, and {name} has {bits}"));
        }
        if !digest_bits.is_multiple_of(8) || !(DIGEST_BITS_MIN..=method.bits()).contains(&digest_bits) {
            let (name, most) = (method.name(), method.bits());
            return Err(format!(
                "digest_bits = {digest_bits} is not a multiple of 8 from {DIGEST_BITS_MIN} to the {most} that {name} has"
            ));
        }
        Ok(Compact { method, time, digest_bytes: digest_bits as usize / 8 })
    }

    fn time_bytes(&self) -> usize {
        match self.time {
            TimeUnit::Millis => 6,
            TimeUnit::Seconds => 4,
        }
    }
}

impl Scheme for Compact {
    fn write(&self, time: Time, digest: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
        let front: u64 = match self.time {
            TimeUnit::Seconds => u64::from(time_hash::seconds(time)?),
            TimeUnit::Millis => match time.millis() {
                millis @ 0..=MILLIS_MAX => millis as u64,
                _ => return Err(Refused::TimeOutOfRange { time, last: "10889-08-02T05:31:50.655Z" }),
            },
        };
        let time_bytes = self.time_bytes();
        let kept = &digest[..self.digest_bytes.min(digest.len())];
        let mut bytes = [0; 8 + DIGEST_BYTES_MAX];
        bytes[..time_bytes].copy_from_slice(&front.to_be_bytes()[8 - time_bytes..]);
        bytes[time_bytes..time_bytes + kept.len()].copy_from_slice(kept);
        base64url(&bytes[..time_bytes + kept.len()], out);
        Ok(())
    }

    fn method(&self) -> Option<Method> {
        Some(self.method)
    }

    fn time_unit(&self) -> Option<TimeUnit> {
        Some(self.time)
    }

    fn digest_bits(&self) -> u32 {
        self.digest_bytes as u32 * 8
    }

    fn chars(&self) -> usize {
        Encoding::Base64Url.len(self.time_bytes() + self.digest_bytes)
    }

    fn made_of(&self) -> String {
        format!("time ({}) + {}/{}, base64url", self.time.name(), self.method.name(), self.digest_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    fn decoded(scheme: &Compact, time: Time, digest: &[u8]) -> Result<Vec<u8>, Refused> {
        let mut out = Vec::new();
        scheme.write(time, digest, &mut out)?;
        assert_eq!(out.len(), scheme.chars());
        Ok(URL_SAFE_NO_PAD.decode(out).unwrap())
    }

    #[test]
    fn bytes_and_range() {
        let ms = Compact::new(Method::Sha256, TimeUnit::Millis, 96).unwrap();
        assert_eq!(ms.chars(), 24);
        let digest: Vec<u8> = (1..=32).collect();
        let got = decoded(&ms, Time::new(0x4dad_0502, 999_999_999), &digest).unwrap();
        assert_eq!(&got[..6], &(0x4dad_0502u64 * 1000 + 999).to_be_bytes()[2..]);
        assert_eq!(&got[6..], &digest[..12]);
        assert_eq!(Time::from_millis(MILLIS_MAX).iso(), "+10889-08-02T05:31:50.655Z");
        assert!(decoded(&ms, Time::from_millis(MILLIS_MAX), &digest).is_ok());
        for outside in [Time::from_millis(MILLIS_MAX + 1), Time::new(-1, 999_999_999), Time::new(i64::MAX, 0)] {
            assert_eq!(decoded(&ms, outside, &digest).unwrap_err().reason().as_str(), "time-out-of-range");
        }
        let s = Compact::new(Method::Md5, TimeUnit::Seconds, 128).unwrap();
        assert_eq!(&decoded(&s, Time::new(0x4dad_0502, 5), &digest[..16]).unwrap()[..4], &[0x4d, 0xad, 0x05, 0x02]);
        assert!(decoded(&s, Time::new(super::super::SECONDS_MAX + 1, 0), &digest).is_err());
    }

    #[test]
    fn what_is_refused() {
        for (method, bits, fine) in [
            (Method::Md5, 64, true),
            (Method::Md5, 128, true),
            (Method::Md5, 136, false),
            (Method::Md5, 56, false),
            (Method::Md5, 100, false),
            (Method::Murmur3, 32, false),
            (Method::Murmur3, 64, false),
            (Method::Murmur3x128, 96, true),
            (Method::Sha512, 512, true),
        ] {
            assert_eq!(Compact::new(method, TimeUnit::Millis, bits).is_ok(), fine, "{method:?} {bits}");
        }
    }

    proptest! {
        #[test]
        fn later_sorts_later(a in 0..=super::super::SECONDS_MAX, b in 0..=super::super::SECONDS_MAX,
                             m in 0u32..1000, n in 0u32..1000, x: [u8; 16], y: [u8; 16]) {
            let (one, two) = (Time::new(a, m * 1_000_000), Time::new(b, n * 1_000_000));
            for unit in [TimeUnit::Millis, TimeUnit::Seconds] {
                prop_assume!(one.millis() != two.millis() && (unit == TimeUnit::Millis || a != b));
                let scheme = Compact::new(Method::Md5, unit, 96).unwrap();
                let (p, q) = (decoded(&scheme, one, &x).unwrap(), decoded(&scheme, two, &y).unwrap());
                prop_assert_eq!(one < two, p < q);
            }
        }
    }
}
