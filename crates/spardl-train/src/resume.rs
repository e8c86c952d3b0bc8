//! How a worker goes on from a checkpoint.
//!
//! At the same number of workers a run goes on bit for bit. At another one, what old rank `i` held is added to what new rank
//! `i mod P` holds, in rank order, and new ranks start at zero, so that no mass is lost; thresholds and partitions restart.
//! With other workers or another batch size the epoch restarts too, unless it was whole: its samples are shared out anew.

use spardl_core::{MethodState, Rank, State};
use spardl_drive::Transport;

use crate::checkpoint::{BUCKETS, BUFFERS, POSITION, Phase, VELOCITY, prefix};
use crate::origin::Origin;
use crate::record::{EpochRecord, Totals};
use crate::store::{self, Arrays, ArraysError, Checkpoint, MODEL, Store};
use crate::worker::{Position, Worker};
use crate::{Score, TrainError};

/// What the old ranks that are now one worker held.
struct Inherited {
    residual: Vec<f32>,
    velocity: Vec<f32>,
    score: Score,
    /// The state of the method for every bucket of every old rank.
    methods: Vec<MethodState>,
    /// Had they the same buckets?
    same_buckets: bool,
}

impl<T: Transport> Worker<'_, T> {
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
            return Err(match store.list()?.is_empty() {
                true => TrainError::NoCheckpoint { dir },
                false => TrainError::AllDamaged { dir },
            });
        };
        self.load(&checkpoint)?;
        if self.is_first() {
            for dir in store.set_aside_after(checkpoint.step())? {
                self.watch.note(&format!("set aside as {}", dir.display()));
            }
            let (step, dir) = (checkpoint.step(), checkpoint.dir().display());
            self.watch
                .note(&format!("going on after step {step}: {dir}"));
        }
        Ok(())
    }

    /// The newest checkpoint of which every worker finds the files it needs whole. One that may be whole but cannot be read,
    /// here and now, is not passed over.
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
            let words = match &checked {
                Ok(_) => String::new(),
                Err(damage) => match damage.remedy() {
                    Some(remedy) => format!("!{damage}\n{remedy}"),
                    None => format!("-{damage}"),
                },
            };
            let all = self.synchroniser.gather(words.as_bytes())?;
            let word = |mark: u8| {
                let said = all.iter().find(|words| words.first() == Some(&mark))?;
                Some(String::from_utf8_lossy(&said[1..]).into_owned())
            };
            if let Some(words) = word(b'!') {
                let (what, advice) = words.split_once('\n').unwrap_or((&words, ""));
                return Err(TrainError::Barred {
                    what: what.to_owned(),
                    advice: advice.to_owned(),
                });
            }
            match (word(b'-'), checked) {
                (None, Ok(checkpoint)) => return Ok(Some(checkpoint)),
                (Some(damage), _) if self.is_first() => {
                    self.watch
                        .note(&format!("{damage}; looking for the one before it"));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), TrainError> {
        let origin = Origin::of(checkpoint, &self.origin())?;
        let same_workers =
            checkpoint.manifest().workers() == self.synchroniser.world().size() as usize;
        self.load_model(checkpoint)?;
        let phase = self.load_twin(checkpoint)?;
        let inherited = self.inherit(checkpoint)?;
        self.position.score = inherited.score;
        if !same_workers || origin.batch_size != self.run.settings.batch_size {
            self.share_out_anew(origin.steps_per_epoch);
        }
        if self.optimiser.is_local() {
            self.set_velocity(checkpoint.step(), &inherited.velocity)?;
        }
        let exact =
            same_workers && inherited.same_buckets && origin.method == self.run.method.describe();
        self.load_method(phase, inherited, exact)
    }

    /// Parameters, velocity and records: what all workers have alike.
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
        let unreadable = |e: serde_json::Error| misfit(format!("its records: {e}"));
        let totals: Totals = serde_json::from_value(entry("totals")).map_err(unreadable)?;
        let epochs: Vec<EpochRecord> =
            serde_json::from_value(entry("epochs")).map_err(unreadable)?;
        (self.position.totals, self.position.epochs) = (totals, epochs);
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

    /// Position and running statistics, of the old rank that is this one modulo the old number of workers.
    fn load_twin(&mut self, checkpoint: &Checkpoint) -> Result<Phase, TrainError> {
        let step = checkpoint.step();
        let misfit = |what: String| TrainError::Misfit { step, what };
        let unfit = |error: ArraysError| misfit(error.to_string());
        let rank = self.synchroniser.world().rank().index();
        let mut own = read(checkpoint, &twin(checkpoint, rank))?;
        let buffers = own.take_f32(BUFFERS).map_err(unfit)?;
        if buffers.len() != self.model.buffers().len() {
            let what = format!("{} running statistics", buffers.len());
            return Err(misfit(what));
        }
        self.model.set_buffers(&buffers);
        let (position, phase) = position(&own, step)?;
        let records = std::mem::take(&mut self.position);
        self.position = Position {
            totals: records.totals,
            epochs: records.epochs,
            ..position
        };
        Ok(phase)
    }

    /// Adds up what the old ranks held that are this one modulo the new number of workers.
    fn inherit(&self, checkpoint: &Checkpoint) -> Result<Inherited, TrainError> {
        let step = checkpoint.step();
        let misfit = |what: String| TrainError::Misfit { step, what };
        let unfit = |error: ArraysError| misfit(error.to_string());
        let buckets = self.synchroniser.buckets().iter();
        let starts: Vec<u64> = buckets.map(|bucket| bucket.range.start as u64).collect();
        let world = self.synchroniser.world();
        let needed = checkpoint.needed_by(world.rank().index(), world.size() as usize);
        let ranks: Vec<String> = needed.into_iter().filter(|name| name != MODEL).collect();
        // Adding to minus zero changes nothing, not even the sign of a zero.
        let nothing = if ranks.is_empty() { 0.0 } else { -0.0 };
        let mut sum = Inherited {
            residual: vec![nothing; self.parameters.len()],
            velocity: vec![nothing; self.optimiser.velocity().len()],
            score: Score::default(),
            methods: Vec::new(),
            same_buckets: true,
        };
        for name in ranks {
            let mut arrays = read(checkpoint, &name)?;
            let old = arrays.u64(BUCKETS).map_err(unfit)?.to_vec();
            sum.same_buckets &= old == starts;
            for start in old {
                let state = arrays.take_state(&prefix(start)).map_err(unfit)?;
                add(&mut sum.residual, start as usize, &state.residual).map_err(misfit)?;
                sum.methods.push(state.method);
            }
            if self.optimiser.is_local() {
                let theirs = arrays.take_f32(VELOCITY).map_err(unfit)?;
                add(&mut sum.velocity, 0, &theirs).map_err(misfit)?;
            }
            sum.score += position(&arrays, step)?.0.score;
        }
        Ok(sum)
    }

    /// Other workers or another batch size: the samples of the epoch are shared out anew. One that was whole, with `steps`
    /// steps, is not trained again, only closed.
    fn share_out_anew(&mut self, steps: u64) {
        if self.position.step_of_epoch >= steps {
            self.position.step_of_epoch = self.steps_per_epoch();
            return;
        }
        self.position.step_of_epoch = 0;
        self.position.score = Score::default();
        self.position.totals = Totals::default();
        self.position.epoch_began = self.position.seconds;
    }

    /// The residual, and when it is `exact` the state of the method too.
    fn load_method(
        &mut self,
        phase: Phase,
        inherited: Inherited,
        exact: bool,
    ) -> Result<(), TrainError> {
        if self.synchroniser.is_warming_up() && !phase.warming_up {
            self.synchroniser.end_warmup()?;
        }
        if !self.synchroniser.is_warming_up() && phase.warming_up {
            return Ok(());
        }
        let fresh = self.synchroniser.states();
        let states: Vec<State> = fresh
            .into_iter()
            .enumerate()
            .map(|(i, (bucket, state))| State {
                residual: match state.residual.is_empty() {
                    true => Vec::new(),
                    false => inherited.residual[bucket.range].to_vec(),
                },
                method: match exact {
                    true => inherited.methods.get(i).cloned().unwrap_or_default(),
                    false => state.method,
                },
            })
            .collect();
        let steps = if exact { phase.steps } else { 0 };
        Ok(self.synchroniser.restore(&states, steps)?)
    }
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

fn position(arrays: &Arrays<'_>, step: u64) -> Result<(Position, Phase), TrainError> {
    let misfit = |what: String| TrainError::Misfit { step, what };
    let numbers = arrays.u64(POSITION).map_err(|e| misfit(e.to_string()))?;
    Position::from_numbers(numbers)
        .ok_or_else(|| misfit(format!("{} numbers of the position", numbers.len())))
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
