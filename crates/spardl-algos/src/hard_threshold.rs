//! Hard-threshold: every worker's entries above a fixed threshold.
//!
//! Paper: "Rethinking Gradient Sparsification as Total Error Minimization" (hard-threshold sparsifier), as implemented by the
//! authors of ExDyna for comparison.
//!
//! The idea: each worker lists the indices where gradient + residual reaches a fixed threshold, on the whole gradient. All
//! gather the lists; at their union every worker contributes its own values to a dense all-reduce and clears them in its
//! residual (rule M, "shared mask").
//!
//! Example, 5 workers, threshold 3, inputs (0 3 1), (0 2 1), (4 0 1), (0 2 0), (1 0 5): the lists are {1}, {}, {0}, {}, {2}, the
//! union is {0 1 2} and the update (5 7 8). With threshold 4 it is {0 2}: (5 0 8), and workers 0, 1 and 3 keep their entry at 1.
//!
//! Rounds: 3 ceil(log2 P).
//! Bytes: (P - 1) lists of indices, and 2 u (P - 1)/P values with u the size of the union.
//!
//! Limitations: nothing ties the density to k: it depends on the scale of the gradients, and the union grows with P. A worker
//! lists at most 4k entries, the largest (option cap).
//!
//! Differs from the authors' code: lists travel with their lengths, without padding; empty lists, k = 0 (nothing) and k >= n
//! (everything) work; the cap.

use spardl_core::phase::AllGather;
use spardl_core::schedule::ceil_log2;
use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Entries, Estimate, Feedback, Input, Laws, Layout, Machine,
    MethodStats, ProtocolError, Received, Round, Span, ValueType, World,
};

use crate::Options;
use crate::mask::{Agree, AgreeCost, Cap, Masked, capped, cost, raw_indices_bound, union};
use crate::registry::Entry;
use crate::usual::{self, Length};

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "hard-threshold",
    summary: "every worker's entries above a fixed threshold; complete sums",
    options: &[
        ("threshold", "a positive number (1 / (2 sqrt k))"),
        ("cap", "4k, none: the most entries a worker selects"),
    ],
    source: include_str!("hard_threshold.rs"),
    variants: |_| Options::variants(&[&[("threshold", "0.75"), ("cap", "none")]]),
    build: |options| Ok(Box::new(HardThreshold::from_options(options)?)),
};

/// All-reduce at the union of what exceeds a fixed threshold.
#[derive(Clone, Copy, Debug, Default)]
pub struct HardThreshold {
    /// The least magnitude selected; the authors' 1 / (2 sqrt k) when `None`.
    pub threshold: Option<f32>,
    /// The most entries that a worker lists.
    pub cap: Cap,
    /// How indices and values travel.
    pub codec: Codec,
}

impl HardThreshold {
    /// Hard-threshold with the options that concern it.
    ///
    /// # Errors
    /// When an option has a value that is not accepted.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        let name = "hard-threshold";
        let positive = |text: &str| {
            let value = text.parse::<f32>().ok();
            value.filter(|value| value.is_finite() && *value > 0.0)
        };
        Ok(Self {
            threshold: options.parsed(
                name,
                "threshold",
                None,
                "use a positive number",
                |text| positive(text).map(Some),
            )?,
            cap: options.parsed(name, "cap", Cap::default(), Cap::EXPECTED, Cap::parse)?,
            codec: options.codec,
        })
    }

    fn threshold(&self, k: usize) -> f32 {
        self.threshold
            .unwrap_or_else(|| 1.0 / (2.0 * (k as f32).sqrt()))
    }
}

impl Algorithm for HardThreshold {
    fn name(&self) -> &'static str {
        "hard-threshold"
    }

    fn describe(&self) -> String {
        let threshold = match self.threshold {
            Some(threshold) => threshold.to_string(),
            None => "published".to_owned(),
        };
        format!(
            "hard-threshold threshold={threshold} cap={} values={}",
            self.cap.name(),
            self.codec
        )
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let unite = Unite {
            config: *self,
            world,
            len: layout.len(),
            k: 0,
            gather: None,
            stats: MethodStats::default(),
        };
        let values = self.codec.values;
        Ok(Box::new(Masked::new(world, layout.len(), values, unite)))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        let len = layout.len();
        let size = workers as usize;
        let each = self.cap.of(k, len);
        let list = raw_indices_bound(len, each);
        let agree = AgreeCost {
            rounds: ceil_log2(size)..=ceil_log2(size),
            body_bytes: AllGather::body_bytes(0, &vec![list; size]),
        };
        let most = each.saturating_mul(size).min(len as usize);
        cost(Length::Most, agree, workers, most, self.codec.values)
    }

    /// A threshold that `k` entries of every worker clear, which have nothing in common.
    fn estimate(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Estimate {
        let (size, len) = (workers as usize, layout.len());
        let k = k.min(len as usize);
        let log = ceil_log2(size);
        let agree = AgreeCost {
            rounds: log..=log,
            body_bytes: AllGather::body_bytes(0, &vec![self.codec.usual_indices_len(len, k); size]),
        };
        let union = usual::union(workers, len, k);
        cost(Length::Usual, agree, workers, union, self.codec.values).into()
    }

    fn loose_bound(&self) -> Option<&'static str> {
        Some(self.cap.loose_bound())
    }

    fn laws(&self) -> Laws {
        Laws {
            support: self.cap.support(),
            scales: false,
            pairs: false,
            ..Laws::default()
        }
    }
}

