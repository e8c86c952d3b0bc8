//! The run over MPI: each rank is a worker, rank 0 has the results.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use spardl_core::Algorithm;

use super::Case;
use super::gradients::Gradients;
use super::local::{Clock, stream_ms};
use super::metered::Metered;
use super::replay::{self, Alone, Recorder, Sends};
use super::workers::{Sample, Timed, summary, work};
use crate::job::Job;
use crate::progress::Progress;

/// Times a method, or MPI_Allreduce when there is none; the samples of all ranks come together on all of them. For a method
/// also the exchange alone.
pub(super) fn measure(
    case: &Case<'_>,
    algorithm: Option<&Arc<dyn Algorithm>>,
    gradients: &Gradients<'_>,
    job: &mut Job,
    progress: &Progress,
) -> anyhow::Result<(Timed, Option<Alone>)> {
    job.barrier()?;
    job.set_patience(case.deadline);
    let (samples, sends) = match algorithm {
        Some(algorithm) => {
            let (samples, sends) = metered(case, algorithm, gradients, job)?;
            (samples, Some(sends))
        }
        None => (all_reduce(case, gradients, job)?, None),
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
    let alone = sends.map(|sends| replay::measure(case, job, &sends));
    Ok((summary(&workers), alone.transpose()?))
}

/// The timed loop of a method, with the CPU time of its local work beside that of the plain loop; and the messages of its last
/// step.
fn metered(
    case: &Case<'_>,
    algorithm: &Arc<dyn Algorithm>,
    gradients: &Gradients<'_>,
    job: &mut Job,
) -> anyhow::Result<(Vec<Sample>, Sends)> {
    let rank = job.world().rank().index();
    let clock = Clock::of(case.args);
    let metered = Arc::new(Metered::new(Arc::clone(algorithm), clock));
    let mut target = spardl_kernels::zeroed(case.layout.len() as usize);
    let meter = Arc::clone(&metered);
    let cpu_ms = |step| {
        let local = meter.take().as_secs_f64() * 1e3;
        Some((
            local,
            stream_ms(clock, &mut target, gradients.of(rank, step + 1)),
        ))
    };
    let mut recorder = Recorder::new(job.transport());
    let samples = work(case, metered, gradients, &mut recorder, cpu_ms)?;
    Ok((samples, recorder.last_but_one()))
}

/// The timed loop of MPI's own sum.
fn all_reduce(
    case: &Case<'_>,
    gradients: &Gradients<'_>,
    job: &mut Job,
) -> anyhow::Result<Vec<Sample>> {
    let (world, args) = (job.world(), case.args);
    let mut samples = Vec::new();
    let mut values = Vec::new();
    for step in 0..u64::from(args.warmup + args.iterations) {
        values.clear();
        values.extend_from_slice(gradients.of(world.rank().index(), step));
        job.barrier()?;
        let since = Instant::now();
        job.all_reduce(&mut values, case.deadline)?;
        let wall_ms = since.elapsed().as_secs_f64() * 1e3;
        job.barrier()?;
        if step >= u64::from(args.warmup) {
            samples.push(Sample::opaque(wall_ms, &values));
        }
    }
    Ok(samples)
}
