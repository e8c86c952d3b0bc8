//! SparDL: Spar-Reduce-Scatter, Spar-All-Gather between teams, Bruck's all-gather, global residual collection.
//!
//! Paper: Zhao et al., "SparDL: Distributed Deep Learning Training with Efficient Sparse Communication", ICDE 2024.
//!
//! The idea: cut the gradient into as many blocks as a team has workers and reduce-scatter them in ceil(log2 m) rounds. Before a
//! round, only the blocks sent next are sparsified to their quota; a block that stays is still dense when messages are added
//! to it, so no message ever grows beyond its quota and nothing is thrown away before the sum is known. The owner
//! selects the final entries of its block, teams synchronise their columns (R-SAG or B-SAG), and the final blocks are
//! gathered. What was not delivered is collected in the residuals: nothing is lost.
//!
//! Words: *team* = one of d runs of m = P/d consecutive ranks; *column* = the workers of equal position in all teams; *quota* =
//! the entries a block may send, k/m on average, rotating with the step.
//!
//! Example, 5 workers, one team, k = 5, so one entry per block (blocks 0..4 of the gradient). Gaps 4, 2, 1, worker 0: it sends its
//! largest entry of block 4 to worker 4 and adds worker 1's entry of block 0 to its own; sends {2,3} to 2, adds {0,1}
//! from 3; sends {1} to 1, adds {0} from 4. Block 0 now holds the sum of all; its largest entry is final and is gathered by
//! everybody in 3 more rounds. Entries that worker 0 sent but that did not become final return to its residual (global-a).
//!
//! Rounds: 2 ceil(log2 m) + ceil(log2 d). Bytes: 4 k (P - 1)/P words per worker with one team; R-SAG 2 k (2P - 2d + d log2 d)/P;
//! B-SAG 4 k (P - d)/P + 2 (d - 1) h with k/P <= h <= k d/P. With R-SAG two teams cost the bytes of one and a round less.
//!
//! Residual rules: *global-a* (the authors' code): the in-procedure rest where an index is final, the worker's own input
//! elsewhere. *global-b*: everything stays where it was dropped. Both conserve exactly. *auto* (default) is global-b below a
//! density of 0.5 %, where it trains better and costs no more, and global-a from there on, where the two train alike and global-a
//! writes to half as many places. For comparison: *no-in-procedure* loses what a worker received and did not send on, *local* also
//! loses what was sent in vain, *none* keeps nothing.
//!
//! Limitations: a block that holds all the large values gets the same quota as an empty one. Under global-a opposing values of
//! two workers are sent again and again (global-b settles them). Under global-b mass is lost with a worker that disappears.
//!
//! Differs from the authors' code: ceil(log2 m) rounds of one message each, not m - 1 waits of three; any number of teams that
//! divides P, R-SAG included; the controller of h starts with a step of at least 1 and keeps ceil(q/d) <= h <= q; lists
//! of a column are added in team order on every worker; quotas rotate so that k < m starves no block; zeros and
//! padding are never sent.

mod cost;
mod inter_team;
mod machine;

use std::fmt;
use std::str::FromStr;

use spardl_core::{
    Algorithm, Codec, ConfigError, Cost, Estimate, Laws, Layout, Machine, Support, ValueType,
    World, offer,
};

use crate::Options;
use crate::registry::Entry;
use crate::usual::Length;
use machine::Worker;

/// The method in the registry.
pub(crate) const ENTRY: Entry = Entry {
    name: "spardl",
    summary: "SparDL: sparse reduce-scatter, optional teams, global residuals",
    options: &[
        (
            "teams",
            "a divisor of the number of workers (1): fewer rounds; r sends more bytes, b keeps a larger residual",
        ),
        (
            "sag",
            "auto, r (teams a power of two), b (any): how teams synchronise",
        ),
        (
            "residual",
            "auto (global-b below 0.5 %, else global-a), global-a, global-b, no-in-procedure, local, none: what is kept",
        ),
    ],
    source: include_str!("mod.rs"),
    variants,
    build: |options| Ok(Box::new(SparDl::from_options(options)?)),
};

/// How the teams of SparDL synchronise their columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sag {
    /// R-SAG when the number of teams is a power of two, else B-SAG.
    #[default]
    Auto,
    /// Recursive doubling; needs a power of two of teams.
    R,
    /// Bruck's all-gather with an adaptive list length; any number of teams.
    B,
}

impl FromStr for Sag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "r" | "R" => Ok(Self::R),
            "b" | "B" => Ok(Self::B),
            _ => Err(format!(
                "'{text}' is not a way to synchronise teams: use auto, r or b"
            )),
        }
    }
}

impl fmt::Display for Sag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::R => "r",
            Self::B => "b",
        })
    }
}

/// What becomes of mass that a step did not deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Residual {
    /// Nothing is kept.
    None,
    /// What a worker did not send of its own is kept; the rest is lost.
    Local,
    /// As `Local`, and what was sent in vain is kept; only what was received and not sent on is lost.
    NoInProcedure,
    /// `GlobalB` in steps of a density below [`Residual::SPARSE`], `GlobalA` in others.
    #[default]
    Auto,
    /// Everything is kept: in-procedure rests at final indices, own inputs elsewhere (the authors' rule).
    GlobalA,
    /// Everything is kept where it was dropped.
    GlobalB,
}

