//! The run over MPI: each rank is a worker, rank 0 has the results.

use std::time::Instant;

use anyhow::Context;
use spardl_algos::Dense;
use spardl_core::{Algorithm, Layout};

use super::Case;
use super::gradients::Gradients;
use super::progress::Progress;
use super::workers::{Sample, Timed, all_together, summary, work};
use crate::job::Job;

/// Times a method, or MPI_Allreduce when there is none; the samples of all ranks come together on all of them.
pub(super) fn measure(
    case: &Case<'_>,
    algorithm: Option<&dyn Algorithm>,
    gradients: &Gradients<'_>,
    job: &mut Job,
    progress: &Progress,
) -> anyhow::Result<Timed> {
    job.barrier()?;
    let samples = match algorithm {
        Some(algorithm) => work(case, algorithm, gradients, &mut job.transport())?,
        None => all_reduce(case, gradients, job)?,
    };
    for (i, sample) in samples.iter().enumerate() {
        progress.note(&format!("iteration {i}: {:.3} ms", sample.wall_ms));
    }
    let all = job.gather(&serde_json::to_vec(&samples)?)?;
    let workers = all
        .iter()
        .map(|samples| serde_json::from_slice(samples))
        .collect::<Result<Vec<Vec<Sample>>, _>>()
        .context("reading another rank's samples")?;
    Ok(summary(&workers))
}

/// The timed loop of MPI's own sum.
fn all_reduce(
    case: &Case<'_>,
    gradients: &Gradients<'_>,
    job: &mut Job,
) -> anyhow::Result<Vec<Sample>> {
    let (world, args) = (job.world(), case.args);
    let mut pulse = Dense::default().collective(world, &Layout::flat(0))?;
    let mut samples = Vec::new();
    let mut values = Vec::new();
    for step in 0..u64::from(args.warmup + args.iterations) {
        values.clear();
        values.extend_from_slice(gradients.of(world.rank().index(), step));
        pulse = all_together(&mut job.transport(), pulse, case, step)?;
        let since = Instant::now();
        job.all_reduce(&mut values)?;
        let wall_ms = since.elapsed().as_secs_f64() * 1e3;
        if step >= u64::from(args.warmup) {
            samples.push(Sample::opaque(wall_ms, &values));
        }
    }
    Ok(samples)
}
