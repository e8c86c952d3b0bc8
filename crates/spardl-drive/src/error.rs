//! Why a step failed, by who must act.

use spardl_core::{ConfigError, ProtocolError, SkipReason, World};

use crate::transport::{BucketId, TransportError};

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
