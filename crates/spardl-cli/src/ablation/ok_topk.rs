//! Ok-Topk: how good its selection is, and what balancing its owners saves.

use spardl_core::Collective;
use spardl_sim::gradient::Distribution;

use super::Scale;
use super::gradients::Gradients;
use super::math::{imbalance, mean, most, norm, sum, top};
use super::report::{Cell, Report, Sheet};
use super::runner::{Runner, method};

const WORKERS: u32 = 8;
/// Steps between two exact thresholds, tau', in the accuracy ablation: the default preset's.
const EXACT_EVERY: usize = 32;

/// What is judged; with few bits too, whose errors stay in the residuals.
const METHODS: [&str; 10] = [
    "ok-topk",
    "ok-topk-q4",
    "ok-topk-q1",
    "topk-a2",
    "gtopk",
    "spardl",
    "spardl-q4",
    "spardl-q1",
    "exdyna",
    "clt-k",
];

/// `ok-topk-accuracy`.
pub(super) fn accuracy(scale: Scale) -> anyhow::Result<Report> {
    let (len, steps) = scale.size((16_000, 192), (1_000, 64));
    let k = len as usize / 100;
    let mut report = Report::new([
        format!("{WORKERS} workers, {len} elements, k = {k}, {steps} steps, tau' = {EXACT_EVERY}, tau = 64"),
        "stationary: a constant heavy-tailed signal + normal noise; fresh: heavy-tailed, correlation 0.5, new in each step".to_owned(),
        "a: a worker's gradient + residual".to_owned(),
        "xi (ours, on what was delivered): |Top-k(sum a) - update| / |sum of gradients|".to_owned(),
        "xi of the rule (Assumption 1 of the Ok-Topk paper): |Top-k(sum a) - Top-k(sum of Top-k(a))| / |sum of gradients|".to_owned(),
        "hit: part of the true top-k indices that the update has".to_owned(),
    ]);
    let stationary = Gradients::stationary(scale.seed, 0.0, WORKERS, len);
    let heavy = Distribution::HeavyTailed;
    let fresh = Gradients::fresh(scale.seed, heavy, 0.5, WORKERS, len);
    for (name, gradients) in [("stationary", stationary), ("fresh", fresh)] {
        for sheet in accuracy_tables(name, gradients, (len, k, steps))? {
            report.add(sheet);
        }
    }
    Ok(report)
}

