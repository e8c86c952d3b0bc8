//! Data sets: samples by number, made into batches.
//!
//! [`open`] reads a set in its official format, or makes one up; [`SETS`] names them. Everything random is a pure function of
//! seeds: a [`Sampler`] says which samples a worker takes at a step, [`seed_for`] gives the seed of that step, [`Prefetch`] makes
//! the batches of the steps to come in a thread of its own.

mod cifar;
mod disk;
mod error;
mod imagenet;
mod images;
mod imdb;
mod language;
mod mnist;
mod prefetch;
mod random;
mod sampler;
mod sequences;
mod sets;
mod subset;
mod synthetic;
mod synthetic_text;
mod text;
mod words;

use std::sync::Arc;

use crate::{Batch, Input};

pub use error::DataError;
pub use prefetch::{Prefetch, Prepared};
pub use random::seed_for;
pub use sampler::{Sampler, share};
pub use sets::{Kept, Level, Objective, Request, SETS, Set, open};

/// What a data set asks of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One of `classes` for each image.
    Images {
        /// Channels, rows, columns.
        shape: [usize; 3],
        /// How many kinds there are.
        classes: usize,
    },
    /// One of `classes` for each sequence of tokens; token 0 pads.
    Sequences {
        /// Tokens of a sequence.
        length: usize,
        /// Token numbers are below this.
        vocabulary: usize,
        /// How many kinds there are.
        classes: usize,
    },
    /// A token for each token: the next one of the text, or what a mask hides.
    Language {
        /// Tokens of a sequence.
        length: usize,
        /// Token numbers are below this.
        vocabulary: usize,
    },
}

impl Task {
    /// How many answers there are to choose from.
    pub const fn classes(&self) -> usize {
        match *self {
            Self::Images { classes, .. } | Self::Sequences { classes, .. } => classes,
            Self::Language { vocabulary, .. } => vocabulary,
        }
    }
}

/// Samples by number.
pub trait Dataset: std::fmt::Debug + Send + Sync {
    /// How many samples there are.
    fn len(&self) -> usize;

    /// Is there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples of these numbers. With a `seed` they are augmented or masked at random: the same seed and numbers, the same
    /// batch, whoever asks. Without one the batch depends on the numbers only.
    ///
    /// # Errors
    /// A set that reads its samples when asked (imagenet) may find a file gone or damaged.
    ///
    /// # Panics
    /// If a number is not below [`Dataset::len`].
    fn batch(&self, samples: &[u32], seed: Option<u64>) -> Result<Batch, DataError>;
}

/// A data set to learn from and one to be tested on. Cloning it shares them.
#[derive(Clone, Debug)]
pub struct Data {
    /// What is asked.
    pub task: Task,
    /// To learn from.
    pub train: Arc<dyn Dataset>,
    /// To be tested on.
    pub test: Arc<dyn Dataset>,
    /// The mean loss that no model gets below, where it is known.
    pub floor: Option<f64>,
}

/// Hashes by which data is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Of the task and the samples to learn from.
    pub train: String,
    /// Of the samples to be tested on.
    pub test: String,
}

/// Samples that a fingerprint looks at, spread over all.
const LOOKED_AT: usize = 32;

impl Data {
    /// The same task without its test set: that part of the training samples, drawn by `seed`, is what is tested on, and the
    /// others are trained on. For choices (a learning rate, say) that must not be made on the test set.
    ///
    /// # Errors
    /// When nothing would be left to train on or to test on.
    pub fn hold_out(&self, part: f64, seed: u64) -> Result<Self, DataError> {
        let all = self.train.len();
        let len = (part * all as f64).round() as usize;
        if len == 0 || len >= all {
            return Err(DataError::Request(format!(
                "{len} of {all} training samples would be held out: expected 1 to {}",
                all.saturating_sub(1)
            )));
        }
        let (test, train) = subset::split(self.train.clone(), len, seed);
        Ok(Self {
            train,
            test,
            ..self.clone()
        })
    }

    /// Hashes of the task, of how many samples there are, and of some of them: all workers must have the same.
    ///
    /// # Errors
    /// As [`Dataset::batch`].
    pub fn fingerprint(&self) -> Result<Fingerprint, DataError> {
        let hash = |set: &dyn Dataset| -> Result<String, DataError> {
            let mut hasher = blake3::Hasher::new();
            hasher.update(format!("{:?} {}", self.task, set.len()).as_bytes());
            let some = set.len().min(LOOKED_AT);
            let samples: Vec<u32> = (0..some).map(|i| (i * set.len() / some) as u32).collect();
            let batch = set.batch(&samples, None)?;
            match &batch.input {
                Input::Pixels(pixels) => hasher.update(bytemuck::cast_slice(pixels)),
                Input::Tokens(tokens) => hasher.update(bytemuck::cast_slice(tokens)),
            };
            hasher.update(bytemuck::cast_slice(&batch.targets));
            Ok(hasher.finalize().to_hex().to_string())
        };
        Ok(Fingerprint {
            train: hash(&*self.train)?,
            test: hash(&*self.test)?,
        })
    }
}
