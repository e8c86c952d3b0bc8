//! The types a gradient comes in.

use std::ops::Range;

use half::{bf16, f16};

use crate::MAGNITUDE;

/// A gradient, or a piece of one, in the type that its owner keeps it in.
///
/// Every value of the narrow types is a value of f32, so that reading one rounds nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Source<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// The upper half of single precision.
    Bf16(&'a [bf16]),
    /// Half precision: more digits than bf16, a far smaller range.
    F16(&'a [f16]),
}

/// Calls the same expression for whichever slice the source holds.
macro_rules! each_type {
    ($source:expr, $values:ident => $call:expr) => {
        match $source {
            Source::F32($values) => $call,
            Source::Bf16($values) => $call,
            Source::F16($values) => $call,
        }
    };
}
pub(crate) use each_type;

impl<'a> Source<'a> {
    /// Number of elements.
    pub const fn len(&self) -> usize {
        each_type!(self, values => values.len())
    }

    /// Is there no element?
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `i` as f32; exact.
    ///
    /// # Panics
    ///
    /// If there is no such element.
    pub fn get(&self, i: usize) -> f32 {
        each_type!(self, values => values[i].widen())
    }

    /// The elements of `range`.
    ///
    /// # Panics
    ///
    /// If the range ends after the last element.
    pub fn slice(self, range: Range<usize>) -> Source<'a> {
        match self {
            Source::F32(values) => Source::F32(&values[range]),
            Source::Bf16(values) => Source::Bf16(&values[range]),
            Source::F16(values) => Source::F16(&values[range]),
        }
    }
}

impl<'a> From<&'a [f32]> for Source<'a> {
    fn from(values: &'a [f32]) -> Self {
        Source::F32(values)
    }
}

impl<'a> From<&'a [bf16]> for Source<'a> {
    fn from(values: &'a [bf16]) -> Self {
        Source::Bf16(values)
    }
}

impl<'a> From<&'a [f16]> for Source<'a> {
    fn from(values: &'a [f16]) -> Self {
        Source::F16(values)
    }
}

/// A source and the factor that each of its elements is multiplied by, in f32, as it is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaled<'a> {
    /// The elements.
    pub source: Source<'a>,
    /// The factor; 1 changes no bit.
    pub scale: f32,
}

impl<'a, S: Into<Source<'a>>> From<S> for Scaled<'a> {
    fn from(source: S) -> Self {
        Scaled {
            source: source.into(),
            scale: 1.0,
        }
    }
}

/// An element of a [`Source`].
pub(crate) trait Element: Copy {
    /// The same value as f32.
    fn widen(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Element for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

impl Element for f16 {
    /// Without branches, so that the compiler vectorises it: the exponent moves to its place in an f32, a multiplication makes
    /// up for the other bias (subnormals included), and what was infinite or NaN gets all bits of the exponent.
    #[inline(always)]
    fn widen(self) -> f32 {
        const SMALLEST_INFINITE: u32 = 0x7c00;
        /// 2^112: 127 less 15, the difference of the biases.
        const BIAS: f32 = f32::from_bits((127 + 112) << 23);
        let bits = u32::from(self.to_bits());
        let magnitude = bits & 0x7fff;
        let value = f32::from_bits(magnitude << 13) * BIAS;
        let special = if magnitude >= SMALLEST_INFINITE {
            crate::INFINITE
        } else {
            0
        };
        let sign = bits << 16 & !MAGNITUDE;
        f32::from_bits(value.to_bits() | special | sign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_widens_to_its_value() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            for (ours, theirs) in [
                (half.widen(), half.to_f32_const()),
                (brain.widen(), brain.to_f32_const()),
            ] {
                assert!(
                    ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                    "{bits:#06x}"
                );
            }
        }
    }

    #[test]
    fn a_slice_of_a_source_has_its_elements() {
        let halves = [1.0, 2.0, 3.0].map(f16::from_f32);
        let source = Source::from(&halves[..]).slice(1..3);
        assert_eq!((source.len(), source.get(0), source.get(1)), (2, 2.0, 3.0));
        assert!(source.slice(1..1).is_empty());
    }
}
