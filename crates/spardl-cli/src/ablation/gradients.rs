//! The gradients of an ablation: all workers', one step at a time.

use spardl_sim::gradient::{Distribution, Synthetic};

/// The gradients of all workers, drawn anew for each step.
#[derive(Debug)]
pub(super) struct Gradients {
    noise: Synthetic,
    /// What is the same in every step, per worker; nothing when the gradients are all noise.
    constant: Vec<Vec<f32>>,
    /// What each element is multiplied by; nothing for 1 everywhere.
    profile: Vec<f32>,
    /// All gradients are multiplied by this.
    pub(super) scale: f32,
    /// The gradients of the current step.
    pub(super) now: Vec<Vec<f32>>,
}

impl Gradients {
    /// A new gradient in each step, of which workers share the part `correlation` of the variance.
    pub(super) fn fresh(
        seed: u64,
        distribution: Distribution,
        correlation: f32,
        workers: u32,
        len: u32,
    ) -> Self {
        Self {
            noise: Synthetic {
                distribution,
                correlation,
                seed,
            },
            constant: Vec::new(),
            profile: Vec::new(),
            scale: 1.0,
            now: vec![vec![0.0; len as usize]; workers as usize],
        }
    }

    /// A heavy-tailed signal that all workers share, the same in each step, plus each worker's own deviation from it (`bias`,
    /// times normal, summing to zero over the workers), plus normal noise of deviation 1.
    pub(super) fn stationary(seed: u64, bias: f32, workers: u32, len: u32) -> Self {
        let part = |salt: u64, distribution| Synthetic {
            distribution,
            correlation: 0.0,
            seed: seed ^ salt,
        };
        let draw = |family: Synthetic, worker| {
            let mut out = vec![0.0; len as usize];
            family.fill(worker, 0, &mut out);
            out
        };
        // The deviation of the heavy-tailed distribution is about 1/2: signal and noise then are alike.
        let signal = draw(part(0x51, Distribution::HeavyTailed), 0);
        let mut constant: Vec<Vec<f32>> = (0..workers)
            .map(|worker| draw(part(0xb1, Distribution::Normal), worker))
            .collect();
        for i in 0..len as usize {
            let mean = constant.iter().map(|own| own[i]).sum::<f32>() / workers as f32;
            for own in &mut constant {
                own[i] = 2.0 * signal[i] + bias * (own[i] - mean);
            }
        }
        Self {
            constant,
            ..Self::fresh(seed, Distribution::Normal, 0.0, workers, len)
        }
    }

    /// Fresh heavy-tailed gradients in 64 segments whose scales are spread by a factor of 1.4, one standard deviation.
    pub(super) fn rippled(seed: u64, workers: u32, len: u32) -> Self {
        let fresh = Self::fresh(seed, Distribution::HeavyTailed, 0.0, workers, len);
        let mut exponents = [0.0; 64];
        let normal = Synthetic {
            distribution: Distribution::Normal,
            ..fresh.noise
        };
        normal.fill(u32::MAX / 2, u32::MAX, &mut exponents);
        let segment = (len as usize).div_ceil(exponents.len());
        let scale = |i: usize| (exponents[i / segment] / 2.0).exp2();
        Self {
            profile: (0..len as usize).map(scale).collect(),
            ..fresh
        }
    }

    /// Draws the gradients of a step.
    pub(super) fn draw(&mut self, step: u64) {
        for (worker, gradient) in (0u32..).zip(&mut self.now) {
            self.noise.fill(worker, step as u32, gradient);
            if let Some(constant) = self.constant.get(worker as usize) {
                for (value, constant) in gradient.iter_mut().zip(constant) {
                    *value += constant;
                }
            }
            for (value, factor) in gradient.iter_mut().zip(&self.profile) {
                *value *= factor;
            }
            if self.scale != 1.0 {
                gradient.iter_mut().for_each(|value| *value *= self.scale);
            }
        }
    }

    /// Makes the gradients of this step whole numbers, after multiplying them by `times`: sums are then exact.
    pub(super) fn round(&mut self, times: f32) {
        let values = self.now.iter_mut().flatten();
        values.for_each(|value| *value = (*value * times).round());
    }
}
