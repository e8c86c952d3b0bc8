//! Dense all-reduce in which nothing is lost to rounding: the worker that rounds a value keeps the error.
//!
//! Each element leaves each worker once, as a partial sum in the reduce-scatter or as the complete sum at its owner (see
//! [`AllReduce::leaving`]); there it is quantised, block by block as it travels. So, per element and exactly:
//!
//! ```text
//! sum over workers of what they contributed  =  sum delivered + sum over workers of the errors kept
//! ```

use std::ops::Range;

use super::AllReduce;
use crate::codec::{Reader, ValueType};
use crate::collective::{Received, Round};
use crate::error::{DecodeError, ProtocolError};
use crate::world::Group;

/// The sum over a group of one array per worker, and what rounding took from this worker's values.
#[derive(Debug)]
pub struct KeepingReduce {
    values: ValueType,
    sums: Vec<f32>,
    errors: Vec<f32>,
    reduce: AllReduce,
    alone: bool,
}

impl KeepingReduce {
    /// Contributes `own`, an array of the same length on every worker of the group.
    pub fn new(group: Group, own: Vec<f32>, values: ValueType) -> Self {
        let errors = vec![0.0; if values.is_exact() { 0 } else { own.len() }];
        let reduce = AllReduce::new(group, own.len() as u32, values);
        Self {
            values,
            sums: own,
            errors,
            reduce,
            alone: group.size() == 1,
        }
    }

    /// What to exchange now; `None` when the sums are complete.
    pub fn round(&mut self) -> Option<Round> {
        let (sums, errors) = (&mut self.sums, &mut self.errors);
        for range in self.reduce.leaving() {
            keep_errors(self.values, sums, errors, range);
        }
        self.reduce.round(sums)
    }

    /// Takes the values of the current round.
    ///
    /// # Errors
    /// As [`AllReduce::absorb`].
    pub fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        self.reduce.absorb(&mut self.sums, received)
    }

    /// [`KeepingReduce::absorb`] from a message that carries more than this phase.
    ///
    /// # Errors
    /// As [`AllReduce::absorb_part`].
    pub fn absorb_part(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.reduce.absorb_part(&mut self.sums, reader)
    }

    /// As [`AllReduce::gathers`].
    pub fn gathers(&self) -> bool {
        self.reduce.gathers()
    }

    /// The sums, once `round` has returned `None`, and the errors kept here; no errors when the value type rounds nothing.
    pub fn finish(mut self) -> (Vec<f32>, Vec<f32>) {
        if self.alone {
            let all = 0..self.sums.len();
            keep_errors(self.values, &mut self.sums, &mut self.errors, all);
        }
        (self.sums, self.errors)
    }
}

fn keep_errors(values: ValueType, sums: &mut [f32], errors: &mut [f32], range: Range<usize>) {
    if !errors.is_empty() {
        values.quantise(&mut sums[range.clone()], &mut errors[range]);
    }
}
