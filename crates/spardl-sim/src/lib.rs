//! Whole clusters of workers stepped in one thread: the real drivers and machines, under virtual time.
//!
//! A [`Cluster`] owns one [`Driver`](spardl_drive::Driver) per worker, each over a [`SimTransport`], and delivers their
//! messages after delays drawn from a seed. All buckets are in flight at once, as over threads and MPI, and a message that is
//! lost ends in the same deadline. So what holds here holds there. A [`Ledger`] counts rounds, messages and bytes.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `cluster` | the workers and their steps |
//! | `network` | the messages under way, and what may happen to them |
//! | `transport` | one worker's end |
//! | `clock` | the time that the network moves |
//! | [`gradient`] | synthetic gradients for them to work on |

#![forbid(unsafe_code)]

mod clock;
mod cluster;
pub mod gradient;
mod network;
mod transport;

pub use clock::VirtualClock;
pub use cluster::{Cluster, ClusterReport, Ledger};
pub use network::{Fault, Message};
pub use transport::SimTransport;
