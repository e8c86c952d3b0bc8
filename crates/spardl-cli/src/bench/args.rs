//! What `spardl bench` can be asked.

use std::path::PathBuf;

use spardl::AUTO;
use spardl_core::Density;
use spardl_sim::gradient::Distribution;

use crate::launch::{self, TransportChoice};
use crate::method::{MethodArgs, check_workers};
use crate::output::{bad_request, directory};
use crate::tune::auto::CacheArgs;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  spardl bench --workers 8 --elements 14728266 --density 0.01 --methods dense,dense-bf16,spardl\n  \
        mpiexec -n 4 spardl bench --elements 14728266 --methods mpi-allreduce,dense,spardl",
    after_long_help = COLUMNS
)]
pub(crate) struct Args {
    /// Numbers of workers, comma-separated [default: 4; with MPI the number of ranks].
    #[arg(long, value_delimiter = ',', value_name = "P,..", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) workers: Vec<u32>,
    /// Lengths of the gradient, comma-separated.
    #[arg(
        long,
        default_value = "1000000",
        value_delimiter = ',',
        value_name = "N,.."
    )]
    pub(super) elements: Vec<u32>,
    /// Target densities k/n, comma-separated.
    #[arg(
        long,
        default_value = "0.01",
        value_delimiter = ',',
        value_name = "D,.."
    )]
    pub(super) density: Vec<f64>,
    /// Methods, comma-separated, or all; auto: the one that `spardl tune` picks here. With MPI also mpi-allreduce: MPI_Allreduce
    /// itself, f32.
    #[arg(
        long,
        visible_alias = "method",
        default_value = "dense,dense-bf16,spardl,spardl-bf16"
    )]
    pub(super) methods: String,
    /// Timed iterations.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) iterations: u32,
    /// Iterations before the timed ones.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub(super) warmup: u32,
    /// Synthetic gradients made for each worker; iterations cycle through them. Fewer need less memory.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) samples: u32,
    /// Seed of the gradients.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// How the elements of synthetic gradients are distributed: heavy-tailed, layered, normal, sparse.
    #[arg(long, default_value = "heavy-tailed")]
    pub(super) distribution: Distribution,
    /// The part of the gradients' variance that all workers share, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    pub(super) correlation: f32,
    /// Recorded gradients instead of synthetic ones: .npy or .safetensors, values f64, f32, f16 or bf16.
    ///
    /// A .npy array is one gradient, of shape (elements), or several, of shape (samples, elements). The tensors of a .safetensors file are samples
    /// when they are named gradient.0, gradient.1, ..; otherwise they are the layers of one gradient, in the order of their
    /// names. In step s, worker w of P gets sample s P + w, starting again at the end: with a single sample all workers have
    /// the same gradient.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["elements", "samples", "distribution", "correlation"])]
    pub(super) gradients: Option<PathBuf>,
    /// Run the workers one after another and time only their local work.
    #[arg(long)]
    pub(super) local: bool,
    /// Threads that each worker uses for its local work. With more than one, local work is timed by the wall clock.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: u16,
    /// Seconds until a worker that waits for another gives up.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    pub(super) deadline: f64,
    /// What moves the rounds. Under mpiexec or srun, auto is MPI: rank 0 prints, and the check on integers is left out.
    #[arg(long, default_value = "auto")]
    pub(super) transport: TransportChoice,
    /// Write what each rank does to DIR/rank-N.log, with the time of every iteration.
    #[arg(long, value_name = "DIR", value_parser = directory())]
    pub(super) log_dir: Option<PathBuf>,
    /// How to print: tables, one JSON object per line and method, or CSV with a line of names.
    #[arg(long, default_value = "text")]
    pub(super) format: Format,
    /// All columns of the text in one wide table.
    #[arg(long)]
    pub(super) wide: bool,
    #[command(flatten)]
    pub(super) cache: CacheArgs,
    #[command(flatten)]
    pub(super) method: MethodArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
    Csv,
}

/// The row of the engine's own dense sum.
pub(super) const MPI_ALLREDUCE: &str = "mpi-allreduce";

const COLUMNS: &str = "\
Columns of the text (names in JSON and CSV where they differ):
  size, count  bytes and elements of the dense f32 gradient
  time         wall time of the slowest worker: median over iterations, with p10 and p90;
               warm-up apart (time_ms, time_p10_ms, time_p90_ms)
  select       pass over the gradient and selection (mean over workers, median over iterations)
  exch         waiting for messages (exchange_ms)
  merge        decoding, adding, encoding
  algbw        size / time
  eff_busbw    algbw 2 (P - 1) / P, what a dense all-reduce would have to move in that time;
               more than the links can carry means compression
  vs_f32       speed against the fastest dense row with f32 values; vs_bf16: with bf16 values
  #wrong       elements at which workers disagree, or at which a method that says it conserves
               does not
  density      entries of the update / count
  nnz          entries of the update
  wire         bytes that the busiest worker sends in a step, headers included (wire_bytes)
  bits         bits on the wire per entry sent. An entry (entries_sent) is a value that travels,
               with its index or, in dense sums, without. Forwarded ones count; indices that
               travel without a value do not
  error        |U - T| / |T| in the 2-norm, in the last iteration: U is the update, T the k
               largest entries of the sum over workers of residual + gradient (relative_error).
               A method that delivers other or more than k entries differs from T by those
  local        local work of one worker (select + merge) / the plain loop a[i] += b[i] on arrays
               of the same length, one thread, same run (local_ratio, stream_ms); CPU time, or
               wall time with --threads
  x_bare       MPI only: the messages of a step without local work, through the transport, over
               a bare loop of MPI_Irecv, MPI_Isend and MPI_Waitall with the same sizes and rounds;
               slowest rank (exchange_ratio = exchange_alone_ms / bare_ms)
  rescans      blocks per worker and step whose candidates did not suffice
  agreed       every worker had the same bits in every iteration
  conserved    nothing was lost: inputs = update + residuals, with == on integers in extra steps
Not measured (- or null) with MPI: #wrong, error, conserved; MPI_Allreduce does not tell what it
sends.";

/// Is it no method of the registry, but something that is found out or done otherwise?
pub(super) fn is_special(name: &str) -> bool {
    name == MPI_ALLREDUCE || name == AUTO
}

/// Refuses what cannot be run, before anything is.
pub(super) fn check(args: &Args) -> anyhow::Result<()> {
    for density in &args.density {
        Density::new(*density).map_err(bad_request)?;
    }
    if !(0.0..=1.0).contains(&args.correlation) {
        let message = format!("correlation {} is not between 0 and 1", args.correlation);
        return Err(bad_request(message));
    }
    launch::deadline(args.deadline).map(drop)
}

/// Refuses methods that cannot run with that many workers.
pub(super) fn check_methods(args: &Args, names: &[String]) -> anyhow::Result<()> {
    for &workers in &args.workers {
        for name in names.iter().filter(|name| !is_special(name)) {
            check_workers(&*args.method.build(name)?, workers)?;
        }
    }
    Ok(())
}
