//! `spardl tune`: measure the network and the machine, and say which method is fastest here.

pub(crate) mod auto;
mod check;
mod hold;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use spardl::tune::{Choice, Gammas, Measurement, Ranked, Space, Tuning};
use spardl::{Budget, Options};
use spardl_core::{Density, Gamma, Layout, ValueType};
use spardl_drive::driver::DEFAULT_TIMEOUT;

use crate::job::{Job, Settings, agree, all_ready};
use crate::launch::{self, TransportChoice};
use crate::output::{bad_request, print, tell};
use crate::screen::{Sheet, stdout_width};
use crate::simulate::{buckets, table};
use hold::Hold;

/// What to tune for.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The number of workers [default: 4, with --local 2; with MPI the number of ranks].
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
    /// The length of the gradient.
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    elements: u32,
    /// The gradient in so many buckets.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    buckets: u32,
    /// The part of the entries that a sparse update should have.
    #[arg(long, default_value_t = 0.01, value_name = "D")]
    density: f64,
    /// How values may travel, comma-separated. Fewer bits than bf16 are considered when they are named.
    #[arg(
        long,
        default_value = "f32,bf16",
        value_delimiter = ',',
        value_name = "TYPE,.."
    )]
    value_types: Vec<ValueType>,
    /// Measure only what local work costs, of every method: for `spardl advise --measured` and `simulate --cost-only --measured`.
    #[arg(long, conflicts_with_all = ["check", "transport"])]
    local: bool,
    /// Then run every choice for real, in turn, so many times, and print how far the pick is from the fastest.
    #[arg(long, value_name = "RUNS", num_args = 0..=1, default_missing_value = "7", value_parser = clap::value_parser!(u32).range(1..=1000))]
    check: Option<u32>,
    /// Then run steps with what was picked, with the density that the network carries within this time, e.g. 20ms.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["local", "check"])]
    exchange_budget: Option<Budget>,
    /// With --exchange-budget: how many steps.
    #[arg(long, default_value_t = 400, value_name = "N", requires = "exchange_budget", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    steps: u64,
    /// With --exchange-budget: the method to run instead of the one that was picked.
    #[arg(long, value_name = "NAME", requires = "exchange_budget")]
    method: Option<String>,
    /// Write what was measured to FILE.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    #[command(flatten)]
    cache: auto::CacheArgs,
    /// How many choices to print.
    #[arg(long, default_value_t = 8, value_name = "N")]
    rows: usize,
    /// What moves the rounds. Under mpiexec or srun, auto is MPI.
    #[arg(long, default_value = "auto")]
    transport: TransportChoice,
    /// Seconds until a worker that waits for another gives up.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    deadline: f64,
    /// How to print: a table and words, or one JSON object.
    #[arg(long, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  spardl tune --workers 8 --elements 14728266 --density 0.01
  mpiexec -n 4 spardl tune --elements 14728266     # on the network between these ranks
  spardl tune --local --save gamma.json            # then: spardl advise --measured gamma.json ..
  mpiexec -n 4 spardl tune --exchange-budget 20ms   # how much of the gradient this network carries in that time
  spardl tune --workers 2 --check                  # every choice for real, beside what was predicted

`--method auto` of bench, train and compare does the same before a run. docs/tuner.md tells what is measured and decided.";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let patience = Duration::try_from_secs_f64(args.deadline).unwrap_or(DEFAULT_TIMEOUT);
    let transport = match args.local {
        true => TransportChoice::Threads,
        false => args.transport,
    };
    let Some(mut job) = launch::connect(transport, "tune", patience)? else {
        let plan = Plan::new(args, None)?;
        return tune(args, &plan, None);
    };
    let plan = Plan::new(args, Some(job.world().size()));
    let result = all_ready(Some(&mut job), plan).and_then(|plan| {
        agree(&mut job, Ok(plan.settings(args)))?;
        tune(args, &plan, Some(&mut job))
    });
    job.conclude(result)
}

/// What was asked for, checked.
struct Plan {
    workers: u32,
    layouts: Vec<Layout>,
    density: Density,
    deadline: Duration,
}

impl Plan {
    fn new(args: &Args, ranks: Option<u32>) -> anyhow::Result<Self> {
        let deadline = Duration::try_from_secs_f64(args.deadline).ok();
        let deadline = deadline.filter(|deadline| !deadline.is_zero());
        if let Some(budget) = args.exchange_budget {
            Hold::new(budget, args.steps, false)?;
        }
        if let Some(method) = &args.method {
            Choice::new(method, Options::default()).map_err(bad_request)?;
        }
        let usual = if args.local { 2 } else { 4 };
        let workers = match (args.workers, ranks) {
            (Some(workers), Some(ranks)) if workers != ranks => {
                return Err(bad_request(format!(
                    "--workers {workers}, but the MPI job has {ranks} ranks: leave --workers out"
                )));
            }
            (workers, ranks) => ranks.or(workers).unwrap_or(usual),
        };
        Ok(Self {
            workers,
            layouts: buckets(args.elements, args.buckets)?,
            density: Density::new(args.density).map_err(bad_request)?,
            deadline: deadline.ok_or_else(|| {
                let seconds = args.deadline;
                bad_request(format!(
                    "--deadline {seconds} is not a number of seconds above zero"
                ))
            })?,
        })
    }

    /// What has to be the same on all ranks.
    fn settings(&self, args: &Args) -> Settings {
        let settings = [
            ("elements", args.elements.to_string()),
            ("buckets", args.buckets.to_string()),
            ("density", args.density.to_string()),
            ("value-types", format!("{:?}", args.value_types)),
            ("check", format!("{:?}", args.check)),
            ("exchange-budget", format!("{:?}", args.exchange_budget)),
            ("steps", args.steps.to_string()),
            ("method", format!("{:?}", args.method)),
        ];
        let owned = settings.map(|(name, value)| (name.to_owned(), value));
        owned.into_iter().collect()
    }
}

