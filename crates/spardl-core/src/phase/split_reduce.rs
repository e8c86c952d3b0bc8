//! Sparse reduce-scatter in one exchange: every worker cuts its list by regions and sends each part to the region's owner, which
//! adds up what it gets. Region `i` belongs to position `i`.
//!
//! Rounds: as [`AllToAll`]. What the value type takes from the parts goes back to the worker that cut them.

use spardl_kernels::Entries;

use super::AllToAll;
use crate::codec::{Block, Codec};
use crate::collective::{Received, Round};
use crate::error::ProtocolError;
use crate::list;
use crate::partition::Partition;
use crate::world::Group;

/// The sum of the own region on its way.
#[derive(Debug)]
pub struct SplitReduce {
    group: Group,
    region: Block,
    own: Entries,
    exchange: AllToAll,
    entries_sent: u64,
}

impl SplitReduce {
    /// Cuts `selection` by `regions`; no worker's has more than `max` entries. Appends what the value type takes from the parts
    /// that are sent to `errors`. A round exchanges with at most `peers` workers.
    pub fn new(
        group: Group,
        selection: &Entries,
        regions: &Partition,
        (codec, max): (Codec, usize),
        peers: usize,
        errors: &mut Entries,
    ) -> Self {
        let position = group.position();
        let region = Block::new(codec, regions, position, max);
        let mut outgoing = vec![Vec::new(); group.size()];
        let mut entries_sent = 0;
        for (owner, item) in outgoing.iter_mut().enumerate() {
            if owner != position {
                let part = list::cut(selection, regions.range(owner), codec.values, errors);
                Block::new(codec, regions, owner, max).encode(&part, item);
                entries_sent += part.len() as u64;
            }
        }
        let (indices, values) = list::within(selection, regions.range(position));
        let own = Entries {
            indices: indices.to_vec(),
            values: values.to_vec(),
        };
        let exchange = AllToAll::new(group, outgoing, region.bound(), peers);
        Self {
            group,
            region,
            own,
            exchange,
            entries_sent,
        }
    }

    /// Entries that this worker sends.
    pub const fn entries_sent(&self) -> u64 {
        self.entries_sent
    }

    /// What to exchange now; `None` when all parts are there.
    pub fn round(&mut self) -> Option<Round> {
        self.exchange.round()
    }

    /// Takes the parts of the current round.
    ///
    /// # Errors
    /// As [`AllToAll::absorb`].
    pub fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        self.exchange.absorb(received)
    }

    /// The sum of the own region over all workers, added in rank order, once `round` has returned `None`. Sums that cancel to
    /// zero stay in the list.
    ///
    /// # Errors
    /// When a part cannot be read.
    pub fn into_sum(mut self) -> Result<Entries, ProtocolError> {
        let items = self.exchange.into_items();
        let mut lists = vec![Entries::default(); self.group.size()];
        for (from, list) in lists.iter_mut().enumerate() {
            if from == self.group.position() {
                *list = std::mem::take(&mut self.own);
            } else {
                items.read(from, |reader| self.region.decode(reader, list))?;
            }
        }
        Ok(list::sum_all(&lists, self.region.range.end))
    }
}
