//! What goes with every message, behind its bytes.
//!
//! Taking it off copies nothing. Putting it on copies nothing either when the buffer has room for 16 bytes more; otherwise
//! the buffer moves.
//!
//! | bytes from the end | field |
//! | --- | --- |
//! | 16-9 | stamp of the sender |
//! | 8-5 | bucket |
//! | 4-1 | round |
//!
//! MPI's tag says only of which [`Kind`] a message is. Bucket and round would not fit one with the stamp (MPI guarantees 15
//! bits), and receives take any tag: messages of a step that was given up must not stay behind in MPI's queues.

use spardl_drive::{BucketId, Stamp};

pub(crate) const ENVELOPE_LEN: usize = 16;

/// The tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message of a round, with an envelope.
    Message = 1,
    /// The sender's new stamp: it gave a step up.
    GaveUp = 2,
    /// The sender's last message.
    Goodbye = 3,
}

impl Kind {
    pub(crate) const fn tag(self) -> i32 {
        self as i32
    }

    pub(crate) fn from_tag(tag: i32) -> Option<Self> {
        let all = [Self::Message, Self::GaveUp, Self::Goodbye];
        all.into_iter().find(|kind| kind.tag() == tag)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) stamp: Stamp,
    pub(crate) bucket: BucketId,
    pub(crate) round: u32,
}

impl Envelope {
    pub(crate) fn append_to(self, message: &mut Vec<u8>) {
        // Exactly: a long buffer that moves must not double.
        message.reserve_exact(ENVELOPE_LEN);
        message.extend_from_slice(&self.stamp.to_le_bytes());
        message.extend_from_slice(&self.bucket.get().to_le_bytes());
        message.extend_from_slice(&self.round.to_le_bytes());
    }

    /// Takes the envelope off; `None` when the message is too short to have one.
    pub(crate) fn split_from(message: &mut Vec<u8>) -> Option<Self> {
        let (rest, round) = message.split_last_chunk()?;
        let (rest, bucket) = rest.split_last_chunk()?;
        let (rest, stamp) = rest.split_last_chunk()?;
        let envelope = Self {
            stamp: Stamp::from_le_bytes(*stamp),
            bucket: BucketId::new(u32::from_le_bytes(*bucket)),
            round: u32::from_le_bytes(*round),
        };
        let len = rest.len();
        message.truncate(len);
        Some(envelope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_comes_off_as_it_was_put_on() {
        let envelope = Envelope {
            stamp: Stamp {
                epoch: 3,
                finished: u32::MAX,
            },
            bucket: BucketId::new(1 << 31),
            round: 70_000,
        };
        for len in [0, 1, 15, 1000] {
            let mut message = vec![7; len];
            envelope.append_to(&mut message);
            assert_eq!(message.len(), len + ENVELOPE_LEN);
            assert_eq!(Envelope::split_from(&mut message), Some(envelope));
            assert_eq!(message, vec![7; len]);
        }
        assert_eq!(Envelope::split_from(&mut vec![0; ENVELOPE_LEN - 1]), None);
    }
}
