//! One step of gradient descent, with momentum or without.

/// The numbers of a step, for a stretch.
pub(super) struct Descent {
    pub(super) rate: f32,
    pub(super) decay: f32,
    pub(super) momentum: f32,
    pub(super) nesterov: bool,
}

impl Descent {
    /// Without momentum.
    pub(super) fn step(&self, parameters: &mut [f32], update: &[f32]) {
        for (parameter, update) in parameters.iter_mut().zip(update) {
            *parameter -= self.rate * (update + self.decay * *parameter);
        }
    }

    pub(super) fn step_with(&self, velocity: &mut [f32], parameters: &mut [f32], update: &[f32]) {
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
