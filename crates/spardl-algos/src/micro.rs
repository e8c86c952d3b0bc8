//! MiCRO: exclusive selection in fixed partitions, with a threshold that all workers share.
//!
//! Paper: "MiCRO: Near-Zero Cost Gradient Sparsification for Scaling and Accelerating Distributed DNN Training", the
//! predecessor of ExDyna by the same authors.
//!
//! The idea: cut the gradient into one partition per worker. In each step a worker searches only one partition, a different one
//! every time, for entries that reach the threshold. The lists cannot overlap, so together they are the common indices; each
//! worker contributes its own values there to a dense all-reduce. It is ExDyna without blocks and without adjustment, and
//! runs its code.
//!
//! Words: *partition* = a run of n/P elements; *threshold* = the least magnitude selected, the same on all workers.
//!
//! Example, 5 workers, 10 elements, k = 5, threshold 4, step 1: worker w searches partition (1 + w) mod 5, so worker 0 has
//! elements {2,3}. There it holds (7 -1) and lists 2. If it held (1 -1) it would list 2 + 1 mod 2 = 3: every list has an
//! index. All lists are gathered, every worker adds its values at these indices and clears them.
//!
//! Rounds: 3 ceil(log2 P), and ceil(log2 P) more while the threshold is not known (the first step).
//! Bytes: as ExDyna: (P - 1) lists of at most c indices, and 2 K (P - 1)/P values, with K entries in all and the longest list c.
//!
//! Limitations: as ExDyna; a partition that yields many entries makes all workers wait for its list, in every step.
//!
//! Differs from the authors' code: as ExDyna (start of the threshold, controller, fallback, no padding, any n and any P).

use spardl_core::{
    Algorithm, ConfigError, Cost, Estimate, Laws, Layout, Machine, ValueType, World,
};

use crate::exdyna::FALLBACK;
use crate::mask::Cap;
use crate::registry::Entry;
use crate::{Controller, ExDyna, Options, Start};

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "micro",
    summary: "MiCRO: ExDyna with fixed partitions",
    options: &[
        (
            "controller",
            "corrected, published: how the threshold follows the density",
        ),
        ("start", "data, published: where the threshold starts"),
        ("cap", "4k, none: the most entries a worker selects"),
        FALLBACK,
    ],
    source: include_str!("micro.rs"),
    variants: |_| {
        Options::variants(&[
            &[
                ("controller", "published"),
                ("start", "published"),
                ("cap", "none"),
            ],
            &[("fallback", "counted")],
        ])
    },
    build: |options| Ok(Box::new(Micro::from_options(options)?)),
};

/// Configuration of MiCRO.
#[derive(Clone, Copy, Debug)]
pub struct Micro {
    exdyna: ExDyna,
}

impl Default for Micro {
    fn default() -> Self {
        Self::with(ExDyna::default())
    }
}

impl Micro {
    /// MiCRO with the options that concern it.
    ///
    /// # Errors
    /// When an option has a value that is not accepted.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        ExDyna::read(options, "micro").map(Self::with)
    }

    /// As many blocks as workers, and none is ever moved.
    fn with(exdyna: ExDyna) -> Self {
        Self {
            exdyna: ExDyna {
                blocks: 1,
                adjust: false,
                ..exdyna
            },
        }
    }

    /// How the threshold follows the number of entries.
    pub const fn controller(&self) -> Controller {
        self.exdyna.controller
    }

    /// Where the threshold starts.
    pub const fn start(&self) -> Start {
        self.exdyna.start
    }

    /// The most entries that a worker lists.
    pub const fn cap(&self) -> Cap {
        self.exdyna.cap
    }
}

impl Algorithm for Micro {
    fn name(&self) -> &'static str {
        "micro"
    }

    fn describe(&self) -> String {
        format!(
            "micro controller={} start={} cap={}{} values={}",
            self.controller(),
            self.start(),
            self.cap().name(),
            self.exdyna.fallback_in_words(),
            self.exdyna.values()
        )
    }

    fn value_type(&self) -> ValueType {
        self.exdyna.values()
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        self.exdyna.machine(world, layout)
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, step: u64) -> Cost {
        self.exdyna.cost(workers, layout, k, step)
    }

    fn estimate(&self, workers: u32, layout: &Layout, k: usize, step: u64) -> Estimate {
        self.exdyna.estimate(workers, layout, k, step)
    }

    fn loose_bound(&self) -> Option<&'static str> {
        self.exdyna.loose_bound()
    }

    fn laws(&self) -> Laws {
        self.exdyna.laws()
    }
}
