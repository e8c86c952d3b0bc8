//! Every method at every point of workers, bandwidth and latency, by its own estimate.

use serde::Serialize;
use spardl_algos::{Options, registry};
use spardl_core::{Density, Estimate, Layout};
use spardl_sim::{Compute, Line, Model};

use super::Args;
use crate::output::bad_request;

/// A method at its best at a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    pub(super) workers: u32,
    pub(super) bandwidth_bits: u64,
    pub(super) latency_ns: u64,
    pub(super) method: String,
    /// Of SparDL: the number of teams that takes least time.
    pub(super) teams: Option<u32>,
    pub(super) step_ns: u64,
    pub(super) rounds: u64,
    /// Of the longest chain of messages.
    pub(super) bytes: u64,
}

/// The most teams that are looked at.
const MOST_TEAMS: u32 = 64;

/// A method with one number of teams.
struct Variant {
    method: usize,
    teams: Option<u32>,
    buckets: [(u32, Estimate); 1],
}

/// The points in the order of workers, latency, bandwidth and method.
pub(super) fn points(
    args: &Args,
    methods: &[String],
    density: Density,
) -> anyhow::Result<Vec<Point>> {
    let mut points = Vec::new();
    for &workers in &args.workers {
        let variants = variants(args, methods, density, workers)?;
        for &latency in &args.latencies {
            for &bandwidth in &args.bandwidths {
                let line = Line { latency, bandwidth };
                for (i, method) in methods.iter().enumerate() {
                    let of_method = variants.iter().filter(|variant| variant.method == i);
                    points.extend(best(args, method, workers, line, of_method));
                }
            }
        }
    }
    Ok(points)
}

fn best<'a>(
    args: &Args,
    method: &str,
    workers: u32,
    line: Line,
    variants: impl Iterator<Item = &'a Variant>,
) -> Option<Point> {
    let model = model(args, method, line);
    let points = variants.map(|variant| {
        let predicted = model.predict_from(&variant.buckets);
        Point {
            workers,
            bandwidth_bits: line.bandwidth,
            latency_ns: line.latency,
            method: method.to_owned(),
            teams: variant.teams,
            step_ns: predicted.step,
            rounds: predicted.rounds,
            bytes: predicted.bytes,
        }
    });
    points.min_by_key(|point| point.step_ns)
}

pub(super) fn is_dense(method: &str) -> bool {
    method.starts_with("dense")
}

/// A dense exchange selects nothing, it only loads the gradient, and it adds runs instead of merging lists.
fn model(args: &Args, method: &str, line: Line) -> Model {
    let (select, merge) = if is_dense(method) {
        (args.select_ps / 4, args.merge_ps / 5)
    } else {
        (args.select_ps, args.merge_ps)
    };
    let compute = Compute {
        select,
        merge,
        ..Compute::default()
    };
    compute.model(line)
}

fn variants(
    args: &Args,
    methods: &[String],
    density: Density,
    workers: u32,
) -> anyhow::Result<Vec<Variant>> {
    let layout = Layout::flat(args.elements);
    let k = density.entries(args.elements as usize);
    let mut variants = Vec::new();
    for (method, name) in methods.iter().enumerate() {
        let (entry, _) = registry::find(name).map_err(bad_request)?;
        for teams in teams_of(entry.name, workers) {
            let options = match teams {
                Some(teams) => Options::default().with("teams", teams),
                None => Options::default(),
            };
            let algorithm = registry::build(name, &options).map_err(bad_request)?;
            let estimate = algorithm.estimate(workers, &layout, k, 0);
            variants.push(Variant {
                method,
                teams,
                buckets: [(args.elements, estimate)],
            });
        }
    }
    Ok(variants)
}

fn teams_of(method: &str, workers: u32) -> Vec<Option<u32>> {
    if method != "spardl" {
        return vec![None];
    }
    let divides = |teams: &u32| workers.is_multiple_of(*teams);
    let teams = (1..=workers.min(MOST_TEAMS)).filter(divides);
    teams.map(Some).collect()
}
