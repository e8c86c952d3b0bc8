//! The MPI job this process is a rank of. Without the feature `mpi` there is none, ever, and the type says so.

#[cfg(not(feature = "mpi"))]
mod absent;
mod agreement;
#[cfg(feature = "mpi")]
mod present;

#[cfg(not(feature = "mpi"))]
pub(crate) use absent::Job;
#[cfg(feature = "mpi")]
pub(crate) use present::Job;

pub(crate) use agreement::{Settings, agree, all_ready, command, identity};

use spardl_core::World;

use crate::output::{AlreadyReported, complain};

impl Job {
    /// Does this rank print the results?
    pub(crate) fn prints(&self) -> bool {
        self.world().rank().get() == 0
    }

    /// Says what went wrong on this rank while the job lives: once a rank ends badly, the launcher ends the others, and
    /// perhaps before they have spoken.
    pub(crate) fn conclude(&self, result: anyhow::Result<()>) -> anyhow::Result<()> {
        report(self.world(), result)
    }
}

/// Says what went wrong on a rank. Its transport, when it goes after an error, ends the process: nothing can be said later.
fn report<R>(world: World, result: anyhow::Result<R>) -> anyhow::Result<R> {
    result.map_err(|error| {
        AlreadyReported(complain(&error, &format!("rank {}: ", world.rank()))).into()
    })
}

/// The number of ranks on this rank's machine, itself among them. All ranks must call it.
pub(crate) fn neighbours(job: &mut Job) -> anyhow::Result<u32> {
    let host = job.host();
    let all = job.gather(host.as_bytes())?;
    Ok(all.iter().filter(|name| **name == host.as_bytes()).count() as u32)
}
