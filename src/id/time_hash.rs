//! `scheme = "time-hash"`: the time as whole seconds since 1970 in lower-case hex, at least 8 digits, and then the
//! digest in hex. Byte for byte what Logstash's fingerprint filter gives with the usual time prefix (which does not
//! pad: equal from 4 July 1978 on). With `method = "UUID"`, a random version 4 UUID takes the digest's place.

use super::digest::Method;
use super::encode::{Encoding, hex};
use super::{Refused, SECONDS_MAX, Scheme, TimeUnit, uuid};
use crate::time::Time;

pub struct TimeHash {
    /// None: `method = "UUID"`.
    pub method: Option<Method>,
}

/// Whole seconds, if they fit four bytes.
pub(super) fn seconds(time: Time) -> Result<u32, Refused> {
    if (0..=SECONDS_MAX).contains(&time.secs) {
        Ok(time.secs as u32)
    } else {
        Err(Refused::TimeOutOfRange { time, last: "2106-02-07T06:28:15Z" })
    }
}

impl Scheme for TimeHash {
    fn write(&self, time: Time, digest: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
        hex(&seconds(time)?.to_be_bytes(), out);
        match self.method {
            Some(_) => hex(digest, out),
            None => uuid::write_v4(out),
        }
        Ok(())
    }

    fn method(&self) -> Option<Method> {
        self.method
    }

    fn time_unit(&self) -> Option<TimeUnit> {
        Some(TimeUnit::Seconds)
    }

    fn digest_bits(&self) -> u32 {
        self.method.map_or(uuid::V4_RANDOM_BITS, Method::bits)
    }

    fn chars(&self) -> usize {
        8 + self.method.map_or(uuid::CHARS, |method| Encoding::Hex.len(method.bytes()))
    }

    fn made_of(&self) -> String {
        match self.method {
            Some(method) => format!("time (s) + {}, hex", method.name()),
            None => "time (s) + UUID version 4, hex".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(time: Time, digest: &[u8]) -> Result<String, Refused> {
        let mut out = Vec::new();
        let written = TimeHash { method: Some(Method::Md5) }.write(time, digest, &mut out);
        assert_eq!(written.is_err(), out.is_empty());
        written.map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn range() {
        let digest = [0xab; 16];
        let digits = "ab".repeat(16);
        for (secs, nanos, want) in [
            (0, 0, Some("00000000")),
            (0x4dad_0502, 999_999_999, Some("4dad0502")),
            (SECONDS_MAX, 999_999_999, Some("ffffffff")),
            (SECONDS_MAX + 1, 0, None),
            (-1, 500_000_000, None),
            (i64::MAX, 0, None),
        ] {
            let got = id(Time::new(secs, nanos), &digest);
            assert_eq!(got.as_ref().ok(), want.map(|w| format!("{w}{digits}")).as_ref());
            if let Err(refused) = got {
                assert_eq!(refused.reason().as_str(), "time-out-of-range");
            }
        }
    }

    #[test]
    fn random_is_a_dashed_uuid() {
        let scheme = TimeHash { method: None };
        let (mut one, mut two) = (Vec::new(), Vec::new());
        scheme.write(Time::new(0x4dad_0502, 0), &[], &mut one).unwrap();
        scheme.write(Time::new(0x4dad_0502, 0), &[], &mut two).unwrap();
        assert_ne!(one, two);
        assert_eq!(one.len(), scheme.chars());
        assert!(one.starts_with(b"4dad0502"));
        assert_eq!((one[8 + 8], one[8 + 14]), (b'-', b'4'));
    }

    proptest! {
        #[test]
        fn later_sorts_later(a in 0..=SECONDS_MAX, b in 0..=SECONDS_MAX, x: [u8; 16], y: [u8; 16]) {
            prop_assume!(a != b);
            let (one, two) = (id(Time::new(a, 0), &x).unwrap(), id(Time::new(b, 0), &y).unwrap());
            prop_assert_eq!(a < b, one < two);
        }
    }
}
