//! Small machines to build methods from, so that no method writes them again.
//!
//! All have one shape: `round` says what to exchange now (`None`: finished), `absorb` takes the messages of that round. A
//! machine that embeds a phase hands on the rounds as its own:
//!
//! ```
//! use spardl_core::phase::AllGather;
//! use spardl_core::{Round, World};
//!
//! let world = World::new(0, 1)?;
//! let mut gather = AllGather::new(world.everyone(), b"mine".to_vec(), vec![16]);
//! assert!(gather.round().is_none(), "alone in the world, nothing to exchange");
//! assert_eq!(gather.into_items(), [b"mine"]);
//! # Ok::<(), spardl_core::ConfigError>(())
//! ```

mod all_gather;
mod all_reduce;
mod all_to_all;
mod broadcast;

pub use all_gather::AllGather;
pub use all_reduce::{AllReduce, Element, all_reduce_bytes};
pub use all_to_all::AllToAll;
pub use broadcast::Broadcast;

use crate::codec::Reader;
use crate::error::DecodeError;

/// Bytes before each item of a message that carries several.
pub(crate) const ITEM_PREFIX: usize = 4;

/// Appends an item with its length.
fn write_item(item: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(item.len() as u32).to_le_bytes());
    out.extend_from_slice(item);
}

/// Reads an item of at most `bound` bytes.
fn read_item(reader: &mut Reader<'_>, bound: usize) -> Result<Vec<u8>, DecodeError> {
    let len = reader.u32()?;
    if len as usize > bound {
        return Err(DecodeError::TooMany {
            max: bound,
            got: u64::from(len),
        });
    }
    Ok(reader.bytes(len as usize)?.to_vec())
}
