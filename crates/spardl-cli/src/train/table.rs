//! The end of a run as a table.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use spardl_train::record::Summary;

use super::link::Link;
use super::watch::bytes;

/// One method, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) method: String,
    pub(crate) seeds: usize,
    /// Test accuracies, one per seed.
    pub(crate) accuracies: Vec<f64>,
    pub(crate) accuracy: Option<f64>,
    pub(crate) test_loss: Option<f64>,
    pub(crate) seconds: f64,
    /// The mean over seeds; `None` when a seed did not get there.
    pub(crate) seconds_to_target: Option<f64>,
    pub(crate) density: f64,
    /// Of the worker that sent the most.
    pub(crate) bytes_per_step: f64,
    /// The mean over workers.
    pub(crate) mean_bytes_per_step: f64,
    pub(crate) bytes_to_dense: f64,
    pub(crate) speedup: Option<f64>,
    pub(crate) link_exchange_ms: f64,
    pub(crate) link_speedup: Option<f64>,
    pub(crate) skipped: u64,
    pub(crate) identical: bool,
    #[serde(skip)]
    link_step: f64,
}

impl Row {
    /// The mean of runs of the same method, on that network, with the time to an accuracy.
    pub(crate) fn new(method: &str, runs: &[&Summary], link: Link, target: Option<f64>) -> Self {
        let mean = |value: &dyn Fn(&Summary) -> f64| {
            runs.iter().map(|run| value(run)).sum::<f64>() / runs.len().max(1) as f64
        };
        let accuracies: Vec<f64> = runs.iter().filter_map(|run| run.accuracy()).collect();
        let times = runs.iter().map(|run| run.seconds_to(target?));
        let times: Option<Vec<f64>> = times.collect();
        let last_loss = |run: &Summary| run.epochs.iter().rev().find_map(|e| e.test_loss);
        Self {
            method: method.to_owned(),
            seeds: runs.len(),
            accuracy: mean_of(&accuracies),
            accuracies,
            test_loss: mean_of(
                &runs
                    .iter()
                    .filter_map(|run| last_loss(run))
                    .collect::<Vec<_>>(),
            ),
            seconds: mean(&Summary::seconds),
            seconds_to_target: times.as_deref().and_then(mean_of),
            density: mean(&|run| run.totals().mean_density()),
            bytes_per_step: mean(&|run| {
                run.traffic().busiest_bytes as f64 / run.totals().steps.max(1) as f64
            }),
            mean_bytes_per_step: mean(&|run| {
                run.traffic().mean_bytes / run.totals().steps.max(1) as f64
            }),
            bytes_to_dense: mean(&|run| {
                run.traffic().busiest_bytes as f64 / run.totals().bytes_dense.max(1) as f64
            }),
            speedup: None,
            link_exchange_ms: mean(&|run| 1e3 * link.exchange_seconds(run)),
            link_speedup: None,
            skipped: runs.iter().map(|run| run.totals().skipped).sum(),
            identical: runs.iter().all(|run| run.identical),
            link_step: mean(&|run| link.step_seconds(run)),
        }
    }

    /// How many times faster than `dense` this is.
    pub(crate) fn compare(&mut self, dense: &Self) {
        self.speedup = Some(dense.seconds / self.seconds);
        self.link_speedup = Some(dense.link_step / self.link_step);
    }

    fn spread(&self) -> String {
        let low = self
            .accuracies
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min);
        let high = self
            .accuracies
            .iter()
            .copied()
            .fold(f64::NEG_INFINITY, f64::max);
        match self.accuracies.len() {
            0 | 1 => String::new(),
            _ => format!(" ({:.2}..{:.2})", 100.0 * low, 100.0 * high),
        }
    }
}

fn mean_of(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    (!values.is_empty()).then(|| sum / values.len() as f64)
}

/// The names of the columns, for that network.
pub(crate) fn headings(link: Link) -> Vec<String> {
    let names = [
        "method",
        "test acc %",
        "test loss",
        "time s",
        "to target s",
        "density",
        "sent/step",
        "% of dense",
        "speed-up here",
    ];
    let on_link = [
        format!("exchange ms at {} Gbit/s", link.gbits),
        format!("speed-up at {} Gbit/s", link.gbits),
        "identical".to_owned(),
    ];
    names
        .map(str::to_owned)
        .into_iter()
        .chain(on_link)
        .collect()
}

/// The columns of a row.
pub(crate) fn cells(row: &Row) -> Vec<String> {
    let maybe = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let accuracy = maybe(row.accuracy.map(|accuracy| 100.0 * accuracy), 2);
    vec![
        row.method.clone(),
        accuracy + &row.spread(),
        maybe(row.test_loss, 4),
        format!("{:.1}", row.seconds),
        maybe(row.seconds_to_target, 1),
        format!("{:.4}", row.density),
        bytes(row.bytes_per_step),
        format!("{:.2}", 100.0 * row.bytes_to_dense),
        maybe(row.speedup, 2),
        format!("{:.2}", row.link_exchange_ms),
        maybe(row.link_speedup, 2),
        if row.identical { "yes" } else { "NO" }.to_owned(),
    ]
}

/// All rows as text.
pub(crate) fn text(rows: &[Row], link: Link) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(headings(link));
    for row in rows {
        table.add_row(cells(row));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let text = table.to_string();
    let bare = |line| str::trim_end(str::strip_prefix(line, " ").unwrap_or(line));
    let lines: Vec<&str> = text.lines().map(bare).collect();
    lines.join("\n") + "\n"
}
