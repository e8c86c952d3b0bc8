//! A learning rate and a momentum for every method on its own, chosen on a held-out part of the training set.
//!
//! Methods differ in the rate that suits them. With one rate for all, a table says as much about the rate as about the methods;
//! with rates chosen on the test set, it says too much. So every method runs over the same grid on a part of the training set,
//! is scored on the rest of it, and only then is run with what did best, on the whole training set and the test set.

use serde::Serialize;
use spardl_train::record::Summary;

use super::super::config::Config;
use super::super::training_run::TrainingRun;
use super::super::watch::Console;
use super::is_own;
use super::variant::Variant;
use crate::job::Job;
use crate::output::{bad_request, say};

/// What to choose from.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Grid {
    /// Learning rates to choose from, for each method on its own, on a held-out part of the training set.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LR,..",
        help_heading = "Choice"
    )]
    tune_lr: Vec<f64>,
    /// Momenta to choose from, in the same way.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "M,..",
        help_heading = "Choice"
    )]
    tune_momentum: Vec<f64>,
    /// Epochs of a run that only decides [default: --max-epochs].
    #[arg(long, value_name = "N", help_heading = "Choice", value_parser = clap::value_parser!(u32).range(1..))]
    tune_epochs: Option<u32>,
    /// The part of the training samples that decides.
    #[arg(
        long,
        value_name = "X",
        help_heading = "Choice",
        default_value_t = HELD_OUT
    )]
    held_out: f64,
}

const HELD_OUT: f64 = 0.1;

/// The seed of the samples that are held out: the same ones whatever else changes.
const SPLIT_SEED: u64 = 0x4845_4c44;

/// What was chosen for a method, and from what.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Choice {
    pub(crate) lr: f64,
    pub(crate) momentum: f64,
    /// All that was tried, in the order of the grid.
    pub(crate) tried: Vec<Tried>,
}

/// A point of the grid and how it did on the samples that were held out; nothing when the run ended in NaN.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tried {
    pub(crate) lr: f64,
    pub(crate) momentum: f64,
    pub(crate) held_out_accuracy: Option<f64>,
    pub(crate) held_out_loss: Option<f64>,
}

impl Default for Grid {
    fn default() -> Self {
        Self {
            tune_lr: Vec::new(),
            tune_momentum: Vec::new(),
            tune_epochs: None,
            held_out: HELD_OUT,
        }
    }
}

impl Grid {
    /// Is there anything to choose?
    pub(super) fn is_asked_for(&self) -> bool {
        !self.tune_lr.is_empty() || !self.tune_momentum.is_empty()
    }

    /// Refuses a grid that cannot be.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if !self.is_asked_for() && (self.tune_epochs.is_some() || self.held_out != HELD_OUT) {
            return Err(bad_request(
                "--tune-epochs and --held-out belong to a choice: give --tune-lr or --tune-momentum too",
            ));
        }
        if !(self.held_out > 0.0 && self.held_out < 1.0) {
            return Err(bad_request(format!(
                "--held-out {} is not a part of the training samples: a tenth is 0.1",
                self.held_out
            )));
        }
        let twice = |values: &[f64]| super::repeated(values).copied();
        for (flag, values) in [
            ("--tune-lr", &self.tune_lr),
            ("--tune-momentum", &self.tune_momentum),
        ] {
            if let Some(twice) = twice(values) {
                return Err(bad_request(format!("{flag} names {twice} twice")));
            }
        }
        Ok(())
    }

    /// What all ranks of a job must agree on.
    pub(super) fn claim(&self) -> String {
        format!(
            "lr {:?} momentum {:?} epochs {:?} held out {}",
            self.tune_lr, self.tune_momentum, self.tune_epochs, self.held_out
        )
    }

    /// The configurations that a method is tried with; all are checked before the first one runs.
    fn points(&self, of: &Config) -> Vec<Config> {
        let or = |values: &[f64], own: f64| match values {
            [] => vec![own],
            values => values.to_vec(),
        };
        let mut points = Vec::new();
        for &lr in &or(&self.tune_lr, of.lr) {
            for &momentum in &or(&self.tune_momentum, of.momentum) {
                points.push(Config {
                    lr,
                    momentum,
                    max_epochs: self.tune_epochs.unwrap_or(of.max_epochs),
                    // Only how a run ends counts.
                    eval_every: 0,
                    ..of.clone()
                });
            }
        }
        points
    }

    /// Runs every variant over the grid. All ranks of a job see the same scores, and so choose alike.
    pub(super) fn choose(
        &self,
        variants: &[Variant],
        base: &Config,
        first: &TrainingRun,
        mut job: Option<&mut Job>,
    ) -> anyhow::Result<Vec<Choice>> {
        let prints = job.as_ref().is_none_or(|job| job.prints());
        let first = first.hold_out(self.held_out, SPLIT_SEED)?;
        let runs = |variant: &Variant| -> anyhow::Result<Vec<TrainingRun>> {
            let points = self.points(&variant.config(base, base.seed));
            points.into_iter().map(|point| first.again(point)).collect()
        };
        let runs: Vec<_> = variants.iter().map(runs).collect::<Result<_, _>>()?;
        let mut choices = Vec::new();
        for (variant, runs) in variants.iter().zip(&runs) {
            let mut tried = Vec::new();
            for run in runs {
                tried.push(attempt(variant, run, job.as_deref_mut())?);
            }
            let choice = Choice::of(tried).ok_or_else(|| {
                anyhow::anyhow!("{}: every point of the grid ended in NaN", variant.label)
            })?;
            if prints {
                say(&choice.sentence(&variant.label, &self.tune_lr));
            }
            choices.push(choice);
        }
        Ok(choices)
    }
}

