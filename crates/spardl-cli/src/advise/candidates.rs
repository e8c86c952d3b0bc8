//! Everything that could be used, with its estimates.

use spardl_algos::{Options, registry};
use spardl_core::{Algorithm, Density, Estimate, Layout, ValueType, World};
use spardl_sim::{Model, Predicted};

/// Whether everything is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Dense,
    Sparse,
}

/// One way to exchange.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// As on the command line; teams are an option of their own.
    pub(super) name: String,
    pub(super) kind: Kind,
    method: String,
    teams: Option<u32>,
    buckets: Vec<(u32, Estimate)>,
}

impl Candidate {
    pub(super) fn predict(&self, model: &Model) -> Predicted {
        let mut model = model.clone();
        // A dense exchange selects nothing, it only loads the gradient, and it adds runs instead of merging lists.
        if self.kind == Kind::Dense {
            model.compute.select /= 4;
            model.compute.merge /= 5;
        }
        model.predict_from(&self.buckets)
    }

    /// Nanoseconds of a step.
    pub(super) fn step(&self, model: &Model) -> u64 {
        self.predict(model).step
    }

    pub(super) fn in_words(&self, density: f64) -> String {
        match (self.kind, self.teams) {
            (Kind::Dense, _) => format!("the dense exchange `{}`", self.method),
            (Kind::Sparse, None) => format!("`{}` with density {density}", self.method),
            (Kind::Sparse, Some(teams)) => {
                format!("`{} --teams {teams}` with density {density}", self.method)
            }
        }
    }
}

/// Value types that lose little; those of fewer bits are a choice of their own.
const TYPES: [ValueType; 2] = [ValueType::F32, ValueType::Bf16];

/// Methods that need more than a density to be compared: entries drawn blindly, a threshold set by hand, a rank.
const APART: [&str; 3] = ["random-k", "hard-threshold", "power-sgd"];

/// The most teams that are looked at.
const MOST_TEAMS: u32 = 64;

/// Every method of the registry that selects by size, with f32 and bf16 values, SparDL with every number of teams.
pub(super) fn all(
    workers: u32,
    layouts: &[Layout],
    density: Density,
) -> anyhow::Result<Vec<Candidate>> {
    let mut all = Vec::new();
    let methods = registry::METHODS.iter();
    for entry in methods.filter(|entry| !APART.contains(&entry.name)) {
        for values in TYPES {
            let mut options = Options::default();
            options.codec.values = values;
            let method = match values {
                ValueType::F32 => entry.name.to_owned(),
                values => format!("{}-{values}", entry.name),
            };
            for teams in teams_of(entry.name, workers) {
                let options = match teams {
                    Some(teams) => options.clone().with("teams", teams),
                    None => options.clone(),
                };
                let algorithm = entry.build(&options)?;
                if algorithm
                    .machine(World::new(0, workers)?, &Layout::flat(1))
                    .is_err()
                {
                    continue;
                }
                all.push(candidate(
                    &*algorithm,
                    &method,
                    teams,
                    workers,
                    layouts,
                    density,
                ));
            }
        }
    }
    Ok(all)
}

fn teams_of(method: &str, workers: u32) -> Vec<Option<u32>> {
    let divides = |teams: &u32| workers.is_multiple_of(*teams);
    let teams = (2..=workers.min(MOST_TEAMS)).filter(divides).map(Some);
    let teams: Vec<_> = teams.filter(|_| method == "spardl").collect();
    std::iter::once(None).chain(teams).collect()
}

fn candidate(
    algorithm: &dyn Algorithm,
    method: &str,
    teams: Option<u32>,
    workers: u32,
    layouts: &[Layout],
    density: Density,
) -> Candidate {
    let buckets = layouts.iter().map(|layout| {
        let k = density.entries(layout.len() as usize);
        (layout.len(), algorithm.estimate(workers, layout, k, 0))
    });
    Candidate {
        name: match teams {
            Some(teams) => format!("{method} --teams {teams}"),
            None => method.to_owned(),
        },
        kind: if method.starts_with("dense") {
            Kind::Dense
        } else {
            Kind::Sparse
        },
        method: method.to_owned(),
        teams,
        buckets: buckets.collect(),
    }
}
