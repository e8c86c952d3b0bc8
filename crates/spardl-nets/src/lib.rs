//! The networks by name, what each of them learns with, and the smallest of them.
//!
//! [`MODELS`] lists all networks. [`perceptron`] makes the first of them, `mlp`, which is computed here in plain Rust, so
//! that a first run needs no engine. `spardl-burn` makes all the others; what both need stands here: the first values of
//! parameters ([`init`]) and the loss ([`loss`]).
//!
//! ```
//! use spardl_nets::perceptron;
//! use spardl_train::{Batch, Input, Model, data::Task};
//!
//! let task = Task::Images { shape: [1, 28, 28], classes: 10 };
//! let mut model = perceptron(&task, 1)?;
//! let batch = Batch { len: 2, input: Input::Pixels(vec![0.5; 2 * 28 * 28]), targets: vec![3, 7] };
//! let mut gradient = vec![0.0; model.layout().len() as usize];
//! let score = model.gradient(&batch, 0, &mut gradient);
//! assert_eq!(score.count, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod error;
pub mod init;
pub mod loss;
mod perceptron;
mod recipe;
mod registry;

pub use error::BuildError;
pub use perceptron::{PERCEPTRON, Perceptron, perceptron, perceptron_layout};
pub use recipe::Recipe;
pub use registry::{Entry, MODELS, Wants, find};
