//! One worker's end of the simulated network.

use std::sync::Arc;

use spardl_core::{Inbox, Rank, Round, World};
use spardl_drive::{BucketId, Clock, Deadline, News, RoundTable, Transport, TransportError};

use crate::clock::VirtualClock;

/// A transport whose messages a [`Cluster`](crate::Cluster) carries.
///
/// Nobody else can act while a worker waits in [`Transport::wait_any`]: the time of its deadline comes at once.
#[derive(Debug)]
pub struct SimTransport {
    world: World,
    table: RoundTable,
    clock: Arc<VirtualClock>,
    outbox: Vec<(Receiver, News)>,
    /// May the driver take a complete round? It takes one at a time, because each takes time.
    may_take: bool,
    /// Bytes of the round that was taken last.
    taken: u64,
}

/// Whom something is sent to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Receiver {
    One(Rank),
    Everybody,
}

impl SimTransport {
    pub(crate) const fn new(world: World, clock: Arc<VirtualClock>) -> Self {
        Self {
            world,
            table: RoundTable::new(world),
            clock,
            outbox: Vec::new(),
            may_take: false,
            taken: 0,
        }
    }

    /// Takes what has arrived.
    pub(crate) fn take(&mut self, from: Rank, news: News) {
        self.table.take(from, news);
    }

    /// Is there something to do for the driver: a round that is complete, or one that never will be?
    pub(crate) fn has_work(&self) -> bool {
        self.table.has_complete() || self.table.in_vain().is_some()
    }

    /// Lets the driver take one complete round.
    pub(crate) const fn allow_one(&mut self) {
        self.may_take = true;
    }

    /// Bytes of the round that was taken since the last call.
    pub(crate) const fn taken(&mut self) -> u64 {
        std::mem::replace(&mut self.taken, 0)
    }

    /// What was sent since the last call.
    pub(crate) fn sent(&mut self) -> impl Iterator<Item = (Receiver, News)> {
        self.outbox.drain(..)
    }

    /// Forgets everything, as on the first day.
    pub(crate) fn reset(&mut self) {
        self.table = RoundTable::new(self.world);
        self.outbox.clear();
    }
}

impl Transport for SimTransport {
    fn world(&self) -> World {
        self.world
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::<VirtualClock>::clone(&self.clock)
    }

    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
        let Round { seq, sends, recvs } = round;
        for outgoing in &sends {
            self.table.check_peer(outgoing.to)?;
        }
        self.table.expect(bucket, seq, &recvs, self.clock.now())?;
        let stamp = self.table.stamp();
        self.outbox.extend(sends.into_iter().map(|outgoing| {
            let message = News::Message {
                stamp,
                bucket,
                round: seq,
                payload: outgoing.payload,
            };
            (Receiver::One(outgoing.to), message)
        }));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        if !std::mem::replace(&mut self.may_take, false) {
            return Ok(None);
        }
        match (self.table.take_complete(), self.table.in_vain()) {
            (Some(bucket), _) => {
                let inbox = self.table.inbox();
                self.taken = inbox.messages().map(|message| message.len() as u64).sum();
                Ok(Some((bucket, inbox)))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
        if self.table.is_idle() || self.has_work() {
            self.may_take = true;
            return self.poll();
        }
        self.clock.advance_to(deadline.time());
        Err(self.table.timeout(self.clock.now()))
    }

    fn complete_step(&mut self) {
        self.table.complete_step();
    }

    fn abandon(&mut self) {
        let stamp = self.table.abandon();
        self.outbox.push((Receiver::Everybody, News::GaveUp(stamp)));
    }
}
