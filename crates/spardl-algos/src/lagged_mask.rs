//! Lagged-mask: sums at indices that were agreed one step before, so that no index is waited for.
//!
//! Paper: "SCAPE: Accurate and Efficient LLM Training with Extreme Sparse Communication" (Zheng et al., arXiv 2607.01678): the mask
//! comes from the first moment, is made by partitions, and is used one step late so that its exchange can be hidden.
//!
//! The idea: the entries that wait with the largest magnitudes after one step are, mostly, those of the next. So while the
//! values of this step are summed, the workers already agree on the indices of the next one. Worker w searches one
//! partition of the gradient, a different one in each step, for its share of k; the lists ride in the messages that hand
//! round the finished sums. Each worker then contributes its own values at the common indices and clears them (rule M,
//! "shared mask").
//!
//! Words: the *mask* is the list of common indices of the coming step; a *partition* is one of P equal runs of elements.
//! What waits is residual + gradient without what the step delivers: the mass that plays the part of the first moment.
//!
//! Example, 5 workers, 10 elements, k = 5, all hold (1 2 3 4 5 6 7 8 9 10). Step 0 has no mask, so the lists are gathered first:
//! worker w lists the larger element of partition {2w, 2w + 1}. The update is {1:10 3:20 5:30 7:40 9:50}, and with these
//! sums travel the lists of step 1: what is left in partition w has its largest entry at 2w. In step 1 the sums at 0 2 4 6 8
//! start at once, and worker w searches partition (w + 1) mod 5 for step 2.
//!
//! Rounds: 2 ceil(log2 P); ceil(log2 P) more in a step without a mask: the first, one with another k than the step before, one
//! after which nothing was left.
//! Bytes: P - 1 lists of k/P indices, and 2 k (P - 1)/P values.
//!
//! Limitations: a value that becomes large waits a step longer than with the other methods, and one worker's magnitudes decide for
//! all in its partition. Each partition has its share of k, whatever it holds. Mask and residual must belong together: a
//! residual that is restored alone starts with a step without a mask.
//!
//! Differs from the paper: a method, not an optimiser: the moment is the residual, which delivers what was not sent; partitions
//! rotate, so that every worker's entries have their turn; the lists ride along with the sums where the paper hides them behind
//! computation; when less than k waits, the largest of what was just delivered fill the mask.

use spardl_core::phase::{AllGather, all_reduce_elements, joined};
use spardl_core::schedule::ceil_log2;
use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Entries, Estimate, Feedback, Gradient, Input, Laws,
    Layout, Machine, MethodState, MethodStats, Partition, ProtocolError, Received, Round, Selector,
    SparseVec, Support, Update, ValueType, World, list,
};

use crate::mask::{AgreeCost, MaskedSum, cost, raw_indices_bound};
use crate::registry::Entry;
use crate::usual::Length;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "lagged-mask",
    summary: "sums at indices agreed one step before (SCAPE's lag); complete sums, no index is waited for",
    options: &[],
    source: include_str!("lagged_mask.rs"),
    variants: |_| Vec::new(),
    build: |options| {
        Ok(Box::new(LaggedMask {
            codec: options.codec,
        }))
    },
};

/// All-reduce at the indices that the step before agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaggedMask {
    /// How indices and values travel.
    pub codec: Codec,
}

impl LaggedMask {
    /// The cost of a step in which the lists have `spare` indices more than their share of `k`, and travel as often as `rounds`
    /// and `times` say.
    fn cost_of(
        &self,
        length: Length,
        (workers, len): (u32, u32),
        k: usize,
        spare: usize,
        (rounds, times): (u32, u64),
    ) -> Cost {
        let size = workers as usize;
        let k = k.min(len as usize);
        let quota = (k.div_ceil(size) + spare).min(len.div_ceil(workers) as usize);
        let list = match length {
            Length::Most => raw_indices_bound(len, quota),
            Length::Usual => self.codec.usual_indices_len(len.div_ceil(workers), quota),
        };
        let lists = vec![list; size];
        let agree = AgreeCost {
            rounds: 0..=rounds,
            body_bytes: times * AllGather::body_bytes(0, &lists),
        };
        cost(length, agree, workers, k, self.codec.values)
    }
}

