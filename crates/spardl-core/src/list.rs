//! Arithmetic on ascending lists of entries: sums and splits.

use spardl_kernels::Candidates as Entries;

use crate::codec::ValueType;

/// The sum of two lists on the union of their indices. Both orders of the arguments give the same bits.
///
/// Sums that cancel to zero stay in the list; [`split_top`] never keeps them.
pub fn sum(a: &Entries, b: &Entries) -> Entries {
    let mut out = Entries::default();
    out.reserve(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a.indices[i], b.indices[j]);
        out.indices.push(x.min(y));
        out.values.push(match x.cmp(&y) {
            std::cmp::Ordering::Less => a.values[i],
            std::cmp::Ordering::Equal => a.values[i] + b.values[j],
            std::cmp::Ordering::Greater => b.values[j],
        });
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    out.indices.extend_from_slice(&a.indices[i..]);
    out.values.extend_from_slice(&a.values[i..]);
    out.indices.extend_from_slice(&b.indices[j..]);
    out.values.extend_from_slice(&b.values[j..]);
    out
}

/// Splits a list into its `quota` largest entries, rounded to what a receiver sees, and what is left: the other entries and
/// the rounding errors. Zeros are in neither. Ties go to the lower index.
pub fn split_top(list: &Entries, quota: usize, values: ValueType) -> (Entries, Entries) {
    let limit = nth_magnitude(list, quota);
    let above = list
        .values
        .iter()
        .filter(|v| magnitude(**v) > limit)
        .count();
    let mut ties = quota - above.min(quota);
    let (mut kept, mut left) = (Entries::default(), Entries::default());
    kept.reserve(quota.min(list.len()));
    for (&index, &value) in list.indices.iter().zip(&list.values) {
        let key = magnitude(value);
        let keep = key > limit || (key == limit && ties > 0);
        ties -= usize::from(key == limit && keep);
        let wire = if keep { values.round(value) } else { 0.0 };
        if wire != 0.0 {
            kept.indices.push(index);
            kept.values.push(wire);
        }
        // An infinite sum leaves no error behind: inf - inf would put NaN into a residual.
        let error = if wire.is_finite() { value - wire } else { 0.0 };
        if error != 0.0 {
            left.indices.push(index);
            left.values.push(error);
        }
    }
    (kept, left)
}

/// The magnitude bits of the `quota`-th largest entry; the largest there is when `quota` is 0, 0 when there are fewer.
pub fn nth_magnitude(list: &Entries, quota: usize) -> u32 {
    if quota == 0 {
        return u32::MAX;
    }
    let Some(rank) = list.len().checked_sub(quota) else {
        return 0;
    };
    let mut keys: Vec<u32> = list.values.iter().map(|&value| magnitude(value)).collect();
    *keys.select_nth_unstable(rank).1
}

/// The magnitude of a value as an integer that orders like it, with NaN on top.
pub const fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u32, f32)]) -> Entries {
        Entries {
            indices: entries.iter().map(|e| e.0).collect(),
            values: entries.iter().map(|e| e.1).collect(),
        }
    }

    #[test]
    fn a_sum_covers_the_union_once() {
        let a = list(&[(1, 1.0), (3, 2.0), (9, -4.0)]);
        let b = list(&[(0, 5.0), (3, -2.0), (4, 1.0)]);
        let expected = list(&[(0, 5.0), (1, 1.0), (3, 0.0), (4, 1.0), (9, -4.0)]);
        assert_eq!(sum(&a, &b), expected);
        assert_eq!(sum(&b, &a), expected);
    }

    #[test]
    fn a_split_keeps_the_largest_prefers_low_indices_and_drops_zeros() {
        let all = list(&[(0, 1.0), (2, -3.0), (5, 0.0), (6, 3.0), (7, 3.0)]);
        let (kept, left) = split_top(&all, 2, ValueType::F32);
        assert_eq!(kept, list(&[(2, -3.0), (6, 3.0)]));
        assert_eq!(left, list(&[(0, 1.0), (7, 3.0)]));
        let (kept, left) = split_top(&all, 9, ValueType::F32);
        assert_eq!((kept.len(), left.len()), (4, 0));
        let (kept, left) = split_top(&all, 0, ValueType::F32);
        assert_eq!((kept.len(), left.len()), (0, 4));
    }

    #[test]
    fn rounding_errors_are_left_behind_exactly() {
        let all = list(&[(0, 1.000_1), (1, 0.5)]);
        let (kept, left) = split_top(&all, 2, ValueType::Bf16);
        assert_eq!(kept.values, [1.0, 0.5]);
        assert_eq!(left.indices, [0]);
        assert_eq!(kept.values[0] + left.values[0], 1.000_1);
    }
}
