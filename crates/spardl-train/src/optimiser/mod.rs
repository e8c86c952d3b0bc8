//! Stochastic gradient descent on flat parameters, in the forms that the papers use, and Adam.
//!
//! | rule | what is reduced | after the reduction (`u` is the mean update) |
//! | --- | --- | --- |
//! | [`Rule::Sgd`] (SparDL, ExDyna) | the raw gradient `g` | `v = m v + u + decay w`, `w -= lr v` |
//! | the same while mass is held back | the raw gradient `g` | `w -= lr (m v + a u + decay w)`, `v = m v + b u + decay w`; see `by_wait.rs` |
//! | the same with a fixed momentum `s` there | the raw gradient `g` | `v = s v + u + decay w`, `w -= lr (1 - s) / (1 - m) v` |
//! | [`Rule::Sgd`] with momentum correction (DGC) | `c = m c + g`, on each worker | `d = m d + decay w`, `w -= lr (u + d)` |
//! | [`Rule::OkTopk`] (Algorithm 2 of the Ok-Topk paper) | `lr g`, or `lr c` | `w -= u + lr decay w`, or `w -= u + lr d` |
//! | [`Rule::Adam`], [`Rule::AdamW`] | the raw gradient `g` | see `adam.rs` |
//!
//! **Momentum hand-over.** What waits in the residual needs less momentum ([`SparseMomentum`]). By default every element has what
//! its wait leaves. A fixed `s` raises the rate so that a step keeps its length, and the velocity is dropped where one takes over
//! from the other.
//!
//! **Units of the residual.** With [`Rule::Sgd`] the residual holds gradients: mass that waits is applied with the learning rate
//! of the step in which it is delivered, so after a drop of the rate old mass counts less. With [`Rule::OkTopk`] it holds
//! parameter changes: mass that waits keeps the rate of the step in which it arose, so after a drop old mass outweighs new
//! for a while.

mod adam;
mod by_wait;
mod descent;
mod sparse_momentum;
mod stretch;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use spardl::Layout;

use adam::{Moments, Weights};
use by_wait::ByWait;
use descent::Descent;
use stretch::{Stretch, stretches};

pub use adam::{AdamOptions, SecondMoment};
pub use sparse_momentum::SparseMomentum;

/// Where the learning rate and the momentum come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Raw gradients are reduced; learning rate, momentum and decay come after.
    #[default]
    Sgd,
    /// The learning rate is inside what is reduced.
    OkTopk,
    /// Raw gradients are reduced; the step is divided by the root of their mean square. Weight decay is a part of the gradient.
    Adam,
    /// The same with weight decay apart from the gradient.
    #[serde(rename = "adamw")]
    AdamW,
}

impl Rule {
    /// Has it a second moment?
    pub const fn is_adam(self) -> bool {
        matches!(self, Self::Adam | Self::AdamW)
    }
}

/// Everything that shapes a step but the learning rate; by default plain gradient descent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Where the learning rate comes in.
    pub rule: Rule,
    /// The part of the last step that goes on; Adam's beta1. From 0 to below 1.
    pub momentum: f32,
    /// The same for steps that hold mass back; of no effect with momentum correction.
    pub sparse_momentum: SparseMomentum,
    /// Looks ahead along the momentum.
    pub nesterov: bool,
    /// The part of a parameter that is taken off per unit of learning rate.
    pub weight_decay: f32,
    /// Momentum on each worker before the reduction, as in Deep Gradient Compression.
    pub momentum_correction: bool,
    /// With momentum correction: a worker's momentum stops where its mass was delivered.
    pub factor_masking: bool,
    /// The longest a worker's gradient may be (its L2 norm); longer ones are scaled down.
    pub clip: Option<f32>,
    /// Tensors of fewer dimensions have no weight decay: with 2 those of normalisation, and biases.
    pub no_decay_below_dims: usize,
    /// What only Adam has.
    pub adam: AdamOptions,
}

