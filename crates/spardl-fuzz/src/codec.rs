//! Any bytes into the codec.

use std::mem::{Discriminant, discriminant};

use spardl_core::codec::{Codec, IndexCoding, Reader, ValueType, add_values, decode_values};
use spardl_core::error::DecodeError;

use crate::{NOTHING, Outcome};

/// Bytes as a list of entries.
pub fn list(data: &[u8]) -> Outcome {
    let Some((block, bytes)) = Block::of(data) else {
        return NOTHING;
    };
    let Block {
        codec,
        start,
        len,
        max_count,
        ..
    } = block;
    let (mut indices, mut values) = (vec![1], vec![1.0]);
    let mut reader = Reader::new(bytes);
    let result = codec.decode(
        &mut reader,
        start,
        len,
        max_count,
        &mut indices,
        &mut values,
    );
    block.check(result, bytes, &indices);
    assert_eq!(values.len(), indices.len(), "every index has a value");
    assert!(!values.contains(&0.0), "zeros are refused");
    if result.is_ok() {
        block.check_again(&indices[1..], &values[1..]);
    }
    block.outcome(result, indices.len())
}

/// Bytes as a list of indices without values.
pub fn indices(data: &[u8]) -> Outcome {
    let Some((block, bytes)) = Block::of(data) else {
        return NOTHING;
    };
    let mut indices = vec![1];
    let mut reader = Reader::new(bytes);
    let result = block.codec.decode_indices(
        &mut reader,
        block.start,
        block.len,
        block.max_count,
        &mut indices,
    );
    block.check(result, bytes, &indices);
    block.outcome(result, indices.len())
}

/// Bytes as a run of values.
pub fn values(data: &[u8]) -> Outcome {
    let Some((&[flags, len], bytes)) = data.split_first_chunk() else {
        return NOTHING;
    };
    let (values, len) = (value_type(flags), usize::from(len));
    let (mut read, mut sum) = (vec![0.0; len], vec![0.0; len]);
    let result = decode_values(values, &mut Reader::new(bytes), &mut read);
    assert!(result.is_ok() || read.iter().all(|&value| value == 0.0));
    let added = add_values(values, &mut Reader::new(bytes), &mut sum);
    assert_eq!(result, added);
    assert!(result.is_ok() || bytes.len() < values.encoded_len(len) || !values.is_exact());
    for (read, sum) in read.iter().zip(&sum) {
        assert!(read == sum || read.is_nan() && sum.is_nan());
    }
    crate::outcome((kind(result), number(flags), magnitude(len)))
}

/// What a receiver knows of a list before it arrives.
struct Block {
    codec: Codec,
    /// Of its value type.
    number: usize,
    start: u32,
    len: u32,
    max_count: usize,
}

impl Block {
    /// The block in the first bytes, and the rest.
    fn of(data: &[u8]) -> Option<(Self, &[u8])> {
        let mut reader = Reader::new(data);
        let flags = reader.u8().ok()?;
        // Lengths of all magnitudes: random ones would mostly be huge.
        let len = reader.u32().ok()? >> (flags >> 1 & 31);
        let start = reader.u32().ok()?.min(u32::MAX - len);
        let max_count = reader.u8().ok()?.into();
        let bytes = reader.bytes(reader.remaining()).ok()?;
        let codec = Codec {
            values: value_type(flags),
            ..Codec::default()
        };
        Some((
            Self {
                codec,
                number: number(flags),
                start,
                len,
                max_count,
            },
            bytes,
        ))
    }

    /// Indices ascend inside the block, no more than allowed nor than the bytes can hold; on an error
    /// none were added. The first was there before.
    fn check(&self, result: Result<(), DecodeError>, bytes: &[u8], indices: &[u32]) {
        assert_eq!(indices[0], 1, "what was there before stays");
        let indices = &indices[1..];
        assert!(result.is_ok() || indices.is_empty());
        assert!(indices.is_sorted_by(|a, b| a < b));
        assert!(
            indices
                .iter()
                .all(|&i| i >= self.start && i - self.start < self.len)
        );
        assert!(indices.len() <= self.max_count);
        assert!(indices.len() <= bytes.len() * 8);
    }

    fn outcome(&self, result: Result<(), DecodeError>, count: usize) -> Outcome {
        let lens = (magnitude(self.len as usize), magnitude(count));
        crate::outcome((kind(result), self.number, lens))
    }

    /// What was read can be sent on, and arrives the same.
    fn check_again(&self, indices: &[u32], values: &[f32]) {
        let &Block {
            codec, start, len, ..
        } = self;
        // A signalling NaN is read as it is, but rounding, which comes before sending, makes it quiet.
        let mut values = values.to_vec();
        codec.values.round(&mut values);
        for coding in [IndexCoding::Packed, IndexCoding::Raw] {
            let codec = Codec {
                indices: coding,
                ..codec
            };
            let mut bytes = Vec::new();
            codec.encode(start, len, indices, &values, &mut bytes);
            assert!(bytes.len() <= codec.list_len(len, indices.len()));
            let (mut again, mut values_again) = (Vec::new(), Vec::new());
            let mut reader = Reader::new(&bytes);
            let max = indices.len();
            let result = codec.decode(&mut reader, start, len, max, &mut again, &mut values_again);
            assert_eq!(result.and(reader.finish()), Ok(()));
            assert_eq!(again, indices);
            assert_eq!(bits(&values_again), bits(&values));
        }
    }
}

fn value_type(flags: u8) -> ValueType {
    ValueType::ALL[number(flags)]
}

/// The number of the value type, in the bits that say nothing of the length.
fn number(flags: u8) -> usize {
    usize::from(flags & 1 | flags >> 6 << 1) % ValueType::ALL.len()
}

fn kind(result: Result<(), DecodeError>) -> Option<Discriminant<DecodeError>> {
    result.err().map(|error| discriminant(&error))
}

/// Digits of a number in binary.
const fn magnitude(number: usize) -> u32 {
    usize::BITS - number.leading_zeros()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
