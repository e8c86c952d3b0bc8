//! Random numbers as pure functions of seeds: SplitMix64 and a permutation that needs no table.

/// The seed of what a worker does at a step, such as augmentation or dropout.
pub fn seed_for(seed: u64, epoch: usize, step: usize, rank: usize) -> u64 {
    [epoch, step, rank]
        .iter()
        .fold(mix(seed), |state, &word| combine(state, word as u64))
}

/// A seed made of a seed and a number.
pub(crate) fn combine(seed: u64, word: u64) -> u64 {
    // Adding after the multiplication keeps (a, b) and (b, a) apart.
    mix(seed
        .wrapping_mul(0x9E6C_63D0_676A_9A99)
        .wrapping_add(mix(word)))
}

/// A reversible scrambling of 64 bits (the last stage of SplitMix64).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// A sequence of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    /// The sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        let word = mix(self.0);
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        word
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        scale(self.next(), limit)
    }

    /// A number from 0 up to, but not including, 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// A number from `low` up to `high`.
    pub(crate) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// A coin: true with this probability.
    pub(crate) fn chance(&mut self, probability: f32) -> bool {
        self.unit() < probability
    }

    /// About normal, mean 0, deviation 1: a sum of four, which is enough for noise and needs no library function that
    /// may differ between platforms.
    pub(crate) fn noise(&mut self) -> f32 {
        let sum: f32 = (0..4).map(|_| self.unit()).sum();
        (sum - 2.0) * 1.732_050_8
    }
}

/// A random permutation of the numbers below `len`, one number at a time.
///
/// A Feistel network over a rectangle that holds all the numbers, walked on until it comes back into the range. So the place
/// of one sample is known without the places of the others, and a run that is resumed has nothing to catch up on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permutation {
    seed: u64,
    len: usize,
    rows: usize,
    columns: usize,
}

impl Permutation {
    /// The permutation of a seed.
    pub(crate) fn new(seed: u64, len: usize) -> Self {
        let columns = len.isqrt().max(1);
        Self {
            seed,
            len,
            rows: len.div_ceil(columns),
            columns,
        }
    }

    /// The number at a place, which is below the length.
    pub(crate) fn get(&self, place: usize) -> usize {
        assert!(
            place < self.len,
            "place {place} of a permutation of {}",
            self.len
        );
        let mut at = place;
        loop {
            at = self.walk(at);
            if at < self.len {
                return at;
            }
        }
    }

    fn walk(&self, at: usize) -> usize {
        let (mut row, mut column) = (at / self.columns, at % self.columns);
        for round in 0..6 {
            row = (row + scale(self.round(2 * round, column), self.rows)) % self.rows;
            column = (column + scale(self.round(2 * round + 1, row), self.columns)) % self.columns;
        }
        row * self.columns + column
    }

    fn round(&self, round: u64, half: usize) -> u64 {
        mix(self.seed ^ mix((half as u64) << 4 | round))
    }
}

/// 64 random bits as a number below `limit`.
fn scale(word: u64, limit: usize) -> usize {
    ((u128::from(word) * limit as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_takes_every_number_once() {
        for len in (1..70).chain([255, 256, 257, 1000, 4099]) {
            let permutation = Permutation::new(len as u64, len);
            let mut seen = vec![false; len];
            (0..len).for_each(|place| seen[permutation.get(place)] = true);
            assert!(seen.iter().all(|&seen| seen), "{len}");
        }
    }

    #[test]
    fn every_number_comes_to_every_place_about_as_often() {
        for len in [2, 3, 5, 8, 10, 17] {
            let seeds = 2000 * len;
            let mut count = vec![0usize; len * len];
            for seed in 0..seeds {
                let permutation = Permutation::new(mix(seed as u64), len);
                (0..len).for_each(|place| count[place * len + permutation.get(place)] += 1);
            }
            // Binomial with mean 2000 and deviation below 45.
            assert!(
                count.iter().all(|&c| c.abs_diff(2000) < 250),
                "{len}: {count:?}"
            );
        }
    }

    #[test]
    fn neighbours_do_not_stay_neighbours() {
        let permutation = Permutation::new(7, 10_000);
        let close = (1..10_000)
            .filter(|&place| permutation.get(place).abs_diff(permutation.get(place - 1)) <= 100)
            .count();
        // Two random numbers are that close in 2 % of the cases.
        assert!((120..280).contains(&close), "{close}");
    }

    #[test]
    fn seeds_differ_for_every_epoch_step_and_rank() {
        let mut seeds: Vec<u64> = (0..8000)
            .map(|i| seed_for(1, i / 400, i / 20 % 20, i % 20))
            .collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 8000);
        assert_ne!(seed_for(1, 2, 3, 4), seed_for(2, 2, 3, 4));
    }

    #[test]
    fn seeds_stay_the_same_from_version_to_version() {
        // A checkpoint holds the seed only: another mixing would resume another run.
        assert_eq!(Stream::new(0).next(), 0xE220_A839_7B1D_CDAF);
        assert_eq!(seed_for(42, 3, 141, 1), 17_906_344_951_724_937_800);
    }
}
