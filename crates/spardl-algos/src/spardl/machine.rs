//! One worker's side of SparDL.

use spardl_core::codec::{Block, Bounds};
use spardl_core::phase::AllGather;
use spardl_core::schedule::{Scatter, reduce_scatter};
use spardl_core::{
    ConfigError, Entries, Feedback, Group, Input, Machine, MethodState, MethodStats, Partition,
    Payload, ProtocolError, Received, Round, Selector, SparseVec, Update, list,
};

use super::inter_team::AdaptiveLength;
use super::{Residual, SparDl};

/// Where in the step the worker is.
#[derive(Debug)]
enum Phase {
    /// Spar-Reduce-Scatter inside the team: the round under way.
    Scatter(usize),
    /// R-SAG: the distance to the peer's team.
    Doubling(usize),
    /// B-SAG: the lists of the column on their way.
    Columns(AllGather),
    /// The final blocks of the team on their way.
    Gather(AllGather),
    /// Between steps.
    Idle,
}

#[derive(Debug)]
pub(super) struct Worker {
    config: SparDl,
    /// The rule of this step.
    residual: Residual,
    team: Group,
    column: Group,
    rounds: Vec<Scatter>,
    selector: Selector,
    bounds: Bounds,
    length: AdaptiveLength,
    step: u64,
    quotas: Vec<usize>,
    phase: Phase,
    /// The entries of the own block that are on their way to become final.
    own: Entries,
    scratch: Entries,
    entries_sent: u64,
    update: SparseVec,
}

impl Worker {
    pub(super) fn new(config: SparDl, team: Group, column: Group, len: u32) -> Self {
        let blocks = Partition::even(len, team.size());
        let selector = match config.residual {
            Residual::Local | Residual::NoInProcedure => Selector::remembering(blocks),
            _ => Selector::new(blocks),
        };
        Self {
            config,
            residual: config.residual,
            team,
            column,
            rounds: reduce_scatter(team.size()).collect(),
            selector,
            bounds: Bounds::default(),
            length: AdaptiveLength::default(),
            step: 0,
            quotas: Vec::new(),
            phase: Phase::Idle,
            own: Entries::default(),
            scratch: Entries::default(),
            entries_sent: 0,
            update: SparseVec::new(len),
        }
    }

    fn block(&self) -> Block {
        self.block_at(self.team.position())
    }

    fn block_at(&self, block: usize) -> Block {
        let blocks = self.selector.partition();
        Block::new(self.config.codec, blocks, block, self.quotas[block])
    }

    /// The most bytes of the lists of these blocks together.
    fn bound(&mut self, blocks: impl Iterator<Item = usize>) -> usize {
        blocks
            .map(|block| {
                let wire = self.block_at(block);
                self.bounds.of(&wire)
            })
            .sum()
    }

    /// Do the teams synchronise by B-SAG?
    fn gathers_columns(&self) -> bool {
        self.column.size() > 1 && !self.config.doubles()
    }

    /// Are the lists of B-SAG shorter than the quota? Not when that is the whole block, which no union exceeds.
    fn shortens_lists(&self) -> bool {
        let block = self.block();
        self.gathers_columns() && block.max < block.len() as usize
    }

    /// How many entries of its own block this worker puts forward.
    fn own_quota(&mut self) -> usize {
        let quota = self.block().max;
        if self.shortens_lists() {
            self.length.length(quota, self.column.size())
        } else {
            quota
        }
    }

    // Spar-Reduce-Scatter: sparsify what is sent next, and nothing else.

    fn scatter(&mut self, feedback: &Feedback, at: usize) -> Round {
        let (position, size) = (self.team.position(), self.team.size());
        let round = self.rounds[at];
        let bytes = self.bound(round.sent(position, size));
        let mut payload = Payload::with_capacity(bytes);
        for block in round.sent(position, size) {
            let wire = self.block_at(block);
            self.scratch.clear();
            let values = self.config.codec.values;
            let (selector, work) = (&mut self.selector, feedback.work());
            selector.take_top(block, work, wire.max, values, &mut self.scratch);
            self.entries_sent += self.scratch.len() as u64;
            wire.encode(&self.scratch, payload.body_mut());
        }
        let bound = self.bound(round.received(position, size));
        Round::new()
            .send(self.team.rank(position + round.gap), payload)
            .expect(self.team.rank(position + size - round.gap), bound)
    }

