//! TopkA2: TopkA with a second selection, so that the update has at most k entries.
//!
//! Paper: none of its own; a program of Ok-Topk's repository.
//!
//! The idea: as in TopkA every worker's k largest entries go to everybody and are added in rank order; then all select the k
//! largest of the sum, each for itself and with the same result. A worker clears what it sent only where the index became
//! final (rule I); what was sent in vain returns to its residual.
//!
//! Example, 5 workers, k = 1, inputs (0 3 1), (0 2 1), (4 0 1), (0 2 0), (1 0 5): the lists are {1:3}, {1:2}, {0:4}, {1:2},
//! {2:5}; the sum is (4 7 5) and the update {1:7}. Worker 2 takes back its 4, worker 4 keeps (1 0 5) as it was.
//!
//! Rounds: ceil(log2 P). Bytes: k (P - 1) entries per worker.
//!
//! Limitations: a worker receives k (P - 1) entries to deliver k of them. Values that cancel exactly in the sum are not final, so
//! their owners keep them and may send them again at every step.
//!
//! Differs from the authors' code: as TopkA; rounding errors of bf16 values stay with the worker that sent them. The sum itself
//! is not rounded: everybody computes it from the same lists.

use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Estimate, Laws, Layout, Machine, Support, ValueType, World,
};

use crate::list_gather::{self, Deliver, Select, Worker};
use crate::registry::Entry;
use crate::topk_a::TopK;
use crate::usual::Length;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "topk-a2",
    summary: "topk-a, then the k largest of the sum",
    options: &[],
    source: include_str!("topk_a2.rs"),
    variants: |_| Vec::new(),
    build: |options| {
        Ok(Box::new(TopkA2 {
            codec: options.codec,
        }))
    },
};

/// All-gather of every worker's top-k, and the top-k of the sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct TopkA2 {
    /// How entries travel.
    pub codec: Codec,
}

impl Algorithm for TopkA2 {
    fn name(&self) -> &'static str {
        "topk-a2"
    }

    fn describe(&self) -> String {
        format!("topk-a2 values={}", self.codec)
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let worker = Worker::new(world, layout.len(), self.codec, Deliver::Top, TopK);
        Ok(Box::new(worker))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        let len = layout.len();
        list_gather::cost(Length::Most, self.codec, workers, len, TopK.most(k, len))
    }

    fn estimate(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Estimate {
        let len = layout.len();
        list_gather::cost(Length::Usual, self.codec, workers, len, TopK.most(k, len)).into()
    }

    fn laws(&self) -> Laws {
        Laws {
            support: Support::K,
            ..Laws::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use spardl_sim::Cluster;
    use spardl_testkit::check;

    use super::*;

    #[test]
    fn the_example_of_the_header_comes_out() {
        let inputs = [
            vec![0.0, 3.0, 1.0],
            vec![0.0, 2.0, 1.0],
            vec![4.0, 0.0, 1.0],
            vec![0.0, 2.0, 0.0],
            vec![1.0, 0.0, 5.0],
        ];
        let mut cluster = Cluster::new(&TopkA2::default(), 5, &Layout::flat(3)).unwrap();
        cluster.step(&inputs, 1, 0).unwrap();
        assert_eq!(check::agreed(cluster.workers(), "topk-a2"), [0.0, 7.0, 0.0]);
        cluster.commit().unwrap();
        assert_eq!(cluster.workers()[0].residual(), [0.0, 0.0, 1.0]);
        assert_eq!(cluster.workers()[2].residual(), [4.0, 0.0, 1.0]);
        assert_eq!(cluster.workers()[4].residual(), [1.0, 0.0, 5.0]);
    }
}
