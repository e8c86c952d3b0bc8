//! Value types, and runs of values without indices.

mod levels;

use std::fmt;
use std::str::FromStr;

use spardl_kernels::Level;

use super::Reader;
use crate::error::DecodeError;
use crate::offer;

/// How values travel.
///
/// A run of values, those of a list in the order of its indices or a stretch of an array, is coded at once. What a receiver
/// sees of a value may depend on its neighbours in the run, so runs are quantised as they will be sent, and whoever does so
/// keeps the errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ValueType {
    /// IEEE 754 single precision: every value as it is.
    #[default]
    F32,
    /// The upper half of an f32: its range with 8 bits of precision.
    Bf16,
    /// Sign and one of 128 levels, with a scale per 64 values.
    Q8,
    /// Sign and one of 8 levels, with a scale per 64 values.
    Q4,
    /// Sign and one of 2 levels, with a scale per 64 values.
    Q2,
    /// The sign, with a mean magnitude per 64 values.
    Q1,
}

impl ValueType {
    /// All types, the widest first.
    pub const ALL: [Self; 6] = [
        Self::F32,
        Self::Bf16,
        Self::Q8,
        Self::Q4,
        Self::Q2,
        Self::Q1,
    ];

    /// The name in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            ValueType::F32 => "f32",
            ValueType::Bf16 => "bf16",
            ValueType::Q8 => "q8",
            ValueType::Q4 => "q4",
            ValueType::Q2 => "q2",
            ValueType::Q1 => "q1",
        }
    }

    /// How the values travel, in terms of the code.
    const fn coding(self) -> Coding {
        match self {
            ValueType::F32 => Coding::F32,
            ValueType::Bf16 => Coding::Bf16,
            ValueType::Q8 => Coding::Levels(levels::Q8),
            ValueType::Q4 => Coding::Levels(levels::Q4),
            ValueType::Q2 => Coding::Levels(levels::Q2),
            ValueType::Q1 => Coding::Levels(levels::Q1),
        }
    }

    /// The most bytes that a run of `count` values takes. Saturates: a length that does not fit is more than any message has.
    pub const fn encoded_len(self, count: usize) -> usize {
        match self.coding() {
            Coding::F32 => count.saturating_mul(4),
            Coding::Bf16 => count.saturating_mul(2),
            Coding::Levels(levels) => levels.encoded_len(count),
        }
    }

    /// The bytes that a run of `count` values of a selection usually takes; exactly so many for f32 and bf16.
    ///
    /// Few bits are enough for values that lie close together, as those of a selection do.
    pub const fn usual_len(self, count: usize) -> usize {
        match self.coding() {
            Coding::Levels(levels) => levels.usual_len(count),
            _ => self.encoded_len(count),
        }
    }

    /// [`ValueType::usual_len`] of values that were not selected: they lie further apart, where fewer than four bits are not enough.
    pub const fn usual_dense_len(self, count: usize) -> usize {
        match self {
            ValueType::Q2 | ValueType::Q1 => ValueType::Q4.usual_len(count),
            values => values.usual_len(count),
        }
    }

    /// [`ValueType::encoded_len`] of `runs` runs of `count` values together.
    pub const fn split_len(self, count: usize, runs: usize) -> usize {
        let one = self.encoded_len(count);
        match self.coding() {
            Coding::Levels(_) => one.saturating_add(runs),
            _ => one,
        }
    }

    /// The part of the quantising that looks at one value alone: this type, or f32 when neighbours share a scale.
    ///
    /// For lists that are cut after they were taken: the pieces are what is sent, and quantised.
    pub const fn elementwise(self) -> Self {
        match self.coding() {
            Coding::Levels(_) => ValueType::F32,
            _ => self,
        }
    }

    /// Has a value fewer bits than its index?
    pub const fn is_narrow(self) -> bool {
        matches!(self.coding(), Coding::Levels(_))
    }

    /// Does every receiver see every value as it is?
    pub const fn is_exact(self) -> bool {
        matches!(self, ValueType::F32)
    }

    /// How far a value that is seen may lie from the value sent, as a part of that; for all but subnormal ones.
    pub const fn max_relative_error(self) -> f32 {
        match self.coding() {
            Coding::F32 => 0.0,
            Coding::Bf16 => 1.0 / 256.0,
            Coding::Levels(_) => 1.0,
        }
    }

    /// Makes a run what its receivers will see; `errors` becomes what that takes from each value.
    ///
    /// `value - seen` is exact wherever `seen` is finite; where it is not, the error is zero, since `inf - inf` would put NaN
    /// into a residual. A second time changes nothing. For bf16 a value becomes the nearest, ties to even: a magnitude of at
    /// least `f32::from_bits(0x7f7f_8000)`, about 3.396e38, becomes infinite, one of at most `f32::from_bits(0x8000)`, about
    /// 4.6e-41, zero; a NaN stays a NaN.
    ///
    /// # Panics
    /// If `values` and `errors` differ in length.
    pub fn quantise(self, values: &mut [f32], errors: &mut [f32]) {
        assert_eq!(values.len(), errors.len(), "an error for every value");
        match self.coding() {
            Coding::F32 => errors.fill(0.0),
            Coding::Bf16 => spardl_kernels::round_bf16(Level::best(), values, errors),
            Coding::Levels(levels) => levels.quantise(values, errors),
        }
    }

    /// [`ValueType::quantise`] where nobody keeps the errors.
    pub fn round(self, values: &mut [f32]) {
        if self.is_exact() {
            return;
        }
        let mut errors = [0.0; STEP];
        for values in values.chunks_mut(STEP) {
            self.quantise(values, &mut errors[..values.len()]);
        }
    }
}

