//! `spardl explain NAME`: what a method does and costs.

use std::fmt::Write;

use spardl_algos::{Options, registry};
use spardl_sim::gradient::layers;

use crate::output::{bad_request, tell};
use crate::screen::stdout_width;

/// What to explain.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The method (see `spardl list`).
    method: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (entry, _) = registry::find(&args.method).map_err(bad_request)?;
    let mut text = match stdout_width() {
        Some(_) => paragraphs(&entry.explanation()),
        None => entry.explanation(),
    };
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
    tell(&text)
}

/// The same with every paragraph, and every point of a list, on one line: the lines of the source suit no terminal.
fn paragraphs(text: &str) -> String {
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        let begins = line.is_empty() || line.starts_with("- ") || is_labelled(line);
        match all.last_mut() {
            Some(last) if !begins && !last.is_empty() => {
                *last += &format!(" {}", line.trim_start())
            }
            _ => all.push(line.to_owned()),
        }
    }
    all.join("\n") + "\n"
}

/// Does a line begin with what it is about, like `Bytes:`?
fn is_labelled(line: &str) -> bool {
    let word = line.split(' ').next().unwrap_or_default();
    word.ends_with(':') && word.starts_with(char::is_uppercase)
}
