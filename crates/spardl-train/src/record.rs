//! What is known of a run: per step, per epoch, at the end.

use serde::{Deserialize, Deserializer, Serialize};

use crate::events::EventsError;

/// One step, as rank 0 saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Steps done, this one included.
    pub step: u64,
    /// The position in epochs.
    pub epoch: f64,
    /// Samples of all workers.
    pub samples: u64,
    /// The mean loss of rank 0's batch.
    #[serde(deserialize_with = "or_nan")]
    pub loss: f64,
    /// The learning rate.
    pub lr: f64,
    /// The density asked for; 1 during the warm-up.
    pub density_target: f64,
    /// The density of the update.
    pub density: f64,
    /// Bytes that rank 0 sent.
    pub bytes_sent: u64,
    /// Bytes that a dense all-reduce would have sent.
    pub bytes_dense: u64,
    /// Rounds.
    pub rounds: u32,
    /// Messages of rank 0 one after the other: of every round those sent or those received, whichever are more.
    #[serde(default)]
    pub path_messages: u64,
    /// Its bytes, counted in the same way.
    #[serde(default)]
    pub path_bytes: u64,
    /// Time of the forward and backward pass.
    pub compute_ms: f64,
    /// Time of the pass over the gradient and the selection.
    pub select_ms: f64,
    /// Time of decoding, adding and encoding.
    pub merge_ms: f64,
    /// Time in which rank 0 only waited for messages: in threads that share cores this is mostly the others' compute time.
    pub wait_ms: f64,
    /// Time of the optimiser and of handing parameters to the engine.
    pub apply_ms: f64,
    /// Why the step was dropped on all workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

/// JSON has no word for NaN and infinities: they are written as `null`.
fn or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// One epoch of all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Epochs done, this one included.
    pub epoch: u32,
    /// Steps done.
    pub step: u64,
    /// The mean loss over the samples of the epoch, before each step.
    #[serde(deserialize_with = "or_nan")]
    pub train_loss: f64,
    /// The accuracy over the same samples.
    #[serde(deserialize_with = "or_nan")]
    pub train_accuracy: f64,
    /// The mean loss on the test set.
    pub test_loss: Option<f64>,
    /// The accuracy on the test set.
    pub test_accuracy: Option<f64>,
    /// Of a language model, the perplexity on the test set: e to the power of its loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_perplexity: Option<f64>,
    /// Seconds of training since the start, without evaluation and checkpoints.
    #[serde(rename = "elapsed_s", alias = "seconds")]
    pub seconds: f64,
    /// Samples of all workers per second in this epoch.
    #[serde(deserialize_with = "or_nan")]
    pub samples_per_second: f64,
    /// Sums over the steps of the epoch, on rank 0.
    pub totals: Totals,
    /// What all workers sent.
    #[serde(default)]
    pub traffic: Traffic,
    /// Have all workers the same parameters, bit for bit?
    pub identical: bool,
    /// Where time decides the density: the last look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_time: Option<ByTime>,
}

/// A look at what exchanges took, the same on all workers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ByTime {
    /// What they took, the median of some steps.
    pub exchange_ms: f64,
    /// What they may take.
    pub budget_ms: f64,
    /// The density from then on.
    pub density: f64,
}

/// What all workers sent in some steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes that the worker sent that sent the most.
    pub busiest_bytes: u64,
    /// Bytes that a worker sent, the mean over all.
    pub mean_bytes: f64,
    /// Messages one after the other (see [`StepRecord::path_messages`]), of the worker that had the most.
    pub path_messages: u64,
    /// Bytes one after the other, of the worker that had the most.
    pub path_bytes: u64,
}

impl Traffic {
    /// Of what each worker counted.
    pub fn over(workers: &[Totals]) -> Self {
        let most = |count: fn(&Totals) -> u64| workers.iter().map(count).max().unwrap_or(0);
        let sent: u64 = workers.iter().map(|totals| totals.bytes_sent).sum();
        Self {
            busiest_bytes: most(|totals| totals.bytes_sent),
            mean_bytes: sent as f64 / workers.len().max(1) as f64,
            path_messages: most(|totals| totals.path_messages),
            path_bytes: most(|totals| totals.path_bytes),
        }
    }
}