enum Coding {
    F32,
    Bf16,
    Levels(levels::Levels),
}

/// Values per step of a loop with a buffer: two buffers of it stay in the first-level cache. Chunks divide it.
const STEP: usize = 1024;

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ValueType {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|values| values.name() == name);
        found.ok_or_else(|| {
            let offer = offer(name, &Self::ALL.map(Self::name));
            format!("unknown value type '{name}': {offer}")
        })
    }
}

/// Appends a run of values to `out`, quantised or not: what its receivers see is the same.
pub fn encode_values(values: ValueType, src: &[f32], out: &mut Vec<u8>) {
    out.reserve(values.encoded_len(src.len()));
    match values.coding() {
        Coding::F32 if cfg!(target_endian = "little") => {
            out.extend_from_slice(bytemuck::cast_slice(src));
        }
        Coding::F32 => out.extend(src.iter().flat_map(|value| value.to_le_bytes())),
        Coding::Levels(levels) => levels.encode(src, out),
        Coding::Bf16 => {
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
/// If the bytes are not such a run; `dst` is then unchanged.
pub fn decode_values(
    values: ValueType,
    reader: &mut Reader<'_>,
    dst: &mut [f32],
) -> Result<(), DecodeError> {
    let run = read_run(values, reader, dst.len())?;
    match values.coding() {
        Coding::F32 => zip(run, dst, |dst, bytes| *dst = f32::from_le_bytes(bytes)),
        Coding::Bf16 => zip(run, dst, |dst, bytes| *dst = from_bf16(bytes)),
        Coding::Levels(levels) => levels.each(run, dst.len(), |from, chunk| {
            dst[from..from + chunk.len()].copy_from_slice(chunk);
        }),
    }
    Ok(())
}

/// Reads a run of exactly `dst.len()` values and adds them to `dst`.
///
/// # Errors
/// If the bytes are not such a run; `dst` is then unchanged.
pub fn add_values(
    values: ValueType,
    reader: &mut Reader<'_>,
    dst: &mut [f32],
) -> Result<(), DecodeError> {
    let run = read_run(values, reader, dst.len())?;
    match values.coding() {
        Coding::F32 => zip(run, dst, |dst, bytes| *dst += f32::from_le_bytes(bytes)),
        Coding::Bf16 => zip(run, dst, |dst, bytes| *dst += from_bf16(bytes)),
        Coding::Levels(levels) => levels.each(run, dst.len(), |from, chunk| {
            let dst = &mut dst[from..from + chunk.len()];
            spardl_kernels::add_assign(Level::best(), dst, chunk);
        }),
    }
    Ok(())
}

/// The bytes of a run of `len` values, found to be one.
pub(super) fn read_run<'a>(
    values: ValueType,
    reader: &mut Reader<'a>,
    len: usize,
) -> Result<&'a [u8], DecodeError> {
    match values.coding() {
        Coding::Levels(levels) => levels.read_run(reader, len),
        _ => reader.bytes(values.encoded_len(len)),
    }
}

/// Appends the `count` values of a run that [`read_run`] found.
pub(super) fn append(values: ValueType, run: &[u8], count: usize, out: &mut Vec<f32>) {
    match values.coding() {
        Coding::F32 => out.extend(run.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b))),
        Coding::Bf16 => out.extend(run.as_chunks().0.iter().map(|&b| from_bf16(b))),
        Coding::Levels(levels) => {
            out.reserve(count);
            levels.each(run, count, |_, chunk| out.extend_from_slice(chunk));
        }
    }
}

