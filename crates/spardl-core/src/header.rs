//! The 16 bytes before every body: enough to refuse a message that belongs elsewhere, and the non-finite flag.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0 | format version |
//! | 1 | flags |
//! | 2-3 | fingerprint of method, configuration, sizes and k |
//! | 4-7 | step (low 32 bits) |
//! | 8-9 | round (low 16 bits) |
//! | 10-11 | sender (low 16 bits) |
//! | 12-15 | length of the body: some engines hand over a buffer longer than the message |

use crate::collective::Expected;
use crate::error::{DecodeError, ProtocolError};
use crate::world::Rank;

/// Bytes of the header of every message.
pub const HEADER_LEN: usize = 16;
/// Some worker whose messages led to this one met NaN or an infinity.
pub(crate) const FLAG_NON_FINITE: u8 = 1;
const VERSION: u8 = 1;

/// What the headers of the current round say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    fingerprint: u16,
    step: u32,
    round: u32,
    from: u16,
}

impl Header {
    pub(crate) fn new(fingerprint: u16, k: usize, step: u64, from: Rank) -> Self {
        let fingerprint = fold(fnv1a(&(k as u64).to_le_bytes(), u64::from(fingerprint)));
        Self {
            fingerprint,
            step: step as u32,
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

    pub(crate) fn write(&self, flags: u8, message: &mut [u8]) {
        message[0] = VERSION;
        message[1] = flags;
        message[2..4].copy_from_slice(&self.fingerprint.to_le_bytes());
        message[4..8].copy_from_slice(&self.step.to_le_bytes());
        message[8..10].copy_from_slice(&(self.round as u16).to_le_bytes());
        message[10..12].copy_from_slice(&self.from.to_le_bytes());
        let body = (message.len() - HEADER_LEN) as u32;
        message[12..16].copy_from_slice(&body.to_le_bytes());
    }

    /// Checks that a message is the expected one and returns its flags and its body.
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
        let Some(header) = message.first_chunk::<HEADER_LEN>() else {
            let got = message.len() as u64;
            return Err(damaged(DecodeError::Truncated {
                needed: HEADER_LEN as u64,
                got,
            }));
        };
        if message.len() > expected.max_bytes {
            return Err(damaged(DecodeError::Trailing(
                message.len() - expected.max_bytes,
            )));
        }
        let body = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        let u16_at = |at: usize| u64::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let step = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let fields = [
            ("format version", u64::from(VERSION), u64::from(header[0])),
            ("configuration", u64::from(self.fingerprint), u16_at(2)),
            ("step", u64::from(self.step), u64::from(step)),
            ("round", u64::from(round as u16), u16_at(8)),
            ("sender", u64::from(from.get() as u16), u16_at(10)),
        ];
        match fields
            .into_iter()
            .find(|(_, expected, got)| expected != got)
        {
            None => {
                let rest = &message[HEADER_LEN..];
                let short = DecodeError::Truncated {
                    needed: body.into(),
                    got: rest.len() as u64,
                };
                let body = rest.get(..body as usize).ok_or_else(|| damaged(short))?;
                Ok((header[1], body))
            }
            Some((field, expected, got)) => Err(ProtocolError::WrongHeader {
                round,
                from,
                field,
                expected,
                got,
            }),
        }
    }
}

/// A 16-bit fingerprint of what all workers must agree on.
pub(crate) fn fingerprint(configuration: &str, workers: u32, len: u32) -> u16 {
    let hash = fnv1a(configuration.as_bytes(), FNV_OFFSET);
    let hash = fnv1a(&workers.to_le_bytes(), hash);
    fold(fnv1a(&len.to_le_bytes(), hash))
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv1a(bytes: &[u8], start: u64) -> u64 {
    bytes.iter().fold(start, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

const fn fold(hash: u64) -> u16 {
    (hash ^ (hash >> 16) ^ (hash >> 32) ^ (hash >> 48)) as u16
}
