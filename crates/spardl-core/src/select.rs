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

use spardl_kernels::{Entries, Level};

use crate::codec::ValueType;
use crate::feedback::Feedback;
use crate::list::magnitude;
use crate::partition::Partition;

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
    /// The magnitude that `spare` times the quota of the block's known entries reached then: the next floor.
    floor: f32,
    /// How many entries to aim for, as a multiple of the quota.
    spare: f32,
}

const FRESH: Hint = Hint {
    quota: 0,
    floor: 0.0,
    spare: 1.25,
};
/// Where `spare` settles while predictions hold, and the most it grows to while they do not.
const SPARE: (f32, f32) = (1.15, 3.0);

/// Per-block selection for one worker and one bucket.
#[derive(Clone, Debug)]
pub struct Selector {
    kernels: Level,
    partition: Partition,
    overlays: Vec<Overlay>,
    hints: Vec<Hint>,
    rescans: u64,
    selected: u64,
    keys: Vec<u32>,
    spare: Entries,
    window: Window,
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
            keys: Vec::new(),
            spare: Entries::default(),
            window: Window::default(),
        }
    }

    /// The blocks.
    pub const fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Changes the blocks, between steps; what was learnt about the old ones is forgotten.
    pub fn set_partition(&mut self, partition: Partition) {
        if partition != self.partition {
            *self = Self {
                kernels: self.kernels,
                ..Self::new(partition)
            };
        }
    }

    /// Blocks scanned again in this step because their candidates did not suffice.
    pub const fn rescans(&self) -> u64 {
        self.rescans
    }

    /// Entries selected in this step.
    pub const fn selected(&self) -> u64 {
        self.selected
    }

    /// `work = residual + gradient`, with candidates for a selection of `quotas[b]` entries from block `b`.
    pub fn pass(&mut self, feedback: &mut Feedback, gradient: &[f32], quotas: &[usize]) {
        let floors: Vec<f32> = (0..self.partition.blocks())
            .map(|block| self.predict(block, feedback, gradient, quotas[block]))
            .collect();
        self.pass_above(feedback, gradient, &floors);
    }

    /// `work = residual + gradient`, with the entries of block `b` of magnitude at least `floors[b]` as candidates
    /// (0: every non-zero; infinity: none).
    pub fn pass_above(&mut self, feedback: &mut Feedback, gradient: &[f32], floors: &[f32]) {
        (self.rescans, self.selected) = (0, 0);
        for (block, &floor) in floors.iter().enumerate() {
            let overlay = &mut self.overlays[block];
            overlay.entries.clear();
            overlay.pending.clear();
            overlay.sent.clear();
            overlay.floor = floor;
            let range = self.partition.range(block);
            feedback.accumulate(gradient, range, floor, &mut overlay.entries);
        }
        if feedback.mute_if_raised() {
            for overlay in &mut self.overlays {
                overlay.entries.clear();
                overlay.floor = 0.0;
            }
        }
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
        self.spare.clear();
        let range = self.partition.range(block);
        self.window.fold(
            range,
            work,
            &overlay.entries,
            &overlay.pending,
            &mut self.spare,
        );
        std::mem::swap(&mut overlay.entries, &mut self.spare);
        overlay.pending.clear();
    }

    /// Removes the `quota` largest entries of the block and appends them to `out` as they will be received: rounded to
    /// `values`. The rounding error stays; an entry that would be received as zero stays whole.
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
        let mut level = self.nth_magnitude(block, quota);
        while !self.suffices(block, level) {
            self.rescan(block, work, quota);
            level = self.nth_magnitude(block, quota);
        }
        let limit = level.unwrap_or(0);
        self.learn(block, quota);
        // `nth_magnitude` left the quota's keys, which reach the limit, at the end of `keys`.
        let chosen = &self.keys[self.keys.len().saturating_sub(quota)..];
        let ties = chosen.iter().filter(|&&key| key == limit).count();
        self.take(block, limit, ties, values, out);
    }

    /// Removes the entries of the block of magnitude at least `threshold` (zeros never) and appends them to `out`, rounded
    /// as in [`Selector::take_top`]; when there are more than `cap`, only the `cap` largest.
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
            let limit = magnitude(threshold).max(1);
            self.take(block, limit, usize::MAX, values, out);
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

    /// The block's known entries: candidates and what messages touched before the last selection, with their current values.
    pub fn known(&self, block: usize) -> &Entries {
        &self.overlays[block].entries
    }

    /// The indices that were taken from the block in this step.
    pub fn sent(&self, block: usize) -> &[u32] {
        &self.overlays[block].sent
    }

    /// The floor of the coming pass: from the last selection of about this quota, else from a sample.
    fn predict(&self, block: usize, feedback: &Feedback, gradient: &[f32], quota: usize) -> f32 {
        let range = self.partition.range(block);
        if quota == 0 {
            return f32::INFINITY;
        }
        if quota >= range.len() {
            return 0.0;
        }
        let hint = self.hints[block];
        let known = hint.quota > 0 && hint.floor > 0.0;
        if known && quota <= hint.quota + hint.quota / 16 + 1 && quota * 2 > hint.quota {
            return hint.floor;
        }
        let residual = &feedback.residual()[range.clone()];
        let gradient = &gradient[range];
        sampled_floor(residual.len(), quota, |i| residual[i] + gradient[i])
    }

    /// The bits of the `quota`-th largest magnitude of the block's known entries, if there are that many.
    fn nth_magnitude(&mut self, block: usize, quota: usize) -> Option<u32> {
        let values = &self.overlays[block].entries.values;
        let rank = values.len().checked_sub(quota)?;
        self.keys.clear();
        self.keys
            .extend(values.iter().map(|&value| magnitude(value)));
        Some(*self.keys.select_nth_unstable(rank).1)
    }

    fn suffices(&mut self, block: usize, level: Option<u32>) -> bool {
        let floor = self.overlays[block].floor;
        let enough = floor == 0.0 || level.is_some_and(|level| level >= magnitude(floor));
        let spare = &mut self.hints[block].spare;
        *spare = if enough { *spare * 0.98 } else { *spare * 1.5 }.clamp(SPARE.0, SPARE.1);
        enough
    }

    /// Predicts the next floor: what `spare` times the quota of the known entries reach, a little more for small quotas.
    /// Expects the state that `nth_magnitude` left: the smaller keys, in any order, before the quota's.
    fn learn(&mut self, block: usize, quota: usize) {
        let hint = &mut self.hints[block];
        hint.quota = quota;
        let wanted = (quota as f32 * hint.spare + 3.0 * (quota as f32).sqrt()) as usize;
        let below = self.keys.len().saturating_sub(quota);
        let rank = self.keys.len().saturating_sub(wanted);
        // Too few known to tell: the smallest known magnitude, and no more than the floor just used.
        let reached = match rank {
            0 => self.keys[..below].iter().copied().min().unwrap_or(0),
            rank => *self.keys[..below].select_nth_unstable(rank).1,
        };
        hint.floor = f32::from_bits(reached);
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

    /// Removes the entries above `limit` and the first `ties` entries equal to it (zeros never).
    fn take(
        &mut self,
        block: usize,
        limit: u32,
        mut ties: usize,
        values: ValueType,
        out: &mut Entries,
    ) {
        let Overlay { entries, sent, .. } = &mut self.overlays[block];
        let first = out.len();
        // Written without branches on the data, which no predictor could guess: every entry goes to the end of the list, and
        // the end moves when it is to stay there.
        let mut end = first;
        out.indices.resize(first + entries.len(), 0);
        out.values.resize(first + entries.len(), 0.0);
        for (&index, value) in entries.indices.iter().zip(&mut entries.values) {
            let key = magnitude(*value);
            let tie = key == limit && ties > 0;
            ties -= usize::from(tie);
            let wire = values.round(*value);
            let chosen = (key > limit || tie) && wire != 0.0;
            out.indices[end] = index;
            out.values[end] = wire;
            end += usize::from(chosen);
            // An infinite sum leaves no error behind: inf - inf would put NaN into a residual.
            let rest = if wire.is_finite() { *value - wire } else { 0.0 };
            *value = if chosen { rest } else { *value };
        }
        out.indices.truncate(end);
        out.values.truncate(end);
        let again = !sent.is_empty();
        sent.extend_from_slice(&out.indices[first..]);
        if again {
            sent.sort_unstable();
            sent.dedup();
        }
        self.selected += (end - first) as u64;
    }
}

