//! Does the run fit into memory? Asked before it starts.

use crate::memory::{available, readable};
use crate::output::bad_request;

/// Arrays of a worker besides its gradients: residual and working copy, and the integers of the check or the array of the plain
/// loop. A dense method has no residual, but messages as long.
const ARRAYS: f64 = 3.0;

/// Words per entry of a sparse update: candidates, messages, the update itself.
const WORDS_PER_ENTRY: f64 = 24.0;

/// Arrays of the check and of the accuracy: sums and magnitudes, or 64-bit balances.
const SHARED_ARRAYS: f64 = 2.0;

/// What a run has to hold at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// Workers on this machine.
    pub(super) workers: u32,
    /// Are they ranks of an MPI job? Their number is the launcher's to change.
    pub(super) are_ranks: bool,
    /// The length of the gradient.
    pub(super) elements: u32,
    /// Gradients made for each worker.
    pub(super) samples: u32,
    /// The largest density.
    pub(super) density: f64,
}

/// Refuses a run that needs more memory than there is.
pub(super) fn check(need: &Need) -> anyhow::Result<()> {
    match available() {
        Some(available) => need.fits(available).map_err(bad_request),
        None => Ok(()),
    }
}

impl Need {
    fn bytes(&self) -> f64 {
        let lists = (WORDS_PER_ENTRY * self.density).min(ARRAYS);
        let per_worker = f64::from(self.samples) + ARRAYS + lists;
        4.0 * f64::from(self.elements) * (f64::from(self.workers) * per_worker + SHARED_ARRAYS)
    }

    fn fits(&self, available: u64) -> Result<(), String> {
        let fits = |need: &Self| need.bytes() <= available as f64;
        if fits(self) {
            return Ok(());
        }
        let samples = (1..self.samples).rev();
        let fewer_samples = samples
            .map(|samples| Self { samples, ..*self })
            .find(fits)
            .map(|need| format!("--samples {}", need.samples));
        let workers = (1..self.workers).rev();
        let fewer_workers = workers
            .map(|workers| Self { workers, ..*self })
            .find(fits)
            .map(|need| match need.are_ranks {
                true => format!("{} ranks on a machine", need.workers),
                false => format!("--workers {}", need.workers),
            });
        let shorter = f64::from(self.elements) * (available as f64 / self.bytes());
        let shorter = Some(format!("--elements {}", shorter as u32));
        let would: Vec<String> = [fewer_samples, fewer_workers, shorter]
            .into_iter()
            .flatten()
            .collect();
        let workers = if self.are_ranks {
            "ranks on this machine"
        } else {
            "workers"
        };
        Err(format!(
            "{} {workers} with {} elements need {} of memory and {} are available: {} would fit",
            self.workers,
            self.elements,
            readable(self.bytes() as u64),
            readable(available),
            would.join(" or ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_does_not_fit_is_told_what_would() {
        let need = |workers, elements, samples| Need {
            workers,
            are_ranks: false,
            elements,
            samples,
            density: 0.01,
        };
        assert_eq!(need(8, 1_000_000, 4).fits(1 << 30), Ok(()));
        let error = need(8, 1_000_000, 4).fits(100_000_000).unwrap_err();
        assert_eq!(
            error,
            "8 workers with 1000000 elements need 240 MB of memory and 100 MB are available: \
             --workers 3 or --elements 417222 would fit"
        );
        assert_eq!(need(3, 1_000_000, 4).fits(100_000_000), Ok(()));
        assert_eq!(need(8, 417_222, 4).fits(100_000_000), Ok(()));
        let error = need(4, 268_435_456, 4).fits(23_000_000_000).unwrap_err();
        assert!(error.contains(": --samples 1 or --workers 2 or"), "{error}");
        let ranks = Need {
            are_ranks: true,
            ..need(8, 1_000_000, 4)
        };
        let error = ranks.fits(100_000_000).unwrap_err();
        assert!(error.starts_with("8 ranks on this machine with"), "{error}");
        assert!(error.contains(": 3 ranks on a machine or"), "{error}");
        let error = need(1, u32::MAX, 1).fits(1_000).unwrap_err();
        assert!(error.ends_with(": --elements 40 would fit"), "{error}");
    }
}
