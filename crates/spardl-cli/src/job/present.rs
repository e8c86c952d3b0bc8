//! A build with MPI.

use std::time::Duration;

use anyhow::Context;
use spardl_core::{Rank, World};
use spardl_drive::{Transport, barrier, gather};
use spardl_mpi::bare::{BareLoop, Plan};
use spardl_mpi::{Mpi, MpiTransport, Yardsticks};

use super::report;

/// A rank of a job, with a transport to the others.
#[derive(Debug)]
pub(crate) struct Job {
    /// How long this rank waits for the others in calls without a deadline of their own.
    patience: Duration,
    transport: MpiTransport,
    yardsticks: Yardsticks,
    mpi: Mpi,
}

impl Job {
    /// The MPI library's name and version; `None` in a build without one.
    pub(crate) fn library() -> Option<String> {
        Some(Mpi::library_version())
    }

    /// Starts MPI and waits for all ranks, no longer than `patience` once MPI runs; a rank that does not come is named.
    pub(crate) fn join(patience: Duration) -> anyhow::Result<Self> {
        let mpi = Mpi::init().context("starting MPI")?;
        let mut transport = mpi.world_transport().context("starting MPI")?;
        let all_here = barrier(&mut transport, patience).with_context(|| waited(patience));
        report(transport.world(), all_here)?;
        let yardsticks = mpi.yardsticks(patience).context("starting MPI")?;
        Ok(Self {
            patience,
            transport,
            yardsticks,
            mpi,
        })
    }

    pub(crate) fn world(&self) -> World {
        self.transport.world()
    }

    /// The name of this machine, as MPI knows it.
    pub(crate) fn host(&self) -> String {
        self.mpi.processor_name()
    }

    pub(crate) fn transport(&mut self) -> &mut dyn Transport {
        &mut self.transport
    }

    /// From now on this rank waits no longer than that for the others.
    pub(crate) const fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Waits for all ranks.
    pub(crate) fn barrier(&mut self) -> anyhow::Result<()> {
        barrier(&mut self.transport, self.patience).with_context(|| waited(self.patience))
    }

    /// What every rank says, in the order of ranks, on every rank. All ranks must call it.
    pub(crate) fn gather(&mut self, mine: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        gather(&mut self.transport, mine, self.patience).with_context(|| waited(self.patience))
    }

    /// The engine's own sum over all ranks.
    pub(crate) fn all_reduce(
        &mut self,
        values: &mut [f32],
        deadline: Duration,
    ) -> anyhow::Result<()> {
        Ok(self.yardsticks.all_reduce_f32(values, deadline)?)
    }

    /// A bare loop over the messages of a step; all ranks must call it with the same plan.
    pub(crate) fn bare_loop(&self, plan: &Plan, deadline: Duration) -> anyhow::Result<BareLoop> {
        Ok(self.mpi.bare_loop(plan, deadline)?)
    }

    /// The time of a message one way; both ranks must call it.
    pub(crate) fn ping_pong(
        &mut self,
        peer: Rank,
        bytes: usize,
        repetitions: u32,
    ) -> anyhow::Result<Duration> {
        let time = self
            .yardsticks
            .ping_pong(peer.get(), bytes, repetitions, self.patience)?;
        Ok(time)
    }

    /// The time of a message while every rank sends one, to the ranks `gaps` on in turn, each after a pause; all ranks must call
    /// it.
    pub(crate) fn shift(
        &mut self,
        bytes: usize,
        gaps: &[u32],
        turns: (u32, Duration),
    ) -> anyhow::Result<Duration> {
        let time = self.yardsticks.shift(bytes, gaps, turns, self.patience)?;
        Ok(time)
    }
}

fn waited(patience: Duration) -> String {
    format!("waiting at most {patience:?} for the other ranks")
}
