//! The time of a step on a simulated network is what its rounds and bytes take, and where it went adds up to it.

use spardl_algos::{Options, registry};
use spardl_core::{Algorithm, Layout};
use spardl_sim::{
    Cluster, Compute, Cores, Fabric, Line, Overhead, Sharing, Spent, Spread, Topology,
};
use spardl_testkit::{Trial, configurations, generate};

/// A byte takes 8 ns at 1 Gbit/s, so that sums of rounded times are exact.
const LINE: Line = Line {
    latency: 10_000,
    bandwidth: 1_000_000_000,
};

/// More than enough for lists whose length adapts to grow as long as they may be.
const STEPS: u64 = 14;

fn flat(workers: u32) -> Fabric {
    Fabric::new(Topology::Flat, workers, LINE).unwrap()
}

fn trial(algorithm: &dyn Algorithm, workers: u32, len: usize, sharing: Sharing) -> Trial {
    let mut trial = Trial::new(algorithm, workers, len);
    trial.cluster = trial.cluster.with_fabric(flat(workers), sharing);
    trial
}

#[test]
fn full_blocks_on_a_flat_network_take_the_alpha_beta_formula_to_the_nanosecond() {
    let mut exact = 0;
    for workers in (1..=16).chain([24, 32]) {
        let (len, k) = (workers as usize * 40, workers as usize * 4);
        let mut all = configurations::all_raw(workers);
        all.retain(|algorithm| algorithm.loose_bound().is_none());
        for algorithm in all {
            let mut trial = trial(&*algorithm, workers, len, Sharing::None);
            for step in 0..STEPS - 1 {
                trial.step(&generate::unanimous(step, workers, len), k, step);
            }
            let (step, gradients) = (STEPS - 1, generate::unanimous(STEPS - 1, workers, len));
            let sent = bytes_by_round(&mut trial, &gradients, k, step);
            // Trees have workers that rest, and some blocks cannot be equal: what these take at most is another test's.
            if sent
                .iter()
                .any(|round| round.iter().any(|bytes| *bytes != round[0]))
            {
                continue;
            }
            let cost = algorithm.cost(workers, &Layout::flat(len as u32), k, step);
            let formula =
                u64::from(*cost.rounds.end()) * LINE.latency + LINE.transfer(cost.bytes_max);
            let time = trial.run(&gradients, k, step).timing.step();
            assert_eq!(time, formula, "{}", trial.context);
            exact += 1;
        }
    }
    assert!(exact > 200, "only {exact} configurations have full blocks");
}

#[test]
fn spardl_with_full_blocks_meets_no_contention_where_links_are_shared() {
    for workers in 1..=32u32 {
        for algorithm in configurations::all_raw(workers) {
            if algorithm.name() != "spardl" {
                continue;
            }
            let (len, k) = (workers as usize * 40, workers as usize * 4);
            let mut trial = trial(&*algorithm, workers, len, Sharing::Fair);
            let report = trial.run(&generate::unanimous(0, workers, len), k, 0);
            let rounds = report.ledger.rounds[0];
            let formula = u64::from(rounds) * LINE.latency + LINE.transfer(report.ledger.bytes[0]);
            assert_eq!(report.timing.step(), formula, "{}", trial.context);
        }
    }
}

#[test]
fn no_step_takes_longer_than_the_longest_message_of_every_round() {
    for workers in [2, 3, 5, 8, 13] {
        for algorithm in configurations::every(workers) {
            let len = 300;
            let mut trial = trial(&*algorithm, workers, len, Sharing::None);
            for (step, k) in (0..).zip([16, 3, 0, 300]) {
                let gradients = generate::fractions(step, workers, len);
                let sent = bytes_by_round(&mut trial, &gradients, k, step);
                let most = sent.iter().filter_map(|round| round.iter().max());
                let bound: u64 = most.map(|&bytes| LINE.latency + LINE.transfer(bytes)).sum();
                let time = trial.run(&gradients, k, step).timing.step();
                assert!(time <= bound, "{} k={k}: {time} > {bound}", trial.context);
                trial.cluster.commit().unwrap();
            }
        }
    }
}

/// The bytes that each worker sends in each round of a step.
fn bytes_by_round(trial: &mut Trial, gradients: &[Vec<f32>], k: usize, step: u64) -> Vec<Vec<u64>> {
    let mut sent: Vec<Vec<u64>> = Vec::new();
    for message in trial.messages(gradients, k, step) {
        let (round, from) = (message.round as usize, message.from.index());
        sent.resize(sent.len().max(round + 1), vec![0; gradients.len()]);
        sent[round][from] += message.bytes.len() as u64;
    }
    sent
}

