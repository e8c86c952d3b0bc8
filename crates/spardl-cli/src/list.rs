//! `spardl list`: the registry with rounds, bytes and laws.

use comfy_table::{Table, presets};
use serde::Serialize;
use spardl_algos::{Options, registry};
use spardl_core::{Density, Support};
use spardl_sim::gradient::layers;

use crate::output::{bad_request, print};

/// What to list the methods for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Workers that rounds and bytes are given for.
    #[arg(long, default_value_t = 8, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,
    /// Elements of the gradient that bytes are given for.
    #[arg(long, default_value_t = 14_728_266, value_name = "N")]
    elements: u32,
    /// Target density k/n that bytes are given for.
    #[arg(long, default_value_t = 0.01)]
    density: f64,
    /// How to print.
    #[arg(long, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
}

#[derive(Debug, Serialize)]
struct Row {
    method: &'static str,
    summary: &'static str,
    rounds_min: u32,
    rounds_max: u32,
    bytes_max: u64,
    conserves: bool,
    support: &'static str,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let density = Density::new(args.density).map_err(bad_request)?;
    let k = density.entries(args.elements as usize);
    let layout = layers(args.elements)?;
    let mut rows = Vec::new();
    for entry in registry::METHODS {
        let algorithm = entry.build(&Options::default())?;
        let cost = algorithm.cost(args.workers, &layout, k, 0);
        let laws = algorithm.laws();
        rows.push(Row {
            method: entry.name,
            summary: entry.summary,
            rounds_min: *cost.rounds.start(),
            rounds_max: *cost.rounds.end(),
            bytes_max: cost.bytes_max,
            conserves: laws.conserves,
            support: support_name(laws.support),
        });
    }
    match args.format {
        Format::Json => rows
            .iter()
            .try_for_each(|row| print(&(serde_json::to_string(row)? + "\n"))),
        Format::Text => print(&text(args, &rows)),
    }
}

/// The most entries of an update, as a formula.
pub(crate) const fn support_name(support: Support) -> &'static str {
    match support {
        Support::K => "k",
        Support::KPerWorker => "k P",
        Support::FourK => "4 k",
        Support::FourKPerWorker => "4 k P",
        Support::Any => "n",
    }
}

fn text(args: &Args, rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "method",
        "rounds",
        "bytes at most",
        "entries",
        "conserves",
        "what it does",
    ]);
    for row in rows {
        let rounds = if row.rounds_min == row.rounds_max {
            row.rounds_min.to_string()
        } else {
            format!("{}-{}", row.rounds_min, row.rounds_max)
        };
        let conserves = if row.conserves { "yes" } else { "no" };
        table.add_row([
            row.method.to_owned(),
            rounds,
            row.bytes_max.to_string(),
            row.support.to_owned(),
            conserves.to_owned(),
            row.summary.to_owned(),
        ]);
    }
    format!(
        "# {} workers, {} elements, density {}; rounds and bytes per worker and step, f32 values\n\
         {table}\n# every method also as NAME-bf16, those with a residual as NAME-q8, -q4, -q2, -q1; details: spardl explain NAME\n",
        args.workers, args.elements, args.density
    )
}
