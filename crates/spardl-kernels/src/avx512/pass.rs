//! The pass for AVX-512.
//!
//! # Why it looks like this
//!
//! Time of `accumulate` as a multiple of the plain loop `a[i] += b[i]` (compiled for the baseline); n = 14,728,266, one thread,
//! 2 MiB of L2, medians of 31 (`examples/pass.rs`). One of the two quietest of 13 runs, with a plain loop of 8.6 ms:
//!
//! | candidates | none | 0.1 % | 1 % | 1.5 % | 3 % |
//! | --- | --- | --- | --- | --- | --- |
//! | AVX-512, one call | 1.02 | 1.00 | 1.03 | 1.05 | 1.05 |
//! | AVX-512, 8 blocks | 1.00 | 0.99 | 1.06 | 1.07 | 1.09 |
//! | AVX2, one call | 1.06 | 1.00 | 1.05 | 1.09 | 1.12 |
//! | portable, one call | 1.77 | 1.77 | 1.99 | 2.18 | 2.67 |
//!
//! (Measured before candidates were taken out late, which took 0.08 less at 1 %, and before the stores went in bursts.)
//! In most other runs the machine was busier (plain loop up to 16 ms); the AVX-512 figures at 1 and 1.5 % lay between 0.87
//! and 1.19. `add_assign` at this level took 0.83 of the plain loop: against the fastest loop in place the pass takes about 1.25.
//!
//! What was tried, at 1 to 1.5 %; differences below 0.1 are noise, and the reasons given are guesses that fit:
//!
//! - Plain stores: 1.6, since they read the lines of `work` before overwriting them; non-temporal stores do not.
//! - No software prefetch, on Intel: 1.1 to 1.4. Loads that a mispredicted branch delays are then not under way early enough. On AMD there
//!   is none, and that is faster (`pass_ahead` in `x86.rs`).
//! - A branch per 64 elements and compress-and-store of the registers with a candidate: 0.07 to 0.1 more than now, about as much as no
//!   branch at all (compress and store every register). It is not the branch: the candidates' stores queue among the
//!   non-temporal ones. So the pass keeps a mask per 64 elements and the sums, and a chunk of 4096 elements later turns the masks
//!   into indices and values. (In `extract`, which stores nothing else, compressing at once costs nothing.)
//! - A store right after each sum, instead of a burst of them after 256: 0.2 more on Zen 4 (`BURST` in `x86.rs`).
//! - Prefetching the list of candidates: nothing. Prefetching to the first level instead of the second: 0.02 to 0.04 more. `prefetchnta`:
//!   twice as slow.
//! - Arrays that stay in the cache (65,536 elements, plain stores): 1.1 without candidates, 1.8 at 1 %. There the branches show.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::places::put_found;
use super::{CHUNK, GROUP, WIDTH, load, store};
use crate::source::Element;
use crate::x86::{BURST, STREAM_FROM, Sink, pass_ahead, prefetch};
use crate::{Entries, INFINITE, MAGNITUDE, UNREACHABLE, portable};

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
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

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
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

/// The sums of a burst, in lines of the cache.
#[repr(align(64))]
struct Sums([[f32; GROUP]; BURST / GROUP]);

/// `work = residual + gradient * scale` (`ADD`) or `work = gradient * scale` (the residual is then empty), with non-temporal stores
/// (`STREAM`), finding candidates (`EXTRACT`, only with `ADD`).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
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
    let magnitude = _mm512_set1_epi32(MAGNITUDE as i32);
    let limits = _mm512_set1_epi32(limit as i32);
    let scales = _mm512_set1_ps(scale);
    let (mut start, ahead) = (base + head as u32, pass_ahead());
    let per_chunk = CHUNK / GROUP;
    let mut r_chunks = r_groups.chunks(per_chunk);
    let chunks = g_groups
        .chunks(per_chunk)
        .zip(w_groups.chunks_mut(per_chunk));
    let mut sums = Sums([[0.0; GROUP]; BURST / GROUP]);
    for (g_chunk, w_chunk) in chunks {
        let r_chunk = r_chunks.next().unwrap_or_default();
        let mut largest = _mm512_setzero_si512();
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
                    let scaled = _mm512_mul_ps(unsafe { E::load(&g[j]) }, scales);
                    let value = if ADD {
                        _mm512_add_ps(load(&r[j]), scaled)
                    } else {
                        scaled
                    };
                    let bits = _mm512_and_si512(_mm512_castps_si512(value), magnitude);
                    largest = _mm512_max_epu32(largest, bits);
                    *found |= u64::from(_mm512_cmpge_epu32_mask(bits, limits)) << (j * WIDTH);
                    store(&mut sums[j], value);
                }
            }
            for (sums, w) in sums.0.iter().zip(&mut w_chunk[burst]) {
                let w = w.as_chunks_mut::<WIDTH>().0;
                for (w, sums) in w.iter_mut().zip(sums.as_chunks().0) {
                    if STREAM {
                        // SAFETY: the head ended on a multiple of 64 bytes and the registers since then are 64 bytes each.
                        unsafe { _mm512_stream_ps(w.as_mut_ptr(), load(sums)) };
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
        if _mm512_reduce_max_epu32(largest) >= INFINITE {
            return false;
        }
    }
    if STREAM {
        // Non-temporal stores are ordered by nothing else; without this another thread could see old contents.
        _mm_sfence();
    }
    edge(r_tail, g_tail, w_tail, start, out)
}

/// An element of which this level reads 16 at once, as f32.
pub(crate) trait Wide: Element {
    /// The elements, widened.
    ///
    /// # Safety
    ///
    /// The CPU has the features of this level.
    unsafe fn load(src: &[Self; WIDTH]) -> __m512;
}

impl Wide for f32 {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    unsafe fn load(src: &[Self; WIDTH]) -> __m512 {
        load(src)
    }
}

impl Wide for bf16 {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    unsafe fn load(src: &[Self; WIDTH]) -> __m512 {
        // SAFETY: the reference covers the 32 bytes that are read; the load needs no alignment.
        let narrow = unsafe { _mm256_loadu_si256(src.as_ptr().cast()) };
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(narrow)))
    }
}

impl Wide for f16 {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    unsafe fn load(src: &[Self; WIDTH]) -> __m512 {
        // SAFETY: the reference covers the 32 bytes that are read; the load needs no alignment.
        _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(src.as_ptr().cast()) })
    }
}
