//! SparDL's reduce-scatter alone: message sizes round by round, and which blocks a worker holds.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use spardl_algos::SparDl;
use spardl_core::codec::{Block, Reader};
use spardl_core::schedule::{Scatter, all_gather, reduce_scatter};
use spardl_core::{Codec, Entries, HEADER_LEN, Partition};
use spardl_sim::Fault;
use spardl_sim::gradient::Distribution;

use super::Scale;
use super::gradients::Gradients;
use super::math::top;
use super::report::{Cell, Report, Sheet};
use super::runner::Runner;

/// The workers of the first two tables.
const WORKERS: usize = 4;

pub(super) fn run(scale: Scale) -> anyhow::Result<Report> {
    let len = scale.size(64_000, 1_280);
    let k = len as usize / 50;
    let mut report = Report::new([
        format!("SparDL, one step from zero residuals, {len} elements, k = {k}, heavy-tailed gradients, one team"),
        "naive: every worker sends its k/P largest entries of each block, sums are never sparsified again".to_owned(),
        "correlation: the part of the variance that workers share".to_owned(),
    ]);
    let run = Measured::new(scale, WORKERS, len, k, 0.0)?;
    report.add(run.sheet());
    report.add(distribution());
    let mut sheet = Sheet::new(
        "growth with the number of workers: entries sent by the busiest worker, entries of the update",
        &[
            "workers",
            "correlation",
            "spardl sent",
            "naive sent",
            "naive/spardl",
            "spardl update",
            "naive update",
        ],
    );
    for workers in scale.size(vec![4, 8, 16, 32, 64], vec![4, 5]) {
        for correlation in [0.0, 0.8] {
            let run = Measured::new(scale, workers, len, k, correlation)?;
            let (sparse, naive) = (run.sent(&run.sparse), run.sent(&run.naive));
            sheet.row([
                workers.into(),
                Cell::Number(correlation.into(), 1),
                sparse.into(),
                naive.into(),
                Cell::Number(naive as f64 / sparse as f64, 2),
                run.sparse.update.into(),
                run.naive.update.into(),
            ]);
        }
    }
    report.add(sheet);
    Ok(report)
}

/// Message sizes in entries.
#[derive(Debug, Default)]
struct Sizes {
    /// By round, then by sender.
    rounds: Vec<Vec<usize>>,
    /// The entries of the update.
    update: usize,
}

/// One step of SparDL, and what a naive reduce-scatter would have sent.
#[derive(Debug)]
struct Measured {
    workers: usize,
    quota: usize,
    sparse: Sizes,
    naive: Sizes,
}

impl Measured {
    fn new(
        scale: Scale,
        workers: usize,
        len: u32,
        k: usize,
        correlation: f32,
    ) -> anyhow::Result<Self> {
        let heavy = Distribution::HeavyTailed;
        let mut gradients = Gradients::fresh(scale.seed, heavy, correlation, workers as u32, len);
        gradients.draw(0);
        let quotas = Partition::even(len, workers).quotas(k, 0);
        Ok(Self {
            workers,
            quota: quotas.iter().max().copied().unwrap_or(0),
            sparse: observe(&gradients.now, len, k)?,
            naive: imagine(&gradients.now, len, &quotas),
        })
    }

    /// The entries that the busiest worker sent.
    fn sent(&self, sizes: &Sizes) -> usize {
        let of = |worker: usize| {
            sizes
                .rounds
                .iter()
                .map(|round| round[worker])
                .sum::<usize>()
        };
        (0..self.workers).map(of).max().unwrap_or(0)
    }

    fn sheet(&self) -> Sheet {
        let mut sheet = Sheet::new(
            format!("largest message of each round, entries, {WORKERS} workers"),
            &[
                "round",
                "phase",
                "blocks",
                "quota",
                "spardl",
                "naive",
                "naive/quota",
            ],
        );
        let phases = phases(self.workers);
        for (round, (phase, blocks)) in phases.into_iter().enumerate() {
            let largest = |sizes: &Sizes| sizes.rounds[round].iter().max().copied().unwrap_or(0);
            let (quota, naive) = (blocks * self.quota, largest(&self.naive));
            sheet.row([
                round.into(),
                phase.into(),
                blocks.into(),
                quota.into(),
                largest(&self.sparse).into(),
                naive.into(),
                Cell::Number(naive as f64 / quota as f64, 2),
            ]);
        }
        sheet
    }
}

/// The rounds with the blocks of a message.
fn phases(workers: usize) -> Vec<(&'static str, usize)> {
    let scatter = reduce_scatter(workers).map(|round| ("reduce-scatter", round.count));
    let gather = all_gather(workers).map(|round| ("all-gather", round.sent(0, workers).count()));
    scatter.chain(gather).collect()
}

