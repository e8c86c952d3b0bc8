//! Values as a sign and one of a few levels: which level a value is nearest to, and back.
//!
//! A code is the number of the level, shifted by one, and the sign in the lowest bit. The loops are written for the compiler to
//! vectorise. Eight levels are found by comparing with all of them. More are found by arithmetic around a look into a table, which is a
//! loop of its own, so that the others stay vectors.

use crate::{Level, portable};

#[cfg(target_arch = "x86_64")]
use crate::{avx2, avx512};

/// Levels of a code of four bits.
const LEVELS: usize = 8;

/// How magnitudes become numbers of levels.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// What magnitudes are divided by; no magnitude is smaller.
    pub base: f32,
    /// The smallest magnitude, whose level is the first whatever the limits say.
    pub least: f32,
    /// A magnitude has as many levels below its own as limits that the upper half of its quotient, rounded, reaches.
    pub limits: [u32; LEVELS - 1],
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
/// // Two levels; quotients from 1.5 on belong to the second.
/// let mut limits = [u32::MAX; 7];
/// limits[0] = 1.5f32.to_bits() >> 16;
/// let grid = few_bits::Grid { base: 2.0, least: 2.0, limits };
/// let mut codes = [0; 3];
/// few_bits::codes(Level::best(), &[2.0, -3.5, 2.5], &grid, &mut codes);
/// assert_eq!(codes, [0b00, 0b11, 0b00]);
/// let (mut levels, mut seen) = ([2.0; 8], [0.0; 3]);
/// levels[1] = 4.0;
/// few_bits::values(Level::best(), &codes, &levels, &mut seen);
/// assert_eq!(seen, [2.0, -4.0, 2.0]);
/// ```
pub fn codes(level: Level, values: &[f32], grid: &Grid, out: &mut [u8]) {
    assert_eq!(values.len(), out.len(), "a code for every value");
    dispatch!(level, codes(values, grid, out));
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

/// The portable loops.
pub(crate) mod loops {
    use super::{Grid, LEVELS, Ladder};
    use crate::{INFINITE, MAGNITUDE};

    /// Values between two looks into a table.
    const STRETCH: usize = 64;

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
    pub(crate) fn codes(values: &[f32], grid: &Grid, out: &mut [u8]) {
        let least = grid.least.to_bits();
        for (value, out) in values.iter().zip(out) {
            let bits = value.to_bits();
            let magnitude = bits & MAGNITUDE;
            let quotient = f32::from_bits(magnitude) / grid.base;
            let upper = quotient.to_bits().wrapping_add(0x8000) >> 16;
            let mut number = 0;
            for limit in grid.limits {
                number += u32::from(upper >= limit);
            }
            number = if magnitude == least { 0 } else { number };
            *out = (number << 1 | bits >> 31) as u8;
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
