//! Dense all-reduce around a ring, the bandwidth-optimal classic.
//!
//! Paper: Patarasuk and Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations", 2009.
//!
//! The idea: cut the gradient into P blocks; in each of P - 1 hops every worker hands one block to the next worker, which adds
//! it to its own; then P - 1 more hops hand the finished blocks round.
//!
//! Example, 5 workers, worker 0: sends blocks 0, 4, 3, 2 to worker 1 and adds 4, 3, 2, 1 from worker 4. It now owns the sum of
//! block 1, sends 1, 0, 4, 3 and stores 0, 4, 3, 2.
//!
//! Rounds: 2 (P - 1). Bytes: 2 n (P - 1) / P elements per worker.
//!
//! Limitations: latency grows with P. With bf16 values the rounding of partial sums is not kept. With few bits it is, in a residual,
//! and a partial sum is quantised in each of P - 1 hops (see `dense`, where it is in ceil(log2 P)).

use spardl_core::codec::{add_values, decode_values, encode_values};
use spardl_core::schedule::{RingHop, ring};
use spardl_core::{
    Algorithm, ConfigError, Cost, Estimate, Feedback, HEADER_LEN, Input, Laws, Layout, Machine,
    MethodStats, Partition, Payload, ProtocolError, Received, Round, Update, ValueType, World,
};

use crate::dense::{Dense, Sums};
use crate::registry::Entry;
use crate::usual::Length;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "dense-ring",
    summary: "the whole gradient around a ring, 2 (P - 1) rounds",
    options: &[],
    source: include_str!("dense_ring.rs"),
    variants: |_| Vec::new(),
    build: |options| {
        Ok(Box::new(DenseRing {
            values: options.codec.values,
        }))
    },
};

/// Dense all-reduce around a ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenseRing {
    /// How values travel.
    pub values: ValueType,
}

impl DenseRing {
    /// What a step costs with runs of this length.
    fn cost_of(&self, length: Length, workers: u32, layout: &Layout) -> Cost {
        let len = layout.len();
        let size = workers as usize;
        let blocks = Partition::even(len, size);
        let run = |block| length.run(self.values, blocks.block_len(block) as usize) as u64;
        // A worker sends every block twice, but for those that it would get back: the next one, then the one after that.
        let all = 2 * (0..size).map(run).sum::<u64>();
        let sent = |p| all - run((p + 1) % size) - run((p + 2) % size);
        let bytes = (0..size).map(sent).max().unwrap_or(0);
        let rounds = 2 * (workers - 1);
        let headers = u64::from(rounds) * HEADER_LEN as u64;
        Cost {
            rounds: rounds..=rounds,
            messages: u64::from(rounds),
            bytes_max: bytes + headers,
        }
    }
}

impl Algorithm for DenseRing {
    fn name(&self) -> &'static str {
        "dense-ring"
    }

    fn describe(&self) -> String {
        format!("dense-ring values={}", self.values)
    }

    fn value_type(&self) -> ValueType {
        self.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let (position, size) = (world.rank().index(), world.size() as usize);
        Ok(Box::new(Worker {
            world,
            values: self.values,
            sums: Sums::new(self.values, layout.len()),
            blocks: Partition::even(layout.len(), size),
            hops: ring(position, size).collect(),
            done: 0,
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Cost {
        self.cost_of(Length::Most, workers, layout)
    }

    fn estimate(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Estimate {
        self.cost_of(Length::Usual, workers, layout).into()
    }

    fn laws(&self) -> Laws {
        Dense {
            values: self.values,
        }
        .laws()
    }
}

#[derive(Debug)]
struct Worker {
    world: World,
    values: ValueType,
    sums: Sums,
    blocks: Partition,
    hops: Vec<RingHop>,
    done: usize,
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        self.sums.load(feedback, input.gradient);
        self.done = 0;
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        if self.hops.is_empty() {
            // Alone; with others no block has fewer than two hops.
            self.sums.leave(feedback, 0..self.sums.len() as usize);
        }
        let Some(&hop) = self.hops.get(self.done) else {
            return Ok(None);
        };
        let complete = self.done == self.hops.len() / 2;
        if hop.reduce || complete {
            self.sums.leave(feedback, self.blocks.range(hop.sent));
        }
        let data = self.sums.array(feedback);
        let bytes = |block| {
            self.values
                .encoded_len(self.blocks.block_len(block) as usize)
        };
        let mut payload = Payload::with_capacity(bytes(hop.sent));
        let sent = &mut data[self.blocks.range(hop.sent)];
        encode_values(self.values, sent, payload.body_mut());
        if complete {
            // The own block is complete: keep it as the others will see it.
            self.values.round(sent);
        }
        let (everyone, position) = (self.world.everyone(), self.world.rank().index());
        let before = position + everyone.size() - 1;
        Ok(Some(
            Round::new()
                .send(everyone.rank(position + 1), payload)
                .expect(everyone.rank(before), bytes(hop.received)),
        ))
    }

    fn absorb(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
    ) -> Result<(), ProtocolError> {
        let hop = self.hops[self.done];
        let block = &mut self.sums.array(feedback)[self.blocks.range(hop.received)];
        received.read(0, |reader| {
            if hop.reduce {
                add_values(self.values, reader, block)
            } else {
                decode_values(self.values, reader, block)
            }
        })?;
        self.done += 1;
        Ok(())
    }

    fn update<'a>(&'a self, feedback: &'a Feedback) -> Update<'a> {
        self.sums.update(feedback)
    }

    fn stats(&self) -> MethodStats {
        let sent = |hop: &RingHop| u64::from(self.blocks.block_len(hop.sent));
        MethodStats {
            entries_sent: self.hops.iter().map(sent).sum(),
            ..MethodStats::default()
        }
    }
}
