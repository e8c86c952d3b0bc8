//! `spardl simulate`: how long a step would take on a network.

mod methods;
mod model;
mod network;
pub(crate) mod published;
mod row;
pub(crate) mod table;
pub(crate) mod units;
mod workload;

use std::path::PathBuf;

use anyhow::Context;
use spardl_core::{Density, Layout};
use spardl_sim::Scenario;
use spardl_sim::gradient::{Distribution, layers};

use crate::memory;
use crate::method::MethodArgs;
use crate::output::{bad_request, print};
use crate::progress::Progress;
use methods::Method;
use network::NetworkArgs;
use row::Row;
use workload::{ComputeArgs, FaultArgs};

/// What to simulate.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The number of workers.
    #[arg(long, default_value_t = 16, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    workers: u32,
    /// The length of the gradient.
    #[arg(long, default_value_t = 65_536, value_name = "N")]
    elements: u32,
    /// The part of the entries that an update should have.
    #[arg(long, default_value_t = 0.01, value_name = "D")]
    density: f64,
    /// Methods, comma-separated, or all; auto: the one that `spardl tune` would pick for a flat network with this latency and
    /// bandwidth, whatever the topology, and with this cost of local work.
    #[arg(long, visible_alias = "method", default_value = "dense,spardl")]
    methods: String,
    /// Seed of gradients, noise and faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, from --seed up [default: 5; 1 when workers times elements exceed 16 million].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seeds: Option<u32>,
    /// Steps of each seed before those that count, in which thresholds and residuals settle [default: 3; 0 when workers
    /// times elements exceed 16 million].
    #[arg(long, value_name = "N")]
    warmup: Option<u32>,
    /// Steps of each seed that count.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// The gradient in so many buckets, which begin while the backward pass goes on.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    buckets: u32,
    /// How the elements of gradients are distributed: heavy-tailed, layered, normal, sparse.
    #[arg(long, default_value = "heavy-tailed")]
    distribution: Distribution,
    /// The part of the gradients' variance that all workers share, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    correlation: f32,
    /// Only rounds, bytes and elements, by the methods' own estimates: any number of workers, any gradient, on a flat network.
    #[arg(long, conflicts_with = "check_model")]
    cost_only: bool,
    /// What local work costs, by method, as `spardl tune --local --save FILE` measured it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["select_ps", "merge_ps"])]
    measured: Option<PathBuf>,
    /// Print what the estimates say beside what the simulator says.
    #[arg(long)]
    check_model: bool,
    /// How to print: a table and words, or one JSON object.
    #[arg(long, default_value = "text")]
    format: Format,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    compute: ComputeArgs,
    #[command(flatten)]
    faults: FaultArgs,
    #[command(flatten)]
    method: MethodArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  spardl simulate --workers 64 --elements 1000000 --methods dense,spardl,ok-topk --bandwidth 10gbit
  spardl simulate --workers 32 --topology two-level --node-size 8 --methods spardl --teams 4
  spardl simulate --workers 16 --backward 20ms --buckets 4 --stragglers 0.05x2 --seeds 20
  spardl simulate --workers 8 --fault drop=0.01 --format json
  spardl simulate --workers 64 --methods auto,dense --bandwidth 10gbit --select-ps 600 --merge-ps 5000
  spardl tune --local --save gamma.json    # what local work costs on this machine, by method, then
  spardl simulate --workers 64 --methods auto,dense --bandwidth 10gbit --measured gamma.json

The machines are the real ones; time is virtual and the same on every host. docs/simulator.md tells what is modelled.";

/// Workers times elements from which a run is kept short.
const LARGE: u64 = 1 << 24;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let scenario = scenario(args)?;
    let methods = methods::of(args, &scenario)?;
    if args.cost_only {
        return only_cost(args, &scenario, &methods);
    }
    fits(args)?;
    let rows = simulate(&scenario, &methods)?;
    if args.check_model {
        let model = methods.iter().zip(&rows);
        let model = model.map(|(method, row)| model::row(&scenario, method, Some(row)));
        return show_model(args, &scenario, &model.collect::<Result<Vec<_>, _>>()?);
    }
    print(&match args.format {
        Format::Text => table::text(&scenario, &rows),
        Format::Json => row::json(&scenario, &rows)?,
    })
}

fn simulate(scenario: &Scenario, methods: &[Method]) -> anyhow::Result<Vec<Row>> {
    let steps = u64::from(scenario.seeds) * u64::from(scenario.warmup + scenario.steps);
    let progress = Progress::new(steps * methods.len() as u64, true);
    let mut rows = Vec::new();
    for method in methods {
        let Method {
            name, algorithm, ..
        } = method;
        let say = || progress.say(format!("{name}, P = {}", scenario.fabric.workers()));
        say();
        let simulated = method.scenario(scenario).run(&**algorithm, || {
            progress.done();
            say();
        });
        let simulated = simulated.with_context(|| name.clone())?;
        rows.push(Row::new(name, &**algorithm, scenario, &simulated));
    }
    Ok(rows)
}

fn only_cost(args: &Args, scenario: &Scenario, methods: &[Method]) -> anyhow::Result<()> {
    let rows = methods
        .iter()
        .map(|method| model::row(scenario, method, None));
    show_model(args, scenario, &rows.collect::<Result<Vec<_>, _>>()?)
}

fn show_model(args: &Args, scenario: &Scenario, rows: &[model::ModelRow]) -> anyhow::Result<()> {
    print(&match args.format {
        Format::Text => model::text(scenario, rows),
        Format::Json => row::json(scenario, rows)?,
    })
}

/// Refuses a run that needs more memory than there is: every worker has a residual and a working copy.
fn fits(args: &Args) -> anyhow::Result<()> {
    let need = 8 * u64::from(args.workers) * u64::from(args.elements);
    match memory::available() {
        Some(available) if need > available => Err(bad_request(format!(
            "{} workers with {} elements need more than {}, and {} are free: use fewer, or --cost-only",
            args.workers,
            args.elements,
            memory::readable(need),
            memory::readable(available)
        ))),
        _ => Ok(()),
    }
}

fn scenario(args: &Args) -> anyhow::Result<Scenario> {
    let density = Density::new(args.density).map_err(bad_request)?;
    if !(0.0..=1.0).contains(&args.correlation) {
        let message = format!("correlation {} is not between 0 and 1", args.correlation);
        return Err(bad_request(message));
    }
    let is_large = u64::from(args.workers) * u64::from(args.elements) > LARGE;
    let usual = if is_large { (1, 0) } else { (5, 3) };
    Ok(Scenario {
        fabric: args.network.fabric(args.workers)?,
        sharing: args.network.sharing(),
        layouts: buckets(args.elements, args.buckets)?,
        density,
        distribution: args.distribution,
        correlation: args.correlation,
        compute: args.compute.model(args.network.machine_size(args.workers)),
        faults: args.faults.rules()?,
        deadline: args.faults.deadline,
        seed: args.seed,
        seeds: args.seeds.unwrap_or(usual.0),
        warmup: args.warmup.unwrap_or(usual.1),
        steps: args.steps,
    })
}

/// The gradient in buckets of nearly equal length, each with layers.
pub(crate) fn buckets(elements: u32, count: u32) -> anyhow::Result<Vec<Layout>> {
    let cut = |i: u32| (u64::from(elements) * u64::from(i) / u64::from(count)) as u32;
    let layouts = (0..count).map(|i| layers(cut(i + 1) - cut(i)));
    Ok(layouts.collect::<Result<_, _>>()?)
}
