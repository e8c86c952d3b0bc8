//! The edge cases: tiny and empty buckets, no entries or all of them, zeros, ties, cancellation, subnormals, scaling.

use std::collections::BTreeSet;

use spardl_algos::{Options, Residual, Sag, SparDl, registry};
use spardl_core::{Algorithm, ConfigError, HEADER_LEN, Laws, Layout, Support, World, schedule};
use spardl_testkit::{Trial, check, configurations, generate, oracle};

const WORKERS: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 13];

/// Is the update bounded by k, from each worker or from all?
fn ranks_entries(laws: &Laws) -> bool {
    matches!(laws.support, Support::K | Support::KPerWorker)
}

/// Does a worker alone deliver k whole entries?
fn delivers_k(algorithm: &dyn Algorithm) -> bool {
    ranks_entries(&algorithm.laws()) && algorithm.laws().sends_ties
}

/// Are the delivered indices the same whatever the gradient?
fn looks_at_nothing(algorithm: &dyn Algorithm) -> bool {
    let [ascending, descending] = [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]].map(|gradient| {
        let update = Trial::new(algorithm, 1, 3).step(&[gradient.to_vec()], 1, 0);
        update.iter().position(|&value| value != 0.0)
    });
    ascending == descending
}

/// Also with values of few bits, for what holds whatever the sums are.
fn each_type(workers: &[u32], mut test: impl FnMut(u32, &dyn Algorithm)) {
    each(workers, &mut test);
    for &workers in workers {
        for algorithm in configurations::few_bits(workers) {
            test(workers, &*algorithm);
        }
    }
}

fn each(workers: &[u32], mut test: impl FnMut(u32, &dyn Algorithm)) {
    for &workers in workers {
        for algorithm in configurations::all(workers) {
            test(workers, &*algorithm);
        }
    }
}

fn sum(gradients: &[Vec<f32>]) -> Vec<f32> {
    let mut sum = gradients[0].clone();
    for gradient in &gradients[1..] {
        sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g);
    }
    sum
}

#[test]
fn one_worker_delivers_its_top_k_keeps_the_rest_and_sends_nothing() {
    each(&[1], |_, algorithm| {
        for (step, k) in [0, 1, 7, 20, 39, 40, 100].into_iter().enumerate() {
            let mut trial = Trial::new(algorithm, 1, 40);
            let gradients = generate::digits(3, 1, 40);
            let report = trial.run(&gradients, k, step as u64);
            assert_eq!(report.ledger.messages, [0], "{}", trial.context);
            let update = check::agreed(trial.cluster.workers(), &trial.context);
            trial.cluster.commit().unwrap();
            let laws = algorithm.laws();
            if !delivers_k(algorithm) {
                continue;
            }
            let context = format!("{} k={k}", trial.context);
            let delivered = |i: &usize| update[*i] != 0.0;
            let support: BTreeSet<usize> = (0..40).filter(delivered).collect();
            assert_eq!(support.len(), k.min(40), "{context}");
            let entries = gradients[0].iter().enumerate();
            let top = oracle::top(entries.map(|(i, &v)| (i, v as i64)), k);
            assert!(support == top || looks_at_nothing(algorithm), "{context}");
            let residual = trial.cluster.workers()[0].residual();
            for i in 0..40 {
                let (whole, none) = (gradients[0][i], 0.0);
                let inside = support.contains(&i);
                let (sent, rest) = if inside { (whole, none) } else { (none, whole) };
                assert_eq!(update[i], sent, "{context}");
                assert!(residual[i] == rest || !laws.conserves, "{context}");
            }
        }
    });
}

#[test]
fn all_entries_asked_for_deliver_the_dense_sum_and_leave_nothing() {
    each(&WORKERS, |workers, algorithm| {
        for len in [0, 1, 3, 7, 50] {
            for k in [len, len + 1, 10 * len + 1000] {
                let mut trial = Trial::new(algorithm, workers, len);
                for step in 0..3 {
                    let gradients = generate::digits(step + 4, workers, len);
                    let update = trial.step(&gradients, k, step);
                    if !algorithm.laws().lossless_when_full {
                        continue;
                    }
                    assert_eq!(update, sum(&gradients), "{} k={k}", trial.context);
                    for worker in trial.cluster.workers() {
                        let zero = worker.residual().iter().all(|&value| value == 0.0);
                        assert!(zero, "{} k={k}: a residual is left", trial.context);
                    }
                }
            }
        }
    });
}

