//! What needs real machines and links that many share: teams, topologies, stragglers.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use spardl_algos::{Options, registry};
use spardl_core::Density;
use spardl_sim::gradient::{Distribution, layers};
use spardl_sim::{Compute, Fabric, Line, Scenario, Sharing, Simulated, Stragglers, Topology};

use super::Args;
use crate::output::bad_request;
use crate::progress::Progress;

/// Effect of the number of teams.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TeamsPoint {
    pub(super) workers: u32,
    pub(super) latency_ns: u64,
    pub(super) bandwidth_bits: u64,
    pub(super) teams: u32,
    pub(super) step_ns: u64,
}

/// A method on a topology.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TopologyPoint {
    pub(super) topology: &'static str,
    pub(super) workers: u32,
    pub(super) method: &'static str,
    pub(super) step_ns: u64,
}

/// A method among workers of which some are slow.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StragglerPoint {
    /// How many times longer a slow worker computes.
    pub(super) factor: f64,
    pub(super) method: &'static str,
    pub(super) median_ns: u64,
    pub(super) p99_ns: u64,
}

/// The networks on which teams are compared: latency in nanoseconds, bits per second.
const NETWORKS: [Line; 3] = [
    Line {
        latency: 100_000,
        bandwidth: 10_000_000_000,
    },
    Line {
        latency: 10_000,
        bandwidth: 1_000_000_000,
    },
    Line {
        latency: 10_000,
        bandwidth: 100_000_000,
    },
];
pub(super) const TEAM_WORKERS: u32 = 64;
const TEAMS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

const TOPOLOGY_WORKERS: [u32; 4] = [16, 32, 64, 128];
pub(super) const TOPOLOGIES: [&str; 2] = ["fat tree", "flattened butterfly"];
pub(super) const TOPOLOGY_METHODS: [&str; 3] = ["dense", "spardl", "ok-topk"];
pub(super) const OVERSUBSCRIPTION: u32 = 4;

pub(super) const STRAGGLER_WORKERS: u32 = 32;
pub(super) const STRAGGLER_METHODS: [&str; 4] = ["dense", "spardl", "ok-topk", "gtopk"];
/// The part of the steps in which a worker is slow.
pub(super) const PROBABILITY: f64 = 0.05;
/// Nanoseconds of the backward pass.
pub(super) const BACKWARD: u64 = 5_000_000;
const FACTORS: [f64; 5] = [1.0, 1.5, 2.0, 3.0, 4.0];
const STRAGGLER_SEEDS: u32 = 20;

/// How many scenarios all of these are.
pub(super) const fn runs() -> u64 {
    (NETWORKS.len() * TEAMS.len()
        + TOPOLOGIES.len() * TOPOLOGY_WORKERS.len() * TOPOLOGY_METHODS.len()
        + FACTORS.len() * STRAGGLER_METHODS.len()) as u64
}

fn scenario(args: &Args, density: Density, fabric: Fabric) -> anyhow::Result<Scenario> {
    Ok(Scenario {
        fabric,
        sharing: Sharing::Fair,
        layouts: vec![layers(args.simulated_elements)?],
        density,
        distribution: Distribution::default(),
        correlation: 0.0,
        compute: Compute::default(),
        faults: Vec::new(),
        deadline: Duration::from_secs(3600),
        seed: args.seed,
        seeds: 1,
        warmup: 2,
        steps: 1,
    })
}

fn run(
    scenario: &Scenario,
    method: &str,
    options: &Options,
    progress: &Progress,
) -> anyhow::Result<Simulated> {
    let algorithm = registry::build(method, options).map_err(bad_request)?;
    progress.say(format!("{method}, P = {}", scenario.fabric.workers()));
    let simulated = scenario.run(&*algorithm, || ());
    progress.done();
    simulated.with_context(|| method.to_owned())
}

/// SparDL with every number of teams on three flat networks.
pub(super) fn teams(
    args: &Args,
    density: Density,
    progress: &Progress,
) -> anyhow::Result<Vec<TeamsPoint>> {
    let mut points = Vec::new();
    for line in NETWORKS {
        let fabric = Fabric::new(Topology::Flat, TEAM_WORKERS, line).map_err(bad_request)?;
        let scenario = scenario(args, density, fabric)?;
        for teams in TEAMS {
            let options = Options::default().with("teams", teams);
            let simulated = run(&scenario, "spardl", &options, progress)?;
            points.push(TeamsPoint {
                workers: TEAM_WORKERS,
                latency_ns: line.latency,
                bandwidth_bits: line.bandwidth,
                teams,
                step_ns: simulated.median(),
            });
        }
    }
    Ok(points)
}

/// Methods on a fat tree and on a flattened butterfly, both with thin wires between switches.
pub(super) fn topologies(
    args: &Args,
    density: Density,
    progress: &Progress,
) -> anyhow::Result<Vec<TopologyPoint>> {
    let mut points = Vec::new();
    for workers in TOPOLOGY_WORKERS {
        for name in TOPOLOGIES {
            let topology = if name == TOPOLOGIES[0] {
                Topology::FatTree {
                    leaf_size: 16,
                    oversubscription: OVERSUBSCRIPTION,
                    hop_latency: 500,
                }
            } else {
                Topology::FlattenedButterfly {
                    oversubscription: OVERSUBSCRIPTION,
                    hop_latency: 500,
                }
            };
            let fabric = Fabric::new(topology, workers, NETWORKS[1]).map_err(bad_request)?;
            let scenario = scenario(args, density, fabric)?;
            for method in TOPOLOGY_METHODS {
                let simulated = run(&scenario, method, &Options::default(), progress)?;
                points.push(TopologyPoint {
                    topology: name,
                    workers,
                    method,
                    step_ns: simulated.median(),
                });
            }
        }
    }
    Ok(points)
}

/// Methods among workers that are slow now and then.
pub(super) fn stragglers(
    args: &Args,
    density: Density,
    progress: &Progress,
) -> anyhow::Result<Vec<StragglerPoint>> {
    let mut points = Vec::new();
    for factor in FACTORS {
        let fabric = Fabric::new(Topology::Flat, STRAGGLER_WORKERS, NETWORKS[1]);
        let scenario = Scenario {
            compute: Compute {
                backward: BACKWARD,
                stragglers: Some(Stragglers {
                    probability: PROBABILITY,
                    factor,
                }),
                ..Compute::default()
            },
            seeds: STRAGGLER_SEEDS,
            warmup: 0,
            steps: 1,
            ..scenario(args, density, fabric.map_err(bad_request)?)?
        };
        for method in STRAGGLER_METHODS {
            let simulated = run(&scenario, method, &Options::default(), progress)?;
            points.push(StragglerPoint {
                factor,
                method,
                median_ns: simulated.median(),
                p99_ns: simulated.p99(),
            });
        }
    }
    Ok(points)
}
