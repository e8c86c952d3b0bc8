//! The entries that a method says it sent are those on the wire.

use spardl_core::HEADER_LEN;
use spardl_testkit::{Trial, configurations, generate};

/// More than the counts and lengths that a message spends on each of its lists.
const PER_LIST: u64 = 16;

#[test]
fn entries_sent_are_the_values_on_the_wire() {
    let (len, k) = (4000, 400);
    for workers in [1, 2, 3, 6, 8] {
        for algorithm in configurations::all_raw(workers) {
            let mut trial = Trial::new(&*algorithm, workers, len);
            for step in 0..3 {
                let report = trial.run(&generate::fractions(step, workers, len), k, step);
                for (rank, worker) in trial.cluster.workers().iter().enumerate() {
                    let context = format!("{} rank {rank} step {step}", trial.context);
                    let headers = report.ledger.messages[rank] * HEADER_LEN as u64;
                    let body = report.ledger.bytes[rank] - headers;
                    let entries = worker.stats().entries_sent;
                    assert!(4 * entries <= body, "{context}: {entries} in {body} B");
                    // At most 8 B per entry with raw indices, and a few lists per worker and round.
                    let lists = u64::from(report.ledger.rounds[rank] + 2 * workers);
                    let most = 8 * entries + PER_LIST * lists;
                    let pairs = algorithm.laws().pairs;
                    assert!(!pairs || body <= most, "{context}: {entries} in {body} B");
                }
                trial.cluster.commit().unwrap();
            }
        }
    }
}
