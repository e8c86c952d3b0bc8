//! `spardl compare`: the same training with several methods.

mod against;
mod beside;
mod grid;
mod pareto;
mod variant;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use spardl_chart::Table;
use spardl_train::TrainError;
use spardl_train::record::Summary;

pub(super) use self::against::Against;
use self::against::{Seeded, against_dense};
pub(super) use self::grid::Choice;
use self::grid::Grid;
use self::variant::Variant;
use super::advice::FailedRun;
use super::args::TrainArgs;
use super::config::{Config, LARGEST, WORKERS};
use super::link::Link;
use super::report::{self, Report};
use super::table::{self, Row};
use super::training_run::TrainingRun;
use super::watch::{Console, Point};
use super::{conclude, defaults, introduce, results, stop, with_job};
use crate::job::{Job, all_ready};
use crate::method;
use crate::output::{AlreadyReported, bad_request, complain, print, say, tell};
use crate::screen::{Sheet, stdout_width};

/// Train the same network with several methods and put the results side by side.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
        spardl compare --methods dense,spardl,ok-topk,exdyna --dnn resnet20 --dataset cifar10 --data-dir data --max-epochs 5 --out compared\n  \
        spardl compare --methods dense,spardl --seeds 1,2,3 --dnn lenet --dataset mnist --data-dir data --max-epochs 2\n  \
        spardl compare --methods dense,dense-bf16,spardl,spardl-q4 --tune-lr 0.01,0.03,0.1 --tune-momentum 0,0.9 --overlap 0.6 --seeds 1,2,3 --dnn lenet --dataset mnist --data-dir data")]
pub(crate) struct CompareArgs {
    /// Methods, comma-separated, or all; auto: the one that `spardl tune` picks here. NAME@D is NAME with density D, NAME/RULE is NAME with that residual rule.
    #[arg(
        long,
        default_value = "dense,spardl,ok-topk,exdyna",
        value_name = "LIST"
    )]
    methods: String,
    /// Seeds, comma-separated: each method is trained with each [default: the one of --seed].
    #[arg(long, value_delimiter = ',', value_name = "N,..", value_parser = clap::value_parser!(u64).range(..=LARGEST))]
    seeds: Vec<u64>,
    /// Also tell the time until this test accuracy (0 to 1) was reached.
    #[arg(long, value_name = "X")]
    target_accuracy: Option<f64>,
    #[command(flatten)]
    link: Link,
    #[command(flatten)]
    grid: Grid,
    #[command(flatten)]
    train: TrainArgs,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<()> {
    let train = &args.train;
    if train.resume || train.gives("checkpoint-dir") {
        return Err(bad_request(
            "compare keeps no checkpoints: leave out --checkpoint-dir and --resume",
        ));
    }
    if train.gives("method") || train.compression || train.compressor.is_some() {
        return Err(bad_request(
            "compare takes --methods: leave out --method, --compression and --compressor",
        ));
    }
    let config = train.resolve()?;
    if config.checkpoint_dir.is_some() {
        return Err(bad_request(
            "compare keeps no checkpoints: leave checkpoint-dir out of the file of --config",
        ));
    }
    let plan = Plan::new(args, &config)?;
    let more = [
        ("methods".to_owned(), args.methods.clone()),
        ("seeds".to_owned(), format!("{:?}", plan.seeds)),
        ("choice".to_owned(), plan.grid.claim()),
    ];
    with_job(
        ("compare", train.transport()),
        config,
        &more,
        |config, job| compare(config, &plan, job),
    )
}

/// What `spardl train` alone does.
pub(super) fn show(link: Link) -> anyhow::Result<()> {
    let config = Config {
        workers: Some(WORKERS),
        ..TrainArgs::default().resolve()?
    };
    let args = CompareArgs {
        methods: "dense,spardl".to_owned(),
        seeds: Vec::new(),
        target_accuracy: Some(0.9),
        link,
        grid: Grid::default(),
        train: TrainArgs::default(),
    };
    say("A small network learns generated images on 4 workers, twice:");
    say("with the whole gradient (dense), then with 1 % of it (spardl).");
    compare(config.clone(), &Plan::new(&args, &config)?, None)?;
    say(
        "Here workers share memory, so times hardly differ. Next: spardl train --help, spardl compare --help",
    );
    Ok(())
}

/// Which runs.
struct Plan {
    variants: Vec<Variant>,
    seeds: Vec<u64>,
    target: Option<f64>,
    link: Link,
    grid: Grid,
    out: Option<PathBuf>,
}

