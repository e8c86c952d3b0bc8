//! ARC-Top-K: the rows of the gradient whose sum looks largest in a small sketch that all workers share.
//!
//! Paper: "An All-Reduce Compatible Top-K Compressor for Communication-Efficient Distributed Learning" (Chen et al., arXiv 2510.26709).
//!
//! The idea: large sums are what should be sent, and no worker knows them. So the workers first all-reduce a *sketch* of what they
//! hold: a few random combinations of every row of the gradient. The sketch of the sum is the sum of the sketches, so all end
//! with the same one and can tell from it, without a message, which rows have large sums. At these rows every worker
//! contributes its values to a dense all-reduce and clears them in its residual (rule M, "shared mask"). No index travels.
//!
//! Words: a *row* is a run of elements of one tensor that is sent as a whole; a *column* of the sketch is the sum of a row's elements
//! with random signs, the same for all rows, drawn anew in each step from the seed; the *score* of a row is the mean square of
//! its columns per element, which estimates the mean square of the sum there.
//!
//! Example, 5 workers, 6 elements in rows of 2, k = 2, one column, signs (+ -), inputs (3 0 0 1 0 0), (3 0 0 -2 0 0),
//! (0 -1 0 1 0 0), (0 0 2 0 0 0), (0 0 0 0 1 0). The sketches (3 -1 0), (3 2 0), (1 -1 0), (0 2 0), (0 0 1) add up to
//! (7 2 1): row 0 wins. The update is {0:6 1:-1}, and the workers keep (0 0 0 1 0 0), (0 0 0 -2 0 0), (0 0 0 1 0 0) and all that
//! the last two had.
//!
//! Rounds: 4 ceil(log2 P); half of it when nothing or everything is asked for.
//! Bytes: 2 (P - 1)/P values of k and of the sketch: `columns` per row. With `row = auto` rows are so long that the sketch has
//! about as many values as the update.
//!
//! Limitations: whole rows are sent, so a large element brings its small neighbours with it, and a row of small ones in which a large
//! one hides may score low: where the large entries lie alone the method sends little of what oracle-k would. It is made for
//! gradients whose rows are large or small together.
//!
//! Differs from the authors' code: exactly min(k, n) elements of all tensors together by score, where theirs takes a share of the rows
//! of every tensor; the last row is cut to what fits, from a place that moves with the step. Signs instead of normal
//! deviates: sums only, so the same bits everywhere, and exact where one element of a row is alone. Rows of `auto` are
//! shorter than a matrix's (option row = matrix: as theirs). Plain error feedback; their EF21M keeps moments in an
//! optimiser. The sketch travels as bf16 when values do not travel as f32. P = 1 selects the k largest.

mod rows;

use std::fmt;

use spardl_core::phase::{AllReduce, all_reduce_bytes, all_reduce_elements};
use spardl_core::schedule::ceil_log2;
use spardl_core::{
    Algorithm, ConfigError, Cost, Entries, Estimate, Feedback, Input, Laws, Layout, Machine,
    MethodStats, Partition, ProtocolError, Received, Round, Selector, Support, ValueType, World,
};

use crate::Options;
use crate::mask::{self, Agree, AgreeCost, Masked};
use crate::registry::Entry;
use crate::usual::Length;
use rows::Rows;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "arc-topk",
    summary: "ARC-Top-K: rows chosen from a sketch of the sum; complete sums, no index travels",
    options: &[
        (
            "row",
            "auto (as many values of the sketch as k), matrix (the rows of the tensors), or a number: elements per row",
        ),
        ("columns", "1 to 64 (1): values of the sketch per row"),
        ("seed", "a number (0): another seed draws other signs"),
    ],
    source: include_str!("mod.rs"),
    variants: |_| {
        Options::variants(&[
            &[("row", "matrix"), ("columns", "4"), ("seed", "7")],
            &[("row", "5"), ("columns", "2")],
        ])
    },
    build: |options| Ok(Box::new(ArcTopk::from_options(options)?)),
};

/// How long the rows are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Row {
    /// So long that the sketch has about as many values as the update.
    #[default]
    Auto,
    /// The rows of the tensors, first dimension by the rest; tensors of one dimension element by element, long ones as `Auto`.
    Matrix,
    /// At most so many elements.
    Elements(u32),
}

impl Row {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            "matrix" => Some(Self::Matrix),
            number => {
                let elements = number.parse().ok().filter(|&elements| elements > 0);
                elements.map(Self::Elements)
            }
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Matrix => f.write_str("matrix"),
            Self::Elements(elements) => elements.fmt(f),
        }
    }
}

/// All-reduce of the rows that a sketch of the sum points at.
#[derive(Clone, Copy, Debug)]
pub struct ArcTopk {
    /// How values travel.
    pub values: ValueType,
    /// How long the rows are.
    pub row: Row,
    /// Values of the sketch per row, 1 to 64.
    pub columns: u32,
    /// Another seed draws other signs; equal on all workers.
    pub seed: u64,
}

impl Default for ArcTopk {
    fn default() -> Self {
        Self {
            values: ValueType::default(),
            row: Row::default(),
            columns: 1,
            seed: 0,
        }
    }
}

impl ArcTopk {
    /// ARC-Top-K with the options that concern it.
    ///
    /// # Errors
    /// When an option has a value that is not accepted.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        let (name, default) = ("arc-topk", Self::default());
        let columns = |text: &str| text.parse().ok().filter(|c| (1..=64).contains(c));
        Ok(Self {
            values: options.codec.values,
            row: options.parsed(
                name,
                "row",
                default.row,
                "use auto, matrix or a number from 1 on",
                Row::parse,
            )?,
            columns: options.parsed(
                name,
                "columns",
                default.columns,
                "use a number from 1 to 64",
                columns,
            )?,
            seed: options.parsed(name, "seed", 0, "use a whole number from 0 on", |text| {
                text.parse().ok()
            })?,
        })
    }

    /// How the sketch travels: it is looked at, not delivered, so its errors need no keeping, but its magnitudes must show.
    fn sketch_type(&self) -> ValueType {
        if self.values.is_exact() {
            ValueType::F32
        } else {
            ValueType::Bf16
        }
    }
}

