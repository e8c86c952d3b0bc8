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
//! | [`optimiser`] | SGD as the papers have it, on flat parameters |
//! | [`schedule`] | learning rate and density over time |
//! | [`buckets`], [`synchroniser`] | the gradient in pieces, reduced with all workers |
//! | [`worker`] | the loop of one worker, over any transport |
//! | [`checkpoint`] | what is saved, and from where a run goes on |
//! | [`record`] | what is known of a run |
//! | [`store`] | checkpoints on disk |
//! | [`events`] | what a run writes while it goes |
//! | [`chart`] | tables and charts as one HTML page |

#![forbid(unsafe_code)]

pub mod batch;
pub mod buckets;
pub mod chart;
pub mod checkpoint;
pub mod data;
mod error;
pub mod events;
pub mod model;
pub mod optimiser;
mod origin;
pub mod record;
mod resume;
pub mod schedule;
pub mod store;
pub mod synchroniser;
pub mod worker;

pub use batch::{Batch, IGNORE, Input};
pub use data::{Data, Dataset, Task};
pub use error::TrainError;
pub use model::{Model, Score};
pub use worker::{OnNonFinite, Run, Settings, train};
