//! Data-parallel training with sparse all-reduce.
//!
//! The border between what computes a gradient and what synchronises it is a slice of `f32`: a [`Model`] fills one, everything
//! else in this crate works on it. Engines live in crates of their own (`spardl-burn`).
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`model`] | what an engine must do |
//! | [`batch`] | what it is fed with |
//! | [`data`] | data sets in their official formats, and a generated one |
//! | [`store`] | checkpoints on disk |

#![forbid(unsafe_code)]

pub mod batch;
pub mod data;
pub mod model;
pub mod store;

pub use batch::{Batch, IGNORE, Input};
pub use data::{Data, Dataset, Task};
pub use model::{Model, Score};
