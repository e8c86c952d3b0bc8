//! A repeated all-reduce of one gradient, as one bucket or several: the paved path.

mod restore;
mod watch;

use std::ops::Range;
use std::sync::Arc;

use spardl_core::{
    Algorithm, ConfigError, Density, Gradient, Input, Layout, Outcome, Parallel, Update, World,
};
use spardl_drive::{BucketId, DriveError, Driver, Transport};

use crate::builder::{Builder, Op};
use crate::tune::{Tuner, Tuning};
use crate::{Error, Report};

pub use restore::Restored;
pub(crate) use watch::Watch;

/// One worker's side of a repeated all-reduce.
///
/// [`Reducer::all_reduce`] does a whole step. To overlap it with a backward pass, [`Reducer::begin`] each bucket as soon as its
/// gradient is there (in the same order on all workers), then [`Reducer::wait`], read the updates, and [`Reducer::commit`] or
/// [`Reducer::discard`] the step.
#[derive(Debug)]
pub struct Reducer<T> {
    driver: Driver<T>,
    algorithm: Arc<dyn Algorithm>,
    threads: Arc<dyn Parallel>,
    layouts: Vec<Layout>,
    density: Density,
    op: Op,
    /// The length of the warm-up, and whether it lasts.
    dense_steps: u64,
    warming_up: bool,
    stage: Stage,
    step: u64,
    /// Per bucket, what was restored and the method has no residual for: it goes out with the next step. Empty: nothing waits.
    waiting: Vec<Vec<f32>>,
    /// The buckets that have an update in the current step.
    updated: Vec<usize>,
    /// When the method was chosen here: what is expected of it.
    watch: Option<Watch>,
}

/// Where the current step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Between steps.
    Idle,
    /// Buckets were begun.
    Begun,
    /// All are done; what becomes of the step is not decided.
    Undecided,
    /// All are done, and none of them is kept.
    Dropped,
}

impl Reducer<()> {
    /// Starts to make a reducer that uses this method of the [`registry`](crate::registry), or with `auto` the one that is fastest
    /// here: see [`Builder::tuner`].
    pub fn builder(method: &str) -> Builder {
        Builder::named(method)
    }

    /// Starts to make a reducer that uses what the tuner chose between these workers before, and chooses again as one that is made
    /// with `auto` does.
    pub fn with_choice(tuner: Tuner, tuning: Tuning) -> Builder {
        Builder::chosen(tuner, tuning)
    }

    /// Starts to make a reducer that uses this algorithm.
    pub fn with_algorithm(algorithm: impl Into<Arc<dyn Algorithm>>) -> Builder {
        Builder::own(algorithm.into())
    }
}

impl<T: Transport> Reducer<T> {
    pub(crate) fn new(
        driver: Driver<T>,
        algorithm: Arc<dyn Algorithm>,
        threads: Arc<dyn Parallel>,
        layouts: Vec<Layout>,
        density: Density,
        op: Op,
        dense_steps: u64,
    ) -> Self {
        Self {
            driver,
            algorithm,
            threads,
            waiting: vec![Vec::new(); layouts.len()],
            updated: Vec::new(),
            layouts,
            density,
            op,
            dense_steps,
            warming_up: dense_steps > 0,
            stage: Stage::Idle,
            step: 0,
            watch: None,
        }
    }

    /// The same, with its choice watched.
    pub(crate) fn watched(self, watch: Option<Watch>) -> Self {
        Self { watch, ..self }
    }

    /// Replaces the gradient (all buckets, one after the other) by the update of all workers; what is not delivered stays in
    /// the residual.
    ///
    /// A step that is skipped (see [`Report::outcome`]) leaves zeros and keeps the residual as it was.
    ///
    /// # Errors
    /// When a peer is lost or late, or the gradient has the wrong length. The gradient and the residual are then as before.
    pub fn all_reduce(&mut self, gradient: &mut [f32]) -> Result<Report, Error> {
        if gradient.len() != self.len() {
            return Err(ConfigError::GradientLength {
                expected: self.len(),
                got: gradient.len(),
            }
            .into());
        }
        for bucket in 0..self.buckets() {
            self.begin(bucket, &gradient[self.range(bucket)])?;
        }
        let report = self.wait()?;
        self.commit()?;
        for bucket in 0..self.buckets() {
            self.write_update(bucket, &mut gradient[self.range(bucket)]);
        }
        Ok(report)
    }

