//! Whole clusters of workers stepped in one thread: the real drivers and machines, under virtual time.
//!
//! A [`Cluster`] owns one [`Driver`](spardl_drive::Driver) per worker, each over a [`SimTransport`], and moves a clock of
//! integer nanoseconds from event to event. All buckets are in flight at once, as over threads and MPI, and a message that is
//! lost ends in the same deadline. So what holds here holds there. A [`Ledger`] counts rounds, messages and bytes.
//!
//! Messages take delays drawn from a seed, to try orders of delivery, or the links of a [`Fabric`], to learn how long a step
//! takes on a network. Workers take no time, or as much as a [`Compute`] says. [`Compute::model`] is the same without simulating
//! a message.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `cluster` | the workers and their steps |
//! | `network` | the messages under way, and how they share links |
//! | `topology` | links and the ways over them |
//! | `compute` | how long workers compute |
//! | `fault` | what may happen to messages |
//! | `path` | where the time of a step went |
//! | `scenario` | steps of a method on a network, seed by seed |
//! | `transfer` | messages alone, without workers |
//! | `transport` | one worker's end |
//! | `clock` | the time that the network moves |
//! | [`gradient`] | synthetic gradients for them to work on |

#![forbid(unsafe_code)]

mod clock;
mod cluster;
mod compute;
mod fault;
pub mod gradient;
mod network;
mod overhead;
mod path;
mod scenario;
mod topology;
mod transfer;
mod transport;

pub use clock::VirtualClock;
pub use cluster::{Cluster, ClusterReport, Ledger, Timing};
pub use compute::{Compute, Cores, Spread, Stragglers};
pub use fault::{Effect, Fault, Message, Rule, Rules};
pub use network::{LinkUse, Sharing};
pub use overhead::Overhead;
pub use path::{Hop, Path, Spent};
pub use scenario::{Scenario, Simulated};
pub use spardl_core::{Gamma, Line, Model, Predicted};
pub use topology::{Fabric, Matrix, Topology};
pub use transfer::{Carried, Transfer, carry};
pub use transport::SimTransport;