#[test]
fn no_entries_asked_for_deliver_nothing_and_keep_everything() {
    each(&WORKERS, |workers, algorithm| {
        for len in [0, 2, 50] {
            let laws = algorithm.laws();
            if laws.support.bound(workers, len as u32, 0) > 0 {
                continue;
            }
            let mut trial = Trial::new(algorithm, workers, len);
            let gradients = generate::digits(5, workers, len);
            let update = trial.step(&gradients, 0, 0);
            assert!(update.iter().all(|&v| v == 0.0), "{}", trial.context);
            for (worker, gradient) in trial.cluster.workers().iter().zip(&gradients) {
                let kept = worker.residual() == gradient;
                assert!(kept || !laws.conserves, "{}", trial.context);
            }
        }
    });
}

#[test]
fn zeros_of_either_sign_are_never_delivered_nor_kept() {
    each_type(&WORKERS, |workers, algorithm| {
        for zero in [0.0, -0.0] {
            let mut trial = Trial::new(algorithm, workers, 40);
            for step in 0..3 {
                trial.run(&vec![vec![zero; 40]; workers as usize], 10, step);
                for worker in trial.cluster.workers() {
                    assert_eq!(worker.update().nnz(), 0, "{}", trial.context);
                }
                trial.cluster.commit().unwrap();
            }
            for worker in trial.cluster.workers() {
                assert!(
                    worker.residual().iter().all(|&v| v == 0.0),
                    "{}",
                    trial.context
                );
            }
        }
    });
}

#[test]
fn equal_magnitudes_are_cut_to_the_bound_and_still_move() {
    each_type(&WORKERS, |workers, algorithm| {
        if !algorithm.laws().sends_ties {
            return;
        }
        let len = 60;
        for k in [1, 7, 30] {
            let mut trial = Trial::new(algorithm, workers, len);
            let alternating: Vec<f32> = (0..len).map(|i| 1.0 - 2.0 * (i % 2) as f32).collect();
            for step in 0..3 {
                let gradients = vec![alternating.clone(); workers as usize];
                let update = trial.step(&gradients, k, step);
                let nnz = update.iter().filter(|v| **v != 0.0).count();
                let bound = algorithm.laws().support.bound(workers, len as u32, k);
                let context = &trial.context;
                assert!(
                    (1..=bound).contains(&nnz),
                    "{context} k={k}: {nnz} of {bound}"
                );
            }
        }
    });
}

#[test]
fn values_that_cancel_exactly_are_absent_and_conserved() {
    each(&[2, 3, 4, 6, 8], |workers, algorithm| {
        let laws = algorithm.laws();
        if !laws.conserves {
            return;
        }
        for k in [5, 60] {
            let mut trial = Trial::new(algorithm, workers, 50);
            let mut gradients = vec![vec![0.0; 50]; workers as usize];
            gradients[0] = generate::digits(6, 1, 50).remove(0);
            gradients[1] = gradients[0].iter().map(|value| -value).collect();
            for step in 0..4 {
                let before = check::inputs(trial.cluster.workers(), &gradients);
                let update = trial.step(&gradients, k, step);
                let mut after = check::residuals(trial.cluster.workers());
                check::add(&mut after, &update);
                let context = format!("{} k={k} step={step}", trial.context);
                assert!(before == after, "{context}");
                let full = k >= 50 && laws.lossless_when_full;
                assert!(!full || update.iter().all(|&v| v == 0.0), "{context}");
            }
        }
    });
}

#[test]
fn subnormals_are_ordinary_values() {
    each(&WORKERS, |workers, algorithm| {
        // The smallest bf16: digits of it, and their sums, are exact in both value types.
        let unit = f32::from_bits(1 << 16);
        let mut trial = Trial::new(algorithm, workers, 30);
        let mut gradients = generate::digits(7, workers, 30);
        gradients
            .iter_mut()
            .flatten()
            .for_each(|value| *value *= unit);
        let update = trial.step(&gradients, 30, 0);
        let exact = update == sum(&gradients);
        assert!(
            exact || !algorithm.laws().lossless_when_full,
            "{}",
            trial.context
        );
    });
}

