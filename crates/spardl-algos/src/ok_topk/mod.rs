//! Ok-Topk: split-and-reduce, balance, all-gather, with thresholds and regions that are computed now and then and reused.
//!
//! Paper: Li and Hoefler, "Near-Optimal Sparse Allreduce for Distributed Deep Learning", PPoPP 2022, sec. 3.
//!
//! The idea: each worker owns a region of the gradient. A worker selects what reaches its own threshold and sends each region's
//! part to the owner; the owner adds the parts and puts forward what reaches the common threshold; all gather that. Exact
//! top-k selection is dear, so the thresholds are exact every tau' steps only and follow the counts by small factors in
//! between; regions are cut anew every tau steps so that each holds about the same share of the selected entries. What a worker
//! selected *and* everybody applied leaves its residual; all else stays (rule I, the intersection).
//!
//! Words: *local threshold* = one worker's, differs between workers; *global threshold* = the same everywhere; *exact step* = a step
//! that sets both to the k-th largest magnitude; *region* = one of P runs of the gradient; *share* = the entries an owner puts forward;
//! *band* = the counts at which a threshold is left alone.
//!
//! Example, 5 workers, n = 10, k = 2, the first step (exact). The selections are {0:9, 5:4}, {0:8, 9:3}, {2:5, 5:2}, {0:6, 7:7},
//! {7:5, 9:1}. Worker 0 proposes the cuts 0 0 5 5 (its selected index at each fifth), the others 0 0 9 9, 2 2 5 5, 0 0 7 7,
//! 7 7 9 9; their mean, rounded down, is 1 1 7 7, so the regions are 0..1, none, 1..7, none, 7..10. Owner 0 adds up {0:23}, owner 2
//! {2:5, 5:6}, owner 4 {7:12, 9:4}. All gather these and keep the two largest: the update is {0:23, 7:12} and the global
//! threshold 12. Worker 3 keeps nothing, worker 0 keeps {5:4}. In the next step an owner puts forward what reaches 12.
//!
//! Rounds: ceil((P - 1)/4) + ceil(log2 P); 2 ceil(log2 P) more when regions are cut anew; ceil(log2 P) + 1 more when balanced.
//! Bytes: 2 k (P - 1)/P words to the owners and as many in the all-gather with even shares, up to 2 k (P - 1)/P more to balance
//! them; an exact step gathers up to k entries of each region.
//!
//! Presets: the constants of the three published programs; `vgg` (tau' 32, tau 64), `lstm` (the same, other bands) and `bert` (tau'
//! 128, tau 64, steps of 2.5 %).
//!
//! Limitations: between exact steps the thresholds fall by 1 to 4 % a step only; when gradients shrink fast, the residuals pile up
//! just below the thresholds and are delivered in bursts. An exact step is a spike in volume. Opposing values of two workers are sent again and again.
//! The residual is in units of the gradient: a change of the learning rate applies to what was kept as well.
//!
//! Caps: a worker selects at most 4 k entries and an owner puts at most 4 k forward, the largest; of what is gathered, the 4 k
//! largest make the update.
//!
//! Differs from the authors' code:
//! - One message per round and peer, with its counts inside: no all-to-all of counts. Counts are gathered on their own only when the
//!   last step's shares, which everybody knows from the update, were skewed (or with balance=always).
//! - Balance is conditional, as in the paper, by a parameter; the programs never balance (vgg, lstm) or always (bert).
//! - In an exact step an owner sends its k largest sums, not all: the k largest of all are among them.
//! - A threshold is reached with >=, not >: the k-th entry is selected, and so are ties and constant magnitudes. A worker that
//!   selects nothing of a non-zero input falls back to its k largest. Zeros set no threshold.
//! - Thresholds and regions start with an exact step of their own, not by alignment of a counter with the dense warm-up, which is
//!   left to the caller. A step is also exact when k has moved by more than a quarter, when the last update was empty and
//!   when k >= n.
//! - When more than 3/2 k entries reach a threshold it is set to the k-th largest of them, which are at hand. The published
//!   factors alone cannot follow the growth of the residuals in the first hundred steps: the updates grow beyond 4 k.
//! - Cuts are proposed at entry floor(len i/P), not i floor(len/P), which puts all cuts on the first entry when len < P.
//! - Sums are added in rank order in sparse lists; indices are u32, never f32; any P from 1 on, empty selections and regions allowed.
//! - `residual = published-unsorted` is the rule of the lstm and bert programs: in exact steps they look up the selected
//!   indices by binary search in a list in order of value, find almost none, and apply the rest twice. It does not conserve.

mod balance;
mod controller;
mod cost;
mod local;
mod machine;
mod residual;
#[cfg(test)]
mod tests;

use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Estimate, Laws, Layout, Machine, Support, ValueType, World,
};

