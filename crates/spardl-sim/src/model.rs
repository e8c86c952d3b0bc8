//! Alpha, beta, gamma: what a step takes by its rounds, its bytes and its elements, without simulating a message.

use spardl_core::{Algorithm, Density, Estimate, Layout};

use crate::compute::Compute;
use crate::topology::Line;

/// A flat network on which messages do not meet, and how fast workers are.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Alpha and beta.
    pub line: Line,
    /// Gamma, and how long the gradient takes. Noise, stragglers and speeds are left out: a model knows one worker.
    pub compute: Compute,
}

/// What a step takes, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predicted {
    /// From the start of the forward pass until everybody has the update.
    pub step: u64,
    /// Rounds, of all buckets.
    pub rounds: u64,
    /// Bytes of the longest chain of messages, of all buckets.
    pub bytes: u64,
    /// What the rounds take.
    pub latency: u64,
    /// What the bytes take.
    pub transfer: u64,
    /// What selecting takes.
    pub select: u64,
    /// What taking messages in takes.
    pub merge: u64,
}

impl Predicted {
    /// What the exchange takes when nothing hides it.
    pub const fn exchange(&self) -> u64 {
        self.latency + self.transfer + self.select + self.merge
    }
}

impl Model {
    /// What a step of a method takes.
    pub fn predict(
        &self,
        algorithm: &dyn Algorithm,
        workers: u32,
        layouts: &[Layout],
        density: Density,
    ) -> Predicted {
        let estimates: Vec<(u32, Estimate)> = layouts
            .iter()
            .map(|layout| {
                let k = density.entries(layout.len() as usize);
                let estimate = algorithm.estimate(workers, layout, k, 0);
                (layout.len(), estimate)
            })
            .collect();
        self.predict_from(&estimates)
    }

    /// What a step takes whose buckets have these lengths and estimates. A bucket is exchanged once its gradient is there and
    /// the bucket before it is through.
    pub fn predict_from(&self, buckets: &[(u32, Estimate)]) -> Predicted {
        let elements: u64 = buckets.iter().map(|(len, _)| u64::from(*len)).sum();
        let mut whole = Predicted {
            step: self.compute.ready(1.0, 0.0),
            ..Predicted::default()
        };
        let mut done = 0;
        for &(len, Estimate { rounds, bytes }) in buckets {
            done += u64::from(len);
            let part = Predicted {
                step: 0,
                rounds: u64::from(rounds),
                bytes,
                latency: u64::from(rounds).saturating_mul(self.line.latency),
                transfer: self.line.transfer(bytes),
                select: picos(self.compute.select, u64::from(len)),
                merge: picos(self.compute.merge, bytes),
            };
            let ready = self
                .compute
                .ready(1.0, done as f64 / elements.max(1) as f64);
            whole.step = whole.step.max(ready).saturating_add(part.exchange());
            whole.rounds += part.rounds;
            whole.bytes += part.bytes;
            whole.latency = whole.latency.saturating_add(part.latency);
            whole.transfer = whole.transfer.saturating_add(part.transfer);
            whole.select += part.select;
            whole.merge += part.merge;
        }
        whole
    }
}

/// Nanoseconds of so many things that take picoseconds each.
const fn picos(each: u64, count: u64) -> u64 {
    each.saturating_mul(count).div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hide_behind_the_backward_pass_but_for_the_last() {
        let model = |backward| Model {
            line: Line {
                latency: 100,
                bandwidth: 8_000_000_000,
            },
            compute: Compute {
                backward,
                select: 1000,
                ..Compute::default()
            },
        };
        let estimate = Estimate {
            rounds: 2,
            bytes: 50,
        };
        let buckets = [(10, estimate), (10, estimate)];
        let short = model(0).predict_from(&buckets);
        assert_eq!((short.step, short.exchange()), (520, 520));
        let long = model(10_000).predict_from(&buckets);
        assert_eq!(long.step, 10_260);
        assert_eq!((long.rounds, long.bytes), (4, 100));
    }
}
