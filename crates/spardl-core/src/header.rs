//! The 24 bytes before every body: enough to refuse a message that belongs elsewhere, and the non-finite flag.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0 | format version |
//! | 1 | flags |
//! | 2-3 | bucket (low 16 bits) |
//! | 4-7 | hash of method, options, number of workers and of elements, and k |
//! | 8-11 | hash of the layout: names, shapes and order of the tensors |
//! | 12-13 | step (low 16 bits) |
//! | 14-15 | hash of what the method keeps alike on all workers, as it was before this step |
//! | 16-17 | round (low 16 bits) |
//! | 18-19 | sender (low 16 bits) |
//! | 20-23 | length of the body: some engines hand over a buffer longer than the message |

use crate::algorithm::Layout;
use crate::collective::Expected;
use crate::error::{DecodeError, HeaderField, ProtocolError};
use crate::state::{Array, MethodState};
use crate::world::Rank;

/// Bytes of the header of every message.
pub const HEADER_LEN: usize = 24;
/// The most bytes of a body: its length has 32 bits.
pub(crate) const MAX_BODY: usize = u32::MAX as usize;
/// Some worker whose messages led to this one met NaN or an infinity.
pub(crate) const FLAG_NON_FINITE: u8 = 1;
const VERSION: u8 = 3;

/// What all messages of a collective have in common: what its workers must agree on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    configuration: u64,
    layout: u32,
    bucket: u16,
}

impl Fingerprint {
    /// The fingerprint of a method's description and the bucket's layout among `workers`.
    pub fn new(configuration: &str, workers: u32, layout: &Layout) -> Self {
        let hash = fnv1a(configuration.as_bytes(), FNV_OFFSET);
        let hash = fnv1a(&workers.to_le_bytes(), hash);
        Self {
            configuration: fnv1a(&layout.len().to_le_bytes(), hash),
            layout: fold(layout_hash(layout)),
            bucket: 0,
        }
    }

    pub(crate) const fn set_bucket(&mut self, bucket: u32) {
        self.bucket = bucket as u16;
    }
}

fn layout_hash(layout: &Layout) -> u64 {
    let number = |hash, number: usize| fnv1a(&(number as u64).to_le_bytes(), hash);
    layout.parts().iter().fold(FNV_OFFSET, |hash, part| {
        // Lengths first, so that no two layouts run together to the same bytes.
        let hash = number(number(hash, part.name.len()), part.shape.len());
        let hash = fnv1a(part.name.as_bytes(), hash);
        part.shape
            .iter()
            .fold(hash, |hash, &side| number(hash, side))
    })
}

/// The hash of a state, by its bits. Words instead of bytes: it is computed in every step.
fn state_hash(state: &MethodState) -> u16 {
    let word = |hash: u64, word: u64| (hash ^ word).wrapping_mul(FNV_PRIME);
    let hash = state.arrays().fold(FNV_OFFSET, |hash, (name, array)| {
        let hash = word(fnv1a(name.as_bytes(), hash), name.len() as u64);
        match array {
            Array::F32(values) => values
                .iter()
                .fold(word(hash, values.len() as u64), |hash, value| {
                    word(hash, u64::from(value.to_bits()))
                }),
            Array::U64(values) => {
                values
                    .iter()
                    .fold(word(hash, values.len() as u64), |hash, &value| {
                        // In two parts: what is high in a word only reaches what is high in the hash.
                        word(word(hash, value & u64::from(u32::MAX)), value >> 32)
                    })
            }
        }
    });
    let hash = fold(hash);
    (hash ^ (hash >> 16)) as u16
}

/// What the headers of the current round say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    bucket: u16,
    configuration: u32,
    layout: u32,
    step: u16,
    state: u16,
    round: u32,
    from: u16,
}

impl Header {
    /// `replicated` is what [`Machine::replicated`](crate::Machine::replicated) says before the step.
    pub(crate) fn new(
        fingerprint: Fingerprint,
        replicated: &MethodState,
        k: usize,
        step: u64,
        from: Rank,
    ) -> Self {
        let configuration = fnv1a(&(k as u64).to_le_bytes(), fingerprint.configuration);
        Self {
            bucket: fingerprint.bucket,
            configuration: fold(configuration),
            layout: fingerprint.layout,
            step: step as u16,
            state: state_hash(replicated),
            round: 0,
            from: from.get() as u16,
        }
    }

