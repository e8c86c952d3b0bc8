//! gTop-k (Shi et al., "A Distributed Synchronous SGD Algorithm with Global Top-k Sparsification", 2019): lists of k entries are
//! merged up a binomial tree.
//!
//! The idea: each worker selects its k largest entries. For gaps 1, 2, 4, .. the worker at a multiple of twice the gap takes the
//! list of the worker one gap ahead, adds it to its own and keeps the k largest entries of the sum, so no list ever grows.
//! Worker 0 ends with the update and broadcasts it.
//!
//! Words: a worker *merges* when it takes a list; what a merge *drops* are the entries beyond the k largest.
//!
//! Example, 5 workers, k = 1, inputs (0 3 1), (0 2 1), (4 0 1), (0 2 0), (1 0 5): the lists are {1:3}, {1:2}, {0:4}, {1:2},
//! {2:5}. Gap 1: worker 0 has {1:5}; worker 2 keeps {0:4} and drops {1:2}. Gap 2: worker 0 keeps {1:5}, drops {0:4}. Gap 4: it
//! has {1:5} and {2:5}; the tie goes to the lower index and the update is {1:5}. Index 1 is final, so worker 2 now holds
//! worker 3's 2; 0 and 2 are not, so workers 2 and 4 take back what they sent.
//!
//! Residual rules: *global* (default): a dropped value stays with the worker that dropped it where its index is final, and
//! every worker has its own input elsewhere (rule A of SparDL); nothing is lost. *published*: a worker clears what it sent
//! where the index is final; what a merge dropped there is lost (the 2 of worker 3 above).
//!
//! Rounds: 2 ceil(log2 P). Bytes: k ceil(log2 P) entries at worker 0, which sends the most; on the critical path a list moves
//! 2 ceil(log2 P) times.
//!
//! Limitations: an entry that is second everywhere is dropped early even when its sum is the largest. Half of the workers are
//! idle after the first round, and worker 0 is always the root.
//!
//! Differs from the authors' code: any number of workers (theirs needs a power of two); indices as integers, not packed with the
//! values into f64; no barriers; the residual rule. With bf16 values each merged list is rounded once and the merging worker
//! keeps the errors.

use spardl_core::codec::Block;
use spardl_core::phase::Broadcast;
use spardl_core::schedule::ceil_log2;
use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Entries, Estimate, Feedback, HEADER_LEN, Input, Laws,
    Layout, Machine, MethodStats, Partition, Payload, ProtocolError, Received, Round, Selector,
    SparseVec, Support, Update, ValueType, World, list,
};

use crate::Options;
use crate::registry::Entry;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "gtopk",
    summary: "gTop-k: lists of k merged up a binomial tree and broadcast",
    options: &[(
        "residual",
        "global (nothing is lost), published (loses what merges drop)",
    )],
    source: include_str!("gtopk.rs"),
    variants: |_| Options::variants(&[&[("residual", "published")]]),
    build: |options| Ok(Box::new(GTopk::from_options(options)?)),
};

/// What becomes of the values that merges drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dropped {
    /// They stay with the worker that dropped them where their index is final; all other inputs return.
    #[default]
    Global,
    /// They are lost where their index is final: the authors' rule.
    Published,
}

/// Binomial tree of top-k merges.
#[derive(Clone, Copy, Debug, Default)]
pub struct GTopk {
    /// How entries travel.
    pub codec: Codec,
    /// What becomes of the values that merges drop.
    pub residual: Dropped,
}

impl GTopk {
    /// gTop-k with the options that concern it.
    ///
    /// # Errors
    /// When `residual` is not a rule of this method.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        let default = Dropped::default();
        let expected = "global or published";
        let residual =
            options.parsed("gtopk", "residual", default, expected, |rule| match rule {
                "global" => Some(Dropped::Global),
                "published" => Some(Dropped::Published),
                _ => None,
            })?;
        Ok(Self {
            codec: options.codec,
            residual,
        })
    }
}

