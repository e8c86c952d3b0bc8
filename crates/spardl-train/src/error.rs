//! Why a run ended before its end, by who must act.

use spardl::Rank;

use crate::data::DataError;
use crate::events::EventsError;
use crate::optimiser::SparseMomentum;
use crate::store::{ArraysError, Damage, StoreError};

/// Why a run ended before its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The data could not be had.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A step failed.
    #[error(transparent)]
    Reduce(#[from] spardl::Error),
    /// A checkpoint could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log could not be written.
    #[error(transparent)]
    Log(#[from] EventsError),
    /// Some worker's loss or gradient is NaN or infinite, and the run is set to stop then.
    #[error("step {step}: the loss or gradient of {} is not finite", name(ranks))]
    NonFinite {
        /// The step.
        step: u64,
        /// The workers.
        ranks: Vec<Rank>,
    },
    /// So many steps in a row were dropped for that reason that the next ones will be too.
    #[error(
        "step {step}: the last {skipped} steps were all dropped, their losses or gradients were not finite"
    )]
    TooManySkipped {
        /// The last of them.
        step: u64,
        /// How many.
        skipped: u32,
    },
    /// The replicas are no longer the same: a defect of the method, the engine or the machine.
    #[error(
        "step {step}: the parameters of {} differ from those of rank 0",
        name(ranks)
    )]
    Diverged {
        /// The step.
        step: u64,
        /// The workers.
        ranks: Vec<Rank>,
    },
    /// Some workers have other data than rank 0.
    #[error(
        "the data of {} is not that of rank 0: all must read the same files",
        name(ranks)
    )]
    OtherData {
        /// The workers.
        ranks: Vec<Rank>,
    },
    /// The directory of checkpoints cannot be used; rank 0 looked for all.
    #[error("{0}")]
    Directory(String),
    /// There is nothing to go on from.
    #[error("no usable checkpoint in {dir}")]
    NoCheckpoint {
        /// Where one was looked for.
        dir: String,
    },
    /// There are only damaged ones to go on from.
    #[error(
        "no checkpoint in {dir} is whole: move them away to start anew there, or name another directory"
    )]
    AllDamaged {
        /// Where they are.
        dir: String,
    },
    /// A checkpoint that may be whole and cannot be read here and now.
    #[error(
        "{damage}: {}, or move it away to go on from the one before it",
        damage.remedy().unwrap_or("look at it")
    )]
    Unreadable {
        /// Which one, and why.
        damage: Damage,
    },
    /// A checkpoint of something else.
    #[error("the checkpoint of step {step} does not fit: {cause}")]
    Mismatch {
        /// Its step.
        step: u64,
        /// What does not fit.
        cause: Mismatch,
    },
    /// What another worker said cannot be read: it runs another version.
    #[error("rank {0} runs another version of spardl")]
    VersionMismatch(Rank),
}

impl TrainError {
    /// Did this worker fail only because another one did?
    pub fn is_secondary(&self) -> bool {
        matches!(self, Self::Reduce(error) if error.is_secondary())
    }
}

/// Why a run cannot go on from a checkpoint.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Mismatch {
    /// Another seed.
    #[error("it was made with seed {saved}, not {now}")]
    Seed {
        /// The seed of the checkpoint.
        saved: u64,
        /// The seed of this run.
        now: u64,
    },
    /// The run is longer already than it is to be.
    #[error("{done} epochs were begun, and this run is to have {epochs}: ask for at least as many")]
    PastTheEnd {
        /// The epochs begun.
        done: u32,
        /// The epochs asked for.
        epochs: u32,
    },
    /// Other samples to learn from.
    #[error("it was made with other samples")]
    Samples,
    /// Another optimiser.
    #[error("its residuals have the units of another optimiser")]
    Optimiser,
    /// Momentum in one of the two.
    #[error("it was made {} momentum, and this run is {}", with(*saved), with(!saved))]
    Momentum {
        /// In the checkpoint?
        saved: bool,
    },
    /// Another momentum while mass is held back.
    #[error("it was made with a sparse momentum of {saved}, not {now}")]
    SparseMomentum {
        /// In the checkpoint.
        saved: SparseMomentum,
        /// In this run.
        now: SparseMomentum,
    },
    /// Other tensors that are always reduced whole: residuals lie elsewhere.
    #[error("it was made with tensors below {saved} dimensions reduced whole, not below {now}")]
    DenseBelowDims {
        /// In the checkpoint.
        saved: usize,
        /// In this run.
        now: usize,
    },
    /// Momentum correction in one of the two.
    #[error("it was made {} momentum correction, and this run is {}", with(*saved), with(!saved))]
    MomentumCorrection {
        /// In the checkpoint?
        saved: bool,
    },
    /// A tensor of another shape.
    #[error("{name} has shape {saved:?}, not {now:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape in the checkpoint.
        saved: Vec<usize>,
        /// Its shape in this run.
        now: Vec<usize>,
    },
    /// Another number of running statistics.
    #[error("it has {saved} running statistics, not {now}")]
    Statistics {
        /// Those of the checkpoint.
        saved: usize,
        /// Those of this run.
        now: usize,
    },
    /// A velocity of another length.
    #[error("it has {saved} elements of velocity, not {now}")]
    Velocity {
        /// The length in the checkpoint.
        saved: usize,
        /// The length in this run.
        now: usize,
    },
    /// A residual that lies elsewhere.
    #[error("it is of {len} elements at {start}, not of {now}")]
    Elements {
        /// Where the residual begins.
        start: usize,
        /// Its length.
        len: usize,
        /// The parameters of this run.
        now: usize,
    },
    /// A file of it was damaged since it was checked.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// An array that should be there is not.
    #[error("{0}")]
    Contents(String),
}

impl From<ArraysError> for Mismatch {
    fn from(error: ArraysError) -> Self {
        Self::Contents(error.to_string())
    }
}

const fn with(yes: bool) -> &'static str {
    if yes { "with" } else { "without" }
}

fn name(ranks: &[Rank]) -> String {
    let list: Vec<String> = ranks.iter().map(Rank::to_string).collect();
    let noun = if list.len() == 1 { "rank" } else { "ranks" };
    match list.is_empty() {
        true => "the sum over workers".to_owned(),
        false => format!("{noun} {}", list.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use spardl::{BucketId, ConfigError, DriveError, TransportError};

    use super::*;

    fn secondary(error: impl Into<DriveError>) -> bool {
        TrainError::Reduce(error.into().into()).is_secondary()
    }

    #[test]
    fn only_the_news_that_a_peer_failed_is_secondary() {
        let (rank, peer, bucket) = (Rank::new(0), Rank::new(1), BucketId::new(0));
        let round = 3;
        assert!(secondary(TransportError::PeerLost {
            rank,
            peer,
            bucket,
            round
        }));
        assert!(secondary(TransportError::Abandoned {
            rank,
            by: peer,
            bucket,
            round
        }));
        // What this worker found itself is a cause, be it of the transport or not.
        assert!(!secondary(TransportError::Timeout {
            rank,
            bucket,
            round,
            waiting_on: vec![peer],
            waited: std::time::Duration::from_secs(5),
            in_flight: Vec::new(),
        }));
        assert!(!secondary(TransportError::Busy { rank, bucket }));
        let (action, source) = ("sending".to_owned(), io::Error::other("a broken link"));
        assert!(!secondary(TransportError::Io {
            rank,
            action,
            source
        }));
        let source = ConfigError::NonFiniteResidual { index: 7 };
        assert!(!secondary(DriveError::Config { bucket, source }));
        assert!(!TrainError::VersionMismatch(peer).is_secondary());
    }
}
