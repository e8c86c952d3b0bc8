//! What a method estimates is what a step takes on the simulated network.

use spardl_algos::{Options, registry};
use spardl_core::{Algorithm, IndexCoding, Layout};
use spardl_sim::{Fabric, Line, Sharing, Topology};
use spardl_testkit::{Trial, configurations, generate};

const LINE: Line = Line {
    latency: 10_000,
    bandwidth: 1_000_000_000,
};

/// More than enough for lists whose length adapts to grow as long as they may be.
const STEPS: u64 = 14;

fn estimated(algorithm: &dyn Algorithm, workers: u32, len: usize, k: usize, step: u64) -> u64 {
    let estimate = algorithm.estimate(workers, &Layout::flat(len as u32), k, step);
    u64::from(estimate.rounds) * LINE.latency + LINE.transfer(estimate.bytes)
}

/// B-SAG and power-sgd have lists of other lengths here than they usually have; trees end early for odd numbers of workers.
#[test]
fn with_full_blocks_the_estimate_is_within_one_percent_of_the_simulated_time() {
    let mut checked = 0;
    for workers in [2, 4, 8, 16, 32] {
        let (len, k) = (workers as usize * 320, workers as usize * 32);
        let mut all = configurations::all_raw(workers);
        all.retain(|algorithm| {
            let (name, text) = (algorithm.name(), algorithm.describe());
            let gathers_columns = text.contains("sag=b") && !text.contains("teams=1 ");
            algorithm.loose_bound().is_none() && name != "power-sgd" && !gathers_columns
        });
        for algorithm in all {
            let mut trial = Trial::new(&*algorithm, workers, len);
            let fabric = Fabric::new(Topology::Flat, workers, LINE).unwrap();
            trial.cluster = trial.cluster.with_fabric(fabric, Sharing::None);
            for step in 0..STEPS - 1 {
                trial.step(&generate::unanimous(step, workers, len), k, step);
            }
            let gradients = generate::unanimous(STEPS - 1, workers, len);
            let time = trial.run(&gradients, k, STEPS - 1).timing.step() as f64;
            let estimate = estimated(&*algorithm, workers, len, k, STEPS - 1) as f64;
            assert!(
                (0.99..=1.01).contains(&(estimate / time)),
                "{}: {estimate} estimated, {time} simulated",
                trial.context
            );
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} configurations");
}

#[test]
fn an_estimate_for_a_hundred_thousand_workers_is_below_the_bound_and_takes_no_time() {
    let layout = Layout::flat(110_000_000);
    for entry in registry::METHODS {
        for indices in [IndexCoding::Raw, IndexCoding::Packed] {
            let mut options = Options::default();
            options.codec.indices = indices;
            let algorithm = entry.build(&options).unwrap();
            let (workers, k) = (100_000, 1_100_000);
            let estimate = algorithm.estimate(workers, &layout, k, 0);
            let cost = algorithm.cost(workers, &layout, k, 0);
            assert!(estimate.rounds <= *cost.rounds.end(), "{}", entry.name);
            // The longest chain of a tree has twice what its busiest worker sends.
            let most = 2 * cost.bytes_max;
            assert!(
                estimate.bytes <= most,
                "{}: {estimate:?} {cost:?}",
                entry.name
            );
        }
    }
}
