//! Momentum by wait: after a delivery an element stands where momentum would have brought it, had nothing waited.
//!
//! With momentum `m` a gradient moves its parameter by `1, m, m^2, ..` of it (times the rate) in this step and the ones after it,
//! by `1 / (1 - m)` in all. An update that comes after `t` steps is the sum of that many gradients, of `j = 0 .. t - 1` steps ago;
//! taken as equal, `u / t` each. Of the one `j` steps ago `1 + m + .. + m^j` is due by now, and the rest, `m^j` times what `m` would
//! still do, belongs into the velocity. Summed up:
//!
//! ```text
//! b = (1 - m^t) / (t (1 - m))        the part of u that the velocity gets:   v = m v + b u + decay w
//! a = (1 - m b) / (1 - m)            what is due at once:                    w -= lr (m v + a u + decay w), v from before
//! ```
//!
//! With `t = 1`, where nothing waits, `a = b = 1`: plain momentum. With long waits `b` goes to 0 and `a` to `1 / (1 - m)`: all
//! momentum is handed over to the residual. Example, `m = 1/2`, an element that waits for two steps: `b = 3/4`, `a = 5/4`.
//! Whatever the wait, `a u` and what the velocity still does with `b u` are `u / (1 - m)` together, as for any gradient.
//!
//! Nesterov's form is one factor `m` ahead: `a = (1 - m^2 b) / (1 - m)`, and `w -= lr (m^2 v + a u + (1 + m) decay w)`.
//!
//! A wait is that of the sum over workers: where one of them delivers an element and another keeps its part, it counts from there.
//! The rate is that of the step of the delivery, as for everything that waits in the residual.

/// What the waits of elements leave of momentum `m`, which is above 0 and below 1.
#[derive(Clone, Debug)]
pub(super) struct ByWait {
    momentum: f32,
    nesterov: bool,
    /// `m^t`, until it is nothing beside 1.
    powers: Vec<f32>,
}

impl ByWait {
    pub(super) fn new(momentum: f32, nesterov: bool) -> Self {
        let next = |power: &f32| Some(power * momentum).filter(|next| 1.0 - next < 1.0);
        Self {
            momentum,
            nesterov,
            powers: std::iter::successors(Some(1.0), next).collect(),
        }
    }

    /// One step of a stretch of elements; an element that is not zero in `update` was delivered. `waits` are steps since then.
    pub(super) fn step(
        &self,
        (rate, decay): (f32, f32),
        parameters: &mut [f32],
        update: &[f32],
        velocity: &mut [f32],
        waits: &mut [f32],
    ) {
        // What the velocity of before, and this step's decay, move by now.
        let (old, new) = match self.nesterov {
            true => (self.momentum * self.momentum, 1.0 + self.momentum),
            false => (self.momentum, 1.0),
        };
        let elements = parameters.iter_mut().zip(update).zip(velocity).zip(waits);
        for (((parameter, update), velocity), wait) in elements {
            *wait += 1.0;
            let slope = decay * *parameter;
            let (now, later) = match *update == 0.0 {
                true => (0.0, 0.0),
                false => {
                    let (now, later) = self.shares(*wait, old);
                    *wait = 0.0;
                    (now * update, later * update)
                }
            };
            *parameter -= rate * (old * *velocity + (now + new * slope));
            *velocity = self.momentum * *velocity + (later + slope);
        }
    }

    /// How much of an update that was awaited for `wait` steps is due at once, and how much the velocity gets.
    fn shares(&self, wait: f32, old: f32) -> (f32, f32) {
        let power = self.powers.get(wait as usize).copied().unwrap_or(0.0);
        let late = 1.0 - self.momentum;
        let later = (1.0 - power) / (wait * late);
        ((1.0 - old * later) / late, later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One parameter from 1 with a gradient of 1 in each of `steps` steps, delivered every `wait` of them.
    fn walk(nesterov: bool, decay: f32, wait: usize, steps: usize) -> f32 {
        let by_wait = ByWait::new(0.9, nesterov);
        let (mut parameter, mut velocity, mut waits) = ([1.0], [0.0], [0.0]);
        for step in 1..=steps {
            let update = if step % wait == 0 { wait as f32 } else { 0.0 };
            let numbers = (0.01, decay);
            by_wait.step(
                numbers,
                &mut parameter,
                &[update],
                &mut velocity,
                &mut waits,
            );
        }
        parameter[0]
    }

    #[test]
    fn after_a_delivery_an_element_stands_where_momentum_would_have_brought_it() {
        for nesterov in [false, true] {
            for wait in [2, 7, 100, 350] {
                let (waited, dense) = (walk(nesterov, 0.0, wait, 700), walk(nesterov, 0.0, 1, 700));
                let error = (waited - dense).abs();
                assert!(error < 1e-3, "{wait} steps, {nesterov}: {waited}, {dense}");
            }
        }
    }

    #[test]
    fn in_the_long_run_an_update_moves_its_parameter_as_far_as_any_gradient() {
        for nesterov in [false, true] {
            for wait in [1, 2, 3, 10, 159, 160, 161, 5000] {
                let by_wait = ByWait::new(0.9, nesterov);
                let (mut parameter, mut velocity, mut waits) = ([0.0], [0.0], [0.0]);
                for step in 1..=wait + 200 {
                    let update = [if step == wait { 3.0 } else { 0.0 }];
                    by_wait.step(
                        (0.5, 0.0),
                        &mut parameter,
                        &update,
                        &mut velocity,
                        &mut waits,
                    );
                }
                // 0.5 * 3 / (1 - 0.9)
                let error = (parameter[0] + 15.0).abs();
                assert!(error < 1e-4, "{wait} steps, {nesterov}: {parameter:?}");
                assert_eq!(waits, [200.0]);
            }
        }
    }

    #[test]
    fn a_worked_example_with_a_wait_of_two_steps() {
        let by_wait = ByWait::new(0.5, false);
        assert_eq!(by_wait.shares(2.0, 0.5), (1.25, 0.75));
        assert_eq!(by_wait.shares(1.0, 0.5), (1.0, 1.0));
        let (now, later) = by_wait.shares(1000.0, 0.5);
        assert_eq!((now, later), ((1.0 - 0.5 * 0.002) / 0.5, 0.002));
    }

    #[test]
    fn where_nothing_waits_it_is_plain_momentum_bit_for_bit() {
        let (mut parameter, mut velocity) = (1.0_f32, 0.0_f32);
        for _ in 0..50 {
            velocity = 0.9 * velocity + (1.0 + 0.1 * parameter);
            parameter -= 0.01 * velocity;
        }
        assert_eq!(walk(false, 0.1, 1, 50).to_bits(), parameter.to_bits());
    }
}
