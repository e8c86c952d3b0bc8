//! The transport between the ranks of an MPI job.
//!
//! One message per round and peer, sent with `MPI_Isend` and received by matched probe (`MPI_Improbe`, `MPI_Imrecv`) from
//! anybody: so messages that nobody waits for any more leave MPI's queues too, and a later finalize does not hang on them.
//! The [`RoundTable`] sorts them. Nothing happens unless the rank calls: [`Transport::poll`] moves messages on while the rank
//! computes.
//!
//! A step that times out or is given up leaves the transport usable, as the contract asks. An error of MPI itself does not:
//! all later calls fail, buffers in flight are leaked, and the job ends by `MPI_Abort`.

use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use spardl_core::{Inbox, Payload, Rank, Round, World};
use spardl_drive::driver::DEFAULT_TIMEOUT;
use spardl_drive::{
    BucketId, Clock, Deadline, RoundTable, Stamp, SystemClock, Transport, TransportError,
};

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
const GRACE: Duration = Duration::from_secs(3);

/// One rank's transport to the other ranks. Not `Send`, as MPI is used from one thread.
#[derive(Debug)]
pub struct MpiTransport {
    world: World,
    pool: Pool,
    order: InOrder,
    arrivals: Vec<Arrival>,
    table: RoundTable,
    clock: Arc<SystemClock>,
    /// Did the last step fail?
    last_step_failed: bool,
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
            clock: SystemClock::start(),
            last_step_failed: false,
            broken: false,
            grace: GRACE,
        }
    }

    /// How long a dropped transport waits for its peers to end too (3 s). When its last step failed, the job is aborted then.
    pub const fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Waits until all messages sent so far have left.
    ///
    /// # Errors
    /// When that takes longer than `limit`; the error names the receivers. When MPI fails.
    pub fn flush(&mut self, limit: Duration) -> Result<(), TransportError> {
        let flushed = self.progress_until(self.deadline(limit), |this| {
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

    fn deadline(&self, limit: Duration) -> Deadline {
        Deadline::after(self.clock.now(), limit)
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
            } else if idle.wait() && deadline.has_passed(self.clock.now()) {
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
                    self.table.note_stamp(from, Stamp::from_le_bytes(stamp));
                    return Ok(());
                }
            }
            Some(Kind::Goodbye) => {
                self.table.leave(from);
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
        self.last_step_failed = true;
        Err(error)
    }

    /// Says goodbye and lets everything in flight end; the goodbyes of the others are waited for a while, so that none is left
    /// in MPI's queues. After a failed step they must come: a peer that hangs would make finalize hang.
    fn close(&mut self) -> Result<(), TransportError> {
        self.announce(Kind::Goodbye, &[])?;
        let goodbyes = self.progress_until(self.deadline(self.grace), |this| {
            let all_gone = this.pool.is_idle() && this.table.is_alone();
            Ok(all_gone.then_some(()))
        })?;
        match goodbyes {
            None if self.last_step_failed => Err(self.late("closing".to_owned())),
            None => self.flush(DEFAULT_TIMEOUT),
            Some(()) => Ok(()),
        }
    }

    /// A complete round, if there is one now; its messages are in the table. The buffers of the one before are received
    /// into again.
    fn next_complete(&mut self) -> Option<BucketId> {
        self.table
            .reclaim()
            .for_each(|buffer| self.pool.keep(buffer));
        self.table.take_complete()
    }
}

impl Transport for MpiTransport {
    fn world(&self) -> World {
        self.world
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::<SystemClock>::clone(&self.clock)
    }

    fn message_limit(&self) -> usize {
        MAX_MESSAGE_BYTES
    }

    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
        self.check_usable()?;
        let Round { seq, sends, recvs } = round;
        for outgoing in &sends {
            self.table.check_peer(outgoing.to)?;
            self.check_len(outgoing.to, outgoing.payload.wire_len())?;
        }
        self.table.expect(bucket, seq, &recvs, self.clock.now())?;
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

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        self.progress()?;
        match (self.next_complete(), self.table.in_vain()) {
            (Some(bucket), _) => Ok(Some((bucket, self.table.inbox()))),
            (None, Some(error)) => self.fails(error),
            (None, None) => Ok(None),
        }
    }

    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        let complete = self.progress_until(deadline, |this| {
            if let Some(bucket) = this.next_complete() {
                return Ok(Some(Some(bucket)));
            }
            if this.table.is_idle() {
                return Ok(Some(None));
            }
            match this.table.in_vain() {
                Some(error) if deadline.remaining(this.clock.now()) >= NEAR => this.fails(error),
                _ => Ok(None),
            }
        })?;
        match complete {
            Some(complete) => Ok(complete.map(|bucket| (bucket, self.table.inbox()))),
            None => self.fails(self.table.timeout(self.clock.now())),
        }
    }

    fn complete_step(&mut self) {
        self.last_step_failed = false;
        self.table.complete_step();
    }

    fn abandon(&mut self) {
        self.last_step_failed = true;
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
