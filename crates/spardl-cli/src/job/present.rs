//! A build with MPI.

use std::time::Duration;

use anyhow::Context;
use spardl_core::{Rank, World};
use spardl_drive::{Deadline, Transport, gather};
use spardl_mpi::bare::{BareLoop, Plan};
use spardl_mpi::{Mpi, MpiTransport};

/// How long ranks wait for each other outside timed steps: some make their gradients more slowly, or are started later.
const PATIENCE: Duration = Duration::from_secs(600);

/// A rank of a job, with a transport to the others.
#[derive(Debug)]
pub(crate) struct Job {
    transport: MpiTransport,
    mpi: Mpi,
}

impl Job {
    /// The MPI library's name and version; `None` in a build without one.
    pub(crate) fn library() -> Option<String> {
        Some(Mpi::library_version())
    }

    /// Starts MPI; waits for all ranks.
    pub(crate) fn join() -> anyhow::Result<Self> {
        let mpi = Mpi::init().context("starting MPI")?;
        let transport = mpi.transport().context("starting MPI")?;
        Ok(Self { transport, mpi })
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

    /// Waits for all ranks.
    pub(crate) fn barrier(&mut self) -> anyhow::Result<()> {
        Ok(self.transport.barrier(Deadline::after(PATIENCE))?)
    }

    /// What every rank says, in the order of ranks, on every rank. All ranks must call it.
    pub(crate) fn gather(&mut self, mine: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        Ok(gather(
            &mut self.transport,
            mine,
            Deadline::after(PATIENCE),
        )?)
    }

    /// The engine's own sum over all ranks.
    pub(crate) fn all_reduce(&mut self, values: &mut [f32]) -> anyhow::Result<()> {
        Ok(self.transport.all_reduce_f32(values)?)
    }

    /// A bare loop over the messages of a step; all ranks must call it with the same plan.
    pub(crate) fn bare_loop(&self, plan: &Plan) -> anyhow::Result<BareLoop> {
        Ok(self.mpi.bare_loop(plan)?)
    }

    /// The time of a message one way; both ranks must call it.
    pub(crate) fn ping_pong(
        &mut self,
        peer: Rank,
        bytes: usize,
        repetitions: u32,
    ) -> anyhow::Result<Duration> {
        let deadline = Deadline::after(PATIENCE);
        Ok(self
            .transport
            .ping_pong(peer, bytes, repetitions, deadline)?)
    }
}
