//! Selection in one pass: exact top-q per block without sorting or copying the gradient.
//!
//! The pass ([`Selector::pass`]) accumulates the gradient. From then on a block has *current values*, which begin as those of the
//! pass; what is taken leaves them, what is received is added to them. They are held in one of two forms:
//!
//! - Of most blocks little is selected. Those are known through an overlay of lists (`listed.rs`), which begins with the
//!   *candidates*: entries at or above a low threshold predicted from the last step. So a step costs one pass over n, and O(k) after it.
//! - Where much is selected, or the block is tiny, all current values lie in an array beside `work` (`dense.rs`): lists of them
//!   would be longer.
//!
//! Either way `work` itself is not written until the residual rule is applied at the end.
//!
//! Ties go to the lower index; zeros are never selected.

mod dense;
mod hints;
mod listed;
mod merge;
mod pieces;
mod ranks;

use spardl_kernels::{Entries, Level};

use crate::codec::ValueType;
use crate::collective::MethodStats;
use crate::feedback::{Feedback, Span};
use crate::gradient::Gradient;
use crate::list::magnitude;
use crate::partition::Partition;
use dense::Crowded;
use hints::Hint;
use listed::Overlay;
use pieces::Pieces;
use ranks::{Limit, Ranks};

/// How the current values of a block are held in this step.
#[derive(Clone, Debug)]
enum Form {
    /// As lists over `work`.
    Listed(Box<Overlay>),
    /// All of them in the array, once they are asked for.
    Crowded(Box<Crowded>),
    /// All of them in the array, since the pass.
    Tiny,
}

/// Per-block selection for one worker and one bucket.
#[derive(Clone, Debug)]
pub struct Selector {
    kernels: Level,
    partition: Partition,
    forms: Vec<Form>,
    hints: Vec<Hint>,
    /// The current values of the blocks that are not listed; empty while there were none.
    dense: Vec<f32>,
    rescans: u64,
    selected: u64,
    ranks: Ranks,
    /// Lists that were folded in.
    free: Vec<Entries>,
    /// What quantising left of the entries just taken.
    rests: Vec<f32>,
    /// The indices selected from each block, ascending; no lists when nobody asks for them.
    sent: Vec<Vec<u32>>,
    pieces: Pieces,
}

impl Selector {
    /// A selector for the blocks of `partition`.
    pub fn new(partition: Partition) -> Self {
        let blocks = partition.blocks();
        Self {
            kernels: Level::best(),
            partition,
            forms: vec![Form::Tiny; blocks],
            hints: vec![Hint::FRESH; blocks],
            dense: Vec::new(),
            rescans: 0,
            selected: 0,
            ranks: Ranks::default(),
            free: Vec::new(),
            rests: Vec::new(),
            sent: Vec::new(),
            pieces: Pieces::new(Level::best()),
        }
    }

