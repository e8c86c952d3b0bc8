//! `--method auto`: what is chosen on the workers that are there.

use std::env;
use std::path::PathBuf;

use spardl::tune::{Tuner, Tuning};
use spardl_core::{Density, Layout};
use spardl_drive::run_workers;

use crate::doctor::machine;
use crate::job::Job;
use crate::output::{bad_request, warn};

/// Where measurements are kept.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct CacheArgs {
    /// Keep what was measured in FILE, and measure nothing again under the same conditions [default: spardl/tunings.json in the
    /// user's cache directory].
    #[arg(long, value_name = "FILE", conflicts_with = "no_cache")]
    cache: Option<PathBuf>,
    /// Measure now, and keep nothing.
    #[arg(long)]
    no_cache: bool,
}

impl CacheArgs {
    fn path(&self) -> Option<PathBuf> {
        let set = |name: &str| env::var_os(name).filter(|dir| !dir.is_empty());
        let usual = || {
            let cache = set("XDG_CACHE_HOME").map(PathBuf::from);
            let home = || Some(PathBuf::from(set("HOME")?).join(".cache"));
            Some(cache.or_else(home)?.join("spardl").join("tunings.json"))
        };
        match self.no_cache {
            true => None,
            false => self.cache.clone().or_else(usual),
        }
    }
}

/// A tuner that knows where it is.
pub(crate) fn tuner(cache: &CacheArgs, job: Option<&Job>) -> Tuner {
    let host = match job {
        Some(job) => Some(job.host()),
        None => machine::name(),
    };
    let tuner = Tuner::new().host(&host.unwrap_or_default());
    match cache.path() {
        Some(path) => tuner.cache(path),
        None => tuner,
    }
}

/// Chooses on the workers that are there: the ranks of a job, or threads of this process.
pub(crate) fn choose(
    tuner: &Tuner,
    workers: u32,
    layouts: &[Layout],
    density: Density,
    job: Option<&mut Job>,
) -> anyhow::Result<Tuning> {
    let chosen = match job {
        Some(job) => tuner.tune(job.transport(), layouts, density),
        None => {
            let all = run_workers(workers, |mut transport| {
                tuner.tune(&mut transport, layouts, density)
            })?;
            first_cause(all)
        }
    };
    chosen.map_err(|error| match error.is_config() {
        true => bad_request(error),
        false => error.into(),
    })
}

/// The result of rank 0, or the first cause why there is none: others only heard that a peer was gone.
pub(super) fn first_cause<R>(results: Vec<Result<R, spardl::Error>>) -> Result<R, spardl::Error> {
    let (mut first, mut error): (Option<R>, Option<spardl::Error>) = (None, None);
    for result in results {
        match result {
            Ok(result) => first = first.or(Some(result)),
            Err(new) => {
                let old = error.as_ref();
                if old.is_none_or(|old| old.is_secondary() && !new.is_secondary()) {
                    error = Some(new);
                }
            }
        }
    }
    match (error, first) {
        (Some(error), _) => Err(error),
        (None, Some(first)) => Ok(first),
        (None, None) => unreachable!("there is at least one worker"),
    }
}

/// Says what went wrong with the file of measurements: nothing depends on it.
pub(crate) fn complain_about_cache(tuning: &Tuning) {
    if let Some(note) = tuning.note() {
        warn(&format!("the cache of tunings was not used: {note}"));
    }
}
