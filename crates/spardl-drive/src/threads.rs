//! Workers as threads of one process. Payloads move from thread to thread without a copy and are lent to the receiver.
//!
//! Every worker has one channel that all others send into; each sender's messages keep their order. A transport that is
//! dropped puts its rank into a list that all share and wakes the others, so peers that still wait for it end at once and
//! those that have all they need do not notice. A channel holds one such call at most, however many leave: goodbyes of each
//! to all would be P squared messages that nobody reads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, unbounded};
use spardl_core::{Inbox, Rank, Round, World};

use crate::error::TransportError;
use crate::matching::{News, RoundTable};
use crate::time::{Clock, Deadline, SystemClock};
use crate::transport::{BucketId, Connect, Transport};

/// The endpoints of `size` workers in one process, in rank order.
pub fn threads(size: u32) -> Vec<ThreadsEndpoint> {
    let (outboxes, inboxes): (Vec<_>, Vec<_>) = (0..size).map(|_| unbounded()).unzip();
    let shared = Arc::new(Shared {
        outboxes,
        called: (0..size).map(|_| AtomicBool::new(false)).collect(),
        left: Mutex::default(),
        crashed: (0..size).map(|_| AtomicBool::new(false)).collect(),
        clock: SystemClock::start(),
    });
    World::all(size)
        .zip(inboxes)
        .map(|(world, inbox)| {
            ThreadsEndpoint(Port {
                world,
                inbox,
                shared: Arc::clone(&shared),
            })
        })
        .collect()
}

/// One worker's end, to be moved into its thread and connected there.
#[derive(Debug)]
pub struct ThreadsEndpoint(Port);

impl Connect for ThreadsEndpoint {
    type Transport = ThreadsTransport;

    fn connect(self) -> Result<ThreadsTransport, TransportError> {
        let Self(port) = self;
        Ok(ThreadsTransport {
            table: RoundTable::new(port.world),
            known_to_have_left: 0,
            port,
        })
    }
}

/// A worker's transport to the other threads.
#[derive(Debug)]
pub struct ThreadsTransport {
    port: Port,
    table: RoundTable,
    /// How many of those that left the table knows of.
    known_to_have_left: usize,
}

/// A worker's way in and everybody's ways out; tells the others when it is dropped.
#[derive(Debug)]
struct Port {
    world: World,
    inbox: Receiver<Packet>,
    shared: Arc<Shared>,
}

/// What there is once for all workers.
#[derive(Debug)]
struct Shared {
    outboxes: Vec<Sender<Packet>>,
    /// Whose channel has a [`Packet::SomebodyLeft`] in it.
    called: Vec<AtomicBool>,
    /// Who has left, in that order.
    left: Mutex<Vec<Rank>>,
    /// Which workers panicked, so that everybody names the worker that did and not one that fell with it.
    crashed: Vec<AtomicBool>,
    clock: Arc<SystemClock>,
}

#[derive(Debug)]
enum Packet {
    News(Rank, News),
    SomebodyLeft,
}

impl Port {
    /// Sends to a worker; false when it has gone.
    fn send(&self, to: Rank, news: News) -> bool {
        let from = self.world.rank();
        let outbox = &self.shared.outboxes[to.index()];
        outbox.send(Packet::News(from, news)).is_ok()
    }

    fn peers(&self) -> impl Iterator<Item = Rank> {
        let all = World::all(self.world.size()).map(World::rank);
        all.filter(|&peer| peer != self.world.rank())
    }

    /// Lets everybody know that nothing comes from here after what was sent.
    fn leave(&self) {
        let left = &self.shared.left;
        left.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.world.rank());
        for peer in self.peers() {
            // Who was called and has not looked yet will see this one, too.
            if !self.shared.called[peer.index()].swap(true, Ordering::AcqRel) {
                let _ = self.shared.outboxes[peer.index()].send(Packet::SomebodyLeft);
            }
        }
    }

    /// The error about the worker that crashed, if one took others along.
    fn blame(&self, error: TransportError) -> TransportError {
        let is_set = |crashed: &AtomicBool| crashed.load(Ordering::Acquire);
        let crashed = self.shared.crashed.iter().position(is_set);
        match (error, crashed) {
            (
                TransportError::PeerLost {
                    rank,
                    bucket,
                    round,
                    ..
                }
                | TransportError::Abandoned {
                    rank,
                    bucket,
                    round,
                    ..
                },
                Some(peer),
            ) => TransportError::PeerLost {
                rank,
                peer: Rank::new(peer as u32),
                bucket,
                round,
            },
            (error, _) => error,
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.crashed[self.world.rank().index()].store(true, Ordering::Release);
        }
        self.leave();
    }
}

impl ThreadsTransport {
    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::News(from, news) => self.table.take(from, news),
            Packet::SomebodyLeft => self.see_who_left(),
        }
    }

    /// What they sent before is in the channel by now; [`RoundTable::in_vain`] is asked when it is empty.
    fn see_who_left(&mut self) {
        let Port { world, shared, .. } = &self.port;
        shared.called[world.rank().index()].swap(false, Ordering::AcqRel);
        let left = shared.left.lock().unwrap_or_else(PoisonError::into_inner);
        for &peer in &left[self.known_to_have_left..] {
            self.table.leave(peer);
        }
        self.known_to_have_left = left.len();
    }

    fn take_all(&mut self) {
        while let Ok(packet) = self.port.inbox.try_recv() {
            self.take(packet);
        }
    }

    fn next_complete(&mut self) -> Result<Option<BucketId>, TransportError> {
        self.take_all();
        if let Some(bucket) = self.table.take_complete() {
            return Ok(Some(bucket));
        }
        match self.table.in_vain() {
            Some(error) => Err(self.port.blame(error)),
            None => Ok(None),
        }
    }
}

impl Transport for ThreadsTransport {
    fn world(&self) -> World {
        self.port.world
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::<SystemClock>::clone(&self.port.shared.clock)
    }

    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
        let Round { seq, sends, recvs } = round;
        for outgoing in &sends {
            self.table.check_peer(outgoing.to)?;
        }
        let now = self.port.shared.clock.now();
        self.table.expect(bucket, seq, &recvs, now)?;
        let stamp = self.table.stamp();
        for outgoing in sends {
            let message = News::Message {
                stamp,
                bucket,
                round: seq,
                payload: outgoing.payload,
            };
            if !self.port.send(outgoing.to, message) {
                return Err(self.port.blame(TransportError::PeerLost {
                    rank: self.port.world.rank(),
                    peer: outgoing.to,
                    bucket,
                    round: seq,
                }));
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        let complete = self.next_complete()?;
        Ok(complete.map(|bucket| (bucket, self.table.inbox())))
    }

    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        let bucket = loop {
            if let Some(bucket) = self.next_complete()? {
                break bucket;
            }
            if self.table.is_idle() {
                return Ok(None);
            }
            let left = deadline.remaining(self.port.shared.clock.now());
            match self.port.inbox.recv_timeout(left) {
                Ok(packet) => self.take(packet),
                Err(_) => return Err(self.table.timeout(self.port.shared.clock.now())),
            }
        };
        Ok(Some((bucket, self.table.inbox())))
    }

    fn complete_step(&mut self) {
        self.table.complete_step();
    }

    fn abandon(&mut self) {
        self.take_all();
        let stamp = self.table.abandon();
        for peer in self.port.peers() {
            self.port.send(peer, News::GaveUp(stamp));
        }
    }
}
