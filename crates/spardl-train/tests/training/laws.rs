//! What every run must hold to, whatever the method.

use spardl::{OnNonFinite, Options, Transport, registry, run_workers};
use spardl_train::data::{Sampler, seed_for};
use spardl_train::optimiser::{Rule, SecondMoment, SparseMomentum};
use spardl_train::record::Unwatched;
use spardl_train::schedule::LearningRate;
use spardl_train::store::{MODEL, Store, rank_file};
use spardl_train::{Data, Model, Run, Settings, TrainError, data, train};

use super::{
    Ended, constant, images, named, saving, settings, softmax::Softmax, train_all, train_models,
};

/// Of the generated images.
const CLASSES: u32 = 10;

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn assert_identical(ended: &[Ended], what: &str) {
    for worker in ended {
        let summary = worker
            .summary
            .as_ref()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(summary.identical, "{what}");
        assert_eq!(
            bits(&worker.parameters),
            bits(&ended[0].parameters),
            "{what}"
        );
    }
}

#[test]
fn every_method_keeps_the_replicas_identical_and_learns() {
    let data = images();
    for entry in registry::METHODS {
        for name in [entry.name.to_owned(), format!("{}-bf16", entry.name)] {
            let mut settings = Settings {
                density: constant(0.05),
                ..settings()
            };
            // Ten steps from zero are too few for the raised rate of a hand-over to pay.
            settings.optimiser.sparse_momentum = SparseMomentum::Fixed(0.9);
            let ended = train_all(4, &name, &settings, &data);
            assert_identical(&ended, &name);
            let summary = ended[0].summary.as_ref().expect("it ends well");
            let loss = summary.epochs.last().and_then(|epoch| epoch.test_loss);
            let loss = loss.expect("a test at the end");
            // A model of zeros finds all classes equally likely.
            let before = f64::from(CLASSES).ln();
            assert!(
                loss < before,
                "{name}: {loss} after ten steps, {before} before"
            );
        }
    }
}

#[test]
fn a_run_is_the_same_each_time_and_another_seed_is_another_run() {
    let data = images();
    let run = |seed| {
        let settings = Settings { seed, ..settings() };
        train_all(3, "spardl", &settings, &data).swap_remove(0)
    };
    let (first, second, other) = (run(3), run(3), run(4));
    assert_eq!(bits(&first.parameters), bits(&second.parameters));
    let losses = |ended: &Ended| -> Vec<u64> {
        ended
            .heard
            .steps
            .iter()
            .map(|step| step.loss.to_bits())
            .collect()
    };
    assert_eq!(losses(&first), losses(&second));
    assert_ne!(bits(&first.parameters), bits(&other.parameters));
}

#[test]
fn density_one_is_dense_up_to_rounding() {
    let data = images();
    let settings = Settings {
        density: constant(1.0),
        ..settings()
    };
    let dense = train_all(4, "dense", &settings, &data);
    for entry in registry::METHODS {
        let method = entry.name;
        let algorithm = entry.build(&Options::default()).expect("the defaults");
        if !algorithm.laws().lossless_when_full {
            continue;
        }
        let sparse = train_all(4, method, &settings, &data);
        for (a, b) in sparse[0].parameters.iter().zip(&dense[0].parameters) {
            assert!(
                (a - b).abs() <= 1e-5 * b.abs().max(1e-2),
                "{method}: {a} and {b}"
            );
        }
    }
}

