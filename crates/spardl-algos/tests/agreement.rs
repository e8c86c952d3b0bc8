//! All workers end with the same bits: in every step, in every order of delivery, in every run.

use spardl_testkit::{Trial, check, configurations, generate};

const WORKERS: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 13];
const LEN: usize = 120;
const KS: [usize; 5] = [12, 13, 40, 5, 12];

/// The updates of several steps with messages delivered in the order of `seed`, and what the workers keep.
fn run(mut trial: Trial, workers: u32, seed: u64) -> (Vec<Vec<u32>>, Vec<check::Kept>) {
    trial.cluster = trial.cluster.with_order(seed);
    let mut updates = Vec::new();
    for (step, &k) in KS.iter().enumerate() {
        let gradients = generate::fractions(step as u64 + 5, workers, LEN);
        updates.push(check::bits(&trial.step(&gradients, k, step as u64)));
    }
    let kept = trial.kept();
    (updates, kept)
}

#[test]
fn every_worker_ends_with_the_same_bits_in_every_run_and_order_of_delivery() {
    for workers in WORKERS {
        for algorithm in configurations::every(workers) {
            let trial =
                || Trial::with_layout(&*algorithm, workers, &generate::layout(workers, LEN));
            let first = run(trial(), workers, 1);
            for seed in [1, 99] {
                let context = trial().context;
                assert!(
                    first == run(trial(), workers, seed),
                    "{context} order {seed}"
                );
            }
        }
    }
}

#[test]
fn large_worlds_agree_in_one_order_as_in_another() {
    for workers in [16, 23, 31, 40] {
        for algorithm in configurations::every(workers) {
            let trial =
                || Trial::with_layout(&*algorithm, workers, &generate::layout(workers, LEN));
            let context = trial().context;
            assert!(
                run(trial(), workers, 3) == run(trial(), workers, 4),
                "{context}"
            );
        }
    }
}

#[test]
fn every_world_up_to_forty_agrees_on_sums_that_round() {
    let (len, k) = (50, 9);
    for workers in 1..=40 {
        let mut all = configurations::every(workers);
        // In a first step all the rules for residuals give the same update.
        all.retain(|algorithm| {
            let text = algorithm.describe();
            !text.starts_with("spardl ")
                || ["auto", "global-a"]
                    .iter()
                    .any(|rule| text.contains(&format!("residual={rule} ")))
        });
        for algorithm in all {
            for layout in generate::layouts(len) {
                let mut trial = Trial::with_layout(&*algorithm, workers, &layout);
                trial.step(&generate::fractions(21, workers, len), k, 0);
            }
        }
    }
}
