//! Lists and values to bytes and back.
//!
//! A list is what one worker sends of one block: entries of an index and a value, indices ascending.
//! On the wire, everything little endian:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | count |
//! | 1 | coding of the indices: 0 raw, 1 Elias-Fano, 2 Rice |
//! | at most [`Codec::indices_len`] - 5 | indices, relative to the start of the block |
//! | at most [`ValueType::encoded_len`] of count | values as a run; absent in a list of indices alone |
//!
//! # Coding of the indices
//!
//! Raw is one `u32` per index. Elias-Fano cuts each position in two. The low `l` bits, with
//! `l = floor(log2(block_len / count))`, are packed one after the other. The high parts ascend, so
//! their gaps are written in unary: a bitmap in which bit `high[i] + i` is set for every entry `i`.
//! Both parts start at a byte, bits are filled from the lowest up. The largest bit that can be set
//! is `((block_len - 1) >> l) + count - 1`, so the bitmap has `((block_len - 1) >> l) + count` bits.
//!
//! Example: entries 3, 7, 8 and 30 of a block of 32. `l = log2(32 / 4) = 3`.
//!
//! ```text
//! entry   position   low 3 bits   high   bit of the bitmap = high + entry
//!   0        3          011        0       0
//!   1        7          111        0       1
//!   2        8          000        1       3
//!   3       30          110        3       6
//!
//! low parts   110 000 111 011   = 0x0c3b   -> 3b 0c
//! bitmap              1001011   = 0x4b     -> 4b       (31 >> 3) + 4 = 7 bits
//! ```
//!
//! 3 bytes where raw takes 16. At density 0.01 an index takes 8.6 bits wherever the entries are: the
//! size depends on the length of the block and the count alone, so it is known before a message
//! exists. Bit-packed gaps (the `bitpacking` crate) take 9.7 bits there, and a size that depends on
//! the data; the Elias-Fano crates there are build random-access structures with formats of their own.
//!
//! Beside values of few bits ([`ValueType::Q8`] and below) indices are most of what travels. There, Rice codes
//! the gaps between positions in the same layout: 8.1 bits at density 0.01 where the entries are
//! spread at random, never more than Elias-Fano, which stays the bound
//! ([`spardl_kernels::rice`]). What it saves, 1 % of an entry in f32, is not worth the running sum of
//! reading it beside wider values.
//!
//! # Limitations
//!
//! Reading checks all that a later step relies on: count, order, range, no zero values. It does not
//! check that the sender chose the smaller coding, nor the unused bits after the last low part.

mod block;
mod reader;
mod values;

pub use block::{Block, Bounds};
pub use reader::Reader;
pub use values::{ValueType, add_values, decode_values, encode_values};

use std::fmt;

use spardl_kernels::{Level, elias_fano, rice};

use crate::error::DecodeError;

/// Bytes before the indices: the count and the coding.
const PREFIX_LEN: usize = 5;

/// How indices travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IndexCoding {
    /// Gap-coded and bit-packed, raw `u32` where that is no larger.
    #[default]
    Packed,
    /// Always raw `u32`, for cost bounds and comparisons.
    Raw,
}

/// Codec of lists of (index, value) entries of one block.
///
/// `start` and `block_len` say which positions of the bucket the block has; `start + block_len` fits
/// a `u32`. Every index coding is read, whichever is written.
///
/// ```
/// use spardl_core::codec::{Codec, Reader};
///
/// let codec = Codec::default();
/// let mut bytes = Vec::new();
/// codec.encode(100, 32, &[103, 107, 108, 130], &[1.0, -2.0, 0.5, 4.0], &mut bytes);
/// assert_eq!(bytes[..8], [4, 0, 0, 0, 1, 0x3b, 0x0c, 0x4b]);
/// assert_eq!(bytes.len(), codec.list_len(32, 4));
///
/// let (mut indices, mut values) = (Vec::new(), Vec::new());
/// let mut reader = Reader::new(&bytes);
/// codec.decode(&mut reader, 100, 32, 10, &mut indices, &mut values)?;
/// reader.finish()?;
/// assert_eq!(indices, [103, 107, 108, 130]);
/// assert_eq!(values, [1.0, -2.0, 0.5, 4.0]);
/// # Ok::<(), spardl_core::error::DecodeError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Codec {
    /// How values travel.
    pub values: ValueType,
    /// How indices travel.
    pub indices: IndexCoding,
}

/// The value type, and the coding of the indices when it is not the usual one.
impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.indices {
            IndexCoding::Packed => write!(f, "{}", self.values),
            IndexCoding::Raw => write!(f, "{} indices=raw", self.values),
        }
    }
}

impl Codec {
    /// The most bytes of a list of `count` entries in a block of `block_len` elements, whichever entries
    /// they are; exactly so many for f32 and bf16.
    pub fn list_len(&self, block_len: u32, count: usize) -> usize {
        self.indices_len(block_len, count)
            .saturating_add(self.values.encoded_len(count))
    }

