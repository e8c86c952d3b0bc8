//! The parts of ExDyna: blocks, partitions, threshold, memory, workers.

use spardl_algos::registry;
use spardl_core::state::Array;
use spardl_sim::gradient::Distribution;

use super::Scale;
use super::gradients::Gradients;
use super::math::{imbalance, least, mean, most, norm, sum};
use super::report::{Cell, Report, Sheet};
use super::runner::{Runner, method};

/// A contestant and what was seen of it in the second half of a run.
struct Seen {
    runner: Runner,
    imbalance: Vec<f64>,
    ratio: Vec<f64>,
    bytes: Vec<f64>,
    residual: Vec<f64>,
}

impl Seen {
    fn new(runner: Runner) -> Self {
        Self {
            runner,
            imbalance: Vec::new(),
            ratio: Vec::new(),
            bytes: Vec::new(),
            residual: Vec::new(),
        }
    }

    /// The mean distance of K/k from 1.
    fn density_error(&self) -> f64 {
        let errors: Vec<f64> = self.ratio.iter().map(|ratio| (ratio - 1.0).abs()).collect();
        mean(&errors)
    }
}

/// Runs all on the same gradients.
fn watch(seen: &mut [Seen], gradients: &mut Gradients, steps: u64) -> anyhow::Result<()> {
    for step in 0..steps {
        gradients.draw(step);
        let late = step >= steps / 2;
        let len = gradients.now.first().map_or(0, Vec::len);
        let gradient = if late {
            norm(sum(&gradients.now, len))
        } else {
            1.0
        };
        for one in &mut *seen {
            one.runner.step(&gradients.now)?;
            if late {
                one.imbalance.push(imbalance(&one.runner.selected()));
                one.ratio.push(one.runner.ratio());
                one.bytes.push(one.runner.bytes() as f64);
                one.residual.push(norm(one.runner.residual()) / gradient);
            }
        }
    }
    Ok(())
}

/// Gradients of which partitions of equal length yield different numbers of entries.
#[derive(Clone, Copy, Debug)]
enum Skew {
    Mild,
    Strong,
}

impl Skew {
    const BOTH: [Self; 2] = [Self::Mild, Self::Strong];

    fn gradients(self, scale: Scale, workers: u32, len: u32) -> Gradients {
        match self {
            Self::Mild => Gradients::rippled(scale.seed, workers, len),
            Self::Strong => Gradients::fresh(scale.seed, Distribution::Layered, 0.0, workers, len),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Mild => "mild skew",
            Self::Strong => "strong skew",
        }
    }
}

const SEEN: [&str; 3] = [
    "fresh heavy-tailed gradients; mild skew: 64 segments, scales spread by a factor of 1.4; strong: layers, scales from 0.001 to 1",
    "K/k: entries of the update over the target; density error: mean |K/k - 1|",
    "imbalance: the most that a worker selected over the mean; averages over the second half of the steps",
];

fn setup(sizes: String) -> Report {
    Report::new(std::iter::once(sizes).chain(SEEN.map(str::to_owned)))
}

/// `exdyna-blocks`.
pub(super) fn blocks(scale: Scale) -> anyhow::Result<Report> {
    let (workers, len, steps) = scale.size((8, 65_536, 400), (4, 4_096, 40));
    let k = len as usize / 100;
    let mut report = setup(format!(
        "ExDyna, {workers} workers, {len} elements, k = {k}, {steps} steps"
    ));
    for skew in Skew::BOTH {
        let mut seen = Vec::new();
        let fixed = method("exdyna", &[("adjust", "off")])?;
        seen.push(Seen::new(Runner::new(
            "fixed partitions",
            &*fixed,
            workers,
            len,
            k,
        )?));
        for blocks in scale.size(vec![16, 64, 256, 1024, 4096], vec![16, 64]) {
            let method = method("exdyna", &[("blocks", &blocks.to_string())])?;
            let runner = Runner::new(blocks.to_string(), &*method, workers, len, k)?;
            seen.push(Seen::new(runner));
        }
        watch(&mut seen, &mut skew.gradients(scale, workers, len), steps)?;
        let mut sheet = Sheet::new(
            skew.name(),
            &[
                "blocks",
                "imbalance",
                "worst",
                "K/k",
                "density error",
                "bytes",
            ],
        );
        for one in seen {
            sheet.row([
                one.runner.label.as_str().into(),
                Cell::Number(mean(&one.imbalance), 2),
                Cell::Number(most(&one.imbalance), 2),
                Cell::Number(mean(&one.ratio), 3),
                Cell::Number(one.density_error(), 3),
                Cell::Number(mean(&one.bytes), 0),
            ]);
        }
        report.add(sheet);
    }
    Ok(report)
}

