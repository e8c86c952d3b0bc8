//! `spardl explain NAME`: what a method does and costs.

use std::fmt::Write;

use spardl_algos::{Options, registry};
use spardl_sim::gradient::layers;

use crate::output::{bad_request, print};

/// What to explain.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The method (see `spardl list`).
    method: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (entry, _) = registry::find(&args.method).map_err(bad_request)?;
    let mut text = entry.explanation();
    if !entry.options.is_empty() {
        text.push_str("\nOptions:\n");
        for (name, meaning) in entry.options {
            writeln!(text, "  {name}: {meaning}")?;
        }
    }
    let algorithm = registry::build(&args.method, &Options::default()).map_err(bad_request)?;
    text.push_str("\nPer worker and step at n = 14728266, density 0.01:\n");
    let layout = layers(14_728_266)?;
    for workers in [2, 4, 8, 16, 64] {
        let cost = algorithm.cost(workers, &layout, 147_282, 0);
        let (least, most) = (cost.rounds.start(), cost.rounds.end());
        let rounds = if least == most {
            least.to_string()
        } else {
            format!("{least}-{most}")
        };
        let megabytes = cost.bytes_max as f64 / 1e6;
        writeln!(
            text,
            "  P = {workers:<3} {rounds:>7} rounds, at most {megabytes:.2} MB sent"
        )?;
    }
    print(&text)
}
