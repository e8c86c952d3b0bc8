//! Times the kernels against the plain loop `a[i] += b[i]` over the same arrays, on one thread.
//!
//! `cargo run --release -p spardl-kernels --example pass [elements] [repetitions]`
//!
//! The loops take turns, each right after a plain loop, so that a disturbance hits both; the figures are medians.
#![allow(clippy::print_stdout, reason = "a program whose output is its purpose")]

use std::hint::black_box;
use std::time::Instant;

use spardl_kernels::{
    Entries, Level, accumulate, add_assign, all_finite, copy, extract, from_bf16, scatter, sum,
    sum_of_squares, take_at, to_bf16,
};

/// Shares of candidates to time; zero is the threshold of infinity, which extracts nothing.
const DENSITIES: [f64; 5] = [0.0, 0.001, 0.01, 0.015, 0.03];

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|a| a.parse().expect("a number"));
    let n = arguments.next().unwrap_or(14_728_266);
    let repetitions = arguments.next().unwrap_or(31);
    let mut arrays = Arrays::new(n);
    let cases = cases(&arrays);
    let mut plain = vec![Vec::new(); cases.len()];
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..repetitions {
        for (case, (name_and_run, times)) in cases.iter().zip(&mut times).enumerate() {
            plain[case].push(time(&mut arrays, &plain_loop));
            times.push(time(&mut arrays, &name_and_run.1));
        }
    }
    println!(
        "{n} elements, {repetitions} repetitions, plain loop {:.1} us",
        median(plain.concat())
    );
    println!("{:<36} {:>8} {:>6}", "loop", "us", "ratio");
    for (((name, _), times), plain) in cases.iter().zip(times).zip(plain) {
        let (time, plain) = (median(times), median(plain));
        println!("{name:<36} {time:>8.1} {:>6.2}", time / plain);
    }
}

type Run = Box<dyn Fn(&mut Arrays)>;

struct Arrays {
    residual: Vec<f32>,
    gradient: Vec<f32>,
    work: Vec<f32>,
    narrow: Vec<u16>,
    selected: Vec<u32>,
    values: Vec<f32>,
    out: Entries,
}

impl Arrays {
    fn new(n: usize) -> Self {
        let residual = heavy_tailed(n, 1);
        let gradient = heavy_tailed(n, 2);
        let mut work = vec![0.0; n];
        let mut out = Entries::new();
        let threshold = threshold(sums(&residual, &gradient), 0.01);
        accumulate(
            Level::best(),
            &residual,
            gradient[..].into(),
            &mut work,
            0,
            threshold,
            &mut out,
        );
        let (selected, values) = (out.indices.clone(), out.values.clone());
        Arrays {
            residual,
            gradient,
            work,
            narrow: vec![0; n],
            selected,
            values,
            out,
        }
    }
}

fn cases(arrays: &Arrays) -> Vec<(String, Run)> {
    let mut cases: Vec<(String, Run)> = vec![("plain loop".into(), Box::new(plain_loop))];
    for level in Level::available() {
        let name = level.name();
        let mut add = |what: &str, run: Run| cases.push((format!("{name} {what}"), run));
        for density in DENSITIES {
            let t = threshold(sums(&arrays.residual, &arrays.gradient), density);
            for blocks in [1, 8, 128] {
                let run = move |a: &mut Arrays| accumulate_blocks(level, a, blocks, t);
                add(
                    &format!("accumulate {density}, {blocks} blocks"),
                    Box::new(run),
                );
            }
        }
        let t = threshold(arrays.gradient.clone(), 0.01);
        add(
            "extract 0.01",
            Box::new(move |a| {
                a.out.clear();
                extract(level, &a.gradient, 0, t, &mut a.out);
            }),
        );
        add(
            "copy",
            Box::new(move |a| {
                copy(level, a.gradient[..].into(), &mut a.work);
            }),
        );
        add(
            "add_assign",
            Box::new(move |a| add_assign(level, &mut a.work, &a.gradient)),
        );
        add(
            "all_finite",
            Box::new(move |a| {
                black_box(all_finite(level, &a.gradient));
            }),
        );
        add(
            "sum",
            Box::new(move |a| {
                black_box(sum(level, &a.gradient));
            }),
        );
        add(
            "sum_of_squares",
            Box::new(move |a| {
                black_box(sum_of_squares(level, &a.gradient));
            }),
        );
        add(
            "to_bf16",
            Box::new(move |a| to_bf16(level, &a.gradient, &mut a.narrow)),
        );
        add(
            "from_bf16",
            Box::new(move |a| from_bf16(level, &a.narrow, &mut a.work)),
        );
        add(
            "take_at 0.01",
            Box::new(move |a| {
                a.out.clear();
                take_at(level, &mut a.work, &a.selected, &mut a.out.values);
                a.out.clear();
            }),
        );
        add(
            "scatter 0.01",
            Box::new(move |a| scatter(level, &mut a.work, &a.selected, &a.values)),
        );
    }
    cases
}

fn accumulate_blocks(level: Level, a: &mut Arrays, blocks: usize, threshold: f32) {
    a.out.clear();
    let block = a.work.len().div_ceil(blocks);
    for ((r, g), (j, w)) in a
        .residual
        .chunks(block)
        .zip(a.gradient.chunks(block))
        .zip(a.work.chunks_mut(block).enumerate())
    {
        let base = (j * block) as u32;
        assert!(accumulate(
            level,
            r,
            g.into(),
            w,
            base,
            threshold,
            &mut a.out
        ));
    }
}

fn plain_loop(arrays: &mut Arrays) {
    for (a, b) in arrays.work.iter_mut().zip(&arrays.gradient) {
        *a += b;
    }
}

fn time(arrays: &mut Arrays, run: &dyn Fn(&mut Arrays)) -> f64 {
    let start = Instant::now();
    run(black_box(arrays));
    start.elapsed().as_secs_f64() * 1e6
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn sums(residual: &[f32], gradient: &[f32]) -> Vec<f32> {
    residual.iter().zip(gradient).map(|(r, g)| r + g).collect()
}

/// The magnitude that the share `density` of the values reaches; infinite for a density of zero.
fn threshold(mut values: Vec<f32>, density: f64) -> f32 {
    let rank = (values.len() as f64 * density) as usize;
    if rank == 0 {
        return f32::INFINITY;
    }
    let by_magnitude = |a: &f32, b: &f32| b.abs().total_cmp(&a.abs());
    values
        .select_nth_unstable_by(rank - 1, by_magnitude)
        .1
        .abs()
}

/// Values like a gradient's: mostly small, a few large, in no order.
fn heavy_tailed(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n)
        .map(|_| (next() + next() * next()).powi(5) * 0.01)
        .collect()
}
