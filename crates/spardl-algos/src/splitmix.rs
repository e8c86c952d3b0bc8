//! Numbers from a seed, the same on every machine: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", 2014).

/// The increment of the generator's state, 2^64 over the golden ratio.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The generator's output function: a permutation of the 64-bit numbers that looks random.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Number `i` of the sequence that starts from `seed`.
pub(crate) const fn number(seed: u64, i: u64) -> u64 {
    mix(seed.wrapping_add(GOLDEN.wrapping_mul(i.wrapping_add(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let got = [0, 1, 2].map(|i| number(1_234_567, i));
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(got, expected);
    }
}
