//! A method under test: a cluster and what it delivered last.

use std::collections::BTreeMap;

use spardl_algos::{Options, registry};
use spardl_core::{Algorithm, Collective, Layout, Outcome};
use spardl_sim::{Cluster, Ledger};

use super::math;

/// A cluster that runs one method.
#[derive(Debug)]
pub(super) struct Runner {
    /// What the tables call it.
    pub(super) label: String,
    pub(super) k: usize,
    pub(super) cluster: Cluster,
    /// The last update, zeros included.
    pub(super) update: Vec<f32>,
    /// The entries of the last update.
    pub(super) entries: usize,
    /// What was sent in the last step.
    pub(super) ledger: Ledger,
    step: u64,
}

impl Runner {
    pub(super) fn new(
        label: impl Into<String>,
        algorithm: &dyn Algorithm,
        workers: u32,
        len: u32,
        k: usize,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            label: label.into(),
            k,
            cluster: Cluster::new(algorithm, workers, &Layout::flat(len))?,
            update: vec![0.0; len as usize],
            entries: 0,
            ledger: Ledger::default(),
            step: 0,
        })
    }

    /// One step, committed.
    pub(super) fn step(&mut self, gradients: &[Vec<f32>]) -> anyhow::Result<()> {
        let report = self.cluster.step(gradients, self.k, self.step)?;
        let updated = |outcome: &Outcome| *outcome == Outcome::Updated;
        anyhow::ensure!(report.outcomes.iter().all(updated), "a step was skipped");
        let update = self.cluster.workers()[0].update();
        update.write_scaled(1.0, &mut self.update);
        self.entries = update.nnz();
        self.ledger = report.ledger;
        self.cluster.commit()?;
        self.step += 1;
        Ok(())
    }

    /// The entries of the last update over the target.
    pub(super) fn ratio(&self) -> f64 {
        self.entries as f64 / self.k as f64
    }

    /// What each worker selected in the last step.
    pub(super) fn selected(&self) -> Vec<u64> {
        let workers = self.cluster.workers().into_iter();
        workers.map(|worker| worker.stats().selected).collect()
    }

    /// The sum of all residuals.
    pub(super) fn residual(&self) -> Vec<f64> {
        let workers = self.cluster.workers().into_iter();
        math::sum(workers.map(Collective::residual), self.update.len())
    }

    /// Rounds of the last step.
    pub(super) fn rounds(&self) -> u32 {
        self.ledger.rounds.iter().max().copied().unwrap_or(0)
    }

    /// Bytes that the busiest worker sent in the last step.
    pub(super) fn bytes(&self) -> u64 {
        self.ledger.bytes.iter().max().copied().unwrap_or(0)
    }
}

/// A method of the registry with options of its own.
pub(super) fn method(
    name: &str,
    options: &[(&str, &str)],
) -> Result<Box<dyn Algorithm>, spardl_core::ConfigError> {
    let set: BTreeMap<String, String> = options
        .iter()
        .map(|(option, value)| ((*option).to_owned(), (*value).to_owned()))
        .collect();
    let options = Options {
        set,
        ..Options::default()
    };
    registry::build(name, &options)
}
