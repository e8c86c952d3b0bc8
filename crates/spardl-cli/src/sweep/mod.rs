//! `spardl sweep`: which method wins where, as numbers and as one page of pictures.

mod grid;
mod grid_pictures;
mod simulated;
mod simulated_pictures;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;
use spardl_chart::Page;
use spardl_core::Density;

use crate::local_work::LocalWorkArgs;
use crate::method::names;
use crate::output::{bad_request, directory, print};
use crate::progress::Progress;
use crate::simulate::units::{bits, nanos};

/// What to sweep over.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where to write sweep.json, sweep.html and the pictures as SVG files.
    #[arg(long, value_name = "DIR", value_parser = directory())]
    out: PathBuf,
    /// The length of the gradient in the maps and in the curves over P: any, as these come from estimates.
    #[arg(long, default_value_t = 25_557_032, value_name = "N")]
    elements: u32,
    /// The length of the gradient where real machines are simulated: teams, topologies, stragglers.
    #[arg(long, default_value_t = 65_536, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    simulated_elements: u32,
    /// The part of the entries that a sparse update should have.
    #[arg(long, default_value_t = 0.01, value_name = "D")]
    density: f64,
    /// Numbers of workers of the maps and curves.
    #[arg(long, value_delimiter = ',', default_value = "4,8,16,32,64,128,256,512,1024", value_name = "P,..", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    workers: Vec<u32>,
    /// Bandwidths of the maps.
    #[arg(long, value_delimiter = ',', default_value = "100mbit,1gbit,10gbit,25gbit,100gbit,400gbit", value_name = "RATE,..", value_parser = bits)]
    bandwidths: Vec<u64>,
    /// Latencies: one map for each.
    #[arg(long, value_delimiter = ',', default_value = "5us,50us,500us", value_name = "TIME,..", value_parser = nanos)]
    latencies: Vec<u64>,
    /// Methods, comma-separated; SparDL with the teams that take least time [default: all that `spardl advise` looks at; the
    /// curves show those that win on a map, and some familiar ones].
    #[arg(long, value_name = "NAME,..")]
    methods: Option<String>,
    #[command(flatten)]
    local_work: LocalWorkArgs,
    /// Seed of gradients and stragglers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const EXAMPLES: &str = "\
Examples:
  spardl sweep --out sweep
  spardl tune --local --save gamma.json    # what local work costs on this machine, then
  spardl sweep --out sweep --measured gamma.json
  spardl sweep --out sweep --elements 110000000 --density 0.001 --workers 8,64,512 --bandwidths 10gbit,100gbit

Open sweep/sweep.html in a browser: one file that needs no other. The same options give the same files.
At every point of the maps and curves the numbers are those of `spardl advise` without forward and backward pass.";

/// Everything that the pictures show.
#[derive(Debug, Serialize)]
struct Sweep {
    elements: u32,
    density: f64,
    /// Where the costs of local work in the grid are from.
    local_work: String,
    /// From estimates: every method at its best at every point.
    grid: Vec<grid::Point>,
    simulated_elements: u32,
    seed: u64,
    /// From simulated steps.
    teams: Vec<simulated::TeamsPoint>,
    topologies: Vec<simulated::TopologyPoint>,
    stragglers: Vec<simulated::StragglerPoint>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let density = Density::new(args.density).map_err(bad_request)?;
    let named = args.methods.as_deref().map(names).transpose()?;
    let gammas = args.local_work.gammas()?;
    for (name, is_empty) in [
        ("workers", args.workers.is_empty()),
        ("bandwidths", args.bandwidths.is_empty()),
        ("latencies", args.latencies.is_empty()),
    ] {
        if is_empty {
            return Err(bad_request(format!(
                "--{name} is empty: expected at least one"
            )));
        }
    }
    // Before the work: a directory that cannot be made is known at once.
    fs::create_dir_all(&args.out)
        .map_err(|error| bad_request(format!("--out {}: {error}", args.out.display())))?;
    let progress = Progress::new(simulated::runs(), true);
    progress.say("estimates".to_owned());
    let sweep = Sweep {
        elements: args.elements,
        density: args.density,
        local_work: args.local_work.in_words(),
        grid: grid::points(args, named.as_deref(), density, &gammas)?,
        simulated_elements: args.simulated_elements,
        seed: args.seed,
        teams: simulated::teams(args, density, &progress)?,
        topologies: simulated::topologies(args, density, &progress)?,
        stragglers: simulated::stragglers(args, density, &progress)?,
    };
    drop(progress);
    save(args, &sweep)
}

fn save(args: &Args, sweep: &Sweep) -> anyhow::Result<()> {
    let methods = &grid::methods(&sweep.grid);
    let maps = args
        .latencies
        .iter()
        .map(|&latency| grid_pictures::map(args, methods, &sweep.grid, latency));
    let maps: Vec<_> = maps.collect();
    let charts = vec![
        grid_pictures::time(args, methods, &sweep.grid),
        grid_pictures::bytes(args, methods, &sweep.grid),
        simulated_pictures::teams(&sweep.teams),
        simulated_pictures::topologies(&sweep.topologies),
        simulated_pictures::stragglers(&sweep.stragglers),
    ];
    write(
        &args.out,
        "sweep.json",
        &(serde_json::to_string_pretty(sweep)? + "\n"),
    )?;
    for (i, map) in (1..).zip(&maps) {
        write(&args.out, &format!("wins-{i}.svg"), &map.to_svg())?;
    }
    let names = ["time", "bytes", "teams", "topologies", "stragglers"];
    for (name, chart) in names.iter().zip(&charts) {
        write(&args.out, &format!("{name}.svg"), &chart.to_svg())?;
    }
    let page = Page {
        title: "Which method wins where".to_owned(),
        subtitle: subtitle(args),
        maps,
        charts,
        ..Page::default()
    };
    write(&args.out, "sweep.html", &page.to_string())?;
    print(&said(args, &page))
}

/// What the maps say, and where they are.
fn said(args: &Args, page: &Page) -> String {
    let mut text = String::new();
    for map in &page.maps {
        text += &format!("{}: {}\n", map.title, map.conclusion);
    }
    text + &format!("wrote {}\n", args.out.join("sweep.html").display())
}

/// What holds for all pictures. The directory is not part of it: the same options give the same page wherever it is written.
fn subtitle(args: &Args) -> String {
    format!(
        "Maps and curves over P: {} elements, density {}, from each method's own estimate (docs/simulator.md says how they are \
         checked), with local work {}: as spardl advise says. Teams, topologies, stragglers: real machines under virtual time, \
         {} elements, seed {}, without local work.",
        args.elements,
        args.density,
        args.local_work.in_words(),
        args.simulated_elements,
        args.seed
    )
}

fn write(dir: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let path = dir.join(name);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}
