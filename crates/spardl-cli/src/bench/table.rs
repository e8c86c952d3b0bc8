//! The results as text, in the manner of nccl-tests: comments and headings start with `#`.

use super::recorded::Recorded;
use super::row::Row;
use super::{Args, Case};
use crate::screen::{Sheet, comments, stdout_width};
use crate::stamp;

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
    let text = format!(
        "spardl {} ({})\n{place}; {} iterations after {} of warm-up\nmachine: {}\ngradients: {gradients}\n\
         times in ms, bandwidths in GB/s; spardl bench --help says what the columns mean",
        command.join(" "),
        stamp::version(),
        args.iterations,
        args.warmup,
        stamp::machine(),
    );
    comments(text.lines(), stdout_width())
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
        return heading + &table(rows, times.chain(&RESULTS), None);
    }
    let results = std::iter::once(&METHOD).chain(&RESULTS);
    let (times, results) = (
        table(rows, times, stdout_width()),
        table(rows, results, stdout_width()),
    );
    // In a narrow terminal a table has several parts, set apart by empty lines.
    let gap = if times.contains("\n\n") { "\n" } else { "" };
    heading + &times + gap + &results
}

fn table<'a>(
    rows: &[Row],
    columns: impl Iterator<Item = &'a Column>,
    width: Option<usize>,
) -> String {
    let columns: Vec<&Column> = columns.collect();
    let method = columns.iter().position(|column| column.name == METHOD.name);
    let names = columns.iter().map(|column| column.name);
    let cells = rows
        .iter()
        .map(|row| columns.iter().map(|column| (column.cell)(row)).collect());
    let sheet = Sheet::new(names, cells).with_key(method.unwrap_or(0));
    sheet.commented().text(width)
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
