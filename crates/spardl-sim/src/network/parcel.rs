//! Something on its way from one worker to another.

use spardl_core::Rank;
use spardl_drive::News;

use crate::path::Path;

/// Something on its way.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) from: Rank,
    pub(crate) to: Rank,
    pub(crate) news: News,
    /// What led to it, up to its arrival once it is there.
    pub(crate) path: Path,
    /// A copy that nobody wants.
    pub(super) is_copy: bool,
    pub(super) departed: u64,
    pub(super) alone: u64,
    pub(super) latency: u64,
    /// The number by which the system's work for it is known; 0: there is none.
    pub(super) number: u64,
}

impl Parcel {
    pub(super) fn news_bytes(&self) -> u64 {
        match &self.news {
            News::Message { payload, .. } => payload.wire_len() as u64,
            News::GaveUp(_) => 0,
        }
    }

    pub(super) const fn round(&self) -> u32 {
        match &self.news {
            News::Message { round, .. } => *round,
            News::GaveUp(_) => 0,
        }
    }

    /// Another of the same length.
    pub(super) fn copy(&self) -> Self {
        let news = match &self.news {
            News::Message {
                stamp,
                bucket,
                round,
                payload,
            } => News::Message {
                stamp: *stamp,
                bucket: *bucket,
                round: *round,
                payload: payload.clone(),
            },
            News::GaveUp(stamp) => News::GaveUp(*stamp),
        };
        Self {
            news,
            is_copy: true,
            ..*self
        }
    }
}

/// What is still to be done for a message.
#[derive(Debug, Default)]
pub(super) struct Moving {
    /// Pieces of the system's work.
    pub(super) pieces: u32,
    /// The message and when it left the links, if it has.
    pub(super) parcel: Option<(u64, Parcel)>,
}
