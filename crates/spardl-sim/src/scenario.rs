//! What a method would take on a network: steps of real machines with made gradients, one after another, seed by seed.

use std::time::Duration;

use spardl_core::{Algorithm, Density, Layout, Rank};
use spardl_drive::DriveError;

use crate::cluster::{Cluster, ClusterReport};
use crate::compute::Compute;
use crate::fault::{Rule, Rules};
use crate::gradient::{Distribution, Synthetic};
use crate::network::Sharing;
use crate::path::Path;
use crate::topology::Fabric;

/// Everything that decides how long a step takes, but the method.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The network, which knows the number of workers.
    pub fabric: Fabric,
    /// What happens when messages meet.
    pub sharing: Sharing,
    /// The buckets, in the order in which their gradients are ready.
    pub layouts: Vec<Layout>,
    /// The part of each bucket that an update should have.
    pub density: Density,
    /// How the elements of gradients are distributed.
    pub distribution: Distribution,
    /// The part of the gradients' variance that all workers share.
    pub correlation: f32,
    /// How long workers compute.
    pub compute: Compute,
    /// What happens to messages.
    pub faults: Vec<Rule>,
    /// How long a round may be in flight.
    pub deadline: Duration,
    /// The first seed; the others follow it.
    pub seed: u64,
    /// How many seeds, each with gradients, noise and faults of its own.
    pub seeds: u32,
    /// Steps of each seed before those that count, in which thresholds and residuals settle.
    pub warmup: u32,
    /// Steps of each seed that count, at least one.
    pub steps: u32,
}

/// What a method took in a scenario.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Nanoseconds of the steps that count, seed by seed.
    pub steps: Vec<u64>,
    /// What the step of the median took, in detail.
    pub report: ClusterReport,
}

impl Simulated {
    /// Nanoseconds of the middle step; the lower one of two.
    pub fn median(&self) -> u64 {
        self.quantile(1, 2)
    }

    /// Nanoseconds that 99 in 100 steps do not exceed: with fewer steps, the longest.
    pub fn p99(&self) -> u64 {
        self.quantile(99, 100)
    }

    fn quantile(&self, part: usize, of: usize) -> u64 {
        let mut sorted = self.steps.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * part).div_ceil(of);
        sorted.get(rank.max(1) - 1).copied().unwrap_or(0)
    }

    /// Where the time of the median step went.
    pub const fn path(&self) -> Option<Path> {
        self.report.timing.path
    }
}

impl Scenario {
    /// Takes the steps of every seed; `done` is called after each.
    ///
    /// # Errors
    /// When the method refuses the scenario, or a step fails, e.g. because a message was lost for good.
    pub fn run(
        &self,
        algorithm: &dyn Algorithm,
        mut done: impl FnMut(),
    ) -> Result<Simulated, DriveError> {
        let mut reports = Vec::new();
        for seed in (0..u64::from(self.seeds)).map(|i| self.seed.wrapping_add(i)) {
            reports.extend(self.run_seed(algorithm, seed, &mut done)?);
        }
        let steps: Vec<u64> = reports.iter().map(|report| report.timing.step()).collect();
        let mut simulated = Simulated {
            steps,
            report: ClusterReport::default(),
        };
        let median = simulated.median();
        let is_median = |report: &ClusterReport| report.timing.step() == median;
        simulated.report = reports.into_iter().find(is_median).unwrap_or_default();
        Ok(simulated)
    }

    fn run_seed(
        &self,
        algorithm: &dyn Algorithm,
        seed: u64,
        done: &mut impl FnMut(),
    ) -> Result<Vec<ClusterReport>, DriveError> {
        let mut cluster = Cluster::with_buckets(algorithm, self.fabric.workers(), &self.layouts)?
            .with_fabric(self.fabric.clone(), self.sharing)
            .with_compute(self.compute.clone(), seed)
            .with_deadline(self.deadline);
        if let Some(cores) = self.compute.cores {
            cluster = cluster.with_cores(cores);
        }
        if !self.faults.is_empty() {
            let mut rules = Rules::new(&self.faults, seed);
            cluster.set_fault(move |message| rules.decide(message));
        }
        let (mut reports, warmup) = (Vec::new(), u64::from(self.warmup));
        for step in 0..warmup + u64::from(self.steps.max(1)) {
            let report = cluster.step_made(step, |rank: Rank, bucket, out: &mut [f32]| {
                let synthetic = Synthetic {
                    distribution: self.distribution,
                    correlation: self.correlation,
                    seed: seed ^ u64::from(bucket.get()) << 32,
                };
                synthetic.fill(rank.get(), step as u32, out);
                self.density.entries(out.len())
            })?;
            cluster.commit()?;
            if step >= warmup {
                reports.push(report);
            }
            done();
        }
        Ok(reports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_lower_middle_and_p99_the_longest_of_few() {
        let simulated = |steps: &[u64]| Simulated {
            steps: steps.to_vec(),
            report: ClusterReport::default(),
        };
        let few = simulated(&[5, 1, 9, 3]);
        assert_eq!((few.median(), few.p99()), (3, 9));
        let many = simulated(&(1..=200).collect::<Vec<_>>());
        assert_eq!((many.median(), many.p99()), (100, 198));
        assert_eq!(simulated(&[]).median(), 0);
    }
}