/// The residual rules: what becomes of a block's current values once its final indices are known.
impl Selector {
    /// Rule A, "return to origin": the current value where the index is final, the worker's own input elsewhere.
    pub fn settle_final(&mut self, block: usize, work: &mut [f32], finals: &[u32]) {
        self.fold(block, work);
        let entries = &self.overlays[block].entries;
        for_common(&entries.indices, finals, |at, index| {
            work[index as usize] = entries.values[at]
        });
    }

    /// Rule B, "keep where dropped": the current value everywhere.
    pub fn settle_all(&mut self, block: usize, work: &mut [f32]) {
        self.fold(block, work);
        let entries = &self.overlays[block].entries;
        spardl_kernels::scatter(self.kernels, work, &entries.indices, &entries.values);
    }

    /// Partial rule: what was sent is cleared, whether it arrived or not; received mass that was not sent on is lost.
    pub fn settle_sent(&self, block: usize, work: &mut [f32]) {
        for &index in &self.overlays[block].sent {
            work[index as usize] = 0.0;
        }
    }

    /// Rule I, "intersection": what was sent is cleared where it became final; received mass that was not sent on is lost.
    pub fn settle_sent_final(&self, block: usize, work: &mut [f32], finals: &[u32]) {
        for_common(&self.overlays[block].sent, finals, |_, index| {
            work[index as usize] = 0.0
        });
    }
}

