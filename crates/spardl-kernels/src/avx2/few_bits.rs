//! Codes of few bits: to bitmaps, from bitmaps and to values.

use std::arch::x86_64::*;

use super::{WIDTH, load, store};
use crate::portable;

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn planes(codes: &[u8; 64], out: &mut [u64]) {
    let [low, high] = codes.as_chunks::<32>().0 else {
        unreachable!("64 bytes are two halves")
    };
    let (low, high) = (load_bytes(low), load_bytes(high));
    for (bit, plane) in out.iter_mut().enumerate() {
        let up = _mm_cvtsi32_si128(7 - bit as i32);
        // What is moved in from the byte below does not reach the highest bit.
        let part = |codes| _mm256_movemask_epi8(_mm256_sll_epi16(codes, up)) as u32;
        *plane = u64::from(part(low)) | u64::from(part(high)) << 32;
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn join(planes: &[u64], codes: &mut [u8; 64]) {
    let one_each = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    // Eight copies of each of the four bytes that are in both lanes.
    let copies = _mm256_setr_epi64x(
        0,
        0x0101_0101_0101_0101,
        0x0202_0202_0202_0202,
        0x0303_0303_0303_0303,
    );
    for (half, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let mut joined = _mm256_setzero_si256();
        for (bit, &plane) in planes.iter().enumerate() {
            let bits = _mm256_set1_epi32((plane >> (32 * half)) as i32);
            let bits = _mm256_and_si256(_mm256_shuffle_epi8(bits, copies), one_each);
            let ones = _mm256_cmpeq_epi8(bits, one_each);
            let given = _mm256_set1_epi8((1_u8 << bit) as i8);
            joined = _mm256_or_si256(joined, _mm256_and_si256(ones, given));
        }
        // SAFETY: the reference covers a whole register; the store needs no alignment.
        unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), joined) };
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn levels_of(codes: &[u8], levels: &[f32; 8], out: &mut [f32]) {
    let (table, last) = (load(levels), _mm256_set1_epi32(levels.len() as i32 - 1));
    let (registers, tail) = codes.as_chunks::<WIDTH>();
    let (slots, out_tail) = out.as_chunks_mut::<WIDTH>();
    for (codes, slots) in registers.iter().zip(slots) {
        let codes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*codes)));
        let number = _mm256_min_epu32(_mm256_srli_epi32::<1>(codes), last);
        let level = _mm256_permutevar8x32_ps(table, number);
        let sign = _mm256_castsi256_ps(_mm256_slli_epi32::<31>(codes));
        store(slots, _mm256_or_ps(level, sign));
    }
    portable::levels_of(tail, levels, out_tail);
}

#[target_feature(enable = "avx2")]
#[inline]
fn load_bytes(src: &[u8; 32]) -> __m256i {
    // SAFETY: the reference covers a whole register; the load needs no alignment.
    unsafe { _mm256_loadu_si256(src.as_ptr().cast()) }
}
