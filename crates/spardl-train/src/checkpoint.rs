//! What a worker saves and how it goes on.
//!
//! `model.safetensors` holds what all workers have alike: the parameters by name and the velocity. Each worker's own file holds
//! its residual and the state of its method for every bucket, its running statistics, its position in the data with the score of
//! the epoch so far, and with momentum correction its velocity. There is no state of a random generator: everything random is
//! a function of seed, epoch, step and rank.
//!
//! At the same number of workers a run goes on bit for bit. At another one, old rank `i` is added to new rank `i mod P` in rank
//! order and new ranks start at zero, so that no mass is lost; thresholds and partitions restart, and so does the epoch,
//! because its samples are shared out anew.

use std::path::PathBuf;

use serde_json::json;
use spardl_core::{MethodState, Rank, State};
use spardl_drive::Transport;

use crate::record::{EpochRecord, Totals};
use crate::store::{self, About, Arrays, Checkpoint, Damage, MODEL, Part, Store};
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

const VELOCITY: &str = "optimiser.velocity";
const BUFFERS: &str = "buffers";
const POSITION: &str = "position";
const BUCKETS: &str = "buckets";

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
        if due || self.is_last_step() {
            self.save(checkpoints)?;
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
                metadata: json!({ "method": self.run.method.describe() }),
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
        let numbers = self.numbers();
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

    /// The position as numbers that come back bit for bit.
    fn numbers(&self) -> Vec<u64> {
        let position = &self.position;
        vec![
            u64::from(position.epoch),
            position.step_of_epoch,
            position.step,
            position.seconds.to_bits(),
            position.epoch_began.to_bits(),
            position.score.loss.to_bits(),
            position.score.correct,
            position.score.count,
            u64::from(position.identical),
            u64::from(self.synchroniser.is_warming_up()),
            self.synchroniser.steps(),
        ]
    }

    /// Goes on from the newest checkpoint that is whole on all workers, when that is asked for.
    pub(crate) fn resume(&mut self) -> Result<(), TrainError> {
        let Some(checkpoints) = &self.run.settings.checkpoints else {
            return Ok(());
        };
        if !checkpoints.resume {
            return Ok(());
        }
        let store = Store::new(&checkpoints.dir, checkpoints.keep);
        let Some(checkpoint) = self.agree_on_checkpoint(&store)? else {
            let dir = checkpoints.dir.display().to_string();
            return Err(TrainError::NoCheckpoint { dir });
        };
        self.load(&checkpoint)?;
        if self.is_first() {
            store.discard_after(checkpoint.step())?;
            let (step, dir) = (checkpoint.step(), checkpoint.dir().display());
            self.watch
                .note(&format!("going on after step {step}: {dir}"));
        }
        Ok(())
    }

    /// The newest checkpoint of which every worker finds the files it needs whole.
    fn agree_on_checkpoint(&mut self, store: &Store) -> Result<Option<Checkpoint>, TrainError> {
        let world = self.synchroniser.world();
        let (rank, workers) = (world.rank().index(), world.size() as usize);
        let mine = serde_json::to_vec(&store.list()?).expect("numbers");
        let all = self.synchroniser.gather(&mine)?;
        let steps: Vec<u64> =
            serde_json::from_slice(&all[0]).map_err(|_| TrainError::Garbled(Rank::new(0)))?;
        for step in steps {
            let checked = store.check(step, |checkpoint| {
                let mut needed = checkpoint.needed_by(rank, workers);
                needed.push(twin(checkpoint, rank));
                needed
            });
            let words = checked
                .as_ref()
                .map_or_else(Damage::to_string, |_| String::new());
            let all = self.synchroniser.gather(words.as_bytes())?;
            let damage = all.iter().find(|words| !words.is_empty());
            match (damage, checked) {
                (None, Ok(checkpoint)) => return Ok(Some(checkpoint)),
                (Some(damage), _) if self.is_first() => {
                    let damage = String::from_utf8_lossy(damage).into_owned();
                    self.watch
                        .note(&format!("{damage}; looking for the one before it"));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let step = checkpoint.step();
        let misfit = |what: String| TrainError::Misfit { step, what };
        let world = self.synchroniser.world();
        let same_workers = checkpoint.manifest().workers() == world.size() as usize;
        self.load_model(checkpoint)?;
        let mut own = read(checkpoint, &twin(checkpoint, world.rank().index()))?;
        let buffers = own.take_f32(BUFFERS).map_err(|e| misfit(e.to_string()))?;
        if buffers.len() != self.model.buffers().len() {
            let what = format!("{} running statistics", buffers.len());
            return Err(misfit(what));
        }
        self.model.set_buffers(&buffers);
        let numbers = own.u64(POSITION).map_err(|e| misfit(e.to_string()))?;
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
            method_steps,
        ] = numbers
        else {
            return Err(misfit(format!("{} numbers of the position", numbers.len())));
        };
        let score = Score {
            loss: f64::from_bits(loss),
            correct,
            count,
        };
        let (totals, epochs) = (
            self.position.totals,
            std::mem::take(&mut self.position.epochs),
        );
        self.position = Position {
            epoch: epoch as u32,
            step_of_epoch,
            step,
            seconds: f64::from_bits(seconds),
            score,
            totals,
            epoch_began: f64::from_bits(began),
            epochs,
            identical: identical != 0,
        };
        if !same_workers || step_of_epoch > self.steps_per_epoch() {
            // An epoch that was whole with the old number of workers is not trained again, only closed.
            if step_of_epoch >= self.steps_per_epoch_of(checkpoint.manifest().workers())? {
                self.position.step_of_epoch = self.steps_per_epoch();
            } else {
                self.position.step_of_epoch = 0;
                self.position.score = Score::default();
                self.position.totals = Totals::default();
            }
        }
        if self.synchroniser.is_warming_up() && warming_up == 0 {
            self.synchroniser.end_warmup()?;
        }
        if !self.synchroniser.is_warming_up() && warming_up != 0 {
            return Ok(());
        }
        self.load_residuals(checkpoint, same_workers, method_steps)
    }

    fn load_model(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let step = checkpoint.step();
        let misfit = |what: String| TrainError::Misfit { step, what };
        let mut arrays = read(checkpoint, MODEL)?;
        for part in self.model.layout().parts() {
            let values = arrays.f32(&part.name).map_err(|e| misfit(e.to_string()))?;
            if arrays.shape(&part.name) != Some(part.shape.as_slice()) {
                let shape = arrays.shape(&part.name).unwrap_or_default();
                let what = format!("{} has shape {shape:?}, not {:?}", part.name, part.shape);
                return Err(misfit(what));
            }
            self.parameters[part.offset as usize..][..part.len()].copy_from_slice(values);
        }
        self.model.set_parameters(&self.parameters);
        if !self.optimiser.is_local() {
            let velocity = arrays.take_f32(VELOCITY).unwrap_or_default();
            self.set_velocity(step, &velocity)?;
        }
        let entry = |name: &str| arrays.metadata.get(name).cloned().unwrap_or_default();
        self.position.totals = serde_json::from_value(entry("totals")).unwrap_or_default();
        let epochs: Result<Vec<EpochRecord>, _> = serde_json::from_value(entry("epochs"));
        self.position.epochs = epochs.unwrap_or_default();
        Ok(())
    }

    fn set_velocity(&mut self, step: u64, velocity: &[f32]) -> Result<(), TrainError> {
        let wanted = self.optimiser.velocity().len();
        if velocity.len() != wanted {
            let what = format!(
                "it was made with other momentum settings ({} elements of velocity, not {wanted})",
                velocity.len()
            );
            return Err(TrainError::Misfit { step, what });
        }
        self.optimiser.set_velocity(velocity);
        Ok(())
    }

    /// The residual and the method's state; at another number of workers, or with other buckets or another method, the
    /// residual alone.
    fn load_residuals(
        &mut self,
        checkpoint: &Checkpoint,
        same_workers: bool,
        method_steps: u64,
    ) -> Result<(), TrainError> {
        let step = checkpoint.step();
        let misfit = |what: String| TrainError::Misfit { step, what };
        let fresh = self.synchroniser.states();
        let starts: Vec<u64> = fresh.iter().map(|s| s.0.range.start as u64).collect();
        let method = checkpoint.manifest().metadata().get("method").cloned();
        let mut exact = same_workers && method == Some(json!(self.run.method.describe()));
        let names = self.old_ranks(checkpoint);
        // Adding to minus zero changes nothing, not even the sign of a zero.
        let nothing = if names.is_empty() { 0.0 } else { -0.0 };
        let (mut residual, mut methods) = (vec![nothing; self.parameters.len()], Vec::new());
        let mut velocity = vec![nothing; self.optimiser.velocity().len()];
        for name in names {
            let mut arrays = read(checkpoint, &name)?;
            let old = arrays
                .u64(BUCKETS)
                .map_err(|e| misfit(e.to_string()))?
                .to_vec();
            exact &= old == starts;
            for start in old {
                let state = arrays
                    .take_state(&prefix(start))
                    .map_err(|e| misfit(e.to_string()))?;
                add(&mut residual, start as usize, &state.residual).map_err(misfit)?;
                methods.push(state.method);
            }
            if self.optimiser.is_local() {
                let theirs = arrays
                    .take_f32(VELOCITY)
                    .map_err(|e| misfit(e.to_string()))?;
                add(&mut velocity, 0, &theirs).map_err(misfit)?;
            }
        }
        if self.optimiser.is_local() {
            self.set_velocity(step, &velocity)?;
        }
        let states: Vec<State> = fresh
            .into_iter()
            .enumerate()
            .map(|(i, (bucket, state))| State {
                residual: match state.residual.is_empty() {
                    true => Vec::new(),
                    false => residual[bucket.range].to_vec(),
                },
                method: match exact {
                    true => methods.get(i).cloned().unwrap_or_else(MethodState::default),
                    false => state.method,
                },
            })
            .collect();
        let steps = if exact { method_steps } else { 0 };
        Ok(self.synchroniser.restore(&states, steps)?)
    }

    /// The files of the old ranks whose residuals this worker takes over.
    fn old_ranks(&self, checkpoint: &Checkpoint) -> Vec<String> {
        let world = self.synchroniser.world();
        let needed = checkpoint.needed_by(world.rank().index(), world.size() as usize);
        needed.into_iter().filter(|name| name != MODEL).collect()
    }
}

fn prefix(start: u64) -> String {
    format!("bucket.{start}")
}

/// The file of the old rank whose position and running statistics a worker goes on with.
fn twin(checkpoint: &Checkpoint, rank: usize) -> String {
    let old = checkpoint.manifest().workers().max(1);
    store::rank_file(rank % old, old)
}

fn read(checkpoint: &Checkpoint, name: &str) -> Result<Arrays<'static>, TrainError> {
    checkpoint.read(name).map_err(|damage| TrainError::Misfit {
        step: checkpoint.step(),
        what: damage.to_string(),
    })
}

fn add(sum: &mut [f32], start: usize, values: &[f32]) -> Result<(), String> {
    let len = sum.len();
    let place = sum
        .get_mut(start..)
        .and_then(|rest| rest.get_mut(..values.len()))
        .ok_or_else(|| {
            format!(
                "it is of {} elements at {start}, not of {len}",
                values.len()
            )
        })?;
    for (sum, value) in place.iter_mut().zip(values) {
        *sum += value;
    }
    Ok(())
}
