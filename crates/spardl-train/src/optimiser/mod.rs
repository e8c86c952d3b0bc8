//! Stochastic gradient descent on flat parameters, in the forms that the papers use, and Adam.
//!
//! | rule | what is reduced | after the reduction (`u` is the mean update) |
//! | --- | --- | --- |
//! | [`Rule::Sgd`] (SparDL, ExDyna) | the raw gradient `g` | `v = m v + u + decay w`, `w -= lr v` |
//! | the same while mass is held back | the raw gradient `g` | `v = s v + u + decay w`, `w -= lr (1 - s) / (1 - m) v` |
//! | [`Rule::Sgd`] with momentum correction (DGC) | `c = m c + g`, on each worker | `d = m d + decay w`, `w -= lr (u + d)` |
//! | [`Rule::OkTopk`] (Algorithm 2 of the Ok-Topk paper) | `lr g`, or `lr c` | `w -= u + lr decay w`, or `w -= u + lr d` |
//!
//! | [`Rule::Adam`], [`Rule::AdamW`] | the raw gradient `g` | see `adam.rs` |
//!
//! **Momentum hand-over.** `s` is the momentum of steps that hold mass back ([`SparseMomentum`]); the raised rate keeps the length
//! of a step, and the velocity is dropped where one takes over from the other.
//!
//! **Units of the residual.** With [`Rule::Sgd`] the residual holds gradients: mass that waits is applied with the learning rate
//! of the step in which it is delivered, so after a drop of the rate old mass counts less. With [`Rule::OkTopk`] it holds
//! parameter changes: mass that waits keeps the rate of the step in which it arose, so after a drop old mass outweighs new
//! for a while.

mod adam;
mod sparse_momentum;

use std::ops::Range;

use serde::{Deserialize, Serialize};
use spardl::Layout;

use adam::{Moments, Weights};

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
    /// The part of the last step that goes on; Adam's beta1.
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
}

/// Neighbouring elements that are treated alike.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stretch {
    range: Range<usize>,
    /// Have they weight decay?
    decays: bool,
    /// Are they always reduced whole?
    is_whole: bool,
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
        }
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

/// The numbers of a step, for a stretch.
struct Descent {
    rate: f32,
    decay: f32,
    momentum: f32,
    nesterov: bool,
}

impl Descent {
    /// Without momentum.
    fn step(&self, parameters: &mut [f32], update: &[f32]) {
        for (parameter, update) in parameters.iter_mut().zip(update) {
            *parameter -= self.rate * (update + self.decay * *parameter);
        }
    }

    fn step_with(&self, velocity: &mut [f32], parameters: &mut [f32], update: &[f32]) {
        let moved = parameters.iter_mut().zip(update).zip(velocity);
        for ((parameter, update), velocity) in moved {
            let slope = update + self.decay * *parameter;
            *velocity = self.momentum * *velocity + slope;
            let step = if self.nesterov {
                slope + self.momentum * *velocity
            } else {
                *velocity
            };
            *parameter -= self.rate * step;
        }
    }
}