fn zip<const N: usize>(run: &[u8], dst: &mut [f32], each: impl Fn(&mut f32, [u8; N])) {
    for (dst, &bytes) in dst.iter_mut().zip(run.as_chunks().0) {
        each(dst, bytes);
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

    /// What a receiver sees of the run, and the errors.
    fn quantised(values: ValueType, run: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (mut seen, mut errors) = (run.to_vec(), vec![1.0; run.len()]);
        values.quantise(&mut seen, &mut errors);
        (seen, errors)
    }

    /// Runs of all lengths around those of chunks: any bits, values of about the same size as those of a selection, and these
    /// with zeros as in dense gradients.
    fn runs() -> impl Strategy<Value = Vec<f32>> {
        let bits = any::<u32>().prop_map(f32::from_bits);
        let near =
            (0..4096u32, any::<bool>(), -130..120i32).prop_map(|(step, negative, exponent)| {
                let value = (1.0 + step as f32 / 2048.0) * 2f32.powi(exponent / 40);
                if negative { -value } else { value }
            });
        prop_oneof![
            prop::collection::vec(bits, 0..300),
            prop::collection::vec(near.clone(), 0..300),
            prop::collection::vec(near.clone(), 2000..2200),
            prop::collection::vec(prop_oneof![near, Just(0.0), Just(-0.0)], 0..300),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn what_is_seen_and_the_error_make_the_value_exactly(run in runs()) {
            for values in ValueType::ALL {
                let (seen, errors) = quantised(values, &run);
                for (&value, (&seen, &error)) in run.iter().zip(seen.iter().zip(&errors)) {
                    if seen.is_finite() {
                        assert_eq!(f64::from(value) - f64::from(seen), f64::from(error));
                        assert_eq!(seen + error, value);
                        let most = f64::from(value.abs() * values.max_relative_error());
                        assert!(f64::from(error.abs()) <= most || !value.is_normal(), "{value} {seen}");
                    } else {
                        assert_eq!(error, 0.0);
                        assert!(seen.is_nan() == value.is_nan());
                    }
                }
                let (again, nothing) = quantised(values, &seen);
                assert_eq!(bits(&again), bits(&seen), "{values}");
                assert!(nothing.iter().all(|&error| error == 0.0));
                let mut rounded = run.clone();
                values.round(&mut rounded);
                assert_eq!(bits(&rounded), bits(&seen));
            }
        }

        #[test]
        fn runs_of_values_come_back_as_quantised(run in runs()) {
            for values in ValueType::ALL {
                let (seen, _) = quantised(values, &run);
                let (mut bytes, mut same) = (vec![0], vec![0]);
                encode_values(values, &run, &mut bytes);
                encode_values(values, &seen, &mut same);
                assert_eq!(bytes, same);
                assert!(bytes.len() <= 1 + values.encoded_len(run.len()));
                let mut reader = Reader::new(&bytes[1..]);
                let mut dst = vec![0.0; run.len()];
                decode_values(values, &mut reader, &mut dst).unwrap();
                reader.finish().unwrap();
                assert_eq!(bits(&dst), bits(&seen));

                let mut sum = vec![1.5; run.len()];
                add_values(values, &mut Reader::new(&bytes[1..]), &mut sum).unwrap();
                for (sum, seen) in sum.into_iter().zip(seen) {
                    let plain = 1.5 + seen;
                    assert!(sum == plain || sum.is_nan() && plain.is_nan());
                }

                let mut reader = Reader::new(&bytes[1..bytes.len() - usize::from(!run.is_empty())]);
                if !run.is_empty() {
                    let mut same = vec![0.0; run.len()];
                    assert!(decode_values(values, &mut reader, &mut same).is_err());
                    assert!(add_values(values, &mut reader, &mut same).is_err());
                    assert_eq!(bits(&same), vec![0; same.len()]);
                }
            }
        }

        #[test]
        fn bf16_is_that_of_half(pattern in any::<u32>()) {
            let v = f32::from_bits(pattern);
            let (seen, _) = quantised(ValueType::Bf16, &[v; 40]);
            assert_eq!(bits(&seen), [bf16::from_f32(v).to_f32().to_bits(); 40]);
            assert_eq!(bits(&quantised(ValueType::F32, &[v]).0), [pattern]);
        }
    }

    #[test]
    fn names_of_value_types_are_read_back() {
        for values in ValueType::ALL {
            assert_eq!(values.name().parse(), Ok(values));
            assert_eq!(values.to_string(), values.name());
        }
        assert_eq!(ValueType::F32.encoded_len(3), 12);
        assert_eq!(ValueType::Bf16.encoded_len(3), 6);
        let error = "f16".parse::<ValueType>().unwrap_err();
        let expected = "unknown value type 'f16': did you mean 'bf16'? There are f32, bf16";
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn rounding_to_bf16_goes_to_even_and_to_infinity() {
        let round = |pattern| quantised(ValueType::Bf16, &[f32::from_bits(pattern)]).0[0].to_bits();
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
