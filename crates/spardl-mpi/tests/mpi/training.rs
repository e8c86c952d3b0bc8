//! The training loop over MPI has the loss curve and the parameters that it has over threads, bit for bit.

use std::sync::Arc;
use std::time::Duration;

use spardl::{Algorithm, Budget, OnNonFinite, Options, Transport, registry, run_workers};
use spardl_mpi::Mpi;
use spardl_train::events::EventsError;
use spardl_train::optimiser;
use spardl_train::record::{EpochRecord, Start, StepRecord, Summary, Unwatched, Watch};
use spardl_train::schedule::LearningRate;
use spardl_train::{Data, Run, Settings, TrainError, data, train};

use crate::launch::{Job, Link};
use crate::softmax::Softmax;

pub(crate) fn jobs() -> Vec<Job> {
    let job = |ranks| {
        let name = format!("training, {ranks} ranks, SharedMemory");
        Job::ranks(name, ranks, "training", Link::SharedMemory)
    };
    [2, 4].map(job).into()
}

pub(crate) fn rank() {
    let mpi = Mpi::init().unwrap();
    let request = data::Request {
        train_samples: Some(320),
        ..data::Request::default()
    };
    let data = data::open("synthetic", &request).expect("needs no files");
    for method in ["spardl", "ok-topk", "exdyna-bf16", "dense"] {
        let transport = mpi.transport().unwrap();
        let world = transport.world();
        let over_mpi = losses(method, transport, &data);
        if world.rank().get() == 0 {
            let over_threads = run_workers(world.size(), |t| losses(method, t, &data)).unwrap();
            assert!(
                over_mpi.0.len() == 15 && over_mpi == over_threads[0],
                "{method}"
            );
            println!("{method}");
        }
    }
    // A loss of NaN on one rank ends the run on all of them, and all know whose it was.
    let transport = mpi.transport().unwrap();
    let mut model = Softmax::new(&data.task, transport.world().rank().get());
    model.breaks = Some((1, 4));
    let ended = run("spardl", transport, &data, &mut model, &mut Unwatched);
    let error = ended.expect_err("stopped").to_string();
    assert!(
        error.starts_with("step 4: the loss or gradient of rank 1 is not finite"),
        "{error}"
    );
}

/// The bits of every loss, and the hash of the parameters at the end.
fn losses(method: &str, transport: impl Transport, data: &Data) -> (Vec<u64>, String) {
    let mut model = Softmax::new(&data.task, transport.world().rank().get());
    let mut heard = Losses::default();
    let summary = run(method, transport, data, &mut model, &mut heard).expect("ends well");
    (heard.0, summary.hash)
}

fn run(
    method: &str,
    transport: impl Transport,
    data: &Data,
    model: &mut Softmax,
    watch: &mut dyn Watch,
) -> Result<Summary, TrainError> {
    let method = registry::build(method, &Options::default()).expect("a method");
    let method: Arc<dyn Algorithm> = method.into();
    let settings = Settings {
        batch_size: 4,
        epochs: 1,
        max_steps: Some(15),
        seed: 3,
        learning_rate: LearningRate::constant(0.05),
        density: "0.02".parse().expect("a density"),
        exchange_budget: Budget::default(),
        dense_below_dims: 0,
        dense_epochs: 0.1,
        optimiser: optimiser::Options {
            momentum: 0.9,
            weight_decay: 1e-4,
            ..optimiser::Options::default()
        },
        bucket_elements: 1000,
        eval_every: 1,
        verify: true,
        on_non_finite: OnNonFinite::Raise,
        threads: 1,
        timeout: Duration::from_secs(60),
        checkpoints: None,
    };
    let run = Run {
        settings: &settings,
        method: method.into(),
        data,
    };
    train(&run, model, transport, watch)
}

#[derive(Default)]
struct Losses(Vec<u64>);

impl Watch for Losses {
    fn begin(&mut self, _: &Start<'_>) -> Result<(), EventsError> {
        Ok(())
    }

    fn step(&mut self, record: &StepRecord) -> Result<(), EventsError> {
        self.0.push(record.loss.to_bits());
        Ok(())
    }

    fn epoch(&mut self, _: &EpochRecord) -> Result<(), EventsError> {
        Ok(())
    }

    fn note(&mut self, _: &str) {}
}
