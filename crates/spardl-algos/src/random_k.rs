//! Random-k: the same random elements on all workers, summed. A reference that selects nothing.
//!
//! The idea (Stich et al., "Sparsified SGD with Memory", 2018): draw k indices from a common seed and the number of the step, so
//! that all workers have the same ones without a message; add the values there by a dense all-reduce of k elements and
//! clear them in the residual (rule M, "shared mask"). Every element waits n/k steps on average.
//!
//! Words: the *draw* is a permutation of the indices, keyed by (seed, step); its first k images are the indices of the step.
//!
//! Example, 5 workers, n = 3, k = 1, inputs (0 3 1), (0 2 1), (4 0 1), (0 2 0), (1 0 5): if the draw is index 1, the update is
//! {1:7} and every worker keeps the rest: (0 0 1), (0 0 1), (4 0 1), (0 0 0), (1 0 5).
//!
//! Rounds: 2 ceil(log2 P). Bytes: 2 k (P - 1)/P values per worker; no index ever travels.
//!
//! Limitations: large and small elements wait equally long, so much more stays in the residuals than with top-k at the same k.
//!
//! Differs from common code: exactly min(k, n) indices without repetition, from a generator of our own that has the same bits on
//! every machine (torch's differ between versions and devices); no scaling by n/k, because the residual delivers the rest
//! later. With bf16 values the worker that rounds a partial sum keeps the error.

use spardl_core::schedule::ceil_log2;
use spardl_core::{
    Algorithm, ConfigError, Cost, Estimate, Feedback, Input, Laws, Layout, Machine, MethodStats,
    ProtocolError, Received, Round, Support, ValueType, World,
};

use crate::Options;
use crate::mask::{self, Agree, AgreeCost, Masked};
use crate::registry::Entry;
use crate::splitmix::{mix, number};
use crate::usual::Length;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "random-k",
    summary: "k elements drawn from a common seed, summed over all workers",
    options: &[("seed", "a number (0): another seed draws other elements")],
    source: include_str!("random_k.rs"),
    variants: |_| Options::variants(&[&[("seed", "7")]]),
    build: |options| Ok(Box::new(RandomK::from_options(options)?)),
};

/// All-reduce of elements drawn from a common seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct RandomK {
    /// How values travel.
    pub values: ValueType,
    /// Another seed draws other elements; equal on all workers.
    pub seed: u64,
}

impl RandomK {
    /// Random-k with the options that concern it.
    ///
    /// # Errors
    /// When `seed` is not a number.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        let expected = "a whole number from 0 on";
        let seed = options.parsed("random-k", "seed", 0, expected, |seed| seed.parse().ok())?;
        Ok(Self {
            values: options.codec.values,
            seed,
        })
    }
}

impl RandomK {
    /// What a step costs with runs of this length.
    fn cost_of(&self, length: Length, workers: u32, layout: &Layout, k: usize) -> Cost {
        let nothing = AgreeCost {
            rounds: 0..=0,
            body_bytes: 0,
        };
        let most = k.min(layout.len() as usize);
        mask::cost(length, nothing, workers, most, self.values)
    }
}

impl Algorithm for RandomK {
    fn name(&self) -> &'static str {
        "random-k"
    }

    fn describe(&self) -> String {
        format!("random-k seed={} values={}", self.seed, self.values)
    }

    fn value_type(&self) -> ValueType {
        self.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let agree = Drawn {
            seed: self.seed,
            indices: Vec::new(),
            selected: 0,
        };
        Ok(Box::new(Masked::new(
            world,
            layout.len(),
            self.values,
            agree,
        )))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        self.cost_of(Length::Most, workers, layout, k)
    }

    fn estimate(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Estimate {
        self.cost_of(Length::Usual, workers, layout, k).into()
    }

    fn laws(&self) -> Laws {
        Laws {
            support: Support::K,
            ..Laws::default()
        }
    }
}

/// Agreement without a message: everybody draws the same indices.
#[derive(Debug)]
struct Drawn {
    seed: u64,
    indices: Vec<u32>,
    selected: u64,
}

impl Agree for Drawn {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        feedback.load(input.gradient);
        self.indices = draw(self.seed, input.step, input.k, feedback.len() as u32);
        self.selected = self.indices.len() as u64;
    }

    fn round(&mut self, _: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        Ok(None)
    }

    fn absorb(&mut self, _: Received<'_>) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn agreed(&mut self) -> Result<Vec<u32>, ProtocolError> {
        Ok(std::mem::take(&mut self.indices))
    }

    fn stats(&self) -> MethodStats {
        MethodStats {
            selected: self.selected,
            ..MethodStats::default()
        }
    }
}

