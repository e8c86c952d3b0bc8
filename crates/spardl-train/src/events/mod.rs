//! What a run writes while it goes: one JSON object per line for programs, TensorBoard event files for eyes.
//!
//! Both can go on after a resume: [`JsonLines::resume`] cuts what came after the checkpoint, [`TensorBoard::resume`] tells
//! TensorBoard to forget it.

mod lines;
mod tensorboard;

pub use lines::JsonLines;
pub use tensorboard::TensorBoard;

use crate::store::StoreError;

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
pub enum EventsError {
    /// The disk said no.
    #[error(transparent)]
    Disk(#[from] StoreError),
    /// A record that JSON cannot hold, such as a map with keys that are no text.
    #[error("a record cannot be written as JSON: {0}")]
    Record(serde_json::Error),
}
