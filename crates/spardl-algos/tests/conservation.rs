//! Nothing is lost: inputs + residuals = update + next residuals, per element, with `==`; and all workers agree.

use spardl_core::{Layout, Outcome};
use spardl_sim::Cluster;
use spardl_testkit::{check, configurations, generate};

fn holds(workers: u32, len: usize, ks: &[usize]) {
    for algorithm in configurations::all(workers) {
        let laws = algorithm.laws();
        let context = format!("{} P={workers} n={len}", algorithm.describe());
        let layout = Layout::flat(len as u32);
        let mut cluster = Cluster::new(&*algorithm, workers, &layout)
            .unwrap()
            .with_order(len as u64);
        for (step, &k) in ks.iter().enumerate() {
            let gradients = generate::integers(step as u64 * 77 + 1, workers, len);
            let before = laws
                .conserves
                .then(|| check::inputs(cluster.workers(), &gradients));
            let report = cluster.step(&gradients, k, step as u64);
            let report = report.unwrap_or_else(|error| panic!("{context} k={k}: {error}"));
            assert!(
                report.outcomes.iter().all(|o| *o == Outcome::Updated),
                "{context}"
            );
            let update = check::agreed(cluster.workers(), &context);
            let nnz = update.iter().filter(|v| **v != 0.0).count();
            let bound = laws.support.bound(workers, len as u32, k);
            assert!(
                nnz <= bound,
                "{context} k={k}: {nnz} entries, bound {bound}"
            );
            cluster.commit().unwrap();
            if let Some(before) = before {
                let mut after = check::residuals(cluster.workers());
                check::add(&mut after, &update);
                assert_eq!(before, after, "{context} k={k} step={step}");
            }
        }
    }
}

#[test]
fn nothing_is_lost_for_any_number_of_workers() {
    for workers in 1..=40 {
        holds(workers, 97, &[10, 41]);
    }
}

#[test]
fn nothing_is_lost_over_many_steps_and_changing_density() {
    for workers in [1, 2, 3, 4, 6, 7, 8, 12] {
        holds(workers, 300, &[30, 30, 31, 5, 0, 100, 300, 1, 30, 30]);
    }
}

#[test]
fn nothing_is_lost_in_tiny_and_empty_buckets() {
    for workers in [1, 2, 3, 5, 8, 13] {
        for len in [0, 1, 2, 7] {
            holds(workers, len, &[0, 1, 3, 1000]);
        }
    }
}
