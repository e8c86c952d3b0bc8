//! The kernels for AVX-512.

mod few_bits;
mod pass;
mod places;

pub(crate) use few_bits::{join, levels_of, planes};
pub(crate) use pass::{accumulate, copy};
pub(crate) use places::read_high;

use std::arch::x86_64::*;

use places::put_found;

use crate::few_bits::{Grid, Ladder};
use crate::window::{Marks, Sums};
use crate::x86::{Sink, prefetch_scan, scan_ahead};
use crate::{Entries, MAGNITUDE, Window, portable, x86};

/// Elements of one register.
const WIDTH: usize = 16;
/// Elements whose candidates are one mask; see above.
const GROUP: usize = 4 * WIDTH;
/// Elements between two looks at the capacity of the output and at the finite check.
const CHUNK: usize = 64 * GROUP;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn extract(work: &[f32], base: u32, limit: u32, out: &mut Entries) {
    let (groups, tail) = work.as_chunks::<GROUP>();
    let (mut start, ahead) = (base, scan_ahead());
    for chunk in groups.chunks(CHUNK / GROUP) {
        let mut sink = Sink::new(out, chunk.len() * GROUP);
        for group in chunk {
            prefetch_scan(group, ahead);
            for values in group.as_chunks::<WIDTH>().0 {
                let value = load(values);
                // SAFETY: the sink was made for every element of the chunk, and each is offered once.
                unsafe { push(&mut sink, start, reaching(value, limit), value) };
                start = start.wrapping_add(WIDTH as u32);
            }
        }
        // SAFETY: `push` counts what it writes; the chunk has no more elements than the sink has room for.
        unsafe { sink.finish() };
    }
    portable::extract(tail, start, limit, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn take(indices: &[u32], values: &[f32], limit: u32, out: &mut Entries) {
    let (index_registers, index_tail) = indices.as_chunks::<WIDTH>();
    let (value_registers, value_tail) = values.as_chunks::<WIDTH>();
    let mut sink = Sink::new(out, index_registers.len() * WIDTH);
    for (index, value) in index_registers.iter().zip(value_registers) {
        let value = load(value);
        // SAFETY: the reference covers a whole register; the load needs no alignment.
        let index = unsafe { _mm512_loadu_si512(index.as_ptr().cast()) };
        // SAFETY: the sink was made for every entry of the registers, and each is offered once.
        unsafe { push_at(&mut sink, index, reaching(value, limit), value) };
    }
    // SAFETY: `push_at` counts what it writes; the registers have no more entries than the sink has room for.
    unsafe { sink.finish() };
    portable::take(index_tail, value_tail, limit, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn take_out(values: &mut [f32], base: u32, limit: u32, out: &mut Entries) {
    let (groups, tail) = values.as_chunks_mut::<GROUP>();
    let (mut start, ahead) = (base, scan_ahead());
    for chunk in groups.chunks_mut(CHUNK / GROUP) {
        let mut sink = Sink::new(out, chunk.len() * GROUP);
        for group in chunk {
            prefetch_scan(group, ahead);
            for values in group.as_chunks_mut::<WIDTH>().0 {
                let value = load(values);
                let mask = reaching(value, limit);
                // SAFETY: the sink was made for every element of the chunk, and each is offered once.
                unsafe { push(&mut sink, start, mask, value) };
                store(values, _mm512_maskz_mov_ps(!mask, value));
                start = start.wrapping_add(WIDTH as u32);
            }
        }
        // SAFETY: `push` counts what it writes; the chunk has no more elements than the sink has room for.
        unsafe { sink.finish() };
    }
    portable::take_out(tail, start, limit, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn leave(values: &mut [f32], limit: u32, mut rests: &[f32]) {
    let (registers, tail) = values.as_chunks_mut::<WIDTH>();
    for values in registers {
        let value = load(values);
        let mask = reaching(value, limit);
        let count = mask.count_ones();
        let (next, later) = rests.split_at(count as usize);
        let lanes = 0xffff_u32.unbounded_shr(WIDTH as u32 - count) as __mmask16;
        // SAFETY: only as many lanes are read as `next` has elements.
        let next = unsafe { _mm512_maskz_loadu_ps(lanes, next.as_ptr()) };
        store(values, _mm512_mask_expand_ps(value, mask, next));
        rests = later;
    }
    portable::leave(tail, limit, rests);
}

/// Which values have magnitude bits of at least `limit`?
#[target_feature(enable = "avx512f")]
#[inline]
fn reaching(value: __m512, limit: u32) -> __mmask16 {
    let magnitude = _mm512_set1_epi32(MAGNITUDE as i32);
    let bits = _mm512_and_si512(_mm512_castps_si512(value), magnitude);
    _mm512_cmpge_epu32_mask(bits, _mm512_set1_epi32(limit as i32))
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
    let values = sums.as_chunks().0.first_chunk().expect("a whole window");
    // SAFETY: the sink was made for as many entries as there are marks, and they are counted.
    unsafe {
        put_found(&mut sink, start, &found, values);
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
    let (groups, tail) = values.as_chunks::<GROUP>();
    let magnitude = _mm512_set1_epi32(MAGNITUDE as i32);
    let lows = _mm512_set1_epi32(low as i32);
    let span = _mm512_set1_epi32(high.wrapping_sub(low) as i32);
    out.reserve(groups.len() * GROUP + WIDTH);
    let (mut len, end) = (out.len(), out.as_mut_ptr());
    let highs = _mm512_set1_epi32(high as i32);
    let (mut above, ahead) = (0, scan_ahead());
    for group in groups {
        prefetch_scan(group, ahead);
        for register in group.as_chunks::<WIDTH>().0 {
            let bits = _mm512_and_si512(_mm512_castps_si512(load(register)), magnitude);
            above += _mm512_cmpge_epu32_mask(bits, highs).count_ones() as usize;
            let mask = _mm512_cmplt_epu32_mask(_mm512_sub_epi32(bits, lows), span);
            // SAFETY: room for every element and one register more was reserved, and `len` counts no more than the elements seen.
            unsafe {
                _mm512_storeu_epi32(end.add(len).cast(), _mm512_maskz_compress_epi32(mask, bits))
            };
            len += mask.count_ones() as usize;
        }
    }
    // SAFETY: the stores above initialised everything up to `len`, which is within the capacity.
    unsafe { out.set_len(len) };
    above + portable::keys_between(tail, low, high, out)
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
    portable::clear(values: &mut [f32], limit: u32);
    portable::count_at_least(values: &[f32], limit: u32) -> usize;
    portable::ascends(indices: &[u32]) -> bool;
    portable::any_zero(values: &[f32]) -> bool;
    portable::write_parts(width: u32, start: u32, indices: &[u32], low: &mut [u8], high: &mut [u8]);
    portable::read_low(width: u32, bytes: &[u8], start: u32, slots: &mut [u32]);
    portable::zeros(width: u32, start: u32, indices: &[u32]) -> u64;
    portable::write_gaps(width: u32, start: u32, indices: &[u32], low: &mut [u8], high: &mut [u8]);
    portable::end_of_ones(bytes: &[u8], count: usize) -> Option<usize>;
    portable::sum_gaps(width: u32, bytes: &[u8], start: u32, slots: &mut [u32]);
    portable::extent(values: &[f32]) -> (u32, u32);
    portable::codes(values: &[f32], floors: &[f32; 7], out: &mut [u8]);
    portable::to_levels(values: &mut [f32], grid: &Grid, errors: &mut [f32]);
    portable::ladder_codes(values: &[f32], ladder: &Ladder<'_>, out: &mut [u8]);
    portable::ladder_values(codes: &[u8], ladder: &Ladder<'_>, out: &mut [f32]);
    portable::add_assign(a: &mut [f32], b: &[f32]);
    portable::all_finite(a: &[f32]) -> bool;
    portable::sum_of_squares(a: &[f32]) -> f64;
    portable::sum(a: &[f32]) -> f64;
    portable::to_bf16(src: &[f32], dst: &mut [u16]);
    portable::round_bf16(values: &mut [f32], errors: &mut [f32]);
    portable::from_bf16(src: &[u16], dst: &mut [f32]);
    x86::take_at(dense: &mut [f32], indices: &[u32], out: &mut Vec<f32>);
    x86::scatter(dense: &mut [f32], indices: &[u32], values: &[f32]);
    portable::add_at(dense: &mut [f32], base: u32, indices: &[u32], values: &[f32]);
    x86::clear_at(dense: &mut [f32], indices: &[u32], limit: u32);
    x86::copy_at(from: &[f32], to: &mut [f32], indices: &[u32]);
}
