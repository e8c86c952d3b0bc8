//! All-to-all of bytes: an item from every worker to every other, directly, with destination rotation.
//!
//! Turn `i` pairs worker `w` with `w + i` (to) and `w - i` (from); `per_round` turns share a round, so that several
//! messages are in flight and no worker is hit by all others at once.

use super::{ITEM_PREFIX, Items, copy_item, write_item};
use crate::collective::{Payload, Received, Round};
use crate::error::ProtocolError;
use crate::schedule::rotation;
use crate::world::Group;

/// One item to each worker of a group, one from each.
#[derive(Debug)]
pub struct AllToAll {
    group: Group,
    turns: Vec<(usize, usize)>,
    per_round: usize,
    bound: usize,
    outgoing: Vec<Vec<u8>>,
    incoming: Items,
    done: usize,
}

impl AllToAll {
    /// Sends `outgoing[p]` to position `p` (the own item stays here); no item has more than `bound` bytes.
    pub fn new(group: Group, outgoing: Vec<Vec<u8>>, bound: usize, per_round: usize) -> Self {
        let (position, size) = (group.position(), group.size());
        let turns = rotation(position, size).collect();
        let incoming = Items::new(group);
        Self {
            group,
            turns,
            per_round: per_round.max(1),
            bound,
            outgoing,
            incoming,
            done: 0,
        }
    }

    fn current(&self) -> std::ops::Range<usize> {
        self.done..(self.done + self.per_round).min(self.turns.len())
    }

    /// What to exchange now; `None` when all items are here.
    pub fn round(&mut self) -> Option<Round> {
        let current = self.current();
        if current.is_empty() {
            return None;
        }
        let mut round = Round::new();
        for &(to, from) in &self.turns[current] {
            let item = std::mem::take(&mut self.outgoing[to]);
            let mut payload = Payload::with_capacity(ITEM_PREFIX + item.len());
            write_item(&item, payload.body_mut());
            round = round
                .send(self.group.rank(to), payload)
                .expect(self.group.rank(from), ITEM_PREFIX + self.bound);
        }
        Some(round)
    }

    /// Takes the items of the current round.
    ///
    /// # Errors
    /// When a message is damaged or too long.
    pub fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        let current = self.current();
        for (i, &(_, from)) in self.turns[current.clone()].iter().enumerate() {
            let item = received.read(i, |reader| copy_item(reader, self.bound))?;
            self.incoming.put(from, item, received.round());
        }
        self.done = current.end;
        Ok(())
    }

    /// The items by sender's position (the own one included), once `round` has returned `None`.
    pub fn into_items(mut self) -> Items {
        let own = self.group.position();
        self.incoming
            .put(own, std::mem::take(&mut self.outgoing[own]), 0);
        self.incoming
    }

    /// How many rounds an all-to-all among `size` workers takes.
    pub fn rounds(size: usize, per_round: usize) -> u32 {
        (size - 1).div_ceil(per_round.max(1)) as u32
    }
}
