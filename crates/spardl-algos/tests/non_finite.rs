//! NaN and infinities: one worker's bad value makes all workers skip the step, and leaves no trace.

use spardl_core::{Outcome, SkipReason};
use spardl_testkit::{Trial, check, configurations, generate};

const LEN: usize = 60;
const K: usize = 12;
const BAD: [f32; 3] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];

fn skipped(outcomes: &[Outcome]) -> bool {
    outcomes
        .iter()
        .all(|outcome| *outcome != Outcome::Updated && *outcome == outcomes[0])
}

#[test]
fn a_bad_value_anywhere_skips_the_step_on_all_workers() {
    for workers in [1, 2, 3, 4, 6, 7, 8] {
        for algorithm in configurations::every(workers) {
            let mut trial = Trial::new(&*algorithm, workers, LEN);
            trial.step(&generate::fractions(1, workers, LEN), K, 0);
            let before = trial.kept();
            for rank in 0..workers as usize {
                for (at, bad) in [0, LEN / 2, LEN - 1].into_iter().zip(BAD) {
                    let mut gradients = generate::fractions(2, workers, LEN);
                    gradients[rank][at] = bad;
                    let report = trial.run(&gradients, K, 1);
                    let expected = Outcome::Skipped(SkipReason::NonFinite);
                    let context = format!("{} rank {rank}: {bad} at {at}", trial.context);
                    let all = report.outcomes.iter().all(|o| *o == expected);
                    assert!(all, "{context}: {:?}", report.outcomes);
                    let update = check::agreed(trial.cluster.workers(), &context);
                    assert!(update.iter().all(|&value| value == 0.0), "{context}");
                    for worker in trial.cluster.workers_mut() {
                        assert!(worker.commit().is_err(), "{context}: commit");
                    }
                    trial.cluster.abort();
                    assert!(before == trial.kept(), "{context}: left a trace");
                }
            }
        }
    }
}

#[test]
fn the_step_after_a_bad_one_has_the_bits_of_a_run_without_it() {
    for workers in [1, 2, 3, 6, 8] {
        for algorithm in configurations::every(workers) {
            let mut clean = Trial::new(&*algorithm, workers, LEN);
            let mut trial = Trial::new(&*algorithm, workers, LEN);
            for step in 0..4 {
                let gradients = generate::fractions(step, workers, LEN);
                let mut bad = gradients.clone();
                bad[step as usize % workers as usize][7] = f32::NAN;
                trial.run(&bad, K, step);
                trial.cluster.abort();
                let expected = check::bits(&clean.step(&gradients, K, step));
                let got = check::bits(&trial.step(&gradients, K, step));
                assert!(expected == got, "{} step {step}", trial.context);
                assert!(
                    clean.kept() == trial.kept(),
                    "{} step {step}",
                    trial.context
                );
            }
        }
    }
}

#[test]
fn a_sum_that_overflows_skips_the_step_on_all_workers() {
    for workers in [2, 3, 4, 6, 7, 8] {
        // Equal magnitudes do overflow, unless they are not sent.
        let mut all = configurations::every(workers);
        all.retain(|algorithm| algorithm.laws().sends_ties);
        for algorithm in all {
            let mut trial = Trial::new(&*algorithm, workers, LEN);
            trial.step(&generate::fractions(1, workers, LEN), K, 0);
            let before = trial.kept();
            let report = trial.run(&vec![vec![f32::MAX; LEN]; workers as usize], K, 1);
            let context = &trial.context;
            assert!(
                skipped(&report.outcomes),
                "{context}: {:?}",
                report.outcomes
            );
            trial.cluster.abort();
            assert!(before == trial.kept(), "{context}: left a trace");
        }
    }
}

#[test]
fn near_overflow_all_workers_have_one_outcome_and_every_residual_stays_finite() {
    for workers in [1, 2, 3, 4, 6, 8] {
        for algorithm in configurations::every(workers) {
            for seed in 0..12 {
                let mut trial = Trial::new(&*algorithm, workers, LEN);
                for step in 0..3 {
                    let gradients = generate::near_overflow(seed * 10 + step, workers, LEN);
                    let outcomes = trial.run(&gradients, K, step).outcomes;
                    let context = format!("{} seed {seed} step {step}", trial.context);
                    if outcomes.iter().all(|o| *o == Outcome::Updated) {
                        check::agreed(trial.cluster.workers(), &context);
                        trial.cluster.commit().unwrap();
                    } else {
                        assert!(skipped(&outcomes), "{context}: {outcomes:?}");
                        trial.cluster.abort();
                    }
                    for worker in trial.cluster.workers() {
                        let finite = worker.residual().iter().all(|value| value.is_finite());
                        assert!(finite, "{context}: a residual is not finite");
                    }
                }
            }
        }
    }
}
