//! One line of results.

use serde::Serialize;
use spardl::tune::Choice;
use spardl_algos::registry;
use spardl_core::ValueType;

use super::Case;
use super::args::MPI_ALLREDUCE;
use super::local::Local;
use super::quality::Quality;
use super::replay::Alone;
use super::workers::Timed;

/// The results of one method in one case. `spardl bench --help` says what the fields mean.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) method: String,
    pub(super) configuration: String,
    pub(super) workers: u32,
    pub(super) elements: u32,
    pub(super) size_bytes: u64,
    pub(super) density: f64,
    pub(super) teams: u32,
    pub(super) value_type: &'static str,
    pub(super) gradients: String,
    pub(super) correlation: f32,
    pub(super) seed: u64,
    pub(super) iterations: u32,
    pub(super) warmup: u32,
    pub(super) local: bool,
    pub(super) transport: &'static str,
    pub(super) time_ms: f64,
    pub(super) time_p10_ms: f64,
    pub(super) time_p90_ms: f64,
    pub(super) select_ms: f64,
    pub(super) exchange_ms: f64,
    pub(super) merge_ms: f64,
    pub(super) algbw_gbs: Option<f64>,
    pub(super) eff_busbw_gbs: Option<f64>,
    pub(super) wire_bytes: Option<u64>,
    pub(super) entries_sent: Option<u64>,
    pub(super) bytes_per_entry: Option<f64>,
    pub(super) bits_per_entry: Option<f64>,
    pub(super) rounds: Option<u32>,
    pub(super) nnz: u64,
    pub(super) density_achieved: f64,
    pub(super) relative_error: Option<f64>,
    pub(super) rescans: Option<f64>,
    pub(super) stream_ms: Option<f64>,
    pub(super) local_ratio: Option<f64>,
    pub(super) exchange_alone_ms: Option<f64>,
    pub(super) bare_ms: Option<f64>,
    pub(super) exchange_ratio: Option<f64>,
    pub(super) speedup_dense_f32: Option<f64>,
    pub(super) speedup_dense_bf16: Option<f64>,
    pub(super) agreed: bool,
    pub(super) conserved: Option<bool>,
    pub(super) wrong: Option<u64>,
}

/// What the parts of the measurement found; with MPI only the timed run and the exchange alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) local: Option<Local>,
    pub(super) timed: Option<Timed>,
    pub(super) quality: Option<Quality>,
    pub(super) alone: Option<Alone>,
}

impl Row {
    /// The same with the teams and the values of what was picked.
    pub(super) fn of_choice(self, choice: &Choice) -> Self {
        let teams = choice.options().set.get("teams");
        Self {
            teams: teams.and_then(|teams| teams.parse().ok()).unwrap_or(1),
            value_type: choice.algorithm().value_type().name(),
            ..self
        }
    }

