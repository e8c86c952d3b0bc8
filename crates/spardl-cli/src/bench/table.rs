//! The results as text.

use comfy_table::{CellAlignment, Table, presets};

use super::row::Row;
use super::{Args, Case};

/// What was run and how to read it.
pub(super) fn preamble(args: &Args) -> String {
    let place = if args.local {
        "workers one after another on one thread, local work only"
    } else {
        "workers as threads of one process"
    };
    let cores = std::thread::available_parallelism().map_or(1, Into::<usize>::into);
    format!(
        "# spardl {}: {place}, {cores} cores, {} iterations after {} warm-up, {} gradients, seed {}\n",
        env!("CARGO_PKG_VERSION"),
        args.iterations,
        args.warmup,
        args.distribution,
        args.seed
    )
}

/// The rows of one case.
pub(super) fn rows(case: &Case<'_>, rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "method",
        "time",
        "p10",
        "p90",
        "select",
        "exchange",
        "merge",
        "wire",
        "B/entry",
        "rounds",
        "nnz",
        "algbw",
        "eff_busbw",
        "vs f32",
        "vs bf16",
        "local",
        "rescans",
        "conserved",
        "#wrong",
    ]);
    table.add_row([
        "", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(kB)", "", "", "", "(GB/s)", "(GB/s)",
        "", "", "(x loop)", "", "", "",
    ]);
    for row in rows {
        let speedup = |x: Option<f64>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.2}x"));
        table.add_row([
            row.method.clone(),
            format!("{:.2}", row.time_ms),
            format!("{:.2}", row.time_p10_ms),
            format!("{:.2}", row.time_p90_ms),
            format!("{:.2}", row.select_ms),
            format!("{:.2}", row.exchange_ms),
            format!("{:.2}", row.merge_ms),
            format!("{:.1}", row.wire_bytes as f64 / 1e3),
            row.bytes_per_entry
                .map_or_else(|| "-".to_owned(), |b| format!("{b:.2}")),
            row.rounds.to_string(),
            row.nnz.to_string(),
            format!("{:.2}", row.algbw_gbs),
            format!("{:.2}", row.eff_busbw_gbs),
            speedup(row.speedup_dense_f32),
            speedup(row.speedup_dense_bf16),
            format!("{:.2}", row.local_ratio),
            format!("{:.2}", row.rescans),
            if row.conserved { "yes" } else { "no" }.to_owned(),
            if row.agreed {
                row.wrong.to_string()
            } else {
                format!("{} DISAGREE", row.wrong)
            },
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let stream = rows.first().map_or(0.0, |row| row.stream_ms);
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!(
        "\n# P = {}, n = {}, density {} (k = {}); plain loop {stream:.2} ms\n{}\n",
        case.workers,
        case.layout.len(),
        case.density,
        case.k,
        lines.join("\n")
    )
}
