//! Selection in one pass: exact top-q per block without sorting or copying the gradient.
//!
//! The pass ([`Selector::pass`]) accumulates the gradient and keeps, per block, the *candidates*: entries at or above a low
//! threshold predicted from the last step. From then on a block is known through its *overlay*, the sorted list of its
//! candidates and of every index that messages touched, with their current values; `work` itself is not written until
//! the residual rule is applied at the end. So a step costs one pass over n, and O(k) after it. Received lists wait in the
//! overlay and are folded in together when the block's values are asked for.
//!
//! When a block is sparsified, the top-q of its overlay is exact if and only if the q-th largest *current* magnitude
//! there is at least the low threshold (or that is 0, when every non-zero is a candidate). Otherwise that one block
//! is scanned again. Counter-example to anything laxer: work = [10, 9, 1, .9], threshold 5, q = 2, then -9.95 arrives at
//! index 0: the candidates are now .05 and 9, but the answer is 9 and 1.
//!
//! Ties go to the lower index; zeros are never selected.

mod merge;
mod pieces;
mod ranks;

use spardl_kernels::{Entries, Level};

use crate::codec::ValueType;
use crate::collective::MethodStats;
use crate::feedback::{Feedback, Span};
use crate::gradient::Gradient;
use crate::list::{drop_zeros, magnitude};
use crate::partition::Partition;
use pieces::Pieces;
use ranks::{Limit, Ranks};

/// What is known of a block in this step.
#[derive(Clone, Debug, Default)]
struct Overlay {
    /// Candidates and touched entries with their current values, ascending.
    entries: Entries,
    /// Received lists, in the order they came, not yet part of `entries`.
    pending: Vec<Entries>,
    /// Every entry of `work` with at least this magnitude is in `entries` (0: every non-zero).
    floor: f32,
    /// The indices that this worker selected from the block, ascending.
    sent: Vec<u32>,
}

/// What the last steps taught about a block.
#[derive(Clone, Copy, Debug)]
struct Hint {
    /// The quota of the last selection; 0 before the first.
    quota: usize,
    /// The smallest magnitude selected then.
    magnitude: f32,
    /// The next floor is this part of `magnitude`.
    part: f32,
    /// How many entries should reach the floor, as a multiple of the quota.
    margin: f32,
}

const FRESH: Hint = Hint {
    quota: 0,
    magnitude: 0.0,
    part: 0.93,
    margin: 1.2,
};
/// Where `margin` settles while predictions hold, and the most it grows to while they do not.
const MARGIN: (f32, f32) = (1.15, 3.0);

/// Per-block selection for one worker and one bucket.
#[derive(Clone, Debug)]
pub struct Selector {
    kernels: Level,
    partition: Partition,
    overlays: Vec<Overlay>,
    hints: Vec<Hint>,
    rescans: u64,
    selected: u64,
    ranks: Ranks,
    /// Lists that were folded in.
    free: Vec<Entries>,
    /// What quantising left of the entries just taken.
    rests: Vec<f32>,
    pieces: Pieces,
}

impl Selector {
    /// A selector for the blocks of `partition`.
    pub fn new(partition: Partition) -> Self {
        let blocks = partition.blocks();
        Self {
            kernels: Level::best(),
            partition,
            overlays: vec![Overlay::default(); blocks],
            hints: vec![FRESH; blocks],
            rescans: 0,
            selected: 0,
            ranks: Ranks::default(),
            free: Vec::new(),
            rests: Vec::new(),
            pieces: Pieces::new(Level::best()),
        }
    }

    /// The blocks.
    pub const fn partition(&self) -> &Partition {
        &self.partition
    }

    /// The blocks scanned again and the entries selected in this step; the method adds what it sent.
    pub fn stats(&self) -> MethodStats {
        MethodStats {
            rescans: self.rescans,
            selected: self.selected,
            entries_sent: 0,
        }
    }

    /// `work = residual + gradient`, with candidates for a selection of `quotas[b]` entries from block `b`.
    pub fn pass(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>, quotas: &[usize]) {
        let floors: Vec<f32> = (0..self.partition.blocks())
            .map(|block| self.predict(block, feedback, gradient, quotas[block]))
            .collect();
        self.pass_above(feedback, gradient, &floors);
    }

