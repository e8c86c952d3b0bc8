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
//! | [`buckets`] | the gradient in pieces |
//! | [`settings`] | what a run is made of |
//! | [`train()`] | the loop of one worker, over any transport |
//! | [`checkpoint`] | what is saved, and when |
//! | [`error`] | why a run ended early |
//! | [`record`] | what is known of a run |
//! | [`store`] | checkpoints on disk |
//! | [`events`] | what a run writes while it goes |

#![forbid(unsafe_code)]

pub mod batch;
pub mod buckets;
pub mod checkpoint;
mod comparison;
pub mod data;
pub mod error;
mod evaluation;
pub mod events;
mod learner;
pub mod model;
pub mod optimiser;
mod progress;
pub mod record;
mod reordered;
mod resume;
mod run_identity;
pub mod schedule;
pub mod settings;
mod skips;
mod stop;
pub mod store;
mod training;

pub use batch::{Batch, IGNORE, Input};
pub use data::{Data, Dataset, Task};
pub use error::{Mismatch, TrainError};
pub use model::{Model, Score};
pub use settings::{Method, Run, Settings};
pub use training::{train, train_until};
