//! The pass for AVX2.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::lists::put_found;
use super::{WIDTH, load, store};
use crate::source::Element;
use crate::x86::{BURST, STREAM_FROM, Sink, pass_ahead, prefetch};
use crate::{Entries, INFINITE, MAGNITUDE, UNREACHABLE, portable};

#[target_feature(enable = "avx2,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn accumulate<E: Wide>(
    residual: &[f32],
    gradient: &[E],
    scale: f32,
    work: &mut [f32],
    base: u32,
    limit: u32,
    out: &mut Entries,
) -> bool {
    let pass = match (work.len() >= STREAM_FROM, limit < UNREACHABLE) {
        (false, false) => pass::<E, true, false, false>,
        (false, true) => pass::<E, true, false, true>,
        (true, false) => pass::<E, true, true, false>,
        (true, true) => pass::<E, true, true, true>,
    };
    pass(residual, gradient, scale, work, base, limit, out)
}

#[target_feature(enable = "avx2,f16c,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn copy<E: Wide>(gradient: &[E], scale: f32, work: &mut [f32]) -> bool {
    let pass = if work.len() >= STREAM_FROM {
        pass::<E, false, true, false>
    } else {
        pass::<E, false, false, false>
    };
    pass(
        &[],
        gradient,
        scale,
        work,
        0,
        UNREACHABLE,
        &mut Entries::new(),
    )
}

/// Elements whose candidates are one mask.
const GROUP: usize = 64;
/// Elements between two looks at the capacity of the output and at the finite check.
const CHUNK: usize = 64 * GROUP;

/// The sums of a burst, in lines of the cache.
#[repr(align(64))]
struct Sums([[f32; GROUP]; BURST / GROUP]);

