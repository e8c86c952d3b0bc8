//! One line of results.

use serde::Serialize;
use spardl_core::ValueType;

use super::Case;
use super::local::Local;
use super::quality::Quality;
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
    pub(super) time_ms: f64,
    pub(super) time_p10_ms: f64,
    pub(super) time_p90_ms: f64,
    pub(super) select_ms: f64,
    pub(super) exchange_ms: f64,
    pub(super) merge_ms: f64,
    pub(super) algbw_gbs: Option<f64>,
    pub(super) eff_busbw_gbs: Option<f64>,
    pub(super) wire_bytes: u64,
    pub(super) entries_sent: u64,
    pub(super) bytes_per_entry: Option<f64>,
    pub(super) bits_per_entry: Option<f64>,
    pub(super) rounds: u32,
    pub(super) nnz: u64,
    pub(super) density_achieved: f64,
    pub(super) relative_error: Option<f64>,
    pub(super) rescans: f64,
    pub(super) stream_ms: f64,
    pub(super) local_ratio: f64,
    pub(super) speedup_dense_f32: Option<f64>,
    pub(super) speedup_dense_bf16: Option<f64>,
    pub(super) agreed: bool,
    pub(super) conserved: bool,
    pub(super) wrong: u64,
}

impl Row {
    pub(super) fn new(
        case: &Case<'_>,
        name: &str,
        configuration: String,
        local: &Local,
        timed: Option<&Timed>,
        quality: &Quality,
    ) -> Self {
        let args = case.args;
        let bf16 = name.ends_with("-bf16") || args.method.value_type == ValueType::Bf16;
        let [local_ms, local_p10, local_p90] = local.slowest_ms;
        let nnz = timed.map_or(local.nnz, |t| t.nnz);
        let sent = timed.map_or(local.sent, |t| t.sent);
        let bytes_per_entry = (sent.entries >= 1.0).then(|| sent.bytes / sent.entries);
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
            teams: args.method.teams,
            value_type: if bf16 { "bf16" } else { "f32" },
            gradients: recorded.map_or_else(
                || args.distribution.to_string(),
                |path| path.display().to_string(),
            ),
            correlation: args.correlation,
            seed: args.seed,
            iterations: args.iterations,
            warmup: args.warmup,
            local: args.local,
            time_ms: timed.map_or(local_ms, |t| t.time_ms),
            time_p10_ms: timed.map_or(local_p10, |t| t.p10_ms),
            time_p90_ms: timed.map_or(local_p90, |t| t.p90_ms),
            select_ms: timed.map_or(local.select_ms, |t| t.select_ms),
            exchange_ms: timed.map_or(0.0, |t| t.exchange_ms),
            merge_ms: timed.map_or(local.merge_ms, |t| t.merge_ms),
            algbw_gbs,
            eff_busbw_gbs: algbw_gbs.map(|algbw| algbw * bus_factor),
            wire_bytes: sent.bytes.round() as u64,
            entries_sent: sent.entries.round() as u64,
            bytes_per_entry,
            bits_per_entry: bytes_per_entry.map(|bytes| 8.0 * bytes),
            rounds: local.rounds,
            nnz: nnz.round() as u64,
            density_achieved: nnz / f64::from(elements).max(1.0),
            relative_error: local.relative_error,
            rescans: local.rescans,
            stream_ms: local.stream_ms,
            local_ratio: local.ratio,
            speedup_dense_f32: None,
            speedup_dense_bf16: None,
            agreed: quality.agreed && timed.is_none_or(|t| t.disagreements == 0),
            conserved: quality.conserved,
            wrong: quality.wrong,
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
            row.method.starts_with("dense") && row.value_type == value_type && !row.local
        });
        dense.map(|row| row.time_ms).min_by(f64::total_cmp)
    };
    let (f32_ms, bf16_ms) = (fastest("f32"), fastest("bf16"));
    for row in rows {
        row.speedup_dense_f32 = f32_ms.map(|ms| ms / row.time_ms);
        row.speedup_dense_bf16 = bf16_ms.map(|ms| ms / row.time_ms);
    }
}
