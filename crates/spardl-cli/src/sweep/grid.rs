//! Every method at every point of workers, bandwidth and latency, by its own estimate: what `spardl advise` says there.

use serde::Serialize;
use spardl::tune::{Choice, Gammas, Space};
use spardl_algos::{Options, registry};
use spardl_core::{Density, Gamma, Line, Model, ValueType};

use super::Args;
use crate::advise::candidates::{self, Candidate};
use crate::method::check_workers;
use crate::output::bad_request;
use crate::simulate::buckets;

/// A method at its best at a point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    pub(super) workers: u32,
    pub(super) bandwidth_bits: u64,
    pub(super) latency_ns: u64,
    pub(super) method: String,
    /// With its options as on the command line: of SparDL, the teams that take least time.
    pub(super) choice: String,
    pub(super) teams: Option<u32>,
    pub(super) step_ns: u64,
    pub(super) rounds: u64,
    /// Of the longest chain of messages.
    pub(super) bytes: u64,
}

/// Methods of the curves when none are named, beside those that win somewhere.
const FAMILIAR: [&str; 8] = [
    "dense",
    "dense-bf16",
    "dense-ring",
    "spardl",
    "ok-topk",
    "exdyna",
    "gtopk",
    "topk-a",
];

/// The points in the order of workers, latency, bandwidth and method: all methods that were named, or those that win somewhere
/// among all that the tuner looks at, and the familiar ones.
pub(super) fn points(
    args: &Args,
    methods: Option<&[String]>,
    density: Density,
    gammas: &Gammas,
) -> anyhow::Result<Vec<Point>> {
    let layouts = buckets(args.elements, 1)?;
    let mut points = Vec::new();
    for &workers in &args.workers {
        let choices = choices(methods, workers)?;
        let candidates = candidates::all(choices, workers, (&layouts, density), gammas);
        for &latency in &args.latencies {
            for &bandwidth in &args.bandwidths {
                points.extend(of_line(workers, Line { latency, bandwidth }, &candidates));
            }
        }
    }
    if methods.is_none() {
        let winners = winners(&points);
        points.retain(|point| {
            let name = point.method.as_str();
            FAMILIAR.contains(&name) || winners.iter().any(|winner| winner == name)
        });
    }
    Ok(points)
}

/// What the tuner would look at, of the methods that were named if some were. Those that it leaves out are taken as they are.
fn choices(methods: Option<&[String]>, workers: u32) -> anyhow::Result<Vec<Choice>> {
    let Some(methods) = methods else {
        return Ok(Space::default().choices(workers)?);
    };
    let mut all = Vec::new();
    for name in methods {
        let (entry, values) = registry::find(name).map_err(bad_request)?;
        let values = vec![values.unwrap_or(ValueType::F32)];
        let mut of_method = Space { values }.choices(workers)?;
        of_method.retain(|choice| choice.algorithm().name() == entry.name);
        if of_method.is_empty() {
            of_method.push(Choice::new(name, Options::default()).map_err(bad_request)?);
            // A method that needs another number of workers has no point here.
            of_method.retain(|choice| check_workers(&**choice.algorithm(), workers).is_ok());
        }
        all.extend(of_method);
    }
    Ok(all)
}

/// Every method at its best on a line.
fn of_line(workers: u32, line: Line, candidates: &[Candidate]) -> Vec<Point> {
    let model = Model::of_exchange(line, Gamma::default());
    let mut points: Vec<Point> = Vec::new();
    for candidate in candidates {
        let (choice, predicted) = (&candidate.choice, candidate.predict(&model));
        let teams = choice.options().set.get("teams");
        let point = Point {
            workers,
            bandwidth_bits: line.bandwidth,
            latency_ns: line.latency,
            method: choice.method().to_owned(),
            choice: choice.to_string(),
            teams: teams.and_then(|teams| teams.parse().ok()),
            step_ns: predicted.step,
            rounds: predicted.rounds,
            bytes: predicted.bytes,
        };
        match points.iter_mut().find(|known| known.method == point.method) {
            Some(known) if point.step_ns < known.step_ns => *known = point,
            Some(_) => (),
            None => points.push(point),
        }
    }
    points
}

/// The methods of the points: those that win somewhere first.
pub(super) fn methods(points: &[Point]) -> Vec<String> {
    let mut methods = winners(points);
    for point in points {
        if !methods.contains(&point.method) {
            methods.push(point.method.clone());
        }
    }
    methods
}

/// The methods that win at some point, in the order of the points.
fn winners(points: &[Point]) -> Vec<String> {
    let here = |point: &Point| (point.workers, point.latency_ns, point.bandwidth_bits);
    let mut winners: Vec<String> = Vec::new();
    for line in points.chunk_by(|one, next| here(one) == here(next)) {
        let line: Vec<&Point> = line.iter().collect();
        let winner = fastest(&line).map(|point| &point.method);
        if let Some(winner) = winner.filter(|winner| !winners.contains(winner)) {
            winners.push(winner.clone());
        }
    }
    winners
}

/// Among equals a dense one, which holds nothing back.
pub(super) fn fastest<'a>(points: &[&'a Point]) -> Option<&'a Point> {
    let points = points.iter().copied();
    points.min_by_key(|point| (point.step_ns, !is_dense(&point.method)))
}

pub(super) fn is_dense(method: &str) -> bool {
    method.starts_with("dense")
}