impl Options {
    /// Does momentum go by how long each element waited?
    fn goes_by_wait(&self) -> bool {
        self.sparse_momentum == SparseMomentum::Auto
            && self.rule == Rule::Sgd
            && !self.momentum_correction
            && self.momentum != 0.0
    }
}

/// What is different from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The learning rate.
    pub lr: f32,
    /// The part of the mass that is delivered: 1 when nothing is held back.
    pub density: f64,
}

/// One worker's optimiser.
///
/// What it keeps is the same on all workers, except the velocity with momentum correction, where each has its own.
#[derive(Clone, Debug)]
pub struct Optimiser {
    options: Options,
    stretches: Vec<Stretch>,
    velocity: Vec<f32>,
    /// With momentum correction: the velocity of a step that is not yet known to count.
    next: Vec<f32>,
    /// With momentum correction: the velocity that weight decay alone has.
    decay: Vec<f32>,
    /// Adam's second moment, and how much both have seen; the velocity is the first.
    moments: Moments,
    /// The momentum of the last step: the velocity is of its kind.
    momentum: f32,
    /// What decides when momentum goes by how long each element waited.
    by_wait: Option<ByWait>,
    /// With it: steps since each element was last delivered.
    waits: Vec<f32>,
}

impl Optimiser {
    /// An optimiser at rest, of parameters of this layout. Those of tensors of fewer than `whole_below_dims` dimensions are always
    /// reduced whole.
    pub fn new(options: Options, layout: &Layout, whole_below_dims: usize) -> Self {
        let len = layout.len() as usize;
        let rest = |needed: bool| vec![0.0; if needed { len } else { 0 }];
        let moves = options.momentum != 0.0;
        let own = options.momentum_correction;
        let adam = options.rule.is_adam();
        let by_wait = options.goes_by_wait();
        Self {
            options,
            stretches: stretches(layout, options.no_decay_below_dims, whole_below_dims),
            velocity: rest(moves || adam || options.sparse_momentum.at(0.0, 0.0) != 0.0),
            next: rest(own && moves),
            decay: rest(own && options.weight_decay != 0.0),
            moments: Moments {
                second: rest(adam),
                weights: Weights::default(),
            },
            momentum: options.momentum,
            by_wait: by_wait.then(|| ByWait::new(options.momentum, options.nesterov)),
            waits: rest(by_wait),
        }
    }

    /// Steps since each element was last delivered; empty unless momentum goes by that.
    pub fn waits(&self) -> &[f32] {
        &self.waits
    }

    /// Replaces them; there must be as many.
    ///
    /// # Panics
    /// When there are not.
    pub fn set_waits(&mut self, waits: &[f32]) {
        self.waits.copy_from_slice(waits);
    }

    /// Is the velocity a worker's own, so that it has to be saved for each?
    pub const fn is_local(&self) -> bool {
        self.options.momentum_correction
    }

    /// Does momentum stop where mass was delivered?
    pub fn masks(&self) -> bool {
        self.options.momentum_correction && self.options.factor_masking && !self.velocity.is_empty()
    }

    /// The velocity; empty without momentum.
    pub fn velocity(&self) -> &[f32] {
        &self.velocity
    }

    /// Replaces the velocity, which must have the same length.
    ///
    /// # Panics
    /// When it has not.
    pub fn set_velocity(&mut self, velocity: &[f32]) {
        self.velocity.copy_from_slice(velocity);
    }

    /// The velocity of weight decay; empty unless there is momentum correction.
    pub fn decay(&self) -> &[f32] {
        &self.decay
    }

    /// Replaces the velocity of weight decay, which must have the same length.
    ///
    /// # Panics
    /// When it has not.
    pub fn set_decay(&mut self, decay: &[f32]) {
        self.decay.copy_from_slice(decay);
    }

    /// The second moment; empty but for Adam.
    pub fn second_moment(&self) -> &[f32] {
        &self.moments.second
    }

    /// Replaces the second moment, which must have the same length.
    ///
    /// # Panics
    /// When it has not.
    pub fn set_second_moment(&mut self, second: &[f32]) {
        self.moments.second.copy_from_slice(second);
    }

