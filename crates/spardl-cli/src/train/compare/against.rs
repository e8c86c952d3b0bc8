//! What a method is worth against dense: differences over the same seeds, and accuracies where all had done as many steps, sent
//! as many bytes, or taken as long on a network.
//!
//! Example: over seeds 1, 2, 3 dense ends at 65, 66, 67 % and a method at 64, 66, 66 %. Their differences are -1, 0, -1: the mean
//! is -0.67 points with a standard error of 0.33. The spread of either one alone (1 point) would hide it.

use serde::Serialize;
use spardl_train::record::{EpochRecord, Summary};

use super::super::link::Link;

/// The networks that a reader asks for, in Gbit/s.
pub(crate) const GBITS: [f64; 3] = [1.0, 10.0, 25.0];

/// The parts of dense's accuracy that a method is timed to.
pub(crate) const PARTS: [f64; 3] = [0.90, 0.95, 0.99];

/// One run of a method: its seed and what it did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeded<'a> {
    pub(super) seed: u64,
    pub(super) summary: &'a Summary,
}

/// A mean of differences between runs of the same seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Paired {
    pub(crate) mean: f64,
    /// `None` for a single pair.
    pub(crate) standard_error: Option<f64>,
    pub(crate) pairs: usize,
}

/// A method beside the best of the dense ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Against {
    /// The dense method that did best.
    pub(crate) baseline: String,
    /// Accuracy minus that of the baseline after all steps, over the seeds that both have; not of the baseline itself.
    pub(crate) at_equal_steps: Option<Paired>,
    /// The mean accuracy when the busiest worker had sent what the most sparing method sent in all.
    pub(crate) accuracy_at_equal_bytes: Option<f64>,
    /// The mean accuracy at the predicted moment at which the fastest method had done all its steps: at 1, 10 and 25 Gbit/s.
    pub(crate) accuracy_at_equal_time: [Option<f64>; GBITS.len()],
    /// Predicted seconds until 90, 95 and 99 % of the baseline's accuracy, at 1, 10 and 25 Gbit/s; `None` where a seed did not
    /// get there.
    #[serde(rename = "time_to_s")]
    pub(crate) seconds_to: [[Option<f64>; PARTS.len()]; GBITS.len()],
    /// What times are held against: [`FAST_DENSE`] where it was run, else the baseline.
    pub(crate) fast_dense: String,
    /// The predicted milliseconds of a step, at 1, 10 and 25 Gbit/s.
    pub(crate) step_ms: [f64; GBITS.len()],
    /// How many times as fast a step is as one of `fast_dense`, in the same way.
    pub(crate) times_as_fast: [f64; GBITS.len()],
}

/// Half the bytes of dense at no cost in accuracy that anyone has found: what a method has to beat in time.
const FAST_DENSE: &str = "dense-bf16";