    /// The most bytes that any list of at most `max_count` entries needs.
    pub fn list_bound(&self, block_len: u32, max_count: usize) -> usize {
        largest(block_len, max_count, |count| {
            self.list_len(block_len, count)
        })
    }

    /// The bytes that a list of `count` entries usually takes, spread at random and with values of a selection; exactly so
    /// many for f32 and bf16.
    pub fn usual_len(&self, block_len: u32, count: usize) -> usize {
        self.usual_indices_len(block_len, count)
            .saturating_add(self.values.usual_len(count))
    }

    /// [`Codec::usual_len`] of a list without values.
    pub fn usual_indices_len(&self, block_len: u32, count: usize) -> usize {
        let indices = match self.coding(block_len, count) {
            Coding::EliasFano if self.values.is_narrow() => rice::usual_len(block_len, count),
            coding => coding.len(block_len, count),
        };
        indices.saturating_add(PREFIX_LEN)
    }

    /// [`Codec::list_len`] of a list without values.
    pub fn indices_len(&self, block_len: u32, count: usize) -> usize {
        self.coding(block_len, count)
            .len(block_len, count)
            .saturating_add(PREFIX_LEN)
    }

    /// [`Codec::list_bound`] of a list without values.
    pub fn indices_bound(&self, block_len: u32, max_count: usize) -> usize {
        largest(block_len, max_count, |count| {
            self.indices_len(block_len, count)
        })
    }

    /// Appends a list to `out`.
    ///
    /// `indices` are absolute positions in the bucket, ascending, inside
    /// `start..start + block_len`. No value is seen as zero by its receivers. Whoever goes on with the
    /// list quantises it ([`crate::list::quantise`]), to have what they have.
    ///
    /// # Panics
    /// If `indices` and `values` differ in length. If they are not as described: in debug builds;
    /// otherwise the list may be one that [`Codec::decode`] refuses.
    pub fn encode(
        &self,
        start: u32,
        block_len: u32,
        indices: &[u32],
        values: &[f32],
        out: &mut Vec<u8>,
    ) {
        assert_eq!(indices.len(), values.len(), "every index has a value");
        debug_assert!(
            values.iter().all(|&value| value != 0.0),
            "zeros are not sent"
        );
        out.reserve(self.list_len(block_len, indices.len()));
        self.encode_indices(start, block_len, indices, out);
        encode_values(self.values, values, out);
    }

    /// Appends a list without values to `out`.
    ///
    /// # Panics
    /// As [`Codec::encode`].
    pub fn encode_indices(&self, start: u32, block_len: u32, indices: &[u32], out: &mut Vec<u8>) {
        debug_assert!(
            indices.is_sorted_by(|a, b| a < b)
                && indices.first().is_none_or(|&first| first >= start)
                && indices.last().is_none_or(|&last| last - start < block_len),
            "indices ascend inside their block"
        );
        let count = u32::try_from(indices.len()).expect("a block has fewer than 2^32 elements");
        let level = Level::best();
        let (coding, len) = self.shortest(start, block_len, indices);
        out.extend_from_slice(&count.to_le_bytes());
        out.push(coding as u8);
        let from = out.len();
        out.resize(from + len, 0);
        let bytes = &mut out[from..];
        match coding {
            Coding::Raw => write_raw(start, indices, bytes),
            Coding::EliasFano => elias_fano::write(level, start, block_len, indices, bytes),
            Coding::Rice => rice::write(level, start, block_len, indices, bytes),
        }
    }

    /// The coding of these indices, and its bytes.
    fn shortest(&self, start: u32, block_len: u32, indices: &[u32]) -> (Coding, usize) {
        let coding = self.coding(block_len, indices.len());
        let len = coding.len(block_len, indices.len());
        if coding == Coding::EliasFano && self.values.is_narrow() {
            let rice = rice::len(Level::best(), start, block_len, indices);
            if rice < len {
                return (Coding::Rice, rice);
            }
        }
        (coding, len)
    }

    /// Reads a list and appends its entries, with absolute indices, to `indices` and `values`.
    ///
    /// # Errors
    /// If there are more than `max_count` entries, or bytes that [`Codec::encode`] does not write;
    /// `indices` and `values` are then as before the call, and the position of the reader is
    /// unspecified. Infinite values and NaN are no error.
    pub fn decode(
        &self,
        reader: &mut Reader<'_>,
        start: u32,
        block_len: u32,
        max_count: usize,
        indices: &mut Vec<u32>,
        values: &mut Vec<f32>,
    ) -> Result<(), DecodeError> {
        let (from, first) = (indices.len(), values.len());
        self.decode_indices(reader, start, block_len, max_count, indices)?;
        let count = indices.len() - from;
        let read = values::read_run(self.values, reader, count).and_then(|run| {
            values::append(self.values, run, count, values);
            match spardl_kernels::any_zero(Level::best(), &values[first..]) {
                true => Err(DecodeError::ZeroValue),
                false => Ok(()),
            }
        });
        if read.is_err() {
            indices.truncate(from);
            values.truncate(first);
        }
        read
    }

