//! A run that is stopped goes on as if it had not been.

use std::fs;
use std::path::Path;

use spardl::{OnNonFinite, Transport, registry, run_workers};
use spardl_train::optimiser::Rule;
use spardl_train::record::Summary;
use spardl_train::schedule::LearningRate;
use spardl_train::store::{Arrays, Store, rank_file};
use spardl_train::{Data, Run, Settings, TrainError, data, train_until};

use super::softmax::Softmax;
use super::{Ended, Heard, constant, images, named, saving, settings, train_all, train_models};

/// `max_steps` steps with checkpoints in `dir`.
fn run(
    workers: u32,
    method: &str,
    dir: &Path,
    steps: u64,
    resume: bool,
    data: &Data,
) -> Vec<Ended> {
    run_with(
        workers,
        method,
        data,
        &Settings {
            max_steps: Some(steps),
            checkpoints: saving(dir, resume),
            epochs: 2,
            ..settings()
        },
    )
}

fn run_with(workers: u32, method: &str, data: &Data, settings: &Settings) -> Vec<Ended> {
    train_all(workers, method, settings, data)
}

fn part(dir: &Path, step: u64, name: &str) -> Arrays<'static> {
    let checkpoint = Store::new(dir, 2).open(step).expect("a manifest");
    checkpoint.read(name).expect("a whole file")
}

