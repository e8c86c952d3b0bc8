//! From bits to the places of the ones among them.

use std::arch::x86_64::*;

use super::{WIDTH, load, push};
use crate::elias_fano::words;
use crate::portable;
use crate::x86::{Sink, put_one};

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn read_high(bytes: &[u8], count: usize, out: &mut Vec<u32>) -> bool {
    if is_x86_feature_detected!("avx512vbmi2") {
        // SAFETY: the CPU has what the function needs beyond this level.
        unsafe { read_high_by_bytes(bytes, count, out) }
    } else {
        portable::read_high(bytes, count, out)
    }
}

/// [`portable::read_high`] with the compress instruction for bytes, which turns a word into the places of its ones at once.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt"
)]
fn read_high_by_bytes(bytes: &[u8], count: usize, out: &mut Vec<u32>) -> bool {
    let ones: usize = words(bytes).map(|word| word.count_ones() as usize).sum();
    if ones != count {
        return false;
    }
    // Whole registers are written, the last up to a word's ones after the end of what counts.
    out.reserve(count + 64);
    let mut end = out.as_mut_ptr().wrapping_add(out.len());
    let lanes = byte_lanes();
    let earlier = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(lanes));
    let mut before = 0;
    for word in words(bytes) {
        let ones = word.count_ones();
        let places = _mm512_maskz_compress_epi8(word, lanes);
        let put = |part: u32, places: __m128i| {
            // The zeros before a one are its place less the ones before it.
            let zeros = _mm512_set1_epi32(before - (part * WIDTH as u32) as i32);
            let high = _mm512_add_epi32(_mm512_cvtepu8_epi32(places), zeros);
            let to = end.wrapping_add(part as usize * WIDTH);
            // SAFETY: `end` is at most `count` elements after the old end, and room for 64 more was reserved.
            unsafe { _mm512_storeu_epi32(to.cast(), _mm512_sub_epi32(high, earlier)) };
        };
        put(0, _mm512_castsi512_si128(places));
        put(1, _mm512_extracti32x4_epi32::<1>(places));
        if ones > 32 {
            put(2, _mm512_extracti32x4_epi32::<2>(places));
            put(3, _mm512_extracti32x4_epi32::<3>(places));
        }
        before = before.wrapping_add((u64::BITS - ones) as i32);
        end = end.wrapping_add(ones as usize);
    }
    // SAFETY: the words have `count` ones, and as many elements were written one after the other.
    unsafe { out.set_len(out.len() + count) };
    true
}

/// The numbers 0 to 63, a byte each.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn byte_lanes() -> __m512i {
    const LANES: [u8; 64] = {
        let mut lanes = [0; 64];
        let mut lane = 0;
        while lane < 64 {
            lanes[lane] = lane as u8;
            lane += 1;
        }
        lanes
    };
    // SAFETY: the array is a whole register; the load needs no alignment.
    unsafe { _mm512_loadu_si512(LANES.as_ptr().cast()) }
}

/// One in so many elements is found: then all are compressed. To gather what is found takes longer.
const CROWDED: usize = 16;

/// Appends the `values` whose bits are set in `found`; the first of them has the index `start`.
///
/// # Safety
///
/// The sink has room for all of them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
pub(super) unsafe fn put_found<const N: usize>(
    sink: &mut Sink<'_>,
    start: u32,
    found: &[u64; N],
    values: &[[f32; 64]; N],
) {
    const { assert!(N.is_power_of_two(), "a mask keeps slots inside") };
    let count: u32 = found.iter().map(|found| found.count_ones()).sum();
    match count {
        0 => return,
        // SAFETY: the caller's contract.
        1 => return unsafe { put_one(sink, start, found, values) },
        _ => {}
    }
    if count as usize >= N * 64 / CROWDED {
        for (at, (found, values)) in found.iter().zip(values).enumerate() {
            for (part, values) in values.as_chunks().0.iter().enumerate() {
                let mask = (found >> (part * WIDTH)) as __mmask16;
                let first = start.wrapping_add((at * 64 + part * WIDTH) as u32);
                // SAFETY: the caller's contract.
                unsafe { push(sink, first, mask, load(values)) };
            }
        }
        return;
    }
    // SAFETY: the caller's contract.
    let count = unsafe { put_indices(sink, start, found) };
    let value = |slot| {
        let slot = _mm512_and_si512(slot, _mm512_set1_epi32(N as i32 * 64 - 1));
        // SAFETY: the mask keeps every slot among the values.
        unsafe { _mm512_i32gather_ps::<4>(slot, values.as_flattened().as_ptr()) }
    };
    // SAFETY: so many indices were just put.
    unsafe { put_values(sink, start, count, value) };
}

