//! `spardl explain NAME`: what a method does and costs.

use std::collections::BTreeSet;
use std::fmt::Write;

use spardl::AUTO;
use spardl::tune::{Choice, Kind, Space};
use spardl_algos::{Options, registry};
use spardl_sim::gradient::layers;

use crate::output::{bad_request, tell};
use crate::screen::{items, stdout_width};

/// What to explain.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The method (see `spardl list`), or auto.
    method: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.method == AUTO {
        return tell(&auto()?);
    }
    let (entry, _) = registry::find(&args.method).map_err(bad_request)?;
    let mut text = for_screen(&entry.explanation());
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

/// As it is; on a terminal ready to be fitted to its width.
fn for_screen(text: &str) -> String {
    match stdout_width() {
        Some(_) => paragraphs(text),
        None => text.to_owned(),
    }
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

/// The number of workers whose choices are listed: it allows for teams.
const CHOICES_OF: u32 = 4;

/// What `auto` is: no method, but a choice of one.
fn auto() -> anyhow::Result<String> {
    let choices = Space::default().choices(CHOICES_OF)?;
    let of_kind = |kind: Kind| {
        let of_kind = choices.iter().filter(|choice| choice.kind() == kind);
        let names: BTreeSet<String> = of_kind.map(family).collect();
        let names = Vec::from_iter(names);
        format!("  {}", items(&names, stdout_width(), 2))
    };
    Ok(format!(
        "{}\nIt chooses from these, each with f32 and with bf16 values:\n\nDense:\n{}\nSparse:\n{}\n\n{}\n{AUTO_COMMANDS}\n{}",
        for_screen(ABOUT_AUTO),
        of_kind(Kind::Dense),
        of_kind(Kind::Sparse),
        for_screen(MORE_ON_AUTO),
        for_screen(LAST_ON_AUTO)
    ))
}

/// The name in the registry, without the value type.
fn family(choice: &Choice) -> String {
    let mut name = choice.algorithm().name().to_owned();
    if choice.options().set.contains_key("teams") {
        name += " with teams";
    }
    name
}

const ABOUT_AUTO: &str = "\
auto: the method that is fastest here.

It is no method of its own. Before the first step the workers measure what messages take between them, and what each method's
own work costs on their cores. The method with the least predicted time of an exchange is used, by all of them, and the reason
is said in a line. Where a dense exchange is faster, it is a dense one.
";

const MORE_ON_AUTO: &str = "\
With --value-types of `spardl tune`, also with values of fewer bits. SparDL has every number of teams up to 64 that divides the
workers.

While a run goes on, the workers look at the times of their steps. When these leave what was expected by a factor of 3, they
measure again, and change to another method if that is predicted to be at least a tenth faster. What waits in the residual goes
out with the new one.
";

const AUTO_COMMANDS: &str = "\
\x20 spardl tune --workers 8 --elements 14728266    # what it would be, as a table
  spardl bench --methods auto,dense,spardl
  spardl simulate --methods auto,dense           # for a network that is not there: nothing is measured
";

const LAST_ON_AUTO: &str = "\
Times decide, so two runs may choose differently. Name the method for runs that must be repeated. docs/tuner.md has more.
";
