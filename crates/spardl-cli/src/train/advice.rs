//! Errors of the library in words of the command: which option would help.

use std::fmt;

use spardl_train::data::DataError;
use spardl_train::{Mismatch, TrainError};

use crate::output::bad_request;

const SAME_OR_ELSEWHERE: &str = "or start another run in another directory";

/// A run that failed, with what could be done about it.
#[derive(Debug)]
pub(super) struct FailedRun(pub(super) TrainError);

impl fmt::Display for FailedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match advice(&self.0) {
            Some(advice) => write!(f, "{}: {advice}", self.0),
            None => self.0.fmt(f),
        }
    }
}

impl std::error::Error for FailedRun {}

/// A request that cannot be met, or a run that failed.
pub(super) fn explain(error: TrainError) -> anyhow::Error {
    let failed = FailedRun(error);
    match &failed.0 {
        TrainError::Data(_)
        | TrainError::Directory(_)
        | TrainError::Mismatch { .. }
        | TrainError::NoCheckpoint { .. }
        | TrainError::AllDamaged { .. }
        | TrainError::Unreadable { .. }
        | TrainError::OtherData { .. } => bad_request(failed),
        TrainError::Reduce(error) if error.is_config() => bad_request(failed),
        _ => failed.into(),
    }
}

/// A data set that cannot be opened as asked.
pub(super) fn explain_data(error: DataError) -> anyhow::Error {
    explain(error.into())
}

fn advice(error: &TrainError) -> Option<String> {
    let advice = match error {
        TrainError::NonFinite { .. } => {
            "lower --lr, set --clip, or go on with --on-non-finite skip"
        }
        TrainError::TooManySkipped { .. } => "go back to a checkpoint and lower --lr or set --clip",
        TrainError::NoCheckpoint { .. } => "start without --resume",
        TrainError::Data(DataError::NoDirectory { .. }) => "give --data-dir or set SPARDL_DATA_DIR",
        TrainError::Data(DataError::FixedSize { .. }) => {
            "--image-size is for imagenet and synthetic"
        }
        TrainError::Mismatch { cause, .. } => return mismatch(cause),
        _ => return None,
    };
    Some(advice.to_owned())
}

fn mismatch(cause: &Mismatch) -> Option<String> {
    let same = match cause {
        Mismatch::Seed { .. } => "--seed",
        Mismatch::Samples => "data and options for it",
        Mismatch::Optimiser => "--optimiser",
        Mismatch::Momentum { .. } | Mismatch::Velocity { .. } => "--momentum",
        Mismatch::SparseMomentum { .. } => "--sparse-momentum",
        Mismatch::DenseBelowDims { .. } => "--dense-below-dims",
        Mismatch::MomentumCorrection { .. } => "--momentum-correction",
        Mismatch::Shape { .. } | Mismatch::Statistics { .. } | Mismatch::Elements { .. } => "--dnn",
        _ => return None,
    };
    Some(format!("give the same {same}, {SAME_OR_ELSEWHERE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_library_is_told_with_the_option_that_helps() {
        let text = |error| format!("{:#}", explain(error));
        let (step, cause) = (10, Mismatch::Seed { saved: 3, now: 9 });
        assert_eq!(
            text(TrainError::Mismatch { step, cause }),
            "the checkpoint of step 10 does not fit: it was made with seed 3, not 9: give the same --seed, or start another run in \
             another directory"
        );
        let ranks = Vec::new();
        let stopped = text(TrainError::NonFinite { step, ranks });
        assert!(
            stopped.ends_with("or go on with --on-non-finite skip"),
            "{stopped}"
        );
    }
}