    /// What else it goes on with: the momentum of the last step, and how much the moments have seen.
    pub const fn numbers(&self) -> [f32; 4] {
        let Weights {
            first,
            second,
            kept,
        } = self.moments.weights;
        [self.momentum, first, second, kept]
    }

    /// Goes on with what [`Optimiser::numbers`] gave.
    pub const fn set_numbers(&mut self, numbers: [f32; 4]) {
        let [momentum, first, second, kept] = numbers;
        self.momentum = momentum;
        self.moments.weights = Weights {
            first,
            second,
            kept,
        };
    }

    /// Should the whole gradient be reduced in the step of this number, if mass would be held back, to see its squares?
    pub fn wants_whole(&self, step: u64) -> bool {
        let AdamOptions {
            second_moment,
            dense_steps,
            refresh_every,
            ..
        } = self.options.adam;
        let freezes = self.options.rule.is_adam() && second_moment == SecondMoment::Frozen;
        let due = refresh_every > 0 && step.is_multiple_of(refresh_every);
        let begins = step < dense_steps || self.moments.weights.second == 0.0;
        freezes && (due || begins)
    }

    /// Turns this worker's gradient into what is reduced. Nothing of it stays unless [`Optimiser::apply`] follows: a step that is
    /// dropped, because of a NaN for example, leaves the velocity as it was.
    pub fn prepare(&mut self, gradient: &mut [f32], lr: f32) {
        if let Some(limit) = self.options.clip {
            clip(gradient, limit);
        }
        if self.options.momentum_correction && !self.velocity.is_empty() {
            let momentum = self.options.momentum;
            let before_and_after = self.velocity.iter().zip(&mut self.next);
            for (gradient, (velocity, next)) in gradient.iter_mut().zip(before_and_after) {
                *next = momentum * velocity + *gradient;
                *gradient = if self.options.nesterov {
                    *gradient + momentum * *next
                } else {
                    *next
                };
            }
        }
        if self.options.rule == Rule::OkTopk {
            gradient.iter_mut().for_each(|value| *value *= lr);
        }
    }

    /// Moves the parameters by the mean update of all workers.
    pub fn apply(&mut self, parameters: &mut [f32], update: &[f32], pace: Pace) {
        // What the learning rate still has to be put on.
        let (rate, decay) = match self.options.rule {
            Rule::Sgd | Rule::Adam | Rule::AdamW => (pace.lr, self.options.weight_decay),
            Rule::OkTopk => (1.0, pace.lr * self.options.weight_decay),
        };
        if self.options.momentum_correction {
            return self.apply_corrected(parameters, update, rate, pace.lr);
        }
        if self.apply_by_wait(parameters, update, (rate, decay), pace.density) {
            return;
        }
        self.hand_over(pace.density);
        if self.options.rule.is_adam() {
            return self.apply_adam(parameters, update, pace);
        }
        let Options {
            momentum, nesterov, ..
        } = self.options;
        for stretch in &self.stretches {
            let range = stretch.range.clone();
            let left = if stretch.is_whole {
                momentum
            } else {
                self.momentum
            };
            let descent = Descent {
                rate: rate * ((1.0 - left) / (1.0 - momentum)),
                decay: if stretch.decays { decay } else { 0.0 },
                momentum: left,
                nesterov,
            };
            let (parameters, update) = (&mut parameters[range.clone()], &update[range.clone()]);
            match left == 0.0 {
                true => descent.step(parameters, update),
                false => descent.step_with(&mut self.velocity[range], parameters, update),
            }
        }
    }

