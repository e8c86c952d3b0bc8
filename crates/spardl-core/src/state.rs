//! What a worker saves: the residual, and the small named state of its method.

use std::collections::BTreeMap;

use crate::error::ConfigError;

/// Everything one worker's collective keeps from step to step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// The residual; empty for methods that keep none.
    pub residual: Vec<f32>,
    /// The method's own state.
    pub method: MethodState,
}

/// Named arrays of a method: thresholds, partitions, counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MethodState {
    arrays: BTreeMap<String, Array>,
}

/// One named array of a method's state.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Floating-point values.
    F32(Vec<f32>),
    /// Counters, positions and flags.
    U64(Vec<u64>),
}

impl MethodState {
    /// Adds floating-point values under `name`.
    #[must_use]
    pub fn with_f32(mut self, name: &str, values: impl Into<Vec<f32>>) -> Self {
        self.arrays
            .insert(name.to_owned(), Array::F32(values.into()));
        self
    }

    /// Adds integers under `name`.
    #[must_use]
    pub fn with_u64(mut self, name: &str, values: impl Into<Vec<u64>>) -> Self {
        self.arrays
            .insert(name.to_owned(), Array::U64(values.into()));
        self
    }

    /// The floating-point values under `name`.
    ///
    /// # Errors
    /// When there are none of that name and type.
    pub fn f32(&self, name: &str) -> Result<&[f32], ConfigError> {
        match self.arrays.get(name) {
            Some(Array::F32(values)) => Ok(values),
            other => Err(mismatch(name, "a list of f32", other)),
        }
    }

    /// The integers under `name`.
    ///
    /// # Errors
    /// When there are none of that name and type.
    pub fn u64(&self, name: &str) -> Result<&[u64], ConfigError> {
        match self.arrays.get(name) {
            Some(Array::U64(values)) => Ok(values),
            other => Err(mismatch(name, "a list of u64", other)),
        }
    }

    /// All arrays in name order, for saving.
    pub fn arrays(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.arrays
            .iter()
            .map(|(name, array)| (name.as_str(), array))
    }

    /// Adds an array, for loading.
    pub fn insert(&mut self, name: String, array: Array) {
        self.arrays.insert(name, array);
    }

    /// Is there nothing to restore? Methods without state of their own accept only this.
    ///
    /// # Errors
    /// When the state holds anything.
    pub fn expect_empty(&self) -> Result<(), ConfigError> {
        match self.arrays.iter().next() {
            None => Ok(()),
            Some((name, array)) => Err(mismatch(name, "nothing", Some(array))),
        }
    }
}

fn mismatch(name: &str, expected: &str, got: Option<&Array>) -> ConfigError {
    let got = match got {
        None => "missing".to_owned(),
        Some(Array::F32(values)) => format!("a list of {} f32", values.len()),
        Some(Array::U64(values)) => format!("a list of {} u64", values.len()),
    };
    ConfigError::StateMismatch {
        what: name.to_owned(),
        expected: expected.to_owned(),
        got,
    }
}