/// SGD with top-k error feedback and this momentum (none: what an element's wait leaves of 0.9), written without any of the
/// library's parts but the data.
fn error_feedback(data: &Data, settings: &Settings, k: usize, momentum: Option<f32>) -> Vec<f32> {
    let rate = 0.05 * ((1.0 - momentum.unwrap_or(0.9)) / (1.0 - 0.9));
    let mut model = Softmax::new(&data.task, 0);
    let len = model.weights().len();
    let sampler = Sampler::new(data.train.len(), 1, 0, settings.batch_size, settings.seed);
    let sampler = sampler.expect("enough samples");
    let (mut weights, mut gradient) = (vec![0.0f32; len], vec![0.0; len]);
    let (mut residual, mut velocity) = (vec![0.0f32; len], vec![0.0f32; len]);
    let mut delivered = vec![0; len];
    for step in 0..10 {
        let seed = seed_for(settings.seed, 0, step, 0);
        let batch = data.train.batch(&sampler.step(0, step), Some(seed));
        model.gradient(&batch.expect("in memory"), seed, &mut gradient);
        residual
            .iter_mut()
            .zip(&gradient)
            .for_each(|(r, g)| *r += g);
        let mut order: Vec<usize> = (0..len).collect();
        order.sort_by(|a, b| {
            residual[*b]
                .abs()
                .total_cmp(&residual[*a].abs())
                .then(a.cmp(b))
        });
        let mut update = vec![0.0; len];
        for &index in &order[..k] {
            update[index] = std::mem::take(&mut residual[index]);
        }
        for i in 0..len {
            let decay = 1e-4 * weights[i];
            let Some(momentum) = momentum else {
                let wait = step + 1 - delivered[i];
                let power: f32 = (0..wait).map(|_| 0.9).product();
                let later = (1.0 - power) / (wait as f32 * (1.0 - 0.9));
                let now = (1.0 - 0.9 * later) / (1.0 - 0.9);
                weights[i] -= rate * (0.9 * velocity[i] + (now * update[i] + decay));
                velocity[i] = 0.9 * velocity[i] + (later * update[i] + decay);
                if update[i] != 0.0 {
                    delivered[i] = step + 1;
                }
                continue;
            };
            velocity[i] = momentum * velocity[i] + (update[i] + decay);
            weights[i] -= rate * velocity[i];
        }
        model.set_parameters(&weights);
    }
    weights
}

#[test]
fn one_worker_does_plain_sgd_with_top_k_error_feedback() {
    let data = images();
    let kept = [("0", Some(0.0)), ("0.5", Some(0.5)), ("0.9", Some(0.9))];
    for (asked, momentum) in [("auto", None)].into_iter().chain(kept) {
        let mut settings = settings();
        settings.optimiser.sparse_momentum = asked.parse().expect("valid");
        let ended = train_all(1, "spardl", &settings, &data);
        let k = (0.02 * ended[0].parameters.len() as f64) as usize;
        let expected = error_feedback(&data, &settings, k, momentum);
        assert_eq!(bits(&ended[0].parameters), bits(&expected), "{asked}");
    }
}

#[test]
fn momentum_is_handed_over_only_where_mass_waits() {
    let data = images();
    let trained = |method: &str, density, dense_epochs, sparse_momentum: &str| {
        let mut settings = Settings {
            density: constant(density),
            dense_epochs,
            ..settings()
        };
        settings.optimiser.sparse_momentum = sparse_momentum.parse().expect("valid");
        let ended = train_all(2, method, &settings, &data).swap_remove(0);
        ended.summary.expect("ended well").hash
    };
    // Whole gradients: those of dense, of the warm-up, of density 1, and of a method whose updates have all elements.
    for (method, density, dense_epochs) in [
        ("dense", 0.02, 0.0),
        ("spardl", 0.02, 1.0),
        ("spardl", 1.0, 0.0),
        ("power-sgd", 0.02, 0.0),
    ] {
        let with = |momentum| trained(method, density, dense_epochs, momentum);
        assert_eq!(with("auto"), with("0.9"), "{method}");
    }
    let with = |momentum| trained("spardl", 0.02, 0.1, momentum);
    assert_ne!(with("auto"), with("0"));
    assert_ne!(with("auto"), with("0.9"));
}

#[test]
fn tensors_of_few_dimensions_may_be_reduced_whole() {
    let data = images();
    let after_a_step = |method: &str, dense_below_dims| {
        let settings = Settings {
            max_steps: Some(1),
            dense_below_dims,
            ..settings()
        };
        let ended = train_all(3, method, &settings, &data);
        assert_identical(&ended, method);
        let moved = |values: &[f32]| values.iter().filter(|value| **value != 0.0).count();
        let (bias, weight) = ended[0].parameters.split_at(10);
        (bias.to_vec(), moved(weight))
    };
    let (dense, _) = after_a_step("dense", 0);
    let (whole, weights) = after_a_step("spardl", 2);
    for (a, b) in dense.iter().zip(&whole) {
        assert!((a - b).abs() <= 1e-6 * b.abs(), "{a} and {b}");
    }
    assert_eq!(weights, 51, "2 % of the matrix");
    let (sparse, _) = after_a_step("spardl", 0);
    assert!(sparse.contains(&0.0), "{sparse:?}");
}

#[test]
fn small_buckets_keep_the_replicas_identical() {
    let data = images();
    let settings = Settings {
        bucket_elements: 64,
        ..settings()
    };
    for method in ["spardl", "exdyna", "ok-topk"] {
        assert_identical(&train_all(3, method, &settings, &data), method);
    }
}

