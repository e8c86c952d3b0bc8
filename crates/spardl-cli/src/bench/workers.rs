//! The timed run: the loop of one worker over any transport, and one thread per worker over the in-process one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use serde::{Deserialize, Serialize};
use spardl::{Algorithm, Outcome, Reducer, Report, Transport, Update, run_workers};

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
    /// What the busiest worker sends; unknown for MPI's own sum.
    pub(super) sent: Option<Sent>,
    /// Rounds of a step; unknown for MPI's own sum.
    pub(super) rounds: Option<u32>,
    /// Blocks scanned again, per worker and step; unknown for MPI's own sum.
    pub(super) rescans: Option<f64>,
    /// Entries of the update, mean over iterations.
    pub(super) nnz: f64,
    /// Iterations in which some worker's update differed in a bit.
    pub(super) disagreements: u32,
    /// CPU time of local work, where it was measured during the run.
    pub(super) cpu: Option<Cpu>,
}

/// The CPU time of one worker's select + merge, and of the plain loop beside it: medians over iterations of means over workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    pub(super) stream_ms: f64,
    pub(super) ratio: f64,
}

/// One timed iteration of one worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) wall_ms: f64,
    waited_ms: f64,
    select_ms: f64,
    merge_ms: f64,
    traffic: Option<Traffic>,
    /// CPU time of select + merge and of the plain loop.
    cpu_ms: Option<(f64, f64)>,
    hash: [u8; 32],
    nnz: usize,
}

/// What one worker sent in one step.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Traffic {
    bytes: u64,
    entries: u64,
    rounds: u32,
    rescans: u64,
}

impl Sample {
    /// A step of MPI's own sum, which does not tell what it does.
    pub(super) fn opaque(wall_ms: f64, result: &[f32]) -> Self {
        Self {
            wall_ms,
            waited_ms: wall_ms,
            select_ms: 0.0,
            merge_ms: 0.0,
            traffic: None,
            cpu_ms: None,
            hash: hash(Update::Dense(result)),
            nnz: result.len(),
        }
    }

    fn new(wall_ms: f64, report: &Report, update: Update<'_>) -> Self {
        let (counts, ms) = (&report.counts, |time: Duration| time.as_secs_f64() * 1e3);
        Self {
            wall_ms,
            waited_ms: ms(report.waited),
            select_ms: ms(counts.select),
            merge_ms: ms(counts.merge),
            traffic: Some(Traffic {
                bytes: counts.bytes_sent,
                entries: counts.stats.entries_sent,
                rounds: counts.rounds,
                rescans: counts.stats.rescans,
            }),
            cpu_ms: None,
            hash: hash(update),
            nnz: report.nnz,
        }
    }
}

pub(super) fn measure(
    case: &Case<'_>,
    algorithm: &Arc<dyn Algorithm>,
    gradients: &Gradients<'_>,
) -> anyhow::Result<Timed> {
    let results = run_workers(case.workers, |transport| {
        work(case, Arc::clone(algorithm), gradients, transport, |_| None)
    })?;
    let mut workers = Vec::with_capacity(results.len());
    let mut failures = Vec::new();
    for result in results {
        match result {
            Ok(samples) => workers.push(samples),
            Err(error) => failures.push(error),
        }
    }
    // The worker to name is the one whose error does not only say that another one failed.
    let secondary = |error: &anyhow::Error| {
        error
            .downcast_ref()
            .is_some_and(spardl::Error::is_secondary)
    };
    let cause = failures.iter().position(|error| !secondary(error));
    if !failures.is_empty() {
        return Err(failures.swap_remove(cause.unwrap_or(0)));
    }
    Ok(summary(&workers))
}

