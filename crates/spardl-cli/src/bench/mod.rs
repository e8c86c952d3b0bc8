//! `spardl bench`: methods side by side on the same gradients.

mod accuracy;
mod args;
mod gradients;
mod local;
mod memory;
mod metered;
mod npy;
mod over_mpi;
pub(crate) mod plan;
mod quality;
pub(crate) mod recorded;
mod replay;
mod row;
mod stats;
mod table;
mod workers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use spardl::AUTO;
use spardl::tune::Choice;
use spardl_core::{Algorithm, Density, Layout};
use spardl_drive::driver::DEFAULT_TIMEOUT;

pub(crate) use args::Args;

use crate::job::{Job, agree, all_ready, neighbours};
use crate::launch;
use crate::output::{bad_request, print, warn};
use crate::progress::Progress;
use crate::tune::auto;
use args::Format;
use gradients::Gradients;
use plan::{Plan, Ranks};
use row::{Found, Row};

/// One point of the sweep: everything that all methods share.
#[derive(Debug)]
struct Case<'a> {
    args: &'a Args,
    workers: u32,
    layout: Layout,
    density: f64,
    k: usize,
    deadline: Duration,
    transport: &'static str,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // A deadline that cannot be is refused with the plan, where all ranks hear of it.
    let patience = launch::deadline(args.deadline).unwrap_or(DEFAULT_TIMEOUT);
    let Some(mut job) = launch::connect(args.transport, "bench", patience)? else {
        return bench(&Plan::new(args, None)?, None);
    };
    let ranks = Ranks {
        world: job.world(),
        on_this_host: neighbours(&mut job)?,
    };
    let plan = Plan::new(args, Some(ranks));
    let result = agreed(&mut job, plan).and_then(|plan| bench(&plan, Some(&mut job)));
    job.conclude(result)
}

/// The plan, when all ranks have the same.
fn agreed(job: &mut Job, plan: anyhow::Result<Plan>) -> anyhow::Result<Plan> {
    let plan = all_ready(Some(&mut *job), plan)?;
    agree(job, Ok(plan.settings()))?;
    Ok(plan)
}

fn bench(plan: &Plan, mut job: Option<&mut Job>) -> anyhow::Result<()> {
    let args = &plan.args;
    let cases = args.workers.len() * plan.layouts.len() * args.density.len();
    let world = job.as_ref().map(|job| job.world());
    let rank = world.map(|world| world.rank().get());
    let prints = rank.unwrap_or(0) == 0;
    let progress = Progress::new((cases * plan.methods.len()) as u64, prints)
        .with_log(args.log_dir.as_deref(), rank.unwrap_or(0));
    let progress = all_ready(job.as_deref_mut(), progress)?;
    if args.format == Format::Text && prints {
        let place = match world {
            Some(world) => format!("workers as {} ranks of an MPI job", world.size()),
            None => "workers as threads of one process".to_owned(),
        };
        print(&table::preamble(args, plan.recorded.as_ref(), &place))?;
    }
    let mut printed = false;
    for layout in &plan.layouts {
        for &workers in &args.workers {
            progress.say(format!("gradients for {workers} workers"));
            let since = Instant::now();
            let gradients = match &plan.recorded {
                Some(recorded) => Gradients::recorded(&recorded.samples, workers),
                None => Gradients::synthetic(args, workers, rank, layout.len()),
            };
            let making = since.elapsed();
            for &density in &args.density {
                let case = Case::new(args, workers, layout, density, rank.is_some())?;
                if let Some(job) = &mut job {
                    // Other ranks may take longer over their gradients than this one did.
                    job.set_patience(case.deadline.saturating_add(2 * making));
                }
                let result = run_case(&case, plan, &gradients, job.as_deref_mut(), &progress);
                let rows = result.inspect_err(|error| progress.note(&format!("{error:#}")))?;
                if !prints {
                    continue;
                }
                let text = match args.format {
                    Format::Text => table::rows(&case, &rows),
                    Format::Json => json(&rows)?,
                    Format::Csv => csv(&rows, !printed)?,
                };
                progress.suspend(|| print(&text))?;
                printed = true;
            }
        }
    }
    match crate::memory::peak() {
        Some(peak) if args.format == Format::Text && prints => print(&format!(
            "# peak memory of this process: {}\n",
            crate::memory::readable(peak)
        )),
        _ => Ok(()),
    }
}

