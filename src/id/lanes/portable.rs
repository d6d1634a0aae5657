//! Eight blocks at once by what every CPU of its kind has: two times four words with SSE2, or NEON.

use wide::u32x8;

use super::{BLOCK, LANES, SINES, TURNS, Word};

pub(super) fn compress(state: &mut [Word; 4], blocks: &[&[u8; BLOCK]; LANES]) {
    let word = |lane: usize, at: usize| {
        let block = blocks[lane];
        u32::from_le_bytes([block[at * 4], block[at * 4 + 1], block[at * 4 + 2], block[at * 4 + 3]])
    };
    let words: [u32x8; 16] = std::array::from_fn(|at| u32x8::new(std::array::from_fn(|lane| word(lane, at))));
    let mut next = state.map(u32x8::new);
    round(0, &mut next, &words, |b, c, d| d ^ (b & (c ^ d)), |step| step);
    round(1, &mut next, &words, |b, c, d| c ^ (d & (b ^ c)), |step| 5 * step + 1);
    round(2, &mut next, &words, |b, c, d| b ^ c ^ d, |step| 3 * step + 5);
    round(3, &mut next, &words, |b, c, d| c ^ (b | !d), |step| 7 * step);
    for (word, next) in state.iter_mut().zip(next) {
        *word = (u32x8::new(*word) + next).to_array();
    }
}

#[inline(always)]
fn round(
    number: usize,
    state: &mut [u32x8; 4],
    words: &[u32x8; 16],
    mix: impl Fn(u32x8, u32x8, u32x8) -> u32x8,
    order: impl Fn(usize) -> usize,
) {
    for step in 0..16 {
        let [a, b, c, d] = *state;
        let added = words[order(step) % 16] + u32x8::splat(SINES[number * 16 + step]);
        let sum = a + mix(b, c, d) + added;
        let turn = TURNS[number][step % 4];
        *state = [d, b + ((sum << turn) | (sum >> (32 - turn))), b, c];
    }
}
