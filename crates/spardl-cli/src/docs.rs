//! `spardl docs`: prints the pages of docs/ that are made from the registry and from the ablations.

mod bars;
mod contention;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use spardl_algos::registry::{self, Entry};
use spardl_algos::{Options, Sag};
use spardl_core::{Algorithm, Layout, World};
use spardl_sim::gradient::layers;

use crate::ablation;
use crate::list::support_name;
use crate::output::print;
use crate::simulate::published::{Case, published};

/// Which page to print.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    page: Page,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Page {
    /// docs/algorithms.md, from the registry.
    Algorithms,
    /// docs/ablations.md, with the output of each command in it made anew.
    Ablations {
        /// The page as it is.
        page: PathBuf,
    },
    /// Messages that share links, for scripts/check-simgrid.
    Contention,
    /// docs/step-time.svg, from the tables of docs/network.md.
    StepTime {
        /// The page with the tables.
        page: PathBuf,
    },
    /// docs/accuracy-bytes.svg, from the tables of docs/experiments.md.
    AccuracyBytes {
        /// The page with the tables.
        page: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.page {
        Page::Algorithms => print(&algorithms()?),
        Page::Ablations { page } => print(&refreshed(&read(page)?)?),
        Page::StepTime { page } => print(&bars::step_times(&read(page)?)?),
        Page::AccuracyBytes { page } => print(&bars::accuracies(&read(page)?)?),
        Page::Contention => print(&contention::cases()?),
    }
}

fn read(page: &Path) -> anyhow::Result<String> {
    fs::read_to_string(page).with_context(|| format!("reading {}", page.display()))
}

/// Numbers of workers in the tables.
const WORKERS: [u32; 4] = [4, 8, 14, 64];
/// VGG-16 for CIFAR at density 0.01.
const ELEMENTS: u32 = 14_728_266;
const K: usize = 147_282;

fn algorithms() -> anyhow::Result<String> {
    let mut page = format!(
        "# Methods\n\n\
         Made from the registry: change the header of a method's file, then\n\
         `cargo run --release -p spardl-cli -- docs algorithms > docs/algorithms.md`.\n\n\
         Every method works for any number of workers P, any length n and any k, agrees bit for bit on all workers, and exists\n\
         as `NAME-bf16` with bf16 values on the wire; methods that keep a residual also as `NAME-q8`, `-q4`, `-q2`, `-q1`,\n\
         with values of so many bits. The papers are cited by name: the SparDL, Ok-Topk and ExDyna papers and those\n\
         that each method names. One word is 4 bytes; an entry is an index and a value. Nothing in the tables is measured: all\n\
         numbers are computed, the same on every CPU and at every SIMD level. A test holds the page to the code.\n\n\
         ## All methods\n\n\
         Per worker and step, default options, n = {ELEMENTS}, k = {K} (density 0.01). *Rounds*: a range where the schedule depends on\n\
         the data or the step. *MB at most*: what the busiest worker can send, headers included: of lists with indices as they are packed, except where methods exchange indices alone, which count raw; threshold methods\n\
         rarely come near it, because it assumes that every worker lists its cap of 4k. *Entries*: the most the update can have. *Conserves*:\n\
         inputs plus residuals equal update plus next residuals in every element.\n\n"
    );
    let columns = WORKERS.map(|p| format!("rounds, P = {p} | MB at most, P = {p}"));
    writeln!(
        page,
        "| method | {} | entries | conserves | any P |\n| --- | {}--- | --- | --- |",
        columns.join(" | "),
        "---: | ".repeat(2 * WORKERS.len())
    )?;
    for entry in registry::METHODS {
        let algorithm = entry.build(&Options::default())?;
        let laws = algorithm.laws();
        let costs = WORKERS
            .iter()
            .map(|&p| cost(&*algorithm, p))
            .collect::<anyhow::Result<Vec<_>>>()?;
        writeln!(
            page,
            "| [{0}](#{0}) | {1} | {2} | {3} | {4} |",
            entry.name,
            costs.join(" | "),
            support_name(laws.support),
            yes(laws.conserves),
            yes(any_p(&*algorithm)),
        )?;
    }
    page.push_str(&expected_costs()?);
    page.push_str(
        "\n## Formulas\n\n| method | rounds | bytes sent by a worker |\n| --- | --- | --- |\n",
    );
    for entry in registry::METHODS {
        let (rounds, bytes) = formulas(&entry.explanation());
        writeln!(page, "| [{0}](#{0}) | {rounds} | {bytes} |", entry.name)?;
    }
    for entry in registry::METHODS {
        page.push_str(&section(entry)?);
    }
    Ok(page)
}

