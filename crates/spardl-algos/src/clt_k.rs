//! CLT-k: the top-k indices of one worker, a different one in each step.
//!
//! Paper: "ScaleCom: Scalable Sparsified Gradient Compression for Communication-Efficient Distributed Training" (cyclic local
//! top-k).
//!
//! The idea: in step t worker t mod P, the *leader*, selects its k largest entries and broadcasts their indices. Every worker
//! contributes its own values there to a dense all-reduce and clears them in its residual (rule M, "shared mask"). The
//! update has k complete sums, however many workers there are.
//!
//! Example, 5 workers, k = 1, step 2, inputs (0 3 1), (0 2 1), (4 0 1), (0 2 0), (1 0 5): the leader is worker 2, its largest
//! entry is at 0. The update is {0: 0+0+4+0+1 = 5}; worker 2 keeps (0 0 1) and worker 4 keeps (0 0 5). In the next step
//! worker 3 leads.
//!
//! Rounds: 3 ceil(log2 P).
//! Bytes: k indices from the leader to up to ceil(log2 P) workers, and 2 k (P - 1)/P values.
//!
//! Limitations: large values of the other P - 1 workers are invisible in a step; they wait for their worker's turn.
//!
//! Differs from the authors' code: only the leader looks for its top-k; indices are packed; fewer than k when the leader has
//! fewer non-zeros, and k >= n delivers everything. ScaleCom also filters the residual (a low-pass); this method, as the version
//! that ExDyna is compared with, does not.

use spardl_core::phase::Broadcast;
use spardl_core::schedule::ceil_log2;
use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Entries, Feedback, Gradient, Input, Laws, Layout, Machine,
    MethodStats, Partition, ProtocolError, Received, Round, Selector, Support, ValueType, World,
};

use crate::mask::{Agree, AgreeCost, Masked, cost, raw_indices_bound};
use crate::registry::Entry;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "clt-k",
    summary: "CLT-k: the top-k indices of one worker, a different one in each step; complete sums",
    options: &[],
    source: include_str!("clt_k.rs"),
    variants: |_| Vec::new(),
    build: |options| {
        Ok(Box::new(CltK {
            codec: options.codec,
        }))
    },
};

/// All-reduce at the top-k indices of a rotating leader.
#[derive(Clone, Copy, Debug, Default)]
pub struct CltK {
    /// How indices and values travel.
    pub codec: Codec,
}

impl Algorithm for CltK {
    fn name(&self) -> &'static str {
        "clt-k"
    }

    fn describe(&self) -> String {
        format!("clt-k values={}", self.codec)
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let follow = Follow {
            world,
            codec: self.codec,
            selector: Selector::new(Partition::even(layout.len(), 1)),
            k: 0,
            leader: 0,
            broadcast: None,
            stats: MethodStats::default(),
        };
        let values = self.codec.values;
        Ok(Box::new(Masked::new(world, layout.len(), values, follow)))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        let len = layout.len();
        let size = workers as usize;
        let most = k.min(len as usize);
        let agree = AgreeCost {
            rounds: ceil_log2(size)..=ceil_log2(size),
            body_bytes: Broadcast::body_bytes(size, raw_indices_bound(len, most)),
        };
        cost(agree, workers, most, self.codec.values)
    }

    fn laws(&self) -> Laws {
        Laws {
            support: Support::K,
            pairs: false,
            ..Laws::default()
        }
    }
}

/// Agreement by broadcast: the leader's indices.
#[derive(Debug)]
struct Follow {
    world: World,
    codec: Codec,
    selector: Selector,
    k: usize,
    leader: usize,
    broadcast: Option<Broadcast>,
    stats: MethodStats,
}

impl Follow {
    fn len(&self) -> u32 {
        self.selector.partition().len()
    }

    /// Everything is asked for: there is nothing to choose.
    fn is_full(&self) -> bool {
        self.k >= self.len() as usize
    }

    /// The leader's indices.
    fn lead(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>) -> Vec<u32> {
        let mut top = Entries::default();
        self.selector.pass(feedback, gradient, &[self.k]);
        self.selector
            .take_top(0, feedback.work(), self.k, ValueType::F32, &mut top);
        self.stats = self.selector.stats();
        top.indices
    }
}

impl Agree for Follow {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        let len = self.len();
        self.k = input.k.min(len as usize);
        self.leader = (input.step % u64::from(self.world.size())) as usize;
        self.stats = MethodStats::default();
        let leads = self.leader == self.world.rank().index();
        let indices = if leads && !self.is_full() {
            self.lead(feedback, input.gradient)
        } else {
            feedback.load(input.gradient);
            Vec::new()
        };
        let mut item = Vec::new();
        self.codec.encode_indices(0, len, &indices, &mut item);
        let bound = self.codec.indices_bound(len, self.k);
        let broadcast = Broadcast::new(self.world.everyone(), self.leader, item, bound);
        self.broadcast = Some(broadcast);
    }

    fn round(&mut self, _: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        Ok(self.broadcast.as_ref().and_then(Broadcast::round))
    }

    fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        let broadcast = self.broadcast.as_mut().expect("a step is under way");
        broadcast.absorb(received)
    }

    fn agreed(&mut self) -> Result<Vec<u32>, ProtocolError> {
        let broadcast = self.broadcast.take().expect("a step is under way");
        let (items, len) = (broadcast.into_items(), self.len());
        let mut indices = Vec::new();
        items.read(self.leader, |reader| {
            self.codec
                .decode_indices(reader, 0, len, self.k, &mut indices)
        })?;
        if self.is_full() {
            indices = (0..len).collect();
        }
        Ok(indices)
    }

    fn stats(&self) -> MethodStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spardl_sim::Cluster;
    use spardl_testkit::generate;

    #[test]
    fn every_worker_leads_in_turn_and_the_sums_are_complete() {
        let (workers, len, k) = (5u32, 60usize, 6);
        for step in 0..10 {
            let layout = Layout::flat(len as u32);
            let mut cluster = Cluster::new(&CltK::default(), workers, &layout).unwrap();
            let gradients = generate::integers(step, workers, len);
            cluster.step(&gradients, k, step).unwrap();
            let leader = &gradients[(step % 5) as usize];
            let mut order: Vec<usize> = (0..len).collect();
            order.sort_by(|&a, &b| leader[b].abs().total_cmp(&leader[a].abs()));
            let mut expected = vec![0.0; len];
            for &index in &order[..k] {
                expected[index] = gradients.iter().map(|gradient| gradient[index]).sum();
            }
            let mut update = vec![0.0; len];
            cluster.workers()[0].update().write_scaled(1.0, &mut update);
            assert_eq!(update, expected, "step {step}");
        }
    }
}
