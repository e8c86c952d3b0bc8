//! Why a network cannot be built.

use spardl_core::{ConfigError, offer};

use crate::MODELS;

/// Why a network cannot be built.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
#[non_exhaustive]
pub enum BuildError {
    /// There is no network of this name.
    #[error("unknown model '{name}': {}", offer(name, &names()))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The network is for another kind of data.
    #[error("model {name} is for {expected}, not for {found}: take {data}, or a model for {found}")]
    WrongTask {
        /// The name of the network.
        name: &'static str,
        /// What it is for.
        expected: &'static str,
        /// What the data set has.
        found: &'static str,
        /// Data sets that fit.
        data: &'static str,
    },
    /// The images have too few rows or columns.
    #[error(
        "model {name} needs images of at least {side} x {side}: the data set has {rows} x {columns}"
    )]
    TooSmall {
        /// The name of the network.
        name: &'static str,
        /// The smallest side.
        side: usize,
        /// Rows of an image.
        rows: usize,
        /// Columns of an image.
        columns: usize,
    },
    /// A number of the task is zero.
    #[error("the task has no {what}: expected at least one")]
    Empty {
        /// What is missing.
        what: &'static str,
    },
    /// The system has no threads to give.
    #[error("{threads} threads for a model could not be started: {problem}")]
    Threads {
        /// The threads asked for.
        threads: usize,
        /// What the system says.
        problem: String,
    },
    /// The parameters are too many.
    #[error("model {name} does not fit this task: {source}")]
    TooLarge {
        /// The name of the network.
        name: &'static str,
        /// Why.
        source: ConfigError,
    },
}

fn names() -> Vec<&'static str> {
    MODELS.iter().map(|entry| entry.name).collect()
}
