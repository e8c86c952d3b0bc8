//! The q-th largest magnitude of a list, by counting.

use crate::list::magnitude;

/// Counters: magnitudes are counted by their distance from the floor in steps of `2^SHIFT` units in the last place (eight
/// octaves in all; larger ones share the last counter).
const COUNTERS: usize = 4096;
const SHIFT: u32 = 14;

/// How the magnitudes of a list are ranked.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    counts: Box<[u32; COUNTERS]>,
    others: Box<[u32; COUNTERS]>,
    lowest: u32,
    shift: u32,
    close: Vec<u32>,
}

/// The magnitude bits that the `quota` largest entries reach, and what to do about ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// The magnitude bits of the `quota`-th largest entry.
    pub(super) bits: u32,
    /// How many entries of exactly that magnitude belong to the `quota` largest.
    pub(super) ties: usize,
    /// Are there more of them than that?
    pub(super) contested: bool,
}

impl Default for Ranks {
    fn default() -> Self {
        Self {
            counts: Box::new([0; COUNTERS]),
            others: Box::new([0; COUNTERS]),
            lowest: 0,
            shift: SHIFT,
            close: Vec::new(),
        }
    }
}

impl Ranks {
    /// Counts the magnitudes of a list most of which are at least `floor`.
    pub(super) fn count(&mut self, values: &[f32], floor: f32) {
        self.lowest = magnitude(floor);
        // Without a floor all magnitudes have to fit.
        self.shift = if self.lowest == 0 {
            31 - COUNTERS.trailing_zeros()
        } else {
            SHIFT
        };
        self.counts.fill(0);
        // Two sets of counters take turns, since an increment right after another of the same counter has to wait for it.
        self.others.fill(0);
        let (pairs, last) = values.as_chunks::<2>();
        for &[a, b] in pairs {
            let (a, b) = (self.counter(magnitude(a)), self.counter(magnitude(b)));
            self.counts[a] += 1;
            self.others[b] += 1;
        }
        for &value in last {
            let counter = self.counter(magnitude(value));
            self.counts[counter] += 1;
        }
        self.counts
            .iter_mut()
            .zip(self.others.iter())
            .for_each(|(count, other)| *count += other);
    }

    fn counter(&self, key: u32) -> usize {
        ((key.saturating_sub(self.lowest) >> self.shift) as usize).min(COUNTERS - 1)
    }

    /// The counter that the `quota`-th largest falls into, and how many entries fall into higher ones.
    fn find(&self, quota: usize) -> Option<(usize, usize)> {
        let mut above = 0;
        for (counter, &count) in self.counts.iter().enumerate().rev() {
            if above + count as usize >= quota {
                return Some((counter, above));
            }
            above += count as usize;
        }
        None
    }

    /// The limit of the `quota >= 1` largest of the values that were counted; `None` when there are fewer.
    pub(super) fn limit(&mut self, values: &[f32], quota: usize) -> Option<Limit> {
        let (counter, above) = self.find(quota)?;
        let mut close = std::mem::take(&mut self.close);
        close.clear();
        let keys = values.iter().map(|&value| magnitude(value));
        close.extend(keys.filter(|&key| self.counter(key) == counter));
        let at = close.len() - (quota - above);
        let bits = *close.select_nth_unstable(at).1;
        let equal = close.iter().filter(|&&key| key == bits).count();
        let larger = above + close.iter().filter(|&&key| key > bits).count();
        let ties = quota - larger;
        self.close = close;
        Some(Limit {
            bits,
            ties,
            contested: equal > ties,
        })
    }

    /// A magnitude that about the `wanted` largest of the values reach, never one that fewer do; 0 when there are fewer.
    pub(super) fn roughly(&self, wanted: usize) -> f32 {
        let counter = self.find(wanted).map_or(0, |(counter, _)| counter);
        match counter {
            0 => 0.0,
            counter => f32::from_bits(self.lowest + ((counter as u32) << self.shift)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_that_of_a_sort_with_and_without_a_floor() {
        let values: Vec<f32> = (0..3000u32)
            .map(|i| ((i.wrapping_mul(2_654_435_761) >> 20) as f32 - 2000.0) * 0.37)
            .collect();
        let mut sorted: Vec<u32> = values.iter().map(|&v| magnitude(v)).collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        for floor in [0.0, 0.001, 50.0, 1e9] {
            let mut ranks = Ranks::default();
            ranks.count(&values, floor);
            for quota in [1, 2, 17, 500, 2999, 3000] {
                let limit = ranks.limit(&values, quota).expect("enough values");
                assert_eq!(limit.bits, sorted[quota - 1]);
                let larger = sorted.iter().filter(|&&key| key > limit.bits).count();
                let equal = sorted.iter().filter(|&&key| key == limit.bits).count();
                assert_eq!(limit.ties, quota - larger);
                assert_eq!(limit.contested, larger + equal > quota);
                let reached = magnitude(ranks.roughly(quota));
                assert!(sorted.iter().filter(|&&key| key >= reached).count() >= quota);
            }
            assert_eq!(ranks.limit(&values, 3001), None);
            assert_eq!(ranks.roughly(3001), 0.0);
        }
    }
}
