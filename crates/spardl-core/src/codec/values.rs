//! Value types, and runs of values without indices.

use std::fmt;
use std::str::FromStr;

use spardl_kernels::Level;

use super::Reader;
use crate::error::DecodeError;

/// How values travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ValueType {
    /// IEEE 754 single precision: every value as it is.
    #[default]
    F32,
    /// The upper half of an f32: its range with 8 bits of precision.
    Bf16,
}

impl ValueType {
    /// The name in options and reports: `f32` or `bf16`.
    pub const fn name(self) -> &'static str {
        match self {
            ValueType::F32 => "f32",
            ValueType::Bf16 => "bf16",
        }
    }

    /// Bytes of one value.
    pub const fn bytes(self) -> usize {
        match self {
            ValueType::F32 => 4,
            ValueType::Bf16 => 2,
        }
    }

    /// The value as the receiver will see it; for bf16 the nearest, ties to even.
    ///
    /// `v - round(v)` is exact for every `v` whose `round(v)` is finite. A magnitude of at least
    /// `f32::from_bits(0x7f7f_8000)`, about 3.396e38, becomes infinite, one of at most
    /// `f32::from_bits(0x8000)`, about 4.6e-41, zero; a NaN stays a NaN.
    pub const fn round(self, v: f32) -> f32 {
        match self {
            ValueType::F32 => v,
            ValueType::Bf16 => f32::from_bits((bf16_bits(v) as u32) << 16),
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ValueType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "f32" => Ok(ValueType::F32),
            "bf16" => Ok(ValueType::Bf16),
            _ => Err(format!("unknown value type '{name}': use f32 or bf16")),
        }
    }
}

/// Appends a run of values to `out`; for bf16 they are rounded on the way.
pub fn encode_values(values: ValueType, src: &[f32], out: &mut Vec<u8>) {
    /// Values per step: two buffers of it stay in the first-level cache.
    const STEP: usize = 1024;
    out.reserve(src.len() * values.bytes());
    match values {
        ValueType::F32 if cfg!(target_endian = "little") => {
            out.extend_from_slice(bytemuck::cast_slice(src));
        }
        ValueType::F32 => out.extend(src.iter().flat_map(|value| value.to_le_bytes())),
        ValueType::Bf16 => {
            let mut buffer = [0u16; STEP];
            for src in src.chunks(STEP) {
                let buffer = &mut buffer[..src.len()];
                spardl_kernels::to_bf16(Level::best(), src, buffer);
                if cfg!(target_endian = "big") {
                    buffer.iter_mut().for_each(|bits| *bits = bits.to_le());
                }
                out.extend_from_slice(bytemuck::cast_slice(buffer));
            }
        }
    }
}

/// Reads a run of exactly `dst.len()` values to `dst`.
///
/// # Errors
/// If the bytes end before that; `dst` is then unchanged.
pub fn decode_values(
    values: ValueType,
    reader: &mut Reader<'_>,
    dst: &mut [f32],
) -> Result<(), DecodeError> {
    let bytes = run(values, reader, dst.len())?;
    match values {
        ValueType::F32 => zip(bytes, dst, |dst, bytes| *dst = f32::from_le_bytes(bytes)),
        ValueType::Bf16 => zip(bytes, dst, |dst, bytes| *dst = from_bf16(bytes)),
    }
    Ok(())
}

/// Reads a run of exactly `dst.len()` values and adds them to `dst`.
///
/// # Errors
/// If the bytes end before that; `dst` is then unchanged.
pub fn add_values(
    values: ValueType,
    reader: &mut Reader<'_>,
    dst: &mut [f32],
) -> Result<(), DecodeError> {
    let bytes = run(values, reader, dst.len())?;
    match values {
        ValueType::F32 => zip(bytes, dst, |dst, bytes| *dst += f32::from_le_bytes(bytes)),
        ValueType::Bf16 => zip(bytes, dst, |dst, bytes| *dst += from_bf16(bytes)),
    }
    Ok(())
}

/// Appends the values that `bytes` hold.
pub(super) fn append(values: ValueType, bytes: &[u8], out: &mut Vec<f32>) {
    match values {
        ValueType::F32 => out.extend(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b))),
        ValueType::Bf16 => out.extend(bytes.as_chunks().0.iter().map(|&b| from_bf16(b))),
    }
}

fn run<'a>(
    values: ValueType,
    reader: &mut Reader<'a>,
    len: usize,
) -> Result<&'a [u8], DecodeError> {
    reader.bytes(len.saturating_mul(values.bytes()))
}

