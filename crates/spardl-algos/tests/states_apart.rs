//! Workers whose methods were restored to different states: they refuse each other, or they agree all the same.

use std::collections::BTreeSet;

use spardl_core::{Algorithm, Collective, HeaderField, MethodState, ProtocolError, State};
use spardl_drive::DriveError;
use spardl_testkit::{Trial, configurations, generate};

const LEN: usize = 150;
const K: usize = 20;
const STEPS: u64 = 4;

fn step(trial: &mut Trial, workers: u32, seed: u64, number: u64) -> Result<(), DriveError> {
    let gradients = generate::fractions(number + seed, workers, LEN);
    trial.cluster.step(&gradients, K, number)?;
    // Every worker updates, with the same bits: what `Trial::step` asserts.
    trial.cluster.abort();
    trial.step(&gradients, K, number);
    Ok(())
}

fn fresh(algorithm: &dyn Algorithm, workers: u32) -> Trial {
    Trial::with_layout(algorithm, workers, &generate::layout(workers, LEN))
}

/// What the workers have after some steps on gradients of this seed.
fn states(algorithm: &dyn Algorithm, workers: u32, seed: u64) -> Vec<State> {
    let mut trial = fresh(algorithm, workers);
    for number in 0..STEPS {
        step(&mut trial, workers, seed, number).expect("they have the same state");
    }
    let all = trial.cluster.workers().into_iter();
    all.map(Collective::state).collect()
}

/// The state with each array in turn as in the other one, and with all of them.
fn mixtures(here: &MethodState, there: &MethodState) -> Vec<MethodState> {
    let mut all = vec![there.clone()];
    for (name, array) in there.arrays() {
        let mut mixed = here.clone();
        mixed.insert(name.to_owned(), array.clone());
        all.push(mixed);
    }
    all.retain(|state| state != here);
    all
}

fn refuses_the_state(error: &DriveError) -> bool {
    let DriveError::Protocol { source, .. } = error else {
        return error.is_secondary();
    };
    let field = match source {
        ProtocolError::WrongHeader { field, .. } => Some(*field),
        _ => None,
    };
    field == Some(HeaderField::State)
}

/// Steps of workers of which one, `odd`, has another state. Do they refuse it in the first of them?
fn refused(algorithm: &dyn Algorithm, states: &[State], odd: usize, method: &MethodState) -> bool {
    let workers = states.len() as u32;
    let mut trial = fresh(algorithm, workers);
    let context = format!("{}: {method:?} on rank {odd}", trial.context);
    for (rank, worker) in trial.cluster.workers_mut().into_iter().enumerate() {
        let mut state = states[rank].clone();
        if rank == odd {
            state.method = method.clone();
        }
        worker.restore(&state).expect("a state of this method");
    }
    let before = trial.kept();
    for number in STEPS..STEPS + 4 {
        let Err(error) = step(&mut trial, workers, 3, number) else {
            continue;
        };
        assert_eq!(number, STEPS, "{context}: not in the first step: {error}");
        assert!(refuses_the_state(&error), "{context}: {error}");
        for (rank, error) in trial.cluster.other_failures() {
            assert!(refuses_the_state(error), "{context}: rank {rank}: {error}");
        }
        trial.cluster.abort();
        assert!(before == trial.kept(), "{context}: left a trace");
        return true;
    }
    false
}

#[test]
fn another_state_on_one_worker_is_refused_in_the_first_step_or_does_no_harm() {
    let (mut refusing, mut tolerant) = (BTreeSet::new(), BTreeSet::new());
    for workers in [2, 3, 4] {
        for algorithm in configurations::every(workers) {
            let here = states(&*algorithm, workers, 40);
            let there = states(&*algorithm, workers, 90);
            for odd in 0..workers as usize {
                for method in mixtures(&here[odd].method, &there[odd].method) {
                    match refused(&*algorithm, &here, odd, &method) {
                        true => refusing.insert(algorithm.name()),
                        false => tolerant.insert(algorithm.name()),
                    };
                }
            }
        }
    }
    for name in ["ok-topk", "exdyna", "micro", "power-sgd"] {
        assert!(refusing.contains(name), "{name} is not in {refusing:?}");
    }
    // What a worker has for itself may differ.
    assert!(tolerant.contains("spardl"), "{tolerant:?}");
    assert!(!refusing.contains("spardl"), "{refusing:?}");
}

#[test]
fn one_worker_that_restarts_afresh_is_refused_where_the_state_is_shared() {
    for algorithm in configurations::every(3) {
        let here = states(&*algorithm, 3, 40);
        let mut trial = fresh(&*algorithm, 3);
        let workers = trial.cluster.workers_mut().into_iter();
        for ((rank, worker), state) in workers.enumerate().zip(&here) {
            match rank {
                2 if state.residual.is_empty() => {}
                2 => worker.restore_residual(&state.residual).expect("it fits"),
                _ => worker.restore(state).expect("it fits"),
            }
        }
        let shared = ["ok-topk", "exdyna", "micro", "power-sgd"].contains(&algorithm.name());
        match step(&mut trial, 3, 3, STEPS) {
            Ok(()) => assert!(!shared, "{}", trial.context),
            Err(error) => assert!(refuses_the_state(&error), "{}: {error}", trial.context),
        }
    }
}