    /// `work = residual + gradient`, with the entries of block `b` of magnitude at least `floors[b]` as candidates
    /// (0: every non-zero; infinity: none).
    pub fn pass_above(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>, floors: &[f32]) {
        (self.rescans, self.selected) = (0, 0);
        self.pieces.set_threads(feedback.threads());
        let blocks = self.overlays.iter_mut().zip(floors).enumerate();
        let spans = blocks.map(|(block, (overlay, &floor))| {
            overlay.entries.clear();
            overlay.pending.clear();
            overlay.sent.clear();
            overlay.floor = floor;
            Span::new(self.partition.range(block), floor, &mut overlay.entries)
        });
        feedback.accumulate(gradient, spans.collect());
        if feedback.is_flagged() {
            // Without a contribution there is nothing below the floor either.
            self.overlays
                .iter_mut()
                .for_each(|overlay| overlay.floor = 0.0);
        }
    }

    /// An empty list to receive into: one that was folded in before, if there is one. Fresh memory costs a fault per page.
    pub fn blank(&mut self) -> Entries {
        let mut list = self.free.pop().unwrap_or_default();
        list.clear();
        list
    }

    /// Adds a received list (ascending, inside the block) to the block's current values.
    ///
    /// A sum that overflows is the largest entry of its block, so it is selected, becomes final and is seen by everybody.
    pub fn add(&mut self, block: usize, list: Entries) {
        if !list.is_empty() {
            self.overlays[block].pending.push(list);
        }
    }

    /// Makes the received lists part of the known entries.
    fn fold(&mut self, block: usize, work: &[f32]) {
        let overlay = &mut self.overlays[block];
        if overlay.pending.is_empty() {
            return;
        }
        let Overlay {
            entries, pending, ..
        } = overlay;
        let range = self.partition.range(block);
        self.pieces.fold(range, work, entries, pending);
        // No more than one list per block waits for its next use.
        let room = self.partition.blocks().saturating_sub(self.free.len());
        self.free.extend(pending.drain(..).take(room));
    }

    /// Removes the `quota` largest entries of the block and appends them to `out` as receivers of `values` will see them. The
    /// errors stay; an entry that would be seen as zero stays whole.
    pub fn take_top(
        &mut self,
        block: usize,
        work: &[f32],
        quota: usize,
        values: ValueType,
        out: &mut Entries,
    ) {
        if quota == 0 {
            return;
        }
        self.fold(block, work);
        let mut limit = self.limit(block, quota);
        while !self.suffices(block, limit) {
            self.rescan(block, work, quota);
            limit = self.limit(block, quota);
        }
        self.learn(block, quota, limit);
        let (bits, excess) = limit.map_or((0, 0), |limit| (limit.bits, limit.excess));
        if excess > 0 {
            self.take_with_ties(block, bits, excess, values, out);
        } else {
            self.take(block, bits, values, out);
        }
    }

    /// Removes the entries of the block of magnitude at least `threshold` (zeros never) and appends them to `out`
    /// as [`Selector::take_top`] does; when there are more than `cap`, only the `cap` largest.
    pub fn take_above(
        &mut self,
        block: usize,
        work: &[f32],
        threshold: f32,
        cap: usize,
        values: ValueType,
        out: &mut Entries,
    ) {
        self.reach(block, work, threshold);
        if self.count_above(block, threshold) > cap {
            self.take_top(block, work, cap, values, out);
        } else {
            self.take(block, magnitude(threshold), values, out);
        }
    }

    /// Every entry of the block with at least this magnitude is known (0: every non-zero).
    pub fn floor(&self, block: usize) -> f32 {
        self.overlays[block].floor
    }

    /// Makes every entry of magnitude at least `floor` known: scans the block again if the pass did not go that low.
    pub fn reach(&mut self, block: usize, work: &[f32], floor: f32) {
        self.fold(block, work);
        if floor < self.overlays[block].floor {
            self.rescans += 1;
            self.lower_floor(block, work, floor);
        }
    }

    /// How many known entries of the block have a magnitude of at least `threshold`; exact when the pass or a rescan went
    /// as low as that and nothing was added since.
    pub fn count_above(&self, block: usize, threshold: f32) -> usize {
        let limit = magnitude(threshold).max(1);
        let values = &self.overlays[block].entries.values;
        values
            .iter()
            .filter(|&&value| magnitude(value) >= limit)
            .count()
    }