    fn add_blocks(&mut self, received: Received<'_>, at: usize) -> Result<(), ProtocolError> {
        let round = self.rounds[at];
        received.read(0, |reader| {
            for block in round.received(self.team.position(), self.team.size()) {
                let mut list = self.selector.blank();
                self.block_at(block).decode(reader, &mut list)?;
                self.selector.add(block, list);
            }
            Ok(())
        })
    }

    // Spar-All-Gather between teams.

    /// Puts the own block forward, to the other teams if there are any.
    fn exchange_columns(&mut self, feedback: &Feedback) -> Phase {
        let quota = self.own_quota();
        self.own.clear();
        let (block, values) = (self.team.position(), self.config.codec.values);
        self.selector
            .take_top(block, feedback.work(), quota, values, &mut self.own);
        if self.gathers_columns() {
            let teams = self.column.size();
            let bounds = vec![self.block().bound(); teams];
            Phase::Columns(AllGather::new(
                self.column,
                self.block().item(&self.own),
                bounds,
            ))
        } else {
            Phase::Doubling(1)
        }
    }

    fn double(&mut self, gap: usize) -> Round {
        self.entries_sent += self.own.len() as u64;
        let mut payload = Payload::with_capacity(self.block().bound());
        self.block().encode(&self.own, payload.body_mut());
        let peer = self.column.rank(self.column.position() ^ gap);
        Round::new()
            .send(peer, payload)
            .expect(peer, self.block().bound())
    }

    /// R-SAG: both partners add the same two lists and keep the same part of the sum.
    fn merge_partner(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
        gap: usize,
    ) -> Result<(), ProtocolError> {
        let mut theirs = Entries::default();
        received.read(0, |reader| self.block().decode(reader, &mut theirs))?;
        self.flag_if_huge(feedback, [&self.own, &theirs]);
        let sum = list::sum(&self.own, &theirs);
        self.keep_top(&sum, 2 * gap);
        Ok(())
    }

    /// B-SAG: all workers of a column add the same lists, in team order.
    fn merge_columns(
        &mut self,
        feedback: &mut Feedback,
        gather: AllGather,
    ) -> Result<(), ProtocolError> {
        let (items, teams) = (gather.into_items(), self.column.size());
        let mut lists = vec![Entries::default(); teams];
        for (team, list) in lists.iter_mut().enumerate() {
            items.read(team, |reader| self.block().decode(reader, list))?;
        }
        let counts: Vec<usize> = lists.iter().map(Entries::len).collect();
        self.entries_sent += AllGather::entries_sent(self.column.position(), &counts);
        self.flag_if_huge(feedback, &lists);
        let sum = list::sum_all(&lists, self.update.len());
        if self.shortens_lists() {
            self.length.learn(sum.len(), self.block().max, teams);
        }
        self.keep_top(&sum, teams);
        Ok(())
    }

