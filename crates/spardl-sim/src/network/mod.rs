//! The messages under way, in the order of their arrival.

mod cores;
pub(crate) mod flows;
mod parcel;
mod traffic;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spardl_core::{Payload, Rank, World};
use spardl_drive::{BucketId, Clock, News, Stamp, Time};

use crate::clock::VirtualClock;
use crate::compute;
use crate::fault::{Fault, Message};
use crate::path::{Hop, Path, Spent};
use crate::transport::{Receiver, SimTransport};

use cores::{Cores, Owner};
use parcel::Moving;
pub(crate) use parcel::Parcel;
pub(crate) use traffic::Traffic;
pub use traffic::{LinkUse, Sharing};

/// The longest a message travels without a fabric, in nanoseconds: long enough for any order of arrival.
const SLOWEST: u64 = 1000;

/// Something that will happen to a worker.
#[derive(Debug)]
pub(crate) enum Event {
    /// The gradient of a bucket is there.
    Ready(BucketId),
    /// The worker has done what it was at.
    Free,
    /// Something arrives.
    Arrival(Box<Parcel>),
    /// Something departs; the network's own.
    Departure(Box<Parcel>),
}

/// When, in which order among equals, to whom.
type Key = (Time, u64, Rank);

/// How long messages take.
#[derive(Debug)]
enum Delivery {
    /// As a draw says.
    Shuffled(ChaCha8Rng),
    /// As the links say.
    Links(Traffic),
}

