//! Networks for `spardl-train`, computed by burn.
//!
//! `spardl_nets::MODELS` lists them, [`build`] makes one: a replica whose parameters are a function of the seed alone. Nothing comes from
//! a global random generator, so replicas that are built from one seed in several threads, processes or machines start with
//! the same bits.
//!
//! A replica computes with whatever rayon pool it is called in. In a pool of one thread the gradient has the same bits in
//! every run; give every worker such a pool with [`Pooled`]:
//!
//! ```
//! use spardl_burn::{DeviceChoice, Pooled, build};
//! use spardl_train::{Batch, Input, Model, data::Task};
//!
//! let task = Task::Images { shape: [1, 28, 28], classes: 10 };
//! let mut model = Pooled::new(build("lenet", &task, 1, &DeviceChoice::Flex)?, 1)?;
//! let batch = Batch { len: 2, input: Input::Pixels(vec![0.5; 2 * 28 * 28]), targets: vec![3, 7] };
//! let mut gradient = vec![0.0; model.layout().len() as usize];
//! let score = model.gradient(&batch, 0, &mut gradient);
//! assert_eq!(score.count, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod device;
mod dropout;
mod flat;
#[cfg(test)]
mod gradient_check;
mod models;
mod ops;
mod pooled;
mod registry;
mod replica;
mod start;

pub use device::DeviceChoice;
pub use pooled::Pooled;
pub use registry::{build, layout};