    /// The indices that were taken from the block in this step.
    pub fn sent(&self, block: usize) -> &[u32] {
        &self.overlays[block].sent
    }

    /// The floor of the coming pass: from the last selection of about this quota, else from a sample.
    fn predict(
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
        if quota >= range.len() {
            return 0.0;
        }
        let hint = self.hints[block];
        let known = hint.quota > 0 && hint.magnitude > 0.0;
        if known && quota <= hint.quota + hint.quota / 16 + 1 && quota * 2 > hint.quota {
            return hint.magnitude * hint.part;
        }
        let residual = feedback.residual();
        sampled_floor(range.len(), quota, |i| {
            residual[range.start + i] + gradient.get(range.start + i)
        })
    }

    fn limit(&mut self, block: usize, quota: usize) -> Option<Limit> {
        let values = &self.overlays[block].entries.values;
        self.ranks
            .limit(self.kernels, values, quota, self.hints[block].magnitude)
    }

    fn suffices(&mut self, block: usize, limit: Option<Limit>) -> bool {
        let floor = self.overlays[block].floor;
        let enough = floor == 0.0 || limit.is_some_and(|limit| limit.bits >= magnitude(floor));
        let margin = &mut self.hints[block].margin;
        *margin = if enough {
            *margin * 0.98
        } else {
            *margin * 1.5
        }
        .clamp(MARGIN.0, MARGIN.1);
        enough
    }

    /// Predicts the next floor, as a part of the limit: the part moves until about `margin` times the quota of the known entries
    /// reach the floor, a few more when the quota is small.
    fn learn(&mut self, block: usize, quota: usize, limit: Option<Limit>) {
        let Overlay { entries, floor, .. } = &self.overlays[block];
        let hint = &mut self.hints[block];
        hint.quota = quota;
        hint.magnitude = limit.map_or(0.0, |limit| f32::from_bits(limit.bits));
        let wanted = (quota as f32 * hint.margin + 3.0 * (quota as f32).sqrt()) as usize;
        let next = hint.magnitude * hint.part;
        let reached = if next > *floor {
            count_about(self.kernels, &entries.values, magnitude(next))
        } else {
            // Below the floor not all entries are known, so what is known is too little to be wanted.
            entries.len().min(wanted - 1)
        };
        let step = if reached > wanted + wanted / 2 {
            1.1
        } else {
            1.02
        };
        hint.part = if reached < wanted {
            hint.part / 1.02
        } else {
            hint.part * step
        };
        hint.part = hint.part.clamp(0.25, 0.99);
    }

    fn rescan(&mut self, block: usize, work: &[f32], quota: usize) {
        self.rescans += 1;
        let range = self.partition.range(block);
        let sampled = sampled_floor(range.len(), quota, |i| work[range.start + i]);
        // A sample that points no lower than the floor that just failed has no more to say: take every non-zero.
        let floor = self.overlays[block].floor;
        self.lower_floor(block, work, if sampled < floor { sampled } else { 0.0 });
    }

    /// Scans the block again down to `floor`. Entries already known keep their current values.
    fn lower_floor(&mut self, block: usize, work: &[f32], floor: f32) {
        let range = self.partition.range(block);
        let mut scanned = Entries::default();
        let start = range.start as u32;
        spardl_kernels::extract(self.kernels, &work[range], start, floor, &mut scanned);
        let overlay = &mut self.overlays[block];
        overlay.floor = floor;
        overlay.entries = overlaid(&scanned, &overlay.entries);
    }

    /// Removes the entries of magnitude bits at least `limit` (zeros never).
    fn take(&mut self, block: usize, limit: u32, values: ValueType, out: &mut Entries) {
        let Overlay { entries, sent, .. } = &mut self.overlays[block];
        let first = out.len();
        let (kernels, known) = (self.kernels, &mut entries.values);
        spardl_kernels::take(kernels, &entries.indices, known, limit, out);
        self.rests.clear();
        if !values.is_exact() {
            self.rests.resize(out.len() - first, 0.0);
            values.quantise(&mut out.values[first..], &mut self.rests);
            drop_zeros(out, first);
        }
        spardl_kernels::leave(kernels, known, limit, &self.rests);
        let again = !sent.is_empty();
        sent.extend_from_slice(&out.indices[first..]);
        if again {
            sent.sort_unstable();
        }
        self.selected += (out.len() - first) as u64;
    }

