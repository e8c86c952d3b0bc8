//! The laws as checks on a finished, uncommitted step of a cluster.

use spardl_core::{Collective, MethodState, Update};

/// The update as a dense vector.
pub fn dense(update: Update<'_>, len: usize) -> Vec<f32> {
    let mut out = vec![0.0; len];
    update.write_scaled(1.0, &mut out);
    out
}

/// Asserts that all workers hold the same bits, and returns the common update.
///
/// # Panics
/// When two workers differ.
pub fn agreed<'a>(workers: impl IntoIterator<Item = &'a Collective>, context: &str) -> Vec<f32> {
    let workers: Vec<&Collective> = workers.into_iter().collect();
    let len = workers[0].len();
    let first = dense(workers[0].update(), len);
    for (rank, worker) in workers.iter().enumerate() {
        let other = dense(worker.update(), len);
        let differs = (0..len).find(|&i| first[i].to_bits() != other[i].to_bits());
        assert_eq!(differs, None, "{context}: ranks 0 and {rank} differ");
    }
    first
}

/// The sum over workers of residual plus gradient, per element, in exact integers.
pub fn inputs<'a>(
    workers: impl IntoIterator<Item = &'a Collective>,
    gradients: &[Vec<f32>],
) -> Vec<i64> {
    let mut sums = residuals(workers);
    for gradient in gradients {
        add(&mut sums, gradient);
    }
    sums
}

/// The sum over workers of the residuals, per element, in exact integers.
pub fn residuals<'a>(workers: impl IntoIterator<Item = &'a Collective>) -> Vec<i64> {
    let mut sums = Vec::new();
    for worker in workers {
        sums.resize(worker.len(), 0);
        add(&mut sums, worker.residual());
    }
    sums
}

/// Adds integer-valued floats.
///
/// # Panics
/// When a value is not an integer.
pub fn add(sums: &mut [i64], values: &[f32]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        assert_eq!(value.fract(), 0.0, "test values are integers, got {value}");
        *sum += value as i64;
    }
}

/// The bits of values: `==` on them tells -0.0 from 0.0.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// What one worker keeps between steps, bit by bit.
pub type Kept = (Vec<u32>, MethodState);

/// What every worker keeps between steps.
pub fn kept<'a>(workers: impl IntoIterator<Item = &'a Collective>) -> Vec<Kept> {
    let states = workers.into_iter().map(Collective::state);
    states
        .map(|state| (bits(&state.residual), state.method))
        .collect()
}
