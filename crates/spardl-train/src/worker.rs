//! One worker's training loop: the same code for a thread of this process and a rank of an MPI job.
//!
//! A step: a batch, its gradient, the reduction with all workers, the optimiser. All replicas do the same arithmetic on the same
//! update, so their parameters stay the same bit for bit.

use std::time::{Duration, Instant};

use spardl_core::{Algorithm, Rank, Update};
use spardl_drive::Transport;

use crate::buckets;
use crate::checkpoint::Checkpoints;
use crate::data::{Fingerprint, Prefetch, Prepared, Sampler, share};
use crate::optimiser::{self, Optimiser};
use crate::record::{EpochRecord, Start, StepRecord, Summary, Totals, Watch};
use crate::schedule::{Density, LearningRate};
use crate::synchroniser::{Plan, Reduced, Synchroniser};
use crate::{Data, Model, Score, TrainError};

/// Samples of a test batch; how they are cut has no influence on the score.
const TEST_BATCH: usize = 100;

/// Steps in a row that may be dropped: after more the parameters themselves must be past mending.
const MOST_SKIPPED: u32 = 50;

/// An element whose residual is at most this part of what it was counts as delivered, whatever the value type.
const DELIVERED: f32 = 1.0 / 64.0;
/// How often a value may be quantised on its way, in the sense that most errors stay below so many of the largest.
const HOPS: f32 = 4.0;

/// What to do when some worker's loss or gradient is not finite; the same on all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnNonFinite {
    /// Drops the step on all workers and goes on; ends the run when 50 steps in a row had to be dropped.
    Skip,
    /// Ends the run on all workers.
    #[default]
    Stop,
}

/// Everything that shapes a run besides model, data and method; the same on all workers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Samples of a worker's step.
    pub batch_size: usize,
    /// Passes over the data.
    pub epochs: u32,
    /// Ends the run after that many steps, even within an epoch.
    pub max_steps: Option<u64>,
    /// What shuffling, augmentation and dropout are drawn from.
    pub seed: u64,
    /// The learning rate.
    pub learning_rate: LearningRate,
    /// The density.
    pub density: Density,
    /// Epochs in which the whole gradient is reduced.
    pub dense_epochs: f64,
    /// The optimiser.
    pub optimiser: optimiser::Options,
    /// Elements of a bucket.
    pub bucket_elements: usize,
    /// Epochs from test to test; the last one is always tested. 0: only the last one.
    pub eval_every: u32,
    /// Compares the replicas after every step instead of every epoch.
    pub verify: bool,
    /// What to do about NaN.
    pub on_non_finite: OnNonFinite,
    /// The longest wait for a peer.
    pub timeout: Duration,
    /// Where and when checkpoints are written.
    pub checkpoints: Option<Checkpoints>,
}

/// What a run is made of.
#[derive(Debug)]
pub struct Run<'a> {
    /// How.
    pub settings: &'a Settings,
    /// The method.
    pub method: &'a dyn Algorithm,
    /// The method of the warm-up.
    pub dense: &'a dyn Algorithm,
    /// The data, shared by the workers of a process.
    pub data: &'a Data,
}

/// Trains one worker's replica to the end of the run.
///
/// All workers must call it with the same `run`; `watch` hears of it on rank 0 only.
///
/// # Errors
/// When the run ended early; the last checkpoint, if any, is whole.
pub fn train<T: Transport>(
    run: &Run<'_>,
    model: &mut dyn Model,
    transport: T,
    watch: &mut dyn Watch,
) -> Result<Summary, TrainError> {
    let mut worker = Worker::new(run, model, transport, watch)?;
    worker.compare_data()?;
    worker.resume()?;
    worker.run()?;
    Ok(worker.summary())
}

/// Where a run is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Position {
    /// Whole epochs done.
    pub(crate) epoch: u32,
    /// Steps done of the current epoch.
    pub(crate) step_of_epoch: u64,
    /// Steps done.
    pub(crate) step: u64,
    /// Seconds of training.
    pub(crate) seconds: f64,
    /// The score of this worker in the current epoch.
    pub(crate) score: Score,
    /// What the steps of the current epoch cost.
    pub(crate) totals: Totals,
    /// Seconds of training when the current epoch began.
    pub(crate) epoch_began: f64,
    /// The epochs done.
    pub(crate) epochs: Vec<EpochRecord>,
    /// Were the replicas the same whenever that was looked at?
    pub(crate) identical: bool,
}

