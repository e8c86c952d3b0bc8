//! Times what it costs to share work between threads: a pool that waits, against threads started each time.
//!
//! `cargo run --release -p spardl-drive --example pool [threads] [repetitions]`
//!
//! The two take turns, so that a disturbance hits both; the figures are medians.
//!
//! Then the plain loop `a[i] += b[i]` with one thread and with all: how much faster memory lets any pass become.
#![expect(clippy::print_stdout, reason = "a program whose output is its purpose")]

use std::hint::black_box;
use std::time::Instant;

use spardl_core::Parallel;
use spardl_core::parallel::Job;

/// Starts its threads anew for each piece of work.
#[derive(Debug)]
struct Started(usize);

impl Parallel for Started {
    fn threads(&self) -> usize {
        self.0
    }

    fn run(&self, jobs: Vec<Job<'_>>) {
        std::thread::scope(|scope| {
            let mut jobs = jobs.into_iter();
            let own = jobs.next();
            for job in jobs {
                scope.spawn(job);
            }
            own.into_iter().for_each(|job| job());
        });
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse());
    let threads = arguments.next().transpose()?.unwrap_or(2);
    let repetitions = arguments.next().transpose()?.unwrap_or(1001);
    let (waiting, started) = (spardl_drive::pool(threads)?, Started(threads));
    println!("{threads} threads, {repetitions} repetitions, microseconds");
    println!("{:>12} {:>8} {:>8}", "work of each", "waiting", "started");
    for rounds in [0, 1_000, 10_000, 100_000] {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..repetitions {
            times[0].push(time(&*waiting, rounds));
            times[1].push(time(&started, rounds));
        }
        let [waiting, started] = times.map(median);
        let alone = median((0..repetitions).map(|_| alone(rounds)).collect());
        println!("{alone:>12.1} {waiting:>8.1} {started:>8.1}");
    }
    let [one, all] = plain_loops(&*waiting);
    println!("plain loop over {ELEMENTS} elements: {one:.1} alone, {all:.1} with all threads");
    Ok(())
}

/// The length of VGG-16's gradient: far more than caches hold.
const ELEMENTS: usize = 14_728_266;

/// The plain loop on one thread and on all, in turn.
fn plain_loops(threads: &dyn Parallel) -> [f64; 2] {
    const REPETITIONS: usize = 31;
    let (mut a, b) = (vec![0.0; ELEMENTS], vec![1.0; ELEMENTS]);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..REPETITIONS {
        let since = Instant::now();
        plain_loop(&mut a, black_box(&b));
        times[0].push(since.elapsed().as_secs_f64() * 1e6);
        let since = Instant::now();
        let share = ELEMENTS.div_ceil(threads.threads());
        let parts = a.chunks_mut(share).zip(b.chunks(share));
        let job = |(a, b)| Box::new(move || plain_loop(a, b)) as Job<'_>;
        threads.run(parts.map(job).collect());
        times[1].push(since.elapsed().as_secs_f64() * 1e6);
    }
    times.map(median)
}

fn plain_loop(a: &mut [f32], b: &[f32]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a += b;
    }
}

fn time(threads: &dyn Parallel, rounds: u64) -> f64 {
    let since = Instant::now();
    let job = |_| Box::new(move || spin(rounds)) as Job<'_>;
    threads.run((0..threads.threads()).map(job).collect());
    since.elapsed().as_secs_f64() * 1e6
}

fn alone(rounds: u64) -> f64 {
    let since = Instant::now();
    spin(rounds);
    since.elapsed().as_secs_f64() * 1e6
}

fn spin(rounds: u64) {
    for round in 0..rounds {
        black_box(round);
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