    /// Reads a list without values and appends its absolute indices to `indices`.
    ///
    /// # Errors
    /// As [`Codec::decode`].
    pub fn decode_indices(
        &self,
        reader: &mut Reader<'_>,
        start: u32,
        block_len: u32,
        max_count: usize,
        indices: &mut Vec<u32>,
    ) -> Result<(), DecodeError> {
        let (coding, count) = read_prefix(reader, block_len, max_count)?;
        coding.read(reader, start, block_len, count, indices)
    }

    fn coding(&self, block_len: u32, count: usize) -> Coding {
        let packed = Coding::EliasFano.len(block_len, count);
        if self.indices == IndexCoding::Packed && packed < Coding::Raw.len(block_len, count) {
            Coding::EliasFano
        } else {
            Coding::Raw
        }
    }
}

/// The coding byte of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Raw = 0,
    EliasFano = 1,
    Rice = 2,
}

impl Coding {
    /// The most bytes of the indices, exact but for Rice. Saturates: a length that does not fit is more than any message has.
    fn len(self, block_len: u32, count: usize) -> usize {
        match self {
            Coding::Raw => count.saturating_mul(4),
            Coding::EliasFano | Coding::Rice => elias_fano::len(block_len, count),
        }
    }

    /// Reads `count <= block_len` indices and appends them.
    fn read(
        self,
        reader: &mut Reader<'_>,
        start: u32,
        block_len: u32,
        count: usize,
        indices: &mut Vec<u32>,
    ) -> Result<(), DecodeError> {
        let (from, level) = (indices.len(), Level::best());
        let len = self.len(block_len, count);
        let valid = match self {
            Coding::Raw => {
                read_raw(reader.bytes(len)?, start, indices);
                true
            }
            Coding::EliasFano => {
                let bytes = reader.bytes(len)?;
                elias_fano::read(level, bytes, start, block_len, count, indices)
            }
            Coding::Rice => {
                let bytes = reader.rest();
                match rice::read(level, bytes, start, block_len, count, indices) {
                    Some(used) => reader.bytes(used).is_ok(),
                    // Either there are not as many bytes as a list may take, or these are none.
                    None => {
                        reader.bytes(len)?;
                        false
                    }
                }
            }
        };
        if !valid || !ascend_inside(&indices[from..], start, block_len) {
            indices.truncate(from);
            return Err(DecodeError::BadIndex { len: block_len });
        }
        Ok(())
    }
}

/// The coding and the count, which is at most `block_len` and `max_count`.
fn read_prefix(
    reader: &mut Reader<'_>,
    block_len: u32,
    max_count: usize,
) -> Result<(Coding, usize), DecodeError> {
    let got = reader.u32()?;
    let coding = match reader.u8()? {
        0 => Coding::Raw,
        1 => Coding::EliasFano,
        2 => Coding::Rice,
        other => return Err(DecodeError::UnknownCoding(other)),
    };
    let max = max_count.min(block_len as usize);
    if got as usize > max {
        return Err(DecodeError::TooMany {
            max,
            got: got.into(),
        });
    }
    Ok((coding, got as usize))
}

/// The largest `len(count)` for `count` up to `max_count`.
///
/// The length does not quite grow with the count: where `l` drops by one, the two roundings to bytes
/// can save one. Between those counts it grows, so the last count of each `l` and the last of all decide.
fn largest(block_len: u32, max_count: usize, len: impl Fn(usize) -> usize) -> usize {
    let most = max_count.min(block_len as usize);
    (0..u32::BITS)
        .map(|l| (block_len >> l) as usize)
        .filter(|&last| last < most)
        .fold(len(most), |bytes, last| bytes.max(len(last)))
}

fn write_raw(start: u32, indices: &[u32], bytes: &mut [u8]) {
    for (bytes, index) in bytes.as_chunks_mut().0.iter_mut().zip(indices) {
        *bytes = index.wrapping_sub(start).to_le_bytes();
    }
}

fn read_raw(bytes: &[u8], start: u32, indices: &mut Vec<u32>) {
    let positions = bytes.as_chunks().0.iter();
    indices.extend(positions.map(|&bytes| u32::from_le_bytes(bytes).wrapping_add(start)));
}

fn ascend_inside(indices: &[u32], start: u32, block_len: u32) -> bool {
    let inside = |index: Option<&u32>| {
        index.is_none_or(|&index| index >= start && index - start < block_len)
    };
    inside(indices.first())
        && inside(indices.last())
        && spardl_kernels::ascends(Level::best(), indices)
}

#[cfg(test)]
mod tests;
