//! The q-th largest magnitude of a list, by counting around where it was the last time.

use std::ops::Range;

use spardl_kernels::Level;

use crate::list::magnitude;

/// The magnitude bits that the `quota` largest entries reach, and what to do about ties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limit {
    /// The magnitude bits of the `quota`-th largest entry.
    pub(super) bits: u32,
    /// How many entries of exactly that magnitude are too many.
    pub(super) excess: usize,
}

/// How far, in units in the last place, the limit is looked for around the guess: about 1.5 % each way. When it is not there, the
/// search moves on with a longer reach, a few times.
const REACH: u32 = 1 << 17;
const TRIES: usize = 4;

/// Up to so many values are put in order: to count again and again takes longer.
const SHORT: usize = 64;

/// How many values of an array are looked at for a guess.
const SAMPLE: usize = 4096;

/// Finds limits.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    close: Vec<u32>,
}

impl Ranks {
    /// The limit of the `quota >= 1` largest of the values; `None` when there are fewer. `guess` is about where it may be (0 when
    /// nothing is known): a good one spares most of the work and never changes the result.
    pub(super) fn limit(
        &mut self,
        kernels: Level,
        values: &[f32],
        quota: usize,
        guess: f32,
    ) -> Option<Limit> {
        if values.len() < quota {
            return None;
        }
        if values.len() <= SHORT {
            return Some(self.of_short(values, quota));
        }
        let guess = magnitude(guess);
        let mut reach = REACH;
        let (mut low, mut high) = (guess.saturating_sub(reach), guess.saturating_add(reach));
        for _ in 0..TRIES {
            self.close.clear();
            let above = spardl_kernels::keys_between(kernels, values, low, high, &mut self.close);
            reach *= 4;
            if above >= quota {
                (low, high) = (high, high.saturating_add(reach));
            } else if above + self.close.len() >= quota {
                return Some(self.among_close(kernels, low..high, quota, above));
            } else {
                (low, high) = (low.saturating_sub(reach), low);
            }
        }
        self.close.clear();
        self.close
            .extend(values.iter().map(|&value| magnitude(value)));
        Some(self.among_close(kernels, 0..1 << 31, quota, 0))
    }

    /// [`Ranks::limit`] of an array that is far longer than a sample of it, which makes the guess.
    pub(super) fn limit_of_array(
        &mut self,
        kernels: Level,
        values: &[f32],
        quota: usize,
    ) -> Option<Limit> {
        if values.len() < quota || values.len() < 16 * SAMPLE {
            return self.limit(kernels, values, quota, 0.0);
        }
        let (low, high) = self.sampled(values, quota);
        self.close.clear();
        let above = spardl_kernels::keys_between(kernels, values, low, high, &mut self.close);
        if above < quota && above + self.close.len() >= quota {
            return Some(self.among_close(kernels, low..high, quota, above));
        }
        self.limit(kernels, values, quota, f32::from_bits(low))
    }

    /// Magnitude bits between which the limit most probably is, from a sample at fixed positions.
    fn sampled(&mut self, values: &[f32], quota: usize) -> (u32, u32) {
        // An odd stride, so that periodic structure does not alias.
        let stride = (values.len() / SAMPLE) | 1;
        self.close.clear();
        let sample = values.iter().step_by(stride);
        self.close.extend(sample.map(|&value| magnitude(value)));
        let count = self.close.len();
        let part = quota as f64 / values.len() as f64;
        let rank = part * count as f64;
        // Four standard deviations each way.
        let reach = 4.0 * (rank * (1.0 - part)).sqrt() + 2.0;
        let mut key = |rank: f64| match rank {
            rank if rank < 1.0 => 1 << 31,
            rank if rank >= count as f64 => 0,
            rank => *self.close.select_nth_unstable(count - rank as usize).1,
        };
        let (low, high) = (key(rank + reach), key(rank - reach));
        (low, high.max(low))
    }

