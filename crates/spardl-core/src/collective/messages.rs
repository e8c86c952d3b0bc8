//! What travels: a round of messages to send and to wait for, and what came of them.

use std::borrow::Cow;

use crate::codec::Reader;
use crate::error::{DecodeError, ProtocolError};
use crate::header::HEADER_LEN;
use crate::spare;
use crate::world::Rank;

/// One message: room for the header, then the body that a machine writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload(pub(super) Vec<u8>);

impl Payload {
    /// A message with an empty body and room for `capacity` body bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut bytes = spare::take(HEADER_LEN + capacity);
        bytes.resize(HEADER_LEN, 0);
        Self(bytes)
    }

    /// A message as it came off the wire. Nothing is checked here: [`Collective::resume`](super::Collective::resume) does.
    pub const fn from_wire(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes to put on the wire.
    pub fn as_wire(&self) -> &[u8] {
        &self.0
    }

    /// The bytes to put on the wire, without a copy.
    pub fn into_wire(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }

    /// How many bytes go over the wire, header included.
    pub fn wire_len(&self) -> usize {
        self.0.len()
    }

    /// The buffer to append the body to.
    pub fn body_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

/// Its memory waits for a message to come.
impl Drop for Payload {
    fn drop(&mut self) {
        spare::keep(std::mem::take(&mut self.0));
    }
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The receiver, never the sender itself.
    pub to: Rank,
    /// The message.
    pub payload: Payload,
}

/// A message to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The sender.
    pub from: Rank,
    /// A bound on its wire bytes, so that a transport can post the receive before the message is there.
    pub max_bytes: usize,
}

/// Everything one worker sends and awaits before it can go on. Peers are distinct within `sends` and within `recvs`.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// The number of the round within the step, from 0.
    pub seq: u32,
    /// The messages to send.
    pub sends: Vec<Outgoing>,
    /// The messages to wait for; the inbox has their order.
    pub recvs: Vec<Expected>,
}

impl Round {
    /// A round without messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message to send.
    #[must_use]
    pub fn send(mut self, to: Rank, payload: Payload) -> Self {
        self.sends.push(Outgoing { to, payload });
        self
    }

    /// Adds a message to wait for, of at most `max_body` body bytes.
    #[must_use]
    pub fn expect(mut self, from: Rank, max_body: usize) -> Self {
        self.recvs.push(Expected {
            from,
            max_bytes: HEADER_LEN + max_body,
        });
        self
    }
}

/// The messages of a round in the order of [`Round::recvs`], never of arrival: sums have the same bits in every run.
///
/// Messages are owned (they moved here) or borrowed (a transport lends its receive buffers).
#[derive(Clone, Debug, Default)]
pub struct Inbox<'a>(pub(super) Vec<Cow<'a, [u8]>>);

impl<'a> Inbox<'a> {
    /// An inbox that owns its messages.
    pub fn new(payloads: Vec<Payload>) -> Self {
        Self(
            payloads
                .into_iter()
                .map(|payload| Cow::Owned(payload.into_wire()))
                .collect(),
        )
    }

    /// An inbox of messages that a transport lends. A buffer may be longer than its message.
    pub fn borrowed(messages: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self(messages.into_iter().map(Cow::Borrowed).collect())
    }

    /// The messages as they came off the wire.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(AsRef::as_ref)
    }
}

/// The bodies of a round as a machine sees them, with their senders.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    pub(super) round: u32,
    pub(super) expected: &'a [Expected],
    pub(super) bodies: &'a [&'a [u8]],
}

impl<'a> Received<'a> {
    /// How many messages there are: as many as the machine asked for.
    pub const fn len(&self) -> usize {
        self.bodies.len()
    }

    /// The round that these messages belong to.
    pub const fn round(&self) -> u32 {
        self.round
    }

    /// Is it the inbox of a round without receives?
    pub const fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// Reads message `i` with `read`, which must use all of it.
    ///
    /// # Errors
    /// [`ProtocolError::Damaged`] with the sender and the round when `read` fails.
    pub fn read<T>(
        &self,
        i: usize,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, DecodeError>,
    ) -> Result<T, ProtocolError> {
        let mut reader = Reader::new(self.bodies[i]);
        read(&mut reader)
            .and_then(|value| reader.finish().map(|()| value))
            .map_err(|source| ProtocolError::Damaged {
                round: self.round,
                from: self.expected[i].from,
                source,
            })
    }
}
