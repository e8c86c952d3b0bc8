//! `--cost-only` and `--check-model`: what the model says, alone and beside the simulator and the papers.

use serde::Serialize;
use spardl_core::Layout;
use spardl_sim::{Model, Predicted, Scenario, Topology};

use super::methods::Method;
use super::published::{Case, Published, published};
use super::row::Row;
use super::table::table;
use super::units::{show_bytes, show_rate, show_time};
use crate::output::bad_request;
use crate::screen::{comments, stdout_width};

/// The model's word on one method. Times are nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ModelRow {
    pub(super) method: String,
    pub(super) configuration: String,
    pub(super) step_ns: u64,
    pub(super) rounds: u64,
    /// Of the longest chain of messages, headers included.
    pub(super) bytes: u64,
    pub(super) latency_ns: u64,
    pub(super) transfer_ns: u64,
    pub(super) select_ns: u64,
    pub(super) merge_ns: u64,
    pub(super) published: Option<PublishedRow>,
    /// What the simulator says, with `--check-model`.
    pub(super) simulated_ns: Option<u64>,
}

/// The paper's word: without headers, selection and merging.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PublishedRow {
    pub(super) rounds: f64,
    pub(super) least_bytes: f64,
    pub(super) most_bytes: f64,
    pub(super) least_ns: f64,
    pub(super) most_ns: f64,
}

/// The model of a scenario.
///
/// # Errors
/// When the network is not flat: links that many share need the simulator.
pub(super) fn of(scenario: &Scenario) -> anyhow::Result<Model> {
    if *scenario.fabric.topology() != Topology::Flat {
        return Err(bad_request(
            "the model knows a flat network only: use --topology flat, or leave --cost-only and --check-model out",
        ));
    }
    Ok(scenario.compute.model(scenario.fabric.line()))
}

/// The model's row of a method, with the simulator's result if there is one.
pub(super) fn row(
    scenario: &Scenario,
    method: &Method,
    simulated: Option<&Row>,
) -> anyhow::Result<ModelRow> {
    let scenario = &method.scenario(scenario);
    let (model, workers) = (of(scenario)?, scenario.fabric.workers());
    let algorithm = &*method.algorithm;
    let predicted = model.predict(algorithm, workers, &scenario.layouts, scenario.density);
    let Predicted {
        step,
        rounds,
        bytes,
        latency,
        transfer,
        select,
        merge,
    } = predicted;
    let case = Case {
        workers,
        elements: scenario.layouts.iter().map(|l| u64::from(l.len())).sum(),
        k: scenario.layouts.iter().map(|l| entries(scenario, l)).sum(),
        teams: method.teams,
        sag: method.sag,
    };
    Ok(ModelRow {
        method: method.name.clone(),
        configuration: algorithm.describe(),
        step_ns: step,
        rounds,
        bytes,
        latency_ns: latency,
        transfer_ns: transfer,
        select_ns: select,
        merge_ns: merge,
        published: published(method.choice.method(), case).map(|of| PublishedRow::new(of, &model)),
        simulated_ns: simulated.map(|row| row.median_ns),
    })
}

fn entries(scenario: &Scenario, layout: &Layout) -> u64 {
    scenario.density.entries(layout.len() as usize) as u64
}

impl PublishedRow {
    fn new(published: Published, model: &Model) -> Self {
        let Published { rounds, words } = published;
        let (least, most) = (4.0 * words.0, 4.0 * words.1);
        let nanos = |bytes: f64| {
            rounds * model.line.latency as f64 + bytes * 8e9 / model.line.bandwidth as f64
        };
        Self {
            rounds,
            least_bytes: least,
            most_bytes: most,
            least_ns: nanos(least),
            most_ns: nanos(most),
        }
    }
}

pub(super) fn text(scenario: &Scenario, rows: &[ModelRow]) -> String {
    let elements: u64 = scenario.layouts.iter().map(|l| u64::from(l.len())).sum();
    let line = scenario.fabric.line();
    let heading = format!(
        "{} workers, flat, {} and {} a message; {elements} elements, density {}\n\
         the model: rounds, bytes and elements; published: without headers, selection and merging",
        scenario.fabric.workers(),
        show_rate(line.bandwidth as f64),
        show_time(line.latency as f64),
        scenario.density,
    );
    let mut text = comments(heading.lines(), stdout_width());
    let is_checked = rows.iter().any(|row| row.simulated_ns.is_some());
    let mut names = vec!["method"];
    if is_checked {
        names.extend(["simulated", "off by"]);
    }
    names.extend([
        "model",
        "latency",
        "transfer",
        "select",
        "merge",
        "rounds",
        "bytes",
        "published",
    ]);
    text += &table(&names, rows.iter().map(|row| cells(row, is_checked)));
    text
}

fn cells(row: &ModelRow, is_checked: bool) -> Vec<String> {
    let time = |nanos: u64| show_time(nanos as f64);
    let mut cells = vec![row.method.clone()];
    if let Some(simulated) = row.simulated_ns.filter(|_| is_checked) {
        let off = row.step_ns as f64 / simulated.max(1) as f64 - 1.0;
        cells.extend([time(simulated), format!("{:+.1} %", 100.0 * off)]);
    }
    cells.extend([
        time(row.step_ns),
        time(row.latency_ns),
        time(row.transfer_ns),
        time(row.select_ns),
        time(row.merge_ns),
        row.rounds.to_string(),
        show_bytes(row.bytes as f64),
    ]);
    cells.push(match row.published {
        None => "-".to_owned(),
        Some(of) if of.least_ns == of.most_ns => show_time(of.least_ns),
        Some(of) => format!("{} - {}", show_time(of.least_ns), show_time(of.most_ns)),
    });
    cells
}
