//! What a worker keeps, as bytes: safetensors, which other tools read too.

use std::collections::{BTreeMap, HashMap};

use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use serde::{Deserialize, Serialize};
use spardl_core::State;
use spardl_core::state::Array;

/// Raised when old readers could misread new bytes.
const FORMAT: u32 = 1;
/// Our key in the metadata of the format, which is text to text: ours is JSON.
const KEY: &str = "spardl";

/// Everything one worker keeps from step to step, with what it belongs to.
///
/// The arrays are called `bucket.I.residual` and `bucket.I.method.NAME`.
///
/// # Example
///
/// ```
/// use spardl::{Saved, SavedBucket, State};
///
/// let state = State { residual: vec![0.5, -2.0], ..State::default() };
/// let saved = Saved {
///     method: "spardl".to_owned(),
///     step: 7,
///     warming_up: false,
///     buckets: vec![SavedBucket { len: 2, state }],
/// };
/// let bytes = saved.to_bytes();
/// assert_eq!(Saved::from_bytes(&bytes)?, saved);
/// assert!(Saved::from_bytes(&bytes[1..]).is_err());
/// # Ok::<(), spardl::SavedError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// The method and its configuration, as its `describe` says.
    pub method: String,
    /// The number of the next step.
    pub step: u64,
    /// Was it saved in a dense warm-up? Then the buckets are those of the dense method.
    pub warming_up: bool,
    /// The buckets, in order.
    pub buckets: Vec<SavedBucket>,
}

/// What a worker keeps of one bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedBucket {
    /// The number of elements.
    pub len: u64,
    /// The residual (empty for methods that keep none) and the state of the method.
    pub state: State,
}

/// Bytes that are not a saved state of this format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a saved state: {0}")]
pub struct SavedError(String);

/// Our part of the metadata.
#[derive(Serialize, Deserialize)]
struct About {
    format: u32,
    method: String,
    step: u64,
    warming_up: bool,
    lengths: Vec<u64>,
}

impl Saved {
    /// The bytes of a safetensors file. The same state gives the same bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let about = About {
            format: FORMAT,
            method: self.method.clone(),
            step: self.step,
            warming_up: self.warming_up,
            lengths: self.buckets.iter().map(|bucket| bucket.len).collect(),
        };
        let about = serde_json::to_string(&about).expect("numbers and text are JSON");
        let mut arrays = Vec::new();
        for (i, SavedBucket { state, .. }) in self.buckets.iter().enumerate() {
            let residual = f32_bytes(&state.residual);
            arrays.push((format!("bucket.{i}.residual"), Dtype::F32, residual));
            for (name, array) in state.method.arrays() {
                let (dtype, bytes) = match array {
                    Array::F32(values) => (Dtype::F32, f32_bytes(values)),
                    Array::U64(values) => (Dtype::U64, u64_bytes(values)),
                };
                arrays.push((format!("bucket.{i}.method.{name}"), dtype, bytes));
            }
        }
        let views = arrays.iter().map(|(name, dtype, bytes)| {
            let shape = vec![bytes.len() * 8 / dtype.bitsize()];
            let view =
                TensorView::new(*dtype, shape, bytes).expect("the shape is that of the bytes");
            (name, view)
        });
        let metadata = HashMap::from([(KEY.to_owned(), about)]);
        serialize(views, Some(metadata)).expect("arrays with their own lengths can be written")
    }

    /// Reads what [`Saved::to_bytes`] wrote.
    ///
    /// # Errors
    /// When the bytes are anything else. Never panics, and needs no more memory than the bytes justify.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SavedError> {
        let arrays = SafeTensors::deserialize(bytes).map_err(invalid)?;
        let about = about(bytes)?;
        let mut buckets = Vec::new();
        let mut arrays: BTreeMap<_, _> = arrays.iter().collect();
        for (i, len) in about.lengths.into_iter().enumerate() {
            let state = take_state(&mut arrays, i, len)?;
            buckets.push(SavedBucket { len, state });
        }
        match arrays.first_key_value() {
            Some((name, _)) => Err(SavedError(format!("array `{name}` belongs to no bucket"))),
            None => Ok(Self {
                method: about.method,
                step: about.step,
                warming_up: about.warming_up,
                buckets,
            }),
        }
    }
}

fn about(bytes: &[u8]) -> Result<About, SavedError> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(invalid)?;
    let text = header.metadata().as_ref().and_then(|all| all.get(KEY));
    let Some(text) = text else {
        let message = format!("it has no metadata `{KEY}`: another program wrote it");
        return Err(SavedError(message));
    };
    let about: About = serde_json::from_str(text).map_err(invalid)?;
    if about.format != FORMAT {
        let message = format!("format {}: this version reads {FORMAT}", about.format);
        return Err(SavedError(message));
    }
    Ok(about)
}

/// Takes the arrays of bucket `i` out.
fn take_state(
    arrays: &mut BTreeMap<&str, TensorView<'_>>,
    i: usize,
    len: u64,
) -> Result<State, SavedError> {
    let name = format!("bucket.{i}.residual");
    let residual = match arrays.remove(name.as_str()).map(|view| array(&name, &view)) {
        Some(Ok(Array::F32(values))) if values.is_empty() || values.len() as u64 == len => values,
        Some(Err(error)) => return Err(error),
        _ => {
            let message = format!("`{name}` is missing, or not 0 or {len} values of f32");
            return Err(SavedError(message));
        }
    };
    let prefix = format!("bucket.{i}.method.");
    let own = |name: &&str| name.starts_with(&prefix);
    let names: Vec<&str> = arrays.keys().copied().filter(own).collect();
    let mut state = State {
        residual,
        ..State::default()
    };
    for name in names {
        if let Some(view) = arrays.remove(name) {
            let values = array(name, &view)?;
            state.method.insert(name[prefix.len()..].to_owned(), values);
        }
    }
    Ok(state)
}

fn array(name: &str, view: &TensorView<'_>) -> Result<Array, SavedError> {
    match view.dtype() {
        Dtype::F32 => Ok(Array::F32(values(view, f32::from_le_bytes))),
        Dtype::U64 => Ok(Array::U64(values(view, u64::from_le_bytes))),
        other => {
            let message = format!("array `{name}` holds {other}: expected F32 or U64");
            Err(SavedError(message))
        }
    }
}

fn values<T, const W: usize>(view: &TensorView<'_>, value: impl Fn([u8; W]) -> T) -> Vec<T> {
    let chunks = view.data().as_chunks().0;
    chunks.iter().map(|&bytes| value(bytes)).collect()
}

fn f32_bytes(values: &[f32]) -> Vec<u8> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.collect()
}

fn u64_bytes(values: &[u64]) -> Vec<u8> {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    bytes.collect()
}

fn invalid(error: impl std::fmt::Display) -> SavedError {
    SavedError(error.to_string())
}
