//! When a worker saves, and what.
//!
//! `model.safetensors` holds what all workers have alike: the parameters by name, the velocity and the momentum it is of. Each worker's own file holds
//! its residual and the state of its method for every bucket, its running statistics, its position in the data with the score of
//! the epoch so far, and with momentum correction its velocity. There is no state of a random generator: everything random is
//! a function of seed, epoch, step and rank.
//!
//! How a run goes on from it is in `resume.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;
use spardl::{Rank, Transport};

use crate::learner::Learner;
use crate::progress::Progress;
use crate::run_identity::RunIdentity;
use crate::store::{self, About, Arrays, Lock, MODEL, Part, Store, StoreError};
use crate::{Score, TrainError};

/// Where and when checkpoints are written.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    /// A directory that all workers see.
    pub dir: PathBuf,
    /// Steps from one to the next; `None`: after every epoch. There is always one at the end of the run.
    pub every: Option<u64>,
    /// How many are kept.
    pub keep: usize,
    /// Goes on from the newest one that is whole.
    pub resume: bool,
    /// The effective configuration, for the manifest.
    pub config: String,
    /// Rank 0's, where the directory was taken before the run began; otherwise the run takes it.
    pub lock: Option<Arc<Lock>>,
}

/// One worker's side of writing checkpoints.
pub(crate) struct Checkpointing<'a> {
    settings: &'a Checkpoints,
    store: Store,
    identity: RunIdentity,
    due: bool,
}

/// What there is to know about the step just done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Was it the last one of its epoch?
    pub(crate) epoch_is_whole: bool,
    /// Was it dropped?
    pub(crate) last_step_failed: bool,
    /// Was it the last one of the run?
    pub(crate) is_last_step: bool,
}

impl<'a> Checkpointing<'a> {
    pub(crate) fn new(settings: &'a Checkpoints, identity: RunIdentity) -> Self {
        Self {
            settings,
            store: Store::new(&settings.dir, settings.keep),
            identity,
            due: false,
        }
    }

    /// Is the run to go on from a checkpoint?
    pub(crate) const fn resumes(&self) -> bool {
        self.settings.resume
    }

    /// Rank 0: takes the directory, if that was not done before the run.
    pub(crate) fn lock(&self) -> Result<Arc<Lock>, StoreError> {
        if let Some(lock) = &self.settings.lock {
            return Ok(Arc::clone(lock));
        }
        self.store.create()?;
        self.store.lock().map(Arc::new)
    }

    /// Where they are.
    pub(crate) const fn store(&self) -> &Store {
        &self.store
    }

    /// The run they are of.
    pub(crate) const fn identity(&self) -> &RunIdentity {
        &self.identity
    }

    /// Writes a checkpoint when one is due.
    pub(crate) fn after_step<T: Transport>(
        &mut self,
        moment: Moment,
        learner: &mut Learner<'_, T>,
        progress: &Progress,
    ) -> Result<(), TrainError> {
        self.due |= match self.settings.every {
            Some(every) => learner.step().is_multiple_of(every.max(1)),
            None => moment.epoch_is_whole,
        };
        // While steps are dropped the parameters may be past mending: older checkpoints are not given up for such ones.
        if (self.due && !moment.last_step_failed) || moment.is_last_step {
            self.save(learner, progress)?;
            self.due = false;
        }
        Ok(())
    }

    fn save<T: Transport>(
        &self,
        learner: &mut Learner<'_, T>,
        progress: &Progress,
    ) -> Result<(), TrainError> {
        let step = learner.step();
        if learner.is_first() {
            self.store.begin(step)?;
        }
        learner.gather(&[])?;
        let mut parts = vec![self.write_own(learner, progress)?];
        if learner.is_first() {
            parts.push(self.write_model(learner, progress)?);
        }
        let said = serde_json::to_vec(&parts).expect("names and numbers");
        let all = learner.gather(&said)?;
        if learner.is_first() {
            let mut parts = Vec::new();
            for (rank, said) in (0u32..).map(Rank::new).zip(&all) {
                let theirs: Vec<Part> =
                    serde_json::from_slice(said).map_err(|_| TrainError::VersionMismatch(rank))?;
                parts.extend(theirs);
            }
            let about = About {
                workers: learner.world().size() as usize,
                config: self.settings.config.clone(),
                metadata: json!(self.identity.with_method(learner.method().describe())),
            };
            self.store.publish(step, parts, about)?;
        }
        // Nobody goes on, and perhaps ends, before it is on disk.
        learner.gather(&[])?;
        Ok(())
    }

    fn write_model<T: Transport>(
        &self,
        learner: &Learner<'_, T>,
        progress: &Progress,
    ) -> Result<Part, StoreError> {
        let mut arrays = Arrays::new(json!({
            "totals": progress.totals,
            "epochs": progress.epochs,
            "density_by_time": progress.by_time.map(|look| look.density.to_bits()),
        }));
        learner.save_shared(&mut arrays)?;
        self.store.write_part(learner.step(), MODEL, &arrays)
    }

    fn write_own<T: Transport>(
        &self,
        learner: &Learner<'_, T>,
        progress: &Progress,
    ) -> Result<Part, StoreError> {
        let (world, own) = (learner.world(), learner.own());
        let place = Place::of(learner, progress).to_numbers();
        let mut arrays = Arrays::new(json!({}));
        arrays.insert(PLACE, place.as_slice());
        learner.save_own(&own, &mut arrays);
        let name = store::rank_file(world.rank().index(), world.size() as usize);
        self.store.write_part(learner.step(), &name, &arrays)
    }
}

/// The array that holds a [`Place`].
pub(crate) const PLACE: &str = "position";

/// Where a worker was when it saved.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) epoch: u32,
    pub(crate) step_of_epoch: u64,
    pub(crate) step: u64,
    pub(crate) seconds: f64,
    pub(crate) epoch_began: f64,
    pub(crate) score: Score,
    pub(crate) warming_up: bool,
}

impl Place {
    fn of<T: Transport>(learner: &Learner<'_, T>, progress: &Progress) -> Self {
        Self {
            epoch: progress.epoch,
            step_of_epoch: progress.step_of_epoch,
            step: learner.step(),
            seconds: progress.seconds,
            epoch_began: progress.epoch_began,
            score: progress.score,
            warming_up: learner.is_warming_up(),
        }
    }

    /// As numbers that come back bit for bit.
    fn to_numbers(self) -> [u64; 9] {
        [
            u64::from(self.epoch),
            self.step_of_epoch,
            self.step,
            self.seconds.to_bits(),
            self.epoch_began.to_bits(),
            self.score.loss.to_bits(),
            self.score.correct,
            self.score.count,
            u64::from(self.warming_up),
        ]
    }

    /// What [`Place::to_numbers`] gave.
    pub(crate) fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let &[
            epoch,
            step_of_epoch,
            step,
            seconds,
            epoch_began,
            loss,
            correct,
            count,
            warming_up,
        ] = numbers
        else {
            return None;
        };
        Some(Self {
            epoch: u32::try_from(epoch).ok()?,
            step_of_epoch,
            step,
            seconds: f64::from_bits(seconds),
            epoch_began: f64::from_bits(epoch_began),
            score: Score {
                loss: f64::from_bits(loss),
                correct,
                count,
            },
            warming_up: warming_up != 0,
        })
    }
}