/// The runs of every method against the best dense one, in the same order; nothing without a dense method that was tested.
pub(super) fn against_dense(methods: &[(&str, Vec<Seeded<'_>>)], link: Link) -> Vec<Against> {
    let is_dense = |(label, _): &&(&str, Vec<Seeded<'_>>)| label.starts_with("dense");
    let mut baseline: Option<(&str, &[Seeded<'_>], f64)> = None;
    for (label, runs) in methods.iter().filter(is_dense) {
        if let Some(accuracy) = mean(runs.iter().map(|run| run.summary.accuracy()))
            && baseline.is_none_or(|(_, _, best)| accuracy > best)
        {
            baseline = Some((label, runs, accuracy));
        }
    }
    let Some((name, dense, accuracy)) = baseline else {
        return Vec::new();
    };
    let networks = GBITS.map(|gbits| Link { gbits, ..link });
    let summaries = || methods.iter().flat_map(|(_, runs)| runs);
    let least = |measure: &dyn Fn(&EpochRecord) -> f64| {
        let whole = |run: &Seeded<'_>| run.summary.epochs.iter().map(measure).sum::<f64>();
        summaries().map(whole).fold(f64::INFINITY, f64::min)
    };
    let bytes = least(&sent);
    let times = networks.map(|network| least(&|epoch| network.seconds(epoch)));
    let fast = methods.iter().find(|(label, _)| *label == FAST_DENSE);
    let (fast_dense, fastest) = fast.map_or((name, dense), |(label, runs)| (*label, runs));
    let fastest = step_ms(fastest, networks);
    let describe = |(label, runs): &(&str, Vec<Seeded<'_>>)| Against {
        baseline: name.to_owned(),
        fast_dense: fast_dense.to_owned(),
        step_ms: step_ms(runs, networks),
        times_as_fast: std::array::from_fn(|i| fastest[i] / step_ms(runs, networks)[i]),
        at_equal_steps: paired(runs, dense).filter(|_| *label != name),
        accuracy_at_equal_bytes: mean(runs.iter().map(|run| by(run.summary, bytes, &sent))),
        accuracy_at_equal_time: std::array::from_fn(|i| {
            let seconds = |epoch: &EpochRecord| networks[i].seconds(epoch);
            mean(runs.iter().map(|run| by(run.summary, times[i], &seconds)))
        }),
        seconds_to: networks.map(|network| {
            let to = |part: f64| {
                let runs = runs.iter().map(|run| run.summary);
                mean(runs.map(|run| seconds_to(run, part * accuracy, network)))
            };
            PARTS.map(to)
        }),
    };
    methods.iter().map(describe).collect()
}

/// The predicted milliseconds of a step, the mean over runs.
fn step_ms(runs: &[Seeded<'_>], networks: [Link; GBITS.len()]) -> [f64; GBITS.len()] {
    networks.map(|network| {
        let steps = runs.iter().map(|run| network.step_seconds(run.summary));
        1e3 * steps.sum::<f64>() / runs.len().max(1) as f64
    })
}

/// Bytes of the busiest worker.
fn sent(epoch: &EpochRecord) -> f64 {
    epoch.traffic.busiest_bytes as f64
}

/// The mean of all values; `None` when one is missing.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Differences of the last accuracies, seed by seed.
fn paired(mine: &[Seeded<'_>], theirs: &[Seeded<'_>]) -> Option<Paired> {
    let differences: Vec<f64> = mine
        .iter()
        .filter_map(|run| {
            let twin = theirs.iter().find(|other| other.seed == run.seed)?;
            Some(run.summary.accuracy()? - twin.summary.accuracy()?)
        })
        .collect();
    let pairs = differences.len();
    let mean = differences.iter().sum::<f64>() / pairs as f64;
    let squares: f64 = differences.iter().map(|d| (d - mean) * (d - mean)).sum();
    (pairs > 0).then(|| Paired {
        mean,
        standard_error: (pairs > 1).then(|| (squares / (pairs - 1) as f64 / pairs as f64).sqrt()),
        pairs,
    })
}

/// The accuracy of the last test before more than `budget` of a measure had been spent; a hair more counts as none.
fn by(run: &Summary, budget: f64, measure: &dyn Fn(&EpochRecord) -> f64) -> Option<f64> {
    let mut spent = 0.0;
    let mut accuracy = None;
    for epoch in &run.epochs {
        spent += measure(epoch);
        if spent > budget * (1.0 + 1e-9) {
            break;
        }
        accuracy = epoch.test_accuracy.or(accuracy);
    }
    accuracy
}

/// Predicted seconds until the test accuracy was first at least `accuracy`.
fn seconds_to(run: &Summary, accuracy: f64, network: Link) -> Option<f64> {
    let mut seconds = 0.0;
    for epoch in &run.epochs {
        seconds += network.seconds(epoch);
        if epoch.test_accuracy.is_some_and(|a| a >= accuracy) {
            return Some(seconds);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use spardl_train::record::{Totals, Traffic};

    use super::*;

    /// Epochs of these accuracies, each of so many bytes in one message and a second of computing.
    fn run(accuracies: &[f64], bytes: u64) -> Summary {
        let epoch = |(i, &accuracy): (usize, &f64)| EpochRecord {
            epoch: i as u32 + 1,
            test_accuracy: Some(accuracy),
            totals: Totals {
                steps: 1,
                compute: 1.0,
                ..Totals::default()
            },
            traffic: Traffic {
                busiest_bytes: bytes,
                mean_bytes: bytes as f64,
                path_messages: 1,
                path_bytes: bytes,
            },
            ..EpochRecord::default()
        };
        Summary {
            epochs: accuracies.iter().enumerate().map(epoch).collect(),
            ..Summary::default()
        }
    }

    fn link() -> Link {
        Link {
            latency_us: 0.0,
            ..Link::default()
        }
    }

    fn seeded(runs: &[Summary]) -> Vec<Seeded<'_>> {
        let seeds = (1..).zip(runs);
        seeds
            .map(|(seed, summary)| Seeded { seed, summary })
            .collect()
    }

    #[test]
    fn differences_are_taken_seed_by_seed() {
        let dense = [0.65, 0.66, 0.67].map(|last| run(&[last], 100));
        let mine = [0.64, 0.66, 0.66].map(|last| run(&[last], 1));
        let (mut mine, dense) = (seeded(&mine), seeded(&dense));
        // In another order, and with a seed that only one of them has.
        mine.reverse();
        let extra = run(&[0.99], 1);
        mine.push(Seeded {
            seed: 9,
            summary: &extra,
        });
        let paired = paired(&mine, &dense).expect("three pairs");
        assert_eq!(paired.pairs, 3);
        assert_eq!(paired.to_string(), "-0.67 ± 0.33");
        let one = super::paired(&mine[..1], &dense).expect("one pair");
        assert_eq!(one.to_string(), "-1.00");
        assert_eq!(super::paired(&mine[3..], &dense), None);
    }

    #[test]
    fn the_better_dense_is_what_others_are_held_against() {
        let (f32, bf16, mine) = (run(&[0.6], 100), run(&[0.7], 50), run(&[0.65], 1));
        let methods = [
            ("dense", seeded(std::slice::from_ref(&f32))),
            ("dense-bf16", seeded(std::slice::from_ref(&bf16))),
            ("spardl", seeded(std::slice::from_ref(&mine))),
        ];
        let rows = against_dense(&methods, link());
        assert!(rows.iter().all(|row| row.baseline == "dense-bf16"));
        let points = |row: &Against| row.at_equal_steps.expect("a pair").to_string();
        assert_eq!(points(&rows[0]), "-10.00");
        assert_eq!(rows[1].at_equal_steps, None, "it is the baseline");
        assert_eq!(points(&rows[2]), "-5.00");
        assert!(against_dense(&methods[2..], link()).is_empty());
    }

    #[test]
    fn times_are_held_against_dense_in_bf16_where_it_was_run() {
        // At 1 Gbit/s a step takes 1 + 1, 1 + 0.5 and 1 + 0.008 s; half of the second of computing hides messages.
        let (f32, bf16) = (run(&[0.7], 125_000_000), run(&[0.6], 62_500_000));
        let mine = run(&[0.65], 1_000_000);
        let methods = [
            ("dense", seeded(std::slice::from_ref(&f32))),
            ("dense-bf16", seeded(std::slice::from_ref(&bf16))),
            ("spardl", seeded(std::slice::from_ref(&mine))),
        ];
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} and {b}");
        let rows = against_dense(&methods, link());
        assert!(rows.iter().all(|row| row.fast_dense == "dense-bf16"));
        assert!(rows.iter().all(|row| row.baseline == "dense"));
        near(rows[0].times_as_fast[0], 0.75);
        near(rows[1].times_as_fast[0], 1.0);
        near(rows[2].times_as_fast[0], 1.5 / 1.008);
        let hides = Link {
            overlap: 0.5,
            ..link()
        };
        let rows = against_dense(&methods, hides);
        near(rows[0].step_ms[0], 1500.0);
        near(rows[1].step_ms[0], 1000.0);
        near(rows[2].times_as_fast[0], 1.0);
        let without = [methods[0].clone(), methods[2].clone()];
        let rows = against_dense(&without, hides);
        assert_eq!(rows[1].fast_dense, "dense");
        near(rows[1].times_as_fast[0], 1.5);
    }

    #[test]
    fn equal_bytes_and_equal_time_look_at_the_last_test_within_the_budget() {
        // At 1 Gbit/s an epoch of dense takes 1 + 1 s, one of the other 1 + 0.008 s.
        let dense = run(&[0.5, 0.8, 0.9, 0.95], 125_000_000);
        let mine = run(&[0.4, 0.7, 0.85, 0.9], 1_000_000);
        let methods = [
            ("dense", seeded(std::slice::from_ref(&dense))),
            ("spardl", seeded(std::slice::from_ref(&mine))),
        ];
        let rows = against_dense(
            &methods,
            Link {
                overlap: 0.0,
                ..link()
            },
        );
        // The sparing one sent 4 MB in all: dense was not done with its first epoch by then.
        assert_eq!(rows[0].accuracy_at_equal_bytes, None);
        assert_eq!(rows[1].accuracy_at_equal_bytes, Some(0.9));
        // It was done after 4.032 s: dense had done two epochs.
        assert_eq!(rows[0].accuracy_at_equal_time[0], Some(0.8));
        assert_eq!(rows[1].accuracy_at_equal_time[0], Some(0.9));
        // At 25 Gbit/s dense takes 1.04 s an epoch.
        assert_eq!(rows[0].accuracy_at_equal_time[2], Some(0.9));
        let to_90 = |row: &Against| row.seconds_to[0][0].expect("reached");
        assert!((to_90(&rows[0]) - 6.0).abs() < 1e-9, "0.855 by 0.9");
        assert!((to_90(&rows[1]) - 4.032).abs() < 1e-9, "0.855 by 0.9");
        assert_eq!(rows[1].seconds_to[0][2], None, "0.9405 is never reached");
        // What hides behind the backward pass costs nothing.
        let hidden = against_dense(
            &methods,
            Link {
                overlap: 1.0,
                ..link()
            },
        );
        assert_eq!(hidden[0].accuracy_at_equal_time[0], Some(0.95));
    }
}
