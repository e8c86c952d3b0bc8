//! What learns: one worker's replica of the model with its optimiser, and the reduction that keeps all replicas the same.

mod load;
mod save;

use std::time::{Duration, Instant};

use spardl::tune::Tuning;
use spardl::{
    Algorithm, DensityControl, Error, Looked, OnNonFinite, Outcome, Reducer, Report, Transport,
    Update, World,
};

use crate::buckets;
use crate::data::Prepared;
use crate::optimiser::{Optimiser, Pace};
use crate::{Model, Run, Score, TrainError};

/// An element whose residual is at most this part of what it was counts as delivered, whatever the value type.
const DELIVERED: f32 = 1.0 / 64.0;
/// How often a value may be quantised on its way, in the sense that most errors stay below so many of the largest.
const HOPS: f32 = 4.0;

/// One worker's replica, its optimiser and its side of the reduction.
pub(crate) struct Learner<'a, T> {
    model: &'a mut dyn Model,
    optimiser: Optimiser,
    reducer: Reducer<T>,
    /// Which buckets are always reduced whole.
    whole: Vec<bool>,
    parameters: Vec<f32>,
    gradient: Vec<f32>,
    /// With factor masking: residual plus gradient, before the reduction.
    accumulated: Vec<f32>,
    /// May a step be dropped? Then a pass that ends in NaN must not stay in the running statistics.
    may_drop: bool,
}

/// What a step of learning did and cost.
pub(crate) struct Learned {
    /// How this worker did on its batch, before the step.
    pub(crate) score: Score,
    /// The reduction.
    pub(crate) report: Report,
    /// When the step was dropped on all workers: was this one a reason?
    pub(crate) at_fault: bool,
    /// Time of the forward and backward pass.
    pub(crate) compute: Duration,
    /// Time of the optimiser and of handing parameters to the engine.
    pub(crate) apply: Duration,
}

impl Learned {
    /// Was the step dropped on all workers?
    pub(crate) fn is_dropped(&self) -> bool {
        self.report.outcome != Outcome::Updated
    }
}

impl<'a, T: Transport> Learner<'a, T> {
    pub(crate) fn new(
        run: &Run<'_>,
        model: &'a mut dyn Model,
        transport: T,
    ) -> Result<Self, TrainError> {
        let settings = run.settings;
        // The warm-up is counted in epochs: the loop ends it.
        let dense_steps = match settings.dense_epochs > 0.0 {
            true => u64::MAX,
            false => 0,
        };
        let below = settings.dense_below_dims;
        let cut = buckets::cut(model.layout(), settings.bucket_elements, below);
        let whole = cut.iter().map(|bucket| buckets::is_below(bucket, below));
        let whole = whole.collect();
        let reducer = run
            .method
            .reducer()
            .timeout(settings.timeout)
            .threads(settings.threads)
            .on_non_finite(OnNonFinite::SkipStep)
            .dense_steps(dense_steps)
            .build_for(transport, cut)?;
        let len = model.layout().len() as usize;
        let mut parameters = vec![0.0; len];
        model.parameters(&mut parameters);
        Ok(Self {
            optimiser: Optimiser::new(settings.optimiser, model.layout(), below),
            model,
            reducer,
            whole,
            parameters,
            gradient: vec![0.0; len],
            accumulated: Vec::new(),
            may_drop: settings.on_non_finite != OnNonFinite::Raise,
        })
    }

    /// This worker and its world.
    pub(crate) fn world(&self) -> World {
        self.reducer.world()
    }

    /// Is this the worker that speaks for all?
    pub(crate) fn is_first(&self) -> bool {
        self.world().rank().get() == 0
    }

    /// Steps done.
    pub(crate) const fn step(&self) -> u64 {
        self.reducer.step()
    }

    /// The parameters, the same on all workers.
    pub(crate) fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// A hash of the parameters.
    pub(crate) fn hash(&self) -> blake3::Hash {
        blake3::hash(bytemuck::cast_slice(&self.parameters))
    }

    /// The model, for a test.
    pub(crate) fn model(&mut self) -> &mut dyn Model {
        self.model
    }

    /// Is the gradient still reduced whole?
    pub(crate) const fn is_warming_up(&self) -> bool {
        self.reducer.is_warming_up()
    }

    pub(crate) fn end_warm_up(&mut self) -> Result<(), TrainError> {
        Ok(self.reducer.end_warm_up()?)
    }

    /// The method of the next step.
    pub(crate) fn method(&self) -> &dyn Algorithm {
        self.reducer.method()
    }

    /// Before a step: where a tuner chose the method, chooses again when steps no longer take what was expected. Says why when
    /// it is another one then.
    pub(crate) fn look_at_times(&mut self) -> Result<Option<String>, TrainError> {
        let changed = self.reducer.look_at_times()?;
        let tuning = self.reducer.tuning().filter(|_| changed);
        Ok(tuning.map(Tuning::in_words))
    }

    /// What all workers say, in rank order.
    pub(crate) fn gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, TrainError> {
        Ok(self.reducer.gather(mine)?)
    }

    /// Measures what a density will take.
    pub(crate) fn prepare(&mut self, control: &mut DensityControl) -> Result<(), TrainError> {
        Ok(control.learn(&mut self.reducer)?)
    }

    /// After a step that was noted: agrees on the density of the next ones, when that is due.
    pub(crate) fn adjust(
        &mut self,
        control: &mut DensityControl,
    ) -> Result<Option<Looked>, TrainError> {
        Ok(control.adjust(&mut self.reducer)?)
    }

