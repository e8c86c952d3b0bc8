//! What a worker saves.
//!
//! `model.safetensors` holds what all workers have alike: the parameters by name and the velocity. Each worker's own file holds
//! its residual and the state of its method for every bucket, its running statistics, its position in the data with the score of
//! the epoch so far, and with momentum correction its velocity. There is no state of a random generator: everything random is
//! a function of seed, epoch, step and rank.
//!
//! How a run goes on from it is in `resume.rs`.

use std::path::PathBuf;

use serde_json::json;
use spardl_core::Rank;
use spardl_drive::Transport;

use crate::store::{self, About, Arrays, MODEL, Part, Store};
use crate::worker::{Position, Worker};
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
}

pub(crate) const VELOCITY: &str = "optimiser.velocity";
pub(crate) const BUFFERS: &str = "buffers";
pub(crate) const POSITION: &str = "position";
pub(crate) const BUCKETS: &str = "buckets";

impl<T: Transport> Worker<'_, T> {
    /// Writes a checkpoint when one is due.
    pub(crate) fn checkpoint_when_due(&mut self) -> Result<(), TrainError> {
        let Some(checkpoints) = &self.run.settings.checkpoints else {
            return Ok(());
        };
        let due = match checkpoints.every {
            Some(every) => self.position.step.is_multiple_of(every.max(1)),
            None => self.position.step_of_epoch >= self.steps_per_epoch(),
        };
        self.owed |= due;
        // While steps are dropped the parameters may be past mending: older checkpoints are not given up for such ones.
        if (self.owed && self.skipped == 0) || self.is_last_step() {
            self.save(checkpoints)?;
            self.owed = false;
        }
        Ok(())
    }

    fn save(&mut self, checkpoints: &Checkpoints) -> Result<(), TrainError> {
        let store = Store::new(&checkpoints.dir, checkpoints.keep);
        let step = self.position.step;
        if self.is_first() {
            store.begin(step)?;
        }
        self.synchroniser.gather(&[])?;
        let mut parts = vec![self.write_own(&store)?];
        if self.is_first() {
            parts.push(self.write_model(&store)?);
        }
        let said = serde_json::to_vec(&parts).expect("names and numbers");
        let all = self.synchroniser.gather(&said)?;
        if self.is_first() {
            let mut parts = Vec::new();
            for (rank, said) in (0u32..).map(Rank::new).zip(&all) {
                let theirs: Vec<Part> =
                    serde_json::from_slice(said).map_err(|_| TrainError::Garbled(rank))?;
                parts.extend(theirs);
            }
            let about = About {
                workers: self.synchroniser.world().size() as usize,
                config: checkpoints.config.clone(),
                metadata: json!(self.origin()),
            };
            store.publish(step, parts, about)?;
        }
        // Nobody goes on, and perhaps ends, before it is on disk.
        self.synchroniser.gather(&[])?;
        Ok(())
    }

    fn write_model(&self, store: &Store) -> Result<Part, TrainError> {
        let position = &self.position;
        let mut arrays = Arrays::new(json!({
            "totals": position.totals,
            "epochs": position.epochs,
        }));
        for part in self.model.layout().parts() {
            let values = &self.parameters[part.offset as usize..][..part.len()];
            arrays
                .insert_shaped(part.name.as_str(), &part.shape, values)
                .map_err(store::StoreError::from)?;
        }
        if !self.optimiser.is_local() {
            arrays.insert(VELOCITY, self.optimiser.velocity());
        }
        Ok(store.write_part(position.step, MODEL, &arrays)?)
    }

    fn write_own(&self, store: &Store) -> Result<Part, TrainError> {
        let world = self.synchroniser.world();
        let buffers = self.model.buffers();
        let states = self.synchroniser.states();
        let starts: Vec<u64> = states.iter().map(|s| s.0.range.start as u64).collect();
        let numbers = self.position.to_numbers(Phase {
            warming_up: self.synchroniser.is_warming_up(),
            steps: self.synchroniser.steps(),
        });
        let mut arrays = Arrays::new(json!({}));
        arrays.insert(POSITION, numbers.as_slice());
        arrays.insert(BUFFERS, buffers.as_slice());
        arrays.insert(BUCKETS, starts.as_slice());
        for (bucket, state) in &states {
            arrays.insert_state(&prefix(bucket.range.start as u64), state);
        }
        if self.optimiser.is_local() {
            arrays.insert(VELOCITY, self.optimiser.velocity());
        }
        let name = store::rank_file(world.rank().index(), world.size() as usize);
        Ok(store.write_part(self.position.step, &name, &arrays)?)
    }
}

/// How far the method is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    pub(crate) warming_up: bool,
    /// Steps done, those of the warm-up included.
    pub(crate) steps: u64,
}

impl Position {
    /// As numbers that come back bit for bit.
    fn to_numbers(&self, phase: Phase) -> Vec<u64> {
        vec![
            u64::from(self.epoch),
            self.step_of_epoch,
            self.step,
            self.seconds.to_bits(),
            self.epoch_began.to_bits(),
            self.score.loss.to_bits(),
            self.score.correct,
            self.score.count,
            u64::from(self.identical),
            u64::from(phase.warming_up),
            phase.steps,
        ]
    }

    /// What was saved, without the records of rank 0.
    pub(crate) fn from_numbers(numbers: &[u64]) -> Option<(Self, Phase)> {
        let &[
            epoch,
            step_of_epoch,
            step,
            seconds,
            began,
            loss,
            correct,
            count,
            identical,
            warming_up,
            steps,
        ] = numbers
        else {
            return None;
        };
        let position = Self {
            epoch: u32::try_from(epoch).ok()?,
            step_of_epoch,
            step,
            seconds: f64::from_bits(seconds),
            epoch_began: f64::from_bits(began),
            score: Score {
                loss: f64::from_bits(loss),
                correct,
                count,
            },
            identical: identical != 0,
            ..Self::default()
        };
        let warming_up = warming_up != 0;
        Some((position, Phase { warming_up, steps }))
    }
}

pub(crate) fn prefix(start: u64) -> String {
    format!("bucket.{start}")
}
