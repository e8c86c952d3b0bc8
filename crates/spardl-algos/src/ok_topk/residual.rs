//! Which of the delivered entries leave a worker's residual.

use std::cmp::Reverse;

use spardl_core::{Selector, SparseVec, list};

/// Which of the delivered entries leave the residual of the worker that selected them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Intersection {
    /// All of them (rule I).
    #[default]
    Sorted,
    /// In exact steps, those that a binary search finds in the update in order of value: almost none. The others are applied
    /// twice. For comparison with the authors' LSTM/allreducer.py:839 and BERT/allreducer.py:579.
    PublishedUnsorted,
}

impl Intersection {
    /// All rules, by name.
    pub const ALL: [(&'static str, Self); 2] = [
        ("intersection", Self::Sorted),
        ("published-unsorted", Self::PublishedUnsorted),
    ];

    /// Turns `work` into the next residual.
    pub(super) fn apply(
        self,
        selector: &mut Selector,
        work: &mut [f32],
        update: &SparseVec,
        exact: bool,
    ) {
        if self == Self::PublishedUnsorted && exact {
            let found = found_unsorted(selector.sent(0), update);
            selector.apply_rule_a(0, work, &found);
        } else {
            selector.apply_rule_a(0, work, update.indices());
        }
    }
}

/// The `selected` indices that a binary search finds among the indices of the update ordered by value, largest first.
fn found_unsorted(selected: &[u32], update: &SparseVec) -> Vec<u32> {
    let mut entries: Vec<(u32, f32)> = update.iter().collect();
    entries.sort_by_key(|&(index, value)| (Reverse(list::magnitude(value)), index));
    let unsorted: Vec<u32> = entries.iter().map(|entry| entry.0).collect();
    let is_found = |index: u32| {
        let at = unsorted.partition_point(|&other| other < index);
        // The program wraps a position past the end to the first.
        unsorted.get(at).or(unsorted.first()) == Some(&index)
    };
    selected.iter().copied().filter(|&i| is_found(i)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_search_in_a_list_by_value_finds_almost_nothing() {
        let indices: Vec<u32> = (0..1000).collect();
        let values = indices
            .iter()
            .map(|i| ((i * 7919) % 1000) as f32 + 1.0)
            .collect();
        let update = SparseVec::from_parts(1000, indices.clone(), values).unwrap();
        let found = found_unsorted(&indices, &update);
        assert!(found.len() < 100, "{} of 1000", found.len());
        assert!(found_unsorted(&indices, &SparseVec::new(1000)).is_empty());
    }
}
