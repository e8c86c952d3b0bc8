//! A method that a tuner chose, and chooses again while the run lasts.

use spardl::ValueType;
use spardl::tune::{Gammas, Space, Tuner};
use spardl_sim::Line;
use spardl_train::store::Store;
use spardl_train::{Method, Model};

use super::*;

/// Chosen for a network that is not this one, among bf16 values; chosen again among f32 values, at every third step.
fn chosen(data: &Data) -> Method {
    let space = |value| Space {
        values: vec![value],
    };
    let slow = Line {
        latency: 1,
        bandwidth: 1_000_000,
    };
    let layouts = [Softmax::new(&data.task, 0).layout().clone()];
    let density = Density::new(0.02).expect("a density");
    let first = Tuner::new().space(space(ValueType::Bf16));
    let tuning = first.decide(3, (&layouts, density), slow, &Gammas::usual());
    let again = Tuner::new()
        .space(space(ValueType::F32))
        .factor(1.0)
        .every(3);
    Method::Chosen(Box::new((again, tuning.expect("there are workers"))))
}

fn train_chosen(settings: &Settings) -> Vec<Ended> {
    let data = images();
    let run = Run {
        settings,
        method: chosen(&data),
        data: &data,
    };
    train_run(3, &run, |_| {})
}

#[test]
fn a_method_that_is_chosen_again_while_a_run_lasts_leaves_all_replicas_alike() {
    for (dense_epochs, dense_below_dims, sparse_momentum) in
        [(0.0, 0, "auto"), (0.2, 2, "0.5"), (0.1, 0, "0.9")]
    {
        let mut settings = Settings {
            dense_epochs,
            dense_below_dims,
            max_steps: Some(14),
            ..settings()
        };
        settings.optimiser.sparse_momentum = sparse_momentum.parse().expect("valid");
        let ended = train_chosen(&settings);
        for one in &ended {
            let summary = one.summary.as_ref().expect("it ends well");
            assert!(summary.identical && one.parameters == ended[0].parameters);
        }
        let notes = &ended[0].heard.notes;
        // The first look is at another value type, so it changes the method for certain.
        let told = notes
            .iter()
            .any(|note| note.starts_with("auto, after step"));
        assert!(told, "{notes:?}");
    }
}

#[test]
fn a_run_goes_on_from_what_was_chosen_last() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        checkpoints: saving(dir.path(), false),
        ..settings()
    };
    let ended = train_chosen(&settings);
    let summary = ended[0].summary.as_ref().expect("it ends well");
    let checkpoint = Store::new(dir.path(), 1).open(10).expect("the last step");
    let of = &checkpoint.manifest().metadata()["method"];
    let of = of.as_str().expect("the method in words");
    assert!(of.contains(&summary.method), "{}: {of}", summary.method);
    let resumed = Settings {
        max_steps: Some(16),
        checkpoints: saving(dir.path(), true),
        ..settings.clone()
    };
    for one in train_chosen(&resumed) {
        assert!(one.summary.expect("it goes on").identical);
    }
}
