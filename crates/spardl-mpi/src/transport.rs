//! The transport between the ranks of an MPI job.
//!
//! One message per round and peer, sent with `MPI_Isend` and received by matched probe (`MPI_Improbe`, `MPI_Imrecv`) from
//! anybody: so messages that nobody waits for any more leave MPI's queues too, and a later finalize does not hang on them.
//! The [`RoundTable`] sorts them. Nothing happens unless the rank calls: [`Transport::poll`] moves messages on while the rank
//! computes.
//!
//! A step that times out or is given up leaves the transport usable, as the contract asks. An error of MPI itself does not:
//! all later calls fail, buffers in flight are leaked, and the job ends by `MPI_Abort`.

use std::collections::VecDeque;
use std::fmt::Write;
use std::io;
use std::time::{Duration, Instant};

use spardl_core::{Inbox, Payload, Rank, Round, World};
use spardl_drive::driver::DEFAULT_TIMEOUT;
use spardl_drive::{BucketId, Deadline, RoundTable, Stamp, Transport, TransportError};

use crate::envelope::{Envelope, Kind};
use crate::error::MpiError;
use crate::idle::Idle;
use crate::order::InOrder;
use crate::raw::{Arrival, Comm, Pool};

/// The longest message, header included: one that is longer should have been cut into buckets.
pub const MAX_MESSAGE_BYTES: usize = 1 << 30;

/// A wait whose deadline is this near goes on when a peer gives the step up or leaves: its own error names the messages that
/// are missing, which says more. When one rank hangs, the others reach their deadlines one shortly after the other.
const NEAR: Duration = Duration::from_secs(1);

/// How long a rank that ends waits for its peers to end too; longer than [`NEAR`], so that after a failed step all of them can
/// say what they waited for before the job is aborted.
const GRACE: Duration = Duration::from_secs(5);

/// One rank's transport to the other ranks. Not `Send`, as MPI is used from one thread.
#[derive(Debug)]
pub struct MpiTransport {
    world: World,
    pool: Pool,
    order: InOrder,
    arrivals: Vec<Arrival>,
    table: RoundTable,
    pings: Vec<VecDeque<Vec<u8>>>,
    /// Who said goodbye.
    gone: Vec<bool>,
    /// Did the last step fail?
    hurt: bool,
    /// Did MPI fail?
    broken: bool,
    grace: Duration,
}

impl MpiTransport {
    pub(crate) fn new(comm: Comm) -> Self {
        let size = comm.size();
        let world = World::new(comm.rank(), size).expect("MPI's ranks are below its size");
        Self {
            world,
            pool: Pool::new(comm),
            order: InOrder::new(size),
            arrivals: Vec::new(),
            table: RoundTable::new(world),
            pings: (0..size).map(|_| VecDeque::new()).collect(),
            gone: vec![false; size as usize],
            hurt: false,
            broken: false,
            grace: GRACE,
        }
    }

    /// How long a dropped transport waits for its peers to end too (5 s). When its last step failed, the job is aborted then.
    pub const fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Waits until all messages sent so far have left.
    ///
    /// # Errors
    /// When the deadline passes; the error names the receivers. When MPI fails.
    pub fn flush(&mut self, deadline: Deadline) -> Result<(), TransportError> {
        let flushed = self.progress_until(deadline, |this| {
            Ok(this.pool.sending_to().next().is_none().then_some(()))
        })?;
        flushed.ok_or_else(|| {
            let mut action = "sending to".to_owned();
            for (i, to) in self.pool.sending_to().enumerate() {
                let separator = if i == 0 { " rank " } else { ", " };
                write!(action, "{separator}{to}").expect("strings take everything");
            }
            self.late(action)
        })
    }