fn tune(args: &Args, plan: &Plan, mut job: Option<&mut Job>) -> anyhow::Result<()> {
    let prints = job.as_ref().is_none_or(|job| job.prints());
    let space = Space {
        values: args.value_types.clone(),
    };
    let tuner = auto::tuner(&args.cache, job.as_deref()).space(space);
    let tuner = tuner.timeout(plan.deadline).every_method(args.local);
    let (layouts, density) = (&plan.layouts, plan.density);
    let tuning = auto::choose(&tuner, plan.workers, layouts, density, job.as_deref_mut())?;
    if let Some(path) = args.save.as_deref().filter(|_| prints) {
        save(path, tuning.measured())?;
    }
    if let Some(budget) = args.exchange_budget {
        return hold(args, (plan, &tuning), budget, job);
    }
    let checked = match args.check {
        Some(runs) => Some(check::run(&tuning, plan, runs, job)?),
        None => None,
    };
    if !prints {
        return Ok(());
    }
    auto::complain_about_cache(&tuning);
    match args.format {
        Format::Json => print(&json(&tuning, checked.as_ref())?),
        Format::Text if args.local => tell(&local(tuning.measured())),
        Format::Text => {
            let checked = checked.map_or_else(String::new, |checked| checked.text(args.rows));
            tell(&(text(&tuning, args.rows) + &checked))
        }
    }
}

/// Measurement, table of the first `rows` choices, and the pick in words.
fn text(tuning: &Tuning, rows: usize) -> String {
    let mut cells = tuning.cells(rows).into_iter();
    let names = cells.next().into_iter().flatten();
    let table = Sheet::new(names, cells.map(Vec::from)).text(stdout_width());
    let (conditions, words) = (tuning.conditions_in_words(), tuning.in_words());
    format!("# {conditions}\n{table}{words}\n")
}

/// Runs steps whose density follows the time they take.
fn hold(
    args: &Args,
    (plan, tuning): (&Plan, &Tuning),
    budget: Budget,
    job: Option<&mut Job>,
) -> anyhow::Result<()> {
    let prints = job.as_ref().is_none_or(|job| job.prints());
    let hold = Hold::new(budget, args.steps, prints && args.format == Format::Text)?;
    let choice = match &args.method {
        Some(method) => Choice::new(method, Options::default()).map_err(bad_request)?,
        None => tuning.best().clone(),
    };
    if hold.prints {
        tell(&format!("{}# steps of {choice}\n", text(tuning, args.rows)))?;
    }
    let looks = hold.run(&choice, plan, job)?;
    match args.format {
        _ if !prints => Ok(()),
        Format::Text => tell(&hold::in_words(&looks)),
        Format::Json => print(&(serde_json::to_string(&looks)? + "\n")),
    }
}

fn save(path: &Path, measured: &Measurement) -> anyhow::Result<()> {
    fs::write(path, measured.to_json() + "\n")
        .with_context(|| format!("writing {}", path.display()))
}

/// What `spardl tune` wrote.
pub(crate) fn read(path: &Path) -> anyhow::Result<Measurement> {
    let text = fs::read(path).map_err(|error| {
        let path = path.display();
        bad_request(format!(
            "--measured {path}: {error}; make one with spardl tune --local --save {path}"
        ))
    })?;
    let read = Measurement::from_json(&text);
    read.map_err(|error| bad_request(format!("--measured {}: {error}", path.display())))
}

/// What local work costs, by method.
fn local(measured: &Measurement) -> String {
    let gammas = measured.gammas();
    let row = |name: &str, gamma: Gamma| {
        let numbers = [gamma.select.to_string(), gamma.merge.to_string()];
        [name.to_owned()].into_iter().chain(numbers).collect()
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (name, gamma) in &gammas.measured {
        rows.push(row(name, *gamma));
    }
    let Gammas { sparse, dense, .. } = gammas;
    rows.push(row("sparse, median", sparse));
    rows.push(row("dense, median", dense));
    let conditions = measured.conditions();
    let head = format!(
        "# picoseconds of local work; {} workers as threads, density {}, {}\n",
        conditions.workers,
        conditions.density,
        conditions.hosts.first().map_or("", String::as_str)
    );
    head + &table::table(&["method", "select per element", "merge per byte"], rows)
}

/// A choice as JSON.
#[derive(Serialize)]
struct Row {
    choice: String,
    predicted_ns: u64,
    latency_ns: u64,
    transfer_ns: u64,
    /// Null when the network alone takes longer than all of the best.
    select_ns: Option<u64>,
    merge_ns: Option<u64>,
}

impl Row {
    fn new(ranked: &Ranked) -> Self {
        let predicted = &ranked.predicted;
        Self {
            choice: ranked.choice.to_string(),
            predicted_ns: predicted.exchange(),
            latency_ns: predicted.latency,
            transfer_ns: predicted.transfer,
            select_ns: ranked.is_whole.then_some(predicted.select),
            merge_ns: ranked.is_whole.then_some(predicted.merge),
        }
    }
}

fn json(tuning: &Tuning, checked: Option<&check::Checked>) -> anyhow::Result<String> {
    let measured: serde_json::Value = serde_json::from_str(&tuning.measured().to_json())?;
    let rows: Vec<Row> = tuning.ranked().iter().map(Row::new).collect();
    let whole = serde_json::json!({
        "choice": tuning.best().to_string(),
        "reason": tuning.in_words(),
        "cached": tuning.is_cached(),
        "measured": measured,
        "choices": rows,
        "checked": checked,
    });
    Ok(serde_json::to_string(&whole)? + "\n")
}
