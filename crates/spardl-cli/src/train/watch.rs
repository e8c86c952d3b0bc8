//! What a person sees of a run, and what is written down.

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spardl_train::events::{EventsError, JsonLines, TensorBoard};
use spardl_train::record::{EpochRecord, Start, StepRecord, Totals, Watch};

use super::results::STEPS;
use crate::screen::{items, stderr_width, wrapped};

/// A bar on stderr while an epoch runs, a line after it; and the files in --out.
pub(crate) struct Console {
    bar: ProgressBar,
    label: String,
    place: String,
    epochs: u32,
    /// Of training, at the last step of the curve.
    seconds: f64,
    curve: Vec<Point>,
    out: Option<Out>,
}

/// One step of a loss curve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) step: u64,
    /// Of training.
    pub(crate) seconds: f64,
    /// Seconds of this step in which the worker did not wait for others.
    pub(crate) local: f64,
    pub(crate) loss: f64,
}

/// The files of a run.
struct Out {
    dir: std::path::PathBuf,
    writers: Option<Writers>,
}

struct Writers {
    steps: JsonLines,
    epochs: JsonLines,
    board: TensorBoard,
}

impl Console {
    /// Watches a run called `label` and writes into `out`.
    pub(crate) fn new(label: &str, out: Option<&Path>) -> Self {
        let style =
            ProgressStyle::with_template("{prefix} {bar:16} {pos}/{len}  {eta} left  {wide_msg}");
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr())
            .with_style(style.expect("a valid template"));
        Self {
            bar,
            label: label.to_owned(),
            place: String::new(),
            epochs: 0,
            seconds: 0.0,
            curve: Vec::new(),
            out: out.map(|dir| Out {
                dir: dir.to_owned(),
                writers: None,
            }),
        }
    }

    /// Shown before the bar: which of several runs this is.
    pub(crate) fn at(mut self, place: &str) -> Self {
        place.clone_into(&mut self.place);
        self
    }

    /// The loss of every step.
    pub(crate) fn into_curve(mut self) -> Vec<Point> {
        std::mem::take(&mut self.curve)
    }

    /// Adds a step to the curve.
    fn draw(&mut self, record: &StepRecord) {
        self.seconds += seconds(record);
        self.curve.push(Point {
            step: record.step,
            seconds: self.seconds,
            local: local_seconds(record),
            loss: record.loss,
        });
    }

    /// A line that stays, on stderr.
    pub(crate) fn say(&self, line: &str) {
        let print = || crate::output::say(line);
        self.bar.suspend(print);
    }
}

impl Watch for Console {
    fn begin(&mut self, start: &Start<'_>) -> Result<(), EventsError> {
        self.epochs = start.epochs;
        let steps = u64::from(start.epochs) * start.steps_per_epoch;
        self.bar.set_length(steps);
        self.bar.set_position(start.done);
        // Steps of an earlier part of the run say nothing about the speed of this one.
        self.bar.reset_eta();
        let prefix = format!("{} {}", self.place, self.label);
        self.bar.set_prefix(prefix.trim_start().to_owned());
        if !self.bar.is_hidden() {
            self.bar.enable_steady_tick(Duration::from_millis(250));
        }
        let before = match &mut self.out {
            Some(out) => out.open(start)?,
            None => Vec::new(),
        };
        let took: f64 = before.iter().map(seconds).sum();
        self.seconds = (start.seconds - took).max(0.0);
        before.iter().for_each(|record| self.draw(record));
        Ok(())
    }

