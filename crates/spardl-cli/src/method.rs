//! The options that configure a method, shared by the subcommands.

use std::collections::BTreeMap;

#[cfg(feature = "train")]
use spardl::AUTO;
use spardl_algos::{Options, Residual, Sag, registry};
use spardl_core::{Algorithm, Codec, IndexCoding, Layout, ValueType, World, offer};

use crate::output::bad_request;

/// How a method is configured.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct MethodArgs {
    /// SparDL: number of teams (1); must divide the number of workers. More teams: fewer rounds, but more bytes (r) or a larger residual (b).
    #[arg(long, value_name = "D")]
    pub(crate) teams: Option<u32>,
    /// SparDL: how teams synchronise: r (recursive doubling), b (Bruck with adaptive length), auto (the default).
    #[arg(long, value_name = "auto|r|b")]
    pub(crate) sag: Option<Sag>,
    /// SparDL: what is kept of undelivered mass: auto (the default: global-b below 0.5 %, else global-a), global-a, global-b, no-in-procedure, local, none.
    #[arg(long, value_name = "RULE")]
    pub(crate) residual: Option<Residual>,
    /// How values travel. A method named NAME-TYPE, like spardl-q4, uses that type whatever this says.
    #[arg(long, default_value = "f32", value_name = "f32|bf16|q8|q4|q2|q1")]
    pub(crate) value_type: ValueType,
    /// Send raw 32-bit indices instead of packed ones.
    #[arg(long)]
    pub(crate) raw_indices: bool,
    /// An option of a single method: METHOD.OPTION=VALUE (see `spardl explain METHOD`). May be repeated.
    #[arg(long = "set", value_name = "METHOD.OPTION=VALUE")]
    pub(crate) set: Vec<String>,
}

impl MethodArgs {
    /// The algorithm of that name with these options.
    pub(crate) fn build(&self, name: &str) -> anyhow::Result<Box<dyn Algorithm>> {
        let (entry, _) = registry::find(name).map_err(bad_request)?;
        let indices = if self.raw_indices {
            IndexCoding::Raw
        } else {
            IndexCoding::Packed
        };
        let options = Options {
            codec: Codec {
                values: self.value_type,
                indices,
            },
            set: self.settings(entry.name)?,
        };
        registry::build(name, &options).map_err(bad_request)
    }

    /// The residual rule of SparDL that is asked for, by its flag or by `--set`.
    #[cfg(feature = "train")]
    pub(crate) fn residual_rule(&self) -> anyhow::Result<Residual> {
        match self.settings("spardl")?.get("residual") {
            Some(rule) => rule.parse().map_err(bad_request),
            None => Ok(Residual::default()),
        }
    }

    /// The settings that concern one method.
    fn settings(&self, method: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let mut settings = BTreeMap::new();
        for setting in &self.set {
            let parts = setting.split_once('=').and_then(|(path, value)| {
                let (method, option) = path.trim().split_once('.')?;
                Some((method, option, value.trim()))
            });
            let Some((name, option, value)) = parts else {
                let message = format!("--set '{setting}' is not METHOD.OPTION=VALUE");
                return Err(bad_request(message));
            };
            let (entry, _) = registry::find(name).map_err(bad_request)?;
            let known: Vec<&str> = entry.options.iter().map(|(known, _)| *known).collect();
            if !known.contains(&option) {
                return Err(bad_request(match known.as_slice() {
                    [] => format!("--set '{setting}': {} has no options", entry.name),
                    known => format!(
                        "--set '{setting}': {} has no option '{option}': {}",
                        entry.name,
                        offer(option, known)
                    ),
                }));
            }
            // An option of NAME is one of NAME-TYPE too, and the other way round.
            if entry.name == method {
                settings.insert(option.to_owned(), value.to_owned());
            }
        }
        for (option, value) in self.shorthands() {
            let Some(value) = value.filter(|_| method == "spardl") else {
                continue;
            };
            if let Some(other) = settings.insert(option.to_owned(), value.clone())
                && other != value
            {
                let message =
                    format!("--{option} {value} and --set spardl.{option}={other} differ");
                return Err(bad_request(message));
            }
        }
        Ok(settings)
    }

    /// The options of SparDL that have a flag of their own.
    fn shorthands(&self) -> [(&'static str, Option<String>); 3] {
        [
            ("teams", self.teams.map(|teams| teams.to_string())),
            ("sag", self.sag.map(|sag| sag.to_string())),
            ("residual", self.residual.map(|rule| rule.to_string())),
        ]
    }
}

/// The name of a method whose values travel like that: NAME for f32, else NAME-TYPE.
#[cfg(feature = "train")]
pub(crate) fn full_name(name: &str, values: ValueType) -> String {
    // What is chosen has a value type of its own.
    let typed = name == AUTO || registry::find(name).is_ok_and(|(_, own)| own.is_some());
    if typed || values == ValueType::F32 {
        name.to_owned()
    } else {
        format!("{name}-{values}")
    }
}

/// Refuses a method that so many workers cannot run, before anything else is made of it.
pub(crate) fn check_workers(algorithm: &dyn Algorithm, workers: u32) -> anyhow::Result<()> {
    let first = World::new(0, workers).map_err(bad_request)?;
    // What a method asks of the number of workers it asks of every bucket, also of one without elements.
    let machine = algorithm.machine(first, &Layout::flat(0));
    machine.map(drop).map_err(bad_request)
}

/// The names of `--methods`: a comma-separated list, or `all`.
pub(crate) fn names(methods: &str) -> anyhow::Result<Vec<String>> {
    if methods == "all" {
        let dense = ["dense", "dense-bf16"].map(str::to_owned);
        let rest = registry::METHODS.iter().map(|entry| entry.name.to_owned());
        return Ok(dense
            .into_iter()
            .chain(rest.filter(|name| name != "dense"))
            .collect());
    }
    let names: Vec<String> = methods
        .split(',')
        .map(|name| name.trim().to_owned())
        .collect();
    for name in &names {
        registry::find(name).map_err(bad_request)?;
    }
    Ok(names)
}