#[test]
fn every_form_of_sgd_keeps_the_replicas_identical() {
    let data = images();
    for rule in [Rule::Sgd, Rule::OkTopk] {
        for (momentum_correction, factor_masking) in [(false, false), (true, false), (true, true)] {
            let mut settings = settings();
            settings.optimiser.rule = rule;
            settings.optimiser.momentum_correction = momentum_correction;
            settings.optimiser.factor_masking = factor_masking;
            settings.optimiser.clip = Some(1.0);
            let what = format!("{:?}", settings.optimiser);
            assert_identical(&train_all(4, "spardl", &settings, &data), &what);
        }
    }
}

#[test]
fn adam_sees_a_whole_gradient_first_and_then_rarely() {
    let data = images();
    for (rule, frozen) in [(Rule::Adam, true), (Rule::AdamW, true), (Rule::Adam, false)] {
        let mut settings = Settings {
            learning_rate: LearningRate::constant(1e-3),
            ..settings()
        };
        settings.optimiser.rule = rule;
        settings.optimiser.adam.dense_steps = 2;
        settings.optimiser.adam.refresh_every = 4;
        if !frozen {
            settings.optimiser.adam.second_moment = SecondMoment::Running;
        }
        let ended = train_all(3, "spardl", &settings, &data);
        assert_identical(&ended, "adam");
        let steps = &ended[0].heard.steps;
        let whole = steps.iter().filter(|step| step.density > 0.5);
        let whole: Vec<u64> = whole.map(|step| step.step).collect();
        let expected: &[u64] = if frozen { &[1, 2, 5, 9] } else { &[] };
        assert_eq!(whole, expected);
        let losses: Vec<f64> = steps.iter().map(|step| step.loss).collect();
        assert!(losses.iter().all(|loss| *loss < 2.5), "{losses:?}");
    }
}

#[test]
fn with_everything_delivered_adam_is_dense_adam() {
    let data = images();
    let mut settings = Settings {
        density: constant(1.0),
        learning_rate: LearningRate::constant(1e-3),
        ..settings()
    };
    settings.optimiser.rule = Rule::AdamW;
    let dense = train_all(4, "dense", &settings, &data);
    let sparse = train_all(4, "spardl", &settings, &data);
    for (a, b) in sparse[0].parameters.iter().zip(&dense[0].parameters) {
        assert!((a - b).abs() <= 1e-4, "{a} and {b}");
    }
}

#[test]
fn the_warm_up_is_dense_and_then_the_method_begins() {
    let data = images();
    let settings = Settings {
        dense_epochs: 0.25,
        ..settings()
    };
    let ended = train_all(4, "spardl", &settings, &data);
    assert_identical(&ended, "warm-up");
    let densities: Vec<f64> = ended[0]
        .heard
        .steps
        .iter()
        .map(|s| s.density_target)
        .collect();
    assert_eq!(densities, [[1.0; 5], [0.02; 5]].concat());
    let bytes: Vec<u64> = ended[0].heard.steps.iter().map(|s| s.bytes_sent).collect();
    assert!(bytes[4] > 5 * bytes[5], "{bytes:?}");
}

