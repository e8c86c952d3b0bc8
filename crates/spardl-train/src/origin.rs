//! What a checkpoint says about the run it is of, so that only the same run goes on from it.

use serde::{Deserialize, Serialize};
use spardl_drive::Transport;

use crate::TrainError;
use crate::optimiser::Rule;
use crate::store::Checkpoint;
use crate::worker::Worker;

/// What makes a run what it is, beside the shapes of its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The method with its options.
    pub(crate) method: String,
    /// Samples of a worker's step.
    pub(crate) batch_size: usize,
    /// Steps of an epoch with the workers it had.
    pub(crate) steps_per_epoch: u64,
    seed: u64,
    /// The fingerprint of the samples it learns from.
    data: String,
    /// The units of its residual.
    optimiser: Rule,
    /// Has it a velocity?
    momentum: bool,
    /// Is that each worker's own?
    momentum_correction: bool,
}

impl Origin {
    /// The origin of a checkpoint from which a run like `now` can go on; or what does not fit.
    pub(crate) fn of(checkpoint: &Checkpoint, now: &Self) -> Result<Self, TrainError> {
        let step = checkpoint.step();
        let misfit = |what: String| TrainError::Misfit { step, what };
        let metadata = checkpoint.manifest().metadata().clone();
        let origin: Self = serde_json::from_value(metadata)
            .map_err(|error| misfit(format!("its origin cannot be read: {error}")))?;
        match origin.refuses(now) {
            Some(what) => Err(misfit(what)),
            None => Ok(origin),
        }
    }

    fn refuses(&self, now: &Self) -> Option<String> {
        if self.seed != now.seed {
            return Some(format!(
                "it was made with --seed {}, not {}: give the same, or start another run in another directory",
                self.seed, now.seed
            ));
        }
        if self.data != now.data {
            return Some(
                "it was made with other samples: give the same data and the same options for it, or start another run in another \
                 directory"
                    .to_owned(),
            );
        }
        if self.optimiser != now.optimiser {
            return Some(
                "its residuals have the units of another --optimiser: give the same as before"
                    .to_owned(),
            );
        }
        let with = |yes| if yes { "with" } else { "without" };
        let kinds = [
            ("momentum", self.momentum, now.momentum),
            (
                "--momentum-correction",
                self.momentum_correction,
                now.momentum_correction,
            ),
        ];
        let (name, before, now) = kinds.into_iter().find(|(_, before, now)| before != now)?;
        Some(format!(
            "it was made {} {name}, and this run is {}: give the same, or start another run in another directory",
            with(before),
            with(now)
        ))
    }
}

impl<T: Transport> Worker<'_, T> {
    /// What this run is.
    pub(crate) fn origin(&self) -> Origin {
        let settings = self.run.settings;
        Origin {
            method: self.run.method.describe(),
            batch_size: settings.batch_size,
            steps_per_epoch: self.steps_per_epoch(),
            seed: settings.seed,
            data: self.data.train.clone(),
            optimiser: settings.optimiser.rule,
            momentum: settings.optimiser.momentum != 0.0,
            momentum_correction: settings.optimiser.momentum_correction,
        }
    }
}
