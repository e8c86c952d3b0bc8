//! Gather and scatter for x86-64, the same at every vector level.
//!
//! At the densities of a sparse gradient each entry lies on a cache line of its own and the lines are too far apart for the
//! hardware prefetcher. The time is cache misses, not instructions: prefetching ahead helps, wide gather instructions do not.

use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};

use crate::portable::check_indices;

/// How many entries ahead to prefetch.
const AHEAD: usize = 32;

#[inline(always)]
pub(crate) fn gather(dense: &[f32], indices: &[u32], out: &mut Vec<f32>) {
    check_indices(dense.len(), indices);
    let last = indices.len().saturating_sub(1);
    out.extend(indices.iter().enumerate().map(|(j, &index)| {
        let ahead = indices[(j + AHEAD).min(last)];
        // SAFETY: both indices were checked at the top.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(dense.as_ptr().add(ahead as usize).cast());
            *dense.get_unchecked(index as usize)
        }
    }));
}

#[inline(always)]
pub(crate) fn scatter(dense: &mut [f32], indices: &[u32], values: &[f32]) {
    check_indices(dense.len(), indices);
    let last = indices.len().saturating_sub(1);
    for (j, (&index, &value)) in indices.iter().zip(values).enumerate() {
        let ahead = indices[(j + AHEAD).min(last)];
        // SAFETY: both indices were checked at the top.
        unsafe {
            _mm_prefetch::<_MM_HINT_ET0>(dense.as_ptr().add(ahead as usize).cast());
            *dense.get_unchecked_mut(index as usize) = value;
        }
    }
}