#[test]
fn where_the_time_went_adds_up_to_the_time() {
    let compute = Compute {
        forward: 1_000,
        backward: 50_000,
        spread: Spread::LogNormal(0.3),
        speeds: vec![1.0, 0.7],
        select: 900,
        merge: 300,
        cores: Some(Cores {
            count: 2,
            workers: 4,
            transport: 700,
        }),
        ..Compute::default()
    };
    let lens = [90, 0, 41, 90];
    let layouts = lens.map(Layout::flat);
    for (workers, shape) in [
        (1, Topology::Flat),
        (6, Topology::Flat),
        (
            9,
            Topology::FatTree {
                leaf_size: 3,
                oversubscription: 2,
                hop_latency: 500,
            },
        ),
    ] {
        for algorithm in configurations::all(workers) {
            let fabric = Fabric::new(shape.clone(), workers, LINE).unwrap();
            let mut cluster = Cluster::with_buckets(&*algorithm, workers, &layouts)
                .unwrap()
                .with_fabric(fabric.with_burst(60), Sharing::Fair)
                .with_cores(compute.cores.unwrap())
                .with_compute(compute.clone(), 5);
            for step in 0..3 {
                let report = cluster
                    .step_made(step, |rank, bucket, out| {
                        let seed = step * 10 + u64::from(bucket.get());
                        out.copy_from_slice(
                            &generate::fractions(seed, workers, out.len())[rank.index()],
                        );
                        13
                    })
                    .unwrap();
                cluster.commit().unwrap();
                let path = report.timing.path.unwrap();
                let context = format!("{} P={workers} {path:?}", algorithm.describe());
                assert_eq!(path.total(), report.timing.step(), "{context}");
                assert!(path.spent(Spent::Compute) > 0, "{context}");
                let carried: u64 = report.timing.links[..2 * workers as usize]
                    .iter()
                    .map(|link| link.bytes)
                    .sum();
                let sent: u64 = report.ledger.bytes.iter().sum();
                assert_eq!(carried, 2 * sent, "{context}");
            }
        }
    }
}

/// The time of a step in which two workers send each other one message, and the bytes of that message.
fn one_exchange(burst: u64, cores: Option<Cores>) -> (u64, u64) {
    let fabric = Fabric::new(Topology::Flat, 2, LINE).unwrap();
    third_step("topk-a", fabric.with_burst(burst), cores)
}

/// The time of a method's third step, and the bytes that the first worker sends in it.
fn third_step(method: &str, fabric: Fabric, cores: Option<Cores>) -> (u64, u64) {
    let algorithm = registry::build(method, &Options::default()).unwrap();
    let workers = fabric.workers();
    let mut cluster = Cluster::new(&*algorithm, workers, &Layout::flat(4000))
        .unwrap()
        .with_fabric(fabric, Sharing::Fair);
    if let Some(cores) = cores {
        cluster = cluster.with_cores(cores);
    }
    let gradients = generate::fractions(1, workers, 4000);
    let mut last = (0, 0);
    for step in 0..3 {
        let report = cluster.step(&gradients, 500, step).unwrap();
        cluster.commit().unwrap();
        last = (report.timing.step(), report.ledger.bytes[0]);
    }
    last
}

#[test]
fn a_link_that_was_idle_passes_its_burst_at_once() {
    let (plain, bytes) = one_exchange(0, None);
    assert_eq!(plain, LINE.time(1, bytes));
    assert_eq!(one_exchange(1000, None).0, LINE.time(1, bytes - 1000));
    assert_eq!(one_exchange(1 << 30, None).0, LINE.latency);
}

#[test]
fn a_message_takes_its_overhead_longer_than_its_bytes() {
    let (plain, bytes) = one_exchange(0, None);
    let fabric = Fabric::new(Topology::Flat, 2, LINE).unwrap();
    let overhead = Overhead::new(vec![(bytes - 100, 1000), (bytes + 100, 3000)]);
    let longer = third_step("topk-a", fabric.with_overhead(overhead), None).0;
    assert_eq!(longer, plain + 2000);
}

#[test]
fn a_message_to_the_worker_that_got_the_last_one_has_an_overhead_of_its_own() {
    let took = |overhead, again: Option<u64>| {
        let of = |time| Overhead::new(vec![(1, time)]);
        let fabric = Fabric::new(Topology::Flat, 3, LINE).unwrap();
        let fabric = fabric.with_overhead(of(overhead));
        let fabric = match again {
            Some(again) => fabric.with_overhead_again(of(again)),
            None => fabric,
        };
        third_step("dense-ring", fabric, None).0
    };
    // A ring of three sends four messages, all to the same worker; the first of a step follows none.
    let plain = took(0, None);
    assert_eq!(took(1000, None), plain + 4 * 1000);
    assert_eq!(took(1000, Some(0)), plain + 1000);
    assert_eq!(took(0, Some(1000)), plain + 3 * 1000);
}

#[test]
fn a_message_arrives_when_links_and_cores_have_moved_it() {
    let cores = |count, transport| Cores {
        count,
        workers: 2,
        transport,
    };
    let (plain, bytes) = one_exchange(0, None);
    assert_eq!(one_exchange(0, Some(cores(1, 1))).0, plain);
    // Two messages, a microsecond of a core for each byte.
    let slow = one_exchange(0, Some(cores(1, 1_000_000))).0;
    assert_eq!(slow, LINE.latency + 2 * 1000 * bytes);
    let two = one_exchange(0, Some(cores(2, 1_000_000))).0;
    assert_eq!(two, LINE.latency + 1000 * bytes);
}
