//! `spardl train`: data-parallel training of a network, with any method of the registry.

mod advice;
mod args;
mod checks;
mod compare;
mod config;
mod defaults;
mod engine;
mod existing_checkpoints;
mod file;
pub(crate) mod fuzz;
mod link;
mod report;
mod stop;
mod table;
mod training_run;
mod watch;

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context;
use spardl_drive::driver::DEFAULT_TIMEOUT;
use spardl_nets::MODELS;
use spardl_train::data::SETS;
use spardl_train::record::Summary;

pub(crate) use args::TrainArgs;
pub(crate) use compare::{CompareArgs, run as run_compare};

use crate::job::{Job, agree, all_ready};
use crate::launch::{self, Launcher, TransportChoice};
use crate::output::{bad_request, print, say};
use config::Config;
use link::Link;
use table::Row;
use training_run::TrainingRun;
use watch::Console;

/// Train a network on many workers.
///
/// Without any option it shows what spardl does: a small network, 4 workers, generated images, dense and SparDL side by side.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  spardl train\n  \
        spardl train --dnn vgg16 --dataset cifar10 --max-epochs 121 --batch-size 16 --nworkers 2 --data-dir data --lr 0.1 --compression --density 0.01 --compressor spardl\n  \
        mpiexec -n 2 -host node0,node1 spardl train --dnn resnet20 --dataset cifar10 --data-dir data --method spardl\n  \
        spardl train --config run.toml --checkpoint-dir checkpoints --resume")]
pub(crate) struct Args {
    /// List the networks and data sets, and end.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    train: TrainArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.list {
        return print(&list());
    }
    let config = args.train.resolve()?;
    // Under a launcher of several ranks it is an ordinary run: a demonstration per rank would be of no use.
    let alone = Launcher::detect().is_none_or(|launcher| launcher.size.unwrap_or(1) <= 1);
    if args.train.is_bare() && alone {
        return compare::show();
    }
    let resume = [("resume".to_owned(), args.train.resume.to_string())];
    let place = ("train", args.train.transport());
    with_job(place, config, &resume, |config, job| {
        train(config, &args.train, job)
    })
}

/// Joins the MPI job if there is one, checks that all ranks want the same (the configuration and `more`), and runs `work`.
fn with_job(
    (command, transport): (&str, TransportChoice),
    config: Config,
    more: &[(String, String)],
    work: impl FnOnce(Config, Option<&mut Job>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // A deadline that cannot be is refused with the settings, where all ranks hear of it.
    let patience = config.patience().unwrap_or(DEFAULT_TIMEOUT);
    let Some(mut job) = launch::connect(transport, command, patience)? else {
        return work(config, None);
    };
    let ranks = job.world().size();
    let fits = match config.workers {
        Some(workers) if workers != ranks => Err(bad_request(format!(
            "--workers {workers}, but the MPI job has {ranks} ranks: leave it out or start {workers} ranks"
        ))),
        _ => config.claims(more),
    };
    let config = Config {
        workers: Some(ranks),
        ..config
    };
    let result = agree(&mut job, fits).and_then(|()| work(config, Some(&mut job)));
    job.conclude(result)
}

fn train(config: Config, args: &TrainArgs, mut job: Option<&mut Job>) -> anyhow::Result<()> {
    let prints = job.as_ref().is_none_or(|job| job.prints());
    if prints && args.compressor.is_some() && !args.compression {
        say(
            "--compressor without --compression: the whole gradient is reduced, as published; add --compression",
        );
    }
    let run = TrainingRun::new(config, args.resume);
    let run = all_ready(job.as_deref_mut(), run)?;
    let out = args.out.as_deref().filter(|_| prints);
    if prints {
        let text = run.config.to_toml()?;
        say(&format!("# {}\n{}", run.about_data(), text.trim_end()));
        save_config(out, &text)?;
    }
    let name = run.config.method_name();
    let mut console = Console::new(&name, out);
    let summary = run.train(job.take(), &mut console)?;
    if !prints {
        return stop::concluded(&summary, &run.config, prints);
    }
    let curve = console.into_curve();
    let link = Link::default();
    let rows = [Row::new(&name, &[&summary], link, None)];
    // Saved before anything is printed: a closed stdout must not take the results with it.
    if let Some(dir) = out {
        save_summary(dir, &summary)?;
        let runs = [report::Run {
            name,
            summary: &summary,
            curve: &curve,
        }];
        report::save(
            dir,
            "spardl train",
            &run.config.to_toml()?,
            &runs,
            &rows,
            link,
        )?;
    }
    print(&table::text(&rows, link))?;
    stop::concluded(&summary, &run.config, prints)
}

/// Makes the directory of a run and writes its configuration. The results of an earlier run must not pass for this one's.
fn save_config(out: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(dir) = out else {
        return Ok(());
    };
    remove_results(dir)?;
    let path = dir.join("config.toml");
    let written = fs::create_dir_all(dir).and_then(|()| fs::write(&path, text));
    written.with_context(|| format!("writing {}", path.display()))
}

/// Removes what only a run that ended well writes.
fn remove_results(dir: &Path) -> anyhow::Result<()> {
    for name in ["summary.json", "compare.json", "report.html"] {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

fn save_summary(dir: &Path, summary: &Summary) -> anyhow::Result<()> {
    let path = dir.join("summary.json");
    let text = serde_json::to_string_pretty(summary)?;
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

/// The networks and data sets.
fn list() -> String {
    let width = MODELS
        .iter()
        .map(|m| m.name.len())
        .chain(SETS.iter().map(|s| s.name.len()));
    let width = width.max().unwrap_or(0);
    let mut text = String::from(
        "networks (--dnn), with what they learn with unless something else is asked for\n",
    );
    for model in MODELS {
        let missing = match engine::is_built_in(model) {
            true => "",
            false => " [not in this build: --features networks]",
        };
        text += &format!("  {:width$}  {}{missing}\n", model.name, model.about);
        for recipe in model.recipes {
            text += &format!("  {:width$}    {}\n", "", defaults::describe(recipe));
        }
    }
    text += "\ndata sets (--dataset)\n";
    for set in SETS {
        text += &format!("  {:width$}  {}\n", set.name, set.about);
        text += &format!("  {:width$}    in --data-dir: {}\n", "", set.expects);
    }
    text
}
