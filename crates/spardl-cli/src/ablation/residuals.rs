//! SparDL's residual rules: what arrives, what waits, what is lost.

use spardl_algos::{Residual, SparDl};

use super::Scale;
use super::gradients::Gradients;
use super::math::norm;
use super::report::{Cell, Report, Sheet};
use super::runner::Runner;

const WORKERS: u32 = 8;
/// Gradients are rounded to whole numbers after multiplying by this: every sum is then exact.
const TIMES: f32 = 32.0;

pub(super) fn run(scale: Scale) -> anyhow::Result<Report> {
    let (len, steps) = scale.size((20_000, 100), (400, 12));
    let k = len as usize / 100;
    let mut report = Report::new([
        format!("SparDL, {WORKERS} workers, {len} elements, k = {k}, {steps} steps, whole-number gradients"),
        "gradient: a constant heavy-tailed signal + each worker's own deviation x bias + normal noise".to_owned(),
        "error: |sum of updates - sum of gradients| / |sum of gradients|; kept and lost: in the same units".to_owned(),
        "lost exactly: sum over elements of |gradients - updates - residuals|, in units of the rounded gradients".to_owned(),
    ]);
    for bias in [0.0, 3.0] {
        report.add(table(scale.seed, bias, len, k, steps)?);
    }
    Ok(report)
}

fn table(seed: u64, bias: f32, len: u32, k: usize, steps: u64) -> anyhow::Result<Sheet> {
    let mut sheet = Sheet::new(
        format!("bias {bias}"),
        &[
            "rule",
            "error at 1/4",
            "error at 1/2",
            "error at end",
            "kept",
            "lost",
            "lost exactly",
            "elements",
        ],
    );
    let mut rules = Residual::fixed()
        .map(|(name, residual)| {
            let method = SparDl {
                residual,
                ..SparDl::default()
            };
            let runner = Runner::new(name, &method, WORKERS, len, k)?;
            Ok((runner, vec![0i64; len as usize], Vec::new()))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut gradients = Gradients::stationary(seed, bias, WORKERS, len);
    let mut wanted = vec![0i64; len as usize];
    for step in 0..steps {
        gradients.draw(step);
        gradients.round(TIMES);
        for gradient in &gradients.now {
            add(&mut wanted, gradient);
        }
        for (runner, delivered, errors) in &mut rules {
            runner.step(&gradients.now)?;
            add(delivered, &runner.update);
            if [steps / 4, steps / 2, steps].contains(&(step + 1)) {
                let missing = wanted.iter().zip(delivered).map(|(w, d)| (*w - *d) as f64);
                errors.push(norm(missing) / norm(wanted.iter().map(|w| *w as f64)));
            }
        }
    }
    let whole = norm(wanted.iter().map(|w| *w as f64));
    for (runner, delivered, errors) in rules {
        let kept = runner.residual();
        let lost: Vec<i64> = (0..len as usize)
            .map(|i| wanted[i] - delivered[i] - kept[i] as i64)
            .collect();
        let mut row = vec![Cell::from(runner.label.as_str())];
        row.extend(errors.iter().map(|error| Cell::Number(*error, 3)));
        row.extend([
            Cell::Number(norm(kept) / whole, 3),
            Cell::Number(norm(lost.iter().map(|l| *l as f64)) / whole, 3),
            lost.iter().map(|l| l.unsigned_abs()).sum::<u64>().into(),
            lost.iter().filter(|l| **l != 0).count().into(),
        ]);
        sheet.row(row);
    }
    Ok(sheet)
}

fn add(total: &mut [i64], values: &[f32]) {
    for (total, value) in total.iter_mut().zip(values) {
        *total += *value as i64;
    }
}