    /// Starts the step of a bucket and moves on those that are in flight, without waiting. The gradient is read here and not
    /// needed any more: a slice of f32, or a [`Gradient`] of several slices, of other types, with a scale.
    ///
    /// All workers must begin their buckets in the same order.
    ///
    /// # Errors
    /// When the call does not fit (nothing changes), or the step failed (everything is as before it).
    pub fn begin<'g>(
        &mut self,
        bucket: usize,
        gradient: impl Into<Gradient<'g>>,
    ) -> Result<(), Error> {
        self.begin_with(bucket, gradient, true)
    }

    /// As [`Reducer::begin`], with the caller's word on whether the gradient is good: when it is not `finite` on some worker,
    /// the bucket is skipped on all of them, as if it held NaN.
    ///
    /// # Errors
    /// As [`Reducer::begin`].
    pub fn begin_with<'g>(
        &mut self,
        bucket: usize,
        gradient: impl Into<Gradient<'g>>,
        finite: bool,
    ) -> Result<(), Error> {
        if bucket >= self.buckets() {
            return Err(ConfigError::NoSuchBucket {
                bucket,
                buckets: self.buckets(),
            }
            .into());
        }
        match self.stage {
            Stage::Idle if self.warming_up && self.step >= self.dense_steps => {
                self.end_warm_up()?
            }
            Stage::Idle => {
                self.look_at_times()?;
            }
            Stage::Begun => {}
            Stage::Undecided | Stage::Dropped => return Err(self.out_of_turn("begin")),
        }
        if let Some(watch) = self.watch.as_mut().filter(|_| self.stage == Stage::Idle) {
            watch.expect(&self.layouts, self.density);
        }
        let (gradient, waiting) = (gradient.into(), &self.waiting[bucket]);
        let with_waiting: Vec<f32> = match waiting.len() == gradient.len() {
            true => (0..)
                .zip(waiting)
                .map(|(i, w)| gradient.get(i) + w)
                .collect(),
            false => Vec::new(),
        };
        let gradient = match with_waiting.is_empty() {
            true => gradient,
            false => with_waiting.as_slice().into(),
        };
        let k = self.density.entries(gradient.len());
        let input = Input::new(gradient, k, self.step).finite(finite);
        self.stage = Stage::Begun;
        let begun = self.driver.begin(id(bucket), input);
        self.or_idle(begun)
    }

    /// Waits until all buckets that were begun are done; the others take no part in the step. The updates can be read then; [`Reducer::commit`] or [`Reducer::discard`] has to follow
    /// before the next step.
    ///
    /// # Errors
    /// When no bucket was begun (nothing changes); when a peer is lost or late; when a gradient is not finite and
    /// [`OnNonFinite::Raise`](crate::OnNonFinite::Raise) was asked for. Everything is then as before the step.
    pub fn wait(&mut self) -> Result<Report, Error> {
        if self.stage != Stage::Begun && self.buckets() > 0 {
            return Err(self.out_of_turn("wait"));
        }
        let finished = self.driver.finish();
        let report = self.or_idle(finished)?;
        let judged = self.driver.judge(&report);
        self.stage = match self.or_idle(judged)? {
            true => Stage::Undecided,
            false => Stage::Dropped,
        };
        self.step += 1;
        let updated = report.buckets.iter();
        let updated = updated.filter(|bucket| bucket.outcome == Outcome::Updated);
        self.updated = updated.map(|bucket| bucket.bucket.index()).collect();
        let done = report.buckets.iter().map(|done| done.bucket);
        let nnz = done.clone().map(|bucket| self.driver.update(bucket).nnz());
        let len = done.map(|bucket| self.layouts[bucket.index()].len() as usize);
        let (nnz, len) = (nnz.sum(), len.sum());
        let report = Report::new(report, nnz, len, self.world().size());
        if let Some(watch) = self.watch.as_mut().filter(|_| !self.warming_up) {
            watch.note(&report);
        }
        Ok(report)
    }

    /// Keeps the step that was waited for: what was not delivered is the new residual. A bucket that was skipped keeps the
    /// residual it had.
    ///
    /// # Errors
    /// When no step was waited for; nothing changes.
    pub fn commit(&mut self) -> Result<(), Error> {
        match self.stage {
            Stage::Undecided => {
                self.driver.commit()?;
                for bucket in self.updated.drain(..) {
                    self.waiting[bucket] = Vec::new();
                }
            }
            Stage::Dropped => {}
            Stage::Idle | Stage::Begun => return Err(self.out_of_turn("commit")),
        }
        self.stage = Stage::Idle;
        Ok(())
    }

    /// Drops the current step at any point: residuals are as before it and the updates are empty.
    ///
    /// All workers must discard the same steps, after [`Reducer::wait`]; the peers of a step that is not finished fail in it.
    pub fn discard(&mut self) {
        self.driver.abort();
        self.stage = Stage::Idle;
    }

    /// The sum over workers that a step delivered to a bucket, from [`Reducer::wait`] until the next step begins; empty when
    /// the bucket was skipped or the step discarded.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn update(&self, bucket: usize) -> Update<'_> {
        self.driver.update(id(bucket))
    }

    /// Writes what [`Op`] asks for over `out`: the update of a bucket, as the mean or as the sum over workers, zeros included.
    ///
    /// # Panics
    /// When there is no such bucket, or `out` does not have its length.
    pub fn write_update(&self, bucket: usize, out: &mut [f32]) {
        let scale = match self.op {
            Op::Mean => 1.0 / self.world().size() as f32,
            Op::Sum => 1.0,
        };
        self.update(bucket).write_scaled(scale, out);
    }

    /// Changes the density from the next bucket on that is begun; all workers must do so at the same place.
    ///
    /// # Errors
    /// When it is not a number from 0 to 1; nothing changes.
    pub fn set_density(&mut self, density: f64) -> Result<(), Error> {
        self.density = Density::new(density)?;
        Ok(())
    }

    /// The density asked for.
    pub const fn density(&self) -> Density {
        self.density
    }

    /// What this worker keeps of a bucket for later; empty for methods that keep nothing.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn residual(&self, bucket: usize) -> &[f32] {
        self.driver.collective(id(bucket)).residual()
    }

    /// Are whole gradients reduced, because of [`Builder::dense_steps`]?
    pub const fn is_warming_up(&self) -> bool {
        self.warming_up
    }

    /// Ends the warm-up: from the next step on the method is used, with an empty residual. All workers must do so at the same
    /// step.
    ///
    /// # Errors
    /// When a step is not finished or not decided; nothing changes.
    pub fn end_warm_up(&mut self) -> Result<(), Error> {
        if !self.warming_up {
            return Ok(());
        }
        self.between_steps("end_warm_up")?;
        self.driver.change_method(&*self.algorithm, &self.layouts)?;
        for collective in self.driver.collectives_mut() {
            collective.set_threads(Arc::clone(&self.threads));
        }
        self.warming_up = false;
        Ok(())
    }

    /// The method, which the warm-up only delays.
    pub fn method(&self) -> &dyn Algorithm {
        &*self.algorithm
    }

    /// Steps done, those of the warm-up and those that were skipped or discarded included: what methods take turns by.
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// The number of buckets.
    pub const fn buckets(&self) -> usize {
        self.layouts.len()
    }

    /// The tensors of the buckets.
    pub fn layouts(&self) -> &[Layout] {
        &self.layouts
    }

    /// Where a bucket is in the gradient.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn range(&self, bucket: usize) -> Range<usize> {
        let before = self.layouts[..bucket].iter();
        let start = before.map(|layout| layout.len() as usize).sum();
        start..start + self.layouts[bucket].len() as usize
    }

    /// Elements of the gradient.
    pub fn len(&self) -> usize {
        let lengths = self.layouts.iter().map(|layout| layout.len() as usize);
        lengths.sum()
    }

    /// Has the gradient no elements?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// This worker and its world.
    pub fn world(&self) -> World {
        self.driver.world()
    }

    /// What all workers say, in rank order, between steps. All of them must call it.
    ///
    /// # Errors
    /// When buckets are in flight (nothing changes), or a peer is lost or late.
    pub fn gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        Ok(self.driver.gather(mine)?)
    }

    /// Waits until all workers are here, between steps. All of them must call it.
    ///
    /// # Errors
    /// As [`Reducer::gather`].
    pub fn barrier(&mut self) -> Result<(), Error> {
        Ok(self.driver.barrier()?)
    }

    fn between_steps(&self, call: &'static str) -> Result<(), Error> {
        match self.stage {
            Stage::Idle => Ok(()),
            _ => Err(self.out_of_turn(call)),
        }
    }

    fn out_of_turn(&self, call: &'static str) -> Error {
        let state = match self.stage {
            Stage::Idle => "between steps",
            Stage::Begun => "in the middle of a step",
            Stage::Undecided | Stage::Dropped => "finished and neither committed nor discarded",
        };
        ConfigError::OutOfTurn { call, state }.into()
    }

    /// After an error that made the driver give the step up, the reducer is between steps.
    fn or_idle<R>(&mut self, result: Result<R, DriveError>) -> Result<R, Error> {
        if result.is_err() && self.driver.is_idle() {
            self.stage = Stage::Idle;
        }
        Ok(result?)
    }
}

fn id(bucket: usize) -> BucketId {
    BucketId::new(bucket as u32)
}
