//! Many buckets over one transport: every bucket's rounds are kept in flight until all are done.
//!
//! ```
//! # use spardl_core::{Algorithm, ConfigError, Input, Layout};
//! # use spardl_drive::{DriveError, Driver, run_workers};
//! # fn train(algorithm: &dyn Algorithm) -> Result<(), Box<dyn std::error::Error>> {
//! let sums = run_workers(4, |transport| {
//!     let mut driver = Driver::for_layouts(transport, algorithm, &[Layout::flat(3)])?;
//!     let gradient = [1.0, 2.0, 3.0];
//!     driver.all_reduce(&[Input::new(&gradient, 1, 0)])?;
//!     Ok::<_, DriveError>(driver.updates().map(|update| update.nnz()).sum::<usize>())
//! })?;
//! # Ok(()) }
//! ```

mod flight;

use std::sync::Arc;
use std::time::Duration;

use spardl_core::{Algorithm, Collective, Input, Layout, Outcome, Parallel, Update, World};

use crate::error::DriveError;
use crate::gather::{barrier, gather};
use crate::report::StepReport;
use crate::run::{Run, Stage};
use crate::time::{Clock, Deadline};
use crate::transport::{BucketId, Transport};

/// How long a round may be in flight unless [`Driver::with_timeout`] says otherwise: long enough for a peer that writes a
/// checkpoint, short enough to be noticed.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// What [`Driver::all_reduce`] does when a bucket is skipped because of NaN, an infinity or an overflow.
///
/// A bucket's outcome is the same on all workers, so each of these ends the same way everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnNonFinite {
    /// The skipped bucket keeps the state it had and its update is empty; the others are committed.
    #[default]
    SkipBucket,
    /// No bucket is committed and all updates are empty, as when a loss scaler skips the optimiser's step.
    SkipStep,
    /// No bucket is committed and the call fails with [`DriveError::NonFinite`].
    Raise,
}

/// Owns the collectives of one worker and moves their rounds over its transport.
///
/// [`Driver::all_reduce`] does all of a step. Trainers that want to decide about the commit use [`Driver::step`], then
/// [`Driver::commit`] or [`Driver::abort`]; those that start buckets while others are still being computed call
/// [`Driver::begin`] for each and then [`Driver::finish`]. Time is that of [`Transport::clock`].
///
/// After an error of the transport or a peer, all buckets are as before the step and the transport has moved on, so that the
/// next step starts clean (see [`transport`](crate::transport)).
#[derive(Debug)]
pub struct Driver<T> {
    transport: T,
    clock: Arc<dyn Clock>,
    collectives: Vec<Collective>,
    runs: Vec<Run>,
    waited: Duration,
    timeout: Duration,
    on_non_finite: OnNonFinite,
}

impl<T: Transport> Driver<T> {
    /// A driver of these collectives; bucket `i` is `collectives[i]`, on all workers.
    ///
    /// # Errors
    /// When a collective was made for another rank or world size than the transport's.
    pub fn new(transport: T, mut collectives: Vec<Collective>) -> Result<Self, DriveError> {
        number(transport.world(), &mut collectives)?;
        Ok(Self {
            clock: transport.clock(),
            transport,
            runs: vec![Run::default(); collectives.len()],
            collectives,
            waited: Duration::ZERO,
            timeout: DEFAULT_TIMEOUT,
            on_non_finite: OnNonFinite::default(),
        })
    }

    /// A driver with one bucket per layout, all with the same method.
    ///
    /// # Errors
    /// When the method refuses the world or a layout.
    pub fn for_layouts(
        transport: T,
        algorithm: &dyn Algorithm,
        layouts: &[Layout],
    ) -> Result<Self, DriveError> {
        let collectives = collectives_for(transport.world(), algorithm, layouts)?;
        Self::new(transport, collectives)
    }

    /// Goes on with another method for the same layouts, from the next step on; the current step is aborted.
    ///
    /// # Errors
    /// When the method refuses the world or a layout; nothing changes.
    pub fn change_method(
        &mut self,
        algorithm: &dyn Algorithm,
        layouts: &[Layout],
    ) -> Result<(), DriveError> {
        let world = self.transport.world();
        let mut collectives = collectives_for(world, algorithm, layouts)?;
        number(world, &mut collectives)?;
        self.abort();
        self.runs = vec![Run::default(); collectives.len()];
        self.collectives = collectives;
        Ok(())
    }

