//! SparDL's teams: rounds against bytes.

use spardl_algos::{Sag, SparDl};

use super::Scale;
use super::gradients::Gradients;
use super::math::{norm, sum};
use super::report::{Cell, Report, Sheet};
use super::runner::Runner;

/// Time per round, seconds.
const ALPHA: f64 = 50e-6;
/// Links, bits per second.
const LINKS: [f64; 2] = [1e9, 10e9];
/// VGG-16 for CIFAR: times are also given for a gradient of this length.
const VGG16: f64 = 14_728_266.0;

pub(super) fn run(scale: Scale) -> anyhow::Result<Report> {
    let (len, steps) = scale.size((32_000, 64), (1_600, 6));
    let k = len as usize / 100;
    let mut report = Report::new([
        format!("SparDL, {len} elements, k = {k}, the last of {steps} steps"),
        "gradient: a constant heavy-tailed signal + normal noise, no bias".to_owned(),
        "bytes: sent by the busiest worker; q: quota of a block; h: entries a team puts forward (B-SAG), mean over workers".to_owned(),
        "residual: |sum of all workers' residuals| / |sum of all workers' gradients|: how many steps of gradient wait".to_owned(),
        format!(
            "time: rounds x {:.0} us + bytes / link, at 1 and 10 Gbit/s; 'large': bytes scaled to {VGG16} elements",
            ALPHA * 1e6
        ),
    ]);
    for workers in scale.size(vec![8, 12, 16], vec![4, 6]) {
        report.add(table(scale.seed, workers, len, k, steps)?);
    }
    Ok(report)
}

fn table(seed: u64, workers: u32, len: u32, k: usize, steps: u64) -> anyhow::Result<Sheet> {
    let mut sheet = Sheet::new(
        format!("{workers} workers"),
        &[
            "teams",
            "sag",
            "rounds",
            "bytes",
            "entries",
            "q",
            "h",
            "residual",
            "us 1G",
            "us 10G",
            "ms large 1G",
            "ms large 10G",
        ],
    );
    let mut runners = Vec::new();
    for teams in (1..=workers).filter(|d| workers.is_multiple_of(*d)) {
        for (name, sag) in [("r", Sag::R), ("b", Sag::B)] {
            let useless = teams == 1 && sag == Sag::B;
            if useless || (sag == Sag::R && !teams.is_power_of_two()) {
                continue;
            }
            let method = SparDl {
                teams,
                sag,
                ..SparDl::default()
            };
            let name = if teams == 1 { "-" } else { name };
            runners.push((teams, sag, Runner::new(name, &method, workers, len, k)?));
        }
    }
    let mut gradients = Gradients::stationary(seed, 0.0, workers, len);
    for step in 0..steps {
        gradients.draw(step);
        for (_, _, runner) in &mut runners {
            runner.step(&gradients.now)?;
        }
    }
    let gradient = norm(sum(&gradients.now, len as usize));
    for (teams, sag, runner) in runners {
        let (rounds, bytes) = (runner.rounds(), runner.bytes());
        let gathers = sag == Sag::B;
        let time =
            |times: f64, link: f64| f64::from(rounds) * ALPHA + bytes as f64 * times * 8.0 / link;
        let mut row = vec![
            teams.into(),
            runner.label.as_str().into(),
            rounds.into(),
            bytes.into(),
            runner.entries.into(),
            Cell::Number(k as f64 * f64::from(teams) / f64::from(workers), 0),
            if gathers {
                Cell::Number(length(&runner)?, 0)
            } else {
                Cell::Absent
            },
            Cell::Number(norm(runner.residual()) / gradient, 1),
        ];
        row.extend(LINKS.map(|link| Cell::Number(time(1.0, link) * 1e6, 0)));
        row.extend(LINKS.map(|link| Cell::Number(time(VGG16 / f64::from(len), link) * 1e3, 2)));
        sheet.row(row);
    }
    Ok(sheet)
}

/// The mean of the workers' h.
fn length(runner: &Runner) -> anyhow::Result<f64> {
    let workers = runner.cluster.workers();
    let mut total = 0;
    for worker in &workers {
        total += worker.state().method.u64("adaptive-length")?[0];
    }
    Ok(total as f64 / workers.len() as f64)
}
