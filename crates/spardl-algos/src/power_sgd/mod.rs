//! PowerSGD (Vogels et al., "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization", 2019, algorithms 1
//! and 2), as in torch's `powerSGD_hook`. A reference that selects nothing: k is not used, the rank sets the volume.
//!
//! The idea: each matrix M of the gradient is approximated by a product P Q^T of narrow factors, by one step of the power iteration
//! that starts from the Q of the last step. Worker w computes P_w = M_w Q; the sum over workers is made orthonormal, by all
//! in the same way; then Q_w = M_w^T P is summed, and the update is P Q^T, the sum of all M_w projected on the columns of P.
//! Both sums are dense all-reduces, so no index travels. What is not delivered stays in the residual.
//!
//! Words: *rank* = columns of P and Q (option `rank`, 1 as in torch; never more than a matrix has rows or columns). A part of the
//! layout with two or more dimensions is a matrix (first dimension x the rest); vectors, and matrices whose factors have half
//! their elements or more, are *dense*: sent as they are. A bucket without structure (one part of one dimension) is cut
//! into rows to a nearly square matrix, like torch's `batched_powerSGD_hook`; so is a part of one dimension that is too long
//! for a bias (65,536 elements or more).
//!
//! Example, 5 workers, one 6 x 6 matrix, rank 1, worker w has w + 1 everywhere. Q is any unit column with sum s; P_w is
//! (w + 1) s everywhere, the sum 15 s, made a unit column 1/sqrt(6). Q_w is (w + 1) sqrt(6), its sum 15 sqrt(6); the update is 15
//! everywhere, the exact sum. 12 values travelled instead of 36.
//!
//! Residual rules: *own* (default, the paper's): a worker keeps M_w - P Q_w^T, what of its own input was not delivered. *mean*
//! (torch's): it keeps M_w less its share of the update, U/P. In both the residuals and the update add up to the inputs, but only up
//! to the rounding of the products, not `==`; so the law of conservation is not declared. Dense parts leave no residual.
//!
//! Rounds: 4 ceil(log2 P); half of it when nothing is compressed. Bytes: 2 (P - 1)/P values of each factor, that is
//! rank (rows + columns), and of each dense element. The declared cost is that of a bucket without structure; a layout
//! with vectors costs up to as much as `dense`.
//!
//! Limitations: three passes over the gradient for the products, rank times the arithmetic; the update is dense and needs a third array
//! of n words. Under *mean* the workers' deviations from the mean pile up in the residuals.
//!
//! Differs from torch: delivers the sum, not the mean; Q starts from our own generator; a column that depends on the others is
//! set to zero in P and drawn anew in Q, where torch divides by zero or by epsilon; compressed from the first step
//! (torch starts after 1000); with bf16 values the worker that rounds a value of Q or of a dense part keeps the error.

mod matrix;
mod plan;

use spardl_core::phase::{KeepingReduce, all_reduce_bytes, all_reduce_elements};
use spardl_core::schedule::ceil_log2;
use spardl_core::{
    Algorithm, ConfigError, Cost, Estimate, Feedback, HEADER_LEN, Input, Laws, Layout, Machine,
    MethodState, MethodStats, ProtocolError, Received, Round, Update, ValueType, World,
};

use crate::Options;
use crate::registry::Entry;
use crate::splitmix::{mix, number};
use crate::usual::Length;
use matrix::{orthogonalise, outer, times, transposed_times};
use plan::Plan;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "power-sgd",
    summary: "PowerSGD: a low-rank approximation of every matrix, k is not used",
    options: &[
        ("rank", "1 or more (1): columns of the approximation"),
        ("seed", "a number (0): where the iteration starts"),
        (
            "residual",
            "own (what a worker did not deliver), mean (torch: less the mean update)",
        ),
    ],
    source: include_str!("mod.rs"),
    variants: |_| Options::variants(&[&[("rank", "3"), ("residual", "mean")]]),
    build: |options| Ok(Box::new(PowerSgd::from_options(options)?)),
};

/// What a worker keeps of a compressed matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorRule {
    /// What of its own input was not delivered (the paper).
    #[default]
    Own,
    /// Its input less the mean of the update (torch).
    Mean,
}

/// Configuration of PowerSGD.
#[derive(Clone, Copy, Debug)]
pub struct PowerSgd {
    /// How values travel.
    pub values: ValueType,
    /// Columns of the factors, at least 1.
    pub rank: usize,
    /// Where the iteration starts; equal on all workers.
    pub seed: u64,
    /// What a worker keeps.
    pub residual: ErrorRule,
}

impl Default for PowerSgd {
    fn default() -> Self {
        Self {
            values: ValueType::default(),
            rank: 1,
            seed: 0,
            residual: ErrorRule::default(),
        }
    }
}

