//! Everything that could be used: methods with their options, and what they are expected to take.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use spardl_algos::{Options, registry};
use spardl_core::{
    Algorithm, ConfigError, Density, Estimate, Gamma, Layout, Line, Model, Predicted, ValueType,
    World,
};

use super::Measurement;

/// Whether everything is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole gradients: nothing is held back.
    Dense,
    /// The entries that count most; the rest waits in the residual.
    Sparse,
}

/// One way to exchange: a method of the registry with its options.
#[derive(Clone, Debug)]
pub struct Choice {
    method: String,
    options: Options,
    algorithm: Arc<dyn Algorithm>,
}

impl Choice {
    /// The method of that name (with its value type, as in `spardl-bf16`) and options.
    ///
    /// # Errors
    /// When there is no such method, or an option does not fit it.
    pub fn new(method: &str, options: Options) -> Result<Self, ConfigError> {
        Ok(Self {
            method: method.to_owned(),
            algorithm: registry::build(method, &options)?.into(),
            options,
        })
    }

    /// The name in the registry, with the value type.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Its options; the value type is part of the name.
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// The algorithm.
    pub const fn algorithm(&self) -> &Arc<dyn Algorithm> {
        &self.algorithm
    }

    /// Does it exchange everything?
    pub fn kind(&self) -> Kind {
        match self.algorithm.laws().keeps_residual {
            true => Kind::Sparse,
            false => Kind::Dense,
        }
    }

    /// What the buckets of a step take, by their lengths.
    pub fn estimates(
        &self,
        workers: u32,
        layouts: &[Layout],
        density: Density,
    ) -> Vec<(u32, Estimate)> {
        let estimate = |layout: &Layout| {
            let k = density.entries(layout.len() as usize);
            let estimate = self.algorithm.estimate(workers, layout, k, 0);
            (layout.len(), estimate)
        };
        layouts.iter().map(estimate).collect()
    }
}

/// As on the command line: `spardl-bf16 --teams 4 --sag r`.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.method)?;
        let mut set = self.options.set.iter();
        // Teams before how they synchronise.
        set.try_rfold((), |(), (name, value)| write!(f, " --{name} {value}"))
    }
}

/// What a tuner chooses from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// How values may travel. Default: f32 and bf16, which lose little; fewer bits are a choice of their own.
    pub values: Vec<ValueType>,
}

impl Default for Space {
    fn default() -> Self {
        Self {
            values: vec![ValueType::F32, ValueType::Bf16],
        }
    }
}

/// Methods that need more than a density to be compared (entries drawn blindly, a threshold set by hand, a rank), and one for
/// experiments only.
const APART: [&str; 4] = ["random-k", "hard-threshold", "power-sgd", "oracle-k"];

/// The most teams that are looked at.
const MOST_TEAMS: u32 = 64;

impl Space {
    /// Every method of the registry that selects by size and loses nothing, and the dense ones; SparDL with every number of
    /// teams and both ways to synchronise them.
    ///
    /// # Errors
    /// When there is no worker.
    pub fn choices(&self, workers: u32) -> Result<Vec<Choice>, ConfigError> {
        let world = World::new(0, workers)?;
        let mut all = Vec::new();
        let methods = registry::METHODS.iter();
        for entry in methods.filter(|entry| !APART.contains(&entry.name)) {
            for &values in &self.values {
                let method = match values {
                    ValueType::F32 => entry.name.to_owned(),
                    values => format!("{}-{values}", entry.name),
                };
                for options in options_of(entry.name, workers) {
                    // Dense sums have no values of few bits, some methods need other numbers of workers.
                    let Ok(choice) = Choice::new(&method, options) else {
                        continue;
                    };
                    let fits = choice.algorithm.machine(world, &Layout::flat(1)).is_ok();
                    let keeps = choice.algorithm.laws().conserves || choice.kind() == Kind::Dense;
                    if fits && keeps {
                        all.push(choice);
                    }
                }
            }
        }
        Ok(all)
    }
}

fn options_of(method: &str, workers: u32) -> Vec<Options> {
    let mut all = vec![Options::default()];
    if method != "spardl" {
        return all;
    }
    let divides = |teams: &u32| workers.is_multiple_of(*teams);
    for teams in (2..=workers.min(MOST_TEAMS)).filter(divides) {
        let options = Options::default().with("teams", teams);
        if teams.is_power_of_two() {
            all.push(options.clone().with("sag", "r"));
        }
        all.push(options.with("sag", "b"));
    }
    all
}

