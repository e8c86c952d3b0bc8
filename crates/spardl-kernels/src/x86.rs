//! What the x86-64 levels share: prefetching, the list that candidates are written to, take_at and scatter.

use std::arch::x86_64::{__cpuid, _MM_HINT_ET0, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
use std::sync::OnceLock;

use crate::portable::check_indices;
use crate::{Entries, MAGNITUDE};

/// From this many elements of `work` on, a pass stores past the cache (non-temporal).
///
/// A call sees one block and not the size of the gradient it belongs to, so this is a compromise. A small gradient that stays
/// in the cache is faster with plain stores: 0.22 against 0.59 ns per element at 64 Ki elements (24 us in all), 0.26 against
/// 0.60 at 128 Ki, nearly equal from 1 Mi on. A block of a large gradient is faster with stores past the cache: 14,728,266
/// elements in 96 or 128 blocks take 1.4 times the plain loop with plain stores, 1.0 without (5 ms less). The larger loss decides.
pub(crate) const STREAM_FROM: usize = 64 * 1024;

/// How many elements a pass reads and adds up before it stores them: memory that turns from reading to writing at every line is slower.
/// Zen 4, n = 14,728,266, no candidates, as multiples of a plain loop of 5.0 ms: 1.21 without bursts, 1.01 to 1.05 with bursts of 128 to 512
/// elements, 1.3 to 1.4 from 1024 on.
pub(crate) const BURST: usize = 256;

/// How many elements ahead a pass prefetches its inputs, to the second level; 0 where the CPU does that better alone.
///
/// Intel needs it: 1.1 to 1.4 times the plain loop without, 1.0 with it. AMD's own prefetchers are only disturbed. Zen 4, quiet, all arrays on
/// huge pages, a plain loop of 2.5 ms, 0.1 % of candidates: 1.22 without, 1.55 with a distance of 256, 1.3 to 1.45 with others.
pub(crate) fn pass_ahead() -> usize {
    if is_amd() { 0 } else { 256 }
}

/// How many elements ahead what reads one array prefetches it, to the first level; 0 as in [`pass_ahead`].
///
/// Xeon (family 6 model 167), n = 14,728,266 out of reach of the caches, 10 % selected, ns per element without and with 256, 512, 1024:
/// `keys_between` 0.36, 0.26, 0.25, 0.29; `take_out` 0.40, 0.25, 0.22, 0.20; `clear_at` 0.30, 0.21, 0.19, 0.18; `copy_at` 0.65, 0.46, 0.41, 0.43.
pub(crate) fn scan_ahead() -> usize {
    2 * pass_ahead()
}

pub(crate) fn is_amd() -> bool {
    // In a virtual machine the instruction takes as long as thousands of others.
    static IS_AMD: OnceLock<bool> = OnceLock::new();
    *IS_AMD.get_or_init(|| {
        let vendor = __cpuid(0);
        let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        name.as_flattened() == b"AuthenticAMD"
    })
}

/// How many entries ahead take_at and scatter prefetch.
const ENTRIES_AHEAD: usize = 64;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Prefetches what a pass will read when it is `ahead` elements further than this group; with 0 that costs nothing and does nothing, since
/// the group itself is read right after.
#[inline(always)]
pub(crate) fn prefetch<T, const N: usize>(group: &[T; N], ahead: usize) {
    for line in (0..N).step_by(LINE / size_of::<T>()) {
        let ahead = group.as_ptr().wrapping_add(line + ahead);
        // SAFETY: a prefetch does not access memory in the sense of the language and never faults; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(ahead.cast()) };
    }
}

/// [`prefetch`] for a scan, see [`scan_ahead`].
#[inline(always)]
pub(crate) fn prefetch_scan<const N: usize>(group: &[f32; N], ahead: usize) {
    for line in (0..N).step_by(LINE / size_of::<f32>()) {
        let ahead = group.as_ptr().wrapping_add(line + ahead);
        // SAFETY: as in `prefetch`.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.cast()) };
    }
}

/// Writes candidates into the spare capacity of a list, a whole register at a time.
pub(crate) struct Sink<'a> {
    out: &'a mut Entries,
    indices: *mut u32,
    values: *mut f32,
    len: usize,
}

impl<'a> Sink<'a> {
    /// The widest register, in elements: what lies behind [`Sink::end`] beyond the entries themselves.
    const SLACK: usize = 16;

    /// A sink for at most `most` more entries.
    #[inline(always)]
    pub(crate) fn new(out: &'a mut Entries, most: usize) -> Self {
        assert_eq!(
            out.indices.len(),
            out.values.len(),
            "indices and values differ in length"
        );
        if most > 0 {
            out.reserve(most + Self::SLACK);
        }
        let len = out.len();
        Sink {
            indices: out.indices.as_mut_ptr(),
            values: out.values.as_mut_ptr(),
            len,
            out,
        }
    }

    /// Where the next index and the next value go.
    ///
    /// If the sink was made for any entries and has no more of them by now, 16 elements may be written at either place.
    #[inline(always)]
    pub(crate) fn end(&self) -> (*mut u32, *mut f32) {
        (
            self.indices.wrapping_add(self.len),
            self.values.wrapping_add(self.len),
        )
    }

    /// Counts `count` entries that were written at [`Sink::end`].
    #[inline(always)]
    pub(crate) fn advance(&mut self, count: u32) {
        self.len += count as usize;
    }

