//! What a training step pays for its reduction: bucket in, select, exchange within the process, mean written back. Each worker
//! times it and, beside it, the plain loop `a[i] += b[i]` over as many elements:
//! `cargo run --release -p spardl-train --example reduce_path -- [method] [elements] [workers] [density] [iterations]`

#![allow(clippy::print_stdout, reason = "it is what the program is for")]

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use spardl::{Reducer, Transport, run_workers};
use spardl_sim::gradient::{Distribution, Synthetic, layers};

/// Steps before the first that counts.
const WARMUP: u32 = 3;

struct Job {
    method: String,
    elements: u32,
    workers: u32,
    density: f64,
    iterations: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |usual: &str| arguments.next().unwrap_or_else(|| usual.to_owned());
    let job = Job {
        method: next("spardl"),
        elements: next("14728266").parse()?,
        workers: next("2").parse()?,
        density: next("0.01").parse()?,
        iterations: next("20").parse()?,
    };
    let mut steps = Vec::new();
    for worker in run_workers(job.workers, |transport| measure(&job, transport))? {
        steps.extend(worker?);
    }
    let (reduce, stream) = (
        median(steps.iter().map(|step| step.0)),
        median(steps.iter().map(|step| step.1)),
    );
    let ratio = median(steps.iter().map(|step| step.0 / step.1));
    let Job {
        method,
        elements,
        workers,
        density,
        ..
    } = job;
    println!(
        "{method}, {workers} workers, {elements} elements, density {density}: reduce {reduce:.1} ms, plain loop {stream:.1} ms, ratio {ratio:.2}"
    );
    Ok(())
}

/// Milliseconds of the reduction and of the plain loop, for each step that counts.
fn measure(job: &Job, transport: impl Transport) -> Result<Vec<(f64, f64)>, spardl::Error> {
    let rank = transport.world().rank().get();
    let mut reducer = Reducer::builder(&job.method)
        .density(job.density)
        .timeout(Duration::from_secs(60))
        .build_for(transport, vec![layers(job.elements)?])?;
    let synthetic = Synthetic {
        distribution: Distribution::HeavyTailed,
        correlation: 0.5,
        seed: 1,
    };
    let len = job.elements as usize;
    let (mut fresh, mut gradient, mut target) = (vec![0.0; len], vec![0.0; len], vec![0.0; len]);
    synthetic.fill(rank, 0, &mut fresh);
    let mut steps = Vec::new();
    for step in 0..WARMUP + job.iterations {
        gradient.copy_from_slice(&fresh);
        reducer.gather(&[])?;
        let since = Instant::now();
        reducer.all_reduce(&mut gradient)?;
        let reduce = since.elapsed();
        // Nobody measures the plain loop while others still work.
        reducer.gather(&[])?;
        let since = Instant::now();
        for (a, b) in target.iter_mut().zip(black_box(&fresh)) {
            *a += b;
        }
        black_box(&target);
        let stream = since.elapsed();
        if step >= WARMUP {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            steps.push((ms(reduce), ms(stream)));
        }
    }
    Ok(steps)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