    /// Waits until all ranks are here. All ranks must call it.
    ///
    /// # Errors
    /// When the deadline passes, or MPI fails. Both are final.
    pub fn barrier(&mut self, deadline: Deadline) -> Result<(), TransportError> {
        self.check_usable()?;
        let started = self.pool.comm().barrier();
        let mut barrier = started.map_err(|error| self.breaks("a barrier", error))?;
        let passed = self.progress_until(deadline, |this| {
            let complete = barrier.is_complete();
            let complete = complete.map_err(|error| this.breaks("a barrier", error))?;
            Ok(complete.then_some(()))
        })?;
        passed.ok_or_else(|| {
            self.broken = true;
            self.late("a barrier".to_owned())
        })
    }

    /// The engine's own dense all-reduce: the sum over all ranks, in place, by `MPI_Allreduce`. All ranks must call it with
    /// the same length.
    ///
    /// A yardstick for benches: it does not promise the same bits on all ranks. When it takes longer than `limit`, the process
    /// says so and ends: MPI cannot give up a call that blocks.
    ///
    /// # Errors
    /// When there are more elements than MPI can count, or MPI fails.
    pub fn all_reduce_f32(
        &mut self,
        values: &mut [f32],
        limit: Duration,
    ) -> Result<(), TransportError> {
        self.check_usable()?;
        let comm = self.pool.comm();
        let what = format!("MPI_Allreduce of {} elements", values.len());
        let words = comm.overdue(&what, limit);
        let done = comm
            .session()
            .within(limit, words, || comm.all_reduce(values));
        match done.flatten() {
            Ok(()) => Ok(()),
            Err(error @ MpiError::TooLong { .. }) => Err(self.refused("all-reduce", error)),
            Err(error) => Err(self.breaks("all-reduce", error)),
        }
    }

    /// The time of a message of `bytes` bytes one way: half the median of `repetitions` round trips. Both ranks must call
    /// it, with the same numbers; the other ranks need not.
    ///
    /// # Errors
    /// When `peer` is not one, the whole takes longer than the deadline (which is final), or MPI fails.
    pub fn ping_pong(
        &mut self,
        peer: Rank,
        bytes: usize,
        repetitions: u32,
        deadline: Deadline,
    ) -> Result<Duration, TransportError> {
        self.check_usable()?;
        self.table.check_peer(peer)?;
        self.check_len(peer, bytes)?;
        let serves = self.world.rank() < peer;
        let mut ball = vec![0; bytes];
        let mut trips = Vec::with_capacity(repetitions as usize + 1);
        // The first trip warms up and is not counted.
        for _ in 0..=repetitions {
            let started = Instant::now();
            if serves {
                self.send(peer, Kind::Ping, std::mem::take(&mut ball))?;
            }
            ball = self.catch(peer, deadline)?;
            if !serves {
                self.send(peer, Kind::Ping, std::mem::take(&mut ball))?;
            }
            trips.push(started.elapsed());
        }
        self.flush(deadline)?;
        let counted = trips.get_mut(1..).unwrap_or_default();
        counted.sort_unstable();
        Ok(counted
            .get(counted.len() / 2)
            .map_or(Duration::ZERO, |trip| *trip / 2))
    }

    fn catch(&mut self, peer: Rank, deadline: Deadline) -> Result<Vec<u8>, TransportError> {
        let ball =
            self.progress_until(deadline, |this| Ok(this.pings[peer.index()].pop_front()))?;
        ball.ok_or_else(|| {
            self.broken = true;
            self.late(format!("a ping from rank {peer}"))
        })
    }

    /// Moves messages until `ready` gives something; `None` when the deadline passes first.
    fn progress_until<R>(
        &mut self,
        deadline: Deadline,
        mut ready: impl FnMut(&mut Self) -> Result<Option<R>, TransportError>,
    ) -> Result<Option<R>, TransportError> {
        let mut idle = Idle::default();
        loop {
            let moved = self.progress()?;
            if let Some(result) = ready(self)? {
                return Ok(Some(result));
            }
            if moved {
                idle.reset();
            } else if idle.wait() && deadline.remaining().is_zero() {
                return Ok(None);
            }
        }
    }

