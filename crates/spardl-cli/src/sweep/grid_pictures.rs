//! The maps and the curves over the number of workers.

use spardl_chart::{Cell, Chart, Map, Series};

use super::Args;
use super::grid::{Point, fastest, is_dense};
use crate::simulate::units::{show_bytes, show_rate, show_time};

/// Who wins at one latency, over workers and bandwidth.
pub(super) fn map(args: &Args, methods: &[String], points: &[Point], latency: u64) -> Map {
    let row = |&workers: &u32| -> Vec<Cell> {
        let cells = args.bandwidths.iter().map(|&bandwidth| {
            let here = at(points, workers, bandwidth, latency);
            cell(methods, &here)
        });
        cells.collect()
    };
    Map {
        title: format!(
            "Which method wins, with {} a message",
            show_time(latency as f64)
        ),
        x_label: "bandwidth of a worker".to_owned(),
        y_label: "workers".to_owned(),
        columns: args
            .bandwidths
            .iter()
            .map(|&rate| show_rate(rate as f64))
            .collect(),
        rows: args.workers.iter().map(ToString::to_string).collect(),
        choices: methods.to_vec(),
        cells: args.workers.iter().map(row).collect(),
        conclusion: map_conclusion(args, points, latency),
    }
}

fn at(points: &[Point], workers: u32, bandwidth: u64, latency: u64) -> Vec<&Point> {
    let here = |point: &&Point| {
        (point.workers, point.bandwidth_bits, point.latency_ns) == (workers, bandwidth, latency)
    };
    points.iter().filter(here).collect()
}

fn fastest_dense<'a>(points: &[&'a Point]) -> Option<&'a Point> {
    let dense = points
        .iter()
        .copied()
        .filter(|point| is_dense(&point.method));
    dense.min_by_key(|point| point.step_ns)
}

fn cell(methods: &[String], here: &[&Point]) -> Cell {
    let Some(best) = fastest(here) else {
        return Cell::default();
    };
    let choice = methods.iter().position(|method| *method == best.method);
    let mut detail = format!("{} in {}", best.choice, show_time(best.step_ns as f64));
    if let Some(dense) = fastest_dense(here) {
        let dense = format!(
            "; best dense: {} in {}",
            dense.choice,
            show_time(dense.step_ns as f64)
        );
        detail += &dense;
    }
    Cell {
        choice: choice.unwrap_or(0),
        text: match best.teams {
            Some(teams) if teams > 1 => format!("{}, d = {teams}", show_time(best.step_ns as f64)),
            _ => show_time(best.step_ns as f64),
        },
        detail,
    }
}

fn map_conclusion(args: &Args, points: &[Point], latency: u64) -> String {
    let (mut cells, mut dense_wins, mut flips) = (0, 0, None::<u64>);
    let mut most: Option<(f64, &Point)> = None;
    for &workers in &args.workers {
        for &bandwidth in &args.bandwidths {
            let here = at(points, workers, bandwidth, latency);
            let (Some(best), Some(dense)) = (fastest(&here), fastest_dense(&here)) else {
                continue;
            };
            cells += 1;
            if is_dense(&best.method) {
                dense_wins += 1;
                flips = Some(flips.map_or(bandwidth, |flip| flip.min(bandwidth)));
            }
            let gain = dense.step_ns as f64 / best.step_ns.max(1) as f64;
            if most.is_none_or(|(most, _)| gain > most) {
                most = Some((gain, best));
            }
        }
    }
    let Some((gain, best)) = most else {
        return "Without a dense method among --methods there is nothing to compare with."
            .to_owned();
    };
    let gain = format!(
        "The largest gain over the best dense exchange is {gain:.1}x: {}, {} workers at {}.",
        best.choice,
        best.workers,
        show_rate(best.bandwidth_bits as f64)
    );
    match flips {
        None => format!("A sparse exchange is fastest at all {cells} points. {gain}"),
        Some(flip) => format!(
            "A sparse exchange is fastest at {} of {cells} points, a dense one at {dense_wins}, from {} on. {gain}",
            cells - dense_wins,
            show_rate(flip as f64)
        ),
    }
}

