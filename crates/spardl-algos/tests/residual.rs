//! The residual between steps: written, added to and taken back by element range, for every method.

use spardl_core::ConfigError;
use spardl_testkit::{Trial, check, configurations, generate};

const LEN: usize = 120;
const K: usize = 18;
const WORKERS: u32 = 3;

#[test]
fn what_is_added_to_a_residual_goes_out_as_what_a_gradient_brings() {
    for algorithm in configurations::all(WORKERS) {
        if !algorithm.laws().keeps_residual {
            continue;
        }
        let mut trial = Trial::new(&*algorithm, WORKERS, LEN);
        trial.step(&generate::integers(1, WORKERS, LEN), K, 0);
        let before = trial.cluster.workers()[1].residual().to_vec();
        let worker = &mut trial.cluster.workers_mut()[1];
        worker.add_to_residual(40, &[3.0; 20]).unwrap();
        worker.write_residual(100, &[-7.0; 20]).unwrap();
        for (i, &value) in worker.residual().iter().enumerate() {
            let expected = match i {
                40..60 => before[i] + 3.0,
                100..120 => -7.0,
                _ => before[i],
            };
            assert_eq!(value, expected, "{} element {i}", trial.context);
        }
        if algorithm.laws().conserves {
            let gradients = generate::integers(2, WORKERS, LEN);
            let inputs = check::inputs(trial.cluster.workers(), &gradients);
            let mut out = vec![0; LEN];
            check::add(&mut out, &trial.step(&gradients, K, 1));
            let kept = check::residuals(trial.cluster.workers());
            let sums: Vec<i64> = out.iter().zip(kept).map(|(u, r)| u + r).collect();
            assert!(sums == inputs, "{}", trial.context);
        }
    }
}

#[test]
fn what_may_not_enter_a_residual_is_refused_and_changes_nothing() {
    for algorithm in configurations::every(WORKERS) {
        let mut trial = Trial::new(&*algorithm, WORKERS, LEN);
        let gradients = generate::fractions(1, WORKERS, LEN);
        trial.step(&gradients, K, 0);
        let before = trial.kept();
        let worker = &mut trial.cluster.workers_mut()[0];
        if algorithm.laws().keeps_residual {
            let largest = worker.write_residual(7, &[f32::MAX]);
            assert_eq!(largest, Ok(()), "{}", trial.context);
            let index = 7;
            let bad = ConfigError::NonFiniteResidual { index };
            assert_eq!(worker.add_to_residual(6, &[1.0, f32::MAX]), Err(bad));
            worker.restore(&restored(&before[0])).unwrap();
            for values in [[1.0, f32::NAN], [f32::INFINITY, 1.0]] {
                assert!(worker.write_residual(0, &values).is_err());
                assert!(worker.add_to_residual(0, &values).is_err());
            }
            let (start, end, len) = (LEN - 1, LEN + 1, LEN);
            let outside = ConfigError::ResidualRange { start, end, len };
            assert_eq!(worker.write_residual(start, &[1.0; 2]), Err(outside));
            assert!(worker.write_residual(usize::MAX, &[1.0; 2]).is_err());
            assert!(worker.restore_residual(&[f32::NAN; LEN]).is_err());
            assert!(worker.restore_residual(&[0.0; LEN - 1]).is_err());
        } else {
            assert!(worker.write_residual(0, &[1.0]).is_err());
            assert!(worker.add_to_residual(0, &[1.0]).is_err());
            assert!(worker.restore_residual(&[1.0]).is_err());
        }
        assert!(before == trial.kept(), "{}", trial.context);
        trial.run(&gradients, K, 1);
        for worker in trial.cluster.workers_mut() {
            for refused in [
                worker.write_residual(0, &[]),
                worker.add_to_residual(0, &[]),
                worker.restore_residual(&[]),
            ] {
                assert!(matches!(refused, Err(ConfigError::OutOfTurn { .. })));
            }
        }
    }
}

fn restored(kept: &check::Kept) -> spardl_core::State {
    spardl_core::State {
        residual: kept.0.iter().map(|&bits| f32::from_bits(bits)).collect(),
        method: kept.1.clone(),
    }
}

#[test]
fn a_residual_without_the_state_of_the_method_goes_on_as_in_a_fresh_collective() {
    for algorithm in configurations::every(WORKERS) {
        let mut old = Trial::new(&*algorithm, WORKERS, LEN);
        for step in 0..4 {
            old.step(&generate::fractions(step, WORKERS, LEN), K, step);
        }
        let mut fresh = Trial::new(&*algorithm, WORKERS, LEN);
        let pairs = old.cluster.workers_mut().into_iter();
        for (old, fresh) in pairs.zip(fresh.cluster.workers_mut()) {
            let residual = old.residual().to_vec();
            fresh.restore_residual(&residual).unwrap();
            old.restore_residual(&residual).unwrap();
        }
        assert!(old.kept() == fresh.kept(), "{}", old.context);
        for step in 4..6 {
            let gradients = generate::fractions(step, WORKERS, LEN);
            let expected = check::bits(&fresh.step(&gradients, K, step));
            let update = check::bits(&old.step(&gradients, K, step));
            assert!(expected == update, "{} step {step}", old.context);
            assert!(old.kept() == fresh.kept(), "{}", old.context);
        }
    }
}
