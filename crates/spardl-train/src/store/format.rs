//! Arrays as a safetensors file, streamed: a model is never in memory twice.
//!
//! The header is the safetensors crate's; the metadata of the format is text to text, so that ours is JSON text under one key.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arrays::{ArraysError, Entry, Values};

/// Raised when old readers could misread new files.
const VERSION: u32 = 1;
/// Our key in the format's metadata.
const KEY: &str = "spardl";
/// The format's key for metadata: no array can have this name.
const RESERVED: &str = "__metadata__";
/// The format's own limit.
const HEADER_LIMIT: u64 = 100_000_000;
/// Bytes converted at a time.
const CHUNK: usize = 1 << 16;

#[derive(Serialize, Deserialize)]
struct Ours {
    format: u32,
    metadata: Value,
}

type Entries<'a> = BTreeMap<String, Entry<'a>>;

pub(super) fn write(
    arrays: &Entries<'_>,
    metadata: &Value,
    to: &mut dyn Write,
) -> Result<(), ArraysError> {
    if arrays.contains_key(RESERVED) {
        let message = format!("the name {RESERVED} is reserved: rename the array");
        return Err(ArraysError::Format(message));
    }
    // Wide values first, as the format asks, so that all are aligned.
    let wide = |entry: &Entry<'_>| matches!(entry.values, Values::U64(_));
    let (first, second): (Vec<_>, Vec<_>) = arrays.iter().partition(|(_, entry)| wide(entry));
    let ordered = || first.iter().chain(&second);

    let header = header(ordered().copied(), metadata)?;
    to.write_all(&(header.len() as u64).to_le_bytes())?;
    to.write_all(&header)?;
    for (_, entry) in ordered() {
        match &entry.values {
            Values::F32(values) => write_values(to, values, |value| value.to_le_bytes())?,
            Values::U64(values) => write_values(to, values, |value| value.to_le_bytes())?,
        }
    }
    Ok(())
}

pub(super) fn read(
    from: &mut dyn Read,
    len: u64,
) -> Result<(Entries<'static>, Value), ArraysError> {
    let fail = |message: &str| ArraysError::Format(message.to_owned());
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let header_len = u64::from_le_bytes(length);
    let rest = len
        .checked_sub(8)
        .and_then(|rest| rest.checked_sub(header_len));
    let rest = match rest {
        Some(rest) if header_len <= HEADER_LIMIT => rest,
        _ => return Err(fail("the header is longer than the file")),
    };
    let mut header = vec![0; to_usize(header_len)?];
    from.read_exact(&mut header)?;
    let header: Metadata = serde_json::from_slice(&header).map_err(invalid)?;
    if header.data_len() as u64 != rest {
        return Err(fail("the header does not describe the whole file"));
    }
    let metadata = ours(&header)?;
    let mut arrays = BTreeMap::new();
    for name in header.offset_keys() {
        let Some(info) = header.info(&name) else {
            continue;
        };
        let (start, end) = info.data_offsets;
        let bytes = end - start;
        let values = match info.dtype {
            Dtype::F32 => Values::F32(read_values(from, bytes, f32::from_le_bytes)?.into()),
            Dtype::U64 => Values::U64(read_values(from, bytes, u64::from_le_bytes)?.into()),
            other => {
                let message = format!("array `{name}` holds {other}: expected F32 or U64");
                return Err(ArraysError::Format(message));
            }
        };
        let shape = info.shape.clone();
        arrays.insert(name, Entry { shape, values });
    }
    Ok((arrays, metadata))
}

fn header<'a>(
    arrays: impl Iterator<Item = (&'a String, &'a Entry<'a>)>,
    metadata: &Value,
) -> Result<Vec<u8>, ArraysError> {
    let mut end = 0;
    let infos = arrays.map(|(name, entry)| {
        let (dtype, width) = match entry.values {
            Values::F32(_) => (Dtype::F32, 4),
            Values::U64(_) => (Dtype::U64, 8),
        };
        let start = end;
        end += entry.values.len() * width;
        let info = TensorInfo {
            dtype,
            shape: entry.shape.clone(),
            data_offsets: (start, end),
        };
        (name.clone(), info)
    });
    let ours = Ours {
        format: VERSION,
        metadata: metadata.clone(),
    };
    let ours = serde_json::to_string(&ours).map_err(invalid)?;
    let ours = HashMap::from([(KEY.to_owned(), ours)]);
    let header = Metadata::new(Some(ours), infos.collect()).map_err(invalid)?;
    let mut header = serde_json::to_vec(&header).map_err(invalid)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() as u64 > HEADER_LIMIT {
        let message = format!(
            "the header has {} bytes: at most {HEADER_LIMIT}",
            header.len()
        );
        return Err(ArraysError::Format(message));
    }
    Ok(header)
}

fn ours(header: &Metadata) -> Result<Value, ArraysError> {
    let text = header.metadata().as_ref().and_then(|all| all.get(KEY));
    let Some(text) = text else {
        let message = format!("it has no metadata `{KEY}`: another program wrote it");
        return Err(ArraysError::Format(message));
    };
    let ours: Ours = serde_json::from_str(text).map_err(invalid)?;
    if ours.format != VERSION {
        let message = format!("format {}: this version reads {VERSION}", ours.format);
        return Err(ArraysError::Format(message));
    }
    Ok(ours.metadata)
}

fn write_values<T: Copy, const W: usize>(
    to: &mut dyn Write,
    values: &[T],
    bytes: impl Fn(T) -> [u8; W],
) -> Result<(), ArraysError> {
    let mut buffer = Vec::with_capacity(CHUNK);
    for chunk in values.chunks(CHUNK / W) {
        buffer.clear();
        buffer.extend(chunk.iter().flat_map(|&value| bytes(value)));
        to.write_all(&buffer)?;
    }
    Ok(())
}

fn read_values<T, const W: usize>(
    from: &mut dyn Read,
    bytes: usize,
    value: impl Fn([u8; W]) -> T,
) -> Result<Vec<T>, ArraysError> {
    let mut values = Vec::with_capacity(bytes / W);
    let mut buffer = [0; CHUNK];
    let mut left = bytes;
    while left > 0 {
        let chunk = &mut buffer[..left.min(CHUNK)];
        from.read_exact(chunk)?;
        values.extend(chunk.as_chunks().0.iter().map(|&bytes| value(bytes)));
        left -= chunk.len();
    }
    Ok(values)
}

fn to_usize(len: u64) -> Result<usize, ArraysError> {
    usize::try_from(len).map_err(invalid)
}

fn invalid(error: impl std::fmt::Display) -> ArraysError {
    ArraysError::Format(error.to_string())
}
