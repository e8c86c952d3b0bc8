//! How long workers compute. Functions that differ between hosts are those of `libm`: the same seed gives the same times.

use std::f64::consts::TAU;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use spardl_core::{Gamma, Line, Model, Rank};

/// How the compute time of a step is spread around its mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Spread {
    /// All steps are equal.
    #[default]
    Constant,
    /// Evenly, up to this part of the mean to either side.
    Uniform(f64),
    /// The mean plus an exponential tail of this part of the mean.
    Exponential(f64),
    /// The mean times `e^(s z)` for a normal `z`.
    LogNormal(f64),
}

/// Workers that are slow now and then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stragglers {
    /// The part of the steps in which a worker is slow.
    pub probability: f64,
    /// How many times longer it then takes.
    pub factor: f64,
}

/// The compute model of all workers. The default takes no time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Compute {
    /// Nanoseconds before the backward pass.
    pub forward: u64,
    /// Nanoseconds of the backward pass; buckets are ready along it, as their elements are.
    pub backward: u64,
    /// Noise of every worker and step.
    pub spread: Spread,
    /// Slow steps.
    pub stragglers: Option<Stragglers>,
    /// Speeds of uneven machines, over and over along the ranks; none means that all are equal.
    pub speeds: Vec<f64>,
    /// Picoseconds of the pass and the selection per element.
    pub select: u64,
    /// Picoseconds of decoding, adding and encoding per byte received.
    pub merge: u64,
    /// Cores on which workers select and merge, and the system moves their messages, and how many consecutive workers share them; none: each has its own.
    pub cores: Option<Cores>,
}

/// The cores of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// How many there are.
    pub count: u32,
    /// How many workers share them.
    pub workers: u32,
    /// Picoseconds of a core that the system takes to move a byte, on both ends together.
    pub transport: u64,
}

impl Compute {
    /// The model of such workers on a flat network. Noise, stragglers and speeds are left out: a model knows one worker.
    pub const fn model(&self, line: Line) -> Model {
        Model {
            line,
            gamma: Gamma {
                select: self.select,
                merge: self.merge,
            },
            forward: self.forward,
            backward: self.backward,
        }
    }

    /// How much longer than the mean a worker computes in a step.
    pub(crate) fn factor(&self, seed: u64, step: u64, worker: Rank) -> f64 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(step << 32 | u64::from(worker.get()));
        let mut unit = || random.random_range(f64::EPSILON..1.0);
        let noise = match self.spread {
            Spread::Constant => 1.0,
            Spread::Uniform(part) => 1.0 + part * (2.0 * unit() - 1.0),
            Spread::Exponential(part) => 1.0 - part * libm::log(unit()),
            Spread::LogNormal(sigma) => {
                let (radius, angle) = ((-2.0 * libm::log(unit())).sqrt(), TAU * unit());
                libm::exp(sigma * radius * libm::cos(angle))
            }
        };
        let slow = match self.stragglers {
            Some(stragglers) if unit() < stragglers.probability => stragglers.factor,
            _ => 1.0,
        };
        (noise * slow / self.speed(worker)).max(0.0)
    }

    fn speed(&self, worker: Rank) -> f64 {
        match self.speeds.len() {
            0 => 1.0,
            len => self.speeds[worker.index() % len],
        }
    }

    /// Nanoseconds until a worker has the first `part` of its gradient.
    pub(crate) fn ready(&self, factor: f64, part: f64) -> u64 {
        (factor * (self.forward as f64 + part * self.backward as f64)).round() as u64
    }

    /// Nanoseconds of the pass over so many elements, on the worker's own machine.
    pub(crate) fn select_time(&self, worker: Rank, elements: usize) -> u64 {
        self.local(worker, self.select, elements as u64)
    }

    /// Nanoseconds of taking in so many bytes.
    pub(crate) fn merge_time(&self, worker: Rank, bytes: u64) -> u64 {
        self.local(worker, self.merge, bytes)
    }

    fn local(&self, worker: Rank, picos: u64, count: u64) -> u64 {
        let nanos = picos.saturating_mul(count).div_ceil(1000);
        if self.speeds.is_empty() {
            return nanos;
        }
        (nanos as f64 / self.speed(worker)).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_the_mean_it_says_and_the_same_seed_the_same_noise() {
        let mean = |spread| {
            let compute = Compute {
                spread,
                ..Compute::default()
            };
            let draws = (0..20_000).map(|step| compute.factor(1, step, Rank::new(3)));
            draws.sum::<f64>() / 20_000.0
        };
        assert!((mean(Spread::Constant) - 1.0).abs() < 1e-9);
        assert!((mean(Spread::Uniform(0.5)) - 1.0).abs() < 0.01);
        assert!((mean(Spread::Exponential(0.3)) - 1.3).abs() < 0.02);
        assert!((mean(Spread::LogNormal(0.1)) - 1.0).abs() < 0.02);
        assert_eq!(
            mean(Spread::LogNormal(0.1)).to_bits(),
            mean(Spread::LogNormal(0.1)).to_bits()
        );
    }

    #[test]
    fn slow_machines_and_slow_steps_take_longer() {
        let compute = Compute {
            backward: 1000,
            speeds: vec![1.0, 0.5],
            stragglers: Some(Stragglers {
                probability: 0.25,
                factor: 3.0,
            }),
            select: 1500,
            ..Compute::default()
        };
        let slow = (0..4000).filter(|&step| compute.factor(7, step, Rank::new(0)) > 2.0);
        assert!((900..1100).contains(&slow.count()));
        assert_eq!(compute.select_time(Rank::new(0), 3), 5);
        assert_eq!(compute.select_time(Rank::new(1), 3), 10);
        assert_eq!(compute.ready(2.0, 0.5), 1000);
    }
}
