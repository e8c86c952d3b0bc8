//! The training loop over threads, with a model small enough to be checked by hand.

mod by_time;
mod checkpoints;
mod chosen;
mod laws;
mod softmax;

use std::time::Duration;

use std::sync::Arc;

use spardl::{Algorithm, Budget, Density, OnNonFinite, Options, Transport, registry, run_workers};
use spardl_train::checkpoint::Checkpoints;
use spardl_train::events::EventsError;
use spardl_train::optimiser;
use spardl_train::record::{EpochRecord, Start, StepRecord, Summary, Watch};
use spardl_train::schedule::{DensitySchedule, LearningRate};
use spardl_train::{Data, Run, Settings, TrainError, data, train};

use softmax::Softmax;

/// Few samples of the generated images: 20 steps of 4 workers in an epoch.
fn images() -> Data {
    let request = data::Request {
        seed: 5,
        train_samples: Some(320),
        ..data::Request::default()
    };
    data::open("synthetic", &request).expect("needs no files")
}

fn settings() -> Settings {
    Settings {
        batch_size: 4,
        epochs: 1,
        max_steps: Some(10),
        seed: 3,
        learning_rate: LearningRate::constant(0.05),
        density: constant(0.02),
        exchange_budget: Budget::default(),
        dense_epochs: 0.0,
        dense_below_dims: 0,
        optimiser: optimiser::Options {
            momentum: 0.9,
            weight_decay: 1e-4,
            ..optimiser::Options::default()
        },
        bucket_elements: 1 << 20,
        eval_every: 0,
        verify: true,
        on_non_finite: OnNonFinite::Raise,
        threads: 1,
        timeout: Duration::from_secs(60),
        checkpoints: None,
    }
}

fn constant(density: f64) -> DensitySchedule {
    DensitySchedule::constant(Density::new(density).expect("a density"))
}

fn named(method: &str) -> Arc<dyn Algorithm> {
    let method = registry::build(method, &Options::default());
    method.expect("a method").into()
}

fn saving(dir: &std::path::Path, resume: bool) -> Option<Checkpoints> {
    Some(Checkpoints {
        dir: dir.to_owned(),
        every: Some(5),
        keep: 2,
        resume,
        config: "test".to_owned(),
        lock: None,
    })
}

/// What rank 0 heard.
#[derive(Clone, Debug, Default)]
struct Heard {
    steps: Vec<StepRecord>,
    epochs: Vec<EpochRecord>,
    notes: Vec<String>,
}

impl Watch for Heard {
    fn begin(&mut self, _: &Start<'_>) -> Result<(), EventsError> {
        Ok(())
    }

    fn step(&mut self, record: &StepRecord) -> Result<(), EventsError> {
        self.steps.push(record.clone());
        Ok(())
    }

    fn epoch(&mut self, record: &EpochRecord) -> Result<(), EventsError> {
        self.epochs.push(record.clone());
        Ok(())
    }

    fn note(&mut self, line: &str) {
        self.notes.push(line.to_owned());
    }
}

/// One worker's end of a run.
struct Ended {
    summary: Result<Summary, TrainError>,
    parameters: Vec<f32>,
    heard: Heard,
}

fn train_all(workers: u32, method: &str, settings: &Settings, data: &Data) -> Vec<Ended> {
    train_models(workers, method, settings, data, |_| {})
}

/// Trains with each worker's model changed by `change` before.
fn train_models(
    workers: u32,
    method: &str,
    settings: &Settings,
    data: &Data,
    change: impl Fn(&mut Softmax) + Sync,
) -> Vec<Ended> {
    let run = Run {
        settings,
        method: named(method).into(),
        data,
    };
    train_run(workers, &run, change)
}

fn train_run(workers: u32, run: &Run<'_>, change: impl Fn(&mut Softmax) + Sync) -> Vec<Ended> {
    run_workers(workers, |transport| {
        let rank = transport.world().rank().get();
        let mut model = Softmax::new(&run.data.task, rank);
        change(&mut model);
        let mut heard = Heard::default();
        let summary = train(run, &mut model, transport, &mut heard);
        Ended {
            summary,
            parameters: model.weights().to_vec(),
            heard,
        }
    })
    .expect("no panic")
}