    /// A step with momentum by wait; or nothing, and false, where momentum does not go by that or nothing waited.
    fn apply_by_wait(
        &mut self,
        parameters: &mut [f32],
        update: &[f32],
        (rate, decay): (f32, f32),
        density: f64,
    ) -> bool {
        let Some(by_wait) = &self.by_wait else {
            return false;
        };
        let is_whole = density >= 1.0;
        // The first whole step after others delivers what waited.
        if is_whole && self.waits.iter().all(|wait| *wait == 0.0) {
            return false;
        }
        for stretch in &self.stretches {
            let range = stretch.range.clone();
            let waits = &mut self.waits[range.clone()];
            by_wait.step(
                (rate, if stretch.decays { decay } else { 0.0 }),
                &mut parameters[range.clone()],
                &update[range.clone()],
                &mut self.velocity[range],
                waits,
            );
            if is_whole || stretch.is_whole {
                // Also where what was delivered is zero.
                waits.fill(0.0);
            }
        }
        true
    }

    /// Finds the momentum of a step of this density. Where it changes the velocity is dropped: the residual takes its part over.
    fn hand_over(&mut self, density: f64) {
        let Options {
            momentum,
            sparse_momentum,
            ..
        } = self.options;
        let momentum = sparse_momentum.at(momentum, density);
        if momentum != self.momentum && !self.velocity.is_empty() {
            // The moments of Adam have seen the same steps everywhere.
            let all = self.options.rule.is_adam();
            let stretches = self.stretches.iter();
            let handed = stretches.filter(|stretch| all || !stretch.is_whole);
            handed.for_each(|stretch| self.velocity[stretch.range.clone()].fill(0.0));
            self.moments.weights.first = 0.0;
        }
        self.momentum = momentum;
    }

    fn apply_adam(&mut self, parameters: &mut [f32], update: &[f32], pace: Pace) {
        let Options {
            rule,
            weight_decay,
            adam,
            ..
        } = self.options;
        let moves = pace.density >= 1.0 || adam.second_moment == SecondMoment::Running;
        let Moments { second, weights } = &mut self.moments;
        let step = weights.step(adam, pace.lr, self.momentum, moves, rule == Rule::AdamW);
        for stretch in &self.stretches {
            let range = stretch.range.clone();
            step.apply(
                &mut parameters[range.clone()],
                &update[range.clone()],
                &mut self.velocity[range.clone()],
                &mut second[range],
                if stretch.decays { weight_decay } else { 0.0 },
            );
        }
    }

    /// Momentum was put on the gradients before the reduction; weight decay, which is the same on all workers, has it here.
    fn apply_corrected(&mut self, parameters: &mut [f32], update: &[f32], rate: f32, lr: f32) {
        let Options {
            momentum,
            nesterov,
            weight_decay,
            ..
        } = self.options;
        std::mem::swap(&mut self.velocity, &mut self.next);
        let moved = parameters.iter_mut().zip(update);
        if self.decay.is_empty() {
            moved.for_each(|(parameter, update)| *parameter -= rate * update);
            return;
        }
        let mut decays = self.stretches.iter().flat_map(|stretch| {
            let decay = if stretch.decays { weight_decay } else { 0.0 };
            stretch.range.clone().map(move |_| decay)
        });
        for ((parameter, update), velocity) in moved.zip(&mut self.decay) {
            let slope = decays.next().unwrap_or(0.0) * *parameter;
            *velocity = momentum * *velocity + slope;
            let step = if nesterov {
                slope + momentum * *velocity
            } else {
                *velocity
            };
            *parameter -= rate * update + lr * step;
        }
    }

    /// Factor masking: stops the momentum of the elements at `offset + index` that were delivered whole; before
    /// [`Optimiser::apply`].
    pub fn mask(&mut self, offset: usize, delivered: impl Iterator<Item = usize>) {
        if self.masks() {
            for index in delivered {
                self.next[offset + index] = 0.0;
            }
        }
    }
}

/// Scales `gradient` down to the norm `limit` when it is longer. A norm that is not finite is left for others to see.
fn clip(gradient: &mut [f32], limit: f32) {
    let squares: f64 = gradient.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    let norm = squares.sqrt();
    if norm.is_finite() && norm > f64::from(limit) {
        let scale = (f64::from(limit) / norm) as f32;
        gradient.iter_mut().for_each(|value| *value *= scale);
    }
}