#[test]
fn a_loss_of_nan_on_one_worker_stops_all_and_names_it() {
    let data = images();
    let break_rank_2 = |model: &mut Softmax| model.breaks = Some((2, 4));
    for worker in train_models(3, "spardl", &settings(), &data, break_rank_2) {
        let error = worker.summary.expect_err("stopped");
        assert!(
            matches!(error, TrainError::NonFinite { step: 4, .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains("of rank 2 is not finite"),
            "{error}"
        );
    }
}

#[test]
fn a_loss_of_nan_on_one_worker_is_skipped_by_all_when_so_set() {
    let data = images();
    let mut settings = Settings {
        on_non_finite: OnNonFinite::SkipStep,
        ..settings()
    };
    // With momentum on each worker, which the NaN must not get into either.
    settings.optimiser.momentum_correction = true;
    let ended = train_models(3, "spardl", &settings, &data, |model| {
        model.breaks = Some((2, 4));
    });
    assert_identical(&ended, "skip");
    let heard = &ended[0].heard;
    let skipped: Vec<bool> = heard.steps.iter().map(|s| s.skipped.is_some()).collect();
    assert_eq!(skipped.iter().filter(|s| **s).count(), 1);
    assert!(skipped[3]);
    let note = "step 4: the loss or gradient of rank 2 is not finite: step dropped on all workers";
    assert_eq!(heard.notes, [note]);
}

#[test]
fn a_step_that_is_dropped_is_no_step_of_a_wait() {
    let (data, dir) = (images(), tempfile::tempdir().unwrap());
    let settings = Settings {
        on_non_finite: OnNonFinite::SkipStep,
        bucket_elements: 64,
        checkpoints: saving(dir.path(), false),
        ..settings()
    };
    let ended = train_models(3, "spardl", &settings, &data, |model| {
        model.breaks = Some((2, 4));
    });
    assert_identical(&ended, "skip");
    let checkpoint = Store::new(dir.path(), 1).open(10).expect("the last step");
    let mut arrays = checkpoint.read(MODEL).expect("whole");
    let waits = arrays.take_f32("optimiser.waits").expect("one per element");
    // Ten steps were made and one of them dropped: what it computed waits for nobody.
    let longest = waits.iter().copied().fold(0.0, f32::max);
    assert_eq!(longest, 9.0);
    assert!(waits.contains(&0.0));
}

#[test]
fn momentum_is_masked_where_mass_was_delivered_and_nowhere_else() {
    let data = images();
    let stopped = |method: &str, masking, dense_epochs| {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings {
            dense_epochs,
            density: constant(0.3),
            checkpoints: saving(dir.path(), false),
            ..settings()
        };
        settings.optimiser.momentum_correction = true;
        settings.optimiser.factor_masking = masking;
        train_all(2, method, &settings, &data);
        let checkpoint = Store::new(dir.path(), 1).open(10).expect("the last step");
        let mut arrays = checkpoint.read(&rank_file(0, 2)).expect("whole");
        let velocity = arrays.take_f32("optimiser.velocity").expect("its own");
        velocity.iter().filter(|v| **v == 0.0).count() as f64 / velocity.len() as f64
    };
    let (free, f32, bf16) = (
        stopped("spardl", false, 0.0),
        stopped("spardl", true, 0.0),
        stopped("spardl-bf16", true, 0.0),
    );
    assert!(f32 > free + 0.1, "{free} to {f32}");
    assert!((bf16 - f32).abs() < 0.05, "{f32} and {bf16}");
    // Whole gradients hold nothing back: there is nothing to stop.
    assert_eq!(stopped("spardl", true, 1.0), stopped("spardl", false, 1.0));
    assert_eq!(stopped("dense", true, 0.0), stopped("dense", false, 0.0));
}

#[test]
fn workers_with_other_data_are_found_out() {
    let (data, settings) = (images(), settings());
    let request = data::Request {
        seed: 6,
        train_samples: Some(320),
        ..data::Request::default()
    };
    let other = data::open("synthetic", &request).expect("needs no files");
    let method = named("spardl");
    let ended = run_workers(3, |transport| {
        let rank = transport.world().rank().get();
        let run = Run {
            settings: &settings,
            method: method.clone().into(),
            data: if rank == 1 { &other } else { &data },
        };
        let mut model = Softmax::new(&data.task, rank);
        train(&run, &mut model, transport, &mut Unwatched)
    });
    for result in ended.expect("no panic") {
        let error = result.expect_err("found out").to_string();
        assert!(error.contains("the data of rank 1 is not that"), "{error}");
    }
}

#[test]
fn a_model_that_only_gives_nan_is_given_up_on() {
    let data = images();
    let settings = Settings {
        on_non_finite: OnNonFinite::SkipStep,
        epochs: 10,
        max_steps: None,
        ..settings()
    };
    let ended = train_models(2, "spardl", &settings, &data, |model| {
        model.set_parameters(&vec![f32::NAN; model.weights().len()]);
    });
    for worker in ended {
        let error = worker.summary.expect_err("given up on");
        assert!(
            matches!(
                error,
                TrainError::TooManySkipped {
                    step: 50,
                    skipped: 50
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn replicas_that_differ_are_found_out() {
    let data = images();
    let ended = train_models(3, "dense", &settings(), &data, |model| {
        if model.rank() == 1 {
            let mut other = model.weights().to_vec();
            other[7] = 1e-7;
            model.set_parameters(&other);
        }
    });
    for worker in ended {
        let error = worker.summary.expect_err("found out");
        assert!(
            error.to_string().contains("parameters of rank 1 differ"),
            "{error}"
        );
    }
}

#[test]
fn too_few_samples_are_refused_before_the_first_step() {
    let data = images();
    let settings = Settings {
        batch_size: 1000,
        ..settings()
    };
    for worker in train_all(2, "spardl", &settings, &data) {
        assert!(matches!(worker.summary, Err(TrainError::Data(_))));
    }
}