use crate::Options;
use crate::registry::Entry;
pub use balance::Balance;
pub use controller::Preset;
pub use residual::Intersection;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "ok-topk",
    summary: "Ok-Topk: thresholds and regions reused between exact steps, O(k) volume",
    options: &[
        (
            "preset",
            "vgg, lstm, bert: the bands that thresholds follow",
        ),
        ("tau", "steps between two cuts of the regions (64)"),
        (
            "tau-prime",
            "steps between two exact thresholds (32; bert 128)",
        ),
        (
            "balance",
            "auto, always, never: even out the shares before the all-gather",
        ),
        (
            "balance-trigger",
            "auto: when the largest share exceeds this many times the average (4)",
        ),
        (
            "residual",
            "intersection, published-unsorted (does not conserve): what is cleared",
        ),
    ],
    source: include_str!("mod.rs"),
    variants: |_| {
        Options::variants(&[
            &[("tau", "3"), ("tau-prime", "2"), ("balance-trigger", "1.1")],
            &[
                ("preset", "lstm"),
                ("tau", "2"),
                ("tau-prime", "3"),
                ("balance", "always"),
            ],
            &[
                ("preset", "bert"),
                ("tau-prime", "2"),
                ("balance", "never"),
                ("residual", "published-unsorted"),
            ],
        ])
    },
    build: |options| Ok(Box::new(OkTopk::from_options(options)?)),
};

/// The most entries a worker selects, an owner puts forward and an update has, as a multiple of k.
const CAP: usize = 4;
/// Messages in flight in split-and-reduce; authors' allreducer.py, all three programs.
const PEERS_PER_ROUND: usize = 4;

/// Configuration of Ok-Topk.
#[derive(Clone, Copy, Debug)]
pub struct OkTopk {
    /// The bands and factors of the thresholds.
    pub preset: Preset,
    /// Steps between two cuts of the regions, tau.
    pub repartition_every: u64,
    /// Steps between two exact thresholds, tau'.
    pub exact_every: u64,
    /// When the shares of the owners are balanced.
    pub balance: Balance,
    /// How many times the average the largest share must exceed to be balanced.
    pub balance_trigger: f64,
    /// Which delivered entries leave the residual.
    pub residual: Intersection,
    /// How entries travel.
    pub codec: Codec,
}

impl Default for OkTopk {
    fn default() -> Self {
        Self::from_options(&Options::default()).expect("the defaults are accepted")
    }
}

impl OkTopk {
    /// Ok-Topk with the options that concern it.
    ///
    /// # Errors
    /// When an option has a value that is not accepted.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        let name = "ok-topk";
        let preset = options.parsed(name, "preset", Preset::Vgg, "vgg, lstm or bert", |text| {
            find(&Preset::ALL, text)
        })?;
        let steps = |option, default| {
            options.parsed(name, option, default, "a number of steps from 1 on", |t| {
                t.parse().ok().filter(|&steps: &u64| steps > 0)
            })
        };
        Ok(Self {
            preset,
            repartition_every: steps("tau", preset.bands().repartition_every)?,
            exact_every: steps("tau-prime", preset.bands().exact_every)?,
            balance: options.parsed(
                name,
                "balance",
                Balance::Auto,
                "auto, always or never",
                |text| find(&Balance::ALL, text),
            )?,
            balance_trigger: options.parsed(
                name,
                "balance-trigger",
                balance::TRIGGER,
                "a number from 1 on",
                |text| {
                    text.parse()
                        .ok()
                        .filter(|&t: &f64| t.is_finite() && t >= 1.0)
                },
            )?,
            residual: options.parsed(
                name,
                "residual",
                Intersection::Sorted,
                "intersection or published-unsorted",
                |text| find(&Intersection::ALL, text),
            )?,
            codec: options.codec,
        })
    }

    /// Can a step among `workers` have its shares balanced? No share exceeds P times the average.
    fn can_balance(&self, workers: usize) -> bool {
        match self.balance {
            Balance::Auto => workers as f64 > self.balance_trigger,
            Balance::Always => workers > 1,
            Balance::Never => false,
        }
    }
}

fn find<T: Copy>(all: &[(&str, T)], text: &str) -> Option<T> {
    let found = all.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value)
}

fn name_of<T: PartialEq>(all: &[(&'static str, T)], value: &T) -> &'static str {
    let found = all.iter().find(|(_, other)| other == value);
    found.map_or("", |(name, _)| *name)
}

impl Algorithm for OkTopk {
    fn name(&self) -> &'static str {
        "ok-topk"
    }

    fn describe(&self) -> String {
        format!(
            "ok-topk preset={} tau={} tau-prime={} balance={} balance-trigger={} residual={} values={}",
            name_of(&Preset::ALL, &self.preset),
            self.repartition_every,
            self.exact_every,
            name_of(&Balance::ALL, &self.balance),
            self.balance_trigger,
            name_of(&Intersection::ALL, &self.residual),
            self.codec
        )
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        Ok(Box::new(machine::Worker::new(*self, world, layout.len())))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        let len = layout.len();
        cost::cost(self, workers as usize, len, k)
    }

    fn estimate(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Estimate {
        cost::estimate(self, workers, layout.len(), k.min(layout.len() as usize))
    }

    fn laws(&self) -> Laws {
        let intersects = self.residual == Intersection::Sorted;
        Laws {
            conserves: intersects,
            support: Support::FourK,
            // The published rule keeps what was delivered, and delivers it again.
            lossless_when_full: intersects,
            ..Laws::default()
        }
    }
}