fn accuracy_tables(
    name: &str,
    mut gradients: Gradients,
    (len, k, steps): (u32, usize, u64),
) -> anyhow::Result<[Sheet; 2]> {
    let mut runners = METHODS
        .into_iter()
        .map(|name| {
            let runner = Runner::new(name, &*method(name, &[])?, WORKERS, len, k)?;
            Ok((runner, Vec::new()))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    for step in 0..steps {
        gradients.draw(step);
        for (runner, seen) in &mut runners {
            seen.push(judge(runner, &gradients.now)?);
        }
    }
    let by_age = by_age(name, &runners[0].1);
    let mut sheet = Sheet::new(
        format!("{name}: all methods, second half of the steps, each on its own residuals"),
        &[
            "method",
            "xi mean",
            "xi max",
            "xi of the rule",
            "hit",
            "K/k",
        ],
    );
    for (runner, seen) in runners {
        let late = &seen[seen.len() / 2..];
        let column = |read: fn(&Judged) -> f64| late.iter().map(read).collect::<Vec<_>>();
        sheet.row([
            Cell::from(runner.label),
            Cell::Number(mean(&column(|seen| seen.xi)), 3),
            Cell::Number(most(&column(|seen| seen.xi)), 3),
            Cell::Number(mean(&column(|seen| seen.rule)), 3),
            Cell::Number(mean(&column(|seen| seen.hit)), 3),
            Cell::Number(mean(&column(|seen| seen.ratio)), 3),
        ]);
    }
    Ok([by_age, sheet])
}

/// How a step's update compares with the true top-k.
struct Judged {
    xi: f64,
    rule: f64,
    hit: f64,
    ratio: f64,
}

fn judge(runner: &mut Runner, gradients: &[Vec<f32>]) -> anyhow::Result<Judged> {
    let (len, k) = (runner.update.len(), runner.k);
    let inputs: Vec<Vec<f32>> = runner
        .cluster
        .workers()
        .into_iter()
        .map(Collective::residual)
        .zip(gradients)
        .map(|(residual, gradient)| residual.iter().zip(gradient).map(|(r, g)| r + g).collect())
        .collect();
    let whole = sum(&inputs, len);
    let selected: Vec<Vec<f32>> = inputs
        .iter()
        .map(|input| {
            let values: Vec<f64> = input.iter().map(|&value| value.into()).collect();
            let mut kept = vec![0.0; len];
            for i in top(&values, k) {
                kept[i] = input[i];
            }
            kept
        })
        .collect();
    let sparse = sum(&selected, len);
    let (truth, rule) = (top(&whole, k), keep(&sparse, &top(&sparse, k)));
    let ideal = keep(&whole, &truth);
    let unit = norm(sum(gradients, len));
    runner.step(gradients)?;
    let away = |other: &dyn Fn(usize) -> f64| norm((0..len).map(|i| ideal[i] - other(i))) / unit;
    let hits = truth.iter().filter(|&&i| runner.update[i] != 0.0).count();
    Ok(Judged {
        xi: away(&|i| runner.update[i].into()),
        rule: away(&|i| rule[i]),
        hit: hits as f64 / truth.len().max(1) as f64,
        ratio: runner.ratio(),
    })
}

fn keep(values: &[f64], indices: &[usize]) -> Vec<f64> {
    let mut kept = vec![0.0; values.len()];
    for &i in indices {
        kept[i] = values[i];
    }
    kept
}

/// Ok-Topk's xi by how long its thresholds have been in use.
fn by_age(name: &str, seen: &[Judged]) -> Sheet {
    let mut sheet = Sheet::new(
        format!(
            "{name}: ok-topk by steps since the last exact thresholds (second half of the steps)"
        ),
        &[
            "steps since",
            "xi mean",
            "xi max",
            "xi of the rule",
            "hit",
            "K/k",
        ],
    );
    let late = seen.len() / 2 / EXACT_EVERY * EXACT_EVERY;
    for (from, to) in [(0, 1), (1, 8), (8, 16), (16, 24), (24, 32)] {
        let column = |read: fn(&Judged) -> f64| {
            let aged = seen.iter().enumerate().skip(late);
            let aged = aged.filter(|(step, _)| (from..to).contains(&(step % EXACT_EVERY)));
            aged.map(|(_, seen)| read(seen)).collect::<Vec<_>>()
        };
        sheet.row([
            match from {
                0 => "0 (exact)".to_owned(),
                _ => format!("{from}-{}", to - 1),
            }
            .into(),
            Cell::Number(mean(&column(|seen| seen.xi)), 3),
            Cell::Number(most(&column(|seen| seen.xi)), 3),
            Cell::Number(mean(&column(|seen| seen.rule)), 3),
            Cell::Number(mean(&column(|seen| seen.hit)), 3),
            Cell::Number(mean(&column(|seen| seen.ratio)), 3),
        ]);
    }
    sheet
}

/// `ok-topk-balance`.
pub(super) fn balance(scale: Scale) -> anyhow::Result<Report> {
    let (len, steps) = scale.size((64_000, 192), (16_000, 64));
    let k = len as usize / 100;
    let mut report = Report::new([
        format!("Ok-Topk, {WORKERS} workers, {len} elements, k = {k}, {steps} steps; means, exact steps left out"),
        "gradient: heavy-tailed, correlation 0.5; hot spot: a run of n/32 elements that are 20 times as large".to_owned(),
        "largest share: the most entries of the update in one owner's region over the mean".to_owned(),
        "busiest: bytes sent by the worker that sends most; auto balances above 4 times the average".to_owned(),
    ]);
    for (caption, moves) in [
        ("no hot spot", None),
        ("hot spot that stays", Some(u64::MAX)),
        ("hot spot that moves every 16 steps", Some(16)),
    ] {
        report.add(balance_table(scale.seed, caption, moves, (len, k, steps))?);
    }
    Ok(report)
}

fn balance_table(
    seed: u64,
    caption: &str,
    moves: Option<u64>,
    (len, k, steps): (u32, usize, u64),
) -> anyhow::Result<Sheet> {
    let mut sheet = Sheet::new(
        caption,
        &[
            "balance",
            "rounds",
            "largest share",
            "busiest",
            "busiest worst",
            "mean bytes",
            "received worst",
            "K/k",
        ],
    );
    let mut gradients = Gradients::fresh(seed, Distribution::HeavyTailed, 0.5, WORKERS, len);
    let mut runners = ["always", "auto", "never"]
        .into_iter()
        .map(|balance| {
            let method = method("ok-topk", &[("balance", balance)])?;
            Ok((Runner::new(balance, &*method, WORKERS, len, k)?, Vec::new()))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    for step in 0..steps {
        gradients.draw(step);
        if let Some(every) = moves {
            let (width, place) = (len as usize / 32, (step / every) as usize);
            let start = place * 7 % 32 * width;
            for gradient in &mut gradients.now {
                let hot = &mut gradient[start..start + width];
                hot.iter_mut().for_each(|value| *value *= 20.0);
            }
        }
        for (runner, seen) in &mut runners {
            runner.step(&gradients.now)?;
            if !(step as usize).is_multiple_of(EXACT_EVERY) {
                let bytes = &runner.ledger.bytes;
                let received = runner.ledger.bytes_received.iter().max();
                seen.push([
                    f64::from(runner.rounds()),
                    largest_share(runner)?,
                    runner.bytes() as f64,
                    bytes.iter().sum::<u64>() as f64 / bytes.len() as f64,
                    received.copied().unwrap_or(0) as f64,
                    runner.ratio(),
                ]);
            }
        }
    }
    for (runner, seen) in runners {
        let column = |i: usize| seen.iter().map(|row: &[f64; 6]| row[i]).collect::<Vec<_>>();
        sheet.row([
            runner.label.as_str().into(),
            Cell::Number(mean(&column(0)), 1),
            Cell::Number(mean(&column(1)), 2),
            Cell::Number(mean(&column(2)), 0),
            Cell::Number(most(&column(2)), 0),
            Cell::Number(mean(&column(3)), 0),
            Cell::Number(most(&column(4)), 0),
            Cell::Number(mean(&column(5)), 2),
        ]);
    }
    Ok(sheet)
}

/// The entries of the update per owner's region, the largest over the mean.
fn largest_share(runner: &Runner) -> anyhow::Result<f64> {
    let state = runner.cluster.workers()[0].state();
    let mut start = 0;
    let shares: Vec<u64> = state
        .method
        .u64("boundaries")?
        .iter()
        .map(|&end| {
            let region = &runner.update[start..end as usize];
            start = end as usize;
            region.iter().filter(|&&value| value != 0.0).count() as u64
        })
        .collect();
    Ok(imbalance(&shares))
}