/// What a usual step and the papers' formulas come to, beside the bounds above.
fn expected_costs() -> anyhow::Result<String> {
    let columns = WORKERS.map(|p| format!("usual, P = {p} | published, P = {p}"));
    let mut text = format!(
        "\n## Expected bytes\n\n\
         The bounds above assume the worst that can be sent, and a method whose lists have no fixed length is far below them: with\n\
         64 workers Ok-Topk's is above that of dense. Here is what a usual step sends. Per step and in MB, on the longest chain of\n\
         messages. *Usual*: what `spardl list` calls typical, with f32 values, packed indices and headers. *Published*: the formula\n\
         of the paper in words of 4 bytes, an index and a value for an entry, without headers (of Ok-Topk Eq. 1 to 3: from 2k to 6k\n\
         of (P - 1)/P words); only for methods whose papers have one.\n\n\
         | method | {} |\n| --- |{}\n",
        columns.join(" | "),
        " ---: |".repeat(2 * WORKERS.len())
    );
    for entry in registry::METHODS {
        let algorithm = entry.build(&Options::default())?;
        let costs = WORKERS
            .iter()
            .map(|&p| expected_cost(&*algorithm, p))
            .collect::<anyhow::Result<Vec<_>>>()?;
        writeln!(text, "| [{0}](#{0}) | {1} |", entry.name, costs.join(" | "))?;
    }
    Ok(text)
}

fn expected_cost(algorithm: &dyn Algorithm, workers: u32) -> anyhow::Result<String> {
    let usual = algorithm.estimate(workers, &layers(ELEMENTS)?, K, 0).bytes as f64;
    let case = Case {
        workers,
        elements: ELEMENTS.into(),
        k: K as u64,
        teams: 1,
        sag: Sag::Auto,
    };
    let megabytes = |words: f64| format!("{:.2}", 4.0 * words / 1e6);
    let published = published(algorithm.name(), case).map(|published| published.words);
    let published = match published {
        None => String::new(),
        Some((least, most)) if least == most => megabytes(most),
        Some((least, most)) => format!("{} - {}", megabytes(least), megabytes(most)),
    };
    Ok(format!("{:.2} | {published}", usual / 1e6))
}

fn section(entry: &Entry) -> anyhow::Result<String> {
    let mut text = format!("\n## {}\n\n{}", entry.name, entry.explanation());
    if !entry.options.is_empty() {
        text.push_str("\n| option | values and meaning |\n| --- | --- |\n");
        for (name, meaning) in entry.options {
            writeln!(text, "| `{name}` | {meaning} |")?;
        }
    }
    let algorithm = entry.build(&Options::default())?;
    if let Some(reason) = algorithm.loose_bound() {
        writeln!(text, "\nThe bound on bytes is loose: {reason}.")?;
    }
    Ok(text)
}

fn cost(algorithm: &dyn Algorithm, workers: u32) -> anyhow::Result<String> {
    let layout = layers(ELEMENTS)?;
    let cost = algorithm.cost(workers, &layout, K, 0);
    let (least, most) = (cost.rounds.start(), cost.rounds.end());
    let megabytes = cost.bytes_max as f64 / 1e6;
    Ok(if least == most {
        format!("{least} | {megabytes:.2}")
    } else {
        format!("{least}-{most} | {megabytes:.2}")
    })
}

/// Does the method make a machine for every small number of workers?
fn any_p(algorithm: &dyn Algorithm) -> bool {
    let layout = Layout::flat(64);
    let works = |world| algorithm.machine(world, &layout).is_ok();
    (1..=33).all(|size| World::all(size).all(works))
}

fn yes(it_does: bool) -> &'static str {
    if it_does { "yes" } else { "no" }
}

/// What the header of a method's file says after `Rounds:` and `Bytes:`, each on one line.
fn formulas(explanation: &str) -> (String, String) {
    let after = |word: &str| {
        let (_, rest) = explanation.split_once(word).unwrap_or_default();
        let end = [rest.find("\n\n"), rest.find("Bytes:")];
        let end = end.into_iter().flatten().min().unwrap_or(rest.len());
        let words: Vec<&str> = rest[..end].split_whitespace().collect();
        words.join(" ").replace('|', "\\|")
    };
    (after("Rounds:"), after("Bytes:"))
}

/// The fence that begins the output of a command.
const FENCE: &str = "```text\n$ spardl ablation ";

/// The page with the output of its commands made anew.
fn refreshed(page: &str) -> anyhow::Result<String> {
    let mut parts = page.split(FENCE);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('\n').context("a command without an end")?;
        let (_, rest) = rest.split_once("```").context("an output without an end")?;
        let output = ablation::text(name)?;
        text += &format!("{FENCE}{name}\n{output}```{rest}");
    }
    Ok(text)
}
