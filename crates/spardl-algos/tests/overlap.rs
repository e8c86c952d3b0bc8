//! Buckets that are in flight together do not touch each other: they have the bits of buckets reduced one at a time.

use spardl_core::{Algorithm, Input, Layout, Rank};
use spardl_drive::BucketId;
use spardl_sim::Cluster;
use spardl_testkit::check::{bits, dense};
use spardl_testkit::{configurations, generate};

const LENS: [usize; 4] = [90, 0, 41, 90];
const K: usize = 13;
const STEPS: u64 = 3;

/// The bits of update and residual, of every bucket in turn on every worker in turn, step by step.
type Seen = Vec<(Vec<u32>, Vec<u32>)>;

fn layouts() -> [Layout; LENS.len()] {
    LENS.map(generate::layered)
}

fn gradients(workers: u32, bucket: usize, step: u64) -> Vec<Vec<f32>> {
    generate::fractions(step * 10 + bucket as u64, workers, LENS[bucket])
}

fn see(cluster: &Cluster, bucket: usize, seen: &mut Seen) {
    for worker in cluster.bucket(BucketId::new(bucket as u32)) {
        let update = dense(worker.update(), worker.len());
        seen.push((bits(&update), bits(worker.residual())));
    }
}

fn overlapped(algorithm: &dyn Algorithm, workers: u32, seed: u64) -> Seen {
    let cluster = Cluster::with_buckets(algorithm, workers, &layouts()).unwrap();
    let mut cluster = cluster.with_order(seed);
    let mut seen = Seen::new();
    for step in 0..STEPS {
        let all: Vec<_> = (0..LENS.len())
            .map(|bucket| gradients(workers, bucket, step))
            .collect();
        let input = |rank: Rank, bucket: BucketId| {
            let gradient = &all[bucket.index()][rank.index()];
            Input::new(gradient, K, step)
        };
        let report = cluster.step_buckets(input).unwrap();
        assert_eq!(report.outcomes.len(), workers as usize * LENS.len());
        cluster.commit().unwrap();
        for bucket in 0..LENS.len() {
            see(&cluster, bucket, &mut seen);
        }
    }
    seen
}

fn one_at_a_time(algorithm: &dyn Algorithm, workers: u32) -> Seen {
    let cluster = |layout| Cluster::new(algorithm, workers, &layout).unwrap();
    let mut clusters = layouts().map(cluster);
    let mut seen = Seen::new();
    for step in 0..STEPS {
        for (bucket, cluster) in clusters.iter_mut().enumerate() {
            let gradients = gradients(workers, bucket, step);
            cluster.step(&gradients, K, step).unwrap();
            cluster.commit().unwrap();
            see(cluster, 0, &mut seen);
        }
    }
    seen
}

#[test]
fn overlapped_buckets_in_any_order_of_delivery_have_the_bits_of_one_at_a_time() {
    for workers in [1, 2, 3, 4, 6, 9] {
        for algorithm in configurations::every(workers) {
            let expected = one_at_a_time(&*algorithm, workers);
            for seed in 0..3 {
                let context = format!("{} P={workers} order {seed}", algorithm.describe());
                assert!(
                    expected == overlapped(&*algorithm, workers, seed),
                    "{context}"
                );
            }
        }
    }
}
