//! Blocks of which much is selected, and tiny ones: all current values lie in an array beside `work`.
//!
//! Where one entry in some ten is selected, lists touch every cache line anyway. Then the array is the shorter form: to add a list is one
//! pass over it, to find the limit another, to take what reaches it a third, each as fast as memory; nothing needs a prediction. The
//! array is as long as the bucket, which is O(k) where much is selected.
//!
//! A block that nothing was added to needs no array either: what was taken of it is what reaches a limit, which says it all. Where that
//! was so in the last step, the pass looks for candidates as in a listed block, so that nothing of the block is read again.
//!
//! A tiny block has no room to save in, and lists of its own would take many times its size.

use spardl_kernels::{Entries, Level};

use super::ranks::Limit;
use super::{Form, Selector, merge};
use crate::codec::ValueType;
use crate::list::{drop_zeros, magnitude};

/// A selection of one entry in so many makes a block crowded.
const CROWDED: usize = 16;

/// Blocks of at most so many elements are tiny: what an overlay has of its own takes more than their values.
const TINY: usize = 64;

/// A crowded block.
#[derive(Clone, Debug, Default)]
pub(super) struct Crowded {
    /// Received lists, in the order they came, not yet added.
    pub(super) pending: Vec<Entries>,
    values: Values,
    /// The entries of `work` with at least the magnitude `floor`.
    pub(super) found: Entries,
    /// Infinite when nothing was looked for.
    pub(super) floor: f32,
}

impl Crowded {
    /// Are the current values in the array?
    pub(super) const fn is_loaded(&self) -> bool {
        matches!(self.values, Values::OfArray)
    }
}

/// Where the current values of a crowded block are.
#[derive(Clone, Copy, Debug, Default)]
enum Values {
    /// Those of `work`.
    #[default]
    OfWork,
    /// Those of `work` without what was taken: zeros there.
    Cut(Cut),
    /// In the array.
    OfArray,
}

/// What was taken of a block: the values with magnitude bits of at least `bits`, and from position `end` on only those above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    bits: u32,
    end: usize,
}

impl Cut {
    /// The cut of `values` at a limit: the last of those equal to it are those that are too many.
    fn at(limit: Limit, values: &[f32]) -> Self {
        Self {
            bits: limit.bits.max(1),
            end: first_loser(values, limit),
        }
    }

    fn clear(self, kernels: Level, values: &mut [f32]) {
        let (before, after) = values.split_at_mut(self.end);
        spardl_kernels::leave(kernels, before, self.bits, &[]);
        spardl_kernels::leave(kernels, after, self.bits + 1, &[]);
    }
}

/// With one selected element in so few, a list of candidates costs more than to read the block again.
const MANY: usize = 6;

/// Is a block of `len` elements too small for lists?
pub(super) const fn is_tiny(len: usize) -> bool {
    len <= TINY
}

/// Is a block of `len` elements of which `quota` are selected crowded?
pub(super) const fn is_crowded(len: usize, quota: usize) -> bool {
    quota >= len.div_ceil(CROWDED)
}

/// Are so many of `len` elements selected that the pass should not look for them?
pub(super) const fn is_full(len: usize, quota: usize) -> bool {
    quota >= len.div_ceil(MANY)
}

impl Selector {
    /// A step begins in which the block is crowded; the pass looks for entries of magnitude at least `floor`.
    pub(super) fn start_crowded(&mut self, block: usize, floor: f32) {
        if !matches!(self.forms[block], Form::Crowded(_)) {
            self.forms[block] = Form::Crowded(Box::default());
        }
        if let Form::Crowded(crowded) = &mut self.forms[block] {
            crowded.pending.clear();
            crowded.values = Values::OfWork;
            crowded.found.clear();
            crowded.floor = floor;
        }
    }

