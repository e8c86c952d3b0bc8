//! The local work of the workers, one after another, against the plain loop over arrays of the same length.
//!
//! Both are measured in CPU time of the thread, so that other programs on the machine count as little as possible; with several
//! threads per worker, in wall time.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use rustix::time::{ClockId, clock_gettime};

use spardl_core::{Algorithm, MethodStats, Outcome};
use spardl_drive::pool;
use spardl_sim::{Cluster, ClusterReport};

use super::Case;
use super::accuracy::relative_error;
use super::args::Args;
use super::gradients::Gradients;
use super::quality::same_bits;
use super::row::Sent;
use super::stats::{median, percentile};

/// What the local measurement found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    /// Time in `begin`, one worker.
    pub(super) select_ms: f64,
    /// Time in `resume`, one worker.
    pub(super) merge_ms: f64,
    /// The slowest worker's local work: median and percentiles over iterations.
    pub(super) slowest_ms: [f64; 3],
    /// The plain loop `a[i] += b[i]`.
    pub(super) stream_ms: f64,
    /// (select + merge) / stream, one worker: the median over iterations of ratios taken side by side.
    pub(super) ratio: f64,
    /// Blocks scanned again, per worker and step.
    pub(super) rescans: f64,
    /// What the busiest worker sends.
    pub(super) sent: Sent,
    /// Entries of the update, mean over iterations.
    pub(super) nnz: f64,
    /// How far the last update is from the true top-k.
    pub(super) relative_error: Option<f64>,
    /// Rounds of a step.
    pub(super) rounds: u32,
    /// Had all workers the same bits in every iteration?
    pub(super) agreed: bool,
}

pub(super) fn measure(
    case: &Case<'_>,
    algorithm: &dyn Algorithm,
    gradients: &Gradients<'_>,
) -> anyhow::Result<Local> {
    let (args, size) = (case.args, case.workers as usize);
    // Beside a run with real workers a few iterations suffice; alone, this is the measurement.
    let iterations = if args.local {
        args.iterations
    } else {
        args.iterations.min(5)
    };
    let (clock, threads) = (Clock::of(args), pool(args.threads.into())?);
    let cluster = Cluster::new(algorithm, case.workers, &case.layout)?;
    let mut cluster = cluster.with_stopwatch(clock.stopwatch());
    for worker in cluster.workers_mut() {
        worker.set_threads(Arc::clone(&threads));
    }
    let mut target = spardl_kernels::zeroed(case.layout.len() as usize);
    let (mut select, mut merge, mut slowest) = (Vec::new(), Vec::new(), Vec::new());
    let (mut streams, mut ratios) = (Vec::new(), Vec::new());
    let (mut rescans, mut rounds, mut nnz, mut error) = (0, 0, 0, None);
    let (mut busiest, mut agreed) = (Vec::new(), true);
    let last = u64::from(args.warmup + iterations) - 1;
    for step in 0..=last {
        let inputs = gradients.all(step);
        let report = cluster.step(&inputs, case.k, step)?;
        was_updated(&report, step)?;
        let ledger = report.ledger;
        let workers = cluster.workers();
        let stats: Vec<MethodStats> = workers.iter().map(|worker| worker.stats()).collect();
        let delivered = workers.first().map_or(0, |worker| worker.update().nnz());
        agreed &= workers
            .windows(2)
            .all(|pair| same_bits(pair[0].update(), pair[1].update()));
        if step == last {
            error = relative_error(&workers, &inputs, case.k);
        }
        cluster.commit()?;
        let stream = stream_ms(
            clock,
            &mut target,
            gradients.of(step as usize % size, step + 1),
        );
        if step < u64::from(args.warmup) {
            continue;
        }
        let ms = |durations: &[Duration]| {
            durations.iter().sum::<Duration>().as_secs_f64() * 1e3 / size as f64
        };
        let totals = ledger
            .select
            .iter()
            .zip(&ledger.merge)
            .map(|(a, b)| (*a + *b).as_secs_f64());
        slowest.push(totals.fold(0.0, f64::max) * 1e3);
        select.push(ms(&ledger.select));
        merge.push(ms(&ledger.merge));
        streams.push(stream);
        ratios.push((ms(&ledger.select) + ms(&ledger.merge)) / stream);
        rescans += stats.iter().map(|stats| stats.rescans).sum::<u64>();
        nnz += delivered;
        let entries = stats.iter().map(|stats| stats.entries_sent);
        let sent = ledger.bytes.iter().copied().zip(entries);
        busiest.push(sent.max().unwrap_or_default());
        rounds = rounds.max(ledger.rounds.iter().max().copied().unwrap_or(0));
    }
    let steps = f64::from(iterations);
    Ok(Local {
        select_ms: median(&select),
        merge_ms: median(&merge),
        slowest_ms: [0.5, 0.1, 0.9].map(|q| percentile(&slowest, q)),
        stream_ms: median(&streams),
        ratio: median(&ratios),
        rescans: rescans as f64 / steps / size as f64,
        sent: Sent::mean(&busiest),
        nnz: nnz as f64 / steps,
        relative_error: error,
        rounds,
        agreed,
    })
}

/// A step that was skipped measured nothing.
pub(super) fn was_updated(report: &ClusterReport, step: u64) -> anyhow::Result<()> {
    match report.outcomes.iter().find(|o| **o != Outcome::Updated) {
        Some(Outcome::Skipped(reason)) => bail!("step {step} was skipped: {reason}"),
        _ => Ok(()),
    }
}

/// The yardstick: one pass of `a[i] += b[i]`.
pub(super) fn stream_ms(clock: Clock, a: &mut [f32], b: &[f32]) -> f64 {
    let since = clock.now();
    for (a, b) in a.iter_mut().zip(black_box(b)) {
        *a += b;
    }
    black_box(&*a);
    (clock.now() - since).as_secs_f64() * 1e3
}

/// What local work is timed by.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    /// The CPU time that this thread has used.
    Cpu,
    /// The time that passes.
    Wall,
}

impl Clock {
    /// A worker that uses several threads does not show in the CPU time of one.
    pub(super) const fn of(args: &Args) -> Self {
        if args.threads > 1 {
            Self::Wall
        } else {
            Self::Cpu
        }
    }

    /// [`Clock::now`] as a function.
    fn stopwatch(self) -> fn() -> Duration {
        match self {
            Self::Cpu => || Self::Cpu.now(),
            Self::Wall => || Self::Wall.now(),
        }
    }

    pub(super) fn now(self) -> Duration {
        let time = clock_gettime(match self {
            Self::Cpu => ClockId::ThreadCPUTime,
            Self::Wall => ClockId::Monotonic,
        });
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}
