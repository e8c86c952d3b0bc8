//! A page of the results: key figures, the table, charts with the chosen network first, what was asked for, where it was run.

use std::fs;
use std::path::Path;

use anyhow::Context;
use spardl_chart::{Chart, Page, Series, Table, Tile};
use spardl_train::record::{EpochRecord, Summary};

use super::link::Link;
use super::table::{self, Row};
use super::watch::{Point, bytes};
use crate::output::arguments;
use crate::screen::grouped;
use crate::stamp;

/// All that a page shows.
pub(crate) struct Report<'a> {
    pub(crate) title: &'a str,
    /// One curve each.
    pub(crate) methods: Vec<Method<'a>>,
    pub(crate) rows: &'a [Row],
    pub(crate) link: Link,
    /// Options that are not what they are by default.
    pub(crate) settings: Vec<(String, String)>,
    /// Shown after the table of results.
    pub(crate) more_tables: Vec<Table>,
    /// Shown after the charts on the chosen network.
    pub(crate) more_charts: Vec<Chart>,
}

/// A method with its runs, one for each seed.
pub(crate) struct Method<'a> {
    pub(crate) name: &'a str,
    pub(crate) runs: Vec<Run<'a>>,
}

/// One run.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) summary: &'a Summary,
    pub(crate) curve: &'a [Point],
}

impl Report<'_> {
    /// Writes `report.html` into `dir`: one file that needs no other.
    pub(crate) fn save(self, dir: &Path) -> anyhow::Result<()> {
        let path = dir.join("report.html");
        fs::write(&path, self.page().to_string())
            .with_context(|| format!("writing {}", path.display()))
    }

    fn page(self) -> Page {
        let results = Table {
            title: "Results".to_owned(),
            columns: table::headings(self.link),
            rows: self.rows.iter().map(table::cells).collect(),
            is_text: false,
        };
        let pair = |(name, value): &(String, String)| vec![name.clone(), value.clone()];
        let settings = Table {
            title: "Configuration, where it is not the default".to_owned(),
            columns: vec!["option".to_owned(), "value".to_owned()],
            rows: self.settings.iter().map(pair).collect(),
            is_text: true,
        };
        let charts = charts(&self.methods, self.link, self.more_charts.clone());
        Page {
            title: self.title.to_owned(),
            subtitle: format!("spardl {}", arguments().join(" ")),
            tiles: tiles(&self),
            tables: [vec![results.without_dashes()], self.more_tables].concat(),
            charts,
            appendix: vec![settings],
            stamp: stamps(self.link),
            ..Page::default()
        }
    }
}

/// With what, where and when; and what the words mean.
fn stamps(link: Link) -> Vec<String> {
    vec![
        format!("spardl {}; {} UTC", stamp::version(), stamp::date()),
        stamp::machine(),
        format!(
            "Times at {link} a message are worked out: what rank 0 computed here, and the messages and bytes of the worker that \
             has the most, one after the other. Sent: by the worker that sends the most. Density: the part of the gradient's \
             entries that an update has. Bands go from the lowest to the highest seed."
        ),
    ]
}

/// The figures that matter, of the row that a reader came for.
fn tiles(report: &Report<'_>) -> Vec<Tile> {
    let Some((row, dense)) = table::headline(report.rows) else {
        return Vec::new();
    };
    let tile = |name: &str, value: String, note: String| Tile {
        name: name.to_owned(),
        value,
        note,
    };
    let beside = |value: Option<String>| value.map_or_else(String::new, |v| format!("dense {v}"));
    let (name, value, other) = match (row.perplexity, row.accuracy) {
        (Some(perplexity), _) => {
            let other = dense.and_then(|dense| dense.perplexity);
            let show = |value: f64| format!("{value:.2}");
            ("test perplexity", show(perplexity), other.map(show))
        }
        (None, accuracy) => {
            let other = dense.and_then(|dense| dense.accuracy);
            let show = |value: f64| format!("{:.2} %", 100.0 * value);
            let value = accuracy.map_or_else(|| "-".to_owned(), show);
            ("test accuracy", value, other.map(show))
        }
    };
    let faster = row.link_speedup.filter(|_| dense.is_some());
    let step = match (faster, dense) {
        (Some(times), Some(dense)) => {
            format!("{times:.2}x as fast as dense, {}", dense.link_step())
        }
        _ => "worked out, not measured".to_owned(),
    };
    let runs = report.methods.iter().flat_map(|method| &method.runs);
    let summary = runs.map(|run| run.summary).next();
    let (workers, parameters) = summary.map_or((0, 0), |s| (s.workers, s.parameters as u64));
    let identical = report.rows.iter().all(|row| row.identical);
    vec![
        tile(&format!("{name}, {}", row.method), value, beside(other)),
        tile(
            "sent per worker and step",
            bytes(row.bytes_per_step),
            format!("{:.2} % of dense", 100.0 * row.bytes_to_dense),
        ),
        tile(
            &format!("a step at {} Gbit/s", report.link.gbits),
            row.link_step(),
            step,
        ),
        tile(
            "replicas",
            if identical { "identical" } else { "differ" }.to_owned(),
            format!(
                "{workers} workers, {} parameters, compared bit for bit",
                grouped(parameters)
            ),
        ),
    ]
}