    fn step(&mut self, record: &StepRecord) -> Result<(), EventsError> {
        self.bar.set_position(record.step);
        self.draw(record);
        self.bar.set_message(format!(
            "epoch {:.1}  loss {:.4}  lr {:.4}  density {:.4}",
            record.epoch, record.loss, record.lr, record.density
        ));
        match self.out.as_mut().and_then(|out| out.writers.as_mut()) {
            Some(writers) => writers.step(record),
            None => Ok(()),
        }
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<(), EventsError> {
        let parts = parts(&self.label, record, self.epochs);
        self.say(&items(&parts, stderr_width(), INDENT));
        match self.out.as_mut().and_then(|out| out.writers.as_mut()) {
            Some(writers) => writers.epoch(record),
            None => Ok(()),
        }
    }

    fn note(&mut self, line: &str) {
        let text = format!("{}  {line}", self.label);
        let width = stderr_width().unwrap_or(usize::MAX);
        self.say(&wrapped(&text, width).join("\n"));
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Out {
    /// Opens the files, and gives the steps that an earlier part of the run wrote down. Only these are kept as they are: an epoch
    /// at whose end a checkpoint was made is closed again, and TensorBoard takes nothing back.
    fn open(&mut self, start: &Start<'_>) -> Result<Vec<StepRecord>, EventsError> {
        let steps = self.dir.join(STEPS);
        let (steps, before) = match start.done {
            0 => (JsonLines::create(steps)?, Vec::new()),
            done => JsonLines::resume(steps, done)?,
        };
        let mut writers = Writers {
            steps,
            epochs: JsonLines::create(self.dir.join("epochs.jsonl"))?,
            board: TensorBoard::create(&self.dir)?,
        };
        before.iter().try_for_each(|record| writers.show(record))?;
        start
            .past
            .iter()
            .try_for_each(|record| writers.epoch(record))?;
        self.writers = Some(writers);
        Ok(before)
    }
}

impl Writers {
    fn step(&mut self, record: &StepRecord) -> Result<(), EventsError> {
        self.steps.append(record)?;
        self.show(record)
    }

    /// Tells TensorBoard of a step.
    fn show(&mut self, record: &StepRecord) -> Result<(), EventsError> {
        let scalars = [
            ("train/loss", record.loss),
            ("train/lr", record.lr),
            ("reduce/density", record.density),
            ("reduce/bytes_sent", record.bytes_sent as f64),
            ("time/compute_ms", record.compute_ms),
            ("time/select_ms", record.select_ms),
            ("time/merge_ms", record.merge_ms),
            ("time/wait_ms", record.wait_ms),
        ];
        for (tag, value) in scalars {
            self.board.scalar(tag, record.step, value as f32)?;
        }
        Ok(())
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<(), EventsError> {
        self.epochs.append(record)?;
        let scalars = [
            ("train/epoch_loss", Some(record.train_loss)),
            ("train/accuracy", Some(record.train_accuracy)),
            ("test/loss", record.test_loss),
            ("test/accuracy", record.test_accuracy),
        ];
        for (tag, value) in scalars {
            if let Some(value) = value {
                self.board.scalar(tag, record.step, value as f32)?;
            }
        }
        self.board.flush()
    }
}

/// What a step took.
fn seconds(record: &StepRecord) -> f64 {
    local_seconds(record) + record.wait_ms / 1e3
}

/// What a step took without waiting for others.
fn local_seconds(record: &StepRecord) -> f64 {
    (record.compute_ms + record.select_ms + record.merge_ms + record.apply_ms) / 1e3
}

/// Of an epoch's second line.
const INDENT: usize = 4;

/// What there is to say of an epoch, the most important first.
fn parts(label: &str, record: &EpochRecord, epochs: u32) -> Vec<String> {
    let totals = &record.totals;
    let test = match (record.test_loss, record.test_accuracy) {
        (Some(loss), Some(accuracy)) => {
            format!("test loss {loss:.4} acc {:.2} %", accuracy * 100.0)
        }
        _ => String::new(),
    };
    let perplexity = record.test_perplexity;
    vec![
        label.to_owned(),
        format!(
            "epoch {:>1$}/{epochs}",
            record.epoch,
            epochs.to_string().len()
        ),
        format!(
            "loss {:.4} acc {:.2} %",
            record.train_loss,
            record.train_accuracy * 100.0
        ),
        test,
        perplexity.map_or_else(String::new, |value| format!("perplexity {value:.2}")),
        format!("{:.0} samples/s", record.samples_per_second),
        split(totals),
        format!(
            "sent {} ({:.2} %)",
            bytes(record.traffic.busiest_bytes as f64),
            100.0 * record.traffic.busiest_bytes as f64 / totals.bytes_dense.max(1) as f64
        ),
        record.by_time.map_or_else(String::new, |look| {
            format!(
                "exchange {:.1} of {:.1} ms, density from now {:.4}",
                look.exchange_ms, look.budget_ms, look.density
            )
        }),
        match totals.skipped {
            0 => String::new(),
            skipped => format!("{skipped} steps skipped"),
        },
    ]
}

/// Where rank 0's time went.
fn split(totals: &Totals) -> String {
    let select = totals.select + totals.merge;
    let all = totals.compute + select + totals.wait + totals.apply;
    let percent = |part: f64| 100.0 * part / all.max(f64::MIN_POSITIVE);
    format!(
        "compute/select/exchange {:.0}/{:.0}/{:.0} %",
        percent(totals.compute),
        percent(select),
        percent(totals.wait)
    )
}

/// For people.
pub(crate) fn bytes(bytes: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.iter().find(|(size, _)| bytes >= *size);
    unit.map_or_else(
        || format!("{bytes:.0} B"),
        |(size, name)| format!("{:.2} {name}", bytes / size),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_one_line_or_two_that_fit() {
        let record = EpochRecord {
            epoch: 7,
            train_loss: 0.5,
            train_accuracy: 0.8125,
            test_loss: Some(0.25),
            test_accuracy: Some(0.9),
            samples_per_second: 1234.5,
            ..EpochRecord::default()
        };
        let parts = parts("spardl-bf16 seed 1", &record, 10);
        let wide = items(&parts, None, INDENT);
        assert_eq!(wide.lines().count(), 1, "{wide}");
        assert!(
            !wide.contains("perplexity") && !wide.contains("skipped"),
            "{wide}"
        );
        for width in [80, 120] {
            let narrow = items(&parts, Some(width), INDENT);
            let longest = narrow.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(width), "{width}: {narrow}");
            assert!(narrow.lines().count() <= 3, "{width}: {narrow}");
            let first = narrow.lines().next().unwrap_or_default();
            assert!(
                first.contains("epoch  7/10") && first.contains("loss 0.5000"),
                "{narrow}"
            );
        }
    }
}
