//! DEFT: each worker searches some layers, with quotas by gradient norm.
//!
//! Paper: "DEFT: Exploiting Gradient Norm Difference between Model Layers for Scalable Gradient Sparsification".
//!
//! The idea: layers with a large gradient norm get a large share of k. Each step one worker, t mod P, spreads the layers over
//! as many bins as workers, so that searching each takes about the same time, and broadcasts which layer is in which bin.
//! Each worker then takes the top entries of the layers in its bin only; the lists cannot overlap, and at their union
//! every worker contributes its own values to a dense all-reduce (rule M, "shared mask").
//!
//! Words: *part* = a layer, or one of P pieces of a layer longer than n/P; *quota* = how many entries a worker would take of a
//! part, from its own norms; *bin* = the parts of one worker in this step; *common* parts are taken whole by everybody.
//!
//! Example, 5 workers, 5 layers of 2 elements, k = 4, norms 4 3 2 1 0 at the allocating worker (no layer is longer than 10/5):
//! the first layer's share of k is 4/10 of 4, quota 1; the second's of the 3 left 3/6, quota 1; then 2/3 of 2 and 1/1 of 1,
//! again 1 each; the last gets one too, though its share is nothing. Each layer costs the same, so each bin gets one. In step
//! 2 worker w takes bin (2 + w) mod 5: worker 0 lists the larger entry of layer 2, and so on; five indices for k = 4. A layer
//! of a single element would be common.
//!
//! Rounds: 4 ceil(log2 P).
//! Bytes: the number of a bin for each part to up to ceil(log2 P) workers, (P - 1) lists of indices, and 2 K (P - 1)/P values.
//!
//! Limitations: the number of entries is only near k, because quotas come from different workers' norms and every part gets at
//! least one; a worker takes at most 2k and the common parts have at most 2k. Norms cost a second look at the whole
//! gradient. Without layers (one tensor) it is a top-k per worker in fixed pieces.
//!
//! Differs from the authors' code: one broadcast instead of two and lists without padding; remaining norms are summed from the
//! smallest up, so the last part gets exactly the rest; the two limits above; more than 4,096 tensors in a bucket are grouped to
//! that many layers; P = 1, k = 0 (nothing) and k >= n (everything) work.

mod machine;
mod plan;

use spardl_core::phase::{AllGather, Broadcast};
use spardl_core::schedule::ceil_log2;
use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Estimate, Laws, Layout, Machine, Support, ValueType, World,
};

use crate::mask::{AgreeCost, Masked, cost, raw_indices_bound};
use crate::registry::Entry;
use crate::usual::Length;
use machine::Share;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "deft",
    summary: "DEFT: each worker searches some layers, with quotas by gradient norm; complete sums",
    options: &[],
    source: include_str!("mod.rs"),
    variants: |_| Vec::new(),
    build: |options| {
        Ok(Box::new(Deft {
            codec: options.codec,
        }))
    },
};

/// Top entries of layers that are shared out anew in each step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deft {
    /// How indices and values travel.
    pub codec: Codec,
}

/// The most entries of a worker's list, and the most elements of the common parts, for target `k`.
fn cap(k: usize, len: u32) -> usize {
    k.saturating_mul(2).min(len as usize)
}

/// The agreement on the mask: the plan from one worker to all, then every worker's list of at most `each` indices.
fn agree(size: usize, layout: &Layout, each: usize) -> AgreeCost {
    let list = raw_indices_bound(layout.len(), each);
    let bins = plan::BIN_BYTES * plan::parts(layout, size).blocks();
    let rounds = 2 * ceil_log2(size);
    AgreeCost {
        rounds: rounds..=rounds,
        body_bytes: Broadcast::body_bytes(size, bins) + AllGather::body_bytes(0, &vec![list; size]),
    }
}

impl Algorithm for Deft {
    fn name(&self) -> &'static str {
        "deft"
    }

    fn describe(&self) -> String {
        format!("deft values={}", self.codec)
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let share = Share::new(self.codec, world, layout);
        let values = self.codec.values;
        Ok(Box::new(Masked::new(world, layout.len(), values, share)))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        let len = layout.len();
        let (size, each) = (workers as usize, cap(k, len));
        let agree = agree(size, layout, each);
        let most = each.saturating_mul(size + 1).min(len as usize);
        cost(Length::Most, agree, workers, most, self.codec.values)
    }

    /// Every worker has its part of `k` entries.
    fn estimate(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Estimate {
        let (size, len) = (workers as usize, layout.len());
        let k = k.min(len as usize);
        let list = self.codec.usual_indices_len(len, k.div_ceil(size));
        let bins = plan::BIN_BYTES * plan::parts(layout, size).blocks();
        let mut agree = AgreeCost::broadcast(size, bins);
        let rounds = agree.rounds.end() + ceil_log2(size);
        agree.rounds = rounds..=rounds;
        agree.body_bytes += AllGather::body_bytes(0, &vec![list; size]);
        cost(Length::Usual, agree, workers, k, self.codec.values).into()
    }

    fn laws(&self) -> Laws {
        Laws {
            support: Support::FourKPerWorker,
            pairs: false,
            ..Laws::default()
        }
    }
}
