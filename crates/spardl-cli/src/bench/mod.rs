//! `spardl bench`: methods side by side on the same gradients.

mod accuracy;
mod args;
mod gradients;
mod local;
mod memory;
mod progress;
mod quality;
mod recorded;
mod row;
mod stats;
mod table;
mod workers;

use std::time::Duration;

use anyhow::Context;
use spardl_core::{Algorithm, Layout};
use spardl_sim::gradient::layers;

pub(crate) use args::Args;

use crate::method::names;
use crate::output::{bad_request, print};
use args::Format;
use gradients::{Gradients, SAMPLES};
use progress::Progress;
use recorded::Recorded;
use row::Row;

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
    args::check(args)?;
    let names = names(&args.methods)?;
    let algorithms: Vec<(String, Box<dyn Algorithm>)> = names
        .iter()
        .map(|name| Ok((name.clone(), args.method.build(name)?)))
        .collect::<anyhow::Result<_>>()?;
    let recorded = args.gradients.as_deref().map(recorded::read).transpose()?;
    let layouts: Vec<Layout> = match &recorded {
        Some(recorded) => vec![recorded.layout.clone()],
        None => args
            .elements
            .iter()
            .map(|&len| layers(len))
            .collect::<Result<_, _>>()?,
    };
    // Recorded samples are in memory already.
    let samples = if recorded.is_some() { 0 } else { SAMPLES };
    for layout in &layouts {
        for &workers in &args.workers {
            memory::check(workers, layout.len(), samples)?;
        }
    }
    let cases = args.workers.len() * layouts.len() * args.density.len();
    let progress = Progress::new((cases * names.len()) as u64);
    if args.format == Format::Text {
        print(&table::preamble(args, recorded.as_ref()))?;
    }
    let mut printed = false;
    for layout in &layouts {
        for &workers in &args.workers {
            progress.say(format!("gradients for {workers} workers"));
            let gradients = gradients(args, recorded.as_ref(), workers, layout.len());
            for &density in &args.density {
                let case = Case::new(args, workers, layout, density)?;
                let rows = run_case(&case, &algorithms, &gradients, &progress)?;
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
    Ok(())
}

fn gradients<'a>(
    args: &Args,
    recorded: Option<&'a Recorded>,
    workers: u32,
    len: u32,
) -> Gradients<'a> {
    match recorded {
        Some(recorded) => Gradients::recorded(&recorded.samples, workers),
        None => Gradients::synthetic(args, workers, len),
    }
}

impl<'a> Case<'a> {
    fn new(args: &'a Args, workers: u32, layout: &Layout, density: f64) -> anyhow::Result<Self> {
        Ok(Self {
            args,
            workers,
            layout: layout.clone(),
            density,
            k: (density * f64::from(layout.len())) as usize,
            deadline: Duration::try_from_secs_f64(args.deadline).map_err(bad_request)?,
        })
    }
}

fn run_case(
    case: &Case<'_>,
    algorithms: &[(String, Box<dyn Algorithm>)],
    gradients: &Gradients<'_>,
    progress: &Progress,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, algorithm) in algorithms {
        let say = |what: &str| {
            let (workers, len) = (case.workers, case.layout.len());
            progress.say(format!(
                "{name}, P = {workers}, n = {len}, density {}: {what}",
                case.density
            ));
        };
        let run = || -> anyhow::Result<Row> {
            say("local work");
            let local = local::measure(case, &**algorithm, gradients)?;
            say("workers");
            let timed = if case.args.local {
                None
            } else {
                Some(workers::measure(case, &**algorithm, gradients)?)
            };
            say("check");
            let quality = quality::measure(case, &**algorithm)?;
            let description = algorithm.describe();
            Ok(Row::new(
                case,
                name,
                description,
                &local,
                timed.as_ref(),
                &quality,
            ))
        };
        rows.push(run().with_context(|| format!("{name} with {} workers", case.workers))?);
        progress.done();
    }
    row::compare_with_dense(&mut rows);
    Ok(rows)
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
