//! What the shared-mask methods have in common (ExDyna, MiCRO, DEFT, CLT-k, hard-threshold).
//!
//! Such a method lets all workers agree on one list of indices ([`Agree`], the part that differs); then every worker
//! contributes its own value at each of these indices to a dense all-reduce of that short array ([`MaskedSum`]), and clears
//! them in its residual: rule M, "shared mask". The update holds complete sums, so nothing is lost.
//!
//! With bf16 on the wire partial sums are rounded on their way. The worker that rounds keeps the error ([`KeepingReduce`]) in
//! its residual at that index, so rule M conserves exactly there too.

use std::fmt;

use spardl_core::codec::Reader;
use spardl_core::phase::{Broadcast, KeepingReduce, all_reduce_elements};
use spardl_core::schedule::ceil_log2;
use spardl_core::{
    Codec, ConfigError, Cost, DecodeError, Entries, Feedback, Group, HEADER_LEN, IndexCoding,
    Input, Machine, MethodState, MethodStats, ProtocolError, Received, Round, SparseVec, Support,
    Update, ValueType, World, list,
};

use crate::usual::Length;
use spardl_kernels::Level;

/// How the workers agree on the indices of the coming update.
pub(crate) trait Agree: fmt::Debug + Send {
    /// Accumulates the gradient in `feedback` and starts to agree.
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>);

    /// What to exchange now; `None` when the indices are agreed.
    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError>;

    /// Takes the messages of the round it asked for.
    fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError>;

    /// The common indices, ascending and the same on every worker, once `round` has returned `None`.
    fn agreed(&mut self) -> Result<Vec<u32>, ProtocolError>;

    /// The sums are delivered and `work` holds the next residual by rule M: what else is to be done with it.
    fn delivered(&mut self, _feedback: &mut Feedback) {}

    /// Blocks scanned again, entries this worker selected in this step, and values it sent so as to agree.
    fn stats(&self) -> MethodStats;

    /// As [`Machine::state`].
    fn state(&self) -> MethodState {
        MethodState::default()
    }

    /// As [`Machine::restore`].
    fn restore(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        state.expect_empty()
    }
}

/// One worker's side of a shared-mask method: an agreement, then the sum at the agreed indices.
#[derive(Debug)]
pub(crate) struct Masked<A> {
    world: World,
    values: ValueType,
    agree: A,
    sum: Option<MaskedSum>,
    summed: u32,
    update: SparseVec,
}

impl<A: Agree> Masked<A> {
    pub(crate) fn new(world: World, len: u32, values: ValueType, agree: A) -> Self {
        Self {
            world,
            values,
            agree,
            sum: None,
            summed: 0,
            update: SparseVec::new(len),
        }
    }
}

impl<A: Agree> Machine for Masked<A> {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        (self.sum, self.summed) = (None, 0);
        self.agree.begin(feedback, input);
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        if self.sum.is_none() {
            if let Some(round) = self.agree.round(feedback)? {
                return Ok(Some(round));
            }
            let (group, indices) = (self.world.everyone(), self.agree.agreed()?);
            self.summed = indices.len() as u32;
            let sum = MaskedSum::new(group, indices, feedback.work_mut(), self.values);
            self.sum = Some(sum);
        }
        let round = self.sum.as_mut().and_then(MaskedSum::round);
        if let Some(sum) = self.sum.take_if(|_| round.is_none()) {
            self.update = sum.finish(feedback.work_mut());
            self.agree.delivered(feedback);
        }
        Ok(round)
    }

    fn absorb(&mut self, _: &mut Feedback, received: Received<'_>) -> Result<(), ProtocolError> {
        match &mut self.sum {
            Some(sum) => sum.absorb(received),
            None => self.agree.absorb(received),
        }
    }

    fn update<'a>(&'a self, _: &'a Feedback) -> Update<'a> {
        Update::Sparse(&self.update)
    }

    fn stats(&self) -> MethodStats {
        let (position, size) = (self.world.rank().index(), self.world.size() as usize);
        let agreed = self.agree.stats();
        MethodStats {
            // The values of the sum; indices travel before them, alone.
            entries_sent: agreed.entries_sent + all_reduce_elements(position, size, self.summed),
            ..agreed
        }
    }

    fn state(&self) -> MethodState {
        self.agree.state()
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        self.agree.restore(state)
    }
}

