//! Sparse all-reduce for data-parallel training.
//!
//! Workers exchange the few largest entries of their gradients instead of the whole gradient, agree bit for bit on the
//! result, and lose nothing: what is not sent stays in a residual and goes out later.
//!
//! ```
//! use spardl::{Reducer, run_workers};
//!
//! let results = run_workers(4, |transport| {
//!     let rank = spardl::Transport::world(&transport).rank().get();
//!     let mut gradient: Vec<f32> = (0..10_000).map(|i| ((i * 7 + rank * 13) % 101) as f32 - 50.0).collect();
//!     let mut reducer = Reducer::builder("spardl").density(0.01).build(transport, 10_000)?;
//!     let report = reducer.all_reduce(&mut gradient)?; // the gradient is now the mean of the update
//!     Ok::<_, spardl::Error>((gradient, report))
//! })?;
//! let results: Vec<_> = results.into_iter().collect::<Result<_, _>>()?;
//! println!("{}", results[0].1); // 100 of 10000 entries, 4 rounds, 0.9 kB sent (dense 60.0 kB)
//! assert!(results.iter().all(|(gradient, _)| *gradient == results[0].0), "the same bits everywhere");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Several buckets
//!
//! A gradient may be cut into buckets that are reduced while others are still being computed; what becomes of the step is
//! decided when all are there:
//!
//! ```
//! use spardl::{Layout, Reducer, run_workers};
//!
//! let sums = run_workers(2, |transport| {
//!     let layouts = vec![Layout::flat(1000), Layout::flat(200)];
//!     let mut reducer = Reducer::builder("ok-topk").density(0.05).build_for(transport, layouts)?;
//!     reducer.begin(0, &[0.5; 1000])?; // on its way while the next one is computed
//!     reducer.begin(1, &[0.25; 200])?;
//!     let report = reducer.wait()?;
//!     let entries = reducer.update(1).nnz(); // the sparse update itself
//!     reducer.commit()?; // or discard(): all residuals are as before then
//!     Ok::<_, spardl::Error>((report.nnz, entries))
//! })?;
//! # for sum in sums { sum?; }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The nouns
//!
//! A *worker* is a participant; its *rank* is its number in the *world*. A [`Reducer`] is one worker's side of a repeated
//! all-reduce over a *transport*: threads of one process ([`run_workers`]) or whatever implements [`Transport`]. A *method* is
//! named as in [`registry`]: `spardl`, `dense`, `topk-a`, ..., each also with `-bf16`, and those that
//! keep a residual with `-q8`, `-q4`, `-q2`, `-q1`. The *density* is the part of the entries an
//! update should have; the *residual* is what a worker keeps for later.
//!
//! # What it does not do
//!
//! No sockets, no launcher: threads of one process here, MPI in the crate `spardl-mpi`. No GPU kernels: gradients are
//! slices of `f32` in host memory. A bucket has fewer than 2^32 elements; cut larger gradients into several.

#![forbid(unsafe_code)]

/// The README's example is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

mod builder;
mod density_control;
mod error;
mod reducer;
mod report;
mod saved;
pub mod tune;

pub use builder::{AUTO, Builder, Op};
pub use density_control::{Budget, DensityControl, Looked};
pub use error::Error;
pub use reducer::{Reducer, Restored};
pub use report::Report;
pub use saved::{Saved, SavedBucket, SavedError};
pub use spardl_algos::{Options, Residual, Sag, registry};
pub use spardl_core::state::Array;
pub use spardl_core::{
    Algorithm, Codec, Collective, ConfigError, Cost, DecodeError, Density, Entries, Estimate,
    Expected, Feedback, Gamma, Gradient, HeaderField, Inbox, IndexCoding, Input, Laws, Layout,
    Machine, MethodState, MethodStats, Outcome, Outgoing, Payload, ProtocolError, Rank, Received,
    Round, SkipReason, Source, SparseVec, State, Step, Support, Update, ValueType, World,
};
pub use spardl_drive::{
    BucketId, BucketReport, Connect, Counts, Deadline, DriveError, OnNonFinite, ThreadsTransport,
    Transport, TransportError, WorkersError, run_on, run_workers, threads,
};
