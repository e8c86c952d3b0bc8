//! Why a step failed, by who must act.

use std::fmt;
use std::io;
use std::time::Duration;

use spardl_core::{ConfigError, ProtocolError, Rank, SkipReason, World};

use crate::report::{WaitingOn, ranks};
use crate::transport::BucketId;

/// Why a step failed. All buckets are then as they were before it, and another step may be tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// Messages could not be moved.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A peer broke the plan of a bucket.
    #[error("rank {}, bucket {bucket}: {source}", world.rank())]
    Protocol {
        /// This worker.
        world: World,
        /// The bucket.
        bucket: BucketId,
        /// What was wrong.
        source: ProtocolError,
    },
    /// A caller's mistake about one bucket.
    #[error("bucket {bucket}: {source}")]
    Config {
        /// The bucket.
        bucket: BucketId,
        /// The mistake.
        source: ConfigError,
    },
    /// A collective that was made for another worker than the transport's.
    #[error(
        "bucket {bucket} is for rank {} of {}, the transport is for rank {} of {}",
        got.rank(), got.size(), expected.rank(), expected.size()
    )]
    WorldMismatch {
        /// The bucket.
        bucket: BucketId,
        /// The transport's world.
        expected: World,
        /// The collective's world.
        got: World,
    },
    /// A number of inputs that is not the number of buckets.
    #[error("{got} inputs for {expected} buckets: give one input per bucket")]
    InputCount {
        /// The number of buckets.
        expected: usize,
        /// The number of inputs.
        got: usize,
    },
    /// A bucket was skipped and the policy is [`OnNonFinite::Raise`](crate::OnNonFinite::Raise).
    #[error("bucket {bucket}: {reason}")]
    NonFinite {
        /// The first such bucket.
        bucket: BucketId,
        /// Why it was skipped.
        reason: SkipReason,
    },
}

impl DriveError {
    /// Does it only say that another worker failed? Then that worker's own error, if it could say one, is the cause.
    pub const fn is_secondary(&self) -> bool {
        matches!(self, Self::Transport(error) if error.is_secondary())
    }

    /// Did a peer leave, fall silent, give up or break the plan?
    pub const fn is_peer_fault(&self) -> bool {
        match self {
            Self::Transport(error) => error.is_peer_fault(),
            Self::Protocol { .. } => true,
            _ => false,
        }
    }

    /// Did the caller ask for what cannot be? The message says what can.
    pub const fn is_misuse(&self) -> bool {
        match self {
            Self::Transport(error) => error.is_misuse(),
            Self::Config { .. } | Self::WorldMismatch { .. } | Self::InputCount { .. } => true,
            Self::Protocol { .. } | Self::NonFinite { .. } => false,
        }
    }
}

/// Why messages could not be moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A peer is gone for good: its process or thread ended, or its link broke.
    #[error("rank {rank} lost rank {peer} in {}", Place(*bucket, *round))]
    PeerLost {
        /// The worker that noticed.
        rank: Rank,
        /// The worker that is gone.
        peer: Rank,
        /// The bucket.
        bucket: BucketId,
        /// The round of the step.
        round: u32,
    },
    /// A peer gave the current step up; the step is lost, the next one can succeed. The peer's own error says why.
    #[error("rank {rank} in {}: the step was given up by rank {by}", Place(*bucket, *round))]
    Abandoned {
        /// The worker that waited.
        rank: Rank,
        /// The worker that gave the step up, or passed on that another one did.
        by: Rank,
        /// The bucket.
        bucket: BucketId,
        /// The round that this worker was in.
        round: u32,
    },
    /// A round was not complete in time. The fields name the round that waits longest.
    #[error(
        "rank {rank} waited {waited:.1?} in {} for {}{}",
        Place(*bucket, *round),
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
            waited: oldest.waited,
            in_flight,
        }
    }

    /// Can a later step over the same transport succeed?
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Abandoned { .. } | Self::Timeout { .. })
    }

    /// Does it only say that another worker failed?
    pub const fn is_secondary(&self) -> bool {
        matches!(self, Self::PeerLost { .. } | Self::Abandoned { .. })
    }

    /// Did a peer leave, fall silent or give up?
    pub const fn is_peer_fault(&self) -> bool {
        self.is_secondary() || matches!(self, Self::Timeout { .. })
    }

    /// Did the caller submit a round that cannot be moved?
    pub const fn is_misuse(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::NoSuchPeer { .. })
    }
}

/// A round in words.
pub(crate) struct Place(pub(crate) BucketId, pub(crate) u32);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(BucketId::GATHER, _) => f.write_str("an exchange between steps"),
            Self(bucket, round) => write!(f, "round {round} of bucket {bucket}"),
        }
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

    fn waiting(bucket: BucketId, peers: &[u32]) -> WaitingOn {
        WaitingOn {
            bucket,
            round: 1,
            peers: peers.iter().map(|&rank| Rank::new(rank)).collect(),
            waited: Duration::from_secs(5),
        }
    }

    #[test]
    fn a_timeout_names_rank_bucket_round_and_the_peers_waited_for() {
        let (seven, eight) = (BucketId::new(7), BucketId::new(8));
        let says = |in_flight| TransportError::timeout(Rank::new(3), in_flight).to_string();
        assert_eq!(
            says(vec![waiting(seven, &[0, 2])]),
            "rank 3 waited 5.0s in round 1 of bucket 7 for ranks 0, 2"
        );
        assert_eq!(
            says(vec![waiting(seven, &[4]), waiting(eight, &[5])]),
            "rank 3 waited 5.0s in round 1 of bucket 7 for rank 4 (and in 1 other bucket)"
        );
        assert_eq!(
            says(vec![waiting(BucketId::GATHER, &[1])]),
            "rank 3 waited 5.0s in an exchange between steps for rank 1"
        );
    }

    #[test]
    fn errors_say_who_must_act() {
        let (rank, peer, bucket) = (Rank::new(0), Rank::new(1), BucketId::new(2));
        let lost = TransportError::PeerLost {
            rank,
            peer,
            bucket,
            round: 3,
        };
        assert_eq!(
            lost.to_string(),
            "rank 0 lost rank 1 in round 3 of bucket 2"
        );
        let late = TransportError::timeout(rank, vec![waiting(bucket, &[1])]);
        let busy = TransportError::Busy { rank, bucket };
        let io = TransportError::Io {
            rank,
            action: "sending".to_owned(),
            source: io::Error::other("broken"),
        };
        let says = |error: TransportError| {
            let error = DriveError::from(error);
            (
                error.is_secondary(),
                error.is_peer_fault(),
                error.is_misuse(),
            )
        };
        assert_eq!(says(lost), (true, true, false));
        assert_eq!(says(late), (false, true, false));
        assert_eq!(says(busy), (false, false, true));
        assert_eq!(says(io), (false, false, false));
    }
}
