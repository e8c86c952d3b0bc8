//! Blocks of which little is selected: an overlay of lists over the values of the pass.
//!
//! The overlay is the sorted list of the block's candidates and of every index that messages touched, with their current values.
//! Received lists wait and are folded in together when the block's values are asked for.
//!
//! When the block is sparsified, the top-q of its overlay is exact if and only if the q-th largest *current* magnitude there is at
//! least the low threshold (or that is 0, when every non-zero is a candidate). Otherwise that one block is scanned again.
//! Counter-example to anything laxer: work = [10, 9, 1, .9], threshold 5, q = 2, then -9.95 arrives at index 0: the candidates are
//! now .05 and 9, but the answer is 9 and 1.

use spardl_kernels::Entries;

use super::hints::sampled_floor;
use super::ranks::Limit;
use super::{Form, Selector};
use crate::codec::ValueType;
use crate::feedback::Feedback;
use crate::gradient::Gradient;
use crate::list::{drop_zeros, magnitude};

/// What is known of a block in this step.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    /// Candidates and touched entries with their current values, ascending.
    pub(super) entries: Entries,
    /// Received lists, in the order they came, not yet part of `entries`.
    pub(super) pending: Vec<Entries>,
    /// Every entry of `work` with at least this magnitude is in `entries` (0: every non-zero).
    pub(super) floor: f32,
}

impl Selector {
    /// A step begins in which the block is listed.
    pub(super) fn start_listed(&mut self, block: usize, floor: f32) {
        if !matches!(self.forms[block], Form::Listed(_)) {
            self.forms[block] = Form::Listed(Box::default());
        }
        let overlay = self.overlay(block);
        overlay.entries.clear();
        overlay.pending.clear();
        overlay.floor = floor;
    }

    fn overlay(&mut self, block: usize) -> &mut Overlay {
        match &mut self.forms[block] {
            Form::Listed(overlay) => overlay,
            _ => unreachable!("the block is listed"),
        }
    }

    /// The floor of the coming pass: from the last selection of about this quota, else from a sample.
    pub(super) fn predict(
        &self,
        block: usize,
        feedback: &Feedback,
        gradient: Gradient<'_>,
        quota: usize,
    ) -> f32 {
        let range = self.partition.range(block);
        if quota == 0 {
            return f32::INFINITY;
        }
        self.hints[block].floor(quota).unwrap_or_else(|| {
            let residual = feedback.residual();
            sampled_floor(range.len(), quota, |i| {
                residual[range.start + i] + gradient.get(range.start + i)
            })
        })
    }

    /// Makes the received lists part of the known entries.
    pub(super) fn fold(&mut self, block: usize, work: &[f32]) {
        let Form::Listed(overlay) = &mut self.forms[block] else {
            return;
        };
        if overlay.pending.is_empty() {
            return;
        }
        let Overlay {
            entries, pending, ..
        } = &mut **overlay;
        let range = self.partition.range(block);
        self.pieces.fold(range, work, entries, pending);
        let mut folded = std::mem::take(pending);
        self.reuse(folded.drain(..));
        self.overlay(block).pending = folded;
    }

    /// Removes the `quota` largest entries of the block.
    pub(super) fn take_listed_top(
        &mut self,
        block: usize,
        work: &[f32],
        quota: usize,
        values: ValueType,
        out: &mut Entries,
    ) {
        self.fold(block, work);
        let limit = self.limit(block, work, quota).unwrap_or_default();
        if limit.excess > 0 {
            self.take_with_ties(block, limit, values, out);
        } else {
            self.take_listed(block, limit.bits, values, out);
        }
    }

