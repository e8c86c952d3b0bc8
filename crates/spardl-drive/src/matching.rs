//! Messages in any order in, complete rounds in the order of the plan out; shared by all transports.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use spardl_core::{Expected, Inbox, Payload, Rank, World};

use crate::report::WaitingOn;
use crate::transport::{BucketId, TransportError};

/// The rounds in flight of one worker, the messages that came before they were asked for, and the epochs.
///
/// What epochs are for is told in [`transport`](crate::transport).
#[derive(Debug)]
pub struct RoundTable {
    world: World,
    epoch: u64,
    peer_epochs: Vec<u64>,
    flights: BTreeMap<BucketId, Flight>,
    complete: VecDeque<BucketId>,
    early: BTreeMap<Slot, VecDeque<Payload>>,
}

/// Where a message belongs; the order makes the early messages of an epoch a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    epoch: u64,
    bucket: BucketId,
    round: u32,
    from: Rank,
}

#[derive(Debug)]
struct Flight {
    round: u32,
    slots: Vec<(Rank, Option<Payload>)>,
    missing: usize,
    since: Instant,
}

impl Flight {
    fn waits_for(&self) -> impl Iterator<Item = Rank> {
        let missing = self.slots.iter().filter(|(_, payload)| payload.is_none());
        missing.map(|(from, _)| *from)
    }
}

impl RoundTable {
    /// An empty table, in epoch 0.
    pub fn new(world: World) -> Self {
        Self {
            world,
            epoch: 0,
            peer_epochs: vec![0; world.size() as usize],
            flights: BTreeMap::new(),
            complete: VecDeque::new(),
            early: BTreeMap::new(),
        }
    }

    /// The epoch to put into messages.
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Notes that a round is in flight and takes the messages that are already here.
    ///
    /// # Errors
    /// When the bucket has a round in flight, or a sender is not a peer in this world.
    pub fn expect(
        &mut self,
        bucket: BucketId,
        round: u32,
        recvs: &[Expected],
    ) -> Result<(), TransportError> {
        if self.flights.contains_key(&bucket) {
            let rank = self.world.rank();
            return Err(TransportError::Busy { rank, bucket });
        }
        for expected in recvs {
            self.check_peer(expected.from)?;
        }
        let slots: Vec<_> = recvs
            .iter()
            .map(|expected| (expected.from, self.take_early(bucket, round, expected.from)))
            .collect();
        let missing = slots
            .iter()
            .filter(|(_, payload)| payload.is_none())
            .count();
        if missing == 0 {
            self.complete.push_back(bucket);
        }
        let flight = Flight {
            round,
            slots,
            missing,
            since: Instant::now(),
        };
        self.flights.insert(bucket, flight);
        Ok(())
    }

    /// Is `peer` another worker of this world?
    ///
    /// # Errors
    /// When it is not.
    pub fn check_peer(&self, peer: Rank) -> Result<(), TransportError> {
        let (rank, size) = (self.world.rank(), self.world.size());
        if peer.get() < size && peer != rank {
            return Ok(());
        }
        Err(TransportError::NoSuchPeer { rank, peer, size })
    }

    fn take_early(&mut self, bucket: BucketId, round: u32, from: Rank) -> Option<Payload> {
        let slot = Slot {
            epoch: self.epoch,
            bucket,
            round,
            from,
        };
        let queue = self.early.get_mut(&slot)?;
        let payload = queue.pop_front();
        if queue.is_empty() {
            self.early.remove(&slot);
        }
        payload
    }

    /// Takes a message that `from`, a rank of this world, sent in `epoch`.
    pub fn deliver(
        &mut self,
        from: Rank,
        epoch: u64,
        bucket: BucketId,
        round: u32,
        payload: Payload,
    ) {
        self.hear_epoch(from, epoch);
        if epoch < self.epoch {
            return;
        }
        if epoch == self.epoch
            && let Some(flight) = self.flights.get_mut(&bucket)
            && flight.round == round
        {
            let mut open = flight.slots.iter_mut();
            if let Some((_, slot)) = open.find(|(rank, slot)| *rank == from && slot.is_none()) {
                *slot = Some(payload);
                flight.missing -= 1;
                if flight.missing == 0 {
                    self.complete.push_back(bucket);
                }
                return;
            }
        }
        let slot = Slot {
            epoch,
            bucket,
            round,
            from,
        };
        self.early.entry(slot).or_default().push_back(payload);
    }

    /// Notes that `from`, a rank of this world, is in `epoch`.
    pub fn hear_epoch(&mut self, from: Rank, epoch: u64) {
        let known = &mut self.peer_epochs[from.index()];
        *known = epoch.max(*known);
    }

    /// Takes out a complete round, in order of completion.
    pub fn pop(&mut self) -> Option<(BucketId, Inbox<'static>)> {
        let bucket = self.complete.pop_front()?;
        let flight = self.flights.remove(&bucket)?;
        let payloads = flight.slots.into_iter().filter_map(|(_, payload)| payload);
        Some((bucket, Inbox::new(payloads.collect())))
    }

    /// Is nothing in flight?
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// A peer whose message is missing though it gave the step up.
    pub fn abandoned_by(&self) -> Option<Rank> {
        if self.newest_epoch() == self.epoch {
            return None;
        }
        self.find_awaited(|peer| self.peer_epochs[peer.index()] > self.epoch)
    }

    /// The first peer whose message is missing and for which `condition` holds.
    pub fn find_awaited(&self, condition: impl Fn(Rank) -> bool) -> Option<Rank> {
        let mut awaited = self.flights.values().flat_map(Flight::waits_for);
        awaited.find(|&peer| condition(peer))
    }

    /// The rounds in flight that miss messages, the one that waits longest first.
    pub fn waiting(&self) -> Vec<WaitingOn> {
        let incomplete = self.flights.iter().filter(|(_, flight)| flight.missing > 0);
        let mut waiting: Vec<_> = incomplete
            .map(|(&bucket, flight)| WaitingOn {
                bucket,
                round: flight.round,
                peers: flight.waits_for().collect(),
                since: flight.since,
            })
            .collect();
        waiting.sort_by_key(|line| line.since);
        waiting
    }

    /// Drops all rounds in flight and moves to the newest epoch heard of, or to a new one; returns it.
    pub fn abandon(&mut self) -> u64 {
        self.flights.clear();
        self.complete.clear();
        self.epoch = self.newest_epoch().max(self.epoch + 1);
        let first = Slot {
            epoch: self.epoch,
            bucket: BucketId::new(0),
            round: 0,
            from: Rank::new(0),
        };
        self.early = self.early.split_off(&first);
        self.epoch
    }

    fn newest_epoch(&self) -> u64 {
        self.peer_epochs.iter().copied().fold(self.epoch, u64::max)
    }
}
