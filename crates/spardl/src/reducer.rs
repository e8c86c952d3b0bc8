//! A repeated all-reduce of one gradient: the paved path.

use std::fmt;
use std::time::Duration;

use spardl_algos::{Options, registry};
use spardl_core::{ConfigError, Input, Layout, Outcome, State};
use spardl_drive::{BucketId, Counts, Driver, OnNonFinite, Transport, pool};

use crate::Error;

const BUCKET: BucketId = BucketId::new(0);

/// What the gradient is replaced by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Op {
    /// The mean over workers, as optimisers expect.
    #[default]
    Mean,
    /// The sum over workers.
    Sum,
}

/// How a [`Reducer`] is made.
#[derive(Clone, Debug)]
pub struct Builder {
    method: String,
    options: Options,
    density: f64,
    op: Op,
    timeout: Duration,
    on_non_finite: OnNonFinite,
    threads: usize,
}

impl Builder {
    /// The target density: the part of the entries that an update should have, 0 to 1. Default 0.01.
    #[must_use]
    pub const fn density(mut self, density: f64) -> Self {
        self.density = density;
        self
    }

    /// Options of the method.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// What the gradient is replaced by. Default: the mean.
    #[must_use]
    pub const fn op(mut self, op: Op) -> Self {
        self.op = op;
        self
    }

    /// How long to wait for a peer. Default: 300 seconds.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What to do when some worker's gradient holds NaN or an infinity. Default: skip the step on all workers.
    #[must_use]
    pub const fn on_non_finite(mut self, policy: OnNonFinite) -> Self {
        self.on_non_finite = policy;
        self
    }

    /// Threads that this worker uses for its local work, its own included; the bits are the same for any number. Default: 1.
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// A reducer of gradients of `len` elements.
    ///
    /// # Errors
    /// When the method is unknown, or an option does not fit the world.
    pub fn build<T: Transport>(self, transport: T, len: u32) -> Result<Reducer<T>, Error> {
        self.build_for(transport, &Layout::flat(len))
    }

    /// A reducer of gradients made of these tensors (some methods look at layers).
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn build_for<T: Transport>(
        self,
        transport: T,
        layout: &Layout,
    ) -> Result<Reducer<T>, Error> {
        if !(0.0..=1.0).contains(&self.density) {
            return Err(ConfigError::BadOption {
                method: self.method,
                option: "density".to_owned(),
                value: self.density.to_string(),
                expected: "a number from 0 to 1".to_owned(),
            }
            .into());
        }
        let algorithm = registry::build(&self.method, &self.options)?;
        let collective = algorithm.collective(transport.world(), layout)?;
        let driver = Driver::new(transport, vec![collective])?
            .with_threads(&pool(self.threads)?)
            .with_timeout(self.timeout)
            .with_on_non_finite(self.on_non_finite);
        Ok(Reducer {
            driver,
            density: self.density,
            op: self.op,
            step: 0,
        })
    }
}

/// One worker's side of a repeated all-reduce.
#[derive(Debug)]
pub struct Reducer<T> {
    driver: Driver<T>,
    density: f64,
    op: Op,
    step: u64,
}

impl Reducer<()> {
    /// Starts to make a reducer that uses this method of the [`registry`](crate::registry).
    pub fn builder(method: &str) -> Builder {
        Builder {
            method: method.to_owned(),
            options: Options::default(),
            density: 0.01,
            op: Op::default(),
            timeout: spardl_drive::driver::DEFAULT_TIMEOUT,
            on_non_finite: OnNonFinite::default(),
            threads: 1,
        }
    }
}

impl<T: Transport> Reducer<T> {
    /// Replaces the gradient by the update of all workers; what is not delivered stays in the residual.
    ///
    /// A step that is skipped (see [`Report::outcome`]) leaves zeros and keeps the residual as it was.
    ///
    /// # Errors
    /// When a peer is lost or late, or the gradient has the wrong length. The gradient and the residual are then as before.
    pub fn all_reduce(&mut self, gradient: &mut [f32]) -> Result<Report, Error> {
        let k = (self.density * gradient.len() as f64) as usize;
        let input = Input::new(&*gradient, k, self.step);
        let report = self.driver.all_reduce(&[input])?;
        self.step += 1;
        let workers = self.driver.world().size();
        let scale = match self.op {
            Op::Mean => 1.0 / workers as f32,
            Op::Sum => 1.0,
        };
        let update = self.driver.update(BUCKET);
        update.write_scaled(scale, gradient);
        Ok(Report {
            outcome: report.buckets[BUCKET.index()].outcome,
            nnz: update.nnz(),
            len: gradient.len(),
            workers,
            counts: report.total(),
            waited: report.waited,
        })
    }

    /// Changes the density from the next step on; all workers must do so at the same step.
    pub const fn set_density(&mut self, density: f64) {
        self.density = density;
    }

    /// What this worker keeps for later.
    pub fn residual(&self) -> &[f32] {
        self.driver.collective(BUCKET).residual()
    }

    /// The number of steps done.
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// Everything that lives on from step to step, to be saved with [`Reducer::step`].
    pub fn state(&self) -> State {
        self.driver.collective(BUCKET).state()
    }

    /// Goes on from a saved state and step.
    ///
    /// # Errors
    /// When the state does not fit.
    pub fn restore(&mut self, state: &State, step: u64) -> Result<(), Error> {
        self.driver.collectives_mut()[BUCKET.index()].restore(state)?;
        self.step = step;
        Ok(())
    }
}

/// What one step did and cost this worker.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// How the step ended, the same on all workers.
    pub outcome: Outcome,
    /// Entries of the update that are not zero.
    pub nnz: usize,
    /// Elements of the gradient.
    pub len: usize,
    /// Workers that took part.
    pub workers: u32,
    /// Rounds, messages, bytes and times.
    pub counts: Counts,
    /// Time spent waiting for messages.
    pub waited: Duration,
}

impl Report {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_workers;

    #[test]
    fn a_bad_request_is_refused_with_what_is_accepted() {
        let errors = run_workers(2, |transport| {
            let density = Reducer::builder("spardl").density(1.5).build(transport, 10);
            density
                .err()
                .map(|error| (error.is_config(), error.to_string()))
        });
        for error in errors.unwrap() {
            let (is_config, text) = error.expect("refused");
            assert!(is_config && text.contains("from 0 to 1"), "{text}");
        }
    }

    #[test]
    fn a_saved_state_goes_on_bit_for_bit() {
        let gradient = |rank: u32, step: u64| -> Vec<f32> {
            (0..500)
                .map(|i| ((i * 31 + u64::from(rank) * 7 + step * 3) % 97) as f32 - 48.0)
                .collect()
        };
        let run = |break_at: Option<u64>| {
            run_workers(3, |mut transport| {
                let rank = transport.world().rank().get();
                let mut last = Vec::new();
                let mut saved = None;
                for half in [0..break_at.unwrap_or(6), break_at.unwrap_or(6)..6] {
                    let builder = Reducer::builder("spardl").density(0.05);
                    let mut reducer = builder.build(&mut transport, 500).expect("a valid one");
                    if let Some((state, step)) = &saved {
                        reducer.restore(state, *step).expect("its own state");
                    }
                    for step in half {
                        last = gradient(rank, step);
                        reducer
                            .all_reduce(&mut last)
                            .expect("all workers take part");
                    }
                    saved = Some((reducer.state(), reducer.step()));
                }
                (last, saved.map(|(state, _)| state))
            })
            .unwrap()
        };
        assert_eq!(run(None), run(Some(2)));
    }
}
