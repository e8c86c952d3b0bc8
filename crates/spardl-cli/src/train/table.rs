//! The end of a run as a table.

use serde::Serialize;
use spardl_train::record::Summary;

use super::compare::{Against, Choice};
use super::link::Link;
use super::watch::bytes;
use crate::screen::Sheet;

/// One method, over all seeds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) method: String,
    pub(crate) seeds: usize,
    /// Test accuracies, one per seed.
    pub(crate) accuracies: Vec<f64>,
    pub(crate) accuracy: Option<f64>,
    pub(crate) test_loss: Option<f64>,
    /// Of language models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) perplexity: Option<f64>,
    #[serde(rename = "elapsed_s")]
    pub(crate) seconds: f64,
    /// The mean over seeds; `None` when a seed did not get there.
    #[serde(rename = "time_to_target_s")]
    pub(crate) seconds_to_target: Option<f64>,
    pub(crate) density: f64,
    /// Of the worker that sent the most.
    pub(crate) bytes_per_step: f64,
    /// The mean over workers.
    pub(crate) mean_bytes_per_step: f64,
    pub(crate) bytes_to_dense: f64,
    pub(crate) speedup: Option<f64>,
    pub(crate) link_gbits: f64,
    pub(crate) link_latency_us: f64,
    pub(crate) link_exchange_ms: f64,
    pub(crate) link_step_ms: f64,
    pub(crate) link_speedup: Option<f64>,
    pub(crate) skipped: u64,
    pub(crate) identical: bool,
    /// Learning rate and momentum, where they were chosen on held-out samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) choice: Option<Choice>,
    /// Beside the best dense method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) against_dense: Option<Against>,
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
            perplexity: mean_of(
                &runs
                    .iter()
                    .filter_map(|run| run.perplexity())
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
            link_gbits: link.gbits,
            link_latency_us: link.latency_us,
            link_exchange_ms: mean(&|run| 1e3 * link.exchange_seconds(run)),
            link_step_ms: mean(&|run| 1e3 * link.step_seconds(run)),
            link_speedup: None,
            skipped: runs.iter().map(|run| run.totals().skipped).sum(),
            identical: runs.iter().all(|run| run.identical),
            choice: None,
            against_dense: None,
        }
    }

    /// How many times faster than `dense` this is.
    pub(crate) fn compare(&mut self, dense: &Self) {
        self.speedup = Some(dense.seconds / self.seconds);
        self.link_speedup = Some(dense.link_step_ms / self.link_step_ms);
    }

    /// A step on the network, in words.
    pub(crate) fn link_step(&self) -> String {
        format!("{:.2} ms", self.link_step_ms)
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

/// The row that a reader came for, and dense where there is another: the sparse method whose step is the shortest on the network.
pub(crate) fn headline(rows: &[Row]) -> Option<(&Row, Option<&Row>)> {
    let sparse = rows.iter().filter(|row| !row.method.starts_with("dense"));
    let fastest = sparse.min_by(|a, b| a.link_step_ms.total_cmp(&b.link_step_ms));
    let row = fastest.or_else(|| rows.first())?;
    let dense = rows.iter().find(|row| row.method == "dense");
    Some((row, dense.filter(|dense| dense.method != row.method)))
}

/// One sentence with the two numbers that matter: what is sent, and how long a step takes on the network.
pub(crate) fn closing(rows: &[Row], link: Link) -> String {
    let Some((row, dense)) = headline(rows) else {
        return String::new();
    };
    let part = match row.method.as_str() {
        "dense" => String::new(),
        _ => format!(", {:.2} % of what dense sends", 100.0 * row.bytes_to_dense),
    };
    let compared = dense.map_or_else(String::new, |dense| {
        let times = dense.link_step_ms / row.link_step_ms;
        format!(
            "; dense would take {}, {times:.1}x as long",
            dense.link_step()
        )
    });
    format!(
        "{} sent {} per worker and step{part}, and at {link} a message a step would take {}{compared}.",
        row.method,
        bytes(row.bytes_per_step),
        row.link_step(),
    )
}

/// The names of the columns, for that network.
pub(crate) fn headings(link: Link) -> Vec<String> {
    let names = [
        "method",
        "test acc %",
        "test loss",
        "perplexity",
        "time s",
        "to target s",
        "density",
        "sent/step",
        "% of dense",
        "speed-up here",
    ];
    let on_link = [
        format!("exchange ms at {}\u{a0}Gbit/s", link.gbits),
        format!("step ms at {}\u{a0}Gbit/s", link.gbits),
        format!("speed-up at {}\u{a0}Gbit/s", link.gbits),
        "same bits".to_owned(),
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
        maybe(row.perplexity, 2),
        format!("{:.1}", row.seconds),
        maybe(row.seconds_to_target, 1),
        format!("{:.4}", row.density),
        bytes(row.bytes_per_step),
        format!("{:.2}", 100.0 * row.bytes_to_dense),
        maybe(row.speedup, 2),
        format!("{:.2}", row.link_exchange_ms),
        format!("{:.2}", row.link_step_ms),
        maybe(row.link_speedup, 2),
        if row.identical { "yes" } else { "NO" }.to_owned(),
    ]
}

/// All rows as text for a terminal of so many columns.
pub(crate) fn text(rows: &[Row], link: Link, width: Option<usize>) -> String {
    Sheet::new(headings(link), rows.iter().map(cells)).text(width)
}

#[cfg(test)]
mod tests {
    use spardl_train::record::{EpochRecord, Totals, Traffic};

    use super::*;

    fn summary(bytes: u64) -> Summary {
        Summary {
            epochs: vec![EpochRecord {
                test_accuracy: Some(0.9531),
                test_loss: Some(0.1),
                seconds: 3.0,
                totals: Totals {
                    steps: 10,
                    compute: 0.02,
                    bytes_dense: 1_000_000,
                    ..Totals::default()
                },
                traffic: Traffic {
                    busiest_bytes: bytes,
                    path_messages: 40,
                    path_bytes: bytes,
                    ..Traffic::default()
                },
                ..EpochRecord::default()
            }],
            identical: true,
            ..Summary::default()
        }
    }

    fn rows() -> Vec<Row> {
        let (dense, sparse) = (summary(1_000_000), summary(12_500));
        let row = |name: &str, run: &Summary| Row::new(name, &[run], Link::default(), None);
        let dense = row("dense", &dense);
        let mut rows = vec![dense.clone(), row("spardl", &sparse)];
        rows.iter_mut().for_each(|row| row.compare(&dense));
        rows
    }

    #[test]
    fn the_last_sentence_has_bytes_and_the_time_of_a_step() {
        let link = Link::default();
        // 2 ms of compute, 4 messages of 50 us, 100 kB or 1.25 kB at 1 Gbit/s.
        assert_eq!(
            closing(&rows(), link),
            "spardl sent 1.25 kB per worker and step, 1.25 % of what dense sends, and at 1 Gbit/s and 50 us a message a step would \
             take 2.21 ms; dense would take 3.00 ms, 1.4x as long."
        );
        assert_eq!(
            closing(&rows()[..1], link),
            "dense sent 100.00 kB per worker and step, and at 1 Gbit/s and 50 us a message a step would take 3.00 ms."
        );
        assert_eq!(closing(&[], link), "");
    }

    #[test]
    fn the_table_fits_terminals_and_shows_nothing_that_is_not_known() {
        for width in [80, 100, 120] {
            let text = text(&rows(), Link::default(), Some(width));
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(width), "{width}:\n{text}");
            for (word, shown) in [("perplexity", false), ("target", false), ("95.31", true)] {
                assert_eq!(text.contains(word), shown, "{word}:\n{text}");
            }
        }
    }
}
