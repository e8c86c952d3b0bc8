//! Every choice for real, in turn: how far what was picked is from the fastest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use spardl::tune::{Choice, Ranked, Tuning};
use spardl::{Error, Reducer, Transport, run_workers};
use spardl_sim::gradient::{Distribution, Synthetic};

use super::Plan;
use crate::job::Job;
use crate::progress::Progress;
use crate::simulate::table;
use crate::simulate::units::show_time;

/// Steps of a run in which thresholds settle, and those whose median is the run.
const SETTLING: u32 = 8;
const COUNTED: u32 = 5;
/// Elements from where the gradient of a step begins to where the next one does: no element has the value that it had.
const STRIDE: usize = 4112;

/// What the choices took.
#[derive(Debug, Serialize)]
pub(super) struct Checked {
    picked: String,
    fastest: String,
    /// The time of the pick over that of the fastest, less one.
    regret: f64,
    choices: Vec<Row>,
}

/// A choice that was run.
#[derive(Debug, Serialize)]
struct Row {
    choice: String,
    predicted_ns: u64,
    /// The median over the runs.
    measured_ns: u64,
}

/// Runs all choices that were predicted whole, `runs` times in turn.
pub(super) fn run(
    tuning: &Tuning,
    plan: &Plan,
    runs: u32,
    mut job: Option<&mut Job>,
) -> anyhow::Result<Checked> {
    let choices: Vec<&Ranked> = tuning.ranked().iter().filter(|r| r.is_whole).collect();
    let mut times = vec![Vec::new(); choices.len()];
    let prints = job.as_ref().is_none_or(|job| job.prints());
    let progress = Progress::new(u64::from(runs) * choices.len() as u64, prints);
    for _ in 0..runs {
        for (ranked, times) in choices.iter().zip(&mut times) {
            progress.say(ranked.choice.to_string());
            let took = one_run(&ranked.choice, plan, job.as_deref_mut())
                .with_context(|| ranked.choice.to_string())?;
            times.push(took);
            progress.done();
        }
    }
    let mut rows: Vec<Row> = choices
        .iter()
        .zip(&mut times)
        .map(|(ranked, times)| Row {
            choice: ranked.choice.to_string(),
            predicted_ns: ranked.predicted.exchange(),
            measured_ns: median(times),
        })
        .collect();
    let picked = rows[0].measured_ns;
    rows.sort_by_key(|row| row.measured_ns);
    Ok(Checked {
        picked: tuning.best().to_string(),
        fastest: rows[0].choice.clone(),
        regret: picked as f64 / rows[0].measured_ns.max(1) as f64 - 1.0,
        choices: rows,
    })
}

/// Nanoseconds of the middle step, on the slowest worker.
fn one_run(choice: &Choice, plan: &Plan, job: Option<&mut Job>) -> anyhow::Result<u64> {
    match job {
        Some(job) => Ok(work(choice, plan, job.transport())?),
        None => {
            let all = run_workers(plan.workers, |transport| work(choice, plan, transport))?;
            Ok(super::auto::first_cause(all)?)
        }
    }
}

fn work<T: Transport>(choice: &Choice, plan: &Plan, transport: T) -> Result<u64, Error> {
    let rank = transport.world().rank().get();
    let mut reducer = Reducer::with_algorithm(Arc::clone(choice.algorithm()))
        .density(plan.density.get())
        .timeout(plan.deadline)
        .build_for(transport, plan.layouts.clone())?;
    let synthetic = Synthetic {
        distribution: Distribution::HeavyTailed,
        correlation: 0.0,
        seed: 1,
    };
    let steps = (SETTLING + COUNTED) as usize;
    let mut gradients = vec![0.0; reducer.len() + steps * STRIDE];
    synthetic.fill(rank, 0, &mut gradients);
    let mut times = Vec::new();
    for step in 0..SETTLING + COUNTED {
        let gradient = &gradients[step as usize * STRIDE..];
        reducer.barrier()?;
        let began = Instant::now();
        for bucket in 0..reducer.buckets() {
            let range = reducer.range(bucket);
            reducer.begin(bucket, &gradient[range])?;
        }
        reducer.wait()?;
        reducer.commit()?;
        let slowest = slowest(&mut reducer, began.elapsed())?;
        if step >= SETTLING {
            times.push(slowest);
        }
    }
    Ok(median(&mut times))
}

/// Nanoseconds of the worker that took longest.
fn slowest<T: Transport>(reducer: &mut Reducer<T>, mine: Duration) -> Result<u64, Error> {
    let mine = (mine.as_nanos() as u64).to_le_bytes();
    let all = reducer.gather(&mine)?;
    let all = all
        .iter()
        .filter_map(|said| said.as_slice().try_into().ok());
    Ok(all.map(u64::from_le_bytes).max().unwrap_or(0))
}

fn median(times: &mut [u64]) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

impl Checked {
    pub(super) fn text(&self, rows: usize) -> String {
        let time = |nanos: u64| show_time(nanos as f64);
        let picked = self.choices.iter().skip(rows);
        let picked = picked.filter(|row| row.choice == self.picked);
        let cells = self.choices.iter().take(rows).chain(picked).map(|row| {
            let off = row.predicted_ns as f64 / row.measured_ns.max(1) as f64 - 1.0;
            vec![
                row.choice.clone(),
                time(row.measured_ns),
                time(row.predicted_ns),
                format!("{:+.0} %", 100.0 * off),
            ]
        });
        let names = ["choice", "measured", "predicted", "off by"];
        format!(
            "\n{}{} was picked, {} is the fastest: {:.1} % regret\n",
            table::table(&names, cells),
            self.picked,
            self.fastest,
            100.0 * self.regret
        )
    }
}
