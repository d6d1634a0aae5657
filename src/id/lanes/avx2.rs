//! Eight blocks at once in registers of eight words, on CPUs that have AVX2. [`super::portable`] has registers of half
//! that width, and brings each word into its place by itself; here texts as rows become words as columns by shuffling.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi32, _mm256_and_si256, _mm256_extract_epi32, _mm256_or_si256, _mm256_permute2x128_si256,
    _mm256_set1_epi32, _mm256_setr_epi32, _mm256_slli_epi32, _mm256_srli_epi32, _mm256_unpackhi_epi32,
    _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

use super::{BLOCK, Compress, LANES, SINES, TURNS, Word};

/// None if this CPU has no AVX2.
pub(super) fn compress_if_there() -> Option<Compress> {
    is_x86_feature_detected!("avx2").then_some(compress)
}

#[expect(unsafe_code, reason = "MD5 is up to a third of what a line costs, and this halves it: the one place")]
fn compress(state: &mut [Word; 4], blocks: &[&[u8; BLOCK]; LANES]) {
    // SAFETY: only `compress_if_there` gives this function away, and it has found AVX2, which is all that is asked for
    unsafe { compress_by_avx2(state, blocks) }
}

/// The sixteen steps of a round, one after the other in the code: how far each turns, and which word it takes, is
/// known when it is compiled. `(first, apart)`: of the words that they take.
macro_rules! round {
    ($now:ident, $word:ident, $number:literal, ($first:literal, $apart:literal), $mix:expr) => {
        round!($now, $word, $number, ($first, $apart), $mix, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($now:ident, $word:ident, $number:literal, ($first:literal, $apart:literal), $mix:expr, $($step:literal)*) => {$({
        const LEFT: i32 = TURNS[$number][$step % 4].cast_signed();
        let [_, b, c, d] = $now;
        let word = $word(($first + $apart * $step) % 16);
        $now = turned::<LEFT, { 32 - LEFT }>($now, $mix(b, c, d), word, SINES[$number * 16 + $step]);
    })*};
}

#[target_feature(enable = "avx2")]
fn compress_by_avx2(state: &mut [Word; 4], blocks: &[&[u8; BLOCK]; LANES]) {
    let words = [columns(blocks, 0), columns(blocks, 32)];
    let word = |at: usize| words[at / 8 % 2][at % 8];
    let ones = _mm256_set1_epi32(-1);
    let before = state.map(|word| of_words(&word));
    let mut now = before;
    round!(now, word, 0, (0, 1), |b, c, d| _mm256_xor_si256(d, _mm256_and_si256(b, _mm256_xor_si256(c, d))));
    round!(now, word, 1, (1, 5), |b, c, d| _mm256_xor_si256(c, _mm256_and_si256(d, _mm256_xor_si256(b, c))));
    round!(now, word, 2, (5, 3), |b, c, d| _mm256_xor_si256(_mm256_xor_si256(b, c), d));
    round!(now, word, 3, (0, 7), |b, c, d| _mm256_xor_si256(c, _mm256_or_si256(b, _mm256_xor_si256(d, ones))));
    for (at, word) in state.iter_mut().enumerate() {
        *word = to_words(_mm256_add_epi32(before[at], now[at]));
    }
}

/// The state after a step.
#[inline]
#[target_feature(enable = "avx2")]
fn turned<const LEFT: i32, const RIGHT: i32>(
    state: [__m256i; 4],
    mixed: __m256i,
    word: __m256i,
    sine: u32,
) -> [__m256i; 4] {
    let [a, b, c, d] = state;
    let added = _mm256_add_epi32(word, _mm256_set1_epi32(sine.cast_signed()));
    let sum = _mm256_add_epi32(_mm256_add_epi32(a, added), mixed);
    let turned = _mm256_or_si256(_mm256_slli_epi32::<LEFT>(sum), _mm256_srli_epi32::<RIGHT>(sum));
    [d, _mm256_add_epi32(b, turned), b, c]
}

/// The eight words that begin at the byte `from` of each block: of each the one of every lane.
#[inline]
#[target_feature(enable = "avx2")]
fn columns(blocks: &[&[u8; BLOCK]; LANES], from: usize) -> [__m256i; 8] {
    let rows = blocks.map(|block| {
        let (words, _) = block[from..from + 32].as_chunks::<4>();
        of_words(&std::array::from_fn(|at| u32::from_le_bytes(words[at])))
    });
    // pairs of lanes, then of pairs, then of the halves
    let pairs: [[__m256i; 2]; 4] = std::array::from_fn(|at| {
        let (a, b) = (rows[2 * at], rows[2 * at + 1]);
        [_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)]
    });
    let fours: [[__m256i; 4]; 2] = std::array::from_fn(|at| {
        let (a, b) = (pairs[2 * at], pairs[2 * at + 1]);
        [
            _mm256_unpacklo_epi64(a[0], b[0]),
            _mm256_unpackhi_epi64(a[0], b[0]),
            _mm256_unpacklo_epi64(a[1], b[1]),
            _mm256_unpackhi_epi64(a[1], b[1]),
        ]
    });
    std::array::from_fn(|at| {
        let (a, b) = (fours[0][at % 4], fours[1][at % 4]);
        if at < 4 { _mm256_permute2x128_si256::<0x20>(a, b) } else { _mm256_permute2x128_si256::<0x31>(a, b) }
    })
}

#[inline]
#[target_feature(enable = "avx2")]
fn of_words(words: &Word) -> __m256i {
    let [a, b, c, d, e, f, g, h] = words.map(u32::cast_signed);
    _mm256_setr_epi32(a, b, c, d, e, f, g, h)
}

#[inline]
#[target_feature(enable = "avx2")]
fn to_words(all: __m256i) -> Word {
    let words = [
        _mm256_extract_epi32::<0>(all),
        _mm256_extract_epi32::<1>(all),
        _mm256_extract_epi32::<2>(all),
        _mm256_extract_epi32::<3>(all),
        _mm256_extract_epi32::<4>(all),
        _mm256_extract_epi32::<5>(all),
        _mm256_extract_epi32::<6>(all),
        _mm256_extract_epi32::<7>(all),
    ];
    words.map(i32::cast_unsigned)
}
