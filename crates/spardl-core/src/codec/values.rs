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

/// Is any of the values zero, of either sign?
pub(super) fn any_zero(values: ValueType, bytes: &[u8]) -> bool {
    // Folds, because a loop that can leave early is not vectorised.
    match values {
        ValueType::F32 => bytes.as_chunks().0.iter().fold(false, |any, &bytes| {
            any | (u32::from_le_bytes(bytes) << 1 == 0)
        }),
        ValueType::Bf16 => bytes.as_chunks().0.iter().fold(false, |any, &bytes| {
            any | (u16::from_le_bytes(bytes) << 1 == 0)
        }),
    }
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
