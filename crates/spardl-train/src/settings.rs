//! What a run is made of.

use std::sync::Arc;
use std::time::Duration;

use spardl::tune::{Tuner, Tuning};
use spardl::{Algorithm, Budget, Builder, OnNonFinite, Reducer};

use crate::Data;
use crate::checkpoint::Checkpoints;
use crate::optimiser;
use crate::schedule::{DensitySchedule, LearningRate};

/// Everything that shapes a run besides model, data and method; the same on all workers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Samples of a worker's step.
    pub batch_size: usize,
    /// Passes over the data.
    pub epochs: u32,
    /// Ends the run after that many steps, even within an epoch.
    pub max_steps: Option<u64>,
    /// What shuffling, augmentation and dropout are drawn from.
    pub seed: u64,
    /// The learning rate.
    pub learning_rate: LearningRate,
    /// The density.
    pub density: DensitySchedule,
    /// What an exchange may take, where time decides the density.
    pub exchange_budget: Budget,
    /// Epochs in which the whole gradient is reduced.
    pub dense_epochs: f64,
    /// Tensors of fewer dimensions are always reduced whole: with 2 those of normalisation, and biases.
    pub dense_below_dims: usize,
    /// The optimiser.
    pub optimiser: optimiser::Options,
    /// Elements of a bucket.
    pub bucket_elements: usize,
    /// Epochs from test to test; the last one is always tested. 0: only the last one.
    pub eval_every: u32,
    /// Compares the replicas after every step instead of every epoch.
    pub verify: bool,
    /// What to do when some worker's loss or gradient is not finite. A step of training is whole: both ways to skip drop all
    /// of it, on all workers, and end the run when too many steps in a row had to be dropped.
    pub on_non_finite: OnNonFinite,
    /// Threads of a worker's part in the reduction; the bits are the same for any number of them.
    pub threads: usize,
    /// The longest wait for a peer.
    pub timeout: Duration,
    /// Where and when checkpoints are written.
    pub checkpoints: Option<Checkpoints>,
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// How.
    pub settings: &'a Settings,
    /// The method.
    pub method: Method,
    /// The data, shared by the workers of a process.
    pub data: &'a Data,
}

/// What gradients are reduced by.
#[derive(Clone, Debug)]
pub enum Method {
    /// The same from the first step to the last.
    Fixed(Arc<dyn Algorithm>),
    /// What a tuner chose between these workers. When steps no longer take what was expected, all of them choose again.
    Chosen(Box<(Tuner, Tuning)>),
}

impl Method {
    /// What the run begins with.
    pub fn first(&self) -> &Arc<dyn Algorithm> {
        match self {
            Self::Fixed(algorithm) => algorithm,
            Self::Chosen(chosen) => chosen.1.best().algorithm(),
        }
    }

    pub(crate) fn reducer(&self) -> Builder {
        match self {
            Self::Fixed(algorithm) => Reducer::with_algorithm(Arc::clone(algorithm)),
            Self::Chosen(chosen) => {
                let (tuner, tuning) = (**chosen).clone();
                Reducer::with_choice(tuner, tuning)
            }
        }
    }
}

impl From<Arc<dyn Algorithm>> for Method {
    fn from(algorithm: Arc<dyn Algorithm>) -> Self {
        Self::Fixed(algorithm)
    }
}