impl PowerSgd {
    /// PowerSGD with the options that concern it.
    ///
    /// # Errors
    /// When a value is not accepted.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        let name = "power-sgd";
        let whole = |text: &str| text.parse().ok();
        let seed = options.parsed(name, "seed", 0, "a whole number from 0 on", whole)?;
        let positive = |text: &str| {
            text.parse()
                .ok()
                .filter(|rank| (1..=1 << 16).contains(rank))
        };
        let rank = options.parsed(name, "rank", 1, "a whole number from 1 to 65536", positive)?;
        let rule = |text: &str| match text {
            "own" => Some(ErrorRule::Own),
            "mean" => Some(ErrorRule::Mean),
            _ => None,
        };
        let residual = ErrorRule::default();
        let residual = options.parsed(name, "residual", residual, "own or mean", rule)?;
        Ok(Self {
            values: options.codec.values,
            rank,
            seed,
            residual,
        })
    }
}

impl PowerSgd {
    /// What a step costs with runs of this length.
    fn cost_of(&self, length: Length, workers: u32, layout: &Layout) -> Cost {
        let (size, plan) = (workers as usize, Plan::new(layout, self.rank));
        let reduces = if plan.matrices.is_empty() { 1 } else { 2 };
        let rounds = 2 * reduces * ceil_log2(size);
        let sent = |len| all_reduce_bytes(size, len as u32, |count| length.run(self.values, count));
        let (first, second) = (sent(plan.first), sent(plan.second));
        let bytes = (0..size).map(|p| first(p) + second(p));
        Cost {
            rounds: rounds..=rounds,
            messages: u64::from(rounds),
            bytes_max: bytes.max().unwrap_or(0) + u64::from(rounds) * HEADER_LEN as u64,
        }
    }
}

impl Algorithm for PowerSgd {
    fn name(&self) -> &'static str {
        "power-sgd"
    }

    fn describe(&self) -> String {
        let Self {
            values, rank, seed, ..
        } = self;
        let rule = match self.residual {
            ErrorRule::Own => "own",
            ErrorRule::Mean => "mean",
        };
        format!("power-sgd rank={rank} seed={seed} residual={rule} values={values}")
    }

    fn value_type(&self) -> ValueType {
        self.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let plan = Plan::new(layout, self.rank);
        let mut q = vec![0.0; plan.second];
        draw(&mut q, self.seed);
        Ok(Box::new(Worker {
            config: *self,
            world,
            q,
            step: 0,
            phase: Phase::Idle,
            p: Vec::new(),
            update: vec![0.0; layout.len() as usize],
            plan,
        }))
    }

    fn cost(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Cost {
        self.cost_of(Length::Most, workers, layout)
    }

    fn estimate(&self, workers: u32, layout: &Layout, _k: usize, _step: u64) -> Estimate {
        self.cost_of(Length::Usual, workers, layout).into()
    }

    fn laws(&self) -> Laws {
        Laws {
            conserves: false,
            lossless_when_full: false,
            ..Laws::default()
        }
    }
}

/// Where in the step the worker is.
#[derive(Debug)]
enum Phase {
    /// Dense elements and left factors on their way.
    Left(KeepingReduce),
    /// Right factors on their way, and this worker's own.
    Right(KeepingReduce, Vec<f32>),
    /// Between steps.
    Idle,
}

#[derive(Debug)]
struct Worker {
    config: PowerSgd,
    world: World,
    plan: Plan,
    /// The right factors that the next step starts from; the same on all workers.
    q: Vec<f32>,
    step: u64,
    phase: Phase,
    /// What the first all-reduce brought, with the left factors made orthonormal.
    p: Vec<f32>,
    update: Vec<f32>,
}