impl<'a> Case<'a> {
    fn new(
        args: &'a Args,
        workers: u32,
        layout: &Layout,
        density: f64,
        over_mpi: bool,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            args,
            workers,
            layout: layout.clone(),
            density,
            k: Density::new(density)
                .map_err(bad_request)?
                .entries(layout.len() as usize),
            deadline: launch::deadline(args.deadline)?,
            transport: if over_mpi { "mpi" } else { "threads" },
        })
    }
}

fn run_case(
    case: &Case<'_>,
    plan: &Plan,
    gradients: &Gradients<'_>,
    mut job: Option<&mut Job>,
    progress: &Progress,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, algorithm) in &plan.methods {
        let say = |what: &str| {
            let (workers, len) = (case.workers, case.layout.len());
            progress.say(format!(
                "{name}, P = {workers}, n = {len}, density {}: {what}",
                case.density
            ));
        };
        let chosen = match name.as_str() {
            AUTO => {
                say("measuring");
                Some(choose(case, job.as_deref_mut(), progress)?)
            }
            _ => None,
        };
        let picked = chosen.as_ref().map(Choice::algorithm);
        let algorithm = picked.or(algorithm.as_ref());
        let found = match (job.as_deref_mut(), algorithm) {
            (Some(job), _) => {
                say("ranks");
                over_mpi::measure(case, algorithm, gradients, job, progress).map(
                    |(timed, alone)| Found {
                        local: None,
                        timed: Some(timed),
                        quality: None,
                        alone,
                    },
                )
            }
            (None, Some(algorithm)) => in_process(case, algorithm, gradients, say),
            (None, None) => unreachable!("the plan has MPI's own sum only for MPI jobs"),
        };
        let found = found.with_context(|| format!("{name} with {} workers", case.workers))?;
        let description =
            algorithm.map_or_else(|| "MPI_Allreduce, f32".to_owned(), |a| a.describe());
        let row = Row::new(case, name, description, &found);
        rows.push(match &chosen {
            Some(choice) => row.of_choice(choice),
            None => row,
        });
        progress.done();
    }
    row::compare_with_dense(&mut rows);
    Ok(rows)
}

/// What the tuner picks for a case; why is said on stderr.
fn choose(
    case: &Case<'_>,
    mut job: Option<&mut Job>,
    progress: &Progress,
) -> anyhow::Result<Choice> {
    let tuner = auto::tuner(&case.args.cache, job.as_deref()).timeout(case.deadline);
    let (layouts, density) = ([case.layout.clone()], Density::new(case.density)?);
    let tuning = auto::choose(&tuner, case.workers, &layouts, density, job.as_deref_mut())?;
    if job.is_none_or(|job| job.prints()) {
        progress.suspend(|| {
            auto::complain_about_cache(&tuning);
            warn(&format!("auto: {}", tuning.in_words()));
        });
    }
    Ok(tuning.best().clone())
}

/// All parts of the measurement with workers as threads.
fn in_process(
    case: &Case<'_>,
    algorithm: &Arc<dyn Algorithm>,
    gradients: &Gradients<'_>,
    say: impl Fn(&str),
) -> anyhow::Result<Found> {
    say("local work");
    let local = local::measure(case, &**algorithm, gradients)?;
    say("workers");
    let timed = if case.args.local {
        None
    } else {
        Some(workers::measure(case, algorithm, gradients)?)
    };
    say("check");
    let quality = quality::measure(case, &**algorithm)?;
    Ok(Found {
        local: Some(local),
        timed,
        quality: Some(quality),
        alone: None,
    })
}

fn json(rows: &[Row]) -> anyhow::Result<String> {
    let mut text = String::new();
    for row in rows {
        text += &serde_json::to_string(row)?;
        text.push('\n');
    }
    Ok(text)
}

fn csv(rows: &[Row], with_names: bool) -> anyhow::Result<String> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(with_names)
        .from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}
