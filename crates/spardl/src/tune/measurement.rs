//! What was measured, as JSON, with the conditions it holds for; and a file of such measurements.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use spardl_core::{Gamma, Line};

use super::{Choice, Gammas};

/// What a measurement holds for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Conditions {
    /// Of this library.
    pub version: String,
    /// The number of workers.
    pub workers: u32,
    /// The lengths of the buckets.
    pub lengths: Vec<u32>,
    /// The density.
    pub density: String,
    /// The type of the transport.
    pub transport: String,
    /// The host of every rank, with its SIMD level.
    pub hosts: Vec<String>,
    /// The value types that were allowed.
    pub values: Vec<String>,
    /// Was every method measured, or those that may win?
    pub every_method: bool,
}

/// Alpha, beta and gamma as measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measurement {
    conditions: Conditions,
    latency_ns: u64,
    bandwidth_bits_per_s: u64,
    /// By choice: picoseconds of selecting per element, and of merging per byte.
    gamma_ps: BTreeMap<String, (u64, u64)>,
}

/// Text that is not a measurement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a measurement of spardl tune: {0}")]
pub struct MeasurementError(String);

impl Measurement {
    pub(super) const fn new(conditions: Conditions, line: Line) -> Self {
        Self {
            conditions,
            latency_ns: line.latency,
            bandwidth_bits_per_s: line.bandwidth,
            gamma_ps: BTreeMap::new(),
        }
    }

    /// What it holds for.
    pub const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Alpha and beta.
    pub const fn line(&self) -> Line {
        Line {
            latency: self.latency_ns,
            bandwidth: self.bandwidth_bits_per_s,
        }
    }

    /// The gamma of a choice, if it was measured.
    pub fn gamma(&self, choice: &Choice) -> Option<Gamma> {
        let &(select, merge) = self.gamma_ps.get(&choice.to_string())?;
        Some(Gamma { select, merge })
    }

    pub(super) fn set_gamma(&mut self, choice: &Choice, gamma: Gamma) {
        let costs = (gamma.select, gamma.merge);
        self.gamma_ps.insert(choice.to_string(), costs);
    }

    /// The gamma of all methods: of those that were not measured, the median of their kind, or nothing when that has none.
    pub fn gammas(&self) -> Gammas {
        let is_dense = |name: &str| name.starts_with("dense");
        let median = |dense: bool| {
            let of_kind = || self.gamma_ps.iter().filter(|(n, _)| is_dense(n) == dense);
            let middle = |cost: fn(&(u64, u64)) -> u64| {
                let mut costs: Vec<u64> = of_kind().map(|(_, costs)| cost(costs)).collect();
                costs.sort_unstable();
                costs.get(costs.len() / 2).copied().unwrap_or(0)
            };
            Gamma {
                select: middle(|costs| costs.0),
                merge: middle(|costs| costs.1),
            }
        };
        let measured = self.gamma_ps.iter().map(|(name, &(select, merge))| {
            let gamma = Gamma { select, merge };
            (name.clone(), gamma)
        });
        Gammas {
            sparse: median(false),
            dense: median(true),
            measured: measured.collect(),
        }
    }

    /// As text that [`Measurement::from_json`] reads.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("names and numbers")
    }

    /// What [`Measurement::to_json`] wrote.
    ///
    /// # Errors
    /// When it is something else.
    pub fn from_json(text: &[u8]) -> Result<Self, MeasurementError> {
        let read: Self =
            serde_json::from_slice(text).map_err(|error| MeasurementError(error.to_string()))?;
        match read.bandwidth_bits_per_s {
            0 => Err(MeasurementError("its bandwidth is 0".to_owned())),
            _ => Ok(read),
        }
    }
}

/// The most measurements that a file keeps; the oldest go first.
const MOST: usize = 64;

/// The measurement that a file has for these conditions; and a complaint when the file is none of ours.
pub(super) fn read(path: &Path, conditions: &Conditions) -> (Option<Measurement>, Option<String>) {
    match read_all(path) {
        Ok(all) => {
            let mut all = all.into_iter().rev();
            (all.find(|known| known.conditions == *conditions), None)
        }
        Err(complaint) => (None, Some(complaint)),
    }
}

fn read_all(path: &Path) -> Result<Vec<Measurement>, String> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    serde_json::from_slice(&text).map_err(|error| {
        let path = path.display();
        format!("{path} is left as it is, it is no cache of tunings: {error}")
    })
}

/// Adds a measurement to a file.
pub(super) fn write(path: &Path, measured: &Measurement) -> Result<(), String> {
    let mut all = read_all(path)?;
    all.retain(|known| known.conditions != measured.conditions);
    all.push(measured.clone());
    let from = all.len().saturating_sub(MOST);
    let text = serde_json::to_string_pretty(&all[from..]).expect("names and numbers");
    // By a rename: another run may read it now.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = parent.and_then(|()| fs::write(&new, text));
    let written = written.and_then(|()| fs::rename(&new, path));
    written.map_err(|error| format!("{}: {error}", path.display()))
}
