//! Codes of few bits: to bitmaps, from bitmaps and to values.

use std::arch::x86_64::*;

use super::{WIDTH, store};
use crate::portable;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn planes(codes: &[u8; 64], out: &mut [u64]) {
    // SAFETY: the reference covers a whole register; the load needs no alignment.
    let codes = unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) };
    for (bit, plane) in out.iter_mut().enumerate() {
        *plane = _mm512_test_epi8_mask(codes, _mm512_set1_epi8((1_u8 << bit) as i8));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn join(planes: &[u64], codes: &mut [u8; 64]) {
    let mut joined = _mm512_setzero_si512();
    for (bit, &plane) in planes.iter().enumerate() {
        let given = _mm512_set1_epi8((1_u8 << bit) as i8);
        joined = _mm512_mask_add_epi8(joined, plane, joined, given);
    }
    // SAFETY: the reference covers a whole register; the store needs no alignment.
    unsafe { _mm512_storeu_si512(codes.as_mut_ptr().cast(), joined) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn levels_of(codes: &[u8], levels: &[f32; 8], out: &mut [f32]) {
    // SAFETY: the reference covers the half of a register that is read; the load needs no alignment.
    let table = _mm512_castps256_ps512(unsafe { _mm256_loadu_ps(levels.as_ptr()) });
    let last = _mm512_set1_epi32(levels.len() as i32 - 1);
    let (registers, tail) = codes.as_chunks::<WIDTH>();
    let (slots, out_tail) = out.as_chunks_mut::<WIDTH>();
    for (codes, slots) in registers.iter().zip(slots) {
        // SAFETY: the reference covers the 16 bytes that are read; the load needs no alignment.
        let codes = unsafe { _mm_loadu_si128(codes.as_ptr().cast()) };
        let codes = _mm512_cvtepu8_epi32(codes);
        let number = _mm512_min_epu32(_mm512_srli_epi32::<1>(codes), last);
        let level = _mm512_permutexvar_ps(number, table);
        let sign = _mm512_castsi512_ps(_mm512_slli_epi32::<31>(codes));
        store(slots, _mm512_or_ps(level, sign));
    }
    portable::levels_of(tail, levels, out_tail);
}
