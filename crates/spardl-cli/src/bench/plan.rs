//! What will be measured, checked before anything is.

use std::sync::Arc;

use spardl::AUTO;
use spardl_core::{Algorithm, Layout, World};
use spardl_sim::gradient::layers;

use super::args::{self, Args, MPI_ALLREDUCE};
use super::memory::{self, Need};
use super::recorded::{self, Recorded};
use crate::job::Settings;
use crate::method::names;
use crate::output::bad_request;

/// Workers without MPI when none are asked for.
const DEFAULT_WORKERS: u32 = 4;

/// Everything that is known before the run.
#[derive(Debug)]
pub(super) struct Plan {
    /// The arguments, with the numbers of workers filled in.
    pub(super) args: Args,
    /// Names and methods; none for MPI's own sum, and for what is chosen once the workers are there.
    pub(super) methods: Vec<(String, Option<Arc<dyn Algorithm>>)>,
    pub(super) recorded: Option<Recorded>,
    pub(super) layouts: Vec<Layout>,
}

/// The ranks of an MPI job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranks {
    pub(super) world: World,
    /// How many share the memory of this machine.
    pub(super) on_this_host: u32,
}

/// Can these arguments be met, as far as that is known without a file?
pub(crate) fn check(args: &Args) -> anyhow::Result<()> {
    match &args.gradients {
        Some(_) => Ok(()),
        None => Plan::new(args, None).map(drop),
    }
}

impl Plan {
    /// A plan for threads, or for the ranks of an MPI job.
    pub(super) fn new(args: &Args, ranks: Option<Ranks>) -> anyhow::Result<Self> {
        let mut args = args.clone();
        args::check(&args)?;
        let names = rows(&args.methods, ranks.is_some())?;
        args.workers = workers(&args, ranks.map(|ranks| ranks.world))?;
        args::check_methods(&args, &names)?;
        let mut methods = Vec::new();
        for name in names {
            let algorithm = match args::is_special(&name) {
                true => None,
                false => Some(args.method.build(&name)?.into()),
            };
            methods.push((name, algorithm));
        }
        let recorded = args.gradients.as_deref().map(recorded::read).transpose()?;
        let layouts: Vec<Layout> = match &recorded {
            Some(recorded) => vec![recorded.layout.clone()],
            None => args
                .elements
                .iter()
                .map(|&len| layers(len))
                .collect::<Result<_, _>>()?,
        };
        for layout in &layouts {
            for &workers in &args.workers {
                memory::check(&Need {
                    // Ranks on other machines answer for themselves.
                    workers: ranks.map_or(workers, |ranks| ranks.on_this_host),
                    are_ranks: ranks.is_some(),
                    elements: layout.len(),
                    // Recorded samples are in memory already.
                    samples: if recorded.is_some() { 0 } else { args.samples },
                    density: args.density.iter().copied().fold(0.0, f64::max),
                })?;
            }
        }
        Ok(Self {
            args,
            methods,
            recorded,
            layouts,
        })
    }

    /// What has to be the same on all ranks.
    pub(super) fn settings(&self) -> Settings {
        let Args {
            iterations,
            warmup,
            samples,
            seed,
            distribution,
            correlation,
            density,
            deadline,
            ..
        } = &self.args;
        let lens: Vec<u32> = self.layouts.iter().map(Layout::len).collect();
        let mut settings = vec![
            ("methods", list(self.methods.iter().map(|(name, _)| name))),
            ("elements", list(&lens)),
            ("density", list(density)),
            ("iterations", iterations.to_string()),
            ("warmup", warmup.to_string()),
            ("samples", samples.to_string()),
            ("seed", seed.to_string()),
            ("distribution", distribution.to_string()),
            ("correlation", correlation.to_string()),
            ("deadline", deadline.to_string()),
        ];
        if let Some(recorded) = &self.recorded {
            let mut hasher = blake3::Hasher::new();
            for sample in &recorded.samples {
                hasher.update(bytemuck::cast_slice(sample));
            }
            settings.push(("gradients", hasher.finalize().to_hex()[..16].to_owned()));
        }
        let owned = settings.into_iter();
        let owned = owned.map(|(name, value)| (name.to_owned(), value));
        let methods = self.methods.iter();
        let configurations = methods.flat_map(|(name, algorithm)| {
            let line = algorithm.as_ref().map(|algorithm| algorithm.describe());
            options(name, &line.unwrap_or_default())
        });
        owned.chain(configurations).collect()
    }
}

/// The options in a method's description, `NAME OPTION=VALUE ..`, each as METHOD.OPTION with its value.
fn options(method: &str, description: &str) -> Settings {
    let mut options = Settings::new();
    for word in description.split_whitespace() {
        match (word.split_once('='), options.last_mut()) {
            (Some((option, value)), _) => {
                options.push((format!("{method}.{option}"), value.to_owned()));
            }
            // A value of several words.
            (None, Some((_, value))) => *value += &format!(" {word}"),
            (None, None) => {}
        }
    }
    options
}

/// The names of `--methods`, among them MPI's own sum where there is one.
fn rows(methods: &str, with_mpi: bool) -> anyhow::Result<Vec<String>> {
    if methods.trim() == "all" {
        let mut all = names("all")?;
        if with_mpi {
            all.insert(0, MPI_ALLREDUCE.to_owned());
        }
        return Ok(all);
    }
    let mut rows = Vec::new();
    for name in methods.split(',') {
        let name = name.trim();
        if name == AUTO {
            rows.push(name.to_owned());
        } else if name != MPI_ALLREDUCE {
            rows.extend(names(name)?);
        } else if with_mpi {
            rows.push(MPI_ALLREDUCE.to_owned());
        } else {
            return Err(bad_request(
                "mpi-allreduce needs MPI: start spardl with mpiexec (a build with the feature mpi), or leave it out",
            ));
        }
    }
    Ok(rows)
}

/// The numbers of workers to run with.
fn workers(args: &Args, ranks: Option<World>) -> anyhow::Result<Vec<u32>> {
    let Some(size) = ranks.map(World::size) else {
        return Ok(match args.workers.as_slice() {
            [] => vec![DEFAULT_WORKERS],
            given => given.to_vec(),
        });
    };
    if args.local {
        return Err(bad_request(
            "--local runs all workers on one thread: start it without mpiexec, or with --transport threads",
        ));
    }
    if let Some(other) = args.workers.iter().find(|workers| **workers != size) {
        return Err(bad_request(format!(
            "--workers {other}, but the MPI job has {size} ranks: leave --workers out, or start it with mpiexec -n {other}"
        )));
    }
    Ok(vec![size])
}

fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    words.join(",")
}
