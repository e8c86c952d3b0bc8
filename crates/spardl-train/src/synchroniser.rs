//! Buckets of one worker's gradient, reduced with all others: dense during the warm-up, with the method after it.

use std::time::{Duration, Instant};

use spardl_core::{Algorithm, Input, Outcome, SkipReason, State, Update, World};
use spardl_drive::{BucketId, Counts, DriveError, Driver, Transport};

use crate::buckets::Bucket;

/// What is reduced with what, until when.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The method.
    pub method: &'a dyn Algorithm,
    /// The method of the warm-up.
    pub dense: &'a dyn Algorithm,
    /// The pieces of the gradient.
    pub buckets: Vec<Bucket>,
    /// The longest wait for a peer.
    pub timeout: Duration,
}

/// One worker's side of the reduction.
#[derive(Debug)]
pub struct Synchroniser<'a, T> {
    plan: Plan<'a>,
    /// Only empty while the transport moves from one driver to the next.
    driver: Option<Driver<T>>,
    warming_up: bool,
    /// Steps done, those of the warm-up included: what methods take turns by.
    steps: u64,
}

/// What one step did and cost.
#[derive(Clone, Copy, Debug)]
pub struct Reduced {
    /// Why the step was dropped on all workers, if it was.
    pub skipped: Option<SkipReason>,
    /// Was this worker's gradient a reason for that?
    pub at_fault: bool,
    /// Entries of the update that are not zero.
    pub nnz: usize,
    /// Rounds, messages, bytes and times.
    pub counts: Counts,
    /// Time spent waiting for messages.
    pub waited: Duration,
    /// Time from gradient to mean update.
    pub total: Duration,
}

impl<'a, T: Transport> Synchroniser<'a, T> {
    /// A synchroniser that warms up first, or not.
    ///
    /// # Errors
    /// When the method refuses the world.
    pub fn new(plan: Plan<'a>, transport: T, warming_up: bool) -> Result<Self, DriveError> {
        let method = if warming_up { plan.dense } else { plan.method };
        let driver = drive(transport, method, &plan)?;
        Ok(Self {
            plan,
            driver: Some(driver),
            warming_up,
            steps: 0,
        })
    }

    /// This worker and its world.
    pub fn world(&self) -> World {
        self.driver().world()
    }

    /// Is the gradient still reduced whole?
    pub const fn is_warming_up(&self) -> bool {
        self.warming_up
    }

    /// Steps done, those of the warm-up included.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Ends the warm-up: from the next step on the method is used, with an empty residual.
    ///
    /// # Errors
    /// When the method refuses the world.
    pub fn end_warmup(&mut self) -> Result<(), DriveError> {
        if let Some(driver) = self.driver.take() {
            let (transport, _) = driver.into_parts();
            self.driver = Some(drive(transport, self.plan.method, &self.plan)?);
        }
        self.warming_up = false;
        Ok(())
    }

    /// What the next reduction starts from: the gradient plus what waits in the residual.
    pub fn accumulate(&self, gradient: &[f32], sum: &mut Vec<f32>) {
        sum.clear();
        sum.extend_from_slice(gradient);
        for (bucket, collective) in self.plan.buckets.iter().zip(self.driver().collectives()) {
            let place = sum[bucket.range.clone()].iter_mut();
            place
                .zip(collective.residual())
                .for_each(|(sum, waits)| *sum += waits);
        }
    }

    /// Replaces the gradient by the mean update of all workers; `delivered` is told, for each bucket, where it begins, what was
    /// delivered and what stays.
    ///
    /// A gradient that is not finite on some worker drops the step on all of them: the gradient is then zero everywhere.
    ///
    /// # Errors
    /// When a peer is lost or late.
    pub fn reduce(
        &mut self,
        gradient: &mut [f32],
        density: f64,
        mut delivered: impl FnMut(usize, Update<'_>, &[f32]),
    ) -> Result<Reduced, DriveError> {
        let since = Instant::now();
        let step = self.steps;
        let Self { plan, driver, .. } = self;
        let driver = driver.as_mut().expect("only empty within end_warmup");
        let inputs: Vec<Input<'_>> = plan
            .buckets
            .iter()
            .map(|bucket| {
                let k = entries(density, bucket.range.len());
                Input::new(&gradient[bucket.range.clone()], k, step)
            })
            .collect();
        let report = driver.step(&inputs)?;
        let skipped = match report.first_skipped() {
            Some((_, Outcome::Skipped(reason))) => Some(reason),
            _ => None,
        };
        match skipped {
            None => driver.commit()?,
            Some(_) => driver.abort(),
        }
        // Looked at only then: the pass of the method has found it already on the way.
        let at_fault = skipped.is_some() && gradient.iter().any(|value| !value.is_finite());
        let scale = 1.0 / driver.world().size() as f32;
        let mut nnz = 0;
        for (i, bucket) in plan.buckets.iter().enumerate() {
            let update = driver.update(BucketId::new(i as u32));
            nnz += update.nnz();
            update.write_scaled(scale, &mut gradient[bucket.range.clone()]);
            let residual = driver.collectives()[i].residual();
            delivered(bucket.range.start, update, residual);
        }
        self.steps += 1;
        Ok(Reduced {
            skipped,
            at_fault,
            nnz,
            counts: report.total(),
            waited: report.waited,
            total: since.elapsed(),
        })
    }

    /// What all workers say, in rank order.
    ///
    /// # Errors
    /// When a peer is lost or late.
    pub fn gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, DriveError> {
        let driver = self.driver.as_mut().expect("only empty within end_warmup");
        driver.gather(mine)
    }

    /// The state of each bucket with where the bucket is, to be saved with [`Synchroniser::steps`].
    pub fn states(&self) -> Vec<(Bucket, State)> {
        let states = self.driver().collectives().iter().map(|c| c.state());
        self.plan.buckets.iter().cloned().zip(states).collect()
    }

    /// The pieces of the gradient.
    pub fn buckets(&self) -> &[Bucket] {
        &self.plan.buckets
    }

    /// Goes on from saved states, one per bucket.
    ///
    /// # Errors
    /// When a state does not fit its bucket.
    pub fn restore(&mut self, states: &[State], steps: u64) -> Result<(), DriveError> {
        let driver = self.driver.as_mut().expect("only empty within end_warmup");
        let collectives = driver.collectives_mut().iter_mut();
        for (i, (collective, state)) in collectives.zip(states).enumerate() {
            let bucket = BucketId::new(i as u32);
            collective
                .restore(state)
                .map_err(|source| DriveError::Config { bucket, source })?;
        }
        self.steps = steps;
        Ok(())
    }

    fn driver(&self) -> &Driver<T> {
        self.driver.as_ref().expect("only empty within end_warmup")
    }
}

fn drive<T: Transport>(
    transport: T,
    method: &dyn Algorithm,
    plan: &Plan<'_>,
) -> Result<Driver<T>, DriveError> {
    let layouts: Vec<_> = plan.buckets.iter().map(|b| b.layout.clone()).collect();
    Ok(Driver::for_layouts(transport, method, &layouts)?.with_timeout(plan.timeout))
}

/// The entries that an update of a bucket should have: at least one, so that no bucket starves.
fn entries(density: f64, len: usize) -> usize {
    ((density * len as f64) as usize).clamp(len.min(1), len)
}
