//! Does the run fit into memory? Asked before it starts.

use crate::memory::{available, gigabytes};
use crate::output::bad_request;

/// Arrays of a worker besides its gradients: residual and working copy, a dense update or the integers of the check, messages.
const ARRAYS: u64 = 4;

/// Arrays of the check and of the accuracy: sums and magnitudes, or 64-bit balances.
const SHARED_ARRAYS: u64 = 2;

/// Refuses a run that needs more memory than there is; `samples` gradients are made per worker.
pub(super) fn check(workers: u32, elements: u32, samples: u32) -> anyhow::Result<()> {
    match available() {
        Some(available) => fits(workers, elements, samples, available).map_err(bad_request),
        None => Ok(()),
    }
}

fn fits(workers: u32, elements: u32, samples: u32, available: u64) -> Result<(), String> {
    let (workers, elements) = (u64::from(workers), u64::from(elements));
    let per_worker = u64::from(samples) + ARRAYS;
    let needed = 4 * elements * (workers * per_worker + SHARED_ARRAYS);
    if needed <= available {
        return Ok(());
    }
    let arrays = available / (4 * elements);
    let fewer = match arrays.saturating_sub(SHARED_ARRAYS) / per_worker {
        0 => String::new(),
        workers => format!("--workers {workers} or "),
    };
    let shorter = available / (4 * (workers * per_worker + SHARED_ARRAYS));
    Err(format!(
        "{workers} workers with {elements} elements need {} of memory and {} are available: {fewer}--elements {shorter} would fit",
        gigabytes(needed),
        gigabytes(available)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_does_not_fit_is_told_what_would() {
        assert_eq!(fits(8, 1_000_000, 4, 1 << 30), Ok(()));
        let error = fits(8, 1_000_000, 4, 100_000_000).unwrap_err();
        assert_eq!(
            error,
            "8 workers with 1000000 elements need 0.3 GB of memory and 0.1 GB are available: \
             --workers 2 or --elements 378787 would fit"
        );
        assert_eq!(fits(2, 1_000_000, 4, 100_000_000), Ok(()));
        assert_eq!(fits(8, 378_787, 4, 100_000_000), Ok(()));
        let error = fits(1, u32::MAX, 4, 1_000).unwrap_err();
        assert!(error.ends_with(": --elements 25 would fit"), "{error}");
    }
}