/// The indices of a step: `min(k, len)` of them, ascending.
fn draw(seed: u64, step: u64, k: usize, len: u32) -> Vec<u32> {
    if k >= len as usize {
        return (0..len).collect();
    }
    let permutation = Permutation::new(seed, step, len);
    let images = (0..k as u32).map(|i| permutation.image(i)).collect();
    mask::union(&[images], len)
}

/// A permutation of `0..len`, keyed by two numbers.
///
/// Each round (multiply by an odd number, add, fold the upper half of the bits into the lower) is a permutation of the next power
/// of two; an image outside `0..len` is permuted again until it is inside, on average less than once.
#[derive(Debug)]
struct Permutation {
    len: u32,
    bits: u32,
    rounds: [(u64, u64); 4],
}

impl Permutation {
    fn new(seed: u64, step: u64, len: u32) -> Self {
        let key = number(mix(seed), step);
        let mut numbers = (0..).map(|i| number(key, i));
        let mut next = || numbers.next().expect("the sequence has no end");
        Self {
            len,
            bits: ceil_log2(len as usize),
            rounds: std::array::from_fn(|_| (next() | 1, next())),
        }
    }

    fn image(&self, mut x: u32) -> u32 {
        loop {
            x = self.permute(u64::from(x)) as u32;
            if x < self.len {
                return x;
            }
        }
    }

    fn permute(&self, x: u64) -> u64 {
        let inside = (1 << self.bits) - 1;
        self.rounds.iter().fold(x, |x, &(factor, shift)| {
            let x = x.wrapping_mul(factor).wrapping_add(shift) & inside;
            x ^ (x >> self.bits.div_ceil(2).max(1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_has_exactly_k_ascending_indices_for_every_size() {
        for len in (0..70).chain([1000, 1 << 16, (1 << 16) + 1, 4_000_000_000]) {
            for k in [0, 1, 2, 7, 35, 64, 999] {
                if len > 1 << 20 && k > 7 {
                    continue;
                }
                let drawn = if len > 1 << 20 {
                    let permutation = Permutation::new(3, 4, len);
                    let mut images: Vec<u32> =
                        (0..k as u32).map(|i| permutation.image(i)).collect();
                    images.sort_unstable();
                    images
                } else {
                    draw(3, 4, k, len)
                };
                assert_eq!(drawn.len(), k.min(len as usize), "{k} of {len}");
                assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]));
                assert!(drawn.last().is_none_or(|&last| last < len));
            }
        }
    }

    #[test]
    fn steps_and_seeds_draw_other_indices_and_the_same_ones_again() {
        assert_eq!(draw(1, 2, 50, 1000), draw(1, 2, 50, 1000));
        assert_ne!(draw(1, 2, 50, 1000), draw(1, 3, 50, 1000));
        assert_ne!(draw(1, 2, 50, 1000), draw(2, 2, 50, 1000));
        assert_ne!(draw(1, 2, 50, 1000), draw(2, 1, 50, 1000));
    }

    #[test]
    fn every_index_and_every_pair_of_neighbours_is_drawn_as_often_as_chance_says() {
        const STEPS: u64 = 20_000;
        for (len, k) in [(100u32, 10), (128, 16), (37, 9)] {
            let (mut single, mut pairs) = (vec![0u64; len as usize], 0u64);
            for step in 0..STEPS {
                let drawn = draw(7, step, k, len);
                drawn.iter().for_each(|&i| single[i as usize] += 1);
                pairs += drawn
                    .windows(2)
                    .filter(|pair| pair[1] == pair[0] + 1)
                    .count() as u64;
            }
            let p = k as f64 / f64::from(len);
            let (mean, deviation) = (STEPS as f64 * p, (STEPS as f64 * p * (1.0 - p)).sqrt());
            for (index, &count) in single.iter().enumerate() {
                let off = (count as f64 - mean) / deviation;
                assert!(
                    off.abs() < 5.0,
                    "index {index} of {len}: {count}, {off:.1} deviations"
                );
            }
            let expected = STEPS as f64 * p * (k as f64 - 1.0);
            let off = pairs as f64 / expected - 1.0;
            assert!(off.abs() < 0.05, "neighbours of {len}: {off:.3}");
        }
    }
}
