//! The sans-IO core of spardl: deterministic logic of sparse all-reduce, with no sockets, no clock, no threads and no
//! randomness of its own.
//!
//! A method is a [`Machine`]: it says what to exchange next and never does it. A [`Collective`] wraps it with headers,
//! the non-finite rule, commit and abort. A transport (another crate) moves one [`Round`] and never knows why. Everything a
//! paper claims (rounds, bytes, agreement, nothing lost) is a test over all methods.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`world`] | ranks, the world, teams and columns |
//! | [`collective`] | the contract: rounds, inboxes, machines, collectives |
//! | [`algorithm`] | a method's identity, cost, laws and layout |
//! | [`density`] | how much of a gradient an update should have |
//! | [`model`] | what a step takes: alpha, beta, gamma |
//! | [`partition`] | blocks and quotas |
//! | [`schedule`] | who talks to whom: pure integer functions |
//! | [`phase`] | small machines to build methods from: all-gather, all-reduce, broadcast, all-to-all |
//! | [`select`] | exact top-q per block in one pass |
//! | [`gradient`], [`feedback`] | what a worker contributes; its residual and working copy |
//! | [`parallel`] | several cores for one worker |
//! | [`list`] | sums and splits of sorted lists |
//! | [`codec`] | lists and values to bytes and back |
//! | [`sparse`], [`state`], [`error`] | sparse vectors, saved state, errors by who must act |

#![forbid(unsafe_code)]

pub mod algorithm;
pub mod codec;
pub mod collective;
pub mod density;
pub mod error;
pub mod feedback;
pub mod gradient;
mod header;
pub mod list;
pub mod model;
mod offer;
pub mod parallel;
pub mod partition;
pub mod phase;
pub mod schedule;
pub mod select;
mod spare;
pub mod sparse;
pub mod state;
pub mod world;

pub use algorithm::{Algorithm, Cost, Estimate, Laws, Layout, Support};
pub use codec::{Codec, IndexCoding, ValueType};
pub use collective::{
    Collective, Expected, Inbox, Machine, MethodStats, Outcome, Outgoing, Payload, Received, Round,
    SkipReason, Step, Update,
};
pub use density::Density;
pub use error::{ConfigError, DecodeError, HeaderField, ProtocolError};
pub use feedback::{Feedback, Span};
pub use gradient::{Gradient, Input};
pub use header::{Fingerprint, HEADER_LEN};
pub use model::{Gamma, Line, Model, Predicted};
pub use offer::offer;
pub use parallel::{Parallel, Serial};
pub use partition::Partition;
pub use select::Selector;
pub use spardl_kernels::{Entries, Source};
pub use spare::BufferPool;
pub use sparse::SparseVec;
pub use state::{MethodState, State};
pub use world::{Group, Rank, World};
