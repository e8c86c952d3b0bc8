//! All-gather of one item of bytes per worker (Bruck's schedule). Items may differ in length.

use super::{ITEM_PREFIX, Items, write_item};
use crate::codec::Reader;
use crate::collective::{Payload, Received, Round};
use crate::error::{DecodeError, ProtocolError};
use crate::schedule::{Gather, Windows, all_gather};
use crate::world::Group;

/// Every worker of a group contributes an item and gets everybody's.
#[derive(Debug)]
pub struct AllGather {
    group: Group,
    bounds: Vec<usize>,
    items: Items,
    rounds: Vec<Gather>,
    done: usize,
}

impl AllGather {
    /// Contributes `own`; `bounds[p]` is the most bytes that the item of position `p` can have.
    pub fn new(group: Group, own: Vec<u8>, bounds: Vec<usize>) -> Self {
        let mut items = Items::new(group);
        items.put(group.position(), own, 0);
        Self {
            group,
            bounds,
            items,
            rounds: all_gather(group.size()).collect(),
            done: 0,
        }
    }

    /// What to exchange now; `None` when every item is here.
    pub fn round(&self) -> Option<Round> {
        let round = self.rounds.get(self.done)?;
        let (position, size) = (self.group.position(), self.group.size());
        let bytes = round
            .sent(position, size)
            .map(|p| ITEM_PREFIX + self.items.bytes(p).len())
            .sum();
        let mut payload = Payload::with_capacity(bytes);
        for p in round.sent(position, size) {
            write_item(self.items.bytes(p), payload.body_mut());
        }
        let bound = round
            .received(position, size)
            .map(|p| ITEM_PREFIX + self.bounds[p])
            .sum();
        Some(
            Round::new()
                .send(self.group.rank(position + size - round.gap), payload)
                .expect(self.group.rank(position + round.gap), bound),
        )
    }

    /// Takes the items of the current round.
    ///
    /// # Errors
    /// When the message is damaged or an item exceeds its bound.
    pub fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        received.read(0, |reader| self.absorb_part(reader, received.round()))
    }

    /// [`AllGather::absorb`] from a message of round `number` that carries more than this phase.
    ///
    /// # Errors
    /// When the message does not go on with items, or one exceeds its bound.
    pub fn absorb_part(&mut self, reader: &mut Reader<'_>, number: u32) -> Result<(), DecodeError> {
        let round = self.rounds[self.done];
        let (position, size) = (self.group.position(), self.group.size());
        let positions = round.received(position, size);
        self.items
            .read_all(reader, positions, &self.bounds, number)?;
        self.done += 1;
        Ok(())
    }

    /// The items in the order of the group's positions, once `round` has returned `None`.
    pub fn into_items(self) -> Items {
        self.items
    }

    /// Body bytes that the worker at `position` sends when every item has the length in `lens`.
    pub fn body_bytes(position: usize, lens: &[usize]) -> u64 {
        let size = lens.len();
        let sent = all_gather(size).flat_map(|round| round.sent(position, size));
        sent.map(|p| (ITEM_PREFIX + lens[p]) as u64).sum()
    }

    /// The most body bytes that a worker sends when every item has the length in `lens`.
    pub fn most_body_bytes(lens: &[usize]) -> u64 {
        let (size, items) = (lens.len(), Self::sums_of(lens));
        let sent = |position| Self::sum(&items, position, size);
        (0..size).map(sent).max().unwrap_or(0)
    }

    /// The bytes of items of these lengths, to be summed.
    pub fn sums_of(lens: &[usize]) -> Windows {
        Windows::new(lens.iter().map(|len| (ITEM_PREFIX + len) as u64))
    }

    /// What the worker at `position` of `size` sends in all rounds, when the items count as much as `items` says.
    pub fn sum(items: &Windows, position: usize, size: usize) -> u64 {
        let sent = all_gather(size).map(|round| items.sum(position, round.count));
        sent.sum()
    }

    /// Entries that the worker at `position` sends, forwarded ones included, when the item of position `p` holds `entries[p]`.
    pub fn entries_sent(position: usize, entries: &[usize]) -> u64 {
        let size = entries.len();
        let sent = all_gather(size).flat_map(|round| round.sent(position, size));
        sent.map(|p| entries[p] as u64).sum()
    }
}
