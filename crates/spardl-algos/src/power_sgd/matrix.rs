//! Products of tall and narrow matrices, and their orthogonalisation: deterministic, with + - * / and square roots only.
//!
//! The gradient's matrices are stored by rows, the narrow ones (`p` with a row per row, `q` with a row per column of the
//! gradient's matrix) by columns. The last row of a gradient's matrix may be short; what is missing counts as zero.

/// `p = m q`: one column of `p` per column of `q`.
pub(super) fn times(m: &[f32], cols: usize, q: &[f32], p: &mut [f32]) {
    let rows = m.len().div_ceil(cols);
    for (i, row) in m.chunks(cols).enumerate() {
        for (q, p) in q.chunks(cols).zip(p.chunks_mut(rows)) {
            p[i] = dot(row, q);
        }
    }
}

/// `q = m^T p`.
pub(super) fn transposed_times(m: &[f32], cols: usize, p: &[f32], q: &mut [f32]) {
    let rows = m.len().div_ceil(cols);
    q.fill(0.0);
    for (i, row) in m.chunks(cols).enumerate() {
        for (p, q) in p.chunks(rows).zip(q.chunks_mut(cols)) {
            add_scaled(q, p[i], row);
        }
    }
}

/// Calls `each(row number, row)` with the rows of `p q^T`.
pub(super) fn outer(
    p: &[f32],
    q: &[f32],
    rows: usize,
    cols: usize,
    mut each: impl FnMut(usize, &[f32]),
) {
    let mut row = vec![0.0; cols];
    for i in 0..rows {
        row.fill(0.0);
        for (p, q) in p.chunks(rows).zip(q.chunks(cols)) {
            add_scaled(&mut row, p[i], q);
        }
        each(i, &row);
    }
}

/// Makes the columns of `a`, of `rows` elements each, orthonormal from the first on (Gram-Schmidt).
///
/// A column that depends on those before it is given to `replace`, once; when it still depends on them it becomes zero.
pub(super) fn orthogonalise(
    a: &mut [f32],
    rows: usize,
    mut replace: impl FnMut(usize, &mut [f32]),
) {
    for column in 0..a.len() / rows {
        let (before, rest) = a.split_at_mut(column * rows);
        let current = &mut rest[..rows];
        if !orthonormal(before, current) {
            replace(column, current);
            if !orthonormal(before, current) {
                current.fill(0.0);
            }
        }
    }
}

/// Projects the columns of `before` out of `current` and normalises it; false, with `current` unspecified, when too little is left
/// to tell a direction from rounding errors. Infinities leave a NaN.
fn orthonormal(before: &[f32], current: &mut [f32]) -> bool {
    /// Products of f32 are exact in f64; what the projection leaves of a dependent column is the rounding of the inputs.
    const DEPENDENT: f64 = 1e-6;
    let rows = current.len();
    let mut exact: Vec<f64> = current.iter().map(|&x| f64::from(x)).collect();
    let norm = |column: &[f64]| column.iter().map(|x| x * x).sum::<f64>().sqrt();
    let first = norm(&exact);
    // A second projection removes what rounding left of the first.
    for _ in 0..2 {
        for column in before.chunks(rows) {
            let pairs = exact.iter().zip(column);
            let along: f64 = pairs.map(|(x, &c)| x * f64::from(c)).sum();
            let pairs = exact.iter_mut().zip(column);
            pairs.for_each(|(x, &c)| *x -= along * f64::from(c));
        }
    }
    let last = norm(&exact);
    if first == 0.0 || (first.is_finite() && last <= DEPENDENT * first) {
        return false;
    }
    for (current, x) in current.iter_mut().zip(exact) {
        *current = (x / last) as f32;
    }
    true
}

/// Sixteen partial sums, added pairwise: the same bits whatever the vector width.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let len = a.len().min(b.len());
    let (a, a_rest) = a[..len].as_chunks::<LANES>();
    let (b, b_rest) = b[..len].as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for (a, b) in a.iter().zip(b) {
        for (lane, (a, b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane += a * b;
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += a * b;
    }
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// `sum += factor * row` on the length of the shorter.
fn add_scaled(sum: &mut [f32], factor: f32, row: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(row) {
        *sum += factor * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small numbers that are not multiples of each other.
    fn numbers(len: usize) -> Vec<f32> {
        (0..len)
            .map(|i| ((i * i * 7 + i * 3 + 1) % 23) as f32 - 11.0)
            .collect()
    }

    #[test]
    fn products_are_those_of_the_definition_also_with_a_short_last_row() {
        for (len, cols, rank) in [(12, 4, 1), (11, 4, 2), (1000, 37, 3), (5, 5, 1)] {
            let rows = usize::div_ceil(len, cols);
            let (m, q) = (numbers(len), numbers(cols * rank));
            let at = |i: usize, c: usize| m.get(i * cols + c).copied().unwrap_or(0.0);
            let mut p = vec![0.0; rows * rank];
            times(&m, cols, &q, &mut p);
            for (k, got) in p.iter().enumerate() {
                let (j, i) = (k / rows, k % rows);
                let expected: f32 = (0..cols).map(|c| at(i, c) * q[j * cols + c]).sum();
                assert_eq!(*got, expected, "whole numbers are exact");
            }
            let mut back = vec![0.0; cols * rank];
            transposed_times(&m, cols, &p, &mut back);
            for (k, got) in back.iter().enumerate() {
                let (j, c) = (k / cols, k % cols);
                let expected: f32 = (0..rows).map(|i| at(i, c) * p[j * rows + i]).sum();
                assert_eq!(*got, expected);
            }
            outer(&p, &q, rows, cols, |i, row| {
                for (c, got) in row.iter().enumerate() {
                    let expected: f32 = (0..rank).map(|j| p[j * rows + i] * q[j * cols + c]).sum();
                    assert_eq!(*got, expected);
                }
            });
        }
    }

    #[test]
    fn columns_become_orthonormal_and_dependent_ones_are_replaced_or_zero() {
        let rows = 50;
        let mut a = numbers(4 * rows);
        let (first, rest) = a.split_at_mut(rows);
        rest[..rows]
            .iter_mut()
            .zip(first)
            .for_each(|(x, y)| *x = 3.0 * *y);
        let mut replaced = Vec::new();
        let mut plain = a.clone();
        orthogonalise(&mut plain, rows, |column, _| replaced.push(column));
        assert_eq!(replaced, [1]);
        assert!(plain[rows..2 * rows].iter().all(|&x| x == 0.0));
        orthogonalise(&mut a, rows, |_, column| column[7] = 100.0);
        for i in 0..4 {
            for j in 0..4 {
                let dot = dot(&a[i * rows..][..rows], &a[j * rows..][..rows]);
                let expected = if i == j { 1.0 } else { 0.0 };
                assert!((dot - expected).abs() < 1e-6, "columns {i} and {j}: {dot}");
            }
        }
    }

    #[test]
    fn infinities_are_not_hidden() {
        let mut a = vec![1.0, f32::INFINITY, 2.0];
        orthogonalise(&mut a, 3, |_, _| unreachable!());
        assert!(a.iter().any(|x| x.is_nan()));
    }
}
