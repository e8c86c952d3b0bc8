//! What a reducer saves, and how it goes on from it.

use spardl_core::{Collective, ConfigError, State};
use spardl_drive::Transport;

use super::Reducer;
use crate::Error;
use crate::saved::{Saved, SavedBucket};

/// How much of a saved state a reducer could go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restored {
    /// All of it: the next steps have the bits of a run that was never stopped.
    Exact,
    /// The residual. The method or the buckets are others, so thresholds and partitions restart; a method that keeps no residual
    /// sends it with the next step.
    Residual,
    /// The number of the step. It was saved in a warm-up that this reducer has left.
    Step,
}

impl<T: Transport> Reducer<T> {
    /// Everything that lives on from step to step.
    pub fn save(&self) -> Saved {
        let collectives = self.driver.collectives().iter().zip(&self.waiting);
        let collectives = self.layouts.iter().zip(collectives);
        let buckets = collectives.map(|(layout, (collective, waiting))| {
            let mut state = collective.state();
            if !waiting.is_empty() {
                state.residual.clone_from(waiting);
            }
            SavedBucket {
                len: layout.len().into(),
                state,
            }
        });
        Saved {
            method: self.algorithm.describe(),
            step: self.step,
            warming_up: self.warming_up,
            buckets: buckets.collect(),
        }
    }

    /// Goes on from what was saved, and says from how much of it. The buckets may be cut anew.
    ///
    /// # Errors
    /// When the state does not fit, or a step is not finished or not decided.
    pub fn restore(&mut self, saved: &Saved) -> Result<Restored, Error> {
        self.between_steps("restore")?;
        if !saved.warming_up {
            self.end_warm_up()?;
        }
        let lengths = self.layouts.iter().map(|layout| u64::from(layout.len()));
        let same_buckets = lengths.eq(saved.buckets.iter().map(|bucket| bucket.len));
        let restored = if saved.warming_up != self.warming_up {
            Restored::Step
        } else if same_buckets && saved.method == self.algorithm.describe() {
            let collectives = self.driver.collectives_mut().iter_mut();
            let places = collectives.zip(&mut self.waiting);
            for ((collective, waiting), bucket) in places.zip(&saved.buckets) {
                let State { residual, method } = &bucket.state;
                match collective.residual().is_empty() {
                    false => collective.restore(&bucket.state)?,
                    true => {
                        let (residual, method) = (Vec::new(), method.clone());
                        collective.restore(&State { residual, method })?;
                    }
                }
                *waiting = waiting_beside(collective, residual)?;
            }
            Restored::Exact
        } else {
            self.restore_residual(&saved.buckets)?;
            Restored::Residual
        };
        self.step = saved.step;
        Ok(restored)
    }

    /// Cuts what waits in other buckets into these.
    pub(super) fn restore_residual(&mut self, saved: &[SavedBucket]) -> Result<(), Error> {
        let mut all = Vec::with_capacity(self.len());
        for SavedBucket { len, state } in saved {
            let end = all.len() + *len as usize;
            all.extend_from_slice(&state.residual);
            // A method that keeps no residual has nothing that waits.
            all.resize(end.min(self.len() + 1), 0.0);
        }
        if all.len() != self.len() {
            let lengths = saved.iter().map(|bucket| bucket.len);
            return Err(ConfigError::StateMismatch {
                what: "the number of elements of all buckets".to_owned(),
                expected: self.len().to_string(),
                got: lengths.fold(0, u64::saturating_add).to_string(),
            }
            .into());
        }
        let ranges: Vec<_> = (0..self.buckets()).map(|b| self.range(b)).collect();
        let collectives = self.driver.collectives_mut().iter_mut();
        for ((collective, waiting), range) in collectives.zip(&mut self.waiting).zip(ranges) {
            if !collective.residual().is_empty() {
                collective.restore_residual(&all[range.clone()])?;
            }
            *waiting = waiting_beside(collective, &all[range])?;
        }
        Ok(())
    }
}

/// What of a residual has to wait beside a collective that keeps none; nothing when it is all zeros.
fn waiting_beside(collective: &Collective, residual: &[f32]) -> Result<Vec<f32>, ConfigError> {
    if !collective.residual().is_empty() || residual.iter().all(|value| *value == 0.0) {
        return Ok(Vec::new());
    }
    match residual.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(ConfigError::NonFiniteResidual { index }),
        None => Ok(residual.to_vec()),
    }
}