/// The fewest stretches in which all elements are treated alike.
fn stretches(layout: &Layout, no_decay_below: usize, whole_below: usize) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for part in layout.parts() {
        let (start, dims) = (part.offset as usize, part.shape.len());
        let next = Stretch {
            range: start..start + part.len(),
            decays: dims >= no_decay_below,
            is_whole: dims < whole_below,
        };
        match stretches.last_mut() {
            Some(last) if (last.decays, last.is_whole) == (next.decays, next.is_whole) => {
                last.range.end = next.range.end;
            }
            _ => stretches.push(next),
        }
    }
    stretches
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

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Options = Options {
        rule: Rule::Sgd,
        momentum: 0.5,
        sparse_momentum: SparseMomentum::Auto,
        nesterov: false,
        weight_decay: 0.0,
        momentum_correction: false,
        factor_masking: false,
        clip: None,
        no_decay_below_dims: 0,
        adam: AdamOptions::USUAL,
    };

    /// An optimiser of one tensor.
    fn optimiser(options: Options, len: usize) -> Optimiser {
        let layout = Layout::new([("w".to_owned(), vec![len])]).expect("a short tensor");
        Optimiser::new(options, &layout, 0)
    }

    fn dense(lr: f32) -> Pace {
        Pace { lr, density: 1.0 }
    }

    /// Where one parameter gets to from 1 with these gradients, one worker, everything delivered.
    fn walk(options: Options, gradients: &[f32], lr: impl Fn(usize) -> f32) -> f32 {
        let (mut optimiser, mut parameter) = (optimiser(options, 1), [1.0]);
        for (step, gradient) in gradients.iter().enumerate() {
            let mut gradient = [*gradient];
            optimiser.prepare(&mut gradient, lr(step));
            optimiser.apply(&mut parameter, &gradient, dense(lr(step)));
        }
        parameter[0]
    }

    #[test]
    fn momentum_and_decay_come_after_the_reduction() {
        // v = 2, w = 1 - 0.25 * 2; v = 1 + 4, w -= 0.25 * 5.
        assert_eq!(walk(PLAIN, &[2.0, 4.0], |_| 0.25), -0.75);
        let decay = Options {
            weight_decay: 0.5,
            ..PLAIN
        };
        // slope = 2 + 0.5, v = 2.5, w = 1 - 0.625.
        assert_eq!(walk(decay, &[2.0], |_| 0.25), 0.375);
        let nesterov = Options {
            nesterov: true,
            ..PLAIN
        };
        // v = 2, step = 2 + 0.5 * 2.
        assert_eq!(walk(nesterov, &[2.0], |_| 0.25), 0.25);
    }

    #[test]
    fn with_everything_delivered_all_rules_walk_the_same_way() {
        let correction = Options {
            momentum_correction: true,
            ..PLAIN
        };
        let inside = Options {
            rule: Rule::OkTopk,
            ..correction
        };
        let gradients = [2.0, 4.0, -1.0, 0.5];
        let plain = walk(PLAIN, &gradients, |_| 0.25);
        assert_eq!(walk(correction, &gradients, |_| 0.25), plain);
        assert_eq!(walk(inside, &gradients, |_| 0.25), plain);
        // Weight decay has the same momentum under all of them: v = 0.5, w = 0.875; v = 0.25 + 0.4375, w -= 0.25 v.
        for options in [PLAIN, correction, inside] {
            let decay = Options {
                weight_decay: 0.5,
                ..options
            };
            assert_eq!(walk(decay, &[0.0, 0.0], |_| 0.25), 0.703_125);
        }
    }

    #[test]
    fn a_step_that_holds_mass_back_hands_momentum_over_and_keeps_its_length() {
        let pace = |density| Pace { lr: 0.25, density };
        let mut optimiser = optimiser(PLAIN, 1);
        let mut parameter = [1.0];
        optimiser.apply(&mut parameter, &[2.0], pace(1.0));
        assert_eq!((parameter, optimiser.velocity()), ([0.5], &[2.0][..]));
        // The velocity is dropped and the rate is doubled: w = 0.5 - 0.25 / (1 - 0.5) * 0.5.
        optimiser.apply(&mut parameter, &[0.5], pace(0.01));
        assert_eq!((parameter, optimiser.velocity()), ([0.25], &[0.0][..]));
        // Back in dense steps momentum starts from rest.
        optimiser.apply(&mut parameter, &[1.0], pace(1.0));
        assert_eq!((parameter, optimiser.velocity()), ([0.0], &[1.0][..]));
    }

    #[test]
    fn vectors_may_go_without_decay_and_whole_ones_keep_their_momentum() {
        let tensors = [("w", vec![1, 1]), ("b", vec![1])];
        let tensors = tensors.map(|(name, shape)| (name.to_owned(), shape));
        let layout = Layout::new(tensors).expect("short tensors");
        let options = Options {
            weight_decay: 0.5,
            no_decay_below_dims: 2,
            ..PLAIN
        };
        let mut optimiser = Optimiser::new(options, &layout, 2);
        let mut parameters = [1.0, 1.0];
        let pace = |density| Pace { lr: 0.25, density };
        optimiser.apply(&mut parameters, &[0.0, 2.0], pace(1.0));
        assert_eq!(parameters, [0.875, 0.5]);
        // w = 0.875 - 0.5 * 0.4375 without a velocity, and the bias goes on with one of 1.
        optimiser.apply(&mut parameters, &[0.0, 0.0], pace(0.01));
        assert_eq!(parameters, [0.656_25, 0.25]);
    }

    #[test]
    fn a_sparse_momentum_of_the_same_size_hands_nothing_over() {
        let same = Options {
            sparse_momentum: SparseMomentum::Fixed(0.5),
            ..PLAIN
        };
        let mut optimiser = optimiser(same, 1);
        let mut parameter = [1.0];
        for (gradient, density) in [(2.0, 1.0), (4.0, 0.01)] {
            optimiser.apply(&mut parameter, &[gradient], Pace { lr: 0.25, density });
        }
        assert_eq!(parameter[0], walk(PLAIN, &[2.0, 4.0], |_| 0.25));
    }

    #[test]
    fn a_long_gradient_is_scaled_to_the_limit_and_a_short_one_left() {
        let mut long = [3.0, 4.0];
        clip(&mut long, 1.0);
        assert_eq!(long, [0.6, 0.8]);
        let mut short = [0.3, 0.4];
        clip(&mut short, 1.0);
        assert_eq!(short, [0.3, 0.4]);
        let mut broken = [f32::NAN, 1.0];
        clip(&mut broken, 1.0);
        assert!(broken[0].is_nan() && broken[1] == 1.0);
    }

    #[test]
    fn masking_stops_the_momentum_of_delivered_elements_only() {
        let options = Options {
            momentum_correction: true,
            factor_masking: true,
            ..PLAIN
        };
        let mut optimiser = optimiser(options, 3);
        optimiser.prepare(&mut [1.0, 2.0, 3.0], 0.1);
        optimiser.mask(1, [1].into_iter());
        optimiser.apply(&mut [0.0; 3], &[0.0; 3], dense(0.1));
        assert_eq!(optimiser.velocity(), [1.0, 2.0, 0.0]);
    }

    #[test]
    fn a_step_that_is_dropped_leaves_the_velocity_as_it_was() {
        let options = Options {
            momentum_correction: true,
            ..PLAIN
        };
        let mut optimiser = optimiser(options, 1);
        optimiser.prepare(&mut [2.0], 0.1);
        optimiser.apply(&mut [0.0], &[2.0], dense(0.1));
        optimiser.prepare(&mut [f32::NAN], 0.1);
        assert_eq!(optimiser.velocity(), [2.0]);
        let mut gradient = [1.0];
        optimiser.prepare(&mut gradient, 0.1);
        assert_eq!(gradient, [2.0]);
    }
}