pub(crate) struct Worker<'a, T> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) model: &'a mut dyn Model,
    pub(crate) watch: &'a mut dyn Watch,
    pub(crate) synchroniser: Synchroniser<'a, T>,
    pub(crate) optimiser: Optimiser,
    pub(crate) parameters: Vec<f32>,
    gradient: Vec<f32>,
    /// With factor masking: residual plus gradient, before the reduction.
    accumulated: Vec<f32>,
    pub(crate) data: Fingerprint,
    sampler: Sampler,
    pub(crate) position: Position,
    /// Steps dropped since the last one that was not.
    pub(crate) skipped: u32,
    /// Is a checkpoint due?
    pub(crate) owed: bool,
}

impl<'a, T: Transport> Worker<'a, T> {
    fn new(
        run: &'a Run<'a>,
        model: &'a mut dyn Model,
        transport: T,
        watch: &'a mut dyn Watch,
    ) -> Result<Self, TrainError> {
        let settings = run.settings;
        let world = transport.world();
        let sampler = Sampler::new(
            run.data.train.len(),
            world.size() as usize,
            world.rank().index(),
            settings.batch_size,
            settings.seed,
        )?;
        let len = model.layout().len() as usize;
        let plan = Plan {
            method: run.method,
            dense: run.dense,
            buckets: buckets::cut(model.layout(), settings.bucket_elements),
            timeout: settings.timeout,
        };
        let warming_up = settings.dense_epochs > 0.0;
        let mut parameters = vec![0.0; len];
        model.parameters(&mut parameters);
        Ok(Self {
            run,
            model,
            watch,
            synchroniser: Synchroniser::new(plan, transport, warming_up)?,
            optimiser: Optimiser::new(settings.optimiser, len),
            parameters,
            gradient: vec![0.0; len],
            accumulated: Vec::new(),
            data: run.data.fingerprint()?,
            sampler,
            position: Position {
                identical: true,
                ..Position::default()
            },
            skipped: 0,
            owed: false,
        })
    }

    fn run(&mut self) -> Result<(), TrainError> {
        let epochs = self.run.settings.epochs;
        if self.is_first() {
            self.watch.begin(&Start {
                epochs,
                steps_per_epoch: self.sampler.steps() as u64,
                done: self.position.step,
                seconds: self.position.seconds,
                past: &self.position.epochs,
            })?;
        }
        let start = (
            self.position.epoch as usize,
            self.position.step_of_epoch as usize,
        );
        let train = self.run.data.train.clone();
        let batches = Prefetch::start(train, self.sampler, start, epochs as usize)?;
        // The checkpoint may be that of the last step of an epoch.
        self.close_epoch()?;
        for batch in batches {
            if self.is_over() {
                break;
            }
            self.step(&batch?)?;
            // Before the epoch is closed: closing one early, at the end of a run, must not change a longer run.
            self.checkpoint_when_due()?;
            self.close_epoch()?;
        }
        Ok(())
    }

    fn step(&mut self, prepared: &Prepared) -> Result<(), TrainError> {
        let settings = self.run.settings;
        let began = Instant::now();
        let epoch = self.epoch_position();
        if self.synchroniser.is_warming_up() && epoch >= settings.dense_epochs {
            self.synchroniser.end_warmup()?;
        }
        let workers = self.synchroniser.world().size();
        let lr = settings.learning_rate.at(epoch, workers);
        let density = match self.synchroniser.is_warming_up() {
            true => 1.0,
            false => settings.density.at(epoch),
        };
        // A pass that ends in NaN may leave it in the running statistics too.
        let buffers = match settings.on_non_finite {
            OnNonFinite::Skip => self.model.buffers(),
            OnNonFinite::Stop => Vec::new(),
        };
        let score = self
            .model
            .gradient(&prepared.batch, prepared.seed, &mut self.gradient);
        if !score.loss.is_finite() && !self.gradient.is_empty() {
            // A loss can be NaN where the gradient is not: the flag of the exchange comes from the gradient.
            self.gradient[0] = f32::NAN;
        }
        let compute = began.elapsed();
        self.optimiser.prepare(&mut self.gradient, lr as f32);
        let reduced = self.reduce(density)?;
        let applying = Instant::now();
        self.position.step += 1;
        self.position.step_of_epoch += 1;
        match reduced.skipped {
            None => {
                self.skipped = 0;
                self.position.score += score;
                self.optimiser
                    .apply(&mut self.parameters, &self.gradient, lr as f32);
                self.model.set_parameters(&self.parameters);
            }
            Some(_) => {
                self.skip(reduced.at_fault)?;
                self.model.set_buffers(&buffers);
            }
        }
        if settings.verify {
            self.compare()?;
        }
        let record = self.record(score, lr, density, &reduced, compute, applying.elapsed());
        self.position.totals.add(&record);
        self.position.seconds += began.elapsed().as_secs_f64();
        if self.is_first() {
            self.watch.step(&record)?;
        }
        Ok(())
    }

