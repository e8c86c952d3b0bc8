//! Messages in any order in, complete rounds in the order of the plan out; shared by all transports.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use spardl_core::{Expected, Inbox, Payload, Rank, World};

use crate::report::WaitingOn;
use crate::transport::{BucketId, TransportError};

/// When a message was sent, by its sender's count; goes with every message. [`transport`](crate::transport) tells what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// How often steps were given up. Workers compare it.
    pub epoch: u32,
    /// How many steps the sender had finished. Means something only beside other stamps of the same sender.
    pub finished: u32,
}

impl Stamp {
    /// For an envelope.
    pub const fn to_le_bytes(self) -> [u8; 8] {
        ((self.finished as u64) << 32 | self.epoch as u64).to_le_bytes()
    }

    /// From an envelope.
    pub const fn from_le_bytes(bytes: [u8; 8]) -> Self {
        let both = u64::from_le_bytes(bytes);
        Self {
            epoch: both as u32,
            finished: (both >> 32) as u32,
        }
    }

    /// Did the sender of both give up the step of the message `self`, now that it is at `later`?
    const fn is_void(self, later: Self) -> bool {
        self.epoch < later.epoch && self.finished >= later.finished
    }
}

/// The rounds in flight of one worker, the messages that came before they were asked for, and the stamps.
#[derive(Debug)]
pub struct RoundTable {
    world: World,
    stamp: Stamp,
    /// The first stamp of the newest epoch of each worker.
    heard: Vec<Stamp>,
    flights: BTreeMap<BucketId, Flight>,
    complete: VecDeque<BucketId>,
    early: BTreeMap<Slot, VecDeque<Stamped>>,
}

/// Where a message belongs; the order makes the early messages of an epoch a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slot {
    epoch: u32,
    bucket: BucketId,
    round: u32,
    from: Rank,
}

#[derive(Debug)]
struct Stamped {
    stamp: Stamp,
    payload: Payload,
}

#[derive(Debug)]
struct Flight {
    round: u32,
    slots: Vec<(Rank, Option<Stamped>)>,
    missing: usize,
    since: Instant,
}

impl Flight {
    fn waits_for(&self) -> impl Iterator<Item = Rank> {
        let missing = self.slots.iter().filter(|(_, message)| message.is_none());
        missing.map(|(from, _)| *from)
    }
}

impl RoundTable {
    /// An empty table, in epoch 0.
    pub fn new(world: World) -> Self {
        Self {
            world,
            stamp: Stamp::default(),
            heard: vec![Stamp::default(); world.size() as usize],
            flights: BTreeMap::new(),
            complete: VecDeque::new(),
            early: BTreeMap::new(),
        }
    }

    /// The stamp to put on messages.
    pub const fn stamp(&self) -> Stamp {
        self.stamp
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
            .filter(|(_, message)| message.is_none())
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

    fn take_early(&mut self, bucket: BucketId, round: u32, from: Rank) -> Option<Stamped> {
        let slot = Slot {
            epoch: self.stamp.epoch,
            bucket,
            round,
            from,
        };
        let queue = self.early.get_mut(&slot)?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.early.remove(&slot);
        }
        message
    }

    /// Takes a message of `from`, a rank of this world.
    pub fn deliver(
        &mut self,
        from: Rank,
        stamp: Stamp,
        bucket: BucketId,
        round: u32,
        payload: Payload,
    ) {
        self.hear(from, stamp);
        if stamp.epoch < self.stamp.epoch || stamp.is_void(self.heard[from.index()]) {
            return;
        }
        let message = Stamped { stamp, payload };
        if stamp.epoch == self.stamp.epoch
            && let Some(flight) = self.flights.get_mut(&bucket)
            && flight.round == round
        {
            let mut open = flight.slots.iter_mut();
            if let Some((_, slot)) = open.find(|(rank, slot)| *rank == from && slot.is_none()) {
                *slot = Some(message);
                flight.missing -= 1;
                if flight.missing == 0 {
                    self.complete.push_back(bucket);
                }
                return;
            }
        }
        let slot = Slot {
            epoch: stamp.epoch,
            bucket,
            round,
            from,
        };
        self.early.entry(slot).or_default().push_back(message);
    }

    /// Notes the stamp of `from`, a rank of this world, and drops messages of a step that it gave up since.
    pub fn hear(&mut self, from: Rank, stamp: Stamp) {
        if stamp.epoch <= self.heard[from.index()].epoch {
            return;
        }
        self.heard[from.index()] = stamp;
        self.early.retain(|slot, queue| {
            if slot.from == from {
                queue.retain(|message| !message.stamp.is_void(stamp));
            }
            !queue.is_empty()
        });
        for flight in self.flights.values_mut() {
            for (_, slot) in flight.slots.iter_mut().filter(|(rank, _)| *rank == from) {
                if slot
                    .take_if(|message| message.stamp.is_void(stamp))
                    .is_some()
                {
                    flight.missing += 1;
                }
            }
        }
        self.complete
            .retain(|bucket| self.flights.get(bucket).is_some_and(|f| f.missing == 0));
    }

    /// Takes out a complete round, in order of completion.
    pub fn pop(&mut self) -> Option<(BucketId, Inbox<'static>)> {
        let bucket = self.complete.pop_front()?;
        let flight = self.flights.remove(&bucket)?;
        let messages = flight.slots.into_iter().filter_map(|(_, message)| message);
        Some((
            bucket,
            Inbox::new(messages.map(|message| message.payload).collect()),
        ))
    }

    /// Is nothing in flight?
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// A peer whose message is missing though it gave the step up.
    pub fn abandoned_by(&self) -> Option<Rank> {
        if self.newest_epoch() == self.stamp.epoch {
            return None;
        }
        self.find_awaited(|peer| self.heard[peer.index()].epoch > self.stamp.epoch)
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

    /// Notes that the rounds so far belong to finished steps, which a later `abandon` does not concern.
    pub const fn settle(&mut self) {
        self.stamp.finished = self.stamp.finished.wrapping_add(1);
    }

    /// Drops all rounds in flight and moves to the newest epoch heard of, or to a new one. Returns the stamp to tell the
    /// peers.
    pub fn abandon(&mut self) -> Stamp {
        self.flights.clear();
        self.complete.clear();
        let epoch = self.newest_epoch().max(self.stamp.epoch + 1);
        self.stamp.epoch = epoch;
        self.early.retain(|slot, _| slot.epoch >= epoch);
        self.stamp
    }

    fn newest_epoch(&self) -> u32 {
        let epochs = self.heard.iter().map(|stamp| stamp.epoch);
        epochs.fold(self.stamp.epoch, u32::max)
    }
}

#[cfg(test)]
mod tests;