impl Algorithm for LaggedMask {
    fn name(&self) -> &'static str {
        "lagged-mask"
    }

    fn describe(&self) -> String {
        format!("lagged-mask values={}", self.codec)
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let partition = Partition::even(layout.len(), world.size() as usize);
        Ok(Box::new(Worker {
            world,
            codec: self.codec,
            selector: Selector::new(partition),
            mask: Mask::default(),
            k: 0,
            step: 0,
            phase: Phase::Idle,
            summed: 0,
            update: SparseVec::new(layout.len()),
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        let log = ceil_log2(workers as usize);
        self.cost_of(Length::Most, (workers, layout.len()), k, 1, (log, 2))
    }

    /// A step that has its mask.
    fn estimate(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Estimate {
        self.cost_of(Length::Usual, (workers, layout.len()), k, 0, (0, 1))
            .into()
    }

    fn loose_bound(&self) -> Option<&'static str> {
        Some("only a step without a mask gathers lists twice")
    }

    fn laws(&self) -> Laws {
        Laws {
            support: Support::K,
            pairs: false,
            ..Laws::default()
        }
    }
}

/// The indices of the coming step, for its `k`; empty when they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Mask {
    k: usize,
    indices: Vec<u32>,
}

/// Where in the step the worker is.
#[derive(Debug)]
enum Phase {
    Idle,
    /// A step without a mask: its lists are on their way, and what this worker put into its own.
    Lists(AllGather, Entries),
    /// Sums on their way, with them the lists of the next step when there will be a choice.
    Sums(MaskedSum, Option<AllGather>),
}

#[derive(Debug)]
struct Worker {
    world: World,
    codec: Codec,
    selector: Selector,
    mask: Mask,
    k: usize,
    step: u64,
    phase: Phase,
    summed: u32,
    update: SparseVec,
}

impl Worker {
    fn partition(&self) -> &Partition {
        self.selector.partition()
    }

    /// The partition that a worker searches in this step.
    fn searched_by(&self, worker: usize) -> usize {
        let size = u64::from(self.world.size());
        ((worker as u64 + self.step) % size) as usize
    }

    fn own_partition(&self) -> usize {
        self.searched_by(self.world.rank().index())
    }

    /// The entries that each partition has of `k`.
    fn quotas(&self) -> Vec<usize> {
        let first = self.step % u64::from(self.world.size());
        self.partition().quotas(self.k, first as usize)
    }

    /// The pass, with candidates for `quota` entries of the own partition only.
    fn pass(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>, quota: usize) {
        let mut quotas = vec![0; self.partition().blocks()];
        quotas[self.own_partition()] = quota;
        self.selector.pass(feedback, gradient, &quotas);
    }

    /// Removes the `quota` largest entries of the own partition from what is known of it.
    fn take(&mut self, work: &[f32], quota: usize) -> Entries {
        let (mut top, own) = (Entries::default(), self.own_partition());
        self.selector
            .take_top(own, work, quota, ValueType::F32, &mut top);
        top
    }

    /// Without a mask: the lists of this very step come first.
    fn find_mask(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>) {
        let quota = self.quotas()[self.own_partition()];
        self.pass(feedback, gradient, 2 * quota);
        let own = self.take(feedback.work(), quota);
        self.phase = Phase::Lists(self.gather(&own.indices), own);
    }

    /// With a mask: its sums start at once.
    fn use_mask(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>, mask: Vec<u32>) {
        let own = self.partition().range(self.own_partition());
        let below = |bound: usize| mask.partition_point(|&index| (index as usize) < bound);
        let delivered = mask[below(own.start)..below(own.end)].to_vec();
        let quota = self.quotas()[self.own_partition()];
        self.pass(feedback, gradient, quota + delivered.len());
        let known = self.take(feedback.work(), quota + delivered.len());
        let (mut waits, mut again) = (Entries::default(), Entries::default());
        for (&index, &value) in known.indices.iter().zip(&known.values) {
            let delivered = delivered.binary_search(&index).is_ok();
            let list = if delivered { &mut again } else { &mut waits };
            list.indices.push(index);
            list.values.push(value);
        }
        self.sum(feedback, mask, &waits, &again);
    }

    /// Starts the sums at `mask`; the next mask is made of what `waits`, or else of what is delivered now.
    fn sum(&mut self, feedback: &mut Feedback, mask: Vec<u32>, waits: &Entries, again: &Entries) {
        let quota = self.quotas()[self.own_partition()];
        let first = list::split_top(waits, quota, ValueType::F32).0.indices;
        let room = quota - first.len();
        let more = list::split_top(again, room, ValueType::F32).0.indices;
        let next = crate::mask::union(&[first, more], self.partition().len());
        let gather = self.gather(&next);
        self.start(feedback, mask, Some(gather));
    }

    fn start(&mut self, feedback: &mut Feedback, mask: Vec<u32>, gather: Option<AllGather>) {
        self.summed = mask.len() as u32;
        let (everyone, values) = (self.world.everyone(), self.codec.values);
        let sum = MaskedSum::new(everyone, mask, feedback.work_mut(), values);
        self.phase = Phase::Sums(sum, gather);
    }

    /// Sends the own list on its way.
    fn gather(&self, indices: &[u32]) -> AllGather {
        let (partition, quotas) = (self.partition(), self.quotas());
        let own = self.own_partition();
        let mut item = Vec::new();
        let (start, len) = (partition.start(own), partition.block_len(own));
        self.codec.encode_indices(start, len, indices, &mut item);
        let bound = |worker| {
            let block = self.searched_by(worker);
            let len = partition.block_len(block);
            self.codec.indices_bound(len, quotas[block])
        };
        let bounds = (0..partition.blocks()).map(bound).collect();
        AllGather::new(self.world.everyone(), item, bounds)
    }

    /// The lists of all partitions, one after the other.
    fn join(&self, gather: AllGather) -> Result<Vec<u32>, ProtocolError> {
        let (partition, quotas) = (self.partition(), self.quotas());
        let (items, size) = (gather.into_items(), partition.blocks());
        let mut searchers = vec![0; size];
        (0..size).for_each(|worker| searchers[self.searched_by(worker)] = worker);
        let mut indices = Vec::with_capacity(self.k);
        for (block, &worker) in searchers.iter().enumerate() {
            let (start, len) = (partition.start(block), partition.block_len(block));
            items.read(worker, |reader| {
                self.codec
                    .decode_indices(reader, start, len, quotas[block], &mut indices)
            })?;
        }
        Ok(indices)
    }
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        let len = self.partition().len();
        self.k = input.k.min(len as usize);
        self.step = input.step;
        let mask = std::mem::take(&mut self.mask);
        if self.k == 0 || self.k == len as usize {
            // Nothing or everything: there is nothing to choose, now or for the next step.
            self.pass(feedback, input.gradient, 0);
            let all = if self.k == 0 { 0 } else { len };
            self.start(feedback, (0..all).collect(), None);
        } else if mask.k == self.k && !mask.indices.is_empty() {
            self.use_mask(feedback, input.gradient, mask.indices);
        } else {
            self.find_mask(feedback, input.gradient);
        }
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        if let Phase::Lists(gather, _) = &self.phase
            && let Some(round) = gather.round()
        {
            return Ok(Some(round));
        }
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => return Ok(None),
            Phase::Lists(gather, own) => {
                let mask = self.join(gather)?;
                let quota = self.quotas()[self.own_partition()];
                let waits = self.take(feedback.work(), quota);
                self.sum(feedback, mask, &waits, &own);
            }
            sums @ Phase::Sums(..) => self.phase = sums,
        }
        let Phase::Sums(sum, gather) = &mut self.phase else {
            return Ok(None);
        };
        let lists = gather.as_ref().filter(|_| sum.gathers());
        let lists = lists.and_then(AllGather::round);
        if let Some(round) = sum.round() {
            return Ok(Some(match lists {
                Some(lists) => joined(round, &lists),
                None => round,
            }));
        }
        if let Phase::Sums(sum, gather) = std::mem::replace(&mut self.phase, Phase::Idle) {
            self.update = sum.finish(feedback.work_mut());
            let indices = gather.map_or(Ok(Vec::new()), |gather| self.join(gather))?;
            self.mask = Mask { k: self.k, indices };
        }
        Ok(None)
    }

    fn absorb(&mut self, _: &mut Feedback, received: Received<'_>) -> Result<(), ProtocolError> {
        match &mut self.phase {
            Phase::Lists(gather, _) => gather.absorb(received),
            Phase::Sums(sum, Some(gather)) if sum.gathers() => received.read(0, |reader| {
                sum.absorb_part(reader)?;
                gather.absorb_part(reader, received.round())
            }),
            Phase::Sums(sum, _) => sum.absorb(received),
            Phase::Idle => Ok(()),
        }
    }

    fn update<'a>(&'a self, _: &'a Feedback) -> Update<'a> {
        Update::Sparse(&self.update)
    }

    fn stats(&self) -> MethodStats {
        let (position, size) = (self.world.rank().index(), self.world.size() as usize);
        MethodStats {
            // The values of the sum; indices travel alone.
            entries_sent: all_reduce_elements(position, size, self.summed),
            ..self.selector.stats()
        }
    }

    fn state(&self) -> MethodState {
        let indices: Vec<u64> = self.mask.indices.iter().map(|&i| i.into()).collect();
        MethodState::default()
            .with_u64("mask", indices)
            .with_u64("k", [self.mask.k as u64])
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        let (mask, k) = (state.u64("mask")?, state.u64("k")?);
        let len = u64::from(self.partition().len());
        let ascends = mask.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = mask.last().is_none_or(|&last| last < len);
        match *k {
            [k] if ascends && inside && k <= len && mask.len() as u64 <= k => {
                self.mask = Mask {
                    k: k as usize,
                    indices: mask.iter().map(|&index| index as u32).collect(),
                };
                Ok(())
            }
            _ => Err(ConfigError::StateMismatch {
                what: "the mask".to_owned(),
                expected: format!("at most k ascending indices below {len}"),
                got: format!("{} for k {k:?}", mask.len()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use spardl_sim::Cluster;
    use spardl_testkit::check;

    use super::*;

    fn step(cluster: &mut Cluster, gradient: &[f32], k: usize, step: u64) -> (Vec<f32>, u32) {
        let gradients = vec![gradient.to_vec(); cluster.workers().len()];
        let rounds = cluster.step(&gradients, k, step).unwrap().ledger.rounds[0];
        let update = check::agreed(cluster.workers(), "lagged-mask");
        cluster.commit().unwrap();
        (update, rounds)
    }

    #[test]
    fn the_example_of_the_header_holds() {
        let mut cluster = Cluster::new(&LaggedMask::default(), 5, &Layout::flat(10)).unwrap();
        let gradient: Vec<f32> = (1..=10u8).map(f32::from).collect();
        let (update, rounds) = step(&mut cluster, &gradient, 5, 0);
        assert_eq!(update, [0., 10., 0., 20., 0., 30., 0., 40., 0., 50.]);
        assert_eq!(rounds, 9, "three times three: no mask yet");
        let (update, rounds) = step(&mut cluster, &gradient, 5, 1);
        assert_eq!(update, [10., 0., 30., 0., 50., 0., 70., 0., 90., 0.]);
        assert_eq!(rounds, 6, "the mask was there");
    }

    #[test]
    fn another_k_and_an_empty_mask_find_the_indices_in_the_step_itself() {
        let mut cluster = Cluster::new(&LaggedMask::default(), 4, &Layout::flat(16)).unwrap();
        let zeros = [0.0; 16];
        assert_eq!(step(&mut cluster, &zeros, 4, 0).1, 6);
        let gradient: Vec<f32> = (1..=16u8).map(f32::from).collect();
        let (update, rounds) = step(&mut cluster, &gradient, 4, 1);
        assert_eq!(rounds, 6, "nothing was left to make a mask of");
        assert_eq!(update.iter().filter(|v| **v != 0.0).count(), 4);
        assert_eq!(step(&mut cluster, &gradient, 4, 2).1, 4);
        assert_eq!(step(&mut cluster, &gradient, 8, 3).1, 6, "another k");
    }

    #[test]
    fn what_was_just_delivered_fills_a_mask_for_which_too_little_waits() {
        let mut cluster = Cluster::new(&LaggedMask::default(), 2, &Layout::flat(8)).unwrap();
        let gradient = [1.0; 8];
        for number in 0..6 {
            let (update, _) = step(&mut cluster, &gradient, 6, number);
            assert_eq!(update.iter().filter(|v| **v != 0.0).count(), 6);
        }
    }
}