impl Algorithm for GTopk {
    fn name(&self) -> &'static str {
        "gtopk"
    }

    fn describe(&self) -> String {
        let rule = match self.residual {
            Dropped::Global => "global",
            Dropped::Published => "published",
        };
        format!("gtopk residual={rule} values={}", self.codec)
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        Ok(Box::new(Worker {
            config: *self,
            world,
            selector: Selector::new(Partition::even(layout.len(), 1)),
            k: 0,
            own: Entries::default(),
            phase: Phase::Tree(0),
            copies: 0,
            entries_sent: 0,
            update: SparseVec::new(layout.len()),
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        let len = layout.len();
        let levels = ceil_log2(workers as usize);
        let list = self.codec.list_bound(len, k.min(len as usize));
        // Worker 0 sends nothing up the tree and the most in the broadcast; worker 1 as many messages, a little smaller.
        let bytes = Broadcast::body_bytes(workers as usize, list);
        Cost {
            rounds: 2 * levels..=2 * levels,
            messages: u64::from(levels),
            bytes_max: bytes + u64::from(levels) * HEADER_LEN as u64,
        }
    }

    /// Up the tree and down again: the chain has twice what one worker sends.
    fn estimate(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Estimate {
        let len = layout.len();
        let list = self.codec.usual_len(len, k.min(len as usize));
        // Workers without a peer on a level go on at once, so a tree that is not full takes a level less.
        let up = workers.max(1).ilog2();
        let (hops, items) = Broadcast::longest_chain(workers as usize, list);
        let headers = u64::from(up + items) * HEADER_LEN as u64;
        Estimate {
            rounds: up + hops,
            bytes: u64::from(up) * list as u64 + Broadcast::items_bytes(items, list) + headers,
        }
    }

    fn laws(&self) -> Laws {
        Laws {
            conserves: self.residual == Dropped::Global,
            support: Support::K,
            ..Laws::default()
        }
    }
}

/// Where in the step the worker is.
#[derive(Debug)]
enum Phase {
    /// Up the tree: the level, so that the gap is `1 << level`.
    Tree(u32),
    /// The final list on its way down.
    Broadcast(Broadcast),
}

#[derive(Debug)]
struct Worker {
    config: GTopk,
    world: World,
    selector: Selector,
    k: usize,
    /// The list this worker holds: its own selection, then the merged ones.
    own: Entries,
    phase: Phase,
    /// How often this worker has sent the final list.
    copies: u64,
    entries_sent: u64,
    update: SparseVec,
}

impl Worker {
    fn len(&self) -> u32 {
        self.selector.partition().len()
    }

    /// How the lists travel: the bucket is one block.
    fn block(&self) -> Block {
        Block::new(self.config.codec, self.selector.partition(), 0, self.k)
    }

    /// The round of a level: a list goes from the odd multiples of the gap to the even ones, where there is one.
    fn climb(&mut self, level: u32) -> Round {
        let (everyone, gap) = (self.world.everyone(), 1usize << level);
        let position = everyone.position();
        let round = Round::new();
        if position % (2 * gap) == gap {
            self.entries_sent += self.own.len() as u64;
            let item = self.block().item(&self.own);
            let mut payload = Payload::with_capacity(item.len());
            payload.body_mut().extend_from_slice(&item);
            round.send(everyone.rank(position - gap), payload)
        } else if position.is_multiple_of(2 * gap) && position + gap < everyone.size() {
            round.expect(everyone.rank(position + gap), self.block().bound())
        } else {
            round
        }
    }

    /// Adds the list that arrived and keeps the k largest entries, as the next worker will see them.
    fn merge(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
    ) -> Result<(), ProtocolError> {
        if received.is_empty() {
            return Ok(());
        }
        let codec = self.config.codec;
        let mut theirs = Entries::default();
        received.read(0, |reader| self.block().decode(reader, &mut theirs))?;
        let error = codec.values.max_relative_error();
        if is_huge(&self.own, error) || is_huge(&theirs, error) {
            feedback.flag_non_finite();
        }
        let sum = list::sum(&self.own, &theirs);
        let (kept, dropped) = list::split_top(&sum, self.k, codec.values);
        self.own = kept;
        if self.config.residual == Dropped::Global {
            self.selector.add(0, dropped);
        }
        Ok(())
    }

    fn descend(&mut self) -> Broadcast {
        let everyone = self.world.everyone();
        let item = if everyone.position() == 0 {
            self.block().item(&self.own)
        } else {
            Vec::new()
        };
        Broadcast::new(everyone, 0, item, self.block().bound())
    }

    fn finish(&mut self, feedback: &mut Feedback, item: Broadcast) -> Result<(), ProtocolError> {
        let len = self.len();
        let mut finals = Entries::default();
        item.into_items()
            .read(0, |reader| self.block().decode(reader, &mut finals))?;
        self.entries_sent += self.copies * finals.len() as u64;
        self.update = list::into_update(finals, len);
        // Where nothing was added to the selector this is also the published rule: what was sent and became final is cleared.
        let finals = self.update.indices();
        self.selector.apply_rule_a(0, feedback.work_mut(), finals);
        Ok(())
    }
}

/// Could what a worker drops in up to 32 merges overflow in its array? Nobody else would learn of that at the end, so such
/// values count as not finite when they are merged: the flag then travels with the list. (Entries that a worker did not select
/// are no larger than those of its list.)
fn is_huge(list: &Entries, error: f32) -> bool {
    let limit = list::magnitude(f32::MAX / 128.0 / (1.0 + error));
    list.values
        .iter()
        .any(|&value| list::magnitude(value) > limit)
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        self.k = input.k.min(self.len() as usize);
        self.selector.pass(feedback, input.gradient, &[self.k]);
        self.own.clear();
        let values = self.config.codec.values;
        self.selector
            .take_top(0, feedback.work(), self.k, values, &mut self.own);
        (self.entries_sent, self.copies) = (0, 0);
        self.phase = Phase::Tree(0);
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        if let Phase::Tree(level) = self.phase {
            if level < ceil_log2(self.world.size() as usize) {
                return Ok(Some(self.climb(level)));
            }
            self.phase = Phase::Broadcast(self.descend());
        }
        let round = match &self.phase {
            Phase::Broadcast(broadcast) => broadcast.round(),
            Phase::Tree(_) => None,
        };
        if let Some(round) = &round {
            self.copies += round.sends.len() as u64;
        } else if let Phase::Broadcast(broadcast) =
            std::mem::replace(&mut self.phase, Phase::Tree(0))
        {
            self.finish(feedback, broadcast)?;
        }
        Ok(round)
    }

    fn absorb(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
    ) -> Result<(), ProtocolError> {
        match &mut self.phase {
            Phase::Tree(level) => {
                *level += 1;
                self.merge(feedback, received)
            }
            Phase::Broadcast(broadcast) => broadcast.absorb(received),
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
}

#[cfg(test)]
mod tests {
    use spardl_core::ValueType;
    use spardl_sim::Cluster;
    use spardl_testkit::{check, generate};

    use super::*;

    fn configured(residual: Dropped, values: ValueType) -> GTopk {
        let mut config = GTopk::default();
        (config.residual, config.codec.values) = (residual, values);
        config
    }

    /// The method on whole arrays: the update and the residuals.
    fn oracle(inputs: &[Vec<f32>], k: usize, residual: Dropped) -> (Vec<f32>, Vec<Vec<f32>>) {
        let split = |values: &[f32]| {
            let mut order: Vec<usize> = (0..values.len()).collect();
            order.sort_by(|&i, &j| values[j].abs().total_cmp(&values[i].abs()));
            let (mut top, mut rest) = (vec![0.0; values.len()], values.to_vec());
            for i in order.into_iter().take(k) {
                (top[i], rest[i]) = (values[i], 0.0);
            }
            (top, rest)
        };
        let (mut lists, mut left): (Vec<_>, Vec<_>) = inputs.iter().map(|v| split(v)).unzip();
        let sent = lists.clone();
        for gap in (0..)
            .map(|level| 1 << level)
            .take_while(|&gap| gap < inputs.len())
        {
            for to in (0..inputs.len() - gap).step_by(2 * gap) {
                let sum: Vec<f32> = lists[to]
                    .iter()
                    .zip(&lists[to + gap])
                    .map(|(a, b)| a + b)
                    .collect();
                let (top, rest) = split(&sum);
                lists[to] = top;
                left[to]
                    .iter_mut()
                    .zip(rest)
                    .for_each(|(left, rest)| *left += rest);
            }
        }
        let update = lists.swap_remove(0);
        let kept = |w: usize, i: usize| match residual {
            _ if update[i] == 0.0 => inputs[w][i],
            Dropped::Global => left[w][i],
            Dropped::Published if sent[w][i] != 0.0 => 0.0,
            Dropped::Published => inputs[w][i],
        };
        let residuals = (0..inputs.len()).map(|w| (0..update.len()).map(|i| kept(w, i)).collect());
        let residuals = residuals.collect();
        (update, residuals)
    }

    #[test]
    fn the_machines_compute_what_whole_arrays_do() {
        for residual in [Dropped::Global, Dropped::Published] {
            for workers in 1..=17 {
                let inputs = generate::integers(u64::from(workers), workers, 60);
                let config = configured(residual, ValueType::F32);
                let mut cluster = Cluster::new(&config, workers, &Layout::flat(60)).unwrap();
                cluster.step(&inputs, 9, 0).unwrap();
                let (update, residuals) = oracle(&inputs, 9, residual);
                assert_eq!(check::agreed(cluster.workers(), "gtopk"), update);
                cluster.commit().unwrap();
                for (worker, residual) in cluster.workers().iter().zip(residuals) {
                    assert_eq!(worker.residual(), residual, "{workers} workers");
                }
            }
        }
    }

    #[test]
    fn the_published_rule_loses_what_a_merge_drops_at_a_final_index() {
        let inputs = [
            vec![0.0, 3.0, 1.0],
            vec![0.0, 2.0, 1.0],
            vec![4.0, 0.0, 1.0],
            vec![0.0, 2.0, 0.0],
            vec![1.0, 0.0, 5.0],
        ];
        let after = |residual| {
            let config = configured(residual, ValueType::F32);
            let mut cluster = Cluster::new(&config, 5, &Layout::flat(3)).unwrap();
            cluster.step(&inputs, 1, 0).unwrap();
            let update = check::agreed(cluster.workers(), "gtopk");
            assert_eq!(update, [0.0, 5.0, 0.0]);
            cluster.commit().unwrap();
            let mut sum = check::residuals(cluster.workers());
            check::add(&mut sum, &update);
            sum
        };
        assert_eq!(after(Dropped::Global), [5, 7, 8], "the sum of the inputs");
        assert_eq!(after(Dropped::Published), [5, 5, 8], "worker 3's 2 is gone");
    }

    #[test]
    fn the_published_rule_loses_mass_on_most_inputs() {
        let config = configured(Dropped::Published, ValueType::F32);
        assert!(!config.laws().conserves);
        let losing = (0..60).filter(|&seed| {
            let inputs = generate::integers(seed, 8, 100);
            let mut cluster = Cluster::new(&config, 8, &Layout::flat(100)).unwrap();
            let before = check::inputs(cluster.workers(), &inputs);
            cluster.step(&inputs, 10, 0).unwrap();
            let update = check::agreed(cluster.workers(), "gtopk");
            cluster.commit().unwrap();
            let mut after = check::residuals(cluster.workers());
            check::add(&mut after, &update);
            before != after
        });
        assert_eq!(losing.count(), 60);
    }
}