    /// The limit of the `quota` largest entries of the block, all of which are known when it returns; `None` when there are fewer.
    fn limit(&mut self, block: usize, work: &[f32], quota: usize) -> Option<Limit> {
        let (kernels, guess) = (self.kernels, self.hints[block].magnitude);
        loop {
            let Form::Listed(overlay) = &self.forms[block] else {
                return None;
            };
            let (values, floor) = (&overlay.entries.values, overlay.floor);
            let limit = self.ranks.limit(kernels, values, quota, guess);
            let enough = floor == 0.0 || limit.is_some_and(|limit| limit.bits >= magnitude(floor));
            let hint = &mut self.hints[block];
            hint.held(enough);
            if enough {
                hint.selected(quota, limit);
                hint.learn(kernels, values, floor);
                return limit;
            }
            self.rescan(block, work, quota);
        }
    }

    fn rescan(&mut self, block: usize, work: &[f32], quota: usize) {
        self.rescans += 1;
        let range = self.partition.range(block);
        let sampled = sampled_floor(range.len(), quota, |i| work[range.start + i]);
        // A sample that points no lower than the floor that just failed has no more to say: take every non-zero.
        let floor = self.floor(block);
        self.lower_floor(block, work, if sampled < floor { sampled } else { 0.0 });
    }

    /// Scans the block again down to `floor`. Entries already known keep their current values.
    pub(super) fn lower_floor(&mut self, block: usize, work: &[f32], floor: f32) {
        let range = self.partition.range(block);
        let mut scanned = Entries::default();
        let start = range.start as u32;
        spardl_kernels::extract(self.kernels, &work[range], start, floor, &mut scanned);
        let overlay = self.overlay(block);
        overlay.floor = floor;
        overlay.entries = overlaid(&scanned, &overlay.entries);
    }

    /// Removes the entries of magnitude bits at least `limit` (zeros never).
    pub(super) fn take_listed(
        &mut self,
        block: usize,
        limit: u32,
        values: ValueType,
        out: &mut Entries,
    ) {
        let (first, kernels) = (out.len(), self.kernels);
        let Entries {
            indices,
            values: known,
        } = &self.overlay(block).entries;
        spardl_kernels::take(kernels, indices, known, limit, out);
        self.rests.clear();
        if !values.is_exact() {
            self.quantise(values, &mut out.values[first..]);
            drop_zeros(out, first);
        }
        let rests = std::mem::take(&mut self.rests);
        let known = &mut self.overlay(block).entries.values;
        spardl_kernels::leave(kernels, known, limit, &rests);
        self.rests = rests;
    }

    /// Removes the entries that reach the limit (zeros never) but for the last of those equal to it, which are too many.
    fn take_with_ties(
        &mut self,
        block: usize,
        Limit { bits, excess }: Limit,
        values: ValueType,
        out: &mut Entries,
    ) {
        // The ties that lose are set aside, so that the rest is the ordinary case.
        let entries = &mut self.overlay(block).entries;
        let equal = |at: &usize| magnitude(entries.values[*at]) == bits;
        let last = (0..entries.len()).rev().filter(equal);
        let losers: Vec<usize> = last.take(excess).collect();
        let kept: Vec<f32> = losers.iter().map(|&at| entries.values[at]).collect();
        losers.iter().for_each(|&at| entries.values[at] = 0.0);
        self.take_listed(block, bits, values, out);
        let entries = &mut self.overlay(block).entries;
        losers
            .iter()
            .zip(kept)
            .for_each(|(&at, value)| entries.values[at] = value);
    }
}

/// The union of two ascending lists; `upper` wins where both have an index.
fn overlaid(lower: &Entries, upper: &Entries) -> Entries {
    let mut out = Entries::default();
    out.reserve(lower.indices.len() + upper.indices.len());
    let (mut i, mut j) = (0, 0);
    while i < lower.indices.len() || j < upper.indices.len() {
        let x = lower.indices.get(i).copied().unwrap_or(u32::MAX);
        let y = upper.indices.get(j).copied().unwrap_or(u32::MAX);
        // Indices stay below u32::MAX, so a list that has ended never wins.
        let from_upper = y <= x;
        out.indices.push(x.min(y));
        out.values.push(if from_upper {
            upper.values[j]
        } else {
            lower.values[i]
        });
        i += usize::from(x <= y);
        j += usize::from(from_upper);
    }
    out
}