    /// Only one worker of a column adds what the column discards to its array, and nobody else would learn of an overflow
    /// there. So values that could lead to one count as an overflow for all who hold these lists: the entries in the array are
    /// no larger than those of its list, and the column adds at most one such list per team.
    fn flag_if_huge<'a>(
        &self,
        feedback: &mut Feedback,
        lists: impl IntoIterator<Item = &'a Entries>,
    ) {
        let error = self.config.codec.values.max_relative_error();
        let most = f32::MAX / (2 * self.column.size()) as f32;
        let limit = list::magnitude(most / (1.0 + error));
        let mut values = lists.into_iter().flat_map(|list| &list.values);
        if values.any(|&value| list::magnitude(value) > limit) {
            feedback.flag_non_finite();
        }
    }

    /// Keeps the quota of a sum that `group` teams hold identically. The rest, and the rounding errors, go whole to one of
    /// them, which rotates with the step: shares could not be represented exactly.
    fn keep_top(&mut self, sum: &Entries, group: usize) {
        let (kept, left) = list::split_top(sum, self.block().max, self.config.codec.values);
        self.own = kept;
        if self.column.position() % group == (self.step % group as u64) as usize {
            let block = self.team.position();
            self.selector.add(block, left);
        }
    }

    // The final all-gather and global residual collection.

    fn gather_blocks(&mut self) -> Phase {
        let blocks = 0..self.team.size();
        let bounds = blocks.map(|block| self.bound(std::iter::once(block)));
        let bounds = bounds.collect();
        // A worker without a team has nobody to read its list.
        let item = match self.team.size() {
            1 => Vec::new(),
            _ => self.block().item(&self.own),
        };
        Phase::Gather(AllGather::new(self.team, item, bounds))
    }

    fn finish(&mut self, feedback: &mut Feedback, gather: AllGather) -> Result<(), ProtocolError> {
        let items = gather.into_items();
        self.update.clear();
        let mut counts = Vec::with_capacity(self.team.size());
        for block in 0..self.team.size() {
            let first = self.update.nnz();
            let (wire, update) = (self.block_at(block), &mut self.update);
            if block == self.team.position() {
                // What the others read is what this worker has.
                update.append(&self.own);
            } else {
                items.read(block, |reader| wire.extend(reader, update))?;
            }
            counts.push(update.nnz() - first);
        }
        // Every list was good: from here on residuals may be written.
        let mut first = 0;
        for (block, &count) in counts.iter().enumerate() {
            self.collect(block, feedback.work_mut(), first..first + count);
            first += count;
        }
        self.entries_sent += AllGather::entries_sent(self.team.position(), &counts);
        if self.residual == Residual::None {
            feedback.work_mut().fill(0.0);
        }
        Ok(())
    }

    fn collect(&mut self, block: usize, work: &mut [f32], finals: std::ops::Range<usize>) {
        let finals = &self.update.indices()[finals];
        match self.residual {
            Residual::None => {}
            Residual::Local => self.selector.clear_sent(block, work),
            Residual::NoInProcedure => self.selector.clear_sent_final(block, work, finals),
            Residual::Auto | Residual::GlobalA => self.selector.apply_rule_a(block, work, finals),
            Residual::GlobalB => self.selector.apply_rule_b(block, work),
        }
    }
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        let size = self.team.size();
        self.step = input.step;
        let len = self.selector.partition().len();
        self.residual = self.config.residual.at(input.k, len);
        self.quotas = self
            .selector
            .partition()
            .quotas(input.k, (input.step % size as u64) as usize);
        self.entries_sent = 0;
        let own = self.team.position();
        let wanted = self.own_quota();
        let quota = std::mem::replace(&mut self.quotas[own], wanted);
        self.selector.pass(feedback, input.gradient, &self.quotas);
        self.quotas[own] = quota;
        self.phase = Phase::Scatter(0);
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        loop {
            let round = match &self.phase {
                &Phase::Scatter(at) if at < self.rounds.len() => Some(self.scatter(feedback, at)),
                &Phase::Doubling(gap) if gap < self.column.size() => Some(self.double(gap)),
                Phase::Columns(gather) | Phase::Gather(gather) => gather.round(),
                Phase::Scatter(_) | Phase::Doubling(_) => None,
                Phase::Idle => return Ok(None),
            };
            if round.is_some() {
                return Ok(round);
            }
            self.phase = match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Scatter(_) => self.exchange_columns(feedback),
                Phase::Doubling(_) => self.gather_blocks(),
                Phase::Columns(gather) => {
                    self.merge_columns(feedback, gather)?;
                    self.gather_blocks()
                }
                Phase::Gather(gather) => {
                    self.finish(feedback, gather)?;
                    Phase::Idle
                }
                Phase::Idle => Phase::Idle,
            };
        }
    }

    fn absorb(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
    ) -> Result<(), ProtocolError> {
        match &mut self.phase {
            Phase::Scatter(at) => {
                let at = *at;
                self.add_blocks(received, at)?;
                self.phase = Phase::Scatter(at + 1);
            }
            Phase::Doubling(gap) => {
                let gap = *gap;
                self.merge_partner(feedback, received, gap)?;
                self.phase = Phase::Doubling(2 * gap);
            }
            Phase::Columns(gather) | Phase::Gather(gather) => gather.absorb(received)?,
            Phase::Idle => {}
        }
        Ok(())
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
        self.length.save()
    }

    /// Nothing: the length of a list is alike in a column only, and no worker relies on that of another, which its list says.
    fn replicated(&self) -> MethodState {
        MethodState::default()
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        self.length = AdaptiveLength::load(state)?;
        Ok(())
    }
}
