//! Whole clusters of workers stepped in one thread: the real machines, no transport, no clock.
//!
//! A [`Cluster`] owns one collective per worker and delivers their messages in an order drawn from a seed; a [`Ledger`] counts
//! rounds, messages and bytes. The same machines run over threads and MPI, so what holds here holds there.

#![forbid(unsafe_code)]

mod cluster;
pub mod gradient;

pub use cluster::{Cluster, Fault, Ledger, Message, Probe, SimError, StepReport, Unwatched};
