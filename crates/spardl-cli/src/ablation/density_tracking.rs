//! Does the number of entries stay at its target?

use spardl_sim::gradient::Distribution;

use super::Scale;
use super::gradients::Gradients;
use super::math::{least, mean, most, top};
use super::report::{Cell, Report, Sheet};
use super::runner::{Runner, method};

const WORKERS: u32 = 4;
/// Entries over the target that count as in the band.
const BAND: std::ops::RangeInclusive<f64> = 0.5..=2.0;

/// Label, method and its options.
type Contestant<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

pub(super) fn run(scale: Scale) -> anyhow::Result<Report> {
    let (len, steps) = scale.size((12_000, 2_000), (2_000, 400));
    let k = len as usize / 50;
    let mut report = Report::new([
        format!("{WORKERS} workers, {len} elements, k = {k}, {steps} steps, fresh heavy-tailed gradients in each"),
        "K/k: entries of the update over the target; the scale of the gradients changes after half of the steps".to_owned(),
        "1st: steps of the first half after its first fifth; 2nd: of the second half, all".to_owned(),
        "back after: steps after the change until K/k is within 0.5 to 2 for good; outside: steps outside after the change".to_owned(),
        "hard-threshold tuned: at the mean k-th largest magnitude of the first step; capped: a worker selects at most 4k".to_owned(),
        "fallback counted: published controller; what a worker sends when nothing reaches the threshold counts as found".to_owned(),
    ]);
    for change in [10.0, 0.1] {
        report.add(table(scale.seed, change, len, k, steps)?);
    }
    Ok(report)
}

fn table(seed: u64, change: f32, len: u32, k: usize, steps: u64) -> anyhow::Result<Sheet> {
    let mut sheet = Sheet::new(
        format!("scale x {change} after {} steps", steps / 2),
        &[
            "method",
            "mean 1st",
            "min 1st",
            "max 1st",
            "last 1st",
            "mean 2nd",
            "min 2nd",
            "max 2nd",
            "last 2nd",
            "back after",
            "outside",
        ],
    );
    let mut gradients = Gradients::fresh(seed, Distribution::HeavyTailed, 0.0, WORKERS, len);
    gradients.draw(0);
    let tuned = threshold(&gradients.now, k).to_string();
    let contestants: [Contestant<'_>; 7] = [
        ("exdyna corrected", "exdyna", &[]),
        ("exdyna published", "exdyna", &[("controller", "published")]),
        (
            "exdyna published, start too",
            "exdyna",
            &[("controller", "published"), ("start", "published")],
        ),
        (
            "exdyna fallback counted",
            "exdyna",
            &[("controller", "published"), ("fallback", "counted")],
        ),
        (
            "hard-threshold tuned",
            "hard-threshold",
            &[("threshold", &tuned), ("cap", "none")],
        ),
        (
            "hard-threshold tuned, capped",
            "hard-threshold",
            &[("threshold", &tuned)],
        ),
        (
            "hard-threshold published",
            "hard-threshold",
            &[("cap", "none")],
        ),
    ];
    let mut runners = contestants
        .iter()
        .map(|(label, name, options)| {
            let method = method(name, options)?;
            Ok((Runner::new(*label, &*method, WORKERS, len, k)?, Vec::new()))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    for step in 0..steps {
        if step == steps / 2 {
            gradients.scale = change;
        }
        gradients.draw(step);
        for (runner, ratios) in &mut runners {
            runner.step(&gradients.now)?;
            ratios.push(runner.ratio());
        }
    }
    for (runner, ratios) in runners {
        let (first, second) = ratios.split_at(steps as usize / 2);
        let first = &first[first.len() / 5..];
        let mut row = vec![Cell::from(runner.label)];
        for half in [first, second] {
            let last = half.last().copied().unwrap_or(0.0);
            let figures = [mean(half), least(half), most(half), last];
            row.extend(figures.map(|figure| Cell::Number(figure, 3)));
        }
        let outside = second.iter().filter(|ratio| !BAND.contains(ratio));
        let back = second.iter().rposition(|ratio| !BAND.contains(ratio));
        row.push(match back.map_or(0, |last| last + 1) {
            never if never == second.len() => "never".into(),
            steps => steps.into(),
        });
        row.push(outside.count().into());
        sheet.row(row);
    }
    Ok(sheet)
}

/// The mean over workers of the k-th largest magnitude.
fn threshold(gradients: &[Vec<f32>], k: usize) -> f64 {
    let kth = |gradient: &Vec<f32>| {
        let values: Vec<f64> = gradient.iter().map(|&value| value.into()).collect();
        least(
            &top(&values, k)
                .into_iter()
                .map(|i| values[i].abs())
                .collect::<Vec<_>>(),
        )
    };
    mean(&gradients.iter().map(kth).collect::<Vec<_>>())
}
