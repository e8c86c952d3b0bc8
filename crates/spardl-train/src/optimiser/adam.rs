//! Adam and AdamW, on updates that come late.
//!
//! What is reduced is the raw gradient, so the residual holds gradients, as with SGD. A sparse update is not a gradient, though:
//! most of it is zero, and the rest is the sum of many steps. Its squares say nothing about those of gradients. So the second
//! moment is taken from dense steps only and stays as it is while mass is held back ([`SecondMoment::Frozen`]); a rare dense step
//! refreshes it, and counts for all the steps since the last one. The first moment is handed over like momentum.
//! [`SecondMoment::Running`] is plain Adam on whatever is delivered, for comparison.

use serde::{Deserialize, Serialize};

/// What becomes of the second moment while mass is held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecondMoment {
    /// It stays that of the last dense steps.
    #[default]
    Frozen,
    /// It follows what is delivered.
    Running,
}

/// What only Adam has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamOptions {
    /// The part of the second moment that goes on to the next step.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// What becomes of the second moment while mass is held back.
    pub second_moment: SecondMoment,
    /// The first steps, all dense with a frozen second moment: the squares of a few gradients are nearly zero by chance at some
    /// elements, which would then fly off.
    pub dense_steps: u64,
    /// Steps from one dense step that refreshes a frozen second moment to the next; 0: never.
    pub refresh_every: u64,
}

impl AdamOptions {
    /// The usual numbers.
    pub const USUAL: Self = Self {
        beta2: 0.999,
        epsilon: 1e-8,
        second_moment: SecondMoment::Frozen,
        dense_steps: 100,
        refresh_every: 500,
    };
}

impl Default for AdamOptions {
    fn default() -> Self {
        Self::USUAL
    }
}

/// The second moment and how much each moment has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    pub(super) second: Vec<f32>,
    pub(super) weights: Weights,
}

/// What the moments would be if every slope had been 1: what they are divided by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weights {
    pub(super) first: f32,
    pub(super) second: f32,
    /// What is left of the second moment after the steps in which it stayed.
    pub(super) kept: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            first: 0.0,
            second: 0.0,
            kept: 1.0,
        }
    }
}

/// The numbers of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdamStep {
    lr: f32,
    beta1: f32,
    /// What is left of the second moment before this step is added to it; 1 when it stays.
    beta2: f32,
    epsilon: f32,
    weights: Weights,
    /// Weight decay: apart from the gradient (AdamW), or a part of it.
    decoupled: bool,
}

impl Weights {
    /// The step of these numbers, in which the second moment moves or stays.
    pub(super) fn step(
        &mut self,
        options: AdamOptions,
        lr: f32,
        beta1: f32,
        moves: bool,
        decoupled: bool,
    ) -> AdamStep {
        self.first = beta1 * self.first + (1.0 - beta1);
        self.kept *= options.beta2;
        let mut beta2 = 1.0;
        // Without any second moment the first update has to make one.
        if moves || self.second == 0.0 {
            beta2 = std::mem::replace(&mut self.kept, 1.0);
            self.second = beta2 * self.second + (1.0 - beta2);
        }
        AdamStep {
            lr,
            beta1,
            beta2,
            epsilon: options.epsilon,
            weights: *self,
            decoupled,
        }
    }
}

impl AdamStep {
    /// Moves parameters by an update, with their moments.
    pub(super) fn apply(
        &self,
        parameters: &mut [f32],
        update: &[f32],
        first: &mut [f32],
        second: &mut [f32],
        decay: f32,
    ) {
        let moments = first.iter_mut().zip(second);
        for ((parameter, update), (first, second)) in parameters.iter_mut().zip(update).zip(moments)
        {
            let mut slope = *update;
            if self.decoupled {
                *parameter -= self.lr * decay * *parameter;
            } else {
                slope += decay * *parameter;
            }
            *first = self.beta1 * *first + (1.0 - self.beta1) * slope;
            *second = self.beta2 * *second + (1.0 - self.beta2) * (slope * slope);
            // An element that no dense step has seen: its first delivery is all that is known of it.
            if *second == 0.0 {
                *second = self.weights.second * (slope * slope);
            }
            let mean = *first / self.weights.first;
            let root = (*second / self.weights.second).sqrt();
            *parameter -= self.lr * mean / (root + self.epsilon);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: AdamOptions = AdamOptions {
        beta2: 0.75,
        epsilon: 0.0,
        second_moment: SecondMoment::Frozen,
        dense_steps: 0,
        refresh_every: 0,
    };

    /// Where one parameter gets to from 1: gradients, the beta1 of each step, and whether the second moment moves.
    fn walk(steps: &[(f32, f32, bool)], decay: f32, decoupled: bool) -> (f32, f32) {
        let mut weights = Weights::default();
        let (mut parameter, mut first, mut second) = ([1.0], [0.0], [0.0]);
        for &(gradient, beta1, moves) in steps {
            let step = weights.step(OPTIONS, 0.25, beta1, moves, decoupled);
            step.apply(&mut parameter, &[gradient], &mut first, &mut second, decay);
        }
        (parameter[0], second[0] / weights.second)
    }

    #[test]
    fn dense_steps_are_adam_s() {
        // Both moments are divided by what they have seen, so the first step is lr long whatever the gradient is.
        assert_eq!(walk(&[(4.0, 0.5, true)], 0.0, false), (0.75, 16.0));
        // The first moment is 0.5 * 2 of a weight of 0.75, the second 0.75 * 4 of a weight of 0.75 * 0.25 + 0.25.
        let (parameter, second) = walk(&[(4.0, 0.5, true), (0.0, 0.5, true)], 0.0, false);
        assert_eq!(second, 3.0 / 0.4375);
        let mean = 1.0f32 / 0.75;
        assert_eq!(parameter, 0.75 - 0.25 * mean / second.sqrt());
    }

    #[test]
    fn a_step_that_holds_mass_back_leaves_the_second_moment_as_it_is() {
        // Momentum is handed over: the step is 0.25 * 8 / 4.
        let steps = [(4.0, 0.5, true), (8.0, 0.0, false)];
        assert_eq!(walk(&steps, 0.0, false), (0.25, 16.0));
        // The next dense step counts for the one that was left out: 0.5625 * 16 of 1 - 0.5625 * 0.75.
        let steps = [(4.0, 0.5, true), (0.0, 0.0, false), (0.0, 0.0, true)];
        let (_, second) = walk(&steps, 0.0, false);
        assert_eq!(second, 0.5625 * 4.0 / (0.5625 * 0.25 + 0.4375));
    }

    #[test]
    fn an_element_that_was_never_seen_moves_by_the_rate() {
        let mut weights = Weights::default();
        let (mut parameter, mut first, mut second) = ([1.0], [0.0], [0.0]);
        // Others were seen in a dense step.
        weights.step(OPTIONS, 0.25, 0.5, true, false);
        let step = weights.step(OPTIONS, 0.25, 0.0, false, false);
        step.apply(&mut parameter, &[-8.0], &mut first, &mut second, 0.0);
        assert_eq!((parameter[0], second[0] / weights.second), (1.25, 64.0));
    }

    #[test]
    fn decay_is_a_part_of_the_gradient_or_apart_from_it() {
        // The slope is 0 + 0.5 * 1, so the step is lr long; apart from it the parameter loses lr * 0.5 of itself.
        assert_eq!(walk(&[(0.0, 0.5, true)], 0.5, false).0, 0.75);
        assert_eq!(walk(&[(4.0, 0.5, true)], 0.5, true).0, 0.625);
    }
}
