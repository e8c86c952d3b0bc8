//! Everything that could be used, with its estimates.

use spardl::tune::{Choice, Gammas, Kind};
use spardl_core::{Density, Estimate, Gamma, Layout, Model, Predicted};

/// One way to exchange.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) choice: Choice,
    buckets: Vec<(u32, Estimate)>,
    gamma: Gamma,
}

impl Candidate {
    /// As on the command line.
    pub(crate) fn name(&self) -> String {
        self.choice.to_string()
    }

    pub(crate) fn kind(&self) -> Kind {
        self.choice.kind()
    }

    /// What a step takes on the line and beside the passes of `model`, with what this method's own work costs.
    pub(crate) fn predict(&self, model: &Model) -> Predicted {
        let gamma = self.gamma;
        Model { gamma, ..*model }.predict_from(&self.buckets)
    }

    /// Nanoseconds of a step.
    pub(crate) fn step(&self, model: &Model) -> u64 {
        self.predict(model).step
    }

    pub(crate) fn in_words(&self, density: f64) -> String {
        match self.kind() {
            Kind::Dense => format!("the dense exchange `{}`", self.choice),
            Kind::Sparse => format!("`{}` with density {density}", self.choice),
        }
    }
}

/// These choices, with what each one's own work costs.
pub(crate) fn all(
    choices: Vec<Choice>,
    workers: u32,
    (layouts, density): (&[Layout], Density),
    gammas: &Gammas,
) -> Vec<Candidate> {
    let candidates = choices.into_iter().map(|choice| Candidate {
        buckets: choice.estimates(workers, layouts, density),
        gamma: gammas.of(&choice),
        choice,
    });
    candidates.collect()
}
