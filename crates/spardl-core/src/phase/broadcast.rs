//! Broadcast of bytes from one worker to all (binomial tree).
//!
//! In round `s` the workers less than `2^s` behind the root hand the item to the worker `2^s` further. Rounds:
//! ceil(log2 m); a worker without part in a round has an empty one.

use super::{ITEM_PREFIX, Items, copy_item, write_item};
use crate::collective::{Payload, Received, Round};
use crate::error::ProtocolError;
use crate::schedule::ceil_log2;
use crate::world::Group;

/// One worker's item, known to all in the end.
#[derive(Debug)]
pub struct Broadcast {
    group: Group,
    root: usize,
    bound: usize,
    item: Vec<u8>,
    arrived: u32,
    done: u32,
}

impl Broadcast {
    /// A broadcast from position `root`; `item` is used at the root only. No item has more than `bound` bytes.
    pub fn new(group: Group, root: usize, item: Vec<u8>, bound: usize) -> Self {
        Self {
            group,
            root: root % group.size(),
            bound,
            item,
            arrived: 0,
            done: 0,
        }
    }

    fn distance(&self) -> usize {
        let size = self.group.size();
        (self.group.position() + size - self.root) % size
    }

    /// What to exchange now; `None` when the item is everywhere.
    pub fn round(&self) -> Option<Round> {
        let (size, gap) = (self.group.size(), 1usize << self.done);
        if self.done >= ceil_log2(size) {
            return None;
        }
        let (distance, position) = (self.distance(), self.group.position());
        let mut round = Round::new();
        if distance < gap && distance + gap < size {
            let mut payload = Payload::with_capacity(ITEM_PREFIX + self.item.len());
            write_item(&self.item, payload.body_mut());
            round = round.send(self.group.rank(position + gap), payload);
        } else if (gap..2 * gap).contains(&distance) {
            round = round.expect(
                self.group.rank(position + size - gap),
                ITEM_PREFIX + self.bound,
            );
        }
        Some(round)
    }

    /// Takes the item, if it came in the current round.
    ///
    /// # Errors
    /// When the message is damaged or too long.
    pub fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        if !received.is_empty() {
            self.item = received.read(0, |reader| copy_item(reader, self.bound))?;
            self.arrived = received.round();
        }
        self.done += 1;
        Ok(())
    }

    /// The item, at the root's position, once `round` has returned `None`.
    pub fn into_items(self) -> Items {
        let mut items = Items::new(self.group);
        items.put(self.root, self.item, self.arrived);
        items
    }

    /// What takes longest: how many messages follow each other, and how many items of `len` bytes are sent one after another
    /// by those who send them. In a tree that is not full the last round has a short chain, the round before it a long one;
    /// which of them takes longer depends on the network. Here on one that carries 1,250 bytes within the latency of a message,
    /// as with 1 Gbit/s and 10 us.
    pub fn longest_chain(size: usize, len: usize) -> (u32, u32) {
        const BYTES_PER_LATENCY: usize = 1250;
        let rounds = ceil_log2(size);
        if rounds == 0 {
            return (0, 0);
        }
        let reached_last = size - (1 << (rounds - 1));
        let hops = 1 + reached_last.ilog2();
        let fewer = rounds.saturating_sub(1);
        let is_long = len >= BYTES_PER_LATENCY * fewer.saturating_sub(hops) as usize;
        if is_long {
            (hops, rounds)
        } else {
            (fewer, fewer)
        }
    }

    /// Body bytes of `items` items of `len` bytes.
    pub const fn items_bytes(items: u32, len: usize) -> u64 {
        items as u64 * (ITEM_PREFIX + len) as u64
    }

    /// The most body bytes that a worker (the root) sends for an item of `len` bytes among `size` workers.
    pub fn body_bytes(size: usize, len: usize) -> u64 {
        Self::items_bytes(ceil_log2(size), len)
    }
}