    /// The values of the pass become the current ones of the tiny blocks.
    pub(super) fn load_tiny(&mut self, work: &[f32]) {
        if self.dense.is_empty()
            && self
                .forms
                .iter()
                .any(|form| !matches!(form, Form::Listed(_)))
        {
            self.dense = spardl_kernels::zeroed(work.len());
        }
        for (block, form) in self.forms.iter().enumerate() {
            if let Form::Tiny = form {
                let range = self.partition.range(block);
                self.dense[range.clone()].copy_from_slice(&work[range]);
            }
        }
    }

    /// Makes the received lists part of the current values of a crowded block, which are then in the array.
    pub(super) fn load(&mut self, block: usize, work: &[f32]) {
        let Form::Crowded(crowded) = &mut self.forms[block] else {
            return;
        };
        let range = self.partition.range(block);
        let before = std::mem::replace(&mut crowded.values, Values::OfArray);
        let (work, values) = (&work[range.clone()], &mut self.dense[range.clone()]);
        let first = match before {
            Values::OfArray if crowded.pending.is_empty() => return,
            Values::OfArray => None,
            Values::OfWork => Some(work),
            Values::Cut(cut) => {
                values.copy_from_slice(work);
                cut.clear(self.kernels, values);
                None
            }
        };
        self.pieces.load(range, first, values, &crowded.pending);
        let mut added = std::mem::take(&mut crowded.pending);
        self.reuse(added.drain(..));
    }

    /// Loads the block if that changes its values or they were cut before: what is untouched is read where it is.
    fn load_if_touched(&mut self, block: usize, work: &[f32]) {
        if !self.is_untouched(block) {
            self.load(block, work);
        }
    }

    fn is_untouched(&self, block: usize) -> bool {
        let Form::Crowded(crowded) = &self.forms[block] else {
            return false;
        };
        crowded.pending.is_empty() && matches!(crowded.values, Values::OfWork)
    }

    /// Removes the `quota` largest values of the block.
    pub(super) fn take_dense_top(
        &mut self,
        block: usize,
        work: &[f32],
        quota: usize,
        values: ValueType,
        out: &mut Entries,
    ) {
        self.load_if_touched(block, work);
        let range = self.partition.range(block);
        let untouched = self.is_untouched(block);
        self.hints[block].is_read_alone = untouched && values.is_exact();
        if self.hints[block].is_read_alone && self.take_found(block, quota, out) {
            return;
        }
        let current = if untouched { work } else { &self.dense };
        let current = &current[range.clone()];
        let limit = self.ranks.limit_of_array(self.kernels, current, quota);
        self.hints[block].selected(quota, limit);
        // Where zeros are among the largest, there are no more entries than may be taken.
        let limit = limit.filter(|limit| limit.bits > 0).unwrap_or_default();
        if !untouched || !values.is_exact() {
            self.load(block, work);
            return self.take_dense(block, limit, values, out);
        }
        let cut = Cut::at(limit, current);
        let (before, after) = current.split_at(cut.end);
        let start = range.start as u32;
        let kernels = self.kernels;
        spardl_kernels::extract_from(kernels, before, start, cut.bits, out);
        let start = start + before.len() as u32;
        spardl_kernels::extract_from(kernels, after, start, cut.bits + 1, out);
        if let Form::Crowded(crowded) = &mut self.forms[block] {
            crowded.values = Values::Cut(cut);
        }
    }

    /// Removes the `quota` largest values of an untouched block, if the pass found so many.
    fn take_found(&mut self, block: usize, quota: usize, out: &mut Entries) -> bool {
        let (range, kernels) = (self.partition.range(block), self.kernels);
        let Form::Crowded(crowded) = &mut self.forms[block] else {
            return false;
        };
        let (found, floor) = (&crowded.found, crowded.floor);
        if floor == f32::INFINITY {
            return false;
        }
        let hint = &mut self.hints[block];
        let values = &found.values;
        let limit = self.ranks.limit(kernels, values, quota, hint.magnitude);
        let enough = floor == 0.0 || limit.is_some_and(|limit| limit.bits >= magnitude(floor));
        hint.held(enough);
        if !enough {
            self.rescans += 1;
            return false;
        }
        hint.selected(quota, limit);
        hint.learn(kernels, values, floor);
        let Limit { bits, excess } = limit.unwrap_or_default();
        let bits = bits.max(1);
        let end = first_loser(values, Limit { bits, excess });
        let (before, after) = found.indices.split_at(end);
        spardl_kernels::take(kernels, before, &values[..end], bits, out);
        spardl_kernels::take(kernels, after, &values[end..], bits + 1, out);
        let end = after
            .first()
            .map_or(range.len(), |&index| index as usize - range.start);
        crowded.values = Values::Cut(Cut { bits, end });
        true
    }