    /// Removes the entries of magnitude bits at least `limit` (zeros never) but for the last `excess` of those equal to it.
    fn take_with_ties(
        &mut self,
        block: usize,
        limit: u32,
        excess: usize,
        values: ValueType,
        out: &mut Entries,
    ) {
        // The ties that lose are set aside, so that the rest is the ordinary case.
        let entries = &mut self.overlays[block].entries;
        let equal = |at: &usize| magnitude(entries.values[*at]) == limit;
        let last = (0..entries.len()).rev().filter(equal);
        let losers: Vec<usize> = last.take(excess).collect();
        let kept: Vec<f32> = losers.iter().map(|&at| entries.values[at]).collect();
        losers.iter().for_each(|&at| entries.values[at] = 0.0);
        self.take(block, limit, values, out);
        let entries = &mut self.overlays[block].entries;
        losers
            .iter()
            .zip(kept)
            .for_each(|(&at, value)| entries.values[at] = value);
    }
}

/// The residual rules: what becomes of a block's current values once its final indices are known.
impl Selector {
    /// Rule A, "return to origin": the current value where the index is final, the worker's own input elsewhere.
    pub fn apply_rule_a(&mut self, block: usize, work: &mut [f32], finals: &[u32]) {
        self.fold(block, work);
        let range = self.partition.range(block);
        let known = &self.overlays[block].entries;
        self.pieces.apply_rule_a(range, work, known, finals);
    }

    /// Rule B, "keep where dropped": the current value everywhere.
    pub fn apply_rule_b(&mut self, block: usize, work: &mut [f32]) {
        self.fold(block, work);
        let entries = &self.overlays[block].entries;
        spardl_kernels::scatter(self.kernels, work, &entries.indices, &entries.values);
    }

    /// Partial rule: what was sent is cleared, whether it arrived or not; received mass that was not sent on is lost.
    pub fn clear_sent(&self, block: usize, work: &mut [f32]) {
        for &index in &self.overlays[block].sent {
            work[index as usize] = 0.0;
        }
    }

    /// Rule I, "intersection": what was sent is cleared where it became final; received mass that was not sent on is lost.
    pub fn clear_sent_final(&self, block: usize, work: &mut [f32], finals: &[u32]) {
        for_common(&self.overlays[block].sent, finals, |_, index| {
            work[index as usize] = 0.0
        });
    }
}

/// Calls `each(position in a, index)` for every index in both ascending lists.
fn for_common(a: &[u32], b: &[u32], mut each: impl FnMut(usize, u32)) {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        if x == y {
            each(i, x);
        }
        i += usize::from(x <= y);
        j += usize::from(y <= x);
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

/// How many values have magnitude bits of at least `limit`, judged from a quarter of a long list.
fn count_about(kernels: Level, values: &[f32], limit: u32) -> usize {
    const STRETCH: usize = 512;
    const SHARE: usize = 4;
    let count = |values: &[f32]| spardl_kernels::count_at_least(kernels, values, limit);
    if values.len() < 8 * SHARE * STRETCH {
        return count(values);
    }
    let stretches = values.chunks(STRETCH).step_by(SHARE);
    let (seen, found) = stretches.fold((0, 0), |(seen, found), stretch| {
        (seen + stretch.len(), found + count(stretch))
    });
    found * values.len() / seen
}

/// A magnitude that somewhat more than `quota` of `len` elements reach, judged from a sample at fixed positions.
fn sampled_floor(len: usize, quota: usize, value: impl Fn(usize) -> f32) -> f32 {
    const SAMPLE: usize = 4096;
    if quota >= len || len <= SAMPLE {
        return 0.0;
    }
    // An odd stride of about len / SAMPLE, so that periodic structure does not alias.
    let stride = (len / SAMPLE) | 1;
    let mut sample: Vec<u32> = (0..len)
        .step_by(stride)
        .map(|i| magnitude(value(i)))
        .collect();
    let wanted = 1.25 * quota as f64 / len as f64 * sample.len() as f64;
    let rank = (wanted + 3.0 * wanted.sqrt() + 2.0) as usize;
    if rank >= sample.len() {
        return 0.0;
    }
    let at = sample.len() - 1 - rank;
    let level = f32::from_bits(*sample.select_nth_unstable(at).1);
    if level.is_finite() { level } else { 0.0 }
}
