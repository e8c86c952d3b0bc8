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
//! assert_eq!(gather.into_items().bytes(0), b"mine");
//! # Ok::<(), spardl_core::ConfigError>(())
//! ```

mod all_gather;
mod all_reduce;
mod all_to_all;
mod broadcast;
mod keeping_reduce;
mod split_reduce;

pub use all_gather::AllGather;
pub use all_reduce::{AllReduce, Element, all_reduce_bytes, all_reduce_elements};
pub use all_to_all::AllToAll;
pub use broadcast::Broadcast;
pub use keeping_reduce::KeepingReduce;
pub use split_reduce::SplitReduce;

use crate::codec::Reader;
use crate::collective::Round;
use crate::error::{DecodeError, ProtocolError};
use crate::header::HEADER_LEN;
use crate::spare;
use crate::world::Group;

/// Bytes before each item of a message that carries several.
pub(crate) const ITEM_PREFIX: usize = 4;

/// What a phase brought: one item of bytes per worker of a group, and the round it came in.
#[derive(Debug)]
pub struct Items {
    group: Group,
    /// The messages that brought items, or single ones. With thousands of workers an item has a few bytes, too few for memory of its own.
    messages: Vec<Vec<u8>>,
    places: Vec<Place>,
}

/// Where an item is.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    message: u32,
    start: u32,
    len: u32,
    round: u32,
}

impl Items {
    fn new(group: Group) -> Self {
        Self {
            group,
            messages: Vec::new(),
            places: vec![Place::default(); group.size()],
        }
    }

    fn put(&mut self, position: usize, item: Vec<u8>, round: u32) {
        self.places[position] = Place {
            message: self.messages.len() as u32,
            start: 0,
            len: item.len() as u32,
            round,
        };
        self.messages.push(item);
    }

    /// Reads the items of `positions`, one after the other, each of at most as many bytes as `bounds` says.
    fn read_all(
        &mut self,
        reader: &mut Reader<'_>,
        positions: impl Iterator<Item = usize>,
        bounds: &[usize],
        round: u32,
    ) -> Result<(), DecodeError> {
        let whole = reader.rest();
        for position in positions {
            let start = whole.len() - reader.remaining() + ITEM_PREFIX;
            let item = read_item(reader, bounds[position])?;
            self.places[position] = Place {
                message: self.messages.len() as u32,
                start: start as u32,
                len: item.len() as u32,
                round,
            };
        }
        let bytes = &whole[..whole.len() - reader.remaining()];
        let mut message = spare::take(bytes.len());
        message.extend_from_slice(bytes);
        self.messages.push(message);
        Ok(())
    }

    /// The item of the worker at `position`.
    pub fn bytes(&self, position: usize) -> &[u8] {
        let Place {
            message,
            start,
            len,
            ..
        } = self.places[position];
        match self.messages.get(message as usize) {
            Some(message) => &message[start as usize..][..len as usize],
            None => &[],
        }
    }

    /// Reads the item of the worker at `position` with `read`, which must use all of it.
    ///
    /// # Errors
    /// [`ProtocolError::Damaged`] with that worker and the round when `read` fails.
    pub fn read<'a, T>(
        &'a self,
        position: usize,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<T, ProtocolError> {
        let mut reader = Reader::new(self.bytes(position));
        read(&mut reader)
            .and_then(|value| reader.finish().map(|()| value))
            .map_err(|source| ProtocolError::Damaged {
                round: self.places[position].round,
                from: self.group.rank(position),
                source,
            })
    }
}

/// Their memory waits for messages to come.
impl Drop for Items {
    fn drop(&mut self) {
        self.messages.drain(..).for_each(spare::keep);
    }
}

/// The rounds of two phases as one: the bodies of `second` follow those of `first`. Both have the same peers, in the same order.
///
/// What comes is read by `absorb_part` of the first phase, then of the second.
pub fn joined(mut first: Round, second: &Round) -> Round {
    for (send, more) in first.sends.iter_mut().zip(&second.sends) {
        debug_assert_eq!(send.to, more.to, "joined rounds have the same peers");
        let body = &more.payload.as_wire()[HEADER_LEN..];
        send.payload.body_mut().extend_from_slice(body);
    }
    for (expected, more) in first.recvs.iter_mut().zip(&second.recvs) {
        debug_assert_eq!(
            expected.from, more.from,
            "joined rounds have the same peers"
        );
        expected.max_bytes += more.max_bytes - HEADER_LEN;
    }
    first
}

/// Appends an item with its length.
fn write_item(item: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(item.len() as u32).to_le_bytes());
    out.extend_from_slice(item);
}

/// Reads an item of at most `bound` bytes.
fn read_item<'a>(reader: &mut Reader<'a>, bound: usize) -> Result<&'a [u8], DecodeError> {
    let len = reader.u32()?;
    if len as usize > bound {
        return Err(DecodeError::TooMany {
            max: bound,
            got: u64::from(len),
        });
    }
    reader.bytes(len as usize)
}

/// [`read_item`] as bytes of its own.
fn copy_item(reader: &mut Reader<'_>, bound: usize) -> Result<Vec<u8>, DecodeError> {
    let bytes = read_item(reader, bound)?;
    let mut item = spare::take(bytes.len());
    item.extend_from_slice(bytes);
    Ok(item)
}
