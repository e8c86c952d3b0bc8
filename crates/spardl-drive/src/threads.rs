//! Workers as threads of one process. Payloads move from thread to thread without a copy.
//!
//! Every worker has one channel that all others send into; each sender's messages keep their order. A transport that is
//! dropped says goodbye behind its last message, so peers that still wait for it end at once and those that have all they
//! need do not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};
use spardl_core::{Inbox, Payload, Rank, Round, World};

use crate::matching::{RoundTable, Stamp};
use crate::transport::{BucketId, Connect, Deadline, Transport, TransportError};

/// The endpoints of `size` workers in one process, in rank order.
pub fn threads(size: u32) -> Vec<ThreadsEndpoint> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..size).map(|_| unbounded()).unzip();
    let crashed: Arc<[AtomicBool]> = (0..size).map(|_| AtomicBool::new(false)).collect();
    World::all(size)
        .zip(receivers)
        .map(|(world, inbox)| {
            ThreadsEndpoint(Port {
                world,
                outboxes: senders.clone(),
                inbox,
                crashed: Arc::clone(&crashed),
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
            gone: vec![false; port.world.size() as usize],
            port,
        })
    }
}

/// A worker's transport to the other threads.
#[derive(Debug)]
pub struct ThreadsTransport {
    port: Port,
    table: RoundTable,
    gone: Vec<bool>,
}

/// The channels of a worker; says goodbye when it is dropped.
#[derive(Debug)]
struct Port {
    world: World,
    outboxes: Vec<Sender<Packet>>,
    inbox: Receiver<Packet>,
    /// Which workers panicked. Shared, so that everybody names the worker that did and not one that fell with it.
    crashed: Arc<[AtomicBool]>,
}

#[derive(Debug)]
struct Packet {
    from: Rank,
    news: News,
}

#[derive(Debug)]
enum News {
    Message {
        stamp: Stamp,
        bucket: BucketId,
        round: u32,
        payload: Payload,
    },
    GaveUp(Stamp),
    Goodbye,
}

impl Port {
    fn send(&self, to: Rank, news: News) -> Result<(), TransportError> {
        let from = self.world.rank();
        self.outboxes[to.index()]
            .send(Packet { from, news })
            .map_err(|_| self.lost(to))
    }

    /// The loss of `peer`, or of the worker that crashed and took it along.
    fn lost(&self, peer: Rank) -> TransportError {
        TransportError::PeerLost {
            rank: self.world.rank(),
            peer: self.crashed_peer().unwrap_or(peer),
        }
    }

    /// Sends to everybody who is still there.
    fn announce(&self, news: impl Fn() -> News) {
        for peer in World::all(self.world.size()).map(World::rank) {
            if peer != self.world.rank() {
                self.send(peer, news()).ok();
            }
        }
    }

    fn crashed_peer(&self) -> Option<Rank> {
        let rank = self
            .crashed
            .iter()
            .position(|crashed| crashed.load(Ordering::Acquire))?;
        Some(Rank::new(rank as u32))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.crashed[self.world.rank().index()].store(true, Ordering::Release);
        }
        self.announce(|| News::Goodbye);
    }
}

impl ThreadsTransport {
    fn take(&mut self, packet: Packet) {
        let Packet { from, news } = packet;
        match news {
            News::Message {
                stamp,
                bucket,
                round,
                payload,
            } => self.table.deliver(from, stamp, bucket, round, payload),
            News::GaveUp(stamp) => self.table.hear(from, stamp),
            News::Goodbye => self.gone[from.index()] = true,
        }
    }

    fn take_all(&mut self) {
        while let Ok(packet) = self.port.inbox.try_recv() {
            self.take(packet);
        }
    }

    /// Is a message awaited that can no longer come? Senders keep their order, so one that came before is in the table.
    fn check_awaited(&self) -> Result<(), TransportError> {
        if let Some(peer) = self.table.find_awaited(|peer| self.gone[peer.index()]) {
            return Err(self.port.lost(peer));
        }
        match (self.table.abandoned_by(), self.port.crashed_peer()) {
            (None, _) => Ok(()),
            (Some(_), Some(peer)) => Err(self.port.lost(peer)),
            (Some(by), None) => {
                let rank = self.port.world.rank();
                Err(TransportError::Abandoned { rank, by })
            }
        }
    }
}

impl Transport for ThreadsTransport {
    fn world(&self) -> World {
        self.port.world
    }

    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
        let Round { seq, sends, recvs } = round;
        for outgoing in &sends {
            self.table.check_peer(outgoing.to)?;
        }
        self.table.expect(bucket, seq, &recvs)?;
        let stamp = self.table.stamp();
        for outgoing in sends {
            let message = News::Message {
                stamp,
                bucket,
                round: seq,
                payload: outgoing.payload,
            };
            self.port.send(outgoing.to, message)?;
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'static>)>, TransportError> {
        self.take_all();
        if let Some(complete) = self.table.pop() {
            return Ok(Some(complete));
        }
        self.check_awaited()?;
        Ok(None)
    }

    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'static>)>, TransportError> {
        loop {
            if let Some(complete) = self.poll()? {
                return Ok(Some(complete));
            }
            if self.table.is_idle() {
                return Ok(None);
            }
            match self.port.inbox.recv_deadline(deadline.instant()) {
                Ok(packet) => self.take(packet),
                Err(_) => {
                    let rank = self.port.world.rank();
                    return Err(TransportError::timeout(rank, self.table.waiting()));
                }
            }
        }
    }

    fn settle(&mut self) {
        self.table.settle();
    }

    fn abandon(&mut self) {
        self.take_all();
        let stamp = self.table.abandon();
        self.port.announce(|| News::GaveUp(stamp));
    }
}
