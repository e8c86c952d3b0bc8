//! A payload by itself: chunked top-k with error feedback, packed to bytes, for those who exchange payloads themselves.
//!
//! A payload is a version byte, the value type's place in the list of them, the length of the array (u32, little endian) and one list of entries.

use pyo3::prelude::*;
use spardl_core::codec::Reader;
use spardl_core::{Codec, Entries, ValueType, list};

use crate::memory::Memory;
use crate::message::{Lent, Message};
use crate::{ProtocolError, config, methods};

const VERSION: u8 = 1;
const PREFIX: usize = 6;

/// The largest entries of every chunk of ``gradient + residual``, packed to bytes.
///
/// ``residual`` (float32, or None for none) is replaced by what was not packed, rounding errors included.
#[pyfunction]
#[pyo3(signature = (gradient, residual = None, *, density = 0.01, chunk = 4096, value_type = "f32"))]
pub(crate) fn encode(
    py: Python<'_>,
    gradient: &Bound<'_, PyAny>,
    residual: Option<&Bound<'_, PyAny>>,
    density: f64,
    chunk: usize,
    value_type: &str,
) -> PyResult<Message> {
    let gradient = Memory::borrow(gradient)?;
    let mut residual = residual.map(Memory::borrow).transpose()?;
    let values: ValueType = value_type.parse().map_err(config)?;
    if chunk == 0 {
        return Err(config("a chunk has at least one element, got 0"));
    }
    let quota = methods::entries(density, chunk)?;
    let len = u32::try_from(gradient.len()).map_err(config)?;
    let mut rest = match &mut residual {
        None => None,
        Some(residual) if residual.len() == gradient.len() => Some(residual.f32_mut()?),
        Some(residual) => {
            return Err(config(format!(
                "the residual has {} elements, expected {len}",
                residual.len()
            )));
        }
    };
    py.detach(|| {
        let source = gradient.values();
        let mut work: Vec<f32> = (0..gradient.len()).map(|i| source.get(i)).collect();
        if let Some(rest) = &rest {
            for (work, rest) in work.iter_mut().zip(rest.iter()) {
                *work += rest;
            }
        }
        if !work.iter().all(|value| value.is_finite()) {
            return Err(config("the gradient holds NaN or an infinity"));
        }
        let kept = select(&mut work, chunk, quota, values);
        if let Some(rest) = &mut rest {
            rest.copy_from_slice(&work);
        }
        let place = ValueType::ALL.iter().position(|&one| one == values);
        let mut bytes = vec![VERSION, place.unwrap_or_default() as u8];
        bytes.extend(len.to_le_bytes());
        codec(values).encode(0, len, &kept.indices, &kept.values, &mut bytes);
        Ok(Message::new(bytes))
    })
}

/// Writes a payload's entries times ``scale`` over ``out``, or adds them to it (float32); returns how many there were.
#[pyfunction]
#[pyo3(signature = (payload, out, *, scale = 1.0, add = false))]
pub(crate) fn decode(
    py: Python<'_>,
    payload: Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    scale: f32,
    add: bool,
) -> PyResult<usize> {
    let lent = Lent::borrow(&[payload])?;
    let mut out = Memory::borrow(out)?;
    out.check_writable()?;
    py.detach(|| {
        let bytes = lent.bytes().next().unwrap_or_default();
        let entries = unpack(bytes, out.len())?;
        let places = entries.indices.iter().map(|&index| index as usize);
        if add {
            let out = out.f32_mut()?;
            for (place, value) in places.zip(&entries.values) {
                out[place] += value * scale;
            }
        } else {
            out.clear();
            out.set(places.zip(entries.values.iter().map(|value| value * scale)));
        }
        Ok(entries.len())
    })
}

fn codec(values: ValueType) -> Codec {
    Codec {
        values,
        ..Codec::default()
    }
}

/// The `quota` largest entries of every chunk, quantised together as they travel; `work` keeps what is left.
fn select(work: &mut [f32], chunk: usize, quota: usize, values: ValueType) -> Entries {
    let mut all = Entries::default();
    for (start, part) in (0..).step_by(chunk).zip(work.chunks_mut(chunk)) {
        let mut list = Entries::default();
        for (index, &value) in (start as u32..).zip(part.iter()) {
            if value != 0.0 {
                list.indices.push(index);
                list.values.push(value);
            }
        }
        let (kept, left) = list::split_top(&list, quota, ValueType::F32);
        part.fill(0.0);
        for (&index, &value) in left.indices.iter().zip(&left.values) {
            part[index as usize - start] = value;
        }
        all.indices.extend(kept.indices);
        all.values.extend(kept.values);
    }
    let mut errors = Entries::default();
    list::quantise(values, &mut all, &mut errors);
    for (&index, &error) in errors.indices.iter().zip(&errors.values) {
        work[index as usize] = error;
    }
    all
}

fn unpack(bytes: &[u8], len: usize) -> PyResult<Entries> {
    let damaged = |what: String| ProtocolError::new_err(format!("the payload is damaged: {what}"));
    let Some((prefix, body)) = bytes.split_at_checked(PREFIX) else {
        return Err(damaged(format!("it has {} bytes", bytes.len())));
    };
    let value_type = match (prefix[0], ValueType::ALL.get(usize::from(prefix[1]))) {
        (VERSION, Some(&value_type)) => value_type,
        (version, _) => return Err(damaged(format!("version {version}.{}", prefix[1]))),
    };
    let announced = u32::from_le_bytes([prefix[2], prefix[3], prefix[4], prefix[5]]);
    if announced as usize != len {
        return Err(config(format!(
            "the payload is of an array of {announced} elements, expected {len}"
        )));
    }
    let mut reader = Reader::new(body);
    let (mut indices, mut values) = (Vec::new(), Vec::new());
    codec(value_type)
        .decode(&mut reader, 0, announced, len, &mut indices, &mut values)
        .and_then(|()| reader.finish())
        .map_err(|error| damaged(error.to_string()))?;
    Ok(Entries { indices, values })
}
