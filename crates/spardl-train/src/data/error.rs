//! What can be wrong with a data set.

use std::path::{Path, PathBuf};

/// What can be wrong with a data set, or with what is asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// There is no such set.
    #[error("unknown data set '{name}': {offer}")]
    Unknown {
        /// The name given.
        name: String,
        /// The names there are, and which one may have been meant.
        offer: String,
    },
    /// The set is read from disk and nobody said where.
    #[error("{title} needs a directory; expected in it is {expects}")]
    NoDirectory {
        /// The set.
        title: &'static str,
        /// What should be in the directory.
        expects: &'static str,
    },
    /// The set, or a part of it, is not there.
    #[error("no {title} in {}: expected {}; {hint}", directory.display(), expected.display())]
    Missing {
        /// The set.
        title: &'static str,
        /// Where it was looked for.
        directory: PathBuf,
        /// What should be there.
        expected: PathBuf,
        /// How to get it.
        hint: &'static str,
    },
    /// The operating system cannot read a file or folder.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is damaged: {problem}; get it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what was expected.
        problem: String,
    },
    /// The samples have one size, and another one was asked for.
    #[error("the samples of {title} have one size")]
    FixedSize {
        /// The set.
        title: &'static str,
    },
    /// The request does not fit the set.
    #[error("{0}")]
    Request(String),
    /// The samples do not suffice for one step.
    #[error(
        "{samples} samples are too few for one step of {workers} workers with {batch_size} samples each: \
         use more samples, a smaller batch or fewer workers"
    )]
    TooFew {
        /// Samples there are.
        samples: usize,
        /// Workers that share them.
        workers: usize,
        /// Samples that each takes in a step.
        batch_size: usize,
    },
    /// The thread that makes batches could not be started, or panicked.
    #[error("the thread that makes batches stopped: {0}")]
    Thread(String),
}

impl DataError {
    /// A file or folder that the system cannot read.
    pub(crate) fn read(path: &Path, cause: std::io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            cause,
        }
    }

    /// A file that is not what it should be.
    pub(crate) fn damaged(path: &Path, problem: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }
}