/// The sum over all workers of their own values at common indices, and rule M for the residual.
#[derive(Debug)]
pub(crate) struct MaskedSum {
    indices: Vec<u32>,
    len: u32,
    reduce: KeepingReduce,
}

impl MaskedSum {
    /// Takes the values of `work` at `indices`, which ascend and are the same on every worker of the group, as this worker's
    /// contribution.
    pub(crate) fn new(
        group: Group,
        indices: Vec<u32>,
        work: &mut [f32],
        values: ValueType,
    ) -> Self {
        let mut own = Vec::with_capacity(indices.len());
        spardl_kernels::take_at(Level::best(), work, &indices, &mut own);
        Self {
            indices,
            len: work.len() as u32,
            reduce: KeepingReduce::new(group, own, values),
        }
    }

    /// What to exchange now; `None` when the sums are complete.
    pub(crate) fn round(&mut self) -> Option<Round> {
        self.reduce.round()
    }

    /// Takes the values of the current round.
    pub(crate) fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        self.reduce.absorb(received)
    }

    /// [`MaskedSum::absorb`] from a message that carries more than the sum.
    pub(crate) fn absorb_part(&mut self, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
        self.reduce.absorb_part(reader)
    }

    /// Do the coming rounds have the peers of an all-gather?
    pub(crate) fn gathers(&self) -> bool {
        self.reduce.gathers()
    }

    /// Rule M: what was delivered is gone from the residual, up to the rounding errors kept here. Returns the update.
    pub(crate) fn finish(self, work: &mut [f32]) -> SparseVec {
        let (values, errors) = self.reduce.finish();
        let indices = self.indices;
        if !errors.is_empty() {
            spardl_kernels::scatter(Level::best(), work, &indices, &errors);
        }
        list::into_update(Entries { indices, values }, self.len)
    }
}

/// What an agreement sends at most: rounds, messages and body bytes of the busiest worker.
#[derive(Clone, Debug)]
pub(crate) struct AgreeCost {
    pub(crate) rounds: std::ops::RangeInclusive<u32>,
    pub(crate) body_bytes: u64,
}

impl AgreeCost {
    /// What a broadcast of `len` bytes takes along its longest chain.
    pub(crate) fn broadcast(size: usize, len: usize) -> Self {
        let (hops, items) = Broadcast::longest_chain(size, len);
        // A header comes with every round; who waits for a later item waits for the headers of those before it too.
        let headers = u64::from(items.saturating_sub(hops)) * HEADER_LEN as u64;
        Self {
            rounds: hops..=hops,
            body_bytes: Broadcast::items_bytes(items, len) + headers,
        }
    }
}

/// The cost of an agreement on at most `most` indices among `workers`, and of the sum there. A worker sends at most one
/// message per round.
pub(crate) fn cost(
    length: Length,
    agree: AgreeCost,
    workers: u32,
    most: usize,
    values: ValueType,
) -> Cost {
    let size = workers as usize;
    let sum = 2 * ceil_log2(size);
    let rounds = agree.rounds.start() + sum..=agree.rounds.end() + sum;
    let block = length.run(values, most.div_ceil(size)) as u64;
    let body = agree.body_bytes + 2 * (size as u64 - 1) * block;
    Cost {
        messages: u64::from(*rounds.end()),
        bytes_max: body + u64::from(*rounds.end()) * HEADER_LEN as u64,
        rounds,
    }
}