/// What is on an x axis, for a run and the number of one of its epochs.
type OfEpoch<'a> = &'a dyn Fn(&Summary, usize) -> f64;

/// The charts, those of the chosen network first, then `more`.
fn charts(methods: &[Method<'_>], link: Link, more: Vec<Chart>) -> Vec<Chart> {
    let at = format!("{} Gbit/s", link.gbits);
    let predicted = format!("seconds at {link} a message, worked out");
    let here = "seconds of training here";
    let quality = |title: &str, x: &str, of: OfEpoch<'_>| quality(methods, (title, x), of);
    let loss =
        |title: &str, x: &str, of: &dyn Fn(Run<'_>) -> Vec<f64>| losses(methods, (title, x), of);
    let on_link = vec![
        quality(
            &format!("against time at {at}"),
            &predicted,
            &|run, epoch| run.epochs[..=epoch].iter().map(|e| link.seconds(e)).sum(),
        ),
        loss(&format!("Loss against time at {at}"), &predicted, &|run| {
            link_times(run, link)
        }),
    ];
    let others = vec![
        quality(
            "against bytes",
            "megabytes sent by the busiest worker",
            &|run, epoch| {
                let sent = run.epochs[..=epoch].iter().map(|e| e.traffic.busiest_bytes);
                sent.sum::<u64>() as f64 / 1e6
            },
        ),
        loss("Loss against step", "step", &|run| {
            run.curve.iter().map(|point| point.step as f64).collect()
        }),
        quality("against time here", here, &|run, epoch| {
            run.epochs[epoch].seconds
        }),
        loss("Loss against time here", here, &|run| {
            run.curve.iter().map(|point| point.seconds).collect()
        }),
    ];
    let mut charts = [on_link, more, others].concat();
    // A single test is a point and no curve: the curves come first then.
    let curves = |chart: &Chart| chart.series.iter().any(|series| series.points.len() > 1);
    charts.sort_by_key(|chart| !curves(chart));
    charts
}

/// The accuracy, or the perplexity of language models, where it was tested.
fn quality(methods: &[Method<'_>], (title, x_label): (&str, &str), x: OfEpoch<'_>) -> Chart {
    let runs = methods.iter().flat_map(|method| &method.runs);
    let of_language = runs.clone().any(|run| run.summary.perplexity().is_some());
    let y = |epoch: &EpochRecord| match of_language {
        true => epoch.test_perplexity,
        false => epoch.test_accuracy.map(|accuracy| 100.0 * accuracy),
    };
    let curve = |run: &Run<'_>| -> Vec<(f64, f64)> {
        let epochs = run.summary.epochs.iter().enumerate();
        epochs
            .filter_map(|(i, epoch)| Some((x(run.summary, i), y(epoch)?)))
            .collect()
    };
    let (name, y_label) = match of_language {
        true => ("Perplexity", "test perplexity"),
        false => ("Accuracy", "test accuracy, %"),
    };
    Chart {
        title: format!("{name} {title}"),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        log_x: x_label.contains("megabytes"),
        log_y: of_language,
        smooth: false,
        series: series(methods, curve),
        ..Chart::default()
    }
}

/// The training loss of every step.
fn losses(
    methods: &[Method<'_>],
    (title, x_label): (&str, &str),
    x: &dyn Fn(Run<'_>) -> Vec<f64>,
) -> Chart {
    let curve = |run: &Run<'_>| -> Vec<(f64, f64)> {
        let points = run.curve.iter().map(|point| point.loss);
        x(*run).into_iter().zip(points).collect()
    };
    Chart {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: "training loss of rank 0".to_owned(),
        log_x: false,
        log_y: true,
        smooth: true,
        series: series(methods, curve),
        ..Chart::default()
    }
}

/// A curve of each method: the mean of its runs.
fn series(methods: &[Method<'_>], curve: impl Fn(&Run<'_>) -> Vec<(f64, f64)>) -> Vec<Series> {
    let mean = |method: &Method<'_>| {
        let curves: Vec<_> = method.runs.iter().map(&curve).collect();
        Series::mean(method.name, &curves)
    };
    methods.iter().map(mean).collect()
}

/// When each step of the curve would be done on that network: its own work, and the exchange of a step of its epoch.
fn link_times(run: Run<'_>, link: Link) -> Vec<f64> {
    let first = run.curve.first().map_or(0, |point| point.step);
    let (before, mut epochs): (Vec<_>, Vec<_>) = run
        .summary
        .epochs
        .iter()
        .partition(|epoch| epoch.step < first);
    epochs.reverse();
    let mut time: f64 = before.into_iter().map(|epoch| link.seconds(epoch)).sum();
    let mut times = Vec::with_capacity(run.curve.len());
    for point in run.curve {
        while epochs.len() > 1 && epochs.last().is_some_and(|e| e.step < point.step) {
            epochs.pop();
        }
        let exchange = epochs.last().map_or(0.0, |epoch| {
            link.transfer_seconds(&epoch.traffic) / epoch.totals.steps.max(1) as f64
        });
        time += point.local + exchange;
        times.push(time);
    }
    times
}

#[cfg(test)]
mod tests {
    use spardl_train::record::{Totals, Traffic};

    use super::*;

    fn epoch(number: u32, accuracy: f64) -> EpochRecord {
        EpochRecord {
            epoch: number,
            step: u64::from(number) * 10,
            test_accuracy: Some(accuracy),
            test_loss: Some(0.5),
            totals: Totals {
                steps: 10,
                compute: 1.0,
                bytes_dense: 1_000_000,
                ..Totals::default()
            },
            traffic: Traffic {
                busiest_bytes: 10_000,
                path_messages: 20,
                path_bytes: 125_000,
                ..Traffic::default()
            },
            ..EpochRecord::default()
        }
    }

    fn run(accuracy: f64) -> (Summary, Vec<Point>) {
        let summary = Summary {
            workers: 4,
            parameters: 61_706,
            identical: true,
            epochs: vec![epoch(1, accuracy / 2.0), epoch(2, accuracy)],
            ..Summary::default()
        };
        let point = |step| Point {
            step,
            seconds: step as f64,
            local: 0.1,
            loss: 1.0 / step as f64,
        };
        (summary, (1..=20).map(point).collect())
    }

    fn page(seeds: &[(Summary, Vec<Point>)]) -> String {
        let link = Link::default();
        let summaries: Vec<&Summary> = seeds.iter().map(|(summary, _)| summary).collect();
        let mut rows = ["dense", "spardl"].map(|name| Row::new(name, &summaries, link, None));
        let dense = rows[0].clone();
        rows.iter_mut().for_each(|row| row.compare(&dense));
        let method = |name| Method {
            name,
            runs: seeds
                .iter()
                .map(|(summary, curve)| Run { summary, curve })
                .collect(),
        };
        let report = Report {
            title: "spardl compare",
            methods: vec![method("dense"), method("spardl")],
            rows: &rows,
            link,
            settings: vec![("lr".to_owned(), "0.5".to_owned())],
            more_tables: Vec::new(),
            more_charts: Vec::new(),
        };
        report.page().to_string()
    }

    #[test]
    fn the_chosen_network_comes_first_and_seeds_are_a_band() {
        let one = page(&[run(0.9)]);
        let (_, first) = one.split_once("<figcaption>").expect("a chart");
        assert!(first.starts_with("Accuracy against time at 1 Gbit/s"));
        assert_eq!(one.matches("class=\"band\"").count(), 0);
        for word in ["spardl 0.", "1.00 % of dense", "61,706 parameters", "UTC"] {
            assert!(one.contains(word), "{word}");
        }
        let two = page(&[run(0.9), run(0.7)]);
        // Two methods in each of the six charts.
        assert_eq!(two.matches("class=\"band\"").count(), 12);
        assert!(two.contains("80.00 (70.00..90.00)"));
    }

    #[test]
    fn the_curve_of_steps_ends_when_its_epochs_do() {
        let (summary, curve) = run(0.9);
        let link = Link::default();
        let both = Run {
            summary: &summary,
            curve: &curve,
        };
        let times = link_times(both, link);
        let epochs: f64 = summary.epochs.iter().map(|e| link.seconds(e)).sum();
        // 1 s of compute, 20 messages of 50 us and 1 Mbit at 1 Gbit/s: 1.002 s an epoch.
        assert!((epochs - 2.004).abs() < 1e-9, "{epochs}");
        assert!((times[19] - epochs).abs() < 1e-9, "{times:?}");
        // A curve that begins with the second epoch begins when the first one is done.
        let late = Run {
            summary: &summary,
            curve: &curve[10..],
        };
        let difference = link_times(late, link)[9] - epochs;
        assert!(difference.abs() < 1e-9, "{difference}");
    }
}
