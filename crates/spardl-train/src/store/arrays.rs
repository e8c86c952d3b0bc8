//! Named arrays and a little metadata: what one file of a checkpoint holds.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde_json::Value;
use spardl::{Array, MethodState, State};

use super::format;

/// Named arrays and a JSON value: the content of one `.safetensors` file.
///
/// Arrays may be borrowed, so that saving a model does not copy it. Numbers that must come back bit for bit belong in arrays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrays<'a> {
    arrays: BTreeMap<String, Entry<'a>>,
    /// Anything that is not an array, small.
    pub metadata: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry<'a> {
    pub(super) shape: Vec<usize>,
    pub(super) values: Values<'a>,
}

/// The values of one array.
#[derive(Clone, Debug, PartialEq)]
pub enum Values<'a> {
    /// Parameters, momenta, residuals.
    F32(Cow<'a, [f32]>),
    /// Counters, positions, the state of a random generator.
    U64(Cow<'a, [u64]>),
}

/// What is wrong with arrays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArraysError {
    /// No such array, or one of another type.
    #[error("array `{name}` is {got}: expected a list of {expected}")]
    Mismatch {
        /// The array's name.
        name: String,
        /// The type looked for.
        expected: &'static str,
        /// What is there instead.
        got: String,
    },
    /// A shape that does not go with the values.
    #[error("array `{name}` has {len} values: expected as many as its shape {shape:?} holds")]
    Shape {
        /// The array's name.
        name: String,
        /// The shape given.
        shape: Vec<usize>,
        /// The number of values given.
        len: usize,
    },
    /// Not a file of arrays, or not one of ours.
    #[error("not a file of arrays: {0}")]
    Format(String),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl<'a> Arrays<'a> {
    /// No arrays, and this metadata.
    #[must_use]
    pub fn new(metadata: Value) -> Self {
        Self {
            arrays: BTreeMap::new(),
            metadata,
        }
    }

    /// Adds a flat list under `name`, in the place of another one of that name.
    pub fn insert(&mut self, name: impl Into<String>, values: impl Into<Values<'a>>) {
        let values = values.into();
        let shape = vec![values.len()];
        self.arrays.insert(name.into(), Entry { shape, values });
    }

    /// Adds a tensor under `name`, as other tools will see it.
    ///
    /// # Errors
    /// When `shape` holds another number of elements than `values`.
    pub fn insert_shaped(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        values: impl Into<Values<'a>>,
    ) -> Result<(), ArraysError> {
        let (name, values) = (name.into(), values.into());
        let shape = shape.to_vec();
        let elements = shape.iter().copied().try_fold(1, usize::checked_mul);
        if elements != Some(values.len()) {
            let len = values.len();
            return Err(ArraysError::Shape { name, shape, len });
        }
        self.arrays.insert(name, Entry { shape, values });
        Ok(())
    }

    /// The floating-point values under `name`.
    ///
    /// # Errors
    /// When there are none of that name and type.
    pub fn f32(&self, name: &str) -> Result<&[f32], ArraysError> {
        match self.values(name) {
            Some(Values::F32(values)) => Ok(values),
            other => Err(mismatch(name, "f32", other)),
        }
    }

    /// The integers under `name`.
    ///
    /// # Errors
    /// When there are none of that name and type.
    pub fn u64(&self, name: &str) -> Result<&[u64], ArraysError> {
        match self.values(name) {
            Some(Values::U64(values)) => Ok(values),
            other => Err(mismatch(name, "u64", other)),
        }
    }

    /// Takes the floating-point values under `name` out, without a copy when they are owned.
    ///
    /// # Errors
    /// When there are none of that name and type.
    pub fn take_f32(&mut self, name: &str) -> Result<Vec<f32>, ArraysError> {
        self.f32(name)?;
        match self.arrays.remove(name).map(|entry| entry.values) {
            Some(Values::F32(values)) => Ok(values.into_owned()),
            other => Err(mismatch(name, "f32", other.as_ref())),
        }
    }

    /// The values under `name`, of either type.
    #[must_use]
    pub fn values(&self, name: &str) -> Option<&Values<'a>> {
        self.arrays.get(name).map(|entry| &entry.values)
    }

    /// The shape of the array under `name`.
    #[must_use]
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.arrays.get(name).map(|entry| entry.shape.as_slice())
    }

    /// All names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.arrays.keys().map(String::as_str)
    }

    /// Adds the state of one collective: `PREFIX.residual` and `PREFIX.method.NAME`.
    pub fn insert_state(&mut self, prefix: &str, state: &'a State) {
        self.insert(format!("{prefix}.residual"), state.residual.as_slice());
        for (name, array) in state.method.arrays() {
            self.insert(format!("{prefix}.method.{name}"), array);
        }
    }

    /// Takes the state that [`Arrays::insert_state`] added under `prefix` out again.
    ///
    /// # Errors
    /// When there is none.
    pub fn take_state(&mut self, prefix: &str) -> Result<State, ArraysError> {
        let residual = self.take_f32(&format!("{prefix}.residual"))?;
        let prefix = format!("{prefix}.method.");
        let own = |(name, _): &(&String, &Entry<'_>)| name.starts_with(&prefix);
        let rest = self.arrays.range(prefix.clone()..).take_while(own);
        let names: Vec<String> = rest.map(|(name, _)| name.clone()).collect();
        let mut method = MethodState::default();
        for name in names {
            if let Some(entry) = self.arrays.remove(&name) {
                method.insert(name[prefix.len()..].to_owned(), entry.values.into());
            }
        }
        Ok(State { residual, method })
    }

    /// Writes the arrays in the safetensors format. The same arrays give the same bytes.
    ///
    /// # Errors
    /// When a name is reserved by the format or writing fails.
    pub fn write_to(&self, to: &mut dyn Write) -> Result<(), ArraysError> {
        format::write(&self.arrays, &self.metadata, to)
    }
}