    fn of_short(&mut self, values: &[f32], quota: usize) -> Limit {
        self.close.clear();
        let keys = values.iter().map(|&value| magnitude(value));
        self.close.extend(keys);
        let at = values.len() - quota;
        let (below, &mut bits, _) = self.close.select_nth_unstable(at);
        let excess = below.iter().filter(|&&key| key == bits).count();
        Limit { bits, excess }
    }

    /// The limit when `above` values exceed those in `close`, which lie in `range`.
    ///
    /// Bisects the range: to count keys takes so much less than to move them that this is several times as fast as a quick-select.
    fn among_close(&self, kernels: Level, range: Range<u32>, quota: usize, above: usize) -> Limit {
        // The bits of a magnitude are those of a value without a sign.
        let keys: &[f32] = bytemuck::cast_slice(&self.close);
        let reach = |bits| above + spardl_kernels::count_at_least(kernels, keys, bits);
        // Always: at least `quota` reach `bits`, and fewer than that reach `next`.
        let (mut bits, mut next) = (range.start, range.end);
        let mut reached = above + keys.len();
        while next - bits > 1 {
            let middle = bits + (next - bits) / 2;
            let count = reach(middle);
            if count >= quota {
                (bits, reached) = (middle, count);
            } else {
                next = middle;
            }
        }
        let excess = reached - quota;
        Limit { bits, excess }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_that_of_a_sort_whatever_the_guess() {
        let values: Vec<f32> = (0..3000u32)
            .map(|i| ((i.wrapping_mul(2_654_435_761) >> 20) as f32 - 2000.0) * 0.37)
            .collect();
        let mut sorted: Vec<u32> = values.iter().map(|&v| magnitude(v)).collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let mut ranks = Ranks::default();
        for quota in [1, 2, 17, 500, 2999, 3000] {
            let exact = f32::from_bits(sorted[quota - 1]);
            for guess in [
                0.0,
                0.001,
                50.0,
                1e9,
                f32::MAX,
                exact,
                exact * 1.01,
                exact * 0.97,
            ] {
                let limit = ranks
                    .limit(Level::best(), &values, quota, guess)
                    .expect("enough");
                assert_eq!(limit.bits, sorted[quota - 1]);
                let reached = sorted.iter().filter(|&&key| key >= limit.bits).count();
                assert_eq!(limit.excess, reached - quota);
            }
        }
        assert_eq!(ranks.limit(Level::best(), &values, 3001, 1.0), None);
    }

    #[test]
    fn the_limit_of_an_array_is_that_of_a_sort_also_where_the_sample_misleads() {
        let spread = |i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32;
        let len = 20 * SAMPLE as u32;
        let stride = (len / SAMPLE as u32) | 1;
        let sampled = |i: u32| {
            if i.is_multiple_of(stride) {
                1e9
            } else {
                spread(i)
            }
        };
        let mut ranks = Ranks::default();
        for values in [
            (0..len).map(spread).collect::<Vec<_>>(),
            (0..len).map(sampled).collect(),
            vec![2.5; len as usize],
        ] {
            let mut sorted: Vec<u32> = values.iter().map(|&v| magnitude(v)).collect();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            for quota in [1, 77, 5000, 24_000, values.len() - 1, values.len()] {
                let limit = ranks.limit_of_array(Level::best(), &values, quota).unwrap();
                assert_eq!(limit.bits, sorted[quota - 1]);
                let reached = sorted.iter().filter(|&&key| key >= limit.bits).count();
                assert_eq!(limit.excess, reached - quota);
            }
        }
        let none = ranks.limit_of_array(Level::best(), &[1.0], 2);
        assert_eq!(none, None);
    }

    #[test]
    fn the_limit_of_a_short_list_counts_its_ties() {
        let mut ranks = Ranks::default();
        let values = [2.0, -1.0, 1.0, 0.0, 1.0, -3.0];
        for (quota, value, excess) in [
            (1, 3.0, 0),
            (2, 2.0, 0),
            (3, 1.0, 2),
            (5, 1.0, 0),
            (6, 0.0, 0),
        ] {
            let bits = magnitude(value);
            let limit = ranks.limit(Level::best(), &values, quota, 0.0);
            assert_eq!(limit, Some(Limit { bits, excess }));
        }
    }
}
