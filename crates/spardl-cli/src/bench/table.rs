//! The results as text, in the manner of nccl-tests: comments and headings start with `#`.

use std::fs;

use comfy_table::{CellAlignment, Table, presets};
use spardl_kernels::Level;

use super::recorded::Recorded;
use super::row::Row;
use super::{Args, Case};

/// What was run, where, and how to read it.
pub(super) fn preamble(args: &Args, recorded: Option<&Recorded>, place: &str) -> String {
    let place = if args.local {
        "workers one after another on one thread, local work only"
    } else {
        place
    };
    let gradients = match (recorded, &args.gradients) {
        (Some(recorded), Some(path)) => {
            format!("{} samples of {}", recorded.samples.len(), path.display())
        }
        _ => format!(
            "{}, correlation {}, seed {}",
            args.distribution, args.correlation, args.seed
        ),
    };
    let command = crate::output::arguments();
    format!(
        "# spardl {} ({})\n# {place}; {} iterations after {} of warm-up\n# machine: {}\n# gradients: {gradients}\n\
         # times in ms, bandwidths in GB/s; spardl bench --help says what the columns mean\n",
        command.join(" "),
        version(),
        args.iterations,
        args.warmup,
        machine(),
    )
}

/// The version, and the commit where the build knew it.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("SPARDL_COMMIT") {
        Some(commit) => format!("{version}, commit {commit}"),
        None => version.to_owned(),
    }
}

/// The processor, its cores, the level of the kernels and the system's kernel, as far as the system says.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, Into::<usize>::into);
    let mut words = vec![format!("{cores} cores")];
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processor
        .lines()
        .find(|line| line.starts_with("model name"));
    words.extend(model.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned())));
    words.push(Level::best().name().to_owned());
    if let Ok(kernel) = fs::read_to_string("/proc/sys/kernel/osrelease") {
        words.push(format!("Linux {}", kernel.trim()));
    }
    words.join(", ")
}

struct Column {
    name: &'static str,
    cell: fn(&Row) -> String,
}

const fn column(name: &'static str, cell: fn(&Row) -> String) -> Column {
    Column { name, cell }
}

const SIZE: Column = column("size", |row| row.size_bytes.to_string());
const COUNT: Column = column("count", |row| row.elements.to_string());
const METHOD: Column = column("method", |row| row.method.clone());

const TIMES: [Column; 11] = [
    column("time", |row| number(row.time_ms)),
    column("p10", |row| number(row.time_p10_ms)),
    column("p90", |row| number(row.time_p90_ms)),
    column("select", |row| number(row.select_ms)),
    column("exch", |row| number(row.exchange_ms)),
    column("merge", |row| number(row.merge_ms)),
    column("algbw", |row| maybe(row.algbw_gbs)),
    column("eff_busbw", |row| maybe(row.eff_busbw_gbs)),
    column("vs_f32", |row| maybe(row.speedup_dense_f32)),
    column("vs_bf16", |row| maybe(row.speedup_dense_bf16)),
    column("#wrong", |row| whole(row.wrong)),
];

const RESULTS: [Column; 11] = [
    column("density", |row| number(row.density_achieved)),
    column("nnz", |row| row.nnz.to_string()),
    column("wire", |row| whole(row.wire_bytes)),
    column("bits", |row| maybe(row.bits_per_entry)),
    column("rounds", |row| whole(row.rounds)),
    column("error", |row| maybe(row.relative_error)),
    column("local", |row| maybe(row.local_ratio)),
    column("x_bare", |row| maybe(row.exchange_ratio)),
    column("rescans", |row| maybe(row.rescans)),
    column("agreed", |row| yes_or_no(Some(row.agreed))),
    column("conserved", |row| yes_or_no(row.conserved)),
];

/// The rows of one case.
pub(super) fn rows(case: &Case<'_>, rows: &[Row]) -> String {
    let stream = rows.first().and_then(|row| row.stream_ms);
    let stream = stream.map_or_else(String::new, |ms| format!("; plain loop {} ms", number(ms)));
    let heading = format!(
        "\n# P = {}, density {} (k = {}){stream}\n",
        case.workers, case.density, case.k
    );
    let times = [&SIZE, &COUNT, &METHOD].into_iter().chain(&TIMES);
    if case.args.wide {
        return heading + &table(rows, times.chain(&RESULTS));
    }
    let results = std::iter::once(&METHOD).chain(&RESULTS);
    format!("{heading}{}{}", table(rows, times), table(rows, results))
}

fn table<'a>(rows: &[Row], columns: impl Iterator<Item = &'a Column>) -> String {
    let columns: Vec<&Column> = columns.collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let names = columns.iter().enumerate().map(|(i, column)| match i {
        0 => format!("# {}", column.name),
        _ => column.name.to_owned(),
    });
    table.set_header(names);
    for row in rows {
        table.add_row(columns.iter().map(|column| (column.cell)(row)));
    }
    for (shown, column) in table.column_iter_mut().zip(&columns) {
        shown.set_padding((0, 1));
        if column.name != METHOD.name {
            shown.set_cell_alignment(CellAlignment::Right);
        }
    }
    // A right-aligned first heading must still start its line with the mark of a comment.
    let text = table.to_string();
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    if let Some(heading) = lines.first_mut() {
        let name = heading.trim_start_matches([' ', '#']);
        *heading = format!("#{name:>width$}", width = heading.chars().count() - 1);
    }
    lines.join("\n") + "\n"
}

/// Four significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        size if size >= 1.0 || size == 0.0 => format!("{value:.3}"),
        size if size >= 0.0001 => format!("{value:.4}"),
        _ => format!("{value:.0e}"),
    }
}

fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

fn whole(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn yes_or_no(value: Option<bool>) -> String {
    match value {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_or_fewer() {
        let shown = [12345.6, 123.46, 12.346, 1.2346, 0.01234, 3e-7, 0.0].map(number);
        assert_eq!(
            shown,
            [
                "12346", "123.5", "12.35", "1.235", "0.0123", "3e-7", "0.000"
            ]
        );
    }
}
