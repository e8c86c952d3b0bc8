//! Dense all-reduce for any number of workers: SparDL's reduce-scatter schedule and Bruck's all-gather, without
//! sparsification. No fold is needed when the number of workers is not a power of two.
//!
//! Rounds: 2 ceil(log2 m). Elements sent per worker: 2 n (m - 1) / m.

use std::fmt::Debug;
use std::ops::Range;

use crate::codec::{Reader, ValueType, add_values, decode_values, encode_values};
use crate::collective::{Payload, Received, Round};
use crate::error::{DecodeError, ProtocolError};
use crate::partition::Partition;
use crate::schedule::{Gather, Scatter, Windows, all_gather, reduce_scatter};
use crate::world::Group;

/// What can be summed: `f32` (values travel as the phase's [`ValueType`]) and `i64`.
pub trait Element: Copy + Debug + Send {
    /// The most bytes that a run of `count` elements takes on the wire.
    fn encoded_len(values: ValueType, count: usize) -> usize;
    /// Appends the elements as a run.
    fn write(src: &[Self], values: ValueType, out: &mut Vec<u8>);
    /// Adds elements from the wire.
    ///
    /// # Errors
    /// When the message is too short.
    fn add(reader: &mut Reader<'_>, values: ValueType, dst: &mut [Self])
    -> Result<(), DecodeError>;
    /// Stores elements from the wire.
    ///
    /// # Errors
    /// When the message is too short.
    fn store(
        reader: &mut Reader<'_>,
        values: ValueType,
        dst: &mut [Self],
    ) -> Result<(), DecodeError>;
    /// Makes a run what its receivers will see.
    fn round(values: ValueType, dst: &mut [Self]);
}

impl Element for f32 {
    fn encoded_len(values: ValueType, count: usize) -> usize {
        values.encoded_len(count)
    }

    fn write(src: &[Self], values: ValueType, out: &mut Vec<u8>) {
        encode_values(values, src, out);
    }

    fn add(
        reader: &mut Reader<'_>,
        values: ValueType,
        dst: &mut [Self],
    ) -> Result<(), DecodeError> {
        add_values(values, reader, dst)
    }

    fn store(
        reader: &mut Reader<'_>,
        values: ValueType,
        dst: &mut [Self],
    ) -> Result<(), DecodeError> {
        decode_values(values, reader, dst)
    }

    fn round(values: ValueType, dst: &mut [Self]) {
        values.round(dst);
    }
}

impl Element for i64 {
    fn encoded_len(_: ValueType, count: usize) -> usize {
        8 * count
    }

    fn write(src: &[Self], _: ValueType, out: &mut Vec<u8>) {
        out.extend(src.iter().flat_map(|value| value.to_le_bytes()));
    }

    fn add(reader: &mut Reader<'_>, _: ValueType, dst: &mut [Self]) -> Result<(), DecodeError> {
        for value in dst {
            *value = value.wrapping_add(reader.u64()? as Self);
        }
        Ok(())
    }

    fn store(reader: &mut Reader<'_>, _: ValueType, dst: &mut [Self]) -> Result<(), DecodeError> {
        for value in dst {
            *value = reader.u64()? as Self;
        }
        Ok(())
    }

    fn round(_: ValueType, _: &mut [Self]) {}
}

#[derive(Clone, Copy, Debug)]
enum Hop {
    Scatter(Scatter),
    Gather(Gather),
}

/// The sum over a group, element by element, in every worker's own array.
#[derive(Debug)]
pub struct AllReduce {
    group: Group,
    values: ValueType,
    blocks: Partition,
    hops: Vec<Hop>,
    done: usize,
}

impl AllReduce {
    /// An all-reduce of arrays of `len` elements; the array is passed to each call.
    pub fn new(group: Group, len: u32, values: ValueType) -> Self {
        let size = group.size();
        let hops = reduce_scatter(size).map(Hop::Scatter);
        let hops = hops.chain(all_gather(size).map(Hop::Gather)).collect();
        Self {
            group,
            values,
            blocks: Partition::even(len, size),
            hops,
            done: 0,
        }
    }

    /// What to exchange now; `None` when `data` holds the sum.
    pub fn round<T: Element>(&mut self, data: &mut [T]) -> Option<Round> {
        let (position, size) = (self.group.position(), self.group.size());
        let hop = *self.hops.get(self.done)?;
        let (to, from, payload, bound) = match hop {
            Hop::Scatter(hop) => (
                position + hop.gap,
                position + size - hop.gap,
                self.payload(data, || hop.sent(position, size)),
                self.bytes::<T>(hop.received(position, size)),
            ),
            Hop::Gather(hop) => {
                if hop.gap == 1 {
                    // The own block is complete: keep it as the others will see it.
                    T::round(self.values, &mut data[self.blocks.range(position)]);
                }
                (
                    position + size - hop.gap,
                    position + hop.gap,
                    self.payload(data, || hop.sent(position, size)),
                    self.bytes::<T>(hop.received(position, size)),
                )
            }
        };
        Some(
            Round::new()
                .send(self.group.rank(to), payload)
                .expect(self.group.rank(from), bound),
        )
    }