    fn reduce(&mut self, density: f64) -> Result<Reduced, TrainError> {
        let Self {
            optimiser,
            synchroniser,
            gradient,
            accumulated,
            ..
        } = self;
        if !optimiser.masks() {
            return Ok(synchroniser.reduce(gradient, density, |_, _, _| {})?);
        }
        synchroniser.accumulate(gradient, accumulated);
        let error = self.run.method.value_type().max_relative_error();
        let rest = DELIVERED.max(HOPS * error);
        let mask = |offset: usize, update: Update<'_>, residual: &[f32]| {
            // Whole gradients hold nothing back: momentum has nothing to be carried away by.
            if residual.is_empty() {
                return;
            }
            let before = &accumulated[offset..];
            let delivered = |i: &usize| residual[*i].abs() <= rest * before[*i].abs();
            match update {
                Update::Sparse(sparse) => {
                    let indices = sparse.iter().map(|(index, _)| index as usize);
                    optimiser.mask(offset, indices.filter(delivered));
                }
                Update::Dense(dense) => {
                    let indices = (0..dense.len()).filter(|index| dense[*index] != 0.0);
                    optimiser.mask(offset, indices.filter(delivered));
                }
            }
        };
        Ok(synchroniser.reduce(gradient, density, mask)?)
    }

    /// All workers drop the step; who was it?
    fn skip(&mut self, mine: bool) -> Result<(), TrainError> {
        let step = self.position.step;
        let flags = self.synchroniser.gather(&[u8::from(mine)])?;
        let ranks: Vec<Rank> = (0u32..)
            .map(Rank::new)
            .zip(&flags)
            .filter(|(_, flag)| flag.as_slice() != [0])
            .map(|(rank, _)| rank)
            .collect();
        let error = TrainError::NonFinite { step, ranks };
        self.skipped += 1;
        match self.run.settings.on_non_finite {
            OnNonFinite::Stop => Err(error),
            OnNonFinite::Skip if self.skipped >= MOST_SKIPPED => Err(TrainError::PastMending {
                step,
                skipped: self.skipped,
            }),
            OnNonFinite::Skip => {
                if self.is_first() {
                    let text = error.to_string();
                    let what = text.split(": lower").next().unwrap_or(&text);
                    self.watch
                        .note(&format!("{what}: step dropped on all workers"));
                }
                Ok(())
            }
        }
    }

    fn record(
        &self,
        score: Score,
        lr: f64,
        density_target: f64,
        reduced: &Reduced,
        compute: Duration,
        apply: Duration,
    ) -> StepRecord {
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
        let len = self.parameters.len();
        let workers = u64::from(self.synchroniser.world().size());
        StepRecord {
            step: self.position.step,
            epoch: self.epoch_position(),
            samples: self.run.settings.batch_size as u64 * workers,
            loss: score.mean_loss(),
            lr,
            density_target,
            density: reduced.nnz as f64 / len.max(1) as f64,
            bytes_sent: reduced.counts.bytes_sent,
            bytes_dense: 8 * len as u64 * (workers - 1) / workers,
            rounds: reduced.counts.rounds,
            compute_ms: milliseconds(compute),
            select_ms: milliseconds(reduced.counts.select),
            merge_ms: milliseconds(reduced.counts.merge),
            wait_ms: milliseconds(reduced.waited),
            apply_ms: milliseconds(apply),
            skipped: reduced.skipped.map(|reason| reason.to_string()),
        }
    }

    /// Tests and reports when all steps of the epoch, or of the run, are done.
    fn close_epoch(&mut self) -> Result<(), TrainError> {
        let whole = self.position.step_of_epoch >= self.steps_per_epoch();
        let cut_short = self.reached_max_steps() && self.position.step_of_epoch > 0;
        if !whole && !cut_short {
            return Ok(());
        }
        let settings = self.run.settings;
        let score = self.sum(self.position.score)?;
        let epoch = self.position.epoch + 1;
        let last = epoch >= settings.epochs || self.reached_max_steps();
        let due = settings.eval_every > 0 && epoch.is_multiple_of(settings.eval_every);
        let test = if due || last {
            Some(self.evaluate()?)
        } else {
            None
        };
        self.compare()?;
        let took = self.position.seconds - self.position.epoch_began;
        let record = EpochRecord {
            epoch,
            step: self.position.step,
            train_loss: score.mean_loss(),
            train_accuracy: score.accuracy(),
            test_loss: test.map(|score| score.mean_loss()),
            test_accuracy: test.map(|score| score.accuracy()),
            seconds: self.position.seconds,
            samples_per_second: self.position.totals.samples as f64 / took,
            totals: self.position.totals,
            identical: self.position.identical,
        };
        if self.is_first() {
            self.watch.epoch(&record)?;
        }
        self.position.epochs.push(record);
        if whole {
            self.position.epoch += 1;
            self.position.step_of_epoch = 0;
        }
        self.position.score = Score::default();
        self.position.totals = Totals::default();
        self.position.epoch_began = self.position.seconds;
        Ok(())
    }

    /// The score of the test set, each worker on its share, with the mean of all workers' running statistics.
    fn evaluate(&mut self) -> Result<Score, TrainError> {
        self.average_buffers()?;
        let world = self.synchroniser.world();
        let test = &self.run.data.test;
        let mine = share(test.len(), world.size() as usize, world.rank().index());
        let samples: Vec<u32> = mine.map(|sample| sample as u32).collect();
        let mut score = Score::default();
        for batch in samples.chunks(TEST_BATCH) {
            score += self.model.evaluate(&test.batch(batch, None)?);
        }
        self.sum(score)
    }

    /// Running statistics are a worker's own; tested is with their mean, and all go on from it.
    fn average_buffers(&mut self) -> Result<(), TrainError> {
        let mine = self.model.buffers();
        if mine.is_empty() {
            return Ok(());
        }
        let bytes: Vec<u8> = mine.iter().flat_map(|value| value.to_le_bytes()).collect();
        let all = self.synchroniser.gather(&bytes)?;
        let mut mean = vec![0.0; mine.len()];
        for (rank, theirs) in all.iter().enumerate() {
            if theirs.len() != bytes.len() {
                return Err(TrainError::Garbled(Rank::new(rank as u32)));
            }
            for (sum, value) in mean.iter_mut().zip(theirs.chunks_exact(4)) {
                *sum += f32::from_le_bytes([value[0], value[1], value[2], value[3]]);
            }
        }
        let workers = all.len() as f32;
        mean.iter_mut().for_each(|value| *value /= workers);
        self.model.set_buffers(&mean);
        Ok(())
    }

    /// The sum of all workers' scores, added in rank order.
    fn sum(&mut self, mine: Score) -> Result<Score, TrainError> {
        let mut sum = Score::default();
        let all = self.synchroniser.gather(&mine.to_bytes())?;
        for (rank, theirs) in (0u32..).map(Rank::new).zip(&all) {
            sum += Score::from_bytes(theirs).ok_or(TrainError::Garbled(rank))?;
        }
        Ok(sum)
    }

    /// Have all workers the same data?
    fn compare_data(&mut self) -> Result<(), TrainError> {
        let Fingerprint { train, test } = &self.data;
        let ranks = self.unlike_first(format!("{train}{test}").as_bytes())?;
        match ranks.is_empty() {
            true => Ok(()),
            false => Err(TrainError::OtherData { ranks }),
        }
    }

    /// Are all replicas the same?
    fn compare(&mut self) -> Result<(), TrainError> {
        let ranks = self.unlike_first(self.hash().as_bytes())?;
        self.position.identical &= ranks.is_empty();
        let step = self.position.step;
        match ranks.is_empty() {
            true => Ok(()),
            false => Err(TrainError::Diverged { step, ranks }),
        }
    }

    /// The workers that do not say the same as rank 0.
    fn unlike_first(&mut self, mine: &[u8]) -> Result<Vec<Rank>, TrainError> {
        let all = self.synchroniser.gather(mine)?;
        let ranks = (0u32..).map(Rank::new).zip(&all);
        let unlike = ranks.filter(|(_, said)| **said != all[0]);
        Ok(unlike.map(|(rank, _)| rank).collect())
    }

    fn hash(&self) -> blake3::Hash {
        blake3::hash(bytemuck::cast_slice(&self.parameters))
    }

    fn summary(self) -> Summary {
        Summary {
            method: self.run.method.name().to_owned(),
            workers: self.synchroniser.world().size(),
            parameters: self.parameters.len(),
            hash: self.hash().to_string(),
            epochs: self.position.epochs,
            identical: self.position.identical,
        }
    }

    pub(crate) fn is_first(&self) -> bool {
        self.synchroniser.world().rank().get() == 0
    }

    pub(crate) fn steps_per_epoch(&self) -> u64 {
        self.sampler.steps() as u64
    }

    fn epoch_position(&self) -> f64 {
        let part = self.position.step_of_epoch as f64 / self.steps_per_epoch() as f64;
        f64::from(self.position.epoch) + part
    }

    fn reached_max_steps(&self) -> bool {
        let limit = self.run.settings.max_steps;
        limit.is_some_and(|limit| self.position.step >= limit)
    }

    /// Was the step just done the last one of the run?
    pub(crate) fn is_last_step(&self) -> bool {
        let epochs_done = self.position.epoch + 1 >= self.run.settings.epochs;
        let epoch_done = self.position.step_of_epoch >= self.steps_per_epoch();
        self.reached_max_steps() || (epochs_done && epoch_done)
    }

    fn is_over(&self) -> bool {
        self.position.epoch >= self.run.settings.epochs || self.reached_max_steps()
    }
}
