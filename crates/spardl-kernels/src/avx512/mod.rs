//! The kernels for AVX-512.
//!
//! # The pass, and why it looks like this
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
//! (Measured before candidates were taken out late, see below: with 1 % of them the pass now takes about 0.08 less.)
//! In most other runs the machine was busier (plain loop up to 16 ms); the AVX-512 figures at 1 and 1.5 % lay between 0.87
//! and 1.19. `add_assign` at this level took 0.83 of the plain loop: against the fastest loop in place the pass takes about 1.25.
//!
//! What was tried, at 1 to 1.5 %; differences below 0.1 are noise, and the reasons given are guesses that fit:
//!
//! - Plain stores: 1.6, since they read the lines of `work` before overwriting them; non-temporal stores do not.
//! - No software prefetch: 1.1 to 1.4. Loads that a mispredicted branch delays are then not under way early enough.
//! - A branch per 64 elements and compress-and-store of the registers with a candidate: 0.07 to 0.1 more than now, about as much as no
//!   branch at all (compress and store every register). It is not the branch: the candidates' stores queue among the
//!   non-temporal ones. So the pass keeps a mask per 64 elements, and a chunk of 4096 elements later turns the masks into indices
//!   and adds the values again from the cache. (In `extract`, which stores nothing else, compressing at once costs nothing.)
//! - Prefetching the list of candidates: nothing. Prefetching to the first level instead of the second: 0.02 to 0.04 more. `prefetchnta`:
//!   twice as slow.
//! - Arrays that stay in the cache (65,536 elements, plain stores): 1.1 without candidates, 1.8 at 1 %. There the branches show.

mod places;

pub(crate) use places::read_high;

use std::arch::x86_64::*;

use places::{put_indices, put_values};

use crate::window::{Marks, Sums};
use crate::x86::{STREAM_FROM, Sink, prefetch};
use crate::{Entries, INFINITE, MAGNITUDE, UNREACHABLE, Window, portable, x86};

