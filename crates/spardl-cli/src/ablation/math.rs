//! Norms, means and the true top-k.

/// The Euclidean norm.
pub(super) fn norm(values: impl IntoIterator<Item = f64>) -> f64 {
    let sum: f64 = values.into_iter().map(|value| value * value).sum();
    sum.sqrt()
}

/// The mean; 0 of nothing.
pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(super) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

pub(super) fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// The indices of the `k` largest magnitudes that are not zero; ties go to the lower index.
pub(super) fn top(values: &[f64], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).filter(|&i| values[i] != 0.0).collect();
    let larger_first = |&a: &usize, &b: &usize| {
        let (x, y) = (values[a].abs(), values[b].abs());
        y.total_cmp(&x).then(a.cmp(&b))
    };
    if k < order.len() {
        order.select_nth_unstable_by(k, larger_first);
        order.truncate(k);
    }
    order.sort_unstable();
    order
}

/// The element-wise sum.
pub(super) fn sum<V: AsRef<[f32]>>(vectors: impl IntoIterator<Item = V>, len: usize) -> Vec<f64> {
    let mut total = vec![0.0; len];
    for vector in vectors {
        for (total, value) in total.iter_mut().zip(vector.as_ref()) {
            *total += f64::from(*value);
        }
    }
    total
}

/// How many times the mean the largest is; 1 of nothing.
pub(super) fn imbalance(counts: &[u64]) -> f64 {
    let total: u64 = counts.iter().sum();
    let largest = counts.iter().max().copied().unwrap_or(0);
    if total == 0 {
        return 1.0;
    }
    largest as f64 * counts.len() as f64 / total as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn top_takes_the_largest_and_the_lower_index_of_ties_and_no_zeros() {
        assert_eq!(top(&[1.0, -3.0, 3.0, 0.0, 2.0], 2), [1, 2]);
        assert_eq!(top(&[2.0, 2.0, 2.0], 2), [0, 1]);
        assert_eq!(top(&[0.0, 5.0], 2), [1]);
    }
}
