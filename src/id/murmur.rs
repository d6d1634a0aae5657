//! MurmurHash3, the two forms Logstash knows: x86 with 32 bits, and x64 with 128. Fast and short; not a
//! cryptographic hash, so whoever chooses the texts can make two of them collide.

/// x86, 32 bits.
pub fn x86_32(bytes: &[u8], seed: u32) -> u32 {
    let mix = |k: u32| k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut hash = seed;
    let mut blocks = bytes.chunks_exact(4);
    for block in &mut blocks {
        hash ^= mix(u32::from_le_bytes([block[0], block[1], block[2], block[3]]));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let tail = blocks.remainder();
    if !tail.is_empty() {
        let mut last = [0; 4];
        last[..tail.len()].copy_from_slice(tail);
        hash ^= mix(u32::from_le_bytes(last));
    }
    hash ^= bytes.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// x64, 128 bits: the two halves, each little-endian, the first one first.
pub fn x64_128(bytes: &[u8], seed: u32) -> [u8; 16] {
    let (mut h1, mut h2) = (u64::from(seed), u64::from(seed));
    let mut blocks = bytes.chunks_exact(16);
    for block in &mut blocks {
        let (k1, k2) = halves(block);
        h1 ^= mix1(k1);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix2(k2);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    let tail = blocks.remainder();
    let mut last = [0; 16];
    last[..tail.len()].copy_from_slice(tail);
    let (k1, k2) = halves(&last);
    h1 ^= mix1(k1);
    h2 ^= mix2(k2);
    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = avalanche(h1);
    h2 = avalanche(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (u128::from(h1) | u128::from(h2) << 64).to_le_bytes()
}

/// The halves of a block of 16 bytes.
fn halves(block: &[u8]) -> (u64, u64) {
    let mut whole = [0; 16];
    whole.copy_from_slice(block);
    let value = u128::from_le_bytes(whole);
    (value as u64, (value >> 64) as u64)
}

fn mix1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn avalanche(k: u64) -> u64 {
    let k = (k ^ k >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let k = (k ^ k >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ k >> 33
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_32() {
        for (text, seed, want) in [
            ("", 0, 0),
            ("", 1, 0x514e_28b7),
            ("", u32::MAX, 0x81f1_6f39),
            ("hello", 0, 0x248b_fa47),
            ("hello, world", 0, 0x149b_bb7f),
            ("The quick brown fox jumps over the lazy dog", 0, 0x2e4f_f723),
            ("123.123.123.123", 0, 4_013_733_395),
            ("1.5", 0, 4_025_916_689),
            ("1970-01-01T00:00:00.000Z", 0, 743_372_282),
        ] {
            assert_eq!(x86_32(text.as_bytes(), seed), want, "{text}");
        }
        assert_eq!(x86_32(&123i64.to_le_bytes(), 0), 823_512_154);
    }

    #[test]
    fn known_128() {
        for (bytes, seed, want) in [
            (&b""[..], 0, "00000000000000000000000000000000"),
            (b"The quick brown fox jumps over the lazy dog", 0, "6c1b07bc7bbc4be347939ac4a93c437a"),
            (b"123.123.123.123", 2, "41cbc4056eed401d091dfbeabf7ea9e0"),
            (b"|a|1|b|2|", 2, "5b1f59323b9756d113257db3a3875b9e"),
            (b"true", 2, "24607e1848b399168f884378d2524e63"),
            (&2_148_483_647i64.to_le_bytes(), 2, "fdc7699a82556c8c584131f0133ee989"),
            (&(-5i32).to_le_bytes(), 2, "427227eb8529ecc9de7f4df02cd2f3d9"),
        ] {
            assert_eq!(hex::encode(x64_128(bytes, seed)), want, "{}", bytes.escape_ascii());
        }
    }
}
