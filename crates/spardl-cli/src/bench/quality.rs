//! Is the result right? Agreement and conservation on integer-valued gradients, where `==` is the test.

use anyhow::Context;
use spardl_core::{Algorithm, Update};
use spardl_sim::Cluster;

use super::Case;
use super::local::was_updated;

/// What the check found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quality {
    /// Elements at which the workers' updates differ, or inputs and outputs do not balance although the method says so.
    pub(super) wrong: u64,
    /// Did inputs plus residuals equal update plus next residuals, everywhere?
    pub(super) conserved: bool,
    /// Did all workers hold the same bits?
    pub(super) agreed: bool,
}

/// Two untimed steps of a fresh cluster: the second one starts with residuals.
pub(super) fn measure(case: &Case<'_>, algorithm: &dyn Algorithm) -> anyhow::Result<Quality> {
    let len = case.layout.len() as usize;
    let mut cluster = Cluster::new(algorithm, case.workers, &case.layout)?;
    // Small integers, and levels of few bits that stand for them, are exact in f64.
    let mut balance = vec![0.0f64; len];
    let values = algorithm.value_type();
    let exact_on_integers = values.elementwise() == values;
    let mut gradients = vec![vec![0.0f32; len]; case.workers as usize];
    let mut quality = Quality {
        wrong: 0,
        conserved: true,
        agreed: true,
    };
    for step in 0..2 {
        for (worker, gradient) in (0..).zip(&mut gradients) {
            let (seed, worker) = (case.args.seed, worker as usize);
            if exact_on_integers {
                fill_integers(seed, worker as u64, step, gradient);
            } else {
                let residual = cluster.workers()[worker].residual();
                fill_digits(seed, worker as u64, step, residual, gradient);
            }
            gradient
                .iter()
                .zip(&mut balance)
                .for_each(|(g, sum)| *sum += f64::from(*g));
        }
        let report = cluster.step(&gradients, case.k, step)?;
        was_updated(&report, step).context("the check on integers")?;
        let first = cluster.workers()[0].update();
        for worker in &cluster.workers()[1..] {
            quality.wrong += differences(first, worker.update(), len);
        }
        subtract(first, &mut balance);
        cluster.commit()?;
    }
    quality.agreed = quality.wrong == 0;
    for worker in cluster.workers() {
        worker
            .residual()
            .iter()
            .zip(&mut balance)
            .for_each(|(r, sum)| *sum -= f64::from(*r));
    }
    let lost = balance.iter().filter(|&&rest| rest != 0.0).count() as u64;
    quality.conserved = lost == 0;
    if algorithm.laws().conserves {
        quality.wrong += lost;
    }
    Ok(quality)
}

/// Small integers with many ties and zeros; sums stay exact in f32.
fn fill_integers(seed: u64, worker: u64, step: u64, out: &mut [f32]) {
    let mut state = seed ^ (worker << 40) ^ (step << 20) ^ 0x9e37_79b9;
    for value in out {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let bits = state >> 33;
        let magnitude = if bits.is_multiple_of(64) {
            (bits >> 6) % 4000
        } else {
            (bits >> 6) % 12
        };
        let sign = if state >> 63 == 0 { 1.0 } else { -1.0 };
        *value = magnitude as f32 * sign;
    }
}

/// What makes residual plus gradient a digit, of the same sign on all workers: the levels of few bits that then travel have so few
/// digits themselves that no sum rounds.
fn fill_digits(seed: u64, worker: u64, step: u64, residual: &[f32], out: &mut [f32]) {
    fill_integers(seed, worker, step, out);
    for (index, (value, residual)) in out.iter_mut().zip(residual).enumerate() {
        let sign = if index % 2 == 0 { 1.0 } else { -1.0 };
        *value = sign * (1.0 + value.abs() % 5.0) - residual;
    }
}

fn differences(a: Update<'_>, b: Update<'_>, len: usize) -> u64 {
    let bits = |update: Update<'_>| {
        let mut dense = vec![0.0; len];
        update.write_scaled(1.0, &mut dense);
        dense
    };
    if same_bits(a, b) {
        return 0;
    }
    let (a, b) = (bits(a), bits(b));
    a.iter()
        .zip(&b)
        .filter(|(a, b)| a.to_bits() != b.to_bits())
        .count() as u64
}

/// Are two updates the same, bit for bit?
pub(super) fn same_bits(a: Update<'_>, b: Update<'_>) -> bool {
    let same = |a: &[f32], b: &[f32]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
    };
    match (a, b) {
        (Update::Sparse(a), Update::Sparse(b)) => {
            a.indices() == b.indices() && same(a.values(), b.values())
        }
        (Update::Dense(a), Update::Dense(b)) => same(a, b),
        _ => false,
    }
}

fn subtract(update: Update<'_>, balance: &mut [f64]) {
    match update {
        Update::Sparse(sparse) => {
            sparse
                .iter()
                .for_each(|(index, value)| balance[index as usize] -= f64::from(value));
        }
        Update::Dense(dense) => {
            dense
                .iter()
                .zip(balance)
                .for_each(|(value, sum)| *sum -= f64::from(*value));
        }
    }
}
