//! SparDL equals an independent implementation in plain integers: the same update, the same residuals, step after step.

use spardl_algos::{Residual, Sag, SparDl};
use spardl_core::Collective;
use spardl_testkit::oracle::{self, Rule, Teams};
use spardl_testkit::{Trial, generate};

const RULES: [(Residual, Rule); 5] = [
    (Residual::None, Rule::None),
    (Residual::Local, Rule::Local),
    (Residual::NoInProcedure, Rule::NoInProcedure),
    (Residual::GlobalA, Rule::A),
    (Residual::GlobalB, Rule::B),
];

fn integers(values: &[f32]) -> Vec<i64> {
    values.iter().map(|&value| value as i64).collect()
}

fn length(worker: &Collective) -> usize {
    let state = worker.state().method;
    state.u64("adaptive-length").unwrap()[0] as usize
}

fn equals_the_oracle(workers: u32, len: usize, ks: &[usize]) {
    let teams = (1..=workers).filter(|&d| workers.is_multiple_of(d));
    for teams in teams {
        for (sag, mode) in [(Sag::R, Teams::R), (Sag::B, Teams::B)] {
            if sag == Sag::R && !teams.is_power_of_two() {
                continue;
            }
            for (residual, rule) in RULES {
                let algorithm = SparDl {
                    teams,
                    sag,
                    residual,
                    ..SparDl::default()
                };
                let mut trial = Trial::new(&algorithm, workers, len);
                for (step, &k) in ks.iter().enumerate() {
                    let gradients = generate::integers(step as u64 + 31, workers, len);
                    let mut inputs = Vec::new();
                    for (worker, gradient) in trial.cluster.workers().iter().zip(&gradients) {
                        let sum = worker.residual().iter().zip(gradient).map(|(r, g)| r + g);
                        inputs.push(integers(&sum.collect::<Vec<f32>>()));
                    }
                    let lengths: Vec<usize> =
                        trial.cluster.workers().into_iter().map(length).collect();
                    let expected = oracle::Step {
                        teams: teams as usize,
                        mode,
                        rule,
                        k,
                        step,
                        lengths: &lengths,
                    };
                    let (updates, residuals) = oracle::spardl(&inputs, expected);
                    let update = integers(&trial.step(&gradients, k, step as u64));
                    for (rank, worker) in trial.cluster.workers().iter().enumerate() {
                        let context = format!("{} k={k} step={step} rank={rank}", trial.context);
                        assert_eq!(update, updates[rank], "{context}: update");
                        let residual = integers(worker.residual());
                        assert_eq!(residual, residuals[rank], "{context}: residual");
                    }
                }
            }
        }
    }
}

#[test]
fn every_team_count_and_residual_rule_equals_the_oracle() {
    for workers in 1..=12 {
        equals_the_oracle(workers, 131, &[26, 26, 27, 28, 5, 60, 26, 26]);
    }
}

#[test]
fn tiny_buckets_equal_the_oracle() {
    for workers in [1, 2, 3, 4, 6, 8, 12] {
        for len in [0, 1, 3, 11] {
            equals_the_oracle(workers, len, &[1, 0, 3, 11, 50, 2]);
        }
    }
}
