//! Values as a sign and one of a few levels: which level a value is nearest to, and back.
//!
//! A code is the number of the level, shifted by one, and the sign in the lowest bit. The loops are written for the compiler to
//! vectorise. Eight levels are found by comparing with where each begins. More are found by arithmetic around a look into a table, which is a
//! loop of its own, so that the others stay vectors.

use crate::{Level, portable};

#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};

/// Levels of a code of four bits.
const LEVELS: usize = 8;
/// Codes that go into bitmaps together.
const CHUNK: usize = 64;

/// A few levels, and where each begins.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// A magnitude has as many levels below its own as floors that it reaches. They ascend; those of levels that are not there are infinite.
    pub floors: [f32; LEVELS - 1],
    /// The levels.
    pub levels: [f32; LEVELS],
}

/// Many levels: `base * 2^(number * step / 64)`.
#[derive(Clone, Copy, Debug)]
pub struct Ladder<'a> {
    /// The first level, and what magnitudes are divided by; no magnitude is smaller.
    pub base: f32,
    /// The smallest magnitude, whose level is the first.
    pub least: f32,
    /// Rungs from level to level, at least 1.
    pub step: u32,
    /// The number of the last level.
    pub top: u32,
    /// The nearest rung for each seven bits of a quotient.
    pub rungs: &'a [u8; 128],
    /// Powers of two from 1 to 2, as the seven bits after the leading one.
    pub powers: &'a [u8; 64],
}

/// The codes of the values.
///
/// # Panics
///
/// If the slices differ in length.
pub fn ladder_codes(level: Level, values: &[f32], ladder: &Ladder<'_>, out: &mut [u8]) {
    assert_eq!(values.len(), out.len(), "a code for every value");
    dispatch!(level, ladder_codes(values, ladder, out));
}

/// The levels of the codes, with their signs; infinite where there is no such power.
///
/// # Panics
///
/// If the slices differ in length.
pub fn ladder_values(level: Level, codes: &[u8], ladder: &Ladder<'_>, out: &mut [f32]) {
    assert_eq!(codes.len(), out.len(), "a value for every code");
    dispatch!(level, ladder_values(codes, ladder, out));
}

/// The smallest and the largest magnitude bits (`bits & 0x7fff_ffff`); all bits and zero when there is no value.
pub fn extent(level: Level, values: &[f32]) -> (u32, u32) {
    dispatch!(level, extent(values))
}

/// The codes of the values.
///
/// # Panics
///
/// If the slices differ in length.
///
/// # Example
///
/// ```
/// use spardl_kernels::{Level, few_bits};
///
/// // Two levels; magnitudes from 3 on belong to the second.
/// let mut grid = few_bits::Grid { floors: [f32::INFINITY; 7], levels: [2.0; 8] };
/// (grid.floors[0], grid.levels[1]) = (3.0, 4.0);
/// let mut codes = [0; 3];
/// few_bits::codes(Level::best(), &[2.0, -3.5, 2.5], &grid, &mut codes);
/// assert_eq!(codes, [0b00, 0b11, 0b00]);
/// let mut seen = [0.0; 3];
/// few_bits::values(Level::best(), &codes, &grid.levels, &mut seen);
/// assert_eq!(seen, [2.0, -4.0, 2.0]);
/// let (mut values, mut errors) = ([2.0, -3.5, 2.5], [0.0; 3]);
/// few_bits::quantise(Level::best(), &mut values, &grid, &mut errors);
/// assert_eq!((values, errors), (seen, [0.0, 0.5, 0.5]));
/// ```
pub fn codes(level: Level, values: &[f32], grid: &Grid, out: &mut [u8]) {
    assert_eq!(values.len(), out.len(), "a code for every value");
    dispatch!(level, codes(values, &grid.floors, out));
}

/// The levels of the codes, with their signs.
///
/// # Panics
///
/// If the slices differ in length.
pub fn values(level: Level, codes: &[u8], levels: &[f32; LEVELS], out: &mut [f32]) {
    assert_eq!(codes.len(), out.len(), "a value for every code");
    dispatch!(level, levels_of(codes, levels, out));
}

/// Makes each value its level, with its sign, and puts what that takes from it in `errors`.
///
/// # Panics
///
/// If the slices differ in length.
pub fn quantise(level: Level, values: &mut [f32], grid: &Grid, errors: &mut [f32]) {
    assert_eq!(values.len(), errors.len(), "an error for every value");
    dispatch!(level, to_levels(values, grid, errors));
}

/// Bitmaps of the lowest bits of the codes, as many as `out` has room for: bit `i` of `out[b]` is bit `b` of code `i`.
///
/// # Panics
///
/// If that is more than eight.
pub fn planes(level: Level, codes: &[u8; CHUNK], out: &mut [u64]) {
    assert!(out.len() <= 8, "a code has eight bits");
    dispatch!(level, planes(codes, out));
}

/// The codes of which these are the [`planes`].
///
/// # Panics
///
/// If there are more than eight.
pub fn join(level: Level, planes: &[u64], codes: &mut [u8; CHUNK]) {
    assert!(planes.len() <= 8, "a code has eight bits");
    dispatch!(level, join(planes, codes));
}

/// The portable loops.
pub(crate) mod loops {
    use super::{CHUNK, Grid, LEVELS, Ladder};
    use crate::{INFINITE, MAGNITUDE};

    /// Values between two looks into a table.
    const STRETCH: usize = 64;
    /// The lowest bit of each byte.
    const LOWEST: u64 = 0x0101_0101_0101_0101;

