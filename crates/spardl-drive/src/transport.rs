//! What moves rounds: the trait, its errors, and deadlines.
//!
//! # Failed steps do not poison the next one
//!
//! A step that fails on one worker leaves messages under way that nobody wants. Every message therefore carries a
//! [`Stamp`](crate::matching::Stamp) of its sender: the **epoch**, which only [`Transport::abandon`] raises, and the number
//! of steps that the sender has finished ([`Transport::settle`]). The rules, written once in
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
use std::io;
use std::time::{Duration, Instant};

use spardl_core::{Inbox, Rank, Round, World};

use crate::report::{WaitingOn, ranks};

/// Moves rounds between the workers of a world.
///
/// A bucket has at most one round in flight. Implementations need not be `Send`: a [`Connect`] makes the transport inside
/// the thread that owns it.
pub trait Transport {
    /// This worker and the size of its world.
    fn world(&self) -> World;

    /// Sends the messages of a round and notes which ones to wait for. Does not wait for a peer.
    ///
    /// # Errors
    /// When a peer is lost, a peer is not in the world, or the bucket already has a round in flight.
    fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError>;

    /// A complete round if there is one now; does not wait, but moves messages on where the engine needs calls for that.
    ///
    /// # Errors
    /// As [`Transport::wait_any`], without the timeout.
    fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'static>)>, TransportError>;

    /// Waits until a round is complete and returns its messages in the order of the plan. `None`: nothing is in flight.
    ///
    /// # Errors
    /// When the deadline passes, or a peer that is waited for is lost or gave the step up. Call
    /// [`Transport::abandon`] then.
    fn wait_any(
        &mut self,
        deadline: Deadline,
    ) -> Result<Option<(BucketId, Inbox<'static>)>, TransportError>;

    /// Says that all rounds submitted so far belong to finished steps, which a later [`Transport::abandon`] does not concern.
    fn settle(&mut self);

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

            fn submit(&mut self, bucket: BucketId, round: Round) -> Result<(), TransportError> {
                (**self).submit(bucket, round)
            }

            fn poll(&mut self) -> Result<Option<(BucketId, Inbox<'static>)>, TransportError> {
                (**self).poll()
            }

            fn wait_any(
                &mut self,
                deadline: Deadline,
            ) -> Result<Option<(BucketId, Inbox<'static>)>, TransportError> {
                (**self).wait_any(deadline)
            }

            fn settle(&mut self) {
                (**self).settle();
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

/// When a wait ends at the latest. There is no way to wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// What a duration too long for the clock is taken for.
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

    /// That long from now.
    pub fn after(limit: Duration) -> Self {
        Self::starting(Instant::now(), limit)
    }

    /// That long from `start`.
    pub fn starting(start: Instant, limit: Duration) -> Self {
        Self(start.checked_add(limit).unwrap_or(start + Self::LONGEST))
    }

    /// The moment.
    pub const fn instant(self) -> Instant {
        self.0
    }

    /// How long there is left; zero when it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Why messages could not be moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A peer is gone for good: its process or thread ended, or its link broke.
    #[error("rank {rank} lost rank {peer}")]
    PeerLost {
        /// The worker that noticed.
        rank: Rank,
        /// The worker that is gone.
        peer: Rank,
    },
    /// A peer gave the current step up; the step is lost, the next one can succeed. The peer's own error says why.
    #[error("rank {rank}: the step was given up by rank {by}")]
    Abandoned {
        /// The worker that waited.
        rank: Rank,
        /// The worker that gave the step up, or passed on that another one did.
        by: Rank,
    },
    /// A round was not complete in time. The fields name the round that waits longest.
    #[error(
        "rank {rank} waited {waited:.1?} in round {round} of bucket {bucket} for {}{}",
        ranks(waiting_on),
        more(in_flight)
    )]
    Timeout {
        /// The worker that waited.
        rank: Rank,
        /// The bucket.
        bucket: BucketId,
        /// The round of the step.
        round: u32,
        /// The peers whose messages are missing.
        waiting_on: Vec<Rank>,
        /// How long the round was in flight.
        waited: Duration,
        /// All rounds in flight, the one that waits longest first.
        in_flight: Vec<WaitingOn>,
    },
    /// A second round for a bucket that has one in flight.
    #[error("rank {rank} submitted a round of bucket {bucket} while another was in flight")]
    Busy {
        /// The worker.
        rank: Rank,
        /// The bucket.
        bucket: BucketId,
    },
    /// A round with a peer that cannot be one.
    #[error(
        "rank {rank} cannot exchange messages with rank {peer}: peers are the other ranks below {size}"
    )]
    NoSuchPeer {
        /// The worker.
        rank: Rank,
        /// The peer in the round.
        peer: Rank,
        /// The number of workers.
        size: u32,
    },
    /// The engine below failed.
    #[error("rank {rank}: {action} failed: {source}")]
    Io {
        /// The worker.
        rank: Rank,
        /// What was attempted, with whom.
        action: String,
        /// The engine's error.
        source: io::Error,
    },
}

impl TransportError {
    /// A timeout of `rank` from the rounds in flight, the longest wait first.
    ///
    /// # Panics
    /// When nothing is in flight: then there is nothing to wait for.
    pub fn timeout(rank: Rank, in_flight: Vec<WaitingOn>) -> Self {
        let oldest = in_flight.first().expect("only rounds in flight time out");
        Self::Timeout {
            rank,
            bucket: oldest.bucket,
            round: oldest.round,
            waiting_on: oldest.peers.clone(),
            waited: oldest.since.elapsed(),
            in_flight,
        }
    }

    /// Can a later step over the same transport succeed?
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Abandoned { .. } | Self::Timeout { .. })
    }
}

fn more(in_flight: &[WaitingOn]) -> String {
    match in_flight.len() {
        0 | 1 => String::new(),
        2 => " (and in 1 other bucket)".to_owned(),
        n => format!(" (and in {} other buckets)", n - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_names_rank_bucket_round_and_the_peers_waited_for() {
        let waiting = |bucket, peers: &[u32]| WaitingOn {
            bucket: BucketId::new(bucket),
            round: 1,
            peers: peers.iter().map(|&rank| Rank::new(rank)).collect(),
            since: Instant::now(),
        };
        let one = TransportError::timeout(Rank::new(3), vec![waiting(7, &[0, 2])]).to_string();
        assert!(one.starts_with("rank 3 waited "), "{one}");
        assert!(
            one.ends_with("in round 1 of bucket 7 for ranks 0, 2"),
            "{one}"
        );
        let two = vec![waiting(7, &[4]), waiting(8, &[5])];
        let two = TransportError::timeout(Rank::new(3), two).to_string();
        assert!(two.ends_with("for rank 4 (and in 1 other bucket)"), "{two}");
    }

    #[test]
    fn a_deadline_too_far_for_the_clock_is_far_away() {
        assert!(Deadline::after(Duration::MAX).remaining() > Duration::from_secs(1 << 20));
        assert_eq!(Deadline::after(Duration::ZERO).remaining(), Duration::ZERO);
    }
}
