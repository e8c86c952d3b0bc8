//! How a replica goes on from what was saved.
//!
//! At the same number of workers it goes on bit for bit. At another one, what old rank `i` held is added to what new rank
//! `i mod P` holds, in rank order, and new ranks start at zero, so that no mass is lost; thresholds and partitions restart.

use spardl::{MethodState, Saved, SavedBucket, State, Transport};

use super::Learner;
use super::save::{BUCKETS, BUFFERS, DECAY, NUMBERS, SECOND_MOMENT, VELOCITY, WAITS, prefix};
use crate::TrainError;
use crate::error::Mismatch;
use crate::store::Arrays;

/// What the old ranks that are now one worker held.
pub(crate) struct Inherited {
    residual: Vec<f32>,
    velocity: Vec<f32>,
    /// The state of the method for every bucket of every old rank.
    methods: Vec<MethodState>,
    /// Had they the same buckets?
    same_buckets: bool,
}

impl<T: Transport> Learner<'_, T> {
    /// Takes over what all workers had alike.
    pub(crate) fn load_shared(&mut self, arrays: &mut Arrays<'_>) -> Result<(), Mismatch> {
        for part in self.model.layout().parts() {
            let values = arrays.f32(&part.name)?;
            let shape = arrays.shape(&part.name).unwrap_or_default();
            if shape != part.shape {
                return Err(Mismatch::Shape {
                    name: part.name.clone(),
                    saved: shape.to_vec(),
                    now: part.shape.clone(),
                });
            }
            self.parameters[part.offset as usize..][..part.len()].copy_from_slice(values);
        }
        self.model.set_parameters(&self.parameters);
        match self.optimiser.is_local() {
            true => self.set_decay(&arrays.take_f32(DECAY).unwrap_or_default())?,
            false => self.set_velocity(&arrays.take_f32(VELOCITY).unwrap_or_default())?,
        }
        let second = arrays.take_f32(SECOND_MOMENT).unwrap_or_default();
        same_len(&second, self.optimiser.second_moment())?;
        self.optimiser.set_second_moment(&second);
        let waits = arrays.take_f32(WAITS).unwrap_or_default();
        same_len(&waits, self.optimiser.waits())?;
        self.optimiser.set_waits(&waits);
        let numbers = <[f32; 4]>::try_from(arrays.take_f32(NUMBERS)?);
        let wrong =
            |n: Vec<f32>| Mismatch::Contents(format!("{} numbers of the optimiser", n.len()));
        self.optimiser.set_numbers(numbers.map_err(wrong)?);
        Ok(())
    }

    /// Takes over the running statistics of an old rank.
    pub(crate) fn load_buffers(&mut self, arrays: &mut Arrays<'_>) -> Result<(), Mismatch> {
        let buffers = arrays.take_f32(BUFFERS)?;
        let now = self.model.buffers().len();
        if buffers.len() != now {
            let saved = buffers.len();
            return Err(Mismatch::Statistics { saved, now });
        }
        self.model.set_buffers(&buffers);
        Ok(())
    }

    /// What a worker inherits from so many old ranks, before the first of them.
    pub(crate) fn inherit(&self, ranks: usize) -> Inherited {
        // Adding to minus zero changes nothing, not even the sign of a zero.
        let nothing = if ranks == 0 { 0.0 } else { -0.0 };
        Inherited {
            residual: vec![nothing; self.parameters.len()],
            velocity: vec![nothing; self.optimiser.velocity().len()],
            methods: Vec::new(),
            same_buckets: true,
        }
    }

    /// Adds what one old rank held.
    pub(crate) fn inherit_from(
        &self,
        arrays: &mut Arrays<'_>,
        sum: &mut Inherited,
    ) -> Result<(), Mismatch> {
        let starts = (0..self.reducer.buckets()).map(|b| self.reducer.range(b).start as u64);
        let old = arrays.u64(BUCKETS)?.to_vec();
        sum.same_buckets &= starts.eq(old.iter().copied());
        for start in old {
            let state = arrays.take_state(&prefix(start))?;
            add(&mut sum.residual, start as usize, &state.residual)?;
            sum.methods.push(state.method);
        }
        if self.optimiser.is_local() {
            add(&mut sum.velocity, 0, &arrays.take_f32(VELOCITY)?)?;
        }
        Ok(())
    }

    /// Goes on after `step` steps with what was inherited; with the states of the method too when workers and method are the
    /// `same`.
    pub(crate) fn restore(
        &mut self,
        step: u64,
        warming_up: bool,
        inherited: Inherited,
        same: bool,
    ) -> Result<(), TrainError> {
        if self.optimiser.is_local() {
            self.set_velocity(&inherited.velocity)
                .map_err(|cause| TrainError::Mismatch { step, cause })?;
        }
        if !warming_up {
            self.reducer.end_warm_up()?;
        }
        let buckets = match same && inherited.same_buckets {
            true => self.exact(inherited),
            false => vec![SavedBucket {
                len: inherited.residual.len() as u64,
                state: State {
                    residual: inherited.residual,
                    ..State::default()
                },
            }],
        };
        let method = match same {
            true => self.reducer.method().describe(),
            false => String::new(),
        };
        self.reducer.restore(&Saved {
            method,
            step,
            warming_up,
            buckets,
        })?;
        Ok(())
    }

    /// Does something wait that the method may lose?
    pub(crate) fn may_lose(&self) -> bool {
        let mut waits = (0..self.reducer.buckets()).flat_map(|b| self.reducer.residual(b));
        !self.reducer.method().laws().conserves && waits.any(|value| *value != 0.0)
    }

    /// The buckets as they were.
    fn exact(&self, inherited: Inherited) -> Vec<SavedBucket> {
        let methods = inherited.methods.into_iter().enumerate();
        let buckets = methods.map(|(bucket, method)| {
            let waits = &inherited.residual[self.reducer.range(bucket)];
            let nothing = waits.iter().all(|value| *value == 0.0);
            SavedBucket {
                len: waits.len() as u64,
                state: State {
                    residual: match nothing && self.reducer.residual(bucket).is_empty() {
                        true => Vec::new(),
                        false => waits.to_vec(),
                    },
                    method,
                },
            }
        });
        buckets.collect()
    }

    fn set_velocity(&mut self, velocity: &[f32]) -> Result<(), Mismatch> {
        same_len(velocity, self.optimiser.velocity())?;
        self.optimiser.set_velocity(velocity);
        Ok(())
    }

    fn set_decay(&mut self, decay: &[f32]) -> Result<(), Mismatch> {
        same_len(decay, self.optimiser.decay())?;
        self.optimiser.set_decay(decay);
        Ok(())
    }
}

/// What the optimiser keeps of every element has the length that it had.
fn same_len(saved: &[f32], now: &[f32]) -> Result<(), Mismatch> {
    let (saved, now) = (saved.len(), now.len());
    match saved == now {
        true => Ok(()),
        false => Err(Mismatch::Velocity { saved, now }),
    }
}

fn add(sum: &mut [f32], start: usize, values: &[f32]) -> Result<(), Mismatch> {
    let (len, now) = (values.len(), sum.len());
    let place = sum
        .get_mut(start..)
        .and_then(|rest| rest.get_mut(..len))
        .ok_or(Mismatch::Elements { start, len, now })?;
    for (sum, value) in place.iter_mut().zip(values) {
        *sum += value;
    }
    Ok(())
}