/// Agreement by union.
#[derive(Debug)]
struct Unite {
    config: HardThreshold,
    world: World,
    len: u32,
    k: usize,
    gather: Option<AllGather>,
    stats: MethodStats,
}

impl Unite {
    /// Everything is asked for: there is nothing to choose.
    fn is_full(&self) -> bool {
        self.k >= self.len as usize
    }

    /// The most indices a worker may list.
    fn cap(&self) -> usize {
        if self.is_full() {
            0
        } else {
            self.config.cap.of(self.k, self.len)
        }
    }
}

impl Agree for Unite {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        self.k = input.k.min(self.len as usize);
        let threshold = match self.cap() {
            0 => f32::INFINITY,
            _ => self.config.threshold(self.k),
        };
        let (all, mut found) = (0..self.len as usize, Entries::default());
        feedback.accumulate(input.gradient, vec![Span::new(all, threshold, &mut found)]);
        let indices = capped(found, self.cap());
        let (codec, size) = (self.config.codec, self.world.size() as usize);
        self.stats = MethodStats {
            selected: indices.len() as u64,
            ..MethodStats::default()
        };
        let mut item = Vec::new();
        codec.encode_indices(0, self.len, &indices, &mut item);
        let bounds = vec![codec.indices_bound(self.len, self.cap()); size];
        self.gather = Some(AllGather::new(self.world.everyone(), item, bounds));
    }

    fn round(&mut self, _: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        Ok(self.gather.as_ref().and_then(AllGather::round))
    }

    fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        let gather = self.gather.as_mut().expect("a step is under way");
        gather.absorb(received)
    }

    fn agreed(&mut self) -> Result<Vec<u32>, ProtocolError> {
        let gather = self.gather.take().expect("a step is under way");
        let (items, codec) = (gather.into_items(), self.config.codec);
        let mut lists = vec![Vec::new(); self.world.size() as usize];
        for (worker, list) in lists.iter_mut().enumerate() {
            items.read(worker, |reader| {
                codec.decode_indices(reader, 0, self.len, self.cap(), list)
            })?;
        }
        if self.is_full() {
            return Ok((0..self.len).collect());
        }
        Ok(union(&lists, self.len))
    }

    fn stats(&self) -> MethodStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spardl_core::Outcome;
    use spardl_sim::Cluster;

    fn update(algorithm: &HardThreshold, k: usize) -> Vec<f32> {
        let gradients = [
            [0.0, 3.0, 1.0],
            [0.0, 2.0, 1.0],
            [4.0, 0.0, 1.0],
            [0.0, 2.0, 0.0],
            [1.0, 0.0, 5.0],
        ];
        let mut cluster = Cluster::new(algorithm, 5, &Layout::flat(3)).unwrap();
        let report = cluster.step(&gradients, k, 0).unwrap();
        assert!(report.outcomes.iter().all(|o| *o == Outcome::Updated));
        let mut update = vec![0.0; 3];
        cluster.workers()[0].update().write_scaled(1.0, &mut update);
        update
    }

    #[test]
    fn the_example_of_the_header_holds() {
        let above = |threshold| HardThreshold {
            threshold: Some(threshold),
            ..HardThreshold::default()
        };
        assert_eq!(update(&above(3.0), 1), [5.0, 7.0, 8.0]);
        assert_eq!(update(&above(4.0), 1), [5.0, 0.0, 8.0]);
        assert_eq!(update(&above(9.0), 1), [0.0, 0.0, 0.0]);
        assert_eq!(update(&above(9.0), 3), [5.0, 7.0, 8.0], "k >= n");
    }
}
