//! `spardl ablation NAME`: one question about a method, answered by a table.
//!
//! Every ablation runs the real machines in the simulator, is seeded, and prints the same table each time.

mod accumulation;
mod compression;
mod density_tracking;
mod exdyna;
mod gradients;
mod math;
mod ok_topk;
mod report;
mod residuals;
mod runner;
mod teams;

use spardl_core::offer;

use crate::launch;
use crate::output::{bad_request, print, tell};
use crate::screen::stdout_width;
use report::Report;

/// Which ablation to run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The ablation, or `list`.
    name: String,
    /// Tiny sizes, to see that it runs.
    #[arg(long)]
    quick: bool,
    /// Seed of the gradients.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How to print.
    #[arg(long, default_value = "text")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A table for people.
    Text,
    /// One JSON object per row.
    Json,
}

/// What an ablation is run with.
#[derive(Clone, Copy, Debug)]
struct Scale {
    quick: bool,
    seed: u64,
}

impl Scale {
    /// The size to use: the full one, or the tiny one of `--quick`.
    fn size<T>(self, full: T, tiny: T) -> T {
        if self.quick { tiny } else { full }
    }
}

struct Ablation {
    name: &'static str,
    question: &'static str,
    run: fn(Scale) -> anyhow::Result<Report>,
}

/// What is asked for instead of an ablation.
const LIST: &str = "list";

const ABLATIONS: &[Ablation] = &[
    Ablation {
        name: "accumulation",
        question: "do the messages of SparDL's reduce-scatter grow as sums fill up?",
        run: accumulation::run,
    },
    Ablation {
        name: "residuals",
        question: "how much of the gradient does each residual rule deliver, keep and lose?",
        run: residuals::run,
    },
    Ablation {
        name: "teams",
        question: "what do teams save in rounds and cost in bytes?",
        run: teams::run,
    },
    Ablation {
        name: "compression",
        question: "how large do residuals grow as the density falls?",
        run: compression::run,
    },
    Ablation {
        name: "density-tracking",
        question: "does the number of entries stay at its target, also when the scale changes?",
        run: density_tracking::run,
    },
    Ablation {
        name: "exdyna-blocks",
        question: "how fine must ExDyna's blocks be?",
        run: exdyna::blocks,
    },
    Ablation {
        name: "exdyna-parts",
        question: "which part of ExDyna does what: adjusted partitions or the controller?",
        run: exdyna::parts,
    },
    Ablation {
        name: "exdyna-memory",
        question: "what does a worker hold from step to step?",
        run: exdyna::memory,
    },
    Ablation {
        name: "exdyna-workers",
        question: "how does ExDyna hold its density and balance as workers are added?",
        run: exdyna::workers,
    },
    Ablation {
        name: "ok-topk-accuracy",
        question: "how far is Ok-Topk's update from the true top-k of the sum?",
        run: ok_topk::accuracy,
    },
    Ablation {
        name: "ok-topk-balance",
        question: "what does balancing the shares of Ok-Topk's owners save?",
        run: ok_topk::balance,
    },
];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // All ranks would print the same table.
    if launch::is_silent() {
        return Ok(());
    }
    if args.name == LIST {
        return match args.format {
            Format::Text => tell(&list(args.format)?),
            Format::Json => print(&list(args.format)?),
        };
    }
    let report = report(&args.name, args.quick, args.seed)?;
    match args.format {
        Format::Text => tell(&report.text(stdout_width())),
        Format::Json => print(&report.json(&args.name)?),
    }
}

/// The table of an ablation as text, as `spardl ablation NAME` prints it.
pub(crate) fn text(name: &str) -> anyhow::Result<String> {
    Ok(report(name, false, 1)?.text(None))
}

fn report(name: &str, quick: bool, seed: u64) -> anyhow::Result<Report> {
    let found = ABLATIONS.iter().find(|ablation| ablation.name == name);
    let Some(ablation) = found else {
        let names = ABLATIONS.iter().map(|ablation| ablation.name);
        let names: Vec<&str> = names.chain([LIST]).collect();
        let message = format!("'{name}' is not an ablation: {}", offer(name, &names));
        return Err(bad_request(message));
    };
    (ablation.run)(Scale { quick, seed })
}

fn list(format: Format) -> anyhow::Result<String> {
    let mut text = String::new();
    for Ablation { name, question, .. } in ABLATIONS {
        text += &match format {
            Format::Text => format!("{name:<18}{question}\n"),
            Format::Json => {
                let line = serde_json::json!({"ablation": name, "question": question});
                format!("{line}\n")
            }
        };
    }
    Ok(text)
}