    pub(crate) const fn round(&self) -> u32 {
        self.round
    }

    pub(crate) const fn next_round(&mut self) {
        self.round += 1;
    }

    /// Writes the header of a message whose body has at most [`MAX_BODY`] bytes.
    pub(crate) fn write(&self, flags: u8, message: &mut [u8]) {
        message[0] = VERSION;
        message[1] = flags;
        message[2..4].copy_from_slice(&self.bucket.to_le_bytes());
        message[4..8].copy_from_slice(&self.configuration.to_le_bytes());
        message[8..12].copy_from_slice(&self.layout.to_le_bytes());
        message[12..14].copy_from_slice(&self.step.to_le_bytes());
        message[14..16].copy_from_slice(&self.state.to_le_bytes());
        message[16..18].copy_from_slice(&(self.round as u16).to_le_bytes());
        message[18..20].copy_from_slice(&self.from.to_le_bytes());
        let body = (message.len() - HEADER_LEN) as u32;
        message[20..24].copy_from_slice(&body.to_le_bytes());
    }

    /// Checks that a message is the expected one and returns its flags and its body. Who it is from and what it belongs to is
    /// looked at before its length, so that a peer with other settings is not taken for a damaged wire.
    pub(crate) fn check<'a>(
        &self,
        message: &'a [u8],
        expected: Expected,
    ) -> Result<(u8, &'a [u8]), ProtocolError> {
        let (round, from) = (self.round, expected.from);
        let damaged = |source| ProtocolError::Damaged {
            round,
            from,
            source,
        };
        let Some((header, rest)) = message.split_first_chunk::<HEADER_LEN>() else {
            return Err(damaged(DecodeError::Truncated {
                needed: HEADER_LEN as u64,
                got: message.len() as u64,
            }));
        };
        self.check_fields(header, from)?;
        if message.len() > expected.max_bytes {
            let excess = message.len() - expected.max_bytes;
            return Err(damaged(DecodeError::Trailing(excess)));
        }
        let body = u32_at(header, 20);
        let short = DecodeError::Truncated {
            needed: body.into(),
            got: rest.len() as u64,
        };
        let body = rest.get(..body as usize).ok_or_else(|| damaged(short))?;
        Ok((header[1], body))
    }

    fn check_fields(&self, header: &[u8; HEADER_LEN], from: Rank) -> Result<(), ProtocolError> {
        let fields = [
            (
                HeaderField::Version,
                u32::from(VERSION),
                u32::from(header[0]),
            ),
            (
                HeaderField::Configuration,
                self.configuration,
                u32_at(header, 4),
            ),
            (HeaderField::Layout, self.layout, u32_at(header, 8)),
            (
                HeaderField::Bucket,
                u32::from(self.bucket),
                u16_at(header, 2),
            ),
            (HeaderField::Step, u32::from(self.step), u16_at(header, 12)),
            (
                HeaderField::State,
                u32::from(self.state),
                u16_at(header, 14),
            ),
            (
                HeaderField::Round,
                u32::from(self.round as u16),
                u16_at(header, 16),
            ),
            (
                HeaderField::Sender,
                u32::from(from.get() as u16),
                u16_at(header, 18),
            ),
        ];
        match fields
            .into_iter()
            .find(|(_, expected, got)| expected != got)
        {
            None => Ok(()),
            Some((field, expected, got)) => Err(ProtocolError::WrongHeader {
                round: self.round,
                from,
                field,
                expected,
                got,
            }),
        }
    }
}

fn u16_at(header: &[u8; HEADER_LEN], at: usize) -> u32 {
    u32::from(header[at]) | u32::from(header[at + 1]) << 8
}

fn u32_at(header: &[u8; HEADER_LEN], at: usize) -> u32 {
    u16_at(header, at) | u16_at(header, at + 2) << 16
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

fn fnv1a(bytes: &[u8], start: u64) -> u64 {
    bytes.iter().fold(start, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
    })
}

const fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}
