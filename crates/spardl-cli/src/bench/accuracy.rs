//! How far an update is from the one that top-k would ideally give.

use spardl_core::{Collective, Update, list};

/// `|U - T| / |T|` in the 2-norm of a finished step that is not committed yet: U is the update and T holds the k largest
/// entries of the sum over workers of residual + gradient. `None` when T is zero.
pub(super) fn relative_error(
    workers: &[&Collective],
    gradients: &[&[f32]],
    k: usize,
) -> Option<f64> {
    let mut difference = sum(workers, gradients);
    keep_top(&mut difference, k);
    let ideal = norm(&difference);
    match workers.first()?.update() {
        Update::Sparse(sparse) => {
            for (index, value) in sparse.iter() {
                difference[index as usize] -= value;
            }
        }
        Update::Dense(dense) => {
            for (difference, value) in difference.iter_mut().zip(dense) {
                *difference -= value;
            }
        }
    }
    (ideal > 0.0).then(|| norm(&difference) / ideal)
}

/// The sum over workers of residual + gradient, added up in f64.
fn sum(workers: &[&Collective], gradients: &[&[f32]]) -> Vec<f32> {
    const CHUNK: usize = 4096;
    let len = gradients.first().map_or(0, |gradient| gradient.len());
    let mut sums = vec![0.0; len];
    for (at, sums) in sums.chunks_mut(CHUNK).enumerate() {
        let range = at * CHUNK..at * CHUNK + sums.len();
        let mut exact = vec![0.0f64; sums.len()];
        // Methods that keep nothing have no residual.
        let residuals = workers
            .iter()
            .filter_map(|worker| worker.residual().get(range.clone()));
        let gradients = gradients.iter().map(|gradient| &gradient[range.clone()]);
        for values in residuals.chain(gradients) {
            for (sum, value) in exact.iter_mut().zip(values) {
                *sum += f64::from(*value);
            }
        }
        for (sum, exact) in sums.iter_mut().zip(exact) {
            *sum = exact as f32;
        }
    }
    sums
}

/// Clears all but the `k` largest magnitudes; ties go to the lower index.
fn keep_top(values: &mut [f32], k: usize) {
    if k >= values.len() {
        return;
    }
    let mut magnitudes: Vec<u32> = values.iter().map(|&v| list::magnitude(v)).collect();
    let (above, limit, _) = magnitudes.select_nth_unstable_by(k, |a, b| b.cmp(a));
    let limit = *limit;
    let mut ties = k - above.iter().filter(|&&m| m > limit).count();
    for value in values {
        let magnitude = list::magnitude(*value);
        if magnitude == limit && ties > 0 {
            ties -= 1;
        } else if magnitude <= limit {
            *value = 0.0;
        }
    }
}

fn norm(values: &[f32]) -> f64 {
    let squares = values.iter().map(|&v| f64::from(v) * f64::from(v));
    squares.sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spardl_algos::{Dense, TopkA};
    use spardl_core::{Algorithm, Layout};
    use spardl_sim::Cluster;

    fn error_of(algorithm: &dyn Algorithm, k: usize, steps: u64) -> Option<f64> {
        let gradients: [&[f32]; 2] = [&[4.0, 0.0, 1.0, 0.0], &[0.0, 3.0, 1.0, 0.0]];
        let mut cluster = Cluster::new(algorithm, 2, &Layout::flat(4)).unwrap();
        for step in 0..steps {
            cluster.step(&gradients, k, step).unwrap();
            cluster.commit().unwrap();
        }
        cluster.step(&gradients, k, steps).unwrap();
        relative_error(&cluster.workers(), &gradients, k)
    }

    #[test]
    fn the_error_is_the_distance_from_the_true_top() {
        // The sum is [4, 3, 2, 0].
        assert_eq!(error_of(&Dense::default(), 4, 0), Some(0.0));
        assert_eq!(
            error_of(&Dense::default(), 2, 0),
            Some(4f64.sqrt() / 25f64.sqrt())
        );
        assert_eq!(
            error_of(&TopkA::default(), 1, 0),
            Some(3.0 / 4.0),
            "it delivers 3 as well"
        );
        assert_eq!(error_of(&Dense::default(), 0, 0), None);
    }

    #[test]
    fn residuals_count() {
        // Both workers kept 1 at index 2: the sum is [4, 3, 4, 0] now, and index 0 wins the tie.
        assert_eq!(error_of(&TopkA::default(), 1, 1), Some(3.0 / 4.0));
        // Later 4 is not the largest any more; each worker's own largest entry is still another one.
        let late = error_of(&TopkA::default(), 1, 2).unwrap();
        assert!(late > 1.0, "{late}");
    }

    #[test]
    fn ties_go_to_the_lower_index() {
        let mut values = [1.0, -2.0, 2.0, 0.0, 2.0];
        keep_top(&mut values, 2);
        assert_eq!(values, [0.0, -2.0, 2.0, 0.0, 0.0]);
        keep_top(&mut values, 0);
        assert_eq!(values, [0.0; 5]);
    }
}
