//! The common course of the methods that gather lists: every worker selects, everybody gathers all lists and adds them in rank
//! order.
//!
//! The methods differ in how a worker selects ([`Select`]) and in what of the sum becomes the update ([`Deliver`]).

use std::fmt;

use spardl_core::codec::Block;
use spardl_core::phase::AllGather;
use spardl_core::{
    Codec, Cost, Entries, Feedback, HEADER_LEN, Input, Machine, MethodStats, Partition,
    ProtocolError, Received, Round, Selector, SparseVec, Update, ValueType, World, list, schedule,
};

use crate::usual::Length;

/// How a worker chooses the entries of its list.
pub(crate) trait Select: fmt::Debug + Send {
    /// The most entries that a list can have when the update should have `k` of `len`.
    fn most(&self, k: usize, len: u32) -> usize;

    /// Accumulates the gradient and takes the entries out of block 0 of the selector, which is the whole bucket.
    fn select(
        &mut self,
        selector: &mut Selector,
        feedback: &mut Feedback,
        input: Input<'_>,
        values: ValueType,
    ) -> Entries;
}

/// What of the sum of all lists becomes the update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deliver {
    /// All of it.
    Whole,
    /// Its `k` largest entries; what did not become final returns to its owner (rule I).
    Top,
}

/// What a step costs when lists have at most `most` entries.
pub(crate) fn cost(length: Length, codec: Codec, workers: u32, len: u32, most: usize) -> Cost {
    let rounds = schedule::ceil_log2(workers as usize);
    let lens = vec![length.list(codec, len, most); workers as usize];
    Cost {
        rounds: rounds..=rounds,
        messages: u64::from(rounds),
        bytes_max: AllGather::body_bytes(0, &lens) + u64::from(rounds) * HEADER_LEN as u64,
    }
}

/// One worker's side.
#[derive(Debug)]
pub(crate) struct Worker<S> {
    world: World,
    codec: Codec,
    deliver: Deliver,
    select: S,
    selector: Selector,
    k: usize,
    most: usize,
    gather: Option<AllGather>,
    entries_sent: u64,
    update: SparseVec,
}

impl<S: Select> Worker<S> {
    pub(crate) fn new(world: World, len: u32, codec: Codec, deliver: Deliver, select: S) -> Self {
        Self {
            world,
            codec,
            deliver,
            select,
            selector: Selector::new(Partition::even(len, 1)),
            k: 0,
            most: 0,
            gather: None,
            entries_sent: 0,
            update: SparseVec::new(len),
        }
    }

    /// How the lists travel: the bucket is one block.
    fn block(&self) -> Block {
        Block::new(self.codec, self.selector.partition(), 0, self.most)
    }

    fn finish(&mut self, feedback: &mut Feedback, gather: AllGather) -> Result<(), ProtocolError> {
        let (items, len) = (gather.into_items(), self.selector.partition().len());
        let mut lists = vec![Entries::default(); self.world.size() as usize];
        for (from, list) in lists.iter_mut().enumerate() {
            items.read(from, |reader| self.block().decode(reader, list))?;
        }
        let counts: Vec<usize> = lists.iter().map(Entries::len).collect();
        self.entries_sent = AllGather::entries_sent(self.world.rank().index(), &counts);
        let sum = list::sum_all(&lists, len);
        let work = feedback.work_mut();
        match self.deliver {
            Deliver::Whole => {
                self.update = list::into_update(sum, len);
                self.selector.apply_rule_b(0, work);
            }
            Deliver::Top => {
                // Everybody computed this sum from the same lists, so it needs no rounding.
                let (kept, _) = list::split_top(&sum, self.k, ValueType::F32);
                self.update = list::into_update(kept, len);
                self.selector.apply_rule_a(0, work, self.update.indices());
            }
        }
        Ok(())
    }
}

impl<S: Select> Machine for Worker<S> {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        let len = self.selector.partition().len();
        self.k = input.k.min(len as usize);
        self.most = self.select.most(self.k, len);
        let input = input.k(self.k);
        let values = self.codec.values;
        let own = self
            .select
            .select(&mut self.selector, feedback, input, values);
        let item = self.block().item(&own);
        let size = self.world.size() as usize;
        self.entries_sent = 0;
        let bounds = vec![self.block().bound(); size];
        self.gather = Some(AllGather::new(self.world.everyone(), item, bounds));
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        let round = self.gather.as_ref().and_then(AllGather::round);
        match self.gather.take_if(|_| round.is_none()) {
            Some(gather) => self.finish(feedback, gather).map(|()| None),
            None => Ok(round),
        }
    }

    fn absorb(&mut self, _: &mut Feedback, received: Received<'_>) -> Result<(), ProtocolError> {
        let gather = self.gather.as_mut().expect("a step is under way");
        gather.absorb(received)
    }

    fn update<'a>(&'a self, _: &'a Feedback) -> Update<'a> {
        Update::Sparse(&self.update)
    }

    fn stats(&self) -> MethodStats {
        MethodStats {
            entries_sent: self.entries_sent,
            ..self.selector.stats()
        }
    }
}