impl Plan {
    fn new(args: &CompareArgs, config: &Config) -> anyhow::Result<Self> {
        let names = match args.methods.as_str() {
            "all" => method::names("all")?,
            list => list.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        let values = config.value_type;
        let variants = names.iter().map(|name| Variant::parse(name, values));
        let mut variants = variants.collect::<anyhow::Result<Vec<_>>>()?;
        if args.methods == "all" {
            // With bf16 values both dense ones are dense-bf16.
            variants.dedup_by(|one, other| one.label == other.label);
        }
        let seeds = match args.seeds.as_slice() {
            [] => vec![config.seed],
            seeds => seeds.to_vec(),
        };
        // Runs with the same name would be taken for one and write to one directory.
        let labels: Vec<&str> = variants.iter().map(|v| v.label.as_str()).collect();
        if let Some(twice) = repeated(&labels) {
            return Err(bad_request(format!("--methods names {twice} twice")));
        }
        if let Some(twice) = repeated(&seeds) {
            return Err(bad_request(format!("--seeds names {twice} twice")));
        }
        if let Some(target) = args.target_accuracy.filter(|x| !(0.0..=1.0).contains(x)) {
            return Err(bad_request(format!(
                "--target-accuracy {target} is not a part of all samples: 90 % is 0.9"
            )));
        }
        args.grid.check()?;
        Ok(Self {
            variants,
            seeds,
            target: args.target_accuracy,
            link: args.link,
            grid: args.grid.clone(),
            out: args.train.out.clone(),
        })
    }

    /// All runs, with the data of `first` and what was chosen for each method.
    fn runs(
        &self,
        base: &Config,
        first: &TrainingRun,
        choices: &[Choice],
    ) -> anyhow::Result<Vec<Planned<'_>>> {
        let mut runs = Vec::new();
        for (i, variant) in self.variants.iter().enumerate() {
            let base = &match choices.get(i) {
                Some(&Choice { lr, momentum, .. }) => Config {
                    lr,
                    momentum,
                    ..base.clone()
                },
                None => base.clone(),
            };
            for &seed in &self.seeds {
                let label = variant.label.as_str();
                runs.push(Planned {
                    label,
                    seed,
                    name: match self.seeds.len() {
                        1 => label.to_owned(),
                        _ => format!("{label} seed {seed}"),
                    },
                    run: first.again(variant.config(base, seed))?,
                });
            }
        }
        Ok(runs)
    }
}

/// The first value that is there twice.
fn repeated<T: PartialEq>(values: &[T]) -> Option<&T> {
    let mut rest = values.iter().enumerate();
    rest.find_map(|(place, value)| values[..place].contains(value).then_some(value))
}

/// One run that is still to come.
struct Planned<'a> {
    label: &'a str,
    seed: u64,
    name: String,
    run: TrainingRun,
}

/// One run that ended.
struct Ended {
    label: String,
    seed: u64,
    summary: Summary,
    curve: Vec<Point>,
}

impl Planned<'_> {
    /// Trains and writes into `out`.
    fn train(
        &self,
        place: &str,
        out: Option<&Path>,
        job: Option<&mut Job>,
    ) -> anyhow::Result<Ended> {
        results::begin(out, &self.run.config, false)?;
        let mut console = Console::new(&self.name, out).at(place);
        let summary = self.run.train(job, &mut console)?;
        if let Some(dir) = out {
            results::save_summary(dir, &self.run.config, &summary)?;
        }
        Ok(Ended {
            label: self.label.to_owned(),
            seed: self.seed,
            summary,
            curve: console.into_curve(),
        })
    }
}

fn compare(base: Config, plan: &Plan, mut job: Option<&mut Job>) -> anyhow::Result<()> {
    let prints = job.as_ref().is_none_or(|job| job.prints());
    let out = plan.out.as_deref().filter(|_| prints);
    // Everything is checked before the first long run.
    let first = TrainingRun::new(base.clone(), false, prints).and_then(|first| {
        plan.runs(&base, &first, &[])?;
        results::prepare(out, false)?;
        Ok(first)
    });
    let first = all_ready(job.as_deref_mut(), first)?;
    if prints {
        introduce(&first)?;
    }
    let choices = match plan.grid.is_asked_for() {
        true => plan
            .grid
            .choose(&plan.variants, &base, &first, job.as_deref_mut())?,
        false => Vec::new(),
    };
    let runs = plan.runs(&base, &first, &choices)?;
    let (mut ended, mut failed, mut stopped) = (Vec::new(), Vec::new(), None);
    for (i, run) in runs.iter().enumerate() {
        let place = format!("[{}/{}]", i + 1, runs.len());
        let out = out.map(|dir| dir.join(run.name.replace([' ', '/', '@'], "-")));
        match run.train(&place, out.as_deref(), job.as_deref_mut()) {
            Ok(done) if done.summary.stopped.is_some() => {
                stopped = Some(done.summary);
                break;
            }
            Ok(done) => ended.push(done),
            Err(error) if is_own(&error) => {
                if prints {
                    say(&format!("{}  failed: {error}", run.name));
                }
                failed.push(run.name.as_str());
            }
            Err(error) => return Err(error),
        }
    }
    // Also when it was stopped: what ended is shown.
    let shown = match ended.is_empty() || !prints {
        true => Ok(()),
        false => finish(&base, plan, &choices, &ended),
    };
    let concluded = |summary| stop::concluded(&summary, &base, prints);
    shown
        .and(stopped.map_or(Ok(()), concluded))
        .and(verdict(&failed, runs.len(), job))
}