    #[inline(always)]
    pub(crate) fn extent(values: &[f32]) -> (u32, u32) {
        let (mut least, mut most) = (MAGNITUDE, 0);
        for value in values {
            let magnitude = value.to_bits() & MAGNITUDE;
            least = if magnitude < least { magnitude } else { least };
            most = if magnitude > most { magnitude } else { most };
        }
        (least, most)
    }

    #[inline(always)]
    pub(crate) fn codes(values: &[f32], floors: &[f32; LEVELS - 1], out: &mut [u8]) {
        for (value, out) in values.iter().zip(out) {
            let magnitude = value.abs();
            let mut number = 0;
            for floor in floors {
                number += u32::from(magnitude >= *floor);
            }
            *out = (number << 1 | value.to_bits() >> 31) as u8;
        }
    }

    #[inline(always)]
    pub(crate) fn to_levels(values: &mut [f32], grid: &Grid, errors: &mut [f32]) {
        for (value, error) in values.iter_mut().zip(errors) {
            let magnitude = value.abs();
            let mut level = grid.levels[0];
            for (floor, next) in grid.floors.iter().zip(&grid.levels[1..]) {
                level = if magnitude >= *floor { *next } else { level };
            }
            let seen = f32::from_bits(level.to_bits() | value.to_bits() & !MAGNITUDE);
            *error = *value - seen;
            *value = seen;
        }
    }

    #[inline(always)]
    pub(crate) fn levels_of(codes: &[u8], levels: &[f32; LEVELS], out: &mut [f32]) {
        for (code, out) in codes.iter().zip(out) {
            let code = u32::from(*code);
            let mut seen = levels[0].to_bits();
            for (number, level) in (0..).zip(levels) {
                seen = if code >> 1 >= number {
                    level.to_bits()
                } else {
                    seen
                };
            }
            *out = f32::from_bits(seen | code << 31);
        }
    }

    /// A multiplication moves the lowest bits of eight bytes together.
    pub(crate) fn planes(codes: &[u8; CHUNK], out: &mut [u64]) {
        for (bit, plane) in out.iter_mut().enumerate() {
            let mut bytes = [0; CHUNK / 8];
            for (byte, codes) in bytes.iter_mut().zip(codes.as_chunks().0) {
                let bits = u64::from_le_bytes(*codes) >> bit & LOWEST;
                *byte = (bits.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
            }
            *plane = u64::from_le_bytes(bytes);
        }
    }

    pub(crate) fn join(planes: &[u64], codes: &mut [u8; CHUNK]) {
        let mut words = [0; CHUNK / 8];
        for (bit, plane) in planes.iter().enumerate() {
            for (word, bits) in words.iter_mut().zip(plane.to_le_bytes()) {
                *word |= spread(bits) << bit;
            }
        }
        for (codes, word) in codes.as_chunks_mut().0.iter_mut().zip(words) {
            *codes = word.to_le_bytes();
        }
    }

    /// A byte for each bit.
    fn spread(bits: u8) -> u64 {
        let one_each = u64::from(bits).wrapping_mul(LOWEST) & 0x8040_2010_0804_0201;
        // The bit in byte i has the value 2^i: what lacks to 2^7 is added.
        let highest = one_each.wrapping_add(0x0040_6070_787c_7e7f);
        highest >> 7 & LOWEST
    }

    #[inline(always)]
    pub(crate) fn ladder_codes(values: &[f32], ladder: &Ladder<'_>, out: &mut [u8]) {
        let (least, step) = (ladder.least.to_bits(), ladder.step as f32);
        let mut rungs = [0; STRETCH];
        let stretches = values.chunks(STRETCH).zip(out.chunks_mut(STRETCH));
        for (values, out) in stretches {
            for (value, rung) in values.iter().zip(&mut rungs) {
                let quotient = value.abs() / ladder.base;
                *rung = quotient.to_bits().wrapping_add(0x8000);
            }
            for rung in &mut rungs[..values.len()] {
                let octave = (*rung >> 23).saturating_sub(127);
                *rung = 64 * octave + u32::from(ladder.rungs[(*rung >> 16 & 127) as usize]);
            }
            for ((value, rung), out) in values.iter().zip(&rungs).zip(out) {
                let bits = value.to_bits();
                // Signed numbers are what vectors convert.
                let number = (*rung as i32 as f32 + 0.5 * step) / step;
                let number = (number as i32 as u32).min(ladder.top);
                let first = bits & MAGNITUDE == least;
                let number = if first { 0 } else { number };
                *out = (number << 1 | bits >> 31) as u8;
            }
        }
    }

    #[inline(always)]
    pub(crate) fn ladder_values(codes: &[u8], ladder: &Ladder<'_>, out: &mut [f32]) {
        let mut powers = [0; STRETCH];
        let stretches = codes.chunks(STRETCH).zip(out.chunks_mut(STRETCH));
        for (codes, out) in stretches {
            for (code, power) in codes.iter().zip(&mut powers) {
                let rung = u32::from(code >> 1) * ladder.step;
                *power = u32::from(ladder.powers[(rung % 64) as usize]);
            }
            for ((code, power), out) in codes.iter().zip(&powers).zip(out) {
                let rung = u32::from(code >> 1) * ladder.step;
                let bits = ((127 + rung / 64) << 23) + (power << 16);
                let bits = if rung >= 64 * 128 { INFINITE } else { bits };
                let level = ladder.base * f32::from_bits(bits);
                *out = f32::from_bits(level.to_bits() | u32::from(*code) << 31);
            }
        }
    }
}
