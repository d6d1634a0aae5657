//! MD5 of eight texts at once, for the digest that no CPU has instructions for: each step of it waits for the one
//! before, so one text leaves most of a core idle. Here is what becomes of the texts: padding, lanes that end early,
//! keys. Eight blocks at once are compressed by [`avx2`] where the CPU has that, else by [`portable`].

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;

pub const LANES: usize = 8;

const BLOCK: usize = 64;
const ZEROS: [u8; BLOCK] = [0; BLOCK];
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
/// The whole part of 2^32 times |sin(n)|, n from 1.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

/// The state before the first byte, and how many bytes it has taken already.
#[derive(Clone, Copy)]
struct From {
    state: [u32; 4],
    taken: u64,
}

/// A word of the state, of each lane.
type Word = [u32; LANES];

/// Takes a block more into the state of each lane.
type Compress = fn(&mut [Word; 4], &[&[u8; BLOCK]; LANES]);

/// Every way there is on this CPU, the best first.
fn ways() -> impl Iterator<Item = Compress> {
    #[cfg(target_arch = "x86_64")]
    let best = avx2::compress_if_there();
    #[cfg(not(target_arch = "x86_64"))]
    let best = None;
    best.into_iter().chain([portable::compress as Compress])
}

/// MD5, or HMAC-MD5 with the state of its key.
#[derive(Clone, Copy)]
pub struct Md5x8 {
    inner: From,
    outer: Option<From>,
    compress: Compress,
}

impl Md5x8 {
    pub fn new(key: Option<&[u8]>) -> Md5x8 {
        Md5x8::by(ways().next().unwrap_or(portable::compress), key)
    }

    fn by(compress: Compress, key: Option<&[u8]>) -> Md5x8 {
        let plain = From { state: START, taken: 0 };
        let unkeyed = Md5x8 { inner: plain, outer: None, compress };
        let Some(key) = key else { return unkeyed };
        let mut block = ZEROS;
        if key.len() > BLOCK {
            let mut keys: [&[u8]; LANES] = [&[]; LANES];
            keys[0] = key;
            block[..16].copy_from_slice(&unkeyed.digest(&keys)[0]);
        } else {
            block[..key.len()].copy_from_slice(key);
        }
        let begin = |pad: u8| {
            let mut state = plain.state.map(|word| [word; LANES]);
            let block = block.map(|byte| byte ^ pad);
            compress(&mut state, &[&block; LANES]);
            From { state: state.map(|word| word[0]), taken: BLOCK as u64 }
        };
        Md5x8 { inner: begin(0x36), outer: Some(begin(0x5c)), compress }
    }

    pub fn digest(&self, texts: &[&[u8]; LANES]) -> [[u8; 16]; LANES] {
        let inner = digest(self.compress, &self.inner, texts);
        match &self.outer {
            Some(outer) => digest(self.compress, outer, &std::array::from_fn(|lane| &inner[lane][..])),
            None => inner,
        }
    }
}

/// One lane's last bytes with the padding and the length behind them.
struct Tail {
    bytes: [u8; 2 * BLOCK],
    /// Whole blocks of the text before the tail.
    from: usize,
    /// All blocks.
    blocks: usize,
}

impl Tail {
    fn new(text: &[u8], taken: u64) -> Tail {
        let from = text.len() / BLOCK;
        let blocks = (text.len() + 8) / BLOCK + 1;
        let rest = &text[from * BLOCK..];
        let mut bytes = [0; 2 * BLOCK];
        bytes[..rest.len()].copy_from_slice(rest);
        bytes[rest.len()] = 0x80;
        let end = (blocks - from) * BLOCK;
        let bits = taken.wrapping_add(text.len() as u64).wrapping_mul(8);
        bytes[end - 8..end].copy_from_slice(&bits.to_le_bytes());
        Tail { bytes, from, blocks }
    }

    fn block<'a>(&'a self, text: &'a [u8], at: usize) -> &'a [u8; BLOCK] {
        let part = if at < self.from { text.get(at * BLOCK..) } else { self.bytes.get((at - self.from) * BLOCK..) };
        part.and_then(|part| part.first_chunk()).unwrap_or(&ZEROS)
    }
}

fn digest(compress: Compress, from: &From, texts: &[&[u8]; LANES]) -> [[u8; 16]; LANES] {
    let tails = texts.map(|text| Tail::new(text, from.taken));
    let blocks = tails.each_ref().map(|tail| tail.blocks);
    let least = blocks.iter().copied().min().unwrap_or(0);
    let most = blocks.iter().copied().max().unwrap_or(0);
    let mut state = from.state.map(|word| [word; LANES]);
    for at in 0..most {
        let before = state;
        compress(&mut state, &std::array::from_fn(|lane| tails[lane].block(texts[lane], at)));
        if at >= least {
            // lanes that have ended keep what they had
            for (word, before) in state.iter_mut().zip(before) {
                for (lane, blocks) in blocks.iter().enumerate() {
                    word[lane] = if at < *blocks { word[lane] } else { before[lane] };
                }
            }
        }
    }
    std::array::from_fn(|lane| {
        let mut out = [0; 16];
        for (bytes, word) in out.chunks_exact_mut(4).zip(&state) {
            bytes.copy_from_slice(&word[lane].to_le_bytes());
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::super::digest::{DIGEST_BYTES_MAX, Digest, Method};
    use super::*;
    use proptest::prelude::*;

    /// By each way that this CPU has.
    fn check(key: Option<&[u8]>, texts: [&[u8]; LANES]) {
        let digest = Digest::new(Method::Md5, key).unwrap();
        for way in ways() {
            for (got, text) in Md5x8::by(way, key).digest(&texts).iter().zip(texts) {
                let mut want = [0; DIGEST_BYTES_MAX];
                let len = digest.digest(text, &mut want);
                assert_eq!(got[..], want[..len], "{}", text.escape_ascii());
            }
        }
    }

    #[test]
    fn every_length() {
        let text: Vec<u8> = (0..=255).collect();
        for len in 0..200 {
            let texts = std::array::from_fn(|lane| &text[..(len + lane * lane) % 250]);
            check(None, texts);
            check(Some(&text[..len]), texts);
        }
    }

    proptest! {
        #[test]
        fn as_one_by_one(texts: [Vec<u8>; LANES], key: Option<Vec<u8>>) {
            check(key.as_deref(), std::array::from_fn(|lane| &texts[lane][..]));
        }
    }
}