impl Arrays<'static> {
    /// Reads what [`Arrays::write_to`] wrote, `len` bytes to the end of `from`.
    ///
    /// # Errors
    /// When it is not that, or reading fails. Never needs more memory than `len` can justify.
    pub fn read_from(from: &mut dyn Read, len: u64) -> Result<Self, ArraysError> {
        let (arrays, metadata) = format::read(from, len)?;
        Ok(Self { arrays, metadata })
    }
}

impl Values<'_> {
    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::U64(values) => values.len(),
        }
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Vec<f32>> for Values<'_> {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(values.into())
    }
}

impl<'a> From<&'a [f32]> for Values<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values.into())
    }
}

impl From<Vec<u64>> for Values<'_> {
    fn from(values: Vec<u64>) -> Self {
        Self::U64(values.into())
    }
}

impl<'a> From<&'a [u64]> for Values<'a> {
    fn from(values: &'a [u64]) -> Self {
        Self::U64(values.into())
    }
}

impl<'a> From<&'a Array> for Values<'a> {
    fn from(array: &'a Array) -> Self {
        match array {
            Array::F32(values) => values.as_slice().into(),
            Array::U64(values) => values.as_slice().into(),
        }
    }
}

impl From<Values<'_>> for Array {
    fn from(values: Values<'_>) -> Self {
        match values {
            Values::F32(values) => Self::F32(values.into_owned()),
            Values::U64(values) => Self::U64(values.into_owned()),
        }
    }
}

fn mismatch(name: &str, expected: &'static str, got: Option<&Values<'_>>) -> ArraysError {
    let got = match got {
        None => "missing".to_owned(),
        Some(Values::F32(values)) => format!("a list of {} f32", values.len()),
        Some(Values::U64(values)) => format!("a list of {} u64", values.len()),
    };
    ArraysError::Mismatch {
        name: name.to_owned(),
        expected,
        got,
    }
}
