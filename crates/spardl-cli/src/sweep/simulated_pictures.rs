//! The pictures of what was simulated.

use spardl_chart::{Chart, Series};

use super::simulated::{
    BACKWARD, OVERSUBSCRIPTION, PROBABILITY, STRAGGLER_METHODS, STRAGGLER_WORKERS, StragglerPoint,
    TEAM_WORKERS, TOPOLOGIES, TOPOLOGY_METHODS, TeamsPoint, TopologyPoint,
};
use crate::simulate::units::{show_rate, show_time};

/// SparDL's step against the number of teams.
pub(super) fn teams(points: &[TeamsPoint]) -> Chart {
    let mut networks: Vec<(u64, u64)> = points
        .iter()
        .map(|point| (point.latency_ns, point.bandwidth_bits))
        .collect();
    networks.dedup();
    let of = |network: &(u64, u64)| {
        let here = |point: &&TeamsPoint| (point.latency_ns, point.bandwidth_bits) == *network;
        points.iter().filter(here).collect::<Vec<_>>()
    };
    let name = |&(latency, bandwidth): &(u64, u64)| {
        format!(
            "{}, {}",
            show_time(latency as f64),
            show_rate(bandwidth as f64)
        )
    };
    let series = networks.iter().map(|network| {
        let places = of(network)
            .into_iter()
            .map(|point| (f64::from(point.teams), point.step_ns as f64 / 1e3));
        Series::new(name(network), places.collect::<Vec<_>>())
    });
    let best = networks.iter().filter_map(|network| {
        let here = of(network);
        let best = here.iter().min_by_key(|point| point.step_ns)?;
        let one = here.iter().find(|point| point.teams == 1)?;
        Some(format!(
            "{} at {} ({:.2} of the time of one team)",
            best.teams,
            name(network),
            best.step_ns as f64 / one.step_ns.max(1) as f64
        ))
    });
    let best: Vec<String> = best.collect();
    Chart {
        title: format!("SparDL with {TEAM_WORKERS} workers against the number of teams d"),
        x_label: "teams".to_owned(),
        y_label: "microseconds".to_owned(),
        log_x: true,
        log_y: true,
        series: series.collect(),
        conclusion: format!("The best number of teams: {}.", best.join("; ")),
        ..Chart::default()
    }
}

/// Step time on a fat tree and on a flattened butterfly.
pub(super) fn topologies(points: &[TopologyPoint]) -> Chart {
    let of = |method: &str, topology: &str| {
        let here = |point: &&TopologyPoint| point.method == method && point.topology == topology;
        points.iter().filter(here).collect::<Vec<_>>()
    };
    let mut series = Vec::new();
    // All methods on the first, then all on the second: colours tell methods apart only within a topology.
    for topology in TOPOLOGIES {
        for method in TOPOLOGY_METHODS {
            let places = of(method, topology)
                .into_iter()
                .map(|point| (f64::from(point.workers), point.step_ns as f64 / 1e6));
            series.push(Series::new(
                format!("{method}, {topology}"),
                places.collect::<Vec<_>>(),
            ));
        }
    }
    let ratios = TOPOLOGY_METHODS.iter().filter_map(|method| {
        let (tree, butterfly) = (of(method, TOPOLOGIES[0]), of(method, TOPOLOGIES[1]));
        let (tree, butterfly) = (tree.last()?, butterfly.last()?);
        let ratio = butterfly.step_ns as f64 / tree.step_ns.max(1) as f64;
        Some((tree.workers, format!("{method} {ratio:.1}")))
    });
    let (workers, ratios): (Vec<u32>, Vec<String>) = ratios.unzip();
    let workers = workers.first().copied().unwrap_or(0);
    Chart {
        title: format!(
            "Fat tree against flattened butterfly, wires between switches {OVERSUBSCRIPTION} times as thin (10 us, 1 Gbit/s)"
        ),
        x_label: "workers".to_owned(),
        y_label: "milliseconds".to_owned(),
        log_x: true,
        log_y: true,
        series,
        conclusion: format!(
            "With {workers} workers the butterfly takes so many times as long as the fat tree: {}.",
            ratios.join(", ")
        ),
        ..Chart::default()
    }
}

/// Step time against how slow stragglers are.
pub(super) fn stragglers(points: &[StragglerPoint]) -> Chart {
    let of = |method: &str| {
        let here = points.iter().filter(|point| point.method == method);
        here.collect::<Vec<_>>()
    };
    let mut series = Vec::new();
    for method in STRAGGLER_METHODS {
        let places = of(method)
            .into_iter()
            .map(|point| (point.factor, point.median_ns as f64 / 1e6));
        series.push(Series::new(
            format!("{method}, median"),
            places.collect::<Vec<_>>(),
        ));
    }
    let longer = STRAGGLER_METHODS.iter().filter_map(|method| {
        let here = of(method);
        let (even, slow) = (here.first()?, here.last()?);
        Some(format!(
            "{method} {} instead of {}",
            show_time(slow.median_ns as f64),
            show_time(even.median_ns as f64)
        ))
    });
    let longer: Vec<String> = longer.collect();
    let factor = points.last().map_or(1.0, |point| point.factor);
    Chart {
        title: format!(
            "Stragglers: {STRAGGLER_WORKERS} workers, each slow in {:.0} % of its steps, backward pass of {}",
            100.0 * PROBABILITY,
            show_time(BACKWARD as f64)
        ),
        x_label: "times as long as usual that a slow worker computes".to_owned(),
        y_label: "milliseconds of a step".to_owned(),
        series,
        conclusion: format!(
            "When a slow worker takes {factor} times as long, a step takes: {}.",
            longer.join(", ")
        ),
        ..Chart::default()
    }
}