/// Runs the step and counts the entries in its messages.
fn observe(gradients: &[Vec<f32>], len: u32, k: usize) -> anyhow::Result<Sizes> {
    let workers = gradients.len();
    let mut runner = Runner::new("spardl", &SparDl::default(), workers as u32, len, k)?;
    let mail = Arc::new(Mutex::new(Vec::new()));
    let copies = Arc::clone(&mail);
    runner.cluster.set_fault(move |message| {
        let copy = (
            message.round,
            message.from,
            message.to,
            message.bytes.to_vec(),
        );
        copies
            .lock()
            .expect("no panic while it was held")
            .push(copy);
        Fault::None
    });
    runner.step(gradients)?;
    let blocks = Partition::even(len, workers);
    let scatter: Vec<Scatter> = reduce_scatter(workers).collect();
    let mut sizes = Sizes {
        rounds: vec![vec![0; workers]; scatter.len()],
        update: runner.entries,
    };
    let mail = mail.lock().expect("no panic while it was held");
    for (round, from, to, bytes) in mail.iter() {
        let Some(scatter) = scatter.get(*round as usize) else {
            continue;
        };
        let sent = scatter.sent(from.index(), workers);
        anyhow::ensure!(to.index() == (from.index() + scatter.gap) % workers);
        let count = count_entries(bytes, sent, &blocks).context("reading a message")?;
        sizes.rounds[*round as usize][from.index()] = count;
    }
    let finals: Vec<usize> = (0..workers)
        .map(|block| {
            let values = &runner.update[blocks.range(block)];
            values.iter().filter(|&&value| value != 0.0).count()
        })
        .collect();
    sizes.rounds.extend(gathered(&finals));
    Ok(sizes)
}

fn count_entries(
    bytes: &[u8],
    sent: impl Iterator<Item = usize>,
    blocks: &Partition,
) -> anyhow::Result<usize> {
    let mut reader = Reader::new(&bytes[HEADER_LEN..]);
    let mut entries = 0;
    for block in sent {
        let max = blocks.block_len(block) as usize;
        let mut list = Entries::default();
        Block::new(Codec::default(), blocks, block, max).decode(&mut reader, &mut list)?;
        entries += list.len();
    }
    reader.finish()?;
    Ok(entries)
}

/// The messages of the all-gather when the final blocks have these sizes.
fn gathered(finals: &[usize]) -> Vec<Vec<usize>> {
    let size = finals.len();
    let rounds = all_gather(size);
    rounds
        .map(|round| {
            (0..size)
                .map(|worker| round.sent(worker, size).map(|block| finals[block]).sum())
                .collect()
        })
        .collect()
}

/// The sizes without sparsifying again: index sets that are united.
fn imagine(gradients: &[Vec<f32>], len: u32, quotas: &[usize]) -> Sizes {
    let workers = gradients.len();
    let blocks = Partition::even(len, workers);
    let mut held: Vec<Vec<BTreeSet<usize>>> = gradients
        .iter()
        .map(|gradient| {
            (0..workers)
                .map(|block| {
                    let values: Vec<f64> = gradient[blocks.range(block)]
                        .iter()
                        .map(|&value| value.into())
                        .collect();
                    top(&values, quotas[block]).into_iter().collect()
                })
                .collect()
        })
        .collect();
    let mut sizes = Sizes::default();
    for round in reduce_scatter(workers) {
        let messages: Vec<Vec<BTreeSet<usize>>> = held
            .iter_mut()
            .enumerate()
            .map(|(worker, held)| {
                let sent = round.sent(worker, workers);
                sent.map(|block| std::mem::take(&mut held[block])).collect()
            })
            .collect();
        let size = |message: &Vec<BTreeSet<usize>>| message.iter().map(BTreeSet::len).sum();
        sizes.rounds.push(messages.iter().map(size).collect());
        for (worker, held) in held.iter_mut().enumerate() {
            let from = (worker + workers - round.gap) % workers;
            for (block, list) in round.received(worker, workers).zip(&messages[from]) {
                held[block].extend(list);
            }
        }
    }
    let finals: Vec<usize> = (0..workers)
        .map(|worker| held[worker][worker].len())
        .collect();
    sizes.update = finals.iter().sum();
    sizes.rounds.extend(gathered(&finals));
    sizes
}

/// Which blocks each worker holds after each round, and whose sums they are.
fn distribution() -> Sheet {
    let mut sheet = Sheet::new(
        format!(
            "blocks held after each round of the reduce-scatter, {WORKERS} workers: block (workers summed)"
        ),
        &["after", "worker 0", "worker 1", "worker 2", "worker 3"],
    );
    let mut held = vec![vec![BTreeSet::new(); WORKERS]; WORKERS];
    for (worker, held) in held.iter_mut().enumerate() {
        held.iter_mut().for_each(|block| {
            block.insert(worker);
        });
    }
    let row = |after: String, held: &[Vec<BTreeSet<usize>>]| {
        let cell = |held: &Vec<BTreeSet<usize>>| {
            let blocks = held.iter().enumerate().filter(|(_, from)| !from.is_empty());
            let shown = blocks.map(|(block, from)| {
                let from: Vec<String> = from.iter().map(ToString::to_string).collect();
                format!("{block}({})", from.join("+"))
            });
            Cell::from(shown.collect::<Vec<_>>().join(" "))
        };
        std::iter::once(Cell::from(after))
            .chain(held.iter().map(cell))
            .collect::<Vec<_>>()
    };
    sheet.row(row("start".to_owned(), &held));
    for (i, round) in reduce_scatter(WORKERS).enumerate() {
        let before = held.clone();
        for (worker, held) in held.iter_mut().enumerate() {
            let from = (worker + WORKERS - round.gap) % WORKERS;
            for block in round.received(worker, WORKERS) {
                held[block].extend(&before[from][block]);
            }
            for block in round.sent(worker, WORKERS) {
                held[block].clear();
            }
        }
        sheet.row(row(format!("round {i}"), &held));
    }
    sheet
}
