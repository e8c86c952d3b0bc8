//! Chunks with zeros in them: a bitmap of the values that are not zero, and these as a run of their own.
//!
//! A zero is near no level, so a single one would make all its chunk travel as f32. Selections have no zeros. Dense gradients
//! have many, wherever a rectifier is off. Types with a tag to spare (q8, q4) code them so.
//!
//! | bytes | what |
//! |---|---|
//! | ceil(count / 8) | the bitmap; not all ones |
//! | as any run | the values that are not zero |

use super::{CHUNK, Levels};
use crate::codec::Reader;
use crate::error::DecodeError;

/// The tag of such a chunk.
pub(super) const TAG: u8 = 3;

/// A chunk without its zeros.
pub(super) struct Packed {
    mask: u64,
    count: usize,
    values: [f32; CHUNK],
}

impl Packed {
    /// Of a chunk that has zeros and is shorter so than as f32.
    pub(super) fn of(levels: Levels, chunk: &[f32]) -> Option<Self> {
        if !levels.packs() {
            return None;
        }
        let (mut mask, mut count, mut values) = (0, 0, [0.0; CHUNK]);
        for (i, &value) in chunk.iter().enumerate() {
            if value != 0.0 {
                mask |= 1 << i;
                values[count] = value;
                count += 1;
            }
        }
        if count == chunk.len() {
            return None;
        }
        let tag = levels.choose(&values[..count]).0;
        let run = count.div_ceil(CHUNK) + levels.codes[tag].len(count);
        let is_shorter = chunk.len().div_ceil(8) + run < 4 * chunk.len();
        is_shorter.then_some(Self {
            mask,
            count,
            values,
        })
    }

    /// Appends the chunk, which has `len` values.
    pub(super) fn encode(&self, levels: Levels, len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.mask.to_le_bytes()[..len.div_ceil(8)]);
        levels.encode(&self.values[..self.count], out);
    }

    /// Makes the chunk what is seen of it.
    pub(super) fn quantise(mut self, levels: Levels, chunk: &mut [f32], errors: &mut [f32]) {
        let mut kept = [0.0; CHUNK];
        levels.quantise(&mut self.values[..self.count], &mut kept[..self.count]);
        spread(self.mask, &self.values, chunk);
        spread(self.mask, &kept, errors);
    }
}

/// The bitmap of a chunk of `count` values, and the run of those that are not zero.
pub(super) fn read<'a>(
    levels: Levels,
    reader: &mut Reader<'a>,
    count: usize,
) -> Result<(u64, &'a [u8]), DecodeError> {
    let mut bytes = [0; CHUNK / 8];
    let bitmap = reader.bytes(count.div_ceil(8))?;
    bytes[..bitmap.len()].copy_from_slice(bitmap);
    // Bits after the last value say nothing.
    let mask = u64::from_le_bytes(bytes) & (u64::MAX >> (CHUNK - count));
    let left = mask.count_ones() as usize;
    // With a zero at least in each, bitmaps inside bitmaps come to an end.
    if left == count {
        return Err(DecodeError::UnknownCoding(TAG));
    }
    Ok((mask, levels.read_run(reader, left)?))
}

/// The values of a chunk that [`read`] found.
pub(super) fn unpack(levels: Levels, (mask, run): (u64, &[u8]), out: &mut [f32]) {
    let mut packed = [0.0; CHUNK];
    levels.each(run, mask.count_ones() as usize, |from, values| {
        packed[from..from + values.len()].copy_from_slice(values);
    });
    spread(mask, &packed, out);
}

/// Puts values where the mask has ones, and zeros elsewhere.
fn spread(mask: u64, packed: &[f32; CHUNK], out: &mut [f32]) {
    let mut packed = packed.iter();
    for (i, out) in out.iter_mut().enumerate() {
        let value = (mask >> i & 1 == 1).then(|| packed.next().copied());
        *out = value.flatten().unwrap_or(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Q1, Q2, Q4, Q8};
    use super::*;

    fn encoded(levels: Levels, values: &[f32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        levels.encode(values, &mut bytes);
        bytes
    }

    #[test]
    fn zeros_cost_a_bit_each_and_not_the_code_of_their_chunk() {
        let mut values: Vec<f32> = (0..CHUNK).map(|i| 1.0 + i as f32 / 64.0).collect();
        let without = encoded(Q4, &values).len();
        assert_eq!(without, 1 + 3 + 32);
        values[7] = 0.0;
        values[40] = -0.0;
        // A bitmap and a tag more; the other 62 values have four planes of 8 bytes.
        assert_eq!(encoded(Q4, &values).len(), without + 8 + 1);
        assert_eq!(encoded(Q8, &values).len(), 1 + 8 + 1 + 3 + 64);
        // All tags of these are taken.
        assert_eq!(encoded(Q2, &values).len(), 1 + 4 * CHUNK);
        assert_eq!(encoded(Q1, &values).len(), 1 + 4 * CHUNK);
        assert_eq!(encoded(Q4, &[0.0; CHUNK]).len(), 1 + 8);
    }

    #[test]
    fn what_is_seen_has_zeros_where_they_were_and_exact_errors_elsewhere() {
        for levels in [Q8, Q4, Q2, Q1] {
            for len in 1..=150_usize {
                for period in 1..5 {
                    let value = |i: usize| (i as f32 * 0.37 + 1.0) * (i % period) as f32;
                    let run: Vec<f32> = (0..len).map(value).collect();
                    let (mut seen, mut errors) = (run.clone(), vec![1.0; len]);
                    levels.quantise(&mut seen, &mut errors);
                    for i in 0..len {
                        assert_eq!(run[i] == 0.0, seen[i] == 0.0);
                        assert_eq!(seen[i] + errors[i], run[i]);
                    }
                    let bytes = encoded(levels, &run);
                    assert_eq!(bytes, encoded(levels, &seen));
                    assert!(bytes.len() <= levels.encoded_len(len));
                    let mut reader = Reader::new(&bytes);
                    let found = levels.read_run(&mut reader, len).expect("as encoded");
                    assert_eq!(reader.finish(), Ok(()));
                    let mut again = Vec::new();
                    levels.each(found, len, |_, chunk| again.extend_from_slice(chunk));
                    assert_eq!(again, seen);
                }
            }
        }
    }

    #[test]
    fn a_bitmap_without_a_zero_is_refused() {
        // One inside the other, as long as there are bytes: reading them must not go as deep.
        let mut bytes = vec![TAG];
        for _ in 0..100_000 {
            bytes.extend_from_slice(&[0xff; CHUNK / 8]);
            bytes.push(TAG);
        }
        let error = Q4.read_run(&mut Reader::new(&bytes), CHUNK).unwrap_err();
        assert_eq!(error, DecodeError::UnknownCoding(TAG));
    }
}