/// The timed loop of one worker; the same for every transport. After each step, `cpu_ms` may say what CPU time its local work and
/// the plain loop took.
pub(super) fn work<T: Transport>(
    case: &Case<'_>,
    algorithm: Arc<dyn Algorithm>,
    gradients: &Gradients<'_>,
    transport: T,
    mut cpu_ms: impl FnMut(u64) -> Option<(f64, f64)>,
) -> anyhow::Result<Vec<Sample>> {
    let args = case.args;
    let rank = transport.world().rank().index();
    let mut reducer = Reducer::with_algorithm(algorithm)
        .density(case.density)
        .timeout(case.deadline)
        .threads(args.threads.into())
        .build_for(transport, vec![case.layout.clone()])?;
    let mut samples = Vec::with_capacity(args.iterations as usize);
    for step in 0..u64::from(args.warmup + args.iterations) {
        reducer.barrier()?;
        let since = Instant::now();
        reducer.begin(0, gradients.of(rank, step))?;
        let report = reducer.wait()?;
        reducer.commit()?;
        let wall_ms = since.elapsed().as_secs_f64() * 1e3;
        if let Outcome::Skipped(reason) = report.outcome {
            bail!("step {step} was skipped: {reason}");
        }
        // What follows must not take the cores from workers whose time still runs.
        reducer.barrier()?;
        let cpu_ms = cpu_ms(step);
        if step >= u64::from(args.warmup) {
            let sample = Sample::new(wall_ms, &report, reducer.update(0));
            samples.push(Sample { cpu_ms, ..sample });
        }
    }
    Ok(samples)
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

/// What the samples of all workers say together.
pub(super) fn summary(workers: &[Vec<Sample>]) -> Timed {
    let iterations = workers[0].len();
    let at = |i: usize| workers.iter().map(move |samples| samples[i]);
    let slowest: Vec<f64> = (0..iterations)
        .map(|i| at(i).map(|s| s.wall_ms).fold(0.0, f64::max))
        .collect();
    let mean_of = |value: &dyn Fn(Sample) -> f64| {
        let means = (0..iterations).map(|i| at(i).map(value).sum::<f64>() / workers.len() as f64);
        median(&means.collect::<Vec<_>>())
    };
    let traffic: Option<Vec<Vec<Traffic>>> = (0..iterations)
        .map(|i| at(i).map(|s| s.traffic).collect())
        .collect();
    let busiest = |step: &Vec<Traffic>| {
        let sent = step.iter().map(|t| (t.bytes, t.entries));
        sent.max().unwrap_or_default()
    };
    let sent = |steps: &Vec<Vec<Traffic>>| {
        let busiest: Vec<(u64, u64)> = steps.iter().map(busiest).collect();
        Sent::mean(&busiest)
    };
    let rescans = |steps: &Vec<Vec<Traffic>>| {
        let all = steps.iter().flatten().map(|t| t.rescans).sum::<u64>();
        all as f64 / (iterations * workers.len()) as f64
    };
    let rounds = |steps: &Vec<Vec<Traffic>>| steps.iter().flatten().map(|t| t.rounds).max();
    let nnz = (0..iterations).map(|i| workers[0][i].nnz as f64);
    let differs = |i: &usize| at(*i).any(|s| s.hash != workers[0][*i].hash);
    Timed {
        time_ms: median(&slowest),
        p10_ms: percentile(&slowest, 0.1),
        p90_ms: percentile(&slowest, 0.9),
        select_ms: mean_of(&|s| s.select_ms),
        exchange_ms: mean_of(&|s| s.waited_ms),
        merge_ms: mean_of(&|s| s.merge_ms),
        sent: traffic.as_ref().map(sent),
        rounds: traffic.as_ref().and_then(rounds),
        rescans: traffic.as_ref().map(rescans),
        nnz: nnz.sum::<f64>() / iterations as f64,
        disagreements: (0..iterations).filter(differs).count() as u32,
        cpu: cpu(workers),
    }
}

/// The medians of what CPU time the workers used, if they measured it.
fn cpu(workers: &[Vec<Sample>]) -> Option<Cpu> {
    let steps: Vec<(f64, f64)> = (0..workers[0].len())
        .map(|i| {
            let (local, stream) = workers
                .iter()
                .map(|samples| samples[i].cpu_ms)
                .collect::<Option<(Vec<f64>, Vec<f64>)>>()?;
            let mean = |times: &[f64]| times.iter().sum::<f64>() / workers.len() as f64;
            Some((mean(&local), mean(&stream)))
        })
        .collect::<Option<_>>()?;
    let median_of =
        |value: fn(&(f64, f64)) -> f64| median(&steps.iter().map(value).collect::<Vec<_>>());
    Some(Cpu {
        stream_ms: median_of(|(_, stream)| *stream),
        ratio: median_of(|(local, stream)| local / stream.max(1e-9)),
    })
}