/// `exdyna-parts`.
pub(super) fn parts(scale: Scale) -> anyhow::Result<Report> {
    let (workers, len, steps) = scale.size((8, 65_536, 400), (4, 4_096, 40));
    let k = len as usize / 100;
    let mut report = setup(format!(
        "ExDyna, {workers} workers, {len} elements, k = {k}, {steps} steps"
    ));
    for skew in Skew::BOTH {
        let mut seen = Vec::new();
        for adjust in ["on", "off"] {
            for controller in ["corrected", "published"] {
                let method = method("exdyna", &[("adjust", adjust), ("controller", controller)])?;
                let label = format!("{adjust} {controller}");
                seen.push(Seen::new(Runner::new(label, &*method, workers, len, k)?));
            }
        }
        watch(&mut seen, &mut skew.gradients(scale, workers, len), steps)?;
        let mut sheet = Sheet::new(
            format!(
                "{}; residual: |sum of residuals| / |sum of gradients|",
                skew.name()
            ),
            &[
                "adjust",
                "controller",
                "imbalance",
                "K/k",
                "min",
                "max",
                "bytes",
                "residual",
            ],
        );
        for one in seen {
            let (adjust, controller) = one.runner.label.split_once(' ').unwrap_or_default();
            sheet.row([
                adjust.into(),
                controller.into(),
                Cell::Number(mean(&one.imbalance), 2),
                Cell::Number(mean(&one.ratio), 3),
                Cell::Number(least(&one.ratio), 3),
                Cell::Number(most(&one.ratio), 3),
                Cell::Number(mean(&one.bytes), 0),
                Cell::Number(mean(&one.residual), 2),
            ]);
        }
        report.add(sheet);
    }
    Ok(report)
}

/// `exdyna-workers`.
pub(super) fn workers(scale: Scale) -> anyhow::Result<Report> {
    let (len, steps) = scale.size((16_384, 160), (2_048, 20));
    let k = len as usize / 50;
    let mut report = setup(format!(
        "ExDyna, {len} elements, k = {k}, {steps} steps, 1024 blocks"
    ));
    for skew in Skew::BOTH {
        report.add(workers_table(scale, skew, (len, k, steps))?);
    }
    Ok(report)
}

fn workers_table(
    scale: Scale,
    skew: Skew,
    (len, k, steps): (u32, usize, u64),
) -> anyhow::Result<Sheet> {
    let mut sheet = Sheet::new(
        format!(
            "{}; words: bytes sent by the busiest worker / 4",
            skew.name()
        ),
        &[
            "workers",
            "rounds",
            "imbalance",
            "fixed",
            "K/k",
            "density error",
            "words",
            "words/k",
            "fixed words",
        ],
    );
    for workers in scale.size(vec![1, 2, 4, 8, 16, 32, 64], vec![1, 2, 5]) {
        let adjusted = method("exdyna", &[])?;
        let fixed = method("exdyna", &[("adjust", "off")])?;
        let mut seen = [
            Seen::new(Runner::new("on", &*adjusted, workers, len, k)?),
            Seen::new(Runner::new("off", &*fixed, workers, len, k)?),
        ];
        watch(&mut seen, &mut skew.gradients(scale, workers, len), steps)?;
        let words = seen.each_ref().map(|one| mean(&one.bytes) / 4.0);
        sheet.row([
            workers.into(),
            seen[0].runner.rounds().into(),
            Cell::Number(mean(&seen[0].imbalance), 2),
            Cell::Number(mean(&seen[1].imbalance), 2),
            Cell::Number(mean(&seen[0].ratio), 3),
            Cell::Number(seen[0].density_error(), 3),
            Cell::Number(words[0], 0),
            Cell::Number(words[0] / k as f64, 2),
            Cell::Number(words[1], 0),
        ]);
    }
    Ok(sheet)
}

/// `exdyna-memory`.
pub(super) fn memory(scale: Scale) -> anyhow::Result<Report> {
    let (workers, len, steps) = scale.size((8, 65_536, 8), (4, 4_096, 2));
    let k = len as usize / 100;
    let mut report = Report::new([
        format!("{workers} workers, {len} elements in one flat tensor, k = {k}, after {steps} steps; bytes of one worker"),
        "residual and method state live from step to step and are what a checkpoint saves".to_owned(),
        "working copy: n words that all methods have, so that a step can be aborted; lists of O(k) entries are not counted".to_owned(),
    ]);
    let mut sheet = Sheet::new(
        "bytes held by the worker that holds most",
        &[
            "method",
            "residual",
            "working copy",
            "method state",
            "state beyond residual, % of n",
        ],
    );
    let mut gradients = Skew::Strong.gradients(scale, workers, len);
    let mut runners = registry::METHODS
        .iter()
        .map(|entry| Runner::new(entry.name, &*method(entry.name, &[])?, workers, len, k))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for step in 0..steps {
        gradients.draw(step);
        for runner in &mut runners {
            runner.step(&gradients.now)?;
        }
    }
    for runner in runners {
        let states = runner
            .cluster
            .workers()
            .into_iter()
            .map(spardl_core::Collective::state);
        let bytes = states.map(|state| {
            let arrays = state.method.arrays().map(|(_, array)| match array {
                Array::F32(values) => 4 * values.len(),
                Array::U64(values) => 8 * values.len(),
            });
            (arrays.sum::<usize>(), 4 * state.residual.len())
        });
        let (method, residual) = bytes.max().unwrap_or_default();
        let gradient = 4 * len as usize;
        sheet.row([
            runner.label.as_str().into(),
            residual.into(),
            gradient.into(),
            method.into(),
            Cell::Number(100.0 * method as f64 / gradient as f64, 3),
        ]);
    }
    report.add(sheet);
    Ok(report)
}
