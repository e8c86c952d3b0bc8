//! Merging of sorted lists by way of a small dense window.

use std::ops::Range;

use spardl_kernels::{Entries, Level};

/// Elements of the window: its sums and marks stay in the first-level cache.
const LEN: usize = 1 << 13;

/// Scratch for merging lists: a stretch of the block small enough for the cache, so that every entry costs a few operations
/// that do not wait for each other, where a merge of sorted lists would guess wrong at every second one.
#[derive(Clone, Debug)]
pub(super) struct Window {
    sums: Box<[f32; LEN]>,
    marks: Box<[u64; LEN / 64]>,
    base: Vec<f32>,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            sums: Box::new([0.0; LEN]),
            marks: Box::new([0; LEN / 64]),
            base: Vec::new(),
        }
    }
}

impl Window {
    /// `known` plus the received `lists` in their order; where an index is not known yet, its value in `work` comes first.
    pub(super) fn fold(
        &mut self,
        kernels: Level,
        range: Range<usize>,
        work: &[f32],
        known: &Entries,
        lists: &[Entries],
        out: &mut Entries,
    ) {
        // The values in `work` lie far apart, so they are fetched ahead, needed or not.
        self.base.clear();
        let mut offsets = Vec::with_capacity(lists.len());
        for list in lists {
            offsets.push(self.base.len());
            spardl_kernels::gather(kernels, work, &list.indices, &mut self.base);
        }
        let Self { sums, marks, base } = self;
        out.reserve(known.len() + base.len());
        let mut at = vec![0; lists.len() + 1];
        for start in range.clone().step_by(LEN) {
            let end = (start + LEN).min(range.end);
            let entries = until(&known.indices, &mut at[0], end);
            let values = &known.values[entries.clone()];
            for (&index, &value) in known.indices[entries].iter().zip(values) {
                let slot = slot(index, start);
                marks[slot / 64] |= 1 << (slot % 64);
                sums[slot] = value;
            }
            for ((list, at), offset) in lists.iter().zip(&mut at[1..]).zip(&offsets) {
                let entries = until(&list.indices, at, end);
                let base = &base[offset + entries.start..offset + entries.end];
                let values = &list.values[entries.clone()];
                for ((&index, &value), &base) in list.indices[entries].iter().zip(values).zip(base)
                {
                    let slot = slot(index, start);
                    let (word, bit) = (&mut marks[slot / 64], 1 << (slot % 64));
                    let before = if *word & bit == 0 { base } else { sums[slot] };
                    *word |= bit;
                    sums[slot] = before + value;
                }
            }
            spardl_kernels::compact(kernels, &marks[..], &sums[..], start as u32, out);
            marks.fill(0);
        }
    }

    /// The entries of `list` whose indices are among `finals`.
    pub(super) fn intersect(
        &mut self,
        kernels: Level,
        range: Range<usize>,
        list: &Entries,
        finals: &[u32],
        out: &mut Entries,
    ) {
        let marks = &mut self.marks;
        out.reserve(list.len().min(finals.len()));
        let (mut at, mut at_final) = (0, 0);
        for start in range.clone().step_by(LEN) {
            let end = (start + LEN).min(range.end);
            let entries = until(&list.indices, &mut at, end);
            while let Some(&index) = finals.get(at_final)
                && (index as usize) < end
            {
                let slot = slot(index, start);
                marks[slot / 64] |= 1 << (slot % 64);
                at_final += 1;
            }
            let (indices, values) = (&list.indices[entries.clone()], &list.values[entries]);
            spardl_kernels::marked(kernels, &marks[..], start as u32, indices, values, out);
            marks.fill(0);
        }
    }
}

/// Where an index lies in the window from `start`. The mask changes nothing; it spares the bounds checks.
const fn slot(index: u32, start: usize) -> usize {
    (index as usize - start) & (LEN - 1)
}

/// The positions of an ascending list from `at` up to index `end`; moves `at` behind them.
fn until(indices: &[u32], at: &mut usize, end: usize) -> Range<usize> {
    let from = *at;
    // A step through the list, not a binary search: the next entries are needed in a moment anyway.
    while indices
        .get(*at)
        .is_some_and(|&index| (index as usize) < end)
    {
        *at += 1;
    }
    from..*at
}