    /// Takes all messages that are here and moves those under way; true when something changed.
    ///
    /// Goes on until nothing moves, as libraries hand messages over in portions: news that a step was given up may be in the
    /// portion after the one that completes a round of that step.
    fn progress(&mut self) -> Result<bool, TransportError> {
        self.check_usable()?;
        let mut moved = false;
        if self.world.size() > 1 {
            while self.take_portion()? {
                moved = true;
            }
        }
        Ok(moved)
    }

    fn take_portion(&mut self) -> Result<bool, TransportError> {
        let mut moved = false;
        loop {
            match self.pool.match_next() {
                Ok(Some((from, ticket))) => self.order.expect(from, ticket),
                Ok(None) => break,
                Err(error) => return Err(self.breaks("receiving", error)),
            }
            moved = true;
        }
        let mut arrivals = std::mem::take(&mut self.arrivals);
        match self.pool.complete(&mut arrivals) {
            Ok(completed) => moved |= completed,
            Err(error) => return Err(self.breaks("moving messages", error)),
        }
        for arrival in arrivals.drain(..) {
            let from = arrival.from;
            self.order.arrive(arrival);
            while let Some(next) = self.order.next(from) {
                self.take(next)?;
            }
        }
        self.arrivals = arrivals;
        Ok(moved)
    }

    fn take(&mut self, arrival: Arrival) -> Result<(), TransportError> {
        let Arrival {
            from,
            tag,
            mut bytes,
            ..
        } = arrival;
        let from = Rank::new(from);
        match Kind::from_tag(tag) {
            Some(Kind::Message) => {
                if let Some(envelope) = Envelope::split_from(&mut bytes) {
                    let Envelope {
                        stamp,
                        bucket,
                        round,
                    } = envelope;
                    let payload = Payload::from_wire(bytes);
                    self.table.deliver(from, stamp, bucket, round, payload);
                    return Ok(());
                }
            }
            Some(Kind::GaveUp) => {
                if let Ok(stamp) = bytes.as_slice().try_into() {
                    self.table.hear(from, Stamp::from_le_bytes(stamp));
                    return Ok(());
                }
            }
            Some(Kind::Goodbye) => {
                self.gone[from.index()] = true;
                return Ok(());
            }
            Some(Kind::Ping) => {
                self.pings[from.index()].push_back(bytes);
                return Ok(());
            }
            None => {}
        }
        let what = format!("a message with tag {tag} and {} bytes", bytes.len());
        self.broken = true;
        Err(self.io(
            format!("receiving from rank {from}"),
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{what} is not one of spardl's"),
            ),
        ))
    }

    fn send(&mut self, to: Rank, kind: Kind, bytes: Vec<u8>) -> Result<(), TransportError> {
        let sent = self.pool.send(to.get(), kind.tag(), bytes);
        sent.map_err(|error| self.breaks(&format!("sending to rank {to}"), error))
    }

    /// Sends the same few bytes to everybody.
    fn announce(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), TransportError> {
        let rank = self.world.rank();
        let peers = (0..self.world.size()).map(Rank::new);
        peers
            .filter(|&peer| peer != rank)
            .try_for_each(|peer| self.send(peer, kind, bytes.to_vec()))
    }

    /// Why a wait is in vain, if it is. Messages of a sender come in their order, so all that came before are in the table.
    fn in_vain(&self) -> Option<TransportError> {
        let rank = self.world.rank();
        if let Some(peer) = self.table.find_awaited(|peer| self.gone[peer.index()]) {
            return Some(TransportError::PeerLost { rank, peer });
        }
        let by = self.table.abandoned_by()?;
        Some(TransportError::Abandoned { rank, by })
    }

    fn check_len(&self, to: Rank, len: usize) -> Result<(), TransportError> {
        if len <= MAX_MESSAGE_BYTES {
            return Ok(());
        }
        let too_long = MpiError::TooLong {
            what: "bytes",
            len,
            max: MAX_MESSAGE_BYTES,
        };
        Err(self.refused(&format!("sending to rank {to}"), too_long))
    }

    fn check_usable(&self) -> Result<(), TransportError> {
        if !self.broken {
            return Ok(());
        }
        let source = io::Error::other("MPI failed before; only a new job can go on");
        Err(self.io("using the transport".to_owned(), source))
    }

    /// An error after which the transport is unusable.
    fn breaks(&mut self, action: &str, error: MpiError) -> TransportError {
        self.broken = true;
        self.io(action.to_owned(), io::Error::other(error))
    }

    /// An error of the caller, without consequences.
    fn refused(&self, action: &str, error: MpiError) -> TransportError {
        let source = io::Error::new(io::ErrorKind::InvalidInput, error);
        self.io(action.to_owned(), source)
    }

    fn late(&self, action: String) -> TransportError {
        let source = io::Error::new(io::ErrorKind::TimedOut, "the deadline passed");
        self.io(action, source)
    }

    const fn io(&self, action: String, source: io::Error) -> TransportError {
        TransportError::Io {
            rank: self.world.rank(),
            action,
            source,
        }
    }

    fn fails<R>(&mut self, error: TransportError) -> Result<R, TransportError> {
        self.hurt = true;
        Err(error)
    }

    /// Says goodbye and lets everything in flight end; the goodbyes of the others are waited for a while, so that none is left
    /// in MPI's queues. After a failed step they must come: a peer that hangs would make finalize hang.
    fn close(&mut self) -> Result<(), TransportError> {
        self.announce(Kind::Goodbye, &[])?;
        let rank = self.world.rank().index();
        let goodbyes = self.progress_until(Deadline::after(self.grace), |this| {
            let mut peers = (0..).zip(&this.gone).filter(|(peer, _)| *peer != rank);
            let all_gone = this.pool.is_idle() && peers.all(|(_, gone)| *gone);
            Ok(all_gone.then_some(()))
        })?;
        match goodbyes {
            None if self.hurt => Err(self.late("closing".to_owned())),
            None => self.flush(Deadline::after(DEFAULT_TIMEOUT)),
            Some(()) => Ok(()),
        }
    }
}

