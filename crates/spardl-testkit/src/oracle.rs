//! SparDL once more, in plain integers and with plain sorting; shares no code with the product.
//!
//! A port of the executable specification: whole vectors of `i64`, one worker after the other, nothing clever. The product must
//! give the same update and the same residuals.

use std::collections::{BTreeMap, BTreeSet};

/// How teams synchronise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teams {
    /// Recursive doubling.
    R,
    /// Bruck's all-gather of short lists.
    B,
}

/// What becomes of undelivered mass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Nothing is kept.
    None,
    /// The own input where the worker sent nothing.
    Local,
    /// The own input where the worker sent nothing, or in vain.
    NoInProcedure,
    /// The rest where the index is final, the own input elsewhere.
    A,
    /// The rest everywhere.
    B,
}

/// One step of SparDL.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The number of teams.
    pub teams: usize,
    /// How they synchronise.
    pub mode: Teams,
    /// The residual rule.
    pub rule: Rule,
    /// Entries asked for.
    pub k: usize,
    /// The number of the step.
    pub step: usize,
    /// The list length of every worker under B; 0 before the first use.
    pub lengths: &'a [usize],
}

/// The update of every worker, and the residual of every worker.
pub type Result = (Vec<Vec<i64>>, Vec<Vec<i64>>);

type List = BTreeMap<usize, i64>;

/// `[lo, hi)` of each of `m` blocks of `0..n`.
pub fn blocks(n: usize, m: usize) -> Vec<(usize, usize)> {
    (0..m).map(|i| (i * n / m, (i + 1) * n / m)).collect()
}

/// Entries per block: `k / m` each, the rest one by one from block `first` on, none above its block's length, what does not
/// fit to the next blocks with room.
pub fn quotas(k: usize, m: usize, n: usize, first: usize) -> Vec<usize> {
    let room: Vec<usize> = blocks(n, m).iter().map(|(lo, hi)| hi - lo).collect();
    let mut quotas: Vec<usize> = (0..m).map(|i| (k / m).min(room[i])).collect();
    for turn in 0..k % m {
        let i = (first + turn) % m;
        quotas[i] = (k / m + 1).min(room[i]);
    }
    let mut left = k.min(n) - quotas.iter().sum::<usize>();
    for turn in 0..m {
        let i = (first + turn) % m;
        let add = left.min(room[i] - quotas[i]);
        quotas[i] += add;
        left -= add;
    }
    quotas
}

/// The `k` largest magnitudes, ties to the lower index, zeros never.
pub fn top(entries: impl Iterator<Item = (usize, i64)>, k: usize) -> BTreeSet<usize> {
    let mut sorted: Vec<(usize, i64)> = entries.filter(|(_, v)| *v != 0).collect();
    sorted.sort_by_key(|&(i, v)| (-v.abs(), i));
    sorted.into_iter().take(k).map(|(i, _)| i).collect()
}

struct World<'a> {
    step: Step<'a>,
    workers: usize,
    size: usize,
    blocks: Vec<(usize, usize)>,
    quotas: Vec<usize>,
    work: Vec<Vec<i64>>,
    sent: Vec<BTreeSet<usize>>,
}

/// One step on `inputs` (gradient plus residual of every worker).
pub fn spardl(inputs: &[Vec<i64>], step: Step<'_>) -> Result {
    let (workers, n) = (inputs.len(), inputs[0].len());
    let size = workers / step.teams;
    let mut world = World {
        step,
        workers,
        size,
        blocks: blocks(n, size),
        quotas: quotas(step.k, size, n, step.step % size),
        work: inputs.to_vec(),
        sent: vec![BTreeSet::new(); workers],
    };
    world.scatter();
    let own = world.own();
    let own = match (step.teams, step.mode) {
        (1, _) => own,
        (_, Teams::R) => world.double(own),
        (_, Teams::B) => world.gather_columns(&own),
    };
    world.finish(inputs, &own)
}

