//! A worker of SparDL holds 2n words plus O(k), and a step in the steady state allocates O(k).

use std::alloc::System;

use spardl_algos::{Residual, SparDl};
use spardl_core::Layout;
use spardl_sim::Cluster;
use spardl_testkit::generate;
use stats_alloc::{INSTRUMENTED_SYSTEM, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WORKERS: u32 = 4;
/// How many entries, of buckets of which lengths: with few entries in both lists are merged entry by entry, with many by windows.
const CASES: [(usize, [usize; 2]); 2] = [
    (10_000, [3_000_000, 5_000_000]),
    (60_000, [1_000_000, 7_000_000]),
];
const WORD: usize = 4;
/// Buffers grow by doubling, and one of them may do so once more or less in a longer bucket. Already one bit per element
/// would show: between two lengths it grows by 6.25 and 3.1 k words.
const CHANCE: f64 = 3.0;

fn live(now: Stats, start: Stats) -> usize {
    let stats = now - start;
    stats.bytes_allocated - stats.bytes_deallocated
}

/// What a worker takes, in units of k words.
#[derive(Clone, Copy, Debug)]
struct Words {
    /// Held after some steps, beyond two words per element.
    held: f64,
    /// Allocated in a step.
    allocated: f64,
}

fn words_of_a_worker(residual: Residual, k: usize, len: usize) -> Words {
    let gradients: Vec<_> = (0..3)
        .map(|seed| generate::fractions(seed, WORKERS, len))
        .collect();
    let start = ALLOCATOR.stats();
    let layout = Layout::flat(len as u32);
    let algorithm = SparDl {
        residual,
        ..SparDl::default()
    };
    let mut cluster = Cluster::new(&algorithm, WORKERS, &layout).unwrap();
    let mut allocated = 0;
    for step in 0..12 {
        let before = ALLOCATOR.stats();
        cluster.step(&gradients[step % 3], k, step as u64).unwrap();
        cluster.commit().unwrap();
        allocated = (ALLOCATOR.stats() - before).bytes_allocated;
    }
    let held = live(ALLOCATOR.stats(), start) / WORKERS as usize;
    let allocated = allocated / WORKERS as usize;
    let least = 2 * len * WORD;
    assert!(held >= least, "the count misses something: {held} bytes");
    let per_k = |bytes: usize| bytes as f64 / (WORD * k) as f64;
    Words {
        held: per_k(held - least),
        allocated: per_k(allocated),
    }
}

#[test]
#[allow(clippy::print_stderr)]
fn a_worker_holds_two_words_per_element_and_a_step_allocates_as_much_as_it_selects() {
    let rules = [Residual::GlobalA, Residual::GlobalB];
    for (rule, (k, lens)) in rules
        .into_iter()
        .flat_map(|rule| CASES.map(|case| (rule, case)))
    {
        let [short, long] = lens.map(|len| words_of_a_worker(rule, k, len));
        eprintln!("{rule}, in words of k, beyond 2n: {short:.1?}, in a longer bucket: {long:.1?}");
        for words in [short, long] {
            assert!(words.held <= 40.0, "a worker holds {words:?} beyond 2n");
            assert!(words.allocated <= 40.0, "a step allocates {words:?}");
        }
        // The same k: what grows is O(n).
        let grown = long.held - short.held;
        assert!(grown <= CHANCE, "{grown} more held: {short:?}, {long:?}");
        let grown = long.allocated - short.allocated;
        assert!(
            grown <= CHANCE,
            "{grown} more allocated: {short:?}, {long:?}"
        );
    }
}
