//! Blocks of a bucket and how many entries each may send.

use std::ops::Range;

/// A division of `0..len` into consecutive blocks, some possibly empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    bounds: Vec<u32>,
}

impl Partition {
    /// `blocks` nearly equal blocks: block `i` is `[i*len/blocks, (i+1)*len/blocks)`.
    ///
    /// A block is empty only when `len < blocks`.
    ///
    /// # Panics
    /// When `blocks` is 0: a world has at least one worker.
    pub fn even(len: u32, blocks: usize) -> Self {
        assert!(blocks > 0, "a partition has at least one block");
        let cut = |i: usize| (i as u64 * u64::from(len) / blocks as u64) as u32;
        Self {
            bounds: (0..=blocks).map(cut).collect(),
        }
    }

    /// Blocks between the given cuts, which must ascend and end at the bucket's length; the first block starts at 0.
    ///
    /// Returns `None` when the cuts do not ascend or do not end at `len`.
    pub fn from_cuts(len: u32, cuts: impl IntoIterator<Item = u32>) -> Option<Self> {
        let bounds: Vec<u32> = std::iter::once(0).chain(cuts).collect();
        let ascending = bounds.windows(2).all(|pair| pair[0] <= pair[1]);
        (ascending && bounds.len() > 1 && bounds.last() == Some(&len)).then_some(Self { bounds })
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.bounds.len() - 1
    }

    /// The length of the whole bucket.
    pub fn len(&self) -> u32 {
        self.bounds[self.blocks()]
    }

    /// Is the bucket empty?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where block `block` begins.
    pub fn start(&self, block: usize) -> u32 {
        self.bounds[block]
    }

    /// The length of block `block`.
    pub fn block_len(&self, block: usize) -> u32 {
        self.bounds[block + 1] - self.bounds[block]
    }

    /// The elements of block `block`.
    pub fn range(&self, block: usize) -> Range<usize> {
        self.bounds[block] as usize..self.bounds[block + 1] as usize
    }

    /// Entries per block for a total of `k`: `k / blocks` each, the remainder one by one from block `first` on,
    /// never more than a block is long; what does not fit goes to the next blocks with room.
    ///
    /// The sum is `min(k, len)`. Rotating `first` with the step keeps blocks from starving when `k < blocks`.
    pub fn quotas(&self, k: usize, first: usize) -> Vec<usize> {
        let blocks = self.blocks();
        let room = |i: usize| self.block_len(i) as usize;
        let extra = k % blocks;
        let mut quotas: Vec<usize> = (0..blocks)
            .map(|i| {
                let turn = (i + blocks - first % blocks) % blocks;
                (k / blocks + usize::from(turn < extra)).min(room(i))
            })
            .collect();
        let mut left = k.min(self.len() as usize) - quotas.iter().sum::<usize>();
        for i in (0..blocks).map(|turn| (first + turn) % blocks) {
            let add = left.min(room(i) - quotas[i]);
            quotas[i] += add;
            left -= add;
        }
        quotas
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_blocks_tile_the_bucket() {
        for len in [0, 1, 5, 7, 64, 1000, u32::MAX] {
            for blocks in 1..=64 {
                let partition = Partition::even(len, blocks);
                assert_eq!((partition.blocks(), partition.len()), (blocks, len));
                let total: u64 = (0..blocks).map(|b| u64::from(partition.block_len(b))).sum();
                assert_eq!(total, u64::from(len));
                assert!(len < blocks as u32 || (0..blocks).all(|b| partition.block_len(b) > 0));
            }
        }
    }

    #[test]
    fn quotas_add_up_fit_and_rotate() {
        for len in [0u32, 3, 7, 64, 100] {
            for blocks in 1..=16 {
                let partition = Partition::even(len, blocks);
                for k in [0, 1, 3, 7, 50, 64, 99, 100, 1000] {
                    for first in 0..blocks {
                        let quotas = partition.quotas(k, first);
                        assert_eq!(quotas.iter().sum::<usize>(), k.min(len as usize));
                        assert!((0..blocks).all(|b| quotas[b] <= partition.block_len(b) as usize));
                    }
                }
            }
        }
        let partition = Partition::even(100, 4);
        assert_eq!(partition.quotas(2, 3), [1, 0, 0, 1]);
    }

    #[test]
    fn cuts_must_ascend_and_end_at_the_length() {
        assert!(Partition::from_cuts(10, [3, 3, 10]).is_some());
        assert!(Partition::from_cuts(10, [4, 3, 10]).is_none());
        assert!(Partition::from_cuts(10, [4, 9]).is_none());
        assert!(Partition::from_cuts(0, []).is_none());
    }
}
