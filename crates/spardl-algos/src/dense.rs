//! Dense all-reduce for any number of workers, the yardstick of every sparse method.
//!
//! Paper: none; the schedules are those of SparDL and of Bruck et al., "Efficient Algorithms for All-to-All Communications in
//! Multiport Message-Passing Systems", 1997.
//!
//! The idea: cut the gradient into P blocks, reduce-scatter them with SparDL's schedule (gaps halve; the first round carries
//! what exceeds a power of two), then gather them with Bruck's. Nothing is selected, so with f32 and bf16 no residual is kept.
//! With values of few bits (`dense-q8` to `dense-q1`) every hop re-quantises the partial sum that it sends, and the
//! worker that does so keeps the error in a residual, which joins its next gradient.
//!
//! Example, 5 workers (gaps 4, 2, 1), worker 0: block {4} -> 4 while {0} <- 1; {2,3} -> 2 while {0,1} <- 3; {1} -> 1 while
//! {0} <- 4. It now owns the sum of block 0 and gathers: {0} -> 4, {0,1} -> 3, {0} -> 1.
//!
//! With few bits, one element and workers that hold 6, 1, 1, 1, 1: when the code sends 6 as 5.5, that worker keeps 0.5; when the
//! owner's sum of 9.5 is then handed round as 9, the owner keeps 0.5. 9 + 0.5 + 0.5 are the 10 that there were.
//!
//! Rounds: 2 ceil(log2 P). Bytes: 2 n (P - 1) / P elements per worker, for every P; an element takes 8.4 bits with q8 and 4.6 with q4
//! on heavy-tailed gradients (`spardl bench --local --workers 4 --elements 64000 --methods dense-q8,dense-q4`), the bound is that of f32.
//!
//! Limitations: with bf16 values partial sums are rounded at every hop and the errors are not kept, so `dense-bf16` does not
//! conserve; all workers still end with the same bits. With few bits a worker holds 3 n words, and an element is quantised up to
//! ceil(log2 P) + 1 times on its way. The values of a dense run lie further apart than those of a selection: q2 and q1 widen to q4's
//! code there and save nothing more.
//!
//! Differs from DynamiQ (arXiv 2602.08923), which also re-quantises per hop: our code of values, one width for all, and no error is
//! ever dropped.

use std::ops::Range;

use spardl_core::phase::{AllReduce, all_reduce_bytes, all_reduce_elements};
use spardl_core::{
    Algorithm, ConfigError, Cost, Estimate, Feedback, Gradient, HEADER_LEN, Input, Laws, Layout,
    Machine, MethodStats, ProtocolError, Received, Round, Update, ValueType, World, schedule,
};

use crate::registry::Entry;
use crate::usual::Length;

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
            sums: Sums::new(self.values, layout.len()),
            reduce,
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Cost {
        cost(Length::Most, self.values, workers, layout.len())
    }

    fn estimate(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Estimate {
        cost(Length::Usual, self.values, workers, layout.len()).into()
    }

    fn laws(&self) -> Laws {
        if keeps_errors(self.values) {
            Laws::default()
        } else {
            laws(self.values)
        }
    }
}

/// What this all-reduce of `len` elements costs.
pub(crate) fn cost(length: Length, values: ValueType, workers: u32, len: u32) -> Cost {
    let size = workers as usize;
    let rounds = 2 * schedule::ceil_log2(size);
    let sent = all_reduce_bytes(size, len, |count| length.run(values, count));
    let bytes = (0..size).map(sent);
    Cost {
        rounds: rounds..=rounds,
        messages: u64::from(rounds),
        bytes_max: bytes.max().unwrap_or(0) + u64::from(rounds) * HEADER_LEN as u64,
    }
}

/// What a dense method without a residual promises.
pub(crate) fn laws(values: ValueType) -> Laws {
    Laws {
        conserves: values.is_exact(),
        keeps_residual: false,
        ..Laws::default()
    }
}

/// Are the errors of this type too large to be dropped?
pub(crate) fn keeps_errors(values: ValueType) -> bool {
    values.elementwise() != values
}

/// The array that a dense method adds up in: the working copy itself, or one beside it while the errors of few bits gather in
/// the working copy.
#[derive(Debug)]
pub(crate) struct Sums {
    values: ValueType,
    len: u32,
    beside: Option<Vec<f32>>,
}

impl Sums {
    pub(crate) fn new(values: ValueType, len: u32) -> Self {
        let beside = keeps_errors(values).then(|| spardl_kernels::zeroed(len as usize));
        Self {
            values,
            len,
            beside,
        }
    }

    /// The length of the bucket.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Begins a step with this worker's own input.
    pub(crate) fn load(&mut self, feedback: &mut Feedback, gradient: Gradient<'_>) {
        feedback.load(gradient);
        if let Some(beside) = &mut self.beside {
            beside.copy_from_slice(feedback.work());
        }
    }

    /// The sums so far.
    pub(crate) fn array<'a>(&'a mut self, feedback: &'a mut Feedback) -> &'a mut [f32] {
        match &mut self.beside {
            Some(beside) => beside,
            None => feedback.work_mut(),
        }
    }

    /// The sums of `range` leave this worker for good, once per element and step: they become what their receivers will see, and
    /// the errors are kept. Types whose errors are not kept are left alone.
    pub(crate) fn leave(&mut self, feedback: &mut Feedback, range: Range<usize>) {
        if let Some(beside) = &mut self.beside {
            let errors = &mut feedback.work_mut()[range.clone()];
            self.values.quantise(&mut beside[range], errors);
        }
    }

    /// The finished sums.
    pub(crate) fn update<'a>(&'a self, feedback: &'a Feedback) -> Update<'a> {
        Update::Dense(self.beside.as_deref().unwrap_or(feedback.work()))
    }
}

#[derive(Debug)]
struct Worker {
    world: World,
    sums: Sums,
    reduce: AllReduce,
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        self.sums.load(feedback, input.gradient);
        let (everyone, len) = (self.world.everyone(), self.sums.len());
        self.reduce = AllReduce::new(everyone, len, self.sums.values);
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        for range in self.reduce.leaving() {
            self.sums.leave(feedback, range);
        }
        if self.world.size() == 1 {
            self.sums.leave(feedback, 0..self.sums.len() as usize);
        }
        Ok(self.reduce.round(self.sums.array(feedback)))
    }

    fn absorb(
        &mut self,
        feedback: &mut Feedback,
        received: Received<'_>,
    ) -> Result<(), ProtocolError> {
        self.reduce.absorb(self.sums.array(feedback), received)
    }

    fn update<'a>(&'a self, feedback: &'a Feedback) -> Update<'a> {
        self.sums.update(feedback)
    }

    fn stats(&self) -> MethodStats {
        let (position, size) = (self.world.rank().index(), self.world.size() as usize);
        MethodStats {
            entries_sent: all_reduce_elements(position, size, self.sums.len()),
            ..MethodStats::default()
        }
    }
}
