//! Density against the size of the residuals.

use spardl_core::Density;

use super::Scale;
use super::gradients::Gradients;
use super::math::{mean, norm, sum};
use super::report::{Cell, Report, Sheet};
use super::runner::{Runner, method};

const WORKERS: u32 = 8;
const METHODS: [&str; 4] = ["spardl", "topk-a", "ok-topk", "exdyna"];

pub(super) fn run(scale: Scale) -> anyhow::Result<Report> {
    let (len, steps) = scale.size((20_000, 200), (1_000, 10));
    let densities = scale.size(vec![0.001, 0.003, 0.01, 0.03, 0.1], vec![0.01, 0.1]);
    let mut report = Report::new([
        format!("{WORKERS} workers, {len} elements, {steps} steps; means over the last quarter"),
        "gradient: a constant heavy-tailed signal + normal noise, no bias".to_owned(),
        "residual: |sum of all workers' residuals| / |sum of all workers' gradients|: how many steps of gradient wait".to_owned(),
        "bytes: sent by the busiest worker in a step; a dense all-reduce of f32 sends 2 (P - 1)/P x 4 n".to_owned(),
    ]);
    let mut runners = Vec::new();
    for name in METHODS {
        for &density in &densities {
            let k = Density::new(density)?.entries(len as usize);
            let runner = Runner::new(name, &*method(name, &[])?, WORKERS, len, k)?;
            runners.push((density, runner, Vec::new(), Vec::new(), Vec::new()));
        }
    }
    let mut gradients = Gradients::stationary(scale.seed, 0.0, WORKERS, len);
    for step in 0..steps {
        gradients.draw(step);
        let gradient = norm(sum(&gradients.now, len as usize));
        for (_, runner, residuals, bytes, entries) in &mut runners {
            runner.step(&gradients.now)?;
            if step >= steps * 3 / 4 {
                residuals.push(norm(runner.residual()) / gradient);
                bytes.push(runner.bytes() as f64);
                entries.push(runner.entries as f64);
            }
        }
    }
    let mut sheet = Sheet::new(
        "residual by density",
        &[
            "method", "density", "k", "entries", "bytes", "of dense", "residual",
        ],
    );
    let dense = 8.0 * f64::from(len) * f64::from(WORKERS - 1) / f64::from(WORKERS);
    for (density, runner, residuals, bytes, entries) in runners {
        sheet.row([
            runner.label.as_str().into(),
            Cell::Number(density, 3),
            runner.k.into(),
            Cell::Number(mean(&entries), 0),
            Cell::Number(mean(&bytes), 0),
            Cell::Number(mean(&bytes) / dense, 3),
            Cell::Number(mean(&residuals), 2),
        ]);
    }
    report.add(sheet);
    Ok(report)
}
