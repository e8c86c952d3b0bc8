//! What the laws over the registry do not say: the products, the sums up to rounding, the rules.

use spardl_sim::Cluster;
use spardl_testkit::{check, generate};

use super::*;

fn layout() -> Layout {
    let shapes = [
        ("first", vec![30, 20]),
        ("bias", vec![30]),
        ("conv", vec![16, 4, 3, 3]),
    ];
    Layout::new(shapes).unwrap()
}

/// The largest difference between inputs and update + residuals over some steps, relative to the largest input.
fn drift(config: &PowerSgd, workers: u32, layout: &Layout) -> f64 {
    let len = layout.len() as usize;
    let mut cluster = Cluster::new(config, workers, layout).unwrap();
    let mut worst = 0.0f64;
    for step in 0..6 {
        let gradients = generate::fractions(step, workers, len);
        let add = |sums: &mut [f64], values: &[f32]| {
            sums.iter_mut()
                .zip(values)
                .for_each(|(sum, &v)| *sum += f64::from(v));
        };
        let (mut before, mut after) = (vec![0.0; len], vec![0.0; len]);
        for (worker, gradient) in cluster.workers().iter().zip(&gradients) {
            add(&mut before, worker.residual());
            add(&mut before, gradient);
        }
        cluster.step(&gradients, 1, step).unwrap();
        add(&mut after, &check::agreed(cluster.workers(), "power-sgd"));
        cluster.commit().unwrap();
        for worker in cluster.workers() {
            add(&mut after, worker.residual());
        }
        let largest = before.iter().fold(0.0f64, |top, v| top.max(v.abs()));
        let off = before
            .iter()
            .zip(&after)
            .map(|(b, a)| (b - a).abs() / largest);
        worst = off.fold(worst, f64::max);
    }
    worst
}

#[test]
fn nothing_is_lost_but_the_rounding_of_products() {
    for workers in [1, 2, 3, 5, 8] {
        for values in [ValueType::F32, ValueType::Bf16] {
            for residual in [ErrorRule::Own, ErrorRule::Mean] {
                for rank in [1, 2, 4] {
                    let config = PowerSgd {
                        values,
                        rank,
                        residual,
                        ..PowerSgd::default()
                    };
                    for layout in [layout(), Layout::flat(500)] {
                        let drift = drift(&config, workers, &layout);
                        let context = config.describe();
                        assert!(drift < 2e-6, "{context} P={workers}: {drift:e}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_example_of_the_header_comes_out() {
    let layout = Layout::new([("matrix", vec![6, 6])]).unwrap();
    let mut cluster = Cluster::new(&PowerSgd::default(), 5, &layout).unwrap();
    let gradients: Vec<Vec<f32>> = (1..=5).map(|w| vec![w as f32; 36]).collect();
    cluster.step(&gradients, 0, 0).unwrap();
    let update = check::agreed(cluster.workers(), "power-sgd");
    assert!(update.iter().all(|v| (v - 15.0).abs() < 1e-4), "{update:?}");
    cluster.commit().unwrap();
    for worker in cluster.workers() {
        assert!(worker.residual().iter().all(|v| v.abs() < 1e-4));
    }
}

#[test]
fn a_matrix_of_low_rank_is_delivered_whole_and_dense_parts_exactly() {
    let layout = layout();
    let config = PowerSgd {
        rank: 2,
        ..PowerSgd::default()
    };
    let mut cluster = Cluster::new(&config, 4, &layout).unwrap();
    let mut gradients = generate::integers(3, 4, layout.len() as usize);
    for (w, gradient) in gradients.iter_mut().enumerate() {
        for (i, value) in gradient[..600].iter_mut().enumerate() {
            let (row, col) = ((i / 20) as f32, (i % 20) as f32);
            *value = row * (col + 1.0) + (w as f32 - row) * 0.5;
        }
    }
    cluster.step(&gradients, 0, 0).unwrap();
    let update = check::agreed(cluster.workers(), "power-sgd");
    for (i, got) in update.iter().enumerate().take(630) {
        let sum: f32 = gradients.iter().map(|gradient| gradient[i]).sum();
        let tolerance = if i < 600 { 2e-2 } else { 0.0 };
        assert!(
            (got - sum).abs() <= tolerance,
            "element {i}: {got}, not {sum}"
        );
    }
}

#[test]
fn the_iteration_converges_to_the_largest_direction_and_recovers_from_zeros() {
    let layout = Layout::new([("matrix", vec![40, 40])]).unwrap();
    let mut cluster = Cluster::new(&PowerSgd::default(), 2, &layout).unwrap();
    let matrix = |i: usize| {
        let (row, col) = (i / 40, i % 40);
        10.0 * f32::from(u8::from(row == 3 && col == 5)) + f32::from(u8::from(row == col))
    };
    let gradient: Vec<f32> = (0..1600).map(matrix).collect();
    let zeros = vec![0.0; 1600];
    let mut last = 0.0;
    for step in 0..12 {
        let input = if step < 2 { &zeros } else { &gradient };
        cluster.step(&[input, input], 0, step).unwrap();
        last = check::agreed(cluster.workers(), "power-sgd")[3 * 40 + 5];
        // Without error feedback: every step sees the same matrix.
        if step < 2 {
            cluster.commit().unwrap();
        } else {
            let q: Vec<_> = cluster.workers().iter().map(|w| w.state().method).collect();
            cluster.abort();
            for (worker, method) in cluster.workers_mut().iter_mut().zip(q) {
                let residual = vec![0.0; 1600];
                worker
                    .restore(&spardl_core::State { residual, method })
                    .unwrap();
            }
        }
    }
    assert!((last - 20.0).abs() < 0.5, "{last}");
}
