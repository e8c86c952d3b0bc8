//! The result of one method, as JSON has it.

use serde::Serialize;
use spardl_core::Algorithm;
use spardl_sim::{Fabric, Scenario, Simulated, Spent};

/// Times are nanoseconds; bytes include headers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) method: String,
    pub(super) configuration: String,
    /// The middle one of the steps that count, of all seeds.
    pub(super) median_ns: u64,
    /// What 99 in 100 of them do not exceed.
    pub(super) p99_ns: u64,
    /// All of them, seed by seed.
    pub(super) steps_ns: Vec<u64>,
    /// The most rounds of a worker.
    pub(super) rounds: u32,
    /// The most messages that a worker sends.
    pub(super) messages: u64,
    pub(super) bytes_per_worker: Bytes,
    pub(super) bytes_total: u64,
    pub(super) links: Links,
    pub(super) critical_path: CriticalPath,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Bytes {
    pub(super) most: u64,
    pub(super) mean: f64,
    pub(super) least: u64,
    /// Of every worker, in rank order.
    pub(super) each: Vec<u64>,
}

/// What links carried, of the median seed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Links {
    /// How many carried anything.
    pub(super) used: usize,
    /// Bytes of a link, on average over those.
    pub(super) mean_bytes: f64,
    /// The one that needs most time for what it carries.
    pub(super) busiest: Option<Busiest>,
    /// Every link that carried anything.
    pub(super) each: Vec<Carried>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Carried {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) busy_ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Busiest {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) busy_ns: u64,
    /// The part of the step in which it is busy.
    pub(super) utilisation: f64,
}

/// What the last worker to finish had waited for; the parts add up to the step.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct CriticalPath {
    pub(super) from_worker: u32,
    pub(super) to_worker: u32,
    pub(super) messages: u32,
    pub(super) slowest: Option<SlowestMessage>,
    pub(super) compute_ns: u64,
    pub(super) select_ns: u64,
    pub(super) merge_ns: u64,
    pub(super) latency_ns: u64,
    pub(super) transfer_ns: u64,
    pub(super) contention_ns: u64,
    pub(super) faults_ns: u64,
    pub(super) cores_ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct SlowestMessage {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) round: u32,
    pub(super) nanos: u64,
}

impl Row {
    pub(super) fn new(
        name: &str,
        algorithm: &dyn Algorithm,
        scenario: &Scenario,
        simulated: &Simulated,
    ) -> Self {
        let ledger = &simulated.report.ledger;
        let total: u64 = ledger.bytes.iter().sum();
        Self {
            method: name.to_owned(),
            configuration: algorithm.describe(),
            median_ns: simulated.median(),
            p99_ns: simulated.p99(),
            steps_ns: simulated.steps.clone(),
            rounds: ledger.rounds.iter().copied().max().unwrap_or(0),
            messages: ledger.messages.iter().copied().max().unwrap_or(0),
            bytes_per_worker: Bytes {
                most: ledger.bytes.iter().copied().max().unwrap_or(0),
                mean: total as f64 / ledger.bytes.len().max(1) as f64,
                least: ledger.bytes.iter().copied().min().unwrap_or(0),
                each: ledger.bytes.clone(),
            },
            bytes_total: total,
            links: links(&scenario.fabric, simulated),
            critical_path: critical_path(simulated),
        }
    }
}

fn links(fabric: &Fabric, simulated: &Simulated) -> Links {
    let links = simulated.report.timing.links.iter().enumerate();
    let used = links.filter(|(_, link)| link.bytes > 0);
    let each: Vec<Carried> = used
        .map(|(at, link)| Carried {
            name: fabric.link_name(at),
            bytes: link.bytes,
            busy_ns: link.busy,
        })
        .collect();
    let bytes: u64 = each.iter().map(|link| link.bytes).sum();
    // The first of equals.
    let busiest = each.iter().rev().max_by_key(|link| link.busy_ns);
    Links {
        used: each.len(),
        mean_bytes: bytes as f64 / each.len().max(1) as f64,
        busiest: busiest.map(|link| Busiest {
            name: link.name.clone(),
            bytes: link.bytes,
            busy_ns: link.busy_ns,
            utilisation: link.busy_ns as f64 / simulated.median().max(1) as f64,
        }),
        each,
    }
}

fn critical_path(simulated: &Simulated) -> CriticalPath {
    let Some(path) = simulated.path() else {
        return CriticalPath::default();
    };
    let slowest = (path.hops > 0).then_some(SlowestMessage {
        from: path.slowest.from,
        to: path.slowest.to,
        round: path.slowest.round,
        nanos: path.slowest.nanos,
    });
    CriticalPath {
        from_worker: path.first.get(),
        to_worker: path.last.get(),
        messages: path.hops,
        slowest,
        compute_ns: path.spent(Spent::Compute),
        select_ns: path.spent(Spent::Select),
        merge_ns: path.spent(Spent::Merge),
        latency_ns: path.spent(Spent::Latency),
        transfer_ns: path.spent(Spent::Transfer),
        contention_ns: path.spent(Spent::Contention),
        faults_ns: path.spent(Spent::Faults),
        cores_ns: path.spent(Spent::Cores),
    }
}

/// Everything in one object; nothing in it depends on the host.
pub(super) fn json(scenario: &Scenario, rows: &[impl Serialize]) -> anyhow::Result<String> {
    let elements: Vec<u32> = scenario.layouts.iter().map(|layout| layout.len()).collect();
    let line = scenario.fabric.line();
    let whole = serde_json::json!({
        "workers": scenario.fabric.workers(),
        "topology": scenario.fabric.topology().to_string(),
        "latency_ns": line.latency,
        "bandwidth_bits": line.bandwidth,
        "elements": elements,
        "density": scenario.density.get(),
        "seed": scenario.seed,
        "seeds": scenario.seeds,
        "warmup": scenario.warmup,
        "steps": scenario.steps,
        "methods": rows,
    });
    Ok(serde_json::to_string_pretty(&whole)? + "\n")
}