/// What will happen, the next first. Events of the same moment happen in the order they were made.
pub(crate) struct Network {
    size: u32,
    clock: Arc<VirtualClock>,
    queue: BinaryHeap<Reverse<Planned>>,
    events: u64,
    delivery: Delivery,
    /// None: every worker has a core of its own.
    cores: Option<Cores>,
    /// Picoseconds that moving a byte takes of the cores.
    transport: u64,
    /// The messages that the system still works for, by number.
    moving: BTreeMap<u64, Moving>,
    messages: u64,
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
            delivery: Delivery::Shuffled(ChaCha8Rng::seed_from_u64(0)),
            cores: None,
            transport: 0,
            moving: BTreeMap::new(),
            messages: 0,
            fault: Box::new(|_| Fault::None),
        }
    }

    /// Draws delays from another seed.
    pub(crate) fn set_order(&mut self, seed: u64) {
        self.delivery = Delivery::Shuffled(ChaCha8Rng::seed_from_u64(seed));
    }

    /// Lets messages take the links of a fabric.
    pub(crate) fn set_traffic(&mut self, traffic: Traffic) {
        self.delivery = Delivery::Links(traffic);
    }

    /// The links, if messages take any.
    pub(crate) fn traffic_mut(&mut self) -> Option<&mut Traffic> {
        match &mut self.delivery {
            Delivery::Links(traffic) => Some(traffic),
            Delivery::Shuffled(_) => None,
        }
    }

    pub(crate) fn set_fault(&mut self, rule: impl FnMut(Message<'_>) -> Fault + Send + 'static) {
        self.fault = Box::new(rule);
    }

    /// Tells a worker after a while that the next bucket is ready, as if the gradient came out piece by piece.
    pub(crate) fn ready_later(&mut self, worker: Rank, bucket: BucketId) {
        let delay = self.shuffled_delay();
        self.plan_in(delay, worker, Event::Ready(bucket));
    }

    /// Lets something happen to a worker after so many nanoseconds.
    pub(crate) fn plan_in(&mut self, nanos: u64, worker: Rank, event: Event) {
        self.plan(self.clock.now().as_nanos() + nanos, worker, event);
    }

    /// A worker works for so many nanoseconds, or longer where others use the cores too; then it is free.
    pub(crate) fn work(&mut self, nanos: u64, worker: Rank) {
        match &mut self.cores {
            None => self.plan_in(nanos, worker, Event::Free),
            Some(cores) => {
                let now = self.clock.now().as_nanos();
                cores.start(now, worker, Owner::Worker(worker), nanos);
            }
        }
    }

    /// Lets workers share cores.
    pub(crate) fn set_cores(&mut self, cores: compute::Cores) {
        self.cores = Some(Cores::new(cores.count, cores.workers, self.size));
        self.transport = cores.transport;
    }

    /// Sends what the worker has put into its outbox.
    pub(crate) fn carry(&mut self, from: Rank, path: &Path, transport: &mut SimTransport) {
        for (to, news) in transport.sent() {
            match (to, news) {
                (Receiver::One(to), news) => self.send(from, to, news, path),
                (Receiver::Everybody, News::GaveUp(stamp)) => self.tell_all(from, stamp, path),
                (Receiver::Everybody, _) => {}
            }
        }
    }

    fn tell_all(&mut self, from: Rank, stamp: Stamp, path: &Path) {
        let peers = World::all(self.size).map(World::rank);
        for to in peers.filter(|&peer| peer != from) {
            self.send(from, to, News::GaveUp(stamp), path);
        }
    }

    fn send(&mut self, from: Rank, to: Rank, mut news: News, path: &Path) {
        let (mut late, mut copies) = (Duration::ZERO, 0);
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
                Fault::Late { by, copies: extra } => (late, copies) = (by, extra),
            }
        }
        let mut path = *path;
        let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        path.add(Spent::Faults, late);
        let parcel = Parcel {
            from,
            to,
            news,
            path,
            is_copy: false,
            departed: 0,
            alone: 0,
            latency: 0,
            number: 0,
        };
        for _ in 0..copies {
            self.depart_in(late, parcel.copy());
        }
        self.depart_in(late, parcel);
    }

    fn depart_in(&mut self, nanos: u64, parcel: Parcel) {
        if nanos == 0 {
            self.depart(parcel);
        } else {
            self.plan_in(nanos, parcel.from, Event::Departure(Box::new(parcel)));
        }
    }

    fn depart(&mut self, mut parcel: Parcel) {
        let now = self.clock.now().as_nanos();
        if let Delivery::Links(_) = &self.delivery {
            self.let_system_work(now, &mut parcel);
        }
        match &mut self.delivery {
            Delivery::Shuffled(_) => {
                let at = now + self.shuffled_delay();
                self.plan(at, parcel.to, Event::Arrival(Box::new(parcel)));
            }
            Delivery::Links(traffic) => {
                if let Some((end, parcel)) = traffic.depart(now, parcel) {
                    self.leave_links(end, parcel);
                }
            }
        }
    }

    /// The system begins to move a message, half of the work on either end, while it is on the links.
    fn let_system_work(&mut self, now: u64, parcel: &mut Parcel) {
        let work = parcel.news_bytes().saturating_mul(self.transport) / 1000;
        let Some(cores) = self.cores.as_mut().filter(|_| work > 0) else {
            return;
        };
        self.messages += 1;
        parcel.number = self.messages;
        let owner = Owner::Message(parcel.number);
        cores.start(now, parcel.from, owner, work / 2);
        cores.start(now, parcel.to, owner, work - work / 2);
        let moving = Moving {
            pieces: 2,
            parcel: None,
        };
        self.moving.insert(parcel.number, moving);
    }

    /// The last bit of a message leaves the links at `end`. It arrives when the system has done its part too.
    fn leave_links(&mut self, end: u64, parcel: Parcel) {
        match self.moving.get_mut(&parcel.number) {
            Some(moving) => moving.parcel = Some((end, parcel)),
            None => self.plan_arrival((end, end), parcel),
        }
    }

    /// A piece of the system's work for a message is done.
    fn finish_piece(&mut self, now: u64, number: u64) {
        let Some(moving) = self.moving.get_mut(&number) else {
            return;
        };
        moving.pieces -= 1;
        if moving.pieces > 0 {
            return;
        }
        let moving = self.moving.remove(&number).unwrap_or_default();
        if let Some((end, parcel)) = moving.parcel {
            self.plan_arrival((end, end.max(now)), parcel);
        }
    }

    /// A message has left the links, and the system has done its part: notes where the time went.
    fn plan_arrival(&mut self, (left, moved): (u64, u64), mut parcel: Parcel) {
        let (took, round) = (left - parcel.departed, parcel.round());
        let (path, at) = (&mut parcel.path, moved + parcel.latency);
        path.add(Spent::Transfer, parcel.alone.min(took));
        path.add(Spent::Contention, took.saturating_sub(parcel.alone));
        path.add(Spent::Cores, moved - left);
        path.add(Spent::Latency, parcel.latency);
        path.hop(Hop {
            nanos: at - parcel.departed,
            from: parcel.from.get(),
            to: parcel.to.get(),
            round,
        });
        self.plan(at, parcel.to, Event::Arrival(Box::new(parcel)));
    }

    fn shuffled_delay(&mut self) -> u64 {
        match &mut self.delivery {
            Delivery::Shuffled(order) => order.random_range(1..=SLOWEST),
            Delivery::Links(_) => 0,
        }
    }

    fn plan(&mut self, at: u64, worker: Rank, event: Event) {
        self.events += 1;
        let key = (Time::from_nanos(at), self.events, worker);
        self.queue.push(Reverse(Planned(key, event)));
    }

    /// Moves the clock to the next event that concerns a worker.
    pub(crate) fn next(&mut self) -> Option<(Rank, Event)> {
        loop {
            self.move_traffic();
            let Reverse(Planned((at, _, worker), event)) = self.queue.pop()?;
            self.clock.advance_to(at);
            match event {
                Event::Departure(parcel) => self.depart(*parcel),
                Event::Arrival(parcel) if parcel.is_copy => {}
                event => return Some((worker, event)),
            }
        }
    }

    /// Plans what is over before anything else happens: the way of a message over links, work on shared cores.
    fn move_traffic(&mut self) {
        loop {
            let now = self.clock.now();
            let planned = self.queue.peek().map(|Reverse(Planned((at, ..), _))| *at);
            // Whatever else happens now may begin messages that share links, or work.
            if planned.is_some_and(|at| at <= now) {
                return;
            }
            let message_end = match &mut self.delivery {
                Delivery::Links(traffic) => traffic.next_end(now.as_nanos()),
                Delivery::Shuffled(_) => None,
            };
            let work_end = self.cores.as_ref().and_then(Cores::next_end);
            let ends = [message_end, work_end];
            let Some(end) = ends.into_iter().flatten().min() else {
                return;
            };
            if planned.is_some_and(|at| at.as_nanos() <= end) {
                return;
            }
            self.clock.advance_to(Time::from_nanos(end));
            self.plan_ended(end);
        }
    }

    fn plan_ended(&mut self, end: u64) {
        while let Delivery::Links(traffic) = &mut self.delivery
            && let Some(parcel) = traffic.take_ended(end)
        {
            self.leave_links(end, parcel);
        }
        while let Some(owner) = self.cores.as_mut().and_then(|cores| cores.take_ended(end)) {
            match owner {
                Owner::Worker(worker) => self.plan(end, worker, Event::Free),
                Owner::Message(number) => self.finish_piece(end, number),
            }
        }
    }

    /// Everything under way is lost.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.moving.clear();
        if let Some(cores) = &mut self.cores {
            cores.clear();
        }
        if let Delivery::Links(traffic) = &mut self.delivery {
            traffic.clear();
        }
    }
}
