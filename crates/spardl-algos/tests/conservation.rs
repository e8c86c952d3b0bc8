//! Nothing is lost: inputs + residuals = update + next residuals, per element, with `==`; and all workers agree.

use spardl_core::{Collective, Layout, Outcome};
use spardl_sim::Cluster;
use spardl_testkit::{Trial, check, configurations, generate};

fn holds(workers: u32, layout: &Layout, ks: &[usize]) {
    let len = layout.len() as usize;
    for algorithm in configurations::all(workers) {
        let laws = algorithm.laws();
        let parts = layout.parts().len();
        let context = format!("{} P={workers} n={len} in {parts}", algorithm.describe());
        let mut cluster = Cluster::new(&*algorithm, workers, layout)
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
        for layout in generate::layouts(97) {
            holds(workers, &layout, &[10, 41]);
        }
    }
}

/// Gradients that make residual plus gradient a small integer, of the same sign on all workers: the levels that then travel have
/// so few digits that no sum rounds.
fn towards_digits(workers: &[&Collective], seed: u64) -> Vec<Vec<f32>> {
    let len = workers[0].len();
    let mut numbers = generate::Numbers::new(seed);
    let mut towards = |worker: &Collective| {
        let target = |i: usize, digit: u64| (1 - 2 * (i as i64 % 2)) as f32 * (1 + digit) as f32;
        let residual = |i: usize| worker.residual().get(i).copied().unwrap_or_default();
        (0..len)
            .map(|i| target(i, numbers.below(5)) - residual(i))
            .collect()
    };
    workers.iter().copied().map(&mut towards).collect()
}

/// The sum over workers, which is exact in f64.
fn totals<'a>(parts: impl IntoIterator<Item = &'a [f32]>, len: usize) -> Vec<f64> {
    let mut sums = vec![0.0; len];
    for part in parts {
        for (sum, &value) in sums.iter_mut().zip(part) {
            *sum += f64::from(value);
        }
    }
    sums
}

fn holds_with_few_bits(workers: u32, layout: &Layout, ks: &[usize]) {
    let len = layout.len() as usize;
    for algorithm in configurations::few_bits(workers) {
        if !algorithm.laws().conserves {
            continue;
        }
        let mut trial = Trial::with_layout(&*algorithm, workers, layout);
        for (step, &k) in (0..).zip(ks) {
            let gradients = towards_digits(&trial.cluster.workers(), step * 77 + 1);
            let residuals = trial
                .cluster
                .workers()
                .into_iter()
                .map(Collective::residual);
            let gradient = gradients.iter().map(Vec::as_slice);
            let before = totals(residuals.chain(gradient), len);
            let update = trial.step(&gradients, k, step);
            let residuals = trial
                .cluster
                .workers()
                .into_iter()
                .map(Collective::residual);
            let after = totals(residuals.chain([update.as_slice()]), len);
            assert_eq!(before, after, "{} k={k} step={step}", trial.context);
        }
    }
}

#[test]
fn nothing_is_lost_to_values_of_few_bits() {
    for workers in 1..=40 {
        for layout in generate::layouts(97) {
            holds_with_few_bits(workers, &layout, &[10, 41, 97]);
        }
    }
    for workers in [1, 2, 3, 4, 6, 8, 12] {
        let layout = generate::layout(workers, 300);
        holds_with_few_bits(workers, &layout, &[30, 31, 5, 0, 100, 300, 1, 150, 150]);
        holds_with_few_bits(workers, &Layout::flat(7), &[0, 1, 3, 1000]);
    }
}

#[test]
fn nothing_is_lost_over_many_steps_and_changing_density() {
    for workers in [1, 2, 3, 4, 6, 7, 8, 12] {
        let layout = generate::layout(workers, 300);
        holds(workers, &layout, &[30, 30, 31, 5, 0, 100, 300, 1, 30, 30]);
    }
}

#[test]
fn nothing_is_lost_in_tiny_and_empty_buckets() {
    for workers in [1, 2, 3, 5, 8, 13] {
        for len in [0, 1, 2, 7] {
            holds(workers, &Layout::flat(len), &[0, 1, 3, 1000]);
        }
    }
}