    /// Lets a step fail when a round is not complete `timeout` after it was submitted.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long a round may be in flight.
    pub const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Lets the worker use these threads, for one bucket after the other.
    #[must_use]
    pub fn with_threads(mut self, threads: &Arc<dyn Parallel>) -> Self {
        for collective in &mut self.collectives {
            collective.set_threads(Arc::clone(threads));
        }
        self
    }

    /// What [`Driver::all_reduce`] does about NaN and infinities.
    #[must_use]
    pub const fn with_on_non_finite(mut self, policy: OnNonFinite) -> Self {
        self.on_non_finite = policy;
        self
    }

    /// One whole step: exchanges all buckets, then commits those with an update and drops the skipped ones, as
    /// [`OnNonFinite`] says.
    ///
    /// # Errors
    /// When the step failed; all buckets are as before it.
    pub fn all_reduce(&mut self, inputs: &[Input<'_>]) -> Result<StepReport, DriveError> {
        let report = self.step(inputs)?;
        if self.judge(&report)? {
            self.commit()?;
        }
        Ok(report)
    }

    /// Does what [`OnNonFinite`] says about a finished step: `true` when it may be committed, `false` when all of it was
    /// dropped.
    ///
    /// # Errors
    /// When a bucket was skipped and the policy is [`OnNonFinite::Raise`]; all buckets are as before the step.
    pub fn judge(&mut self, report: &StepReport) -> Result<bool, DriveError> {
        let Some((bucket, Outcome::Skipped(reason))) = report.first_skipped() else {
            return Ok(true);
        };
        if self.on_non_finite == OnNonFinite::SkipBucket {
            return Ok(true);
        }
        self.abort();
        match self.on_non_finite {
            OnNonFinite::Raise => Err(DriveError::NonFinite { bucket, reason }),
            _ => Ok(false),
        }
    }

    /// Exchanges all buckets without committing: the updates can be read, then call [`Driver::commit`] or
    /// [`Driver::abort`].
    ///
    /// # Errors
    /// When the step failed; all buckets are as before it.
    pub fn step(&mut self, inputs: &[Input<'_>]) -> Result<StepReport, DriveError> {
        if inputs.len() != self.collectives.len() {
            return Err(DriveError::InputCount {
                expected: self.collectives.len(),
                got: inputs.len(),
            });
        }
        for (bucket, input) in buckets().zip(inputs) {
            self.begin(bucket, *input)?;
        }
        self.finish()
    }

    /// Starts the step of one bucket and moves on those that are in flight, without waiting.
    ///
    /// # Errors
    /// When the bucket's last step was neither committed nor aborted (nothing changes), or when the step failed (all buckets
    /// are as before it).
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn begin(&mut self, bucket: BucketId, input: Input<'_>) -> Result<(), DriveError> {
        let stage = self.runs[bucket.index()].stage;
        if !matches!(stage, Stage::Idle) {
            return Err(stage.out_of_turn(bucket, "begin"));
        }
        let started = self.start(bucket, input).and_then(|()| self.progress());
        self.give_up_on_error(started)
    }

    /// Moves on the buckets in flight, without waiting. True: all that were begun are done, so that [`Driver::finish`]
    /// returns at once.
    ///
    /// # Errors
    /// When the step failed, also because a round is beyond its deadline; all buckets are as before it.
    pub fn poll(&mut self) -> Result<bool, DriveError> {
        let moved = self.progress().and_then(|()| self.check_deadline());
        self.give_up_on_error(moved)?;
        Ok(self.oldest_in_flight().is_none())
    }

    /// Waits until all buckets that were begun are done. The others take no part in the step.
    ///
    /// # Errors
    /// When the step failed; all buckets are as before it.
    pub fn finish(&mut self) -> Result<StepReport, DriveError> {
        let finished = self.wait_for_all();
        self.give_up_on_error(finished)?;
        self.transport.complete_step();
        Ok(self.report())
    }

    /// Commits the finished buckets that have an update; skipped ones keep the state they had.
    ///
    /// # Errors
    /// When the step is not finished; nothing changes.
    pub fn commit(&mut self) -> Result<(), DriveError> {
        self.check_none_in_flight("commit")?;
        let done = |run: &Run| matches!(run.stage, Stage::Done(_));
        if !self.runs.is_empty() && !self.runs.iter().any(done) {
            return Err(Stage::Idle.out_of_turn(BucketId::new(0), "commit"));
        }
        for ((bucket, run), collective) in buckets().zip(&mut self.runs).zip(&mut self.collectives)
        {
            match run.stage {
                Stage::Done(Outcome::Updated) => collective
                    .commit()
                    .map_err(|source| DriveError::Config { bucket, source })?,
                _ => collective.abort(),
            }
            run.stage = Stage::Idle;
        }
        Ok(())
    }

    /// Drops the current step at any point: all buckets are as before it. The peers of an unfinished step fail in it.
    pub fn abort(&mut self) {
        let unfinished = |run: &Run| matches!(run.stage, Stage::InFlight { .. });
        if self.runs.iter().any(unfinished) {
            self.transport.abandon();
        }
        self.reset();
    }

    /// When the step fails unless a round is completed before; `None` when nothing is in flight.
    pub fn deadline(&self) -> Option<Deadline> {
        let oldest = self.oldest_in_flight()?;
        Some(Deadline::after(oldest, self.timeout))
    }

    /// The update of a bucket, after its step is finished and until the next one; empty when it was skipped or aborted.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn update(&self, bucket: BucketId) -> Update<'_> {
        self.collectives[bucket.index()].update()
    }

    /// The updates of all buckets.
    pub fn updates(&self) -> impl Iterator<Item = Update<'_>> {
        self.collectives.iter().map(Collective::update)
    }