/// Did the numbers of this run alone go wrong? All workers know then and are there for the next run.
fn is_own(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(FailedRun(
            TrainError::NonFinite { .. } | TrainError::TooManySkipped { .. }
        ))
    )
}

/// An error when runs failed, on all ranks.
fn verdict(failed: &[&str], runs: usize, job: Option<&mut Job>) -> anyhow::Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    let names = failed.join(", ");
    let error = anyhow!("{} of {runs} runs failed: {names}", failed.len());
    let Some(job) = job else {
        return Err(error);
    };
    if job.prints() {
        complain(&error, "");
    }
    // Nobody leaves before rank 0 has spoken: the launcher ends a job when its first rank ends badly.
    job.barrier()?;
    Err(AlreadyReported(1).into())
}

/// Shows and saves the runs that ended.
fn finish(base: &Config, plan: &Plan, choices: &[Choice], ended: &[Ended]) -> anyhow::Result<()> {
    let (mut rows, mut methods): (Vec<Row>, Vec<_>) = (Vec::new(), Vec::new());
    for (i, variant) in plan.variants.iter().enumerate() {
        let mine = || ended.iter().filter(|run| run.label == variant.label);
        let runs: Vec<&Summary> = mine().map(|run| &run.summary).collect();
        if !runs.is_empty() {
            let mut row = Row::new(&variant.label, &runs, plan.link, plan.target);
            row.choice = choices.get(i).cloned();
            rows.push(row);
            let seeded = mine().map(|run| Seeded {
                seed: run.seed,
                summary: &run.summary,
            });
            methods.push((variant.label.as_str(), seeded.collect()));
        }
    }
    let against = against_dense(&methods, plan.link);
    for (row, against) in rows.iter_mut().zip(against) {
        row.against_dense = Some(against);
    }
    if let Some(dense) = rows.iter().find(|row| row.method == "dense").cloned() {
        rows.iter_mut().for_each(|row| row.compare(&dense));
    }
    if let Some(dir) = &plan.out {
        save(dir, plan, base, ended, &rows)?;
    }
    print(&table::text(&rows, plan.link, stdout_width()))?;
    for table in beside_dense(&rows, plan.link) {
        let text = Sheet::new(table.columns, table.rows).text(stdout_width());
        tell(&format!("\n{}\n{text}", table.title))?;
    }
    conclude(&rows, plan.link);
    Ok(())
}

/// The tables after the first one.
fn beside_dense(rows: &[Row], link: Link) -> Vec<Table> {
    let methods = rows
        .iter()
        .filter_map(|row| Some((row.method.as_str(), row.against_dense.as_ref()?)));
    beside::tables(&methods.collect::<Vec<_>>(), link)
}

/// Saves table, curves and page; done before anything is printed, as a closed stdout must not take the results with it.
fn save(
    dir: &Path,
    plan: &Plan,
    base: &Config,
    ended: &[Ended],
    rows: &[Row],
) -> anyhow::Result<()> {
    save_rows(dir, rows)?;
    let methods = rows.iter().map(|row| {
        let runs = ended.iter().filter(|run| run.label == row.method);
        let runs = runs.map(|run| report::Run {
            summary: &run.summary,
            curve: &run.curve,
        });
        report::Method {
            name: &row.method,
            runs: runs.collect(),
        }
    });
    let report = Report {
        title: "spardl compare",
        methods: methods.collect(),
        rows,
        link: plan.link,
        settings: defaults::unusual(base)?,
        more_tables: beside_dense(rows, plan.link),
        more_charts: pareto::chart(rows).into_iter().collect(),
    };
    report.save(dir)?;
    say(&format!("written to {}", dir.display()));
    Ok(())
}

fn save_rows(dir: &Path, rows: &[Row]) -> anyhow::Result<()> {
    let path = dir.join("compare.json");
    let text = serde_json::to_string_pretty(rows)?;
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(&path, text))
        .with_context(|| format!("writing {}", path.display()))
}