    /// Removes the values that reach the limit (zeros never) from a block that is in the array.
    pub(super) fn take_dense(
        &mut self,
        block: usize,
        limit: Limit,
        values: ValueType,
        out: &mut Entries,
    ) {
        let (range, kernels) = (self.partition.range(block), self.kernels);
        let (first, start) = (out.len(), range.start as u32);
        let current = &mut self.dense[range];
        let cut = Cut::at(limit, current);
        let (before, after) = current.split_at_mut(cut.end);
        spardl_kernels::take_out(kernels, before, start, cut.bits, out);
        let start = start + before.len() as u32;
        spardl_kernels::take_out(kernels, after, start, cut.bits + 1, out);
        if !values.is_exact() {
            self.quantise(values, &mut out.values[first..]);
            let indices = &out.indices[first..];
            spardl_kernels::scatter(kernels, &mut self.dense, indices, &self.rests);
            drop_zeros(out, first);
        }
    }

    /// Rule A of a block that is not listed.
    pub(super) fn apply_dense_rule_a(&mut self, block: usize, work: &mut [f32], finals: &[u32]) {
        let kernels = self.kernels;
        if let Some(cut) = self.unloaded_cut(block) {
            let end = self.partition.start(block) as usize + cut.end;
            let (before, after) = finals.split_at(merge::first_from(finals, end));
            spardl_kernels::clear_at(kernels, work, before, cut.bits);
            spardl_kernels::clear_at(kernels, work, after, cut.bits + 1);
        } else if !self.is_untouched(block) {
            self.load(block, work);
            spardl_kernels::copy_at(kernels, &self.dense, work, finals);
        }
    }

    /// Rule B of a block that is not listed.
    pub(super) fn apply_dense_rule_b(&mut self, block: usize, work: &mut [f32]) {
        let range = self.partition.range(block);
        if let Some(cut) = self.unloaded_cut(block) {
            cut.clear(self.kernels, &mut work[range]);
        } else if !self.is_untouched(block) {
            self.load(block, work);
            work[range.clone()].copy_from_slice(&self.dense[range]);
        }
    }

    /// What was taken of a block whose values are otherwise still those of `work`.
    fn unloaded_cut(&self, block: usize) -> Option<Cut> {
        match &self.forms[block] {
            Form::Crowded(crowded) if crowded.pending.is_empty() => match crowded.values {
                Values::Cut(cut) => Some(cut),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Where the values equal to the limit begin to be too many.
fn first_loser(values: &[f32], limit: Limit) -> usize {
    const STRETCH: usize = 256;
    let (mut end, mut left) = (values.len(), limit.excess);
    for stretch in values.rchunks(STRETCH) {
        if left == 0 {
            break;
        }
        let start = end - stretch.len();
        let equal = |value: &f32| magnitude(*value) == limit.bits;
        // A count without a branch, because it is almost always zero.
        let count = stretch
            .iter()
            .fold(0, |n, value| n + u32::from(equal(value)));
        if (count as usize) < left {
            left -= count as usize;
            end = start;
            continue;
        }
        let mut losers = (0..stretch.len()).rev().filter(|&at| equal(&stretch[at]));
        return start + losers.nth(left - 1).unwrap_or(0);
    }
    if left == 0 { values.len() } else { 0 }
}