    /// The collective of a bucket.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub fn collective(&self, bucket: BucketId) -> &Collective {
        &self.collectives[bucket.index()]
    }

    /// The collectives of all buckets.
    pub fn collectives(&self) -> &[Collective] {
        &self.collectives
    }

    /// The collectives of all buckets, e.g. to restore their state between steps.
    pub fn collectives_mut(&mut self) -> &mut [Collective] {
        &mut self.collectives
    }

    /// Is no bucket in a step?
    pub fn is_idle(&self) -> bool {
        self.runs.iter().all(|run| matches!(run.stage, Stage::Idle))
    }

    /// This worker and the size of its world.
    pub fn world(&self) -> World {
        self.transport.world()
    }

    /// The transport, e.g. for exchanges of one's own between steps.
    pub const fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// What all workers say, in rank order, between steps: see [`gather`](crate::gather()).
    ///
    /// # Errors
    /// When a bucket is in the middle of a step (nothing changes), or a peer is lost or late.
    pub fn gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, DriveError> {
        self.check_none_in_flight("gather")?;
        Ok(gather(&mut self.transport, mine, self.timeout)?)
    }

    /// Waits until all workers are here, between steps: see [`barrier`](crate::barrier()).
    ///
    /// # Errors
    /// As [`Driver::gather`].
    pub fn barrier(&mut self) -> Result<(), DriveError> {
        self.check_none_in_flight("barrier")?;
        Ok(barrier(&mut self.transport, self.timeout)?)
    }

    /// The transport and the collectives, with the current step aborted.
    pub fn into_parts(mut self) -> (T, Vec<Collective>) {
        self.abort();
        (self.transport, self.collectives)
    }
}

/// Tells each collective which bucket it is.
fn number(expected: World, collectives: &mut [Collective]) -> Result<(), DriveError> {
    for (bucket, collective) in buckets().zip(collectives) {
        collective.set_bucket(bucket.get());
        let got = collective.world();
        if got != expected {
            return Err(DriveError::WorldMismatch {
                bucket,
                expected,
                got,
            });
        }
    }
    Ok(())
}

fn collectives_for(
    world: World,
    algorithm: &dyn Algorithm,
    layouts: &[Layout],
) -> Result<Vec<Collective>, DriveError> {
    let make = |(bucket, layout)| {
        let collective = algorithm.collective(world, layout);
        collective.map_err(|source| DriveError::Config { bucket, source })
    };
    buckets().zip(layouts).map(make).collect()
}

fn buckets() -> impl Iterator<Item = BucketId> {
    (0..).map(BucketId::new)
}
