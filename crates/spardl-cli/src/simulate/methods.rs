//! What is simulated: methods by name, and the one that the tuner chooses for the network.

use std::sync::Arc;

use spardl::AUTO;
use spardl::tune::{Choice, Gammas, Tuner};
use spardl_algos::{Options, Sag};
use spardl_core::{Algorithm, Gamma, Line};
use spardl_sim::{Scenario, Topology};

use super::Args;
use super::units::{show_rate, show_time};
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
    /// What its own work costs.
    gamma: Gamma,
}

impl Method {
    /// The scenario with what this method's own work costs in it.
    pub(super) fn scenario(&self, scenario: &Scenario) -> Scenario {
        let mut own = scenario.clone();
        own.compute.select = self.gamma.select;
        own.compute.merge = self.gamma.merge;
        own
    }
}

/// The methods that were asked for; what `auto` is, and why, is said on stderr.
pub(super) fn of(args: &Args, scenario: &Scenario) -> anyhow::Result<Vec<Method>> {
    let gammas = gammas(args)?;
    let mut methods = Vec::new();
    for name in args.methods.split(',').map(str::trim) {
        if name == AUTO {
            methods.push(chosen(scenario, &gammas)?);
            continue;
        }
        for name in names(name)? {
            methods.push(named(args, scenario, name, &gammas)?);
        }
    }
    Ok(methods)
}

fn named(
    args: &Args,
    scenario: &Scenario,
    name: String,
    gammas: &Gammas,
) -> anyhow::Result<Method> {
    let algorithm: Arc<dyn Algorithm> = args.method.build(&name)?.into();
    check_workers(&*algorithm, scenario.fabric.workers())?;
    let choice = Choice::new(&name, Options::default())?;
    Ok(Method {
        gamma: gammas.of(&choice),
        choice,
        teams: args.method.teams.unwrap_or(1),
        sag: args.method.sag.unwrap_or_default(),
        name,
        algorithm,
    })
}

/// The least predicted time on the line of the network, with what local work is said to cost.
fn chosen(scenario: &Scenario, gammas: &Gammas) -> anyhow::Result<Method> {
    let at = (scenario.layouts.as_slice(), scenario.density);
    let (workers, line) = (scenario.fabric.workers(), scenario.fabric.line());
    let tuning = Tuner::new().decide(workers, at, line, gammas)?;
    warn(&format!(
        "auto: {}; {}",
        tuning.in_words(),
        picked_for(scenario)
    ));
    let choice = tuning.best().clone();
    let option = |name: &str| choice.options().set.get(name);
    Ok(Method {
        name: AUTO.to_owned(),
        algorithm: Arc::clone(choice.algorithm()),
        teams: option("teams").and_then(|d| d.parse().ok()).unwrap_or(1),
        sag: option("sag")
            .and_then(|s| s.parse().ok())
            .unwrap_or_default(),
        gamma: gammas.of(&choice),
        choice,
    })
}

/// The decision knows one line for all; what is simulated may be another network.
fn picked_for(scenario: &Scenario) -> String {
    let Line { latency, bandwidth } = scenario.fabric.line();
    let flat = format!(
        "picked for a flat network with {} a message and {}",
        show_time(latency as f64),
        show_rate(bandwidth as f64)
    );
    match scenario.fabric.topology() {
        Topology::Flat => flat,
        other => format!("{flat}, not for the simulated one ({other})"),
    }
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
