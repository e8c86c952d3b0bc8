//! `spardl bench`: methods side by side on the same gradients.

mod gradients;
mod local;
mod quality;
mod row;
mod stats;
mod table;
mod workers;

use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use spardl_core::{Algorithm, Layout};
use spardl_sim::gradient::{Distribution, layers};

use crate::method::{MethodArgs, names};
use crate::output::{bad_request, print};
use gradients::Gradients;
use row::Row;

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Example:\n  spardl bench --workers 8 --elements 14728266 --density 0.01 --methods dense,dense-bf16,spardl\n\n\
    Times are medians over iterations of the slowest worker. local_ratio is the local work of one worker (select + merge)\n\
    over the plain loop a[i] += b[i] on arrays of the same length, one thread, same run."
)]
pub(crate) struct Args {
    /// Numbers of workers, comma-separated.
    #[arg(long, default_value = "4", value_delimiter = ',', value_name = "P,..", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Vec<u32>,
    /// Lengths of the gradient, comma-separated.
    #[arg(
        long,
        default_value = "1000000",
        value_delimiter = ',',
        value_name = "N,.."
    )]
    elements: Vec<u32>,
    /// Target densities k/n, comma-separated.
    #[arg(
        long,
        default_value = "0.01",
        value_delimiter = ',',
        value_name = "D,.."
    )]
    density: Vec<f64>,
    /// Methods, comma-separated, or all.
    #[arg(
        long,
        visible_alias = "method",
        default_value = "dense,dense-bf16,spardl,spardl-bf16"
    )]
    methods: String,
    /// Timed iterations.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Iterations before the timed ones.
    #[arg(long, default_value_t = 5)]
    warmup: u32,
    /// Seed of the gradients.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How the elements of synthetic gradients are distributed: heavy-tailed, layered, normal, sparse.
    #[arg(long, default_value = "heavy-tailed")]
    distribution: Distribution,
    /// The part of the gradients' variance that all workers share, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    correlation: f32,
    /// Run the workers one after another on one thread and time only their local work.
    #[arg(long)]
    local: bool,
    /// Seconds until a worker that waits for another gives up.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    deadline: f64,
    /// How to print: a table, or one JSON object per line and method.
    #[arg(long, default_value = "text")]
    format: Format,
    #[command(flatten)]
    method: MethodArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

/// One point of the sweep: everything that all methods share.
#[derive(Debug)]
struct Case<'a> {
    args: &'a Args,
    workers: u32,
    layout: Layout,
    density: f64,
    k: usize,
    deadline: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    check(args)?;
    let names = names(&args.methods)?;
    let algorithms: Vec<(String, Box<dyn Algorithm>)> = names
        .iter()
        .map(|name| Ok((name.clone(), args.method.build(name)?)))
        .collect::<anyhow::Result<_>>()?;
    let cases = args.workers.len() * args.elements.len() * args.density.len();
    let progress = progress_bar((cases * names.len()) as u64);
    if args.format == Format::Text {
        print(&table::preamble(args))?;
    }
    for &elements in &args.elements {
        for &workers in &args.workers {
            let gradients = Gradients::synthetic(args, workers, elements);
            for &density in &args.density {
                let case = Case::new(args, workers, elements, density)?;
                let rows = run_case(&case, &algorithms, &gradients, &progress)?;
                progress.suspend(|| match args.format {
                    Format::Text => print(&table::rows(&case, &rows)),
                    Format::Json => rows
                        .iter()
                        .try_for_each(|row| print(&(serde_json::to_string(row)? + "\n"))),
                })?;
            }
        }
    }
    progress.finish_and_clear();
    Ok(())
}

impl<'a> Case<'a> {
    fn new(args: &'a Args, workers: u32, elements: u32, density: f64) -> anyhow::Result<Self> {
        Ok(Self {
            args,
            workers,
            layout: layers(elements)?,
            density,
            k: (density * f64::from(elements)) as usize,
            deadline: Duration::try_from_secs_f64(args.deadline).map_err(bad_request)?,
        })
    }
}

fn run_case(
    case: &Case<'_>,
    algorithms: &[(String, Box<dyn Algorithm>)],
    gradients: &Gradients,
    progress: &ProgressBar,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, algorithm) in algorithms {
        progress.set_message(format!(
            "{name}, {} workers, n {}",
            case.workers,
            case.layout.len()
        ));
        let run = || -> anyhow::Result<Row> {
            let local = local::measure(case, &**algorithm, gradients)?;
            let timed = if case.args.local {
                None
            } else {
                Some(workers::measure(case, &**algorithm, gradients)?)
            };
            let quality = quality::measure(case, &**algorithm)?;
            Ok(Row::new(
                case,
                name,
                &**algorithm,
                &local,
                timed.as_ref(),
                &quality,
            ))
        };
        rows.push(run().with_context(|| format!("{name} with {} workers", case.workers))?);
        progress.inc(1);
    }
    row::compare_with_dense(&mut rows);
    Ok(rows)
}

fn check(args: &Args) -> anyhow::Result<()> {
    if let Some(density) = args.density.iter().find(|d| !(0.0..=1.0).contains(*d)) {
        return Err(bad_request(format!(
            "density {density} is not between 0 and 1"
        )));
    }
    if !(0.0..=1.0).contains(&args.correlation) {
        let message = format!("correlation {} is not between 0 and 1", args.correlation);
        return Err(bad_request(message));
    }
    if args.deadline.is_nan() || args.deadline <= 0.0 {
        return Err(bad_request(
            "the deadline must be a positive number of seconds",
        ));
    }
    for &workers in &args.workers {
        for name in names(&args.methods)? {
            let world = spardl_core::World::new(0, workers)?;
            let algorithm = args.method.build(&name)?;
            algorithm
                .machine(world, &Layout::flat(1))
                .map_err(bad_request)?;
        }
    }
    Ok(())
}

/// A bar on stderr, hidden when that is not a terminal.
fn progress_bar(total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} ({elapsed})");
    let bar = ProgressBar::new(total).with_style(style.expect("a valid template"));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}
