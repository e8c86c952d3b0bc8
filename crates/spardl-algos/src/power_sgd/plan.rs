//! What is compressed: the matrices of a bucket and where their factors lie in the messages.

use std::ops::Range;

use spardl_core::Layout;

/// A matrix is compressed when its factors have less than one in this many of its elements (torch's `min_compression_rate`).
const MIN_COMPRESSION: usize = 2;

/// A part of one dimension with this many elements is no bias but a flattened matrix (as FSDP makes them).
const LONG: usize = 1 << 16;

/// One compressed matrix.
#[derive(Clone, Debug)]
pub(super) struct Matrix {
    /// Its elements in the bucket, by rows; the last row may be short.
    pub(super) range: Range<usize>,
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Its left factor among the values of the first all-reduce.
    pub(super) p: Range<usize>,
    /// Its right factor among the values of the second.
    pub(super) q: Range<usize>,
}

/// A bucket as the method sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    pub(super) matrices: Vec<Matrix>,
    /// What is sent as it is: ranges of the bucket, one after the other at the start of the first all-reduce.
    pub(super) dense: Vec<Range<usize>>,
    /// Values of the first all-reduce: dense elements, then left factors.
    pub(super) first: usize,
    /// Values of the second: right factors.
    pub(super) second: usize,
}

impl Plan {
    pub(super) fn new(layout: &Layout, rank: usize) -> Self {
        let mut plan = Self::default();
        let mut sized = Vec::new();
        let flat = layout.parts().len() == 1;
        for part in layout.parts() {
            let range = part.offset as usize..part.offset as usize + part.len();
            let shape = match part.shape.as_slice() {
                &[len] if flat || len >= LONG => near_square(len),
                [rows, rest @ ..] if !rest.is_empty() => (*rows, rest.iter().product()),
                _ => (0, 0),
            };
            let rank = rank.min(shape.0).min(shape.1);
            if (shape.0 + shape.1) * rank * MIN_COMPRESSION < shape.0 * shape.1 {
                sized.push((range, shape, rank));
            } else if !range.is_empty() {
                plan.first += range.len();
                plan.dense.push(range);
            }
        }
        for (range, (rows, cols), rank) in sized {
            let p = plan.first..plan.first + rows * rank;
            let q = plan.second..plan.second + cols * rank;
            (plan.first, plan.second) = (p.end, q.end);
            plan.matrices.push(Matrix {
                range,
                rows,
                cols,
                p,
                q,
            });
        }
        plan
    }
}

/// Rows and columns of a bucket without structure (torch's `batched_powerSGD_hook` pads to a square; here the last row is short).
fn near_square(len: usize) -> (usize, usize) {
    let floor = len.isqrt();
    let cols = floor + usize::from(floor * floor < len);
    if cols == 0 {
        (0, 0)
    } else {
        (len.div_ceil(cols), cols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_compressed_where_it_pays_and_the_rest_is_dense() {
        let shapes = [
            ("conv", vec![64, 3, 3, 3]),
            ("bias", vec![64]),
            ("scalar", vec![]),
            ("empty", vec![0, 5]),
            ("small", vec![4, 4]),
            ("linear", vec![100, 200]),
        ];
        let layout = Layout::new(shapes).unwrap();
        let plan = Plan::new(&layout, 4);
        let shapes: Vec<_> = plan.matrices.iter().map(|m| (m.rows, m.cols)).collect();
        assert_eq!(shapes, [(64, 27), (100, 200)]);
        assert_eq!(plan.dense, [1728..1792, 1792..1793, 1793..1809]);
        assert_eq!(plan.first, 81 + 4 * (64 + 100));
        assert_eq!(plan.second, 4 * (27 + 200));
        let total: usize = plan.dense.iter().map(ExactSizeIterator::len).sum();
        let compressed: usize = plan.matrices.iter().map(|m| m.range.len()).sum();
        assert_eq!(total + compressed, layout.len() as usize);
    }

    #[test]
    fn a_long_part_of_one_dimension_is_a_flattened_matrix() {
        let layout = Layout::new([("flat", vec![LONG]), ("bias", vec![LONG - 1])]).unwrap();
        let plan = Plan::new(&layout, 1);
        assert_eq!((plan.matrices[0].rows, plan.matrices[0].cols), (256, 256));
        assert_eq!(plan.dense, std::slice::from_ref(&(LONG..2 * LONG - 1)));
    }

    #[test]
    fn a_bucket_without_structure_is_nearly_square() {
        assert_eq!(near_square(0), (0, 0));
        assert_eq!(near_square(1), (1, 1));
        assert_eq!(near_square(97), (10, 10));
        assert_eq!(near_square(90), (9, 10));
        assert_eq!(near_square(14_728_266), (3838, 3838));
        let plan = Plan::new(&Layout::flat(97), 1);
        assert_eq!((plan.matrices.len(), plan.first, plan.second), (1, 10, 10));
        assert!(Plan::new(&Layout::flat(9), 1).matrices.is_empty());
    }
}
