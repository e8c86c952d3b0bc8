//! Why a run ended before its end, by who must act.

use spardl_core::Rank;
use spardl_drive::DriveError;

use crate::data::DataError;
use crate::events::EventsError;
use crate::store::StoreError;

/// Why a run ended before its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The data could not be had.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A step failed.
    #[error(transparent)]
    Drive(#[from] DriveError),
    /// A checkpoint could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log could not be written.
    #[error(transparent)]
    Log(#[from] EventsError),
    /// Some worker's loss or gradient is NaN or infinite, and the run is set to stop then.
    #[error(
        "step {step}: the loss or gradient of {} is not finite: lower --lr, set --clip, or go on with --on-non-finite skip",
        name(ranks)
    )]
    NonFinite {
        /// The step.
        step: u64,
        /// The workers.
        ranks: Vec<Rank>,
    },
    /// So many steps in a row were dropped for that reason that the next ones will be too.
    #[error(
        "step {step}: the last {skipped} steps were all dropped, their losses or gradients were not finite: go back to a checkpoint \
         and lower --lr or set --clip"
    )]
    PastMending {
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
    /// There is nothing to go on from.
    #[error("no usable checkpoint in {dir}: start without --resume")]
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
    #[error("{what}: {advice}, or move it away to go on from the one before it")]
    Barred {
        /// Which one, and why.
        what: String,
        /// What would help.
        advice: String,
    },
    /// A checkpoint of something else.
    #[error("the checkpoint of step {step} does not fit: {what}")]
    Misfit {
        /// Its step.
        step: u64,
        /// What does not fit.
        what: String,
    },
    /// What another worker said cannot be read: it runs another version.
    #[error("rank {0} runs another version of spardl")]
    Garbled(Rank),
}

impl TrainError {
    /// Is this the echo of another worker's error?
    pub const fn is_echo(&self) -> bool {
        matches!(self, Self::Drive(DriveError::Transport(_)))
    }
}

fn name(ranks: &[Rank]) -> String {
    let list: Vec<String> = ranks.iter().map(Rank::to_string).collect();
    let noun = if list.len() == 1 { "rank" } else { "ranks" };
    match list.is_empty() {
        true => "the sum over workers".to_owned(),
        false => format!("{noun} {}", list.join(", ")),
    }
}
