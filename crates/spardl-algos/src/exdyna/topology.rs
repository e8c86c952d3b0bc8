//! Which blocks make up which partition: block-based partitioning and its dynamic adjustment.

use std::ops::Range;

use spardl_core::{ConfigError, Partition};

/// A partition is heavy above 105 / 100 of the average share and light below 100 / 105 (authors' gradient_reducers.py).
const HEAVY: u128 = 105;
const AVERAGE: u128 = 100;
/// A partition keeps at least this part of its initial blocks (authors' gradient_reducers.py:711).
const LEAST_PART: u128 = 4;

/// A bucket as many small blocks, and partitions of consecutive blocks, one for each worker. The same on all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Topology {
    blocks: Partition,
    /// Partition `p` has the blocks `cuts[p]..cuts[p + 1]`.
    cuts: Vec<usize>,
}

impl Topology {
    /// `partitions` partitions of a bucket of `len` elements in about `blocks` blocks: at least one block for each
    /// partition, no empty ones. Partitions are empty only when `len < partitions`.
    pub(super) fn new(len: u32, partitions: usize, blocks: usize) -> Self {
        let blocks = blocks.max(partitions).min(len as usize).max(1);
        let (each, extra) = (blocks / partitions, blocks % partitions);
        Self {
            blocks: Partition::even(len, blocks),
            cuts: (0..=partitions).map(|p| p * each + p.min(extra)).collect(),
        }
    }

    /// How many partitions there are: as many as workers.
    pub(super) fn partitions(&self) -> usize {
        self.cuts.len() - 1
    }

    /// The elements of partition `p`.
    pub(super) fn range(&self, p: usize) -> Range<usize> {
        let (first, end) = (self.cuts[p], self.cuts[p + 1]);
        self.blocks.start(first) as usize..self.blocks.start(end) as usize
    }

    /// Moves blocks from heavy partitions to light direct neighbours, at most one over each border. `counts[p]` is what
    /// partition `p` yielded in the last step.
    pub(super) fn adjust(&mut self, counts: &[u64]) {
        let size = self.partitions();
        let total: u64 = counts.iter().sum();
        let moved = total / self.blocks.blocks() as u64;
        let share = |count: u64| u128::from(count) * size as u128;
        let heavy = |count: u64| share(count) * AVERAGE > u128::from(total) * HEAVY;
        let light = |count: u64| share(count) * HEAVY < u128::from(total) * AVERAGE;
        let mut counts = counts.to_vec();
        for p in 0..size - 1 {
            let (here, next) = (counts[p], counts[p + 1]);
            if heavy(here) && light(next) && self.can_give(p) {
                self.cuts[p + 1] -= 1;
                counts[p] = here.saturating_sub(moved);
                counts[p + 1] = next + moved;
            } else if light(here) && heavy(next) && self.can_give(p + 1) {
                self.cuts[p + 1] += 1;
                counts[p] = here + moved;
                counts[p + 1] = next.saturating_sub(moved);
            }
        }
    }

    /// Would partition `p` still have its minimum with one block less?
    fn can_give(&self, p: usize) -> bool {
        let left = (self.cuts[p + 1] - self.cuts[p]).saturating_sub(1) as u128;
        left >= 1 && left * LEAST_PART * self.partitions() as u128 >= self.blocks.blocks() as u128
    }

    pub(super) fn save(&self) -> Vec<u64> {
        self.cuts.iter().map(|&cut| cut as u64).collect()
    }

    pub(super) fn load(&mut self, cuts: &[u64]) -> Result<(), ConfigError> {
        let fits = cuts.len() == self.cuts.len()
            && cuts[0] == 0
            && cuts.is_sorted()
            && cuts.last() == Some(&(self.blocks.blocks() as u64));
        if !fits {
            return Err(ConfigError::StateMismatch {
                what: "cuts".to_owned(),
                expected: format!("{:?}", self.save()),
                got: format!("{cuts:?}"),
            });
        }
        self.cuts = cuts.iter().map(|&cut| cut as usize).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partitions tile the bucket, blocks add up, and each partition keeps its minimum.
    fn check(topology: &Topology, len: u32, partitions: usize) {
        assert_eq!(topology.partitions(), partitions);
        let mut at = 0;
        for p in 0..partitions {
            let range = topology.range(p);
            assert_eq!(range.start, at);
            at = range.end;
            let blocks = topology.cuts[p + 1] - topology.cuts[p];
            assert!(blocks * 4 * partitions + 4 * partitions > topology.blocks.blocks());
            assert!(blocks > 0 || (len as usize) < partitions);
        }
        assert_eq!(at, len as usize);
        assert_eq!(*topology.cuts.last().unwrap(), topology.blocks.blocks());
    }

    #[test]
    fn partitions_tile_the_bucket_for_any_length_and_number_of_workers() {
        for len in [0, 1, 5, 97, 1000, 32_767, 100_000] {
            for partitions in (1..=40).chain([256, 257, 300, 1500]) {
                for blocks in [1, 7, 1024] {
                    check(&Topology::new(len, partitions, blocks), len, partitions);
                }
            }
        }
    }

    #[test]
    fn adjusting_keeps_the_tiling_and_evens_out_the_counts() {
        for (partitions, len, blocks) in [(8, 1 << 20, 1024), (64, 1 << 20, 1024), (3, 50, 1024)] {
            // Heavy and light eighths alternate: with 8 partitions each heavy one has a light neighbour.
            let eighth = |i: usize| i * 8 / len as usize;
            let density = |i: usize| if eighth(i).is_multiple_of(2) { 3 } else { 1 };
            let mut topology = Topology::new(len, partitions, blocks);
            let count = |topology: &Topology| -> Vec<u64> {
                let sum = |p| topology.range(p).map(density).sum::<u64>() / 16;
                (0..partitions).map(sum).collect()
            };
            let imbalance = |counts: &[u64]| {
                let total: u64 = counts.iter().sum();
                *counts.iter().max().unwrap() as f64 * partitions as f64 / total as f64
            };
            let before = imbalance(&count(&topology));
            for _ in 0..2000 {
                topology.adjust(&count(&topology));
                check(&topology, len, partitions);
            }
            let after = imbalance(&count(&topology));
            assert!(after <= before, "{before} -> {after}");
            assert!(partitions != 8 || after < 1.3, "{before} -> {after}");
        }
    }

    #[test]
    fn a_foreign_state_is_refused() {
        let mut topology = Topology::new(1000, 4, 1024);
        let saved = topology.save();
        topology.adjust(&[100, 0, 100, 0]);
        assert_ne!(topology.save(), saved);
        assert!(topology.load(&[0, 1, 2, 1000]).is_err());
        assert!(topology.load(&[0, 5, 4, 6, 1000]).is_err());
        topology.load(&saved).unwrap();
        assert_eq!(topology, Topology::new(1000, 4, 1024));
    }
}
