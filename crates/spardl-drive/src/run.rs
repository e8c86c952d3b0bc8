//! Where the buckets of a driver are in the current step.

use spardl_core::{ConfigError, Outcome};

use crate::error::DriveError;
use crate::report::Counts;
use crate::time::Time;
use crate::transport::BucketId;

/// Where a bucket is in the current step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run {
    pub(crate) stage: Stage,
    pub(crate) counts: Counts,
    /// What was sent in the round that is in flight.
    pub(crate) sent: Traffic,
}

/// One direction of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    InFlight {
        since: Time,
    },
    Done(Outcome),
}

impl Stage {
    const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::InFlight { .. } => "in the middle of a step",
            Self::Done(_) => "finished and neither committed nor aborted",
        }
    }

    /// The error of a `call` that does not fit this stage.
    pub(crate) const fn out_of_turn(self, bucket: BucketId, call: &'static str) -> DriveError {
        let state = self.name();
        let source = ConfigError::OutOfTurn { call, state };
        DriveError::Config { bucket, source }
    }
}
