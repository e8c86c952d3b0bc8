//! What is simulated: methods by name, and the one that the tuner chooses for the network.

use std::sync::Arc;

use spardl::AUTO;
use spardl::tune::{Choice, Gammas, Tuner};
use spardl_algos::{Options, Sag};
use spardl_core::{Algorithm, Gamma};
use spardl_sim::Scenario;

use super::Args;
use crate::method::{check_workers, names};
use crate::output::warn;
use crate::tune;

/// A method with its options.
pub(super) struct Method {
    /// As asked for.
    pub(super) name: String,
    pub(super) algorithm: Arc<dyn Algorithm>,
    /// The same as the tuner and its measurements know it.
    pub(super) choice: Choice,
    pub(super) teams: u32,
    pub(super) sag: Sag,
}

/// The methods that were asked for; what `auto` is, and why, is said on stderr.
pub(super) fn of(args: &Args, scenario: &Scenario) -> anyhow::Result<Vec<Method>> {
    let mut methods = Vec::new();
    for name in args.methods.split(',').map(str::trim) {
        if name == AUTO {
            methods.push(chosen(args, scenario)?);
            continue;
        }
        for name in names(name)? {
            methods.push(named(args, scenario, name)?);
        }
    }
    Ok(methods)
}

fn named(args: &Args, scenario: &Scenario, name: String) -> anyhow::Result<Method> {
    let algorithm: Arc<dyn Algorithm> = args.method.build(&name)?.into();
    check_workers(&*algorithm, scenario.fabric.workers())?;
    Ok(Method {
        choice: Choice::new(&name, Options::default())?,
        teams: args.method.teams.unwrap_or(1),
        sag: args.method.sag.unwrap_or_default(),
        name,
        algorithm,
    })
}

/// The least predicted time on the line of the network, with what local work is said to cost.
fn chosen(args: &Args, scenario: &Scenario) -> anyhow::Result<Method> {
    let at = (scenario.layouts.as_slice(), scenario.density);
    let (workers, line) = (scenario.fabric.workers(), scenario.fabric.line());
    let tuning = Tuner::new().decide(workers, at, line, &gammas(args)?)?;
    warn(&format!("auto: {}", tuning.in_words()));
    let choice = tuning.best().clone();
    let option = |name: &str| choice.options().set.get(name);
    Ok(Method {
        name: AUTO.to_owned(),
        algorithm: Arc::clone(choice.algorithm()),
        teams: option("teams").and_then(|d| d.parse().ok()).unwrap_or(1),
        sag: option("sag")
            .and_then(|s| s.parse().ok())
            .unwrap_or_default(),
        choice,
    })
}

/// What local work costs: as measured by method, or as told for all of them.
fn gammas(args: &Args) -> anyhow::Result<Gammas> {
    if let Some(path) = &args.measured {
        return Ok(tune::read(path)?.gammas());
    }
    Ok(Gammas::alike(Gamma {
        select: args.compute.select_ps,
        merge: args.compute.merge_ps,
    }))
}
