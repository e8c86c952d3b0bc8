//! What a step costs is what the method says: rounds, messages, bytes, and SparDL's published word counts.

use std::collections::BTreeSet;

use spardl_algos::{Residual, Sag, SparDl};
use spardl_core::phase::AllGather;
use spardl_core::{Algorithm, Codec, Cost, HEADER_LEN, IndexCoding, Layout};
use spardl_sim::Ledger;
use spardl_sim::gradient::layers;
use spardl_testkit::{Trial, configurations, generate};

fn assert_within(ledger: &Ledger, cost: &Cost, context: &str) {
    for rank in 0..ledger.rounds.len() {
        let (rounds, messages) = (ledger.rounds[rank], ledger.messages[rank]);
        let bytes = ledger.bytes[rank];
        assert!(
            cost.rounds.contains(&rounds),
            "{context}: {rounds} rounds, {cost:?}"
        );
        assert!(
            messages <= cost.messages,
            "{context}: {messages} messages, {cost:?}"
        );
        assert!(
            bytes <= cost.bytes_max,
            "{context}: {bytes} bytes, {cost:?}"
        );
    }
}

/// One of the configurations of each method that say they cost the same: a residual rule changes no message.
fn distinct(mut all: Vec<Box<dyn Algorithm>>, workers: u32) -> Vec<Box<dyn Algorithm>> {
    let mut seen = BTreeSet::new();
    all.retain(|algorithm| {
        let cost = algorithm.cost(workers, &Layout::flat(1000), 100, 0);
        seen.insert((algorithm.name(), format!("{cost:?}")))
    });
    all
}

#[test]
fn no_step_costs_more_than_the_method_says() {
    for workers in 1..=40 {
        let configurations = match workers {
            0..=13 => configurations::every(workers),
            _ => configurations::all(workers),
        };
        let mut all = distinct(configurations, workers);
        all.extend(distinct(configurations::all_raw(workers), workers));
        let lens: &[usize] = if workers <= 8 { &[160, 5, 0] } else { &[160] };
        for algorithm in all {
            for &len in lens {
                let mut trial = Trial::new(&*algorithm, workers, len);
                for (step, k) in [16, 3, 0, 200].into_iter().enumerate() {
                    let step = step as u64;
                    let report = trial.run(&generate::fractions(step, workers, len), k, step);
                    let cost = algorithm.cost(workers, &Layout::flat(len as u32), k, step);
                    assert_within(&report.ledger, &cost, &format!("{} k={k}", trial.context));
                    trial.cluster.commit().unwrap();
                }
            }
        }
    }
}

#[test]
fn no_step_on_layers_costs_more_than_the_method_says() {
    for workers in [1, 2, 3, 4, 6, 8, 13] {
        for algorithm in distinct(configurations::every(workers), workers) {
            for len in [40, 3000] {
                let layout = layers(len).unwrap();
                let mut trial = Trial::with_layout(&*algorithm, workers, &layout);
                for (step, k) in (0..).zip([len as usize / 50, 3, 0, len as usize]) {
                    let gradients = generate::fractions(step, workers, len as usize);
                    let report = trial.run(&gradients, k, step);
                    let cost = algorithm.cost(workers, &layout, k, step);
                    assert_within(&report.ledger, &cost, &format!("{} k={k}", trial.context));
                    trial.cluster.commit().unwrap();
                }
            }
        }
    }
}

/// More than enough for lists whose length adapts to grow as long as they may be.
const STEPS: u64 = 14;

/// Runs with the same full gradient on all workers; returns the last step's ledger.
fn with_full_lists(trial: &mut Trial, workers: u32, len: usize, k: usize) -> Ledger {
    let mut ledger = Ledger::default();
    for step in 0..STEPS {
        ledger = trial
            .run(&generate::unanimous(step, workers, len), k, step)
            .ledger;
        trial.cluster.commit().unwrap();
    }
    ledger
}

#[test]
fn the_bound_on_bytes_is_close_to_what_full_blocks_take() {
    // Large enough that a block rounded up is not much longer than the others.
    let (len, k) = (1800, 600);
    for workers in 1..=40 {
        let mut all = distinct(configurations::all_raw(workers), workers);
        all.retain(|algorithm| algorithm.loose_bound().is_none());
        for algorithm in all {
            let mut trial = Trial::new(&*algorithm, workers, len);
            let ledger = with_full_lists(&mut trial, workers, len, k);
            let cost = algorithm.cost(workers, &Layout::flat(len as u32), k, STEPS - 1);
            assert_within(&ledger, &cost, &trial.context);
            let most = *ledger.bytes.iter().max().unwrap();
            let bound = cost.bytes_max;
            assert!(
                bound as f64 <= 1.05 * most as f64,
                "{}: bound {bound}, measured {most}",
                trial.context
            );
        }
    }
}

/// Bytes that are neither header, list prefix nor item prefix, in words.
fn entry_words(bytes: u64, rounds: u32, lists: usize, items: usize) -> f64 {
    let prefix = Codec::default().list_len(0, 0) * lists;
    let item = AllGather::body_bytes(0, &vec![0; items + 1]) as usize;
    (bytes as usize - rounds as usize * HEADER_LEN - prefix - item) as f64 / 4.0
}

#[test]
fn spardl_sends_the_published_number_of_words_when_all_quotas_are_full() {
    for workers in 1..=24u32 {
        for teams in (1..=workers).filter(|&teams| workers.is_multiple_of(teams)) {
            for sag in [Sag::R, Sag::B] {
                if sag == Sag::R && !teams.is_power_of_two() {
                    continue;
                }
                let codec = Codec {
                    indices: IndexCoding::Raw,
                    ..Codec::default()
                };
                let algorithm = SparDl {
                    teams,
                    sag,
                    residual: Residual::GlobalA,
                    codec,
                };
                let size = (workers / teams) as usize;
                let (len, k) = (size * 40, size * 4);
                let mut trial = Trial::new(&algorithm, workers, len);
                let ledger = with_full_lists(&mut trial, workers, len, k);
                let [p, d, k] = [f64::from(workers), f64::from(teams), k as f64];
                let log = f64::from(teams.ilog2());
                let (words, columns) = match sag {
                    Sag::R => (2.0 * k * (2.0 * p - 2.0 * d + d * log) / p, log as usize),
                    _ => {
                        let state = trial.cluster.workers()[0].state().method;
                        let h = state.u64("adaptive-length").unwrap()[0] as f64;
                        assert!(teams == 1 || h == k * d / p, "{}: h {h}", trial.context);
                        let words = 4.0 * k * (p - d) / p + 2.0 * (d - 1.0) * h;
                        (words, teams as usize - 1)
                    }
                };
                let items = size - 1 + if sag == Sag::B { teams as usize - 1 } else { 0 };
                let rounds = *algorithm
                    .cost(workers, &Layout::flat(len as u32), 1, 0)
                    .rounds
                    .end();
                for &bytes in &ledger.bytes {
                    let lists = 2 * (size - 1) + columns;
                    let measured = entry_words(bytes, rounds, lists, items);
                    assert!(
                        (measured - words).abs() < 1e-6,
                        "{}: {measured} words, formula {words}",
                        trial.context
                    );
                }
            }
        }
    }
}
