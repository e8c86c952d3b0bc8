//! A page of charts: loss against step and against time, accuracy against time and bytes.

use std::fs;
use std::path::Path;

use anyhow::Context;
use spardl_train::chart::{Chart, Page, Series, Table};
use spardl_train::record::{EpochRecord, Summary};

use super::config::Config;
use super::link::Link;
use super::table::{self, Row};
use super::watch::Point;

/// One curve of the charts.
pub(crate) struct Run<'a> {
    pub(crate) name: String,
    pub(crate) summary: &'a Summary,
    pub(crate) curve: &'a [Point],
}

/// Writes `report.html` into `dir`: one file that needs no other.
pub(crate) fn save(
    dir: &Path,
    title: &str,
    config: &str,
    runs: &[Run<'_>],
    rows: &[Row],
    link: Link,
) -> anyhow::Result<()> {
    let command = crate::output::arguments();
    let results = Table {
        title: "Results".to_owned(),
        columns: table::headings(link),
        rows: rows.iter().map(table::cells).collect(),
    };
    let usual = Config::default().to_toml()?;
    let special = config
        .lines()
        .filter(|line| !usual.lines().any(|other| other == *line));
    let pairs = special.filter_map(|line| line.split_once(" = "));
    let settings = Table {
        title: "Configuration, where it is not the default".to_owned(),
        columns: vec!["option".to_owned(), "value".to_owned()],
        rows: pairs
            .map(|(name, value)| vec![name.to_owned(), value.to_owned()])
            .collect(),
    };
    let page = Page {
        title: title.to_owned(),
        subtitle: format!("spardl {}", command.join(" ")),
        tables: vec![results, settings],
        charts: charts(runs),
    };
    let path = dir.join("report.html");
    fs::write(&path, page.to_string()).with_context(|| format!("writing {}", path.display()))
}

fn charts(runs: &[Run<'_>]) -> Vec<Chart> {
    let of_steps = |x: fn(&Point) -> f64| -> Vec<Series> {
        let curve = |run: &Run<'_>| -> Vec<(f64, f64)> {
            run.curve
                .iter()
                .map(|point| (x(point), point.loss))
                .collect()
        };
        runs.iter()
            .map(|run| Series::new(run.name.as_str(), curve(run)))
            .collect()
    };
    let loss = |title: &str, x_label: &str, series| Chart {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: "training loss of rank 0".to_owned(),
        log_x: false,
        log_y: true,
        smooth: true,
        series,
    };
    let accuracy = |title: &str, x_label: &str, x: &dyn Fn(&Summary, usize) -> f64| Chart {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: "test accuracy".to_owned(),
        log_x: x_label.contains("megabytes"),
        log_y: false,
        smooth: false,
        series: runs.iter().map(|run| accuracies(run, x)).collect(),
    };
    vec![
        loss(
            "Loss against step",
            "step",
            of_steps(|point| point.step as f64),
        ),
        loss(
            "Loss against time",
            "seconds of training here",
            of_steps(|point| point.seconds),
        ),
        accuracy(
            "Accuracy against time",
            "seconds of training here",
            &|run, epoch| run.epochs[epoch].seconds,
        ),
        accuracy(
            "Accuracy against bytes",
            "megabytes sent by the busiest worker",
            &|run, epoch| {
                let sent = run.epochs[..=epoch].iter().map(|e| e.traffic.busiest_bytes);
                sent.sum::<u64>() as f64 / 1e6
            },
        ),
    ]
}

fn accuracies(run: &Run<'_>, x: &dyn Fn(&Summary, usize) -> f64) -> Series {
    let tested =
        |(i, epoch): (usize, &EpochRecord)| Some((x(run.summary, i), epoch.test_accuracy?));
    let points: Vec<(f64, f64)> = run
        .summary
        .epochs
        .iter()
        .enumerate()
        .filter_map(tested)
        .collect();
    Series::new(run.name.as_str(), points)
}
