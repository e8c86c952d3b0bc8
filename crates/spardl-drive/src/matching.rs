//! Messages in any order in, complete rounds in the order of the plan out; shared by all transports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use spardl_core::{Expected, Inbox, Payload, Rank, World};

use crate::error::TransportError;
use crate::report::WaitingOn;
use crate::time::Time;
use crate::transport::BucketId;

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

/// What one worker sends another.
#[derive(Debug)]
pub enum News {
    /// A message of a round.
    Message {
        /// The sender's stamp.
        stamp: Stamp,
        /// The bucket.
        bucket: BucketId,
        /// The round of the step.
        round: u32,
        /// The message.
        payload: Payload,
    },
    /// The sender gave a step up and has this stamp now.
    GaveUp(Stamp),
}

/// The rounds in flight of one worker, the messages that came before they were asked for, the stamps, and who has left.
///
/// A transport delivers what comes and asks for complete rounds. Whether a wait is in vain is decided here, once for all
/// transports. What is kept per peer grows with the peers that failed, not with the world: a process may hold thousands
/// of workers.
#[derive(Debug)]
pub struct RoundTable {
    world: World,
    stamp: Stamp,
    /// The first stamp of the newest epoch of the workers that were heard of in a later epoch than the first.
    heard: BTreeMap<Rank, Stamp>,
    newest_epoch: u32,
    /// Who said that it sends nothing more.
    gone: BTreeSet<Rank>,
    flights: BTreeMap<BucketId, Flight>,
    complete: VecDeque<BucketId>,
    early: BTreeMap<Slot, VecDeque<Stamped>>,
    /// The messages of the round that was taken out last.
    lent: Vec<Payload>,
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
    /// In the order of the plan.
    slots: Vec<(Rank, Option<Stamped>)>,
    /// The positions in `slots`, by rank.
    by_rank: Vec<u32>,
    missing: usize,
    since: Time,
}

impl Flight {
    fn waits_for(&self) -> impl Iterator<Item = Rank> {
        let missing = self.slots.iter().filter(|(_, message)| message.is_none());
        missing.map(|(from, _)| *from)
    }

    /// The place of the message of `from`, if the round has one.
    fn slot(&mut self, from: Rank) -> Option<&mut Option<Stamped>> {
        let rank_of = |&at: &u32| self.slots[at as usize].0;
        let found = self.by_rank.binary_search_by_key(&from, rank_of).ok()?;
        let (_, message) = &mut self.slots[self.by_rank[found] as usize];
        Some(message)
    }
}

