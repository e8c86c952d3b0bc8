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
mod results;
mod stop;
mod table;
mod training_run;
mod watch;

use spardl_drive::driver::DEFAULT_TIMEOUT;
use spardl_nets::MODELS;
use spardl_train::data::SETS;

pub(crate) use args::TrainArgs;
pub(crate) use compare::{CompareArgs, run as run_compare};

use crate::job::{Job, agree, all_ready};
use crate::launch::{self, Launcher, TransportChoice};
use crate::output::{bad_request, print, say, tell};
use crate::screen::{stderr_width, stdout_width, wrapped};
use config::Config;
use link::Link;
use report::Report;
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
    link: Link,
    #[command(flatten)]
    train: TrainArgs,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.list {
        return tell(&list());
    }
    let config = args.train.resolve()?;
    // Under a launcher of several ranks it is an ordinary run: a demonstration per rank would be of no use.
    let alone = Launcher::detect().is_none_or(|launcher| launcher.size.unwrap_or(1) <= 1);
    if args.train.is_bare() && alone {
        return compare::show(args.link);
    }
    let resume = [("resume".to_owned(), args.train.resume.to_string())];
    let place = ("train", args.train.transport());
    with_job(place, config, &resume, |config, job| {
        train(config, args, job)
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

fn train(config: Config, args: &Args, mut job: Option<&mut Job>) -> anyhow::Result<()> {
    let (link, args) = (args.link, &args.train);
    let prints = job.as_ref().is_none_or(|job| job.prints());
    let out = args.out.as_deref().filter(|_| prints);
    let run = TrainingRun::new(config, args.resume, prints)
        .and_then(|run| results::prepare(out, args.resume).map(|()| run));
    let run = all_ready(job.as_deref_mut(), run)?;
    if prints {
        if args.compressor.is_some() && !args.compression {
            say(
                "--compressor without --compression: the whole gradient is reduced, as published; add --compression",
            );
        }
        introduce(&run)?;
        results::begin(out, &run.config, args.resume)?;
    }
    let name = run.config.method_name();
    let mut console = Console::new(&name, out);
    let summary = run.train(job.take(), &mut console)?;
    if !prints {
        return stop::concluded(&summary, &run.config, prints);
    }
    let curve = console.into_curve();
    let rows = [Row::new(&name, &[&summary], link, None)];
    // Saved before anything is printed: a closed stdout must not take the results with it.
    if let Some(dir) = out {
        results::save_summary(dir, &run.config, &summary)?;
        let only = report::Run {
            summary: &summary,
            curve: &curve,
        };
        let report = Report {
            title: "spardl train",
            methods: vec![report::Method {
                name: &name,
                runs: vec![only],
            }],
            rows: &rows,
            link,
            settings: defaults::unusual(&run.config)?,
            more_tables: Vec::new(),
            more_charts: Vec::new(),
        };
        report.save(dir)?;
    }
    print(&table::text(&rows, link, stdout_width()))?;
    conclude(&rows, link);
    stop::concluded(&summary, &run.config, prints)
}

/// Says what is trained, and what of it is not the default.
fn introduce(run: &TrainingRun) -> anyhow::Result<()> {
    let config = &run.config;
    let workers = config.workers.unwrap_or(config::WORKERS);
    say(&format!(
        "# {}, {}, {workers} workers",
        config.dnn,
        run.about_data()
    ));
    let settings = defaults::unusual(config)?;
    if settings.is_empty() {
        return Ok(());
    }
    let pairs: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("{name} = {value}"))
        .collect();
    let text = format!("unlike the defaults: {}", pairs.join(", "));
    for line in wrapped(&text, stderr_width().unwrap_or(110).saturating_sub(2)) {
        say(&format!("# {line}"));
    }
    Ok(())
}

/// The sentence with the two numbers that matter.
fn conclude(rows: &[Row], link: Link) {
    for line in wrapped(&table::closing(rows, link), stderr_width().unwrap_or(110)) {
        say(&line);
    }
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
