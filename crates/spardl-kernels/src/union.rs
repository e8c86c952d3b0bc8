//! Sums of two ascending lists with few entries.

use crate::Entries;
use crate::window::{AHEAD, prefetch};

/// Appends the union of two ascending lists to `out`: what `known` has, plus what `list` has; an index that is not known yet begins with
/// its value in `dense`.
///
/// Without a branch that could be guessed wrong. For lists so short that a [`crate::Window`] would be all but empty.
///
/// # Panics
///
/// If the indices and values of a list differ in length, or an index of `list` is out of range for `dense`.
///
/// # Example
///
/// ```
/// use spardl_kernels::{Entries, add_list};
///
/// let known = Entries { indices: vec![3, 7], values: vec![1.0, 2.0] };
/// let mut out = Entries::new();
/// add_list(&known, (&[7, 8], &[1.0, 1.0]), &[0.5; 10], &mut out);
/// assert_eq!(out.indices, [3, 7, 8]);
/// assert_eq!(out.values, [1.0, 3.0, 1.5]);
/// ```
pub fn add_list(known: &Entries, list: (&[u32], &[f32]), dense: &[f32], out: &mut Entries) {
    let (indices, values) = list;
    let same = known.indices.len() == known.values.len() && indices.len() == values.len();
    assert!(same, "indices and values differ in length");
    out.reserve(known.len() + indices.len());
    for &index in indices.iter().take(AHEAD) {
        prefetch(dense, index);
    }
    let (mut i, mut j) = (0, 0);
    while i < known.len() && j < indices.len() {
        // Asked for more than once where entries of `known` lie between: that costs less than to find out.
        prefetch(dense, indices[(j + AHEAD).min(indices.len() - 1)]);
        let (x, y) = (known.indices[i], indices[j]);
        let base = dense[y as usize];
        let before = if x <= y { known.values[i] } else { base };
        let after = before + values[j];
        out.indices.push(x.min(y));
        out.values.push(if y <= x { after } else { before });
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    out.indices.extend_from_slice(&known.indices[i..]);
    out.values.extend_from_slice(&known.values[i..]);
    for (&index, value) in indices.iter().zip(values).skip(j) {
        out.indices.push(index);
        out.values.push(dense[index as usize] + value);
    }
}