/// Puts the indices of the bits of `masks`, the lowest of which is `start`, at the end of the sink, and returns how many; they do not
/// count yet.
///
/// # Safety
///
/// The sink has room for all of them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn put_indices(sink: &mut Sink<'_>, start: u32, masks: &[u64]) -> usize {
    if is_x86_feature_detected!("avx512vbmi2") {
        // SAFETY: the CPU has what the function needs beyond this level; the caller's contract.
        return unsafe { put_indices_by_bytes(sink, start, masks) };
    }
    let (indices, _) = sink.end();
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let (mut count, mut first) = (0, start);
    for &mask in masks {
        for part in 0..if mask == 0 { 0 } else { 64 / WIDTH } {
            let mask = (mask >> (part * WIDTH)) as __mmask16;
            let base = _mm512_set1_epi32(first.wrapping_add((part * WIDTH) as u32) as i32);
            let index = _mm512_maskz_compress_epi32(mask, _mm512_add_epi32(lanes, base));
            // SAFETY: the sink takes 16 elements at the end of what it has room for.
            unsafe { _mm512_storeu_epi32(indices.add(count).cast(), index) };
            count += mask.count_ones() as usize;
        }
        first = first.wrapping_add(64);
    }
    count
}

/// [`put_indices`] with the compress instruction for bytes, which turns 64 bits into positions at once. Empty masks, about half of
/// them at a density of 1 %, are skipped without a branch each.
///
/// # Safety
///
/// As [`put_indices`].
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt"
)]
unsafe fn put_indices_by_bytes(sink: &mut Sink<'_>, start: u32, masks: &[u64]) -> usize {
    let lanes = byte_lanes();
    let (indices, _) = sink.end();
    let (mut count, mut start) = (0, start);
    for masks in masks.chunks(64) {
        let mut groups = not_zero(masks);
        while groups != 0 {
            let group = groups.trailing_zeros();
            let base = _mm512_set1_epi32(start.wrapping_add(group * 64) as i32);
            let mut mask = masks[group as usize];
            loop {
                let positions = _mm512_castsi512_si128(_mm512_maskz_compress_epi8(mask, lanes));
                let index = _mm512_add_epi32(base, _mm512_cvtepu8_epi32(positions));
                // SAFETY: the sink takes 16 elements at the end of what it has room for.
                unsafe { _mm512_storeu_epi32(indices.add(count).cast(), index) };
                let more = mask.count_ones() as usize;
                count += more.min(WIDTH);
                if more <= WIDTH {
                    break;
                }
                mask &= !_pdep_u64(0xffff, mask);
            }
            groups &= groups - 1;
        }
        start = start.wrapping_add(64 * 64);
    }
    count
}

/// A bit for each of at most 64 words that is not zero.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn not_zero(words: &[u64]) -> u64 {
    let (registers, rest) = words.as_chunks::<8>();
    let mut bits = 0;
    for (at, register) in registers.iter().enumerate() {
        // SAFETY: the reference covers a whole register; the load needs no alignment.
        let register = unsafe { _mm512_loadu_si512(register.as_ptr().cast()) };
        bits |= u64::from(_mm512_test_epi64_mask(register, register)) << (8 * at);
    }
    let first = 8 * registers.len();
    rest.iter().enumerate().fold(bits, |bits, (at, &word)| {
        bits | u64::from(word != 0) << (first + at)
    })
}

/// Puts the values of the `count` indices at the end of the sink there too, and counts these entries. `value` gets the indices less
/// `start`, and anything in lanes without one.
///
/// # Safety
///
/// So many indices were put there, and the sink has room for them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn put_values(
    sink: &mut Sink<'_>,
    start: u32,
    count: usize,
    value: impl Fn(__m512i) -> __m512,
) {
    let (indices, values) = sink.end();
    let starts = _mm512_set1_epi32(start as i32);
    for at in (0..count).step_by(WIDTH) {
        let lanes = 0xffff_u16 >> (WIDTH - (count - at).min(WIDTH));
        // SAFETY: the indices that are read were put; what is written ends less than 16 elements after the last entry.
        unsafe {
            let index = _mm512_maskz_loadu_epi32(lanes, indices.add(at).cast());
            _mm512_storeu_ps(values.add(at), value(_mm512_sub_epi32(index, starts)));
        }
    }
    sink.advance(count as u32);
}