impl ArcTopk {
    /// What a step costs with runs of this length.
    fn cost_of(&self, length: Length, workers: u32, layout: &Layout, k: usize) -> Cost {
        let (size, len) = (workers as usize, layout.len() as usize);
        let mut agree = AgreeCost {
            rounds: 0..=0,
            body_bytes: 0,
        };
        if k > 0 && k < len && size > 1 {
            let values = rows::sketch_len(layout, self.row, self.columns, k) as u32;
            let encoded = |count| length.run(self.sketch_type(), count);
            let sent = all_reduce_bytes(size, values, encoded);
            let rounds = 2 * ceil_log2(size);
            agree = AgreeCost {
                rounds: rounds..=rounds,
                body_bytes: (0..size).map(sent).max().unwrap_or(0),
            };
        }
        mask::cost(length, agree, workers, k.min(len), self.values)
    }
}

impl Algorithm for ArcTopk {
    fn name(&self) -> &'static str {
        "arc-topk"
    }

    fn describe(&self) -> String {
        let Self {
            values,
            row,
            columns,
            seed,
        } = self;
        format!("arc-topk row={row} columns={columns} seed={seed} values={values}")
    }

    fn value_type(&self) -> ValueType {
        self.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let len = layout.len();
        let sketch = Sketch {
            config: *self,
            world,
            layout: layout.clone(),
            alone: Selector::new(Partition::even(len, 1)),
            rows: Rows::default(),
            rows_for: 0,
            k: 0,
            step: 0,
            sums: Vec::new(),
            phase: Phase::Idle,
            stats: MethodStats::default(),
        };
        Ok(Box::new(Masked::new(world, len, self.values, sketch)))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Cost {
        self.cost_of(Length::Most, workers, layout, k)
    }

    fn estimate(&self, workers: u32, layout: &Layout, k: usize, _step: u64) -> Estimate {
        self.cost_of(Length::Usual, workers, layout, k).into()
    }

    fn laws(&self) -> Laws {
        Laws {
            support: Support::K,
            ..Laws::default()
        }
    }
}

/// Where in the agreement the worker is.
#[derive(Debug)]
enum Phase {
    Idle,
    /// The sketch on its way.
    Sketched(AllReduce),
    /// Nothing was to be sketched.
    Agreed(Vec<u32>),
}

/// Agreement by a sketch of the sum.
#[derive(Debug)]
struct Sketch {
    config: ArcTopk,
    world: World,
    layout: Layout,
    /// Selects when there is nobody to sum with.
    alone: Selector,
    rows: Rows,
    /// The `k` that the rows were cut for; 0 before the first.
    rows_for: usize,
    k: usize,
    step: u64,
    /// The sketch, on its way to be that of the sum.
    sums: Vec<f32>,
    phase: Phase,
    stats: MethodStats,
}

impl Sketch {
    fn sketch(&mut self, work: &[f32]) {
        let ArcTopk {
            row, columns, seed, ..
        } = self.config;
        if self.rows_for != self.k {
            self.rows = Rows::new(&self.layout, row, columns, self.k);
            self.rows_for = self.k;
        }
        self.rows.sketch(seed, self.step, work, &mut self.sums);
        let (everyone, len) = (self.world.everyone(), self.sums.len() as u32);
        let reduce = AllReduce::new(everyone, len, self.config.sketch_type());
        self.phase = Phase::Sketched(reduce);
        let (position, size) = (self.world.rank().index(), self.world.size() as usize);
        self.stats.entries_sent = all_reduce_elements(position, size, len);
    }
}

impl Agree for Sketch {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        let len = self.layout.len() as usize;
        self.k = input.k.min(len);
        self.step = input.step;
        self.stats = MethodStats::default();
        if self.world.size() == 1 {
            let mut top = Entries::default();
            self.alone.pass(feedback, input.gradient, &[self.k]);
            self.alone
                .take_top(0, feedback.work(), self.k, ValueType::F32, &mut top);
            self.stats = self.alone.stats();
            self.phase = Phase::Agreed(top.indices);
            return;
        }
        feedback.load(input.gradient);
        self.stats.selected = self.k as u64;
        if self.k == 0 || self.k == len {
            self.phase = Phase::Agreed((0..self.k as u32).collect());
        } else {
            self.sketch(feedback.work());
        }
    }

    fn round(&mut self, _: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        Ok(match &mut self.phase {
            Phase::Sketched(reduce) => reduce.round(&mut self.sums),
            Phase::Agreed(_) | Phase::Idle => None,
        })
    }

    fn absorb(&mut self, received: Received<'_>) -> Result<(), ProtocolError> {
        match &mut self.phase {
            Phase::Sketched(reduce) => reduce.absorb(&mut self.sums, received),
            Phase::Agreed(_) | Phase::Idle => Ok(()),
        }
    }

    fn agreed(&mut self) -> Result<Vec<u32>, ProtocolError> {
        Ok(match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Agreed(indices) => indices,
            Phase::Sketched(_) => self.rows.best(&self.sums, self.k, self.step),
            Phase::Idle => Vec::new(),
        })
    }

    fn stats(&self) -> MethodStats {
        self.stats
    }
}

#[cfg(test)]
mod tests;