    /// One step: the gradient of a batch, its reduction with all workers, the optimiser.
    pub(crate) fn learn(
        &mut self,
        prepared: &Prepared,
        lr: f32,
        density: f64,
    ) -> Result<Learned, TrainError> {
        let began = Instant::now();
        let buffers = self.may_drop.then(|| self.model.buffers());
        let Prepared { batch, seed, .. } = prepared;
        let score = self.model.gradient(batch, *seed, &mut self.gradient);
        let compute = began.elapsed();
        self.optimiser.prepare(&mut self.gradient, lr);
        let finite = score.loss.is_finite();
        let whole =
            density < 1.0 && self.can_see_whole() && self.optimiser.wants_whole(self.step());
        let (report, at_fault) = match whole {
            true => self.reduce_whole(finite)?,
            false => self.reduce(density, finite)?,
        };
        let applying = Instant::now();
        if report.outcome == Outcome::Updated {
            let density = match !whole && self.held_back() {
                true => density,
                false => 1.0,
            };
            let Self { parameters, .. } = self;
            self.optimiser
                .apply(parameters, &self.gradient, Pace { lr, density });
            self.model.set_parameters(parameters);
        } else if let Some(buffers) = buffers {
            self.model.set_buffers(&buffers);
        }
        Ok(Learned {
            score,
            report,
            at_fault,
            compute,
            apply: applying.elapsed(),
        })
    }

    /// Replaces the gradient by the mean update of all workers, or by zeros when the step is dropped on all of them; and says
    /// whether this worker is a reason for that.
    fn reduce(&mut self, density: f64, finite: bool) -> Result<(Report, bool), Error> {
        if self.optimiser.masks() {
            self.accumulate();
        }
        for bucket in 0..self.reducer.buckets() {
            let range = self.reducer.range(bucket);
            let density = if self.whole[bucket] { 1.0 } else { density };
            self.reducer.set_density(density)?;
            // A loss can be NaN where the gradient is not.
            self.reducer
                .begin_with(bucket, &self.gradient[range], finite)?;
        }
        let report = self.reducer.wait()?;
        self.reducer.commit()?;
        // Looked at only then: the pass of the method has found it already on the way.
        let at_fault = report.outcome != Outcome::Updated
            && !(finite && self.gradient.iter().all(|value| value.is_finite()));
        for bucket in 0..self.reducer.buckets() {
            let range = self.reducer.range(bucket);
            self.reducer.write_update(bucket, &mut self.gradient[range]);
            if self.optimiser.masks() {
                self.mask(bucket);
            }
        }
        Ok((report, at_fault))
    }

    /// Is mass held back that a step of density 1 would not leave behind?
    fn can_see_whole(&self) -> bool {
        let holds = |bucket| !self.reducer.residual(bucket).is_empty();
        self.reducer.method().laws().lossless_when_full && (0..self.reducer.buckets()).any(holds)
    }

    /// Reduces the gradient alone and whole; what waits in the residual waits on.
    fn reduce_whole(&mut self, finite: bool) -> Result<(Report, bool), Error> {
        let mut waiting = self.reducer.save();
        let mut alone = waiting.clone();
        let residuals = alone.buckets.iter_mut().map(|b| &mut b.state.residual);
        residuals.for_each(|residual| residual.fill(0.0));
        self.reducer.restore(&alone)?;
        let reduced = self.reduce(1.0, finite)?;
        for (bucket, saved) in waiting.buckets.iter_mut().enumerate() {
            let left = self.reducer.residual(bucket).iter();
            let both = saved.state.residual.iter_mut().zip(left);
            both.for_each(|(waits, left)| *waits += left);
        }
        waiting.step = self.reducer.step();
        self.reducer.restore(&waiting)?;
        Ok(reduced)
    }

    /// Did the step leave mass that waits for its turn? A dense update gave every element its turn.
    fn held_back(&self) -> bool {
        (0..self.reducer.buckets()).any(|bucket| {
            matches!(self.reducer.update(bucket), Update::Sparse(_))
                && !self.reducer.residual(bucket).is_empty()
        })
    }

    /// What the reduction starts from: the gradient plus what waits in the residual.
    fn accumulate(&mut self) {
        self.accumulated.clone_from(&self.gradient);
        for bucket in 0..self.reducer.buckets() {
            let place = &mut self.accumulated[self.reducer.range(bucket)];
            let waits = self.reducer.residual(bucket);
            place.iter_mut().zip(waits).for_each(|(sum, w)| *sum += w);
        }
    }

    /// Stops the momentum of what was delivered of a bucket.
    fn mask(&mut self, bucket: usize) {
        let offset = self.reducer.range(bucket).start;
        let residual = self.reducer.residual(bucket);
        // Whole gradients hold nothing back: momentum has nothing to be carried away by.
        if residual.is_empty() {
            return;
        }
        let before = &self.accumulated[offset..];
        // The part of an element that may stay when it was delivered.
        let rest = DELIVERED.max(HOPS * self.method().value_type().max_relative_error());
        let delivered = |i: &usize| residual[*i].abs() <= rest * before[*i].abs();
        match self.reducer.update(bucket) {
            Update::Sparse(sparse) => {
                let indices = sparse.iter().map(|(index, _)| index as usize);
                self.optimiser.mask(offset, indices.filter(delivered));
            }
            Update::Dense(dense) => {
                let indices = (0..dense.len()).filter(|index| dense[*index] != 0.0);
                self.optimiser.mask(offset, indices.filter(delivered));
            }
        }
    }
}