/// `work = residual + gradient * scale` (`ADD`) or `work = gradient * scale` (the residual is then empty), with non-temporal stores
/// (`STREAM`), finding candidates (`EXTRACT`, only with `ADD`).
#[target_feature(enable = "avx2,f16c,bmi1,bmi2,lzcnt,popcnt")]
fn pass<E: Wide, const ADD: bool, const STREAM: bool, const EXTRACT: bool>(
    residual: &[f32],
    gradient: &[E],
    scale: f32,
    work: &mut [f32],
    base: u32,
    limit: u32,
    out: &mut Entries,
) -> bool {
    let edge = |r: &[f32], g: &[E], w: &mut [f32], base: u32, out: &mut Entries| {
        if ADD {
            portable::accumulate(r, g, scale, w, base, limit, out)
        } else {
            portable::copy(g, scale, w)
        }
    };
    // Whole cache lines, though a register is half of one: the write-combining buffers are lines.
    let head = if STREAM {
        work.as_ptr().align_offset(64).min(work.len())
    } else {
        0
    };
    let (r_head, residual) = residual.split_at(if ADD { head } else { 0 });
    let (g_head, gradient) = gradient.split_at(head);
    let (w_head, work) = work.split_at_mut(head);
    if !edge(r_head, g_head, w_head, base, out) {
        return false;
    }

    let (r_groups, r_tail) = residual.as_chunks::<GROUP>();
    let (g_groups, g_tail) = gradient.as_chunks::<GROUP>();
    let (w_groups, w_tail) = work.as_chunks_mut::<GROUP>();
    let magnitude = _mm256_set1_epi32(MAGNITUDE as i32);
    let below = _mm256_set1_epi32((limit - 1) as i32);
    let scales = _mm256_set1_ps(scale);
    let (mut start, ahead) = (base + head as u32, pass_ahead());
    let per_chunk = CHUNK / GROUP;
    let mut r_chunks = r_groups.chunks(per_chunk);
    let chunks = g_groups
        .chunks(per_chunk)
        .zip(w_groups.chunks_mut(per_chunk));
    let mut sums = Sums([[0.0; GROUP]; BURST / GROUP]);
    for (g_chunk, w_chunk) in chunks {
        let r_chunk = r_chunks.next().unwrap_or_default();
        let mut largest = _mm256_setzero_si256();
        let mut sink = Sink::new(out, if EXTRACT { g_chunk.len() * GROUP } else { 0 });
        for first in (0..g_chunk.len()).step_by(BURST / GROUP) {
            let burst = first..g_chunk.len().min(first + BURST / GROUP);
            let mut found = [0; BURST / GROUP];
            for (at, (found, sums)) in burst.clone().zip(found.iter_mut().zip(&mut sums.0)) {
                let r = if ADD { &r_chunk[at] } else { &[0.0; GROUP] };
                if ADD {
                    prefetch(r, ahead);
                }
                prefetch(&g_chunk[at], ahead);
                let (r, g) = (r.as_chunks::<WIDTH>().0, g_chunk[at].as_chunks::<WIDTH>().0);
                let sums = sums.as_chunks_mut::<WIDTH>().0;
                for j in 0..GROUP / WIDTH {
                    // SAFETY: this function has the features that the load needs.
                    let scaled = _mm256_mul_ps(unsafe { E::load(&g[j]) }, scales);
                    let value = if ADD {
                        _mm256_add_ps(load(&r[j]), scaled)
                    } else {
                        scaled
                    };
                    let bits = _mm256_and_si256(_mm256_castps_si256(value), magnitude);
                    largest = _mm256_max_epu32(largest, bits);
                    let reached = _mm256_castsi256_ps(_mm256_cmpgt_epi32(bits, below));
                    *found |= u64::from(_mm256_movemask_ps(reached) as u8) << (j * WIDTH);
                    store(&mut sums[j], value);
                }
            }
            for (sums, w) in sums.0.iter().zip(&mut w_chunk[burst]) {
                let w = w.as_chunks_mut::<WIDTH>().0;
                for (w, sums) in w.iter_mut().zip(sums.as_chunks().0) {
                    if STREAM {
                        // SAFETY: the head ended on a multiple of 64 bytes and the registers since then are 32 bytes each.
                        unsafe { _mm256_stream_ps(w.as_mut_ptr(), load(sums)) };
                    } else {
                        store(w, load(sums));
                    }
                }
            }
            if EXTRACT {
                let start = start.wrapping_add((first * GROUP) as u32);
                // SAFETY: the sink was made for every element of the chunk, and each is offered once.
                unsafe { put_found(&mut sink, start, &found, &sums.0) };
            }
        }
        // SAFETY: what was counted was put; the chunk has no more elements than the sink has room for.
        unsafe { sink.finish() };
        start = start.wrapping_add((g_chunk.len() * GROUP) as u32);
        let largest = _mm256_cmpgt_epi32(largest, _mm256_set1_epi32((INFINITE - 1) as i32));
        if _mm256_testz_si256(largest, largest) == 0 {
            return false;
        }
    }
    if STREAM {
        // Non-temporal stores are ordered by nothing else; without this another thread could see old contents.
        _mm_sfence();
    }
    edge(r_tail, g_tail, w_tail, start, out)
}

/// An element of which this level reads eight at once, as f32.
pub(crate) trait Wide: Element {
    /// The elements, widened.
    ///
    /// # Safety
    ///
    /// The CPU has the features of this level.
    unsafe fn load(src: &[Self; WIDTH]) -> __m256;
}

impl Wide for f32 {
    #[target_feature(enable = "avx2,f16c,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    unsafe fn load(src: &[Self; WIDTH]) -> __m256 {
        load(src)
    }
}

impl Wide for bf16 {
    #[target_feature(enable = "avx2,f16c,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    unsafe fn load(src: &[Self; WIDTH]) -> __m256 {
        // SAFETY: the reference covers the 16 bytes that are read; the load needs no alignment.
        let patterns = _mm256_cvtepu16_epi32(unsafe { _mm_loadu_si128(src.as_ptr().cast()) });
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(patterns))
    }
}

impl Wide for f16 {
    #[target_feature(enable = "avx2,f16c,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    unsafe fn load(src: &[Self; WIDTH]) -> __m256 {
        // SAFETY: the reference covers the 16 bytes that are read; the load needs no alignment.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(src.as_ptr().cast()) })
    }
}
