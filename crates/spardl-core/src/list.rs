//! Arithmetic on ascending lists of entries: sums and splits.

use std::ops::Range;

use spardl_kernels::{Entries, Level};

use crate::codec::ValueType;
use crate::sparse::SparseVec;

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

/// The sum of many lists of indices below `len`, each index summed in the order of the lists.
///
/// Works through the index range in windows that fit the cache, so the cost is linear in the entries. Sums that cancel to
/// zero stay in the list.
pub fn sum_all(lists: &[Entries], len: u32) -> Entries {
    const WINDOW: usize = 1 << 15;
    let total: usize = lists.iter().map(Entries::len).sum();
    let mut out = Entries::default();
    out.reserve(total.min(len as usize));
    let mut at = vec![0; lists.len()];
    let mut sums = vec![0.0f32; WINDOW.min(len as usize)];
    let mut touched = vec![0u64; WINDOW / 64];
    let starts = (0..len).step_by(WINDOW).take_while(|_| total > 0);
    for start in starts {
        let end = u64::from(start) + WINDOW as u64;
        for (list, at) in lists.iter().zip(&mut at) {
            while *at < list.len() && u64::from(list.indices[*at]) < end {
                let slot = (list.indices[*at] - start) as usize;
                let bit = 1 << (slot % 64);
                // The first value is stored, not added: -0.0 + x and 0.0 + x may differ in a sign.
                let fresh = touched[slot / 64] & bit == 0;
                sums[slot] = if fresh {
                    list.values[*at]
                } else {
                    sums[slot] + list.values[*at]
                };
                touched[slot / 64] |= bit;
                *at += 1;
            }
        }
        for (word, bits) in touched.iter_mut().enumerate() {
            let mut rest = std::mem::take(bits);
            while rest != 0 {
                let slot = word * 64 + rest.trailing_zeros() as usize;
                out.indices.push(start + slot as u32);
                out.values.push(sums[slot]);
                rest &= rest - 1;
            }
        }
    }
    out
}

/// A list of sums as an update of a bucket of `len` elements: zeros are dropped.
///
/// # Panics
/// When the list does not ascend below `len`; the lists of this module do.
pub fn into_update(mut list: Entries, len: u32) -> SparseVec {
    drop_zeros(&mut list, 0);
    SparseVec::from_parts(len, list.indices, list.values)
        .expect("an ascending list below the length")
}

/// The part of a list with indices in `range`.
pub fn within(list: &Entries, range: Range<usize>) -> (&[u32], &[f32]) {
    let start = list
        .indices
        .partition_point(|&i| (i as usize) < range.start);
    let end = list.indices.partition_point(|&i| (i as usize) < range.end);
    (&list.indices[start..end], &list.values[start..end])
}

/// Splits a list into its `quota` largest entries, as their receivers will see them, and what is left: the other entries and
/// the errors. Zeros are in neither. Ties go to the lower index.
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
        if key > 0 {
            let part = if keep { &mut kept } else { &mut left };
            part.indices.push(index);
            part.values.push(value);
        }
    }
    let mut errors = Entries::default();
    quantise(values, &mut kept, &mut errors);
    if !errors.is_empty() {
        left = sum(&left, &errors);
    }
    (kept, left)
}

/// Makes a list what its receivers will see and appends what that takes from its entries to `errors`. An entry that would be
/// seen as zero leaves the list and is an error as a whole.
pub fn quantise(values: ValueType, list: &mut Entries, errors: &mut Entries) {
    if values.is_exact() {
        return;
    }
    let mut rests = vec![0.0; list.len()];
    values.quantise(&mut list.values, &mut rests);
    for (&index, &rest) in list.indices.iter().zip(&rests) {
        if rest != 0.0 {
            errors.indices.push(index);
            errors.values.push(rest);
        }
    }
    drop_zeros(list, 0);
}

/// The part of a list with indices in `range`, as its receivers will see it; what that takes is appended to `errors`.
pub fn cut(
    list: &Entries,
    range: Range<usize>,
    values: ValueType,
    errors: &mut Entries,
) -> Entries {
    let (indices, whole) = within(list, range);
    let mut part = Entries {
        indices: indices.to_vec(),
        values: whole.to_vec(),
    };
    quantise(values, &mut part, errors);
    part
}

/// Drops the entries from position `first` on whose value is zero.
pub(crate) fn drop_zeros(list: &mut Entries, first: usize) {
    if !spardl_kernels::any_zero(Level::best(), &list.values[first..]) {
        return;
    }
    let Entries { indices, values } = list;
    let mut end = first;
    for at in first..values.len() {
        (indices[end], values[end]) = (indices[at], values[at]);
        end += usize::from(values[at] != 0.0);
    }
    indices.truncate(end);
    values.truncate(end);
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
    fn many_lists_sum_like_a_left_fold() {
        let lists: Vec<Entries> = (0..5u32)
            .map(|w| {
                let indices: Vec<u32> = (0..100_000).step_by(7 + w as usize).collect();
                let values = indices
                    .iter()
                    .map(|&i| (i as f32 + 0.1) * 0.37 - w as f32)
                    .collect();
                Entries { indices, values }
            })
            .collect();
        let folded = lists
            .iter()
            .skip(1)
            .fold(lists[0].clone(), |all, next| sum(&all, next));
        assert_eq!(sum_all(&lists, 100_000), folded);
        assert_eq!(sum_all(&[], 0), Entries::default());
    }

    #[test]
    fn a_part_of_a_list_is_what_lies_in_the_range() {
        let all = list(&[(1, 1.0), (3, 2.0), (9, -4.0)]);
        assert_eq!(within(&all, 1..9), (&[1, 3][..], &[1.0, 2.0][..]));
        assert_eq!(within(&all, 4..9), (&[][..], &[][..]));
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