/// All that a worker keeps but its clock.
fn kept(dir: &Path, step: u64, rank: usize, workers: usize) -> Vec<(String, Vec<u8>)> {
    let arrays = part(dir, step, &rank_file(rank, workers));
    let bytes = |name: &str| match arrays.f32(name) {
        Ok(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Err(_) => {
            let mut numbers = arrays.u64(name).expect("one or the other").to_vec();
            if name == "position" {
                numbers[3] = 0;
                numbers[4] = 0;
            }
            numbers.iter().flat_map(|v| v.to_le_bytes()).collect()
        }
    };
    arrays
        .names()
        .map(|name| (name.to_owned(), bytes(name)))
        .collect()
}

fn residuals(dir: &Path, step: u64, workers: usize) -> Vec<f64> {
    let mut sum = Vec::new();
    for rank in 0..workers {
        let arrays = part(dir, step, &rank_file(rank, workers));
        let residual = arrays.f32("bucket.0.residual").expect("one bucket");
        sum.resize(residual.len(), 0.0);
        sum.iter_mut()
            .zip(residual)
            .for_each(|(s, r)| *s += f64::from(*r));
    }
    sum
}

#[test]
fn twenty_steps_are_ten_steps_a_resume_and_ten_more() {
    for entry in registry::METHODS {
        for method in [entry.name.to_owned(), format!("{}-bf16", entry.name)] {
            twenty_are_ten_and_ten(&method, &settings());
        }
    }
}

#[test]
fn so_they_are_with_everything_that_changes_on_the_way() {
    // The epoch has 26 steps: the warm-up ends before the stop, density and learning rate change before and after it.
    let mut mixed = Settings {
        dense_epochs: 0.2,
        density: "0:0.1,0.3:0.05,0.5:0.02".parse().expect("a schedule"),
        learning_rate: LearningRate {
            base: 0.05,
            warmup_epochs: 0.3,
            warmup_from: None,
            steps: vec![0.25, 0.6],
            factor: 0.5,
        },
        bucket_elements: 500,
        eval_every: 1,
        ..settings()
    };
    mixed.optimiser.nesterov = true;
    mixed.optimiser.clip = Some(0.5);
    let mut handed = mixed.clone();
    // What is left of momentum changes at the end of the warm-up; the stop is before that, then after it.
    handed.optimiser.sparse_momentum = "0.5".parse().expect("valid");
    handed.dense_below_dims = 2;
    for dense_epochs in [0.5, 0.2] {
        handed.dense_epochs = dense_epochs;
        twenty_are_ten_and_ten("spardl", &handed);
    }
    // The whole gradients of steps 9 and 13 fall on both sides of the stop, those of the warm-up before it.
    let mut adam = mixed.clone();
    adam.optimiser.nesterov = false;
    adam.optimiser.rule = Rule::AdamW;
    adam.optimiser.adam.dense_steps = 0;
    adam.optimiser.adam.refresh_every = 4;
    for method in ["spardl", "exdyna"] {
        twenty_are_ten_and_ten(method, &adam);
    }
    for method in ["spardl", "spardl-q4", "ok-topk", "exdyna-bf16", "gtopk"] {
        twenty_are_ten_and_ten(method, &mixed);
        let mut corrected = mixed.clone();
        corrected.optimiser.momentum_correction = true;
        corrected.optimiser.factor_masking = true;
        twenty_are_ten_and_ten(method, &corrected);
        // The stop is within the warm-up.
        corrected.dense_epochs = 0.5;
        twenty_are_ten_and_ten(method, &corrected);
    }
}

fn twenty_are_ten_and_ten(method: &str, with: &Settings) {
    let data = images();
    let (whole, halves) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |dir: &Path, steps, resume| {
        let settings = Settings {
            max_steps: Some(steps),
            checkpoints: saving(dir, resume),
            epochs: 2,
            ..with.clone()
        };
        run_with(3, method, &data, &settings)
    };
    let straight = run(whole.path(), 20, false);
    run(halves.path(), 10, false);
    let resumed = run(halves.path(), 20, true);
    for rank in 0..3 {
        let (a, b) = (&straight[rank], &resumed[rank]);
        let hash = |ended: &Ended| ended.summary.as_ref().expect("ended well").hash.clone();
        assert_eq!(hash(a), hash(b), "{method}, rank {rank}");
        let kept = |dir: &Path| kept(dir, 20, rank, 3);
        assert!(
            kept(whole.path()) == kept(halves.path()),
            "{method}, rank {rank}"
        );
    }
    let losses = |ended: &Ended, from: usize| -> Vec<u64> {
        let steps = ended.heard.steps[from..].iter();
        steps.map(|step| step.loss.to_bits()).collect()
    };
    assert_eq!(losses(&straight[0], 10), losses(&resumed[0], 0), "{method}");
}

#[test]
fn a_run_that_was_stopped_at_the_end_of_an_epoch_goes_on_with_the_next() {
    let data = images();
    let (whole, halves) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = |dir: &Path, epochs, resume| Settings {
        epochs,
        max_steps: None,
        eval_every: 1,
        checkpoints: saving(dir, resume),
        ..settings()
    };
    let straight = run_with(4, "spardl", &data, &settings(whole.path(), 2, false));
    run_with(4, "spardl", &data, &settings(halves.path(), 1, false));
    let resumed = run_with(4, "spardl", &data, &settings(halves.path(), 2, true));
    let (a, b) = (&straight[0], &resumed[0]);
    let (a, b) = (a.summary.as_ref().unwrap(), b.summary.as_ref().unwrap());
    assert_eq!(a.hash, b.hash);
    assert_eq!((a.epochs.len(), b.epochs.len()), (2, 2));
    for (a, b) in a.epochs.iter().zip(&b.epochs) {
        assert_eq!(
            (a.epoch, a.train_loss, a.test_loss),
            (b.epoch, b.train_loss, b.test_loss)
        );
        assert_eq!(a.totals.bytes_sent, b.totals.bytes_sent);
    }
}

#[test]
fn a_warm_up_that_ends_at_the_resume_keeps_each_worker_s_velocity() {
    let data = images();
    let velocity = |dense_epochs| {
        let dir = tempfile::tempdir().unwrap();
        for (steps, dense_epochs, resume) in [(5, 1.0, false), (6, dense_epochs, true)] {
            let mut settings = Settings {
                max_steps: Some(steps),
                dense_epochs,
                checkpoints: saving(dir.path(), resume),
                ..settings()
            };
            settings.optimiser.momentum_correction = true;
            run_with(2, "spardl", &data, &settings);
        }
        let mut arrays = part(dir.path(), 6, &rank_file(1, 2));
        arrays.take_f32("optimiser.velocity").expect("its own")
    };
    // The sixth gradient is the same, whatever it is reduced with: so is the velocity.
    assert_eq!(velocity(1.0), velocity(0.0));
}

#[test]
fn with_more_or_fewer_workers_no_mass_is_lost() {
    let data = images();
    for (before, after) in [(4usize, 2usize), (4, 3), (2, 4), (3, 1)] {
        let dir = tempfile::tempdir().unwrap();
        run(before as u32, "spardl", dir.path(), 10, false, &data);
        let saved = residuals(dir.path(), 10, before);
        let settings = Settings {
            max_steps: Some(11),
            density: constant(1.0),
            checkpoints: saving(dir.path(), true),
            ..settings()
        };
        let ended = run_with(after as u32, "spardl", &data, &settings);
        for worker in &ended {
            worker.summary.as_ref().expect("goes on");
        }
        // With density 1 the one step that is left delivers everything.
        let left = residuals(dir.path(), 11, after);
        assert!(saved.iter().any(|mass| *mass != 0.0));
        assert!(left.iter().all(|mass| *mass == 0.0), "{before} to {after}");
    }
}

#[test]
fn with_other_workers_an_epoch_that_was_whole_is_not_trained_again() {
    let data = images();
    let dir = tempfile::tempdir().unwrap();
    let settings = |epochs, resume| Settings {
        epochs,
        max_steps: None,
        checkpoints: saving(dir.path(), resume),
        ..settings()
    };
    let ended = |workers, epochs, resume| {
        let mut ended = run_with(workers, "spardl", &data, &settings(epochs, resume));
        ended.remove(0).summary.expect("ended well")
    };
    let (one, still_one) = (ended(4, 1, false), ended(2, 1, true));
    assert_eq!(still_one.hash, one.hash);
    let loss = |summary: &Summary| summary.epochs[0].train_loss;
    assert!((loss(&one) - loss(&still_one)).abs() < 1e-9);
    let two = ended(2, 2, true);
    let steps: Vec<u64> = two.epochs.iter().map(|epoch| epoch.totals.steps).collect();
    let first = one.totals().steps;
    assert_eq!(
        steps,
        [first, 2 * first],
        "half as many workers need twice the steps"
    );
    assert!(two.epochs.iter().all(|epoch| epoch.train_loss.is_finite()));
}

#[test]
fn with_other_workers_and_another_batch_size_an_epoch_begins_again() {
    let data = images();
    let dir = tempfile::tempdir().unwrap();
    let settings = |batch_size, max_steps, resume| Settings {
        batch_size,
        max_steps,
        checkpoints: saving(dir.path(), resume),
        ..settings()
    };
    // 12 of 20 steps with 16 samples each; then steps with 32 samples, of which the epoch has 10.
    run_with(2, "spardl", &data, &settings(8, Some(12), false));
    let mut ended = run_with(1, "spardl", &data, &settings(32, None, true));
    let summary = ended.remove(0).summary.expect("ended well");
    let totals = summary.epochs[0].totals;
    assert_eq!((totals.steps, totals.samples), (10, 320));
}

#[test]
fn only_the_same_run_goes_on() {
    let data = images();
    let dir = tempfile::tempdir().unwrap();
    run(2, "spardl", dir.path(), 10, false, &data);
    // What the newest says about itself is lost; the one before it must be asked.
    fs::write(dir.path().join("step-000000010/checkpoint.json"), "{}").unwrap();
    let refused = |data: &Data, change: &dyn Fn(&mut Settings), expected: &str| {
        let mut settings = Settings {
            max_steps: Some(12),
            checkpoints: saving(dir.path(), true),
            ..settings()
        };
        change(&mut settings);
        for worker in run_with(2, "spardl", data, &settings) {
            let error = worker.summary.expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    };
    refused(&data, &|settings| settings.seed = 9, "with seed 3, not 9");
    let ok_topk = |settings: &mut Settings| {
        settings.optimiser.rule = Rule::OkTopk;
    };
    refused(&data, &ok_topk, "another optimiser");
    let handed = |settings: &mut Settings| {
        settings.optimiser.sparse_momentum = "0.5".parse().expect("valid");
    };
    let expected = "with a sparse momentum of auto, not 0.5";
    refused(&data, &handed, expected);
    let whole = |settings: &mut Settings| settings.dense_below_dims = 2;
    refused(
        &data,
        &whole,
        "below 0 dimensions reduced whole, not below 2",
    );
    let request = data::Request {
        seed: 6,
        train_samples: Some(320),
        ..data::Request::default()
    };
    let other = data::open("synthetic", &request).expect("needs no files");
    refused(&other, &|_| {}, "with other samples");
}

#[test]
fn a_checkpoint_that_cannot_be_read_now_is_not_passed_over() {
    let data = images();
    let dir = tempfile::tempdir().unwrap();
    run(2, "spardl", dir.path(), 10, false, &data);
    let manifest = dir.path().join("step-000000010/checkpoint.json");
    // The system refuses to read a directory as a file, as it would one of someone else's.
    fs::remove_file(&manifest).unwrap();
    fs::create_dir(&manifest).unwrap();
    for worker in run(2, "spardl", dir.path(), 12, true, &data) {
        let error = worker.summary.expect_err("unreadable").to_string();
        assert!(error.contains("make it readable"), "{error}");
    }
    assert!(manifest.exists());
}

#[test]
fn a_damaged_checkpoint_is_refused_and_the_one_before_it_used() {
    let data = images();
    let dir = tempfile::tempdir().unwrap();
    run(3, "spardl", dir.path(), 10, false, &data);
    let file = dir.path().join("step-000000010").join(rank_file(1, 3));
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let resumed = run(3, "spardl", dir.path(), 12, true, &data);
    let heard = &resumed[0].heard;
    assert!(
        heard.notes[0].contains("rank-00001-of-00003"),
        "{:?}",
        heard.notes
    );
    assert!(
        heard.notes[1].contains("set aside") && heard.notes[2].contains("going on after step 5"),
        "{:?}",
        heard.notes
    );
    assert!(dir.path().join("step-000000010.damaged").exists());
    assert_eq!(heard.steps.first().map(|step| step.step), Some(6));
    let straight = run(
        3,
        "spardl",
        tempfile::tempdir().unwrap().path(),
        12,
        false,
        &data,
    );
    let hash = |ended: &[Ended]| ended[0].summary.as_ref().expect("ended well").hash.clone();
    assert_eq!(hash(&straight), hash(&resumed));
}

#[test]
fn nothing_to_go_on_from_is_said() {
    let data = images();
    let dir = tempfile::tempdir().unwrap();
    for worker in run(2, "spardl", dir.path(), 5, true, &data) {
        let error = worker.summary.expect_err("nothing there");
        assert!(matches!(error, TrainError::NoCheckpoint { .. }), "{error}");
    }
}

#[test]
fn when_none_is_whole_that_is_said() {
    let data = images();
    let dir = tempfile::tempdir().unwrap();
    run(2, "spardl", dir.path(), 10, false, &data);
    for step in ["step-000000005", "step-000000010"] {
        fs::write(dir.path().join(step).join(rank_file(0, 2)), "").unwrap();
    }
    for worker in run(2, "spardl", dir.path(), 12, true, &data) {
        let error = worker.summary.expect_err("nothing whole");
        assert!(matches!(error, TrainError::AllDamaged { .. }), "{error}");
    }
    assert_eq!(Store::new(dir.path(), 2).list().unwrap(), [10, 5]);
}

#[test]
fn a_checkpoint_waits_for_a_step_that_counts() {
    let data = images();
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        max_steps: Some(8),
        on_non_finite: OnNonFinite::SkipStep,
        checkpoints: saving(dir.path(), false),
        ..settings()
    };
    let ended = train_models(2, "spardl", &settings, &data, |model| {
        model.breaks = Some((1, 5));
    });
    for worker in ended {
        worker.summary.expect("goes on");
    }
    // Due after the fifth step, which was dropped.
    assert_eq!(Store::new(dir.path(), 2).list().unwrap(), [8, 6]);
}

#[test]
fn other_momentum_settings_are_refused() {
    let data = images();
    let dir = tempfile::tempdir().unwrap();
    run(2, "spardl", dir.path(), 5, false, &data);
    let mut settings = Settings {
        checkpoints: saving(dir.path(), true),
        ..settings()
    };
    settings.optimiser.momentum = 0.0;
    for worker in run_with(2, "spardl", &data, &settings) {
        let error = worker.summary.expect_err("another optimiser").to_string();
        assert!(
            error.contains("made with momentum, and this run is without"),
            "{error}"
        );
    }
}

#[test]
fn a_run_cannot_go_on_to_an_end_that_is_behind_it() {
    let data = images();
    let dir = tempfile::tempdir().unwrap();
    let up_to = |epochs, resume| Settings {
        checkpoints: saving(dir.path(), resume),
        batch_size: 32,
        epochs,
        max_steps: None,
        ..settings()
    };
    train_all(2, "spardl", &up_to(2, false), &data);
    for worker in train_all(2, "spardl", &up_to(1, true), &data) {
        let error = worker.summary.expect_err("an end that is behind it");
        let words = "2 epochs were begun, and this run is to have 1: ask for at least as many";
        assert!(error.to_string().ends_with(words), "{error}");
    }
    // Nothing is left to do, which is no error.
    for worker in train_all(2, "spardl", &up_to(2, true), &data) {
        assert_eq!(worker.heard.steps.len(), 0);
        worker.summary.expect("it ends well");
    }
}

#[test]
fn a_run_that_is_stopped_ends_everywhere_after_the_same_step_and_goes_on_from_there() {
    let data = images();
    let whole = train_all(3, "spardl", &settings(), &data);
    let dir = tempfile::tempdir().expect("a directory");
    let with = Settings {
        checkpoints: saving(dir.path(), false),
        ..settings()
    };
    let run = Run {
        settings: &with,
        method: named("spardl").into(),
        data: &data,
    };
    let stopped = run_workers(3, |transport| {
        let rank = transport.world().rank().get();
        let mut model = Softmax::new(&data.task, rank);
        // One worker alone is told.
        let stop = || rank == 2;
        train_until(&run, &mut model, transport, &mut Heard::default(), &stop)
    });
    for summary in stopped.expect("no panic") {
        let summary = summary.expect("it ends well");
        assert_eq!(summary.stopped, Some(1));
        assert_eq!(
            summary.epochs.last().map(|epoch| epoch.test_loss),
            Some(None)
        );
    }
    let on = Settings {
        checkpoints: saving(dir.path(), true),
        ..settings()
    };
    let ended = train_all(3, "spardl", &on, &data);
    let hash = |ended: &[Ended]| {
        ended[0]
            .summary
            .as_ref()
            .expect("it ends well")
            .hash
            .clone()
    };
    assert_eq!(hash(&ended), hash(&whole));
    assert_eq!(
        ended[0].summary.as_ref().expect("it ends well").stopped,
        None
    );
}

#[test]
fn a_directory_of_another_run_is_refused_on_all_workers_before_the_first_step() {
    let dir = tempfile::tempdir().expect("a directory");
    let lock = dir.path().join(".lock");
    let other = r#"{"pid":1,"host":"elsewhere","started":null}"#;
    fs::write(&lock, other).expect("written");
    let with = Settings {
        checkpoints: saving(dir.path(), false),
        ..settings()
    };
    for ended in train_all(2, "spardl", &with, &images()) {
        let error = ended.summary.expect_err("in use").to_string();
        assert!(
            error.contains("in use by process 1 on elsewhere"),
            "{error}"
        );
        assert!(ended.heard.steps.is_empty());
    }
    fs::write(&lock, "").expect("written");
    let ended = train_all(2, "spardl", &with, &images());
    let notes = &ended[0].heard.notes;
    assert!(notes[0].contains("was taken over"), "{notes:?}");
    assert!(!lock.exists());
}
