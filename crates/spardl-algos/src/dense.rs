//! Dense all-reduce for any number of workers, the yardstick of every sparse method.
//!
//! Paper: none; the schedules are those of SparDL and of Bruck et al., "Efficient Algorithms for All-to-All Communications in
//! Multiport Message-Passing Systems", 1997.
//!
//! The idea: cut the gradient into P blocks, reduce-scatter them with SparDL's schedule (gaps halve; the first round carries
//! what exceeds a power of two), then gather them with Bruck's. Nothing is selected and no residual is kept.
//!
//! Example, 5 workers (gaps 4, 2, 1), worker 0: block {4} -> 4 while {0} <- 1; {2,3} -> 2 while {0,1} <- 3; {1} -> 1 while
//! {0} <- 4. It now owns the sum of block 0 and gathers: {0} -> 4, {0,1} -> 3, {0} -> 1.
//!
//! Rounds: 2 ceil(log2 P). Bytes: 2 n (P - 1) / P elements per worker, for every P.
//!
//! Limitations: with bf16 values partial sums are rounded at every hop and the errors are not kept, so `dense-bf16` does not
//! conserve; all workers still end with the same bits.

use spardl_core::phase::{AllReduce, all_reduce_bytes, all_reduce_elements};
use spardl_core::{
    Algorithm, ConfigError, Cost, Feedback, HEADER_LEN, Input, Laws, Layout, Machine, MethodStats,
    ProtocolError, Received, Round, Update, ValueType, World, schedule,
};

use crate::registry::Entry;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "dense",
    summary: "the whole gradient, any number of workers in 2 ceil(log2 P) rounds",
    options: &[],
    source: include_str!("dense.rs"),
    variants: |_| Vec::new(),
    build: |options| {
        Ok(Box::new(Dense {
            values: options.codec.values,
        }))
    },
};

/// Dense all-reduce over the reduce-scatter and all-gather schedules that work for any P.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dense {
    /// How values travel.
    pub values: ValueType,
}

impl Algorithm for Dense {
    fn name(&self) -> &'static str {
        "dense"
    }

    fn describe(&self) -> String {
        format!("dense values={}", self.values)
    }

    fn value_type(&self) -> ValueType {
        self.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let reduce = AllReduce::new(world.everyone(), layout.len(), self.values);
        Ok(Box::new(Worker {
            world,
            len: layout.len(),
            values: self.values,
            reduce,
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Cost {
        let len = layout.len();
        let size = workers as usize;
        let rounds = 2 * schedule::ceil_log2(size);
        let sent = all_reduce_bytes(size, len, |count| self.values.encoded_len(count));
        let bytes = (0..size).map(sent);
        Cost {
            rounds: rounds..=rounds,
            messages: u64::from(rounds),
            bytes_max: bytes.max().unwrap_or(0) + u64::from(rounds) * HEADER_LEN as u64,
        }
    }

    fn laws(&self) -> Laws {
        laws(self.values)
    }
}

/// What every dense method promises.
pub(crate) fn laws(values: ValueType) -> Laws {
    Laws {
        conserves: values.is_exact(),
        keeps_residual: false,
        ..Laws::default()
    }
}

#[derive(Debug)]
struct Worker {
    world: World,
    len: u32,
    values: ValueType,
    reduce: AllReduce,
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        feedback.load(input.gradient);
        self.reduce = AllReduce::new(self.world.everyone(), self.len, self.values);
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        Ok(self.reduce.round(feedback.work_mut()))
    }

    fn absorb(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
    ) -> Result<(), ProtocolError> {
        self.reduce.absorb(feedback.work_mut(), received)
    }

    fn update<'a>(&'a self, feedback: &'a Feedback) -> Update<'a> {
        Update::Dense(feedback.work())
    }

    fn stats(&self) -> MethodStats {
        let (position, size) = (self.world.rank().index(), self.world.size() as usize);
        MethodStats {
            entries_sent: all_reduce_elements(position, size, self.len),
            ..MethodStats::default()
        }
    }
}