    /// Makes the entries part of the list.
    ///
    /// # Safety
    ///
    /// The entries counted were written, and are no more than the sink was made for.
    #[inline(always)]
    pub(crate) unsafe fn finish(self) {
        // SAFETY: everything up to `len` is initialised and within the reserved capacity (contract of this function).
        unsafe {
            self.out.indices.set_len(self.len);
            self.out.values.set_len(self.len);
        }
    }
}

/// Appends the only element whose bit is set in `found`; the first of the `values` has the index `start`.
///
/// At a density of 0.1 % nearly every burst of a pass has no candidate or one, so this is worth a way of its own, without a branch that
/// could be guessed wrong.
///
/// # Safety
///
/// The sink has room for it.
#[inline(always)]
pub(crate) unsafe fn put_one(sink: &mut Sink<'_>, start: u32, found: &[u64], values: &[[f32; 64]]) {
    let slot = found.iter().enumerate().fold(0, |slot, (at, bits)| {
        let here = at * 64 + bits.trailing_zeros() as usize;
        if *bits == 0 { slot } else { here }
    });
    let (index, value) = sink.end();
    // SAFETY: a sink with room takes 16 elements at its end.
    unsafe {
        *index = start.wrapping_add(slot as u32);
        *value = values.as_flattened()[slot];
    }
    sink.advance(1);
}

/// Moves the values at `indices` out and leaves zeros.
///
/// At the densities of a sparse gradient each entry lies on a cache line of its own, too far from the last for the hardware
/// prefetcher. The time is cache misses, not instructions: prefetching helps, to be written since it will be; the wide gather
/// instructions do not.
#[inline(always)]
pub(crate) fn take_at(dense: &mut [f32], indices: &[u32], out: &mut Vec<f32>) {
    check_indices(dense.len(), indices);
    let last = indices.len().saturating_sub(1);
    out.extend(indices.iter().enumerate().map(|(j, &index)| {
        let ahead = indices[(j + ENTRIES_AHEAD).min(last)];
        // SAFETY: both indices were checked at the top.
        unsafe {
            _mm_prefetch::<_MM_HINT_ET0>(dense.as_ptr().add(ahead as usize).cast());
            std::mem::take(dense.get_unchecked_mut(index as usize))
        }
    }));
}

/// Writes `values` to `indices`; see [`take_at`]. Where the entries lie close together the hardware's prefetcher does better alone.
#[inline(always)]
pub(crate) fn scatter(dense: &mut [f32], indices: &[u32], values: &[f32]) {
    check_indices(dense.len(), indices);
    let last = indices.len().saturating_sub(1);
    let span = indices.first().zip(indices.last());
    let span = span.map_or(0, |(first, last)| last.abs_diff(*first) as usize);
    let far = span > LINE * indices.len();
    for (j, (&index, &value)) in indices.iter().zip(values).enumerate() {
        // SAFETY: both indices were checked at the top.
        unsafe {
            if far {
                let ahead = indices[(j + ENTRIES_AHEAD).min(last)];
                _mm_prefetch::<_MM_HINT_ET0>(dense.as_ptr().add(ahead as usize).cast());
            }
            *dense.get_unchecked_mut(index as usize) = value;
        }
    }
}

/// Copies what is at `indices`. For entries that lie close together: what lies ahead is prefetched, whether there is an entry or not.
///
/// Not compiled for a level: with AVX-512 the compiler makes gathers and scatters of it, which take 2.5 times as long on Zen 4.
#[inline(never)]
pub(crate) fn copy_at(from: &[f32], to: &mut [f32], indices: &[u32]) {
    check_indices(from.len().min(to.len()), indices);
    let ahead = scan_ahead() as u32;
    for &index in indices {
        if ahead > 0 {
            prefetch_entry(from, index.wrapping_add(ahead));
            prefetch_entry(to, index.wrapping_add(ahead));
        }
        // SAFETY: the indices were checked at the top.
        unsafe { *to.get_unchecked_mut(index as usize) = *from.get_unchecked(index as usize) };
    }
}

/// Clears what is large at `indices`; see [`copy_at`]. Without a branch, which would be guessed wrong at every second entry.
#[inline(always)]
pub(crate) fn clear_at(dense: &mut [f32], indices: &[u32], limit: u32) {
    check_indices(dense.len(), indices);
    let ahead = scan_ahead() as u32;
    for &index in indices {
        if ahead > 0 {
            prefetch_entry(dense, index.wrapping_add(ahead));
        }
        // SAFETY: the indices were checked at the top.
        let value = unsafe { dense.get_unchecked_mut(index as usize) };
        let stays = u32::from(value.to_bits() & MAGNITUDE < limit).wrapping_neg();
        *value = f32::from_bits(value.to_bits() & stays);
    }
}

/// Asks for the line of an element before it is read: to the first level, since on Zen 4 hints for the second were often of no use (0.35 ms
/// instead of 0.5 to 0.7 for the lists of a step at 0.1 %).
#[inline(always)]
pub(crate) fn prefetch_entry(dense: &[f32], index: u32) {
    let ahead = dense.as_ptr().wrapping_add(index as usize);
    // SAFETY: a prefetch does not access memory in the sense of the language and never faults; SSE is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.cast()) };
}
