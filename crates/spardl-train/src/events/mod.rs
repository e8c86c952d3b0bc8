//! What a run writes while it goes: one JSON object per line for programs, TensorBoard event files for eyes.
//!
//! After a resume [`JsonLines::resume`] cuts what came after the checkpoint and gives what came before it, and a new
//! [`TensorBoard`] file, to which that is written again, takes the place of the old ones.

mod lines;
mod tensorboard;

pub use lines::JsonLines;
pub use tensorboard::TensorBoard;

use crate::store::StoreError;

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// The disk said no.
    #[error(transparent)]
    Disk(#[from] StoreError),
    /// A record that JSON cannot hold, such as a map with keys that are no text.
    #[error("a record cannot be written as JSON: {0}")]
    Record(serde_json::Error),
}