/// Elements of one register.
const WIDTH: usize = 16;
/// Elements whose candidates are one mask; see above.
const GROUP: usize = 4 * WIDTH;
/// Elements between two looks at the capacity of the output and at the finite check.
const CHUNK: usize = 64 * GROUP;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn accumulate(
    residual: &[f32],
    gradient: &[f32],
    work: &mut [f32],
    base: u32,
    limit: u32,
    out: &mut Entries,
) -> bool {
    match (work.len() >= STREAM_FROM, limit < UNREACHABLE) {
        (false, false) => pass::<true, false, false>(residual, gradient, work, base, limit, out),
        (false, true) => pass::<true, false, true>(residual, gradient, work, base, limit, out),
        (true, false) => pass::<true, true, false>(residual, gradient, work, base, limit, out),
        (true, true) => pass::<true, true, true>(residual, gradient, work, base, limit, out),
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn copy(gradient: &[f32], work: &mut [f32]) -> bool {
    let out = &mut Entries::new();
    if work.len() >= STREAM_FROM {
        pass::<false, true, false>(gradient, gradient, work, 0, UNREACHABLE, out)
    } else {
        pass::<false, false, false>(gradient, gradient, work, 0, UNREACHABLE, out)
    }
}

/// `work = residual + gradient` (`ADD`) or `work = gradient`, with non-temporal stores (`STREAM`), finding candidates (`EXTRACT`).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn pass<const ADD: bool, const STREAM: bool, const EXTRACT: bool>(
    residual: &[f32],
    gradient: &[f32],
    work: &mut [f32],
    base: u32,
    limit: u32,
    out: &mut Entries,
) -> bool {
    let edge = |r: &[f32], g: &[f32], w: &mut [f32], base: u32, out: &mut Entries| {
        if ADD {
            portable::accumulate(r, g, w, base, limit, out)
        } else {
            portable::copy(g, w)
        }
    };
    let head = if STREAM {
        work.as_ptr().align_offset(64).min(work.len())
    } else {
        0
    };
    let (r_head, residual) = residual.split_at(head);
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
    let mut start = base + head as u32;
    let per_chunk = CHUNK / GROUP;
    let chunks = r_groups
        .chunks(per_chunk)
        .zip(g_groups.chunks(per_chunk))
        .zip(w_groups.chunks_mut(per_chunk));
    for ((r_chunk, g_chunk), w_chunk) in chunks {
        let mut sink = Sink::new(out, if EXTRACT { r_chunk.len() * GROUP } else { 0 });
        let mut largest = _mm512_setzero_si512();
        let mut found = [0; CHUNK / GROUP];
        for (((r, g), w), found) in r_chunk.iter().zip(g_chunk).zip(w_chunk).zip(&mut found) {
            if ADD {
                prefetch(r);
            }
            prefetch(g);
            let (r, g, w) = (
                r.as_chunks::<WIDTH>().0,
                g.as_chunks::<WIDTH>().0,
                w.as_chunks_mut::<WIDTH>().0,
            );
            for j in 0..GROUP / WIDTH {
                let value = if ADD {
                    _mm512_add_ps(load(&r[j]), load(&g[j]))
                } else {
                    load(&g[j])
                };
                let bits = _mm512_and_si512(_mm512_castps_si512(value), magnitude);
                largest = _mm512_max_epu32(largest, bits);
                if STREAM {
                    // SAFETY: the head ended on a multiple of 64 bytes and the registers since then are 64 bytes each.
                    unsafe { _mm512_stream_ps(w[j].as_mut_ptr(), value) };
                } else {
                    store(&mut w[j], value);
                }
                *found |= u64::from(_mm512_cmpge_epu32_mask(bits, limits)) << (j * WIDTH);
            }
        }
        if EXTRACT {
            // SAFETY: the sink was made for every element of the chunk, and the masks have no others.
            let count = unsafe { put_indices(&mut sink, start, &found[..r_chunk.len()]) };
            let (r, g) = (r_chunk.as_flattened(), g_chunk.as_flattened());
            let sum = |slot| {
                let slot = _mm512_min_epu32(slot, _mm512_set1_epi32(r.len() as i32 - 1));
                // SAFETY: every slot lies in the chunk, which is not empty.
                unsafe {
                    let r = _mm512_i32gather_ps::<4>(slot, r.as_ptr());
                    _mm512_add_ps(r, _mm512_i32gather_ps::<4>(slot, g.as_ptr()))
                }
            };
            // SAFETY: so many indices were just put.
            unsafe { put_values(&mut sink, start, count, sum) };
        }
        start = start.wrapping_add((r_chunk.len() * GROUP) as u32);
        // SAFETY: what was counted was put; the chunk has no more elements than the sink has room for.
        unsafe { sink.finish() };
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

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn extract(work: &[f32], base: u32, limit: u32, out: &mut Entries) {
    let (groups, tail) = work.as_chunks::<GROUP>();
    let magnitude = _mm512_set1_epi32(MAGNITUDE as i32);
    let limits = _mm512_set1_epi32(limit as i32);
    let mut start = base;
    for chunk in groups.chunks(CHUNK / GROUP) {
        let mut sink = Sink::new(out, chunk.len() * GROUP);
        for group in chunk {
            prefetch(group);
            let registers = group.as_chunks::<WIDTH>().0;
            let mut values = [_mm512_setzero_ps(); GROUP / WIDTH];
            let mut masks = [0; GROUP / WIDTH];
            for j in 0..GROUP / WIDTH {
                values[j] = load(&registers[j]);
                let bits = _mm512_and_si512(_mm512_castps_si512(values[j]), magnitude);
                masks[j] = _mm512_cmpge_epu32_mask(bits, limits);
            }
            for j in 0..GROUP / WIDTH {
                // SAFETY: the sink was made for every element of the chunk, and each is offered once.
                unsafe { push(&mut sink, start + (j * WIDTH) as u32, masks[j], values[j]) };
            }
            start = start.wrapping_add(GROUP as u32);
        }
        // SAFETY: `push` counts what it writes; the chunk has no more elements than the sink has room for.
        unsafe { sink.finish() };
    }
    portable::extract(tail, start, limit, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn take<const BF16: bool>(
    indices: &[u32],
    values: &mut [f32],
    limit: u32,
    out: &mut Entries,
) {
    let (index_registers, index_tail) = indices.as_chunks::<WIDTH>();
    let (value_registers, value_tail) = values.as_chunks_mut::<WIDTH>();
    let magnitude = _mm512_set1_epi32(MAGNITUDE as i32);
    let limits = _mm512_set1_epi32(limit as i32);
    let infinite = _mm512_set1_epi32(INFINITE as i32);
    let mut sink = Sink::new(out, index_registers.len() * WIDTH);
    for (index, values) in index_registers.iter().zip(value_registers) {
        let value = load(values);
        let bits = _mm512_castps_si512(value);
        let sent = if BF16 { round_bf16(bits) } else { bits };
        let sent_magnitude = _mm512_and_si512(sent, magnitude);
        let mask = _mm512_cmpge_epu32_mask(_mm512_and_si512(bits, magnitude), limits)
            & _mm512_test_epi32_mask(sent_magnitude, sent_magnitude);
        let finite = _mm512_cmplt_epu32_mask(sent_magnitude, infinite);
        let rest = _mm512_maskz_sub_ps(finite, value, _mm512_castsi512_ps(sent));
        store(values, _mm512_mask_mov_ps(value, mask, rest));
        // SAFETY: the reference covers a whole register; the load needs no alignment.
        let index = unsafe { _mm512_loadu_si512(index.as_ptr().cast()) };
        // SAFETY: the sink was made for every entry of the registers, and each is offered once.
        unsafe { push_at(&mut sink, index, mask, _mm512_castsi512_ps(sent)) };
    }
    // SAFETY: `push_at` counts what it writes; the registers have no more entries than the sink has room for.
    unsafe { sink.finish() };
    portable::take::<BF16>(index_tail, value_tail, limit, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn common(
    marks: &Marks,
    start: u32,
    indices: &[u32],
    values: &[f32],
    out: &mut Entries,
) -> usize {
    let (index_registers, index_tail) = indices.as_chunks::<WIDTH>();
    let (value_registers, value_tail) = values.as_chunks::<WIDTH>();
    let starts = _mm512_set1_epi32(start as i32);
    let len = _mm512_set1_epi32(Window::LEN as i32);
    let mut sink = Sink::new(out, index_registers.len() * WIDTH);
    let (mut count, mut full) = (0, WIDTH as u32);
    for (index, value) in index_registers.iter().zip(value_registers) {
        // SAFETY: the reference covers a whole register; the load needs no alignment.
        let index = unsafe { _mm512_loadu_si512(index.as_ptr().cast()) };
        let slot = _mm512_sub_epi32(index, starts);
        let inside = _mm512_cmplt_epu32_mask(slot, len);
        full = inside.trailing_ones();
        let first = 0xffff_u32.unbounded_shr(WIDTH as u32 - full) as __mmask16;
        // SAFETY: only slots of the window are read, and at each of them the marks have four bytes.
        let bytes = unsafe {
            let none = _mm512_setzero_si512();
            _mm512_mask_i32gather_epi32::<1>(none, inside, slot, marks.as_ptr().cast())
        };
        let mask = _mm512_mask_test_epi32_mask(first, bytes, _mm512_set1_epi32(0xff));
        // SAFETY: the sink was made for every entry of the registers, and each is offered once.
        unsafe { push_at(&mut sink, index, mask, load(value)) };
        count += full as usize;
        if full < WIDTH as u32 {
            break;
        }
    }
    // SAFETY: `push_at` counts what it writes; the registers have no more entries than the sink has room for.
    unsafe { sink.finish() };
    if full < WIDTH as u32 {
        return count;
    }
    count + portable::common(marks, start, index_tail, value_tail, out)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn drain(marks: &mut Marks, sums: &Sums, start: u32, most: usize, out: &mut Entries) {
    let mut found = [0; Window::LEN / 64];
    for (found, marks) in found.iter_mut().zip(marks.as_chunks_mut().0) {
        *found = set_bytes(marks);
        *marks = [0; 64];
    }
    let mut sink = Sink::new(out, most);
    // SAFETY: the sink was made for as many entries as there are marks.
    let count = unsafe { put_indices(&mut sink, start, &found) };
    let value = |slot| {
        let slot = _mm512_and_si512(slot, _mm512_set1_epi32(Window::LEN as i32 - 1));
        // SAFETY: the mask keeps every slot in the window.
        unsafe { _mm512_i32gather_ps::<4>(slot, sums.as_ptr()) }
    };
    // SAFETY: so many indices were just put, and then counted.
    unsafe {
        put_values(&mut sink, start, count, value);
        sink.finish();
    }
}

/// A bit for each byte that is not zero.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn set_bytes(bytes: &[u8; 64]) -> u64 {
    // SAFETY: the reference covers a whole register; the load needs no alignment.
    let bytes = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    _mm512_test_epi8_mask(bytes, bytes)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn keys_between(values: &[f32], low: u32, high: u32, out: &mut Vec<u32>) -> usize {
    let (registers, tail) = values.as_chunks::<WIDTH>();
    let magnitude = _mm512_set1_epi32(MAGNITUDE as i32);
    let lows = _mm512_set1_epi32(low as i32);
    let span = _mm512_set1_epi32(high.wrapping_sub(low) as i32);
    out.reserve(registers.len() * WIDTH + WIDTH);
    let (mut len, end) = (out.len(), out.as_mut_ptr());
    let highs = _mm512_set1_epi32(high as i32);
    let mut above = 0;
    for register in registers {
        let bits = _mm512_and_si512(_mm512_castps_si512(load(register)), magnitude);
        above += _mm512_cmpge_epu32_mask(bits, highs).count_ones() as usize;
        let mask = _mm512_cmplt_epu32_mask(_mm512_sub_epi32(bits, lows), span);
        // SAFETY: room for every element and one register more was reserved, and `len` counts no more than the elements seen.
        unsafe {
            _mm512_storeu_epi32(end.add(len).cast(), _mm512_maskz_compress_epi32(mask, bits))
        };
        len += mask.count_ones() as usize;
    }
    // SAFETY: the stores above initialised everything up to `len`, which is within the capacity.
    unsafe { out.set_len(len) };
    above + portable::keys_between(tail, low, high, out)
}

/// The values as bf16 keeps them, as bits of f32.
#[target_feature(enable = "avx512f")]
#[inline]
fn round_bf16(bits: __m512i) -> __m512i {
    let even = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let half = _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff));
    let magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(MAGNITUDE as i32));
    let nan = _mm512_cmpgt_epu32_mask(magnitude, _mm512_set1_epi32(INFINITE as i32));
    let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
    let rounded = _mm512_mask_mov_epi32(_mm512_add_epi32(bits, half), nan, quiet);
    _mm512_and_si512(rounded, _mm512_set1_epi32(0xffff_0000_u32 as i32))
}

/// Appends the entries of `mask` to the sink.
///
/// Compresses to a register and stores all of it: the compressing store is microcoded, and very slow, on Zen 4.
///
/// # Safety
///
/// The sink has room for the entries of the mask.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn push(sink: &mut Sink<'_>, start: u32, mask: __mmask16, value: __m512) {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let index = _mm512_add_epi32(lanes, _mm512_set1_epi32(start as i32));
    // SAFETY: the caller's contract.
    unsafe { push_at(sink, index, mask, value) };
}

/// Appends the entries of `mask` with these indices to the sink.
///
/// # Safety
///
/// The sink has room for the entries of the mask.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn push_at(sink: &mut Sink<'_>, index: __m512i, mask: __mmask16, value: __m512) {
    let (indices, values) = sink.end();
    // SAFETY: a sink with room takes 16 elements at its end.
    unsafe {
        _mm512_storeu_epi32(indices.cast(), _mm512_maskz_compress_epi32(mask, index));
        _mm512_storeu_ps(values, _mm512_maskz_compress_ps(mask, value));
    }
    sink.advance(mask.count_ones());
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(src: &[f32; WIDTH]) -> __m512 {
    // SAFETY: the reference covers a whole register; the load needs no alignment.
    unsafe { _mm512_loadu_ps(src.as_ptr()) }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(dst: &mut [f32; WIDTH], value: __m512) {
    // SAFETY: the reference covers a whole register; the store needs no alignment.
    unsafe { _mm512_storeu_ps(dst.as_mut_ptr(), value) }
}

/// The portable source, compiled for this level.
macro_rules! recompiled {
    ($($module:ident::$name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
        pub(crate) fn $name($($argument: $type),*) $(-> $result)? {
            $module::$name($($argument),*)
        }
    )*};
}

recompiled! {
    portable::count_at_least(values: &[f32], limit: u32) -> usize;
    portable::ascends(indices: &[u32]) -> bool;
    portable::any_zero(values: &[f32]) -> bool;
    portable::write_parts(width: u32, start: u32, indices: &[u32], low: &mut [u8], high: &mut [u8]);
    portable::read_low(width: u32, bytes: &[u8], start: u32, slots: &mut [u32]);
    portable::add_assign(a: &mut [f32], b: &[f32]);
    portable::all_finite(a: &[f32]) -> bool;
    portable::sum_of_squares(a: &[f32]) -> f64;
    portable::sum(a: &[f32]) -> f64;
    portable::to_bf16(src: &[f32], dst: &mut [u16]);
    portable::from_bf16(src: &[u16], dst: &mut [f32]);
    x86::lift(dense: &mut [f32], indices: &[u32], out: &mut Vec<f32>);
    x86::scatter(dense: &mut [f32], indices: &[u32], values: &[f32]);
}