impl std::ops::AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.busiest_bytes += other.busiest_bytes;
        self.mean_bytes += other.mean_bytes;
        self.path_messages += other.path_messages;
        self.path_bytes += other.path_bytes;
    }
}

/// Sums over steps, on rank 0. In JSON a name that ends with `_s` is in seconds, as one with `_ms` is in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Steps.
    pub steps: u64,
    /// Samples of all workers.
    pub samples: u64,
    /// Steps that were dropped.
    pub skipped: u64,
    /// The sum of the densities of the updates.
    #[serde(rename = "density_sum", alias = "density")]
    pub density: f64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes that a dense all-reduce would have sent.
    pub bytes_dense: u64,
    /// Rounds.
    pub rounds: u64,
    /// Messages one after the other: see [`StepRecord::path_messages`].
    #[serde(default)]
    pub path_messages: u64,
    /// Bytes one after the other.
    #[serde(default)]
    pub path_bytes: u64,
    /// Seconds of forward and backward passes.
    #[serde(rename = "compute_s", alias = "compute")]
    pub compute: f64,
    /// Seconds of selection.
    #[serde(rename = "select_s", alias = "select")]
    pub select: f64,
    /// Seconds of decoding, adding, encoding.
    #[serde(rename = "merge_s", alias = "merge")]
    pub merge: f64,
    /// Seconds of waiting.
    #[serde(rename = "wait_s", alias = "wait")]
    pub wait: f64,
    /// Seconds of the optimiser.
    #[serde(rename = "apply_s", alias = "apply")]
    pub apply: f64,
}

impl Totals {
    /// Adds a step.
    pub fn add(&mut self, step: &StepRecord) {
        self.steps += 1;
        self.samples += step.samples;
        self.skipped += u64::from(step.skipped.is_some());
        self.density += step.density;
        self.bytes_sent += step.bytes_sent;
        self.bytes_dense += step.bytes_dense;
        self.rounds += u64::from(step.rounds);
        self.path_messages += step.path_messages;
        self.path_bytes += step.path_bytes;
        self.compute += step.compute_ms / 1e3;
        self.select += step.select_ms / 1e3;
        self.merge += step.merge_ms / 1e3;
        self.wait += step.wait_ms / 1e3;
        self.apply += step.apply_ms / 1e3;
    }

    /// The mean density of the updates.
    pub fn mean_density(&self) -> f64 {
        self.density / self.steps.max(1) as f64
    }
}

impl std::ops::AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.steps += other.steps;
        self.samples += other.samples;
        self.skipped += other.skipped;
        self.density += other.density;
        self.bytes_sent += other.bytes_sent;
        self.bytes_dense += other.bytes_dense;
        self.rounds += other.rounds;
        self.path_messages += other.path_messages;
        self.path_bytes += other.path_bytes;
        self.compute += other.compute;
        self.select += other.select;
        self.merge += other.merge;
        self.wait += other.wait;
        self.apply += other.apply;
    }
}

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The method.
    pub method: String,
    /// Workers.
    pub workers: u32,
    /// Parameters of the model.
    pub parameters: usize,
    /// One record per epoch, also of those before a resume.
    pub epochs: Vec<EpochRecord>,
    /// Had all workers the same parameters, bit for bit, whenever that was looked at?
    pub identical: bool,
    /// A hash of the parameters at the end.
    pub hash: String,
    /// The step after which the run was stopped from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<u64>,
}

impl Summary {
    /// The last accuracy on the test set.
    pub fn accuracy(&self) -> Option<f64> {
        self.epochs
            .iter()
            .rev()
            .find_map(|epoch| epoch.test_accuracy)
    }

    /// The last perplexity on the test set, of a language model.
    pub fn perplexity(&self) -> Option<f64> {
        let mut epochs = self.epochs.iter().rev();
        epochs.find_map(|epoch| epoch.test_perplexity)
    }