    pub(super) fn new(case: &Case<'_>, name: &str, configuration: String, found: &Found) -> Self {
        let args = case.args;
        let own = registry::find(name).ok().and_then(|(_, own)| own);
        let values = match name {
            MPI_ALLREDUCE => ValueType::F32,
            _ => own.unwrap_or(args.method.value_type),
        };
        let Found {
            local,
            timed,
            quality,
            alone,
        } = found;
        let (local, timed) = (local.as_ref(), timed.as_ref());
        let cpu = timed.and_then(|t| t.cpu);
        let time = |timed_ms: fn(&Timed) -> f64, local_ms: fn(&Local) -> f64| {
            timed.map(timed_ms).or(local.map(local_ms)).unwrap_or(0.0)
        };
        let nnz = time(|t| t.nnz, |l| l.nnz);
        let sent = timed.map_or(local.map(|l| l.sent), |t| t.sent);
        let bytes_per_entry =
            sent.and_then(|sent| (sent.entries >= 1.0).then(|| sent.bytes / sent.entries));
        let elements = case.layout.len();
        let size_bytes = 4 * u64::from(elements);
        // Local work alone moves nothing.
        let algbw_gbs = timed.map(|t| size_bytes as f64 / t.time_ms.max(1e-9) / 1e6);
        let bus_factor = 2.0 * f64::from(case.workers - 1) / f64::from(case.workers);
        let recorded = args.gradients.as_ref();
        Self {
            method: name.to_owned(),
            configuration,
            workers: case.workers,
            elements,
            size_bytes,
            density: case.density,
            teams: args.method.teams.unwrap_or(1),
            value_type: values.name(),
            gradients: recorded.map_or_else(
                || args.distribution.to_string(),
                |path| path.display().to_string(),
            ),
            correlation: args.correlation,
            seed: args.seed,
            iterations: args.iterations,
            warmup: args.warmup,
            local: args.local,
            transport: case.transport,
            time_ms: time(|t| t.time_ms, |l| l.slowest_ms[0]),
            time_p10_ms: time(|t| t.p10_ms, |l| l.slowest_ms[1]),
            time_p90_ms: time(|t| t.p90_ms, |l| l.slowest_ms[2]),
            select_ms: time(|t| t.select_ms, |l| l.select_ms),
            exchange_ms: time(|t| t.exchange_ms, |_| 0.0),
            merge_ms: time(|t| t.merge_ms, |l| l.merge_ms),
            algbw_gbs,
            eff_busbw_gbs: algbw_gbs.map(|algbw| algbw * bus_factor),
            wire_bytes: sent.map(|sent| sent.bytes.round() as u64),
            entries_sent: sent.map(|sent| sent.entries.round() as u64),
            bytes_per_entry,
            bits_per_entry: bytes_per_entry.map(|bytes| 8.0 * bytes),
            rounds: local.map(|l| l.rounds).or(timed.and_then(|t| t.rounds)),
            nnz: nnz.round() as u64,
            density_achieved: nnz / f64::from(elements).max(1.0),
            relative_error: local.and_then(|l| l.relative_error),
            rescans: local.map(|l| l.rescans).or(timed.and_then(|t| t.rescans)),
            stream_ms: local.map(|l| l.stream_ms).or(cpu.map(|cpu| cpu.stream_ms)),
            local_ratio: local.map(|l| l.ratio).or(cpu.map(|cpu| cpu.ratio)),
            exchange_alone_ms: alone.map(|alone| alone.transport_ms),
            bare_ms: alone.map(|alone| alone.bare_ms),
            exchange_ratio: alone.map(|alone| alone.transport_ms / alone.bare_ms.max(1e-9)),
            speedup_dense_f32: None,
            speedup_dense_bf16: None,
            agreed: quality.is_none_or(|q| q.agreed)
                && local.is_none_or(|l| l.agreed)
                && timed.is_none_or(|t| t.disagreements == 0),
            conserved: quality.map(|q| q.conserved),
            wrong: quality.map(|q| q.wrong),
        }
    }
}

/// What the busiest worker sends in a step, mean over iterations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    pub(super) bytes: f64,
    pub(super) entries: f64,
}

impl Sent {
    /// From the bytes and entries of the busiest worker in each iteration.
    pub(super) fn mean(busiest: &[(u64, u64)]) -> Self {
        let count = busiest.len().max(1) as f64;
        Self {
            bytes: busiest.iter().map(|sent| sent.0).sum::<u64>() as f64 / count,
            entries: busiest.iter().map(|sent| sent.1).sum::<u64>() as f64 / count,
        }
    }
}

/// Fills in the speed-ups against the fastest dense row of each value type. Local work alone is not compared.
pub(super) fn compare_with_dense(rows: &mut [Row]) {
    let fastest = |value_type: &str| {
        let dense = rows.iter().filter(|row| {
            let dense = row.method.starts_with("dense") || row.method == MPI_ALLREDUCE;
            dense && row.value_type == value_type && !row.local
        });
        dense.map(|row| row.time_ms).min_by(f64::total_cmp)
    };
    let (f32_ms, bf16_ms) = (fastest("f32"), fastest("bf16"));
    for row in rows {
        row.speedup_dense_f32 = f32_ms.map(|ms| ms / row.time_ms);
        row.speedup_dense_bf16 = bf16_ms.map(|ms| ms / row.time_ms);
    }
}
