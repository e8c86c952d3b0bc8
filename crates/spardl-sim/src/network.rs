//! The messages under way, in the order of their arrival, and what may happen to them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spardl_core::{Payload, Rank, World};
use spardl_drive::{BucketId, Clock, News, Time};

use crate::clock::VirtualClock;
use crate::transport::{Receiver, SimTransport};

/// The longest a message travels, in nanoseconds: long enough for any order of arrival.
const SLOWEST: u64 = 1000;

/// What happens to a message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It arrives as it is.
    None,
    /// It never arrives.
    Drop,
    /// It arrives with these bytes instead.
    Replace(Vec<u8>),
}

/// A message on its way, as a fault rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// The bucket.
    pub bucket: BucketId,
    /// The round of the step.
    pub round: u32,
    /// The wire bytes.
    pub bytes: &'a [u8],
}

/// Something that will happen to a worker.
#[derive(Debug)]
pub(crate) enum Event {
    /// It begins the step of a bucket.
    Begin(BucketId),
    /// Something arrives.
    Arrival(Rank, News),
}

/// When, in which order among equals, to whom.
type Key = (Time, u64, Rank);

/// What will happen, the next first. Events of the same moment happen in the order they were made.
pub(crate) struct Network {
    size: u32,
    clock: Arc<VirtualClock>,
    queue: BinaryHeap<Reverse<Planned>>,
    events: u64,
    order: ChaCha8Rng,
    fault: Box<dyn FnMut(Message<'_>) -> Fault + Send>,
}

/// An event with its key, by which alone it is ordered.
#[derive(Debug)]
struct Planned(Key, Event);

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl Network {
    pub(crate) fn new(size: u32, clock: Arc<VirtualClock>) -> Self {
        Self {
            size,
            clock,
            queue: BinaryHeap::new(),
            events: 0,
            order: ChaCha8Rng::seed_from_u64(0),
            fault: Box::new(|_| Fault::None),
        }
    }

    /// Draws delays from another seed.
    pub(crate) fn set_order(&mut self, seed: u64) {
        self.order = ChaCha8Rng::seed_from_u64(seed);
    }

    pub(crate) fn set_fault(&mut self, rule: impl FnMut(Message<'_>) -> Fault + Send + 'static) {
        self.fault = Box::new(rule);
    }

    /// Lets a worker begin a bucket now.
    pub(crate) fn begin_now(&mut self, worker: Rank, bucket: BucketId) {
        self.plan(self.clock.now(), worker, Event::Begin(bucket));
    }

    /// Lets a worker begin a bucket after a while, as if the gradient came out piece by piece.
    pub(crate) fn begin_later(&mut self, worker: Rank, bucket: BucketId) {
        self.plan_later(worker, Event::Begin(bucket));
    }

    /// Sends what the worker has put into its outbox.
    pub(crate) fn carry(&mut self, from: Rank, transport: &mut SimTransport) {
        for (to, news) in transport.sent() {
            match (to, news) {
                (Receiver::One(to), news) => self.send(from, to, news),
                (Receiver::Everybody, News::GaveUp(stamp)) => {
                    let peers = World::all(self.size).map(World::rank);
                    for to in peers.filter(|&peer| peer != from) {
                        self.send(from, to, News::GaveUp(stamp));
                    }
                }
                (Receiver::Everybody, _) => {}
            }
        }
    }

    fn send(&mut self, from: Rank, to: Rank, mut news: News) {
        if let News::Message {
            bucket,
            round,
            payload,
            ..
        } = &mut news
        {
            let bytes = payload.as_wire();
            let message = Message {
                from,
                to,
                bucket: *bucket,
                round: *round,
                bytes,
            };
            match (self.fault)(message) {
                Fault::None => {}
                Fault::Drop => return,
                Fault::Replace(bytes) => *payload = Payload::from_wire(bytes),
            }
        }
        self.plan_later(to, Event::Arrival(from, news));
    }

    fn plan_later(&mut self, worker: Rank, event: Event) {
        let delay = self.order.random_range(1..=SLOWEST);
        let at = Time::from_nanos(self.clock.now().as_nanos() + delay);
        self.plan(at, worker, event);
    }

    fn plan(&mut self, at: Time, worker: Rank, event: Event) {
        self.events += 1;
        let key = (at, self.events, worker);
        self.queue.push(Reverse(Planned(key, event)));
    }

    /// Moves the clock to the next event.
    pub(crate) fn next(&mut self) -> Option<(Rank, Event)> {
        let Reverse(Planned((at, _, worker), event)) = self.queue.pop()?;
        self.clock.advance_to(at);
        Some((worker, event))
    }

    /// Everything under way is lost.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}
