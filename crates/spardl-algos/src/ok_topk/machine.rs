//! One worker's side of Ok-Topk.

use spardl_core::codec::Block;
use spardl_core::phase::{AllGather, AllReduce, Items, SplitReduce};
use spardl_core::{
    ConfigError, DecodeError, Entries, Feedback, Group, Input, Machine, MethodState, MethodStats,
    Partition, ProtocolError, Received, Round, Selector, SparseVec, Update, ValueType, World, list,
};

use super::balance::{Balance, Plan, is_skewed};
use super::controller::Controller;
use super::local::{least, mean_cuts, propose_cuts, select};
use super::{CAP, Intersection, OkTopk, PEERS_PER_ROUND};

/// Where in the step the worker is.
#[derive(Debug)]
enum Phase {
    /// The sums of all proposed cuts on their way.
    Repartition(AllReduce, Vec<i64>),
    /// The selections on their way to the owners of the regions.
    Split(SplitReduce),
    /// The sizes of the shares on their way.
    Counts(AllGather),
    /// Balance: the one round that turns shares into pieces, until it is asked for.
    Moves(Plan, Option<Round>),
    /// The shares or pieces on their way to everybody.
    Gather(AllGather, Vec<Block>),
    /// Between steps.
    Idle,
}

#[derive(Debug)]
pub(super) struct Worker {
    config: OkTopk,
    group: Group,
    /// One block: the threshold knows no regions.
    selector: Selector,
    control: Controller,
    k: usize,
    exact: bool,
    phase: Phase,
    /// What this worker selected.
    selection: Entries,
    /// What this worker puts forward: its share, later its piece.
    share: Entries,
    entries_sent: u64,
    update: SparseVec,
}

impl Worker {
    pub(super) fn new(config: OkTopk, world: World, len: u32) -> Self {
        let (group, whole) = (world.everyone(), Partition::even(len, 1));
        let selector = match config.residual {
            Intersection::Sorted => Selector::new(whole),
            Intersection::PublishedUnsorted => Selector::remembering(whole),
        };
        Self {
            config,
            group,
            selector,
            control: Controller::new(&config, group.size(), len),
            k: 0,
            exact: false,
            phase: Phase::Idle,
            selection: Entries::default(),
            share: Entries::default(),
            entries_sent: 0,
            update: SparseVec::new(len),
        }
    }

    fn values(&self) -> ValueType {
        self.config.codec.values
    }

    /// The most entries of a selection, a share and the update.
    fn cap(&self) -> usize {
        let times = if self.exact { 1 } else { CAP };
        self.k.saturating_mul(times)
    }

    fn region(&self, region: usize) -> Block {
        let regions = &self.control.regions;
        Block::new(self.config.codec, regions, region, self.cap())
    }

    fn regions(&self) -> Vec<Block> {
        (0..self.group.size()).map(|r| self.region(r)).collect()
    }

    // Space repartition: every worker proposes cuts, the mean holds.

    fn propose(&self) -> Phase {
        let (workers, len) = (self.group.size(), self.update.len());
        let cuts = propose_cuts(&self.selection.indices, workers, len);
        let reduce = AllReduce::new(self.group, cuts.len() as u32, ValueType::F32);
        Phase::Repartition(reduce, cuts)
    }

    fn repartition(&mut self, sums: &[i64]) {
        let len = self.update.len();
        let cuts = mean_cuts(sums, self.group.size(), len);
        self.control.regions =
            Partition::from_cuts(len, cuts).expect("mean cuts ascend and end at the length");
    }

    // Split and reduce: every selected entry to the owner of its region.

    fn split(&mut self) -> Phase {
        let (codec, regions) = (self.config.codec, &self.control.regions);
        let mut errors = Entries::default();
        let lists = (codec, self.cap());
        let split = SplitReduce::new(
            self.group,
            &self.selection,
            regions,
            lists,
            PEERS_PER_ROUND,
            &mut errors,
        );
        self.entries_sent += split.entries_sent();
        self.selector.add(0, errors);
        Phase::Split(split)
    }

    /// Keeps what is put forward of the sum of the own region.
    fn reduce(&mut self, sum: &Entries) {
        let reached = match self.control.global() {
            Some(threshold) if !self.exact => {
                let limit = list::magnitude(threshold);
                let values = sum.values.iter();
                values.filter(|v| list::magnitude(**v) >= limit).count()
            }
            _ => sum.len(),
        };
        let (share, left) = list::split_top(sum, reached.min(self.cap()), self.values());
        if !self.values().is_exact() {
            // The rounding errors of the sums stay with the owner. Entries that were not put forward are added as well, and
            // ignored: their indices do not become final.
            self.selector.add(0, left);
        }
        self.share = share;
    }

    // Balance and all-gather.

    fn after_reduce(&self) -> Phase {
        let looks = match self.config.balance {
            Balance::Auto => self.control.skewed,
            Balance::Always => true,
            Balance::Never => false,
        };
        let workers = self.group.size();
        if self.exact || !looks || !self.config.can_balance(workers) {
            return self.gather_shares();
        }
        let count = (self.share.len() as u32).to_le_bytes().to_vec();
        Phase::Counts(AllGather::new(self.group, count, vec![4; workers]))
    }

    fn gather_shares(&self) -> Phase {
        self.gather(self.regions())
    }

    fn gather(&self, blocks: Vec<Block>) -> Phase {
        let own = &blocks[self.group.position()];
        let item = own.item(&self.share);
        let bounds = blocks.iter().map(Block::bound).collect();
        Phase::Gather(AllGather::new(self.group, item, bounds), blocks)
    }