impl World<'_> {
    fn take(&mut self, worker: usize, block: usize, quota: usize) -> List {
        let (lo, hi) = self.blocks[block];
        let work = &mut self.work[worker];
        let taken = top((lo..hi).map(|j| (j, work[j])), quota);
        self.sent[worker].extend(&taken);
        let list = taken.iter().map(|&j| (j, work[j])).collect();
        for j in taken {
            work[j] = 0;
        }
        list
    }

    /// Spar-Reduce-Scatter in every team: gaps halve, the first round carries what exceeds a power of two.
    fn scatter(&mut self) {
        let mut gap = self.size.next_power_of_two() / 2;
        let mut first = true;
        while gap > 0 {
            let count = if first { self.size - gap } else { gap };
            let mut mail = Vec::new();
            for w in 0..self.workers {
                let (team, position) = (w / self.size, w % self.size);
                let to = team * self.size + (position + gap) % self.size;
                for i in 0..count {
                    let block = (position + gap + i) % self.size;
                    mail.push((to, self.take(w, block, self.quotas[block])));
                }
            }
            for (to, list) in mail {
                for (j, v) in list {
                    self.work[to][j] += v;
                }
            }
            (gap, first) = (gap / 2, false);
        }
    }

    /// Every worker's selection of its own block.
    fn own(&mut self) -> Vec<List> {
        let workers = 0..self.workers;
        let take = |w: usize| {
            let block = w % self.size;
            let (q, d) = (self.quotas[block], self.step.teams);
            let (lo, hi) = self.blocks[block];
            let adapts = d > 1 && self.step.mode == Teams::B && q < hi - lo;
            let least = q.div_ceil(d);
            let quota = if adapts {
                self.step.lengths[w].clamp(least, q)
            } else {
                q
            };
            self.take(w, block, quota)
        };
        workers.map(take).collect()
    }

    fn double(&mut self, mut own: Vec<List>) -> Vec<List> {
        let (workers, size, mut gap) = (self.workers, self.size, 1);
        while gap < self.step.teams {
            let partner = |w: usize| ((w / size) ^ gap) * size + w % size;
            let merge = |w: usize| self.merge(w, &[&own[w], &own[partner(w)]], 2 * gap, true);
            own = (0..workers).map(merge).collect();
            gap *= 2;
        }
        own
    }

    fn gather_columns(&mut self, own: &[List]) -> Vec<List> {
        let (workers, teams) = (0..self.workers, self.step.teams);
        let merge = |w: usize| {
            let column: Vec<&List> = (0..teams)
                .map(|t| &own[t * self.size + w % self.size])
                .collect();
            // Rule A restores what a column discards from the inputs.
            self.merge(w, &column, teams, self.step.rule == Rule::B)
        };
        workers.map(merge).collect()
    }

    /// Keeps the quota of the sum; what `group` teams discard goes whole to one of them.
    fn merge(&mut self, w: usize, lists: &[&List], group: usize, collects: bool) -> List {
        let mut sum = List::new();
        for (&j, v) in lists.iter().copied().flatten() {
            *sum.entry(j).or_insert(0) += v;
        }
        let quota = self.quotas[w % self.size];
        let keep = top(sum.iter().map(|(&j, &v)| (j, v)), quota);
        if collects && w / self.size % group == self.step.step % group {
            for (&j, v) in sum.iter().filter(|(j, _)| !keep.contains(j)) {
                self.work[w][j] += v;
            }
        }
        sum.retain(|j, _| keep.contains(j));
        sum
    }

    fn finish(self, inputs: &[Vec<i64>], own: &[List]) -> Result {
        let n = inputs[0].len();
        let (mut updates, mut residuals) = (Vec::new(), Vec::new());
        for (w, input) in inputs.iter().enumerate() {
            let team = w / self.size * self.size;
            let lists = &own[team..team + self.size];
            let update: List = lists.iter().flatten().map(|(&j, &v)| (j, v)).collect();
            let residual = |j: usize| {
                let (is_final, sent) = (update.contains_key(&j), self.sent[w].contains(&j));
                match self.step.rule {
                    Rule::None => 0,
                    Rule::Local if sent => 0,
                    Rule::NoInProcedure if sent && is_final => 0,
                    Rule::B => self.work[w][j],
                    Rule::A if is_final => self.work[w][j],
                    _ => input[j],
                }
            };
            residuals.push((0..n).map(residual).collect());
            updates.push(
                (0..n)
                    .map(|j| update.get(&j).copied().unwrap_or(0))
                    .collect(),
            );
        }
        (updates, residuals)
    }
}
