//! A process may hold a thousand workers: that one leaves must not put a message into the channel of every other one.

use std::alloc::System;

use spardl_drive::{Connect, ThreadsTransport, threads};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WORKERS: u32 = 400;

#[test]
fn those_that_leave_take_no_memory_of_those_that_stay() {
    let connect = threads(WORKERS).into_iter().map(Connect::connect);
    let mut workers: Vec<ThreadsTransport> = connect.collect::<Result<_, _>>().unwrap();
    // Everybody's channel has its first page after this.
    workers.truncate(390);
    let start = ALLOCATOR.stats();
    workers.truncate(200);
    let stats = ALLOCATOR.stats() - start;
    let taken = stats.bytes_allocated;
    let pairs = 190 * 200;
    assert!(taken < pairs / 4, "{taken} bytes for {pairs} pairs");
}
