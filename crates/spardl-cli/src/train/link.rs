//! What a step would take on a network, from what it sent and computed here: alpha and beta of the network that was asked for,
//! gamma as measured in the run.

use spardl_core::Line;
use spardl_train::record::{EpochRecord, Summary, Traffic};

/// A network: every worker sends and receives at this rate, a message costs this latency.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Link {
    /// The network for which the speed-up is worked out: Gbit/s.
    #[arg(long = "link-gbits", default_value_t = 1.0, value_name = "GBIT", value_parser = rate)]
    pub(crate) gbits: f64,
    /// The network for which the speed-up is worked out: microseconds of a message.
    #[arg(long = "link-latency", default_value_t = 50.0, value_name = "US", value_parser = latency)]
    pub(crate) latency_us: f64,
    /// The part of the computing behind which messages may hide: 0.6 is most of a backward pass that sends its buckets as it goes.
    #[arg(long, default_value_t = 0.0, value_name = "X", value_parser = part)]
    pub(crate) overlap: f64,
}

fn part(text: &str) -> Result<f64, &'static str> {
    let number = text.parse().ok();
    number
        .filter(|x| (0.0..=1.0).contains(x))
        .ok_or("not a number from 0 to 1")
}

fn rate(text: &str) -> Result<f64, &'static str> {
    let number = text.parse().ok().filter(|x: &f64| x.is_finite());
    number.filter(|x| *x > 0.0).ok_or("not a number above 0")
}

fn latency(text: &str) -> Result<f64, &'static str> {
    let number = text.parse().ok().filter(|x: &f64| x.is_finite());
    number.filter(|x| *x >= 0.0).ok_or("not a number from 0 up")
}

impl Default for Link {
    fn default() -> Self {
        Self {
            gbits: 1.0,
            latency_us: 50.0,
            overlap: 0.0,
        }
    }
}

impl Link {
    /// Seconds of an epoch: what rank 0 computed and selected here, and what of the messages and bytes on this network does not
    /// hide behind the computing.
    pub(crate) fn seconds(&self, epoch: &EpochRecord) -> f64 {
        let totals = &epoch.totals;
        let local = totals.compute + totals.select + totals.merge + totals.apply;
        let hidden = self.overlap * totals.compute;
        local + (self.transfer_seconds(&epoch.traffic) - hidden).max(0.0)
    }

    /// Seconds of messages and bytes, one after the other, of the worker that has the most.
    pub(crate) fn transfer_seconds(&self, traffic: &Traffic) -> f64 {
        self.line().time(traffic.path_messages, traffic.path_bytes) as f64 / 1e9
    }

    /// Seconds of a step.
    pub(crate) fn step_seconds(&self, summary: &Summary) -> f64 {
        let seconds: f64 = summary.epochs.iter().map(|epoch| self.seconds(epoch)).sum();
        seconds / summary.totals().steps.max(1) as f64
    }

    /// Seconds of a step's messages and bytes.
    pub(crate) fn exchange_seconds(&self, summary: &Summary) -> f64 {
        self.transfer_seconds(&summary.traffic()) / summary.totals().steps.max(1) as f64
    }

    fn line(&self) -> Line {
        Line {
            latency: (self.latency_us * 1e3).round() as u64,
            bandwidth: (self.gbits * 1e9).round().max(1.0) as u64,
        }
    }
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} Gbit/s and {} us", self.gbits, self.latency_us)
    }
}
