//! What moves rounds: the trait, and how stale messages are told apart.
//!
//! # Failed steps do not poison the next one
//!
//! A step that fails on one worker leaves messages under way that nobody wants. Every message therefore carries a
//! [`Stamp`](crate::matching::Stamp) of its sender: the **epoch**, which only [`Transport::abandon`] raises, and the number
//! of steps that the sender has finished ([`Transport::complete_step`]). The rules, written once in
//! [`RoundTable`](crate::RoundTable):
//!
//! - a message of an older epoch than the receiver's is dropped;
//! - a message of a newer epoch is kept until the receiver gets there;
//! - once a worker hears that a peer is in a newer epoch, it drops the peer's older messages except those of steps that the
//!   peer has finished: a slow worker can still finish those, and cannot finish a step that the peer gave up;
//! - a worker that waits for a peer of a newer epoch waits in vain. Its wait ends with [`TransportError::Abandoned`], its
//!   driver abandons too, and so on to everybody who depends on the failed worker;
//! - `abandon` goes to the newest epoch the worker has heard of, or opens a new one when it has heard of none. So workers
//!   that fail together, or one after the other, meet in the same epoch.
//!
//! A worker that had finished the step, or had not yet started it, learns of the failure by an error in its next step: no
//! failure passes unseen. What no transport can decide is whether a worker that finished a step which a peer then gave up
//! should keep its update: after an error the workers have to agree on the step to go on from. When they do not, the
//! step number in the headers differs and the step fails loudly.
//!
//! Within an epoch, messages of the same sender, bucket and round number must not overtake each other (channels, TCP and MPI
//! guarantee that); all others may arrive in any order. The stamp is 8 bytes before the message, or part of a tag.

use std::fmt;
use std::sync::Arc;

use spardl_core::{Inbox, Round, World};

use crate::error::TransportError;
use crate::time::{Clock, Deadline};

/// Moves rounds between the workers of a world.
///
/// A bucket has at most one round in flight. Implementations need not be `Send`: a [`Connect`] makes the transport inside
/// the thread that owns it.
pub trait Transport {
    /// This worker and the size of its world.
    fn world(&self) -> World;

    /// The clock that deadlines, waits and reports of this worker are measured on.
    fn clock(&self) -> Arc<dyn Clock>;

    /// The longest message that it can carry, in bytes.
    fn message_limit(&self) -> usize {
        usize::MAX
    }

    /// Sends the messages of a round and notes which ones to wait for. Does not wait for a peer.
    ///
    /// # Errors
    /// When a peer is lost, a peer is not in the world, or the bucket already has a round in flight.
    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError>;

    /// A complete round if there is one now; does not wait, but moves messages on where the engine needs calls for that.
    ///
    /// The messages are lent, in the order of the plan: the next call may reuse their buffers.
    ///
    /// # Errors
    /// As [`Transport::wait_any`], without the timeout.
    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError>;

    /// Waits until a round is complete and lends its messages, as [`Transport::poll`] does. `None`: nothing is in flight.
    ///
    /// # Errors
    /// When the deadline passes, or a peer that is waited for is lost or gave the step up. Call
    /// [`Transport::abandon`] then.
    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError>;

    /// Says that all rounds submitted so far belong to finished steps, which a later [`Transport::abandon`] does not concern.
    fn complete_step(&mut self);

    /// Gives up all rounds in flight and moves to the next epoch, so that messages of the lost step cannot be taken for
    /// messages of a later one. Sends the new stamp to every peer that is still there: those that wait for this worker end
    /// at once instead of at their deadline.
    fn abandon(&mut self);
}

/// Whatever points to a transport is one.
macro_rules! forward_transport {
    ($($pointer:ty),*) => {$(
        impl<T: Transport + ?Sized> Transport for $pointer {
            fn world(&self) -> World {
                (**self).world()
            }

            fn clock(&self) -> Arc<dyn Clock> {
                (**self).clock()
            }

            fn message_limit(&self) -> usize {
                (**self).message_limit()
            }

            fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
                (**self).submit(bucket, round)
            }

            fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
                (**self).poll()
            }

            fn wait_any(
                &mut self,
                deadline: Deadline,
            ) -> Result<Option<(BucketId, Inbox<'_>)>, TransportError> {
                (**self).wait_any(deadline)
            }

            fn complete_step(&mut self) {
                (**self).complete_step();
            }

            fn abandon(&mut self) {
                (**self).abandon();
            }
        }
    )*};
}

forward_transport!(Box<T>, &mut T);

/// Makes a transport inside the thread that will own it.
pub trait Connect: Send {
    /// The transport it makes.
    type Transport: Transport;

    /// Makes the transport.
    ///
    /// # Errors
    /// When the engine below cannot be reached.
    fn connect(self) -> Result<Self::Transport, TransportError>;
}

/// The number of a bucket, the same on all workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId(u32);

impl BucketId {
    /// No bucket: the rounds of [`gather`](crate::gather()) and [`barrier`](crate::barrier()).
    pub(crate) const GATHER: Self = Self(u32::MAX);

    /// The bucket with this number.
    pub const fn new(bucket: u32) -> Self {
        Self(bucket)
    }

    /// The number, for messages and tags.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number as a position in a list of all buckets.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for BucketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
