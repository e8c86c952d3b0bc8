//! Times, printed by rank 0: messages between two ranks, the engine's all-reduce, whole steps of methods.
//!
//! `mpiexec -n 4 TEST_BINARY rank measure dense spardl spardl-bf16`

use std::time::{Duration, Instant};

use spardl_algos::{Options, registry};
use spardl_core::{Input, Layout};
use spardl_drive::{Driver, Transport, barrier};
use spardl_mpi::Mpi;
use spardl_sim::gradient::{Distribution, Synthetic};

/// VGG-16 for CIFAR.
const LEN: usize = 14_728_266;
const DENSITY: f64 = 0.01;
const STEPS: u64 = 12;
/// The first steps learn thresholds and touch fresh memory.
const WARM_UP: usize = 3;
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn rank(methods: &[&str]) {
    let mpi = Mpi::init().unwrap();
    let mut transport = mpi.transport().unwrap();
    let mut yardsticks = mpi.yardsticks(LIMIT).unwrap();
    let world = transport.world();
    let rank = world.rank().get();
    let say = |line: String| {
        if rank == 0 {
            println!("{line}");
        }
    };
    for bytes in [16, 4000, 20_000, 1_000_000, 8_000_000] {
        if world.size() > 1 && rank < 2 {
            let repetitions = if bytes < 100_000 { 2000 } else { 50 };
            let time = yardsticks
                .ping_pong(1 - rank, bytes, repetitions, LIMIT)
                .unwrap();
            say(format!("ping-pong {bytes:9} B {time:9.1?} one way"));
        }
        barrier(&mut transport, LIMIT).unwrap();
    }
    let synthetic = Synthetic {
        distribution: Distribution::HeavyTailed,
        correlation: 0.0,
        seed: 1,
    };
    let mut gradient = vec![0.0; LEN];
    synthetic.fill(rank, 0, &mut gradient);
    let mut times = Vec::new();
    for _ in 0..STEPS {
        let mut values = gradient.clone();
        barrier(&mut transport, LIMIT).unwrap();
        let started = Instant::now();
        yardsticks.all_reduce_f32(&mut values, LIMIT).unwrap();
        barrier(&mut transport, LIMIT).unwrap();
        times.push(started.elapsed());
    }
    say(format!("mpi-allreduce {}", spread(times)));
    for name in methods {
        let method = registry::build(name, &Options::default()).unwrap();
        let layouts = [Layout::flat(LEN as u32)];
        let driver = Driver::for_layouts(transport, &*method, &layouts).unwrap();
        let mut driver = driver.with_timeout(LIMIT);
        let mut times = Vec::new();
        let mut parts = String::new();
        for step in 0..STEPS {
            let k = (LEN as f64 * DENSITY) as usize;
            let input = Input::new(&gradient, k, step);
            let started = Instant::now();
            let report = driver.all_reduce(&[input]).unwrap();
            times.push(started.elapsed());
            let total = report.total();
            parts = format!(
                "select {:.1?} merge {:.1?} waited {:.1?}, {} rounds, {} B sent",
                total.select, total.merge, report.waited, total.rounds, total.bytes_sent
            );
        }
        (transport, _) = driver.into_parts();
        say(format!("{name} {} (last: {parts})", spread(times)));
        barrier(&mut transport, LIMIT).unwrap();
    }
}

fn spread(mut times: Vec<Duration>) -> String {
    times.drain(..WARM_UP);
    times.sort_unstable();
    let (least, most) = (times[0], times[times.len() - 1]);
    format!(
        "median {:.1?}, from {least:.1?} to {most:.1?}",
        times[times.len() / 2]
    )
}
