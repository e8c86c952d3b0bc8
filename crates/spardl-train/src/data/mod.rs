//! Data sets: samples by number, made into batches.

use crate::Batch;

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

/// Samples by number.
pub trait Dataset: std::fmt::Debug + Send + Sync {
    /// How many samples there are.
    fn len(&self) -> usize;

    /// Is there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples of these numbers. With a `seed` they are augmented or masked at random: the same seed and numbers, the same
    /// batch, whoever asks.
    fn batch(&self, samples: &[u32], seed: Option<u64>) -> Batch;
}

/// A data set to learn from and one to be tested on.
#[derive(Debug)]
pub struct Data {
    /// What is asked.
    pub task: Task,
    /// To learn from.
    pub train: Box<dyn Dataset>,
    /// To be tested on.
    pub test: Box<dyn Dataset>,
}
