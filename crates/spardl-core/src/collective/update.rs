//! What a step delivers.

use crate::sparse::SparseVec;

/// The sum over workers that a step delivers.
#[derive(Clone, Copy, Debug)]
pub enum Update<'a> {
    /// Few entries; all others are zero.
    Sparse(&'a SparseVec),
    /// Every element.
    Dense(&'a [f32]),
}

impl Update<'_> {
    /// How many entries are not zero.
    pub fn nnz(&self) -> usize {
        match self {
            Self::Sparse(sparse) => sparse.nnz(),
            Self::Dense(dense) => dense.iter().filter(|&&v| v != 0.0).count(),
        }
    }

    /// Writes the update times `scale` over `out`, zeros included.
    ///
    /// # Panics
    /// When `out` does not have the bucket's length.
    pub fn write_scaled(&self, scale: f32, out: &mut [f32]) {
        let len = match self {
            Self::Sparse(sparse) => sparse.len() as usize,
            Self::Dense(dense) => dense.len(),
        };
        assert_eq!(out.len(), len, "the output has the bucket's length");
        self.write_part(0, scale, out);
    }

    /// Writes the elements from `start` on, times `scale`, over `out`, zeros included.
    ///
    /// # Panics
    /// When the bucket ends before `out` does.
    pub fn write_part(&self, start: usize, scale: f32, out: &mut [f32]) {
        let range = start..start + out.len();
        match self {
            Self::Sparse(sparse) => {
                let len = sparse.len() as usize;
                assert!(range.end <= len, "the bucket has the elements asked for");
                let before = |bound| sparse.indices().partition_point(|&i| (i as usize) < bound);
                let entries = before(range.start)..before(range.end);
                let (indices, values) = (
                    &sparse.indices()[entries.clone()],
                    &sparse.values()[entries],
                );
                let level = spardl_kernels::Level::best();
                spardl_kernels::expand(level, indices, values, scale, start as u32, out);
            }
            Self::Dense(dense) => {
                for (out, value) in out.iter_mut().zip(&dense[range]) {
                    *out = value * scale;
                }
            }
        }
    }

    pub(super) fn is_finite(&self) -> bool {
        let values = match self {
            Self::Sparse(sparse) => sparse.values(),
            Self::Dense(dense) => dense,
        };
        spardl_kernels::all_finite(spardl_kernels::Level::best(), values)
    }
}
