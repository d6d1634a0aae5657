//! Many patterns of which the first that fits is wanted. Only those are tried of which a text holds what all their
//! matches hold.

use aho_corasick::AhoCorasick;

use super::{Groups, Regexp, literals};

#[derive(Debug)]
pub struct First {
    patterns: Vec<Regexp>,
    /// What is looked for, in any case.
    pieces: AhoCorasick,
    /// By the piece, the patterns of which it may be all that they need.
    needed_by: Vec<Vec<u32>>,
    /// A bit a pattern: those that nothing is known of.
    always: Vec<u64>,
}

impl First {
    pub fn new(patterns: Vec<Regexp>) -> Result<First, String> {
        let mut always = vec![0; patterns.len().div_ceil(64)];
        let (mut pieces, mut needed_by): (Vec<Vec<u8>>, Vec<Vec<u32>>) = Default::default();
        let mut places: std::collections::HashMap<Vec<u8>, usize> = Default::default();
        for (at, pattern) in patterns.iter().enumerate() {
            let Some(required) = literals::required(pattern.engines_text()) else {
                mark(&mut always, at);
                continue;
            };
            for piece in required {
                let place = *places.entry(piece).or_insert_with_key(|piece| {
                    pieces.push(piece.clone());
                    needed_by.push(Vec::new());
                    pieces.len() - 1
                });
                needed_by[place].push(at as u32);
            }
        }
        let pieces = AhoCorasick::builder().ascii_case_insensitive(true).build(&pieces).map_err(|e| e.to_string())?;
        Ok(First { patterns, pieces, needed_by, always })
    }

    /// What `take` makes of the first pattern that fits, its number and groups; where that is nothing, of the next. A
    /// pattern that is given up does not fit.
    pub fn find<T>(&self, text: &str, mut take: impl FnMut(usize, &Groups) -> Option<T>) -> Option<T> {
        let mut tried = self.always.clone();
        for found in self.pieces.find_overlapping_iter(text) {
            self.needed_by[found.pattern().as_usize()].iter().for_each(|at| mark(&mut tried, *at as usize));
        }
        let numbers = tried.iter().enumerate().flat_map(|(word, bits)| Bits(*bits).map(move |bit| word * 64 + bit));
        let mut fitting = numbers.filter_map(|at| Some((at, self.patterns[at].groups_from(text, 0).ok()??)));
        fitting.find_map(|(at, groups)| take(at, &groups))
    }
}

fn mark(bits: &mut [u64], at: usize) {
    bits[at / 64] |= 1 << (at % 64);
}

/// The numbers of the bits that are set, the lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATTERNS: [&str; 9] =
        ["(?i)(sk)a", "ab(c?)", "(?:ba|cb)(a+)", "[ab]{4}", "(?i)KA b", "(a)(?=b)", "c(?:a|b)*c", "^É", "x"];

    proptest! {
        #[test]
        fn as_if_each_were_tried(text in "[abckKsS éÉ\u{17f}]{0,12}", refused in any::<[bool; 9]>()) {
            let patterns: Vec<Regexp> = PATTERNS.iter().map(|text| Regexp::parse(text).unwrap()).collect();
            // where case does not count these two are letters too, but not here
            let folded = text.replace(['\u{17f}', '\u{212a}'], "_");
            let each = patterns.iter().enumerate().filter(|(at, _)| !refused[*at]);
            let want = each.filter_map(|(at, p)| Some((at, p.groups_from(&folded, 0).unwrap()?))).next();
            let take = |at: usize, groups: &Groups| (!refused[at]).then(|| (at, groups.clone()));
            let got = First::new(patterns.clone()).unwrap().find(&folded, take);
            prop_assert_eq!(got, want);
        }
    }
}