#[test]
fn scaling_or_negating_all_inputs_does_the_same_to_all_results() {
    each_type(&WORKERS, |workers, algorithm| {
        let laws = algorithm.laws();
        if !laws.scales {
            return;
        }
        // A threshold may depend on the sign of the mean, as Gaussiank's published one does.
        let ranks = ranks_entries(&laws) || laws.support == Support::Any;
        let factors = [1024.0, 1.0 / 4096.0, -1.0, -2.0];
        for factor in factors.into_iter().take(if ranks { 4 } else { 2 }) {
            let mut plain = Trial::new(algorithm, workers, 80);
            let mut scaled = Trial::new(algorithm, workers, 80);
            for step in 0..4 {
                let mut gradients = generate::fractions(step + 8, workers, 80);
                let mut expected = plain.step(&gradients, 11, step);
                gradients
                    .iter_mut()
                    .flatten()
                    .for_each(|value| *value *= factor);
                let update = scaled.step(&gradients, 11, step);
                expected.iter_mut().for_each(|value| *value *= factor);
                assert_eq!(update, expected, "{} times {factor}", plain.context);
            }
            for (plain, scaled) in plain.cluster.workers().iter().zip(scaled.cluster.workers()) {
                let residuals = plain.residual().iter().zip(scaled.residual());
                let mut residuals = residuals.map(|(plain, scaled)| plain * factor == *scaled);
                assert!(residuals.all(|equal| equal), "{factor}");
            }
        }
    });
}

#[test]
fn one_team_gives_the_same_bits_whatever_would_synchronise_teams() {
    for workers in WORKERS {
        for (_, residual) in Residual::ALL {
            let run = |sag| {
                let teams = 1;
                let algorithm = SparDl {
                    teams,
                    sag,
                    residual,
                    ..SparDl::default()
                };
                let mut trial = Trial::new(&algorithm, workers, 90);
                let steps = (0..4).map(|step| {
                    let gradients = generate::fractions(step, workers, 90);
                    check::bits(&trial.step(&gradients, 13, step))
                });
                let updates: Vec<_> = steps.collect();
                let kept = trial.kept().into_iter().map(|(residual, _)| residual);
                (updates, kept.collect::<Vec<_>>())
            };
            assert!(run(Sag::R) == run(Sag::B), "P={workers} {residual}");
            assert!(run(Sag::R) == run(Sag::Auto), "P={workers} {residual}");
        }
    }
}

#[test]
fn as_many_teams_as_workers_only_synchronise_columns() {
    for workers in WORKERS {
        let algorithm = SparDl {
            teams: workers,
            ..SparDl::default()
        };
        let mut trial = Trial::new(&algorithm, workers, 90);
        let report = trial.run(&generate::fractions(1, workers, 90), 13, 0);
        let rounds = schedule::ceil_log2(workers as usize);
        assert!(
            report.ledger.rounds.iter().all(|&r| r == rounds),
            "P={workers}"
        );
    }
}

#[test]
fn a_dense_message_over_its_limit_is_refused_before_any_memory_is_taken() {
    let limit = HEADER_LEN + u32::MAX as usize;
    let (world, layout) = (World::new(0, 2).unwrap(), Layout::flat((1 << 31) + 16));
    for name in ["dense", "dense-ring", "dense-rabenseifner"] {
        let algorithm = registry::build(name, &Options::default()).unwrap();
        let error = algorithm.collective(world, &layout).expect_err(name);
        let too_long = matches!(error, ConfigError::MessageTooLong { limit: l, .. } if l == limit);
        assert!(too_long, "{name}: {error}");
        let (workers, just_fits) = (2, Layout::flat(1 << 30));
        let fits = algorithm.check_messages(workers, &just_fits, 0, limit);
        assert_eq!(fits, Ok(()), "{name}");
    }
    // What a sparse method sends depends on k.
    let sparse = registry::build("spardl", &Options::default()).unwrap();
    assert_eq!(sparse.check_messages(2, &layout, 1 << 20, limit), Ok(()));
    assert!(sparse.check_messages(2, &layout, 1 << 31, limit).is_err());
}
