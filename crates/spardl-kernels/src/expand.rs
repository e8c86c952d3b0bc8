//! A sparse update written out: zeros everywhere but at its entries.

use crate::Level;

/// Writes `values[j] * scale` at `indices[j] - base` over `out`, and zero everywhere else.
///
/// Large outputs are written past the cache: clearing an array first and then putting entries into it reads every line of it
/// before it is overwritten. Xeon (Sapphire Rapids), 14,680,064 elements: 5.0 ms to clear with plain stores, 2.8 ms past the cache.
///
/// # Panics
///
/// If the lists differ in length, an index lies outside of `out`, or indices do not rise.
///
/// # Example
///
/// ```
/// use spardl_kernels::{expand, Level};
///
/// let mut out = [9.0; 5];
/// expand(Level::best(), &[11, 14], &[4.0, -8.0], 0.5, 10, &mut out);
/// assert_eq!(out, [0.0, 2.0, 0.0, 0.0, -4.0]);
/// ```
pub fn expand(
    level: Level,
    indices: &[u32],
    values: &[f32],
    scale: f32,
    base: u32,
    out: &mut [f32],
) {
    assert_eq!(
        indices.len(),
        values.len(),
        "indices and values differ in length"
    );
    let entries = Rising {
        indices,
        values,
        scale,
        start: base as usize,
    };
    match level.usable() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 if out.len() >= crate::x86::STREAM_FROM => {
            past_the_cache::expand(entries, out);
        }
        _ => entries.expand_all(out),
    }
}

/// Entries that are still to be written, from element `start` on.
struct Rising<'a> {
    indices: &'a [u32],
    values: &'a [f32],
    scale: f32,
    start: usize,
}

impl<'a> Rising<'a> {
    fn expand_all(mut self, out: &mut [f32]) {
        out.fill(0.0);
        self.put_next(out);
        assert!(
            self.indices.is_empty(),
            "an index lies outside of the output"
        );
    }

    /// Puts the entries of the next `out.len()` elements; returns their indices and where they begin.
    fn put_next(&mut self, out: &mut [f32]) -> (&'a [u32], usize) {
        let (start, end) = (self.start, self.start + out.len());
        let before = |&index: &u32| (index as usize) < end;
        let count = self
            .indices
            .iter()
            .take_while(|index| before(index))
            .count();
        let (indices, later) = self.indices.split_at(count);
        let (values, later_values) = self.values.split_at(count);
        for (&index, value) in indices.iter().zip(values) {
            out[index as usize - start] = value * self.scale;
        }
        (self.indices, self.values, self.start) = (later, later_values, end);
        (indices, start)
    }
}

#[cfg(target_arch = "x86_64")]
mod past_the_cache {
    use std::arch::x86_64::{_mm_load_ps, _mm_sfence, _mm_stream_ps};

    use super::Rising;

    /// Elements that are put together before they are written: they stay in the first level.
    const BLOCK: usize = 1024;
    const LINE: usize = 64;
    const WIDTH: usize = 4;

    #[repr(align(64))]
    struct Block([f32; BLOCK]);

    pub(super) fn expand(mut entries: Rising<'_>, out: &mut [f32]) {
        let head = out.as_ptr().align_offset(LINE).min(out.len());
        let (head, rest) = out.split_at_mut(head);
        let (blocks, tail) = rest.as_chunks_mut::<BLOCK>();
        head.fill(0.0);
        entries.put_next(head);
        let mut block = Block([0.0; BLOCK]);
        for out in blocks {
            let (indices, start) = entries.put_next(&mut block.0);
            stream(&block, out);
            for &index in indices {
                block.0[index as usize - start] = 0.0;
            }
        }
        // SAFETY: SSE is part of x86-64. Non-temporal stores are ordered by nothing else.
        unsafe { _mm_sfence() };
        entries.expand_all(tail);
    }

    fn stream(block: &Block, out: &mut [f32; BLOCK]) {
        let (from, _) = block.0.as_chunks::<WIDTH>();
        let (to, _) = out.as_chunks_mut::<WIDTH>();
        for (from, to) in from.iter().zip(to) {
            // SAFETY: SSE is part of x86-64; the block is aligned by its type, the output to a line by the caller's head.
            unsafe { _mm_stream_ps(to.as_mut_ptr(), _mm_load_ps(from.as_ptr())) };
        }
    }
}