    /// A selector that also knows what it selected, for [`Selector::sent`] and the rules that clear it.
    pub fn remembering(partition: Partition) -> Self {
        let sent = vec![Vec::new(); partition.blocks()];
        Self {
            sent,
            ..Self::new(partition)
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

    /// `work = residual + gradient`, prepared for a selection of `quotas[b]` entries from block `b`.
    pub fn pass(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>, quotas: &[usize]) {
        for (block, &quota) in quotas.iter().enumerate() {
            let len = self.partition.range(block).len();
            if dense::is_tiny(len) {
                self.forms[block] = Form::Tiny;
            } else if !dense::is_crowded(len, quota) {
                let floor = self.predict(block, feedback, gradient, quota);
                self.start_listed(block, floor);
            } else if self.hints[block].is_read_alone && !dense::is_full(len, quota) {
                let floor = self.predict(block, feedback, gradient, quota);
                self.start_crowded(block, floor);
            } else {
                self.start_crowded(block, f32::INFINITY);
            }
        }
        self.accumulate(feedback, gradient);
    }

    /// `work = residual + gradient`, with the entries of block `b` of magnitude at least `floors[b]` as candidates
    /// (0: every non-zero; infinity: none).
    pub fn pass_above(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>, floors: &[f32]) {
        for (block, &floor) in floors.iter().enumerate() {
            self.start_listed(block, floor);
        }
        self.accumulate(feedback, gradient);
    }

    fn accumulate(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>) {
        (self.rescans, self.selected) = (0, 0);
        self.sent.iter_mut().for_each(Vec::clear);
        self.pieces.set_threads(feedback.threads());
        let mut spans = Vec::new();
        let mut skipped = 0..0;
        for (block, form) in self.forms.iter_mut().enumerate() {
            let range = self.partition.range(block);
            let (floor, found) = match form {
                Form::Listed(overlay) => (overlay.floor, &mut overlay.entries),
                Form::Crowded(crowded) if crowded.floor < f32::INFINITY => {
                    (crowded.floor, &mut crowded.found)
                }
                _ => {
                    skipped.end = range.end;
                    continue;
                }
            };
            spans.push(Span::skipped(skipped));
            skipped = range.end..range.end;
            spans.push(Span::new(range, floor, found));
        }
        spans.push(Span::skipped(skipped));
        feedback.accumulate(gradient, spans);
        self.load_tiny(feedback.work());
        if feedback.is_flagged() {
            // Without a contribution there is nothing below the floor either.
            for form in &mut self.forms {
                match form {
                    Form::Listed(overlay) => overlay.floor = 0.0,
                    Form::Crowded(crowded) => crowded.floor = crowded.floor.min(0.0),
                    Form::Tiny => {}
                }
            }
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
        match &mut self.forms[block] {
            Form::Listed(overlay) if !list.is_empty() => overlay.pending.push(list),
            Form::Crowded(crowded) if !list.is_empty() => crowded.pending.push(list),
            Form::Tiny => {
                let Entries { indices, values } = &list;
                spardl_kernels::add_at(self.kernels, &mut self.dense, 0, indices, values);
                self.reuse([list]);
            }
            _ => self.reuse([list]),
        }
    }

    /// No more than one list per block waits for its next use, and none without memory.
    fn reuse(&mut self, lists: impl IntoIterator<Item = Entries>) {
        let room = self.partition.blocks().saturating_sub(self.free.len());
        self.free.extend(lists.into_iter().take(room));
    }

    /// Makes the received lists part of the current values.
    fn settle(&mut self, block: usize, work: &[f32]) {
        match self.forms[block] {
            Form::Listed(_) => self.fold(block, work),
            Form::Crowded(_) => self.load(block, work),
            Form::Tiny => {}
        }
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
        let first = out.len();
        if let Form::Listed(_) = self.forms[block] {
            self.take_listed_top(block, work, quota, values, out);
        } else {
            self.take_dense_top(block, work, quota, values, out);
        }
        self.remember(block, &out.indices[first..]);
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
            let first = out.len();
            let (bits, excess) = (magnitude(threshold), 0);
            match self.forms[block] {
                Form::Listed(_) => self.take_listed(block, bits, values, out),
                _ => self.take_dense(block, Limit { bits, excess }, values, out),
            }
            self.remember(block, &out.indices[first..]);
        }
    }

    /// Counts what was taken, and keeps the indices if somebody may ask for them.
    fn remember(&mut self, block: usize, taken: &[u32]) {
        self.selected += taken.len() as u64;
        if let Some(sent) = self.sent.get_mut(block) {
            let again = !sent.is_empty();
            sent.extend_from_slice(taken);
            if again {
                sent.sort_unstable();
            }
        }
    }

    /// Makes values just taken what receivers will see; `rests` is what that takes from them.
    fn quantise(&mut self, values: ValueType, out: &mut [f32]) {
        self.rests.clear();
        self.rests.resize(out.len(), 0.0);
        values.quantise(out, &mut self.rests);
    }

    /// Every entry of the block with at least this magnitude is known (0: every non-zero; infinity: none).
    pub fn floor(&self, block: usize) -> f32 {
        match &self.forms[block] {
            Form::Listed(overlay) => overlay.floor,
            Form::Crowded(crowded) if !crowded.is_loaded() => f32::INFINITY,
            _ => 0.0,
        }
    }

    /// Makes every entry of magnitude at least `floor` known: scans the block again if the pass did not go that low.
    pub fn reach(&mut self, block: usize, work: &[f32], floor: f32) {
        self.settle(block, work);
        if floor < self.floor(block) {
            self.rescans += 1;
            self.lower_floor(block, work, floor);
        }
    }

    /// How many known entries of the block have a magnitude of at least `threshold`; exact when the pass or a rescan went
    /// as low as that and nothing was added since.
    pub fn count_above(&self, block: usize, threshold: f32) -> usize {
        let values = match &self.forms[block] {
            Form::Listed(overlay) => &overlay.entries.values[..],
            _ => &self.dense[self.partition.range(block)],
        };
        spardl_kernels::count_at_least(self.kernels, values, magnitude(threshold).max(1))
    }

    /// The indices that were taken from the block in this step, by a selector that remembers them.
    pub fn sent(&self, block: usize) -> &[u32] {
        &self.sent[block]
    }
}

/// The residual rules: what becomes of a block's current values once its final indices are known.
impl Selector {
    /// Rule A, "return to origin": the current value where the index is final, the worker's own input elsewhere.
    pub fn apply_rule_a(&mut self, block: usize, work: &mut [f32], finals: &[u32]) {
        if !matches!(self.forms[block], Form::Listed(_)) {
            return self.apply_dense_rule_a(block, work, finals);
        }
        self.fold(block, work);
        if let Form::Listed(overlay) = &self.forms[block] {
            let (range, known) = (self.partition.range(block), &overlay.entries);
            self.pieces.apply_rule_a(range, work, known, finals);
        }
    }

    /// Rule B, "keep where dropped": the current value everywhere.
    pub fn apply_rule_b(&mut self, block: usize, work: &mut [f32]) {
        if !matches!(self.forms[block], Form::Listed(_)) {
            return self.apply_dense_rule_b(block, work);
        }
        self.fold(block, work);
        if let Form::Listed(overlay) = &self.forms[block] {
            let Entries { indices, values } = &overlay.entries;
            spardl_kernels::scatter(self.kernels, work, indices, values);
        }
    }

    /// Partial rule: what was sent is cleared, whether it arrived or not; received mass that was not sent on is lost.
    pub fn clear_sent(&self, block: usize, work: &mut [f32]) {
        for &index in self.sent(block) {
            work[index as usize] = 0.0;
        }
    }

    /// Rule I, "intersection": what was sent is cleared where it became final; received mass that was not sent on is lost.
    pub fn clear_sent_final(&self, block: usize, work: &mut [f32], finals: &[u32]) {
        for_common(self.sent(block), finals, |index| work[index as usize] = 0.0);
    }
}

/// Calls `each` for every index in both ascending lists.
fn for_common(a: &[u32], b: &[u32], mut each: impl FnMut(u32)) {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        if x == y {
            each(x);
        }
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
}
