//! What a step did and cost.

use std::fmt;
use std::time::Duration;

use spardl_core::Outcome;
use spardl_drive::{BucketReport, Counts, StepReport};

/// What one step did and cost this worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// How the step ended, the same on all workers: the outcome of the first bucket that was skipped, if any was.
    pub outcome: Outcome,
    /// Entries of the update that are not zero.
    pub nnz: usize,
    /// Elements of the gradient.
    pub len: usize,
    /// Workers that took part.
    pub workers: u32,
    /// How each bucket ended, and what it cost.
    pub buckets: Vec<BucketReport>,
    /// Rounds, messages, bytes and times, summed over buckets.
    pub counts: Counts,
    /// Time spent waiting for messages.
    pub waited: Duration,
}

impl Report {
    pub(crate) fn new(step: StepReport, nnz: usize, len: usize, workers: u32) -> Self {
        let skipped = step.first_skipped().map(|(_, outcome)| outcome);
        Self {
            outcome: skipped.unwrap_or(Outcome::Updated),
            nnz,
            len,
            workers,
            counts: step.total(),
            waited: step.waited,
            buckets: step.buckets,
        }
    }

    /// The part of the entries that the update has.
    pub fn density(&self) -> f64 {
        self.nnz as f64 / self.len.max(1) as f64
    }

    /// The bytes that a dense f32 all-reduce would send per worker.
    pub fn dense_bytes(&self) -> u64 {
        let workers = u64::from(self.workers);
        2 * 4 * self.len as u64 * (workers - 1) / workers
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kilobytes = |bytes: u64| bytes as f64 / 1e3;
        if let Outcome::Skipped(reason) = self.outcome {
            return write!(f, "skipped: {reason}");
        }
        write!(
            f,
            "{} of {} entries, {} rounds, {:.1} kB sent (dense {:.1} kB)",
            self.nnz,
            self.len,
            self.counts.rounds,
            kilobytes(self.counts.bytes_sent),
            kilobytes(self.dense_bytes()),
        )
    }
}
