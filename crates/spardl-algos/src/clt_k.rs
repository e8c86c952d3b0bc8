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
//! Low-pass residual (option low-pass = b below 1, ScaleCom's beta, 0.1 there for large batches): with m the residual, g the gradient
//! and s what of m + g was delivered, a worker keeps m + b (g - s) instead of m + g - s. So an element that waits takes only b of
//! each new gradient, and one that was delivered keeps (1 - b) of what it had and delivers it again: mass is lost and counted
//! twice, which evens out on average only while an element's gradients are alike. Nothing is conserved then. In the example
//! with b = 0.25 and residuals (0 4 0) before worker 0's input (0 3 1): its residual becomes (0 4.75 0.25), not (0 7 1).
//!
//! Limitations: large values of the other P - 1 workers are invisible in a step; they wait for their worker's turn.
//!
//! Differs from the authors' code: only the leader looks for its top-k; indices are packed; fewer than k when the leader has
//! fewer non-zeros, and k >= n delivers everything. The low-pass is off unless asked for, as in the version that ExDyna is
//! compared with.

use spardl_core::phase::Broadcast;
use spardl_core::schedule::ceil_log2;
use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Entries, Estimate, Feedback, Gradient, Input, Laws,
    Layout, Machine, MethodStats, Partition, ProtocolError, Received, Round, Selector, Support,
    ValueType, World,
};

use crate::Options;
use crate::mask::{Agree, AgreeCost, Masked, cost, raw_indices_bound};
use crate::registry::Entry;
use crate::usual::Length;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "clt-k",
    summary: "CLT-k: the top-k indices of one worker, a different one in each step; complete sums",
    options: &[(
        "low-pass",
        "a number above 0 up to 1 (1: off): the part of what is new that enters the residual (ScaleCom: 0.1)",
    )],
    source: include_str!("clt_k.rs"),
    variants: |_| Options::variants(&[&[("low-pass", "0.1")]]),
    build: |options| Ok(Box::new(CltK::from_options(options)?)),
};

/// All-reduce at the top-k indices of a rotating leader.
#[derive(Clone, Copy, Debug)]
pub struct CltK {
    /// How indices and values travel.
    pub codec: Codec,
    /// The part of what is new in a step that enters the residual; 1 keeps all of it.
    pub low_pass: f32,
}

impl Default for CltK {
    fn default() -> Self {
        Self {
            codec: Codec::default(),
            low_pass: 1.0,
        }
    }
}

impl CltK {
    /// CLT-k with the options that concern it.
    ///
    /// # Errors
    /// When `low-pass` is no number above 0 up to 1.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        let expected = "use a number above 0 up to 1";
        let part = |text: &str| {
            let part = text.parse().ok();
            part.filter(|&part: &f32| part > 0.0 && part <= 1.0)
        };
        Ok(Self {
            codec: options.codec,
            low_pass: options.parsed("clt-k", "low-pass", 1.0, expected, part)?,
        })
    }

    fn filters(&self) -> bool {
        self.low_pass < 1.0
    }
}

impl Algorithm for CltK {
    fn name(&self) -> &'static str {
        "clt-k"
    }

    fn describe(&self) -> String {
        if self.filters() {
            format!("clt-k low-pass={} values={}", self.low_pass, self.codec)
        } else {
            format!("clt-k values={}", self.codec)
        }
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let follow = Follow {
            world,
            config: *self,
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
        cost(Length::Most, agree, workers, most, self.codec.values)
    }

    /// The leader's list reaches some workers sooner than others.
    fn estimate(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Estimate {
        let (len, size) = (layout.len(), workers as usize);
        let most = k.min(len as usize);
        let agree = AgreeCost::broadcast(size, self.codec.usual_indices_len(len, most));
        cost(Length::Usual, agree, workers, most, self.codec.values).into()
    }

    fn laws(&self) -> Laws {
        Laws {
            conserves: !self.filters(),
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
    config: CltK,
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
        let codec = self.config.codec;
        codec.encode_indices(0, len, &indices, &mut item);
        let bound = codec.indices_bound(len, self.k);
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
            let codec = self.config.codec;
            codec.decode_indices(reader, 0, len, self.k, &mut indices)
        })?;
        if self.is_full() {
            indices = (0..len).collect();
        }
        Ok(indices)
    }

    fn delivered(&mut self, feedback: &mut Feedback) {
        if self.config.filters() {
            feedback.low_pass(self.config.low_pass);
        }
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

    #[test]
    fn the_low_pass_of_the_header_holds_and_the_law_it_breaks_is_not_declared() {
        let filtered = CltK {
            low_pass: 0.25,
            ..CltK::default()
        };
        assert!(CltK::default().laws().conserves && !filtered.laws().conserves);
        let mut gradients = vec![vec![0.0; 3]; 5];
        gradients[0] = vec![0.0, 3.0, 1.0];
        gradients[2] = vec![4.0, 0.0, 1.0];
        for (algorithm, expected) in [
            (filtered, [0.0, 4.75, 0.25]),
            (CltK::default(), [0.0, 7.0, 1.0]),
        ] {
            let mut cluster = Cluster::new(&algorithm, 5, &Layout::flat(3)).unwrap();
            cluster.workers_mut()[0].write_residual(1, &[4.0]).unwrap();
            cluster.workers_mut()[2].write_residual(0, &[8.0]).unwrap();
            cluster.step(&gradients, 1, 2).unwrap();
            cluster.commit().unwrap();
            assert_eq!(cluster.workers()[0].residual(), expected);
            // What was delivered whole is kept in part and will be delivered again.
            let again = cluster.workers()[2].residual()[0];
            assert_eq!(again, 8.0 * (1.0 - algorithm.low_pass));
        }
    }
}