    fn after_counts(&mut self, items: &Items) -> Result<Phase, ProtocolError> {
        let read_count = |worker: usize| {
            let region = self.region(worker);
            let max = region.max.min(region.len() as usize);
            items.read(worker, |reader| match reader.u32()? {
                got if got as usize > max => Err(DecodeError::TooMany {
                    max,
                    got: got.into(),
                }),
                count => Ok(count as usize),
            })
        };
        let counts = (0..self.group.size())
            .map(read_count)
            .collect::<Result<Vec<_>, _>>()?;
        let always = self.config.balance == Balance::Always;
        if !always && !is_skewed(&counts, self.config.balance_trigger) {
            return Ok(self.gather_shares());
        }
        let plan = Plan::new(&counts);
        let mut errors = Entries::default();
        let round = plan.round(self.group, &self.share, &self.regions(), &mut errors);
        self.selector.add(0, errors);
        self.entries_sent += plan.moved_from(self.group.position()) as u64;
        Ok(Phase::Moves(plan, Some(round)))
    }

    /// The update, the global threshold of the next step, the residual.
    fn finish(
        &mut self,
        feedback: &mut Feedback,
        items: &Items,
        blocks: &[Block],
    ) -> Result<(), ProtocolError> {
        self.update.clear();
        let mut counts = Vec::with_capacity(blocks.len());
        for (from, block) in blocks.iter().enumerate() {
            let before = self.update.nnz();
            items.read(from, |reader| block.extend(reader, &mut self.update))?;
            counts.push(self.update.nnz() - before);
        }
        self.entries_sent += AllGather::entries_sent(self.group.position(), &counts);
        self.keep_top();
        self.learn_skew();
        let Self {
            config,
            selector,
            update,
            exact,
            ..
        } = self;
        config
            .residual
            .apply(selector, feedback.work_mut(), update, *exact);
        Ok(())
    }

    /// Cuts what was gathered to the cap and sets the global threshold.
    fn keep_top(&mut self) {
        let (gathered, cap) = (self.update.nnz(), self.cap());
        if gathered > cap {
            let all = Entries {
                indices: self.update.indices().to_vec(),
                values: self.update.values().to_vec(),
            };
            // The values have been rounded by their owners.
            let (kept, _) = list::split_top(&all, cap, ValueType::F32);
            self.update = list::into_update(kept, self.update.len());
        }
        let values = self.update.values();
        if self.exact {
            self.control.set_global(least(values));
        } else if self.k > 0 {
            self.control.follow_global(values, gathered, self.k);
        }
    }

    fn learn_skew(&mut self) {
        let (regions, indices) = (&self.control.regions, self.update.indices());
        let end = |region: usize| {
            let end = regions.range(region).end;
            indices.partition_point(|&index| (index as usize) < end)
        };
        let mut last = 0;
        let shares: Vec<usize> = (0..regions.blocks())
            .map(|region| {
                let share = end(region) - last;
                last += share;
                share
            })
            .collect();
        self.control.skewed = is_skewed(&shares, self.config.balance_trigger);
    }
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        self.k = input.k.min(self.update.len() as usize);
        self.entries_sent = 0;
        let (exact, repartition) = self.control.start(self.k);
        self.exact = exact;
        self.selection = select(
            &mut self.selector,
            &mut self.control,
            feedback,
            input.gradient,
            self.k,
            exact,
            self.config.codec.values.elementwise(),
        );
        self.phase = if repartition {
            self.propose()
        } else {
            self.split()
        };
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        loop {
            let round = match &mut self.phase {
                Phase::Repartition(reduce, cuts) => reduce.round(cuts),
                Phase::Split(exchange) => exchange.round(),
                Phase::Counts(gather) | Phase::Gather(gather, _) => gather.round(),
                Phase::Moves(_, round) => round.take(),
                Phase::Idle => return Ok(None),
            };
            if round.is_some() {
                return Ok(round);
            }
            self.phase = match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Repartition(_, sums) => {
                    self.repartition(&sums);
                    self.split()
                }
                Phase::Split(exchange) => {
                    self.reduce(&exchange.into_sum()?);
                    self.after_reduce()
                }
                Phase::Counts(gather) => self.after_counts(&gather.into_items())?,
                Phase::Moves(plan, _) => self.gather(plan.pieces(&self.regions())),
                Phase::Gather(gather, blocks) => {
                    self.finish(feedback, &gather.into_items(), &blocks)?;
                    Phase::Idle
                }
                Phase::Idle => Phase::Idle,
            };
        }
    }

    fn absorb(&mut self, _: &mut Feedback, received: Received<'_>) -> Result<(), ProtocolError> {
        match &mut self.phase {
            Phase::Repartition(reduce, cuts) => reduce.absorb(cuts, received),
            Phase::Split(exchange) => exchange.absorb(received),
            Phase::Counts(gather) | Phase::Gather(gather, _) => gather.absorb(received),
            Phase::Moves(plan, _) => {
                let plan = plan.clone();
                let own = self.group.position();
                self.share = plan.assemble(own, &self.share, &self.regions(), received)?;
                let mut errors = Entries::default();
                list::quantise(self.values(), &mut self.share, &mut errors);
                self.selector.add(0, errors);
                Ok(())
            }
            Phase::Idle => Ok(()),
        }
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

    fn state(&self) -> MethodState {
        self.control.save()
    }

    fn replicated(&self) -> MethodState {
        self.control.replicated()
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        self.control.load(state)
    }
}
