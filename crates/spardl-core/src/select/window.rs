//! Merging of sorted lists by way of a small dense window.

use std::ops::Range;

use spardl_kernels::{Entries, Level};

/// Elements of the window: its sums and marks stay in the first-level cache.
const LEN: usize = 1 << 12;

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
        let mut sink = Sink::new(out, known.len() + base.len());
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
            for (word, bits) in marks.iter_mut().enumerate() {
                sink.put(start, word, std::mem::take(bits), sums);
            }
        }
        sink.finish();
    }

    /// The entries of `list` whose indices are among `finals`.
    pub(super) fn intersect(
        &mut self,
        range: Range<usize>,
        list: &Entries,
        finals: &[u32],
        out: &mut Entries,
    ) {
        let marks = &mut self.marks;
        out.indices.resize(list.len() + 1, 0);
        out.values.resize(list.len() + 1, 0.0);
        let (mut at, mut at_final, mut count) = (0, 0, 0);
        for start in range.clone().step_by(LEN) {
            let end = (start + LEN).min(range.end);
            let entries = until(&list.indices, &mut at, end);
            for &index in &finals[until(finals, &mut at_final, end)] {
                let slot = slot(index, start);
                marks[slot / 64] |= 1 << (slot % 64);
            }
            let values = &list.values[entries.clone()];
            for (&index, &value) in list.indices[entries].iter().zip(values) {
                let slot = slot(index, start);
                out.indices[count] = index;
                out.values[count] = value;
                count += (marks[slot / 64] >> (slot % 64) & 1) as usize;
            }
            marks.fill(0);
        }
        out.indices.truncate(count);
        out.values.truncate(count);
    }
}

/// Where an index lies in the window from `start`. The mask changes nothing; it spares the bounds checks.
const fn slot(index: u32, start: usize) -> usize {
    (index as usize - start) & (LEN - 1)
}

/// Appends marked slots to a list, four at a time whether there are four or not: most words have fewer, and a loop over the bits
/// would guess its end wrong at every word.
struct Sink<'a> {
    out: &'a mut Entries,
    end: usize,
}

impl<'a> Sink<'a> {
    const STRIDE: usize = 4;

    /// A sink for at most `most` more entries.
    fn new(out: &'a mut Entries, most: usize) -> Self {
        let end = out.len();
        out.indices.resize(end + most + Self::STRIDE, 0);
        out.values.resize(end + most + Self::STRIDE, 0.0);
        Self { out, end }
    }

    fn put(&mut self, start: usize, word: usize, mut bits: u64, sums: &[f32; LEN]) {
        let mut end = self.end;
        self.end += bits.count_ones() as usize;
        loop {
            let indices = &mut self.out.indices[end..end + Self::STRIDE];
            let values = &mut self.out.values[end..end + Self::STRIDE];
            for i in 0..Self::STRIDE {
                let slot = (word * 64 + bits.trailing_zeros() as usize) & (LEN - 1);
                indices[i] = (start + slot) as u32;
                values[i] = sums[slot];
                bits &= bits.wrapping_sub(1);
            }
            if bits == 0 {
                return;
            }
            end += Self::STRIDE;
        }
    }

    fn finish(self) {
        self.out.indices.truncate(self.end);
        self.out.values.truncate(self.end);
    }
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