impl RoundTable {
    /// An empty table, in epoch 0.
    pub const fn new(world: World) -> Self {
        Self {
            world,
            stamp: Stamp {
                epoch: 0,
                finished: 0,
            },
            heard: BTreeMap::new(),
            newest_epoch: 0,
            gone: BTreeSet::new(),
            flights: BTreeMap::new(),
            complete: VecDeque::new(),
            early: BTreeMap::new(),
            lent: Vec::new(),
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
        now: Time,
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
        let mut by_rank: Vec<u32> = (0..slots.len() as u32).collect();
        by_rank.sort_unstable_by_key(|&at| slots[at as usize].0);
        let flight = Flight {
            round,
            slots,
            by_rank,
            missing,
            since: now,
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

    /// Takes what came from `from`, a rank of this world.
    pub fn take(&mut self, from: Rank, news: News) {
        match news {
            News::Message {
                stamp,
                bucket,
                round,
                payload,
            } => self.deliver(from, stamp, bucket, round, payload),
            News::GaveUp(stamp) => self.note_stamp(from, stamp),
        }
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
        self.note_stamp(from, stamp);
        if stamp.epoch < self.stamp.epoch || stamp.is_void(self.heard_of(from)) {
            return;
        }
        let message = Stamped { stamp, payload };
        if stamp.epoch == self.stamp.epoch
            && let Some(flight) = self.flights.get_mut(&bucket)
            && flight.round == round
            && let Some(slot @ None) = flight.slot(from)
        {
            *slot = Some(message);
            flight.missing -= 1;
            if flight.missing == 0 {
                self.complete.push_back(bucket);
            }
            return;
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
    pub fn note_stamp(&mut self, from: Rank, stamp: Stamp) {
        if stamp.epoch <= self.heard_of(from).epoch {
            return;
        }
        self.heard.insert(from, stamp);
        self.newest_epoch = self.newest_epoch.max(stamp.epoch);
        self.early.retain(|slot, queue| {
            if slot.from == from {
                queue.retain(|message| !message.stamp.is_void(stamp));
            }
            !queue.is_empty()
        });
        for flight in self.flights.values_mut() {
            let void = |message: &mut Stamped| message.stamp.is_void(stamp);
            let dropped = flight.slot(from).and_then(|slot| slot.take_if(void));
            flight.missing += usize::from(dropped.is_some());
        }
        self.complete
            .retain(|bucket| self.flights.get(bucket).is_some_and(|f| f.missing == 0));
    }

    fn heard_of(&self, peer: Rank) -> Stamp {
        self.heard.get(&peer).copied().unwrap_or_default()
    }

    /// Notes that `from`, a rank of this world, sends nothing after what was delivered.
    pub fn leave(&mut self, from: Rank) {
        self.gone.insert(from);
    }

    /// Have all others left?
    pub fn is_alone(&self) -> bool {
        self.gone.len() + 1 == self.world.size() as usize
    }

    /// Takes out a complete round, in order of completion; [`RoundTable::inbox`] has its messages until the next one.
    pub fn take_complete(&mut self) -> Option<BucketId> {
        self.lent.clear();
        let bucket = self.complete.pop_front()?;
        let flight = self.flights.remove(&bucket)?;
        let messages = flight.slots.into_iter().filter_map(|(_, message)| message);
        self.lent.extend(messages.map(|message| message.payload));
        Some(bucket)
    }

    /// The messages of the round that was taken out last, in the order of the plan.
    pub fn inbox(&self) -> Inbox<'_> {
        Inbox::borrowed(self.lent.iter().map(Payload::as_wire))
    }

    /// Takes back the buffers of [`RoundTable::inbox`], to use them again.
    pub fn reclaim(&mut self) -> impl Iterator<Item = Vec<u8>> {
        self.lent.drain(..).map(Payload::into_wire)
    }

    /// Is nothing in flight?
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// Is a round complete?
    pub fn has_complete(&self) -> bool {
        !self.complete.is_empty()
    }

    /// Why a wait is in vain, if it is: a message is missing whose sender has left or gave the step up.
    ///
    /// Ask after everything that came was delivered. Messages of a sender come before the news that it left.
    pub fn in_vain(&self) -> Option<TransportError> {
        let rank = self.world.rank();
        if !self.gone.is_empty()
            && let Some((bucket, round, peer)) = self.find_awaited(|peer| self.gone.contains(&peer))
        {
            return Some(TransportError::PeerLost {
                rank,
                peer,
                bucket,
                round,
            });
        }
        if self.newest_epoch <= self.stamp.epoch {
            return None;
        }
        let left_behind = |peer| self.heard_of(peer).epoch > self.stamp.epoch;
        let (bucket, round, by) = self.find_awaited(left_behind)?;
        Some(TransportError::Abandoned {
            rank,
            by,
            bucket,
            round,
        })
    }

    /// The first peer whose message is missing and for which `condition` holds, with bucket and round.
    fn find_awaited(&self, condition: impl Fn(Rank) -> bool) -> Option<(BucketId, u32, Rank)> {
        self.flights.iter().find_map(|(&bucket, flight)| {
            let peer = flight.waits_for().find(|&peer| condition(peer))?;
            Some((bucket, flight.round, peer))
        })
    }

    /// The error of a wait that is over now.
    ///
    /// # Panics
    /// When no message is missing.
    pub fn timeout(&self, now: Time) -> TransportError {
        TransportError::timeout(self.world.rank(), self.waiting(now))
    }

    /// The rounds in flight that miss messages, the one that waits longest first.
    pub fn waiting(&self, now: Time) -> Vec<WaitingOn> {
        let incomplete = self.flights.iter().filter(|(_, flight)| flight.missing > 0);
        let mut waiting: Vec<_> = incomplete
            .map(|(&bucket, flight)| WaitingOn {
                bucket,
                round: flight.round,
                peers: flight.waits_for().collect(),
                waited: now.since(flight.since),
            })
            .collect();
        waiting.sort_by_key(|line| std::cmp::Reverse(line.waited));
        waiting
    }

    /// Notes that the rounds so far belong to finished steps, which a later `abandon` does not concern.
    pub fn complete_step(&mut self) {
        self.lent.clear();
        self.stamp.finished = self.stamp.finished.wrapping_add(1);
    }

    /// Drops all rounds in flight and moves to the newest epoch heard of, or to a new one. Returns the stamp to tell the
    /// peers.
    pub fn abandon(&mut self) -> Stamp {
        self.flights.clear();
        self.complete.clear();
        self.lent.clear();
        let epoch = self.newest_epoch.max(self.stamp.epoch + 1);
        self.stamp.epoch = epoch;
        self.early.retain(|slot, _| slot.epoch >= epoch);
        self.stamp
    }
}

#[cfg(test)]
mod tests;