/// The network of the curves over P: the middle of those asked for.
fn middle(args: &Args) -> (u64, u64) {
    let middle = |all: &[u64]| {
        let mut sorted = all.to_vec();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) / 2]
    };
    (middle(&args.bandwidths), middle(&args.latencies))
}

/// A curve over P for every method.
fn over_workers(
    args: &Args,
    methods: &[String],
    points: &[Point],
    value: impl Fn(&Point) -> f64,
) -> Vec<Series> {
    let network = middle(args);
    let curve = |method: &String| {
        let of_method = points.iter().filter(|point| {
            point.method == *method && (point.bandwidth_bits, point.latency_ns) == network
        });
        let places = of_method.map(|point| (f64::from(point.workers), value(point)));
        Series::new(method.as_str(), places.collect::<Vec<_>>())
    };
    methods.iter().map(curve).collect()
}

/// Step time against P.
pub(super) fn time(args: &Args, methods: &[String], points: &[Point]) -> Chart {
    let (bandwidth, latency) = middle(args);
    let most = args.workers.iter().copied().max().unwrap_or(0);
    let mut last = at(points, most, bandwidth, latency);
    last.sort_by_key(|point| point.step_ns);
    let conclusion = match (last.first(), last.last()) {
        (Some(best), Some(worst)) => format!(
            "With {most} workers {} is fastest ({}), {} slowest ({}): {:.0} times as long.",
            best.choice,
            show_time(best.step_ns as f64),
            worst.choice,
            show_time(worst.step_ns as f64),
            worst.step_ns as f64 / best.step_ns.max(1) as f64
        ),
        _ => String::new(),
    };
    Chart {
        title: format!(
            "Time of an exchange against the number of workers ({}, {} a message)",
            show_rate(bandwidth as f64),
            show_time(latency as f64)
        ),
        x_label: "workers".to_owned(),
        y_label: "milliseconds".to_owned(),
        log_x: true,
        log_y: true,
        series: over_workers(args, methods, points, |point| point.step_ns as f64 / 1e6),
        conclusion,
        ..Chart::default()
    }
}

/// Bytes against P.
pub(super) fn bytes(args: &Args, methods: &[String], points: &[Point]) -> Chart {
    let (bandwidth, latency) = middle(args);
    let of = |workers: u32, method: &str| {
        let here = at(points, workers, bandwidth, latency);
        let found = here.iter().find(|point| point.method == method);
        found.map(|point| point.bytes)
    };
    let passed = |method: &&String| {
        let passes = |workers: &&u32| {
            let pair = of(**workers, method).zip(of(**workers, "dense"));
            pair.is_some_and(|(bytes, dense)| bytes > dense)
        };
        let first = args.workers.iter().filter(passes).min();
        first.map(|first| format!("{method} from {first} workers on"))
    };
    let sparse = methods.iter().filter(|method| !is_dense(method));
    let passing: Vec<String> = sparse
        .clone()
        .filter_map(|method| passed(&method))
        .collect();
    let most = args.workers.iter().copied().max().unwrap_or(0);
    let least = sparse
        .filter_map(|method| Some((of(most, method)?, method)))
        .min();
    let mut conclusion = if passing.is_empty() {
        "No sparse method sends more than dense f32 here.".to_owned()
    } else {
        format!("More than dense f32 sends: {}.", passing.join(", "))
    };
    if let Some((bytes, method)) = least {
        conclusion += &format!(
            " With {most} workers {method} sends least: {}.",
            show_bytes(bytes as f64)
        );
    }
    Chart {
        title: format!(
            "Bytes of the longest chain of messages against the number of workers ({}, {} a message)",
            show_rate(bandwidth as f64),
            show_time(latency as f64)
        ),
        x_label: "workers".to_owned(),
        y_label: "megabytes".to_owned(),
        log_x: true,
        log_y: true,
        series: over_workers(args, methods, points, |point| point.bytes as f64 / 1e6),
        conclusion,
        ..Chart::default()
    }
}