/// Calls `each(position in a, index)` for every index in both ascending lists.
pub fn for_common(a: &[u32], b: &[u32], mut each: impl FnMut(usize, u32)) {
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

/// Scratch for folding lists: a stretch of the block small enough for the cache.
#[derive(Clone, Debug, Default)]
struct Window {
    sums: Vec<f32>,
    touched: Vec<u64>,
}

impl Window {
    const LEN: usize = 1 << 14;

    /// `known` plus the received `lists` in their order; where an index is not known yet, its value in `work` comes first.
    fn fold(
        &mut self,
        range: std::ops::Range<usize>,
        work: &[f32],
        known: &Entries,
        lists: &[Entries],
        out: &mut Entries,
    ) {
        self.sums.resize(Self::LEN, 0.0);
        self.touched.resize(Self::LEN / 64, 0);
        out.reserve(known.len() + lists.iter().map(Entries::len).sum::<usize>());
        let mut at = vec![0; lists.len() + 1];
        for start in range.clone().step_by(Self::LEN) {
            let end = (start + Self::LEN).min(range.end);
            let stretch = &work[start..end];
            let entries = entries_until(known, &mut at[0], end);
            for (&index, &value) in entries.0.iter().zip(entries.1) {
                let slot = index as usize - start;
                self.touched[slot / 64] |= 1 << (slot % 64);
                self.sums[slot] = value;
            }
            for (list, at) in lists.iter().zip(&mut at[1..]) {
                let entries = entries_until(list, at, end);
                for (&index, &value) in entries.0.iter().zip(entries.1) {
                    let slot = index as usize - start;
                    let (word, bit) = (&mut self.touched[slot / 64], 1 << (slot % 64));
                    let before = if *word & bit == 0 {
                        stretch[slot]
                    } else {
                        self.sums[slot]
                    };
                    *word |= bit;
                    self.sums[slot] = before + value;
                }
            }
            for (word, bits) in self.touched.iter_mut().enumerate() {
                let mut rest = std::mem::take(bits);
                while rest != 0 {
                    let slot = word * 64 + rest.trailing_zeros() as usize;
                    out.indices.push((start + slot) as u32);
                    out.values.push(self.sums[slot]);
                    rest &= rest - 1;
                }
            }
        }
    }
}

/// The entries of an ascending list from position `at` up to index `end`; moves `at` behind them.
fn entries_until<'a>(list: &'a Entries, at: &mut usize, end: usize) -> (&'a [u32], &'a [f32]) {
    let from = *at;
    *at += list.indices[from..].partition_point(|&index| (index as usize) < end);
    (&list.indices[from..*at], &list.values[from..*at])
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
