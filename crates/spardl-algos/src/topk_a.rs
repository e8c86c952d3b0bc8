//! TopkA: every worker's top-k, gathered by all and summed.
//!
//! Paper: none of its own; the all-gather baseline of the SparCML, Ok-Topk and SparDL papers.
//!
//! The idea: each worker selects the k largest entries of gradient + residual and sends them to everybody; all add the lists in
//! rank order. What was not selected stays in the residual.
//!
//! Example, 5 workers, k = 1, inputs (0 3 1), (0 2 1), (4 0 1), (0 2 0), (1 0 5): the lists are {1:3}, {1:2}, {0:4}, {1:2},
//! {2:5}; the update is (4 7 5) and worker 4 keeps (1 0 0).
//!
//! Rounds: ceil(log2 P). Bytes: k (P - 1) entries per worker.
//!
//! Limitations: the update has up to k P entries and a worker receives as many; above a density of 1/P the dense method
//! sends less.
//!
//! Differs from the authors' code: one all-gather of whole lists instead of two (values, indices); ties go to the lower index;
//! zeros are never sent; the residual is cut out, not multiplied by a mask.

use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Entries, Estimate, Feedback, Input, Laws, Layout, Machine,
    Selector, Support, ValueType, World,
};

use crate::list_gather::{self, Deliver, Select, Worker};
use crate::registry::Entry;
use crate::usual::Length;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "topk-a",
    summary: "every worker's top-k, gathered by all and summed",
    options: &[],
    source: include_str!("topk_a.rs"),
    variants: |_| Vec::new(),
    build: |options| {
        Ok(Box::new(TopkA {
            codec: options.codec,
        }))
    },
};

/// All-gather of every worker's top-k.
#[derive(Clone, Copy, Debug, Default)]
pub struct TopkA {
    /// How entries travel.
    pub codec: Codec,
}

impl Algorithm for TopkA {
    fn name(&self) -> &'static str {
        "topk-a"
    }

    fn describe(&self) -> String {
        format!("topk-a values={}", self.codec)
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let worker = Worker::new(world, layout.len(), self.codec, Deliver::Whole, TopK);
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
            support: Support::KPerWorker,
            ..Laws::default()
        }
    }
}

/// Each worker's `k` largest entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TopK;

impl Select for TopK {
    fn most(&self, k: usize, len: u32) -> usize {
        k.min(len as usize)
    }

    fn select(
        &mut self,
        selector: &mut Selector,
        feedback: &mut Feedback,
        input: Input<'_>,
        values: ValueType,
    ) -> Entries {
        selector.pass(feedback, input.gradient, &[input.k]);
        let mut own = Entries::default();
        selector.take_top(0, feedback.work(), input.k, values, &mut own);
        own
    }
}
