//! Cyclic-k: the next k elements in turn, the same on all workers, summed. An example of how a method is added.
//!
//! Paper: none; the round-robin order of coordinate descent.
//!
//! The idea: step t delivers the k elements from position t k on, around the bucket. All workers know them without a message;
//! every worker contributes its own values there to a dense all-reduce and clears them in its residual (rule M, "shared mask").
//!
//! Example, 5 workers, n = 3, k = 1, step 1, inputs (0 3 1), (0 2 1), (4 0 1), (0 2 0), (1 0 5): it is the turn of index 1, the
//! update is {1:7} and every worker keeps the rest: (0 0 1), (0 0 1), (4 0 1), (0 0 0), (1 0 5).
//!
//! Rounds: 2 ceil(log2 P). Bytes: 2 k (P - 1)/P values per worker; no index ever travels.
//!
//! Limitations: large and small elements wait equally long, n/k steps.

use spardl_core::{
    Algorithm, ConfigError, Cost, Feedback, Input, Laws, Layout, Machine, MethodStats,
    ProtocolError, Received, Round, Support, ValueType, World,
};

use crate::mask::{self, Agree, AgreeCost, Masked};
use crate::registry::Entry;
use crate::usual::Length;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "cyclic-k",
    summary: "the next k elements in turn, summed over all workers",
    options: &[],
    source: include_str!("cyclic_k.rs"),
    variants: |_| Vec::new(),
    build: |options| {
        Ok(Box::new(CyclicK {
            values: options.codec.values,
        }))
    },
};

/// All-reduce of the next k elements in turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CyclicK {
    /// How values travel.
    values: ValueType,
}

impl Algorithm for CyclicK {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn describe(&self) -> String {
        format!("cyclic-k values={}", self.values)
    }

    fn value_type(&self) -> ValueType {
        self.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let masked = Masked::new(world, layout.len(), self.values, Turn::default());
        Ok(Box::new(masked))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        let nothing = AgreeCost {
            rounds: 0..=0,
            body_bytes: 0,
        };
        let most = k.min(layout.len() as usize);
        mask::cost(Length::Most, nothing, workers, most, self.values)
    }

    fn laws(&self) -> Laws {
        Laws {
            support: Support::K,
            ..Laws::default()
        }
    }
}

/// Agreement without a message: everybody knows whose turn it is.
#[derive(Debug, Default)]
struct Turn {
    indices: Vec<u32>,
}

impl Agree for Turn {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        feedback.load(input.gradient);
        let len = feedback.len() as u64;
        let k = (input.k as u64).min(len);
        let first = if len == 0 { 0 } else { (input.step % len) * k % len };
        let mut indices: Vec<u32> = (first..first + k).map(|i| (i % len) as u32).collect();
        indices.sort_unstable();
        self.indices = indices;
    }

    fn round(&mut self, _: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        Ok(None)
    }

    fn absorb(&mut self, _: Received<'_>) -> Result<(), ProtocolError> {
        Ok(())
    }

    fn agreed(&mut self) -> Result<Vec<u32>, ProtocolError> {
        Ok(self.indices.clone())
    }

    fn stats(&self) -> MethodStats {
        MethodStats {
            selected: self.indices.len() as u64,
            ..MethodStats::default()
        }
    }
}