impl Residual {
    /// All rules, by name.
    pub const ALL: [(&'static str, Self); 6] = [
        ("auto", Self::Auto),
        ("none", Self::None),
        ("local", Self::Local),
        ("no-in-procedure", Self::NoInProcedure),
        ("global-a", Self::GlobalA),
        ("global-b", Self::GlobalB),
    ];

    /// The rules that are the same in every step: all but [`Residual::Auto`], which is one of them in each.
    pub fn fixed() -> impl Iterator<Item = (&'static str, Self)> {
        let all = Self::ALL.into_iter();
        all.filter(|(_, rule)| *rule != Self::Auto)
    }

    /// Does the rule keep everything?
    pub const fn conserves(self) -> bool {
        matches!(self, Self::Auto | Self::GlobalA | Self::GlobalB)
    }

    /// Below one entry in so many, mass that returns to its origin comes too late: where it was dropped, more of it meets.
    pub const SPARSE: usize = 200;

    /// The rule of a step that wants `k` of `len` entries; the same on all workers.
    pub(crate) const fn at(self, k: usize, len: u32) -> Self {
        match self {
            Self::Auto if k < len as usize / Self::SPARSE => Self::GlobalB,
            Self::Auto => Self::GlobalA,
            rule => rule,
        }
    }
}

impl FromStr for Residual {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rule = Self::ALL.iter().find(|(name, _)| *name == text);
        rule.map(|(_, rule)| *rule).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("'{text}' is not a residual rule: {}", offer(text, &names))
        })
    }
}

impl fmt::Display for Residual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL
            .iter()
            .find(|(_, rule)| rule == self)
            .map(|(name, _)| *name);
        f.write_str(name.expect("every rule is in the list"))
    }
}

/// Configuration of SparDL.
#[derive(Clone, Copy, Debug)]
pub struct SparDl {
    /// The number of teams d; must divide the number of workers.
    pub teams: u32,
    /// How teams synchronise.
    pub sag: Sag,
    /// What becomes of undelivered mass.
    pub residual: Residual,
    /// How entries travel.
    pub codec: Codec,
}

impl Default for SparDl {
    fn default() -> Self {
        Self {
            teams: 1,
            sag: Sag::default(),
            residual: Residual::default(),
            codec: Codec::default(),
        }
    }
}

/// Every division into teams, both ways to synchronise them, every rule for the residual but the default.
fn variants(workers: u32) -> Vec<Options> {
    let mut all = Vec::new();
    for teams in (1..=workers).filter(|&teams| workers.is_multiple_of(teams)) {
        for sag in [Sag::R, Sag::B] {
            let pointless = teams == 1 && sag == Sag::B;
            if pointless || (sag == Sag::R && !teams.is_power_of_two()) {
                continue;
            }
            let options = Options::default().with("teams", teams).with("sag", sag);
            let rules = Residual::fixed();
            all.extend(rules.map(|(rule, _)| options.clone().with("residual", rule)));
        }
    }
    all
}

impl SparDl {
    /// SparDL with the options that concern it.
    ///
    /// # Errors
    /// When an option has a value that is not accepted.
    pub fn from_options(options: &Options) -> Result<Self, ConfigError> {
        let rules = Residual::ALL.map(|(name, _)| name).join(", ");
        let (name, rules) = ("spardl", format!("use one of {rules}"));
        let (default, teams) = (Self::default(), "a divisor of the workers");
        Ok(Self {
            teams: options.parsed(name, "teams", default.teams, teams, |text| {
                text.parse().ok()
            })?,
            sag: options.parsed(name, "sag", default.sag, "use auto, r or b", |text| {
                text.parse().ok()
            })?,
            residual: options.parsed(name, "residual", default.residual, &rules, |text| {
                text.parse().ok()
            })?,
            codec: options.codec,
        })
    }

    /// Do the teams synchronise by recursive doubling?
    fn doubles(&self) -> bool {
        match self.sag {
            Sag::Auto => self.teams.is_power_of_two(),
            Sag::R => true,
            Sag::B => false,
        }
    }
}

impl Algorithm for SparDl {
    fn name(&self) -> &'static str {
        "spardl"
    }

    fn describe(&self) -> String {
        let Self {
            teams,
            sag,
            residual,
            codec,
        } = self;
        format!(
            "spardl teams={teams} sag={sag} residual={residual} values={}",
            codec
        )
    }

    fn value_type(&self) -> ValueType {
        self.codec.values
    }

    fn machine(&self, world: World, layout: &Layout) -> Result<Box<dyn Machine>, ConfigError> {
        let (team, column) = (world.team(self.teams)?, world.column(self.teams)?);
        if self.doubles() && !self.teams.is_power_of_two() {
            return Err(ConfigError::BadOption {
                method: "spardl".to_owned(),
                option: "sag".to_owned(),
                value: "r".to_owned(),
                expected: format!("{} teams are not a power of two: use b or auto", self.teams),
            });
        }
        Ok(Box::new(Worker::new(*self, team, column, layout.len())))
    }

    fn cost(&self, workers: u32, layout: &Layout, k: usize, step: u64) -> Cost {
        let len = layout.len();
        cost::cost(self, workers, len, (k, step), Length::Most)
    }

    fn estimate(&self, workers: u32, layout: &Layout, k: usize, step: u64) -> Estimate {
        let len = layout.len();
        cost::cost(self, workers, len, (k, step), Length::Usual).into()
    }

    fn laws(&self) -> Laws {
        Laws {
            conserves: self.residual.conserves(),
            support: Support::K,
            ..Laws::default()
        }
    }
}