impl Worker {
    /// Dense elements, then `M_w Q` for each matrix.
    fn left(&mut self, work: &[f32]) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.plan.first);
        for range in &self.plan.dense {
            values.extend_from_slice(&work[range.clone()]);
        }
        values.resize(self.plan.first, 0.0);
        for (at, m) in (0..).zip(&self.plan.matrices) {
            let q = &mut self.q[m.q.clone()];
            let key = number(self.config.seed ^ mix(self.step), at);
            orthogonalise(q, m.cols, |column, q| draw(q, number(key, column as u64)));
            times(&work[m.range.clone()], m.cols, q, &mut values[m.p.clone()]);
        }
        values
    }

    /// Takes the sums of the dense elements and of the left factors; returns `M_w^T P` for each matrix.
    fn right(&mut self, work: &mut [f32], sums: Vec<f32>, errors: &[f32]) -> Vec<f32> {
        let mut at = 0;
        for range in &self.plan.dense {
            let end = at + range.len();
            self.update[range.clone()].copy_from_slice(&sums[at..end]);
            match errors.get(at..end) {
                Some(errors) => work[range.clone()].copy_from_slice(errors),
                None => work[range.clone()].fill(0.0),
            }
            at = end;
        }
        self.p = sums;
        let mut values = vec![0.0; self.plan.second];
        for m in &self.plan.matrices {
            let p = &mut self.p[m.p.clone()];
            orthogonalise(p, m.rows, |_, _| {});
            let q = &mut values[m.q.clone()];
            transposed_times(&work[m.range.clone()], m.cols, p, q);
        }
        values
    }

    /// Takes the right factors: the update is `P Q^T`, the residual what of it is not this worker's.
    fn finish(&mut self, work: &mut [f32], sums: Vec<f32>, mut own: Vec<f32>, errors: &[f32]) {
        // What a worker delivered is its own factor less the rounding errors it kept.
        own.iter_mut()
            .zip(errors)
            .for_each(|(own, error)| *own -= error);
        let share = 1.0 / self.world.size() as f32;
        if self.config.residual == ErrorRule::Mean {
            own.clone_from(&sums);
            own.iter_mut().for_each(|own| *own *= share);
        }
        for m in &self.plan.matrices {
            let p = &self.p[m.p.clone()];
            let update = &mut self.update[m.range.clone()];
            outer(p, &sums[m.q.clone()], m.rows, m.cols, |i, row| {
                let start = i * m.cols;
                let end = update.len().min(start + m.cols);
                update[start..end].copy_from_slice(&row[..end - start]);
            });
            let work = &mut work[m.range.clone()];
            outer(p, &own[m.q.clone()], m.rows, m.cols, |i, row| {
                for (work, delivered) in work[i * m.cols..].iter_mut().zip(row) {
                    let rest = *work - delivered;
                    // Only near the end of the range of f32; nothing infinite may enter a residual.
                    *work = if rest.is_finite() { rest } else { 0.0 };
                }
            });
        }
        self.q = sums;
    }
}

impl Machine for Worker {
    fn begin(&mut self, feedback: &mut Feedback, input: Input<'_>) {
        feedback.load(input.gradient);
        self.step = input.step;
        let values = self.config.values;
        let left = self.left(feedback.work());
        self.phase = Phase::Left(KeepingReduce::new(self.world.everyone(), left, values));
    }

    fn round(&mut self, feedback: &mut Feedback) -> Result<Option<Round>, ProtocolError> {
        loop {
            let round = match &mut self.phase {
                Phase::Left(reduce) | Phase::Right(reduce, _) => reduce.round(),
                Phase::Idle => return Ok(None),
            };
            if round.is_some() {
                return Ok(round);
            }
            let work = feedback.work_mut();
            match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Left(reduce) => {
                    let (sums, errors) = reduce.finish();
                    let own = self.right(work, sums, &errors);
                    if !self.plan.matrices.is_empty() {
                        let (everyone, values) = (self.world.everyone(), self.config.values);
                        let reduce = KeepingReduce::new(everyone, own.clone(), values);
                        self.phase = Phase::Right(reduce, own);
                    }
                }
                Phase::Right(reduce, own) => {
                    let (sums, errors) = reduce.finish();
                    self.finish(work, sums, own, &errors);
                }
                Phase::Idle => {}
            }
        }
    }

    fn absorb(&mut self, _: &mut Feedback, received: Received<'_>) -> Result<(), ProtocolError> {
        match &mut self.phase {
            Phase::Left(reduce) | Phase::Right(reduce, _) => reduce.absorb(received),
            Phase::Idle => Ok(()),
        }
    }

    fn update<'a>(&'a self, _: &'a Feedback) -> Update<'a> {
        Update::Dense(&self.update)
    }

    fn stats(&self) -> MethodStats {
        let (position, size) = (self.world.rank().index(), self.world.size() as usize);
        let sent = |len| all_reduce_elements(position, size, len as u32);
        MethodStats {
            entries_sent: sent(self.plan.first) + sent(self.plan.second),
            ..MethodStats::default()
        }
    }

    fn state(&self) -> MethodState {
        MethodState::default().with_f32("q", self.q.as_slice())
    }

    fn restore(&mut self, state: &MethodState) -> Result<(), ConfigError> {
        let q = state.f32("q")?;
        if q.len() != self.q.len() {
            return Err(ConfigError::StateMismatch {
                what: "the length of q".to_owned(),
                expected: self.q.len().to_string(),
                got: q.len().to_string(),
            });
        }
        if let Some(value) = q.iter().find(|value| !value.is_finite()) {
            return Err(ConfigError::StateMismatch {
                what: "q".to_owned(),
                expected: "finite".to_owned(),
                got: format!("{value} in it"),
            });
        }
        self.q.copy_from_slice(q);
        Ok(())
    }
}

/// Fills a column with numbers in -1..1, the same for the same key.
fn draw(column: &mut [f32], key: u64) {
    for (i, value) in (0..).zip(column) {
        *value = (number(mix(key), i) >> 40) as f32 / (1 << 23) as f32 - 1.0;
    }
}

#[cfg(test)]
mod tests;
