//! How the lists of regions and pieces travel.

use spardl_core::codec::Reader;
use spardl_core::{Codec, DecodeError, Entries};

/// A run of the bucket, and how a list of at most `most` of its entries travels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) codec: Codec,
    pub(super) start: u32,
    pub(super) len: u32,
    pub(super) most: usize,
}

impl Span {
    /// The most bytes of such a list.
    pub(super) fn bound(&self) -> usize {
        self.bound_for(self.most)
    }

    /// The most bytes of a list of `count` entries.
    pub(super) fn bound_for(&self, count: usize) -> usize {
        self.codec.list_bound(self.len, count)
    }

    pub(super) fn encode(&self, indices: &[u32], values: &[f32], out: &mut Vec<u8>) {
        self.codec
            .encode(self.start, self.len, indices, values, out);
    }

    pub(super) fn decode(
        &self,
        reader: &mut Reader<'_>,
        entries: &mut Entries,
    ) -> Result<(), DecodeError> {
        self.codec
            .decode_entries(reader, self.start, self.len, self.most, entries)
    }
}
