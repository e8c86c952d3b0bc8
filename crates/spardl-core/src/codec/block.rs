//! How the lists of one block travel.

use std::ops::Range;

use spardl_kernels::Entries;

use super::{Codec, Reader};
use crate::error::DecodeError;
use crate::partition::Partition;
use crate::spare;
use crate::sparse::SparseVec;

/// A stretch of the bucket, and how a list of its entries travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// How indices and values travel.
    pub codec: Codec,
    /// The positions of the bucket that the block has.
    pub range: Range<u32>,
    /// The most entries of a list.
    pub max: usize,
}

/// The bounds of blocks, each found once: among thousands of blocks only a few differ.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    known: Vec<(Block, usize)>,
}

impl Bounds {
    /// How many different blocks are kept.
    const MOST: usize = 8;

    /// [`Block::bound`].
    pub fn of(&mut self, block: &Block) -> usize {
        let alike = |known: &Block| {
            (known.len(), known.max, known.codec) == (block.len(), block.max, block.codec)
        };
        if let Some((_, bound)) = self.known.iter().find(|(known, _)| alike(known)) {
            return *bound;
        }
        let bound = block.bound();
        self.known.truncate(Self::MOST - 1);
        self.known.insert(0, (block.clone(), bound));
        bound
    }
}

impl Block {
    /// Block `number` of `blocks`.
    pub fn new(codec: Codec, blocks: &Partition, number: usize, max: usize) -> Self {
        let start = blocks.start(number);
        Self {
            codec,
            range: start..start + blocks.block_len(number),
            max,
        }
    }

    /// How many elements it has.
    pub const fn len(&self) -> u32 {
        self.range.end - self.range.start
    }

    /// Has it no elements?
    pub const fn is_empty(&self) -> bool {
        self.range.start == self.range.end
    }

    /// The most bytes of a list.
    pub fn bound(&self) -> usize {
        self.codec.list_bound(self.len(), self.max)
    }

    /// [`Codec::encode`] of a list of entries.
    pub fn encode(&self, list: &Entries, out: &mut Vec<u8>) {
        let Entries { indices, values } = list;
        self.codec
            .encode(self.range.start, self.len(), indices, values, out);
    }

    /// A list of entries as bytes of its own.
    pub fn item(&self, list: &Entries) -> Vec<u8> {
        let mut item = spare::take(self.codec.list_len(self.len(), list.len()));
        self.encode(list, &mut item);
        item
    }

    /// [`Codec::decode`] to the end of a list of entries.
    ///
    /// # Errors
    /// As [`Codec::decode`].
    pub fn decode(&self, reader: &mut Reader<'_>, list: &mut Entries) -> Result<(), DecodeError> {
        let Entries { indices, values } = list;
        self.read(reader, indices, values)
    }

    /// [`Codec::decode`] to the end of an update.
    ///
    /// # Errors
    /// As [`Codec::decode`] and [`SparseVec::extend_with`].
    pub fn extend(
        &self,
        reader: &mut Reader<'_>,
        update: &mut SparseVec,
    ) -> Result<(), DecodeError> {
        update.extend_with_list(|indices, values| self.read(reader, indices, values))
    }

    fn read(
        &self,
        reader: &mut Reader<'_>,
        indices: &mut Vec<u32>,
        values: &mut Vec<f32>,
    ) -> Result<(), DecodeError> {
        let (start, len) = (self.range.start, self.len());
        self.codec
            .decode(reader, start, len, self.max, indices, values)
    }
}
