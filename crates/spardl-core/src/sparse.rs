//! Sparse vectors: ascending, unique, in-range by construction.

use spardl_kernels::{Entries, Level};

use crate::error::DecodeError;

/// A sparse vector of a fixed length: strictly ascending indices with their values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SparseVec {
    len: u32,
    indices: Vec<u32>,
    values: Vec<f32>,
}

impl SparseVec {
    /// An empty vector of length `len`.
    pub const fn new(len: u32) -> Self {
        Self {
            len,
            indices: Vec::new(),
            values: Vec::new(),
        }
    }

    /// A vector from its parts; `None` when the lists differ in length or the indices do not ascend below `len`.
    pub fn from_parts(len: u32, indices: Vec<u32>, values: Vec<f32>) -> Option<Self> {
        let fits = indices.len() == values.len()
            && spardl_kernels::ascends(Level::best(), &indices)
            && indices.last().is_none_or(|&last| last < len);
        fits.then_some(Self {
            len,
            indices,
            values,
        })
    }

    /// The entries of `dense` that are not zero.
    pub fn from_dense(dense: &[f32]) -> Self {
        let mut sparse = Self::new(u32::try_from(dense.len()).unwrap_or(u32::MAX));
        for (index, &value) in (0..sparse.len).zip(dense) {
            if value != 0.0 {
                sparse.indices.push(index);
                sparse.values.push(value);
            }
        }
        sparse
    }

    /// The length of the vector, zeros included.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Does it hold no entry?
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// How many entries it holds.
    pub fn nnz(&self) -> usize {
        self.indices.len()
    }

    /// The indices, ascending.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// The values, in the order of the indices.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, f32)> + '_ {
        self.indices
            .iter()
            .copied()
            .zip(self.values.iter().copied())
    }

    /// Removes all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.indices.clear();
        self.values.clear();
    }

    /// Appends a list whose entries all lie after the present ones.
    ///
    /// # Panics
    /// If they do not.
    pub fn append(&mut self, list: &Entries) {
        let appended = self.extend_with(|indices, values| {
            indices.extend_from_slice(&list.indices);
            values.extend_from_slice(&list.values);
            Ok(())
        });
        appended.expect("a list that goes on where the last one ended");
    }

    /// Appends entries that all lie after the present ones, read by `fill` straight into the lists.
    ///
    /// # Errors
    /// What `fill` returns, or [`DecodeError::BadIndex`] when its entries do not ascend, start too low or end beyond the
    /// length; the vector is then as it was.
    pub fn extend_with(
        &mut self,
        fill: impl FnOnce(&mut Vec<u32>, &mut Vec<f32>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        self.extend_if(fill, |indices| {
            spardl_kernels::ascends(Level::best(), indices)
        })
    }

    /// [`SparseVec::extend_with`] of entries that ascend, as `fill` has made sure of.
    pub(crate) fn extend_with_list(
        &mut self,
        fill: impl FnOnce(&mut Vec<u32>, &mut Vec<f32>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        self.extend_if(fill, |indices| {
            indices.first_chunk().is_none_or(|[last, next]| last < next)
        })
    }

    /// Extends the lists if the new indices, with the one before them, pass this check.
    fn extend_if(
        &mut self,
        fill: impl FnOnce(&mut Vec<u32>, &mut Vec<f32>) -> Result<(), DecodeError>,
        ascends: impl FnOnce(&[u32]) -> bool,
    ) -> Result<(), DecodeError> {
        let before = self.indices.len();
        let result = fill(&mut self.indices, &mut self.values);
        let checked = result.and_then(|()| {
            let joint = before.saturating_sub(1);
            let fits = self.indices.len() == self.values.len()
                && ascends(&self.indices[joint..])
                && self.indices.last().is_none_or(|&last| last < self.len);
            if fits {
                Ok(())
            } else {
                Err(DecodeError::BadIndex { len: self.len })
            }
        });
        if checked.is_err() {
            self.indices.truncate(before);
            self.values.truncate(before);
        }
        checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_do_not_ascend_or_overrun_are_refused() {
        assert!(SparseVec::from_parts(5, vec![0, 4], vec![1.0, 2.0]).is_some());
        assert!(SparseVec::from_parts(5, vec![4, 0], vec![1.0, 2.0]).is_none());
        assert!(SparseVec::from_parts(5, vec![1, 1], vec![1.0, 2.0]).is_none());
        assert!(SparseVec::from_parts(5, vec![0, 5], vec![1.0, 2.0]).is_none());
        assert!(SparseVec::from_parts(5, vec![0], vec![]).is_none());
    }

    #[test]
    fn a_refused_extension_leaves_the_vector_as_it_was() {
        let mut vector = SparseVec::from_dense(&[0.0, 1.0, 0.0]);
        let before = vector.clone();
        let low = |indices: &mut Vec<u32>, values: &mut Vec<f32>| {
            indices.push(1);
            values.push(1.0);
            Ok(())
        };
        assert!(vector.extend_with(low).is_err());
        assert_eq!(vector, before);
    }
}
