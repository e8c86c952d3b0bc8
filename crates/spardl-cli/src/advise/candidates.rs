//! Everything that could be used, with its estimates.

use spardl::tune::{Choice, Gammas, Kind, Space};
use spardl_core::{Density, Estimate, Layout, Model, Predicted};

/// One way to exchange.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) choice: Choice,
    buckets: Vec<(u32, Estimate)>,
    gammas: Gammas,
}

impl Candidate {
    /// As on the command line.
    pub(super) fn name(&self) -> String {
        self.choice.to_string()
    }

    pub(super) fn kind(&self) -> Kind {
        self.choice.kind()
    }

    /// What a step takes on the line and beside the passes of `model`, with what this method's own work costs.
    pub(super) fn predict(&self, model: &Model) -> Predicted {
        let gamma = self.gammas.of(&self.choice);
        Model { gamma, ..*model }.predict_from(&self.buckets)
    }

    /// Nanoseconds of a step.
    pub(super) fn step(&self, model: &Model) -> u64 {
        self.predict(model).step
    }

    pub(super) fn in_words(&self, density: f64) -> String {
        match self.kind() {
            Kind::Dense => format!("the dense exchange `{}`", self.choice),
            Kind::Sparse => format!("`{}` with density {density}", self.choice),
        }
    }
}

/// Every method that the tuner looks at, with f32 and bf16 values.
pub(super) fn all(
    workers: u32,
    layouts: &[Layout],
    density: Density,
    gammas: &Gammas,
) -> anyhow::Result<Vec<Candidate>> {
    let choices = Space::default().choices(workers)?.into_iter();
    let candidates = choices.map(|choice| Candidate {
        buckets: choice.estimates(workers, layouts, density),
        gammas: gammas.clone(),
        choice,
    });
    Ok(candidates.collect())
}
