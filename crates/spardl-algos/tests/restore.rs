//! A saved state goes on in fresh collectives as if nothing had happened.

use spardl_core::Collective;
use spardl_testkit::{Trial, check, configurations, generate};

const LEN: usize = 150;
const K: usize = 20;

fn step(trial: &mut Trial, workers: u32, step: u64) -> (Vec<u32>, Vec<check::Kept>) {
    let gradients = generate::fractions(step + 11, workers, LEN);
    let update = check::bits(&trial.step(&gradients, K, step));
    (update, trial.kept())
}

#[test]
fn a_restored_state_continues_with_the_same_bits() {
    for workers in [1, 2, 3, 4, 6, 7, 8] {
        for algorithm in configurations::every(workers) {
            let mut old = Trial::with_layout(&*algorithm, workers, &generate::layout(workers, LEN));
            for number in 0..5 {
                step(&mut old, workers, number);
            }
            let mut new = Trial::with_layout(&*algorithm, workers, &generate::layout(workers, LEN));
            let saved = old.cluster.workers().into_iter().map(Collective::state);
            for (worker, state) in new.cluster.workers_mut().into_iter().zip(saved) {
                worker.restore(&state).unwrap();
            }
            assert_eq!(old.kept(), new.kept(), "{}", old.context);
            for number in 5..9 {
                let (expected, got) = (
                    step(&mut old, workers, number),
                    step(&mut new, workers, number),
                );
                assert!(expected == got, "{} step {number}", old.context);
            }
        }
    }
}

#[test]
fn a_state_of_another_length_is_refused_and_changes_nothing() {
    for algorithm in configurations::every(2) {
        let other = Trial::with_layout(&*algorithm, 2, &generate::layout(2, LEN + 1));
        let mut trial = Trial::with_layout(&*algorithm, 2, &generate::layout(2, LEN));
        step(&mut trial, 2, 0);
        let before = trial.kept();
        for (worker, other) in trial
            .cluster
            .workers_mut()
            .into_iter()
            .zip(other.cluster.workers())
        {
            let mut state = other.state();
            if !algorithm.laws().keeps_residual {
                // Mass that nobody would ever deliver.
                state.residual = vec![1.0; LEN];
            }
            assert!(worker.restore(&state).is_err(), "{}", trial.context);
        }
        assert!(before == trial.kept(), "{}", trial.context);
    }
}
