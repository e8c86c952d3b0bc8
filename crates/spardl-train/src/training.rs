//! The training loop of one worker: the same code for a thread of this process and a rank of an MPI job.
//!
//! A step: a batch, its gradient, the reduction with all workers, the optimiser. All replicas do the same arithmetic on the same
//! update, so their parameters stay the same bit for bit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use spardl::{DensityControl, Outcome, Transport};

use crate::checkpoint::{Checkpointing, Moment};
use crate::comparison::{compare_data, compare_replicas};
use crate::data::{Prefetch, Prepared, Sampler, Task};
use crate::evaluation::{all_totals, evaluate, sum};
use crate::learner::{Learned, Learner};
use crate::progress::Progress;
use crate::record::{ByTime, EpochRecord, Start, StepRecord, Summary, Traffic, Watch};
use crate::reordered::Reordered;
use crate::resume::resume;
use crate::run_identity::RunIdentity;
use crate::skips::SkipPolicy;
use crate::stop::Stop;
use crate::store::Lock;
use crate::{Model, Run, Score, TrainError};

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
    train_all(run, model, transport, watch, None)
}

/// As [`train`], and ends early when `stop` says so on some worker: all of them finish the same step and write a checkpoint, where
/// checkpoints are written. [`Summary::stopped`] then has the step.
///
/// # Errors
/// As [`train`].
pub fn train_until<T: Transport>(
    run: &Run<'_>,
    model: &mut dyn Model,
    transport: T,
    watch: &mut dyn Watch,
    stop: &dyn Fn() -> bool,
) -> Result<Summary, TrainError> {
    train_all(run, model, transport, watch, Some(Stop::new(stop)))
}

fn train_all<T: Transport>(
    run: &Run<'_>,
    model: &mut dyn Model,
    transport: T,
    watch: &mut dyn Watch,
    stop: Option<Stop<'_>>,
) -> Result<Summary, TrainError> {
    let mut reordered;
    let model = match run.settings.dense_below_dims {
        0 => model,
        dims => {
            reordered = Reordered::new(model, dims);
            &mut reordered
        }
    };
    Training::new(run, model, transport, watch, stop)?.finish()
}

/// The loop of one worker.
struct Training<'a, T> {
    run: &'a Run<'a>,
    watch: &'a mut dyn Watch,
    learner: Learner<'a, T>,
    sampler: Sampler,
    checkpointing: Option<Checkpointing<'a>>,
    skips: SkipPolicy,
    /// Where time decides the density.
    control: Option<DensityControl>,
    progress: Progress,
    stop: Option<Stop<'a>>,
    /// Did somebody want the run to end here?
    stopped: bool,
    /// The directory of checkpoints is rank 0's while the run lasts.
    lock: Option<Arc<Lock>>,
}

impl<'a, T: Transport> Training<'a, T> {
    fn new(
        run: &'a Run<'a>,
        model: &'a mut dyn Model,
        transport: T,
        watch: &'a mut dyn Watch,
        stop: Option<Stop<'a>>,
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
        let mut learner = Learner::new(run, model, transport)?;
        let data = run.data.fingerprint()?;
        compare_data(&mut learner, &data)?;
        let identity = RunIdentity::new(run, &data, sampler.steps() as u64);
        let checkpoints = settings.checkpoints.as_ref();
        let control = settings.density.bounds().map(|(least, most)| {
            DensityControl::new(settings.exchange_budget).between(least, most)
        });
        Ok(Self {
            run,
            watch,
            learner,
            sampler,
            checkpointing: checkpoints.map(|settings| Checkpointing::new(settings, identity)),
            skips: SkipPolicy::new(settings.on_non_finite),
            control: control.transpose()?,
            progress: Progress::default(),
            stop,
            stopped: false,
            lock: None,
        })
    }

    fn finish(mut self) -> Result<Summary, TrainError> {
        self.lock()?;
        self.resume()?;
        if let Some(control) = &mut self.control {
            if let Some(saved) = self.progress.by_time {
                control.set_density(saved.density);
            }
            self.learner.prepare(control)?;
        }
        self.run()?;
        Ok(self.summary())
    }

