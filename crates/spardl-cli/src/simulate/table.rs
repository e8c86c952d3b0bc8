//! The results as a table and words.

use spardl_sim::Scenario;

use super::row::{CriticalPath, Row};
use super::units::{show_bytes, show_rate, show_time};
use crate::screen::{Sheet, comments, stdout_width};

/// What was simulated, a table of methods, and a line on each.
pub(super) fn text(scenario: &Scenario, rows: &[Row]) -> String {
    let mut text = comments(heading(scenario).lines(), stdout_width());
    text += &table(
        &[
            "method", "step", "p99", "rounds", "bytes", "latency", "transfer", "shared", "select",
            "merge", "cores", "compute", "faults",
        ],
        rows.iter().map(cells),
    );
    text.push('\n');
    let remarks: Vec<String> = rows.iter().map(remark).collect();
    text + &comments(remarks.iter().map(String::as_str), stdout_width())
}

fn heading(scenario: &Scenario) -> String {
    let elements: u64 = scenario.layouts.iter().map(|l| u64::from(l.len())).sum();
    let line = scenario.fabric.line();
    format!(
        "{} workers, {}, {} and {} a message; {elements} elements in {} bucket{}, density {}\n\
         median of {} seed{} after {} steps of warm-up; bytes of the busiest worker; where the time of the step went:",
        scenario.fabric.workers(),
        scenario.fabric.topology(),
        show_rate(line.bandwidth as f64),
        show_time(line.latency as f64),
        scenario.layouts.len(),
        plural(scenario.layouts.len()),
        scenario.density,
        scenario.seeds,
        plural(scenario.seeds as usize),
        scenario.warmup,
    )
}

pub(super) const fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn cells(row: &Row) -> Vec<String> {
    let time = |nanos: u64| show_time(nanos as f64);
    let path = &row.critical_path;
    vec![
        row.method.clone(),
        time(row.median_ns),
        time(row.p99_ns),
        row.rounds.to_string(),
        show_bytes(row.bytes_per_worker.most as f64),
        time(path.latency_ns),
        time(path.transfer_ns),
        time(path.contention_ns),
        time(path.select_ns),
        time(path.merge_ns),
        time(path.cores_ns),
        time(path.compute_ns),
        time(path.faults_ns),
    ]
}

/// The critical path and the busiest link.
fn remark(row: &Row) -> String {
    let CriticalPath {
        from_worker,
        to_worker,
        messages,
        slowest,
        ..
    } = &row.critical_path;
    let mut text = format!(
        "{}: the longest chain goes from worker {from_worker} to worker {to_worker} by {messages} message{}",
        row.method,
        plural(*messages as usize)
    );
    if let Some(slowest) = slowest {
        text += &format!(
            ", the slowest from {} to {} in round {} ({})",
            slowest.from,
            slowest.to,
            slowest.round,
            show_time(slowest.nanos as f64)
        );
    }
    if let Some(link) = &row.links.busiest {
        text += &format!(
            "; busiest link: {}, {}, {:.0} % of the step",
            link.name,
            show_bytes(link.bytes as f64),
            100.0 * link.utilisation
        );
    }
    text
}

/// A table whose heading starts with `#`, as all comments do; all columns but the first are on the right.
pub(crate) fn table(names: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let sheet = Sheet::new(names.iter().copied(), rows).commented();
    sheet.text(stdout_width())
}
