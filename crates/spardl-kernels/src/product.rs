//! Matrix products, for the small network that is computed without an engine.
//!
//! The sum of an element runs over the inner dimension in order, and products are rounded before they are added: the bits are
//! those of the obvious three loops, at every level. The compiler makes the vector code of one body; the columns of the right
//! factor are copied into panels first, because rows that lie a power of two apart share few places of a cache.

use crate::Level;

/// The left factor of a product: rows of a slice, or its columns.
#[derive(Clone, Copy, Debug)]
pub struct Factor<'a> {
    values: &'a [f32],
    rows: usize,
    depth: usize,
    /// From a row to the next.
    down: usize,
    /// From a column to the next.
    right: usize,
}

impl<'a> Factor<'a> {
    /// The matrix whose rows of `columns` values follow each other in `values`.
    ///
    /// # Panics
    ///
    /// If the values are no whole number of rows.
    pub fn new(values: &'a [f32], columns: usize) -> Self {
        let rows = values.len() / columns.max(1);
        assert_eq!(values.len(), rows * columns, "whole rows");
        Self {
            values,
            rows,
            depth: columns,
            down: columns,
            right: 1,
        }
    }

    /// Its rows as columns.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.depth,
            depth: self.rows,
            down: self.right,
            right: self.down,
            ..self
        }
    }

    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> f32 {
        self.values[row * self.down + column * self.right]
    }
}

/// `c += a b`: the rows of `b` and `c` follow each other, and have `columns` values each.
///
/// # Panics
///
/// If `b` has not a row for each column of `a`, or `c` not one for each row.
///
/// # Example
///
/// ```
/// use spardl_kernels::{Factor, Level, add_product};
///
/// let (a, b) = ([1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 10.0, 1.0]);
/// let mut c = [0.0, 0.0, 0.0, 100.0];
/// add_product(Level::best(), Factor::new(&a, 2), &b, &mut c, 2);
/// assert_eq!(c, [21.0, 2.0, 43.0, 104.0]);
/// ```
pub fn add_product(level: Level, a: Factor<'_>, b: &[f32], c: &mut [f32], columns: usize) {
    assert_eq!(b.len(), a.depth * columns, "a row for each column of a");
    assert_eq!(c.len(), a.rows * columns, "a row for each row of a");
    match level.usable() {
        // SAFETY: `usable` returns a level only if the CPU has every feature of it.
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => unsafe { avx512(a, b, c, columns) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => unsafe { avx2(a, b, c, columns) },
        _ => tiles::<2, 8>(a, b, c, columns),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(a: Factor<'_>, b: &[f32], c: &mut [f32], columns: usize) {
    tiles::<8, 16>(a, b, c, columns);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(a: Factor<'_>, b: &[f32], c: &mut [f32], columns: usize) {
    tiles::<4, 16>(a, b, c, columns);
}

/// The product in tiles of `HIGH` by `WIDE` sums, as many as the compiler keeps in registers: with larger ones it gives up on vectors.
#[inline(always)]
fn tiles<const HIGH: usize, const WIDE: usize>(
    a: Factor<'_>,
    b: &[f32],
    c: &mut [f32],
    columns: usize,
) {
    let mut panel = vec![[0.0; WIDE]; a.depth];
    for left in (0..columns).step_by(WIDE) {
        let width = WIDE.min(columns - left);
        for (row, place) in b.chunks_exact(columns).zip(&mut panel) {
            place[..width].copy_from_slice(&row[left..][..width]);
        }
        let whole = a.rows - a.rows % HIGH;
        for top in (0..whole).step_by(HIGH) {
            tile::<HIGH, WIDE>(&a, &panel, &mut c[left..], [top, width, columns]);
        }
        for top in whole..a.rows {
            tile::<1, WIDE>(&a, &panel, &mut c[left..], [top, width, columns]);
        }
    }
}

/// `HIGH` rows from `top` on, of which `width` columns exist.
#[inline(always)]
fn tile<const HIGH: usize, const WIDE: usize>(
    a: &Factor<'_>,
    panel: &[[f32; WIDE]],
    c: &mut [f32],
    [top, width, columns]: [usize; 3],
) {
    let mut sums = [[0.0; WIDE]; HIGH];
    for (row, sums) in sums.iter_mut().enumerate() {
        sums[..width].copy_from_slice(&c[(top + row) * columns..][..width]);
    }
    for (depth, right) in panel.iter().enumerate() {
        for (row, sums) in sums.iter_mut().enumerate() {
            let left = a.at(top + row, depth);
            for (sum, &right) in sums.iter_mut().zip(right) {
                *sum += left * right;
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        c[(top + row) * columns..][..width].copy_from_slice(&sums[..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(len: usize, salt: u32) -> Vec<f32> {
        (0..len as u32)
            .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(salt) >> 8) as f32 / 1e7 - 0.8)
            .collect()
    }

    fn plain(a: Factor<'_>, b: &[f32], c: &mut [f32], columns: usize) {
        for row in 0..a.rows {
            for column in 0..columns {
                for depth in 0..a.depth {
                    c[row * columns + column] += a.at(row, depth) * b[depth * columns + column];
                }
            }
        }
    }

    #[test]
    fn every_level_has_the_bits_of_three_loops_whatever_the_sizes() {
        let sizes = [0, 1, 2, 7, 8, 9, 31, 40];
        for (rows, depth, columns) in sizes.iter().flat_map(|&rows| {
            let rest = [(1, 1), (3, 33), (17, 10), (40, 64), (0, 5), (5, 0)];
            rest.map(|(depth, columns)| (rows, depth, columns))
        }) {
            let (a, b) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
            let straight = Factor {
                rows,
                ..Factor::new(&a, depth)
            };
            // The same shape from a slice that holds its columns.
            let turned = Factor {
                depth,
                ..Factor::new(&a, rows).transposed()
            };
            for factor in [straight, turned] {
                let mut expected = numbers(rows * columns, 3);
                plain(factor, &b, &mut expected, columns);
                for level in Level::available() {
                    let mut c = numbers(rows * columns, 3);
                    add_product(level, factor, &b, &mut c, columns);
                    let same = c
                        .iter()
                        .zip(&expected)
                        .all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{level:?}: {rows} x {depth} x {columns}");
                }
            }
        }
    }
}