/// The most bytes of a list of at most `count` indices, whichever block they are in.
pub(crate) fn raw_indices_bound(len: u32, count: usize) -> usize {
    let codec = Codec {
        indices: IndexCoding::Raw,
        ..Codec::default()
    };
    codec.indices_bound(len, count.min(len as usize))
}

/// The most entries that a worker selects by a threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cap {
    /// Four times `k`, by [`list::split_top`].
    #[default]
    FourK,
    /// As many as there are.
    None,
}

impl Cap {
    pub(crate) const EXPECTED: &'static str = "use 4k or none";

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "4k" => Some(Self::FourK),
            "none" => Some(Self::None),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::FourK => "4k",
            Self::None => "none",
        }
    }

    /// How many entries an update can have.
    pub(crate) const fn support(self) -> Support {
        match self {
            Self::FourK => Support::FourKPerWorker,
            Self::None => Support::Any,
        }
    }

    /// Why the bound on bytes is above what a step takes.
    pub(crate) const fn loose_bound(self) -> &'static str {
        match self {
            Self::FourK => "as many entries as the cap would have to clear the threshold",
            Self::None => "every entry would have to clear the threshold",
        }
    }

    /// The most entries for target `k` in a range of `len` elements; none when `k` is 0.
    pub(crate) fn of(self, k: usize, len: u32) -> usize {
        let most = match self {
            Self::FourK => k.saturating_mul(4),
            Self::None if k == 0 => 0,
            Self::None => usize::MAX,
        };
        most.min(len as usize)
    }
}

/// The indices of `found`, when there are more than `cap` those of the largest.
pub(crate) fn capped(found: Entries, cap: usize) -> Vec<u32> {
    if found.len() <= cap {
        return found.indices;
    }
    list::split_top(&found, cap, ValueType::F32).0.indices
}

/// Ascending union of lists of indices below `len`.
pub(crate) fn union(lists: &[Vec<u32>], len: u32) -> Vec<u32> {
    let mut bits = vec![0u64; (len as usize).div_ceil(64)];
    for &index in lists.iter().flatten() {
        bits[index as usize / 64] |= 1 << (index % 64);
    }
    let mut union = Vec::with_capacity(bits.iter().map(|word| word.count_ones() as usize).sum());
    for (word, &bits) in bits.iter().enumerate() {
        let mut rest = bits;
        while rest != 0 {
            union.push(word as u32 * 64 + rest.trailing_zeros());
            rest &= rest - 1;
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_is_ascending_and_has_each_index_once() {
        let lists = [vec![3, 64, 199], vec![], vec![0, 3, 65]];
        assert_eq!(union(&lists, 200), [0, 3, 64, 65, 199]);
        assert_eq!(union(&[], 0), []);
    }

    #[test]
    fn a_cap_keeps_the_largest() {
        let found = Entries {
            indices: vec![1, 5, 9],
            values: vec![2.0, -4.0, 3.0],
        };
        assert_eq!(capped(found.clone(), 3), [1, 5, 9]);
        assert_eq!(capped(found.clone(), 2), [5, 9]);
        assert_eq!(capped(found, 0), []);
        assert_eq!(Cap::FourK.of(5, 100), 20);
        assert_eq!(Cap::FourK.of(50, 100), 100);
        assert_eq!((Cap::None.of(0, 100), Cap::None.of(1, 100)), (0, 100));
    }

    #[test]
    fn alone_a_rounded_sum_keeps_its_error() {
        let world = World::new(0, 1).unwrap();
        let mut work = vec![1.0, 1025.0, 7.0];
        let mut sum = MaskedSum::new(world.everyone(), vec![1], &mut work, ValueType::Bf16);
        assert!(sum.round().is_none());
        let update = sum.finish(&mut work);
        assert_eq!(update.values(), [1024.0]);
        assert_eq!(work, [1.0, 1.0, 7.0]);
    }
}
