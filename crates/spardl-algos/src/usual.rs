//! What lists usually hold, for estimates: selections of workers that have nothing in common.

use spardl_core::{Codec, ValueType};

/// Which length of what travels a cost is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// The most that there can be, for bounds.
    Most,
    /// What there is as a rule, for estimates.
    Usual,
}

impl Length {
    /// Bytes of a list of at most `count` entries of a block.
    pub(crate) fn list(self, codec: Codec, block_len: u32, count: usize) -> usize {
        match self {
            Self::Most => codec.list_bound(block_len, count),
            Self::Usual => codec.usual_len(block_len, count),
        }
    }

    /// Bytes of a run of `count` values that nobody selected for their size.
    pub(crate) const fn run(self, values: ValueType, count: usize) -> usize {
        match self {
            Self::Most => values.encoded_len(count),
            Self::Usual => values.usual_dense_len(count),
        }
    }
}

/// Entries of the union of `workers` selections of `k` among `len`, drawn independently.
pub(crate) fn union(workers: u32, len: u32, k: usize) -> usize {
    let len = f64::from(len.max(1));
    let missed = (1.0 - (k as f64 / len).min(1.0)).powi(workers as i32);
    (len * (1.0 - missed)).round() as usize
}

/// Entries of each of `parts` selections among `len`, drawn independently, whose union has `whole`: the inverse of [`union`].
pub(crate) fn part_of_union(parts: usize, len: u32, whole: usize) -> usize {
    let covered = (whole as f64 / f64::from(len.max(1))).min(1.0);
    let part = 1.0 - (1.0 - covered).powf(1.0 / parts.max(1) as f64);
    let least = whole.div_ceil(parts.max(1));
    ((f64::from(len) * part).round() as usize).clamp(least, whole.max(least))
}

/// Bytes of a selection of `k` entries among `len` that is cut into a list for each other worker.
pub(crate) fn split_bytes(codec: Codec, workers: u32, len: u32, k: usize) -> u64 {
    let (peers, block) = (u64::from(workers) - 1, len.div_ceil(workers));
    let empty = codec.usual_len(block, 0) as u64;
    let each = k.div_ceil(workers as usize);
    let full = codec.usual_len(block, each) as u64;
    // With fewer entries than workers most lists are empty.
    let lists = peers.min(k as u64);
    lists * full + (peers - lists) * empty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_grows_to_the_whole_gradient() {
        assert_eq!(union(1, 1000, 10), 10);
        assert!((19..=20).contains(&union(2, 1000, 10)));
        assert_eq!(union(100_000, 1000, 10), 1000);
        assert_eq!(union(3, 0, 0), 0);
    }

    #[test]
    fn a_part_of_a_union_is_at_least_its_share_and_makes_it_up() {
        assert_eq!(part_of_union(1, 1000, 300), 300);
        assert_eq!(part_of_union(4, 1_000_000, 400), 100);
        let part = part_of_union(8, 100_000, 50_000);
        assert!(part > 50_000 / 8, "{part}");
        assert!(union(8, 100_000, part).abs_diff(50_000) < 10);
        assert_eq!(part_of_union(4, 100, 100), 100);
        assert_eq!(part_of_union(3, 0, 0), 0);
    }
}