    /// Rank 0 takes the directory of checkpoints for all, before the first step; all hear when it cannot.
    fn lock(&mut self) -> Result<(), TrainError> {
        let Some(checkpointing) = &self.checkpointing else {
            return Ok(());
        };
        let taken = match self.learner.is_first() {
            true => checkpointing.lock().map(Some),
            false => Ok(None),
        };
        let complaint = taken
            .as_ref()
            .err()
            .map_or_else(String::new, ToString::to_string);
        let said = self.learner.gather(complaint.as_bytes())?.swap_remove(0);
        if !said.is_empty() {
            let complaint = String::from_utf8_lossy(&said).into_owned();
            return Err(TrainError::Directory(complaint));
        }
        self.lock = taken?;
        if let Some(before) = self.lock.as_ref().and_then(|lock| lock.taken_over_from()) {
            let note = format!("the lock of {before}, which is gone, was taken over");
            self.watch.note(&note);
        }
        Ok(())
    }

    /// Goes on from a checkpoint, when that is asked for.
    fn resume(&mut self) -> Result<(), TrainError> {
        let Self { learner, watch, .. } = self;
        if let Some(checkpointing) = self.checkpointing.as_ref().filter(|c| c.resumes()) {
            let epochs = self.run.settings.epochs;
            self.progress = resume(checkpointing, learner, epochs, *watch)?;
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), TrainError> {
        let epochs = self.run.settings.epochs;
        let Progress {
            epoch,
            step_of_epoch,
            ..
        } = self.progress;
        if self.learner.is_first() {
            self.watch.begin(&Start {
                epochs,
                steps_per_epoch: self.steps_per_epoch(),
                done: self.learner.step(),
                seconds: self.progress.seconds,
                past: &self.progress.epochs,
            })?;
        }
        let train = self.run.data.train.clone();
        let start = (epoch as usize, step_of_epoch as usize);
        let batches = Prefetch::start(train, self.sampler, start, epochs as usize)?;
        // The checkpoint may be that of the last step of an epoch.
        self.close_epoch()?;
        for batch in batches {
            if self.is_over() {
                break;
            }
            self.step(&batch?)?;
            self.stopped = !self.is_last_step() && self.is_to_stop()?;
            // Before the epoch is closed: closing one early, at the end of a run, must not change a longer run.
            self.checkpoint()?;
            self.close_epoch()?;
            if self.stopped {
                break;
            }
        }
        Ok(())
    }

    /// After a step: is the run to end here, on all workers?
    fn is_to_stop(&mut self) -> Result<bool, TrainError> {
        let seconds = self.progress.seconds / self.learner.step().max(1) as f64;
        match &mut self.stop {
            Some(stop) => stop.is_agreed(&mut self.learner, seconds),
            None => Ok(false),
        }
    }

    fn step(&mut self, prepared: &Prepared) -> Result<(), TrainError> {
        let settings = self.run.settings;
        let began = Instant::now();
        let epoch = self.in_epochs(self.progress.step_of_epoch);
        if self.learner.is_warming_up() && epoch >= settings.dense_epochs {
            self.learner.end_warm_up()?;
        }
        let lr = settings
            .learning_rate
            .at(epoch, self.learner.world().size());
        // Before the step saves a residual that another method would not have.
        if let Some(why) = self.learner.look_at_times()?
            && self.learner.is_first()
        {
            let step = self.learner.step();
            self.watch.note(&format!("auto, after step {step}: {why}"));
        }
        let density = match self.learner.is_warming_up() {
            true => 1.0,
            false => match &self.control {
                Some(control) => control.density(),
                None => settings.density.at(epoch).get(),
            },
        };
        let mut learned = self.learner.learn(prepared, lr as f32, density)?;
        let settling = Instant::now();
        match learned.is_dropped() {
            false => self.skips.counted(),
            true => self
                .skips
                .dropped(&mut self.learner, learned.at_fault, self.watch)?,
        }
        if settings.verify {
            compare_replicas(&mut self.learner)?;
        }
        learned.apply += settling.elapsed();
        self.watch_times(&learned)?;
        let record = self.record(&learned, lr, density);
        let score = (!learned.is_dropped()).then_some(learned.score);
        self.progress
            .count(&record, score, began.elapsed().as_secs_f64());
        if self.learner.is_first() {
            self.watch.step(&record)?;
        }
        Ok(())
    }

    /// Where time decides the density: notes a step, and agrees on the density of the next ones when that is due.
    fn watch_times(&mut self, learned: &Learned) -> Result<(), TrainError> {
        let counts = !learned.is_dropped() && !self.learner.is_warming_up();
        let Some(control) = self.control.as_mut().filter(|_| counts) else {
            return Ok(());
        };
        control.note(learned.compute, &learned.report);
        if let Some(looked) = self.learner.adjust(control)? {
            self.progress.by_time = Some(ByTime {
                exchange_ms: looked.exchange.as_secs_f64() * 1e3,
                budget_ms: looked.budget.as_secs_f64() * 1e3,
                density: looked.density,
            });
        }
        Ok(())
    }

    fn record(&self, learned: &Learned, lr: f64, density_target: f64) -> StepRecord {
        let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
        let report = &learned.report;
        StepRecord {
            step: self.learner.step(),
            epoch: self.in_epochs(self.progress.step_of_epoch + 1),
            samples: self.run.settings.batch_size as u64 * u64::from(report.workers),
            loss: learned.score.mean_loss(),
            lr,
            density_target,
            density: report.density(),
            bytes_sent: report.counts.bytes_sent,
            bytes_dense: report.dense_bytes(),
            rounds: report.counts.rounds,
            path_messages: report.counts.path_messages,
            path_bytes: report.counts.path_bytes,
            compute_ms: milliseconds(learned.compute),
            select_ms: milliseconds(report.counts.select),
            merge_ms: milliseconds(report.counts.merge),
            wait_ms: milliseconds(report.waited),
            apply_ms: milliseconds(learned.apply),
            skipped: match report.outcome {
                Outcome::Updated => None,
                Outcome::Skipped(reason) => Some(reason.to_string()),
            },
        }
    }

    /// Writes a checkpoint when one is due.
    fn checkpoint(&mut self) -> Result<(), TrainError> {
        let moment = Moment {
            epoch_is_whole: self.progress.step_of_epoch >= self.steps_per_epoch(),
            last_step_failed: self.skips.last_step_failed(),
            is_last_step: self.stopped || self.is_last_step(),
        };
        match &mut self.checkpointing {
            Some(checkpointing) => {
                checkpointing.after_step(moment, &mut self.learner, &self.progress)
            }
            None => Ok(()),
        }
    }

    /// Tests and reports when all steps of the epoch, or of the run, are done.
    fn close_epoch(&mut self) -> Result<(), TrainError> {
        let whole = self.progress.step_of_epoch >= self.steps_per_epoch();
        let ends = self.stopped || self.reached_max_steps();
        let cut_short = ends && self.progress.step_of_epoch > 0;
        if !whole && !cut_short {
            return Ok(());
        }
        let settings = self.run.settings;
        let score = sum(&mut self.learner, self.progress.score)?;
        let traffic = Traffic::over(&all_totals(&mut self.learner, &self.progress.totals)?);
        let epoch = self.progress.epoch + 1;
        let last = epoch >= settings.epochs || self.reached_max_steps();
        let due = settings.eval_every > 0 && epoch.is_multiple_of(settings.eval_every);
        // Whoever wants the run to end does not wait for a test.
        let test = match (due || last) && !self.stopped {
            true => Some(evaluate(&mut self.learner, self.run.data)?),
            false => None,
        };
        compare_replicas(&mut self.learner)?;
        let took = self.progress.seconds - self.progress.epoch_began;
        let record = EpochRecord {
            epoch,
            step: self.learner.step(),
            train_loss: score.mean_loss(),
            train_accuracy: score.accuracy(),
            test_loss: test.map(|score| score.mean_loss()),
            test_accuracy: test.map(|score| score.accuracy()),
            test_perplexity: test.and_then(|score| perplexity(&self.run.data.task, &score)),
            seconds: self.progress.seconds,
            samples_per_second: self.progress.totals.samples as f64 / took,
            totals: self.progress.totals,
            traffic,
            // Replicas that differ end the run.
            identical: true,
            by_time: self.progress.by_time,
        };
        if self.learner.is_first() {
            self.watch.epoch(&record)?;
            if let Some(warning) = no_better_than_guessing(&self.run.data.task, &record) {
                self.watch.note(&warning);
            }
        }
        self.progress.close_epoch(record, whole);
        Ok(())
    }

    fn summary(self) -> Summary {
        Summary {
            method: self.learner.method().name().to_owned(),
            workers: self.learner.world().size(),
            parameters: self.learner.parameters().len(),
            hash: self.learner.hash().to_string(),
            identical: self.progress.epochs.iter().all(|epoch| epoch.identical),
            stopped: self.stopped.then(|| self.learner.step()),
            epochs: self.progress.epochs,
        }
    }

    fn steps_per_epoch(&self) -> u64 {
        self.sampler.steps() as u64
    }

    /// The position in epochs after so many steps of the current one.
    fn in_epochs(&self, step_of_epoch: u64) -> f64 {
        let part = step_of_epoch as f64 / self.steps_per_epoch() as f64;
        f64::from(self.progress.epoch) + part
    }

    fn reached_max_steps(&self) -> bool {
        let limit = self.run.settings.max_steps;
        limit.is_some_and(|limit| self.learner.step() >= limit)
    }

    /// Was the step just done the last one of the run?
    fn is_last_step(&self) -> bool {
        let epochs_done = self.progress.epoch + 1 >= self.run.settings.epochs;
        let epoch_done = self.progress.step_of_epoch >= self.steps_per_epoch();
        self.reached_max_steps() || (epochs_done && epoch_done)
    }

    fn is_over(&self) -> bool {
        self.progress.epoch >= self.run.settings.epochs || self.reached_max_steps()
    }
}

/// What a language model's score is usually given as.
fn perplexity(task: &Task, score: &Score) -> Option<f64> {
    matches!(task, Task::Language { .. }).then(|| score.mean_loss().exp())
}

/// The loss of guessing that a network has to fall below, in parts: noise alone gets it this far.
const GUESSING: f64 = 0.98;

/// Before so many steps a loss says little: small data sets have epochs of a few steps, and learning rates warm up.
const TIME_TO_LEARN: u64 = 100;

/// A word about an epoch whose loss is that of guessing, when there was time to learn.
fn no_better_than_guessing(task: &Task, epoch: &EpochRecord) -> Option<String> {
    let classes = task.classes();
    let guessing = (classes as f64).ln();
    let had_time = epoch.step >= TIME_TO_LEARN;
    (had_time && epoch.train_loss >= GUESSING * guessing).then(|| {
        format!(
            "nothing was learnt in this epoch: its loss of {:.3} is that of guessing among {classes}, {guessing:.3}; a lower learning \
             rate may help, or a higher one",
            epoch.train_loss
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_is_no_better_than_guessing_is_told() {
        let shape = [1, 16, 16];
        let task = Task::Images { shape, classes: 10 };
        let after = |step, train_loss| {
            let epoch = EpochRecord {
                step,
                train_loss,
                ..EpochRecord::default()
            };
            no_better_than_guessing(&task, &epoch)
        };
        let warning = |train_loss| after(TIME_TO_LEARN, train_loss);
        let text = warning(2.303).expect("a warning");
        assert!(text.contains("guessing among 10, 2.303"), "{text}");
        assert_eq!((warning(2.1), warning(f64::NAN)), (None, None));
        assert_eq!(after(TIME_TO_LEARN - 1, 2.303), None, "too early to tell");
    }
}