fn zip<const N: usize>(bytes: &[u8], dst: &mut [f32], each: impl Fn(&mut f32, [u8; N])) {
    for (dst, &bytes) in dst.iter_mut().zip(bytes.as_chunks().0) {
        each(dst, bytes);
    }
}

/// One value of `spardl_kernels::to_bf16`.
const fn bf16_bits(v: f32) -> u16 {
    let bits = v.to_bits();
    let even = (bits >> 16) & 1;
    if v.is_nan() {
        (bits >> 16) as u16 | 0x40
    } else {
        ((bits + 0x7fff + even) >> 16) as u16
    }
}

fn from_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use proptest::prelude::*;

    use super::*;

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn the_rest_after_rounding_is_exact(v in prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL) {
            let round = ValueType::Bf16.round(v);
            prop_assume!(round.is_finite());
            assert_eq!(f64::from(v) - f64::from(round), f64::from(v - round));
            assert_eq!(round + (v - round), v);
        }

        #[test]
        fn rounding_is_that_of_half_and_of_the_kernels(pattern in any::<u32>()) {
            let v = f32::from_bits(pattern);
            let round = ValueType::Bf16.round(v);
            assert_eq!(round.to_bits(), bf16::from_f32(v).to_f32().to_bits());
            assert_eq!(ValueType::Bf16.round(round).to_bits(), round.to_bits());
            assert_eq!(ValueType::F32.round(v).to_bits(), pattern);
            for level in Level::available() {
                let mut kernel = [0; 40];
                spardl_kernels::to_bf16(level, &[v; 40], &mut kernel);
                assert_eq!(kernel, [(round.to_bits() >> 16) as u16; 40]);
            }
        }

        #[test]
        fn runs_of_values_come_back(patterns in prop::collection::vec(any::<u32>(), 0..3000)) {
            let src: Vec<f32> = patterns.iter().copied().map(f32::from_bits).collect();
            for values in [ValueType::F32, ValueType::Bf16] {
                let expected: Vec<f32> = src.iter().map(|&value| values.round(value)).collect();
                let mut bytes = vec![0];
                encode_values(values, &src, &mut bytes);
                assert_eq!(bytes.len(), 1 + src.len() * values.bytes());
                let mut reader = Reader::new(&bytes[1..]);
                let mut dst = vec![0.0; src.len()];
                decode_values(values, &mut reader, &mut dst).unwrap();
                reader.finish().unwrap();
                assert_eq!(bits(&dst), bits(&expected));

                let mut sum = vec![1.5; src.len()];
                add_values(values, &mut Reader::new(&bytes[1..]), &mut sum).unwrap();
                for (sum, value) in sum.into_iter().zip(expected) {
                    let plain = 1.5 + value;
                    assert!(sum == plain || sum.is_nan() && plain.is_nan());
                }

                let mut long = vec![0.0; src.len() + 1];
                let mut reader = Reader::new(&bytes[1..]);
                assert!(decode_values(values, &mut reader, &mut long).is_err());
                assert!(add_values(values, &mut reader, &mut long).is_err());
                assert_eq!(bits(&long), vec![0; long.len()]);
            }
        }
    }

    #[test]
    fn names_of_value_types_are_read_back() {
        for values in [ValueType::F32, ValueType::Bf16] {
            assert_eq!(values.name().parse(), Ok(values));
            assert_eq!(values.to_string(), values.name());
        }
        assert_eq!(ValueType::F32.bytes(), 4);
        assert_eq!(ValueType::Bf16.bytes(), 2);
        let error = "f16".parse::<ValueType>().unwrap_err();
        assert_eq!(error, "unknown value type 'f16': use f32 or bf16");
    }

    #[test]
    fn rounding_goes_to_even_and_to_infinity() {
        let round = |pattern| ValueType::Bf16.round(f32::from_bits(pattern)).to_bits();
        assert_eq!(round(0x3f80_8000), 0x3f80_0000);
        assert_eq!(round(0x3f81_8000), 0x3f82_0000);
        assert_eq!(round(0x3f80_8001), 0x3f81_0000);
        assert_eq!(round(0x7f7f_8000), 0x7f80_0000);
        assert_eq!(round(0x7f7f_7fff), 0x7f7f_0000);
        assert_eq!(round(0x8000_8000), 0x8000_0000);
        assert_eq!(round(0x0000_8001), 0x0001_0000);
        assert!(f32::from_bits(round(0x7f80_0001)).is_nan());
    }
}
