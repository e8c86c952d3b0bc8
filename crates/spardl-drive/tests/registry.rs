//! Every method of the registry has the same bits over threads as in the simulator.

use std::time::Duration;

use spardl_core::{Algorithm, Input, Layout};
use spardl_drive::{Driver, Transport, run_workers};
use spardl_sim::Cluster;
use spardl_testkit::check::{bits, dense};
use spardl_testkit::{configurations, generate};

const LIMIT: Duration = Duration::from_secs(20);
const STEPS: u64 = 3;
const K: usize = 20;
const LENS: [usize; 3] = [211, 0, 64];

/// One bucket of many tensors, one of none, and one without structure.
fn layouts() -> [Layout; LENS.len()] {
    let [_, empty, flat] = LENS.map(|len| Layout::flat(len as u32));
    [generate::layered(LENS[0]), empty, flat]
}

/// The bits of update and residual after a step of one bucket on one worker.
type After = (Vec<u32>, Vec<u32>);

fn gradients(workers: u32, bucket: usize, step: u64) -> Vec<Vec<f32>> {
    generate::fractions(step * 10 + bucket as u64, workers, LENS[bucket])
}

/// By worker, then step by step all buckets.
fn over_threads(algorithm: &dyn Algorithm, workers: u32) -> Vec<Vec<After>> {
    run_workers(workers, |transport| {
        let rank = transport.world().rank().index();
        let driver = Driver::for_layouts(transport, algorithm, &layouts()).unwrap();
        let mut driver = driver.with_timeout(LIMIT);
        let mut seen = Vec::new();
        for step in 0..STEPS {
            let mine = [0, 1, 2].map(|bucket| gradients(workers, bucket, step).swap_remove(rank));
            let inputs = mine
                .each_ref()
                .map(|gradient| Input::new(gradient, K, step));
            driver.all_reduce(&inputs).unwrap();
            for collective in driver.collectives() {
                let update = dense(collective.update(), collective.len());
                seen.push((bits(&update), bits(collective.residual())));
            }
        }
        seen
    })
    .unwrap()
}

fn simulated(algorithm: &dyn Algorithm, workers: u32) -> Vec<Vec<After>> {
    let cluster = |layout| Cluster::new(algorithm, workers, &layout).unwrap();
    let mut clusters = layouts().map(cluster);
    let mut seen = vec![Vec::new(); workers as usize];
    for step in 0..STEPS {
        for (bucket, cluster) in clusters.iter_mut().enumerate() {
            cluster
                .step(&gradients(workers, bucket, step), K, step)
                .unwrap();
            cluster.commit().unwrap();
            for (seen, worker) in seen.iter_mut().zip(cluster.workers()) {
                let update = dense(worker.update(), worker.len());
                seen.push((bits(&update), bits(worker.residual())));
            }
        }
    }
    seen
}

#[test]
fn every_method_has_the_same_bits_over_threads_as_in_the_simulator() {
    for workers in [1, 2, 3, 4, 6] {
        for algorithm in configurations::every(workers) {
            let context = format!("{} on {workers} workers", algorithm.describe());
            let threads = over_threads(&*algorithm, workers);
            assert!(threads == simulated(&*algorithm, workers), "{context}");
        }
    }
}
