//! Random and damaged messages into the machines of every method.

use std::alloc::System;

use proptest::prelude::*;
use spardl_fuzz::resume;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// All the steps of a case, on buckets of less than 90 elements, take less than this in all.
const BYTES: usize = 16 << 20;

fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        // The environment can ask for more.
        cases: default.cases.max(6_000),
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_message_is_taken_or_refused(data in prop::collection::vec(any::<u8>(), resume::PARAMETERS..80)) {
        let region = Region::new(ALLOCATOR);
        resume::message(&data);
        let bytes = region.change().bytes_allocated;
        prop_assert!(bytes < BYTES, "a message made the machines allocate {bytes} bytes");
    }
}

#[test]
fn a_message_too_few_or_too_many_is_refused() {
    for workers in 2..=6 {
        resume::wrong_counts(workers);
    }
}
