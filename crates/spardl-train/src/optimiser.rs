//! Stochastic gradient descent on flat parameters, in the forms that the papers use.
//!
//! | rule | what is reduced | after the reduction (`u` is the mean update) |
//! | --- | --- | --- |
//! | [`Rule::Sgd`] (SparDL, ExDyna) | the raw gradient `g` | `v = m v + u + decay w`, `w -= lr v` |
//! | [`Rule::Sgd`] with momentum correction (DGC) | `c = m c + g`, on each worker | `w -= lr (u + decay w)` |
//! | [`Rule::OkTopk`] (Algorithm 2 of the Ok-Topk paper) | `lr g`, or `lr c` | `w -= u + lr decay w` |
//!
//! **Units of the residual.** With [`Rule::Sgd`] the residual holds gradients: mass that waits is applied with the learning rate
//! of the step in which it is delivered, so after a drop of the rate old mass counts less. With [`Rule::OkTopk`] it holds
//! parameter changes: mass that waits keeps the rate of the step in which it arose, so after a drop old mass outweighs new
//! for a while.

use serde::{Deserialize, Serialize};

/// Where the learning rate and the momentum come in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Raw gradients are reduced; learning rate, momentum and decay come after.
    #[default]
    Sgd,
    /// The learning rate is inside what is reduced.
    OkTopk,
}

/// Everything that shapes a step but the learning rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Where the learning rate comes in.
    pub rule: Rule,
    /// The part of the last step that goes on.
    pub momentum: f32,
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
}

/// One worker's optimiser.
///
/// The velocity is the same on all workers, except with momentum correction, where each has its own.
#[derive(Clone, Debug)]
pub struct Optimiser {
    options: Options,
    velocity: Vec<f32>,
    /// With momentum correction: the velocity of a step that is not yet known to count.
    next: Vec<f32>,
}

impl Optimiser {
    /// An optimiser of `len` parameters at rest.
    pub fn new(options: Options, len: usize) -> Self {
        let len = if options.momentum == 0.0 { 0 } else { len };
        let own = options.momentum_correction;
        Self {
            options,
            velocity: vec![0.0; len],
            next: vec![0.0; if own { len } else { 0 }],
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
    pub fn apply(&mut self, parameters: &mut [f32], update: &[f32], lr: f32) {
        let Options {
            rule,
            momentum,
            nesterov,
            weight_decay: decay,
            momentum_correction,
            ..
        } = self.options;
        // What the learning rate still has to be put on.
        let (rate, decay) = match rule {
            Rule::Sgd => (lr, decay),
            Rule::OkTopk => (1.0, lr * decay),
        };
        if self.velocity.is_empty() || momentum_correction {
            std::mem::swap(&mut self.velocity, &mut self.next);
            for (parameter, update) in parameters.iter_mut().zip(update) {
                *parameter -= rate * (update + decay * *parameter);
            }
            return;
        }
        let moved = parameters.iter_mut().zip(update).zip(&mut self.velocity);
        for ((parameter, update), velocity) in moved {
            let slope = update + decay * *parameter;
            *velocity = momentum * *velocity + slope;
            let step = if nesterov {
                slope + momentum * *velocity
            } else {
                *velocity
            };
            *parameter -= rate * step;
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

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Options = Options {
        rule: Rule::Sgd,
        momentum: 0.5,
        nesterov: false,
        weight_decay: 0.0,
        momentum_correction: false,
        factor_masking: false,
        clip: None,
    };

    /// Where one parameter gets to from 1 with these gradients, one worker, everything delivered.
    fn walk(options: Options, gradients: &[f32], lr: impl Fn(usize) -> f32) -> f32 {
        let (mut optimiser, mut parameter) = (Optimiser::new(options, 1), [1.0]);
        for (step, gradient) in gradients.iter().enumerate() {
            let mut gradient = [*gradient];
            optimiser.prepare(&mut gradient, lr(step));
            optimiser.apply(&mut parameter, &gradient, lr(step));
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
        let mut optimiser = Optimiser::new(options, 3);
        optimiser.prepare(&mut [1.0, 2.0, 3.0], 0.1);
        optimiser.mask(1, [1].into_iter());
        optimiser.apply(&mut [0.0; 3], &[0.0; 3], 0.1);
        assert_eq!(optimiser.velocity(), [1.0, 2.0, 0.0]);
    }

    #[test]
    fn a_step_that_is_dropped_leaves_the_velocity_as_it_was() {
        let options = Options {
            momentum_correction: true,
            ..PLAIN
        };
        let mut optimiser = Optimiser::new(options, 1);
        optimiser.prepare(&mut [2.0], 0.1);
        optimiser.apply(&mut [0.0], &[2.0], 0.1);
        optimiser.prepare(&mut [f32::NAN], 0.1);
        assert_eq!(optimiser.velocity(), [2.0]);
        let mut gradient = [1.0];
        optimiser.prepare(&mut gradient, 0.1);
        assert_eq!(gradient, [2.0]);
    }
}
