//! A process may hold all workers of a large world, and each of them knows the blocks of all: what a block takes counts then.

use std::alloc::System;

use spardl_algos::SparDl;
use spardl_core::Layout;
use spardl_sim::Cluster;
use spardl_testkit::generate;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const LEN: usize = 10;
/// Bytes of a block of at most one element: where it begins, its quota, its form, what the last step taught about it.
const MOST: f64 = 64.0;

/// Bytes that a worker holds between steps.
fn held(workers: u32) -> f64 {
    let gradients = generate::fractions(1, workers, LEN);
    let start = ALLOCATOR.stats();
    let mut cluster = Cluster::new(&SparDl::default(), workers, &Layout::flat(LEN as u32)).unwrap();
    for step in 0..3 {
        cluster.step(&gradients, LEN / 2, step).unwrap();
        cluster.commit().unwrap();
    }
    let stats = ALLOCATOR.stats() - start;
    (stats.bytes_allocated - stats.bytes_deallocated) as f64 / f64::from(workers)
}

#[test]
#[allow(clippy::print_stderr)]
fn a_worker_holds_few_bytes_for_a_block_of_another_one() {
    let (few, many) = (held(128), held(384));
    let of_a_block = (many - few) / 256.0;
    eprintln!("{few:.0} bytes with 128 workers, {many:.0} with 384: {of_a_block:.1} a block");
    assert!(of_a_block <= MOST, "{of_a_block} bytes a block");
}
