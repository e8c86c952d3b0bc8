//! What a worker saves of its replica.

use spardl::{Saved, Transport};

use super::Learner;
use crate::store::{Arrays, ArraysError};

pub(super) const VELOCITY: &str = "optimiser.velocity";
pub(super) const DECAY: &str = "optimiser.decay";
pub(super) const SECOND_MOMENT: &str = "optimiser.second-moment";
pub(super) const WAITS: &str = "optimiser.waits";
pub(super) const NUMBERS: &str = "optimiser.numbers";
pub(super) const BUFFERS: &str = "buffers";
pub(super) const BUCKETS: &str = "buckets";

/// Copies of what is saved of one worker.
pub(crate) struct Own {
    buffers: Vec<f32>,
    saved: Saved,
    starts: Vec<u64>,
}

impl<T: Transport> Learner<'_, T> {
    /// What all workers have alike: the parameters by name, and of the optimiser what is not each worker's own.
    pub(crate) fn save_shared<'s>(&'s self, arrays: &mut Arrays<'s>) -> Result<(), ArraysError> {
        for part in self.model.layout().parts() {
            let values = &self.parameters[part.offset as usize..][..part.len()];
            arrays.insert_shaped(part.name.as_str(), &part.shape, values)?;
        }
        match self.optimiser.is_local() {
            true => arrays.insert(DECAY, self.optimiser.decay()),
            false => arrays.insert(VELOCITY, self.optimiser.velocity()),
        }
        arrays.insert(SECOND_MOMENT, self.optimiser.second_moment());
        arrays.insert(WAITS, self.optimiser.waits());
        arrays.insert(NUMBERS, self.optimiser.numbers().to_vec());
        Ok(())
    }

    /// What only this worker has.
    pub(crate) fn own(&self) -> Own {
        let buckets = 0..self.reducer.buckets();
        Own {
            buffers: self.model.buffers(),
            saved: self.reducer.save(),
            starts: buckets
                .map(|b| self.reducer.range(b).start as u64)
                .collect(),
        }
    }

    /// Its running statistics, residuals and methods, and its velocity where each worker has one.
    pub(crate) fn save_own<'s>(&'s self, own: &'s Own, arrays: &mut Arrays<'s>) {
        arrays.insert(BUFFERS, own.buffers.as_slice());
        arrays.insert(BUCKETS, own.starts.as_slice());
        for (start, bucket) in own.starts.iter().zip(&own.saved.buckets) {
            arrays.insert_state(&prefix(*start), &bucket.state);
        }
        if self.optimiser.is_local() {
            arrays.insert(VELOCITY, self.optimiser.velocity());
        }
    }
}

pub(super) fn prefix(start: u64) -> String {
    format!("bucket.{start}")
}
