//! A part of a data set.

use std::sync::Arc;

use super::random::Permutation;
use super::{DataError, Dataset};
use crate::Batch;

/// Some samples of another set, numbered anew.
#[derive(Debug)]
struct Subset {
    whole: Arc<dyn Dataset>,
    permutation: Permutation,
    /// The first sample, by its place in the permutation.
    start: usize,
    len: usize,
}

impl Dataset for Subset {
    fn len(&self) -> usize {
        self.len
    }

    fn batch(&self, samples: &[u32], seed: Option<u64>) -> Result<Batch, DataError> {
        let numbers = samples.iter().map(|&sample| {
            assert!(
                (sample as usize) < self.len,
                "sample {sample} of {}",
                self.len
            );
            self.permutation.get(self.start + sample as usize) as u32
        });
        self.whole.batch(&numbers.collect::<Vec<u32>>(), seed)
    }
}

/// The first samples of a permutation of `whole`, or all of it in its own order when no number is given. `what` are they called?
pub(crate) fn first(
    whole: Arc<dyn Dataset>,
    len: Option<usize>,
    seed: u64,
    what: &str,
) -> Result<Arc<dyn Dataset>, DataError> {
    let Some(len) = len else { return Ok(whole) };
    if len == 0 || len > whole.len() {
        return Err(DataError::Request(format!(
            "{len} {what} samples were asked for: expected 1 to {}, what the set has",
            whole.len()
        )));
    }
    let permutation = Permutation::new(seed, whole.len());
    Ok(Arc::new(Subset {
        whole,
        permutation,
        start: 0,
        len,
    }))
}

/// Two sets without a sample in common: `len` samples of a permutation of `whole`, and the others.
pub(super) fn split(
    whole: Arc<dyn Dataset>,
    len: usize,
    seed: u64,
) -> (Arc<dyn Dataset>, Arc<dyn Dataset>) {
    let permutation = Permutation::new(seed, whole.len());
    let part = |start, len| {
        Arc::new(Subset {
            whole: whole.clone(),
            permutation,
            start,
            len,
        })
    };
    (part(0, len), part(len, whole.len() - len))
}
