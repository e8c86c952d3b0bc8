//! The kernels for AVX2.
//!
//! The same shape as `avx512`; what AVX2 lacks is the compress instruction, replaced by a permutation from a table.

mod few_bits;
mod lists;
mod pass;

pub(crate) use few_bits::{join, levels_of, planes};
pub(crate) use lists::{common, drain, keys_between, read_high, take, take_out};
pub(crate) use pass::{accumulate, copy};

use std::arch::x86_64::*;

use crate::few_bits::{Grid, Ladder};
use crate::x86::{Sink, prefetch_scan, scan_ahead};
use crate::{Entries, MAGNITUDE, portable, x86};

/// Elements of one register.
const WIDTH: usize = 8;
/// Elements that are looked at together.
const GROUP: usize = 4 * WIDTH;
/// Elements between two looks at the capacity of the output and at the finite check.
const CHUNK: usize = 128 * GROUP;

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn extract(work: &[f32], base: u32, limit: u32, out: &mut Entries) {
    let (groups, tail) = work.as_chunks::<GROUP>();
    let magnitude = _mm256_set1_epi32(MAGNITUDE as i32);
    let below = _mm256_set1_epi32((limit - 1) as i32);
    let (mut start, ahead) = (base, scan_ahead());
    for chunk in groups.chunks(CHUNK / GROUP) {
        let mut sink = Sink::new(out, chunk.len() * GROUP);
        for group in chunk {
            prefetch_scan(group, ahead);
            let registers = group.as_chunks::<WIDTH>().0;
            let mut values = [_mm256_setzero_ps(); GROUP / WIDTH];
            let mut masks = [_mm256_setzero_si256(); GROUP / WIDTH];
            for j in 0..GROUP / WIDTH {
                values[j] = load(&registers[j]);
                let bits = _mm256_and_si256(_mm256_castps_si256(values[j]), magnitude);
                masks[j] = _mm256_cmpgt_epi32(bits, below);
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

/// For each mask of eight lanes, the numbers of its set lanes, a byte each, lowest first.
static SET_LANES: [u64; 256] = set_lanes();

const fn set_lanes() -> [u64; 256] {
    let mut table = [0; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut place) = (0, 0);
        while lane < 8 {
            if mask >> lane & 1 == 1 {
                table[mask] |= lane << (8 * place);
                place += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    table
}

/// Appends the entries of `mask` to the sink.
///
/// # Safety
///
/// The sink has room for the entries of the mask.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn push(sink: &mut Sink<'_>, start: u32, mask: __m256i, value: __m256) {
    let mask = _mm256_movemask_ps(_mm256_castsi256_ps(mask)) as u8;
    let lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(SET_LANES[mask as usize] as i64));
    let index = _mm256_add_epi32(lanes, _mm256_set1_epi32(start as i32));
    let (indices, values) = sink.end();
    // SAFETY: a sink with room takes 8 elements at its end.
    unsafe {
        _mm256_storeu_si256(indices.cast(), index);
        _mm256_storeu_ps(values, _mm256_permutevar8x32_ps(value, lanes));
    }
    sink.advance(mask.count_ones());
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(src: &[f32; WIDTH]) -> __m256 {
    // SAFETY: the reference covers a whole register; the load needs no alignment.
    unsafe { _mm256_loadu_ps(src.as_ptr()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(dst: &mut [f32; WIDTH], value: __m256) {
    // SAFETY: the reference covers a whole register; the store needs no alignment.
    unsafe { _mm256_storeu_ps(dst.as_mut_ptr(), value) }
}

/// A bit for each byte that is not zero.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn set_bytes(bytes: &[u8; 64]) -> u64 {
    let half = |bytes: &[u8; 32]| {
        // SAFETY: the reference covers a whole register; the load needs no alignment.
        let bytes = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
        let zero = _mm256_cmpeq_epi8(bytes, _mm256_setzero_si256());
        u64::from(!_mm256_movemask_epi8(zero) as u32)
    };
    let [low, high] = bytes.as_chunks().0 else {
        unreachable!("64 bytes are two halves")
    };
    half(low) | half(high) << 32
}

/// The portable source, compiled for this level.
macro_rules! recompiled {
    ($($module:ident::$name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        pub(crate) fn $name($($argument: $type),*) $(-> $result)? {
            $module::$name($($argument),*)
        }
    )*};
}

recompiled! {
    portable::leave(values: &mut [f32], limit: u32, rests: &[f32]);
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