    /// Sums over all epochs.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.epochs.iter().for_each(|epoch| totals += epoch.totals);
        totals
    }

    /// What all workers sent.
    pub fn traffic(&self) -> Traffic {
        let mut traffic = Traffic::default();
        let epochs = self.epochs.iter();
        epochs.for_each(|epoch| traffic += epoch.traffic);
        traffic
    }

    /// Seconds of training.
    pub fn seconds(&self) -> f64 {
        self.epochs.last().map_or(0.0, |epoch| epoch.seconds)
    }

    /// Seconds of training until the test accuracy was first at least `accuracy`.
    pub fn seconds_to(&self, accuracy: f64) -> Option<f64> {
        let reached = |epoch: &&EpochRecord| epoch.test_accuracy.is_some_and(|a| a >= accuracy);
        self.epochs.iter().find(reached).map(|epoch| epoch.seconds)
    }
}

/// Where a run begins or goes on.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Epochs of the whole run.
    pub epochs: u32,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Steps done before.
    pub done: u64,
    /// Seconds of training before.
    pub seconds: f64,
    /// The epochs done before.
    pub past: &'a [EpochRecord],
}

/// Someone who watches a run, on rank 0.
pub trait Watch {
    /// A run begins, or goes on.
    ///
    /// # Errors
    /// When it cannot be written down; the run ends then.
    fn begin(&mut self, start: &Start<'_>) -> Result<(), EventsError>;

    /// A step is done.
    ///
    /// # Errors
    /// As [`Watch::begin`].
    fn step(&mut self, record: &StepRecord) -> Result<(), EventsError>;

    /// An epoch is done.
    ///
    /// # Errors
    /// As [`Watch::begin`].
    fn epoch(&mut self, record: &EpochRecord) -> Result<(), EventsError>;

    /// Something worth a line happened.
    fn note(&mut self, line: &str);
}

/// Nobody watches.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn begin(&mut self, _start: &Start<'_>) -> Result<(), EventsError> {
        Ok(())
    }

    fn step(&mut self, _record: &StepRecord) -> Result<(), EventsError> {
        Ok(())
    }

    fn epoch(&mut self, _record: &EpochRecord) -> Result<(), EventsError> {
        Ok(())
    }

    fn note(&mut self, _line: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_worker_is_told_from_the_mean() {
        let worker = |bytes_sent, path_messages, path_bytes| Totals {
            bytes_sent,
            path_messages,
            path_bytes,
            ..Totals::default()
        };
        let traffic = Traffic::over(&[worker(10, 6, 40), worker(30, 2, 30)]);
        let expected = Traffic {
            busiest_bytes: 30,
            mean_bytes: 20.0,
            path_messages: 6,
            path_bytes: 40,
        };
        assert_eq!(traffic, expected);
    }

    #[test]
    fn totals_are_read_as_earlier_versions_wrote_them() {
        let totals = Totals {
            compute: 1.5,
            density: 0.25,
            ..Totals::default()
        };
        let text = serde_json::to_string(&totals).expect("JSON");
        assert!(text.contains("\"compute_s\":1.5") && text.contains("\"density_sum\":0.25"));
        let mut before = text;
        for name in ["compute", "select", "merge", "wait", "apply"] {
            before = before.replace(&format!("{name}_s"), name);
        }
        let before = before.replace("density_sum", "density");
        assert_eq!(
            serde_json::from_str::<Totals>(&before).expect("read"),
            totals
        );
    }

    #[test]
    fn an_epoch_whose_steps_were_all_dropped_comes_back() {
        let record = EpochRecord {
            epoch: 3,
            train_loss: f64::NAN,
            train_accuracy: f64::NAN,
            ..EpochRecord::default()
        };
        let text = serde_json::to_string(&record).expect("JSON");
        let back: EpochRecord = serde_json::from_str(&text).expect("the same");
        assert!(back.epoch == 3 && back.train_loss.is_nan() && back.train_accuracy.is_nan());
    }
}
