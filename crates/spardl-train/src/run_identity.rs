//! What a checkpoint says about the run it is of, so that only the same run goes on from it.

use serde::{Deserialize, Serialize};

use crate::data::Fingerprint;
use crate::error::Mismatch;
use crate::optimiser::{Rule, SparseMomentum};
use crate::store::Checkpoint;
use crate::{Run, TrainError};

/// What makes a run what it is, beside the shapes of its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunIdentity {
    /// The method with its options.
    method: String,
    /// Samples of a worker's step.
    batch_size: usize,
    /// Steps of an epoch with the workers it had.
    steps_per_epoch: u64,
    seed: u64,
    /// The fingerprint of the samples it learns from.
    data: String,
    /// The units of its residual.
    optimiser: Rule,
    /// Has it a velocity?
    momentum: bool,
    /// What of it is left while mass is held back.
    sparse_momentum: SparseMomentum,
    /// Is the velocity each worker's own?
    momentum_correction: bool,
    /// Which tensors come last, because they are reduced whole.
    dense_below_dims: usize,
}

impl RunIdentity {
    pub(crate) fn new(run: &Run<'_>, data: &Fingerprint, steps_per_epoch: u64) -> Self {
        let settings = run.settings;
        Self {
            method: run.method.first().describe(),
            batch_size: settings.batch_size,
            steps_per_epoch,
            seed: settings.seed,
            data: data.train.clone(),
            optimiser: settings.optimiser.rule,
            momentum: settings.optimiser.momentum != 0.0,
            sparse_momentum: settings.optimiser.sparse_momentum,
            dense_below_dims: settings.dense_below_dims,
            momentum_correction: settings.optimiser.momentum_correction,
        }
    }

    /// The identity of the run that wrote a checkpoint, when this run can go on from it.
    pub(crate) fn of(&self, checkpoint: &Checkpoint) -> Result<Self, TrainError> {
        let metadata = checkpoint.manifest().metadata().clone();
        let saved = serde_json::from_value(metadata)
            .map_err(|error| Mismatch::Contents(format!("what it is of: {error}")));
        let saved = saved.and_then(|saved| self.can_continue(&saved).map(|()| saved));
        saved.map_err(|cause| TrainError::Mismatch {
            step: checkpoint.step(),
            cause,
        })
    }

    /// Steps of an epoch.
    pub(crate) const fn steps_per_epoch(&self) -> u64 {
        self.steps_per_epoch
    }

    /// Are the steps of an epoch of that run those of this one, at the same number of workers?
    pub(crate) const fn has_batches_of(&self, saved: &Self) -> bool {
        self.batch_size == saved.batch_size
    }

    /// The same run, at a step at which it has this method.
    pub(crate) fn with_method(&self, method: String) -> Self {
        Self {
            method,
            ..self.clone()
        }
    }

    /// Is it the same method with the same options?
    pub(crate) fn has_method_of(&self, saved: &Self) -> bool {
        self.method == saved.method
    }

    fn can_continue(&self, saved: &Self) -> Result<(), Mismatch> {
        if self.seed != saved.seed {
            let (saved, now) = (saved.seed, self.seed);
            return Err(Mismatch::Seed { saved, now });
        }
        if self.data != saved.data {
            return Err(Mismatch::Samples);
        }
        if self.optimiser != saved.optimiser {
            return Err(Mismatch::Optimiser);
        }
        if self.momentum != saved.momentum {
            let saved = saved.momentum;
            return Err(Mismatch::Momentum { saved });
        }
        if self.sparse_momentum != saved.sparse_momentum {
            let (saved, now) = (saved.sparse_momentum, self.sparse_momentum);
            return Err(Mismatch::SparseMomentum { saved, now });
        }
        if self.dense_below_dims != saved.dense_below_dims {
            let (saved, now) = (saved.dense_below_dims, self.dense_below_dims);
            return Err(Mismatch::DenseBelowDims { saved, now });
        }
        if self.momentum_correction != saved.momentum_correction {
            let saved = saved.momentum_correction;
            return Err(Mismatch::MomentumCorrection { saved });
        }
        Ok(())
    }
}
