//! The timed run: one thread per worker over the in-process transport.

use std::time::Instant;

use anyhow::bail;
use spardl_algos::Dense;
use spardl_core::{Algorithm, Collective, Input, Layout, Outcome, Update};
use spardl_drive::{BucketId, Counts, DriveError, Driver, Transport, run_workers};

use super::Case;
use super::gradients::Gradients;
use super::row::Sent;
use super::stats::{median, percentile};

/// What the timed run found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    /// Median over iterations of the slowest worker's wall time.
    pub(super) time_ms: f64,
    /// The tenth percentile.
    pub(super) p10_ms: f64,
    /// The ninetieth percentile.
    pub(super) p90_ms: f64,
    /// Median time in `begin`, mean over workers.
    pub(super) select_ms: f64,
    /// Median time waiting for messages, mean over workers.
    pub(super) exchange_ms: f64,
    /// Median time in `resume`, mean over workers.
    pub(super) merge_ms: f64,
    /// What the busiest worker sends.
    pub(super) sent: Sent,
    /// Entries of the update, mean over iterations.
    pub(super) nnz: f64,
    /// Iterations in which some worker's update differed in a bit.
    pub(super) disagreements: u32,
}

/// One timed iteration of one worker.
#[derive(Clone, Copy, Debug)]
struct Sample {
    wall_ms: f64,
    waited_ms: f64,
    counts: Counts,
    hash: [u8; 32],
    nnz: usize,
}

pub(super) fn measure(
    case: &Case<'_>,
    algorithm: &dyn Algorithm,
    gradients: &Gradients<'_>,
) -> anyhow::Result<Timed> {
    let results = run_workers(case.workers, |mut transport| {
        work(case, algorithm, gradients, &mut transport)
    })?;
    let mut workers = Vec::with_capacity(results.len());
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(samples) => workers.push(samples),
            Err(error) => failures.push(error),
        }
    }
    // The worker that failed first is the one whose error is not that another one left.
    if let Some(error) = failures
        .iter()
        .find(|e| !e.to_string().contains("lost"))
        .or(failures.first())
    {
        bail!("{error:#}");
    }
    Ok(summary(&workers))
}

/// The timed loop of one worker; the same for every transport.
fn work<T: Transport>(
    case: &Case<'_>,
    algorithm: &dyn Algorithm,
    gradients: &Gradients<'_>,
    transport: &mut T,
) -> anyhow::Result<Vec<Sample>> {
    let (world, args) = (transport.world(), case.args);
    let rank = world.rank().index();
    let mut pulse = Dense::default().collective(world, &Layout::flat(0))?;
    let mut collective = algorithm.collective(world, &case.layout)?;
    let mut samples = Vec::with_capacity(args.iterations as usize);
    for step in 0..u64::from(args.warmup + args.iterations) {
        pulse = all_together(transport, pulse, case, step)?;
        let input = Input {
            gradient: gradients.of(rank, step),
            k: case.k,
            step,
        };
        let mut driver =
            Driver::new(&mut *transport, vec![collective])?.with_timeout(case.deadline);
        let since = Instant::now();
        let report = driver.all_reduce(&[input])?;
        let wall_ms = since.elapsed().as_secs_f64() * 1e3;
        if let Some((_, Outcome::Skipped(reason))) = report.first_skipped() {
            bail!("step {step} was skipped: {reason}");
        }
        let update = driver.update(BucketId::new(0));
        if step >= u64::from(args.warmup) {
            samples.push(Sample {
                wall_ms,
                waited_ms: report.waited.as_secs_f64() * 1e3,
                counts: report.total(),
                hash: hash(update),
                nnz: update.nnz(),
            });
        }
        let (_, mut collectives) = driver.into_parts();
        collective = collectives
            .pop()
            .expect("the driver gives back its collective");
    }
    all_together(transport, pulse, case, u64::MAX)?;
    Ok(samples)
}

/// A barrier: an all-reduce of nothing, over the same transport and with the same deadline.
fn all_together<T: Transport>(
    transport: &mut T,
    pulse: Collective,
    case: &Case<'_>,
    step: u64,
) -> Result<Collective, DriveError> {
    let mut driver = Driver::new(transport, vec![pulse])?.with_timeout(case.deadline);
    driver.all_reduce(&[Input {
        gradient: &[],
        k: 0,
        step,
    }])?;
    let (_, mut collectives) = driver.into_parts();
    Ok(collectives
        .pop()
        .expect("the driver gives back its collective"))
}

/// A hash of the bits of an update.
fn hash(update: Update<'_>) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    match update {
        Update::Sparse(sparse) => {
            hasher.update(bytemuck::cast_slice(sparse.indices()));
            hasher.update(bytemuck::cast_slice(sparse.values()));
        }
        Update::Dense(dense) => {
            hasher.update(bytemuck::cast_slice(dense));
        }
    }
    hasher.finalize().into()
}

fn summary(workers: &[Vec<Sample>]) -> Timed {
    let iterations = workers[0].len();
    let at = |i: usize| workers.iter().map(move |samples| samples[i]);
    let slowest: Vec<f64> = (0..iterations)
        .map(|i| at(i).map(|s| s.wall_ms).fold(0.0, f64::max))
        .collect();
    let mean_of = |value: &dyn Fn(Sample) -> f64| {
        let means = (0..iterations).map(|i| at(i).map(value).sum::<f64>() / workers.len() as f64);
        median(&means.collect::<Vec<_>>())
    };
    let sent = |s: Sample| (s.counts.bytes_sent, s.counts.tally.entries_sent);
    let busiest: Vec<(u64, u64)> = (0..iterations)
        .map(|i| at(i).map(sent).max().unwrap_or_default())
        .collect();
    let nnz = (0..iterations).map(|i| workers[0][i].nnz as f64);
    let differs = |i: &usize| at(*i).any(|s| s.hash != workers[0][*i].hash);
    Timed {
        time_ms: median(&slowest),
        p10_ms: percentile(&slowest, 0.1),
        p90_ms: percentile(&slowest, 0.9),
        select_ms: mean_of(&|s| s.counts.select.as_secs_f64() * 1e3),
        exchange_ms: mean_of(&|s| s.waited_ms),
        merge_ms: mean_of(&|s| s.counts.merge.as_secs_f64() * 1e3),
        sent: Sent::mean(&busiest),
        nnz: nnz.sum::<f64>() / iterations as f64,
        disagreements: (0..iterations).filter(differs).count() as u32,
    }
}