/// One point of the grid.
fn attempt(variant: &Variant, run: &TrainingRun, job: Option<&mut Job>) -> anyhow::Result<Tried> {
    let Config { lr, momentum, .. } = run.config;
    let label = format!("{} lr {lr} momentum {momentum}", variant.label);
    let prints = job.as_ref().is_none_or(|job| job.prints());
    let ended = match run.train(job, &mut Console::new(&label, None)) {
        Ok(summary) => {
            super::super::stop::concluded(&summary, &run.config, prints)?;
            Some(summary)
        }
        Err(error) if is_own(&error) => None,
        Err(error) => return Err(error),
    };
    let last = ended.as_ref().and_then(|summary| summary.epochs.last());
    Ok(Tried {
        lr,
        momentum,
        held_out_accuracy: ended.as_ref().and_then(Summary::accuracy),
        held_out_loss: last.and_then(|epoch| epoch.test_loss),
    })
}

impl Choice {
    /// The point with the best accuracy; of several, the one with the least loss, then the first.
    fn of(tried: Vec<Tried>) -> Option<Self> {
        let score = |point: &Tried| Some((point.held_out_accuracy?, -point.held_out_loss?));
        let mut best: Option<(&Tried, (f64, f64))> = None;
        for point in &tried {
            if let Some(score) = score(point).filter(|score| score.1.is_finite())
                && best.is_none_or(|(_, least)| score > least)
            {
                best = Some((point, score));
            }
        }
        let (lr, momentum) = best.map(|(point, _)| (point.lr, point.momentum))?;
        Some(Self {
            lr,
            momentum,
            tried,
        })
    }

    /// What was chosen; a rate at the edge of the grid may not be the best there is.
    fn sentence(&self, label: &str, rates: &[f64]) -> String {
        let is_chosen = |point: &&Tried| point.lr == self.lr && point.momentum == self.momentum;
        let chosen = self.tried.iter().find(is_chosen);
        let accuracy = chosen.and_then(|point| point.held_out_accuracy);
        let mut text = format!(
            "{label}  chosen of {}: lr {}, momentum {} ({:.2} % of what was held out)",
            self.tried.len(),
            self.lr,
            self.momentum,
            100.0 * accuracy.unwrap_or(f64::NAN),
        );
        let is_edge = |edge: Option<f64>| edge == Some(self.lr);
        let (least, most) = (
            rates.iter().copied().reduce(f64::min),
            rates.iter().copied().reduce(f64::max),
        );
        if rates.len() > 1 && (is_edge(least) || is_edge(most)) {
            text += "; that rate is at the edge of --tune-lr: a wider grid may do better";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(lr: f64, accuracy: Option<f64>, loss: Option<f64>) -> Tried {
        Tried {
            lr,
            momentum: 0.9,
            held_out_accuracy: accuracy,
            held_out_loss: loss,
        }
    }

    #[test]
    fn the_best_accuracy_is_chosen_then_the_least_loss_then_the_first() {
        let chosen = |points: &[Tried]| Choice::of(points.to_vec()).map(|choice| choice.lr);
        let some = |lr, accuracy, loss| tried(lr, Some(accuracy), Some(loss));
        assert_eq!(
            chosen(&[some(1.0, 0.5, 0.9), some(2.0, 0.6, 2.0)]),
            Some(2.0)
        );
        assert_eq!(
            chosen(&[some(1.0, 0.5, 0.9), some(2.0, 0.5, 0.8)]),
            Some(2.0)
        );
        assert_eq!(
            chosen(&[some(1.0, 0.5, 0.9), some(2.0, 0.5, 0.9)]),
            Some(1.0)
        );
        // What ended in NaN is never chosen, also when nothing else is there.
        assert_eq!(
            chosen(&[tried(1.0, None, None), some(2.0, 0.1, 5.0)]),
            Some(2.0)
        );
        assert_eq!(chosen(&[some(1.0, 0.9, f64::NAN)]), None);
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn a_rate_at_the_edge_of_the_grid_is_pointed_out() {
        let points = vec![
            tried(0.1, Some(0.5), Some(1.0)),
            tried(0.3, Some(0.7), Some(1.0)),
            tried(1.0, Some(0.6), Some(1.0)),
        ];
        let choice = Choice::of(points).expect("three");
        assert_eq!(
            choice.sentence("spardl", &[0.1, 0.3, 1.0]),
            "spardl  chosen of 3: lr 0.3, momentum 0.9 (70.00 % of what was held out)"
        );
        assert!(choice.sentence("spardl", &[0.1, 0.3]).contains("edge"));
    }
}
