//! A worker of SparDL holds 2n words plus O(k), and a step in the steady state allocates O(k).

use std::alloc::System;

use spardl_algos::SparDl;
use spardl_core::Layout;
use spardl_sim::Cluster;
use spardl_testkit::generate;
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WORKERS: u32 = 4;
const LEN: usize = 1_000_000;
const K: usize = LEN / 100;
const WORD: usize = 4;

fn live(now: Stats, start: Stats) -> usize {
    let stats = now - start;
    stats.bytes_allocated - stats.bytes_deallocated
}

#[test]
#[allow(clippy::print_stderr)]
fn a_worker_holds_two_words_per_element_and_a_step_allocates_as_much_as_it_selects() {
    let gradients: Vec<_> = (0..3)
        .map(|seed| generate::fractions(seed, WORKERS, LEN))
        .collect();
    let start = ALLOCATOR.stats();
    let layout = Layout::flat(LEN as u32);
    let mut cluster = Cluster::new(&SparDl::default(), WORKERS, &layout).unwrap();
    let mut allocated = 0;
    for step in 0..12 {
        let before = ALLOCATOR.stats();
        cluster.step(&gradients[step % 3], K, step as u64).unwrap();
        cluster.commit().unwrap();
        allocated = (ALLOCATOR.stats() - before).bytes_allocated;
    }
    let held = live(ALLOCATOR.stats(), start) / WORKERS as usize;
    let allocated = allocated / WORKERS as usize;
    let per_k = |bytes: usize| bytes as f64 / (WORD * K) as f64;
    let beyond = per_k(held.saturating_sub(2 * LEN * WORD));
    eprintln!(
        "a worker holds 2n + {beyond:.1} k words and a step allocates {:.1} k words",
        per_k(allocated)
    );
    assert!(
        held >= 2 * LEN * WORD,
        "the count misses something: {held} bytes"
    );
    assert!(beyond <= 40.0, "a worker holds {beyond} k words beyond 2n");
    assert!(
        per_k(allocated) <= 40.0,
        "a step allocates {} k words",
        per_k(allocated)
    );
}