    /// The ranges of the array whose values the coming round takes from this worker for good: partial sums that it sends on,
    /// and its own block once that is complete. Values are rounded there and nowhere else, once per element and worker, so a
    /// caller that rounds these ranges first and keeps the errors loses nothing. (Alone in the world there are no rounds.)
    pub fn leaving(&self) -> impl Iterator<Item = Range<usize>> {
        let (position, size) = (self.group.position(), self.group.size());
        let (sums, own) = match self.hops.get(self.done) {
            Some(Hop::Scatter(hop)) => (Some(hop.sent(position, size)), None),
            Some(Hop::Gather(hop)) if hop.gap == 1 => (None, Some(position)),
            _ => (None, None),
        };
        let blocks = sums.into_iter().flatten().chain(own);
        blocks.map(|block| self.blocks.range(block))
    }

    /// Takes the blocks of the current round.
    ///
    /// # Errors
    /// When the message does not hold exactly the blocks of the plan.
    pub fn absorb<T: Element>(
        &mut self,
        data: &mut [T],
        received: Received<'_>,
    ) -> Result<(), ProtocolError> {
        received.read(0, |reader| self.absorb_part(data, reader))
    }

    /// [`AllReduce::absorb`] from a message that carries more than this phase.
    ///
    /// # Errors
    /// When the message does not go on with the blocks of the plan.
    pub fn absorb_part<T: Element>(
        &mut self,
        data: &mut [T],
        reader: &mut Reader<'_>,
    ) -> Result<(), DecodeError> {
        let (position, size) = (self.group.position(), self.group.size());
        let (hop, values, blocks) = (self.hops[self.done], self.values, &self.blocks);
        match hop {
            Hop::Scatter(hop) => hop
                .received(position, size)
                .try_for_each(|block| T::add(reader, values, &mut data[blocks.range(block)])),
            Hop::Gather(hop) => hop
                .received(position, size)
                .try_for_each(|block| T::store(reader, values, &mut data[blocks.range(block)])),
        }?;
        self.done += 1;
        Ok(())
    }

    /// Do the coming rounds hand round finished blocks? They then have the peers of an [`AllGather`](super::AllGather), whose
    /// items may ride along.
    pub fn gathers(&self) -> bool {
        matches!(self.hops.get(self.done), Some(Hop::Gather(_)))
    }

    /// The blocks as a message. They are counted off twice rather than listed: one worker of thousands has thousands.
    fn payload<T: Element, B: Iterator<Item = usize>>(
        &self,
        data: &[T],
        blocks: impl Fn() -> B,
    ) -> Payload {
        let mut payload = Payload::with_capacity(self.bytes::<T>(blocks()));
        for block in blocks() {
            let run = &data[self.blocks.range(block)];
            T::write(run, self.values, payload.body_mut());
        }
        payload
    }

    fn bytes<T: Element>(&self, blocks: impl Iterator<Item = usize>) -> usize {
        let runs = blocks.map(|block| self.blocks.block_len(block) as usize);
        runs.map(|count| T::encoded_len(self.values, count)).sum()
    }
}

/// Body bytes that the worker at a position of `size` sends in an all-reduce of `len` elements, where a run of `count` elements
/// takes `encoded_len(count)`.
pub fn all_reduce_bytes(
    size: usize,
    len: u32,
    encoded_len: impl Fn(usize) -> usize,
) -> impl Fn(usize) -> u64 {
    let blocks = Partition::even(len, size);
    let run = |block| encoded_len(blocks.block_len(block) as usize) as u64;
    let runs = Windows::new((0..size).map(run));
    move |position| {
        let scatter = reduce_scatter(size).map(|hop| runs.sum(position + hop.gap, hop.count));
        let gather = all_gather(size).map(|hop| runs.sum(position, hop.count));
        scatter.sum::<u64>() + gather.sum::<u64>()
    }
}

/// Elements that the worker at `position` of `size` sends in an all-reduce of `len` elements.
pub fn all_reduce_elements(position: usize, size: usize, len: u32) -> u64 {
    all_reduce_bytes(size, len, |count| count)(position)
}
