//! Oracle-k: the true k largest entries of the sum over all workers. For experiments only: it costs as much as dense.
//!
//! Paper: none. Sparse methods select before they know the sum; this one looks at it first. It shows what selection can reach at
//! most at a given k, so that what a method loses to selecting blindly can be told from what it loses to sparsity.
//!
//! The idea: sum everything as `dense` does, take the k largest entries of the sum, clear them in every worker's residual (rule
//! M, "shared mask") and keep all else as it was.
//!
//! Words: the *oracle* is whoever knows the sum before choosing; here everybody is.
//!
//! Example, 5 workers, k = 1, inputs (0 3 1), (0 2 1), (4 0 1), (0 2 0), (1 0 5): the sum is (5 7 8), its largest entry is at 2.
//! The update is {2:8}; the workers keep (0 3 0), (0 2 0), (4 0 0), (0 2 0), (1 0 0). No worker but the last would have
//! chosen index 2.
//!
//! Rounds: 2 ceil(log2 P). Bytes: 2 n (P - 1)/P elements per worker, as `dense`, whatever k is.
//!
//! Limitations: it saves no byte, and a worker holds 3 n words, 4 n with values that are rounded. Entries that cancel exactly
//! stay in the residuals until they do not, unless k >= n.
//!
//! Differs from other code: with bf16 values or few bits the sum that is looked at is the rounded one; the worker that rounds a value
//! keeps the error where the entry is delivered.

use spardl_core::phase::{KeepingReduce, all_reduce_elements};
use spardl_core::{
    Algorithm, ConfigError, Cost, Entries, Estimate, Feedback, Input, Laws, Layout, Machine,
    MethodStats, ProtocolError, Received, Round, SparseVec, Support, Update, ValueType, World,
    list,
};
use spardl_kernels::Level;

use crate::dense;
use crate::registry::Entry;
use crate::usual::Length;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "oracle-k",
    summary: "the k largest entries of the true sum, at dense cost: for experiments only",
    options: &[],
    source: include_str!("oracle_k.rs"),
    variants: |_| Vec::new(),
    build: |options| {
        Ok(Box::new(OracleK {
            values: options.codec.values,
        }))
    },
};

/// The top-k of the sum, found by summing everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct OracleK {
    /// How values travel.
    pub values: ValueType,
}

impl Algorithm for OracleK {
    fn name(&self) -> &'static str {
        "oracle-k"
    }

    fn describe(&self) -> String {
        format!("oracle-k values={}", self.values)
    }

    fn value_type(&self) -> ValueType {
        self.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        Ok(Box::new(Worker {
            world,
            values: self.values,
            k: 0,
            reduce: None,
            update: SparseVec::new(layout.len()),
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Cost {
        dense::cost(Length::Most, self.values, workers, layout.len())
    }

    fn estimate(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Estimate {
        dense::cost(Length::Usual, self.values, workers, layout.len()).into()
    }

    fn laws(&self) -> Laws {
        Laws {
            support: Support::K,
            ..Laws::default()
        }
    }
}

#[derive(Debug)]
struct Worker {
    world: World,
    values: ValueType,
    k: usize,
    reduce: Option<KeepingReduce>,
    update: SparseVec,
}

impl Worker {
    /// The k largest sums become the update; only there does `work` change.
    fn finish(&mut self, work: &mut [f32], sums: &[f32], errors: &[f32]) {
        let indices = top(sums, self.k);
        let (mut values, mut rests) = (Vec::new(), vec![0.0; indices.len()]);
        for (&index, rest) in indices.iter().zip(&mut rests) {
            values.push(sums[index as usize]);
            *rest = errors.get(index as usize).copied().unwrap_or(0.0);
        }
        spardl_kernels::scatter(Level::best(), work, &indices, &rests);
        self.update = list::into_update(Entries { indices, values }, work.len() as u32);
    }
}

/// The indices of the `k` largest, ascending; all of them when there are no more than `k`.
fn top(sums: &[f32], k: usize) -> Vec<u32> {
    if k >= sums.len() {
        return (0..sums.len() as u32).collect();
    }
    let mut known = Entries::default();
    spardl_kernels::extract(Level::best(), sums, 0, 0.0, &mut known);
    list::split_top(&known, k, ValueType::F32).0.indices
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        feedback.load(input.gradient);
        self.k = input.k;
        let (everyone, own) = (self.world.everyone(), feedback.work().to_vec());
        self.reduce = Some(KeepingReduce::new(everyone, own, self.values));
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        let round = self.reduce.as_mut().and_then(KeepingReduce::round);
        if let Some(reduce) = self.reduce.take_if(|_| round.is_none()) {
            let (sums, errors) = reduce.finish();
            self.finish(feedback.work_mut(), &sums, &errors);
        }
        Ok(round)
    }

    fn absorb(&mut self, _: &mut Feedback, received: Received<'_>) -> Result<(), ProtocolError> {
        let reduce = self.reduce.as_mut().expect("a step is under way");
        reduce.absorb(received)
    }

    fn update<'a>(&'a self, _: &'a Feedback) -> Update<'a> {
        Update::Sparse(&self.update)
    }

    fn stats(&self) -> MethodStats {
        let (position, size) = (self.world.rank().index(), self.world.size() as usize);
        MethodStats {
            entries_sent: all_reduce_elements(position, size, self.update.len()),
            ..MethodStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use spardl_sim::Cluster;
    use spardl_testkit::{check, generate};

    use super::*;

    #[test]
    fn the_example_of_the_header_holds() {
        let gradients = [
            [0.0, 3.0, 1.0],
            [0.0, 2.0, 1.0],
            [4.0, 0.0, 1.0],
            [0.0, 2.0, 0.0],
            [1.0, 0.0, 5.0],
        ];
        let mut cluster = Cluster::new(&OracleK::default(), 5, &Layout::flat(3)).unwrap();
        cluster.step(&gradients, 1, 0).unwrap();
        assert_eq!(
            check::agreed(cluster.workers(), "oracle-k"),
            [0.0, 0.0, 8.0]
        );
        cluster.commit().unwrap();
        for (worker, gradient) in cluster.workers().iter().zip(&gradients) {
            assert_eq!(worker.residual(), [gradient[0], gradient[1], 0.0]);
        }
    }

    #[test]
    fn the_update_is_the_top_k_of_the_sum_of_all_inputs() {
        let (workers, len, k) = (6u32, 200usize, 17);
        let mut cluster =
            Cluster::new(&OracleK::default(), workers, &Layout::flat(len as u32)).unwrap();
        for step in 0..4 {
            let gradients = generate::integers(step + 5, workers, len);
            let inputs = check::inputs(cluster.workers(), &gradients);
            cluster.step(&gradients, k, step).unwrap();
            let update = check::agreed(cluster.workers(), "oracle-k");
            let mut order: Vec<usize> = (0..len).collect();
            order.sort_by_key(|&i| (-inputs[i].abs(), i));
            let mut expected = vec![0.0; len];
            order[..k]
                .iter()
                .for_each(|&i| expected[i] = inputs[i] as f32);
            assert_eq!(update, expected, "step {step}");
            cluster.commit().unwrap();
        }
    }
}