/// What local work costs, by method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gammas {
    /// Of methods that were not measured: those that select.
    pub sparse: Gamma,
    /// Of methods that were not measured: dense ones, which load the gradient and add runs.
    pub dense: Gamma,
    /// As measured, by choice, as it is written.
    pub measured: BTreeMap<String, Gamma>,
}

impl Gammas {
    /// The same for all methods.
    pub const fn alike(gamma: Gamma) -> Self {
        Self {
            sparse: gamma,
            dense: gamma,
            measured: BTreeMap::new(),
        }
    }

    /// Nothing was measured here: what `spardl tune --local` found on one quiet machine, which the file describes.
    pub fn usual() -> Self {
        let found = Measurement::from_json(include_bytes!("usual.json"));
        found.map_or_else(|_| Self::alike(Gamma::default()), |found| found.gammas())
    }

    /// What a choice costs.
    pub fn of(&self, choice: &Choice) -> Gamma {
        let usual = match choice.kind() {
            Kind::Dense => self.dense,
            Kind::Sparse => self.sparse,
        };
        let exact = self.measured.get(&choice.to_string());
        // With other teams it is more like itself than like the others.
        let alike = exact.or_else(|| self.measured.get(&choice.method));
        alike.copied().unwrap_or(usual)
    }
}

/// A choice and what its exchange is expected to take.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// The choice.
    pub choice: Choice,
    /// What a step of it takes. When it could not win whatever its local work costs, that was left out.
    pub predicted: Predicted,
    /// Was its local work looked at?
    pub is_whole: bool,
}

/// The decision: what each choice takes on a line, the least first; among equals a dense one, which holds nothing back. Nothing
/// but these numbers decides.
pub fn rank(
    choices: Vec<Choice>,
    (workers, layouts, density): (u32, &[Layout], Density),
    line: Line,
    gammas: &Gammas,
) -> Vec<Ranked> {
    let predict = |choice: Choice| {
        let estimates = choice.estimates(workers, layouts, density);
        let model = Model::of_exchange(line, gammas.of(&choice));
        Ranked {
            predicted: model.predict_from(&estimates),
            choice,
            is_whole: true,
        }
    };
    let mut ranked: Vec<Ranked> = choices.into_iter().map(predict).collect();
    ranked.sort_by_key(|ranked| {
        let holds_back = ranked.choice.kind() == Kind::Sparse;
        (ranked.predicted.exchange(), holds_back)
    });
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_keeps_what_users_expect_and_has_a_name_that_builds_it_again() {
        for workers in [1, 2, 6, 8] {
            let choices = Space::default().choices(workers).unwrap();
            for choice in &choices {
                let laws = choice.algorithm().laws();
                assert!(laws.conserves || choice.kind() == Kind::Dense, "{choice}");
                let again = Choice::new(choice.method(), choice.options().clone()).unwrap();
                assert_eq!(again.algorithm().describe(), choice.algorithm().describe());
            }
            let names: Vec<String> = choices.iter().map(Choice::to_string).collect();
            assert!(names.iter().any(|name| name == "dense-bf16"), "{names:?}");
            assert!(!names.iter().any(|name| name == "random-k"), "{names:?}");
            let teams = names
                .iter()
                .any(|name| name == "spardl-bf16 --teams 2 --sag b");
            assert_eq!(teams, workers.is_multiple_of(2), "{names:?}");
        }
    }

    #[test]
    fn what_is_usual_was_measured_for_every_method() {
        let usual = Gammas::usual();
        for choice in Space::default().choices(2).unwrap() {
            let name = choice.to_string();
            assert!(usual.measured.contains_key(&name), "{name}");
        }
    }

    #[test]
    fn slow_lines_want_little_and_fast_ones_want_everything() {
        let layouts = [Layout::flat(1_000_000)];
        let density = Density::new(0.01).unwrap();
        let best = |latency, bandwidth| {
            let choices = Space::default().choices(8).unwrap();
            let line = Line { latency, bandwidth };
            let at = (8, layouts.as_slice(), density);
            // A machine on which long sums cost little.
            let gamma = |select, merge| Gamma { select, merge };
            let gammas = Gammas {
                dense: gamma(150, 100),
                ..Gammas::alike(gamma(600, 500))
            };
            rank(choices, at, line, &gammas).swap_remove(0).choice
        };
        assert_eq!(best(10_000, 1_000_000_000).kind(), Kind::Sparse);
        assert_eq!(best(100, 1 << 60).kind(), Kind::Dense);
    }
}
