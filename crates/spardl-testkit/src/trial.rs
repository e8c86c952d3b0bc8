//! One configuration at work.

use std::sync::mpsc;

use spardl_core::{Algorithm, Input, Layout, Outcome, Rank};
use spardl_sim::{Cluster, ClusterReport, Fault};

use crate::check::{self, Kept};

/// A cluster that runs one configuration, with the words that name it when a test fails.
#[derive(Debug)]
pub struct Trial {
    /// The workers.
    pub cluster: Cluster,
    /// Method, configuration and sizes.
    pub context: String,
}

/// A message of a clean step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The sender.
    pub from: Rank,
    /// The receiver.
    pub to: Rank,
    /// The round.
    pub round: u32,
    /// The wire bytes.
    pub bytes: Vec<u8>,
}

impl Trial {
    /// A fresh cluster on a bucket of `len` elements.
    ///
    /// # Panics
    /// When the configuration is refused.
    pub fn new(algorithm: &dyn Algorithm, workers: u32, len: usize) -> Self {
        Self::with_layout(algorithm, workers, &Layout::flat(len as u32))
    }

    /// A fresh cluster on a bucket of this layout.
    ///
    /// # Panics
    /// When the configuration is refused.
    pub fn with_layout(algorithm: &dyn Algorithm, workers: u32, layout: &Layout) -> Self {
        let (name, len, parts) = (algorithm.describe(), layout.len(), layout.parts().len());
        let context = format!("{name} P={workers} n={len} in {parts}");
        let cluster = Cluster::new(algorithm, workers, layout)
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        Self { cluster, context }
    }

    /// One step up to its end, neither committed nor aborted.
    ///
    /// # Panics
    /// When it does not end.
    pub fn run(&mut self, gradients: &[Vec<f32>], k: usize, step: u64) -> ClusterReport {
        self.run_inputs(&inputs(gradients, k, step))
    }

    /// [`Trial::run`] for inputs of any kind, one per worker.
    ///
    /// # Panics
    /// When the step does not end.
    pub fn run_inputs(&mut self, inputs: &[Input<'_>]) -> ClusterReport {
        let report = self.cluster.step_inputs(inputs);
        report.unwrap_or_else(|error| panic!("{}: {error}", self.at(inputs)))
    }

    /// One step that every worker updates, agrees on and commits; returns the common update.
    ///
    /// # Panics
    /// When a worker does not.
    pub fn step(&mut self, gradients: &[Vec<f32>], k: usize, step: u64) -> Vec<f32> {
        self.step_inputs(&inputs(gradients, k, step))
    }

    /// [`Trial::step`] for inputs of any kind, one per worker.
    ///
    /// # Panics
    /// As [`Trial::step`].
    pub fn step_inputs(&mut self, inputs: &[Input<'_>]) -> Vec<f32> {
        let report = self.run_inputs(inputs);
        let context = self.at(inputs);
        let updated = report.outcomes.iter().all(|o| *o == Outcome::Updated);
        assert!(updated, "{context}: {:?}", report.outcomes);
        let update = check::agreed(self.cluster.workers(), &context);
        self.cluster
            .commit()
            .expect("every worker has an updated step");
        update
    }

    fn at(&self, inputs: &[Input<'_>]) -> String {
        let (k, step) = (inputs[0].k, inputs[0].step);
        format!("{} k={k} step={step}", self.context)
    }

    /// What the workers keep between steps.
    pub fn kept(&self) -> Vec<Kept> {
        check::kept(self.cluster.workers())
    }

    /// The messages of one step, which is then aborted.
    pub fn messages(&mut self, gradients: &[Vec<f32>], k: usize, step: u64) -> Vec<Sent> {
        let (record, recorded) = mpsc::channel();
        self.cluster.set_fault(move |message| {
            let sent = Sent {
                from: message.from,
                to: message.to,
                round: message.round,
                bytes: message.bytes.to_vec(),
            };
            // Nobody listens any more when a later step runs under the same rule.
            let _ = record.send(sent);
            Fault::None
        });
        self.run(gradients, k, step);
        self.cluster.abort();
        self.cluster.set_fault(|_| Fault::None);
        recorded.try_iter().collect()
    }

    /// Lets `fault` happen to the one message like `sent`; all others arrive.
    pub fn strike(&mut self, sent: &Sent, fault: Fault) {
        let (from, to, round) = (sent.from, sent.to, sent.round);
        self.cluster.set_fault(move |message| {
            let struck = (message.from, message.to, message.round) == (from, to, round);
            if struck { fault.clone() } else { Fault::None }
        });
    }

    /// All messages arrive again.
    pub fn heal(&mut self) {
        self.cluster.set_fault(|_| Fault::None);
    }
}

fn inputs(gradients: &[Vec<f32>], k: usize, step: u64) -> Vec<Input<'_>> {
    let gradients = gradients.iter();
    gradients.map(|g| Input::new(g, k, step)).collect()
}
