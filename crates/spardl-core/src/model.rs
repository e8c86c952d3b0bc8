//! Alpha, beta, gamma: what a step takes by its rounds, its bytes and its elements, without moving a message.
//!
//! It stands beside [`Estimate`], which it turns into time, and below everything that asks for it: the simulator, the tuner of
//! the front door, the command.

use crate::algorithm::{Algorithm, Estimate, Layout};
use crate::density::Density;

/// A line between two places: what a message pays whatever its length (alpha), and what its length costs (beta).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Nanoseconds from the last bit sent to the last bit received.
    pub latency: u64,
    /// Bits per second, at least one.
    pub bandwidth: u64,
}

impl Line {
    /// Nanoseconds that so many bytes take alone on this line, without the latency, rounded up.
    pub const fn transfer(self, bytes: u64) -> u64 {
        let nanos = (bytes as u128 * 8_000_000_000).div_ceil(self.bandwidth as u128);
        if nanos > u64::MAX as u128 {
            u64::MAX
        } else {
            nanos as u64
        }
    }

    /// Nanoseconds of so many messages with so many bytes in all, one after the other.
    pub const fn time(self, messages: u64, bytes: u64) -> u64 {
        let latency = messages.saturating_mul(self.latency);
        latency.saturating_add(self.transfer(bytes))
    }
}

/// What a worker's own work costs (gamma). The default takes no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gamma {
    /// Picoseconds of the pass and the selection per element.
    pub select: u64,
    /// Picoseconds of decoding, adding and encoding per byte received.
    pub merge: u64,
}

/// A flat network on which messages do not meet, and how fast a worker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Alpha and beta.
    pub line: Line,
    /// Gamma.
    pub gamma: Gamma,
    /// Nanoseconds before the backward pass.
    pub forward: u64,
    /// Nanoseconds of the backward pass; buckets are ready along it, as their elements are.
    pub backward: u64,
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
        let network = self.latency.saturating_add(self.transfer);
        network.saturating_add(self.select.saturating_add(self.merge))
    }
}

impl Model {
    /// The model of an exchange alone: the gradient is there.
    pub const fn of_exchange(line: Line, gamma: Gamma) -> Self {
        Self {
            line,
            gamma,
            forward: 0,
            backward: 0,
        }
    }

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
            step: self.ready(0.0),
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
                select: picos(self.gamma.select, u64::from(len)),
                merge: picos(self.gamma.merge, bytes),
            };
            let ready = self.ready(done as f64 / elements.max(1) as f64);
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

    /// Nanoseconds until a worker has the first `part` of its gradient.
    fn ready(&self, part: f64) -> u64 {
        (self.forward as f64 + part * self.backward as f64).round() as u64
    }
}

/// Nanoseconds of so many things that take picoseconds each.
const fn picos(each: u64, count: u64) -> u64 {
    each.saturating_mul(count).div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line = Line {
        latency: 100,
        bandwidth: 8_000_000_000,
    };

    #[test]
    fn buckets_hide_behind_the_backward_pass_but_for_the_last() {
        let gamma = Gamma {
            select: 1000,
            merge: 0,
        };
        let model = |backward| Model {
            backward,
            ..Model::of_exchange(LINE, gamma)
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

    #[test]
    fn messages_and_bytes_take_their_time_and_no_line_is_too_slow_for_the_numbers() {
        assert_eq!(LINE.time(3, 50), 350);
        let slow = Line {
            latency: u64::MAX,
            bandwidth: 1,
        };
        assert_eq!(slow.time(2, u64::MAX), u64::MAX);
    }
}
