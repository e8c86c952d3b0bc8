//! The kernels for lists: what a compress instruction would do, by permutations from a table.

use std::arch::x86_64::*;

use super::{CHUNK, GROUP, SET_LANES, WIDTH, load, set_bytes, store};
use crate::elias_fano::words;
use crate::window::{Marks, Sums};
use crate::x86::{Sink, prefetch_scan, put_one, scan_ahead};
use crate::{Entries, MAGNITUDE, Window, portable};

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn take(indices: &[u32], values: &[f32], limit: u32, out: &mut Entries) {
    let (index_registers, index_tail) = indices.as_chunks::<WIDTH>();
    let (value_registers, value_tail) = values.as_chunks::<WIDTH>();
    let mut sink = Sink::new(out, index_registers.len() * WIDTH);
    for (index, value) in index_registers.iter().zip(value_registers) {
        let value = load(value);
        let reached = mask(reaching(magnitude(value), limit));
        // SAFETY: the reference covers a whole register; the load needs no alignment.
        let index = unsafe { _mm256_loadu_si256(index.as_ptr().cast()) };
        // SAFETY: the sink was made for every entry of the registers, and each is offered once.
        unsafe { push_at(&mut sink, index, reached, value) };
    }
    // SAFETY: `push_at` counts what it writes; the registers have no more entries than the sink has room for.
    unsafe { sink.finish() };
    portable::take(index_tail, value_tail, limit, out);
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn take_out(values: &mut [f32], base: u32, limit: u32, out: &mut Entries) {
    let (groups, tail) = values.as_chunks_mut::<GROUP>();
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let (mut start, ahead) = (base, scan_ahead());
    for chunk in groups.chunks_mut(CHUNK / GROUP) {
        let mut sink = Sink::new(out, chunk.len() * GROUP);
        for group in chunk {
            prefetch_scan(group, ahead);
            for values in group.as_chunks_mut::<WIDTH>().0 {
                let value = load(values);
                let reached = reaching(magnitude(value), limit);
                let index = _mm256_add_epi32(_mm256_set1_epi32(start as i32), lanes);
                // SAFETY: the sink was made for every element of the chunk, and each is offered once.
                unsafe { push_at(&mut sink, index, mask(reached), value) };
                store(values, _mm256_andnot_ps(reached, value));
                start = start.wrapping_add(WIDTH as u32);
            }
        }
        // SAFETY: `push_at` counts what it writes; the chunk has no more elements than the sink has room for.
        unsafe { sink.finish() };
    }
    portable::take_out(tail, start, limit, out);
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn keys_between(values: &[f32], low: u32, high: u32, out: &mut Vec<u32>) -> usize {
    let (groups, tail) = values.as_chunks::<GROUP>();
    out.reserve(groups.len() * GROUP + WIDTH);
    let (mut len, end) = (out.len(), out.as_mut_ptr());
    let (mut above, ahead) = (0, scan_ahead());
    for group in groups {
        prefetch_scan(group, ahead);
        for register in group.as_chunks::<WIDTH>().0 {
            let bits = magnitude(load(register));
            let reach_high = mask(reaching(bits, high));
            let between = mask(reaching(bits, low)) & !reach_high;
            above += reach_high.count_ones() as usize;
            // SAFETY: room for every element and one register more was reserved, and `len` counts no more than the elements seen.
            unsafe {
                let keys = _mm256_permutevar8x32_epi32(bits, set_lanes(between));
                _mm256_storeu_si256(end.add(len).cast(), keys);
            }
            len += between.count_ones() as usize;
        }
    }
    // SAFETY: the stores above initialised everything up to `len`, which is within the capacity.
    unsafe { out.set_len(len) };
    above + portable::keys_between(tail, low, high, out)
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn common(
    marks: &Marks,
    start: u32,
    indices: &[u32],
    values: &[f32],
    out: &mut Entries,
) -> usize {
    let index_registers = indices.as_chunks::<WIDTH>().0;
    let value_registers = values.as_chunks::<WIDTH>().0;
    let mut sink = Sink::new(out, index_registers.len() * WIDTH);
    let mut count = 0;
    for (index, value) in index_registers.iter().zip(value_registers) {
        if index[WIDTH - 1].wrapping_sub(start) as usize >= Window::LEN {
            break;
        }
        let mut marked = 0;
        for (lane, &index) in index.iter().enumerate() {
            marked |= marks[index.wrapping_sub(start) as usize % Window::LEN] << lane;
        }
        // SAFETY: the reference covers a whole register; the load needs no alignment.
        let index = unsafe { _mm256_loadu_si256(index.as_ptr().cast()) };
        // SAFETY: the sink was made for every entry of the registers, and each is offered once.
        unsafe { push_at(&mut sink, index, marked, load(value)) };
        count += WIDTH;
    }
    // SAFETY: `push_at` counts what it writes; the registers have no more entries than the sink has room for.
    unsafe { sink.finish() };
    // What is left in the window is less than a register, or the tail.
    let rest = if count < index_registers.len() * WIDTH {
        count..count + WIDTH
    } else {
        count..indices.len()
    };
    count + portable::common(marks, start, &indices[rest.clone()], &values[rest], out)
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn drain(marks: &mut Marks, sums: &Sums, start: u32, most: usize, out: &mut Entries) {
    let mut found = [0; Window::LEN / 64];
    for (found, marks) in found.iter_mut().zip(marks.as_chunks_mut().0) {
        *found = set_bytes(marks);
        *marks = [0; 64];
    }
    let mut sink = Sink::new(out, most);
    // A few groups at a time, so that those without an entry are passed over.
    let groups = found.chunks(4).zip(sums.as_chunks().0.chunks(4));
    for ((found, sums), start) in groups.zip((start..).step_by(4 * 64)) {
        // SAFETY: the sink was made for as many entries as there are marks, and they are counted.
        unsafe { put_found(&mut sink, start, found, sums) };
    }
    // SAFETY: as above.
    unsafe { sink.finish() };
}

/// One in so many elements is found: then all are permuted, eight at a time.
const CROWDED: usize = 16;

/// Appends the `values` whose bits are set in `found`; the first of them has the index `start`.
///
/// # Safety
///
/// The sink has room for all of them.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
pub(super) unsafe fn put_found(
    sink: &mut Sink<'_>,
    start: u32,
    found: &[u64],
    values: &[[f32; 64]],
) {
    let count: u32 = found.iter().map(|found| found.count_ones()).sum();
    match count {
        0 => return,
        // SAFETY: the caller's contract.
        1 => return unsafe { put_one(sink, start, found, values) },
        _ => {}
    }
    let crowded = count as usize >= found.len() * 64 / CROWDED;
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (at, (&found, values)) in found.iter().zip(values).enumerate() {
        let first = start.wrapping_add(at as u32 * 64);
        if !crowded {
            // SAFETY: the caller's contract.
            unsafe { put_few(sink, first, found, values) };
            continue;
        }
        for (part, values) in values.as_chunks().0.iter().enumerate() {
            let first = first.wrapping_add((part * WIDTH) as u32);
            let index = _mm256_add_epi32(_mm256_set1_epi32(first as i32), lanes);
            // SAFETY: the caller's contract.
            unsafe { push_at(sink, index, (found >> (part * WIDTH)) as u8, load(values)) };
        }
    }
}

/// Writes entries four at a time, whether four are left to write, fewer or none: a loop over the bits would guess its end wrong every
/// time.
///
/// # Safety
///
/// The sink has room for what is found.
#[inline(always)]
unsafe fn put_few(sink: &mut Sink<'_>, first: u32, found: u64, values: &[f32; 64]) {
    let mut rest = found;
    loop {
        let (indices, slots) = sink.end();
        let count = rest.count_ones().min(4);
        for i in 0..4 {
            // The mask keeps an empty rest, of 64 trailing zeros, inside; what is written then does not count.
            let offset = rest.trailing_zeros() as usize & 63;
            // SAFETY: a sink with room takes 16 elements at its end.
            unsafe {
                *indices.add(i) = first.wrapping_add(offset as u32);
                *slots.add(i) = values[offset];
            }
            rest &= rest.wrapping_sub(1);
        }
        sink.advance(count);
        if rest == 0 {
            break;
        }
    }
}

/// [`portable::read_high`], a byte of the bitmap at a time: a table has the places of its ones.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn read_high(bytes: &[u8], count: usize, out: &mut Vec<u32>) -> bool {
    let ones: usize = words(bytes).map(|word| word.count_ones() as usize).sum();
    if ones != count {
        return false;
    }
    // Whole registers are written, the last up to one after the end of what counts.
    out.reserve(count + WIDTH);
    let mut end = out.as_mut_ptr().wrapping_add(out.len());
    let earlier = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let mut before = 0_i32;
    for &byte in bytes {
        // The zeros before a one are its place less the ones before it.
        let zeros = _mm256_sub_epi32(_mm256_set1_epi32(before), earlier);
        let high = _mm256_add_epi32(set_lanes(byte), zeros);
        // SAFETY: `end` is at most `count` elements after the old end, and room for a register more was reserved.
        unsafe { _mm256_storeu_si256(end.cast(), high) };
        let ones = byte.count_ones();
        before = before.wrapping_add((u8::BITS - ones) as i32);
        end = end.wrapping_add(ones as usize);
    }
    // SAFETY: the bytes have `count` ones, and as many elements were written one after the other.
    unsafe { out.set_len(out.len() + count) };
    true
}

/// The bits of the values without their signs.
#[target_feature(enable = "avx2")]
#[inline]
fn magnitude(value: __m256) -> __m256i {
    _mm256_and_si256(
        _mm256_castps_si256(value),
        _mm256_set1_epi32(MAGNITUDE as i32),
    )
}

/// All bits of the lanes in which the number is at least `limit`, both without a sign.
#[target_feature(enable = "avx2")]
#[inline]
fn reaching(bits: __m256i, limit: u32) -> __m256 {
    let larger = _mm256_max_epu32(bits, _mm256_set1_epi32(limit as i32));
    _mm256_castsi256_ps(_mm256_cmpeq_epi32(larger, bits))
}

/// A bit per lane.
#[target_feature(enable = "avx2")]
#[inline]
fn mask(lanes: __m256) -> u8 {
    _mm256_movemask_ps(lanes) as u8
}

/// The numbers of the set lanes, lowest first.
#[target_feature(enable = "avx2")]
#[inline]
fn set_lanes(mask: u8) -> __m256i {
    _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(SET_LANES[mask as usize] as i64))
}

/// Appends the entries of `mask` with these indices to the sink.
///
/// # Safety
///
/// The sink has room for the entries of the mask.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn push_at(sink: &mut Sink<'_>, index: __m256i, mask: u8, value: __m256) {
    let lanes = set_lanes(mask);
    let (indices, values) = sink.end();
    // SAFETY: a sink with room takes 16 elements at its end.
    unsafe {
        _mm256_storeu_si256(indices.cast(), _mm256_permutevar8x32_epi32(index, lanes));
        _mm256_storeu_ps(values, _mm256_permutevar8x32_ps(value, lanes));
    }
    sink.advance(mask.count_ones());
}