impl Transport for MpiTransport {
    fn world(&self) -> World {
        self.world
    }

    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
        self.check_usable()?;
        let Round { seq, sends, recvs } = round;
        for outgoing in &sends {
            self.table.check_peer(outgoing.to)?;
            self.check_len(outgoing.to, outgoing.payload.wire_len())?;
        }
        self.table.expect(bucket, seq, &recvs)?;
        let envelope = Envelope {
            stamp: self.table.stamp(),
            bucket,
            round: seq,
        };
        for outgoing in sends {
            let mut message = outgoing.payload.into_wire();
            envelope.append_to(&mut message);
            self.send(outgoing.to, Kind::Message, message)?;
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'static>)>, TransportError> {
        self.progress()?;
        if let Some(complete) = self.table.pop() {
            return Ok(Some(complete));
        }
        self.in_vain().map_or(Ok(None), |error| self.fails(error))
    }

    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'static>)>, TransportError> {
        let complete = self.progress_until(deadline, |this| {
            if let Some(complete) = this.table.pop() {
                return Ok(Some(Some(complete)));
            }
            if this.table.is_idle() {
                return Ok(Some(None));
            }
            match this.in_vain() {
                Some(error) if deadline.remaining() >= NEAR => this.fails(error),
                _ => Ok(None),
            }
        })?;
        match complete {
            Some(complete) => Ok(complete),
            None => self.fails(TransportError::timeout(
                self.world.rank(),
                self.table.waiting(),
            )),
        }
    }

    fn settle(&mut self) {
        self.hurt = false;
        self.table.settle();
    }

    fn abandon(&mut self) {
        self.hurt = true;
        // What cannot be received or sent now fails again in the next call, which can say so.
        self.progress().ok();
        let stamp = self.table.abandon();
        if !self.broken {
            self.announce(Kind::GaveUp, &stamp.to_le_bytes()).ok();
        }
    }
}

impl Drop for MpiTransport {
    fn drop(&mut self) {
        if self.broken || std::thread::panicking() || self.close().is_err() {
            self.pool.comm().session().fail();
        }
    }
}
