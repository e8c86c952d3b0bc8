//! Several cores for one worker.

use std::sync::{Arc, Mutex, PoisonError};

use rayon_core::{ThreadPool, ThreadPoolBuilder};
use spardl_core::parallel::{Job, Parallel, Serial};

/// Threads that wait for the jobs of a worker, whose own thread works with them.
#[derive(Debug)]
pub struct Pool {
    helpers: ThreadPool,
    threads: usize,
}

/// The system gave no more threads.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {threads} threads for a worker: {source}")]
pub struct PoolError {
    threads: usize,
    source: rayon_core::ThreadPoolBuildError,
}

/// What a collective needs to use `threads` threads; with one, or none, that of the caller.
///
/// # Errors
/// When the system gives no more threads.
///
/// # Example
///
/// ```
/// let two = spardl_drive::pool(2)?;
/// assert_eq!(two.threads(), 2);
/// # Ok::<(), spardl_drive::PoolError>(())
/// ```
pub fn pool(threads: usize) -> Result<Arc<dyn Parallel>, PoolError> {
    if threads < 2 {
        return Ok(Arc::new(Serial));
    }
    let helpers = ThreadPoolBuilder::new()
        .num_threads(threads - 1)
        .thread_name(|i| format!("spardl-pass-{}", i + 1))
        .build()
        .map_err(|source| PoolError { threads, source })?;
    Ok(Arc::new(Pool { helpers, threads }))
}

impl Parallel for Pool {
    fn threads(&self) -> usize {
        self.threads
    }

    /// All threads take from one queue, so that one that comes late holds up nobody.
    fn run(&self, jobs: Vec<Job<'_>>) {
        let helpers = self.threads.min(jobs.len()).saturating_sub(1);
        let queue = Mutex::new(jobs.into_iter());
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some(job) = next() {
                job();
            }
        };
        self.helpers.in_place_scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|_| work());
            }
            work();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_runs_once_for_any_number_of_threads() {
        for threads in [0, 1, 2, 3, 8] {
            let pool = pool(threads).unwrap();
            assert_eq!(pool.threads(), threads.max(1));
            for count in [0, 1, 2, 100] {
                let mut seen = vec![0; count];
                let job = |place: &'_ mut usize| *place += 1;
                pool.run(
                    seen.iter_mut()
                        .map(|place| Box::new(move || job(place)) as Job<'_>)
                        .collect(),
                );
                assert!(seen.iter().all(|&times| times == 1), "{threads} {count}");
            }
        }
    }

    #[test]
    fn a_job_that_panics_is_heard_and_the_pool_works_on() {
        let pool = pool(2).unwrap();
        let run = || {
            pool.run(
                (0..9)
                    .map(|i| Box::new(move || assert!(i != 5)) as Job<'_>)
                    .collect(),
            )
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        pool.run(vec![Box::new(|| ()), Box::new(|| ())]);
    }
}
